//! Memory that several bring in, each another part of it.

use crate::limits::BEFORE_ACCESS;
use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::sync::Arc;

/// Memory that will be needed soon, from its beginning on. Nobody does what another one has done.
#[derive(Debug)]
pub struct Stretch {
    memory: Range<u64>,
    order: PieceOrder,
    state: Mutex<StretchState>,
    rests: Condvar,
}

#[derive(Debug)]
struct StretchState {
    /// What nobody has begun with.
    left: Range<u64>,
    /// Pieces that are being brought in.
    at_work: usize,
    /// A piece could not be brought in.
    failed: bool,
}

/// A part of a stretch that is being brought in until this is dropped.
#[derive(Debug)]
pub struct StretchPiece<'a> {
    stretch: &'a Stretch,
    memory: Range<u64>,
}

/// In which order helpers bring pieces in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceOrder {
    /// From the end back. Whoever needs the memory brings in what is not there yet when it comes to it: where the helpers hardly get a
    /// processor they do little, and are not waited for.
    Back,
    /// As it will be needed: whoever needs it does not bring it in, but waits for it.
    Forth,
}

impl Stretch {
    /// All of it is left.
    pub fn new(memory: Range<u64>, order: PieceOrder) -> Arc<Self> {
        let state = StretchState { left: memory.clone(), at_work: 0, failed: false };
        Arc::new(Stretch { memory, order, state: Mutex::new(state), rests: Condvar::new() })
    }

    /// The whole of it, whatever is left.
    pub fn memory(&self) -> &Range<u64> {
        &self.memory
    }

    /// In which order pieces are taken.
    pub fn order(&self) -> PieceOrder {
        self.order
    }

    /// Whoever needs it brings this in itself, if what is left begins there. False: nothing is left.
    pub fn reach(&self, own: &Range<u64>) -> bool {
        let left = &mut self.state.lock().left;
        if (own.start..own.end).contains(&left.start) {
            left.start = own.end.min(left.end);
        }
        left.start < left.end
    }

    /// A piece that is left, for a helper. Pieces end where multiples of [`BEFORE_ACCESS`] do.
    pub fn take(&self) -> Option<StretchPiece<'_>> {
        self.take_from(self.order, BEFORE_ACCESS)
    }

    /// A piece of at most `length` bytes that is left, from one end. It ends where a multiple of that does.
    pub fn take_from(&self, order: PieceOrder, length: u64) -> Option<StretchPiece<'_>> {
        let mut state = self.state.lock();
        let left = &mut state.left;
        if left.start >= left.end {
            return None;
        }
        let memory = match order {
            PieceOrder::Back => ((left.end - 1) / length * length).max(left.start)..left.end,
            PieceOrder::Forth => left.start..(left.start / length + 1).saturating_mul(length).min(left.end),
        };
        match order {
            PieceOrder::Back => left.end = memory.start,
            PieceOrder::Forth => left.start = memory.end,
        }
        state.at_work += 1;
        Some(StretchPiece { stretch: self, memory })
    }

    /// A helper could not bring its piece in.
    pub fn fail(&self) {
        self.state.lock().failed = true;
    }

    /// Nobody takes any more of it.
    pub fn abandon(&self) {
        let left = &mut self.state.lock().left;
        left.start = left.end;
    }

    /// Whether a helper could not bring its piece in.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failed
    }

    /// Waits until no piece is being brought in.
    pub fn rest(&self) {
        let mut state = self.state.lock();
        while state.at_work > 0 {
            self.rests.wait(&mut state);
        }
    }
}

impl StretchPiece<'_> {
    /// Where it lies.
    pub fn memory(&self) -> &Range<u64> {
        &self.memory
    }
}

impl Drop for StretchPiece<'_> {
    fn drop(&mut self) {
        let mut state = self.stretch.state.lock();
        state.at_work -= 1;
        if state.at_work == 0 {
            self.stretch.rests.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A piece that is brought in at once.
    fn take(stretch: &Stretch) -> Option<Range<u64>> {
        stretch.take().map(|piece| piece.memory().clone())
    }

    proptest! {
        #[test]
        fn every_byte_is_for_one(
            start in 0u64..1 << 20, length in 1u64..1 << 20, steps in proptest::collection::vec(0u64..200_000, 0..40),
        ) {
            let end = start + length;
            let stretch = Stretch::new(start..end, PieceOrder::Back);
            let (mut reached, mut taken) = (start, end);
            for step in steps {
                if step % 3 == 0 {
                    match take(&stretch) {
                        Some(piece) => {
                            prop_assert!(piece.start < piece.end && piece.end == taken && piece.start >= reached);
                            prop_assert!(piece.end - piece.start <= BEFORE_ACCESS);
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
            while let Some(piece) = take(&stretch) {
                prop_assert!(piece.start >= reached && piece.end == taken);
                taken = piece.start;
            }
            prop_assert!(taken <= reached.max(start), "nothing is left out");
        }
    }

    #[test]
    fn what_is_elsewhere_changes_nothing() {
        let stretch = Stretch::new(BEFORE_ACCESS..3 * BEFORE_ACCESS, PieceOrder::Back);
        assert!(stretch.reach(&(0..BEFORE_ACCESS)) && stretch.reach(&(3 * BEFORE_ACCESS..4 * BEFORE_ACCESS)));
        assert_eq!(take(&stretch), Some(2 * BEFORE_ACCESS..3 * BEFORE_ACCESS));
        assert!(!stretch.reach(&(0..9 * BEFORE_ACCESS)), "also by what goes beyond it");
        assert_eq!(take(&stretch), None);
    }

    #[test]
    fn what_is_waited_for_comes_in_the_order_in_which_it_is_needed() {
        let stretch = Stretch::new(BEFORE_ACCESS / 2..3 * BEFORE_ACCESS - 1, PieceOrder::Forth);
        assert!(
            stretch.reach(&(0..BEFORE_ACCESS / 2 + 5)),
            "whoever needs it has this brought in by somebody else"
        );
        let pieces: Vec<_> = std::iter::from_fn(|| take(&stretch)).collect();
        assert_eq!(
            pieces,
            [
                BEFORE_ACCESS / 2 + 5..BEFORE_ACCESS,
                BEFORE_ACCESS..2 * BEFORE_ACCESS,
                2 * BEFORE_ACCESS..3 * BEFORE_ACCESS - 1
            ]
        );
        let last = Stretch::new(u64::MAX - 3..u64::MAX, PieceOrder::Forth);
        assert_eq!([take(&last), take(&last)], [Some(u64::MAX - 3..u64::MAX), None]);
    }

    #[test]
    fn rest_waits_for_pieces_in_progress() {
        let stretch = Stretch::new(0..2 * BEFORE_ACCESS, PieceOrder::Forth);
        let over = AtomicBool::new(false);
        stretch.rest();
        std::thread::scope(|scope| {
            let piece = stretch.take().unwrap();
            scope.spawn(|| {
                let piece = piece;
                std::thread::sleep(std::time::Duration::from_millis(20));
                over.store(true, Ordering::SeqCst);
                drop(piece);
            });
            drop(stretch.take());
            stretch.rest();
            assert!(over.load(Ordering::SeqCst), "the other piece was still under way");
        });
    }
}
