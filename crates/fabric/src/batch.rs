//! Packets on their way to the network, one after the other in one buffer.

use crate::fabric::{Batch, Route};
use crate::limits::{BATCH_BYTES, BATCH_PACKETS, PACKET_BYTES, SEGMENTED_BYTES, SEGMENTS};
use pagewire_memory::Arena;
use pagewire_wire::packet::ICRC_LEN;
use std::ops::Range;

/// A batch of the real fabric.
pub struct HostBatch {
    /// `None`: the kernel gave no memory; every packet is lost, and counted when the batch is flushed.
    arena: Option<Arena>,
    packets: Vec<Packet>,
    used: usize,
    /// Packets asked for that there was no memory for.
    pub(crate) lost: u64,
    /// Where such packets are written.
    void: Vec<u8>,
}

/// One packet of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub route: Route,
    pub start: usize,
    /// Bytes with the ICRC.
    pub length: usize,
    /// A bit to be turned round once the ICRC is there.
    pub damage: Option<usize>,
}

impl HostBatch {
    pub(crate) fn new(arena: Option<Arena>) -> Self {
        HostBatch { arena, packets: Vec::with_capacity(BATCH_PACKETS), used: 0, lost: 0, void: Vec::new() }
    }

    /// Forgets all packets.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.used = 0;
        self.lost = 0;
    }

    pub(crate) fn packets(&self) -> &[Packet] {
        &self.packets
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.arena.as_ref().map_or(&[], Arena::bytes)
    }

    pub(crate) fn packets_and_bytes(&mut self) -> (&[Packet], &mut [u8]) {
        let bytes = match &mut self.arena {
            Some(arena) => arena.bytes_mut(),
            None => &mut [],
        };
        (&self.packets, bytes)
    }

    /// The first run of packets from `from` on that may leave as one send: equal length (the last may be shorter) and route.
    pub(crate) fn run(&self, from: usize) -> Range<usize> {
        let Some(first) = self.packets.get(from) else { return from..from };
        let mut bytes = first.length;
        let mut end = from + 1;
        while let Some(packet) = self.packets.get(end) {
            let fits = bytes + packet.length <= SEGMENTED_BYTES && end - from < SEGMENTS;
            if !fits || packet.route != first.route || packet.length > first.length {
                break;
            }
            bytes += packet.length;
            end += 1;
            if packet.length < first.length {
                break;
            }
        }
        from..end
    }
}

impl Batch for HostBatch {
    #[inline]
    fn fits(&self, length: usize) -> bool {
        self.packets.len() < BATCH_PACKETS && self.used + length + ICRC_LEN <= BATCH_BYTES
    }

    #[inline]
    fn packet(&mut self, route: &Route, length: usize) -> Option<&mut [u8]> {
        let whole = length + ICRC_LEN;
        assert!(whole <= PACKET_BYTES, "a packet of {length} bytes");
        if !self.fits(length) {
            return None;
        }
        let Some(arena) = &mut self.arena else {
            self.lost += 1;
            self.void.resize(length, 0);
            return Some(&mut self.void);
        };
        let start = self.used;
        let room = arena.bytes_mut().get_mut(start..start + length)?;
        self.packets.push(Packet { route: *route, start, length: whole, damage: None });
        self.used += whole;
        Some(room)
    }

    fn cancel(&mut self) {
        if self.arena.is_none() {
            self.lost = self.lost.saturating_sub(1);
        } else if let Some(packet) = self.packets.pop() {
            self.used = packet.start;
        }
    }

    fn damage(&mut self, bit: usize) {
        if let Some(packet) = self.packets.last_mut() {
            packet.damage = Some(bit % (packet.length * 8));
        }
    }
}
