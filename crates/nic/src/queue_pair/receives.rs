//! Where the messages of a queue pair find receives: in a queue of its own, or in one that it shares.

use crate::queue_pair::request::{ReceiveQueue, ReceiveWork, WholeReceive};
use crate::queue_pair::shared_receive::SharedReceiveQueue;
use pagewire_fabric::Fabric;
use pagewire_fabric::lock::Lock;
use std::sync::Arc;

/// The receives of a queue pair.
pub struct Receives<F: Fabric> {
    pub srq: Option<Arc<SharedReceiveQueue<F>>>,
    /// Empty where there is a shared one.
    pub own: Lock<ReceiveQueue>,
}

impl<F: Fabric> Receives<F> {
    /// Of a shared receive queue, or of an own one for so many receives.
    pub fn new(srq: Option<Arc<SharedReceiveQueue<F>>>, most: u32) -> Self {
        Receives { srq, own: Lock::new(ReceiveQueue::new(most)) }
    }

    /// Takes the oldest receive.
    pub fn take(&self) -> Option<ReceiveWork> {
        match &self.srq {
            Some(srq) => srq.take(),
            None => self.own.lock().take(),
        }
    }

    /// Takes a receive for a message of `length` bytes that completes it at once, if the oldest is of one piece.
    #[inline(always)] // What is returned in memory has to be waited for.
    pub fn take_whole(&self, length: u32) -> Option<WholeReceive> {
        match &self.srq {
            Some(srq) => srq.take_whole(length),
            None => self.own.lock().take_whole(length),
        }
    }

    /// The message of a receive that was [taken whole](Self::take_whole) is not complete yet after all.
    pub fn count_as_taken(&self) {
        match &self.srq {
            Some(srq) => srq.count_as_taken(),
            None => self.own.lock().count_as_taken(),
        }
    }

    /// A receive that a message has taken is complete.
    pub fn completed(&self) {
        match &self.srq {
            Some(srq) => srq.completed(),
            None => self.own.lock().completed(),
        }
    }

    /// Whether a message would find a receive.
    pub fn has_any(&self) -> bool {
        match &self.srq {
            Some(srq) => srq.has_receive(),
            None => self.own.lock().waiting() > 0,
        }
    }

    /// The protection domain that receive buffers belong to, where those of an own queue are of `own`.
    pub fn domain_number(&self, own: u32) -> u32 {
        self.srq.as_ref().map_or(own, |srq| srq.domain_number())
    }
}
