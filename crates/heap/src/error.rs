//! Why the heap refused a call.

use crate::limits::{ARENAS, EXPORTS, HEAPS, LEAST_RANGE, MOST_ALIGNMENT, MOST_RANGE, RESERVATIONS};
use std::io;

/// What failed, where, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// [`HeapOptions::range`](crate::HeapOptions) is out of bounds, or no whole number of chunks of 32 MiB.
    #[error(
        "a heap of {range} bytes: `HeapOptions::range` must be a multiple of 32 MiB from {LEAST_RANGE} to {MOST_RANGE} bytes"
    )]
    Range {
        /// Bytes asked for.
        range: usize,
    },
    /// The limit on the address space of the process is too small for the range.
    #[error(
        "RLIMIT_AS (`ulimit -v`) is {limit} bytes, too small to reserve a heap of {range} bytes: raise it, or set \
         `HeapOptions::range` to less"
    )]
    AddressSpace {
        /// Bytes of the range.
        range: usize,
        /// The soft limit in bytes.
        limit: u64,
    },
    /// The limit on the size of files is too small for the memory file behind the range.
    #[error(
        "RLIMIT_FSIZE (`ulimit -f`) is {limit} bytes, too small for the memory file of a heap of {range} bytes: raise it, or set \
         `HeapOptions::range` to less"
    )]
    FileSize {
        /// Bytes of the range.
        range: usize,
        /// The soft limit in bytes.
        limit: u64,
    },
    /// The kernel refused a system call.
    #[error("{call} for the heap failed: {error}")]
    System {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Too many heaps exist in this process.
    #[error(
        "this process has {HEAPS} heaps, or has reserved {RESERVATIONS} ranges: drop a heap, or share one by `HeapRef`"
    )]
    Heaps,
    /// The heap has no free range for the object.
    #[error(
        "the heap has no {length} free bytes aligned to {alignment}: free something, or set `HeapOptions::range` to more"
    )]
    Exhausted {
        /// Bytes asked for.
        length: usize,
        /// Alignment asked for, in bytes.
        alignment: usize,
    },
    /// The object would take the heap over its ceiling.
    #[error(
        "{length} bytes more would take the heap over its ceiling of {ceiling} bytes: free something, or set \
         `HeapOptions::ceiling` to more"
    )]
    Ceiling {
        /// Bytes asked for.
        length: usize,
        /// Bytes that may be in use.
        ceiling: usize,
    },
    /// The alignment is too large, or no power of two.
    #[error(
        "an alignment of {alignment} bytes is no power of two up to the heap's largest, {MOST_ALIGNMENT}"
    )]
    Alignment {
        /// Alignment asked for, in bytes.
        alignment: usize,
    },
    /// mimalloc takes no further arena.
    #[error(
        "mimalloc has no place for one more of {ARENAS} arenas in this process: free something, or use fewer heaps"
    )]
    Arenas,
    /// A forked child has no memory of its parent's heap.
    #[error(
        "this process was forked, and the heap stayed with its parent: make a heap here, or ask for `Heap::fork_copies` there"
    )]
    Forked,
    /// The parent had asked for a copy, and the copy failed.
    #[error(
        "this process was forked, and the copy of its parent's heap failed ({error}): free memory before the fork"
    )]
    ForkCopy {
        /// What failed.
        error: io::Error,
    },
    /// In a forked child with a copy there is no memory file that peers may map.
    #[error(
        "this process has a copy of its parent's heap, which peers cannot map: make a heap here for what they shall reach"
    )]
    Private,
    /// The range to export does not lie in the heap.
    #[error("{length} bytes at {address:#x} are not in the heap: export what the heap has allocated")]
    NotInHeap {
        /// First address.
        address: usize,
        /// Length in bytes.
        length: usize,
    },
    /// Too many ranges are exported.
    #[error("the heap has {EXPORTS} exported ranges: unexport some, or export larger ones")]
    Exports,
    /// An export was to be noted, and nobody is there to revoke its token.
    #[error("nobody revokes tokens of this heap yet: call `Heap::set_export_owner` before the first export")]
    NoExportOwner,
    /// Somebody revokes the tokens of this heap already.
    #[error("this heap has an export owner already: it can have one")]
    ExportOwner,
}

impl HeapError {
    /// The refusal of a system call: the last error of this thread.
    pub(crate) fn last_os(call: &'static str) -> Self {
        HeapError::System { call, error: io::Error::last_os_error() }
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, HeapError>;
