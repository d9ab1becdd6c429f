//! The inputs that are kept in the tree, and a few seeded ones: what continuous integration fuzzes.
//!
//! The time of each part is bounded by its number of packets or executions, not by a clock.

use pagewire_fuzz::FuzzTarget;
use pagewire_fuzz::campaign::{self, Campaign};
use std::path::PathBuf;

/// Seed of the drawn inputs; another one with `PAGEWIRE_FUZZ_SEED`.
const SEED: u64 = 1;

fn corpus_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn seed() -> u64 {
    match std::env::var("PAGEWIRE_FUZZ_SEED") {
        Ok(seed) => seed.parse().expect("PAGEWIRE_FUZZ_SEED is a number"),
        Err(_) => SEED,
    }
}

#[test]
fn inputs_that_are_kept_break_nothing() {
    for target in FuzzTarget::ALL {
        let corpus = campaign::corpus(&corpus_folder(), *target).unwrap();
        assert!(!corpus.is_empty(), "{target:?} has no corpus");
        for (name, input) in corpus {
            println!("{} {name}", target.name());
            target.run(&input);
        }
    }
}

/// Draws inputs of a target until it was handed so many packets, or ran so often.
fn draw(target: FuzzTarget, packets: Option<u64>, executions: Option<u64>) {
    let corpus = campaign::corpus(&corpus_folder(), target).unwrap();
    let targets = vec![(target, corpus)];
    let jobs = std::thread::available_parallelism().unwrap().get();
    let seed = seed();
    let campaign = Campaign { targets, seed, first: 0, jobs, time: None, executions, packets };
    match campaign.run(|_| {}) {
        Ok(report) => println!("{} seed {seed}: {report:?}", target.name()),
        Err(violation) => panic!("seed {seed}: {violation:?}"),
    }
}

#[test]
fn datagrams_of_any_content_do_no_harm() {
    draw(FuzzTarget::Datagrams, Some(3_000_000), None);
}

#[test]
fn packets_that_are_nearly_right_do_no_harm() {
    draw(FuzzTarget::Sequences, Some(3_000_000), None);
}

#[test]
fn hostile_and_dead_neighbours_do_no_harm() {
    draw(FuzzTarget::Neighbour, None, Some(400));
}

#[test]
fn connections_take_any_packets_requests_and_times() {
    draw(FuzzTarget::TransportReceive, Some(3_000_000), None);
}

#[test]
fn connection_managers_take_any_messages_calls_and_times() {
    draw(FuzzTarget::Connections, Some(300_000), None);
}

#[test]
fn parsers_take_any_bytes() {
    draw(FuzzTarget::WireParse, None, Some(500_000));
    draw(FuzzTarget::WireRoundtrip, None, Some(500_000));
}

#[test]
fn the_same_execution_draws_the_same_input() {
    let draw = |execution| campaign::input(FuzzTarget::Sequences, 7, execution, &[]);
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
}
