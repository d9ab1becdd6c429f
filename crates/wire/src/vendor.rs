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
mod skip;

pub use echo::Echo;
pub use hello::{Capabilities, Hello};
pub use hold::{Hold, HoldFlags};
pub use resume::Resume;
pub use selective_ack::{Received, SelectiveAck};
pub use skip::Skip;

use crate::{Error, Opcode};

/// The views over the bodies.
pub mod view {
    pub use super::echo::Packet as Echo;
    pub use super::hello::Packet as Hello;
    pub use super::hold::Packet as Hold;
    pub use super::resume::Packet as Resume;
    pub use super::selective_ack::Packet as SelectiveAck;
    pub use super::skip::Packet as Skip;
}

/// The body of one of Pagewire's own packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorPacket {
    /// Who the sender is and what it can do.
    Hello(Hello),
    /// Which packets have arrived.
    SelectiveAck(SelectiveAck),
    /// The responder waits for a page.
    Hold(Hold),
    /// The page is there now.
    Resume(Resume),
    /// The requester has seen a refusal, and goes on behind the request.
    Skip(Skip),
}

impl VendorPacket {
    /// Bytes of the longest body.
    pub const MAX_LEN: usize = selective_ack::MAX_LEN;

    /// Reads the body behind a BTH with `opcode`.
    ///
    /// # Errors
    /// [`Error::Opcode`] where the opcode is none of Pagewire's own; else as the format's `parse`.
    pub fn parse(opcode: Opcode, body: &[u8]) -> Result<VendorPacket, Error> {
        match opcode {
            Opcode::HELLO => Hello::parse(body).map(VendorPacket::Hello),
            Opcode::SELECTIVE_ACK => SelectiveAck::parse(body).map(VendorPacket::SelectiveAck),
            Opcode::HOLD => Hold::parse(body).map(VendorPacket::Hold),
            Opcode::RESUME => Resume::parse(body).map(VendorPacket::Resume),
            Opcode::SKIP => Skip::parse(body).map(VendorPacket::Skip),
            other => Err(Error::Opcode(other)),
        }
    }

    /// The opcode that goes with this body.
    pub const fn opcode(&self) -> Opcode {
        match self {
            VendorPacket::Hello(_) => Opcode::HELLO,
            VendorPacket::SelectiveAck(_) => Opcode::SELECTIVE_ACK,
            VendorPacket::Hold(_) => Opcode::HOLD,
            VendorPacket::Resume(_) => Opcode::RESUME,
            VendorPacket::Skip(_) => Opcode::SKIP,
        }
    }

    /// Bytes that [`emit`](Self::emit) writes, a multiple of four.
    pub const fn body_len(&self) -> usize {
        match self {
            VendorPacket::Hello(_) => hello::LEN,
            VendorPacket::SelectiveAck(selective_ack) => selective_ack.body_len(),
            VendorPacket::Hold(_) => hold::LEN,
            VendorPacket::Resume(_) => resume::LEN,
            VendorPacket::Skip(_) => skip::LEN,
        }
    }

    /// Writes the body and gives its length in bytes.
    ///
    /// # Panics
    /// Where `buffer` is shorter than [`body_len`](Self::body_len).
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        match self {
            VendorPacket::Hello(hello) => hello.emit(buffer),
            VendorPacket::SelectiveAck(selective_ack) => selective_ack.emit(buffer),
            VendorPacket::Hold(hold) => hold.emit(buffer),
            VendorPacket::Resume(resume) => resume.emit(buffer),
            VendorPacket::Skip(skip) => skip.emit(buffer),
        }
    }
}
