//! The question where the owner of a port takes messages, which one Pagewire asks another.
//!
//! It is the Get of ClassPortInfo (section 13.4.8.1), which every connection manager answers: one that is no Pagewire's says at once that it does not
//! support it, or tells its own. The class leaves all bytes of a Get free, and those behind the 72 of ClassPortInfo in its answer.

use super::fields::{BitField, FieldValue, messages};

/// What tells a query of Pagewire from any other Get: "PWPQ".
pub const PORT_QUERY_MARK: u32 = 0x5057_5051;

messages! {
    /// Asks who owns a port of the passive side's host.
    PortQuery = 0x01 GET {
        /// [`PORT_QUERY_MARK`].
        mark: u32 = 72:0 / 32,
        /// Communication ID of who asks.
        local_comm_id: u32 = 76:0 / 32,
        /// The service whose port it is.
        service_id: u64 = 80:0 / 64,
    }

    /// Answers a [`PortQuery`].
    PortAnswer = 0x01 GET_RESP {
        /// [`PORT_QUERY_MARK`].
        mark: u32 = 72:0 / 32,
        /// Communication ID of who has asked.
        remote_comm_id: u32 = 76:0 / 32,
        /// The service that was asked for.
        service_id: u64 = 80:0 / 64,
        /// UDP port at which the owner takes messages; 0: nobody owns the port.
        udp_port: u16 = 88:0 / 16,
    }
}

impl PortQuery {
    /// The answer: the UDP port at which the owner takes messages, or 0.
    pub fn answer(&self, udp_port: u16) -> PortAnswer {
        PortAnswer {
            mark: PORT_QUERY_MARK,
            remote_comm_id: self.local_comm_id,
            service_id: self.service_id,
            udp_port,
        }
    }
}
