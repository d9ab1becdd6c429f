//! The two halves of a queue pair.

use pagewire_wire::{PacketHeader, PacketOperation};

/// The half of a queue pair that a packet is for. Neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpRole {
    /// Responses, acknowledgements, and what the peer's NIC has to say.
    Requester,
    /// Requests.
    Responder,
}

impl QpRole {
    /// Which one a packet is for.
    #[inline(always)] // Part of each packet.
    pub fn of(header: &PacketHeader) -> QpRole {
        use PacketOperation::{
            Acknowledge, AtomicAcknowledge, ReadResponseFirst, ReadResponseLast, ReadResponseMiddle,
            ReadResponseOnly,
        };
        match header.bth.opcode.operation() {
            // A request that nobody knows is refused as others are.
            None if header.bth.opcode.transport().is_reliable() => QpRole::Responder,
            None
            | Some(
                Acknowledge | AtomicAcknowledge | ReadResponseFirst | ReadResponseMiddle | ReadResponseLast
                | ReadResponseOnly,
            ) => QpRole::Requester,
            Some(_) => QpRole::Responder,
        }
    }
}
