//! Records of accesses, and their words.

use crate::AccessKind;

/// Words of a record without its data.
pub const HEADER_WORDS: u64 = 6;

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LoggedOperation {
    Write = 1,
    Read = 2,
    FetchAdd = 3,
    CompareSwap = 4,
}

impl LoggedOperation {
    /// What its pages' attributes see it as.
    pub fn kind(self) -> AccessKind {
        match self {
            LoggedOperation::Write => AccessKind::Write,
            LoggedOperation::Read => AccessKind::Read,
            LoggedOperation::FetchAdd | LoggedOperation::CompareSwap => AccessKind::Atomic,
        }
    }
}

bitflags::bitflags! {
    /// What else there is to say of an access.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RecordFlags: u8 {
        /// The message begins with this record.
        const FIRST = 1;
        /// The message ends with this record.
        const LAST = 1 << 1;
        /// The access was refused.
        const REFUSED = 1 << 2;
        /// Its bytes are here and did not reach memory.
        const REDIRECTED = 1 << 3;
        /// Nobody knows whether it was made: its source has died, or takes too long.
        const MAY_HAVE_WRITTEN = 1 << 4;
        /// A READ that was logged before: its answer was lost, and the peer has asked again.
        const REPEATED = 1 << 5;
    }
}

/// A record without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    pub operation: LoggedOperation,
    pub flags: RecordFlags,
    pub user_domain: u16,
    /// Who made the access: the number of its queue pair at the owner.
    pub source: u64,
    /// Key of the region that it named.
    pub key: u32,
    /// One number for all records of a message.
    pub sequence: u32,
    /// First byte, in the owner's address space.
    pub address: u64,
    /// Bytes that were accessed.
    pub length: u32,
    /// When it was reserved.
    pub stamp: u64,
}

impl RecordHeader {
    pub(super) fn words(&self, data: usize) -> [u64; HEADER_WORDS as usize] {
        let what = u64::from(self.operation as u8) << 32 | u64::from(self.flags.bits()) << 40;
        [
            data as u64 | what | u64::from(self.user_domain) << 48,
            self.source,
            u64::from(self.key) | u64::from(self.sequence) << 32,
            self.address,
            u64::from(self.length),
            self.stamp,
        ]
    }

    /// `None`: these words are no record.
    pub(super) fn parse(words: [u64; HEADER_WORDS as usize]) -> Option<(RecordHeader, u32)> {
        let [what, source, named, address, length, stamp] = words;
        let operation = match (what >> 32) as u8 {
            1 => LoggedOperation::Write,
            2 => LoggedOperation::Read,
            3 => LoggedOperation::FetchAdd,
            4 => LoggedOperation::CompareSwap,
            _ => return None,
        };
        let header = RecordHeader {
            operation,
            flags: RecordFlags::from_bits((what >> 40) as u8)?,
            user_domain: (what >> 48) as u16,
            source,
            key: named as u32,
            sequence: (named >> 32) as u32,
            address,
            length: u32::try_from(length).ok()?,
            stamp,
        };
        Some((header, what as u32))
    }
}

/// Words that a record with so many bytes of data takes.
pub fn record_words(data: usize) -> u64 {
    HEADER_WORDS + data.div_ceil(8) as u64
}
