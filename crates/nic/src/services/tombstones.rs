//! Refusals of queue pairs that the program has ended since, for peers that may still ask: the NAK may have been lost.
//!
//! Only Pagewires are answered, and only while they may ask. A peer that asks for nothing of that has no such PSN outstanding, and drops the NAK.

use crate::types::qp_role::QpRole;
use pagewire_fabric::Route;
use pagewire_transport::{Psn, limits};
use pagewire_wire::PacketHeader;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most that are kept. One more makes the oldest go.
const MOST: usize = 256;
/// Nanoseconds that one is kept at least and at most. Between them it is this side's own budget of time: the peer's is not known.
const LEAST_TIME: u64 = 1_000_000_000;
const MOST_TIME: u64 = 60_000_000_000;

/// What a queue pair has refused.
#[derive(Debug, Clone, Copy)]
pub struct Tombstone {
    /// Its number.
    pub number: u32,
    pub route: Route,
    pub nak: PacketHeader,
    /// Fabric time.
    until: u64,
}

impl Tombstone {
    /// `budget`: nanoseconds that this side would have asked.
    pub fn new(number: u32, route: Route, nak: PacketHeader, now: u64, budget: Option<u64>) -> Self {
        let time = budget.unwrap_or(MOST_TIME).clamp(LEAST_TIME, MOST_TIME);
        Tombstone { number, route, nak, until: now.saturating_add(time) }
    }
}

/// The tombstones of a process, oldest first.
#[derive(Debug, Default)]
pub struct Tombstones {
    kept: Mutex<VecDeque<Tombstone>>,
    any: AtomicBool,
}

impl Tombstones {
    /// Keeps one.
    #[cold]
    pub fn add(&self, tombstone: Tombstone) {
        let mut kept = self.kept.lock();
        kept.retain(|known| known.number != tombstone.number);
        if kept.len() >= MOST {
            kept.pop_front();
        }
        kept.push_back(tombstone);
        self.any.store(true, Ordering::Release);
    }

    /// A queue pair begins anew.
    pub fn forget(&self, number: u32) {
        if self.any.load(Ordering::Acquire) {
            let mut kept = self.kept.lock();
            kept.retain(|known| known.number != number);
            self.any.store(!kept.is_empty(), Ordering::Release);
        }
    }

    /// What to send to a peer at an address, if its packet asks for a refusal.
    pub fn answer(&self, packet: &PacketHeader, source: IpAddr, now: u64) -> Option<(Route, PacketHeader)> {
        if !self.any.load(Ordering::Acquire) || !asks(packet) {
            return None;
        }
        let mut kept = self.kept.lock();
        kept.retain(|known| known.until > now);
        self.any.store(!kept.is_empty(), Ordering::Release);
        let psn = Psn::new(packet.bth.psn);
        let is_near = |nak: &PacketHeader| {
            let refused = Psn::new(nak.bth.psn);
            psn.since(refused).min(refused.since(psn)) <= limits::LOSSY_SPAN
        };
        let known = kept.iter().find(|known| {
            known.number == packet.bth.destination && known.route.destination == source && is_near(&known.nak)
        })?;
        Some((known.route, known.nak))
    }
}

/// Whether a packet is a request of a reliable connection.
fn asks(packet: &PacketHeader) -> bool {
    packet.bth.opcode.transport().is_reliable() && QpRole::of(packet) == QpRole::Responder
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_wire::{Bth, Opcode, PacketOperation, Transport};

    fn packet(operation: PacketOperation, destination: u32, psn: u32) -> PacketHeader {
        PacketHeader::new(Bth::new(Opcode::new(Transport::Rc, operation), destination, psn))
    }

    fn tombstone(number: u32, until: u64) -> Tombstone {
        let route = Route::new(IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]), 4791);
        Tombstone { number, route, nak: packet(PacketOperation::Acknowledge, 9, 0xff_fff0), until }
    }

    #[test]
    fn only_the_peer_that_asks_is_answered() {
        let tombstones = Tombstones::default();
        let [peer, stranger] = [2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let write = packet(PacketOperation::WriteOnly, 5, 3);
        assert!(tombstones.answer(&write, peer, 0).is_none());
        tombstones.add(tombstone(5, 100));
        let answer = tombstones.answer(&write, peer, 99).map(|(_, nak)| (nak.bth.destination, nak.bth.psn));
        assert_eq!(answer, Some((9, 0xff_fff0)));
        let others = [
            (write, stranger, 99),
            (packet(PacketOperation::WriteOnly, 6, 3), peer, 99),
            (packet(PacketOperation::WriteOnly, 5, 0x1000), peer, 99),
            (packet(PacketOperation::Acknowledge, 5, 3), peer, 99),
            (packet(PacketOperation::ReadResponseOnly, 5, 3), peer, 99),
        ];
        assert!(others.iter().all(|(header, from, now)| tombstones.answer(header, *from, *now).is_none()));
        let extended = Opcode::new(Transport::Xrc, PacketOperation::WriteOnly);
        let extended = PacketHeader::new(Bth::new(extended, 5, 3));
        assert!(tombstones.answer(&extended, peer, 99).is_some());
        let unreliable = Opcode::new(Transport::Uc, PacketOperation::WriteOnly);
        let unreliable = PacketHeader::new(Bth::new(unreliable, 5, 3));
        assert!(tombstones.answer(&unreliable, peer, 99).is_none());
        assert!(tombstones.answer(&write, peer, 100).is_none(), "its time is over");
        tombstones.add(tombstone(5, 200));
        tombstones.forget(5);
        assert!(tombstones.answer(&write, peer, 99).is_none());
    }

    #[test]
    fn they_are_bounded() {
        let tombstones = Tombstones::default();
        (0..1000).for_each(|number| tombstones.add(tombstone(number, 100)));
        assert_eq!(tombstones.kept.lock().len(), MOST);
    }
}
