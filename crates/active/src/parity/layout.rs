//! Where what lies in the region of a parity.
//!
//! ```text
//! a page and more   status: what members and who rebuilds read
//! a page            messages: members put here what they do, which goes to the handler
//! slot 0            parity of the rounds with even numbers
//! slot 1            parity of those with odd numbers
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const PAGE: u64 = 4096;

/// Members of one parity.
pub const MEMBERS: usize = 1 << 16;

/// What makes bytes the status of a parity, and of this version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PWXOR\0\0\x02");

/// The first words of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Status {
    pub magic: u64,
    /// A random number, by which parities are told apart.
    pub group: u64,
    /// Of the log of what members put: they wait for no other handlers of the owner.
    pub domain: u64,
    pub members: u64,
    /// Bytes of a slot.
    pub bytes: u64,
    /// The last round that all members have committed.
    pub complete: u64,
    /// What each slot is being used for.
    pub slots: [Attempt; 2],
}

/// A round, and how often it was begun anew before.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Attempt {
    pub round: u64,
    pub attempt: u64,
}

/// What the owner knows of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MemberStatus {
    /// What who joins by its token has said last.
    pub challenge: u64,
    pub begun: Attempt,
    /// By slot.
    pub committed: [Commit; 2],
}

/// What a member has put in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Commit {
    pub attempt: Attempt,
    pub bytes: u64,
    /// CRC-32.
    pub checksum: u64,
}

/// What a member puts as a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Message {
    /// [`BEGIN`], [`COMMIT`], [`FENCE`] or [`CHALLENGE`].
    pub what: u64,
    pub commit: Commit,
}

pub const BEGIN: u64 = 1;
pub const COMMIT: u64 = 2;
/// The member is rebuilt: the round that is not complete begins anew, and what its predecessor put for it does not count.
pub const FENCE: u64 = 3;

/// Who joins says a random number, as the checksum: where that appears, its token is of that member.
pub const CHALLENGE: u64 = 4;

/// What begins the memory of a member's checkpoints: which member of which parity it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Held {
    pub magic: u64,
    pub group: u64,
    pub member: u64,
}

/// What makes bytes the checkpoints of a member, and of this version.
pub const HELD_MAGIC: u64 = u64::from_le_bytes(*b"PWMEM\0\0\x02");

/// A random number that is not 0.
pub fn random() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id()) | 1
}

/// Offsets of a region for so many members, with slots of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub members: usize,
    /// Of a slot: whole pages.
    pub bytes: u64,
}

impl Layout {
    pub fn new(members: usize, bytes: u64) -> Layout {
        Layout { members, bytes: bytes.max(1).next_multiple_of(PAGE) }
    }

    pub fn member(member: usize) -> u64 {
        (size_of::<Status>() + member * size_of::<MemberStatus>()) as u64
    }

    pub fn messages(&self) -> u64 {
        Layout::member(self.members).next_multiple_of(PAGE)
    }

    /// Where a member has its own checkpoint of a round.
    pub fn held(&self, round: u64) -> u64 {
        PAGE + round % 2 * self.bytes
    }

    /// Bytes of the memory of a member's checkpoints.
    pub fn held_length(&self) -> u64 {
        PAGE + 2 * self.bytes
    }

    /// The slot of a round.
    pub fn slot(&self, round: u64) -> u64 {
        self.messages() + PAGE + round % 2 * self.bytes
    }

    pub fn length(&self) -> u64 {
        self.slot(1) + self.bytes
    }
}
