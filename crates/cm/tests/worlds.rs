//! Worlds of a few hosts with two users each, and a kernel, whose programs connect, answer, leave and are killed at random, over a network that
//! loses, doubles and reorders: what programs hear makes sense, everything ends, and nothing is left. Where nothing is lost no user sees a request
//! of a Pagewire for another user.
//!
//! `PAGEWIRE_CM_WORLDS` is how many worlds (300), `PAGEWIRE_CM_SEED` the first one.

mod world;

use world::World;

/// Steps of a world.
const STEPS: usize = 200;

fn number_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn random_worlds_end_with_nothing_left() {
    let first = number_of("PAGEWIRE_CM_SEED", 1);
    let mut totals = world::Totals::default();
    for seed in first..first + number_of("PAGEWIRE_CM_WORLDS", 300) {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
        totals.add(&world.totals);
    }
    println!("{totals:?}");
    // What is not drawn is not tested.
    totals.check_all_drawn();
}
