//! Packets over UDP and pages, as the fabric asks about them.

use crate::calls::failures::objects::RemoteQueuePair;
use crate::calls::failures::{apply, decide, decide_and_log, queue_pair_connected_to, rules};
use pagewire_fabric::{FabricRules, PacketFate, PacketRules, PageFate, PageRules};
use pagewire_failures::{Action, EventOpcode, FailureEvent, NakKind, PacketFailure, Point};
use pagewire_wire::{Nak, Syndrome};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a BTH.
const BTH: usize = 12;

/// The 5-bit code of the time after which a requester asks again: 0.64 ms.
const RNR_TIMER: u8 = 12;

/// The rules about packets and pages, as far as there are such.
pub fn of_fabric() -> FabricRules {
    let concern = |point| rules().is_some_and(|rules| rules.concern(|of_rule| of_rule == point));
    FabricRules {
        packets: concern(Point::Packet).then(|| Arc::new(RulesOfPackets) as Arc<dyn PacketRules>),
        pages: concern(Point::Page).then(|| Arc::new(RulesOfPages) as Arc<dyn PageRules>),
    }
}

/// Whether there are rules about pages. Then threads bring in all.
pub fn concern_pages() -> bool {
    rules().is_some_and(|rules| rules.concern(|point| point == Point::Page))
}

struct RulesOfPackets;

impl PacketRules for RulesOfPackets {
    fn fate(&self, bytes: &[u8], destination: IpAddr) -> Option<PacketFate> {
        let bth = bytes.first_chunk::<BTH>()?;
        let opcode = opcode_of(bth[0]);
        let number = u32::from_be_bytes([0, bth[5], bth[6], bth[7]]);
        let event = FailureEvent {
            object: queue_pair_connected_to(RemoteQueuePair { address: destination.to_canonical(), number }),
            qp_num: Some(number),
            peer: Some(destination),
            opcode,
            bth_opcode: Some(bth[0]),
            psn: Some(u32::from_be_bytes([0, bth[9], bth[10], bth[11]])),
            ..FailureEvent::at(Point::Packet)
        };
        match apply::end_or_stop(decide(&event)?)? {
            Action::Packet(failure) => Some(fate_of(failure)),
            Action::Lose => Some(PacketFate::Lose),
            Action::Delay(delay) => Some(PacketFate::Delay(Duration::from_nanos(delay))),
            // What refuses already stays as it is.
            Action::Nak(kind) if matches!(Syndrome::from_byte(*bytes.get(BTH)?), Syndrome::Ack { .. }) => {
                Some(PacketFate::Syndrome(syndrome_of(kind).to_byte()))
            }
            other => {
                log::debug!("{other} does nothing to this packet");
                None
            }
        }
    }
}

fn fate_of(failure: PacketFailure) -> PacketFate {
    match failure {
        PacketFailure::Lose => PacketFate::Lose,
        PacketFailure::Double => PacketFate::Double,
        PacketFailure::Reorder => PacketFate::Reorder,
        PacketFailure::Corrupt => PacketFate::Corrupt,
    }
}

fn syndrome_of(kind: NakKind) -> Syndrome {
    match kind {
        NakKind::Rnr => Syndrome::ReceiverNotReady { timer: RNR_TIMER },
        NakKind::Sequence => Syndrome::Nak(Nak::PsnSequence),
        NakKind::InvalidRequest => Syndrome::Nak(Nak::InvalidRequest),
        NakKind::RemoteAccess => Syndrome::Nak(Nak::RemoteAccess),
        NakKind::RemoteOperational => Syndrome::Nak(Nak::RemoteOperational),
    }
}

/// What a packet of RC, UC or UD is of (InfiniBand specification, volume 1, table 38).
fn opcode_of(opcode: u8) -> Option<EventOpcode> {
    if !matches!(opcode >> 5, 0 | 1 | 3) {
        return None;
    }
    Some(match opcode & 0x1F {
        0..=2 | 4 => EventOpcode::Send,
        3 | 5 => EventOpcode::SendWithImm,
        6..=8 | 10 => EventOpcode::RdmaWrite,
        9 | 11 => EventOpcode::RdmaWriteWithImm,
        12 => EventOpcode::RdmaRead,
        13..=16 => EventOpcode::RdmaReadResponse,
        17 => EventOpcode::Acknowledge,
        18 => EventOpcode::AtomicAcknowledge,
        19 => EventOpcode::AtomicCmpAndSwp,
        20 => EventOpcode::AtomicFetchAndAdd,
        22 | 23 => EventOpcode::SendWithInv,
        28 => EventOpcode::Flush,
        29 => EventOpcode::AtomicWrite,
        _ => return None,
    })
}

struct RulesOfPages;

impl PageRules for RulesOfPages {
    fn fate(&self) -> Option<PageFate> {
        match decide_and_log(&FailureEvent::at(Point::Page))? {
            Action::Delay(delay) => Some(PageFate::Late(Duration::from_nanos(delay))),
            Action::Lose => Some(PageFate::Lost),
            other => {
                log::debug!("{other} does nothing to a page");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_opcodes() {
        let opcodes = [0x04, 0x0A, 0x11, 0x24, 0x64, 0x0C, 0x0F].map(opcode_of);
        let expected = [
            EventOpcode::Send,
            EventOpcode::RdmaWrite,
            EventOpcode::Acknowledge,
            EventOpcode::Send,
            EventOpcode::Send,
            EventOpcode::RdmaRead,
            EventOpcode::RdmaReadResponse,
        ];
        assert_eq!(opcodes, expected.map(Some));
        assert_eq!([0xC0, 0x44, 0x15].map(opcode_of), [None; 3]);
    }
}
