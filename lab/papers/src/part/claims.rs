//! The numbers that PART states in its text, beside the model's.

/// What the text says and implies of the link, and what follows for one number. The rates implied: at 64 KB of 6.2 / 3.5 (figures 14
/// and 12), that is touching first to transfer only, with 3 us a page; at 1 MB of the 2.0 of touching first; at 4 MB of 5.7 ms less 3.1
/// ms of page-in (figure 13), of 3.6 ms / 1.5, of 1.46 x 3.6 ms less page-in, and of 7.1 x 3.6 ms / 12.5. They take the whole of a transfer as
/// the link's; of the latency without the base of 4 us (section 4.1) 64 KB and 1 MB imply more.
macro_rules! link {
    ($rest:literal) => {
        concat!(
            "the text has links of 10 and of 17 Gb/s (section 4.1) and computes with 10, but its own numbers imply 8.4 at 64 KB (9.0 \
             without the model's base of 4 us), 10.9 at 1 MB (11.0) and 12.9, 14.0, 15.4 or 16.4 at 4 MB, so that no one rate meets all; ",
            $rest
        )
    };
}

/// Where the model's PIA is not as much slower than touching first as the paper's.
macro_rules! more_interrupts {
    ($rest:literal) => {
        concat!(
            "the paper sets the simple loads and stores of touching, in user space, against get_user_pages inside the tasklet, which \
             handler runs interrupt multiple times; in the model a page costs 3 us either way, and those runs end with the two blocks \
             that are outstanding: the text has no other cost of the one or of an interrupt but its 1 us",
            $rest
        )
    };
}

mod applications;
mod page_in;
mod sensitivity;
mod small;

use crate::claim::{Claim, Prediction, at_least, is};
use crate::figure::Place;
use crate::unit_costs::PartCosts;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SHORTEST: u64 = 64;
const PAGES: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];

/// All of them, by figure.
pub fn claims(costs: &PartCosts) -> Vec<Claim> {
    [
        small::without_faults(costs),
        small::one_fault(costs),
        page_in::strategies(costs),
        page_in::breakdown(costs),
        sensitivity::frequency(costs),
        sensitivity::timeouts(costs),
        applications::all(costs),
    ]
    .concat()
}

/// A number that is a unit cost.
const fn given(place: Place, what: &'static str, stated: f64) -> Claim {
    Claim::new(place, what, "us", is(stated), Prediction::Given)
}
