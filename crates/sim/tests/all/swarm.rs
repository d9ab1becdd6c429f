//! Worlds of all kinds, bad networks, standard peers, and how a violation is made small.

use pagewire_nic::PathChoice;
use pagewire_sim::workload::{WorkloadPlan, WorkloadReport};
use pagewire_sim::{NetworkCounters, Plant, Scenario, shrink};
use std::process::Command;

/// Requests in each world; the `swarm` program makes longer runs.
const OPERATIONS: u64 = 3_000;

fn passes(scenario: Scenario) -> (WorkloadReport, NetworkCounters) {
    let (result, world) = scenario.run_with(None, |_, _| {});
    match result {
        Ok(report) => (report, world.network_counters()),
        Err(violation) => panic!("{violation}\nrepeat it with: swarm{}", scenario.options()),
    }
}

#[test]
fn whatever_the_seed_draws_every_promise_is_kept() {
    let (mut all, mut network) = (WorkloadReport::default(), NetworkCounters::default());
    let mut most_hosts = 0;
    for seed in 1..=24 {
        let mut scenario = Scenario::drawn(seed, OPERATIONS);
        scenario.plan.between_crashes = scenario.plan.between_crashes.map(|_| 150);
        most_hosts = most_hosts.max(scenario.hosts);
        let (report, counters) = passes(scenario);
        assert!(report.operations >= OPERATIONS, "seed {seed}: {report:?}");
        all += report;
        network += counters;
    }
    assert!(most_hosts > 32, "{most_hosts} hosts at most");
    assert!(all.deaths > 10 && all.successors > 10 && all.upheavals > 100 && all.drains > 10, "{all:?}");
    assert!(all.atomics > 0 && all.deregistrations > 0 && all.unreliable_received > 0, "{all:?}");
    assert!(all.flushes > 0 && all.extended > 0, "{all:?}");
    assert!(network.lost > 0 && network.duplicated > 0 && network.reordered > 0, "{network:?}");
    // Some are turned round where nobody looks: in the packets of the dead, and in what the network may change.
    assert!(network.bad_icrc > network.corrupted / 2, "{network:?}");
}

/// 2,071 datagrams were sent behind one that its receiver, which lags, has not looked at.
#[test]
fn a_datagram_is_known_that_waited_behind_thousands() {
    let mut scenario = Scenario::drawn(7_002_811, 20_000);
    scenario.plan.extended = false;
    let (report, _) = passes(scenario);
    assert!(report.unreliable_received > 2_000, "{report:?}");
}

/// A process dies whose peer takes the network, as nobody holds its queue pairs any more, and then reads what the dead one sent through the
/// ring: behind a READ both have to count the same PSNs.
#[test]
fn ends_on_different_paths_count_psns_alike() {
    let mut scenario = Scenario::drawn(41_168, 20_000);
    scenario.plan.extended = false;
    let (report, _) = passes(scenario);
    assert!(report.deaths > 0, "{report:?}");
}

/// The refusal of a WRITE through a dead key was lost, and the key's queue pair has ended: who asks again gets it again, and does not run
/// out of retries. In about one world of twenty that shows.
#[test]
fn a_refusal_that_was_lost_is_repeated_by_xrc() {
    for seed in 100..160 {
        let words = "--operations 2500 --path udp --loss 0.4 --connections 13 --between-upheavals 10 --between-audits 2000 --longest 4096 \
                     --memory 8388608 --no-shrink --seed";
        let mut swarm = Command::new(env!("CARGO_BIN_EXE_swarm"));
        let done = swarm.args(words.split_whitespace()).arg(seed.to_string()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let report = String::from_utf8(done.stdout).unwrap();
        let (requests, operations) = (count(&report, "extended_requests"), count(&report, "operations"));
        assert!(requests > 0 && operations >= 2500, "{report}");
    }
}

/// A number of a report of the swarm.
fn count(report: &str, name: &str) -> u64 {
    let (_, behind) = report.split_once(&format!("\"{name}\":")).unwrap();
    behind.split_once(',').unwrap().0.parse().unwrap()
}

/// Datagrams to multicast groups are drawn beside the rest.
#[test]
fn swarm_draws_multicast_groups() {
    let received = |seed: u64| {
        let words =
            "--operations 4000 --connections 32 --groups --memory 8388608 --longest 4096 --no-shrink --seed";
        let mut swarm = Command::new(env!("CARGO_BIN_EXE_swarm"));
        let done = swarm.args(words.split_whitespace()).arg(seed.to_string()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        count(&String::from_utf8(done.stdout).unwrap(), "group_received")
    };
    assert!((1..=4).map(received).sum::<u64>() > 100);
}

fn lossy(seed: u64, loss: f64) -> Scenario {
    let scenario = Scenario::new(seed, OPERATIONS, PathChoice::Udp, loss).small();
    Scenario { plan: WorkloadPlan { upheaval: false, ..scenario.plan }, ..scenario }
}

/// The budget of 16.8 ms is no more than four repetitions by count.
#[test]
fn two_pagewires_lose_a_fifth_of_all_packets_and_no_connection() {
    for (seed, loss) in [(1, 0.2), (2, 0.2), (3, 0.05), (4, 0.01)] {
        let mut scenario = lossy(seed, loss);
        (scenario.plan.timeout, scenario.plan.retry_count) = (10, 3);
        let (report, network) = passes(scenario);
        assert_eq!((report.errors, report.given_up), (0, 0), "seed {seed}: {report:?}");
        assert!(network.lost > 0);
    }
}

/// The checker sees to it that there is one RETRY_EXC at most on each side, and nothing but flushes after it.
#[test]
fn standard_peers_are_given_up_where_too_much_is_lost() {
    let mut given_up = 0;
    for (seed, standard) in [(1, 1), (2, 2)] {
        let mut scenario = lossy(seed, 0.2);
        scenario.standard = standard;
        (scenario.plan.timeout, scenario.plan.retry_count) = (10, 1);
        given_up += passes(scenario).0.given_up;
    }
    assert!(given_up > 0, "so much is lost that some connections must be given up");
    for standard in [1, 2] {
        let scenario = Scenario { standard, ..lossy(3, 0.0) };
        let (report, _) = passes(scenario);
        assert_eq!((report.errors, report.given_up), (0, 0), "nothing is lost: {report:?}");
    }
}

/// A bug that is planted in one process is found, and found again in much smaller a world.
#[test]
fn a_violation_is_made_small_and_told() {
    // Planted anew in each world that is tried.
    let mut scenario = Scenario::drawn(6, 20_000);
    scenario.plant = Some((Plant::LostByte, 50));
    let violation = scenario.run().expect_err("a byte was lost");
    let before = scenario.clone();
    let shrunk = shrink::shrink(scenario, violation, 150);
    let small = &shrunk.scenario;
    assert!(small.plan.operations <= before.plan.operations / 100, "{small:?}");
    // Connections stay: with fewer of them the bug shows later.
    assert!(small.parties <= 4 && small.faults.are_none(), "{small:?}");
    let text = shrink::trace(&shrunk);
    assert!(text.contains(&shrunk.violation.what), "the same thing happens again:\n{text}");
    assert!(text.contains(" posts request ") && text.contains("repeat it with: swarm --seed "), "{text}");
    assert!(text.lines().count() < 80, "{text}");
}

/// A panic of the engine takes neither the seed nor the other worlds with it.
#[test]
fn a_panic_is_a_violation() {
    let mut scenario = Scenario::new(3, 2_000, PathChoice::Local, 0.0).small();
    scenario.plant = Some((Plant::Panic, 50));
    let violation = scenario.run().expect_err("a copy panicked");
    assert!(violation.to_string().starts_with("seed 3, after "), "{violation}");
    assert!(violation.what.starts_with("panic: a copy of "), "{violation}");
    let shrunk = shrink::shrink(scenario, violation, 50);
    assert!(shrunk.scenario.plan.operations < 500, "{:?}", shrunk.scenario);
    assert!(shrink::trace(&shrunk).contains("repeat it with: swarm --seed "));
}

/// What makes no world, or one that cannot be, is a wrong command line and no success.
#[test]
fn the_program_refuses_what_makes_no_world() {
    for wrong in [
        "--packets=0",
        "--operations=0",
        "--loss=2",
        "--loss=nan",
        "--corrupt=-1",
        "--memory=4096",
        "--parties=1",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_swarm")).arg(wrong).output().expect("the program");
        assert_eq!(output.status.code(), Some(2), "{wrong}: {output:?}");
        assert!(output.stdout.is_empty(), "{wrong}: {output:?}");
    }
}

#[test]
fn memory_that_does_not_suffice_is_told() {
    let mut scenario = Scenario::new(1, 10, PathChoice::Udp, 0.0);
    (scenario.plan.connections, scenario.memory) = (200, 2 << 20);
    let refused = scenario.run().expect_err("too little");
    assert!(refused.what.contains("bytes of memory and has 2097152"), "{refused}");
}
