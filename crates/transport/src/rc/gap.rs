//! Requests that came before a missing one and were dropped: the peer repeats everything from a NAK on. Where the missing request
//! comes late, the NAK may find the peer with an acknowledgement of it, and what it repeats may be dropped for the same reason. A
//! peer without an acknowledgement timeout would wait for ever then. This says when the peer has to be asked again; it never sends.

use crate::{Psn, Time, limits};

/// What was dropped behind the expected request.
#[derive(Debug, Default)]
pub(super) struct Gap {
    /// The furthest of the dropped requests, until everything up to it has been executed.
    furthest: Option<Psn>,
    /// The request that was expected at the last look, and when the peer is to be asked for it.
    due: Option<(Psn, Time)>,
    /// It is being asked for it.
    asks: bool,
}

impl Gap {
    /// Whether something was dropped that has not been executed since.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.furthest.is_some()
    }

    /// A request behind the expected one was dropped.
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

    /// A NAK has left. So long after the last request had come the peer repeats all that was dropped; what it does not repeat was
    /// none of its requests.
    pub(super) fn nak_left(&mut self) {
        if self.asks {
            self.close();
        }
    }

    fn close(&mut self) {
        *self = Gap::default();
    }

    /// Whether to ask for `expected` now: nothing was executed for [`limits::REPETITION_TIME`]. `asked`: a NAK has left for it,
    /// or is about to.
    pub(super) fn look(&mut self, expected: Psn, asked: bool, now: Time) -> bool {
        if asked || !self.is_open() {
            self.due = None;
            return false;
        }
        match self.due {
            Some((psn, at)) if psn == expected => {
                self.due = self.due.filter(|_| now < at);
                self.asks = self.due.is_none();
                self.asks
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
