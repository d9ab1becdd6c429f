//! The loop that plays the programs of all parties.

use super::atomics::AtomicChain;
use super::connection::{Phase, SimConnection};
use super::native::NativeConnection;
use super::party::{ATOMIC_WORDS, EndCounts, Party, PartyInit};
use super::{Violation, WorkloadPlan, WorkloadReport, WorkloadStage, pattern};
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::{AsyncEventKind, Completion, CompletionQueue, Error, EventSource, Status};
use std::collections::HashMap;
use std::sync::Arc;

/// Completions taken at once.
const BATCH: usize = 64;
/// Requests posted at once.
const BURST: usize = 4;
/// Turns in a row without anything to do or to wait for, while more is to be posted.
const IDLE_TURNS: u32 = 100_000;
/// Nanoseconds after which queue pairs in SQD are looked at.
const PAUSE_STEP: u64 = 100_000;

type CompletionHook = Box<dyn FnMut(usize, &mut Vec<Completion>)>;
type DeregisteredHook = Box<dyn FnMut(usize, u64, u64)>;

/// Places at which a test can play the engine a trick.
#[derive(Default)]
pub struct Hooks {
    /// Completions that one poll gave to a party.
    pub completions: Option<CompletionHook>,
    /// Memory of a party (first byte, length) that was deregistered just now.
    pub deregistered: Option<DeregisteredHook>,
}

/// A workload under way.
pub struct Workload<F: Fabric, S: WorkloadStage<F>> {
    pub(super) plan: WorkloadPlan,
    pub(super) stage: S,
    pub(super) random: fastrand::Rng,
    pub(super) parties: Vec<Party<F>>,
    pub(super) connections: Vec<SimConnection<F>>,
    /// Connection and side of a queue pair.
    pub(super) by_number: HashMap<(usize, u32), (usize, usize)>,
    /// For each party the atomics on each of its words.
    pub(super) chains: Vec<Vec<AtomicChain>>,
    /// Memory that must not change: (party, address) and its bytes.
    pub(super) frozen: HashMap<(usize, u64), Vec<u8>>,
    pub(super) doorbells: Vec<(usize, usize)>,
    pub(super) natives: Vec<NativeConnection<F>>,
    /// What they draw: a world without them draws what it always did.
    pub(super) native_random: fastrand::Rng,
    pub(super) hooks: Hooks,
    pub(super) report: WorkloadReport,
    pub(super) next_id: u64,
    pub(super) next_incarnation: u64,
    /// Ends of connections that each party has.
    pub(super) ends_of: Vec<EndCounts>,
    /// The connection that is being looked at.
    pub(super) at: Option<usize>,
    idle_turns: u32,
    /// Nothing was due at the end of the last turn.
    nothing_due: bool,
}

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Makes the queue pairs between the parties, all with all in turn.
    pub fn new(
        plan: WorkloadPlan,
        stage: S,
        parties: Vec<PartyInit<F>>,
        hooks: Hooks,
    ) -> Result<Self, Violation> {
        let mut workload = Workload {
            random: fastrand::Rng::with_seed(plan.seed),
            native_random: fastrand::Rng::with_seed(plan.seed ^ 0x4E41_5449_5645),
            natives: Vec::new(),
            plan,
            stage,
            parties: Vec::new(),
            connections: Vec::new(),
            by_number: HashMap::new(),
            chains: Vec::new(),
            frozen: HashMap::new(),
            doorbells: Vec::new(),
            hooks,
            report: WorkloadReport::default(),
            next_id: 1,
            next_incarnation: 0,
            ends_of: Vec::new(),
            at: None,
            idle_turns: 0,
            nothing_due: false,
        };
        let members = parties.len();
        let mut pairs: Vec<(usize, usize)> =
            (0..members).flat_map(|one| (one + 1..members).map(move |other| (one, other))).collect();
        workload.random.shuffle(&mut pairs);
        let has_xrc = |party: usize| workload.plan.extended && !parties[party].standard;
        let connections: Vec<_> = (0..workload.plan.connections)
            .map(|number| {
                let (mut one, mut other) = pairs[number % pairs.len()];
                let kind = match number % 8 {
                    4 if has_xrc(one) && has_xrc(other) => {
                        // Requests of XRC go to the second party.
                        if number / 8 % 2 == 1 {
                            std::mem::swap(&mut one, &mut other);
                        }
                        QueuePairType::XrcSend
                    }
                    0..5 => QueuePairType::Rc,
                    5 | 6 => QueuePairType::Uc,
                    _ => QueuePairType::Ud,
                };
                ((one, other), kind)
            })
            .collect();
        workload.ends_of = vec![EndCounts::default(); members];
        for ((one, other), kind) in &connections {
            for party in [one, other] {
                workload.ends_of[*party].all += 1;
                workload.ends_of[*party].windows += usize::from(*kind == QueuePairType::Uc);
            }
            workload.ends_of[*other].extended += usize::from(kind.is_xrc());
        }
        let standard: Vec<bool> = parties.iter().map(|party| party.standard).collect();
        let natives = workload.draw_natives(&standard);
        for (index, init) in parties.into_iter().enumerate() {
            let (length, least) = (init.length, Party::<F>::least_memory(workload.ends_of[index]));
            if length < least {
                return Err(workload.violation(format!(
                    "a party with {} connections needs {least} bytes of memory and has {length}: more memory or parties, or \
                     fewer connections",
                    workload.ends_of[index].all
                )));
            }
            let (party, chains) = workload
                .create_party(index, init)
                .map_err(|error| workload.violation(format!("a party cannot be set up: {error}")))?;
            workload.parties.push(party);
            workload.chains.push(chains);
        }
        workload.look_for_deaths();
        for (pair, kind) in connections {
            if let Some(connection) = workload.create_connection(pair, kind)? {
                let index = workload.connections.len();
                for (side, end) in connection.ends.iter().enumerate() {
                    workload.by_number.insert((end.party, end.queue_pair.number()), (index, side));
                }
                workload.connections.push(connection);
            }
        }
        workload.natives = natives;
        Ok(workload)
    }

    /// A party, and the model of the atomics on its words.
    pub(super) fn create_party(
        &mut self,
        index: usize,
        init: PartyInit<F>,
    ) -> Result<(Party<F>, Vec<AtomicChain>), Error> {
        let mut party = Party::new(init, &mut self.random, self.ends_of[index])?;
        let address = party.zones[0].address;
        let words = (0..ATOMIC_WORDS).map(|word| {
            let mut value = [0; 8];
            value.copy_from_slice(party.expected(address + word * 8, 8));
            AtomicChain::new(u64::from_ne_bytes(value))
        });
        let chains = words.collect();
        party.unsettle(address, ATOMIC_WORDS * 8);
        Ok((party, chains))
    }

    pub(crate) fn violation(&self, what: String) -> Violation {
        let connection = self.at.and_then(|at| {
            let link = self.connections.get(at)?;
            Some((at, [0, 1].map(|side| link.ends[side].queue_pair.number())))
        });
        Violation { seed: self.plan.seed, operations: self.report.operations, what, connection }
    }

    /// Plays the engine tricks from now on.
    pub fn set_hooks(&mut self, hooks: Hooks) {
        self.hooks = hooks;
    }

    /// The surroundings.
    pub fn stage(&mut self) -> &mut S {
        &mut self.stage
    }

    /// What was done so far.
    pub fn report(&self) -> &WorkloadReport {
        &self.report
    }

    /// Runs the plan to its end; `progress` is told of each audit.
    pub fn run(&mut self, mut progress: impl FnMut(&WorkloadReport)) -> Result<WorkloadReport, Violation> {
        while self.report.operations < self.plan.operations {
            let until = (self.report.operations + self.plan.between_audits).min(self.plan.operations);
            self.work(until)?;
            self.drain()?;
            self.audit()?;
            progress(&self.report);
            if self.is_over() {
                break;
            }
        }
        Ok(self.report.clone())
    }

    /// Nobody is left to go on.
    fn is_over(&self) -> bool {
        self.plan.between_crashes.is_none()
            && self.connections.iter().all(|connection| connection.phase == Phase::Gone)
    }

    /// Destroys the queue pairs of all that live, which nothing may hinder once nothing is under way. Without that the
    /// engines stay in memory.
    pub fn end(&mut self) -> Result<(), Violation> {
        for connection in 0..self.connections.len() {
            self.leave_group(connection, 0)?;
            self.leave_group(connection, 1)?;
        }
        for party in 0..self.parties.len() {
            for queue_pair in pagewire_nic::QueuePair::all_of(&self.parties[party].nic) {
                let destroyed = self.patiently(party, || queue_pair.destroy());
                if let (Err(error), true) = (destroyed, self.stage.is_alive(party)) {
                    return Err(self.violation(format!("a queue pair cannot be destroyed: {error}")));
                }
            }
        }
        Ok(())
    }

    /// Posts until so many requests were posted.
    fn work(&mut self, until: u64) -> Result<(), Violation> {
        let mut upheaval = self.report.operations + self.plan.between_upheavals;
        let mut crash = self.plan.between_crashes.map(|between| self.report.operations + between);
        let mut last = self.stage.now();
        while self.report.operations < until {
            let mut active = self.turn()?;
            if self.is_over() {
                return Ok(());
            }
            for _ in 0..self.random.usize(0..=2 * self.parties.len()) {
                let connection = self.random.usize(0..self.connections.len());
                let side = self.random.usize(0..2);
                if self.is_orphaned(connection) {
                    continue;
                }
                for _ in 0..self.random.usize(1..=BURST) {
                    active |= self.post(connection, side)?;
                }
                active |= self.maybe_end_temporary(connection)?;
            }
            self.ring_doorbells();
            active |= self.go_on_with_natives(true)?;
            if self.plan.upheaval && self.report.operations >= upheaval {
                upheaval = self.report.operations + self.plan.between_upheavals;
                self.upheave()?;
            }
            if crash.is_some_and(|at| self.report.operations >= at) {
                crash = self.plan.between_crashes.map(|between| self.report.operations + between);
                let party = self.random.usize(0..self.parties.len());
                self.stage.crash(party);
            }
            self.pass_time(active, true, None, &mut last)?;
        }
        Ok(())
    }

    /// Waits until nothing is under way and every connection is up.
    fn drain(&mut self) -> Result<(), Violation> {
        let mut last = self.stage.now();
        let mut arrived = None;
        loop {
            let mut active = self.turn()?;
            for connection in 0..self.connections.len() {
                for side in 0..2 {
                    active |= self.post_last(connection, side)?;
                }
            }
            self.ring_doorbells();
            active |= self.go_on_with_natives(false)?;
            // UC completes what has left: it may still be on its way.
            match (self.nothing_is_due(), arrived) {
                (false, _) => arrived = None,
                (true, None) => arrived = Some(self.stage.now() + self.plan.quiet_time),
                (true, Some(at)) if self.stage.now() >= at => return Ok(()),
                (true, Some(_)) => {}
            }
            self.pass_time(active, false, arrived, &mut last)?;
        }
    }

    /// Everybody polls, and time does its work. True: something happened.
    fn turn(&mut self) -> Result<bool, Violation> {
        let mut active = false;
        let first = self.random.usize(0..self.parties.len());
        for offset in 0..self.parties.len() {
            let party = (first + offset) % self.parties.len();
            if self.parties[party].dead {
                continue;
            }
            self.stage.turn(party);
            active |= self.poll(party)?;
            active |= self.replenish_shared(party)?;
            active |= self.reregister(party)?;
        }
        self.look_for_deaths();
        active |= self.replace_the_dead();
        for connection in 0..self.connections.len() {
            self.at = Some(connection);
            active |= self.replenish(connection)?;
            active |= self.tick(connection)?;
            self.at = None;
        }
        Ok(active)
    }

    fn look_for_deaths(&mut self) {
        for party in 0..self.parties.len() {
            if !self.parties[party].dead && !self.stage.is_alive(party) {
                self.mourn(party);
                self.report.deaths += 1;
            }
        }
    }

    /// Takes and checks all completions of a party. True: there were some.
    pub(super) fn poll(&mut self, party: usize) -> Result<bool, Violation> {
        if self.stage.has_no_thread() && self.random.bool() {
            self.parties[party].nic.leave_work_to_polls(true);
            let some = self.poll_queues(party);
            self.parties[party].nic.leave_work_to_polls(false);
            return some;
        }
        self.poll_queues(party)
    }

    fn poll_queues(&mut self, party: usize) -> Result<bool, Violation> {
        let owner = &self.parties[party];
        let queues: [Arc<CompletionQueue<F>>; 3] =
            [owner.send_cq.clone(), owner.receive_cq.clone(), owner.common_cq.clone()];
        let mut some = false;
        for queue in queues {
            loop {
                let mut completions = Vec::new();
                queue.poll(BATCH, &mut |completion| completions.push(*completion));
                if completions.is_empty() || !self.stage.is_alive(party) {
                    break;
                }
                if let Some(hook) = &mut self.hooks.completions {
                    hook(party, &mut completions);
                }
                self.look_for_deaths();
                for completion in &completions {
                    self.completed(party, completion)?;
                    self.notice(party, completion);
                }
                some = true;
            }
        }
        let mut told = Vec::new();
        while let Some(event) = self.parties[party].context.next_async_event() {
            let drained = match (event.kind, event.element) {
                (AsyncEventKind::SendQueueDrained, EventSource::QueuePair { cookie }) => Some(cookie as u32),
                _ => None,
            };
            event.acknowledge();
            if let Some(number) = drained {
                told.push(number);
            }
        }
        for number in told {
            self.drained(party, number)?;
        }
        Ok(some)
    }

    /// Keeps the longest time from a death to an error that came of it.
    fn notice(&mut self, party: usize, completion: &Completion) {
        let Some((connection, side)) = self.by_number.get(&(party, completion.queue_pair)) else { return };
        let peer = &self.parties[self.connections[*connection].ends[1 - side].party];
        if peer.dead && completion.status == Status::RetryExceeded {
            let time = self.stage.now().saturating_sub(peer.died_at);
            self.report.slowest_notice = self.report.slowest_notice.max(time);
        }
    }

    /// If nothing happened, lets time pass, until `until` at most; not for ever.
    fn pass_time(
        &mut self,
        active: bool,
        posting: bool,
        until: Option<u64>,
        last: &mut u64,
    ) -> Result<(), Violation> {
        let now = self.stage.now();
        if active {
            (self.idle_turns, self.nothing_due) = (0, false);
            *last = now;
            return Ok(());
        }
        let mut next = None;
        let mut sooner = |at: Option<u64>| next = next.into_iter().chain(at).min();
        sooner(until);
        for party in self.parties.iter().filter(|party| !party.dead) {
            sooner(party.nic.progress());
        }
        for native in &self.natives {
            sooner(native.next_deadline());
        }
        for connection in &self.connections {
            match connection.phase {
                Phase::Cooling(until) => sooner(Some(until)),
                Phase::Failing(_) => {
                    connection
                        .ends
                        .iter()
                        .filter(|end| end.stopped.is_none())
                        .for_each(|end| sooner(Some(end.stop_at)));
                    sooner(Some(now + 10_000_000));
                }
                Phase::Running => {
                    if connection.ends.iter().any(|end| end.pause.is_some()) {
                        sooner(Some(now + PAUSE_STEP));
                    }
                }
                Phase::Gone => {}
            }
        }
        // While more is to be posted, work may rest that nobody was to be told of.
        self.idle_turns += 1;
        let due = self.stage.idle(next);
        // The NICs have just done what was due: there may be completions.
        let looked_again = std::mem::replace(&mut self.nothing_due, !due);
        let waiting = due || !looked_again || posting && self.idle_turns < IDLE_TURNS;
        if !waiting || self.stage.now().saturating_sub(*last) > self.plan.patience {
            self.at = self
                .connections
                .iter()
                .position(|link| link.phase != Phase::Gone && !link.is_drained(self.plan.exact));
            return Err(self.violation(format!("nothing happens any more: {}", self.describe())));
        }
        Ok(())
    }

    /// Whether nothing is under way that should end.
    fn nothing_is_due(&self) -> bool {
        self.natives.iter().all(|native| native.is_idle())
            && self.connections.iter().all(|link| match link.phase {
                Phase::Running => link.is_drained(self.plan.exact) && !link.may_fail,
                Phase::Gone => true,
                Phase::Failing(_) | Phase::Cooling(_) => false,
            })
    }

    /// What is under way, for a violation.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for native in self.natives.iter().filter(|native| !native.is_idle()) {
            text.push_str(&format!("\n  {}", native.describe()));
        }
        for (index, link) in self.connections.iter().enumerate() {
            if link.phase == Phase::Running && link.is_drained(self.plan.exact) && !link.may_fail {
                continue;
            }
            text.push_str(&format!("\n  connection {index} ({:?}, {:?}):", link.kind, link.phase));
            for end in &link.ends {
                let oldest = end.sends.front().map(|posted| (posted.id, posted.opcode, posted.length));
                text.push_str(&format!(
                    " [party {} qp {:#x} {:?}: {} sends, oldest {oldest:?}, {} receives, {} expected]",
                    end.party,
                    end.queue_pair.number(),
                    end.queue_pair.state(),
                    end.sends.len(),
                    end.receives.len(),
                    end.expected.len(),
                ));
            }
        }
        text
    }

    /// Compares all memory with the model.
    fn audit(&mut self) -> Result<(), Violation> {
        self.report.audits += 1;
        self.audit_natives()?;
        for party in 0..self.parties.len() {
            if self.parties[party].dead {
                continue;
            }
            match self.parties[party].compare() {
                Ok(bytes) => self.report.bytes_checked += bytes,
                Err(address) => {
                    let what =
                        format!("byte {address:#x} of party {party} was touched by nothing that may have");
                    return Err(self.violation(what));
                }
            }
            let zone = self.parties[party].zones[0].address;
            for word in 0..ATOMIC_WORDS {
                let mut value = [0; 8];
                value.copy_from_slice(&self.parties[party].memory(zone + word * 8, 8));
                let audited = self.chains[party][word as usize].audit(u64::from_ne_bytes(value));
                audited.map_err(|what| self.violation(format!("word {word} of party {party}: {what}")))?;
            }
        }
        for (index, link) in self.connections.iter().enumerate() {
            self.at = Some(index);
            for end in link.ends.iter().filter(|end| !self.parties[end.party].dead) {
                if let Some(window) = &end.window {
                    let memory = self.parties[end.party].memory(window.range.address, window.range.length);
                    let exact = self.plan.exact && link.phase == Phase::Running;
                    window.check(&memory, exact).map_err(|what| self.violation(what))?;
                }
            }
        }
        self.at = None;
        let wrong = self.frozen.iter().find(|((party, address), bytes)| {
            let now = self.parties[*party].memory(*address, bytes.len() as u64);
            !self.parties[*party].dead && pattern::difference(bytes, &now).is_some()
        });
        if let Some(((party, address), _)) = wrong {
            return Err(self.violation(format!(
                "memory at {address:#x} of party {party} was written though it was revoked"
            )));
        }
        Ok(())
    }
}
