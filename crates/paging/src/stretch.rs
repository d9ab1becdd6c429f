//! Memory that several bring in, each another part of it.

use crate::limits::AT_ONCE;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// Memory that will be needed soon, from its beginning on. Nobody does what another one has done.
#[derive(Debug)]
pub struct Stretch {
    memory: Range<u64>,
    order: Order,
    /// What nobody has begun with.
    left: Mutex<Range<u64>>,
}

/// In which order helpers bring pieces in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the end back. Whoever needs the memory brings in what is not there yet when it comes to it: where the helpers hardly get a
    /// processor they do little, and are not waited for.
    Back,
    /// As it will be needed: whoever needs it does not bring it in, but waits for it.
    Forth,
}

impl Stretch {
    /// All of it is left.
    pub fn new(memory: Range<u64>, order: Order) -> Arc<Self> {
        Arc::new(Stretch { left: Mutex::new(memory.clone()), memory, order })
    }

    /// The whole of it, whatever is left.
    pub fn memory(&self) -> &Range<u64> {
        &self.memory
    }

    /// Whoever needs it brings this in itself, if what is left begins there. False: nothing is left.
    pub fn reach(&self, own: &Range<u64>) -> bool {
        let mut left = self.left.lock();
        if (own.start..own.end).contains(&left.start) {
            left.start = own.end.min(left.end);
        }
        left.start < left.end
    }

    /// A piece that is left, for a helper. Pieces end where multiples of [`AT_ONCE`] do.
    pub fn take(&self) -> Option<Range<u64>> {
        let mut left = self.left.lock();
        if left.start >= left.end {
            return None;
        }
        let piece = match self.order {
            Order::Back => ((left.end - 1) / AT_ONCE * AT_ONCE).max(left.start)..left.end,
            Order::Forth => left.start..(left.start / AT_ONCE + 1).saturating_mul(AT_ONCE).min(left.end),
        };
        match self.order {
            Order::Back => left.end = piece.start,
            Order::Forth => left.start = piece.end,
        }
        Some(piece)
    }
}

/// Each is itself.
impl PartialEq for Stretch {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Stretch {}

impl Hash for Stretch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_for_one(
            start in 0u64..1 << 20, length in 1u64..1 << 20, steps in proptest::collection::vec(0u64..200_000, 0..40),
        ) {
            let end = start + length;
            let stretch = Stretch::new(start..end, Order::Back);
            let (mut reached, mut taken) = (start, end);
            for step in steps {
                if step % 3 == 0 {
                    match stretch.take() {
                        Some(piece) => {
                            prop_assert!(piece.start < piece.end && piece.end == taken && piece.start >= reached);
                            prop_assert!(piece.end - piece.start <= AT_ONCE);
                            taken = piece.start;
                        }
                        None => prop_assert!(reached >= taken),
                    }
                } else if reached + step <= end {
                    let own = reached.saturating_sub(step / 2)..reached + step;
                    let left = reached < taken;
                    reached += if left { step } else { 0 };
                    prop_assert_eq!(stretch.reach(&own), reached < taken);
                }
            }
            while let Some(piece) = stretch.take() {
                prop_assert!(piece.start >= reached && piece.end == taken);
                taken = piece.start;
            }
            prop_assert!(taken <= reached.max(start), "nothing is left out");
        }
    }

    #[test]
    fn what_is_elsewhere_changes_nothing() {
        let stretch = Stretch::new(AT_ONCE..3 * AT_ONCE, Order::Back);
        assert!(stretch.reach(&(0..AT_ONCE)) && stretch.reach(&(3 * AT_ONCE..4 * AT_ONCE)));
        assert_eq!(stretch.take(), Some(2 * AT_ONCE..3 * AT_ONCE));
        assert!(!stretch.reach(&(0..9 * AT_ONCE)), "also by what goes beyond it");
        assert_eq!(stretch.take(), None);
    }

    #[test]
    fn what_is_waited_for_comes_in_the_order_in_which_it_is_needed() {
        let stretch = Stretch::new(AT_ONCE / 2..3 * AT_ONCE - 1, Order::Forth);
        assert!(
            stretch.reach(&(0..AT_ONCE / 2 + 5)),
            "whoever needs it has this brought in by somebody else"
        );
        let pieces: Vec<_> = std::iter::from_fn(|| stretch.take()).collect();
        assert_eq!(pieces, [AT_ONCE / 2 + 5..AT_ONCE, AT_ONCE..2 * AT_ONCE, 2 * AT_ONCE..3 * AT_ONCE - 1]);
        let last = Stretch::new(u64::MAX - 3..u64::MAX, Order::Forth);
        assert_eq!([last.take(), last.take()], [Some(u64::MAX - 3..u64::MAX), None]);
    }
}
