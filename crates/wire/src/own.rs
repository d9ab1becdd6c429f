//! Pagewire's own packets: manufacturer opcodes that a standard peer drops.
//!
//! Each is a BTH and a small body. The first byte of a body is its version; a body of another
//! version or of a wrong length is an error, reserved bytes are sent as zero and ignored when
//! received. The values of opcodes and bits here are a protocol: they never change their meaning.

mod echo;
mod hello;
mod hold;
mod resume;
mod selective_ack;

pub use echo::Echo;
pub use hello::{Capabilities, Hello};
pub use hold::{Hold, HoldFlags};
pub use resume::Resume;
pub use selective_ack::{Received, SelectiveAck};

use crate::{Error, Opcode};

/// The views over the bodies.
pub mod view {
    pub use super::echo::Packet as Echo;
    pub use super::hello::Packet as Hello;
    pub use super::hold::Packet as Hold;
    pub use super::resume::Packet as Resume;
    pub use super::selective_ack::Packet as SelectiveAck;
}

/// The body of one of Pagewire's own packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// Who the sender is and what it can do.
    Hello(Hello),
    /// Which packets have arrived.
    SelectiveAck(SelectiveAck),
    /// The responder waits for a page.
    Hold(Hold),
    /// The page is there now.
    Resume(Resume),
}

impl Own {
    /// Bytes of the longest body.
    pub const MAX_LEN: usize = selective_ack::MAX_LEN;

    /// Reads the body behind a BTH with `opcode`.
    ///
    /// # Errors
    /// [`Error::Opcode`] where the opcode is none of Pagewire's own; else as the format's `parse`.
    pub fn parse(opcode: Opcode, body: &[u8]) -> Result<Own, Error> {
        match opcode {
            Opcode::HELLO => Hello::parse(body).map(Own::Hello),
            Opcode::SELECTIVE_ACK => SelectiveAck::parse(body).map(Own::SelectiveAck),
            Opcode::HOLD => Hold::parse(body).map(Own::Hold),
            Opcode::RESUME => Resume::parse(body).map(Own::Resume),
            other => Err(Error::Opcode(other)),
        }
    }

    /// The opcode that goes with this body.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Own::Hello(_) => Opcode::HELLO,
            Own::SelectiveAck(_) => Opcode::SELECTIVE_ACK,
            Own::Hold(_) => Opcode::HOLD,
            Own::Resume(_) => Opcode::RESUME,
        }
    }

    /// Bytes that [`emit`](Self::emit) writes, a multiple of four.
    pub const fn body_len(&self) -> usize {
        match self {
            Own::Hello(_) => hello::LEN,
            Own::SelectiveAck(selective_ack) => selective_ack.body_len(),
            Own::Hold(_) => hold::LEN,
            Own::Resume(_) => resume::LEN,
        }
    }

    /// Writes the body and gives its length in bytes.
    ///
    /// # Panics
    /// Where `buffer` is shorter than [`body_len`](Self::body_len).
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        match self {
            Own::Hello(hello) => hello.emit(buffer),
            Own::SelectiveAck(selective_ack) => selective_ack.emit(buffer),
            Own::Hold(hold) => hold.emit(buffer),
            Own::Resume(resume) => resume.emit(buffer),
        }
    }
}
