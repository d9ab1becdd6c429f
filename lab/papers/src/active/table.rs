//! The distributed hash table as events: each process inserts elements into the volumes of random owners, and handles what comes for its own.
//!
//! As in section 5.2 a put is one message, an atomic or a get a pair, and what the IOMMU does stalls the owner. The time of a process goes to its
//! inserts and to what it handles; only one of both at a time.

use super::buffer::Buffer;
use crate::event_queue::EventQueue;
use crate::unit_costs::{ActiveCosts, PAGE};
use std::collections::VecDeque;

/// Inserts of a message of AM-Aggregated.
const AGGREGATED: u64 = 64;

/// Who changes the volume of another process, and how it learns that it is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Active puts; an interrupt each so many records.
    AaInt(u64),
    /// Active puts; the owner looks at its log between its inserts.
    AaPoll,
    /// Active puts; the owner looks at the scratchpad.
    AaSp,
    /// Atomics and puts of the caller (listing 2).
    Rma,
    /// Messages; the owner looks at regular intervals.
    Am,
    /// Messages; the owner doubles the interval when there is none.
    AmExp,
    /// Messages; so many of a node's processes do nothing but handle them.
    AmOnload(usize),
    /// Messages; an interrupt each so many.
    AmInts(u64),
    /// Messages of many inserts; the owner looks at regular intervals. It is not in the paper.
    AmAggregated,
}

impl Scheme {
    /// As in the paper.
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::AaInt(_) => "AA-Int",
            Scheme::AaPoll => "AA-Poll",
            Scheme::AaSp => "AA-SP",
            Scheme::Rma => "RMA",
            Scheme::Am => "AM",
            Scheme::AmExp => "AM-Exp",
            Scheme::AmOnload(_) => "AM-Onload",
            Scheme::AmInts(_) => "AM-Ints",
            Scheme::AmAggregated => "AM-Aggregated",
        }
    }

    const fn is_active(self) -> bool {
        matches!(self, Scheme::AaInt(_) | Scheme::AaPoll | Scheme::AaSp)
    }
}

/// What is run.
#[derive(Debug)]
pub struct Load {
    /// Who changes what.
    pub scheme: Scheme,
    /// Processes, 32 a node.
    pub processes: usize,
    /// Inserts of each process that inserts.
    pub inserts: u64,
    /// Of a thousand inserts so many collide.
    pub collisions: u64,
    /// Nanoseconds that a process computes between two inserts.
    pub computation: u64,
    /// The translation buffer of each node, as entries, ways and eviction. `None`: each look-up hits.
    pub buffer: Option<(usize, usize, crate::translation::Eviction)>,
    /// Of the random numbers.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableOutcome {
    /// Nanoseconds until the last insert was done.
    pub end: u64,
    /// Inserts that were done.
    pub inserts: u64,
    /// Look-ups of the translation buffers, and how many of them missed.
    pub look_ups: (u64, u64),
}

impl TableOutcome {
    /// Inserts a second.
    pub fn rate(&self) -> f64 {
        self.inserts as f64 * 1e9 / self.end as f64
    }
}

enum Event {
    /// A process has nothing to do, or is ready with what it did.
    Ready(usize),
    /// Inserts of another process have come.
    Arrived { at: usize, from: usize, inserts: u64 },
    /// Inserts have been handled, and their process learns of it.
    Handled { from: usize, inserts: u64 },
    /// A remote operation is at the card of a node; so many follow it.
    AtCard { from: usize, node: usize, behind: u64 },
    /// A remote operation is back.
    Back { from: usize, node: usize, behind: u64 },
}

#[derive(Default)]
struct Process {
    came: VecDeque<(usize, u64)>,
    started: u64,
    /// Inserts that are not handled yet.
    outstanding: u64,
    is_idle: bool,
    has_looked: bool,
    next_look: u64,
    doublings: u32,
}

struct Table<'a> {
    costs: &'a ActiveCosts,
    load: &'a Load,
    queue: EventQueue<Event>,
    processes: Vec<Process>,
    /// When the card of each node is free.
    cards: Vec<u64>,
    buffers: Vec<Buffer>,
    random: fastrand::Rng,
    done: TableOutcome,
}

/// Runs it.
///
/// # Panics
/// If there is no process, more onloaded processes than a node has, or a buffer's sets do not come out even.
pub fn run(costs: &ActiveCosts, load: &Load) -> TableOutcome {
    assert!(
        load.processes > 0
            && !matches!(load.scheme, Scheme::AmOnload(count) if count == 0 || count >= costs.node())
    );
    let nodes = load.processes.div_ceil(costs.node());
    let buffer =
        |(entries, ways, eviction)| Buffer::new(entries, ways, eviction).expect("sets that come out even");
    let mut table = Table {
        costs,
        load,
        queue: EventQueue::new(),
        processes: (0..load.processes).map(|_| Process::default()).collect(),
        cards: vec![0; nodes],
        buffers: load.buffer.map_or_else(Vec::new, |of| (0..nodes).map(|_| buffer(of)).collect()),
        random: fastrand::Rng::with_seed(load.seed),
        done: TableOutcome { end: 0, inserts: 0, look_ups: (0, 0) },
    };
    for process in 0..load.processes {
        // Not all at the same instant.
        let start = table.random.u64(0..costs.message().max(2));
        table.processes[process].next_look = start + table.random.u64(0..costs.interval().max(2));
        table.queue.after(start, Event::Ready(process));
    }
    while let Some(event) = table.queue.next() {
        table.happen(event);
    }
    table.done
}

impl Table<'_> {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Ready(process) => self.ready(process),
            Event::Arrived { at, from, inserts } => {
                self.processes[at].came.push_back((from, inserts));
                self.wake(at);
            }
            Event::Handled { from, inserts } => {
                self.processes[from].outstanding -= inserts;
                self.wake(from);
            }
            Event::AtCard { from, node, behind } => {
                let now = self.queue.now();
                self.cards[node] = self.cards[node].max(now) + self.costs.card();
                let delay = self.cards[node] - now + self.costs.latency();
                self.queue.after(delay, Event::Back { from, node, behind });
            }
            Event::Back { from, node, behind: 0 } => {
                let _ = node;
                self.finish(1, 0);
                self.queue.after(0, Event::Ready(from));
            }
            Event::Back { from, node, behind } => {
                let delay = self.costs.message() + self.costs.latency();
                self.queue.after(delay, Event::AtCard { from, node, behind: behind - 1 });
            }
        }
    }

    fn wake(&mut self, process: usize) {
        if std::mem::take(&mut self.processes[process].is_idle) {
            self.queue.after(0, Event::Ready(process));
        }
    }

    fn finish(&mut self, inserts: u64, delay: u64) {
        self.done.inserts += inserts;
        self.done.end = self.done.end.max(self.queue.now() + delay);
    }

    fn is_onloaded(&self, process: usize) -> bool {
        matches!(self.load.scheme, Scheme::AmOnload(count) if process % self.costs.node() < count)
    }

    fn ready(&mut self, process: usize) {
        let is_over = self.processes[process].started == self.load.inserts || self.is_onloaded(process);
        let has_window = !self.load.scheme.is_active() && self.load.scheme != Scheme::Rma;
        let window = if has_window { self.costs.window() } else { u64::MAX };
        let waits = is_over || self.processes[process].outstanding >= window;
        if self.looks(process, waits) {
            return self.look(process);
        }
        if waits {
            self.processes[process].is_idle = true;
            return;
        }
        self.processes[process].has_looked = false;
        self.insert(process);
    }

    /// Whether a process now looks for what has come. `waits`: it has nothing else to do.
    fn looks(&self, process: usize, waits: bool) -> bool {
        let Process { came, has_looked, next_look, .. } = &self.processes[process];
        if waits {
            return !came.is_empty();
        }
        match self.load.scheme {
            Scheme::AaPoll | Scheme::AaSp => !has_looked,
            Scheme::AaInt(each) | Scheme::AmInts(each) => came.len() as u64 >= each,
            Scheme::Am | Scheme::AmExp | Scheme::AmAggregated => self.queue.now() >= *next_look,
            Scheme::AmOnload(_) | Scheme::Rma => false,
        }
    }

    fn look(&mut self, process: usize) {
        let costs = self.costs;
        let mut time = match self.load.scheme {
            Scheme::AaPoll => costs.memory(),
            Scheme::AaSp => costs.scratchpad(),
            Scheme::AaInt(_) | Scheme::AmInts(_) => costs.interrupt(),
            _ => costs.look(),
        };
        let came = std::mem::take(&mut self.processes[process].came);
        let found = !came.is_empty();
        for (from, inserts) in came {
            time += if self.load.scheme.is_active() { self.stall(process) } else { costs.extract() };
            for _ in 0..inserts {
                let collides = self.random.u64(0..1_000) < self.load.collisions;
                time += if collides { costs.collided() } else { costs.insert() };
            }
            self.finish(inserts, time);
            self.queue.after(time + costs.latency(), Event::Handled { from, inserts });
        }
        let state = &mut self.processes[process];
        let backs_off = self.load.scheme == Scheme::AmExp && !found;
        state.doublings = if backs_off { (state.doublings + 1).min(costs.doublings()) } else { 0 };
        state.next_look = self.queue.now() + time + (costs.interval() << state.doublings);
        state.has_looked = true;
        self.queue.after(time, Event::Ready(process));
    }

    /// What the IOMMU's work for a put to a volume takes: its own, a record in the log, and the walks for pages without an entry. The log lies in
    /// memory of the owner, and its page is looked up, too: assumption.
    fn stall(&mut self, process: usize) -> u64 {
        let mut time = self.costs.iommu() + self.costs.memory();
        if let Some(buffer) = self.buffers.get_mut(process / self.costs.node()) {
            let pages = self.costs.elements() * self.costs.cell() / PAGE;
            let volume = process as u64 * (pages + 1);
            for page in [volume, volume + 1 + self.random.u64(0..pages)] {
                let misses = buffer.misses(page);
                self.done.look_ups.0 += 1;
                self.done.look_ups.1 += u64::from(misses);
                time += if misses { self.costs.walk() } else { 0 };
            }
        }
        time
    }

    fn insert(&mut self, process: usize) {
        let costs = self.costs;
        let owner = self.owner();
        let time = self.load.computation + costs.message();
        if self.load.scheme == Scheme::Rma {
            self.processes[process].started += 1;
            let collides = self.random.u64(0..1_000) < self.load.collisions;
            let behind = if collides { costs.collision_operations() } else { 0 };
            let event = Event::AtCard { from: process, node: owner / costs.node(), behind };
            return self.queue.after(time + costs.latency(), event);
        }
        let left = self.load.inserts - self.processes[process].started;
        let inserts = if self.load.scheme == Scheme::AmAggregated { AGGREGATED.min(left) } else { 1 };
        self.processes[process].started += inserts;
        self.processes[process].outstanding += inserts;
        // The computation is one for each insert, and so is the copy into a message.
        let time = time + (inserts - 1) * (self.load.computation + costs.memory());
        self.queue.after(time + costs.latency(), Event::Arrived { at: owner, from: process, inserts });
        self.queue.after(time, Event::Ready(process));
    }

    /// Who handles the next insert.
    fn owner(&mut self) -> usize {
        let process = self.random.usize(0..self.load.processes);
        match self.load.scheme {
            // One of those of the owner's node that handle.
            Scheme::AmOnload(count) => {
                let node = process - process % self.costs.node();
                (node + process % count).min(self.load.processes - 1)
            }
            _ => process,
        }
    }
}
