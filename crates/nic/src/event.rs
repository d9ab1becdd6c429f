//! Asynchronous events, and waiting until the program has acknowledged what it was told.

use parking_lot::{Condvar, Mutex};

/// Kinds of asynchronous events (values of `enum ibv_event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncEventKind {
    CompletionQueueError = 0,
    QueuePairFatal = 1,
    QueuePairRequestError = 2,
    QueuePairAccessError = 3,
    CommunicationEstablished = 4,
    SendQueueDrained = 5,
    DeviceFatal = 8,
    PortActive = 9,
    PortError = 10,
    SharedReceiveQueueError = 14,
    SharedReceiveQueueLimitReached = 15,
    LastWorkRequestReached = 16,
}

/// What an event is about; the cookies are the verbs objects' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    QueuePair { number: u32, cookie: u64 },
    CompletionQueue { cookie: u64 },
    SharedReceiveQueue { cookie: u64 },
    Port(u8),
    Device,
}

/// One asynchronous event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncEvent {
    pub kind: AsyncEventKind,
    pub element: Element,
}

/// Counts events handed to the program and events it acknowledged: an object is destroyed only when they agree
/// (`ibv_ack_cq_events(3)`, `ibv_get_async_event(3)`).
#[derive(Default)]
pub struct AcknowledgementGate {
    unacknowledged: Mutex<u64>,
    settled: Condvar,
}

impl AcknowledgementGate {
    /// An event was handed to the program.
    pub fn handed_out(&self) {
        *self.unacknowledged.lock() += 1;
    }

    /// The program acknowledged events; more than it was given are ignored.
    pub fn acknowledge(&self, events: u64) {
        let mut unacknowledged = self.unacknowledged.lock();
        *unacknowledged = unacknowledged.saturating_sub(events);
        if *unacknowledged == 0 {
            self.settled.notify_all();
        }
    }

    /// Sleeps until everything is acknowledged.
    pub fn wait(&self) {
        let mut unacknowledged = self.unacknowledged.lock();
        while *unacknowledged != 0 {
            self.settled.wait(&mut unacknowledged);
        }
    }
}
