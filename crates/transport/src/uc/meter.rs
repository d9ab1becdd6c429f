//! How much an unreliable connection has on the way.
//!
//! UC has no acknowledgements, and a UDP socket that is full loses what comes: a long message would drown its
//! receiver. Two Pagewires therefore report which PSN they expect next, now and then, and the sender keeps the
//! distance bounded. Nothing is ever sent again, and a report that does not come only costs time. A standard peer
//! reports nothing and gets everything at once, as the specification has it.

use crate::limits::{UC_LEAST, UC_MOST, UC_PATIENCE, UC_PROBE, UC_REPORTS, UC_WINDOW};
use crate::{Psn, Time};

/// What is known of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PeerState {
    /// It was greeted and has not answered.
    #[default]
    Unknown,
    /// It reports.
    Pagewire,
    Standard,
}

/// The sender's and the receiver's side of the reports.
#[derive(Debug, Default)]
pub struct Meter {
    peer: PeerState,
    /// Packets that fill a socket's worth.
    whole: u32,
    /// Packets that may be on the way: this connection's share of it.
    window: u32,
    /// The sender's first PSN that the peer has not reported.
    reported: Psn,
    /// Since when the window is full.
    full_since: Option<Time>,
    /// Packets received since the last report.
    unreported: u32,
}

impl Meter {
    /// For packets of at most `mtu` bytes of payload.
    pub fn new(mtu: u32) -> Self {
        let whole = (UC_WINDOW / mtu.max(1)).clamp(UC_LEAST, UC_MOST);
        Meter { whole, window: whole, ..Meter::default() }
    }

    /// So many connections share the sockets.
    pub fn set_sharers(&mut self, sharers: u32) {
        self.window = (self.whole / sharers.max(1)).max(UC_LEAST);
    }

    /// The first PSN that will be sent.
    pub fn start(&mut self, first: Psn) {
        self.reported = first;
    }

    /// The peer reports, or is a standard one.
    pub fn set_reporting(&mut self, reports: bool) {
        self.peer = if reports { PeerState::Pagewire } else { PeerState::Standard };
    }

    /// Whether the peer has not said what it is.
    pub fn peer_is_unknown(&self) -> bool {
        self.peer == PeerState::Unknown
    }

    /// Whether the peer is known to be no Pagewire.
    pub fn peer_is_standard(&self) -> bool {
        self.peer == PeerState::Standard
    }

    /// Whether the packet with the PSN `next` may go. A window that was full for too long counts as received: the
    /// report, or what it would have reported, was lost.
    pub fn permits(&mut self, next: Psn, now: Time) -> bool {
        if self.peer == PeerState::Standard || next.since(self.reported) < self.window {
            self.full_since = None;
            return true;
        }
        let since = *self.full_since.get_or_insert(now);
        if now.0.saturating_sub(since.0) < self.patience() {
            return false;
        }
        (self.reported, self.full_since) = (next, None);
        true
    }

    /// When a full window is given up.
    pub fn deadline(&self) -> Option<Time> {
        self.full_since.map(|since| Time(since.0 + self.patience()))
    }

    fn patience(&self) -> u64 {
        if self.peer == PeerState::Pagewire { UC_PATIENCE } else { UC_PROBE }
    }

    /// The peer reported which PSN it expects; reports from the future or the past are ignored.
    pub fn report(&mut self, expected: Psn, next: Psn) {
        if expected.since(self.reported) <= next.since(self.reported) {
            (self.reported, self.full_since) = (expected, None);
        }
    }

    /// A packet came in.
    pub fn received(&mut self) {
        self.unreported = self.unreported.saturating_add(1);
    }

    /// Whether this side owes a report.
    pub fn owes_report(&self) -> bool {
        self.peer == PeerState::Pagewire && self.unreported >= (self.window / UC_REPORTS).max(1)
    }

    /// It was sent.
    pub fn reported(&mut self) {
        self.unreported = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_small_packets_fits_among_those_that_are_kept() {
        assert!(UC_MOST < crate::limits::KEPT_PACKETS as u32);
        for mtu in [256, 512, 1024, 4096] {
            let whole = Meter::new(mtu).whole;
            assert!((UC_LEAST..=UC_MOST).contains(&whole) && whole * mtu <= UC_WINDOW, "{mtu}: {whole}");
        }
    }

    #[test]
    fn a_full_window_waits_for_a_report_or_its_patience() {
        let mut meter = Meter::new(1024);
        meter.start(Psn::new(0xFF_FFF0));
        meter.set_reporting(true);
        let window = UC_WINDOW / 1024;
        let mut next = Psn::new(0xFF_FFF0);
        for _ in 0..window {
            assert!(meter.permits(next, Time(0)));
            next = next.plus(1);
        }
        assert!(!meter.permits(next, Time(10)));
        assert_eq!(meter.deadline(), Some(Time(10 + UC_PATIENCE)));
        meter.report(next.plus(5), next);
        assert!(!meter.permits(next, Time(11)), "a report from the future counts nothing");
        meter.report(Psn::new(0xFF_FFF1), next);
        assert!(meter.permits(next, Time(12)));
        next = next.plus(1);
        assert!(!meter.permits(next, Time(20)));
        assert!(meter.permits(next, Time(20 + UC_PATIENCE)), "patience ends");
    }

    #[test]
    fn a_standard_peer_is_not_metered() {
        let mut meter = Meter::new(1024);
        meter.set_reporting(false);
        assert!((0..100_000).all(|psn| meter.permits(Psn::new(psn), Time(0))));
        meter.received();
        assert!(!meter.owes_report());
    }
}
