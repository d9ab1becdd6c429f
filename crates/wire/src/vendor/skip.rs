//! SKIP: the requester has ended a request that was not executed, and goes on behind it.
//!
//! Only queue pairs that have agreed that a refusal ends one request use it. It names the PSN at which the responder has stopped, so that
//! one that is late or comes twice changes nothing.

use crate::Error;
use crate::view::{get_u24, put, put_u24, view};

/// Bytes of the body.
pub(super) const LEN: usize = 12;

mod field {
    pub const VERSION: usize = 0;
    pub const RESERVED_1: usize = 1;
    pub const REFUSED: usize = 5;
    pub const RESERVED_2: usize = 8;
    pub const RESUME: usize = 9;
}

/// Requests that the responder has not executed are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// PSN that the responder has refused, or expects, 24 bits.
    pub refused: u32,
    /// PSN of the next request that is to be executed, 24 bits: those from `refused` on are over.
    pub resume: u32,
}

view! {
    /// A view over the body of a SKIP.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Version of the body.
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION]
    }

    /// PSN at which the responder has stopped, 24 bits.
    pub fn refused(&self) -> u32 {
        get_u24(self.bytes(), field::REFUSED)
    }

    /// PSN to go on with, 24 bits.
    pub fn resume(&self) -> u32 {
        get_u24(self.bytes(), field::RESUME)
    }
}

impl Skip {
    /// The version of the body that is written and read here.
    pub const VERSION: u8 = 1;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Error::Truncated`] and [`Error::Length`] where it is not 12 bytes long, [`Error::Version`].
    pub fn parse(body: &[u8]) -> Result<Skip, Error> {
        let packet = Packet::new(body)?;
        if packet.version() != Self::VERSION {
            return Err(Error::Version(packet.version()));
        }
        if body.len() != LEN {
            return Err(Error::Length);
        }
        Ok(Skip { refused: packet.refused(), resume: packet.resume() })
    }

    /// Writes the body and gives its length, 12 bytes. Both numbers have 24 bits.
    ///
    /// # Panics
    /// Where `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut packet = Packet::new(buffer).expect("the buffer holds a SKIP");
        let bytes = packet.bytes_mut();
        bytes[field::VERSION] = Self::VERSION;
        put(bytes, field::RESERVED_1, [0; 4]);
        put_u24(bytes, field::REFUSED, self.refused);
        bytes[field::RESERVED_2] = 0;
        put_u24(bytes, field::RESUME, self.resume);
        LEN
    }
}
