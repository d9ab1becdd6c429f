//! A message that is sent again until it is answered: REQ, REP, DREQ and SIDR_REQ.

use crate::effects::Effects;
use crate::endpoint::Route;
use crate::limits;
use pagewire_wire::cm::CmDatagram;
use std::time::Duration;

/// A message that is sent again until it is answered.
#[derive(Debug)]
pub(crate) struct Repetition {
    datagram: CmDatagram,
    next: Duration,
    interval: Duration,
    longest: Duration,
    /// When this side gives up.
    end: Duration,
    /// How often the peer has answered that nobody listens.
    refusals: u8,
}

impl Repetition {
    /// Sends it first.
    pub(crate) fn begin(datagram: CmDatagram, route: &Route, now: Duration, effects: &mut Effects) -> Self {
        let mut repetition = Self::new(datagram, route, now);
        repetition.send(now, effects);
        repetition
    }

    /// It is to be sent.
    pub(crate) fn new(datagram: CmDatagram, route: &Route, now: Duration) -> Self {
        let longest = if route.is_on_this_host { limits::LONGEST_HERE } else { limits::longest_interval() };
        let (interval, end) = (limits::FIRST_INTERVAL, now + limits::patience());
        Repetition { datagram, next: now, interval, longest, end, refusals: 0 }
    }

    /// Sends it, and again after the interval of now.
    pub(crate) fn send(&mut self, now: Duration, effects: &mut Effects) {
        self.next = now + self.interval;
        effects.datagrams.push(self.datagram.clone());
    }

    /// The message.
    pub(crate) fn datagram(&self) -> &CmDatagram {
        &self.datagram
    }

    pub(crate) fn set_transaction(&mut self, transaction: u64) {
        self.datagram.transaction = transaction;
    }

    /// When this side gives up.
    pub(crate) fn end(&self) -> Duration {
        self.end
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.next.min(self.end)
    }

    /// Sends it again if it is time. False: this side gives up.
    pub(crate) fn expire(&mut self, now: Duration, effects: &mut Effects) -> bool {
        if self.end <= now {
            return false;
        }
        if self.next <= now {
            self.interval = (2 * self.interval).min(self.longest);
            self.send(now, effects);
        }
        true
    }

    /// Nobody listens at the peer. Whether the message is sent once more after a pause.
    pub(crate) fn repeats_refused(&mut self, now: Duration) -> bool {
        if self.refusals == limits::REFUSALS {
            return false;
        }
        self.refusals += 1;
        self.next = now + limits::REFUSAL_PAUSE;
        self.interval = limits::FIRST_INTERVAL / 2;
        true
    }

    /// The next refusal is the last one.
    pub(crate) fn ask_no_more(&mut self) {
        self.refusals = limits::REFUSALS;
    }

    /// The peer has the message and answers later.
    pub(crate) fn postpone(&mut self, now: Duration, service_timeout: u8) {
        let later = now + limits::timeout(service_timeout) + limits::longest_interval();
        (self.next, self.end) = (later, self.end.max(later + limits::patience()));
    }
}
