//! Acknowledge extended transport header (InfiniBand specification, volume 1, section 9.3.5).

use crate::view::{get_u24, put_u24, view};

/// Bytes of an AETH.
pub const LEN: usize = 4;

mod field {
    pub const SYNDROME: usize = 0;
    pub const MESSAGE: usize = 1;
}

/// Acknowledge extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// What the acknowledgement says.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub message: u32,
}

/// What an acknowledgement says (section 9.7.5.1.2, tables 47 and 48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive.
    Ack {
        /// The 5-bit encoded credit count (31: credits are not used).
        credits: u8,
    },
    /// Receiver not ready.
    ReceiverNotReady {
        /// The 5-bit encoded time to wait.
        timer: u8,
    },
    /// Negative.
    Nak(Nak),
    /// A reserved encoding, kept as it came.
    Reserved(u8),
}

/// Negative acknowledgement codes (table 48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nak {
    /// A PSN was skipped.
    PsnSequence,
    /// The request is not one that the responder can carry out.
    InvalidRequest,
    /// Key, bounds or rights.
    RemoteAccess,
    /// The responder failed by itself.
    RemoteOperational,
    /// Wrong reliable-datagram domain.
    InvalidRd,
    /// A reserved 5-bit code, 5 to 31.
    Reserved(u8),
}

impl Syndrome {
    /// From the byte on the wire. Every byte has exactly one meaning.
    #[inline]
    pub const fn from_byte(byte: u8) -> Syndrome {
        let value = byte & 0x1f;
        match byte >> 5 {
            0 => Syndrome::Ack { credits: value },
            1 => Syndrome::ReceiverNotReady { timer: value },
            3 => Syndrome::Nak(match value {
                0 => Nak::PsnSequence,
                1 => Nak::InvalidRequest,
                2 => Nak::RemoteAccess,
                3 => Nak::RemoteOperational,
                4 => Nak::InvalidRd,
                code => Nak::Reserved(code),
            }),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The byte on the wire. Values wider than 5 bits are cut.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 0x1f,
            Syndrome::ReceiverNotReady { timer } => 0x20 | timer & 0x1f,
            Syndrome::Nak(nak) => {
                0x60 | match nak {
                    Nak::PsnSequence => 0,
                    Nak::InvalidRequest => 1,
                    Nak::RemoteAccess => 2,
                    Nak::RemoteOperational => 3,
                    Nak::InvalidRd => 4,
                    Nak::Reserved(code) => code & 0x1f,
                }
            }
            Syndrome::Reserved(byte) => byte,
        }
    }
}

view! {
    /// A view over an AETH.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// What the acknowledgement says.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome::from_byte(self.bytes()[field::SYNDROME])
    }

    /// Message sequence number, 24 bits.
    #[inline]
    pub fn message(&self) -> u32 {
        get_u24(self.bytes(), field::MESSAGE)
    }
}

impl Aeth {
    /// Reads every field; none has wrong values.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Aeth {
        Aeth { syndrome: packet.syndrome(), message: packet.message() }
    }

    /// Writes every field. `message` has 24 bits.
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let bytes = packet.bytes_mut();
        bytes[field::SYNDROME] = self.syndrome.to_byte();
        put_u24(bytes, field::MESSAGE, self.message);
    }
}
