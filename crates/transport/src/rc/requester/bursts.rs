//! How many packets leave together, in full sends and in bursts, and how many acknowledgements are asked for.

use super::{RequestEntry, Requester};
use crate::rc::RcShared;
use crate::{WorkOperation, limits};

impl Requester {
    /// Whether it is better to begin when more may be under way: many packets that leave together cost hardly more than one,
    /// and what is acknowledged in small pieces would be followed by small pieces for ever (the silly window syndrome of RFC 813).
    /// What is under way then is two thirds of the window at least, and some of it asks for an acknowledgement.
    pub(super) fn waits_for_room(&self, entry: &RequestEntry, offset: u32, shared: &RcShared) -> bool {
        let in_flight = self.in_flight();
        let at_once = self.filling || in_flight == 0 || self.pacer.is_on();
        if at_once || shared.link.lossless || entry.awaits_response() {
            return false;
        }
        let window = self.window.packets();
        // The end of a message is a small piece, too, but where the next one leaves with it.
        let rest = if offset > 0 && self.goes_on() { u32::MAX } else { entry.packets - offset };
        window.saturating_sub(in_flight) < rest.min(window / 3)
    }

    /// Whether few acknowledgements are asked for: each costs the responder as much as ten packets of a burst (docs/experiments/udp-streams.md). A
    /// Pagewire's tell what is missing. On a long way, and where the network has shown that it is narrow, they are what sending keeps time by.
    fn asks_seldom(&self, shared: &RcShared) -> bool {
        let is_near = || self.retry.shortest_round_trip().is_some_and(|time| time < limits::NEAR);
        shared.fills_gaps() && !self.window.is_reduced() && is_near()
    }

    /// Packets of which one shall ask for an acknowledgement.
    pub(super) fn longest_unasked(&self, shared: &RcShared) -> u32 {
        self.window.packets() / if self.asks_seldom(shared) { 2 } else { 4 }
    }

    /// Whether a packet, the last of its message, asks for the acknowledgement of all before it, rather than one of the message that
    /// follows at once.
    pub(super) fn ends(&self, last: bool, shared: &RcShared) -> bool {
        last && !(self.asks_seldom(shared) && self.goes_on())
    }

    /// Whether another message may follow the last one that was started, at once.
    fn goes_on(&self) -> bool {
        let next = self.queue.get(self.started).filter(|_| !self.draining && self.blocked.is_none());
        next.is_some_and(|next| {
            let sends =
                matches!(next.work.operation, WorkOperation::Send { .. } | WorkOperation::Write { .. });
            sends && !(next.work.fence && self.reads > 0)
        })
    }

    /// How many packets from `offset` on differ in what [`transmit`](crate::PacketSink::transmit) says, fit what may be under way, and need
    /// not ask for an acknowledgement: so many may leave as a burst.
    pub(super) fn burst(&self, entry: &RequestEntry, offset: u32, shared: &RcShared) -> u32 {
        let cut = matches!(entry.work.operation, WorkOperation::Send { .. } | WorkOperation::Write { .. });
        let begins = offset == 0 && !entry.write_only;
        if !cut || begins || shared.link.lossless || self.blocked.is_some() || self.pacer.is_on() {
            return 0;
        }
        let window = self.window.packets();
        // Each is one less than what `asks` goes by.
        let unasked = self.longest_unasked(shared).saturating_sub(self.unasked + 1);
        let room = window.saturating_sub(self.in_flight() + 1);
        let span = limits::LOSSY_SPAN.saturating_sub(self.next.since(self.unacked) + 1);
        let allowed = self.allowance.saturating_sub(1);
        (entry.packets - 1).saturating_sub(offset).min(unasked).min(room).min(span).min(allowed)
    }
}
