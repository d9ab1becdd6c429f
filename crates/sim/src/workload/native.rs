//! Native connections: what is under way on them, and what their memory must hold. `natives.rs` plays them.

use super::natives::logged::LoggedRegion;
use super::party::NATIVE;
use pagewire::Tag;
use pagewire::tables::{NodeAddress, Opening, Releases, WriteTable};
use pagewire_fabric::Fabric;
use pagewire_nic::{CompletionQueue, MemoryRegion, QueuePair};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// The sides of a native connection.
pub const CALLER: usize = 0;
pub const OWNER: usize = 1;
/// Requests that receives have from here on.
pub const RECEIVES: u64 = 1 << 63;

/// What a request of the caller or of the owner belongs to.
#[derive(Debug, Clone, Copy)]
pub enum Of {
    /// A part of a transfer, and whether it is the last.
    Transfer {
        id: u64,
        is_last: bool,
    },
    /// The bytes of a conditional write, and what tells their end.
    Write {
        serial: u64,
        is_last: bool,
    },
    Message,
}

/// A native connection.
pub struct NativeConnection<F: Fabric> {
    /// Caller and owner.
    pub parties: [usize; 2],
    /// The number of its memory among the native ones of each.
    pub places: [usize; 2],
    /// `None`: a party is dead, or was when it was to be made.
    pub link: Option<NativeLink<F>>,
    pub slots: [UsedSlots; 2],
    /// What each slot of the owner must hold, unless an operation changes it now.
    pub shadow: Vec<Vec<u8>>,
    pub requests: [HashMap<u64, Of>; 2],
    pub transfers: HashMap<u64, NativeTransfer>,
    pub conditional: Conditional<F>,
    /// A second region on the owner's memory, whose accesses are logged.
    pub logged: Option<LoggedRegion<F>>,
    pub next: u64,
}

impl<F: Fabric> NativeConnection<F> {
    pub fn new(parties: [usize; 2], places: [usize; 2]) -> Self {
        NativeConnection {
            parties,
            places,
            link: None,
            slots: [UsedSlots::default(), UsedSlots::default()],
            shadow: vec![Vec::new(); SLOTS],
            requests: [HashMap::new(), HashMap::new()],
            transfers: HashMap::new(),
            conditional: Conditional::new(parties),
            logged: None,
            next: 1,
        }
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        let is_quiet = self.requests.iter().all(HashMap::is_empty);
        self.link.is_none() || is_quiet && self.transfers.is_empty() && self.conditional.is_idle()
    }

    /// When a held write runs out next.
    pub fn next_deadline(&self) -> Option<u64> {
        self.conditional.next_deadline().map(|time| time.as_nanos() as u64)
    }

    /// What is under way, for a violation.
    pub fn describe(&self) -> String {
        let requests = self.requests.each_ref().map(HashMap::len);
        let (transfers, conditional) = (self.transfers.len(), self.conditional.describe());
        format!("native {:?}: requests {requests:?}, {transfers} transfers, {conditional}", self.parties)
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Operations of a side that have memory at a time.
pub const SLOTS: usize = 8;
/// Bytes of a slot: those of operations, a gap, a word (a signal, or what an atomic found), a gap.
pub const SLOT: u64 = 1024;
pub const DATA: u64 = 1000;
pub const WORD: u64 = 1008;
/// Receives for messages, behind the slots, and bytes of each.
pub const MESSAGES: u64 = 48;
pub const MESSAGE: u64 = 128;
/// The first receive, in the memory of a side.
pub const FIRST: u64 = SLOTS as u64 * SLOT;

const _: () = assert!(FIRST + MESSAGES * MESSAGE <= NATIVE);

/// Which slots are in use.
#[derive(Default)]
pub struct UsedSlots([bool; SLOTS]);

impl UsedSlots {
    /// Takes one that is free.
    pub fn take(&mut self, random: &mut fastrand::Rng) -> Option<usize> {
        let free = self.free();
        let slot = random.choice(free)?;
        self.0[slot] = true;
        Some(slot)
    }

    pub fn give_back(&mut self, slot: usize) {
        self.0[slot] = false;
    }

    pub fn free(&self) -> Vec<usize> {
        (0..SLOTS).filter(|slot| !self.0[*slot]).collect()
    }
}

/// One side.
pub struct NativeSide<F: Fabric> {
    pub party: usize,
    pub queue_pair: Arc<QueuePair<F>>,
    pub queue: Arc<CompletionQueue<F>>,
    pub address: u64,
    pub key: u32,
}

/// Both sides, while both parties live.
pub struct NativeLink<F: Fabric> {
    pub sides: [NativeSide<F>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TransferKind {
    Put,
    Get,
    /// A put, and a word behind it that is set to this or has 1 added.
    Set(u64),
    Add,
}

/// A transfer under way.
pub struct NativeTransfer {
    pub kind: TransferKind,
    /// The slots of caller and owner.
    pub slots: [usize; 2],
    pub offset: u64,
    /// What is put, or must be got.
    pub bytes: Vec<u8>,
    /// The word of the owner's slot before and behind it.
    pub word: [u64; 2],
    /// The owner has seen the signal.
    pub is_seen: bool,
    /// By the key of the logged region.
    pub is_logged: bool,
    /// Its bytes go by a key that no region has, or to a page that refuses.
    pub is_refused: bool,
    /// The first of its requests has ended, refused.
    pub failed: bool,
}

impl NativeTransfer {
    /// What the slot of the owner holds at its end.
    pub fn result(&self, before: &[u8]) -> Vec<u8> {
        let mut slot = before.to_vec();
        if self.kind != TransferKind::Get {
            let offset = self.offset as usize;
            slot[offset..offset + self.bytes.len()].copy_from_slice(&self.bytes);
        }
        slot[WORD as usize..WORD as usize + 8].copy_from_slice(&self.word[1].to_ne_bytes());
        slot
    }
}

/// Both sides of the conditional writes of a connection.
pub struct Conditional<F: Fabric> {
    pub writer: WriteCaller,
    pub owner: WriteOwner<F>,
    /// What became of writes: those that were posted, by the number of their release, and those that ended without.
    pub posted: HashMap<u32, u64>,
    pub withdrawn: HashSet<u64>,
    pub nodes: [NodeAddress; 2],
}

/// The caller's side.
#[derive(Default)]
pub struct WriteCaller {
    pub table: WriteTable<u64>,
    /// Writes without an end, by their serial.
    pub open: HashMap<u64, Write>,
    pub serial: u64,
}

#[derive(Clone, Copy)]
pub struct Write {
    pub tag: Tag,
    pub slot: usize,
    pub length: u64,
    pub deadline: Duration,
    pub is_posted: bool,
}

/// The owner's side.
pub struct WriteOwner<F: Fabric> {
    pub table: Releases<u64>,
    /// Releases without an end, by a number of their own.
    pub open: HashMap<u64, Permit<F>>,
    /// Openings that the program has taken.
    pub taken: Vec<Opening>,
}

pub struct Permit<F: Fabric> {
    pub tag: Tag,
    pub slot: usize,
    pub region: Arc<MemoryRegion<F>>,
    /// It names no opening.
    pub is_blind: bool,
}

impl<F: Fabric> Conditional<F> {
    pub fn new(parties: [usize; 2]) -> Self {
        let node = |party: usize| NodeAddress {
            address: Ipv4Addr::LOCALHOST.into(),
            port: party as u16,
            nonce: party as u64,
        };
        Conditional {
            writer: WriteCaller::default(),
            owner: WriteOwner { table: Releases::default(), open: HashMap::new(), taken: Vec::new() },
            posted: HashMap::new(),
            withdrawn: HashSet::new(),
            nodes: parties.map(node),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.writer.open.is_empty() && self.owner.open.is_empty()
    }

    /// When a held write runs out.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.writer.open.values().filter(|write| !write.is_posted).map(|write| write.deadline).min()
    }

    pub fn describe(&self) -> String {
        format!("{} writes and {} releases without an end", self.writer.open.len(), self.owner.open.len())
    }

    pub fn holds(&self, tag: Tag) -> bool {
        self.writer.open.values().any(|write| write.tag == tag && !write.is_posted)
    }
}
