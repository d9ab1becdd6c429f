//! An access of a peer, as a handler gets it.

use pagewire::access_log::{LoggedOperation, RecordFlags, RecordHeader};
use zerocopy::FromBytes;

/// An access of a peer, or a part of one: a long access is several records with the same [`message`](Self::message).
#[derive(Debug, Clone, Copy)]
pub struct Access<'d> {
    header: RecordHeader,
    data: &'d [u8],
}

impl<'d> Access<'d> {
    /// What a record says, as a handler gets it.
    pub fn of_record(header: RecordHeader, data: &'d [u8]) -> Self {
        Access { header, data }
    }

    /// What it does.
    pub fn operation(&self) -> LoggedOperation {
        self.header.operation
    }

    /// Who accesses: a number that no other source of the log has at the same time.
    pub fn source(&self) -> u64 {
        self.header.source
    }

    /// The message that it is part of: the same number for its records, and another one for the next message of the source.
    pub fn message(&self) -> u32 {
        self.header.sequence
    }

    /// First byte, in the address space of this process: see [`Region::address`](pagewire::Region::address).
    pub fn address(&self) -> u64 {
        self.header.address
    }

    /// Bytes that were accessed.
    pub fn length(&self) -> usize {
        self.header.length as usize
    }

    /// Which bytes they are of a region that begins at `address`. `None`: the access lies before it.
    pub fn offset_from(&self, address: u64) -> Option<u64> {
        self.header.address.checked_sub(address)
    }

    /// The key of the token by which it was made.
    pub fn key(&self) -> u32 {
        self.header.key
    }

    /// The user domain of the pages.
    pub fn user_domain(&self) -> u16 {
        self.header.user_domain
    }

    /// When it began, in nanoseconds of the clock CLOCK_MONOTONIC.
    pub fn stamp(&self) -> u64 {
        self.header.stamp
    }

    /// What was written or returned, where data are logged. Of an atomic: its operands, 8 bytes each (the value to add; or what to compare
    /// with, then what to put in its place).
    pub fn bytes(&self) -> &'d [u8] {
        self.data
    }

    /// The first bytes as a value. `None`: there are fewer.
    pub fn value<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.data).ok().map(|(value, _)| value)
    }

    fn has(&self, flag: RecordFlags) -> bool {
        self.header.flags.contains(flag)
    }

    /// The message begins with it.
    pub fn is_first(&self) -> bool {
        self.has(RecordFlags::FIRST)
    }

    /// The message ends with it.
    pub fn is_last(&self) -> bool {
        self.has(RecordFlags::LAST)
    }

    /// The caller got an error, and nothing moved.
    pub fn was_refused(&self) -> bool {
        self.has(RecordFlags::REFUSED)
    }

    /// Its bytes are here, and not in memory.
    pub fn was_redirected(&self) -> bool {
        self.has(RecordFlags::REDIRECTED)
    }

    /// Nobody knows whether it was made: its source has died in its midst, or takes too long.
    pub fn may_have_written(&self) -> bool {
        self.has(RecordFlags::MAY_HAVE_WRITTEN)
    }

    /// A get that was logged before. Its answer was lost or late, so it was executed once more, and these are the bytes of the new answer.
    pub fn was_repeated(&self) -> bool {
        self.has(RecordFlags::REPEATED)
    }
}
