//! RESUME: the page is there now; send again from here (the explicit retransmission request, ERR, of PART, section 3.2).
//!
//! It names the first packet that is missing and how many follow it, the block: what lies behind the block has been kept.

use crate::Error;
use crate::view::{get_u24, put, put_u24, view};

/// Bytes of the body.
pub(super) const LEN: usize = 12;

mod field {
    pub const VERSION: usize = 0;
    pub const RESERVED_1: usize = 1;
    pub const PSN: usize = 5;
    pub const RESERVED_2: usize = 8;
    pub const BLOCK: usize = 9;
}

/// A request packet was dropped for want of a page or of room, and may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// PSN of the request packet to go on with, 24 bits: every one before it has been executed.
    pub psn: u32,
    /// PSNs from there on that are missing, 24 bits; 0: all that have been sent.
    pub block: u32,
}

view! {
    /// A view over the body of a RESUME.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Version of the body.
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION]
    }

    /// PSN of the request packet to go on with, 24 bits.
    pub fn psn(&self) -> u32 {
        get_u24(self.bytes(), field::PSN)
    }

    /// PSNs from there on that are missing, 24 bits; 0: all that have been sent.
    pub fn block(&self) -> u32 {
        get_u24(self.bytes(), field::BLOCK)
    }
}

impl Resume {
    /// The version of the body that is written and read here.
    pub const VERSION: u8 = 1;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Error::Truncated`] and [`Error::Length`] where it is not 12 bytes long, [`Error::Version`].
    pub fn parse(body: &[u8]) -> Result<Resume, Error> {
        let packet = Packet::new(body)?;
        if packet.version() != Self::VERSION {
            return Err(Error::Version(packet.version()));
        }
        if body.len() != LEN {
            return Err(Error::Length);
        }
        Ok(Resume { psn: packet.psn(), block: packet.block() })
    }

    /// Writes the body and gives its length, 12 bytes. Both numbers have 24 bits.
    ///
    /// # Panics
    /// Where `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut packet = Packet::new(buffer).expect("the buffer holds a RESUME");
        let bytes = packet.bytes_mut();
        bytes[field::VERSION] = Self::VERSION;
        put(bytes, field::RESERVED_1, [0; 4]);
        put_u24(bytes, field::PSN, self.psn);
        bytes[field::RESERVED_2] = 0;
        put_u24(bytes, field::BLOCK, self.block);
        LEN
    }
}
