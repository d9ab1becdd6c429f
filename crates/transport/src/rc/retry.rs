//! When to send again, and how often: the acknowledgement timer, the retry counts, the RNR wait.
//!
//! A standard peer is given up as the specification says: after so many repetitions that brought nothing. Between two
//! Pagewires the same time passes, acknowledgement timeout times retry count and one more, but in it is repeated as often
//! as it takes for losses not to matter: it is a budget of time in which nothing new is acknowledged. Only time that was
//! waited for on purpose is taken from it. By how much this process looked late, it repeated nothing.

use super::{RcShared, RequesterSettings};
use crate::{Psn, Time, limits, timers};

/// What an expired timer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// The early timer between two Pagewires: send again, nothing is counted.
    Probe,
    /// The acknowledgement timeout passed in silence: what is not acknowledged may have been given up by the peer.
    Timeout,
    /// There have been enough of them.
    Exhausted,
}

/// Timers and counts of a requester.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// Nanoseconds of the acknowledgement timeout; `None`: for ever.
    timeout: Option<u64>,
    retry_count: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    /// When to look again; `None` while nothing is outstanding.
    deadline: Option<Time>,
    /// Since when that is waited for.
    armed: Time,
    /// Nanoseconds waited since something new was acknowledged.
    waited: u64,
    /// Something was sent since the timer was armed.
    spoke: bool,
    /// What is to be repeated lacks a page of this side: neither time nor retries count.
    lacks_page: bool,
    /// Times since something new was acknowledged that the timer ran out after something had been sent.
    unanswered: u32,
    /// Since when the peer's silence counts for the acknowledgement timeout.
    silent_since: Time,
    /// The peer's process was asked what it has read, in this silence.
    questioned: bool,
    /// End of the wait after an RNR NAK.
    rnr_until: Option<Time>,
    /// Expiries of the early timer in a row; each makes its interval four times as long.
    backoff: u32,
    round_trip: Option<u64>,
    /// It is that of a packet that was repeated, from its first copy on: at least as long as the way is.
    guessed: bool,
    /// The shortest one that was measured: nothing waited on the way.
    shortest: Option<u64>,
    measured: Option<RttMeasurement>,
}

/// A round trip that is being measured.
#[derive(Debug, Clone, Copy)]
struct RttMeasurement {
    /// Its acknowledgement ends it.
    psn: Psn,
    start: Time,
    /// It was repeated: which copy the acknowledgement is for cannot be known (Karn and Partridge, 1987).
    repeated: bool,
}

impl Retry {
    pub(super) fn set(&mut self, settings: &RequesterSettings) {
        self.timeout = timers::acknowledgement_timeout(settings.timeout);
        (self.retry_count, self.rnr_retry) = (settings.retry_count & 7, settings.rnr_retry & 7);
        (self.retries_left, self.rnr_left) = (self.retry_count, self.rnr_retry);
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.rnr_until.or(self.deadline)
    }

    /// A request was sent: the timer runs, if it did not.
    #[inline]
    pub(super) fn sent(&mut self, now: Time, pace: Pace) {
        if self.deadline.is_none() {
            (self.silent_since, self.waited, self.unanswered) = (now, 0, 0);
            self.arm(now, pace);
        }
        if self.lacks_page {
            self.found_page(now, pace);
        }
        self.spoke = true;
    }

    /// What is to be repeated cannot be sent for want of a page of this side: until it [is](Self::sent) the peer is not asked, and its silence
    /// does not count.
    #[cold]
    pub(super) fn lacks_page(&mut self, now: Time) {
        if self.deadline.is_some() && !self.lacks_page {
            self.waited = self.waited_at(now);
            (self.lacks_page, self.armed) = (true, now);
        }
    }

    /// The page is there, and the peer was asked.
    #[cold]
    fn found_page(&mut self, now: Time, pace: Pace) {
        (self.lacks_page, self.armed) = (false, now);
        // Where retries are counted each has its whole timeout; a budget of time goes on.
        if pace != Pace::Selective {
            self.silent_since = now;
            self.arm(now, pace);
        }
    }

    /// Nanoseconds waited until `now`, or until the timer ran out.
    fn waited_at(&self, now: Time) -> u64 {
        match self.deadline.filter(|_| !self.lacks_page) {
            Some(deadline) => self.waited.saturating_add(deadline.min(now).0.saturating_sub(self.armed.0)),
            None => self.waited,
        }
    }

    /// Something new was acknowledged; `outstanding`: not everything.
    pub(super) fn note_advance(&mut self, now: Time, outstanding: bool, pace: Pace) {
        self.retries_left = self.retry_count;
        self.rnr_left = self.rnr_retry;
        self.backoff = 0;
        (self.silent_since, self.waited, self.unanswered) = (now, 0, 0);
        (self.lacks_page, self.questioned) = (false, false);
        self.deadline = None;
        if outstanding {
            self.arm(now, pace);
        }
    }

    /// The peer asks for patience, or cannot be heard: the silence so far does not count.
    pub(super) fn patience(&mut self, now: Time, pace: Pace) {
        self.retries_left = self.retry_count;
        self.questioned = false;
        // What was waited for is no measure of the way.
        self.measured = None;
        if self.deadline.take().is_some() {
            (self.silent_since, self.waited, self.unanswered) = (now, 0, 0);
            self.arm(now, pace);
        }
    }

    /// The answer comes when a page is there, the peer's or one of this side. Until then the peer's silence does not count. Should the
    /// answer be lost, a repetition asks for it, later each time.
    pub(super) fn held(&mut self, now: Time, pace: Pace) {
        self.backoff = (self.backoff + 1).min(8);
        self.patience(now, pace);
        // A repetition within the interval of HOLDs would have no answer.
        let latest = self.budget().unwrap_or(u64::MAX).max(2 * limits::HOLD_INTERVAL);
        if let Some(deadline) = &mut self.deadline {
            let later = (limits::MIN_PROBE << (2 * self.backoff)).min(limits::HELD_PROBE).min(latest);
            deadline.0 = deadline.0.max(now.0.saturating_add(later));
            (self.silent_since, self.armed) = (*deadline, *deadline);
        }
    }

    /// The silence so far does not count, and the timer runs on.
    pub(super) fn spare(&mut self, now: Time) {
        self.retries_left = self.retry_count;
        self.questioned = false;
        if self.deadline.is_some() {
            (self.silent_since, self.waited, self.unanswered) = (now, 0, 0);
            self.armed = now;
        }
    }

    /// The peer will say when to send again. The silence so far does not count, and only a late timer runs until then.
    pub(super) fn await_word(&mut self, now: Time) {
        self.spare(now);
        if self.deadline.is_some() {
            let latest = self.timeout.map_or(limits::MAX_PROBE, |timeout| timeout.min(limits::MAX_PROBE));
            self.deadline = Some(Time(now.0.saturating_add(latest)));
        }
    }

    /// The peer has said so.
    pub(super) fn resumed(&mut self, now: Time, pace: Pace) {
        self.backoff = 0;
        self.patience(now, pace);
    }

    /// What is to be repeated has to wait for room, or for its turn. The peer was asked before: its silence counts on, but of a
    /// repetition that was not sent it need not answer.
    pub(super) fn postponed(&mut self, now: Time, pace: Pace) {
        if self.deadline.is_some() {
            let silent_since = std::mem::replace(&mut self.silent_since, now);
            self.arm(now, pace);
            self.silent_since = silent_since;
        }
    }

    /// The peer would be given up, but its process may not have read what was sent: the timer runs once more.
    pub(super) fn question_process(&mut self, now: Time, pace: Pace) {
        self.questioned = true;
        self.postponed(now, pace);
    }

    /// Whether that was done in this silence.
    pub(super) fn has_questioned_process(&self) -> bool {
        self.questioned
    }

    /// Sending starts over: the timer runs from now.
    pub(super) fn restart(&mut self, now: Time, pace: Pace) {
        self.silent_since = now;
        self.discard_rtt_sample();
        if self.deadline.is_some() {
            self.arm(now, pace);
        }
    }

    /// Whether a timer that is no RNR wait has run out.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.rnr_until.is_none() && self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// What [`is_due`](Self::is_due) means. A retry is used up by it, where they are counted.
    pub(super) fn expired(&mut self, now: Time, pace: Pace) -> Expiry {
        let waited = self.waited_at(now);
        // A queue pair that had to wait for its turn to repeat has not heard nothing: it has not asked.
        self.unanswered = self.unanswered.saturating_add(u32::from(std::mem::take(&mut self.spoke)));
        let silent_since = self.silence_begins(now).0;
        let timed_out = self.timeout.is_some_and(|timeout| now.0 >= silent_since.saturating_add(timeout));
        match pace {
            Pace::Selective if self.budget().is_some_and(|budget| self.is_used_up(budget, waited)) => {
                Expiry::Exhausted
            }
            Pace::Selective if timed_out => Expiry::Timeout,
            Pace::Standard | Pace::Lossless if timed_out => match self.count(pace) {
                true => Expiry::Timeout,
                false => Expiry::Exhausted,
            },
            _ => Expiry::Probe,
        }
    }

    /// Since when the peer's silence counts: who lacks a page has not asked.
    fn silence_begins(&self, now: Time) -> Time {
        if self.lacks_page { now } else { self.silent_since }
    }

    /// Nanoseconds in which another Pagewire must get on; `None`: there is time for ever.
    fn budget(&self) -> Option<u64> {
        self.timeout.map(|timeout| timeout.saturating_mul(u64::from(self.retry_count) + 1))
    }

    /// Whether the peer was given its time, and was asked often enough in it, as far as that fits in.
    fn is_used_up(&self, budget: u64, waited: u64) -> bool {
        let fit = budget / longest_interval(budget);
        waited >= budget && u64::from(self.unanswered) >= fit.min(limits::LEAST_UNANSWERED)
    }

    /// Goes on after an [`Expiry::Probe`]; gives how many there were in a row.
    pub(super) fn probed(&mut self, now: Time, pace: Pace) -> u32 {
        self.backoff = (self.backoff + 1).min(8);
        self.discard_rtt_sample();
        self.arm(now, pace);
        self.backoff
    }

    /// Uses up one retry, if they are counted; false: there is none left.
    pub(super) fn count(&mut self, pace: Pace) -> bool {
        if pace == Pace::Selective {
            return true;
        }
        let left = self.retries_left > 0;
        self.retries_left = self.retries_left.saturating_sub(1);
        left
    }

    /// Starts the wait that an RNR NAK asks for; false: it was one too many.
    pub(super) fn not_ready(&mut self, now: Time, code: u8) -> bool {
        if self.rnr_retry != 7 {
            if self.rnr_left == 0 {
                return false;
            }
            self.rnr_left -= 1;
        }
        // The peer lives: only its silence after the wait counts.
        self.retries_left = self.retry_count;
        self.deadline = None;
        self.measured = None;
        self.rnr_until = Some(Time(now.0.saturating_add(timers::rnr_delay(code))));
        true
    }

    pub(super) fn waits_for_receiver(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// Ends the RNR wait when it is over.
    pub(super) fn rnr_over(&mut self, now: Time) {
        if self.rnr_until.is_some_and(|until| now >= until) {
            self.rnr_until = None;
        }
    }

    /// Starts to measure a round trip that ends with the acknowledgement of `psn`, if none is measured.
    #[inline]
    pub(super) fn measure(&mut self, psn: Psn, now: Time) {
        if self.measured.is_none() {
            self.measured = Some(RttMeasurement { psn, start: now, repeated: false });
        }
    }

    /// Everything before `unacked` is acknowledged.
    pub(super) fn measured(&mut self, unacked: Psn, now: Time) {
        let Some(RttMeasurement { psn, start, repeated }) = self.measured else { return };
        if psn.is_before(unacked) {
            self.measured = None;
            let sample = now.0.saturating_sub(start.0);
            if repeated {
                (self.round_trip, self.guessed) = (Some(sample), true);
                return;
            }
            self.shortest = Some(self.shortest.map_or(sample, |shortest| shortest.min(sample)));
            let known = self.round_trip.filter(|_| !std::mem::take(&mut self.guessed));
            // Smoothed as in RFC 6298.
            self.round_trip = Some(known.map_or(sample, |mean| mean - mean / 8 + sample / 8));
        }
    }

    /// Nanoseconds of the shortest round trip; `None` before one was measured.
    pub(super) fn shortest_round_trip(&self) -> Option<u64> {
        self.shortest
    }

    /// A packet was repeated. While nothing better is known the measurement goes on: on a way that is longer than the early timer every
    /// first packet is repeated, and none could be measured.
    pub(super) fn discard_rtt_sample(&mut self) {
        self.measured = match self.round_trip.is_none() || self.guessed {
            true => self.measured.map(|running| RttMeasurement { repeated: true, ..running }),
            false => None,
        };
    }

    fn arm(&mut self, now: Time, pace: Pace) {
        self.waited = self.waited_at(now);
        self.armed = now;
        let silent_since = self.silence_begins(now).0;
        let counted = self.timeout.map(|timeout| silent_since.saturating_add(timeout).max(now.0));
        let early = match pace {
            Pace::Standard => None,
            Pace::Lossless => Some(limits::LOSSLESS_POLL),
            Pace::Selective => Some(self.probe_interval()),
        };
        let early = early.map(|interval| now.0.saturating_add(interval));
        self.deadline = match (counted, early) {
            (Some(counted), Some(early)) => Some(Time(counted.min(early))),
            (one, other) => one.or(other).map(Time),
        };
    }

    /// Nanoseconds until the next repetition between two Pagewires: longer each time, but so that there are many within
    /// the budget, unless round trips are as long as that. What is only guessed holds up the first one alone.
    fn probe_interval(&self) -> u64 {
        let first = self.round_trip.map_or(limits::FIRST_PROBE, |mean| mean.saturating_mul(4));
        let first = first.clamp(limits::MIN_PROBE, limits::MAX_PROBE);
        let growing = (first << (2 * self.backoff)).min(limits::MAX_PROBE);
        let Some(budget) = self.budget() else { return growing };
        let way = self.round_trip.map_or(0, |mean| mean.saturating_mul(2));
        let longest = match (self.guessed, self.waited) {
            (false, _) => longest_interval(budget).max(way),
            (true, 0) => longest_interval(budget).max(way.min(budget / 4)),
            (true, _) => longest_interval(budget),
        };
        match budget.checked_sub(self.waited) {
            None | Some(0) => growing.min(longest),
            Some(left) => growing.min(longest).min(left),
        }
    }
}

/// Nanoseconds between two repetitions at most, where round trips are short.
fn longest_interval(budget: u64) -> u64 {
    (budget / limits::BUDGET_PROBES).max(limits::LEAST_PROBE)
}

/// How eagerly the timer looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// At the acknowledgement timeout alone.
    Standard,
    /// The link can be asked at any time.
    Lossless,
    /// The peer is a Pagewire, which takes early repetitions well.
    Selective,
}

/// How eagerly the timer of a connection looks.
pub(super) fn pace(shared: &RcShared) -> Pace {
    if shared.link.lossless {
        Pace::Lossless
    } else if shared.selective {
        Pace::Selective
    } else {
        Pace::Standard
    }
}
