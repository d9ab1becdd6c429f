//! Writes that this node holds until their release comes (FRRWP-2), and releases that came before their write.
//!
//! Sans-I/O: whoever calls gives the time, and does what comes back. `W` is a write.

use crate::conditional::message::Release;
use crate::conditional::tag::Key;
use crate::limits::{MAX_EARLY_RELEASES, MAX_HELD_WRITES, RELEASE_PATIENCE};
use crate::regions::token::NodeAddress;
use std::collections::HashMap;
use std::time::Duration;

/// The held writes of a node. A write leaves it once: whoever takes it out says how it ends.
pub struct WriteTable<W> {
    held: HashMap<Key, WriteEntry<W>>,
    early: HashMap<Key, Early>,
    /// Writes that ended without a release, which may be on its way.
    withdrawn: HashMap<Key, Withdrawn>,
    /// When something may run out next.
    due: Option<Duration>,
}

struct Withdrawn {
    serial: u64,
    deadline: Duration,
}

struct WriteEntry<W> {
    serial: u64,
    deadline: Option<Duration>,
    write: W,
}

struct Early {
    release: Release,
    deadline: Duration,
}

/// Why a write is not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHeld {
    /// Another one with this tag is held for this peer.
    TagInUse,
    Full,
}

/// What becomes of a release.
#[derive(Debug, PartialEq, Eq)]
pub enum ReleaseArrival<W> {
    /// This write starts now.
    Start(W),
    /// It waits for its write.
    Kept,
    /// The write that it names is not held any more.
    Withdrawn,
    /// There is no space for it.
    Full,
}

/// What has run out.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired<W> {
    pub writes: Vec<(Key, W)>,
    pub releases: Vec<(NodeAddress, u32)>,
}

impl<W> Default for WriteTable<W> {
    fn default() -> Self {
        WriteTable { held: HashMap::new(), early: HashMap::new(), withdrawn: HashMap::new(), due: None }
    }
}

impl<W> WriteTable<W> {
    /// Holds a write, or gives it back with the release that is there for it.
    pub fn hold(&mut self, key: Key, serial: u64, write: W) -> Result<Option<(W, Release)>, (NotHeld, W)> {
        if self.held.contains_key(&key) {
            return Err((NotHeld::TagInUse, write));
        }
        if self.held.len() >= MAX_HELD_WRITES {
            return Err((NotHeld::Full, write));
        }
        if let Some(early) = self.early.remove(&key) {
            return Ok(Some((write, early.release)));
        }
        self.held.insert(key, WriteEntry { serial, deadline: None, write });
        Ok(None)
    }

    /// Sets when a held write ends without its release. One that is not held any more stays as it is.
    pub fn set_deadline(&mut self, key: &Key, serial: u64, deadline: Duration) {
        if let Some(held) = self.held.get_mut(key).filter(|held| held.serial == serial) {
            held.deadline = Some(deadline);
            self.note_due(deadline);
        }
    }

    /// A release has come from a peer. What has run out by now must have been taken out before.
    pub fn release(&mut self, peer: NodeAddress, release: &Release, now: Duration) -> ReleaseArrival<W> {
        let key = (peer, release.tag);
        // One that was sent before the opening of a write was read is of that write.
        let is_of = |withdrawn: &Withdrawn| release.serial.is_none() && release.seen < withdrawn.serial;
        if self.withdrawn.get(&key).is_some_and(is_of) {
            self.withdrawn.remove(&key);
            return ReleaseArrival::Withdrawn;
        }
        let is_meant = |held: &WriteEntry<W>| release.serial.is_none_or(|serial| serial == held.serial);
        if self.held.get(&key).is_some_and(is_meant) {
            if let Some(held) = self.held.remove(&key) {
                return ReleaseArrival::Start(held.write);
            }
        }
        if let Some(serial) = release.serial {
            if self.withdrawn.get(&key).is_some_and(|withdrawn| withdrawn.serial == serial) {
                self.withdrawn.remove(&key);
            }
            return ReleaseArrival::Withdrawn;
        }
        if self.early.len() >= MAX_EARLY_RELEASES || self.early.contains_key(&key) {
            return ReleaseArrival::Full;
        }
        let deadline = now + RELEASE_PATIENCE;
        self.note_due(deadline);
        self.early.insert(key, Early { release: release.clone(), deadline });
        ReleaseArrival::Kept
    }

    /// Takes a write out. `None`: it has started or ended before.
    pub fn take(&mut self, key: &Key, serial: u64, now: Duration) -> Option<W> {
        if self.held.get(key).is_none_or(|held| held.serial != serial) {
            return None;
        }
        let held = self.held.remove(key)?;
        self.note_withdrawn(*key, serial, now);
        Some(held.write)
    }

    /// The number of the held write of a key.
    pub fn serial(&self, key: &Key) -> Option<u64> {
        self.held.get(key).map(|held| held.serial)
    }

    /// Takes out the writes that are meant.
    pub fn take_where(&mut self, is_meant: impl Fn(&W) -> bool, now: Duration) -> Vec<(Key, W)> {
        let taken = take_due(&mut self.held, |held| is_meant(&held.write));
        for (key, held) in &taken {
            self.note_withdrawn(*key, held.serial, now);
        }
        taken.into_iter().map(|(key, held)| (key, held.write)).collect()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn note_withdrawn(&mut self, key: Key, serial: u64, now: Duration) {
        // Beyond the bound a release that is on its way waits for the next write of the tag.
        if self.withdrawn.len() < MAX_EARLY_RELEASES {
            let deadline = now + RELEASE_PATIENCE;
            self.note_due(deadline);
            self.withdrawn.insert(key, Withdrawn { serial, deadline });
        }
    }

    fn note_due(&mut self, deadline: Duration) {
        self.due = Some(self.due.map_or(deadline, |due| due.min(deadline)));
    }

    /// Takes out what has run out.
    pub fn expire(&mut self, now: Duration) -> Expired<W> {
        if self.due.is_none_or(|due| due > now) {
            return Expired { writes: Vec::new(), releases: Vec::new() };
        }
        self.withdrawn.retain(|_, withdrawn| withdrawn.deadline > now);
        let late = take_due(&mut self.held, |held| held.deadline.is_some_and(|deadline| deadline <= now));
        let mut writes = Vec::new();
        for (key, held) in late {
            self.note_withdrawn(key, held.serial, now);
            writes.push((key, held.write));
        }
        let late = take_due(&mut self.early, |early| early.deadline <= now);
        let releases = late.into_iter().map(|((peer, _), early)| (peer, early.release.number)).collect();
        let held = self.held.values().filter_map(|held| held.deadline);
        let early = self.early.values().map(|early| early.deadline);
        self.due = held.chain(early).chain(self.withdrawn.values().map(|withdrawn| withdrawn.deadline)).min();
        Expired { writes, releases }
    }

    /// Whether a write is held for a peer, or a release of it is kept.
    pub fn holds(&self, peer: &NodeAddress) -> bool {
        self.held.keys().chain(self.early.keys()).any(|(of, _)| of == peer)
    }

    /// A peer is lost: takes out what is held for it.
    pub fn lose(&mut self, peer: &NodeAddress) -> Vec<W> {
        // Early releases stay: they run out, and a message says so to their senders.
        self.withdrawn.retain(|(of, _), _| of != peer);
        let keys: Vec<Key> = self.held.keys().filter(|(of, _)| of == peer).copied().collect();
        keys.iter().filter_map(|key| self.held.remove(key)).map(|held| held.write).collect()
    }

    /// Takes out all writes.
    pub fn drain(&mut self) -> Vec<W> {
        self.held.drain().map(|(_, held)| held.write).collect()
    }

    /// When something may run out next.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due
    }
}

/// Takes out what is due (`HashMap::extract_if` came with Rust 1.88).
fn take_due<V>(all: &mut HashMap<Key, V>, is_due: impl Fn(&V) -> bool) -> Vec<(Key, V)> {
    let keys: Vec<Key> = all.iter().filter(|(_, value)| is_due(value)).map(|(key, _)| *key).collect();
    keys.into_iter().filter_map(|key| all.remove(&key).map(|value| (key, value))).collect()
}
