//! Queue pairs that are to be driven again, by whichever thread runs the next round.

pub use pagewire_transport::Occasion;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};

/// How soon a queue pair is to be driven again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Again {
    /// It waits for others, who say nothing when they are done: a full ring, a full batch, slots that are all taken.
    Later = 1,
    /// Its turn was over before its work was.
    Soon = 2,
}

/// Their numbers, in order.
#[derive(Default)]
pub struct Ready {
    list: Mutex<VecDeque<u32>>,
    /// How soon that is to be: the most urgent [`Again`] among them; 0: there are none.
    urgency: AtomicU8,
}

impl Ready {
    /// Adds one that is not in the list.
    pub fn add(&self, queue_pair: u32, again: Again) {
        let mut list = self.list.lock();
        list.push_back(queue_pair);
        // With the lock, behind the list: whoever takes that finds them together.
        self.raise(again);
    }

    /// One that is in the list, or about to be, is to be driven as soon as this.
    pub fn raise(&self, again: Again) {
        self.urgency.fetch_max(again as u8, Ordering::SeqCst);
    }

    /// How soon somebody has to look. `None`: there is nothing.
    #[inline]
    pub fn urgency(&self) -> Option<Again> {
        match self.urgency.load(Ordering::SeqCst) {
            0 => None,
            urgency if urgency == Again::Later as u8 => Some(Again::Later),
            _ => Some(Again::Soon),
        }
    }

    /// Takes them all.
    pub fn take(&self) -> VecDeque<u32> {
        if self.urgency().is_none() {
            return VecDeque::new();
        }
        let mut list = self.list.lock();
        self.urgency.store(0, Ordering::SeqCst);
        std::mem::take(&mut *list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_most_urgent_counts() {
        let ready = Ready::default();
        assert_eq!((ready.urgency(), ready.take().len()), (None, 0));
        for (again, expected) in
            [(Again::Later, Again::Later), (Again::Soon, Again::Soon), (Again::Later, Again::Soon)]
        {
            ready.add(7, again);
            assert_eq!(ready.urgency(), Some(expected));
        }
        assert_eq!((ready.take(), ready.urgency()), ([7, 7, 7].into(), None));
    }

    /// Whoever takes the list while one is added to it finds that, or a later look does.
    #[test]
    fn none_is_forgotten_that_is_added_while_others_are_taken() {
        const EACH: u32 = 100_000;
        let (ready, done) = (&Ready::default(), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    ready.take();
                }
            });
            let mut forgotten = None;
            for number in 0..EACH {
                ready.add(number, Again::Later);
                while forgotten.is_none() && !ready.list.lock().is_empty() {
                    // Nobody has added anything since: if it is still there, nobody will take it.
                    let noticed = ready.urgency().is_some();
                    forgotten = (!noticed && !ready.list.lock().is_empty()).then_some(number);
                }
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(forgotten, None, "in the list, and nobody looks");
        });
    }
}
