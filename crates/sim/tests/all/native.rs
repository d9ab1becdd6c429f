//! Native operations beside verbs: whatever is lost, each byte is right, and each conditional write has one end.

use pagewire_nic::PathChoice;
use pagewire_sim::Scenario;
use pagewire_sim::workload::{WorkloadPlan, WorkloadReport};

/// Verbs requests; native operations are as many in the same time.
const OPERATIONS: u64 = 2_500;

fn scenario(seed: u64, path: PathChoice, loss: f64) -> Scenario {
    let scenario = Scenario::new(seed, OPERATIONS, path, loss).with_parties(4).small();
    // With all paths: two processes on each host.
    let hosts = if path == PathChoice::Auto { 2 } else { scenario.hosts };
    Scenario { plan: WorkloadPlan { natives: 8, ..scenario.plan }, hosts, ..scenario }
}

fn passes(scenario: &Scenario) -> WorkloadReport {
    match scenario.run() {
        Ok(report) => report,
        Err(violation) => panic!("{violation}\nrepeat it with: swarm{}", scenario.options()),
    }
}

#[test]
fn each_native_operation_ends_once_whatever_is_lost() {
    let mut all = WorkloadReport::default();
    for (seed, path, loss) in [
        (1, PathChoice::Local, 0.0),
        (2, PathChoice::Udp, 0.0),
        (3, PathChoice::Udp, 0.05),
        (4, PathChoice::Udp, 0.2),
        (5, PathChoice::Auto, 0.05),
    ] {
        all += passes(&scenario(seed, path, loss));
    }
    assert!(all.natives > 3_000, "{all:?}");
    assert!(all.held_writes > 300 && all.withdrawn > 100, "{all:?}");
}

#[test]
fn processes_that_end_leave_no_write_without_an_end() {
    let mut all = WorkloadReport::default();
    for seed in 1..=4 {
        let mut scenario = scenario(seed, PathChoice::Auto, 0.05);
        scenario.plan.between_crashes = Some(200);
        all += passes(&scenario);
    }
    assert!(all.deaths > 10 && all.successors > 10 && all.held_writes > 100, "{all:?}");
}

#[test]
fn a_seed_decides_what_native_operations_do() {
    let once = || passes(&scenario(7, PathChoice::Udp, 0.05));
    assert_eq!(once(), once());
}
