//! What a queue pair does by itself: takes packets, sends what was posted, keeps its timers.
//!
//! One thread at a time drives a queue pair; the others leave a note and go on. A queue pair that waits for a
//! page, a full link or its turn is driven again by whoever learns that the reason is gone.

mod delayed_ack;
mod hello;
mod packets;
pub(crate) mod page_waits;
mod receive_wait;

use crate::access::{AccessSession, MrCacheEntry};
use crate::attributes::{Attributes, QueuePairType, State};
use crate::counters::ProtocolCounters;
use crate::error::{Error, Result};
use crate::event::AsyncEventKind;
use crate::inbox::{Half, Origin};
use crate::initiator_copy::RemoteHint;
use crate::path::Path;
use crate::path::local::{LocalChannel, RxPosition, publish_holding};
use crate::queue_pair::QueuePair;
use crate::ready::Again;
use crate::request::ReceiveWork;
use crate::send_budget::{BudgetGrant, BudgetUse};
use crate::transport_ops::{Ended, QpTransportOps};
use delayed_ack::{DelayedAck, ReceivedData, Wait};
use hello::HelloState;
pub(crate) use packets::Burst;
use page_waits::{FaultState, PageWaits, Purpose, tells_of};
use pagewire_fabric::{Fabric, Route};
use pagewire_iommu::Rights;
use pagewire_memory::LastSeen;
use pagewire_transport::{
    Link, Progress, RcConnection, RcSettings, RcUpdate, RemoteRights, RequesterSettings, SendOnlyRequest,
    Source, Time, TransportOps, UcConnection, UcSettings, Work, WorkId,
};
use pagewire_wire::Header;
use pagewire_wire::bth::DEFAULT_PARTITION;
use receive_wait::ReceiveWait;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Bytes of a READ response, or of a UC request, that go into one ring record.
const RING_PAYLOAD: u32 = 16_384;
/// Turns that a thread takes in a row.
const PROGRESS_RUNS: u32 = 16;

/// Why a queue pair is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The program has posted.
    Doorbell,
    /// A polling thread of the program has taken datagrams, and is about to hand over what came of them.
    Polled,
    /// Nothing comes behind it: the queue pair ends, or begins anew, or the process may end.
    Last,
    /// Any other.
    Round,
}

/// The state machine of a connected queue pair.
enum Connection {
    None,
    Rc(Box<RcConnection>),
    Uc(Box<UcConnection>),
    Ud,
}

impl Connection {
    fn counters(&self) -> ProtocolCounters {
        match self {
            Connection::Rc(rc) => rc.counters().into(),
            Connection::Uc(uc) => uc.counters().into(),
            Connection::None | Connection::Ud => ProtocolCounters::default(),
        }
    }
}

/// What belongs to whoever drives the queue pair.
pub struct QpContext<F: Fabric> {
    /// What the queue pair was told last.
    pub attributes: Attributes,
    connection: Connection,
    /// The peer was heard from (COMM_EST).
    pub communicates: bool,
    /// The peer knows that this side has begun, or was told, as no packet tells it.
    peer_knows_rts: bool,
    sending: bool,
    path: Path<F>,
    /// What connections that have ended counted.
    ended: ProtocolCounters,
    /// The receive that a message is being placed into.
    pub receive: Option<ReceiveWork>,
    /// The next send request to hand to the protocol.
    pub submitted: u64,
    page_waits: PageWaits,
    hello: HelloState,
    /// What local peers see: that silence means waiting.
    holding: bool,
    /// A request waits, or the response to a READ.
    holding_request: bool,
    holding_response: bool,
    /// What the peer had sent and nobody had taken, when an acknowledgement was last overdue.
    pub unread: SmallVec<[RxPosition; 2]>,
    /// UC and UD: of the next message.
    receive_wait: ReceiveWait,
    budget_use: BudgetUse,
    /// What has come for the program since the queue pair was last driven.
    pub received_data: ReceivedData,
    delayed_ack: DelayedAck,
    pub mr_cache: MrCache,
}

/// Regions that are most probably accessed again.
#[derive(Default)]
pub struct MrCache {
    /// What was last sent from at a post, or by a transfer that the requester executed itself, or read into.
    pub send: Option<MrCacheEntry>,
    /// What a message was last received into at once.
    pub receive: Option<MrCacheEntry>,
    /// What was last accessed in the local peer's memory.
    pub remote_hint: Option<RemoteHint>,
    /// What of that memory, and of the own, such transfers last saw present.
    pub resident_remote: LastSeen,
    pub resident_local: LastSeen,
}

/// A local peer's memory, as the requester reaches it.
pub struct LocalPath<'c, F: Fabric> {
    pub channel: &'c LocalChannel<F>,
    /// With which PSN the connection began.
    pub send_psn: u32,
    /// Times in a row that pages were brought in for the requester.
    pub waits: &'c mut FaultState,
    pub mr_cache: &'c mut MrCache,
    /// The peer knows that this side has begun, or was told.
    pub peer_knows_rts: &'c mut bool,
}

impl<F: Fabric> Default for QpContext<F> {
    fn default() -> Self {
        QpContext {
            attributes: Attributes::default(),
            connection: Connection::None,
            communicates: false,
            peer_knows_rts: false,
            sending: false,
            path: Path::None,
            ended: ProtocolCounters::default(),
            receive: None,
            submitted: 0,
            page_waits: PageWaits::default(),
            hello: HelloState::default(),
            holding: false,
            holding_request: false,
            holding_response: false,
            unread: SmallVec::new(),
            receive_wait: ReceiveWait::default(),
            budget_use: BudgetUse::default(),
            received_data: ReceivedData::default(),
            delayed_ack: DelayedAck::default(),
            mr_cache: MrCache::default(),
        }
    }
}

impl<F: Fabric> QpContext<F> {
    /// An access begins, which may wait for pages.
    pub fn begin_access(&mut self, purpose: Purpose) -> &mut FaultState {
        self.page_waits.begin_access(purpose)
    }

    /// An access that waits will never be made: its packet was dropped. How long it waited says nothing.
    #[cold]
    pub fn forget_access(&mut self, purpose: Purpose) {
        let _ = self.page_waits.begin_access(purpose).end_wait(0);
    }

    /// Pages came in for some waits (a bit for each), or turned out not to be mapped.
    #[cold]
    fn pages_in(&mut self, waits: u64) {
        self.page_waits.note_pages_in(waits);
        let Connection::Rc(rc) = &mut self.connection else { return };
        if tells_of(waits, Purpose::Execute) {
            rc.pages_in_for_requests();
        }
        if tells_of(waits, Purpose::PlaceResponse) {
            rc.pages_in_for_responses();
        }
    }

    /// Nothing that was posted is under way, and what is posted next may be sent at once.
    pub fn is_quiet(&self) -> bool {
        self.sending
            && self.attributes.state == State::ReadyToSend
            && matches!(&self.connection, Connection::Rc(rc) if rc.is_quiet())
    }

    /// What a transfer takes that the requester executes itself, on the local path where memory may be touched from outside.
    pub fn local(&mut self) -> Option<LocalPath<'_, F>> {
        match &self.path {
            Path::Local(channel) if !channel.channel.bounce_only => Some(LocalPath {
                channel,
                send_psn: self.attributes.send_psn,
                waits: self.page_waits.begin_access(Purpose::Request),
                mr_cache: &mut self.mr_cache,
                peer_knows_rts: &mut self.peer_knows_rts,
            }),
            _ => None,
        }
    }

    /// See [`RcConnection::send_fast`].
    #[inline(always)] // Part of each short SEND.
    pub fn send_fast(&self, work: &Work) -> Option<SendOnlyRequest> {
        let sends = self.sending && self.attributes.state == State::ReadyToSend;
        match &self.connection {
            Connection::Rc(rc) if sends => rc.send_fast(work),
            _ => None,
        }
    }

    /// See [`RcConnection::sent_fast`]; gives when the connection wants to be driven.
    pub fn sent_fast(&mut self, now: Time, work: &Work) -> Option<Time> {
        let Connection::Rc(rc) = &mut self.connection else { return None };
        rc.sent_fast(now, work);
        rc.deadline()
    }

    /// See [`RcConnection::may_execute_fast`].
    #[inline(always)] // Part of each short SEND.
    pub fn may_execute_fast(&self, send: &SendOnlyRequest, length: u32) -> bool {
        matches!(&self.connection, Connection::Rc(rc) if rc.may_execute_fast(send, length))
    }

    /// See [`RcConnection::executed_fast`].
    pub fn executed_fast(&mut self) {
        if let Connection::Rc(rc) = &mut self.connection {
            // What is owed waits for the answer, if the program answers.
            self.received_data.received |= rc.executed_fast();
        }
    }

    /// See [`RcConnection::take_owed`]: the program has posted a request, with which it leaves.
    pub fn take_owed(&mut self, now: Time) -> Option<Header> {
        let received_data = std::mem::take(&mut self.received_data);
        self.delayed_ack.look(Occasion::Doorbell, received_data, now.0);
        match &mut self.connection {
            Connection::Rc(rc) => rc.take_owed(),
            _ => None,
        }
    }

    /// Whether what comes by this way is answered by it: the ends of a connection may have chosen different ones.
    #[inline]
    pub fn shares_path_with(&self, origin: &Origin<F>) -> bool {
        matches!(
            (&self.path, origin),
            (Path::Local(_), Origin::Local(_)) | (Path::Udp { .. }, Origin::Network { .. })
        )
    }

    /// Where over the network a request may be sent without a turn: the peers know each other as far as they ever will.
    #[inline]
    pub fn established_route(&self) -> Option<Route> {
        match &self.path {
            Path::Udp { route, .. } if self.hello.due() == u64::MAX => Some(*route),
            _ => None,
        }
    }

    /// See [`RcConnection::acknowledged_fast`].
    pub fn acknowledged_fast(&mut self, now: Time, psn: u32) -> Option<WorkId> {
        match &mut self.connection {
            Connection::Rc(rc) => rc.acknowledged_fast(now, psn),
            _ => None,
        }
    }

    /// Whether driving the queue pair would change nothing.
    pub fn is_idle(&self) -> bool {
        self.attributes.state == State::ReadyToSend
            && matches!(&self.connection, Connection::Rc(rc) if rc.is_idle())
    }

    /// A request was executed without the protocol.
    pub fn note_initiator_copy(&mut self) {
        if let Connection::Rc(rc) = &mut self.connection {
            rc.note_initiator_copy();
        }
    }

    /// The path to the peer.
    pub fn path(&self) -> &Path<F> {
        &self.path
    }

    /// Whether an acknowledgement waits for the program's answer.
    pub fn owes_acknowledgement(&self) -> bool {
        matches!(&self.connection, Connection::Rc(rc) if rc.owes_acknowledgement())
    }

    /// Gives the acknowledgement of a request that was just executed to the caller, if nothing else is to be sent; see
    /// [`RcConnection::take_acknowledgement`].
    pub fn take_acknowledgement(&mut self, psn: u32) -> bool {
        match &mut self.connection {
            Connection::Rc(rc) => rc.take_acknowledgement(psn),
            _ => false,
        }
    }

    /// Takes another path, for everybody to see.
    pub fn set_path(&mut self, queue_pair: &QueuePair<F>, path: Path<F>) {
        if (self.path.name(), self.path.reason()) != (path.name(), path.reason()) {
            queue_pair.shown_path.set(&path);
        }
        self.path = path;
        // A datagram's destination is none: what waits there has threads by itself.
        if queue_pair.kind != QueuePairType::Ud {
            self.page_waits.set_peer(self.path.peer());
        }
        // The peer's regions are those of one process.
        (self.mr_cache.remote_hint, self.mr_cache.resident_remote) = (None, LastSeen::default());
    }

    /// Forgets everything but what was counted (RESET).
    pub fn reset(&mut self, queue_pair: &QueuePair<F>) {
        self.set_path(queue_pair, Path::None);
        let mut page_waits = std::mem::take(&mut self.page_waits);
        page_waits.reset();
        *self = QpContext { ended: self.protocol_counters(), page_waits, ..QpContext::default() };
    }

    /// Ends the protocol; the path stays to be looked at.
    pub fn stop(&mut self) {
        self.ended += self.connection.counters();
        self.connection = Connection::None;
    }

    /// What the protocol counted since the queue pair was made.
    pub fn protocol_counters(&self) -> ProtocolCounters {
        let mut sum = self.ended;
        sum += self.connection.counters();
        sum
    }

    /// Chooses the path to the peer (INIT to RTR).
    pub fn find_path(&mut self, queue_pair: &QueuePair<F>, attributes: &Attributes) {
        if queue_pair.kind == QueuePairType::Ud {
            self.connection = Connection::Ud;
            queue_pair.set_on_network(true);
            self.page_waits.set_peer(u64::from(queue_pair.number));
            return;
        }
        let device = queue_pair.domain.context().device();
        let path = match attributes.address.route(device) {
            Ok(route) => queue_pair.nic.choose_path(queue_pair.number, &route, attributes.destination),
            Err(error) => Path::Dead { reason: error.to_string() },
        };
        self.set_path(queue_pair, path);
    }

    /// Takes over another address vector for the same way (SQD to SQD).
    pub fn readdress(&mut self, now: &Route, new: &Route) -> Result<()> {
        if (now.source, now.destination) != (new.source, new.destination) {
            return Err(Error::NotSupported("a connection keeps its source and destination address"));
        }
        if let Path::Udp { route, .. } | Path::Connecting { route, .. } = &mut self.path {
            (route.traffic_class, route.hop_limit) = (new.traffic_class, new.hop_limit);
        }
        Ok(())
    }

    /// Takes over attributes that may change while the protocol runs.
    pub fn refresh(&mut self, attributes: &Attributes) {
        let draining = attributes.state == State::SendQueueDrain;
        if let Connection::Uc(connection) = &mut self.connection {
            connection.set_remote_rights(remote_rights(attributes.access));
            connection.set_draining(draining);
        }
        if let Connection::Rc(connection) = &mut self.connection {
            connection.set_draining(draining);
            connection.update(RcUpdate {
                min_rnr_timer: Some(attributes.min_rnr_timer),
                remote_rights: Some(remote_rights(attributes.access)),
                max_dest_rd_atomic: Some(attributes.max_dest_read_atomic),
                max_rd_atomic: Some(attributes.max_read_atomic),
                timeout: Some(attributes.timeout),
                retry_count: Some(attributes.retry_count),
                rnr_retry: Some(attributes.rnr_retry),
            });
        }
    }

    /// Whether [`establish`](Self::establish) has anything to do.
    fn wants_path(&self) -> bool {
        matches!(self.path, Path::Connecting { .. })
            || matches!(self.connection, Connection::None)
            || !self.sending && matches!(self.attributes.state, State::ReadyToSend | State::SendQueueDrain)
    }

    /// Starts the protocol as soon as state and path permit.
    fn establish(&mut self, queue_pair: &QueuePair<F>, attributes: &Attributes) {
        if let Path::Connecting { route, peer } = &self.path {
            let (route, peer) = (*route, *peer);
            self.set_path(queue_pair, queue_pair.nic.choose_path(queue_pair.number, &route, peer));
        }
        if matches!(self.connection, Connection::None) && attributes.state.receives() {
            let link = match &self.path {
                Path::None | Path::Connecting { .. } => return,
                Path::Local(channel) => {
                    let initiator_copy = !channel.channel.bounce_only;
                    // What RC sends may be longer than a record: the receiver pulls it.
                    let pulled = initiator_copy && queue_pair.kind == QueuePairType::Rc;
                    let request_mtu = if pulled { 1 << 31 } else { RING_PAYLOAD };
                    Link { request_mtu, response_mtu: RING_PAYLOAD, lossless: true, initiator_copy }
                }
                Path::Udp { .. } | Path::Dead { .. } => {
                    let mtu = queue_pair.link_mtu(attributes);
                    Link { request_mtu: mtu, response_mtu: mtu, lossless: false, initiator_copy: false }
                }
            };
            queue_pair.set_on_network(!link.lossless);
            let connection = match queue_pair.kind {
                QueuePairType::Rc => Connection::Rc(Box::new(RcConnection::new(RcSettings {
                    link,
                    destination: attributes.destination,
                    partition: DEFAULT_PARTITION,
                    receive_psn: attributes.receive_psn,
                    max_dest_rd_atomic: attributes.max_dest_read_atomic,
                    min_rnr_timer: attributes.min_rnr_timer,
                    remote_rights: remote_rights(attributes.access),
                    fault_handling: queue_pair.fault_handling(),
                }))),
                QueuePairType::Uc => Connection::Uc(Box::new(UcConnection::new(UcSettings {
                    link,
                    destination: attributes.destination,
                    partition: DEFAULT_PARTITION,
                    receive_psn: attributes.receive_psn,
                    remote_rights: remote_rights(attributes.access),
                }))),
                QueuePairType::Ud => Connection::Ud,
            };
            self.connection = connection;
            self.believe_hello();
        }
        if !self.sending && matches!(attributes.state, State::ReadyToSend | State::SendQueueDrain) {
            match &mut self.connection {
                Connection::None => return,
                Connection::Rc(connection) => connection.start_requester(RequesterSettings {
                    send_psn: attributes.send_psn,
                    timeout: attributes.timeout,
                    retry_count: attributes.retry_count,
                    rnr_retry: attributes.rnr_retry,
                    max_rd_atomic: attributes.max_read_atomic,
                }),
                Connection::Uc(connection) => connection.start_requester(attributes.send_psn),
                Connection::Ud => {}
            }
            self.sending = true;
            self.begin_greeting(queue_pair);
        }
    }
}

fn remote_rights(access: Rights) -> RemoteRights {
    RemoteRights {
        read: access.contains(Rights::REMOTE_READ),
        write: access.contains(Rights::REMOTE_WRITE),
        atomic: access.contains(Rights::REMOTE_ATOMIC),
    }
}

impl<F: Fabric> QueuePair<F> {
    /// Lets local peers see that silence means waiting: a request does.
    fn set_holding(&self, qpc: &mut QpContext<F>, holding: bool) {
        qpc.holding_request = holding;
        self.publish_holding(qpc);
    }

    /// Neither requests nor responses wait any more.
    pub(crate) fn end_holding(&self, qpc: &mut QpContext<F>) {
        (qpc.holding_request, qpc.holding_response) = (false, false);
        self.publish_holding(qpc);
    }

    fn publish_holding(&self, qpc: &mut QpContext<F>) {
        let holding = qpc.holding_request || qpc.holding_response;
        if qpc.holding != holding {
            qpc.holding = holding;
            publish_holding(self.nic.fabric().tables(), self.place, holding);
        }
    }

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
            let again = self.drive_for(&mut qpc, occasion);
            self.end_if_overrun(&mut qpc);
            drop(qpc);
            fence(Ordering::SeqCst);
            if let Some(again) = again {
                self.nic.ready(self, again);
            }
            if !self.pending.load(Ordering::SeqCst) {
                return;
            }
        }
        // Others leave notes faster than this thread works: it has other things to do, too.
        self.nic.ready(self, Again::Soon);
    }

    /// Has what the peer counts on leave before the connection ends: acknowledgements of what has arrived.
    pub(crate) fn drive_last(&self, qpc: &mut QpContext<F>) {
        self.drive_for(qpc, Occasion::Last);
    }

    /// Has an acknowledgement leave that waits, unless another thread drives the queue pair just now.
    pub(crate) fn acknowledge_now(self: &Arc<Self>) {
        let Some(mut qpc) = self.qpc.try_lock() else { return };
        let owes = qpc.owes_acknowledgement();
        let again = if owes { self.drive_for(&mut qpc, Occasion::Last) } else { None };
        drop(qpc);
        if let Some(again) = again {
            self.nic.ready(self, again);
        }
        self.pass_on_pending();
    }

    /// Whether the acknowledgement of what was written to the program's memory may wait: nothing else is to be sent, and nobody waits for
    /// room that the peer's acknowledgements would give.
    fn may_wait_for_answer(&self, qpc: &QpContext<F>) -> bool {
        matches!(&qpc.connection, Connection::Rc(rc) if rc.only_owes_acknowledgement())
            && self.nic.network_users.load(Ordering::Relaxed) <= 1
    }

    /// Whether all there is to do is an acknowledgement, which may wait for the program's answer.
    fn may_rest(&self, qpc: &QpContext<F>) -> bool {
        qpc.received_data.received
            && qpc.attributes.state == State::ReadyToSend
            && !qpc.wants_path()
            && !qpc.receive_wait.waits()
            && qpc.hello.due() == u64::MAX
            // What was acknowledged to this side may be what others of this process wait for.
            && self.may_wait_for_answer(qpc)
            && self.inbox.is_empty(Half::Requester)
            && self.inbox.is_empty(Half::Responder)
            && qpc.delayed_ack.are_usual()
    }

    /// One turn. Tells whether there is more to do, and when.
    fn drive_for(&self, qpc: &mut QpContext<F>, occasion: Occasion) -> Option<Again> {
        if occasion == Occasion::Polled && self.may_rest(qpc) {
            let received_data = std::mem::take(&mut qpc.received_data);
            // No answer is expected before it, whose time would matter.
            let wait = qpc.delayed_ack.look(occasion, received_data, 0);
            debug_assert_eq!(wait, Wait::ForAnswer, "answers are usual");
            return Some(Again::Later);
        }
        let mut attributes = qpc.attributes;
        if !attributes.state.receives() {
            return None;
        }
        if self.brought_in.load(Ordering::Acquire) != 0 {
            qpc.pages_in(self.brought_in.swap(0, Ordering::AcqRel));
        }
        qpc.establish(self, &attributes);
        qpc.receive_wait.look_anew();
        self.take_waiting(qpc, Half::Requester);
        self.take_waiting(qpc, Half::Responder);
        attributes = qpc.attributes;
        if !attributes.state.receives() {
            return None;
        }
        if matches!(qpc.connection, Connection::Ud) {
            let again = self.drive_datagrams(qpc, &attributes);
            let again = again.or(qpc.receive_wait.waits().then_some(Again::Later));
            self.tell_drained(&attributes, true);
            let look_next = qpc.page_waits.next_look(self.nic.fabric().now());
            if look_next != u64::MAX {
                self.nic.schedule(self, look_next);
            }
            return again;
        }
        self.submit(qpc, &attributes);
        let now = self.nic.fabric().now();
        let greeting = qpc.greet(self, now);
        qpc.tell_greeting(now);
        let hello_next = qpc.hello.due();
        let mut received_data = std::mem::take(&mut qpc.received_data);
        let may_wait = self.may_wait_for_answer(qpc);
        received_data.written &= may_wait;
        let wait = match qpc.delayed_ack.look(occasion, received_data, now) {
            Wait::Until(_) if !may_wait => Wait::No,
            wait => wait,
        };
        let hold = wait != Wait::No;
        let mut owes = false;
        let mut connection = std::mem::replace(&mut qpc.connection, Connection::None);
        let mut session = AccessSession::new(&self.nic);
        let mut ops = QpTransportOps::new(self, qpc, None, &mut session);
        if let Some(own) = greeting {
            ops.transmit_hello(&own);
        }
        let (progressed, deadline, drained) = match &mut connection {
            Connection::Rc(rc) => {
                let timer_now = self.timer_now(now, rc.deadline());
                let grant = self.take_budget(ops.qpc(), rc, &attributes, now);
                let progressed = if hold {
                    rc.progress_holding(timer_now, &mut ops)
                } else {
                    rc.progress(timer_now, &mut ops)
                };
                owes = hold && rc.owes_acknowledgement();
                if let Some(grant) = grant {
                    self.return_budget(ops.qpc(), rc, grant, &attributes, now);
                }
                (progressed, rc.deadline(), rc.is_drained())
            }
            Connection::Uc(uc) => {
                uc.set_sharers(self.nic.network_users.load(Ordering::Relaxed));
                let progressed = uc.progress(self.timer_now(now, uc.deadline()), &mut ops);
                (progressed, uc.deadline(), uc.is_drained())
            }
            Connection::None | Connection::Ud => (Progress::Idle, None, false),
        };
        let late = matches!(&connection, Connection::Rc(rc) if rc.responds_late());
        let ended = ops.finish();
        drop(session);
        qpc.holding_response = late;
        self.publish_holding(qpc);
        let waits_for_link = ended.link_full;
        let connected = !matches!(connection, Connection::None);
        qpc.connection = connection;
        let alive = ended.failure.is_none();
        self.apply_end(qpc, ended);
        if !alive {
            return None;
        }
        let deadline = deadline.map_or(u64::MAX, |at| at.0);
        // Who does not send yet does not greet either.
        let greets = connected && qpc.sending && matches!(qpc.path, Path::Udp { .. });
        let hello_next = if greets { hello_next } else { u64::MAX };
        let look_next = qpc.page_waits.next_look(now);
        let answer_next = match wait {
            Wait::Until(at) if owes => at,
            _ => u64::MAX,
        };
        self.nic.schedule(self, deadline.min(hello_next).min(look_next).min(answer_next));
        self.tell_drained(&attributes, drained);
        match progressed {
            Progress::Again => Some(Again::Soon),
            Progress::Idle | Progress::Wait => {
                let owes_soon = owes && wait == Wait::ForAnswer;
                (waits_for_link || qpc.receive_wait.waits() || owes_soon).then_some(Again::Later)
            }
        }
    }

    /// The time by which a connection's timers are judged: they are not over before this side has listened until then.
    fn timer_now(&self, now: u64, deadline: Option<Time>) -> Time {
        let due = deadline.map_or(u64::MAX, |at| at.0);
        // Whatever else is due by then is judged likewise.
        Time(if due <= now { self.nic.rx_watermark(now).clamp(due.saturating_sub(1), now) } else { now })
    }

    /// Tells a connection how much of what all share it may use. `None`: nobody shares.
    fn take_budget(
        &self,
        qpc: &mut QpContext<F>,
        rc: &mut RcConnection,
        attributes: &Attributes,
        now: u64,
    ) -> Option<BudgetGrant> {
        let uses = matches!(qpc.path, Path::Udp { .. }) && self.nic.network_users.load(Ordering::Relaxed) > 1;
        if !uses {
            rc.set_allowance(u32::MAX);
            return None;
        }
        let mtu = self.link_mtu(attributes);
        let budget_ready = self.budget_ready.swap(false, Ordering::AcqRel);
        let in_flight = u64::from(rc.in_flight()) * u64::from(mtu);
        let grant = self.nic.send_budget.begin(&mut qpc.budget_use, in_flight, mtu, budget_ready, now);
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
        if self.nic.send_budget.end(&mut qpc.budget_use, grant, in_flight, rc.is_held(), self.number, now) {
            self.nic.wake();
        }
    }

    /// Gives back what the queue pair used of what all share.
    pub(crate) fn leave_budget(&self, qpc: &mut QpContext<F>) {
        if self.nic.send_budget.leave(&mut qpc.budget_use) {
            self.nic.wake();
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
    fn apply_end(&self, qpc: &mut QpContext<F>, ended: Ended) {
        let Some(failure) = ended.failure else { return };
        self.acknowledge_last(qpc);
        if failure.send_only && self.kind != QueuePairType::Rc {
            // What comes in is not concerned, and what is sent goes on with the next PSN when the program says so.
            self.enter_send_queue_error(qpc);
            return;
        }
        self.enter_error(qpc);
        if let Some(event) = failure.event {
            self.raise(event);
        }
    }

    /// The connection has ended at this side: what the peer had sent before still counts for it.
    fn acknowledge_last(&self, qpc: &mut QpContext<F>) {
        let Connection::Rc(rc) = &mut qpc.connection else { return };
        let Some(header) = rc.last_acknowledgement() else { return };
        let mut session = AccessSession::new(&self.nic);
        let mut ops = QpTransportOps::new(self, qpc, None, &mut session);
        // For want of room it is lost, as it may be on the way.
        let _ = ops.transmit(&header, Source::None);
        ops.finish();
    }
}
