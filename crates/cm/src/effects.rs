//! What the state machines ask of who steps them.

use crate::event::EventKind;
use pagewire_wire::cm::{CmDatagram, CmMessage};

/// What a step asks of who made it.
#[derive(Debug, Default)]
pub struct Effects {
    /// To be sent to the peer's queue pair 1.
    pub datagrams: Vec<CmDatagram>,
    /// For the program.
    pub events: Vec<EventKind>,
}

impl Effects {
    pub(crate) fn send(&mut self, transaction: u64, message: impl Into<CmMessage>) {
        self.datagrams.push(CmDatagram::new(transaction, message));
    }
}
