//! The simulator's workload and checker on the real fabric: two engines of one process, real memory, real sockets.

#[path = "../../fabric/tests/common/own_network.rs"]
mod own_network;

use pagewire_fabric::{FaultPlan, HostFabric};
use pagewire_nic::{Nic, Options, PathChoice, device};
use pagewire_sim::workload::{Hooks, PartyInit, Workload, WorkloadPlan, WorkloadReport, WorkloadStage};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Live = HostFabric;

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

impl WorkloadStage<Live> for RealTime {
    fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn idle(&mut self, _next: Option<u64>) -> bool {
        std::thread::yield_now();
        true
    }
}

/// Memory of one party; it lives as long as the test, as a program's does.
#[derive(Clone, Copy)]
struct Memory {
    address: u64,
}

impl Memory {
    const LENGTH: u64 = PartyInit::<Live>::MEMORY;

    fn new() -> Self {
        let bytes = Box::leak(vec![0u8; (Self::LENGTH + PAGE) as usize].into_boxed_slice());
        Memory { address: (bytes.as_mut_ptr() as u64).next_multiple_of(PAGE) }
    }
}

fn party(path: PathChoice, faults: &str, memory: Memory) -> PartyInit<Live> {
    let plan = FaultPlan::parse(faults).expect("faults");
    let fabric = HostFabric::with_faults(plan).expect("a fabric");
    let nic = Nic::new(fabric, Options { path, ..Options::default() });
    let device = device::devices().expect("devices").into_iter().next().expect("a device");
    PartyInit {
        nic,
        device,
        address: memory.address,
        length: Memory::LENGTH,
        standard: false,
        is_persistent: false,
    }
}

fn run(seed: u64, path: PathChoice, faults: &str, memory: [Memory; 2], operations: u64) -> WorkloadReport {
    let lossless = faults.is_empty() && path == PathChoice::Local;
    // Sockets lose unreliable messages on their own; nothing else may differ.
    let plan = WorkloadPlan {
        exact: lossless,
        quiet_time: 20_000_000,
        timeout: 15,
        ..WorkloadPlan::new(seed, operations)
    };
    let parties: Vec<_> = memory.into_iter().map(|memory| party(path, faults, memory)).collect();
    let nics: Vec<Arc<Nic<Live>>> = parties.iter().map(|party| party.nic.clone()).collect();
    let stage = RealTime(Instant::now());
    let started = Instant::now();
    let report = Workload::new(plan, stage, parties, Hooks::default())
        .and_then(|mut workload| {
            connect(&nics);
            workload.run(|_| {})
        })
        .unwrap_or_else(|violation| panic!("path {path:?}, faults \"{faults}\": {violation}"));
    assert!(report.operations >= operations, "{report:?}");
    assert!(report.bytes_checked > 0 && report.atomics > 0 && report.deregistrations > 0, "{report:?}");
    end(nics);
    println!("{path:?} \"{faults}\": {report:?} in {:?}", Duration::from_secs(started.elapsed().as_secs()));
    report
}

/// Waits until the engines know their paths: datagrams wait for a limited time only, and are lost after it.
fn connect(nics: &[Arc<Nic<Live>>]) {
    let limit = Instant::now() + Duration::from_secs(60);
    while nics
        .iter()
        .flat_map(|nic| pagewire_nic::ConnectionReport::of_all(nic))
        .any(|report| report.path == "connecting")
    {
        assert!(Instant::now() < limit, "no path between the engines");
        for nic in nics {
            nic.progress();
        }
    }
}

/// Ends the engines: while they exist their sockets share the port, and nobody would look at them.
fn end(nics: Vec<Arc<Nic<Live>>>) {
    for queue_pair in nics.iter().flat_map(pagewire_nic::QueuePair::all_of) {
        queue_pair.destroy().expect("nothing is under way");
    }
    let left: Vec<_> = nics.iter().map(Arc::downgrade).collect();
    drop(nics);
    assert!(left.iter().all(|nic| nic.upgrade().is_none()), "an engine outlives its queue pairs");
}

fn faults(seed: u64, share: &str) -> String {
    format!("drop={share},duplicate={share},reorder={share},seed={seed}")
}

/// One after the other: the ports and the two processors are shared.
#[test]
fn every_byte_and_every_completion() {
    if !own_network::is_here() {
        return;
    }
    let (seed, memory) = (first_seed(), [Memory::new(), Memory::new()]);
    run(seed, PathChoice::Local, "", memory, operations());
    run(seed + 1, PathChoice::Udp, "", memory, operations());
    for (seed, share) in [(seed + 2, "0.01"), (seed + 3, "0.05"), (seed + 4, "0.2")] {
        // At 20 % everything is repeated several times: fewer operations.
        let fewer = operations().min(20_000).max(operations() / 10);
        let operations = if share == "0.2" { fewer } else { operations() };
        run(seed, PathChoice::Udp, &faults(seed, share), memory, operations);
    }
}

/// What this process holds.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    resident_kib: u64,
    descriptors: usize,
    /// Shared memory that is mapped, of this engine and of its peers.
    shared_mappings: usize,
}

impl Footprint {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        Footprint {
            resident_kib: resident.trim_end_matches("kB").trim().parse().expect("a number"),
            descriptors: std::fs::read_dir("/proc/self/fd").expect("descriptors").count(),
            shared_mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
        }
    }
}

/// Engines come and go under traffic for as long as `PAGEWIRE_LIVE_SECONDS` says, and what the process holds does not grow.
#[test]
#[ignore = "lasts long: make soak"]
fn nothing_grows() {
    if !own_network::is_here() {
        return;
    }
    let seconds =
        std::env::var("PAGEWIRE_LIVE_SECONDS").map_or(60, |number| number.parse().expect("a number"));
    let (mut seed, memory) = (first_seed(), [Memory::new(), Memory::new()]);
    let (begun, mut seen) = (Instant::now(), Vec::new());
    // Twice before anything is compared: allocators, and what is made once.
    while begun.elapsed() < Duration::from_secs(seconds) || seen.len() < 4 {
        run(seed, PathChoice::Local, "", memory, 50_000);
        run(seed + 1, PathChoice::Udp, "", memory, 50_000);
        run(seed + 2, PathChoice::Udp, &faults(seed, "0.05"), memory, 20_000);
        seed += 3;
        seen.push(Footprint::now());
        println!("{} s: {:?}", begun.elapsed().as_secs(), seen[seen.len() - 1]);
    }
    let (early, late) = (seen[1], seen[seen.len() - 1]);
    assert_eq!(
        (late.descriptors, late.shared_mappings),
        (early.descriptors, early.shared_mappings),
        "{early:?}, {late:?}"
    );
    // Queues of the workload are as long as it happens: a leak in each run or operation is more than that.
    assert!(late.resident_kib < early.resident_kib * 11 / 10 + 16 * 1024, "{early:?}, {late:?}");
}
