//! What is run for each figure and table.

mod active;
mod registered;

pub(super) use self::registered::{PLAIN, VIEW};
use super::{Conditions, Pages};
use crate::helper::Point;
use pagewire_nic::{FaultHandling, PageIn, PathChoice};
use pagewire_papers::{Paper, Place};

/// A run of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) helper: &'static str,
    pub(super) words: Vec<String>,
    pub(super) page_in: PageIn,
    pub(super) page_faults: FaultHandling,
}

/// What of a run's points is along the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Their sizes.
    Size,
    /// Of those of one size, the percentages.
    Percent(u64),
    /// One point, in this place.
    Part(u64),
    /// Their sizes, in pages.
    Pages,
    /// Of those of one percentage, the sizes.
    SizeAt(u64),
}

impl Along {
    /// Where a point is, if it belongs to the curve.
    pub(super) fn x(self, point: &Point) -> Option<u64> {
        match self {
            Along::Size => Some(point.size),
            Along::Percent(size) => (point.size == size).then_some(point.percent),
            Along::Part(x) => Some(x),
            Along::Pages => Some(point.size / 4_096),
            Along::SizeAt(percent) => (point.percent == percent).then_some(point.size),
        }
    }
}

/// How a curve comes about.
#[derive(Clone, Debug)]
pub(super) struct PlannedCurve {
    pub(super) pages: Pages,
    pub(super) name: String,
    pub(super) run: Run,
    pub(super) along: Along,
    /// The name under which the helper prints the figure.
    pub(super) value: &'static str,
}

/// How a figure or a table comes about; without curves, not at all.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) place: Place,
    pub(super) curves: Vec<PlannedCurve>,
    /// Of the right-hand axis, what runs give by themselves; else it follows from the curves on the left.
    pub(super) right: Vec<PlannedCurve>,
    pub(super) notes: Vec<&'static str>,
}

const NOT_SENT_AGAIN: &str = "not measured: inside a host nothing is sent again, whatever --page-faults says";
/// `pagewire_transport::limits::{BUDGET_PROBES, LEAST_PROBE}`.
pub(super) const REPEATED_EARLY: &str = "TO, TOut: the acknowledgement timeout of the queue pairs; between two Pagewires what is missing is sent again sooner, after four round trips or a \
     64th of timeout x (retry_cnt + 1), 100 us at least: the timeout itself decides little";
const APPLICATIONS: &str =
    "not measured: it is of applications, which `pagewire reproduce part --applications` runs";
const ERRORS: &str = "not measured: no packet is lost or corrupted on purpose here";
const PARTS: &str =
    "from outside only the whole can be told; the parts are what a WRITE goes through inside the engine";
const PARTS_OF_A_GET: &str = "from outside only the call and the whole can be told; nothing is pinned";

const EARLY_ERR: &str = "NTO, early ERR, and the numbers of NTO here: the engine asks for a packet as soon as pages that it waits for \
    are in, while others of the transfer still come in; the paper's NTO asks when all are in, and so overlaps nothing; the curves \
    with timeouts have early ERRs, too";
const MIXED: &str = "Touch-NoPres below 256 KB, else PIA: not measured by itself: it is the curve Touch-NoPres-Pg(s) below 256 KB and \
    the curve PIA from there on";

/// The curve without timeouts; the model's of this name is the like.
pub(super) const NTO: &str = "NTO, early ERR";

const FOUR_KIB: [u64; 1] = [4 << 10];
const SMALL: [u64; 9] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const PAGES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const PAGES_TITLES: [&str; 6] = ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"];
const FREQUENCIES: [u64; 7] = [0, 1, 5, 20, 40, 80, 100];
const SHORT: [u64; 7] = [1, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10];
const GETS: [u64; 12] =
    [1, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const WINDOW: &str = "16";

/// Acknowledgement timeouts, as queue pairs have them: 131 us, 524 us and 1.05 ms, the nearest that there are to the paper's.
const SHORT_TIMEOUT: Timeout = Timeout(5);
const MIDDLE_TIMEOUT: Timeout = Timeout(7);
const USUAL_TIMEOUT: Timeout = Timeout(8);
/// 17 s, where nothing is lost.
const NO_TIMEOUT: Timeout = Timeout(22);

#[derive(Clone, Copy)]
struct Timeout(u8);

/// WRITEs to absent pages.
#[derive(Clone, Copy)]
struct Writes<'a> {
    pages: Pages,
    before: &'static str,
    timeout: Timeout,
    percents: &'a [u64],
    sizes: &'a [u64],
    page_in: PageIn,
    page_faults: FaultHandling,
}

impl Writes<'_> {
    /// All pages absent, brought in and asked for again as in PART.
    const PART: Writes<'static> = Writes {
        pages: Pages::Zero,
        before: "nothing",
        timeout: USUAL_TIMEOUT,
        percents: &[100],
        sizes: &PAGES,
        page_in: PageIn::Page,
        page_faults: FaultHandling::Err,
    };
    /// WRITEs to pages of zeros, all absent, with Pagewire's default page-in and fault handling.
    const DEFAULT: Writes<'static> =
        Writes { page_in: PageIn::Dynamic, page_faults: FaultHandling::Stash, ..Writes::PART };
    /// Nothing is absent when the transfer begins.
    const RESIDENT: Writes<'static> = Writes { timeout: NO_TIMEOUT, percents: &[0], ..Writes::PART };

    fn curve(self, name: impl Into<String>, along: Along, value: &'static str) -> PlannedCurve {
        let words = [
            "write".to_owned(),
            self.pages.name().to_owned(),
            self.before.to_owned(),
            self.timeout.0.to_string(),
            list(self.percents),
            list(self.sizes),
        ];
        let run = Run {
            helper: "figures",
            words: words.to_vec(),
            page_in: self.page_in,
            page_faults: self.page_faults,
        };
        PlannedCurve { pages: self.pages, name: name.into(), run, along, value }
    }

    /// By size, with what came before.
    fn whole(self, name: impl Into<String>) -> PlannedCurve {
        self.curve(name, Along::Size, "whole")
    }
}

fn list(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// By size, of a run that meets no absent page.
fn curve(name: &str, helper: &'static str, words: Vec<String>, value: &'static str) -> PlannedCurve {
    let run = Run { helper, words, page_in: PageIn::Dynamic, page_faults: FaultHandling::Stash };
    PlannedCurve { pages: Pages::Zero, name: name.to_owned(), run, along: Along::Size, value }
}

/// What is to be run for a figure or a table that [`pagewire_papers`] has.
pub(super) fn plan(paper: Paper, place: Place, conditions: Conditions) -> Plan {
    let path = conditions.path;
    let (curves, notes) = match (paper, place) {
        (Paper::Part, Place::Figure(11 | 15)) if path == PathChoice::Local => (vec![], vec![NOT_SENT_AGAIN]),
        (Paper::Part, Place::Figure(9)) => (without_faults(), vec![]),
        (Paper::Part, Place::Figure(10)) => (one_fault(), vec![PARTS]),
        (Paper::Part, Place::Figure(11)) => (err_against_timeouts(), vec![REPEATED_EARLY]),
        (Paper::Part, Place::Figure(12)) => (page_in(), vec![MIXED]),
        (Paper::Part, Place::Figure(13)) => (breakdown(), vec![PARTS]),
        (Paper::Part, Place::Figure(14)) => (frequency(), vec![]),
        (Paper::Part, Place::Figure(15)) => (timeouts(), vec![EARLY_ERR, REPEATED_EARLY]),
        (Paper::Part, Place::Figure(16)) => (asynchronous_sends(), vec![]),
        (Paper::Part, Place::Section("3.2" | "4.2")) => (vec![], vec![ERRORS]),
        (Paper::Part, Place::Table(2..=5) | Place::Section(_)) => (vec![], vec![APPLICATIONS]),
        (Paper::Jbmt, Place::Figure(4)) => (vec![get("get", "1", &SHORT, "whole")], vec![PARTS_OF_A_GET]),
        (Paper::Jbmt, Place::Figure(5)) => (vec![get("get", WINDOW, &GETS, "rate")], vec![]),
        (Paper::Jbmt, Place::Figure(6)) => (whole_get(), vec![PARTS_OF_A_GET]),
        (Paper::Jbmt, Place::Figure(7)) => (parts_of_a_get(), vec![PARTS_OF_A_GET]),
        (Paper::Jbmt, Place::Table(1)) => (registration(), vec![]),
        (Paper::Frrwp | Paper::Reuse, _) => registered::plan(paper, place),
        (Paper::Active, _) => active::plan(place, conditions),
        _ => (vec![], vec!["not measured: no experiment on this machine is known for it"]),
    };
    let right = if paper == Paper::Frrwp { registered::right(place) } else { vec![] };
    Plan { place, curves, right, notes }
}

fn without_faults() -> Vec<PlannedCurve> {
    let resident = Writes { sizes: &SMALL, ..Writes::RESIDENT };
    let absent = Writes { percents: &[100], ..resident };
    vec![
        resident.whole("Transfer-Only"),
        Writes { before: "touch", ..resident }.whole("Touch-Pres-Pg(s)"),
        Writes { before: "touch", ..absent }.whole("Touch-NoPres-Pg(s)"),
        Writes { before: "lock", ..absent }.whole("Pin-NoPres-Pg(s)"),
        Writes { before: "lock", ..resident }.whole("Pin-Pres-Pg(s)"),
    ]
}

/// Behind the seven parts of the paper's machine.
fn one_fault() -> Vec<PlannedCurve> {
    let mut curves = Vec::new();
    for pages in Pages::ALL {
        let part = |writes: Writes, name, x| {
            Writes { pages, sizes: &FOUR_KIB, ..writes }.curve(name, Along::Part(x), "whole")
        };
        curves.push(part(Writes::PART, "the whole, ERR", 8));
        curves.push(part(Writes::DEFAULT, "the whole, Pagewire's default", 9));
    }
    curves.push(Writes { sizes: &FOUR_KIB, ..Writes::RESIDENT }.curve(
        "a page in memory",
        Along::Part(10),
        "whole",
    ));
    curves
}

fn err_against_timeouts() -> Vec<PlannedCurve> {
    let mut curves = Vec::new();
    for pages in Pages::ALL {
        let err = Writes { pages, sizes: &SMALL[..4], ..Writes::PART };
        let silence = Writes { page_faults: FaultHandling::Timeout, ..err };
        curves.push(err.whole("Fast Re-Xmit"));
        curves.push(Writes { timeout: SHORT_TIMEOUT, ..silence }.whole("TOut 131 us"));
        curves.push(silence.whole("TOut 1.05 ms"));
    }
    curves
}

fn page_in() -> Vec<PlannedCurve> {
    let mut curves = Vec::new();
    for pages in Pages::ALL {
        for (name, page_in) in [("PIO", PageIn::Page), ("PI4", PageIn::Block), ("PIA", PageIn::Transfer)] {
            curves.push(Writes { pages, page_in, ..Writes::PART }.whole(name));
        }
        curves.push(Writes { pages, ..Writes::DEFAULT }.whole("Pagewire's default"));
    }
    let absent = Writes { percents: &[100], ..Writes::RESIDENT };
    curves.push(Writes { before: "lock", ..absent }.whole("Pin-NoPres-Pg(s)"));
    curves.push(Writes { before: "touch", ..absent }.whole("Touch-NoPres-Pg(s)"));
    curves.push(Writes::RESIDENT.whole("Transfer-Only"));
    curves
}

fn breakdown() -> Vec<PlannedCurve> {
    let populate = Writes { before: "populate", percents: &[100], ..Writes::RESIDENT };
    vec![
        populate.curve("page-in by the kernel, in one call", Along::Size, "before"),
        populate.curve("transfer", Along::Size, "transfer"),
        Writes { page_in: PageIn::Transfer, ..Writes::PART }.whole("PIA, with overlap"),
    ]
}

fn frequency() -> Vec<PlannedCurve> {
    let mut curves = Vec::new();
    for pages in Pages::ALL {
        for (name, page_in) in [("PIO", PageIn::Page), ("PIA", PageIn::Transfer)] {
            let writes = Writes { pages, page_in, percents: &FREQUENCIES, ..Writes::PART };
            for (size, title) in PAGES.into_iter().zip(PAGES_TITLES) {
                curves.push(writes.curve(format!("{name} {title}"), Along::Percent(size), "whole"));
            }
        }
    }
    curves
}

fn timeouts() -> Vec<PlannedCurve> {
    let mut curves = Vec::new();
    for pages in Pages::ALL {
        let err = Writes { pages, page_in: PageIn::Transfer, ..Writes::PART };
        curves.push(Writes { timeout: SHORT_TIMEOUT, ..err }.whole("TO 131 us"));
        curves.push(Writes { timeout: MIDDLE_TIMEOUT, ..err }.whole("TO 524 us"));
        curves.push(err.whole("TO 1.05 ms"));
        curves.push(Writes { page_faults: FaultHandling::ErrWithoutTimeout, ..err }.whole(NTO));
    }
    curves
}

fn asynchronous_sends() -> Vec<PlannedCurve> {
    let sizes: Vec<u64> = (12..=29).map(|bits| 1 << bits).filter(|&size| has_room(size)).collect();
    let words = vec!["send".to_owned(), list(&sizes)];
    vec![
        curve("with pre-touch", "figures", words.clone(), "touch"),
        curve("the call itself, without pre-touch", "figures", words, "post"),
    ]
}

/// Whether both processes can have so much memory and leave as much to others (proc_meminfo(5)), as far as is known.
fn has_room(size: u64) -> bool {
    let about = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |line: &str| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok();
    about.lines().find_map(kilobytes).is_none_or(|available: u64| size / 1024 * 4 <= available)
}

fn get(name: &str, window: &str, sizes: &[u64], value: &'static str) -> PlannedCurve {
    curve(name, "figures", vec!["get".to_owned(), window.to_owned(), list(sizes)], value)
}

/// Behind the five parts of the paper's machine.
fn whole_get() -> Vec<PlannedCurve> {
    let part = |name, value, x| PlannedCurve { along: Along::Part(x), ..get(name, "1", &FOUR_KIB, value) };
    vec![part("the call", "post", 6), part("the whole", "whole", 7)]
}

fn parts_of_a_get() -> Vec<PlannedCurve> {
    vec![get("the call", "1", &GETS[..10], "post"), get("the whole", "1", &GETS[..10], "whole")]
}

fn registration() -> Vec<PlannedCurve> {
    let words: Vec<String> = GETS.iter().map(u64::to_string).collect();
    vec![
        curve("registration", "registration", words.clone(), "reg_mr"),
        curve("deregistration", "registration", words, "dereg_mr"),
    ]
}
