//! One connection: the messages by which two queue pairs connect and disconnect (InfiniBand specification, volume 1, section 12.9).
//!
//! | state | message or call | what the side does | next state |
//! |---|---|---|---|
//! | `ReqSent` | answer to the query for the port (`active_request.rs`) | REQ | the same |
//! | `ReqSent` | REP | `ConnectResponse` | `RepReceived` |
//! | `ReqSent` | REJ, as nobody listens | query and REQ again after a pause, a few times | the same |
//! | `ReqSent` | another REJ | `Rejected` | over |
//! | `ReqSent` | `reject` | REJ, which takes the REQ back | over |
//! | `RepReceived` | `establish` | RTU | `Established` |
//! | `ReqReceived` | `accept` | REP | `RepSent` |
//! | `ReqReceived` | REQ again | MRA | the same |
//! | `ReqReceived`, `RepSent` | `reject` | REJ | `Refused` |
//! | `Refused` | REQ again | REJ again | the same |
//! | `RepSent` | RTU, or the queue pair has received a packet | `Established` | `Established` |
//! | `RepSent` | REQ again | REP again | the same |
//! | `Established` | REP again | RTU again | the same |
//! | `Established` | REJ | `Rejected` | `Timewait` |
//! | `Established` | `disconnect` | DREQ | `DreqSent` |
//! | `Established`, `RepSent` | DREQ | `Disconnected` | `DreqReceived` |
//! | `DreqReceived` | `disconnect` | DREP | `Timewait` |
//! | `DreqSent` | DREP, or DREQ, which gets a DREP | `Disconnected` | `Timewait` |
//! | `Timewait` | DREQ again | DREP again | the same |
//!
//! REQ, REP and DREQ are sent again until they are answered. An MRA postpones that by the time that it names.

use crate::active_request::{ActiveRequest, RequestStep};
pub use crate::effects::Effects;
use crate::endpoint::{Route, gid};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::inquiry::ServiceQuery;
use crate::limits;
use crate::parameters::{ConnectionParameters, LocalQueuePair, RemoteParameters};
use crate::repetition::Repetition;
use pagewire_wire::bth::DEFAULT_PARTITION;
use pagewire_wire::cm::{
    CmDatagram, CmMessage, Drep, Dreq, IP_SERVICE_LEN, IpService, Mra, Rej, Rep, Req, Rtu, reject,
};
use std::time::Duration;

/// Which message a REJ or an MRA is about (section 12.6.7.1).
mod about {
    pub const REQ: u8 = 0;
    pub const REP: u8 = 1;
    pub const OTHER: u8 = 2;
}

/// LID of a path that has routers, as each of RoCE has.
const PERMISSIVE_LID: u16 = 0xFFFF;

/// See the table of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the module's table has them")]
pub enum ConnectionState {
    ReqSent,
    RepReceived,
    ReqReceived,
    RepSent,
    Established,
    DreqSent,
    DreqReceived,
    Timewait,
    Refused,
    Over,
}

/// Names a side of a connection in the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideName {
    /// `Local Communication ID`.
    pub comm_id: u32,
    /// GUID of the channel adapter.
    pub ca_guid: u64,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Connection {
    state: ConnectionState,
    is_active: bool,
    own: SideName,
    /// 0 where it is not known yet.
    peer: SideName,
    route: Route,
    transaction: u64,
    queue_pair: u32,
    starting_psn: u32,
    remote: RemoteParameters,
    /// The REQ of this side, until it is answered.
    request: Option<ActiveRequest>,
    repetition: Option<Repetition>,
    /// The REJ of a connection that is refused.
    refusal: Option<CmDatagram>,
    /// The end of `Timewait` or `Refused`.
    timewait_end: Duration,
}

impl Connection {
    /// The active side asks the peer for a connection.
    ///
    /// # Errors
    /// `Invalid`: the private data are longer than 56 bytes.
    pub fn connect(
        (own, route, starting_psn): (SideName, Route, u32),
        service: ServiceQuery,
        queue_pair: LocalQueuePair,
        parameters: &ConnectionParameters,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<Connection> {
        let mut private_data = [0; 92];
        private_data[..IP_SERVICE_LEN].copy_from_slice(&ip_service(&route).emit());
        fill(&mut private_data[IP_SERVICE_LEN..], &parameters.private_data)?;
        let req = Req {
            local_comm_id: own.comm_id,
            service_id: service.service_id,
            ca_guid: own.ca_guid,
            queue_pair: queue_pair.number,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            remote_response_timeout: limits::RESPONSE_TIMEOUT,
            transport: u8::from(queue_pair.is_unreliable),
            flow_control: parameters.flow_control,
            starting_psn,
            local_response_timeout: limits::RESPONSE_TIMEOUT,
            retry_count: parameters.retry_count,
            partition: DEFAULT_PARTITION,
            mtu: route.mtu,
            rnr_retry_count: parameters.rnr_retry_count,
            max_cm_retries: limits::MAX_RETRIES,
            has_srq: queue_pair.has_srq,
            local_lid: PERMISSIVE_LID,
            remote_lid: PERMISSIVE_LID,
            local_gid: gid(route.source.ip()),
            remote_gid: gid(route.destination.ip()),
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            ack_timeout: route.ack_timeout,
            private_data,
            ..Req::default()
        };
        // Of its own, it need not differ from those of other managers.
        let transaction = u64::from(own.comm_id);
        let req = CmDatagram::new(transaction, req);
        Ok(Connection {
            state: ConnectionState::ReqSent,
            is_active: true,
            own,
            peer: SideName { comm_id: 0, ca_guid: 0 },
            route,
            transaction,
            queue_pair: queue_pair.number,
            starting_psn,
            remote: RemoteParameters { retry_count: parameters.retry_count, ..RemoteParameters::default() },
            request: Some(ActiveRequest::begin(req, (service, own.comm_id), &route, now, effects)),
            repetition: None,
            refusal: None,
            timewait_end: Duration::ZERO,
        })
    }

    /// The passive side has received a REQ, of which the program is to hear.
    pub fn requested(
        (own, route, starting_psn): (SideName, Route, u32),
        transaction: u64,
        req: &Req,
    ) -> Connection {
        Connection {
            state: ConnectionState::ReqReceived,
            is_active: false,
            own,
            peer: SideName { comm_id: req.local_comm_id, ca_guid: req.ca_guid },
            route,
            transaction,
            queue_pair: 0,
            starting_psn,
            remote: RemoteParameters::of_req(req),
            request: None,
            repetition: None,
            refusal: None,
            timewait_end: Duration::ZERO,
        }
    }

    /// Its state.
    pub fn state(&self) -> ConnectionState {
        self.state
    }

    /// Whether this side has sent the REQ.
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// The peer, as far as it is known.
    pub fn peer(&self) -> SideName {
        self.peer
    }

    /// The way to the peer.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Number of this side's queue pair; 0: the program has not named it.
    pub(crate) fn queue_pair(&self) -> u32 {
        self.queue_pair
    }

    /// What the peer has said of its side.
    pub fn remote(&self) -> &RemoteParameters {
        &self.remote
    }

    /// PSN of this side's first packet.
    pub fn starting_psn(&self) -> u32 {
        self.starting_psn
    }

    /// Whether the peer's queue pair is still that of this connection.
    pub fn is_live(&self) -> bool {
        !matches!(self.state, ConnectionState::Timewait | ConnectionState::Refused | ConnectionState::Over)
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            ConnectionState::Timewait | ConnectionState::Refused => Some(self.timewait_end),
            ConnectionState::ReqSent => self.request.as_ref().map(ActiveRequest::deadline),
            _ => self.repetition.as_ref().map(Repetition::deadline),
        }
    }

    /// The passive side accepts.
    ///
    /// # Errors
    /// `Invalid`: no REQ waits, or the private data are longer than 196 bytes.
    pub fn accept(
        &mut self,
        queue_pair: LocalQueuePair,
        parameters: &ConnectionParameters,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<()> {
        if self.state != ConnectionState::ReqReceived {
            return Err(Error::Invalid);
        }
        let mut private_data = [0; 196];
        fill(&mut private_data, &parameters.private_data)?;
        self.queue_pair = queue_pair.number;
        // 255 takes what the peer has asked for.
        let depth = |own: u8, asked: u8| if own == limits::MAX_DEPTH { asked } else { own };
        let rep = Rep {
            local_comm_id: self.own.comm_id,
            remote_comm_id: self.peer.comm_id,
            queue_pair: queue_pair.number,
            starting_psn: self.starting_psn,
            responder_resources: depth(parameters.responder_resources, self.remote.responder_resources),
            initiator_depth: depth(parameters.initiator_depth, self.remote.initiator_depth),
            ack_delay: limits::RESPONSE_TIMEOUT,
            flow_control: parameters.flow_control,
            rnr_retry_count: parameters.rnr_retry_count,
            has_srq: queue_pair.has_srq,
            ca_guid: self.own.ca_guid,
            private_data,
            ..Rep::default()
        };
        self.state = ConnectionState::RepSent;
        self.send_repeated(rep, now, effects);
        Ok(())
    }

    /// The active side's queue pair is ready.
    ///
    /// # Errors
    /// `Invalid`: no REP has come, or this was called before.
    pub fn establish(&mut self, effects: &mut Effects) -> Result<()> {
        if self.state != ConnectionState::RepReceived {
            return Err(Error::Invalid);
        }
        self.state = ConnectionState::Established;
        self.send_rtu(effects);
        Ok(())
    }

    /// The passive side's queue pair has received a packet: RTU may be lost.
    ///
    /// # Errors
    /// `AlreadyConnected`, `Invalid`.
    pub fn notify_established(&mut self, effects: &mut Effects) -> Result<()> {
        match self.state {
            ConnectionState::RepSent => {
                self.become_established(effects);
                Ok(())
            }
            ConnectionState::Established => Err(Error::AlreadyConnected),
            _ => Err(Error::Invalid),
        }
    }

    /// The program refuses what the peer has asked for.
    ///
    /// # Errors
    /// `Invalid`: neither a REQ nor a REP waits for an answer, of this side or of the peer; or the private data are longer than 148 bytes.
    pub fn reject(&mut self, private_data: &[u8], now: Duration, effects: &mut Effects) -> Result<()> {
        let mut bytes = [0; 148];
        fill(&mut bytes, private_data)?;
        match self.state {
            ConnectionState::ReqReceived | ConnectionState::RepSent => {
                effects.datagrams.push(self.refusal_by_passive_side(bytes));
                self.keep_refusing(bytes, now);
            }
            ConnectionState::RepReceived => {
                effects.datagrams.push(self.rej(about::REP, reject::CONSUMER_DEFINED, bytes));
                self.end();
            }
            // The caller takes its REQ back.
            ConnectionState::ReqSent => self.close(now, effects),
            _ => return Err(Error::Invalid),
        }
        Ok(())
    }

    /// The REJ of the passive side. Who has its REP takes a REJ of the REQ for an old one: that names no REP yet (section 12.6.7.1).
    fn refusal_by_passive_side(&self, private_data: [u8; 148]) -> CmDatagram {
        let message = if self.state == ConnectionState::RepSent { about::OTHER } else { about::REQ };
        self.rej(message, reject::CONSUMER_DEFINED, private_data)
    }

    /// Keeps the REJ of a REQ for the repetitions of that.
    fn keep_refusing(&mut self, private_data: [u8; 148], now: Duration) {
        self.refusal = Some(self.rej(about::REQ, reject::CONSUMER_DEFINED, private_data));
        (self.state, self.repetition) = (ConnectionState::Refused, None);
        self.timewait_end = now + 2 * limits::longest_interval();
    }

    /// Ends the connection, or takes part in its end. Where nothing is to be sent any more it does nothing.
    ///
    /// # Errors
    /// `Invalid`: the connection is not established yet.
    pub fn disconnect(&mut self, now: Duration, effects: &mut Effects) -> Result<()> {
        match self.state {
            ConnectionState::Established | ConnectionState::RepSent | ConnectionState::RepReceived => {
                self.state = ConnectionState::DreqSent;
                let dreq = self.dreq();
                self.send_repeated(dreq, now, effects);
                Ok(())
            }
            ConnectionState::DreqReceived => {
                self.send_drep(effects);
                self.enter_timewait(now);
                Ok(())
            }
            ConnectionState::DreqSent
            | ConnectionState::Timewait
            | ConnectionState::Refused
            | ConnectionState::Over => Ok(()),
            ConnectionState::ReqSent | ConnectionState::ReqReceived => Err(Error::Invalid),
        }
    }

    /// The one message by which the peer hears that the endpoint is destroyed, or its process killed; `None`: it need not hear of it.
    pub fn last_words(&self) -> Option<CmDatagram> {
        match self.state {
            // A REQ that has not left need not be taken back.
            ConnectionState::ReqSent => {
                self.request_port().map(|_| self.rej(about::REQ, reject::TIMEOUT, [0; 148]))
            }
            ConnectionState::ReqReceived | ConnectionState::RepSent => {
                Some(self.refusal_by_passive_side([0; 148]))
            }
            ConnectionState::RepReceived => Some(self.rej(about::REP, reject::CONSUMER_DEFINED, [0; 148])),
            ConnectionState::Established | ConnectionState::DreqSent => {
                Some(CmDatagram::new(self.transaction, self.dreq()))
            }
            ConnectionState::DreqReceived => Some(CmDatagram::new(self.transaction, self.drep())),
            ConnectionState::Timewait | ConnectionState::Refused | ConnectionState::Over => None,
        }
    }

    /// The program destroys the endpoint: the peer hears of it by one message. What remains is `Timewait`, without events.
    pub fn close(&mut self, now: Duration, effects: &mut Effects) {
        // A DREQ that is on its way says it already.
        let last_words = self.last_words().filter(|_| self.state != ConnectionState::DreqSent);
        effects.datagrams.extend(last_words);
        match self.state {
            ConnectionState::ReqSent | ConnectionState::RepReceived => self.end(),
            ConnectionState::ReqReceived | ConnectionState::RepSent => self.keep_refusing([0; 148], now),
            ConnectionState::Established | ConnectionState::DreqSent | ConnectionState::DreqReceived => {
                self.enter_timewait(now);
            }
            ConnectionState::Timewait | ConnectionState::Refused | ConnectionState::Over => {}
        }
    }

    /// A message for this connection has come.
    pub fn receive(&mut self, datagram: &CmDatagram, now: Duration, effects: &mut Effects) {
        // Until its answer comes the peer is not known by its ID.
        let is_known = self.state != ConnectionState::ReqSent;
        if is_known && datagram.sender_comm_id().is_some_and(|id| id != self.peer.comm_id) {
            return;
        }
        match &datagram.message {
            CmMessage::Req(_) => self.repeat_answer(effects),
            CmMessage::Mra(mra) => self.receive_mra(mra, now),
            CmMessage::Rej(rej) => self.receive_rej(rej, now, effects),
            CmMessage::Rep(rep) => self.receive_rep(rep, effects),
            CmMessage::Rtu(_) => {
                if self.state == ConnectionState::RepSent {
                    self.become_established(effects);
                }
            }
            CmMessage::Dreq(dreq) => self.receive_dreq(dreq, datagram.transaction, now, effects),
            CmMessage::Drep(_) => {
                if self.state == ConnectionState::DreqSent {
                    self.enter_timewait(now);
                    effects.events.push(EventKind::Disconnected { is_timeout: false });
                }
            }
            CmMessage::PortAnswer(_) => self.receive_port_answer(datagram, now, effects),
            CmMessage::SidrReq(_) | CmMessage::SidrRep(_) | CmMessage::PortQuery(_) => {}
        }
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Duration, effects: &mut Effects) {
        if self.state == ConnectionState::Timewait && self.timewait_end <= now {
            self.state = ConnectionState::Over;
            effects.events.push(EventKind::TimewaitExit);
            return;
        }
        if self.state == ConnectionState::Refused && self.timewait_end <= now {
            return self.end();
        }
        let goes_on = match (&mut self.request, &mut self.repetition) {
            (Some(request), _) => request.expire(now, effects),
            (None, Some(repetition)) => repetition.expire(now, effects),
            (None, None) => return,
        };
        if !goes_on {
            self.give_up(now, effects);
        }
    }

    /// The REQ that waits for its first answer.
    pub fn unanswered(&self) -> Option<&CmDatagram> {
        self.active_request().map(ActiveRequest::datagram)
    }

    /// The request of this side as long as it is not answered.
    pub(crate) fn active_request(&self) -> Option<&ActiveRequest> {
        self.request.as_ref().filter(|_| self.state == ConnectionState::ReqSent)
    }

    /// Whether this side gave up because no answer of a standard peer could come.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.request.as_ref().is_some_and(ActiveRequest::is_cut_off)
    }

    /// UDP port that the REQ goes to; `None`: it has not left.
    pub(crate) fn request_port(&self) -> Option<u16> {
        self.request.as_ref().and_then(ActiveRequest::udp_port)
    }

    /// The peer's host says where the owner of the port takes messages.
    fn receive_port_answer(&mut self, answer: &CmDatagram, now: Duration, effects: &mut Effects) {
        if self.state != ConnectionState::ReqSent {
            return;
        }
        let Some(request) = &mut self.request else { return };
        let step = request.receive(answer, now, effects);
        self.transaction = request.datagram().transaction;
        match step {
            RequestStep::GoesOn => {}
            RequestStep::Refused => {
                let reason = reject::INVALID_SERVICE_ID;
                self.receive_rej(&Rej { reason, ..Rej::default() }, now, effects);
            }
            RequestStep::GivesUp => self.give_up(now, effects),
        }
    }

    /// The peer has not answered in time.
    pub(crate) fn give_up(&mut self, now: Duration, effects: &mut Effects) {
        match self.state {
            ConnectionState::ReqSent => {
                effects.datagrams.extend(self.last_words());
                self.end();
                effects.events.push(EventKind::Unreachable);
            }
            ConnectionState::RepSent => {
                effects.datagrams.push(self.rej(about::REP, reject::TIMEOUT, [0; 148]));
                self.end();
                effects.events.push(EventKind::Unreachable);
            }
            ConnectionState::DreqSent => {
                self.enter_timewait(now);
                effects.events.push(EventKind::Disconnected { is_timeout: true });
            }
            _ => self.repetition = None,
        }
    }

    /// A REQ has come once more: its answer was lost, or is not there yet.
    fn repeat_answer(&mut self, effects: &mut Effects) {
        match self.state {
            ConnectionState::ReqReceived => effects.send(
                self.transaction,
                Mra {
                    local_comm_id: self.own.comm_id,
                    remote_comm_id: self.peer.comm_id,
                    message: about::REQ,
                    service_timeout: limits::SERVICE_TIMEOUT,
                    ..Mra::default()
                },
            ),
            ConnectionState::RepSent => {
                effects.datagrams.extend(self.repetition.as_ref().map(|rep| rep.datagram().clone()));
            }
            ConnectionState::Refused => effects.datagrams.extend(self.refusal.clone()),
            _ => {}
        }
    }

    fn receive_mra(&mut self, mra: &Mra, now: Duration) {
        match (self.state, mra.message, &mut self.request, &mut self.repetition) {
            (ConnectionState::ReqSent, about::REQ, Some(req), _) => {
                self.peer.comm_id = mra.local_comm_id;
                req.postpone(now, mra.service_timeout);
            }
            (ConnectionState::RepSent, about::REP, _, Some(rep)) => rep.postpone(now, mra.service_timeout),
            _ => {}
        }
    }

    /// The next refusal is the last one.
    pub(crate) fn ask_no_more(&mut self) {
        if let Some(request) = &mut self.request {
            request.ask_no_more();
        }
    }

    /// Whether the REQ is sent once more to a peer where nobody listens now.
    fn asks_again(&mut self, rej: &Rej, now: Duration) -> bool {
        let is_unheard = self.state == ConnectionState::ReqSent && rej.reason == reject::INVALID_SERVICE_ID;
        is_unheard && self.request.as_mut().is_some_and(|req| req.repeats_refused(now))
    }

    fn receive_rej(&mut self, rej: &Rej, now: Duration, effects: &mut Effects) {
        // The peer has answered otherwise since: a REJ of the REQ does not know its communication ID.
        let is_old = self.state != ConnectionState::ReqSent && rej.local_comm_id != self.peer.comm_id;
        if is_old || self.asks_again(rej, now) {
            return;
        }
        let event = EventKind::Rejected { reason: rej.reason, private_data: rej.private_data.to_vec() };
        match self.state {
            ConnectionState::ReqSent
            | ConnectionState::ReqReceived
            | ConnectionState::RepSent
            | ConnectionState::RepReceived => {
                self.end();
                effects.events.push(event);
            }
            // The passive side has ended before it took the RTU.
            ConnectionState::Established => {
                self.enter_timewait(now);
                effects.events.push(event);
            }
            _ => {}
        }
    }

    fn receive_rep(&mut self, rep: &Rep, effects: &mut Effects) {
        match self.state {
            ConnectionState::ReqSent => {
                self.peer = SideName { comm_id: rep.local_comm_id, ca_guid: rep.ca_guid };
                self.remote = RemoteParameters::of_rep(rep, self.remote.retry_count);
                (self.state, self.request) = (ConnectionState::RepReceived, None);
                let (remote, private_data) = (self.remote, rep.private_data.to_vec());
                effects.events.push(EventKind::ConnectResponse { remote, private_data });
            }
            ConnectionState::Established => self.send_rtu(effects),
            _ => {}
        }
    }

    fn receive_dreq(&mut self, dreq: &Dreq, transaction: u64, now: Duration, effects: &mut Effects) {
        // That of another connection: a number may be used again.
        if dreq.remote_queue_pair != self.queue_pair && self.state != ConnectionState::Timewait {
            return;
        }
        self.transaction = transaction;
        match self.state {
            ConnectionState::Established | ConnectionState::RepSent | ConnectionState::RepReceived => {
                (self.state, self.repetition) = (ConnectionState::DreqReceived, None);
                effects.events.push(EventKind::Disconnected { is_timeout: false });
            }
            // Both have asked at the same time.
            ConnectionState::DreqSent => {
                self.send_drep(effects);
                self.enter_timewait(now);
                effects.events.push(EventKind::Disconnected { is_timeout: false });
            }
            ConnectionState::Timewait => self.send_drep(effects),
            _ => {}
        }
    }

    /// The peer's process has ended: what its REJ or DREQ would have done.
    pub(crate) fn lose_peer(&mut self, now: Duration, effects: &mut Effects) {
        if self.state == ConnectionState::ReqSent {
            let rej = Rej { reason: reject::CONSUMER_DEFINED, ..Rej::default() };
            return self.receive_rej(&rej, now, effects);
        }
        let dreq = Dreq { remote_queue_pair: self.queue_pair, ..Dreq::default() };
        self.receive_dreq(&dreq, self.transaction, now, effects);
    }

    fn become_established(&mut self, effects: &mut Effects) {
        (self.state, self.repetition) = (ConnectionState::Established, None);
        effects.events.push(EventKind::Established);
    }

    fn enter_timewait(&mut self, now: Duration) {
        (self.state, self.repetition) = (ConnectionState::Timewait, None);
        self.timewait_end = now + limits::timewait(self.route.ack_timeout);
    }

    fn end(&mut self) {
        (self.state, self.repetition) = (ConnectionState::Over, None);
    }

    fn send_repeated(&mut self, message: impl Into<CmMessage>, now: Duration, effects: &mut Effects) {
        let datagram = CmDatagram::new(self.transaction, message);
        self.repetition = Some(Repetition::begin(datagram, &self.route, now, effects));
    }

    fn send_rtu(&self, effects: &mut Effects) {
        let (local_comm_id, remote_comm_id) = (self.own.comm_id, self.peer.comm_id);
        effects.send(self.transaction, Rtu { local_comm_id, remote_comm_id, ..Rtu::default() });
    }

    fn dreq(&self) -> Dreq {
        let (local_comm_id, remote_comm_id) = (self.own.comm_id, self.peer.comm_id);
        let remote_queue_pair = self.remote.queue_pair;
        Dreq { local_comm_id, remote_comm_id, remote_queue_pair, ..Dreq::default() }
    }

    fn send_drep(&self, effects: &mut Effects) {
        effects.send(self.transaction, self.drep());
    }

    fn drep(&self) -> Drep {
        let (local_comm_id, remote_comm_id) = (self.own.comm_id, self.peer.comm_id);
        Drep { local_comm_id, remote_comm_id, ..Drep::default() }
    }

    /// A REJ for a timeout carries the GUID: the peer may not know the communication ID (section 12.6.7.2).
    fn rej(&self, message: u8, reason: u16, private_data: [u8; 148]) -> CmDatagram {
        let mut rej = Rej {
            local_comm_id: self.own.comm_id,
            remote_comm_id: self.peer.comm_id,
            message,
            reason,
            private_data,
            ..Rej::default()
        };
        if reason == reject::TIMEOUT {
            rej.information[..8].copy_from_slice(&self.own.ca_guid.to_be_bytes());
            rej.information_length = 8;
            // Which process of its host the REQ went to. A kernel does not look at it.
            if let Some(service) = self.unanswered().and_then(CmDatagram::service_id) {
                rej.information[8..16].copy_from_slice(&service.to_be_bytes());
                rej.information_length = 16;
            }
        }
        CmDatagram::new(self.transaction, rej)
    }
}

/// The head of the private data, as the active side sees the addresses.
pub(crate) fn ip_service(route: &Route) -> IpService {
    IpService {
        source: route.source.ip(),
        source_port: route.source.port(),
        destination: route.destination.ip(),
    }
}

/// Puts private data into the room of a message.
///
/// # Errors
/// `Invalid`: they are longer.
pub(crate) fn fill(room: &mut [u8], data: &[u8]) -> Result<()> {
    room.get_mut(..data.len()).ok_or(Error::Invalid)?.copy_from_slice(data);
    Ok(())
}
