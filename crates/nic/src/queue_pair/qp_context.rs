//! What belongs to whoever drives a queue pair: its attributes, connection, path, and what waits.

use crate::access::fault_state::{FaultState, PageWaits, Purpose, tells_of};
use crate::access::intercepted::Intercepted;
use crate::access::persistence::PendingSync;
use crate::completion::Completion;
use crate::path::Path;
use crate::path::initiator_copy::{LocalPath, MrCache};
use crate::path::intercepted_copy::PeerLogs;
use crate::path::local::RxPosition;
use crate::queue_pair::QueuePair;
use crate::queue_pair::hello::HelloState;
use crate::queue_pair::inbox::PacketOrigin;
use crate::queue_pair::receive_wait::ReceiveWait;
use crate::queue_pair::relay::Relays;
use crate::queue_pair::request::ReceiveWork;
use crate::queue_pair::shared_receive::{QueueInUse, SharedReceiveQueue};
use crate::services::Services;
use crate::services::send_budget::BudgetUse;
use crate::types::attributes::{Attributes, QpState, QueuePairType};
use crate::types::error::{Error, Result};
use derive_where::derive_where;
use pagewire_fabric::{Fabric, Route, StreamQuestion};
use pagewire_iommu::Rights;
use pagewire_memory::{ApplicationMemory, CrossMemory, LastSeen, Segment};
use pagewire_transport::{
    Link, ProtocolCounters, RcConnection, RcSettings, RcUpdate, RemoteRights, RequesterSettings, Time,
    UcConnection, UcSettings, WorkId,
};
use pagewire_wire::bth::DEFAULT_PARTITION;
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes of a request that go into one ring record where the peer does not pull what is longer.
const RING_PAYLOAD: u32 = 16_384;

/// The state machine of a connected queue pair.
#[derive(Default)]
pub(crate) enum QpConnection {
    #[default]
    None,
    Rc(Box<RcConnection>),
    Uc(Box<UcConnection>),
    Ud,
}

impl QpConnection {
    pub(crate) fn counters(&self) -> ProtocolCounters {
        match self {
            QpConnection::Rc(rc) => rc.counters(),
            QpConnection::Uc(uc) => uc.counters(),
            QpConnection::None | QpConnection::Ud => ProtocolCounters::default(),
        }
    }
}

/// The shared receive queue that a request names.
#[derive_where(Default)]
pub enum SelectedQueue<F: Fabric> {
    /// The connection is none of XRC, or no request has come.
    #[derive_where(default)]
    None,
    /// One of this process.
    Here(Arc<SharedReceiveQueue<F>>),
    /// One of another process, by its number.
    Elsewhere(u32),
}

/// A question to the peer's process.
#[derive(Debug, Clone, Copy)]
pub struct PendingQuestion {
    pub(crate) question: StreamQuestion,
    /// When it was asked.
    pub(crate) since: u64,
    /// When the answer was seen first.
    pub(crate) read: Option<u64>,
}

/// What belongs to whoever drives the queue pair.
#[derive_where(Default)]
pub struct QpContext<F: Fabric> {
    /// What the queue pair was told last.
    pub attributes: Attributes,
    pub(crate) connection: QpConnection,
    /// The connection that has ended because it refused a request of the peer. It repeats that until the program changes the state.
    pub(crate) refused: Option<Box<RcConnection>>,
    /// The peer was heard from (COMM_EST).
    pub communicates: bool,
    /// The peer knows that this side is in RTS: a packet of its own or a HELLO has said so.
    pub(crate) peer_knows_rts: bool,
    pub(crate) sending: bool,
    pub(crate) path: Path<F>,
    /// How often its stream had been opened when this was last looked at.
    pub(crate) stream_openings: u32,
    /// Whether the peer's process has read what was sent by the stream, as it was asked last.
    pub(crate) stream_question: Option<PendingQuestion>,
    /// What connections that have ended counted.
    pub(crate) ended: ProtocolCounters,
    /// The receive that a message is being placed into.
    pub receive: Option<ReceiveWork>,
    /// Of XRC: the queue that the request names which is executed, or was last.
    pub shared_queue: SelectedQueue<F>,
    /// Of XRC: the queue that [`receive`](Self::receive) is of.
    pub receive_queue: Option<QueueInUse<F>>,
    /// Of XRC: messages that are complete, and whose acknowledgement is about to leave. A program that answers at once does so by another queue
    /// pair, whose requests would overtake the acknowledgement.
    pub arrived: Vec<(QueueInUse<F>, Completion)>,
    /// Of XRC: requests for shared receive queues of other processes.
    pub relays: Option<Box<Relays>>,
    /// The next send request to hand to the protocol.
    pub submitted: u64,
    pub(crate) page_waits: PageWaits,
    pub(crate) hello: HelloState,
    /// What local peers see: that silence means waiting.
    pub(crate) holding: bool,
    /// A request waits, or the response to a READ.
    pub(crate) holding_request: bool,
    pub(crate) holding_response: bool,
    /// What the peer had sent and nobody had taken, when an acknowledgement was last overdue.
    pub unread: SmallVec<[RxPosition; 2]>,
    /// UC and UD: of the next message.
    pub(crate) receive_wait: ReceiveWait,
    pub(crate) budget_use: BudgetUse,
    pub mr_cache: MrCache,
    pub intercepted: Intercepted<F>,
    pub peer_logs: PeerLogs<F>,
    /// Memory that a FLUSH of the peer waits for.
    pub pending_sync: Option<Box<PendingSync>>,
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
    pub(crate) fn pages_in(&mut self, waits: u64) {
        self.page_waits.note_pages_in(waits);
        let QpConnection::Rc(rc) = &mut self.connection else { return };
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
            && self.attributes.state == QpState::ReadyToSend
            && matches!(&self.connection, QpConnection::Rc(rc) if rc.is_quiet())
    }

    /// Whether a segment of a local peer's memory is mapped here.
    pub fn reaches_by_mapping(&self, services: &Services<F>, there: Segment) -> bool {
        let Path::Local(channel) = &self.path else { return false };
        services.fabric.memory().is_in_mapping(&channel.channel.process, there)
    }

    /// What a transfer takes that the requester executes itself, on the local path where memory may be touched from outside.
    pub fn local<'c>(
        &'c mut self,
        queue_pair: &'c QueuePair<F>,
    ) -> Option<LocalPath<'c, F, CrossMemory<'c, F::Memory>>> {
        match &self.path {
            Path::Local(channel) if !channel.channel.bounce_only && !channel.is_denied() => Some(LocalPath {
                services: &queue_pair.services,
                by: &queue_pair.properties.claimant,
                channel,
                remote: channel.cross_memory(&queue_pair.services.fabric),
                peer: self.attributes.destination,
                domain: queue_pair.domain.number(),
                send_psn: self.attributes.send_psn,
                is_reliable: queue_pair.properties.kind == QueuePairType::Rc,
                waits: self.page_waits.begin_access(Purpose::Request),
                mr_cache: &mut self.mr_cache,
                peer_knows_rts: &mut self.peer_knows_rts,
                peer_logs: &mut self.peer_logs,
            }),
            _ => None,
        }
    }

    /// Whether what came over a ring comes from the process that holds the peer. `None`: not known yet.
    pub fn is_from_peer(&self, origin: &PacketOrigin<F>) -> Option<bool> {
        let PacketOrigin::Local(theirs) = origin else { return Some(true) };
        match &self.path {
            Path::Local(ours) => Some(ours.channel.instance == theirs.channel.instance),
            Path::None | Path::Connecting { .. } => None,
            // Nothing could be answered, and what packets mean is not what it means to the peer.
            Path::Dead { .. } => Some(false),
            // This side would not have it, or could not: what the peer publishes has to do.
            Path::Network { .. } => Some(theirs.place_of(self.attributes.destination).is_some()),
        }
    }

    /// Whether what comes by this way is answered by it: the ends of a connection may have chosen different ones.
    #[inline]
    pub fn shares_path_with(&self, origin: &PacketOrigin<F>) -> bool {
        matches!(
            (&self.path, origin),
            (Path::Local(_), PacketOrigin::Local(_)) | (Path::Network { .. }, PacketOrigin::Network)
        )
    }

    /// Where over the network a request may be sent without a turn: the peers know each other as far as they ever will.
    #[inline]
    pub fn established_route(&self) -> Option<Route> {
        match &self.path {
            Path::Network { route, .. } if self.hello.due() == u64::MAX => Some(*route),
            _ => None,
        }
    }

    /// See [`RcConnection::acknowledged_fast`].
    pub fn acknowledged_fast(&mut self, now: Time, psn: u32) -> Option<WorkId> {
        match &mut self.connection {
            QpConnection::Rc(rc) => rc.acknowledged_fast(now, psn),
            _ => None,
        }
    }

    /// Whether driving the queue pair would change nothing.
    pub fn is_idle(&self) -> bool {
        self.attributes.state == QpState::ReadyToSend
            && matches!(&self.connection, QpConnection::Rc(rc) if rc.is_idle())
    }

    /// The path to the peer.
    pub fn path(&self) -> &Path<F> {
        &self.path
    }

    /// Whether an acknowledgement waits for the program's answer.
    pub fn owes_acknowledgement(&self) -> bool {
        matches!(&self.connection, QpConnection::Rc(rc) if rc.owes_acknowledgement())
    }

    /// Gives the acknowledgement of a request that was just executed to the caller, if nothing else is to be sent; see
    /// [`RcConnection::take_acknowledgement`].
    pub fn take_acknowledgement(&mut self, psn: u32) -> bool {
        match &mut self.connection {
            QpConnection::Rc(rc) => rc.take_acknowledgement(psn),
            _ => false,
        }
    }

    /// Takes another path, for everybody to see.
    pub fn set_path(&mut self, queue_pair: &QueuePair<F>, path: Path<F>) {
        if (self.path.name(), self.path.reason()) != (path.name(), path.reason()) {
            *queue_pair.shown.path.lock() = (path.name(), path.reason().to_owned());
        }
        self.stream_openings =
            path.stream().map_or(0, |stream| queue_pair.services.fabric.stream_openings(stream));
        self.path = path;
        // A datagram's destination is none: what waits there has threads by itself.
        if queue_pair.properties.kind != QueuePairType::Ud {
            self.page_waits.set_peer(self.path.peer());
        }
        // The peer's regions are those of one process.
        (self.mr_cache.remote_hint, self.mr_cache.resident_remote) = (None, LastSeen::default());
        self.peer_logs = PeerLogs::default();
    }

    /// Forgets everything but what was counted (RESET).
    pub fn reset(&mut self, queue_pair: &QueuePair<F>) {
        self.set_path(queue_pair, Path::None);
        let mut page_waits = std::mem::take(&mut self.page_waits);
        page_waits.reset();
        *self = QpContext { ended: self.protocol_counters(), page_waits, ..QpContext::default() };
    }

    /// Puts the connection back that was taken for a run of the protocol.
    #[inline(always)] // Part of each packet. Nothing is in its place: there is nothing to drop.
    pub(crate) fn put_back(&mut self, connection: QpConnection) {
        let nothing = std::mem::replace(&mut self.connection, connection);
        debug_assert!(matches!(nothing, QpConnection::None));
        std::mem::forget(nothing);
    }

    /// The program changes the state: what was refused is not repeated any more.
    pub(crate) fn end_refusal(&mut self) {
        if let Some(refused) = self.refused.take() {
            self.ended += refused.counters();
        }
    }

    /// Ends the protocol; the path stays to be looked at.
    pub fn stop(&mut self) {
        self.ended += self.connection.counters();
        self.connection = QpConnection::None;
    }

    /// What the protocol counted since the queue pair was made.
    pub fn protocol_counters(&self) -> ProtocolCounters {
        let mut sum = self.ended;
        sum += self.connection.counters();
        if let Some(refused) = &self.refused {
            sum += refused.counters();
        }
        sum
    }

    /// How packets reach the peer.
    pub fn path_name(&self) -> &'static str {
        self.path.name()
    }

    /// Why the path is not a better one, as of now.
    pub fn path_reason(&self) -> &str {
        self.path.reason()
    }

    /// Chooses the path to the peer (INIT to RTR).
    pub fn find_path(&mut self, queue_pair: &QueuePair<F>, attributes: &Attributes) {
        queue_pair.services.tombstones.forget(queue_pair.properties.number);
        if queue_pair.properties.kind == QueuePairType::Ud {
            self.connection = QpConnection::Ud;
            queue_pair.set_on_network(true);
            self.page_waits.set_peer(u64::from(queue_pair.properties.number));
            return;
        }
        let port = queue_pair.domain.context().port();
        let path = match port.route_to(&attributes.address) {
            Ok(route) => {
                queue_pair.paths.choose_path(queue_pair.properties.number, &route, attributes.destination)
            }
            Err(error) => Path::Dead { reason: error.to_string() },
        };
        self.set_path(queue_pair, path);
    }

    /// A packet has come that is none of Pagewire's own, while a stream is waited for: such a peer has none.
    #[cold]
    pub(crate) fn end_connecting(&mut self, queue_pair: &QueuePair<F>) {
        let udp = match &self.path {
            Path::Connecting { route, peer } => queue_pair.paths.choose_udp(route, *peer),
            _ => None,
        };
        if let Some(udp) = udp {
            self.set_path(queue_pair, udp);
        }
    }

    /// Takes over another address vector (SQD to SQD): of the same addresses, or of others of the same hosts.
    pub fn readdress(&mut self, queue_pair: &QueuePair<F>, now: &Route, new: &Route) -> Result<()> {
        if (now.source, now.destination) != (new.source, new.destination) {
            return self.move_to(queue_pair, now, new);
        }
        if let Path::Network { route, .. } | Path::Connecting { route, .. } = &mut self.path {
            (route.traffic_class, route.hop_limit) = (new.traffic_class, new.hop_limit);
        }
        Ok(())
    }

    /// Goes on by other addresses. The peer takes packets from the address that it knows, so it has to move, too: what comes meanwhile is
    /// dropped and sent again.
    fn move_to(&mut self, queue_pair: &QueuePair<F>, now: &Route, new: &Route) -> Result<()> {
        let fabric = &queue_pair.services.fabric;
        if fabric.is_local(now.destination) != fabric.is_local(new.destination) {
            return Err(Error::NotSupported("a connection does not move to another host"));
        }
        let (port, reason) = match &self.path {
            // A channel leads to a process, whatever its address.
            Path::Local(_) => return Ok(()),
            Path::Network { route, reason } if route.stream.is_none() => (route.port, reason.clone()),
            _ => return Err(Error::NotSupported("a connection in a stream keeps its addresses")),
        };
        self.set_path(queue_pair, Path::Network { route: Route { port, ..*new }, reason });
        Ok(())
    }

    /// Takes over attributes that may change while the protocol runs.
    pub fn refresh(&mut self, attributes: &Attributes) {
        let draining = attributes.state == QpState::SendQueueDrain;
        if let QpConnection::Uc(connection) = &mut self.connection {
            connection.set_remote_rights(remote_rights(attributes.access));
            connection.set_draining(draining);
        }
        if let QpConnection::Rc(connection) = &mut self.connection {
            connection.set_draining(draining);
            connection.update(RcUpdate {
                min_rnr_timer: attributes.min_rnr_timer,
                remote_rights: remote_rights(attributes.access),
                max_dest_rd_atomic: attributes.max_dest_read_atomic,
                requester: requester_settings(attributes),
            });
        }
    }

    /// Whether [`establish`](Self::establish) has anything to do.
    pub(crate) fn wants_path(&self) -> bool {
        matches!(self.path, Path::Connecting { .. })
            || matches!(self.connection, QpConnection::None)
            || !self.sending
                && matches!(self.attributes.state, QpState::ReadyToSend | QpState::SendQueueDrain)
    }

    /// Starts the protocol as soon as state and path permit.
    pub(crate) fn establish(&mut self, queue_pair: &QueuePair<F>, attributes: &Attributes) {
        if let Path::Connecting { route, peer } = &self.path {
            let (route, peer) = (*route, *peer);
            self.set_path(
                queue_pair,
                queue_pair.paths.choose_path(queue_pair.properties.number, &route, peer),
            );
        }
        if queue_pair.properties.kind != QueuePairType::Ud && !self.knows_cut() {
            return;
        }
        if matches!(self.connection, QpConnection::None) && attributes.state.receives() {
            // Of READ responses on each path: the ends count PSNs alike, also where they have chosen different ones.
            let mtu = self.mtu(queue_pair, attributes);
            let link = match &self.path {
                Path::None | Path::Connecting { .. } => return,
                Path::Local(channel) => {
                    // What a key means to XRC only the peer knows, who finds the shared receive queue.
                    let initiator_copy = !channel.channel.bounce_only && !queue_pair.properties.kind.is_xrc();
                    // What RC sends may be longer than a record: the receiver pulls it.
                    let pulled = initiator_copy && queue_pair.properties.kind == QueuePairType::Rc;
                    let request_mtu = if pulled { 1 << 31 } else { RING_PAYLOAD };
                    Link { request_mtu, response_mtu: mtu, lossless: true, initiator_copy, is_stream: false }
                }
                Path::Network { .. } | Path::Dead { .. } => {
                    let is_stream = self.path.is_stream();
                    Link {
                        request_mtu: mtu,
                        response_mtu: mtu,
                        lossless: false,
                        initiator_copy: false,
                        is_stream,
                    }
                }
            };
            queue_pair.set_on_network(!link.lossless);
            let connection = match queue_pair.properties.kind {
                QueuePairType::Rc | QueuePairType::XrcSend | QueuePairType::XrcReceive => {
                    QpConnection::Rc(Box::new(RcConnection::new(RcSettings {
                        link,
                        destination: attributes.destination,
                        partition: DEFAULT_PARTITION,
                        receive_psn: attributes.receive_psn,
                        max_dest_rd_atomic: attributes.max_dest_read_atomic,
                        min_rnr_timer: attributes.min_rnr_timer,
                        remote_rights: remote_rights(attributes.access),
                        fault_handling: queue_pair.fault_handling(),
                        refusal: queue_pair.refusal_scope(),
                        is_xrc: queue_pair.properties.kind.is_xrc(),
                    })))
                }
                QueuePairType::Uc => QpConnection::Uc(Box::new(UcConnection::new(UcSettings {
                    link,
                    destination: attributes.destination,
                    partition: DEFAULT_PARTITION,
                    receive_psn: attributes.receive_psn,
                    remote_rights: remote_rights(attributes.access),
                }))),
                QueuePairType::Ud => QpConnection::Ud,
            };
            self.connection = connection;
            self.believe_hello();
        }
        if !self.sending && matches!(attributes.state, QpState::ReadyToSend | QpState::SendQueueDrain) {
            match &mut self.connection {
                QpConnection::None => return,
                QpConnection::Rc(connection) => connection.start_requester(requester_settings(attributes)),
                QpConnection::Uc(connection) => connection.start_requester(attributes.send_psn),
                QpConnection::Ud => {}
            }
            self.sending = true;
            self.begin_greeting(queue_pair);
        }
    }
}

fn requester_settings(attributes: &Attributes) -> RequesterSettings {
    RequesterSettings {
        send_psn: attributes.send_psn,
        timeout: attributes.timeout,
        retry_count: attributes.retry_count,
        rnr_retry: attributes.rnr_retry,
        max_rd_atomic: attributes.max_read_atomic,
    }
}

fn remote_rights(access: Rights) -> RemoteRights {
    RemoteRights {
        read: access.contains(Rights::REMOTE_READ),
        write: access.contains(Rights::REMOTE_WRITE),
        atomic: access.contains(Rights::REMOTE_ATOMIC),
        flush_global: access.contains(Rights::FLUSH_GLOBAL),
        flush_persistent: access.contains(Rights::FLUSH_PERSISTENT),
    }
}
