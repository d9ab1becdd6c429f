//! Worlds in which the workload runs.

use crate::fabric::SimFabric;
use crate::limits::PAGE;
use crate::network::{HostId, LinkFaults};
use crate::notes::{NotePlace, Notes};
use crate::panics::{self, caught};
use crate::plant::Plant;
use crate::process::{CrashPoint, ProcessId};
use crate::streams::StreamFaults;
use crate::workload::{Hooks, PartyInit, Violation, Workload, WorkloadPlan, WorkloadReport, WorkloadStage};
use crate::world::World;
use pagewire_iommu::words::Site;
use pagewire_nic::{FaultHandling, Nic, Options, PageIn, PathChoice};
use std::sync::Arc;

/// First byte of each party's memory.
pub const MEMORY: u64 = 0x7F00_0000_0000;
/// A party loses pages in one turn of so many, if nothing else is drawn.
const TURNS_BETWEEN_EVICTIONS: u32 = 300;
/// Pages that go at once, at most.
const EVICTED: u64 = 16;
/// Stores within which a process ends that is to end, all told or at one site.
const SOON: u64 = 3_000;
const SOON_AT_SITE: u64 = 30;
/// A dead process is succeeded in one turn of so many.
const TURNS_TO_SUCCEED: u32 = 20;
/// Bounds of what is drawn.
const MOST_HOSTS: usize = 64;
const MOST_PARTIES: usize = 96;
const MOST_CONNECTIONS: usize = 256;

/// A workload and the world for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    pub plan: WorkloadPlan,
    /// What processes are told of paths. With [`PathChoice::Auto`] some of them may not touch each other's memory, and some want no
    /// local path.
    pub path: PathChoice,
    /// Processes.
    pub parties: usize,
    /// Hosts, on which they sit in turn.
    pub hosts: usize,
    /// Processes that know nothing of Pagewire's own packets.
    pub standard: usize,
    /// What the links do.
    pub faults: LinkFaults,
    /// Whether pages are absent now and then.
    pub evictions: bool,
    /// A party loses pages in one turn of so many, at least 1.
    pub between_evictions: u32,
    /// What processes do with packets that find a page absent; `None`: each something else, as the seed decides.
    pub page_faults: Option<FaultHandling>,
    /// Bytes of each party's memory.
    pub memory: u64,
    /// A bug of the first process, after so many harmless chances: it must be found.
    pub plant: Option<(Plant, u32)>,
}

impl Scenario {
    /// Two parties: on one host (path local), or on two hosts whose link loses a share of the packets (path udp).
    pub fn new(seed: u64, operations: u64, path: PathChoice, loss: f64) -> Self {
        let faults = if loss > 0.0 { LinkFaults::lossy(loss) } else { LinkFaults::NONE };
        let streams = (path == PathChoice::Tcp).then_some(StreamFaults::NONE);
        let faults = LinkFaults { streams, ..faults };
        let scenario = Scenario {
            plan: WorkloadPlan::new(seed, operations),
            path,
            parties: 2,
            hosts: if path == PathChoice::Local { 1 } else { 2 },
            standard: 0,
            faults,
            evictions: true,
            between_evictions: TURNS_BETWEEN_EVICTIONS,
            // What is dropped is lost to UC and UD, where else nothing would be.
            page_faults: (loss == 0.0).then_some(FaultHandling::Stash),
            memory: PartyInit::<SimFabric>::MEMORY,
            plant: None,
        };
        Scenario { plan: WorkloadPlan { exact: scenario.is_exact(), ..scenario.plan }, ..scenario }
    }

    /// Whatever the seed decides: 2 to 64 hosts with up to four processes each, which reach each other by all paths, links that
    /// lose up to a fifth of all packets, standard peers, and processes that end and are succeeded by others.
    pub fn drawn(seed: u64, operations: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5157_4152_4D00_0000);
        let hosts = match random.u32(0..4) {
            0 | 1 => random.usize(2..=6),
            2 => random.usize(7..=20),
            _ => random.usize(21..=MOST_HOSTS),
        };
        let parties = hosts * random.usize(1..=4).min((MOST_PARTIES / hosts).max(1));
        let loss = random.choice([0.0, 0.01, 0.05, 0.2]).unwrap_or(0.0);
        let standard = if random.bool() { random.usize(1..=parties.div_ceil(4)) } else { 0 };
        // So short that a few losses in a row would use up a count.
        let short = standard == 0 && random.u32(0..3) == 0;
        let between_crashes = (random.u32(0..4) > 0).then(|| random.u64(200..4_000));
        let scenario = Scenario::new(seed, operations, PathChoice::Auto, loss);
        let mut drawn = Scenario {
            plan: WorkloadPlan {
                connections: (parties * random.usize(1..=4)).clamp(8, MOST_CONNECTIONS),
                longest: random.choice([4 << 10, 32 << 10, 128 << 10]).unwrap_or(32 << 10),
                between_audits: 5_000,
                between_upheavals: random.u64(30..500),
                between_crashes,
                timeout: if short { 10 } else { 12 },
                retry_count: if short { 3 } else { 7 },
                ..scenario.plan
            },
            parties,
            hosts,
            standard,
            evictions: random.u32(0..4) > 0,
            memory: if parties > 16 { 2 << 20 } else { 4 << 20 },
            ..scenario
        };
        if random.bool() {
            drawn.page_faults = None;
        }
        if random.bool() {
            drawn.faults.streams = Some(StreamFaults {
                refused: random.choice([0.0, 0.3]).unwrap_or(0.0),
                broken: random.choice([0.0, 0.0001, 0.002, 0.02]).unwrap_or(0.0),
                stalled: random.choice([0.0, 0.001]).unwrap_or(0.0),
            });
        }
        drawn.evict_every(random.choice([4, 30, TURNS_BETWEEN_EVICTIONS]).unwrap_or(30));
        drawn.plan.exact = drawn.is_exact();
        drawn.plan.natives = random.usize(0..=parties.div_ceil(2));
        drawn.plan.extended = random.bool();
        drawn.plan.groups = random.bool();
        drawn
    }

    /// Parties lose pages in one turn of so many. Packets of UC that wait for pages which go again and again are given time before it is
    /// looked at what they wrote.
    pub fn evict_every(&mut self, turns: u32) {
        self.between_evictions = turns;
        let often = u64::from(TURNS_BETWEEN_EVICTIONS / turns.max(1)).clamp(1, 10);
        self.plan.quiet_time = often * WorkloadPlan::new(self.plan.seed, self.plan.operations).quiet_time;
    }

    /// Whether whatever is sent arrives, that of UC and UD, too.
    pub fn is_exact(&self) -> bool {
        let keeps = !self.evictions || self.page_faults == Some(FaultHandling::Stash);
        self.path == PathChoice::Local || self.faults.are_none() && keeps
    }

    /// Has so many processes take part, each on a host of its own unless the path is local.
    pub fn with_parties(self, parties: usize) -> Self {
        let hosts = if self.path == PathChoice::Local { 1 } else { parties };
        Scenario { parties, hosts, ..self }
    }

    /// The options of the `swarm` program that make this scenario.
    pub fn options(&self) -> String {
        let (plan, faults) = (&self.plan, &self.faults);
        let mut options = String::new();
        let mut give = |name: &str, value: &dyn std::fmt::Display| options += &format!(" --{name} {value}");
        give("seed", &plan.seed);
        give("operations", &plan.operations);
        give("path", &self.path);
        give("loss", &faults.loss);
        give("duplicate", &faults.duplicate);
        give("reorder", &faults.reorder);
        give("corrupt", &faults.corrupt);
        if let Some(streams) = &faults.streams {
            give("streams", streams);
        }
        give("parties", &self.parties);
        give("hosts", &self.hosts);
        give("standard", &self.standard);
        give("connections", &plan.connections);
        give("natives", &plan.natives);
        give("longest", &plan.longest);
        give("memory", &self.memory);
        give("between-upheavals", &plan.between_upheavals);
        give("between-audits", &plan.between_audits);
        give("timeout", &plan.timeout);
        give("retry-count", &plan.retry_count);
        if let Some(between) = plan.between_crashes {
            give("between-crashes", &between);
        }
        give("between-evictions", &self.between_evictions);
        give("page-faults", &self.page_faults.map_or("mixed", FaultHandling::name));
        if let Some((plant, chances)) = self.plant {
            give("plant", &format!("{}:{chances}", plant.name()));
        }
        for (name, on) in [
            ("calm", !plan.upheaval),
            ("reuse-flushed", plan.reuse_flushed),
            ("resident", !self.evictions),
            ("without-xrc", !plan.extended),
            ("groups", plan.groups),
        ] {
            if on {
                give(name, &"");
            }
        }
        options
    }

    /// Takes fewer connections, shorter messages and less memory: quick to set up.
    pub fn small(self) -> Self {
        let plan = WorkloadPlan {
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
        self.build_in(World::new(self.plan.seed, self.faults), crash)
    }

    fn build_in(&self, world: World, crash: Option<(usize, CrashPoint)>) -> Built {
        let hosts: Vec<HostId> = (0..self.hosts.max(1)).map(|_| world.host()).collect();
        let mut stage = SimStage {
            world: world.clone(),
            processes: Vec::new(),
            hosts,
            scenario: self.clone(),
            random: fastrand::Rng::with_seed(!self.plan.seed),
            notes: None,
        };
        let mut parties = Vec::new();
        for index in 0..self.parties {
            let point = crash.filter(|(which, _)| *which == index).map(|(_, point)| point);
            let (process, init) = stage.start(index, point);
            stage.processes.push(process);
            parties.push(init);
        }
        Built { world, processes: stage.processes.clone(), parties, stage }
    }

    /// Makes the world and runs the workload in it.
    pub fn run(&self) -> Result<WorkloadReport, Violation> {
        self.run_with(None, |_, _| {}).0
    }

    /// Makes the world, runs the workload in it, and gives the outcome and the world. `notes` gets what happens, `progress` each
    /// audit. A panic is a violation like any other.
    pub fn run_with(
        &self,
        notes: Option<Notes>,
        progress: impl Fn(&World, &WorkloadReport),
    ) -> (Result<WorkloadReport, Violation>, World) {
        let world = World::new(self.plan.seed, self.faults);
        let panicked = |operations: u64, message: &str| Violation {
            seed: self.plan.seed,
            operations,
            what: panics::told(message),
            connection: None,
        };
        let set_up = caught(|| self.set_up(world.clone(), notes));
        let result = set_up.unwrap_or_else(|message| Err(panicked(0, &message))).and_then(|mut workload| {
            let ran = caught(|| {
                let report = workload.run(|report| progress(&world, report))?;
                workload.end()?;
                Ok(report)
            });
            let ran = ran.unwrap_or_else(|message| Err(workload.violation(panics::told(&message))));
            let dropped =
                caught(|| drop(workload)).map_err(|message| panicked(self.plan.operations, &message));
            // What has panicked may do so again as it is thrown away: the first is told.
            ran.and_then(|report| dropped.map(|()| report))
        });
        let ended = caught(|| world.end()).map_err(|message| panicked(self.plan.operations, &message));
        (result.and_then(|report| ended.map(|()| report)), world)
    }

    /// The workload in its world, ready to run.
    fn set_up(&self, world: World, notes: Option<Notes>) -> Result<Workload<SimFabric, SimStage>, Violation> {
        let Built { world, processes, parties, mut stage } = self.build_in(world, None);
        if let Some(notes) = notes {
            world.keep_notes(notes.clone());
            stage.keep_notes(notes);
        }
        let workload = Workload::new(self.plan.clone(), stage, parties, Hooks::default())?;
        if let (Some((plant, chances)), Some(first)) = (self.plant, processes.first()) {
            // Not before: the programs have filled their memory now.
            world.get(*first).plant(plant, chances);
        }
        Ok(workload)
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
    hosts: Vec<HostId>,
    scenario: Scenario,
    random: fastrand::Rng,
    notes: Option<Notes>,
}

impl SimStage {
    /// Writes down what is done, on all connections.
    pub fn keep_notes(&mut self, notes: Notes) {
        self.notes = Some(notes);
    }

    /// Starts the process of a party.
    fn start(&mut self, index: usize, crash: Option<CrashPoint>) -> (ProcessId, PartyInit<SimFabric>) {
        let (world, scenario) = (&self.world, &self.scenario);
        let (process, fabric) = world.process(self.hosts[index % self.hosts.len()]);
        if let Some(point) = crash {
            world.get(process).crash_at(point);
        }
        let standard = index < scenario.standard;
        if standard {
            world.make_standard(process);
        }
        let mut path = scenario.path;
        if path == PathChoice::Auto {
            match self.random.u32(0..6) {
                0 => path = PathChoice::Udp,
                1 => world.forbid_touching(process, "it does not want that"),
                2 => world.limit_memory(process),
                _ => {}
            }
        }
        let page_faults = scenario
            .page_faults
            .unwrap_or_else(|| FaultHandling::ALL[self.random.usize(0..FaultHandling::ALL.len())]);
        world.map(process, MEMORY, scenario.memory);
        let page_in = PageIn::ALL[self.random.usize(0..PageIn::ALL.len())];
        let options = Options { path, page_faults: page_faults.into(), page_in, ..Options::default() };
        let nic: Arc<Nic<SimFabric>> = Nic::new(fabric, options);
        let init = PartyInit {
            nic,
            device: world.device(process),
            address: MEMORY,
            length: scenario.memory,
            standard,
            is_persistent: true,
        };
        (process, init)
    }
}

impl WorkloadStage<SimFabric> for SimStage {
    fn now(&self) -> u64 {
        self.world.now()
    }

    fn idle(&mut self, next: Option<u64>) -> bool {
        self.world.advance(next)
    }

    fn has_no_thread(&self) -> bool {
        true
    }

    fn turn(&mut self, party: usize) {
        if self.scenario.evictions && self.random.u32(0..self.scenario.between_evictions) == 0 {
            let pages = self.random.u64(1..=EVICTED);
            let first = self.random.u64(0..self.scenario.memory / PAGE - pages);
            let (process, from, length) = (self.processes[party], MEMORY + first * PAGE, pages * PAGE);
            match self.random.bool() {
                true => self.world.evict(process, from, length),
                false => self.world.evict_cheaply(process, from, length),
            }
        }
    }

    fn is_alive(&self, party: usize) -> bool {
        self.world.get(self.processes[party]).is_alive()
    }

    fn crash(&mut self, party: usize) {
        let process = self.world.get(self.processes[party]);
        // Some sites are so rare that they would hardly be met by counting all stores.
        let sites: Vec<(Site, u64)> =
            process.tally().into_iter().map(|(site, tally)| (site, tally.stores)).collect();
        let point = match self.random.choice(sites).filter(|_| self.random.bool()) {
            Some((site, stores)) => CrashPoint::At(site, stores + self.random.u64(1..=SOON_AT_SITE)),
            None => CrashPoint::Store(process.stores() + self.random.u64(1..=SOON)),
        };
        process.crash_at(point);
    }

    fn successor(&mut self, party: usize) -> Option<PartyInit<SimFabric>> {
        if self.random.u32(0..TURNS_TO_SUCCEED) > 0 {
            return None;
        }
        self.world.forget(self.processes[party]);
        let (process, init) = self.start(party, None);
        self.processes[party] = process;
        Some(init)
    }

    fn synced(&self, party: usize, address: u64, length: u64) -> Option<Vec<u8>> {
        self.world.synced(self.processes[party], address, length)
    }

    fn note(&mut self, connection: usize, what: &dyn Fn() -> String) {
        if let Some(notes) = &self.notes {
            notes.add(self.world.now(), NotePlace::Connection(connection), what());
        }
    }
}
