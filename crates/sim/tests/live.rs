//! The simulator's workload and checker on the real fabric: two engines of one process, real memory, real sockets.

use pagewire_fabric::{FaultInjector, FaultPlan, HostFabric};
use pagewire_nic::{Nic, Options, PathChoice, device};
use pagewire_sim::workload::{Hooks, PartyInit, Plan, Report, Stage, Workload};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Live = FaultInjector<HostFabric>;

const PAGE: u64 = 4096;

/// Operations of one run; `PAGEWIRE_LIVE_OPERATIONS` asks for another number.
fn operations() -> u64 {
    std::env::var("PAGEWIRE_LIVE_OPERATIONS").map_or(100_000, |number| number.parse().expect("a number"))
}

/// The seed of the first run, the others follow; `PAGEWIRE_LIVE_SEED` asks for another.
fn first_seed() -> u64 {
    std::env::var("PAGEWIRE_LIVE_SEED").map_or(41, |number| number.parse().expect("a number"))
}

/// The machine's own clock; nothing is arranged.
struct RealTime(Instant);

impl Stage<Live> for RealTime {
    fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn idle(&mut self, _next: Option<u64>) -> bool {
        std::thread::yield_now();
        true
    }
}

fn party(path: PathChoice, faults: &str) -> PartyInit<Live> {
    let plan = FaultPlan::parse(faults).expect("faults");
    let fabric = FaultInjector::new(HostFabric::new().expect("a fabric"), plan);
    let nic = Nic::new(fabric, Options { path });
    let device = device::devices().expect("devices").into_iter().next().expect("a device");
    let length = PartyInit::<Live>::MEMORY;
    // Lives as long as the test, as a program's memory does.
    let memory = Box::leak(vec![0u8; (length + PAGE) as usize].into_boxed_slice());
    let address = (memory.as_mut_ptr() as u64).next_multiple_of(PAGE);
    PartyInit { nic, device, address, length, standard: false }
}

fn run(seed: u64, path: PathChoice, faults: &str) -> Report {
    let lossless = faults.is_empty() && path == PathChoice::Local;
    // Sockets lose unreliable messages on their own; nothing else may differ.
    let plan = Plan { exact: lossless, settle: 20_000_000, timeout: 15, ..Plan::new(seed, operations()) };
    let parties = vec![party(path, faults), party(path, faults)];
    let nics: Vec<Arc<Nic<Live>>> = parties.iter().map(|party| party.nic.clone()).collect();
    let stage = RealTime(Instant::now());
    let started = Instant::now();
    let report = Workload::new(plan, stage, parties, Hooks::default())
        .and_then(|mut workload| workload.run(|_| {}))
        .unwrap_or_else(|violation| panic!("path {path:?}, faults \"{faults}\": {violation}"));
    assert!(report.operations >= operations(), "{report:?}");
    assert!(report.bytes_checked > 0 && report.atomics > 0 && report.deregistrations > 0, "{report:?}");
    end(nics);
    println!("{path:?} \"{faults}\": {report:?} in {:?}", Duration::from_secs(started.elapsed().as_secs()));
    report
}

/// Ends the engines: while they exist their sockets share the port, and nobody would look at them.
fn end(nics: Vec<Arc<Nic<Live>>>) {
    for queue_pair in nics.iter().flat_map(|nic| nic.all_queue_pairs()) {
        queue_pair.destroy().expect("nothing is under way");
    }
    let left: Vec<_> = nics.iter().map(Arc::downgrade).collect();
    drop(nics);
    assert!(left.iter().all(|nic| nic.upgrade().is_none()), "an engine outlives its queue pairs");
}

/// One after the other: the ports and the two processors are shared.
#[test]
fn every_byte_and_every_completion() {
    let seed = first_seed();
    run(seed, PathChoice::Local, "");
    run(seed + 1, PathChoice::Udp, "");
    for (seed, share) in [(seed + 2, "0.01"), (seed + 3, "0.05")] {
        let faults = format!("drop={share},duplicate={share},reorder={share},seed={seed}");
        run(seed, PathChoice::Udp, &faults);
    }
}
