//! All hosts of a run, and the order in which they run.

use super::host::{RemoteMemory, ScaleHost, Setup};
use super::queue::RunQueue;
use super::report::{PhaseTime, PhaseTimes, ResidentAt, ScaleReport};
use super::resident::resident_bytes;
use super::{ScaleFailure, ScalePlan, ScaleProgress, ScaleWorkload};
use crate::network::LinkFaults;
use crate::process::ProcessId;
use crate::world::World;
use std::time::Instant;

/// Runs of hosts between two looks at the memory of this process.
const RUNS_BETWEEN_LOOKS: u64 = 8192;
/// Queue pairs between two of them, while these are made.
const QUEUE_PAIRS_BETWEEN_LOOKS: u64 = 4096;
/// Nanoseconds between the last connection and the first message, in which queue pairs greet each other.
const GREETING_TIME: u64 = 5_000_000;
/// Nanoseconds after which all hosts run once more, if nothing is to happen and messages are missing.
const LAST_LOOK: u64 = 1_000_000;

type Progress<'a> = &'a mut dyn FnMut(ScaleProgress);

/// All hosts of a run.
pub struct Cluster<'a> {
    setup: Setup<'a>,
    /// By host.
    hosts: Vec<ScaleHost>,
    memories: Vec<RemoteMemory>,
    queue: RunQueue,
    progress: Progress<'a>,
    resident: ResidentAt,
    times: PhaseTimes,
    runs: u64,
    /// Processes that have input.
    ready: Vec<ProcessId>,
    /// Virtual time at which the messages begin, and whether they have.
    begun: u64,
    has_begun: bool,
    /// Virtual time at which the last message ended, and at which the last came to another host than the first.
    ended: u64,
    others_ended: u64,
}

impl<'a> Cluster<'a> {
    /// No hosts yet.
    pub fn new(plan: &'a ScalePlan, progress: Progress<'a>) -> Self {
        let world = World::new(plan.seed, LinkFaults::NONE);
        world.give_ports(plan.ports);
        world.give_processors();
        Cluster {
            setup: Setup { plan, topology: plan.topology(), world },
            hosts: Vec::with_capacity(plan.hosts),
            memories: Vec::with_capacity(plan.hosts),
            queue: RunQueue::new(plan.hosts),
            progress,
            resident: ResidentAt::default(),
            times: PhaseTimes::default(),
            runs: 0,
            ready: Vec::new(),
            begun: 0,
            has_begun: false,
            ended: 0,
            others_ended: 0,
        }
    }

    /// Does all parts of a run.
    pub fn run(mut self) -> Result<ScaleReport, ScaleFailure> {
        self.resident.start = self.look("start", 0, 0)?;
        self.times.hosts = timed(|| self.make_hosts())?;
        self.resident.hosts = self.look("hosts", self.hosts.len() as u64, self.setup.plan.hosts as u64)?;
        self.times.connections = timed(|| self.connect())?;
        let queue_pairs = self.setup.topology.queue_pairs();
        self.resident.connections = self.look("connections", queue_pairs, queue_pairs)?;
        if let (Some((plant, chances)), Some(first)) = (self.setup.plan.plant, self.hosts.first()) {
            self.setup.world.get(first.process()).plant(plant, chances);
        }
        self.times.messages = timed(|| self.exchange())?;
        let messages = self.messages();
        self.resident.messages = self.look("ends of messages", messages, messages)?;
        let mut bytes_checked = 0;
        self.times.check = timed(|| {
            bytes_checked = self.check()?;
            Ok(())
        })?;
        self.resident.peak = resident_bytes().map_or(0, |(_, most)| most);
        Ok(self.report(bytes_checked))
    }

    fn report(self, bytes_checked: u64) -> ScaleReport {
        ScaleReport {
            plan: self.setup.plan.clone(),
            queue_pairs: self.setup.topology.queue_pairs(),
            // Each ends twice: at its source and where it comes to.
            messages: self.messages() / 2,
            bytes_checked,
            message_memory: self.hosts.iter().map(|host| host.message_memory(self.setup.plan)).sum(),
            virtual_time: self.ended.saturating_sub(self.begun),
            virtual_time_of_others: self.others_ended.saturating_sub(self.begun),
            runs: self.runs,
            happened: self.setup.world.happened(),
            network: self.setup.world.network_counters(),
            resident: self.resident,
            times: self.times,
        }
    }

    /// Reports how far a part has come, and gives the resident bytes.
    fn look(&mut self, phase: &'static str, done: u64, total: u64) -> Result<u64, ScaleFailure> {
        (self.progress)(ScaleProgress {
            phase,
            done,
            total,
            virtual_nanoseconds: self.setup.world.now().saturating_sub(self.begun),
        });
        let (resident, _) = resident_bytes().unwrap_or_default();
        let limit = self.setup.plan.memory_limit;
        if resident > limit {
            let done = format!("{done} of {total} {phase}");
            return Err(ScaleFailure::TooLarge { resident, limit, done });
        }
        Ok(resident)
    }

    fn make_hosts(&mut self) -> Result<(), ScaleFailure> {
        for index in 0..self.setup.plan.hosts {
            self.setup.world.run_at(0);
            let host = ScaleHost::new(&self.setup, index)?;
            self.queue.worked(index, self.setup.world.now());
            self.memories.push(host.memory(self.setup.plan));
            self.hosts.push(host);
            if index % 64 == 63 {
                self.look("hosts", index as u64, self.setup.plan.hosts as u64)?;
            }
        }
        Ok(())
    }

    /// Makes all queue pairs, connects them, and lets them greet each other.
    fn connect(&mut self) -> Result<(), ScaleFailure> {
        // Each queue pair is created, and then connected.
        let total = 2 * self.setup.topology.queue_pairs();
        let mut steps = Steps::default();
        for index in 0..self.hosts.len() {
            let peers = self.setup.topology.peers(index);
            self.on_processor(index, |host, setup| host.create_queue_pairs(setup.plan, peers))?;
            if steps.add(peers as u64) {
                self.look("steps of connections", steps.done, total)?;
            }
        }
        for index in 0..self.hosts.len() {
            let peers = self.setup.topology.peers(index);
            for peer in 0..peers {
                let other = self.setup.topology.peer(index, peer);
                let number = self.hosts[other].queue_pair_number(self.setup.topology.index_at(index, other));
                let process = self.hosts[other].process();
                self.on_processor(index, |host, setup| host.connect(setup, peer, process, number))?;
            }
            if steps.add(peers as u64) {
                self.look("steps of connections", steps.done, total)?;
            }
        }
        let greeted = self.queue.all_free() + GREETING_TIME;
        self.wake_all(0);
        while self.step(greeted)?.is_some() {}
        self.begun = greeted;
        Ok(())
    }

    /// Has a host do something as soon as its processor is free.
    fn on_processor(
        &mut self,
        index: usize,
        part: impl FnOnce(&mut ScaleHost, &Setup<'_>) -> Result<(), ScaleFailure>,
    ) -> Result<(), ScaleFailure> {
        self.setup.world.run_at(self.queue.busy_until(index));
        part(&mut self.hosts[index], &self.setup)?;
        self.queue.worked(index, self.setup.world.now());
        Ok(())
    }

    /// Messages, counted where they start and where they come to.
    fn messages(&self) -> u64 {
        self.hosts.iter().map(ScaleHost::messages).sum()
    }

    /// Has the hosts run until all messages have ended.
    fn exchange(&mut self) -> Result<(), ScaleFailure> {
        self.setup.world.run_at(self.begun);
        if let (ScaleWorkload::SlowPager, Some(first)) = (self.setup.plan.workload, self.hosts.first()) {
            first.lose_pages(&self.setup.world, self.setup.plan, self.begun + self.setup.plan.pager_time);
        }
        self.has_begun = true;
        self.wake_all(self.begun);
        let (total, mut ended, mut looked) = (self.messages(), 0, 0);
        let mut ended_at_last_look = None;
        let end = self.begun + self.setup.plan.patience;
        while ended < total {
            let Some(ended_now) = self.step(end)? else {
                if ended_at_last_look.replace(ended) == Some(ended) || self.has_work() {
                    return Err(self.stalled(total - ended, total));
                }
                self.wake_all(self.setup.world.now() + LAST_LOOK);
                continue;
            };
            ended += ended_now;
            if self.runs - looked >= RUNS_BETWEEN_LOOKS {
                looked = self.runs;
                self.look("ends of messages", ended, total)?;
            }
        }
        Ok(())
    }

    fn stalled(&self, missing: u64, messages: u64) -> ScaleFailure {
        let virtual_seconds = self.setup.world.now().saturating_sub(self.begun) / 1_000_000_000;
        ScaleFailure::Stalled { missing, messages, virtual_seconds }
    }

    /// Whether something is to happen at any time.
    fn has_work(&mut self) -> bool {
        self.setup.world.next_due().is_some() || self.queue.earliest().is_some()
    }

    /// Goes to the next time at which something happens, and has the hosts run that this concerns. Gives how many messages ended.
    /// `None`: nothing happens by `end`.
    fn step(&mut self, end: u64) -> Result<Option<u64>, ScaleFailure> {
        let next = self.setup.world.next_due().into_iter().chain(self.queue.earliest()).min();
        let Some(time) = next.filter(|time| *time <= end) else { return Ok(None) };
        let mut ready = std::mem::take(&mut self.ready);
        self.setup.world.deliver_until(time, &mut ready);
        // Each host has one process, of the same index.
        ready.drain(..).for_each(|process| self.queue.wake(process.0, time));
        self.ready = ready;
        let mut ended = 0;
        while let Some(host) = self.queue.take(time) {
            ended += self.run_host(host, time)?;
        }
        Ok(Some(ended))
    }

    /// Has all hosts run at `time`.
    fn wake_all(&mut self, time: u64) {
        (0..self.hosts.len()).for_each(|host| self.queue.wake(host, time));
    }

    /// Has a host run, on a processor of its own. Gives how many messages ended there.
    fn run_host(&mut self, index: usize, time: u64) -> Result<u64, ScaleFailure> {
        self.runs += 1;
        self.setup.world.run_at(time);
        let host = &mut self.hosts[index];
        let arrived = host.arrived;
        let memories = self.has_begun.then_some(&self.memories[..]);
        let run = host.run(&self.setup, memories)?;
        let now = self.setup.world.now();
        if run.ended > 0 {
            self.ended = self.ended.max(now);
        }
        if index != 0 && host.arrived > arrived {
            self.others_ended = self.others_ended.max(now);
        }
        self.queue.worked(index, now);
        if let Some(due) = run.due {
            self.queue.wake(index, due);
        }
        Ok(run.ended)
    }

    /// Compares all memory, and gives how many bytes were compared.
    fn check(&self) -> Result<u64, ScaleFailure> {
        self.hosts.iter().map(|host| host.check(&self.setup)).sum()
    }
}

/// Counts queue pairs between two looks.
#[derive(Default)]
struct Steps {
    done: u64,
    looked: u64,
}

impl Steps {
    /// Adds some. True: it is time for a look.
    fn add(&mut self, count: u64) -> bool {
        self.done += count;
        let is_due = self.done - self.looked >= QUEUE_PAIRS_BETWEEN_LOOKS;
        if is_due {
            self.looked = self.done;
        }
        is_due
    }
}

/// Runs a part and gives what it took.
fn timed(part: impl FnOnce() -> Result<(), ScaleFailure>) -> Result<PhaseTime, ScaleFailure> {
    let (begun, processor) = (Instant::now(), processor_seconds());
    part()?;
    Ok(PhaseTime { wall: begun.elapsed().as_secs_f64(), processor: processor_seconds() - processor })
}

/// Seconds that this process has had a processor.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
