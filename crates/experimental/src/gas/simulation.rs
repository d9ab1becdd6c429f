//! The protocol in virtual time: processes whose threads load and store pages, a network with delays of its own for each pair, processes that die.
//! Each load must find what was stored last, and a process that stores must be the only one with a copy.

use super::cache::{Cache, CacheEffect, Copy};
use super::directory::{Directory, HomeEffect};
use super::words::{Message, Page, Rank};
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

enum GasEvent {
    Message(Rank, Rank, Message<u64>),
    /// A thread goes on.
    Run(usize),
    Time(Rank),
    Die(Rank),
    Lost(Rank, Rank),
}

struct Process {
    is_dead: bool,
    directory: Directory<u64>,
    cache: Cache<u64>,
    /// The content of each page that is there, and whether it may be stored to.
    memory: Vec<Option<(u64, bool)>>,
    waiting: Vec<usize>,
    poisoned: Vec<Page>,
}

struct Thread {
    rank: Rank,
    accesses: VecDeque<(Page, bool)>,
}

struct World {
    random: Random,
    now: u64,
    events: BinaryHeap<(Reverse<(u64, u64)>, usize)>,
    slots: Vec<Option<GasEvent>>,
    last: BTreeMap<(Rank, Rank), u64>,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    pages_each: usize,
    /// What was stored last.
    latest: Vec<u64>,
    stores: u64,
    failure: Option<String>,
}

impl World {
    fn new(seed: u64, with_deaths: bool, grants_early: bool) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| _ = random.below(2));
        let (ranks, pages_each) = (2 + random.below(3) as usize, 1 + random.below(2) as usize);
        let pages = ranks * pages_each;
        let process = |rank: usize| {
            let mut directory = Directory::new((rank * pages_each) as Page, pages_each, &0);
            directory.grants_early = grants_early;
            Process {
                is_dead: false,
                directory,
                cache: Cache::new(pages),
                memory: vec![None; pages],
                waiting: Vec::new(),
                poisoned: Vec::new(),
            }
        };
        let processes = (0..ranks).map(process).collect();
        let mut world = World {
            now: 0,
            events: BinaryHeap::new(),
            slots: Vec::new(),
            last: BTreeMap::new(),
            processes,
            threads: Vec::new(),
            pages_each,
            latest: vec![0; pages],
            stores: 0,
            failure: None,
            random,
        };
        for rank in 0..ranks as Rank {
            for _ in 0..1 + world.random.below(2) {
                let count = world.random.below(30);
                let mut access = |_| (world.random.below(pages as u64) as Page, world.random.below(2) == 0);
                let accesses = (0..count).map(&mut access).collect();
                world.threads.push(Thread { rank, accesses });
                let thread = world.threads.len() - 1;
                world.at(0, GasEvent::Run(thread));
            }
        }
        if with_deaths {
            let (rank, time) = (world.random.below(ranks as u64) as Rank, world.random.below(3_000));
            world.at(time, GasEvent::Die(rank));
        }
        world
    }

    fn at(&mut self, time: u64, event: GasEvent) {
        self.slots.push(Some(event));
        self.events.push((Reverse((time, self.slots.len() as u64)), self.slots.len() - 1));
    }

    fn delivery(&mut self, from: Rank, to: Rank) -> u64 {
        let time = self.now + 1 + self.random.below(100);
        let last = self.last.entry((from, to)).or_default();
        *last = time.max(*last + 1);
        *last
    }

    fn send(&mut self, from: Rank, to: Rank, message: Message<u64>) {
        let time = self.delivery(from, to);
        self.at(time, GasEvent::Message(from, to, message));
    }

    fn home(&self, page: Page) -> Rank {
        (page as usize / self.pages_each) as Rank
    }

    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    /// A thread makes accesses until it has to wait.
    fn run_thread(&mut self, at: usize) {
        let rank = self.threads[at].rank;
        if self.processes[rank as usize].is_dead {
            return;
        }
        while let Some((page, is_store)) = self.threads[at].accesses.front().copied() {
            let process = &mut self.processes[rank as usize];
            if process.poisoned.contains(&page) {
                // A signal ends what it does.
                self.threads[at].accesses.clear();
                return;
            }
            match process.memory[page as usize] {
                Some((value, true)) if is_store => {
                    let others = (0..self.processes.len())
                        .filter(|other| *other != rank as usize && !self.processes[*other].is_dead)
                        .filter(|other| self.processes[*other].memory[page as usize].is_some())
                        .count();
                    if others > 0 || value != self.latest[page as usize] {
                        self.fail(format!("{rank} stores to page {page}, and {others} others have a copy"));
                    }
                    self.stores += 1;
                    self.latest[page as usize] = self.stores;
                    self.processes[rank as usize].memory[page as usize] = Some((self.stores, true));
                }
                Some((value, _)) if !is_store => {
                    if value != self.latest[page as usize] {
                        let latest = self.latest[page as usize];
                        self.fail(format!("{rank} loads {value} of page {page}, where {latest} was stored"));
                    }
                }
                _ => {
                    process.waiting.push(at);
                    process.cache.on_fault(page, is_store);
                    return self.carry_out(rank);
                }
            }
            self.threads[at].accesses.pop_front();
            if self.random.below(4) == 0 {
                let time = self.now + self.random.below(200);
                return self.at(time, GasEvent::Run(at));
            }
        }
    }

    fn wake(&mut self, rank: Rank) {
        for thread in std::mem::take(&mut self.processes[rank as usize].waiting) {
            let time = self.now + self.random.below(60);
            self.at(time, GasEvent::Run(thread));
        }
    }

    fn carry_out(&mut self, rank: Rank) {
        for effect in self.processes[rank as usize].directory.take_effects() {
            match effect {
                HomeEffect::Recall { to, page, keep } => self.send(rank, to, Message::Recall { page, keep }),
                HomeEffect::Grant { to, page, for_stores, with_content } => {
                    let content = self.processes[rank as usize].directory.content(page).copied();
                    let content = content.filter(|_| with_content);
                    self.send(rank, to, Message::Grant { page, for_stores, content });
                }
                HomeEffect::LostStores { page } => {
                    let content = self.processes[rank as usize].directory.content(page).copied();
                    self.latest[page as usize] = content.unwrap();
                }
            }
        }
        for effect in self.processes[rank as usize].cache.take_effects() {
            let memory = &mut self.processes[rank as usize].memory;
            match effect {
                CacheEffect::Want { page, for_stores } => {
                    self.send(rank, self.home(page), Message::Want { page, for_stores });
                }
                CacheEffect::Give { page, for_stores, content } => {
                    assert!(memory[page as usize].is_none());
                    memory[page as usize] = Some((content, for_stores));
                    self.wake(rank);
                }
                CacheEffect::AllowStores { page } => {
                    let content = memory[page as usize].expect("it is there").0;
                    memory[page as usize] = Some((content, true));
                    self.wake(rank);
                }
                CacheEffect::Wake { .. } => self.wake(rank),
                CacheEffect::Return { page, with_content, keep } => {
                    let content = memory[page as usize].map(|(content, _)| content).filter(|_| with_content);
                    memory[page as usize] =
                        memory[page as usize].filter(|_| keep).map(|(content, _)| (content, false));
                    self.send(rank, self.home(page), Message::Returned { page, content });
                }
                CacheEffect::Poison { page } => {
                    memory[page as usize] = None;
                    self.processes[rank as usize].poisoned.push(page);
                    self.wake(rank);
                }
            }
        }
        for page in 0..self.latest.len() {
            let process = &self.processes[rank as usize];
            let copy = match process.memory[page] {
                None => Copy::Absent,
                Some((_, false)) => Copy::Shared,
                Some((_, true)) => Copy::Exclusive,
            };
            assert_eq!(process.cache.copy(page as Page), copy, "memory and cache of {rank}");
        }
        if let Some(time) = self.processes[rank as usize].cache.next_time() {
            self.at(time.as_micros() as u64, GasEvent::Time(rank));
        }
    }

    fn step(&mut self, event: GasEvent) {
        let now = Duration::from_micros(self.now);
        match event {
            GasEvent::Run(thread) => self.run_thread(thread),
            GasEvent::Message(from, to, message) => {
                let home = self.home(message.page());
                let process = &mut self.processes[to as usize];
                if process.is_dead {
                    return;
                }
                if home == to && matches!(message, Message::Want { .. } | Message::Returned { .. }) {
                    process.directory.on_message(from, message);
                } else {
                    process.cache.on_message(message, now);
                }
                self.carry_out(to);
            }
            GasEvent::Time(rank) => {
                if !self.processes[rank as usize].is_dead {
                    self.processes[rank as usize].cache.on_time(now);
                    self.carry_out(rank);
                }
            }
            GasEvent::Die(rank) => {
                self.processes[rank as usize].is_dead = true;
                for other in 0..self.processes.len() as Rank {
                    let time = self.delivery(rank, other);
                    self.at(time, GasEvent::Lost(other, rank));
                }
            }
            GasEvent::Lost(rank, lost) => {
                if self.processes[rank as usize].is_dead {
                    return;
                }
                let first = lost * self.pages_each as Page;
                let process = &mut self.processes[rank as usize];
                process.directory.on_lost(lost);
                process.cache.on_lost(first, first + self.pages_each as Page);
                self.carry_out(rank);
            }
        }
    }

    fn run(&mut self) -> Result<u64, String> {
        let mut steps = 0;
        while let Some((Reverse((time, _)), slot)) = self.events.pop() {
            self.now = time;
            steps += 1;
            if let Some(event) = self.slots[slot].take() {
                self.step(event);
            }
            if let Some(why) = self.failure.take() {
                return Err(why);
            }
            if steps > 200_000 {
                return Err(format!("{steps} steps and no end"));
            }
        }
        for thread in &self.threads {
            if !self.processes[thread.rank as usize].is_dead && !thread.accesses.is_empty() {
                return Err(format!(
                    "a thread of {} waits for ever for {:?}",
                    thread.rank, thread.accesses[0]
                ));
            }
        }
        Ok(self.stores)
    }
}

/// `PAGEWIRE_ACTIVE_HISTORIES`: how many.
#[test]
fn every_load_finds_what_was_stored_last() {
    let count = std::env::var("PAGEWIRE_ACTIVE_HISTORIES").map_or(3000, |count| count.parse().unwrap());
    let mut stores = 0;
    for seed in 1..=count {
        stores +=
            World::new(seed, seed % 2 == 0, false).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(stores > 10 * count, "{stores} stores");
}

#[test]
fn a_grant_that_does_not_wait_is_found() {
    assert!((1..100).any(|seed| World::new(seed, false, true).run().is_err()));
}

/// A program may ask for more pages than the machine has memory for: those that nobody touches cost nothing.
#[test]
fn pages_cost_memory_only_when_they_are_used() {
    let pages = 1 << 28;
    let mut directory = Directory::new(0, pages, &Box::new([0_u64; 512]));
    let mut cache = Cache::<Box<[u64; 512]>>::new(pages);
    let last = pages as Page - 1;
    cache.on_fault(last, true);
    let [CacheEffect::Want { page, for_stores }] = cache.take_effects()[..] else { panic!("not asked for") };
    directory.on_message(0, Message::Want { page, for_stores });
    assert_eq!(directory.take_effects().len(), 1);
    assert!(directory.content(last).is_some() && directory.content(last + 1).is_none());
}

/// What no honest process says changes nothing.
#[test]
fn messages_that_do_not_fit_are_ignored() {
    let mut directory = Directory::new(0, 1, &5u64);
    directory.on_message(1, Message::Returned { page: 0, content: Some(9) });
    directory.on_message(1, Message::Want { page: 7, for_stores: true });
    directory.on_message(1, Message::Grant { page: 0, for_stores: true, content: None });
    assert_eq!((directory.take_effects(), directory.content(0).copied()), (vec![], Some(5)));
    let mut cache = Cache::<u64>::new(1);
    cache.on_message(Message::Grant { page: 0, for_stores: true, content: Some(1) }, Duration::ZERO);
    cache.on_message(Message::Grant { page: 9, for_stores: true, content: Some(1) }, Duration::ZERO);
    cache.on_fault(9, true);
    assert_eq!((cache.take_effects(), cache.copy(0)), (vec![], Copy::Absent));
    cache.on_message(Message::Recall { page: 0, keep: false }, Duration::ZERO);
    assert_eq!(cache.take_effects(), [CacheEffect::Return { page: 0, with_content: false, keep: true }]);
}
