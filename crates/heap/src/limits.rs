//! Bounds of this crate.

use std::time::Duration;

/// Bytes of the range that a heap reserves if nothing else is asked for.
pub const DEFAULT_RANGE: usize = 1 << 40;
/// Bytes of the smallest range.
pub const LEAST_RANGE: usize = 2 * CHUNK;
/// Bytes of the largest range: half of what 47 bits of addresses have.
pub const MOST_RANGE: usize = 1 << 46;

/// Bytes of a chunk. An arena is a whole number of chunks, so one byte for each chunk tells who owns an address. mimalloc takes no
/// smaller arena.
pub const CHUNK: usize = 32 << 20;
/// Bytes of the largest arena. mimalloc 3.3 takes 15 GiB; its tables for this one take 16 MiB of addresses.
pub const MOST_ARENA: usize = 8 << 30;
/// An arena takes at most this share of the range, but at least one chunk.
pub const ARENA_SHARE: usize = 8;
/// Arenas of all heaps of a process. mimalloc has places for 160 and takes some for itself.
pub const ARENAS: usize = 140;

/// Bytes of the unit of the page-run layer, and the largest alignment that mimalloc serves inside an arena.
pub const UNIT: usize = 64 << 10;
/// Bytes of the largest object that mimalloc serves; a larger one is a run of units.
pub const MOST_SMALL: usize = 4 << 20;
/// Largest alignment, in bytes.
pub const MOST_ALIGNMENT: usize = 1 << 30;

/// Ranges of freed memory that wait for their pages to go back. The oldest goes at once when there is no place for one more.
pub const FREED_RANGES: usize = 1 << 16;
/// Bytes that one system call gives back at most, so that no lock is held for long.
pub const PURGE_PIECE: usize = 16 << 20;
/// Bytes that a free gives back at most on its way.
pub const PURGE_BATCH: usize = 64 << 20;
/// Shortest and longest time between two looks of the thread that gives pages back while nobody calls.
pub const LEAST_PURGE_PAUSE: Duration = Duration::from_millis(10);
/// See [`LEAST_PURGE_PAUSE`].
pub const MOST_PURGE_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of that thread's stack.
pub const PURGER_STACK: usize = 256 << 10;

/// Exported ranges of one heap.
pub const EXPORTS: usize = 1 << 20;
/// Bytes of the pages for which a heap remembers whether something in them is exported.
pub const EXPORT_PAGE: usize = 4096;

/// Heaps of one process at the same time.
pub const HEAPS: usize = 16;
/// Reservations of one process over its life. A heap that ends leaves its reservation to the next one of the same size.
pub const RESERVATIONS: usize = 64;

/// Longest time in milliseconds that fork waits for operations of other threads to end.
pub const FORK_WAIT_MILLISECONDS: u64 = 10_000;
