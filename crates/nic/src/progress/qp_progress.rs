//! What a queue pair does by itself: takes packets, sends what was posted, keeps its timers.
//!
//! One thread at a time drives a queue pair; the others leave a note and go on. A queue pair that waits for a
//! page, a full link or its turn is driven again by whoever learns that the reason is gone.

use crate::access::AccessSession;
use crate::path::Path;
use crate::progress::transport_ops::{Ended, QpTransportOps};
use crate::queue_pair::QueuePair;
use crate::services::event::AsyncEventKind;
use crate::services::ready::{Again, Occasion};
use crate::services::send_budget::BudgetGrant;
use crate::types::attributes::{Attributes, QueuePairType, State};
use crate::types::qp_role::QpRole;
use pagewire_fabric::Fabric;
use pagewire_transport::{PacketSink, Progress, RcConnection, Source, Time, WorkId};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::queue_pair::qp_context::{Connection, QpContext};

/// Turns that a thread takes in a row.
const PROGRESS_RUNS: u32 = 16;

/// What a connection has come to in one turn.
struct Progressed {
    progressed: Progress,
    connected: bool,
    /// When it wants its next turn (fabric time); `u64::MAX`: never.
    deadline: u64,
    drained: bool,
    /// An acknowledgement waits for the program's answer, without a time of its own.
    awaits_answer: bool,
    responds_late: bool,
}

impl<F: Fabric> QueuePair<F> {
    /// Drives the queue pair, or leaves word for the thread that does.
    pub(crate) fn run(self: &Arc<Self>) {
        self.run_for(Occasion::Round);
    }

    /// Drives the queue pair for an occasion, or leaves word for the thread that drives it.
    pub(crate) fn run_for(self: &Arc<Self>, occasion: Occasion) {
        for _ in 0..PROGRESS_RUNS {
            let Some(mut qpc) = self.qpc.try_lock().or_else(|| {
                self.pending.store(true, Ordering::SeqCst);
                // Whoever had it may have given it up just before, and seen no note.
                self.qpc.try_lock()
            }) else {
                return;
            };
            if self.pending.load(Ordering::SeqCst) {
                self.pending.store(false, Ordering::SeqCst);
            }
            let again = self.progress_for_occasion(&mut qpc, occasion);
            self.end_if_overrun(&mut qpc);
            drop(qpc);
            fence(Ordering::SeqCst);
            if let Some(again) = again {
                self.services.ready(&self.schedule, again);
            }
            if !self.pending.load(Ordering::SeqCst) {
                return;
            }
        }
        // Others leave notes faster than this thread works: it has other things to do, too.
        self.services.ready(&self.schedule, Again::Soon);
    }

    /// Has what the peer counts on leave before the connection ends: acknowledgements of what has arrived.
    pub(crate) fn progress_last(&self, qpc: &mut QpContext<F>) {
        self.progress_for_occasion(qpc, Occasion::Last);
    }

    /// Has an acknowledgement leave that waits, unless another thread drives the queue pair just now.
    pub(crate) fn acknowledge_now(self: &Arc<Self>) {
        let Some(mut qpc) = self.qpc.try_lock() else { return };
        let owes = qpc.owes_acknowledgement();
        let again = if owes { self.progress_for_occasion(&mut qpc, Occasion::Last) } else { None };
        drop(qpc);
        if let Some(again) = again {
            self.services.ready(&self.schedule, again);
        }
        self.pass_on_pending();
    }

    /// Whether all there is to do is an acknowledgement, which waits for the program's answer.
    fn try_rest(&self, qpc: &mut QpContext<F>) -> bool {
        qpc.attributes.state == State::ReadyToSend
            && !qpc.wants_path()
            && !qpc.receive_wait.waits()
            && qpc.hello.due() == u64::MAX
            // What was acknowledged to this side may be what others of this process wait for.
            && self.is_only_network_qp()
            && self.inbox.is_empty(QpRole::Requester)
            && self.inbox.is_empty(QpRole::Responder)
            && match &mut qpc.connection {
                Connection::Rc(rc) => rc.try_rest(),
                _ => false,
            }
    }

    /// Whether no other queue pair of the process uses the network.
    pub(crate) fn is_only_network_qp(&self) -> bool {
        self.services.network_users.load(Ordering::Relaxed) <= 1
    }

    /// One turn. Tells whether there is more to do, and when.
    fn progress_for_occasion(&self, qpc: &mut QpContext<F>, occasion: Occasion) -> Option<Again> {
        if occasion == Occasion::Polled && self.try_rest(qpc) {
            return Some(Again::Later);
        }
        if !qpc.attributes.state.receives() {
            return None;
        }
        self.take_arrived(qpc);
        let attributes = qpc.attributes;
        if !attributes.state.receives() {
            return None;
        }
        if matches!(qpc.connection, Connection::Ud) {
            return self.progress_ud(qpc, &attributes);
        }
        self.submit(qpc, &attributes);
        let now = self.services.fabric.now();
        let greeting = qpc.greet(self, now);
        qpc.tell_greeting(now);
        let hello_next = qpc.hello.due();
        let mut connection = std::mem::replace(&mut qpc.connection, Connection::None);
        let mut session = AccessSession::new(&self.services);
        let mut ops = QpTransportOps::new(self, qpc, None, &mut session);
        if let Some(own) = greeting {
            ops.transmit_hello(&own);
        }
        let turn = self.progress_connection(&mut connection, &mut ops, occasion, now);
        let ended = ops.finish();
        drop(session);
        qpc.holding_response = turn.responds_late;
        self.publish_holding(qpc);
        qpc.put_back(connection);
        let alive = ended.failure.is_none();
        self.apply_end(qpc, ended);
        if !alive {
            return None;
        }
        // Who does not send yet does not greet either.
        let greets = turn.connected && qpc.sending && matches!(qpc.path, Path::Udp { .. });
        let hello_next = if greets { hello_next } else { u64::MAX };
        let look_next = qpc.page_waits.next_look(now);
        let next = turn.deadline.min(hello_next).min(look_next);
        self.services.schedule(&self.schedule, next);
        self.tell_drained(&attributes, turn.drained);
        let waits = qpc.receive_wait.waits() || turn.awaits_answer;
        match turn.progressed {
            Progress::Again => Some(Again::Soon),
            Progress::Idle | Progress::Wait => waits.then_some(Again::Later),
        }
    }

    /// Notes pages that came in, starts the protocol where it can, and takes packets that wait.
    fn take_arrived(&self, qpc: &mut QpContext<F>) {
        if self.brought_in.load(Ordering::Acquire) != 0 {
            qpc.pages_in(self.brought_in.swap(0, Ordering::AcqRel));
        }
        let attributes = qpc.attributes;
        qpc.establish(self, &attributes);
        qpc.receive_wait.look_anew();
        self.take_waiting(qpc, QpRole::Requester);
        self.take_waiting(qpc, QpRole::Responder);
    }

    fn progress_ud(&self, qpc: &mut QpContext<F>, attributes: &Attributes) -> Option<Again> {
        let again = self.send_datagrams(qpc, attributes);
        self.tell_drained(attributes, true);
        let look_next = qpc.page_waits.next_look(self.services.fabric.now());
        if look_next != u64::MAX {
            self.services.schedule(&self.schedule, look_next);
        }
        again.or(qpc.receive_wait.waits().then_some(Again::Later))
    }

    /// Has the protocol do what it can.
    fn progress_connection(
        &self,
        connection: &mut Connection,
        ops: &mut QpTransportOps<'_, '_, F>,
        occasion: Occasion,
        now: u64,
    ) -> Progressed {
        let attributes = ops.qpc().attributes;
        let (progressed, deadline, drained, awaits_answer, responds_late) = match connection {
            Connection::Rc(rc) => {
                let timer_now = self.timer_now(now, rc.deadline());
                let grant = self.take_budget(ops.qpc(), rc, &attributes, now);
                rc.set_alone(self.is_only_network_qp());
                let progressed = rc.progress_for(occasion, Time(now), timer_now, ops);
                if let Some(grant) = grant {
                    self.return_budget(ops.qpc(), rc, grant, &attributes, now);
                }
                (progressed, rc.deadline(), rc.is_drained(), rc.awaits_answer(), rc.responds_late())
            }
            Connection::Uc(uc) => {
                uc.set_sharers(self.services.network_users.load(Ordering::Relaxed));
                let progressed = uc.progress(self.timer_now(now, uc.deadline()), ops);
                (progressed, uc.deadline(), uc.is_drained(), false, false)
            }
            Connection::None | Connection::Ud => (Progress::Idle, None, false, false, false),
        };
        let deadline = deadline.map_or(u64::MAX, |at| at.0);
        let connected = !matches!(connection, Connection::None);
        Progressed { progressed, connected, deadline, drained, awaits_answer, responds_late }
    }

    /// The time by which a connection's timers are judged: they are not over before this side has listened until then.
    fn timer_now(&self, now: u64, deadline: Option<Time>) -> Time {
        let due = deadline.map_or(u64::MAX, |at| at.0);
        // Whatever else is due by then is judged likewise.
        Time(if due <= now { self.services.rx_watermark(now).clamp(due.saturating_sub(1), now) } else { now })
    }

    /// Tells a connection how much of what all share it may use. `None`: nobody shares.
    fn take_budget(
        &self,
        qpc: &mut QpContext<F>,
        rc: &mut RcConnection,
        attributes: &Attributes,
        now: u64,
    ) -> Option<BudgetGrant> {
        let uses =
            matches!(qpc.path, Path::Udp { .. }) && self.services.network_users.load(Ordering::Relaxed) > 1;
        if !uses {
            rc.set_allowance(u32::MAX);
            return None;
        }
        let mtu = self.link_mtu(attributes);
        let budget_ready = self.budget_ready.swap(false, Ordering::AcqRel);
        let in_flight = u64::from(rc.in_flight()) * u64::from(mtu);
        let grant = self.services.send_budget.begin(&mut qpc.budget_use, in_flight, mtu, budget_ready, now);
        rc.set_allowance(grant.packets);
        Some(grant)
    }

    fn return_budget(
        &self,
        qpc: &mut QpContext<F>,
        rc: &RcConnection,
        grant: BudgetGrant,
        attributes: &Attributes,
        now: u64,
    ) {
        let in_flight = u64::from(rc.in_flight()) * u64::from(self.link_mtu(attributes));
        if self.services.send_budget.end(
            &mut qpc.budget_use,
            grant,
            in_flight,
            rc.is_held().then_some(self.number),
            now,
        ) {
            self.services.wake();
        }
    }

    /// In SQD: tells the program once that nothing is being sent any more, if it asked for that.
    fn tell_drained(&self, attributes: &Attributes, drained: bool) {
        let first = attributes.state == State::SendQueueDrain
            && drained
            && !self.drained.swap(true, Ordering::AcqRel);
        if first && attributes.drained_notify {
            self.raise(AsyncEventKind::SendQueueDrained);
        }
    }

    /// Hands posted work to the protocol; in SQD what came after stays.
    fn submit(&self, qpc: &mut QpContext<F>, attributes: &Attributes) {
        if attributes.state != State::ReadyToSend || !qpc.sending {
            return;
        }
        let send = self.send.lock();
        qpc.submitted = qpc.submitted.max(send.oldest().0);
        while let Some(work) = send.get(WorkId(qpc.submitted)) {
            match &mut qpc.connection {
                Connection::Rc(rc) => rc.post(work.work),
                Connection::Uc(uc) => uc.post(work.work),
                Connection::None | Connection::Ud => break,
            }
            qpc.submitted += 1;
        }
    }

    /// What follows from how the protocol ended.
    pub(crate) fn apply_end(&self, qpc: &mut QpContext<F>, ended: Ended) {
        let Some(failure) = ended.failure else { return };
        self.acknowledge_last(qpc);
        if failure.send_only && self.kind != QueuePairType::Rc {
            // What comes in is not concerned, and what is sent goes on with the next PSN when the program says so.
            self.enter_send_queue_error(qpc);
            return;
        }
        let mut refused = match &mut qpc.connection {
            Connection::Rc(rc) if rc.repeats_refusal() => std::mem::take(&mut qpc.connection),
            _ => Connection::None,
        };
        if let Connection::Rc(refused) = &mut refused {
            self.end_own_request(qpc, refused);
        }
        self.enter_error(qpc);
        if let Connection::Rc(refused) = refused {
            qpc.refused = Some(refused);
            self.repeats_refusal.store(true, Ordering::Release);
        }
        if let Some(event) = failure.event {
            self.raise(event);
        }
    }

    /// A queue pair that is connected to itself has refused a request of its own: that ends with its cause, before all others are flushed.
    #[cold]
    fn end_own_request(&self, qpc: &mut QpContext<F>, refused: &mut RcConnection) {
        let route = qpc.attributes.address.route(&self.domain.context().port());
        let is_own = qpc.attributes.destination == self.number
            && route.is_ok_and(|route| route.source == route.destination);
        if !is_own {
            return;
        }
        let now = Time(self.services.fabric.now());
        let mut session = AccessSession::new(&self.services);
        let mut ops = QpTransportOps::new(self, qpc, None, &mut session);
        refused.end_own_request(now, &mut ops);
        ops.finish();
    }

    /// The connection has ended at this side: what the peer had sent before still counts for it.
    fn acknowledge_last(&self, qpc: &mut QpContext<F>) {
        let Connection::Rc(rc) = &mut qpc.connection else { return };
        let Some(header) = rc.last_acknowledgement() else { return };
        let mut session = AccessSession::new(&self.services);
        let mut ops = QpTransportOps::new(self, qpc, None, &mut session);
        // For want of room it is lost, as it may be on the way.
        let _ = ops.transmit(&header, Source::None, 1);
        ops.finish();
    }
}
