//! Small transfers: without faults, and with one (figures 9 to 11).

use super::super::machine::run;
use super::super::strategies::{Before, all_absent, part, resent, serial_sum, touched, with_preparation};
use super::super::transfer::{PageIn, Resend, Transfer};
use super::{KIB, MIB, SHORTEST, given};
use crate::claim::Prediction::{NotModelled, Sum, Value};
use crate::claim::{Claim, is, sum};
use crate::computed::{Computed, computed};
use crate::figure::Place;
use crate::unit_costs::PartCosts;

pub(super) fn without_faults(costs: &PartCosts) -> Vec<Claim> {
    let claim = |what, unit, stated, predicted| Claim::new(Place::Figure(9), what, unit, stated, predicted);
    let given = |what, stated| given(Place::Figure(9), what, stated);
    let touching = |what, bytes, stated| {
        let (least, most) = (computed(|| touched(costs, bytes).0), computed(|| touched(costs, bytes).1));
        // Alone the touches have two costs in the text.
        claim(what, "us", is(stated), Sum(least, most)).varied(least.value, most.value, least.inputs)
    };
    let before = |bytes, before| computed(|| with_preparation(costs, bytes, before));
    let smallest = before(SHORTEST, Before::Nothing);
    let pinned = before(SHORTEST, Before::PinAbsent);
    let pinning_present = "the paper finds pinning dearer for pages that are in memory than for absent ones, suspects the OS, and \
        gives no unit cost";
    let alone = before(64 * KIB, Before::Nothing);
    let (least, most) = (computed(|| touched(costs, 64 * KIB).0), computed(|| touched(costs, 64 * KIB).1));
    vec![
        claim("smallest WRITE, all in memory", "us", is(4.0), sum(smallest))
            .at("Transfer-Only", SHORTEST as f64),
        given("pinning an absent page adds", 6.0),
        claim("pinning an absent page and a WRITE to it", "us", is(10.0), sum(pinned))
            .at("Pin-NoPres-Pg(s)", SHORTEST as f64),
        claim("pinning a page that is in memory adds", "us", is(13.0), NotModelled).because(pinning_present),
        claim(
            "pinning is dearer for pages in memory than for absent ones below",
            "KB",
            is(16.0),
            NotModelled,
        )
        .because(pinning_present),
        claim("pinning pages in memory is dearer than almost all else but at", "KB", is(64.0), NotModelled)
            .because(pinning_present),
        claim("pinning pages that are in memory, to transfer only", "x", is(2.0), NotModelled)
            .because("the text says \"nearly doubling\", without the sizes, and gives no unit cost"),
        given("touching an absent page adds", 3.0),
        given("touching a page in memory adds", 0.1),
        claim(
            "64 KB: touching pages in memory first, to transfer only (\"negligible\")",
            "x",
            (1.0, 1.1),
            Sum(1.0 + least / alone, 1.0 + most / alone),
        )
        .bound_by_us(),
        touching("touching pages in memory, 1 MB, adds", MIB, 20.0)
            .because("the text's own 20 us are 78 ns a page, below its unit cost of 100 to 200 ns"),
        touching("touching pages in memory, 4 MB, adds", 4 * MIB, 152.0),
    ]
}

pub(super) fn one_fault(costs: &PartCosts) -> Vec<Claim> {
    let part = |index| computed(|| part(costs, index, 1));
    let all_parts = computed(|| serial_sum(costs, 1));
    let tasklet = part(2) + part(3) + part(4);
    let fault = || run(costs, &Transfer::absent(costs, 4 * KIB, PageIn::One));
    let entries = computed(|| fault().failed_packets as f64);
    let read = computed(|| costs.walker().read_time as f64 / 1_000.0);
    let levels = computed(|| f64::from(costs.walker().levels));
    let claim = |what, stated, predicted| Claim::new(Place::Figure(10), what, "us", stated, predicted);
    let given = |what, stated| given(Place::Figure(10), what, stated);
    let mut claims = vec![
        claim("until the first packet is there", is(4.0), sum(part(0))),
        claim(
            "miss of the SMMU and walk (\"a few hundreds of nanoseconds\")",
            (0.2, 0.9),
            Sum(read, levels * read),
        )
        .bound_by_us(),
        given("interrupt handler", 1.0),
        Claim::new(
            Place::Figure(10),
            "reads of the NI FIFO for one page, at most",
            "",
            (0.0, 16.0),
            Value(entries),
        ),
        claim("get_user_pages for one page", is(8.0), sum(part(2))).because(
            "the text's own cost by number of pages, 6 us and 3 us a page (section 5.3), makes 9 us for one",
        ),
        given("Netlink, the kernel's part", 7.0),
        given("other work of the tasklet", 4.0),
        claim("tasklet for one page", is(19.0), sum(tasklet)),
        given("ERR", 1.0),
        given("sending the missing page again", 6.0),
        claim("parts of a 4 KB fault together", is(31.0), sum(all_parts)),
    ];
    claims.extend(err_and_timeouts(costs, all_parts));
    claims
}

/// Figure 11, beside the sum of figure 10.
fn err_and_timeouts(costs: &PartCosts, all_parts: Computed) -> [Claim; 7] {
    let claim = |what, unit, stated, predicted| Claim::new(Place::Figure(11), what, unit, stated, predicted);
    let whole = computed(|| all_absent(costs, 4 * KIB, PageIn::One));
    let smallest = computed(|| all_absent(costs, SHORTEST, PageIn::One));
    let base = computed(|| with_preparation(costs, SHORTEST, Before::Nothing));
    let share = |timeout: u64| {
        let latency = computed(|| resent(costs, 4 * KIB, Resend::Timeout(timeout)));
        Value(timeout as f64 / 10.0 / latency)
    };
    [
        claim("4 KB WRITE to an absent page, ERR", "us", is(38.0), Value(whole)).at("Fast Re-Xmit", 4_096.0),
        claim("what that is above the sum of its parts", "us", is(7.0), Value(whole - all_parts)).because(
            "the paper puts it down to OS costs such as context switches, for which it has no unit cost; the model's part of it is that \
             the handler runs on while the page's other packets fail",
        ),
        claim(
            "WRITE to an absent page, ERR: 4 KB to the smallest (\"similar\")",
            "x",
            is(1.0),
            Value(whole / smallest),
        )
        .bound_by_us()
        .because(
            "the text calls them similar; its unit costs set 4 KB apart by 3.3 us of the link for the page that is sent again and by 2 \
             us for 15 more entries of the NI FIFO, and the handler runs on while the page's other packets fail",
        ),
        claim("a timeout of 100 us to the base latency", "x", is(25.0), sum(100.0 / base)),
        claim("a timeout of 100 us to a fault", "x", is(3.0), sum(100.0 / all_parts)),
        claim(
            "4 KB, timeout of 100 us alone: its part of the latency (\"dominated\")",
            "%",
            (50.0, 100.0),
            share(100_000),
        )
        .bound_by_us(),
        claim(
            "4 KB, timeout of 1 ms alone: its part of the latency (\"dominated\")",
            "%",
            (50.0, 100.0),
            share(1_000_000),
        )
        .bound_by_us(),
    ]
}
