//! Where things stand in a process's published tables (word indices).
//!
//! The tables are one sparse file: only the pages that were written exist.

use crate::limits::{MAX_BLOCKS, MAX_QUEUE_PAIRS, MAX_REGIONS, USER_DOMAINS};

/// First word: tells that these are tables of this layout.
pub const MAGIC_WORD: usize = 0;
/// "pagewire" and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"pgwire07");
/// Secret of the key permutation (peers that may read the tables may also trace the process).
pub const SECRET_WORD: usize = 1;
/// A memory file behind a range of the process's addresses, which peers may map: the range's first address, its length, and the number under
/// which the process has the file open, plus one; zero: there is none.
pub const SHARED_BASE: usize = 2;
/// See [`SHARED_BASE`].
pub const SHARED_LENGTH: usize = 3;
/// See [`SHARED_BASE`].
pub const SHARED_FILE: usize = 4;
/// A robust mutex that a thread of the process holds as long as it lives: the kernel marks its first word when the process ends.
pub const LIVENESS: usize = 8;
/// Words of that mutex.
pub const LIVENESS_WORDS: usize = 8;
/// Leased blocks of queue pair numbers, each plus one; zero: none.
pub const BLOCKS: usize = 16;
/// First region.
pub const REGIONS: usize = 512;
/// Words of one region.
pub const REGION_WORDS: usize = 8;
/// First queue pair.
pub const QUEUE_PAIRS: usize = REGIONS + MAX_REGIONS as usize * REGION_WORDS;
/// Words of one queue pair.
pub const QUEUE_PAIR_WORDS: usize = 8;
/// First word of the access logs, two for each user domain: the number under which the process has the log's file open, plus one (zero: there is
/// none); and its sources in the upper half, the words of a ring in the lower one.
pub const LOGS: usize = QUEUE_PAIRS + MAX_QUEUE_PAIRS as usize * QUEUE_PAIR_WORDS;
/// Words of one access log.
pub const LOG_WORDS: usize = 2;
/// Words of the whole.
pub const TABLE_WORDS: usize = LOGS + USER_DOMAINS * LOG_WORDS;

const _: () = assert!(LIVENESS + LIVENESS_WORDS <= BLOCKS);
const _: () = assert!(BLOCKS + MAX_BLOCKS <= REGIONS);
