//! The side that receives the data of conditional writes: what peers have opened, and what was released to them (FRRWP-2).
//!
//! Sans-I/O, as [`writes`](super::writes). `R` is a release whose end somebody may wait for.

use crate::conditional::tag::{Direction, Key, Tag};
use crate::limits::{MAX_OPENED, MAX_RELEASES, RELEASE_PATIENCE};
use crate::regions::token::{NodeAddress, Token};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What a peer has opened, and nobody has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    pub peer: NodeAddress,
    pub tag: Tag,
    pub serial: u64,
    pub length: u64,
    pub direction: Direction,
}

/// What a node has released, and what waits to be.
pub struct Releases<R> {
    opened: VecDeque<Opening>,
    /// Openings that the program has taken, and not answered yet.
    taken: Vec<Opening>,
    /// Releases to whichever peer opens a write with the tag, oldest first.
    unmatched: VecDeque<Unmatched<R>>,
    sent: HashMap<u32, Sent<R>>,
    /// Those of them that were sent before their write was opened.
    blind: HashMap<Key, u32>,
    /// The newest opening of each peer.
    seen: HashMap<NodeAddress, u64>,
    /// When one that was sent may end by itself next.
    due: Option<Duration>,
    next: u32,
}

struct Unmatched<R> {
    tag: Tag,
    token: Token,
    deadline: Duration,
    release: R,
}

struct Sent<R> {
    peer: NodeAddress,
    tag: Tag,
    /// Bytes that may be written.
    length: u64,
    /// When it ends by itself: where its end may have been lost with a connection, or no write may come.
    deadline: Option<Duration>,
    release: R,
}

/// Why nothing is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReleased {
    /// A release of this tag to this peer is under way, and its write was not opened yet.
    TagInUse,
    /// The write has ended meanwhile.
    Withdrawn,
    Full,
}

/// A release that goes out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    pub peer: NodeAddress,
    pub tag: Tag,
    pub serial: Option<u64>,
    /// The newest opening of the peer that was read.
    pub seen: u64,
    pub number: u32,
    pub token: Token,
}

/// What becomes of an opening.
#[derive(Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// A release was waiting for it.
    Released(Outgoing),
    /// It waits for the program.
    Queued,
    /// It was released before it came.
    Known,
    /// There is no space for it.
    Full,
}

impl<R> Default for Releases<R> {
    fn default() -> Self {
        let (opened, taken, unmatched) = (VecDeque::new(), Vec::new(), VecDeque::new());
        let (sent, blind, seen) = (HashMap::new(), HashMap::new(), HashMap::new());
        Releases { opened, taken, unmatched, sent, blind, seen, due: None, next: 0 }
    }
}

impl<R> Releases<R> {
    /// A peer has opened something.
    pub fn open(&mut self, opening: Opening) -> OpenOutcome {
        self.seen.insert(opening.peer, opening.serial);
        if opening.direction == Direction::Write {
            if self.blind.remove(&(opening.peer, opening.tag)).is_some() {
                return OpenOutcome::Known;
            }
            if let Some(first) = self.unmatched.iter().position(|unmatched| unmatched.tag == opening.tag) {
                if let Some(Unmatched { tag, token, release, .. }) = self.unmatched.remove(first) {
                    let to = (opening.peer, tag);
                    return OpenOutcome::Released(self.send(to, Some(opening.serial), token, release));
                }
            }
        }
        if self.opened.len() + self.taken.len() >= MAX_OPENED {
            return OpenOutcome::Full;
        }
        self.opened.push_back(opening);
        OpenOutcome::Queued
    }

    /// The oldest opening that the program has not taken.
    pub fn take(&mut self) -> Option<Opening> {
        let opening = self.opened.pop_front()?;
        self.taken.push(opening);
        Some(opening)
    }

    /// Ends an opening: it is answered, or will not be.
    pub fn close(&mut self, peer: &NodeAddress, serial: u64) {
        self.remove_opening(|opening| opening.peer == *peer && opening.serial == serial);
    }

    fn remove_opening(&mut self, is_meant: impl Fn(&Opening) -> bool) -> Option<Opening> {
        if let Some(at) = self.opened.iter().position(&is_meant) {
            return self.opened.remove(at);
        }
        self.taken.iter().position(&is_meant).map(|at| self.taken.swap_remove(at))
    }

    /// Releases a write of one peer, at this time.
    pub fn release(
        &mut self,
        peer: NodeAddress,
        tag: Tag,
        token: Token,
        (release, now): (R, Duration),
    ) -> Result<Outgoing, (NotReleased, R)> {
        if self.is_full() {
            return Err((NotReleased::Full, release));
        }
        let is_meant = |opening: &Opening| {
            (opening.peer, opening.tag, opening.direction) == (peer, tag, Direction::Write)
        };
        let serial = self.remove_opening(is_meant).map(|opening| opening.serial);
        if serial.is_none() && self.blind.contains_key(&(peer, tag)) {
            return Err((NotReleased::TagInUse, release));
        }
        let outgoing = self.send((peer, tag), serial, token, release);
        if serial.is_none() {
            self.blind.insert((peer, tag), outgoing.number);
            // The peer keeps it for so long, and its answer takes a while.
            self.end_by(outgoing.number, now + 2 * RELEASE_PATIENCE);
        }
        Ok(outgoing)
    }

    /// Releases a write that a peer has opened, and no other one of its tag.
    pub fn release_opening(
        &mut self,
        opening: &Opening,
        token: Token,
        release: R,
    ) -> Result<Outgoing, (NotReleased, R)> {
        if self.is_full() {
            return Err((NotReleased::Full, release));
        }
        let is_meant = |other: &Opening| (other.peer, other.serial) == (opening.peer, opening.serial);
        match self.remove_opening(is_meant) {
            Some(Opening { peer, tag, serial, .. }) => {
                Ok(self.send((peer, tag), Some(serial), token, release))
            }
            None => Err((NotReleased::Withdrawn, release)),
        }
    }

    /// Releases a write of whichever peer has opened one with the tag, or will, at this time.
    pub fn release_any(
        &mut self,
        tag: Tag,
        token: Token,
        (release, now): (R, Duration),
    ) -> Result<Option<Outgoing>, (NotReleased, R)> {
        let is_meant = |opening: &&Opening| opening.tag == tag && opening.direction == Direction::Write;
        if let Some(opening) = self.opened.iter().chain(&self.taken).find(is_meant).copied() {
            return self.release_opening(&opening, token, release).map(Some);
        }
        if self.is_full() {
            return Err((NotReleased::Full, release));
        }
        self.unmatched.push_back(Unmatched { tag, token, deadline: now + RELEASE_PATIENCE, release });
        Ok(None)
    }

    fn send(&mut self, (peer, tag): Key, serial: Option<u64>, token: Token, release: R) -> Outgoing {
        let number = self.number();
        self.sent.insert(number, Sent { peer, tag, length: token.length, deadline: None, release });
        let seen = self.seen.get(&peer).copied().unwrap_or_default();
        Outgoing { peer, tag, serial, seen, number, token }
    }

    fn end_by(&mut self, number: u32, deadline: Duration) {
        if let Some(sent) = self.sent.get_mut(&number) {
            sent.deadline.get_or_insert(deadline);
            self.due = Some(self.due.map_or(deadline, |due| due.min(deadline)));
        }
    }

    /// Bytes that a release permits to be written.
    pub fn length_of(&self, number: u32) -> u64 {
        self.sent.get(&number).map_or(0, |sent| sent.length)
    }

    /// Whether something is released to a peer.
    pub fn holds(&self, peer: &NodeAddress) -> bool {
        self.sent.values().any(|sent| sent.peer == *peer)
    }

    /// A release of this number has ended: takes it out.
    pub fn end(&mut self, peer: &NodeAddress, number: u32) -> Option<R> {
        let is_meant = self.sent.get(&number).is_some_and(|sent| sent.peer == *peer);
        if is_meant { self.remove_sent(number) } else { None }
    }

    fn remove_sent(&mut self, number: u32) -> Option<R> {
        let Sent { peer, tag, release, .. } = self.sent.remove(&number)?;
        if self.blind.get(&(peer, tag)) == Some(&number) {
            self.blind.remove(&(peer, tag));
        }
        Some(release)
    }

    /// A peer has left. What it has opened stays: it may come again. What it has not ended by then ends by itself.
    pub fn forget(&mut self, peer: &NodeAddress, now: Duration) {
        self.seen.remove(peer);
        let numbers: Vec<u32> =
            self.sent.iter().filter(|(_, sent)| sent.peer == *peer).map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.end_by(number, now + RELEASE_PATIENCE));
    }

    /// Takes out releases that no write came for.
    pub fn expire(&mut self, now: Duration) -> Vec<R> {
        // The oldest stand first, and all have the same patience.
        let late = self.unmatched.iter().take_while(|unmatched| unmatched.deadline <= now).count();
        let mut ended: Vec<R> = self.unmatched.drain(..late).map(|unmatched| unmatched.release).collect();
        if self.due.is_some_and(|due| due <= now) {
            let is_late = |sent: &Sent<R>| sent.deadline.is_some_and(|deadline| deadline <= now);
            let numbers: Vec<u32> =
                self.sent.iter().filter(|(_, sent)| is_late(sent)).map(|(number, _)| *number).collect();
            ended.extend(numbers.into_iter().filter_map(|number| self.remove_sent(number)));
            self.due = self.sent.values().filter_map(|sent| sent.deadline).min();
        }
        ended
    }

    /// A peer is lost: takes out what was released to it.
    pub fn lose(&mut self, peer: &NodeAddress) -> Vec<R> {
        self.opened.retain(|opening| opening.peer != *peer);
        self.taken.retain(|opening| opening.peer != *peer);
        let numbers: Vec<u32> =
            self.sent.iter().filter(|(_, sent)| sent.peer == *peer).map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.remove_sent(number)).collect()
    }

    /// Takes out all releases.
    pub fn drain(&mut self) -> Vec<R> {
        self.blind.clear();
        let sent = self.sent.drain().map(|(_, sent)| sent.release);
        sent.chain(self.unmatched.drain(..).map(|unmatched| unmatched.release)).collect()
    }

    /// When something runs out next.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.unmatched.front().map(|unmatched| unmatched.deadline).into_iter().chain(self.due).min()
    }

    /// Whether peers have opened what the program has not taken.
    pub fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    fn is_full(&self) -> bool {
        self.sent.len() + self.unmatched.len() >= MAX_RELEASES
    }

    /// A number that no release has.
    fn number(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.sent.contains_key(&self.next) {
                return self.next;
            }
        }
    }
}
