//! Congestion notification packet (InfiniBand specification, volume 1, annex A17): a BTH with opcode
//! 0x81 and BECN set, PSN 0, and 16 reserved bytes.

use crate::{Bth, Error, Opcode, PacketHeader, packet};

/// Bytes behind the BTH, all reserved.
pub const RESERVED_LEN: usize = 16;
/// Bytes of the packet, its ICRC included.
pub const LEN: usize = crate::bth::LEN + RESERVED_LEN + packet::ICRC_LEN;

/// Tells the queue pair `destination` that its packets met congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cnp {
    /// The queue pair that shall slow down, 24 bits.
    pub destination: u32,
    /// Partition key.
    pub partition: u16,
}

impl Cnp {
    /// Reads a parsed packet. What the reserved bytes hold is ignored.
    ///
    /// # Errors
    /// [`Error::Opcode`] where it is another packet; [`Error::Length`] where there are not 16 bytes behind
    /// the BTH.
    pub fn parse(packet: &packet::Packet<'_>) -> Result<Cnp, Error> {
        let bth = packet.header.bth;
        if bth.opcode != Opcode::CNP {
            return Err(Error::Opcode(bth.opcode));
        }
        if packet.payload.len() != RESERVED_LEN {
            return Err(Error::Length);
        }
        Ok(Cnp { destination: bth.destination, partition: bth.partition })
    }

    /// The header to send.
    pub const fn header(&self) -> PacketHeader {
        PacketHeader::new(Bth {
            opcode: Opcode::CNP,
            solicited: false,
            migration: false,
            pad: 0,
            version: 0,
            partition: self.partition,
            fecn: false,
            becn: true,
            destination: self.destination,
            acknowledge: false,
            psn: 0,
        })
    }

    /// Writes the packet and gives its length; its last four bytes are left to
    /// [`packet::seal`].
    ///
    /// # Panics
    /// Where `buffer` is shorter than [`LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let header = self.header();
        buffer[header.len()..][..RESERVED_LEN].fill(0);
        packet::emit(&header, RESERVED_LEN, buffer)
    }
}
