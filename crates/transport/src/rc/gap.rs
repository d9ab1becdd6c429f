//! Requests that arrived ahead of a missing one and were dropped. The peer repeats everything from a NAK on.
//!
//! The missing request may arrive late, so that its acknowledgement overtakes the NAK, and the repetition may be dropped ahead of another
//! gap. A peer without an acknowledgement timeout would then wait for ever. This module says when another NAK is due; it never sends one.

use crate::{Psn, Time, limits};

/// The requests that were dropped ahead of the expected one.
#[derive(Debug, Default)]
pub(super) struct Gap {
    /// The furthest of the dropped requests, until everything up to it has been executed.
    furthest: Option<Psn>,
    /// The request that was expected at the last look, and when a NAK for it is due.
    due: Option<(Psn, Time)>,
    /// The next NAK that leaves is the one that was due.
    is_due_nak_queued: bool,
}

impl Gap {
    /// Whether something was dropped that has not been executed since.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.furthest.is_some()
    }

    /// A request ahead of the expected one was dropped.
    pub(super) fn drop_request(&mut self, psn: Psn) {
        self.furthest = Some(self.furthest.map_or(psn, |furthest| furthest.later(psn)));
    }

    /// Everything before `expected` has been executed.
    #[inline]
    pub(super) fn advance(&mut self, expected: Psn) {
        if self.furthest.is_some_and(|furthest| furthest.is_before(expected)) {
            self.close();
        }
    }

    /// A NAK has left. If it is the one that was due, the gap is closed: the peer repeats all that was dropped, because nothing of
    /// it is in flight any more. What the peer does not repeat was none of its requests.
    pub(super) fn nak_left(&mut self) {
        if self.is_due_nak_queued {
            self.close();
        }
    }

    fn close(&mut self) {
        *self = Gap::default();
    }

    /// Whether to send a NAK for `expected` now: nothing was executed for [`limits::REPETITION_TIME`]. `nak_sent`: a NAK for it
    /// has left, or is queued.
    pub(super) fn look(&mut self, expected: Psn, nak_sent: bool, now: Time) -> bool {
        if nak_sent || !self.is_open() {
            self.due = None;
            return false;
        }
        match self.due {
            Some((psn, at)) if psn == expected => {
                self.due = self.due.filter(|_| now < at);
                self.is_due_nak_queued = self.due.is_none();
                self.is_due_nak_queued
            }
            _ => {
                self.due = Some((expected, Time(now.0 + limits::REPETITION_TIME)));
                false
            }
        }
    }

    /// When [`look`](Self::look) says so at the earliest.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.due.map(|(_, at)| at)
    }
}
