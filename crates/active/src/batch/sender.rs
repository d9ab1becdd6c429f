//! The caller's side: puts that are collected, and the messages that are under way.

use super::{Address, MAX_BATCHED};
use crate::message::kind::BATCH;
use crate::message::{MAX_WORDS, head, push_entry, words_of_entry};
use pagewire::{Error, Node, Operation, RemoteRegion, Result};
use pagewire_memory::fork::Owner;
use std::collections::VecDeque;
use zerocopy::{Immutable, IntoBytes};

/// Messages that are under way at once. One more waits for the oldest.
const WINDOW: usize = 16;

/// Collects small puts to one owner, and sends them together. A message goes when it is full, and when it is asked for.
///
/// It is for one thread. Several open the address several times.
///
/// Dropped, it sends what it has, and nobody learns whether that arrived.
pub struct Batch {
    mailbox: RemoteRegion,
    /// Bytes of the memory.
    length: u64,
    domain: u16,
    /// The head, and the puts so far.
    message: Vec<u64>,
    count: usize,
    in_flight: VecDeque<Operation<Vec<u64>>>,
    spare: Vec<Vec<u64>>,
    owner: Owner,
}

impl Batch {
    /// Opens what [`Batches::address`](super::Batches::address) gave at the owner.
    ///
    /// # Errors
    /// As those of [`Node::open`]; `System`: it is no address.
    pub fn open(node: &Node, address: &[u8]) -> Result<Batch> {
        let Address { mailbox, length, domain } = Address::from_bytes(address)?;
        Ok(Batch {
            mailbox: node.open(&mailbox)?,
            length,
            domain,
            message: vec![0],
            count: 0,
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            owner: Owner::this_process(),
        })
    }

    /// Refuses a forked child: what its parent has collected is its parent's.
    #[inline]
    fn check_owner(&self) -> Result<()> {
        if self.owner.is_this_process() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Adds a put of at most [`MAX_BATCHED`] bytes. If the message is full, it is sent first. No bytes: nothing is done.
    ///
    /// # Errors
    /// `Range`: it is not inside the memory. `Limit`: it is too long. Else as those of [`send`](Self::send). The put is not in the batch then.
    #[inline]
    pub fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_owner()?;
        let count = bytes.len() as u64;
        if offset.checked_add(count).is_none_or(|end| end > self.length) {
            return Err(Error::Range { offset, count, length: self.length });
        }
        if bytes.len() > MAX_BATCHED {
            return Err(Error::Limit {
                what: "bytes in a put of a batch (put more as an ordinary put)",
                most: MAX_BATCHED,
            });
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if self.message.len() + words_of_entry(bytes.len()) > MAX_WORDS {
            self.send()?;
        }
        push_entry(&mut self.message, offset, bytes);
        self.count += 1;
        Ok(())
    }

    /// Adds a put of a plain value.
    ///
    /// # Errors
    /// As those of [`put`](Self::put).
    #[inline]
    pub fn put_value<T: IntoBytes + Immutable>(&mut self, offset: u64, value: T) -> Result<()> {
        self.put(offset, value.as_bytes())
    }

    /// Puts that were added and not sent yet.
    pub fn unsent(&self) -> usize {
        self.count
    }

    /// Bytes of the memory that puts go to.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Sends what was added. It waits only where 16 messages are under way.
    ///
    /// # Errors
    /// `Failed`: an earlier message did not arrive, and its puts were not made, or nobody knows. What was added is sent all the same.
    pub fn send(&mut self) -> Result<()> {
        self.check_owner()?;
        let mut outcome = Ok(());
        while self.in_flight.front().is_some_and(Operation::is_done) || self.in_flight.len() >= WINDOW {
            outcome = outcome.and(self.wait_for_oldest());
        }
        self.start();
        outcome
    }

    fn start(&mut self) {
        if self.count == 0 {
            return;
        }
        let next = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(MAX_WORDS));
        let mut message = std::mem::replace(&mut self.message, next);
        message[0] = head(BATCH, self.count);
        self.message.clear();
        self.message.push(0);
        self.count = 0;
        self.in_flight.push_back(self.mailbox.put(0, message));
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        if let Some(oldest) = self.in_flight.pop_front() {
            self.spare.push(oldest.wait()?);
        }
        Ok(())
    }

    /// Sends what was added, and waits until all messages are in the owner's log: the completion `remote`. The owner's death loses them from there.
    ///
    /// # Errors
    /// `Failed`: a message did not arrive, and its puts were not made, or nobody knows.
    pub fn wait(&mut self) -> Result<()> {
        let mut outcome = self.send();
        while !self.in_flight.is_empty() {
            outcome = outcome.and(self.wait_for_oldest());
        }
        outcome
    }

    /// As [`wait`](Self::wait), and until the owner has handled all of them: the completion `handled`. What they were to write is in memory then.
    ///
    /// # Errors
    /// As those of [`wait`](Self::wait).
    pub fn flush_handled(&mut self) -> Result<()> {
        self.wait()?;
        self.mailbox.flush_handled(Some(self.domain)).wait()?;
        Ok(())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.check_owner().is_ok() {
            self.start();
        }
    }
}
