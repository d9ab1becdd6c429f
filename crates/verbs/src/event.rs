//! Counting of events that programs took and acknowledged.

use parking_lot::{Condvar, Mutex};

/// Events handed to the program and not acknowledged yet; an object is freed only when there are none
/// (`ibv_ack_cq_events(3)`, `ibv_get_async_event(3)`).
///
/// The engine forgets the waiting events of an object that it destroys. Only this side knows when one was
/// handed over, because that happens under the lock of the descriptor from which it was taken.
#[derive(Default)]
pub struct Acknowledgements {
    missing: Mutex<u64>,
    settled: Condvar,
}

impl Acknowledgements {
    /// An event was handed to the program.
    pub fn handed_out(&self) {
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

    /// Sleeps until every event is acknowledged.
    pub fn wait(&self) {
        let mut missing = self.missing.lock();
        while *missing > 0 {
            self.settled.wait(&mut missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let acknowledgements = Arc::new(Acknowledgements::default());
        acknowledgements.handed_out();
        acknowledgements.handed_out();
        acknowledgements.acknowledge(1);
        let waiter = {
            let acknowledgements = acknowledgements.clone();
            std::thread::spawn(move || acknowledgements.wait())
        };
        acknowledgements.acknowledge(1);
        waiter.join().unwrap();
        acknowledgements.acknowledge(5);
        acknowledgements.wait();
    }
}
