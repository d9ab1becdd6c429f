//! When the next packet may go once the network has shown that it is narrow: what fits the window is
//! spread over the round trip and not sent as one burst, which a short queue on the way would drop in part
//! (RFC 9002, section 7.7). The rate is what a window a round trip comes to, that is, the bandwidth at
//! which packets were delivered lately, and a quarter more, so that the window stays the bound. Back-off is
//! the window's: a rate made of it is halved by a loss or a congestion notification as well.

use crate::{Time, limits};

/// A clock that tells when the packets so far should have left.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// Nanoseconds from packet to packet; 0: as fast as the window lets them.
    interval: u64,
    /// When the packets sent so far should all have left.
    due: Time,
    /// A packet had to wait.
    held: bool,
}

impl Pacer {
    /// A window of `packets` is to take a round trip of so many nanoseconds; `None`: no pacing.
    pub(super) fn set(&mut self, packets: u32, round_trip: Option<u64>) {
        self.interval = round_trip.map_or(0, |nanoseconds| nanoseconds / u64::from(packets.max(1)) * 4 / 5);
    }

    /// Whether packets are held back at all.
    pub(super) fn is_on(&self) -> bool {
        self.interval > 0
    }

    /// Whether a packet may go at `now`; if not, there is a [`deadline`](Self::deadline) until the next
    /// [`look`](Self::look).
    #[inline]
    pub(super) fn permits(&mut self, now: Time) -> bool {
        self.held = self.interval > 0 && self.due.0.saturating_sub(now.0) > self.ahead();
        !self.held
    }

    /// It is looked anew what may be sent: perhaps nothing is left to be held.
    #[inline]
    pub(super) fn look(&mut self) {
        self.held = false;
    }

    /// `count` packets were sent.
    #[inline]
    pub(super) fn sent(&mut self, count: u32, now: Time) {
        self.due = Time(self.due.0.max(now.0).saturating_add(self.interval.saturating_mul(count.into())));
    }

    /// When a packet that had to wait may go, with half a burst behind it.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.held.then(|| Time(self.due.0.saturating_sub(self.ahead() / 2)))
    }

    /// How long before its time a packet may go.
    fn ahead(&self) -> u64 {
        (self.interval * limits::BURST).max(limits::TIMER_SLACK)
    }
}
