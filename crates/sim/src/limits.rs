//! Bounds of the simulated world.

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Words of a block in which shared words come into being.
pub const WORD_BLOCK: usize = 512;
/// Blocks of a row. The published tables of a process have 137 rows, of which mostly three hold a word.
pub const ROW_BLOCKS: usize = 128;
/// Packets of one batch, as in the real fabric.
pub const BATCH_PACKETS: usize = pagewire_fabric::limits::BATCH_PACKETS;
/// Bytes of one batch.
pub const BATCH_BYTES: usize = pagewire_fabric::limits::BATCH_BYTES;
/// Bytes of a packet, ICRC included.
pub const PACKET_BYTES: usize = pagewire_fabric::limits::PACKET_BYTES;
/// Bytes of a packet in a stream.
pub const STREAM_PACKET_BYTES: usize = pagewire_fabric::limits::STREAM_PACKET_BYTES;
/// Nanoseconds that pass with each look at the clock.
pub const CLOCK_STEP: u64 = 40;
/// Nanoseconds that pass with a look at the clock by someone who does nothing but look.
pub const CLOCK_LEAP: u64 = 1_000_000;
/// Looks in a row without anything else that make a process one that only waits.
pub const LOOKS: u32 = 16;
/// Channels of one process.
pub const CHANNELS: usize = 4096;
/// Blocks of queue pair numbers on one host.
pub const HOST_BLOCKS: u32 = 0xFFFF;
/// Nanoseconds until the answer to `connect`.
pub const CONNECT_TIME: (u64, u64) = (5_000, 200_000);
/// Nanoseconds until peers learn of a death.
pub const DEPARTURE_TIME: (u64, u64) = (20_000, 2_000_000);
/// Nanoseconds in which an absent page comes in.
pub const PAGE_TIME: (u64, u64) = (1_000, 3_000_000);
/// Nanoseconds that a thread loses by touching an absent page itself.
pub const FAULT_TIME: u64 = 1_000;
