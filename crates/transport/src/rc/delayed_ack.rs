//! Acknowledgements that wait for the program's answer, to leave with it (InfiniBand specification, volume 1, section 9.7.5.1.2:
//! responders may coalesce acknowledgements).

use pagewire_wire::PacketHeader;

use super::RcConnection;
use crate::{RcProgress, Time, TransportOps};

/// Why a connection is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The program has posted.
    Doorbell,
    /// A polling thread of the program has taken datagrams, and is about to hand over what came of them.
    Polled,
    /// Nothing comes behind it: the queue pair ends, or begins anew, or the process may end.
    Last,
    /// Any other.
    Round,
}

/// Answers that would have taken an acknowledgement along before acknowledgements wait for them.
const ANSWERS_THAT_COUNT: u32 = 8;
/// No more are counted. One that does not come, or too late, halves the count: now and then a program loses the processor.
const ANSWERS_COUNTED: u32 = 64;
/// Nanoseconds in which a program answers that looks at its memory all the time.
const ANSWER_TIME: u64 = 50_000;

/// What has come for the program since its connection was last driven.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReceivedData {
    /// A message, which it gets by a poll.
    pub(crate) received: bool,
    /// It was written to its memory.
    pub(crate) written: bool,
}

/// What the program is to answer before an acknowledgement leaves by itself.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// A message that a poll hands over: before it polls again.
    Now,
    /// What is in its memory since then (fabric time): before [`ANSWER_TIME`] is over.
    Since(u64),
}

/// Whether an acknowledgement waits for the program's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AckWait {
    #[default]
    No,
    /// Until it answers, or polls again; or it has answered, and the acknowledgement leaves with that.
    ForAnswer,
    /// Until then (fabric time) at most.
    Until(u64),
}

/// Whether the program answers what comes for it: then acknowledgements leave together with the answers.
#[derive(Debug, Default)]
pub(super) struct DelayedAck {
    /// What has come, and the program has not answered.
    expected: Option<Expected>,
    /// Times that it has answered first, of late.
    seen: u32,
}

impl RcConnection {
    /// Drives the connection for an occasion: as [`progress`](Self::progress), but an acknowledgement that would leave alone may wait for
    /// the program's answer. `timers`: the time by which timers are judged, `now` at the latest.
    pub fn progress_for<E: TransportOps>(
        &mut self,
        occasion: Occasion,
        now: Time,
        timers: Time,
        ops: &mut E,
    ) -> RcProgress {
        let may_wait = self.may_delay();
        let mut received = self.responder.take_received();
        received.written &= may_wait;
        let wait = match self.delayed_ack.look(occasion, received, now.0) {
            AckWait::Until(_) if !may_wait => AckWait::No,
            wait => wait,
        };
        let progress = self.progress_as(timers, wait != AckWait::No, ops);
        self.delay = if self.owes_acknowledgement() { wait } else { AckWait::No };
        progress
    }

    /// Whether all there is to do at a poll is an acknowledgement, and it waits for the answer to the message that the poll hands over.
    pub fn try_rest(&mut self) -> bool {
        let may = self.responder.has_received() && self.may_delay() && self.delayed_ack.are_usual();
        if may {
            let received = self.responder.take_received();
            // No answer is expected before it, whose time would matter.
            let wait = self.delayed_ack.look(Occasion::Polled, received, 0);
            debug_assert_eq!(wait, AckWait::ForAnswer, "answers are usual");
        }
        may
    }

    /// Whether an acknowledgement waits for an answer without a time: the connection is to be driven again in any case.
    pub fn awaits_answer(&self) -> bool {
        self.delay == AckWait::ForAnswer
    }

    /// Tells whether others of this process share the network with it: then no acknowledgement waits, as they may wait for what it frees.
    pub fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// Whether an acknowledgement may wait: nothing else is to be sent, and nobody waits for the window that the peer's acknowledgements
    /// would open. By XRC another queue pair answers.
    fn may_delay(&self) -> bool {
        self.alone && !self.shared.is_xrc && self.only_owes_acknowledgement()
    }

    /// The program has posted a request, with which the owed acknowledgement leaves.
    pub(super) fn take_owed_with_answer(&mut self, now: Time) -> Option<PacketHeader> {
        let received = self.responder.take_received();
        self.delayed_ack.look(Occasion::Doorbell, received, now.0);
        self.delay = AckWait::No;
        self.take_owed()
    }

    /// When an acknowledgement leaves that waits.
    pub(super) fn delayed_until(&self) -> Option<Time> {
        if let AckWait::Until(at) = self.delay { Some(Time(at)) } else { None }
    }
}

impl DelayedAck {
    /// The acknowledgement of a message that the program gets now by a poll may wait.
    pub(super) fn are_usual(&self) -> bool {
        self.expected.is_none() && self.is_usual()
    }

    fn is_usual(&self) -> bool {
        self.seen >= ANSWERS_THAT_COUNT
    }

    /// The queue pair is about to be driven at a time, and there is `received_data` for the program.
    pub(super) fn look(&mut self, occasion: Occasion, received_data: ReceivedData, now: u64) -> AckWait {
        let mut expected = match (occasion, received_data) {
            (Occasion::Polled, ReceivedData { received: true, .. }) => Some(Expected::Now),
            // A message that no poll has taken waits for a program that does something else.
            (Occasion::Polled | Occasion::Round, ReceivedData { received: false, written: true }) => {
                Some(Expected::Since(now))
            }
            _ => None,
        };
        let in_time = |at: u64| now < at.saturating_add(ANSWER_TIME);
        let (mut waited, mut unanswered) = (false, false);
        match (self.expected.take(), occasion) {
            (None, _) => {}
            (Some(Expected::Since(at)), Occasion::Doorbell) if !in_time(at) => self.seen /= 2,
            (Some(_), Occasion::Doorbell) => {
                waited = self.is_usual();
                self.seen = (self.seen + 1).min(ANSWERS_COUNTED);
            }
            (still @ Some(Expected::Since(at)), Occasion::Polled | Occasion::Round)
                if expected.is_none() && in_time(at) =>
            {
                expected = still;
            }
            (Some(_), _) => {
                self.seen /= 2;
                unanswered = true;
            }
        }
        self.expected = expected;
        match expected {
            // One behind the other: what has waited leaves now.
            Some(Expected::Since(_)) if unanswered => AckWait::No,
            Some(_) if !self.is_usual() => AckWait::No,
            Some(Expected::Now) => AckWait::ForAnswer,
            Some(Expected::Since(at)) => AckWait::Until(at.saturating_add(ANSWER_TIME)),
            None if waited => AckWait::ForAnswer,
            None => AckWait::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: ReceivedData = ReceivedData { received: true, written: false };
    const WRITE: ReceivedData = ReceivedData { received: false, written: true };
    const NOTHING: ReceivedData = ReceivedData { received: false, written: false };

    /// The program gets a message, and answers it or polls again. Whether the acknowledgement was to wait.
    fn message(delayed_ack: &mut DelayedAck, answered: bool) -> bool {
        let wait = delayed_ack.look(Occasion::Polled, MESSAGE, 0);
        let next = if answered { Occasion::Doorbell } else { Occasion::Round };
        let left_with_it = delayed_ack.look(next, NOTHING, 1_000_000);
        assert_eq!(
            left_with_it,
            if answered { wait } else { AckWait::No },
            "what has waited leaves with the answer"
        );
        wait == AckWait::ForAnswer
    }

    #[test]
    fn acknowledgements_wait_for_programs_that_answer_each_message() {
        let mut delayed_ack = DelayedAck::default();
        for _ in 0..ANSWERS_THAT_COUNT {
            assert!(!delayed_ack.are_usual());
            assert!(!message(&mut delayed_ack, true), "it might have been by chance");
        }
        assert!(delayed_ack.are_usual());
        assert!(message(&mut delayed_ack, true));
        // What came in otherwise than by a poll is not answered soon, and says nothing.
        assert_eq!(delayed_ack.look(Occasion::Round, MESSAGE, 0), AckWait::No);
        assert_eq!(delayed_ack.look(Occasion::Doorbell, NOTHING, 0), AckWait::No);
        assert!(message(&mut delayed_ack, false));
        assert!(!message(&mut delayed_ack, true), "the last one was not answered");
    }

    /// It is written to the program's memory, and the program posts so much later. Whether the acknowledgement waited until then.
    fn write(delayed_ack: &mut DelayedAck, taken: Occasion, later: u64) -> bool {
        let at = 1_000_000;
        let wait = delayed_ack.look(taken, WRITE, at);
        assert!(wait == AckWait::No || wait == AckWait::Until(at + ANSWER_TIME));
        // The NIC thread goes on.
        let still = delayed_ack.look(Occasion::Round, NOTHING, at + later);
        assert_eq!(still, if later < ANSWER_TIME { wait } else { AckWait::No }, "for so long, and no longer");
        let left = delayed_ack.look(Occasion::Doorbell, NOTHING, at + later);
        assert_eq!(
            left == AckWait::ForAnswer,
            still != AckWait::No,
            "what has waited leaves with the answer"
        );
        left == AckWait::ForAnswer
    }

    /// As many answers as it takes, and no more.
    fn just_usual() -> DelayedAck {
        let mut delayed_ack = DelayedAck::default();
        for _ in 0..ANSWERS_THAT_COUNT {
            assert!(!delayed_ack.is_usual());
            assert!(!write(&mut delayed_ack, Occasion::Round, ANSWER_TIME - 1));
        }
        assert!(delayed_ack.is_usual());
        delayed_ack
    }

    #[test]
    fn they_wait_for_a_short_time_for_programs_that_answer_what_is_written_to_their_memory() {
        for taken in [Occasion::Round, Occasion::Polled] {
            let mut delayed_ack = just_usual();
            assert!(write(&mut delayed_ack, taken, 2_000));
            assert!(!write(&mut delayed_ack, taken, ANSWER_TIME));
            assert!(!write(&mut delayed_ack, taken, 2_000), "the last one was not answered in time");
        }
        // One WRITE behind the other: they are not answered one by one.
        let mut delayed_ack = just_usual();
        (0..1000).for_each(|_| _ = write(&mut delayed_ack, Occasion::Polled, 2_000));
        assert_ne!(delayed_ack.look(Occasion::Round, WRITE, 0), AckWait::No);
        assert_eq!(delayed_ack.look(Occasion::Round, WRITE, 1_000), AckWait::No);
        assert_eq!(delayed_ack.look(Occasion::Round, WRITE, 2_000), AckWait::No);
    }

    #[test]
    fn an_answer_that_comes_late_now_and_then_does_not_matter() {
        let mut delayed_ack = DelayedAck::default();
        (0..1000).for_each(|_| _ = write(&mut delayed_ack, Occasion::Polled, 2_000));
        let late = (1..).find(|_| {
            write(&mut delayed_ack, Occasion::Polled, ANSWER_TIME);
            !delayed_ack.is_usual()
        });
        assert_eq!(late, Some(4), "64, 32, 16, 8, 4");
    }

    #[test]
    fn none_waits_where_nothing_comes_behind() {
        for received_data in [NOTHING, WRITE, MESSAGE] {
            let mut delayed_ack = just_usual();
            assert_eq!(delayed_ack.look(Occasion::Last, received_data, 1), AckWait::No);
            assert_ne!(delayed_ack.look(Occasion::Round, WRITE, 0), AckWait::No);
            assert_eq!(delayed_ack.look(Occasion::Last, received_data, 1), AckWait::No);
        }
    }
}
