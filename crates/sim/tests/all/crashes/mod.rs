//! A process ends between any two of its stores: the others see errors in bounded time, and go on.

mod refusals;
mod sleepers;

use pagewire_iommu::words::Site;
use pagewire_nic::PathChoice;
use pagewire_sim::workload::{Hooks, Workload, WorkloadReport};
use pagewire_sim::{CrashPoint, Scenario, SiteTally};
use std::collections::BTreeMap;

/// Requests of one run.
const OPERATIONS: u64 = 800;
/// Nanoseconds in which survivors must know.
const NOTICE: u64 = 5_000_000_000;
/// Crashes at each site, seed and path.
const CRASHES: u64 = 3;

fn scenario(seed: u64, path: PathChoice) -> Scenario {
    Scenario::new(seed, OPERATIONS, path, 0.0).small().with_parties(3)
}

/// What a run with a crash came to: the report, where the process ended, and its stores.
fn run(
    seed: u64,
    path: PathChoice,
    crash: Option<(usize, CrashPoint)>,
) -> (WorkloadReport, Option<Site>, BTreeMap<Site, SiteTally>) {
    let scenario = scenario(seed, path);
    let built = scenario.build(crash);
    let victim = built.world.get(built.processes[crash.map_or(0, |(which, _)| which)]);
    let outcome = Workload::new(scenario.plan.clone(), built.stage, built.parties, Hooks::default())
        .and_then(|mut workload| workload.run(|_| {}));
    match outcome {
        Ok(report) => (report, victim.ended_by(), victim.tally()),
        Err(violation) => panic!("path {path:?}, crash {crash:?}: {violation}"),
    }
}

/// Ends a process at each site that it comes to, and counts the crashes there.
fn sweep(seed: u64, path: PathChoice, seen: &mut BTreeMap<Site, u64>) {
    let victim = seed as usize % 3;
    let (_, _, tally) = run(seed, path, Some((victim, CrashPoint::Store(u64::MAX))));
    let mut random = fastrand::Rng::with_seed(seed);
    for (site, tally) in tally {
        for number in 0..CRASHES.min(tally.stores) {
            // The first, the last, and some in between.
            let at = match number {
                0 => 1,
                1 => tally.stores,
                _ => random.u64(1..=tally.stores),
            };
            let (report, ended, _) = run(seed, path, Some((victim, CrashPoint::At(site, at))));
            // The program's own time may have gone differently by then only if it did not come so far.
            if let Some(ended) = ended {
                assert_eq!(ended, site, "seed {seed}, path {path:?}");
                *seen.entry(site).or_default() += 1;
                assert!(
                    report.operations >= OPERATIONS,
                    "seed {seed}: the survivors stopped after {site:?} number {at}"
                );
                assert!(report.slowest_notice < NOTICE, "seed {seed}, {site:?} number {at}: {report:?}");
            }
        }
    }
}

#[test]
fn survivors_go_on_wherever_a_process_ends() {
    let mut seen = BTreeMap::new();
    // Seeds in which every site is come to.
    for seed in 4..=5 {
        sweep(seed, PathChoice::Local, &mut seen);
    }
    sweep(6, PathChoice::Udp, &mut seen);
    sleepers::sweep(&mut seen);
    let all = [pagewire_iommu::SITES, pagewire_nic::SITES, pagewire_sim::SITES].concat();
    println!("crashes before a store at each site:");
    for site in &all {
        println!("  {:<24} {:>6}", site.0, seen.get(site).copied().unwrap_or(0));
    }
    let unknown: Vec<&Site> = seen.keys().filter(|site| !all.contains(site)).collect();
    assert!(unknown.is_empty(), "sites that no list names: {unknown:?}");
    let missing: Vec<&str> = all.iter().filter(|site| !seen.contains_key(site)).map(|site| site.0).collect();
    assert!(missing.is_empty(), "no process ended at {missing:?}");
}

#[test]
fn a_process_ends_at_any_store() {
    for seed in 10..16 {
        let path = if seed % 2 == 0 { PathChoice::Local } else { PathChoice::Udp };
        let victim = seed as usize % 3;
        let (_, _, tally) = run(seed, path, Some((victim, CrashPoint::Store(u64::MAX))));
        let stores: u64 = tally.values().map(|site| site.stores).sum();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..4 {
            let store = random.u64(1..=stores);
            let (report, _, _) = run(seed, path, Some((victim, CrashPoint::Store(store))));
            assert!(report.operations >= OPERATIONS, "seed {seed}, store {store}: {report:?}");
        }
    }
}
