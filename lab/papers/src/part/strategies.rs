//! What PART is compared with, and what its experiments average (PAPERS PART-8, PART-10).

use super::machine::run;
use super::transfer::{Errors, Fate, PageIn, Resend, Transfer};
use crate::unit_costs::{PAGE, PartCosts};

/// What the user does about pages before a transfer (PAPERS PART-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing; all pages are in memory.
    Nothing,
    /// Touches each page, all absent.
    TouchAbsent,
    /// Touches each page, all in memory, at the least cost that the text gives for it.
    TouchPresent,
    /// Locks the buffer, all absent.
    PinAbsent,
}

/// Microseconds from the user's call of what comes before until the last byte is in memory.
pub fn with_preparation(costs: &PartCosts, bytes: u64, before: Before) -> f64 {
    let pages = bytes.div_ceil(PAGE);
    let (preparation, warm) = match before {
        Before::Nothing => (0, true),
        Before::TouchPresent => (pages * costs.touch_present().0, true),
        // The pages are new: the SMMU has not seen them.
        Before::TouchAbsent => (pages * costs.touch_absent(), false),
        Before::PinAbsent => (costs.pin_call() + pages * costs.pin_page(), false),
    };
    let transfer = Transfer { warm, ..Transfer::resident(costs, bytes) };
    microseconds(preparation + run(costs, &transfer).latency)
}

/// What touching every page of so many bytes costs, all in memory: at least and at most, in microseconds.
pub fn touched(costs: &PartCosts, bytes: u64) -> (f64, f64) {
    let pages = bytes.div_ceil(PAGE);
    let (least, most) = costs.touch_present();
    (microseconds(pages * least), microseconds(pages * most))
}

/// Microseconds of a transfer to pages that are all absent, with ERR and the usual timeout.
pub fn all_absent(costs: &PartCosts, bytes: u64, page_in: PageIn) -> f64 {
    microseconds(run(costs, &Transfer::absent(costs, bytes, page_in)).latency)
}

/// Microseconds of a transfer to pages that are all absent, where the user touches the pages of transfers below a size first and leaves
/// those of others to PIA (section 5.4).
pub fn touched_below(costs: &PartCosts, bytes: u64, threshold: u64) -> f64 {
    if bytes < threshold {
        with_preparation(costs, bytes, Before::TouchAbsent)
    } else {
        all_absent(costs, bytes, PageIn::All)
    }
}

/// Microseconds of a transfer to absent pages with PIA, by what makes the source send again.
pub fn resent(costs: &PartCosts, bytes: u64, resend: Resend) -> f64 {
    let transfer = Transfer { resend, ..Transfer::absent(costs, bytes, PageIn::All) };
    microseconds(run(costs, &transfer).latency)
}

/// Percent of pages that are absent in figure 14.
pub(super) const FREQUENCIES: [u64; 7] = [0, 1, 5, 20, 40, 80, 100];

/// Microseconds of a transfer of whose pages this percentage is absent, at random, averaged over five seeds as in section 6.1.1.
///
/// So many whole pages are absent as the percentage makes rounded down: of an s of pages and a frequency f, section 6.1.1 says that
/// faults occur only where s f is 1 at least, and that a single page's latency at 80 % is that without a fault, although it also
/// says that each page is absent independently.
pub fn sometimes_absent(costs: &PartCosts, bytes: u64, page_in: PageIn, percent: u64) -> f64 {
    let latencies = by_seed(costs, bytes, page_in, percent);
    latencies.iter().sum::<f64>() / latencies.len() as f64
}

/// The latencies of [`sometimes_absent`], one for each seed.
pub(super) fn by_seed(costs: &PartCosts, bytes: u64, page_in: PageIn, percent: u64) -> Vec<f64> {
    let latencies = (1..=SEEDS).map(|seed| {
        let absent = Transfer::absent(costs, bytes, page_in);
        let pages = absent.destination.len();
        let missing = pages * percent as usize / 100;
        let mut destination = vec![true; pages];
        for page in fastrand::Rng::with_seed(seed).choose_multiple(0..pages, missing) {
            destination[page] = false;
        }
        microseconds(run(costs, &Transfer { destination, ..absent }).latency)
    });
    latencies.collect()
}

/// Seeds over which latencies are averaged (section 6.1.1: "5 times, for different random seeds").
const SEEDS: u64 = 5;

/// Microseconds of a transfer, all in memory, whose first packet meets this fate and which the timeout or a NACK sends again.
pub(super) fn with_fate(costs: &PartCosts, bytes: u64, fate: Fate, timeout: u64) -> f64 {
    let errors = Errors { of_one: Some((0, fate)), ..Errors::default() };
    let resend = Resend::Timeout(timeout);
    microseconds(run(costs, &Transfer { errors, resend, ..Transfer::resident(costs, bytes) }).latency)
}

/// Microseconds of a transfer, all in memory, with these errors, one for each seed.
pub(super) fn with_errors(costs: &PartCosts, bytes: u64, errors: Errors, timeout: u64) -> Vec<f64> {
    let latency = |seed| {
        let transfer = Transfer {
            errors: Errors { seed, ..errors },
            resend: Resend::ErrAndTimeout(timeout),
            ..Transfer::resident(costs, bytes)
        };
        microseconds(run(costs, &transfer).latency)
    };
    (1..=2 * SEEDS).map(latency).collect()
}

/// The least frequency of figure 14 at which a transfer takes longer than without faults, in percent.
pub(super) fn least_frequency(costs: &PartCosts, bytes: u64) -> f64 {
    let latency = |percent| sometimes_absent(costs, bytes, PageIn::All, percent);
    let without = latency(0);
    let slower = FREQUENCIES.into_iter().find(|&percent| latency(percent) > without);
    slower.map_or(f64::INFINITY, |percent| percent as f64)
}

/// Equation 1: what overlapping page-in and transfer gains for so many pages.
pub fn overlap_gain(costs: &PartCosts, pages: u64, timeout: u64) -> f64 {
    let page_in = (costs.page_in_page() * pages) as f64;
    let transfer = costs.wire(PAGE * pages) as f64;
    (page_in + transfer) / page_in.max(timeout as f64 + transfer)
}

/// A name, and nanoseconds for so many pages.
type Part = (&'static str, fn(&PartCosts, u64) -> u64);

/// The parts of a fault one after the other, as figures 10 and 13 add them up: their names, and what each takes for so many pages.
const PARTS: [Part; 7] = [
    ("first packet", |costs, _| costs.initiation() + costs.network()),
    ("handler", |costs, _| costs.handler()),
    ("get_user_pages", |costs, pages| costs.page_in_call() + pages * costs.page_in_page()),
    ("other work of the tasklet", |costs, _| {
        costs.packing() + PAGE.div_ceil(costs.packet()) * costs.fifo_read()
    }),
    ("Netlink", |costs, _| costs.netlink()),
    ("ERR", |costs, _| costs.err()),
    ("sent again", |costs, pages| costs.resume() + costs.network() + costs.wire(pages * PAGE)),
];

/// Microseconds of one of the parts.
pub(super) fn part(costs: &PartCosts, index: usize, pages: u64) -> f64 {
    microseconds(PARTS[index].1(costs, pages))
}

/// Name and microseconds of each part.
pub fn serial_parts(costs: &PartCosts, pages: u64) -> [(&'static str, f64); 7] {
    PARTS.map(|(name, length)| (name, microseconds(length(costs, pages))))
}

/// The sum of [`serial_parts`].
pub fn serial_sum(costs: &PartCosts, pages: u64) -> f64 {
    serial_parts(costs, pages).iter().map(|(_, length)| length).sum()
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}
