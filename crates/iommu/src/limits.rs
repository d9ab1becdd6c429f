//! Bounds of this crate.

/// Regions of one process that exist at once.
pub const MAX_REGIONS: u32 = 1 << 20;
/// Bits of a key that name the region's place; the rest of the upper 24 tells generations apart.
pub const REGION_INDEX_BITS: u32 = 20;
/// Longest region in bytes (128 TiB).
pub const MAX_REGION_LENGTH: u64 = 1 << 47;
/// Queue pairs of one process that exist at once.
pub const MAX_QUEUE_PAIRS: u32 = 65_536;
/// Blocks of 256 queue pair numbers that one process may lease.
pub const MAX_BLOCKS: usize = 256;
