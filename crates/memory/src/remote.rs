//! Another process's memory, as transfers see it.

use crate::{ApplicationMemory, AtomicOperation, LastSeen, MemoryError, Segment, Unreached};
use std::sync::atomic::AtomicU64;

/// What is copied to another process.
#[derive(Debug, Clone, Copy)]
pub enum CopySource<'a> {
    /// Memory of the application.
    Segments(&'a [Segment]),
    /// Bytes of the engine itself.
    Bytes(&'a [u8]),
}

/// Another process's memory. Copies and atomics only: the caller has checked the access, claimed it and checked again. Nothing here raises a
/// signal. Where `tail_last` is set the final 8 bytes become visible after all others.
pub trait RemoteMemory {
    /// Whether a segment can be accessed at this moment without a wait for its pages; see [`ApplicationMemory::reach`].
    ///
    /// # Errors
    /// [`Unreached`].
    fn reach(&self, there: Segment, moment: u64, seen: &mut LastSeen) -> Result<(), Unreached>;

    /// Copies to the other process.
    ///
    /// # Errors
    /// `NotMapped` and `PeerGone`.
    fn put(&self, from: CopySource<'_>, there: &[Segment], tail_last: bool) -> Result<(), MemoryError>;

    /// Copies from the other process into memory of the application.
    ///
    /// # Errors
    /// [`MemoryError`].
    fn get(&self, there: &[Segment], into: &[Segment], tail_last: bool) -> Result<(), MemoryError>;

    /// Copies from the other process into bytes of the engine.
    ///
    /// # Errors
    /// [`MemoryError`].
    fn get_bytes(&self, there: &[Segment], into: &mut [u8]) -> Result<(), MemoryError>;

    /// Runs an atomic on 8 aligned bytes of the other process, and gives what was there.
    ///
    /// # Errors
    /// `NotMapped`: that cannot be done from here, and was not.
    fn atomic(&self, there: Segment, operation: AtomicOperation) -> Result<u64, MemoryError>;

    /// Whether [`atomic`](Self::atomic) can be done there.
    fn takes_atomics(&self, there: Segment) -> bool;

    /// The words of a segment of the other process that is mapped here, whose address and length are multiples of 8. `None`: it is not, or is not mapped.
    fn words(&self, there: Segment) -> Option<&[AtomicU64]>;

    /// Whether copies may meet absent pages, of this process and of the other one.
    fn may_fault(&self) -> bool;
}

/// The memory of a process that is reached by cross-memory attach (process_vm_readv(2)).
pub struct CrossMemory<'m, M: ApplicationMemory> {
    pub memory: &'m M,
    pub process: &'m M::RemoteProcess,
}

impl<M: ApplicationMemory> RemoteMemory for CrossMemory<'_, M> {
    #[inline(always)] // Part of each transfer that the requester executes itself, as the others.
    fn reach(&self, there: Segment, moment: u64, seen: &mut LastSeen) -> Result<(), Unreached> {
        self.memory.reach(self.process, there, moment, seen)
    }

    #[inline(always)]
    fn put(&self, from: CopySource<'_>, there: &[Segment], tail_last: bool) -> Result<(), MemoryError> {
        match from {
            CopySource::Segments(from) => self.memory.push(self.process, from, there, tail_last),
            CopySource::Bytes(bytes) => self.memory.push_bytes(self.process, bytes, there, tail_last),
        }
    }

    #[inline(always)]
    fn get(&self, there: &[Segment], into: &[Segment], tail_last: bool) -> Result<(), MemoryError> {
        self.memory.pull(self.process, there, into, tail_last)
    }

    fn get_bytes(&self, there: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.pull_bytes(self.process, there, into)
    }

    fn atomic(&self, there: Segment, operation: AtomicOperation) -> Result<u64, MemoryError> {
        self.memory.atomic_in_mapping(self.process, there, operation)
    }

    fn takes_atomics(&self, there: Segment) -> bool {
        there.address % 8 == 0 && self.memory.is_in_mapping(self.process, there)
    }

    fn words(&self, there: Segment) -> Option<&[AtomicU64]> {
        self.memory.words_in_mapping(self.process, there)
    }

    fn may_fault(&self) -> bool {
        self.memory.kernel_may_fault() && self.memory.kernel_may_fault_in(self.process)
    }
}
