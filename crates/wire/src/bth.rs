//! Base transport header (InfiniBand specification, volume 1, section 9.2).

use crate::view::{get_u16, get_u24, get_u32, put, put_u24, view};
use crate::{Error, Opcode};

/// Bytes of a BTH.
pub const LEN: usize = 12;

mod field {
    pub const OPCODE: usize = 0;
    /// Solicited event, migration state, pad count, header version.
    pub const FLAGS: usize = 1;
    pub const PARTITION: usize = 2;
    /// FECN, BECN and six reserved bits; the ICRC does not cover them.
    pub const CONGESTION: usize = 4;
    pub const DESTINATION: usize = 5;
    /// Acknowledge request and seven reserved bits.
    pub const ACKNOWLEDGE: usize = 8;
    pub const PSN: usize = 9;
}

/// The largest PSN.
const MAX_PSN: u32 = 0xFF_FFFF;

/// Offset of the one byte that switches may change and the ICRC therefore leaves out.
pub(crate) const MASKED: usize = field::CONGESTION;

/// Base transport header. Reserved bits are sent as zero and ignored when received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state; always set on RoCE without path migration.
    pub migration: bool,
    /// Bytes of padding behind the payload, 0 to 3.
    pub pad: u8,
    /// Header version, 0.
    pub version: u8,
    /// Partition key.
    pub partition: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub destination: u32,
    /// The sender wants an acknowledgement of this packet.
    pub acknowledge: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

view! {
    /// A view over a BTH.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// What the packet is.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.bytes()[field::OPCODE])
    }

    /// Solicited event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.bytes()[field::FLAGS] & 0x80 != 0
    }

    /// Migration state.
    #[inline]
    pub fn migration(&self) -> bool {
        self.bytes()[field::FLAGS] & 0x40 != 0
    }

    /// Bytes of padding behind the payload, 0 to 3.
    #[inline]
    pub fn pad(&self) -> u8 {
        self.bytes()[field::FLAGS] >> 4 & 3
    }

    /// Header version, 0 to 15.
    #[inline]
    pub fn version(&self) -> u8 {
        self.bytes()[field::FLAGS] & 15
    }

    /// Partition key.
    #[inline]
    pub fn partition(&self) -> u16 {
        get_u16(self.bytes(), field::PARTITION)
    }

    /// Forward explicit congestion notification.
    #[inline]
    pub fn fecn(&self) -> bool {
        self.bytes()[field::CONGESTION] & 0x80 != 0
    }

    /// Backward explicit congestion notification.
    #[inline]
    pub fn becn(&self) -> bool {
        self.bytes()[field::CONGESTION] & 0x40 != 0
    }

    /// Destination queue pair, 24 bits.
    #[inline]
    pub fn destination(&self) -> u32 {
        get_u24(self.bytes(), field::DESTINATION)
    }

    /// The sender wants an acknowledgement.
    #[inline]
    pub fn acknowledge(&self) -> bool {
        self.bytes()[field::ACKNOWLEDGE] & 0x80 != 0
    }

    /// Packet sequence number, 24 bits.
    #[inline]
    pub fn psn(&self) -> u32 {
        get_u24(self.bytes(), field::PSN)
    }

    /// Whether `next` has this very BTH, but with the PSN that follows.
    #[inline]
    pub fn goes_on_with<U: AsRef<[u8]>>(&self, next: &Packet<U>) -> bool {
        let (before, next) = (self.bytes(), next.bytes());
        // As one word: the acknowledge request and bits that nobody uses, which stay as they are, and the PSN.
        let [last, behind] = [before, next].map(|bytes| get_u32(bytes, field::ACKNOWLEDGE));
        before[..field::ACKNOWLEDGE] == next[..field::ACKNOWLEDGE]
            && behind == last & !MAX_PSN | last.wrapping_add(1) & MAX_PSN
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes the packet sequence number, which must fit 24 bits (checked in debug builds).
    #[inline]
    pub fn set_psn(&mut self, psn: u32) {
        put_u24(self.bytes_mut(), field::PSN, psn);
    }
}

/// The default partition key, with full membership: the only one that RoCE has without a subnet manager.
pub const DEFAULT_PARTITION: u16 = 0xFFFF;

impl Bth {
    /// A header of the default partition with its flags at rest.
    #[inline]
    pub fn new(opcode: Opcode, destination: u32, psn: u32) -> Bth {
        Bth {
            opcode,
            solicited: false,
            migration: true,
            pad: 0,
            version: 0,
            partition: DEFAULT_PARTITION,
            fecn: false,
            becn: false,
            destination,
            acknowledge: false,
            psn,
        }
    }

    /// Reads every field; a BTH has no wrong values by itself.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Bth {
        Bth {
            opcode: packet.opcode(),
            solicited: packet.solicited(),
            migration: packet.migration(),
            pad: packet.pad(),
            version: packet.version(),
            partition: packet.partition(),
            fecn: packet.fecn(),
            becn: packet.becn(),
            destination: packet.destination(),
            acknowledge: packet.acknowledge(),
            psn: packet.psn(),
        }
    }

    /// Reads the BTH at the beginning of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Bth, Error> {
        Ok(Bth::parse(&Packet::new(bytes)?))
    }

    /// Writes every field, reserved bits as zero. `pad`, `version`, `destination` and `psn` must fit
    /// their widths (checked in debug builds).
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        debug_assert!(self.pad < 4 && self.version < 16, "{self:?}");
        let bytes = packet.bytes_mut();
        bytes[field::OPCODE] = self.opcode.0;
        bytes[field::FLAGS] = u8::from(self.solicited) << 7
            | u8::from(self.migration) << 6
            | (self.pad & 3) << 4
            | self.version & 15;
        put(bytes, field::PARTITION, self.partition.to_be_bytes());
        bytes[field::CONGESTION] = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        put_u24(bytes, field::DESTINATION, self.destination);
        bytes[field::ACKNOWLEDGE] = u8::from(self.acknowledge) << 7;
        put_u24(bytes, field::PSN, self.psn);
    }
}
