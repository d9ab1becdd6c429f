//! What is run for FRRWP and REUSE: registered memory, by this program itself.

use super::{Along, FaultHandling, PageIn, Pages, Paper, Place, PlannedCurve, Run, list};
use crate::registered::{NAME, VIEWS};

const LOCKS: &str = "mlock(2) stands for the registration of a network card, of memory from malloc that was touched; Pagewire itself registers nothing page \
    by page; objects within one page share its lock, so small ones are locked for less";
const KERNEL: &str = "not measured: registration in the kernel needs a card and a kernel module; that in user space is in figure 1";
const COMPLETION: &str = "not measured: from outside only the whole of a write can be told (figures 3 and 4)";
const FAST: &str = "not measured: fast registration needs a card, and a table in it";
const STRATEGIES: &str =
    "not measured: the engine has none of these strategies, as nothing has to be registered";
const RULE: &str = "the rule here: min(client's registration, server's registration + round trip), of what was measured beside; without Tc, which cannot be \
    told from outside";
const PROCESSORS: &str = "the rule takes registrations beside each other to cost what they cost alone; here two processes and the threads of both engines, \
    which take the messages of a conditional write, share the processors: where the saving is negative, that costs more than the overlap spares";
const WORK: &str = "T = 0.77 p + 7.42 us: each process works for so long, as the processor does that registers; p is the number of pages";
const OPENING: &str = "both orders end with the deregistration at the client; without a registration the conditional write is the first message, else a \
    signal goes before it, so that both register at once";
const FILLED: &str = "the memory is filled behind the acquisition, which is not counted; nothing is registered for the put itself";

const OF_KOKKOS: &str = "Kokkos View: of pw::kokkos_space, of HostSpace and locked, of HostSpace and copied by deep_copy; plain buffer: vectors of the \
    registered heap and of malloc";

/// What the curves of figure 7 are of.
pub(in crate::reproduce::live) const VIEW: &str = "Kokkos View";
/// Where there is no Kokkos, and beside it.
pub(in crate::reproduce::live) const PLAIN: &str = "plain buffer";

type Planned = (Vec<PlannedCurve>, Vec<&'static str>);

/// 2^k bytes, 7 <= k <= 21, as REUSE has them.
fn reuse_sizes() -> Vec<u64> {
    (7..=21).map(|bits| 1 << bits).collect()
}

/// 1 to 128 KB, as FRRWP has them.
fn frrwp_sizes() -> Vec<u64> {
    (10..=17).map(|bits| 1 << bits).collect()
}

/// Buffers that nobody has registered: 64 KB to 4 MB.
fn exchanged_sizes() -> Vec<u64> {
    (16..=22).map(|bits| 1 << bits).collect()
}

/// Buffers that move in both orders: a page to 16 MiB.
fn saving_sizes() -> Vec<u64> {
    (12..=24).map(|bits| 1 << bits).collect()
}

/// The curves of a place, and what is to be said of it.
pub(super) fn plan(paper: Paper, place: Place) -> Planned {
    match (paper, place) {
        (Paper::Frrwp, Place::Figure(1)) => (against_write(), vec![LOCKS]),
        (Paper::Frrwp, Place::Figure(2)) => (vec![], vec![KERNEL]),
        (Paper::Frrwp, Place::Figure(3)) => (vec![whole("the whole", "traditional")], vec![LOCKS]),
        (Paper::Frrwp, Place::Figure(4)) => (vec![whole("the whole", "conditional")], vec![LOCKS]),
        (Paper::Frrwp, Place::Figure(5)) => (vec![], vec![COMPLETION]),
        (Paper::Frrwp, Place::Table(1)) => (vec![], vec![FAST]),
        (Paper::Frrwp, Place::Section("2.3")) => (orders(), vec![LOCKS, WORK, OPENING]),
        (Paper::Frrwp, Place::Section("4")) => (savings(), vec![LOCKS, RULE, PROCESSORS]),
        (Paper::Frrwp, Place::Section("5")) => (vec![], vec![STRATEGIES]),
        (Paper::Reuse, Place::Figure(1)) => {
            (allocations(&[("registration", "lock"), ("deregistration", "unlock")]), vec![LOCKS])
        }
        (Paper::Reuse, Place::Figure(2)) => {
            (allocations(&[("registration", "lock_kib"), ("deregistration", "unlock_kib")]), vec![LOCKS])
        }
        (Paper::Reuse, Place::Figure(3)) => {
            let tenths = [
                ("heap, fastest tenth", "new_least"),
                ("heap, slowest tenth", "new_most"),
                ("by hand", "by_hand"),
            ];
            (allocations(&tenths), vec![LOCKS])
        }
        (Paper::Reuse, Place::Figure(4)) => {
            (allocations(&[("heap", "new"), ("by hand", "by_hand")]), vec![LOCKS])
        }
        (Paper::Reuse, Place::Figure(5)) => {
            (allocations(&[("reused", "reused"), ("by hand", "again_by_hand")]), vec![LOCKS])
        }
        (Paper::Reuse, Place::Figure(6)) => {
            (transfers(&[("reused", "registered"), ("by hand", "by_hand")]), vec![LOCKS, FILLED])
        }
        (Paper::Reuse, Place::Figure(7)) => {
            ([views(), plain_buffers()].concat(), vec![LOCKS, FILLED, OF_KOKKOS])
        }
        _ => (vec![], vec!["not measured: it is of another machine"]),
    }
}

fn curve(name: &str, words: [&str; 2], along: Along, value: &'static str) -> PlannedCurve {
    let run = Run {
        helper: NAME,
        words: words.map(str::to_owned).to_vec(),
        page_in: PageIn::Dynamic,
        page_faults: FaultHandling::Stash,
    };
    PlannedCurve { pages: Pages::Zero, name: name.to_owned(), run, along, value }
}

fn curves(what: &str, sizes: &[u64], names: &[(&str, &'static str)]) -> Vec<PlannedCurve> {
    let one = |&(name, value): &(&str, &'static str)| curve(name, [what, &list(sizes)], Along::Size, value);
    names.iter().map(one).collect()
}

fn allocations(names: &[(&str, &'static str)]) -> Vec<PlannedCurve> {
    curves("allocation", &reuse_sizes(), names)
}

fn transfers(names: &[(&str, &'static str)]) -> Vec<PlannedCurve> {
    curves("transfer", &reuse_sizes(), names)
}

/// Three ways of a View: their names, and what the runs print.
const VIEW_TRANSFERS: [(&str, [&str; 2]); 3] = [
    ("registered space", ["view_registered", "registered"]),
    ("by hand", ["view_by_hand", "by_hand"]),
    ("copied", ["view_copied", "copied"]),
];

fn views() -> Vec<PlannedCurve> {
    let sizes: Vec<String> = reuse_sizes().iter().map(u64::to_string).collect();
    let one = |(way, [value, _]): (&str, [&'static str; 2])| {
        super::curve(&format!("{VIEW}: {way}"), VIEWS, sizes.clone(), value)
    };
    VIEW_TRANSFERS.map(one).to_vec()
}

fn plain_buffers() -> Vec<PlannedCurve> {
    let one = |(way, [_, value]): (&str, [&'static str; 2])| {
        curve(&format!("{PLAIN}: {way}"), ["transfer", &list(&reuse_sizes())], Along::Size, value)
    };
    VIEW_TRANSFERS.map(one).to_vec()
}

fn against_write() -> Vec<PlannedCurve> {
    let mut both = curves("allocation", &frrwp_sizes(), &[("registration", "lock")]);
    both.extend(curves("transfer", &frrwp_sizes(), &[("RDMA write", "put")]));
    both
}

/// Of each cost of a registration: its name, and the names of what the processes print of both orders and of what is saved.
const REGISTRATIONS: [(&str, [&str; 3]); 3] = [
    ("no registration", ["none_traditional", "none_conditional", "none_saved"]),
    ("mlock(2)", ["lock_traditional", "lock_conditional", "lock_saved"]),
    ("T = 0.77 p + 7.42 us", ["work_traditional", "work_conditional", "work_saved"]),
];

fn by_registration(order: usize, title: &str) -> Vec<PlannedCurve> {
    let one = |(registration, values): &(&str, [&'static str; 3])| {
        let name = format!("{registration}: {title}");
        curve(&name, ["saving", &list(&saving_sizes())], Along::Size, values[order])
    };
    REGISTRATIONS.iter().map(one).collect()
}

fn orders() -> Vec<PlannedCurve> {
    [by_registration(0, "traditional"), by_registration(1, "conditional")].concat()
}

/// What the runs give of the right-hand axis of a figure of FRRWP.
pub(super) fn right(place: Place) -> Vec<PlannedCurve> {
    if place == Place::Section("2.3") { by_registration(2, "saved") } else { vec![] }
}

/// Behind the six parts of the paper's machine.
fn whole(name: &str, value: &'static str) -> PlannedCurve {
    curve(name, ["exchange", &list(&[64 << 10])], Along::Part(7), value)
}

fn savings() -> Vec<PlannedCurve> {
    let one = |(name, value)| curve(name, ["exchange", &list(&exchanged_sizes())], Along::Pages, value);
    let names = [
        ("saved", "saved"),
        ("by the rule", "rule"),
        ("traditional, the whole", "traditional"),
        ("conditional write, the whole", "conditional"),
        ("client registers", "client"),
        ("client registers, beside the server", "client_beside"),
        ("server registers", "server"),
        ("READ: saved", "read_saved"),
        ("READ: traditional, the whole", "read_traditional"),
        ("READ: conditional write of the server, the whole", "read_conditional"),
        ("server registers, beside the client", "server_beside"),
    ];
    names.map(one).to_vec()
}
