//! Packets that arrived before one that is missing, with their bytes, until it comes.

use std::collections::VecDeque;

use pagewire_wire::PacketHeader;

use crate::limits;

/// A packet with its bytes.
#[derive(Debug)]
pub(crate) struct KeptPacket {
    pub(crate) header: PacketHeader,
    pub(crate) bytes: Vec<u8>,
}

/// Packets by the distance of their PSN from the one that is expected; bounded in number and bytes.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    slots: VecDeque<Option<KeptPacket>>,
    bytes: usize,
    count: usize,
}

impl ReorderBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn has(&self, index: u32) -> bool {
        self.slots.get(index as usize).is_some_and(Option::is_some)
    }

    /// Keeps a packet unless the buffer is full or has it.
    pub(crate) fn insert(&mut self, index: u32, header: &PacketHeader, bytes: &[u8]) -> bool {
        let index = index as usize;
        if index >= limits::KEPT_PACKETS || self.bytes + bytes.len() > limits::KEPT_BYTES {
            return false;
        }
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let slot = &mut self.slots[index];
        if slot.is_some() {
            return false;
        }
        *slot = Some(KeptPacket { header: *header, bytes: bytes.to_vec() });
        self.bytes += bytes.len();
        self.count += 1;
        true
    }

    /// Takes the packet that is expected; its slot stays.
    pub(crate) fn take_first(&mut self) -> Option<KeptPacket> {
        let kept = self.slots.front_mut()?.take()?;
        self.forget(&kept);
        Some(kept)
    }

    /// Puts back what [`take_first`](Self::take_first) gave.
    pub(crate) fn put_back(&mut self, kept: KeptPacket) {
        if let Some(slot @ None) = self.slots.front_mut() {
            self.bytes += kept.bytes.len();
            self.count += 1;
            *slot = Some(kept);
        }
    }

    /// The expected PSN moved up by `count`: what is before it is dropped.
    pub(crate) fn advance(&mut self, count: u32) {
        if self.count == 0 {
            self.slots.clear();
            return;
        }
        for _ in 0..count {
            match self.slots.pop_front() {
                Some(Some(kept)) => self.forget(&kept),
                Some(None) => {}
                None => break,
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        (self.bytes, self.count) = (0, 0);
    }

    /// What is kept, with the distance of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &KeptPacket)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index as u32, slot.as_ref()?)))
    }

    fn forget(&mut self, kept: &KeptPacket) {
        self.bytes -= kept.bytes.len();
        self.count -= 1;
    }
}
