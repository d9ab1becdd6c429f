//! The workload over both paths, and the bugs that its checker must find.

use pagewire_nic::{Completion, PathChoice, Status};
use pagewire_sim::workload::{Hooks, Violation, Workload, WorkloadReport};
use pagewire_sim::{Plant, ProcessId, Scenario, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Requests of one run here; the `swarm` program makes longer ones.
const OPERATIONS: u64 = 5_000;

fn scenario(seed: u64, path: PathChoice, loss: f64) -> Scenario {
    let mut scenario = Scenario::new(seed, OPERATIONS, path, loss);
    scenario.plan.between_audits = 3_000;
    scenario.plan.between_upheavals = 100;
    scenario
}

fn passes(scenario: Scenario) -> WorkloadReport {
    match scenario.run() {
        Ok(report) => report,
        Err(violation) => panic!("{:?}: {violation}", scenario.path),
    }
}

#[test]
fn the_local_path_keeps_every_promise() {
    for seed in 1..=4 {
        let report = passes(scenario(seed, PathChoice::Local, 0.0));
        assert!(
            report.upheavals > 0
                && report.deregistrations > 0
                && report.atomics > 0
                && report.flushes > 0
                && report.extended > 0,
            "seed {seed}: {report:?}"
        );
    }
}

#[test]
fn where_nothing_is_lost_no_retries_are_needed() {
    for seed in 1..=3 {
        let mut scenario = scenario(seed, PathChoice::Local, 0.0).with_parties(3);
        (scenario.plan.retry_count, scenario.plan.upheaval) = (0, false);
        assert_eq!(passes(scenario).errors, 0);
    }
}

#[test]
fn the_network_path_keeps_every_promise() {
    for seed in 1..=3 {
        passes(scenario(seed, PathChoice::Udp, 0.0));
    }
}

#[test]
fn a_network_that_loses_doubles_and_reorders_changes_nothing_for_rc() {
    for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.05)] {
        let report = passes(scenario(seed, PathChoice::Udp, loss));
        assert!(report.unreliable_received > 0, "seed {seed}: {report:?}");
    }
}

#[test]
fn three_parties_of_one_host_get_along() {
    passes(scenario(9, PathChoice::Local, 0.0).with_parties(3));
}

#[test]
fn one_seed_makes_one_history() {
    let run = || {
        let scenario = scenario(77, PathChoice::Udp, 0.05);
        let built = scenario.build(None);
        let world = built.world.clone();
        let report = Workload::new(scenario.plan.clone(), built.stage, built.parties, Hooks::default())
            .and_then(|mut workload| workload.run(|_| {}));
        (report, world.now(), world.network_counters(), world.tally())
    };
    assert!(run() == run(), "seed 77 made two histories");
}

/// Runs a workload in which `prepare` has planted something.
fn planted(
    path: PathChoice,
    prepare: impl Fn(&World, &[ProcessId]) -> Hooks,
) -> Result<WorkloadReport, Violation> {
    planted_in(5, path, prepare)
}

fn planted_in(
    seed: u64,
    path: PathChoice,
    prepare: impl Fn(&World, &[ProcessId]) -> Hooks,
) -> Result<WorkloadReport, Violation> {
    let scenario = scenario(seed, path, 0.0);
    let built = scenario.build(None);
    let mut workload = Workload::new(scenario.plan.clone(), built.stage, built.parties, Hooks::default())?;
    // Not before: the programs have filled their memory now.
    workload.set_hooks(prepare(&built.world, &built.processes));
    workload.run(|_| {})
}

/// A bug that `prepare` plants is found on both paths.
fn caught(what: &str, prepare: impl Fn(&World, &[ProcessId]) -> Hooks) {
    caught_in(5..6, what, prepare);
}

/// A bug that `prepare` plants is found on both paths in one of a few runs, as not every run comes by the place.
fn caught_in(seeds: Range<u64>, what: &str, prepare: impl Fn(&World, &[ProcessId]) -> Hooks) {
    for path in [PathChoice::Local, PathChoice::Udp] {
        let found = seeds.clone().any(|seed| planted_in(seed, path, &prepare).is_err());
        assert!(found, "{what} was not noticed on path {path:?}");
    }
}

/// Changes completions once, where `trick` finds something to change.
fn completions(trick: impl Fn(&mut Vec<Completion>) -> bool + 'static) -> Hooks {
    let mut polls = 0;
    let mut done = false;
    Hooks {
        completions: Some(Box::new(move |_, completions| {
            polls += 1;
            if polls > 200 && !done {
                done = trick(completions);
            }
        })),
        deregistered: None,
    }
}

#[test]
fn swapped_completions_are_noticed() {
    caught("a swap of completions", |_, _| {
        completions(|completions| {
            let pair = completions.windows(2).position(|pair| pair[0].queue_pair == pair[1].queue_pair);
            pair.inspect(|first| completions.swap(*first, first + 1)).is_some()
        })
    });
}

#[test]
fn a_doubled_completion_is_noticed() {
    caught("a doubled completion", |_, _| {
        completions(|completions| {
            completions.push(completions[0]);
            true
        })
    });
}

#[test]
fn a_missing_completion_is_noticed() {
    caught("a missing completion", |_, _| {
        completions(|completions| {
            completions.remove(0);
            true
        })
    });
}

#[test]
fn a_missing_flush_is_noticed() {
    caught("a missing flush", |_, _| {
        completions(|completions| {
            let flushed = completions.iter().rposition(|completion| completion.status == Status::Flushed);
            flushed.map(|place| completions.remove(place)).is_some()
        })
    });
}

#[test]
fn a_wrong_immediate_is_noticed() {
    caught("a wrong immediate", |_, _| {
        completions(|completions| {
            let found = completions.iter_mut().find_map(|completion| completion.immediate.as_mut());
            found.map(|immediate| *immediate ^= 1 << 17).is_some()
        })
    });
}

fn in_memory(plant: Plant, chances: u32) -> impl Fn(&World, &[ProcessId]) -> Hooks {
    move |world, processes| {
        world.get(processes[0]).plant(plant, chances);
        Hooks::default()
    }
}

#[test]
fn a_lost_byte_is_noticed() {
    // A request that failed for another reason at once may hide one of them: it promised nothing.
    for path in [PathChoice::Local, PathChoice::Udp] {
        let chances = [100, 2_000, 5_000, 10_000];
        let noticed = chances.map(|chances| planted(path, in_memory(Plant::LostByte, chances)).is_err());
        let missed = noticed.iter().filter(|noticed| !**noticed).count();
        assert!(missed <= 1, "lost bytes were not noticed on path {path:?}: {noticed:?} of {chances:?}");
    }
}

#[test]
fn a_byte_beyond_the_target_is_noticed() {
    caught("a write beyond its target", in_memory(Plant::Overrun, 300));
}

#[test]
fn an_atomic_run_twice_is_noticed() {
    // Runs of a compare-and-swap are one run if it fails; somewhere an add comes along.
    let found = (20..40).any(|chances| {
        [PathChoice::Local, PathChoice::Udp]
            .into_iter()
            .all(|path| planted(path, in_memory(Plant::AtomicTwice, chances)).is_err())
    });
    assert!(found, "an atomic that ran twice was never noticed");
}

#[test]
fn a_write_after_deregistration_is_noticed() {
    caught_in(5..10, "a stale write", |world, processes| {
        let (world, processes) = (world.clone(), processes.to_vec());
        let regions = Rc::new(RefCell::new(0));
        Hooks {
            completions: None,
            deregistered: Some(Box::new(move |party, address, length| {
                *regions.borrow_mut() += 1;
                if *regions.borrow() == 2 {
                    world.poke(processes[party], address + length / 2, &[0x77]);
                }
            })),
        }
    });
}
