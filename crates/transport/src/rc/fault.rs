//! What becomes of packets that find a page absent: kept, or dropped and asked for again ([`FaultHandling`]).

use pagewire_wire::{Hold, HoldFlags, Opcode, Resume, VendorPacket};

use super::{RcConnection, RcState};
use crate::{Disposition, DropCause, FaultHandling, Outcome, PacketSink, Psn, Reason, Time, limits};

/// A request that was dropped, of which the source was told that it will hear when to send it again.
#[derive(Debug, Clone, Copy)]
struct Dropped {
    psn: Psn,
    /// Then RESUME is sent, whatever was heard of the page: RESUME may have been lost, or the region may have gone.
    look: Option<Time>,
    /// RESUMEs sent for it since it last came.
    unanswered: u32,
}

/// What a connection has to say of absent pages.
#[derive(Debug, Default)]
pub(super) struct Faults {
    handling: FaultHandling,
    /// The peer understands RESUME.
    peer_resumes: bool,
    dropped: Option<Dropped>,
    /// Since when something waits here to hear what the peer understands.
    undecided_since: Option<Time>,
    resume_due: bool,
    pub(super) hold_due: bool,
    last_hold: Option<(Psn, Time)>,
}

impl Faults {
    pub(super) fn new(handling: FaultHandling) -> Faults {
        Faults { handling, ..Faults::default() }
    }

    /// Whether there is anything to say, now or later.
    #[inline]
    pub(super) fn are_pending(&self) -> bool {
        self.hold_due || self.resume_due || self.dropped.is_some()
    }

    /// When something is to be said at the latest.
    pub(super) fn deadline(&self) -> Option<Time> {
        // A RESUME that is due waits for the link, which has no time.
        self.dropped.filter(|_| !self.resume_due).and_then(|dropped| dropped.look)
    }
}

impl RcConnection {
    /// Whether the peer understands RESUME and the flags of HOLD: call it once HELLO went both ways.
    pub fn set_resumes(&mut self, on: bool) {
        self.faults.peer_resumes = on;
    }

    /// Pages that a request of the peer waited for are there, or some of them, or they turned out not to be mapped.
    #[cold]
    pub fn pages_in_for_requests(&mut self) {
        self.faults.resume_due |= self.dropped_expected();
    }

    /// Pages that the response to a request of this side waited for are there, or some of them, or they turned out not to be mapped.
    #[cold]
    pub fn pages_in_for_responses(&mut self) {
        if self.faults.handling != FaultHandling::Timeout {
            self.requester.ask_for_dropped_response(&self.shared);
        }
    }

    /// The caller has dropped requests for want of room while others waited for a page, and these have been executed: the
    /// source is told where to go on.
    #[cold]
    pub fn note_overflow(&mut self) {
        self.faults.resume_due = true;
    }

    /// A request cannot be executed now, mostly for want of a page: keeps it, or drops it, as the connection handles page faults.
    #[cold]
    pub(super) fn request_waits<E: PacketSink>(
        &mut self,
        now: Time,
        psn: Psn,
        (reason, again): (Reason, bool),
        ops: &mut E,
    ) -> Disposition {
        if self.keeps_faulting() || reason != Reason::Page || self.is_undecided(now) {
            self.shared.request_stalled = true;
            if !again {
                self.hold();
                // Without space on the link it leaves with the next turn.
                self.send_hold(now, ops);
            }
            return Disposition::Held { reason, again };
        }
        // A READ that was executed before is dropped alone: whoever still misses something asks again.
        if psn == self.responder.expected() {
            match self.faults.handling {
                FaultHandling::Err | FaultHandling::ErrWithoutTimeout if self.may_resume() => {
                    self.responder.await_repetition();
                    self.faults.dropped = Some(Dropped { psn, look: look_after(now, 0), unanswered: 0 });
                    self.hold();
                    self.send_hold(now, ops);
                }
                FaultHandling::Timeout => self.responder.await_repetition(),
                _ => self.responder.refuse_for_now(&self.shared),
            }
        }
        Disposition::Dropped(DropCause::AbsentPage { resumes: self.dropped_expected() })
    }

    /// A response of the peer cannot be placed now: keeps it, or drops it.
    #[cold]
    pub(super) fn response_waits(&mut self, reason: Reason, again: bool) -> Disposition {
        if self.keeps_faulting() || reason != Reason::Page {
            self.shared.response_stalled = true;
            return Disposition::Held { reason, again };
        }
        self.requester.dropped_response();
        Disposition::Dropped(DropCause::AbsentPage {
            resumes: self.faults.handling != FaultHandling::Timeout,
        })
    }

    /// Sends what is to be said; true: the transport operations say wait.
    #[cold]
    pub(super) fn tell_faults<E: PacketSink>(&mut self, now: Time, ops: &mut E) -> bool {
        if let Some(dropped) = self.faults.dropped {
            if dropped.psn != self.responder.expected() {
                self.faults.dropped = None;
            } else {
                self.faults.resume_due |= dropped.look.is_some_and(|look| now >= look);
            }
        }
        // HOLD goes first: behind its RESUME it would have the source wait for another one.
        if self.faults.hold_due && self.send_hold(now, ops) {
            return true;
        }
        self.faults.resume_due && self.send_resume(now, ops)
    }

    /// Another request of the peer has arrived while one waits here: it may not have heard of that. [`progress`](Self::progress) tells a
    /// selective peer to be patient, by at most one HOLD in [`HOLD_INTERVAL`](limits::HOLD_INTERVAL).
    pub fn hold(&mut self) {
        self.faults.hold_due = true;
    }

    /// True: the link is full.
    fn send_hold<E: PacketSink>(&mut self, now: Time, ops: &mut E) -> bool {
        let psn = self.responder.expected();
        let dropped = self.dropped_expected();
        // Of each packet that is dropped the source is told.
        let recent = self.faults.last_hold.is_some_and(|(held, last)| {
            now.0.saturating_sub(last.0) < limits::HOLD_INTERVAL && (!dropped || held == psn)
        });
        let silent = self.faults.handling == FaultHandling::Timeout;
        if recent || silent || !self.shared.fills_gaps() || self.shared.state == RcState::Dead {
            self.faults.hold_due = false;
            return false;
        }
        let mut flags = HoldFlags::empty();
        flags.set(HoldFlags::DROPPED, dropped);
        let waits = self.faults.handling == FaultHandling::ErrWithoutTimeout;
        flags.set(HoldFlags::UNTIL_RESUME, dropped && waits);
        let header = self.shared.header_of(Opcode::HOLD, psn);
        let body = VendorPacket::Hold(Hold { psn: psn.value(), flags });
        if let Outcome::Wait(_) = ops.transmit_control(&header, &body) {
            return true;
        }
        self.faults.hold_due = false;
        self.faults.last_hold = Some((psn, now));
        self.shared.counters.holds_sent += 1;
        false
    }

    /// True: the link is full.
    fn send_resume<E: PacketSink>(&mut self, now: Time, ops: &mut E) -> bool {
        if !self.may_resume() || self.shared.state != RcState::Alive {
            // Also where the peer has greeted anew, and knows no RESUME any more: its timer has to do.
            (self.faults.resume_due, self.faults.dropped) = (false, None);
            return false;
        }
        let psn = self.responder.expected();
        let header = self.shared.header_of(Opcode::RESUME, psn);
        let body = VendorPacket::Resume(Resume { psn: psn.value(), block: self.responder.missing() });
        if let Outcome::Wait(_) = ops.transmit_control(&header, &body) {
            return true;
        }
        self.faults.resume_due = false;
        if let Some(dropped) = &mut self.faults.dropped {
            dropped.unanswered += 1;
            dropped.look = look_after(now, dropped.unanswered);
        }
        self.shared.counters.resumes_sent += 1;
        false
    }

    /// Whether packets that find a page absent are kept.
    fn keeps_faulting(&self) -> bool {
        self.shared.link.lossless || self.faults.handling == FaultHandling::Stash
    }

    /// Whether the peer may turn out to understand RESUME: its greeting may be on the way still. Until then what it sent is kept; an RNR NAK
    /// might end its connection.
    fn is_undecided(&mut self, now: Time) -> bool {
        let asks = matches!(self.faults.handling, FaultHandling::Err | FaultHandling::ErrWithoutTimeout);
        if !asks || !self.shared.greeting || self.may_resume() {
            return false;
        }
        let since = *self.faults.undecided_since.get_or_insert(now);
        now.0.saturating_sub(since.0) < limits::LONGEST_GREETING
    }

    fn may_resume(&self) -> bool {
        self.faults.peer_resumes && self.shared.fills_gaps()
    }

    /// Whether the request that is expected was dropped, and the source waits to hear of it.
    fn dropped_expected(&self) -> bool {
        self.faults.dropped.is_some_and(|dropped| dropped.psn == self.responder.expected())
    }
}

/// When RESUME is sent at the latest after so many that had no answer; `None`: the source may have ended.
fn look_after(now: Time, unanswered: u32) -> Option<Time> {
    let interval = (limits::RESUME_INTERVAL << unanswered.min(16)).min(limits::MAX_RESUME_INTERVAL);
    (unanswered < limits::UNANSWERED_RESUMES).then(|| Time(now.0.saturating_add(interval)))
}
