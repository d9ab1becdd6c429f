//! Strategies of paging in, and what their parts take (figures 12 and 13).

use super::super::machine::run;
use super::super::strategies::{Before, all_absent, serial_sum, with_preparation};
use super::super::transfer::{PageIn, Transfer};
use super::{KIB, MIB, PAGES, at_least, given};
use crate::claim::Prediction::Value;
use crate::claim::{Claim, is, sum};
use crate::computed::{Computed, computed};
use crate::figure::Place;
use crate::unit_costs::{PAGE, PartCosts};

pub(super) fn strategies(costs: &PartCosts) -> Vec<Claim> {
    let claim =
        |what, unit, stated, predicted| Claim::new(Place::Figure(12), what, unit, stated, Value(predicted));
    let before = |bytes, before| computed(|| with_preparation(costs, bytes, before));
    let alone = |bytes| before(bytes, Before::Nothing);
    let touch = |bytes| before(bytes, Before::TouchAbsent);
    let pin = |bytes| before(bytes, Before::PinAbsent);
    let absent = |bytes, page_in| computed(|| all_absent(costs, bytes, page_in));
    let pio = |bytes| absent(bytes, PageIn::One);
    let pia = |bytes| absent(bytes, PageIn::All);
    let to_touch = |bytes| pia(bytes) / touch(bytes);
    let least_below = |end| {
        let ratios = PAGES.into_iter().filter(|&bytes| bytes < end).map(to_touch);
        ratios.reduce(Computed::min).expect("a size below the end")
    };
    let again = computed(|| {
        let transmissions = run(costs, &Transfer::absent(costs, 4 * MIB, PageIn::All)).transmissions;
        (transmissions - (4 * MIB).div_ceil(costs.block())) as f64
    });
    vec![
        Claim {
            stated: (0.1, 0.2),
            ..given(Place::Figure(12), "touching a page in memory adds (section 5.4)", 0.1)
        },
        claim("16 KB: PIA to PIO (\"the same latency\")", "x", is(1.0), pia(16 * KIB) / pio(16 * KIB))
            .bound_by_us(),
        claim("4 MB, PIA: blocks that are sent again", "", is(2.0), again),
        claim("4 MB: PIA better than touching first", "x", is(1.46), touch(4 * MIB) / pia(4 * MIB)),
        claim("4 MB: PIA better than pinning first", "x", is(1.46), pin(4 * MIB) / pia(4 * MIB)),
        claim("1 MB: PIA to transfer only", "x", is(2.6), pia(MIB) / alone(MIB)).because(link!(
            "at 10.9 Gb/s, where touching first is 2.0, the model says 2.1, and at 17 2.8; what is left at 10.9 is, as at 64 KB, \
             the handler runs that interrupt the tasklet"
        )),
        claim("1 MB: touching first to transfer only", "x", is(2.0), touch(MIB) / alone(MIB)),
        claim("1 MB: PIA to touching first", "x", is(1.2), to_touch(MIB)).because(more_interrupts!(
            "; the link matters, too: at 10.9 Gb/s, which the text's 2.0 for touching first implies, and at 17 the model says 1.1"
        )),
        claim("64 KB: PIA to touching first", "x", is(3.5), to_touch(64 * KIB))
            .because(more_interrupts!("")),
        claim(
            "all sizes up to 1 MB: PIA to touching first, at least (\"worse\")",
            "x",
            at_least(1.0),
            least_below(4 * MIB),
        )
        .bound_by_us(),
        claim("256 KB: PIA to transfer only (section 5.4)", "x", is(3.2), pia(256 * KIB) / alone(256 * KIB))
            .because(link!("at 12.9 Gb/s the model says 2.8 and at 17 3.4")),
        claim(
            "below 64 KB: PIA to touching first, at least (section 5.4: \"beneficial\")",
            "x",
            at_least(1.0),
            least_below(64 * KIB),
        )
        .bound_by_us(),
        claim(
            "below 256 KB: PIA to touching first, at least (section 5.4: \"beneficial\")",
            "x",
            at_least(1.0),
            least_below(256 * KIB),
        )
        .bound_by_us(),
    ]
}

pub(super) fn breakdown(costs: &PartCosts) -> Vec<Claim> {
    let claim =
        |what, unit, stated: f64, predicted| Claim::new(Place::Figure(13), what, unit, is(stated), predicted);
    let largest = (4 * MIB) as f64;
    let all_parts = computed(|| serial_sum(costs, 4 * MIB / PAGE)) / 1_000.0;
    let measured = computed(|| all_absent(costs, 4 * MIB, PageIn::All)) / 1_000.0;
    vec![
        given(Place::Figure(13), "get_user_pages: each call", 6.0),
        given(Place::Figure(13), "get_user_pages: each page that is absent", 3.0),
        claim("4 MB: parts one after the other", "ms", 5.7, sum(all_parts))
            .at("all parts", largest)
            .because(link!("at 12.9 Gb/s the sum is 5.7 ms and at 17 5.1")),
        claim("4 MB: PIA as measured", "ms", 3.6, Value(measured))
            .at("PIA, with overlap", largest)
            .because(link!("at 12.9 Gb/s the model says 3.6 ms and at 17 3.6")),
        claim("4 MB: gain of the overlap", "x", 1.58, Value(all_parts / measured)),
    ]
}
