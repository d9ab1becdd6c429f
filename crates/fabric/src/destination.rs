//! Whom a packet is for.

use crate::fabric::QUEUE_PAIRS_PER_BLOCK;

/// The queue pair that a packet is for. `None`: it is too short.
pub fn queue_pair_of(packet: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*packet.get(4..8)?.first_chunk()?) & 0xFF_FFFF)
}

/// The block that this queue pair belongs to.
pub fn block_of(packet: &[u8]) -> Option<u32> {
    queue_pair_of(packet).map(|number| number / QUEUE_PAIRS_PER_BLOCK)
}
