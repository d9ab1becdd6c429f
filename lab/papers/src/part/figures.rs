//! PART's figures, as the model predicts them.

use super::applications;
use super::strategies::{
    Before, FREQUENCIES, all_absent, by_seed, part, resent, serial_parts, serial_sum, touched, touched_below,
    with_errors, with_preparation,
};
use super::transfer::{Errors, PageIn, Resend};
use crate::computed::recorded;
use crate::figure::{Axis, Curve, Figure, Place, Shape};
use crate::right_axis::RightAxis;
use crate::unit_costs::{PAGE, PartCosts};

const SMALL: [u64; 9] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const PAGES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const SIZES: (Axis, Axis) = (Axis::BYTES, Axis::MICROSECONDS);

/// Figures 9 to 16 and tables 2 to 5.
pub fn figures(costs: &PartCosts) -> Vec<Figure> {
    let (frequency, timeouts) = (frequency(costs), timeouts(costs));
    let slowdown =
        frequency.right(RightAxis::Slowdown, "slowdown by the percentage of pages that are absent");
    let speed_up = timeouts.right(RightAxis::SpeedUp, "speed-up of the least timeout over none");
    let figures = vec![
        without_faults(costs),
        one_fault(costs),
        err_against_timeouts(costs),
        page_in(costs),
        breakdown(costs),
        frequency,
        slowdown,
        timeouts,
        speed_up,
        asynchronous_sends(costs),
    ];
    figures.into_iter().chain(applications::tables(costs)).chain([errors(costs)]).collect()
}

fn without_faults(costs: &PartCosts) -> Figure {
    let before = |before| move |bytes| with_preparation(costs, bytes, before);
    let figure = Figure::of(
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
    );
    let notes =
        &["Pin-Pres-Pg(s) is not modelled: the text has no unit cost of pinning pages that are in memory"];
    figure.noted(notes)
}

fn one_fault(costs: &PartCosts) -> Figure {
    let title = "breakdown of a 4 KiB WRITE to an absent page: start and end of each part";
    Figure::course(Place::Figure(10), title, || serial_parts(costs, 1))
}

fn err_against_timeouts(costs: &PartCosts) -> Figure {
    let resend = |resend| move |bytes| resent(costs, bytes, resend);
    Figure::of(
        Place::Figure(11),
        "small WRITEs to an absent page: ERR, or the timeout alone",
        SIZES,
        &SMALL[..4],
        vec![
            ("Fast Re-Xmit", &|bytes| resent(costs, bytes, Resend::ErrAndTimeout(costs.timeout()))),
            ("TOut 100 us", &resend(Resend::Timeout(100_000))),
            ("TOut 1 ms", &resend(Resend::Timeout(1_000_000))),
        ],
    )
}

fn page_in(costs: &PartCosts) -> Figure {
    let absent = |page_in| move |bytes| all_absent(costs, bytes, page_in);
    let before = |before| move |bytes| with_preparation(costs, bytes, before);
    let figure = Figure::of(
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
    );
    let notes = &[
        "PI4 is PIO here (section 5.3: \"similarly or even better\"): when the tasklet reads the NI FIFO every page of the block has failed, and \
         each has a call of its own, of PI4 the first for all four and the others for none",
    ];
    figure.noted(notes)
}

fn breakdown(costs: &PartCosts) -> Figure {
    let whole = |name: &str, latency: &dyn Fn(u64) -> f64| {
        Curve::computed(name, || PAGES.map(|bytes| (bytes as f64, latency(bytes))).to_vec())
    };
    let names = recorded(|| serial_parts(costs, 1)).0.map(|(name, _)| name);
    let parts = (0..)
        .zip(names)
        .map(|(index, name): (usize, _)| whole(name, &|bytes| part(costs, index, bytes / PAGE)));
    let all_parts = whole("all parts", &|bytes| serial_sum(costs, bytes / PAGE));
    let overlapped = whole("PIA, with overlap", &|bytes| all_absent(costs, bytes, PageIn::All));
    let title = "parts of a WRITE to absent pages, one after the other, and the whole with overlap";
    let curves: Vec<Curve> = parts.chain([all_parts, overlapped]).collect();
    let shape = Shape::Parts(curves.len() - 2);
    Figure::drawn(Place::Figure(13), title, SIZES, curves).shaped(shape)
}

fn frequency(costs: &PartCosts) -> Figure {
    let mut curves = Vec::new();
    for (name, page_in) in [("PIO", PageIn::One), ("PIA", PageIn::All)] {
        for (bytes, size) in PAGES.into_iter().zip(["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"])
        {
            let latencies = |percent| by_seed(costs, bytes, page_in, percent);
            curves.push(Curve::of_runs(format!("{name} {size}"), &FREQUENCIES, latencies));
        }
    }
    let axes = (Axis { label: "% of pages absent", logarithmic: false }, Axis::MICROSECONDS);
    let title = "latency by the percentage of pages that are absent";
    let notes = &[
        "so many whole pages are absent as the percentage makes rounded down, which is the text's own rule (section 6.1.1): from which \
         frequency on a size meets faults follows from it",
    ];
    Figure::drawn(Place::Figure(14), title, axes, curves).noted(notes)
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

/// Lost and corrupted packets (PAPERS PART-5), of which the paper has no picture.
fn errors(costs: &PartCosts) -> Figure {
    const RATES: [u64; 4] = [1, 10, 100, 1_000];
    let curve = |name, errors: fn(u32) -> Errors, timeout| {
        let latencies = |rate| with_errors(costs, 4 << 20, errors(rate as u32), timeout);
        Curve::of_runs(name, &RATES, latencies)
    };
    let lost = |rate| Errors { lost: rate, ..Errors::default() };
    let corrupted = |rate| Errors { corrupted: rate, ..Errors::default() };
    let answers = |rate| Errors { lost_answers: rate, ..Errors::default() };
    let axis = Axis { label: "packets of a million", logarithmic: true };
    Figure::drawn(
        Place::Section("4.2"),
        "latency of a WRITE of 4 MB, all in memory, some of whose packets are lost or corrupted",
        (axis, Axis::MICROSECONDS),
        vec![
            curve("data lost, TO 1 ms", lost, 1_000_000),
            curve("data lost, TO 100 us", lost, 100_000),
            curve("data corrupted, NACK", corrupted, 1_000_000),
            curve("ACKs lost, TO 1 ms", answers, 1_000_000),
        ],
    )
    .noted(&["the text has no such measurement, and no rate of errors; means of ten seeds, and their least and most"])
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
