//! Bounds of this crate.

/// Regions of one process that exist at once.
pub const MAX_REGIONS: u32 = 1 << 20;
/// Places of regions that stay unused before the first of them is used again: a key that was revoked comes to name another
/// region only after many registrations.
pub const UNUSED_PLACES: usize = 64;
/// Bits of a key that name the region's place; the rest of the upper 24 tells generations apart.
pub const REGION_INDEX_BITS: u32 = 20;
/// Longest region in bytes (128 TiB).
pub const MAX_REGION_LENGTH: u64 = 1 << 47;
/// Bytes of the memory that stands for a null region: of the longest message (InfiniBand specification, volume 1, section 9.7.7).
pub const NULL_MEMORY_LENGTH: u64 = 1 << 31;
/// Queue pairs of one process that exist at once.
pub const MAX_QUEUE_PAIRS: u32 = 65_536;
/// Blocks of 256 queue pair numbers that one process may lease.
pub const MAX_BLOCKS: usize = 256;
/// User domains of one process, each with an access log (PAPERS AA-2).
pub const USER_DOMAINS: usize = 1024;
/// Sources of one access log.
pub const MAX_LOG_SOURCES: usize = 4096;
