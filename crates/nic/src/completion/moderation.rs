//! Moderation of completion events: one for several completions (`ibv_modify_cq(3)`).

use crate::completion::Status;

/// Nanoseconds of a microsecond, in which periods are given.
const MICROSECOND: u64 = 1000;

/// When a completion queue that is armed raises its event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moderation {
    /// After so many completions for which it is armed; 0 and 1: after the first.
    pub count: u16,
    /// Microseconds after the first of them, at the latest; 0: at once.
    pub period: u16,
}

impl Moderation {
    /// Whether events are held back at all.
    pub fn is_active(self) -> bool {
        self.count > 1 && self.period > 0
    }
}

/// How a completion queue moderates its events now.
#[derive(Default)]
pub struct Moderator {
    pub moderation: Moderation,
    /// Completions for which it was armed, and that raised no event yet.
    held: u16,
    /// When the event that is held back is due (fabric time).
    due: u64,
    /// A timer is set for the queue.
    has_timer: bool,
}

/// What a completion queue does with the event that it is armed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventDecision {
    /// It raises it.
    Raise,
    /// It holds the event back until this time (of the fabric), for which a timer is to be set.
    HoldUntil(u64),
    /// It holds the event back; a timer is set.
    Hold,
}

impl Moderator {
    /// A completion came for which the queue is armed. An unsuccessful one is not held back.
    pub fn decide(&mut self, status: Status, now: impl FnOnce() -> u64) -> EventDecision {
        self.held = self.held.saturating_add(1);
        let Moderation { count, period } = self.moderation;
        if !self.moderation.is_active() || self.held >= count || status != Status::Success {
            return EventDecision::Raise;
        }
        if self.held == 1 {
            self.due = now().saturating_add(u64::from(period) * MICROSECOND);
        }
        self.set_timer()
    }

    fn set_timer(&mut self) -> EventDecision {
        match std::mem::replace(&mut self.has_timer, true) {
            true => EventDecision::Hold,
            false => EventDecision::HoldUntil(self.due),
        }
    }

    /// The timer has run out. `None`: no event is held back.
    pub fn run_out(&mut self, now: u64) -> Option<EventDecision> {
        self.has_timer = false;
        let due = self.holds().then_some(self.due)?;
        Some(if due <= now { EventDecision::Raise } else { self.set_timer() })
    }

    /// Whether an event is held back.
    pub fn holds(&self) -> bool {
        self.held > 0
    }

    /// The event is raised, or nobody waits for it any more.
    pub fn release(&mut self) {
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moderator(count: u16, period: u16) -> Moderator {
        Moderator { moderation: Moderation { count, period }, ..Moderator::default() }
    }

    const FIRST: EventDecision = EventDecision::HoldUntil(10_500);

    #[test]
    fn one_event_is_raised_for_several_completions() {
        let mut moderator = moderator(3, 10);
        let mut three = || {
            let decisions = [Status::Success; 3].map(|status| moderator.decide(status, || 500));
            moderator.release();
            assert!(!moderator.holds());
            decisions
        };
        assert_eq!(three(), [FIRST, EventDecision::Hold, EventDecision::Raise]);
        assert_eq!(
            three(),
            [EventDecision::Hold, EventDecision::Hold, EventDecision::Raise],
            "the timer is still set"
        );
        assert_eq!(moderator.run_out(10_500), None);
        assert_eq!(moderator.decide(Status::Success, || 500), FIRST);
    }

    #[test]
    fn a_timer_of_an_event_that_was_raised_goes_on_for_the_next_one() {
        let mut moderator = moderator(100, 10);
        assert_eq!(moderator.decide(Status::Success, || 500), FIRST);
        assert_eq!(moderator.run_out(10_500), Some(EventDecision::Raise));
        moderator.release();
        assert_eq!(moderator.decide(Status::Success, || 500), FIRST);
        moderator.release();
        assert_eq!(moderator.decide(Status::Success, || 9_000), EventDecision::Hold);
        assert_eq!(moderator.run_out(10_500), Some(EventDecision::HoldUntil(19_000)));
        assert_eq!(moderator.run_out(19_000), Some(EventDecision::Raise));
    }

    #[test]
    fn failure_raises_event_at_once() {
        let mut moderator = moderator(100, 10);
        assert_eq!(moderator.decide(Status::Success, || 500), FIRST);
        assert_eq!(moderator.decide(Status::Flushed, || 600), EventDecision::Raise);
    }

    #[test]
    fn without_a_count_or_a_period_nothing_is_held_back() {
        for (count, period) in [(0, 0), (0, 10), (1, 10), (10, 0)] {
            let mut moderator = moderator(count, period);
            let decisions = [Status::Success; 2].map(|status| moderator.decide(status, || 500));
            assert_eq!(decisions, [EventDecision::Raise; 2]);
        }
    }
}
