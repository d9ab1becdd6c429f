//! Active messages: each process has a ring of slots for each other one, who puts a message there. The last word of a slot is written last, and has the
//! message's number and its count of words. The owner acknowledges by a put of how many it has handled.

use anyhow::{Result, ensure};
use pagewire::{Atomic, Node, Operation, Region, RemoteRegion, Rights, Token};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots of a ring.
const SLOTS: usize = 64;
/// Keys of a message of a hash table at most.
pub(super) const MOST_KEYS: usize = 63;
/// Bits of a slot's last word that are the count of words.
const COUNT_BITS: u32 = 12;

/// Mixes the bits of a key (SplitMix64): the volume takes the cell from the upper ones.
pub(in crate::native) fn mix(key: u64) -> u64 {
    let mixed = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// Words that came together, before the last word of their slot.
type Words<'s> = &'s [AtomicU64];

/// What this process receives: how many of its messages others have handled, how many messages have come (where that wakes somebody), and the rings,
/// each by rank.
pub(in crate::native) struct Inbox {
    region: Region<u64, Atomic>,
    /// Words of a slot.
    slot: usize,
    processes: usize,
    rank: usize,
}

impl Inbox {
    /// For messages of so many words at most; all processes say the same.
    pub fn make(node: &Node, most_words: usize) -> Result<Inbox> {
        ensure!(most_words < 1 << COUNT_BITS, "a message of {most_words} words is too long");
        let (processes, slot) = (node.size(), most_words + 1);
        let region = node.words(processes + 1 + processes * SLOTS * slot)?;
        Ok(Inbox { region, slot, processes, rank: node.rank() })
    }

    pub fn export(&self, rights: Rights) -> Result<Token> {
        Ok(self.region.export(rights)?)
    }

    /// The word that has how many messages of this process another one has handled.
    fn handled(&self, by: usize) -> u64 {
        self.region.words()[by].load(Ordering::Acquire)
    }

    /// Waits until more messages have come than `known`, or for a moment; gives how many.
    pub fn wait(&self, known: u64) -> Result<u64> {
        let signal = self.region.signal(self.processes)?;
        let patience = std::time::Duration::from_millis(20);
        Ok(signal.wait_until_within(patience, |count| count > known).unwrap_or_else(|_| signal.value()))
    }

    fn slot(&self, from: usize, number: u64) -> usize {
        self.processes + 1 + (from * SLOTS + number as usize % SLOTS) * self.slot
    }

    /// Hands over the words of the message with a number of one process. False: it has not come.
    fn take(
        &self,
        from: usize,
        number: u64,
        handle: &mut impl FnMut(usize, Words) -> Result<()>,
    ) -> Result<bool> {
        let (words, most) = (&self.region.words()[self.slot(from, number)..], self.slot - 1);
        let last = words[most].load(Ordering::Acquire);
        if last >> COUNT_BITS != number + 1 {
            return Ok(false);
        }
        let count = (last & ((1 << COUNT_BITS) - 1)) as usize;
        ensure!((1..=most).contains(&count), "a message of process {from} has {count} words");
        handle(from, &words[most - count..most])?;
        Ok(true)
    }
}

/// What handles the messages of all others.
pub(in crate::native) struct Receiver {
    inbox: Arc<Inbox>,
    /// Of each other process: its rank, how many messages were handled, and where it learns of that.
    sources: Vec<(usize, u64, RemoteRegion)>,
    acknowledgements: VecDeque<Operation<Vec<u64>>>,
}

impl Receiver {
    /// `tokens`: the inboxes of all.
    pub fn open(node: &Node, inbox: Arc<Inbox>, tokens: &[Token]) -> Result<Receiver> {
        let others = tokens.iter().enumerate().filter(|(rank, _)| *rank != inbox.rank);
        let sources = others.map(|(rank, token)| Ok((rank, 0, node.open(token)?))).collect::<Result<_>>()?;
        Ok(Receiver { inbox, sources, acknowledgements: VecDeque::new() })
    }

    /// Handles all messages that are there, each with the rank of its process, and acknowledges those of each process together; gives how many.
    pub fn handle(&mut self, mut handle: impl FnMut(usize, Words) -> Result<()>) -> Result<u64> {
        let mut all = 0;
        for (from, number, remote) in &mut self.sources {
            let before = *number;
            while self.inbox.take(*from, *number, &mut handle)? {
                *number += 1;
            }
            if *number > before {
                all += *number - before;
                let place = 8 * self.inbox.rank as u64;
                self.acknowledgements.push_back(remote.put(place, vec![*number]));
            }
        }
        while self.acknowledgements.front().is_some_and(Operation::is_done) {
            if let Some(put) = self.acknowledgements.pop_front() {
                put.wait()?;
            }
        }
        Ok(all)
    }
}

/// The way to the ring of another process.
pub(in crate::native) struct Outbox {
    inbox: Arc<Inbox>,
    remote: RemoteRegion,
    /// Whose ring it is.
    rank: usize,
    /// From so many words on a message leaves.
    words: usize,
    has_events: bool,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    sent: u64,
    gathered: Vec<u64>,
    in_flight: VecDeque<Operation<Vec<u64>>>,
}

impl Outbox {
    /// `inbox`: where this process learns what was handled.
    pub fn open(
        node: &Node,
        token: &Token,
        inbox: Arc<Inbox>,
        (rank, words, has_events): (usize, usize, bool),
    ) -> Result<Outbox> {
        Ok(Outbox { inbox, remote: node.open(token)?, rank, words, has_events, state: RefCell::default() })
    }

    /// Sends words, or gathers them until there are enough for a message. `idle`: what is done while the ring is full.
    pub fn send(&self, words: &[u64], idle: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        ensure!(
            state.gathered.len() + words.len() < self.inbox.slot,
            "{} words are too many for a message",
            words.len()
        );
        state.gathered.extend(words);
        if state.gathered.len() < self.words {
            return Ok(());
        }
        self.send_gathered(&mut state, idle)
    }

    fn send_gathered(&self, state: &mut State, idle: &dyn Fn() -> Result<()>) -> Result<()> {
        while state.sent - self.inbox.handled(self.rank) >= SLOTS as u64 {
            idle()?;
        }
        while state.in_flight.front().is_some_and(Operation::is_done) {
            if let Some(put) = state.in_flight.pop_front() {
                put.wait()?;
            }
        }
        let mut message = std::mem::take(&mut state.gathered);
        let count = message.len();
        message.push((state.sent + 1) << COUNT_BITS | count as u64);
        // The ring is laid out alike everywhere; the message ends where the slot does.
        let end = self.inbox.slot(self.inbox.rank, state.sent) + self.inbox.slot;
        let place = 8 * (end - message.len()) as u64;
        let put = if self.has_events {
            let signal = self.remote.signal(8 * self.inbox.processes as u64).add(1);
            self.remote.put_signal(place, message, signal)
        } else {
            self.remote.put(place, message)
        };
        state.sent += 1;
        state.in_flight.push_back(put);
        Ok(())
    }

    /// Sends what is gathered, and waits until all messages are handled.
    pub fn flush(&self, idle: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if !state.gathered.is_empty() {
            self.send_gathered(&mut state, idle)?;
        }
        while self.inbox.handled(self.rank) < state.sent {
            idle()?;
        }
        for put in std::mem::take(&mut state.in_flight) {
            put.wait()?;
        }
        Ok(())
    }
}
