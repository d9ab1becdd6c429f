//! PART's figures, as the model predicts them.

use super::machine::{PageIn, Resend};
use super::strategies::{
    Before, FREQUENCIES, all_absent, resent, serial_parts, sometimes_absent, touched, touched_below,
    with_preparation,
};
use crate::figure::{Axis, Curve, Figure, Place};
use crate::unit_costs::{PAGE, PartCosts};

const SMALL: [u64; 9] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const PAGES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const SIZES: (Axis, Axis) = (Axis::BYTES, Axis::MICROSECONDS);

/// All of them that have data: figures 9 to 16.
pub fn figures(costs: &PartCosts) -> Vec<Figure> {
    vec![
        without_faults(costs),
        one_fault(costs),
        err_against_timeouts(costs),
        page_in(costs),
        breakdown(costs),
        frequency(costs),
        timeouts(costs),
        asynchronous_sends(costs),
    ]
}

fn without_faults(costs: &PartCosts) -> Figure {
    let before = |before| move |bytes| with_preparation(costs, bytes, before);
    Figure::of(
        Place::Figure(9),
        "latency without network page faults (destination's pages touched or pinned before)",
        SIZES,
        &SMALL,
        vec![
            ("Transfer-Only", &before(Before::Nothing)),
            ("Touch-Pres-Pg(s)", &before(Before::TouchPresent)),
            ("Touch-NoPres-Pg(s)", &before(Before::TouchAbsent)),
            ("Pin-NoPres-Pg(s)", &before(Before::PinAbsent)),
        ],
    )
}

fn one_fault(costs: &PartCosts) -> Figure {
    let mut end = 0.0;
    let ends = (1..).zip(serial_parts(costs, 1)).map(|(part, (name, length))| {
        let start = (f64::from(part), end);
        end += length;
        Curve { name: name.to_owned(), points: vec![start, (f64::from(part), end)] }
    });
    Figure {
        place: Place::Figure(10),
        title: "breakdown of a 4 KiB WRITE to an absent page: start and end of each part",
        x: Axis { label: "part", logarithmic: false },
        y: Axis { label: "us", logarithmic: false },
        curves: ends.collect(),
    }
}

fn err_against_timeouts(costs: &PartCosts) -> Figure {
    let resend = |resend| move |bytes| resent(costs, bytes, resend);
    Figure::of(
        Place::Figure(11),
        "small WRITEs to an absent page: ERR, or the timeout alone",
        SIZES,
        &SMALL[..4],
        vec![
            ("Fast Re-Xmit", &resend(Resend::ErrAndTimeout(costs.timeout))),
            ("TOut 100 us", &resend(Resend::Timeout(100_000))),
            ("TOut 1 ms", &resend(Resend::Timeout(1_000_000))),
        ],
    )
}

fn page_in(costs: &PartCosts) -> Figure {
    let absent = |page_in| move |bytes| all_absent(costs, bytes, page_in);
    let before = |before| move |bytes| with_preparation(costs, bytes, before);
    Figure::of(
        Place::Figure(12),
        "every page of the destination absent",
        SIZES,
        &PAGES,
        vec![
            ("PIO", &absent(PageIn::One)),
            ("PI4", &absent(PageIn::Block)),
            ("PIA", &absent(PageIn::All)),
            ("Pin-NoPres-Pg(s)", &before(Before::PinAbsent)),
            ("Touch-NoPres-Pg(s)", &before(Before::TouchAbsent)),
            ("Transfer-Only", &before(Before::Nothing)),
            // Section 5.4: "small transfers (e.g., less than 64 or 256KB)".
            ("Touch-NoPres below 256 KB, else PIA", &|bytes| touched_below(costs, bytes, 256 << 10)),
        ],
    )
}

fn breakdown(costs: &PartCosts) -> Figure {
    let names = serial_parts(costs, 1).map(|(name, _)| name);
    let parts = (0..).zip(names).map(|(index, name): (usize, _)| Curve {
        name: name.to_owned(),
        points: PAGES.map(|bytes| (bytes as f64, serial_parts(costs, bytes / PAGE)[index].1)).to_vec(),
    });
    let whole = Curve {
        name: "PIA, with overlap".to_owned(),
        points: PAGES.map(|bytes| (bytes as f64, all_absent(costs, bytes, PageIn::All))).to_vec(),
    };
    Figure {
        place: Place::Figure(13),
        title: "parts of a WRITE to absent pages, one after the other, and the whole with overlap",
        x: Axis::BYTES,
        y: Axis::MICROSECONDS,
        curves: parts.chain([whole]).collect(),
    }
}

fn frequency(costs: &PartCosts) -> Figure {
    let mut curves = Vec::new();
    for (name, page_in) in [("PIO", PageIn::One), ("PIA", PageIn::All)] {
        for (bytes, size) in PAGES.into_iter().zip(["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"])
        {
            let latency = |percent| sometimes_absent(costs, bytes, page_in, percent);
            let points = FREQUENCIES.map(|percent| (percent as f64, latency(percent))).to_vec();
            curves.push(Curve { name: format!("{name} {size}"), points });
        }
    }
    Figure {
        place: Place::Figure(14),
        title: "latency by the percentage of pages that are absent",
        x: Axis { label: "% of pages absent", logarithmic: false },
        y: Axis::MICROSECONDS,
        curves,
    }
}

fn timeouts(costs: &PartCosts) -> Figure {
    let resend = |resend| move |bytes| resent(costs, bytes, resend);
    Figure::of(
        Place::Figure(15),
        "every page of the destination absent, PIA, by timeout",
        SIZES,
        &PAGES,
        vec![
            ("TO 100 us", &resend(Resend::ErrAndTimeout(100_000))),
            ("TO 500 us", &resend(Resend::ErrAndTimeout(500_000))),
            ("TO 1 ms", &resend(Resend::ErrAndTimeout(1_000_000))),
            ("NTO", &resend(Resend::Err)),
            ("NTO, early ERR (not in the paper)", &resend(Resend::EarlyErr)),
        ],
    )
}

/// What a call costs is not given: only what the touches add to it, from 100 bytes to 512 MB as in section 6.2.1.
fn asynchronous_sends(costs: &PartCosts) -> Figure {
    let sizes: Vec<u64> = [100, 1 << 10].into_iter().chain((12..=29).map(|bits| 1 << bits)).collect();
    Figure::of(
        Place::Figure(16),
        "what touching every page, all in memory, adds to an asynchronous send",
        SIZES,
        &sizes,
        vec![
            ("with pre-touch, 100 ns a page", &|bytes| touched(costs, bytes).0),
            ("with pre-touch, 200 ns a page", &|bytes| touched(costs, bytes).1),
        ],
    )
}
