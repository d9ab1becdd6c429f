//! Unreliable datagram (InfiniBand specification, volume 1, section 9.8.3): the header of a datagram,
//! and whether one that arrived is taken. There is no state beyond the send queue's order.

use pagewire_wire::{Deth, Opcode, PacketHeader, PacketOperation as Code, Transport};

use crate::{DropCause, Psn, partitions_match, plain_bth};

/// Bit of a work request's Q_Key that stands for the queue pair's own (section 10.2.5).
const OWN_QUEUE_KEY: u32 = 1 << 31;

/// Number of the queue pair that stands for all of a multicast group (section 3.5.11).
pub const GROUP: u32 = 0xFF_FFFF;

/// What a UD queue pair is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdSettings {
    /// Its own number, 24 bits: the source of its datagrams.
    pub number: u32,
    /// Partition key.
    pub partition: u16,
    /// Its Q_Key: what a datagram must carry to be taken, and what stands for Q_Keys with the top bit.
    pub queue_key: u32,
    /// Payload bytes that a datagram carries at most: the path MTU.
    pub mtu: u32,
}

/// A datagram to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutgoingDatagram {
    /// The receiver's queue pair number, 24 bits.
    pub destination: u32,
    /// The Q_Key of the work request.
    pub queue_key: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Raises a solicited event.
    pub solicited: bool,
}

/// What a datagram that is taken reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Bytes of the payload; a receive completion reports them and the 40 bytes of the GRH.
    pub length: u32,
    /// The sender's queue pair number.
    pub source: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Raises a solicited event.
    pub solicited: bool,
}

/// The header of a datagram with this PSN. The PSN counts up by one a datagram; receivers do not
/// look at it.
pub fn header(settings: &UdSettings, psn: Psn, datagram: &OutgoingDatagram) -> PacketHeader {
    let code = if datagram.immediate.is_some() { Code::SendOnlyImmediate } else { Code::SendOnly };
    let opcode = Opcode::new(Transport::Ud, code);
    let mut header = PacketHeader::new(plain_bth(opcode, datagram.destination, settings.partition, psn));
    header.bth.solicited = datagram.solicited;
    let own = datagram.queue_key & OWN_QUEUE_KEY != 0;
    let queue_key = if own { settings.queue_key } else { datagram.queue_key };
    header.deth = Some(Deth { queue_key, source: settings.number });
    header.immediate = datagram.immediate;
    header
}

/// Whether a datagram with `length` bytes of payload is taken.
///
/// # Errors
/// Why it is dropped.
pub fn accept(settings: &UdSettings, header: &PacketHeader, length: u64) -> Result<Accepted, DropCause> {
    let opcode = header.bth.opcode;
    let send = matches!(opcode.operation(), Some(Code::SendOnly | Code::SendOnlyImmediate));
    let deth =
        header.deth.filter(|_| send && opcode.transport() == Transport::Ud).ok_or(DropCause::Malformed)?;
    if !partitions_match(header.bth.partition, settings.partition) {
        return Err(DropCause::WrongPartition);
    }
    if deth.queue_key != settings.queue_key {
        return Err(DropCause::WrongQKey);
    }
    if length > u64::from(settings.mtu) {
        return Err(DropCause::Malformed);
    }
    Ok(Accepted {
        length: length as u32,
        source: deth.source,
        immediate: header.immediate,
        solicited: header.bth.solicited,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: UdSettings =
        UdSettings { number: 0x11, partition: 0xffff, queue_key: 0x1111_1111, mtu: 1024 };

    fn datagram() -> OutgoingDatagram {
        OutgoingDatagram { destination: 0x22, queue_key: 0x1111_1111, immediate: None, solicited: false }
    }

    #[test]
    fn what_is_sent_is_accepted() {
        for immediate in [None, Some(7)] {
            let datagram = OutgoingDatagram { immediate, solicited: true, ..datagram() };
            let header = header(&SETTINGS, Psn::new(5), &datagram);
            assert_eq!(header.bth.opcode.extensions(), Some(header.extensions()));
            assert_eq!(header.bth.psn, 5);
            let accepted = Accepted { length: 1024, source: 0x11, immediate, solicited: true };
            assert_eq!(accept(&SETTINGS, &header, 1024), Ok(accepted));
        }
    }

    #[test]
    fn reasons_to_drop() {
        let good = header(&SETTINGS, Psn::new(0), &datagram());
        assert_eq!(accept(&SETTINGS, &good, 1025), Err(DropCause::Malformed));
        let other = UdSettings { queue_key: 1, ..SETTINGS };
        assert_eq!(accept(&other, &good, 0), Err(DropCause::WrongQKey));
        let other = UdSettings { partition: 0x8001, ..SETTINGS };
        assert_eq!(accept(&other, &good, 0), Err(DropCause::WrongPartition));
        let mut rc = good;
        rc.bth.opcode = Opcode::new(Transport::Rc, Code::SendOnly);
        assert_eq!(accept(&SETTINGS, &rc, 0), Err(DropCause::Malformed));
    }

    #[test]
    fn top_bit_stands_for_the_own_queue_key() {
        let datagram = OutgoingDatagram { queue_key: 0x8000_0000, ..datagram() };
        assert_eq!(header(&SETTINGS, Psn::new(0), &datagram).deth.unwrap().queue_key, 0x1111_1111);
    }

    #[test]
    fn limited_members_do_not_talk_to_each_other() {
        assert!(partitions_match(0xffff, 0x7fff));
        assert!(!partitions_match(0x7fff, 0x7fff));
        assert!(!partitions_match(0xffff, 0x8001));
    }
}
