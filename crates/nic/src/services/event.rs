//! Asynchronous events, the queues in which events wait for the program, and waiting until it has acknowledged them.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

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
    GidChange = 18,
}

/// What an event is about; the cookies are the verbs objects' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    QueuePair { cookie: u64 },
    CompletionQueue { cookie: u64 },
    SharedReceiveQueue { cookie: u64 },
    Port { number: u8 },
    Device,
}

/// One asynchronous event, handed out to the program.
pub struct AsyncEvent {
    pub kind: AsyncEventKind,
    pub element: EventSource,
    pub(crate) of: Arc<Acknowledgements>,
}

impl AsyncEvent {
    /// `ibv_ack_async_event(3)`.
    pub fn acknowledge(&self) {
        self.of.acknowledge(1);
    }
}

/// A descriptor on which the program sleeps for events: it can be read as often as events wait.
pub trait Notifier: Send + Sync {
    /// One more event waits.
    fn raise(&self);
    /// An event that waited is gone unread: takes one reading away, unless a thread of the program has it already. Does not block.
    fn withdraw(&self);
}

/// For owners that look for events by themselves.
pub struct Unwatched;

impl Notifier for Unwatched {
    fn raise(&self) {}
    fn withdraw(&self) {}
}

/// Events handed to the program and not acknowledged yet; an object is gone only when there are none
/// (`ibv_ack_cq_events(3)`, `ibv_get_async_event(3)`).
#[derive(Default)]
pub struct Acknowledgements {
    missing: Mutex<u64>,
    settled: Condvar,
}

impl Acknowledgements {
    fn handed_out(&self) {
        *self.missing.lock() += 1;
    }

    /// The program acknowledged events; more than it was given are ignored.
    pub fn acknowledge(&self, events: u32) {
        let mut missing = self.missing.lock();
        *missing = missing.saturating_sub(u64::from(events));
        if *missing == 0 {
            self.settled.notify_all();
        }
    }

    /// Nobody will acknowledge any more: the program gives up the object without it.
    pub fn abandon(&self) {
        *self.missing.lock() = 0;
        self.settled.notify_all();
    }

    /// Sleeps until everything is acknowledged.
    pub fn wait(&self) {
        let mut missing = self.missing.lock();
        while *missing != 0 {
            self.settled.wait(&mut missing);
        }
    }
}

/// Events that wait for the program, oldest first, each with what counts it when it is handed out.
pub struct ProgramEvents<T> {
    waiting: Mutex<VecDeque<(T, Arc<Acknowledgements>)>>,
    notifier: Arc<dyn Notifier>,
}

impl<T> ProgramEvents<T> {
    /// None yet; `notifier` tells the program.
    pub fn new(notifier: Arc<dyn Notifier>) -> Self {
        ProgramEvents { waiting: Mutex::new(VecDeque::new()), notifier }
    }

    /// Adds an event unless `limit` of them wait. False: it was not added.
    pub fn raise(&self, event: T, of: &Arc<Acknowledgements>, limit: usize) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= limit {
            return false;
        }
        waiting.push_back((event, of.clone()));
        // With the lock, so that readings and events never differ for whoever withdraws.
        self.notifier.raise();
        true
    }

    /// Hands out the oldest event; from now on its object waits for the acknowledgement. `None`: there is none, though the
    /// descriptor could be read, because its object was destroyed in between.
    pub fn next(&self) -> Option<(T, Arc<Acknowledgements>)> {
        let mut waiting = self.waiting.lock();
        let next = waiting.pop_front()?;
        next.1.handed_out();
        Some(next)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Withdraws the events of an object that goes, and waits until those that were handed out are acknowledged.
    pub fn withdraw(&self, of: &Arc<Acknowledgements>) {
        {
            let mut waiting = self.waiting.lock();
            let before = waiting.len();
            waiting.retain(|(_, counted)| !Arc::ptr_eq(counted, of));
            for _ in waiting.len()..before {
                self.notifier.withdraw();
            }
        }
        of.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};

    #[derive(Default)]
    struct RaiseCount(AtomicI32);

    impl Notifier for RaiseCount {
        fn raise(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn withdraw(&self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn next(queue: &ProgramEvents<u32>) -> Option<u32> {
        queue.next().map(|(event, _)| event)
    }

    #[test]
    fn the_events_of_an_object_that_goes_are_withdrawn() {
        let readings = Arc::new(RaiseCount::default());
        let queue = ProgramEvents::new(readings.clone());
        let (goes, stays) = (Arc::default(), Arc::default());
        for (event, of) in [(1, &goes), (2, &stays), (3, &goes)] {
            assert!(queue.raise(event, of, 3));
        }
        assert!(!queue.raise(4, &stays, 3), "no room");
        queue.withdraw(&goes);
        assert_eq!(readings.0.load(Ordering::Relaxed), 1);
        assert_eq!((next(&queue), next(&queue)), (Some(2), None));
    }

    #[test]
    fn an_object_waits_for_the_last_acknowledgement() {
        let queue = Arc::new(ProgramEvents::new(Arc::new(Unwatched)));
        let of = Arc::new(Acknowledgements::default());
        assert!(queue.raise(1, &of, 8) && queue.raise(2, &of, 8));
        assert_eq!((next(&queue), next(&queue)), (Some(1), Some(2)));
        of.acknowledge(1);
        let waiter = {
            let (queue, of) = (queue.clone(), of.clone());
            std::thread::spawn(move || {
                queue.withdraw(&of);
                *of.missing.lock()
            })
        };
        of.acknowledge(1);
        assert_eq!(waiter.join().unwrap(), 0);
        // More than was handed out counts for nothing.
        of.acknowledge(5);
        assert!(queue.raise(3, &of, 8));
        assert_eq!(next(&queue), Some(3));
        assert_eq!(*of.missing.lock(), 1);
    }
}
