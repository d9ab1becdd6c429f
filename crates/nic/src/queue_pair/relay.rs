//! Requests by XRC for shared receive queues of other processes: what a queue pair hands over to the process that has the queue, and what
//! comes back (docs/internals/xrc.md).
//!
//! A queue pair has at most two of them under way: one for the request that it executes, and one for the READ that it answers. It never
//! waits for their end. Whoever ends one has the queue pair run again.

use crate::types::error::Result;
use pagewire_transport::{AtomicRequest, Denial, FlushRequest, ReadPart, RemoteAddress};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What another process does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayOperation {
    /// Places the payload into the next receive.
    Send {
        immediate: Option<u32>,
        solicited: bool,
    },
    /// Writes the payload.
    Write {
        remote: RemoteAddress,
        immediate: Option<u32>,
        solicited: bool,
    },
    /// Writes the 8 bytes of the payload at once.
    AtomicWrite {
        remote: RemoteAddress,
    },
    /// Gives the value that was there.
    Atomic {
        remote: RemoteAddress,
        atomic: AtomicRequest,
    },
    Flush {
        remote: RemoteAddress,
        length: u32,
        flush: FlushRequest,
    },
    /// Says whether so many bytes may be read.
    CheckRead {
        remote: RemoteAddress,
        length: u32,
    },
    /// Gives bytes.
    Read {
        remote: RemoteAddress,
        length: u32,
    },
}

/// A request for a shared receive queue of another process.
#[derive(Debug, Clone)]
pub struct RelayRequest {
    /// Number of the shared receive queue.
    pub queue: u32,
    /// Number of the queue pair that the request came to.
    pub queue_pair: u32,
    pub operation: RelayOperation,
    pub payload: Arc<Vec<u8>>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayOutcome {
    /// With the bytes that it gives, if it gives any.
    Done(Vec<u8>),
    /// There is no receive.
    NotReady,
    Denied(Denial),
}

/// How a process reaches the others that share an XRC domain with it.
pub trait XrcSharing: Send + Sync {
    /// A number for a shared receive queue, by which the other processes find this one, and which is not taken.
    ///
    /// # Errors
    /// `NoMemory`: there is none. Those of the kernel.
    fn free_number(&self, is_taken: &dyn Fn(u32) -> bool) -> Result<u32>;
    /// Has the process that has the queue execute a request. Does not wait. A queue that no process has is an invalid request.
    fn relay(&self, request: RelayRequest, end: RelayEnd);
    /// The requests that are under way for a queue pair are given up. Each ends when the other process does nothing for it any more, or has
    /// ended. Does not wait. Also called when a queue pair has ended.
    fn give_up(&self, queue_pair: u32);
    /// The domain ends. When this returns no other process does anything in it by way of this one.
    fn end(&self);
}

/// The end of a request that is under way. One that is dropped ends as an invalid request: nobody has the queue any more.
pub struct RelayEnd {
    ticket: Arc<Mutex<Option<RelayOutcome>>>,
    wake: Option<Box<dyn FnOnce() + Send>>,
}

impl RelayEnd {
    /// Tells the queue pair.
    pub fn finish(mut self, outcome: RelayOutcome) {
        self.set(outcome);
    }

    fn set(&mut self, outcome: RelayOutcome) {
        if let Some(wake) = self.wake.take() {
            *self.ticket.lock() = Some(outcome);
            wake();
        }
    }
}

impl Drop for RelayEnd {
    fn drop(&mut self) {
        self.set(RelayOutcome::Denied(Denial::InvalidRequest));
    }
}

/// A request that is under way, or has ended and was not asked about yet.
pub struct PendingRelay {
    queue: u32,
    operation: RelayOperation,
    ticket: Arc<Mutex<Option<RelayOutcome>>>,
}

impl PendingRelay {
    /// Begins one; `wake` has the queue pair run when it has ended. `in_flight` counts it until then.
    pub fn begin(
        sharing: &dyn XrcSharing,
        request: RelayRequest,
        in_flight: Arc<AtomicU32>,
        wake: Arc<dyn Fn(u32) + Send + Sync>,
    ) -> Self {
        let ticket = Arc::new(Mutex::new(None));
        let pending =
            PendingRelay { queue: request.queue, operation: request.operation, ticket: ticket.clone() };
        let number = request.queue_pair;
        in_flight.fetch_add(1, Ordering::AcqRel);
        let wake = move || {
            in_flight.fetch_sub(1, Ordering::AcqRel);
            wake(number);
        };
        sharing.relay(request, RelayEnd { ticket, wake: Some(Box::new(wake)) });
        pending
    }

    /// Whether it is this operation, on this queue.
    pub fn is(&self, queue: u32, operation: &RelayOperation) -> bool {
        self.queue == queue && self.operation == *operation
    }

    /// Whether it takes the bytes of a message along.
    pub fn has_payload(&self) -> bool {
        use RelayOperation::{AtomicWrite, Send, Write};
        matches!(self.operation, Send { .. } | Write { .. } | AtomicWrite { .. })
    }

    /// How it ended. `None`: it is under way.
    pub fn take_outcome(&self) -> Option<RelayOutcome> {
        self.ticket.lock().take()
    }
}

/// Bytes of a READ that came from another process, and have not been sent yet.
pub struct ReadAhead {
    part: ReadPart,
    bytes: Vec<u8>,
}

impl ReadAhead {
    /// Bytes that begin with this part.
    pub fn new(part: ReadPart, bytes: Vec<u8>) -> Self {
        ReadAhead { part, bytes }
    }

    /// The bytes of a part, if they are here.
    pub fn bytes(&self, part: &ReadPart, length: u32) -> Option<&[u8]> {
        let is_same = (part.read, part.shared_queue) == (self.part.read, self.part.shared_queue);
        let offset = part.before.checked_sub(self.part.before)? as usize;
        if is_same { self.bytes.get(offset..offset + length as usize) } else { None }
    }
}

/// What a queue pair of type XRC_RECV keeps of requests for other processes.
#[derive(Default)]
pub struct Relays {
    /// Bytes of the message that is coming in, or was executed last without a receive.
    pub staged: Arc<Vec<u8>>,
    /// The address that the WRITE goes to which is coming in.
    pub written: u64,
    /// The bytes that come are those of an atomic WRITE.
    pub is_atomic_write: bool,
    /// For the request that is executed.
    pub executing: Option<PendingRelay>,
    /// For the READ that is answered.
    pub reading: Option<PendingRelay>,
    pub read_ahead: Option<ReadAhead>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_transport::Psn;
    use std::sync::atomic::AtomicBool;

    /// Drops the end of each request.
    struct DroppingSharing;

    impl XrcSharing for DroppingSharing {
        fn free_number(&self, _is_taken: &dyn Fn(u32) -> bool) -> Result<u32> {
            Ok(1)
        }
        fn relay(&self, _request: RelayRequest, _end: RelayEnd) {}
        fn give_up(&self, _queue_pair: u32) {}
        fn end(&self) {}
    }

    #[test]
    fn dropped_request_is_invalid() {
        let operation = RelayOperation::Send { immediate: None, solicited: false };
        let request = RelayRequest { queue: 7, queue_pair: 9, operation, payload: Arc::default() };
        let (in_flight, woken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let wake: Arc<dyn Fn(u32) + Send + Sync> = {
            let woken = woken.clone();
            Arc::new(move |number| woken.store(number == 9, Ordering::Relaxed))
        };
        let pending = PendingRelay::begin(&DroppingSharing, request, in_flight.clone(), wake);
        assert!(pending.is(7, &operation) && !pending.is(8, &operation));
        assert!(woken.load(Ordering::Relaxed) && in_flight.load(Ordering::Relaxed) == 0);
        assert_eq!(pending.take_outcome(), Some(RelayOutcome::Denied(Denial::InvalidRequest)));
        assert_eq!(pending.take_outcome(), None);
    }

    #[test]
    fn read_ahead_gives_parts_of_its_own_read() {
        let part = |read, before| ReadPart { read: Psn::new(read), before, ..ReadPart::default() };
        let ahead = ReadAhead::new(part(3, 4096), vec![5; 8192]);
        assert_eq!(ahead.bytes(&part(3, 8192), 4096).map(<[u8]>::len), Some(4096));
        assert_eq!(ahead.bytes(&part(3, 8192), 4097), None);
        assert_eq!(ahead.bytes(&part(3, 0), 1), None);
        assert_eq!(ahead.bytes(&part(4, 4096), 1), None);
    }
}
