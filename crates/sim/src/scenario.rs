//! Worlds in which the workload runs.

use crate::fabric::SimFabric;
use crate::limits::PAGE;
use crate::network::Faults;
use crate::process::{CrashPoint, ProcessId};
use crate::workload::{Hooks, PartyInit, Plan, Report, Stage, Violation, Workload};
use crate::world::World;
use pagewire_nic::{Nic, Options, PathChoice};
use std::sync::Arc;

/// First byte of each party's memory.
pub const MEMORY: u64 = 0x7F00_0000_0000;
/// A party loses pages in one turn of so many.
const TURNS_BETWEEN_EVICTIONS: u32 = 300;
/// Pages that go at once, at most.
const EVICTED: u64 = 16;

/// A workload and the world for it.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub plan: Plan,
    pub path: PathChoice,
    pub parties: usize,
    /// What the links do (path udp).
    pub faults: Faults,
    /// Whether pages are absent now and then.
    pub evictions: bool,
    /// Bytes of each party's memory.
    pub memory: u64,
}

impl Scenario {
    /// Two parties: on one host (path local), or on two hosts whose link loses a share of the packets (path udp).
    pub fn new(seed: u64, operations: u64, path: PathChoice, loss: f64) -> Self {
        let faults = if loss > 0.0 { Faults::lossy(loss) } else { Faults::NONE };
        let exact = path == PathChoice::Local || loss == 0.0;
        Scenario {
            plan: Plan { exact, ..Plan::new(seed, operations) },
            path,
            parties: 2,
            faults,
            evictions: true,
            memory: PartyInit::<SimFabric>::MEMORY,
        }
    }

    /// The same with fewer connections, shorter messages and less memory: quick to set up.
    pub fn small(self) -> Self {
        let plan = Plan {
            connections: 16,
            longest: 32 << 10,
            between_audits: 500,
            between_upheavals: 50,
            ..self.plan
        };
        Scenario { plan, memory: 8 << 20, ..self }
    }

    /// Makes the world. A process that `crash` names ends there, during the making if need be.
    pub fn build(&self, crash: Option<(usize, CrashPoint)>) -> Built {
        let world = World::new(self.plan.seed, self.faults);
        let mut host = world.host();
        let mut processes = Vec::new();
        let mut parties = Vec::new();
        for index in 0..self.parties {
            if index > 0 && self.path == PathChoice::Udp {
                host = world.host();
            }
            let (process, fabric) = world.process(host);
            if let Some((_, point)) = crash.filter(|(which, _)| *which == index) {
                world.get(process).crash_at(point);
            }
            let length = self.memory;
            world.map(process, MEMORY, length);
            let nic: Arc<Nic<SimFabric>> = Nic::new(fabric, Options { path: self.path });
            parties.push(PartyInit { nic, device: world.device(process), address: MEMORY, length });
            processes.push(process);
        }
        let stage = SimStage {
            world: world.clone(),
            processes: processes.clone(),
            random: fastrand::Rng::with_seed(!self.plan.seed),
            evictions: self.evictions,
            memory: self.memory,
        };
        Built { world, processes, parties, stage }
    }

    /// Makes the world and runs the workload in it.
    pub fn run(&self) -> Result<Report, Violation> {
        let built = self.build(None);
        Workload::new(self.plan.clone(), built.stage, built.parties, Hooks::default())?.run(|_| {})
    }
}

/// A world with parties in it.
pub struct Built {
    pub world: World,
    pub processes: Vec<ProcessId>,
    pub parties: Vec<PartyInit<SimFabric>>,
    pub stage: SimStage,
}

/// The simulated surroundings of a workload.
pub struct SimStage {
    world: World,
    processes: Vec<ProcessId>,
    random: fastrand::Rng,
    evictions: bool,
    memory: u64,
}

impl Stage for SimStage {
    fn now(&self) -> u64 {
        self.world.now()
    }

    fn idle(&mut self, next: Option<u64>) -> bool {
        self.world.advance(next)
    }

    fn turn(&mut self, party: usize) {
        if self.evictions && self.random.u32(0..TURNS_BETWEEN_EVICTIONS) == 0 {
            let pages = self.random.u64(1..=EVICTED);
            let first = self.random.u64(0..self.memory / PAGE - pages);
            self.world.evict(self.processes[party], MEMORY + first * PAGE, pages * PAGE);
        }
    }

    fn is_alive(&self, party: usize) -> bool {
        self.world.get(self.processes[party]).is_alive()
    }
}
