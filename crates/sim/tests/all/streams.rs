//! Worlds whose processes reach each other by streams, which break and stall.

use pagewire_nic::PathChoice;
use pagewire_sim::{LinkFaults, Scenario, StreamFaults};

/// Runs worlds of two hosts with streams.
fn run(seeds: std::ops::Range<u64>, streams: StreamFaults) {
    for seed in seeds {
        let mut scenario = Scenario::new(seed, 8_000, PathChoice::Tcp, 0.0);
        scenario.faults = LinkFaults { streams: Some(streams), ..scenario.faults };
        scenario.plan.exact = scenario.is_exact();
        let (result, world) = scenario.run_with(None, |_, _| {});
        if let Err(violation) = result {
            panic!("{violation}\nrepeat it with: swarm{}", scenario.options());
        }
        let counters = world.network_counters();
        assert!(counters.streamed == counters.sent && counters.sent > 0, "seed {seed}: {counters:?}");
        assert_eq!(counters.broken_streams > 0, streams.broken > 0.0, "seed {seed}");
    }
}

#[test]
fn streams_that_last_lose_nothing() {
    run(1..4, StreamFaults::NONE);
    run(4..7, StreamFaults { stalled: 0.001, ..StreamFaults::NONE });
}

/// Each request comes once and in its turn, whatever was under way. Before the ends have agreed how they cut packets, too: an acknowledgement that
/// came then once held up the HELLO behind it (seed 3).
#[test]
fn streams_that_break_lose_no_request() {
    run(3..9, StreamFaults { broken: 0.001, ..StreamFaults::NONE });
    run(9..12, StreamFaults { broken: 0.005, stalled: 0.0005, ..StreamFaults::NONE });
}
