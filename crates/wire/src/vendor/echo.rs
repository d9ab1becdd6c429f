//! ECHO: whether packets from a source port of the sender's reach the peer.
//!
//! Asked by one fabric and answered by the other; queue pairs never see it. The answer comes to the port that all packets come to.

use crate::view::{get_u24, put, put_u24, view};
use crate::{Error, Opcode};

mod field {
    pub const VERSION: usize = 0;
    pub const KIND: usize = 1;
    pub const RESERVED: usize = 2;
    pub const QUEUE_PAIR: usize = 5;
    pub const NONCE: usize = 8;
}

/// Question or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The question has arrived.
    pub answer: bool,
    /// In a question: a queue pair number of the one who asks, 24 bits, for the answer to be sent to. In an answer: the same.
    pub queue_pair: u32,
    /// What the question said, unchanged.
    pub nonce: u64,
}

view! {
    /// A view over the body of an ECHO.
    Packet, Echo::LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Version of the body.
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION]
    }

    /// 0 for a question, 1 for an answer.
    pub fn kind(&self) -> u8 {
        self.bytes()[field::KIND]
    }

    /// Where the answer goes, 24 bits.
    pub fn queue_pair(&self) -> u32 {
        get_u24(self.bytes(), field::QUEUE_PAIR)
    }

    /// What belongs together.
    pub fn nonce(&self) -> u64 {
        self.bytes()[field::NONCE..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

impl Echo {
    /// The version of the body that is written and read here.
    pub const VERSION: u8 = 1;
    /// Bytes of the body.
    pub const LEN: usize = 16;
    /// The opcode in its BTH.
    pub const OPCODE: Opcode = Opcode::ECHO;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Error::Truncated`] and [`Error::Length`] where it is not 16 bytes long, [`Error::Version`] where version or kind are
    /// not known.
    pub fn parse(body: &[u8]) -> Result<Echo, Error> {
        let packet = Packet::new(body)?;
        if packet.version() != Self::VERSION || packet.kind() > 1 {
            return Err(Error::Version(packet.version()));
        }
        if body.len() != Self::LEN {
            return Err(Error::Length);
        }
        Ok(Echo { answer: packet.kind() == 1, queue_pair: packet.queue_pair(), nonce: packet.nonce() })
    }

    /// Writes the body and gives its length, 16 bytes.
    ///
    /// # Panics
    /// Where `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut packet = Packet::new(buffer).expect("the buffer holds an ECHO");
        let bytes = packet.bytes_mut();
        bytes[field::VERSION] = Self::VERSION;
        bytes[field::KIND] = u8::from(self.answer);
        put(bytes, field::RESERVED, [0; 3]);
        put_u24(bytes, field::QUEUE_PAIR, self.queue_pair);
        put(bytes, field::NONCE, self.nonce.to_be_bytes());
        Self::LEN
    }
}
