//! Section 5.1: two machines with Ethernet of 1 Gb/s, with and without the extended IOMMU between card and memory.

use crate::unit_costs::ActiveCosts;

/// Preamble, frame check and gap of a frame, in bytes (IEEE 802.3).
const AROUND: u64 = 24;
/// Bytes of the least frame without its check.
const LEAST: u64 = 60;
/// Headers of a frame: Ethernet, IP and UDP; or Ethernet, IP and TCP with a time stamp.
const UDP: u64 = 14 + 20 + 8;
const TCP: u64 = 14 + 20 + 32;
/// Data of a frame at most, without the header of Ethernet.
const MTU: u64 = 1_500;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Frames of such a size.
    Packets,
    /// Messages in datagrams.
    Udp,
    /// Messages in a stream of full frames.
    Tcp,
}

/// Nanoseconds that a frame occupies the link.
fn wire(costs: &ActiveCosts, bytes: u64) -> u64 {
    (bytes.max(LEAST) + AROUND) * 8_000 / costs.link()
}

impl Stream {
    /// 10^6 bytes a second of the user, by the size of a frame or message. With the IOMMU each frame takes its own time and a look into its page table
    /// in memory longer: assumption, that neither is hidden by the frame before.
    pub fn rate(self, costs: &ActiveCosts, bytes: u64, has_iommu: bool) -> f64 {
        let delay = if has_iommu { costs.iommu() + costs.memory() } else { 0 };
        let (header, least) = match self {
            Stream::Packets => return bytes as f64 * 1e3 / (wire(costs, bytes) + delay) as f64,
            Stream::Udp => (UDP, 1),
            Stream::Tcp => (TCP, MTU + 14 - TCP),
        };
        // Short messages share a frame of TCP.
        let bytes = bytes.max(least);
        let (full, frames) = (MTU + 14 - header, bytes.div_ceil(MTU + 14 - header));
        let last = bytes - (frames - 1) * full + header;
        let time = (frames - 1) * wire(costs, full + header) + wire(costs, last) + frames * delay;
        bytes as f64 * 1e3 / time as f64
    }
}

/// Inserts a second of one process into the memory of another machine at full link bandwidth (figure 6c), by active puts and by remote operations;
/// of a thousand so many collide. Each operation is a frame each way of the least size, and several are under way.
pub fn single_inserter(costs: &ActiveCosts, collisions: u64) -> (f64, f64) {
    let frame = wire(costs, LEAST) as f64;
    let part = collisions as f64 / 1_000.0;
    let handled = (costs.iommu() + 2 * costs.memory() + costs.insert()) as f64
        + part * (costs.collided() - costs.insert()) as f64;
    let operations = 1.0 + part * costs.collision_operations() as f64;
    // An atomic reads and writes memory.
    let operation = frame.max((costs.iommu() + 2 * costs.memory()) as f64);
    (1e9 / frame.max(handled), 1e9 / (operations * operation))
}
