//! The access counter (PAPERS AA-10, section 5.2.2): each process puts words to random places of other processes' data, and the puts are counted by page.

use super::super::comparison::messages::{Inbox, Outbox, Receiver, mix};
use super::super::gathering::Gathering;
use super::super::processes::{Keys, compute};
use super::all_reduce::AllReduce;
use super::{AccessScheme, LOOKS, Load, SUMS, WINDOW, open_others, other_than};
use anyhow::{Context, Result, ensure};
use pagewire::{Atomic, Node, Operation, Region, RemoteRegion, Rights};
use pagewire_active::{AccessLog, AttributesOf, LogOptions, Logs};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Pages of the data of a process, and words of a page.
const PAGES: usize = 16;
const PAGE: usize = 512;
/// Bytes of the log for each source.
const LOG_BYTES: usize = 1 << 20;

/// Who counts.
enum Counting {
    None,
    /// The owner, by its log.
    Active(AccessLog),
    /// The caller, at the owner.
    Rma {
        counts: Region<u64, Atomic>,
        remote: Vec<Option<RemoteRegion>>,
    },
    /// The owner's store, which a message of each access reaches.
    KeyValue {
        receiver: Receiver,
        outboxes: Vec<Option<Outbox>>,
    },
    /// The caller, for all pages of all processes; then all sum up.
    Sums {
        all_reduce: AllReduce,
        own: Vec<u64>,
        sums: Vec<u64>,
    },
}

pub(super) struct Counter<'n> {
    node: &'n Node,
    data: Region<u64, Atomic>,
    remote: Vec<Option<RemoteRegion>>,
    counting: Counting,
    /// What this process has counted of its own pages, where it counts.
    counts: Vec<u64>,
    puts: VecDeque<Operation<Vec<u64>>>,
    adds: VecDeque<Operation<u64>>,
}

/// What a process accesses: the rank of the owner, and the word.
fn place(rank: usize, processes: usize, key: u64) -> (usize, usize) {
    (other_than(rank, processes, key), (mix(key) >> 32) as usize % (PAGES * PAGE))
}

/// What is put into a word, whoever does.
fn value(word: usize) -> u64 {
    mix(word as u64) | 1
}

impl<'n> Counter<'n> {
    pub fn join(node: &'n Node, load: &Load) -> Result<Counter<'n>> {
        let data = node.words(PAGES * PAGE)?;
        let counting = match load.scheme {
            AccessScheme::AaPoll => {
                // Sums do not depend on the order of sources.
                let options =
                    LogOptions { sources: 2 * node.size(), is_ordered: false, ..LogOptions::new(LOG_BYTES) };
                let log = node.access_log_with(&options)?;
                data.attributes(..).log_puts().to(&log)?;
                Counting::Active(log)
            }
            AccessScheme::Rma => {
                let counts = node.words(PAGES)?;
                let remote = open_others(node, &counts.export(Rights::all())?)?;
                Counting::Rma { counts, remote }
            }
            AccessScheme::AKv => key_value(node)?,
            AccessScheme::Allreduce => {
                let words = vec![0; PAGES * node.size()];
                let all_reduce = AllReduce::join(node, words.len())?;
                Counting::Sums { all_reduce, own: words.clone(), sums: words }
            }
            AccessScheme::None => Counting::None,
            AccessScheme::Aa | AccessScheme::Am => unreachable!("Load::parse refuses it"),
        };
        let remote = open_others(node, &data.export(Rights::all())?)?;
        let (puts, adds) = (VecDeque::new(), VecDeque::new());
        Ok(Counter { node, data, remote, counting, counts: vec![0; PAGES], puts, adds })
    }

    /// Accesses a second of all processes together.
    pub fn measure(&mut self, gathering: &Gathering, load: &Load, round: u32) -> Result<f64> {
        self.clear();
        self.node.barrier()?;
        let (rank, processes) = (self.node.rank(), self.node.size());
        let start = Instant::now();
        for (key, number) in Keys::of(rank, round).zip(1..=load.times) {
            compute(load.computation);
            let (owner, word) = place(rank, processes, key);
            self.access(owner, word)?;
            self.look(load, number)?;
        }
        self.finish(load, gathering)?;
        let elapsed = start.elapsed().as_secs_f64();
        self.verify(load, round)?;
        Ok((load.times * processes as u64) as f64 / elapsed)
    }

    fn clear(&mut self) {
        self.data.words().iter().for_each(|word| word.store(0, Ordering::Release));
        self.counts.fill(0);
        match &mut self.counting {
            Counting::Rma { counts, .. } => {
                counts.words().iter().for_each(|word| word.store(0, Ordering::Release))
            }
            Counting::Sums { own, sums, .. } => {
                own.fill(0);
                sums.fill(0);
            }
            Counting::None | Counting::Active(_) | Counting::KeyValue { .. } => {}
        }
    }

    fn access(&mut self, owner: usize, word: usize) -> Result<()> {
        if let Counting::KeyValue { .. } = self.counting {
            return self.send_access(owner, word);
        }
        let remote = self.remote[owner].as_ref().context("a process accesses others")?;
        let put = remote.put_value(8 * word as u64, value(word));
        self.puts.push_back(put);
        match &mut self.counting {
            Counting::Rma { remote, .. } => {
                let remote = remote[owner].as_ref().context("a process accesses others")?;
                self.adds.push_back(remote.fetch_add(8 * (word / PAGE) as u64, 1));
            }
            Counting::Sums { own, .. } => own[owner * PAGES + word / PAGE] += 1,
            Counting::None | Counting::Active(_) | Counting::KeyValue { .. } => {}
        }
        self.keep_window(WINDOW)
    }

    /// Sends an access to the owner's store, and does what others ask of the own one while the ring is full.
    fn send_access(&mut self, owner: usize, word: usize) -> Result<()> {
        let Counter { data, counts, counting: Counting::KeyValue { receiver, outboxes }, .. } = self else {
            unreachable!("only such accesses are sent");
        };
        let outbox = outboxes[owner].as_ref().context("a process accesses others")?;
        let store = std::cell::RefCell::new((receiver, counts));
        outbox.send(&[word as u64, value(word)], &|| {
            let (receiver, counts) = &mut *store.borrow_mut();
            serve(receiver, data, counts, true)
        })
    }

    /// Waits until no more operations are under way.
    fn keep_window(&mut self, most: usize) -> Result<()> {
        while self.puts.len() > most {
            // The owner may have to look at its log before this one ends, and so may this process for others.
            while !self.puts.front().is_some_and(Operation::is_done) {
                self.serve(true)?;
            }
            if let Some(put) = self.puts.pop_front() {
                put.wait()?;
            }
        }
        while self.adds.len() > most {
            if let Some(add) = self.adds.pop_front() {
                add.wait()?;
            }
        }
        Ok(())
    }

    /// Does what is to be done between accesses, each so many.
    fn look(&mut self, load: &Load, number: u64) -> Result<()> {
        match self.counting {
            Counting::None | Counting::Rma { .. } => Ok(()),
            Counting::Active(_) | Counting::KeyValue { .. } if number % load.each_or(LOOKS) == 0 => {
                self.serve(false)
            }
            Counting::Sums { .. } if number % load.each_or(SUMS) == 0 => self.sum_up(),
            _ => Ok(()),
        }
    }

    /// Counts what others have accessed, if this process does that itself.
    fn serve(&mut self, waits: bool) -> Result<()> {
        let Counter { data, counts, counting, .. } = self;
        match counting {
            Counting::Active(log) => {
                let base = data.address();
                let count = |access: pagewire_active::Access<'_>| {
                    let page = access.offset_from(base).map(|offset| offset as usize / (8 * PAGE));
                    if let Some(count) = page.and_then(|page| counts.get_mut(page)) {
                        *count += 1;
                    }
                };
                if log.poll(count) == 0 && waits {
                    std::thread::yield_now();
                }
                Ok(())
            }
            Counting::KeyValue { receiver, .. } => serve(receiver, data, counts, waits),
            Counting::None | Counting::Rma { .. } | Counting::Sums { .. } => {
                if waits {
                    std::thread::yield_now();
                }
                Ok(())
            }
        }
    }

    /// Adds what was counted since the last time to the sums of all processes.
    fn sum_up(&mut self) -> Result<()> {
        if let Counting::Sums { all_reduce, own, sums } = &mut self.counting {
            all_reduce.sum(own)?;
            sums.iter_mut().zip(&*own).for_each(|(sum, more)| *sum += more);
            own.fill(0);
        }
        Ok(())
    }

    /// Waits until all accesses of all processes are counted.
    fn finish(&mut self, load: &Load, gathering: &Gathering) -> Result<()> {
        self.keep_window(0)?;
        if load.scheme == AccessScheme::Allreduce {
            self.sum_up()?;
        }
        if load.scheme == AccessScheme::AKv {
            self.flush_store()?;
        }
        if load.scheme == AccessScheme::AaPoll {
            let flushes: Vec<_> =
                self.remote.iter().flatten().map(|remote| remote.flush_handled(None)).collect();
            for flush in flushes {
                while !flush.is_done() {
                    self.serve(true)?;
                }
                flush.wait()?;
            }
        }
        let this = std::cell::RefCell::new(self);
        gathering.wait(|| this.borrow_mut().serve(true))
    }

    fn flush_store(&mut self) -> Result<()> {
        let Counter { data, counts, counting: Counting::KeyValue { receiver, outboxes }, .. } = self else {
            unreachable!("only such accesses are sent");
        };
        let store = std::cell::RefCell::new((receiver, counts));
        outboxes.iter().flatten().try_for_each(|outbox| {
            outbox.flush(&|| {
                let (receiver, counts) = &mut *store.borrow_mut();
                serve(receiver, data, counts, true)
            })
        })
    }

    /// Each access of each process must be in memory, and counted once, at its page.
    fn verify(&self, load: &Load, round: u32) -> Result<()> {
        let (own, processes) = (self.node.rank(), self.node.size());
        let mut expected = vec![0_u64; PAGES * processes];
        let mut memory = vec![0_u64; PAGES * PAGE];
        for rank in 0..processes {
            for key in Keys::of(rank, round).take(load.times as usize) {
                let (owner, word) = place(rank, processes, key);
                expected[owner * PAGES + word / PAGE] += 1;
                if owner == own {
                    memory[word] = value(word);
                }
            }
        }
        let found = self.data.words().iter().map(|word| word.load(Ordering::Acquire));
        let differs = found.zip(&memory).position(|(found, wanted)| found != *wanted);
        ensure!(differs.is_none(), "the word {differs:?} is not what was put there");
        let mine = &expected[own * PAGES..][..PAGES];
        match &self.counting {
            Counting::None => Ok(()),
            Counting::Sums { sums, .. } => same(sums, &expected),
            Counting::Rma { counts, .. } => same(
                &counts.words().iter().map(|word| word.load(Ordering::Acquire)).collect::<Vec<_>>(),
                mine,
            ),
            Counting::Active(_) | Counting::KeyValue { .. } => same(&self.counts, mine),
        }
    }
}

fn same(counted: &[u64], expected: &[u64]) -> Result<()> {
    ensure!(
        counted == expected,
        "{expected:?} accesses were made to the pages, and {counted:?} were counted"
    );
    Ok(())
}

fn key_value(node: &Node) -> Result<Counting> {
    let inbox = Arc::new(Inbox::make(node, 2)?);
    let tokens = node.all_gather(&inbox.export(Rights::all())?)?;
    let receiver = Receiver::open(node, inbox.clone(), &tokens)?;
    let open = |(rank, token)| -> Result<Option<Outbox>> {
        if rank == node.rank() {
            return Ok(None);
        }
        Ok(Some(Outbox::open(node, token, inbox.clone(), (rank, 2, false))?))
    };
    let outboxes = tokens.iter().enumerate().map(open).collect::<Result<_>>()?;
    Ok(Counting::KeyValue { receiver, outboxes })
}

/// Does in the store of this process what others ask for: the value is set, and the access is counted.
fn serve(receiver: &mut Receiver, data: &Region<u64, Atomic>, counts: &mut [u64], waits: bool) -> Result<()> {
    let handled = receiver.handle(|from, words| {
        let [word, value] = words else { anyhow::bail!("a message of process {from} is no access") };
        let word = word.load(Ordering::Relaxed) as usize;
        let place =
            data.words().get(word).with_context(|| format!("process {from} accesses the word {word}"))?;
        place.store(value.load(Ordering::Relaxed), Ordering::Release);
        counts[word / PAGE] += 1;
        Ok(())
    })?;
    if waits && handled == 0 {
        std::thread::yield_now();
    }
    Ok(())
}
