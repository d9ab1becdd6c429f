//! What waits for several need of what ends. The trait is public in a private module: programs use it by [`Waitable`](crate::Waitable) only.

use crate::operations::pending::Sleep;
use std::task::Waker;

/// What becomes of a waker that is left with something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakerFate {
    Ended,
    WokenAtEnd,
    /// Nothing wakes it: look again soon.
    NotKept,
}

pub trait OperationEnd {
    /// Whether it has ended, by what is known already.
    fn is_ended(&self) -> bool;

    /// Whether it has ended. Polls the engine once where it has not.
    fn poll_end(&self) -> bool;

    /// What [`poll_end`](Self::poll_end) polls. One call is enough for all with the same number.
    fn polled(&self) -> usize;

    /// Has somebody woken when it ends.
    fn wake_at_end(&self, waker: &Waker) -> WakerFate;
}

impl WakerFate {
    pub(crate) fn of(sleep: Sleep) -> Self {
        if sleep == Sleep::Ended { WakerFate::Ended } else { WakerFate::WokenAtEnd }
    }
}
