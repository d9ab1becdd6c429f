//! Active messages: each process has a ring of slots for each other one, who puts a message there. The last word of a slot is written last, and has the
//! message's number and its count of keys. The owner acknowledges by a put of how many it has handled.

use anyhow::{Result, ensure};
use pagewire::{Atomic, Node, Operation, Region, RemoteRegion, Rights, Token};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Slots of a ring.
const SLOTS: usize = 64;
/// Keys of a message at most.
pub(super) const MOST_KEYS: usize = 63;
/// Words of a slot.
const SLOT: usize = MOST_KEYS + 1;
const RING: usize = SLOTS * SLOT;
/// Bits of a slot's last word that are the count of keys.
const COUNT_BITS: u32 = 8;

/// Mixes the bits of a key (SplitMix64): the volume takes the cell from the upper ones.
pub(super) fn mix(key: u64) -> u64 {
    let mixed = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// What this process receives: how many of its messages others have handled, how many messages have come (where that wakes somebody), and the rings,
/// each by rank.
pub(super) struct Inbox {
    region: Region<u64, Atomic>,
    processes: usize,
    rank: usize,
}

impl Inbox {
    pub fn make(node: &Node) -> Result<Inbox> {
        let processes = node.size();
        Ok(Inbox { region: node.words(processes + 1 + processes * RING)?, processes, rank: node.rank() })
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
        self.processes + 1 + from * RING + (number as usize % SLOTS) * SLOT
    }

    /// Hands over the keys of the message with a number of one process. False: it has not come.
    fn take(&self, from: usize, number: u64, mut handle: impl FnMut(u64) -> Result<()>) -> Result<bool> {
        let words = &self.region.words()[self.slot(from, number)..][..SLOT];
        let last = words[SLOT - 1].load(Ordering::Acquire);
        if last >> COUNT_BITS != number + 1 {
            return Ok(false);
        }
        let count = (last & ((1 << COUNT_BITS) - 1)) as usize;
        ensure!((1..=MOST_KEYS).contains(&count), "a message of process {from} has {count} keys");
        words[SLOT - 1 - count..SLOT - 1].iter().try_for_each(|word| handle(word.load(Ordering::Relaxed)))?;
        Ok(true)
    }
}

/// What handles the messages of all others.
pub(super) struct Receiver {
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

    /// Handles all messages that are there, and acknowledges those of each process together; gives how many.
    pub fn handle(&mut self, mut handle: impl FnMut(u64) -> Result<()>) -> Result<u64> {
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
pub(super) struct Outbox {
    inbox: Arc<Inbox>,
    remote: RemoteRegion,
    /// Whose ring it is.
    rank: usize,
    /// Keys of a message.
    keys: usize,
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
        (rank, keys, has_events): (usize, usize, bool),
    ) -> Result<Outbox> {
        Ok(Outbox { inbox, remote: node.open(token)?, rank, keys, has_events, state: RefCell::default() })
    }

    /// Sends a key, or gathers it until a message is full. `idle`: what is done while the ring is full.
    pub fn send(&self, key: u64, idle: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        state.gathered.push(key);
        if state.gathered.len() < self.keys {
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
        let end = self.inbox.slot(self.inbox.rank, state.sent) + SLOT;
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
