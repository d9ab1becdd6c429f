//! What a queue pair does by itself: takes packets, sends what was posted, keeps its timers.
//!
//! One thread at a time drives a queue pair; the others leave a note and go on. A queue pair that waits for a
//! page, a full link or its turn is driven again by whoever learns that the reason is gone.

use crate::access::AccessSession;
use crate::path::Path;
use crate::progress::arriving_burst::{ArrivingBurst, BurstAccess};
use crate::progress::datagram_tx::DatagramSender;
use crate::progress::transport_ops::QpTransportOps;
use crate::queue_pair::QueuePair;
use crate::services::event::AsyncEventKind;
use crate::services::ready::{Again, Occasion};
use crate::services::send_budget::BudgetGrant;
use crate::types::attributes::{Attributes, QpState};
use crate::types::qp_role::QpRole;
use pagewire_fabric::Fabric;
use pagewire_transport::{RcConnection, RcProgress, Time, WorkId};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::queue_pair::qp_context::{QpConnection, QpContext};

/// Turns that a thread takes in a row.
const PROGRESS_RUNS: u32 = 16;

/// What a connection has come to in one turn.
struct Progressed {
    progressed: RcProgress,
    connected: bool,
    /// When it wants its next turn (fabric time); `u64::MAX`: never.
    deadline: u64,
    drained: bool,
    /// An acknowledgement waits for the program's answer, without a time of its own.
    awaits_answer: bool,
    responds_late: bool,
}

/// A queue pair that is to be driven.
pub(crate) struct Driver<'q, F: Fabric>(pub(crate) &'q Arc<QueuePair<F>>);

impl<F: Fabric> Driver<'_, F> {
    /// Drives the queue pair, or leaves word for the thread that does.
    pub(crate) fn run(self) {
        self.run_for(Occasion::Round);
    }

    /// Drives the queue pair for an occasion, or leaves word for the thread that drives it.
    pub(crate) fn run_for(self, occasion: Occasion) {
        for _ in 0..PROGRESS_RUNS {
            let Some(mut qpc) = self.0.qpc.try_lock().or_else(|| {
                self.0.notes.pending.store(true, Ordering::SeqCst);
                // Whoever had it may have given it up just before, and seen no note.
                self.0.qpc.try_lock()
            }) else {
                return;
            };
            if self.0.notes.pending.load(Ordering::SeqCst) {
                self.0.notes.pending.store(false, Ordering::SeqCst);
                if self.0.notes.streams_changed.swap(false, Ordering::SeqCst) {
                    Turn::new(self.0, &mut qpc).look_at_stream();
                }
            }
            let again = Turn::new(self.0, &mut qpc).progress(occasion);
            self.0.end_if_overrun(&mut qpc);
            drop(qpc);
            fence(Ordering::SeqCst);
            if let Some(again) = again {
                self.0.services.ready(&self.0.schedule, again);
            }
            if !self.0.notes.pending.load(Ordering::SeqCst) {
                return;
            }
        }
        // Others leave notes faster than this thread works: it has other things to do, too.
        self.0.services.ready(&self.0.schedule, Again::Soon);
    }

    /// Has an acknowledgement leave that waits, unless another thread drives the queue pair just now.
    pub(crate) fn acknowledge_now(self) {
        let Some(mut qpc) = self.0.qpc.try_lock() else { return };
        let owes = qpc.owes_acknowledgement();
        let again = if owes { Turn::new(self.0, &mut qpc).progress(Occasion::Last) } else { None };
        drop(qpc);
        if let Some(again) = again {
            self.0.services.ready(&self.0.schedule, again);
        }
        self.0.pass_on_pending();
    }
}

/// The turn of a queue pair whose QP context this thread holds.
pub(crate) struct Turn<'q, F: Fabric> {
    queue_pair: &'q QueuePair<F>,
    qpc: &'q mut QpContext<F>,
}

impl<'q, F: Fabric> Turn<'q, F> {
    /// The caller holds the QP context.
    pub(crate) fn new(queue_pair: &'q QueuePair<F>, qpc: &'q mut QpContext<F>) -> Self {
        Turn { queue_pair, qpc }
    }

    /// Has what the peer counts on leave before the connection ends: acknowledgements of what has arrived.
    pub(crate) fn progress_last(&mut self) {
        self.progress(Occasion::Last);
    }

    /// Repeats what was on its way in a stream that was opened anew.
    #[cold]
    fn look_at_stream(&mut self) {
        let now = self.queue_pair.services.fabric.now();
        let services = &self.queue_pair.services;
        let Some(openings) = self.qpc.path().stream().map(|stream| services.fabric.stream_openings(stream))
        else {
            return;
        };
        if openings != std::mem::replace(&mut self.qpc.stream_openings, openings)
            && let QpConnection::Rc(connection) = &mut self.qpc.connection
        {
            connection.link_restored(Time(now));
        }
    }

    /// One turn. Tells whether there is more to do, and when.
    pub(crate) fn progress(&mut self, occasion: Occasion) -> Option<Again> {
        if occasion == Occasion::Polled && self.try_rest() {
            return Some(Again::Later);
        }
        if !self.qpc.attributes.state.receives() {
            return None;
        }
        self.take_arrived();
        let attributes = self.qpc.attributes;
        if !attributes.state.receives() {
            return None;
        }
        if matches!(self.qpc.connection, QpConnection::Ud) {
            return self.progress_ud(&attributes);
        }
        let now = self.queue_pair.services.fabric.now();
        let greeting = self.qpc.greet(self.queue_pair, now);
        if self.qpc.wants_path() {
            // The ends may just have agreed, or given that up.
            self.qpc.establish(self.queue_pair, &attributes);
        }
        self.submit(&attributes);
        self.qpc.tell_greeting(now);
        let hello_next = self.qpc.hello.due();
        let mut connection = std::mem::replace(&mut self.qpc.connection, QpConnection::None);
        let mut session = AccessSession::new(&self.queue_pair.services);
        let mut ops = QpTransportOps::new(self.queue_pair, self.qpc, None, &mut session);
        if let Some(own) = greeting {
            ops.transmit_hello(&own);
        }
        let connection_turn =
            ConnectionTurn { queue_pair: self.queue_pair, attributes: &attributes, occasion, now };
        let turn = connection_turn.progress(&mut connection, &mut ops);
        let ended = ops.finish();
        drop(session);
        if !self.qpc.arrived.is_empty() {
            self.queue_pair.announce_arrived(self.qpc);
        }
        self.qpc.holding_response = turn.responds_late;
        self.queue_pair.publish_holding(self.qpc);
        self.qpc.put_back(connection);
        let alive = ended.failure.is_none();
        ended.apply(self.queue_pair, self.qpc);
        if !alive {
            return None;
        }
        // Who does not send yet does not greet either.
        let greets = (turn.connected && self.qpc.sending || self.qpc.greets_ahead())
            && matches!(self.qpc.path, Path::Network { .. });
        let hello_next = if greets { hello_next } else { u64::MAX };
        let look_next = self.qpc.page_waits.next_look(now);
        let next = turn.deadline.min(hello_next).min(look_next);
        self.queue_pair.services.schedule(&self.queue_pair.schedule, next);
        self.tell_drained(&attributes, turn.drained);
        let owes_reply = self.qpc.owes_reply() && matches!(self.qpc.path, Path::Network { .. });
        let waits = self.qpc.receive_wait.waits() || turn.awaits_answer || owes_reply;
        match turn.progressed {
            RcProgress::Again => Some(Again::Soon),
            RcProgress::Idle | RcProgress::Wait => waits.then_some(Again::Later),
        }
    }

    /// Whether all there is to do is an acknowledgement, which waits for the program's answer.
    fn try_rest(&mut self) -> bool {
        self.qpc.attributes.state == QpState::ReadyToSend
            && !self.qpc.wants_path()
            && !self.qpc.receive_wait.waits()
            && self.qpc.hello.due() == u64::MAX
            // What was acknowledged to this side may be what others of this process wait for.
            && self.queue_pair.services.has_one_network_user()
            && self.queue_pair.inbox.is_empty(QpRole::Requester)
            && self.queue_pair.inbox.is_empty(QpRole::Responder)
            && match &mut self.qpc.connection {
                QpConnection::Rc(rc) => rc.try_rest(),
                _ => false,
            }
    }

    /// Notes pages that came in, starts the protocol where it can, and takes packets that wait.
    fn take_arrived(&mut self) {
        if self.queue_pair.notes.brought_in.load(Ordering::Acquire) != 0 {
            self.qpc.pages_in(self.queue_pair.notes.brought_in.swap(0, Ordering::AcqRel));
        }
        let attributes = self.qpc.attributes;
        self.qpc.establish(self.queue_pair, &attributes);
        self.qpc.receive_wait.look_anew();
        self.take_waiting(QpRole::Requester);
        self.take_waiting(QpRole::Responder);
    }

    fn progress_ud(&mut self, attributes: &Attributes) -> Option<Again> {
        let again = DatagramSender::new(self.queue_pair, self.qpc).send(attributes);
        self.tell_drained(attributes, true);
        let look_next = self.qpc.page_waits.next_look(self.queue_pair.services.fabric.now());
        if look_next != u64::MAX {
            self.queue_pair.services.schedule(&self.queue_pair.schedule, look_next);
        }
        again.or(self.qpc.receive_wait.waits().then_some(Again::Later))
    }

    /// In SQD: tells the program once that nothing is being sent any more, if it asked for that.
    fn tell_drained(&self, attributes: &Attributes, drained: bool) {
        let first = attributes.state == QpState::SendQueueDrain
            && drained
            && !self.queue_pair.notes.drained.swap(true, Ordering::AcqRel);
        if first && attributes.drained_notify {
            self.queue_pair.raise(AsyncEventKind::SendQueueDrained);
        }
    }

    /// Hands posted work to the protocol; in SQD what came after stays.
    fn submit(&mut self, attributes: &Attributes) {
        if attributes.state != QpState::ReadyToSend || !self.qpc.sending {
            return;
        }
        let send = self.queue_pair.send.lock();
        self.qpc.submitted = self.qpc.submitted.max(send.oldest().0);
        while let Some(work) = send.get(WorkId(self.qpc.submitted)) {
            match &mut self.qpc.connection {
                QpConnection::Rc(rc) => rc.post(work.work),
                QpConnection::Uc(uc) => uc.post(work.work),
                QpConnection::None | QpConnection::Ud => break,
            }
            self.qpc.submitted += 1;
        }
    }

    /// Takes packets out of the inbox until one has to wait on.
    fn take_waiting(&mut self, half: QpRole) {
        if !self.queue_pair.inbox.is_empty(half) {
            let mut access = BurstAccess::begin(&self.queue_pair.services);
            ArrivingBurst::new(self.queue_pair, self.qpc, &mut access).take_waiting(half);
        }
    }
}

/// What the protocol of a connection is run with in one turn.
struct ConnectionTurn<'q, F: Fabric> {
    queue_pair: &'q QueuePair<F>,
    attributes: &'q Attributes,
    occasion: Occasion,
    now: u64,
}

impl<F: Fabric> ConnectionTurn<'_, F> {
    /// Has the protocol do what it can.
    fn progress(&self, connection: &mut QpConnection, ops: &mut QpTransportOps<'_, '_, F>) -> Progressed {
        let services = &self.queue_pair.services;
        let (progressed, deadline, drained, awaits_answer, responds_late) = match connection {
            QpConnection::Rc(rc) => {
                let timer_now = self.timer_now(rc.deadline());
                let grant = self.take_budget(ops.qpc(), rc);
                rc.set_alone(services.has_one_network_user());
                let progressed = rc.progress_for(self.occasion, Time(self.now), timer_now, ops);
                if let Some(grant) = grant {
                    self.return_budget(ops.qpc(), rc, grant);
                }
                (progressed, rc.deadline(), rc.is_drained(), rc.awaits_answer(), rc.responds_late())
            }
            QpConnection::Uc(uc) => {
                uc.set_sharers(services.network_users.load(Ordering::Relaxed));
                let progressed = uc.progress(self.timer_now(uc.deadline()), ops);
                (progressed, uc.deadline(), uc.is_drained(), false, false)
            }
            QpConnection::None | QpConnection::Ud => (RcProgress::Idle, None, false, false, false),
        };
        let deadline = deadline.map_or(u64::MAX, |at| at.0);
        let connected = !matches!(connection, QpConnection::None);
        Progressed { progressed, connected, deadline, drained, awaits_answer, responds_late }
    }

    /// The time by which a connection's timers are judged: they are not over before this side has listened until then.
    fn timer_now(&self, deadline: Option<Time>) -> Time {
        let (now, due) = (self.now, deadline.map_or(u64::MAX, |at| at.0));
        if due > now {
            return Time(now);
        }
        // Whatever else is due by then is judged likewise.
        Time(self.queue_pair.services.rx_watermark(now).clamp(due.saturating_sub(1), now))
    }

    /// Tells a connection how much of what all share it may use. `None`: nobody shares.
    fn take_budget(&self, qpc: &mut QpContext<F>, rc: &mut RcConnection) -> Option<BudgetGrant> {
        let queue_pair = self.queue_pair;
        let services = &queue_pair.services;
        // A stream says itself when it is full.
        let shares = matches!(qpc.path, Path::Network { .. }) && !qpc.path.is_stream();
        if !shares || services.has_one_network_user() {
            rc.set_allowance(u32::MAX);
            return None;
        }
        let mtu = queue_pair.link_mtu(self.attributes);
        let budget_ready = queue_pair.notes.budget_ready.swap(false, Ordering::AcqRel);
        let in_flight = u64::from(rc.in_flight()) * u64::from(mtu);
        let grant = services.send_budget.begin(&mut qpc.budget_use, in_flight, mtu, budget_ready, self.now);
        rc.set_allowance(grant.packets);
        Some(grant)
    }

    fn return_budget(&self, qpc: &mut QpContext<F>, rc: &RcConnection, grant: BudgetGrant) {
        let queue_pair = self.queue_pair;
        let in_flight = u64::from(rc.in_flight()) * u64::from(queue_pair.link_mtu(self.attributes));
        let held = rc.is_held().then_some(queue_pair.properties.number);
        let services = &queue_pair.services;
        if services.send_budget.end(&mut qpc.budget_use, grant, in_flight, held, self.now) {
            services.wake();
        }
    }
}
