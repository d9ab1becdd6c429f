//! Events in the order of virtual time; those of one instant in the order in which they were made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is to happen, and the time now, in nanoseconds.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    coming: BinaryHeap<Reverse<Coming<E>>>,
    made: u64,
    now: u64,
}

#[derive(Debug)]
struct Coming<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    pub fn new() -> Self {
        EventQueue { coming: BinaryHeap::new(), made: 0, now: 0 }
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    /// Lets `event` happen `delay` nanoseconds from now.
    pub fn after(&mut self, delay: u64, event: E) {
        self.made += 1;
        self.coming.push(Reverse(Coming { at: self.now + delay, number: self.made, event }));
    }

    /// The next event; it is then the time of that.
    pub fn next(&mut self) -> Option<E> {
        let Reverse(coming) = self.coming.pop()?;
        self.now = coming.at;
        Some(coming.event)
    }
}

impl<E> Ord for Coming<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> PartialOrd for Coming<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Coming<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Coming<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_equal_times_keep_their_order() {
        let mut queue = EventQueue::new();
        for (at, event) in [(30, 'd'), (10, 'a'), (20, 'b'), (20, 'c')] {
            queue.after(at, event);
        }
        assert_eq!(queue.next(), Some('a'));
        queue.after(15, 'x');
        let rest: String = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!((rest.as_str(), queue.now()), ("bcxd", 30));
    }
}
