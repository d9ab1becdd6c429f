//! REUSE's model: slabs, and what they amortise.

use pagewire_papers::reuse::{Slabs, View, acquire_new, transfer};
use pagewire_papers::unit_costs::ReuseCosts;
use proptest::prelude::*;

const SYSTEMS: [ReuseCosts; 2] = [ReuseCosts::MUTRINO, ReuseCosts::STRIA];
const SLAB: u64 = ReuseCosts::STRIA.slab;
const UNIT: u64 = ReuseCosts::STRIA.unit;

#[test]
fn registration_goes_through_the_two_given_numbers() {
    for (costs, times) in SYSTEMS.iter().zip([90.0, 4.4]) {
        assert_eq!(costs.register(2 << 20), costs.largest);
        assert_eq!(costs.register(1), costs.register(4_096));
        let ratio = costs.register(2 << 20) as f64 / costs.register(128) as f64;
        assert!((ratio - times).abs() < 0.01, "{}: {ratio}", costs.name);
    }
}

/// REUSE-2: up to 1 MiB many requests share a slab; from there on each registers exactly the units that it needs.
#[test]
fn reuse_2_a_slab_serves_many_requests_until_one_fills_it() {
    let slabs = |bytes, trials| {
        let mut slabs = Slabs::default();
        (0..trials).for_each(|_| {
            slabs.acquire(&ReuseCosts::STRIA, bytes);
        });
        slabs.registered
    };
    assert_eq!(slabs(128, 8_192), [SLAB]);
    assert_eq!(slabs(128, 8_193), [SLAB, SLAB]);
    assert_eq!(slabs(256 << 10, 8), [SLAB, SLAB]);
    assert_eq!(slabs(SLAB, 2), [SLAB, SLAB]);
    assert_eq!(slabs(SLAB + 1, 1), [SLAB + UNIT]);
}

#[test]
fn the_gain_of_slabs_ends_at_their_size() {
    for costs in SYSTEMS {
        let gain = |bytes| costs.register(bytes) as f64 / 1_000.0 / acquire_new(&costs, bytes, 1_000).mean();
        assert!(gain(128) > gain(128 << 10) && gain(128 << 10) > gain(512 << 10), "{}", costs.name);
        assert!(gain(SLAB) < 1.0 && gain(SLAB) > 0.95 && gain(2 * SLAB) < 1.0, "{}", costs.name);
    }
}

/// REUSE-5: registered memory is never later, whatever the link and the copies take.
#[test]
fn reuse_5_views_in_registered_memory_are_the_soonest() {
    for costs in SYSTEMS {
        for (latency, link, copy) in [(1_000, 12_500, 10_000), (20_000, 5_000, 1_000)] {
            let costs = ReuseCosts { latency, link, copy, ..costs };
            for bits in 7..=21 {
                let of = |view| transfer(&costs, view, 1 << bits);
                assert!(of(View::Registered) < of(View::ByHand), "{}: 2^{bits}", costs.name);
                assert!(of(View::Registered) <= of(View::Copied), "{}: 2^{bits}", costs.name);
            }
        }
    }
}

proptest! {
    /// Slabs are multiples of a unit and hold all that was asked for; nothing is registered that nobody needed.
    #[test]
    fn reuse_2_slabs_hold_what_was_asked_for(requests in prop::collection::vec(1..3_000_000_u64, 1..60)) {
        let mut slabs = Slabs::default();
        let mut used = Vec::new();
        for bytes in &requests {
            match slabs.acquire(&ReuseCosts::STRIA, *bytes) {
                Some(slab) => {
                    prop_assert!(slab >= SLAB && slab >= *bytes && slab % UNIT == 0);
                    prop_assert!(slab == SLAB || slab < bytes + UNIT);
                    used.push(*bytes);
                }
                None => *used.last_mut().expect("the first request registers") += bytes,
            }
        }
        prop_assert_eq!(used.len(), slabs.registered.len());
        prop_assert!(used.iter().zip(&slabs.registered).all(|(used, slab)| used <= slab));
    }

    #[test]
    fn trials_are_fast_or_slow(bytes in 1..3_000_000_u64, trials in 1..2_000_u64) {
        for costs in SYSTEMS {
            let done = acquire_new(&costs, bytes, trials);
            prop_assert_eq!(done.fast + done.slow, trials);
            prop_assert!(done.slow >= 1 && (bytes < SLAB || done.fast == 0));
            prop_assert!(done.total >= trials * costs.allocate + done.slow * costs.register(SLAB));
        }
    }
}
