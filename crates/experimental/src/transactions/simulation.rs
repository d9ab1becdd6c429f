//! Random histories in virtual time: clients whose transactions conflict, owners and clients that die at any instant, a network with delays of
//! its own for each pair. Every history is checked for circles, for halves of transactions, and for what was promised to clients.

use super::coordinator::{Coordinator, Outcome};
use super::history::History;
use super::owner::{Effect, Fault, Owner};
use super::words::{Attempt, Notice, OwnerId, OwnerMessage, Priority, Record, Request, Session};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// Steps of one history. More: something never ends.
const STEPS: u64 = 50_000;
const ATTEMPTS: usize = 8;
const CRASHES_END: u64 = 4_000;

/// What the log of an owner has.
#[derive(Clone)]
enum SimulatedEntry {
    Get { attempt: Attempt, cell: u32, version: u64, value: u64 },
    Put { session: Session, cell: u32, value: u64 },
    Request(Attempt, Request),
    Owner(OwnerId, Attempt, OwnerMessage),
    SessionLost(Session),
}

enum SimulatedEvent {
    /// An access or message comes to an owner; the number of its life.
    Arrives(usize, u64, SimulatedEntry),
    Handle(usize, u64),
    Notice(usize, usize, Attempt, Notice),
    Got(usize, Attempt),
    /// A client learns that an owner has died, in which life.
    Lost(usize, usize, u64),
    Restart(usize),
    CrashOwner(usize),
    CrashClient(usize),
    Tick(usize),
    Begin(usize),
}

struct OwnerNode {
    owner: Option<Owner<u64>>,
    life: u64,
    /// What gets return.
    memory: Vec<(u64, u64)>,
    log: VecDeque<SimulatedEntry>,
    journal: Vec<Record<u64>>,
    /// All that was ever written to the journal.
    archive: Vec<Record<u64>>,
}

#[derive(Clone, Copy)]
enum Access {
    Get(usize, u32),
    Put(usize, u32),
}

struct Client {
    is_dead: bool,
    /// Transactions that are left.
    todo: usize,
    accesses: Vec<Access>,
    next: usize,
    attempts: usize,
    number: u64,
    begun: u64,
    coordinator: Option<Coordinator>,
    has_ended_accesses: bool,
    /// The life of each owner that its connection leads to.
    lives: Vec<Option<u64>>,
}

/// What is known of an attempt from outside.
#[derive(Default)]
struct Seen {
    reads: Vec<(usize, u32, u64)>,
    writes: BTreeMap<(usize, u32), u64>,
    outcome: Option<Outcome>,
    is_committed: bool,
}

struct World {
    random: Random,
    now: u64,
    order: u64,
    events: BinaryHeap<(std::cmp::Reverse<(u64, u64)>, usize)>,
    slots: Vec<Option<SimulatedEvent>>,
    owners: Vec<OwnerNode>,
    clients: Vec<Client>,
    seen: BTreeMap<Attempt, Seen>,
    /// When the last message between a pair comes.
    last: BTreeMap<(usize, usize), u64>,
    has_crashes: bool,
    fault: Fault,
    values: u64,
}

pub struct Totals {
    pub committed: u64,
    pub aborted: u64,
    pub unknown: u64,
}

fn session(client: usize) -> Session {
    Session(client as u64 + 1)
}

impl World {
    fn new(seed: u64, has_crashes: bool, fault: Fault) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| _ = random.below(2));
        let (owners, clients) = (1 + random.below(3) as usize, 2 + random.below(3) as usize);
        let cells = 1 + random.below(3) as usize;
        let node = |id: usize| {
            let mut owner = Owner::new(OwnerId(id as u32), cells, 0);
            owner.fault = fault;
            let (memory, log) = (vec![(0, 0); cells], VecDeque::new());
            OwnerNode { owner: Some(owner), life: 1, memory, log, journal: Vec::new(), archive: Vec::new() }
        };
        let mut world = World {
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            slots: Vec::new(),
            owners: (0..owners).map(node).collect(),
            clients: Vec::new(),
            seen: BTreeMap::new(),
            last: BTreeMap::new(),
            has_crashes,
            fault,
            values: 0,
            random,
        };
        for client in 0..clients {
            let todo = 1 + world.random.below(3) as usize;
            world.clients.push(Client {
                is_dead: false,
                todo,
                accesses: Vec::new(),
                next: 0,
                attempts: 0,
                number: 0,
                begun: 0,
                coordinator: None,
                has_ended_accesses: false,
                lives: vec![Some(1); owners],
            });
            let at = world.random.below(100);
            world.at(at, SimulatedEvent::Begin(client));
            if has_crashes && world.random.one_in(6) {
                let at = world.random.below(1500);
                world.at(at, SimulatedEvent::CrashClient(client));
            }
        }
        for owner in 0..owners {
            world.at(200, SimulatedEvent::Tick(owner));
            if has_crashes && world.random.one_in(2) {
                let at = world.random.below(1500);
                world.at(at, SimulatedEvent::CrashOwner(owner));
            }
        }
        world
    }

    fn at(&mut self, time: u64, event: SimulatedEvent) {
        self.order += 1;
        self.slots.push(Some(event));
        self.events.push((std::cmp::Reverse((time, self.order)), self.slots.len() - 1));
    }

    /// When a message that leaves now comes. Places: owners from 0 on, clients behind them.
    fn delivery(&mut self, from: usize, to: usize) -> u64 {
        let time = self.now + 1 + self.random.below(if self.random.0 & 15 == 0 { 300 } else { 30 });
        let last = self.last.entry((from, to)).or_default();
        *last = time.max(*last + 1);
        *last
    }

    fn send(&mut self, client: usize, owner: usize, entry: SimulatedEntry) {
        let Some(life) = self.clients[client].lives[owner] else { return };
        let time = self.delivery(self.owners.len() + client, owner);
        self.at(time, SimulatedEvent::Arrives(owner, life, entry));
    }

    fn requests(&mut self, client: usize, requests: Vec<(OwnerId, Request)>) {
        let attempt = self.attempt(client);
        for (owner, request) in requests {
            self.send(client, owner.0 as usize, SimulatedEntry::Request(attempt, request));
        }
    }

    fn attempt(&self, client: usize) -> Attempt {
        Attempt { session: session(client), number: self.clients[client].number }
    }

    fn begin(&mut self, client: usize) {
        if self.clients[client].is_dead || self.clients[client].todo == 0 {
            return;
        }
        let (owners, cells) = (self.owners.len() as u64, self.owners[0].memory.len() as u64);
        let count = 1 + self.random.below(4);
        let random = &mut self.random;
        let access = |_| {
            let (owner, cell) = (random.below(owners) as usize, random.below(cells) as u32);
            if random.one_in(2) { Access::Put(owner, cell) } else { Access::Get(owner, cell) }
        };
        let now = self.now;
        let state = &mut self.clients[client];
        if state.attempts == 0 {
            (state.accesses, state.begun) = ((0..count).map(access).collect(), now);
        }
        state.attempts += 1;
        state.number += 1;
        state.next = 0;
        state.has_ended_accesses = false;
        let priority = Priority { begun: state.begun, session: session(client) };
        state.coordinator = Some(Coordinator::new(priority));
        self.go_on(client);
    }

    /// Makes accesses until one has to be waited for, then commits.
    fn go_on(&mut self, client: usize) {
        loop {
            let attempt = self.attempt(client);
            let state = &mut self.clients[client];
            let Some(coordinator) = &mut state.coordinator else { return };
            if coordinator.outcome().is_some() || state.has_ended_accesses {
                return;
            }
            let Some(access) = state.accesses.get(state.next).copied() else {
                state.has_ended_accesses = true;
                let gives_up = self.random.one_in(20);
                let requests = if gives_up { coordinator.abort() } else { coordinator.commit() };
                self.requests(client, requests);
                return self.look_at(client);
            };
            state.next += 1;
            let (Access::Get(owner, cell) | Access::Put(owner, cell)) = access;
            if state.lives[owner].is_none() {
                let requests = coordinator.abort();
                self.requests(client, requests);
                return self.look_at(client);
            }
            if let Some(begin) = coordinator.access(OwnerId(owner as u32)) {
                self.send(client, owner, SimulatedEntry::Request(attempt, begin));
            }
            let seen = self.seen.entry(attempt).or_default();
            match access {
                Access::Put(..) => {
                    self.values += 1;
                    let value = self.values;
                    seen.writes.insert((owner, cell), value);
                    self.send(client, owner, SimulatedEntry::Put { session: session(client), cell, value });
                }
                // What it wrote itself it knows.
                Access::Get(..) if seen.writes.contains_key(&(owner, cell)) => {}
                Access::Get(..) => {
                    // The version is filled in where the memory is read.
                    let get = SimulatedEntry::Get { attempt, cell, version: 0, value: 0 };
                    return self.send(client, owner, get);
                }
            }
        }
    }

    /// Whether the attempt has ended, and what then.
    fn look_at(&mut self, client: usize) {
        let attempt = self.attempt(client);
        let state = &mut self.clients[client];
        let Some(coordinator) = &state.coordinator else { return };
        let seen = self.seen.entry(attempt).or_default();
        seen.is_committed |= coordinator.is_committed();
        let Some(outcome) = coordinator.outcome() else { return };
        seen.outcome = Some(outcome);
        state.coordinator = None;
        let again = outcome == Outcome::Aborted && state.attempts < ATTEMPTS;
        if !again {
            state.todo -= 1;
            state.attempts = 0;
        }
        let pause = self.now + 1 + self.random.below(60);
        self.at(pause, SimulatedEvent::Begin(client));
    }

    fn arrives(&mut self, owner: usize, life: u64, entry: SimulatedEntry) {
        if self.owners[owner].life != life || self.owners[owner].owner.is_none() {
            return;
        }
        let entry = match entry {
            SimulatedEntry::Get { attempt, cell, .. } => {
                let (version, value) = self.owners[owner].memory[cell as usize];
                let client = (attempt.session.0 - 1) as usize;
                let time = self.delivery(owner, self.owners.len() + client);
                self.seen.entry(attempt).or_default().reads.push((owner, cell, version));
                self.at(time, SimulatedEvent::Got(client, attempt));
                SimulatedEntry::Get { attempt, cell, version, value }
            }
            other => other,
        };
        self.owners[owner].log.push_back(entry);
        let time = self.now + self.random.below(if self.random.0 & 31 == 0 { 200 } else { 20 });
        self.at(time, SimulatedEvent::Handle(owner, life));
    }

    fn handle(&mut self, at: usize, life: u64) {
        let node = &mut self.owners[at];
        let Some(owner) = node.owner.as_mut().filter(|_| node.life == life) else { return };
        let Some(entry) = node.log.pop_front() else { return };
        match entry {
            SimulatedEntry::Get { attempt, cell, version, value } => {
                owner.on_get(attempt.session, cell, version, &value)
            }
            SimulatedEntry::Put { session, cell, value } => owner.on_put(session, cell, value),
            SimulatedEntry::Request(attempt, request) => owner.on_request(attempt, request),
            SimulatedEntry::Owner(from, attempt, message) => owner.on_owner(from, attempt, message),
            SimulatedEntry::SessionLost(session) => owner.on_session_lost(session),
        }
        self.carry_out(at);
    }

    /// Carries out the effects; the owner may die between any two.
    fn carry_out(&mut self, at: usize) {
        let Some(owner) = &mut self.owners[at].owner else { return };
        for effect in owner.take_effects() {
            if self.has_crashes && self.now < CRASHES_END && self.random.one_in(150) {
                return self.crash_owner(at);
            }
            match effect {
                Effect::Journal(record) => {
                    self.owners[at].journal.push(record.clone());
                    self.owners[at].archive.push(record);
                }
                Effect::Install { cell, version, value, .. } => {
                    self.owners[at].memory[cell as usize] = (version, value);
                }
                Effect::Notify(attempt, notice) => {
                    let client = (attempt.session.0 - 1) as usize;
                    let time = self.delivery(at, self.owners.len() + client);
                    self.at(time, SimulatedEvent::Notice(client, at, attempt, notice));
                }
                Effect::Tell(to, attempt, message) => {
                    let (to, from) = (to.0 as usize, OwnerId(at as u32));
                    let (time, life) = (self.delivery(at, to), self.owners[to].life);
                    self.at(
                        time,
                        SimulatedEvent::Arrives(to, life, SimulatedEntry::Owner(from, attempt, message)),
                    );
                }
            }
        }
    }

    fn crash_owner(&mut self, at: usize) {
        if self.owners[at].owner.take().is_none() {
            return;
        }
        self.owners[at].log.clear();
        let life = self.owners[at].life;
        for client in 0..self.clients.len() {
            let time = self.delivery(at, self.owners.len() + client);
            self.at(time, SimulatedEvent::Lost(client, at, life));
        }
        let time = self.now + 1 + self.random.below(400);
        self.at(time, SimulatedEvent::Restart(at));
    }

    fn restart(&mut self, at: usize) {
        let node = &mut self.owners[at];
        let (id, cells) = (OwnerId(at as u32), node.memory.len());
        let mut owner = Owner::recover(id, cells, 0, node.journal.iter().cloned());
        owner.fault = self.fault;
        if self.random.one_in(2) {
            node.journal = owner.snapshot();
        }
        for (cell, place) in node.memory.iter_mut().enumerate() {
            let (version, value) = owner.cell(cell as u32).unwrap();
            *place = (version, *value);
        }
        node.life += 1;
        node.owner = Some(owner);
        self.carry_out(at);
    }

    fn lost(&mut self, client: usize, owner: usize, life: u64) {
        if self.clients[client].lives[owner] != Some(life) {
            return;
        }
        self.clients[client].lives[owner] = None;
        if self.clients[client].is_dead {
            return;
        }
        if let Some(coordinator) = &mut self.clients[client].coordinator {
            let requests = coordinator.on_lost(OwnerId(owner as u32));
            self.requests(client, requests);
            self.look_at(client);
        }
    }

    fn step(&mut self, event: SimulatedEvent) {
        match event {
            SimulatedEvent::Arrives(owner, life, entry) => self.arrives(owner, life, entry),
            SimulatedEvent::Handle(owner, life) => self.handle(owner, life),
            SimulatedEvent::Notice(client, owner, attempt, notice) => {
                if !self.clients[client].is_dead && attempt == self.attempt(client) {
                    if let Some(coordinator) = &mut self.clients[client].coordinator {
                        let requests = coordinator.on_notice(OwnerId(owner as u32), notice);
                        self.requests(client, requests);
                        self.look_at(client);
                    }
                }
            }
            SimulatedEvent::Got(client, attempt) => {
                if !self.clients[client].is_dead && attempt == self.attempt(client) {
                    self.go_on(client);
                }
            }
            SimulatedEvent::Lost(client, owner, life) => self.lost(client, owner, life),
            SimulatedEvent::Restart(owner) => self.restart(owner),
            SimulatedEvent::CrashOwner(owner) => self.crash_owner(owner),
            SimulatedEvent::CrashClient(client) => {
                self.clients[client].is_dead = true;
                for owner in 0..self.owners.len() {
                    self.send(client, owner, SimulatedEntry::SessionLost(session(client)));
                }
            }
            SimulatedEvent::Tick(owner) => {
                if let Some(state) = &mut self.owners[owner].owner {
                    let expired = state.attempts().next().filter(|_| self.random.one_in(4));
                    expired.into_iter().for_each(|attempt| state.expire(attempt));
                    state.inquire();
                    self.carry_out(owner);
                }
                // Others than the clocks of the owners are events on their way.
                if self.is_busy() || self.events.len() >= self.owners.len() {
                    self.at(self.now + 200, SimulatedEvent::Tick(owner));
                }
            }
            SimulatedEvent::Begin(client) => {
                // It connects anew to whoever is there.
                for owner in 0..self.owners.len() {
                    let node = &self.owners[owner];
                    let is_there = node.owner.is_some();
                    let connection = &mut self.clients[client].lives[owner];
                    if connection.is_none() && is_there {
                        *connection = Some(node.life);
                    }
                }
                self.begin(client);
            }
        }
    }

    fn is_busy(&self) -> bool {
        let holds = |node: &OwnerNode| {
            node.owner.as_ref().is_none_or(|owner| owner.attempts().next().is_some()) || !node.log.is_empty()
        };
        self.owners.iter().any(holds) || self.clients.iter().any(|client| !client.is_dead && client.todo > 0)
    }

    fn run(&mut self) -> Result<Totals, String> {
        let mut steps = 0;
        while let Some((std::cmp::Reverse((time, _)), slot)) = self.events.pop() {
            self.now = time;
            steps += 1;
            if steps > STEPS {
                return Err(format!("{steps} steps and no end"));
            }
            if let Some(event) = self.slots[slot].take() {
                self.step(event);
            }
        }
        self.check()
    }

    fn check(&self) -> Result<Totals, String> {
        let id = |attempt: &Attempt| attempt.session.0 << 32 | attempt.number;
        let mut history = History::default();
        let mut committed: BTreeSet<Attempt> = BTreeSet::new();
        let mut installed: BTreeMap<Attempt, BTreeMap<(usize, u32), u64>> = BTreeMap::new();
        for (at, node) in self.owners.iter().enumerate() {
            let mut prepared = BTreeMap::new();
            let mut versions: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            for record in &node.archive {
                match record {
                    Record::Prepared { attempt, writes, .. } => {
                        prepared.insert(*attempt, writes.clone());
                    }
                    Record::Ended { attempt, commits: true, is_home } => {
                        if *is_home {
                            committed.insert(*attempt);
                        }
                        for (cell, value) in prepared.remove(attempt).unwrap_or_default() {
                            history.write(id(attempt), (at as u64) << 32 | u64::from(cell));
                            installed.entry(*attempt).or_default().insert((at, cell), value);
                            let version = versions.entry(cell).or_default();
                            *version = (version.0 + 1, value);
                        }
                    }
                    _ => {}
                }
            }
            for (cell, memory) in node.memory.iter().enumerate() {
                let last = versions.get(&(cell as u32)).copied().unwrap_or_default();
                if *memory != last {
                    return Err(format!(
                        "cell {cell} of owner {at} is {memory:?}, and {last:?} was committed"
                    ));
                }
            }
            if let Some(attempt) = node.owner.as_ref().and_then(|owner| owner.attempts().next()) {
                return Err(format!("{attempt:?} is held for ever at owner {at}"));
            }
        }
        let mut totals = Totals { committed: 0, aborted: 0, unknown: 0 };
        for (attempt, seen) in &self.seen {
            let is_committed = committed.contains(attempt);
            match seen.outcome {
                Some(Outcome::Committed) => totals.committed += 1,
                Some(Outcome::Aborted) => totals.aborted += 1,
                _ => totals.unknown += 1,
            }
            if seen.is_committed && !is_committed || seen.outcome == Some(Outcome::Aborted) && is_committed {
                return Err(format!(
                    "{attempt:?} was told {:?}, and committed: {is_committed}",
                    seen.outcome
                ));
            }
            let wanted = if is_committed { Some(&seen.writes) } else { None };
            let found = installed.get(attempt);
            if wanted.filter(|writes| !writes.is_empty()) != found {
                return Err(format!("{attempt:?} wrote {wanted:?}, and {found:?} was installed"));
            }
            if is_committed {
                for (owner, cell, version) in &seen.reads {
                    history.read(id(attempt), (*owner as u64) << 32 | u64::from(*cell), *version);
                }
            }
        }
        history.check().map_err(|anomaly| anomaly.to_string())?;
        Ok(totals)
    }
}

/// Runs one history.
fn history(seed: u64, has_crashes: bool, fault: Fault) -> Result<Totals, String> {
    World::new(seed, has_crashes, fault).run()
}

/// How many histories: few with `make test`, a million with `PAGEWIRE_ACTIVE_HISTORIES=1000000`, behind another seed with
/// `PAGEWIRE_ACTIVE_SEED`.
fn bounds() -> (u64, u64) {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
    (variable("PAGEWIRE_ACTIVE_SEED").unwrap_or(1), variable("PAGEWIRE_ACTIVE_HISTORIES").unwrap_or(3000))
}

#[test]
fn committed_transactions_are_serialisable_whoever_dies() {
    let (first, count) = bounds();
    let mut all = Totals { committed: 0, aborted: 0, unknown: 0 };
    for seed in first..first + count {
        let has_crashes = seed % 3 != 0;
        let totals = history(seed, has_crashes, Fault::None)
            .unwrap_or_else(|why| panic!("PAGEWIRE_ACTIVE_SEED={seed} PAGEWIRE_ACTIVE_HISTORIES=1: {why}"));
        all.committed += totals.committed;
        all.aborted += totals.aborted;
        all.unknown += totals.unknown;
    }
    println!(
        "{count} histories: {} committed, {} aborted, {} unknown or cut off",
        all.committed, all.aborted, all.unknown
    );
    if count > 100 {
        assert!(all.committed > count && all.aborted > count / 2 && all.unknown > 0, "they try something");
    }
}

/// What the owner must not leave out.
#[test]
fn a_mistake_of_the_owner_is_found() {
    for fault in [Fault::ReadsAreNotHeld, Fault::StaleReadsCount, Fault::VotesForAll, Fault::ForgetsVotes] {
        let found = (1..3000).filter_map(|seed| history(seed, seed % 3 != 0, fault).err()).take(1).next();
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} goes unnoticed");
    }
}
