//! HOLD: the responder has a packet but waits for a page; the requester shall be patient.
//!
//! The requester starts its retry count anew and does not take the silence for loss. Where the packet was dropped (the
//! page-fault NACK of PART, section 4.2) it does not send it again for that, and its timer runs on.

use crate::Error;
use crate::view::{get_u24, put, put_u24, view};

/// Bytes of the body.
pub(super) const LEN: usize = 8;

mod field {
    pub const VERSION: usize = 0;
    pub const FLAGS: usize = 1;
    pub const RESERVED: usize = 2;
    pub const PSN: usize = 5;
}

bitflags::bitflags! {
    /// What becomes of the packet. Unknown bits are kept: a newer peer may set them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct HoldFlags: u8 {
        /// It was dropped: it has to be sent again, at the latest when the requester's timer runs out.
        const DROPPED = 1 << 0;
        /// RESUME will say when it is to be sent again; sooner is too soon.
        const UNTIL_RESUME = 1 << 1;
        const _ = !0;
    }
}

/// The responder waits for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// PSN of the request packet that waits, 24 bits.
    pub psn: u32,
    /// What becomes of it; none: it is kept, and executed when the page is there.
    pub flags: HoldFlags,
}

view! {
    /// A view over the body of a HOLD.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Version of the body.
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION]
    }

    /// What becomes of the packet.
    pub fn flags(&self) -> HoldFlags {
        HoldFlags::from_bits_retain(self.bytes()[field::FLAGS])
    }

    /// PSN of the request packet that waits, 24 bits.
    pub fn psn(&self) -> u32 {
        get_u24(self.bytes(), field::PSN)
    }
}

impl Hold {
    /// The version of the body that is written and read here.
    pub const VERSION: u8 = 1;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Error::Truncated`] and [`Error::Length`] where it is not 8 bytes long, [`Error::Version`].
    pub fn parse(body: &[u8]) -> Result<Hold, Error> {
        let packet = Packet::new(body)?;
        if packet.version() != Self::VERSION {
            return Err(Error::Version(packet.version()));
        }
        if body.len() != LEN {
            return Err(Error::Length);
        }
        Ok(Hold { psn: packet.psn(), flags: packet.flags() })
    }

    /// Writes the body and gives its length, 8 bytes.
    ///
    /// # Panics
    /// Where `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut packet = Packet::new(buffer).expect("the buffer holds a HOLD");
        let bytes = packet.bytes_mut();
        bytes[field::VERSION] = Self::VERSION;
        bytes[field::FLAGS] = self.flags.bits();
        put(bytes, field::RESERVED, [0; 3]);
        put_u24(bytes, field::PSN, self.psn);
        LEN
    }
}
