//! One request for the queue pair of a UD service (InfiniBand specification, volume 1, section 12.11): `SIDR_REQ`, and `SIDR_REP`, which
//! answers it.

use crate::active_request::{ActiveRequest, RequestStep};
use crate::connection::{fill, ip_service};
use crate::effects::Effects;
use crate::endpoint::Route;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::inquiry::ServiceQuery;
use pagewire_wire::bth::DEFAULT_PARTITION;
use pagewire_wire::cm::{CmDatagram, CmMessage, IP_SERVICE_LEN, SidrRep, SidrReq, sidr_status};
use std::time::Duration;

/// What has become of the request.
#[derive(Debug)]
enum Progress {
    /// Sent by this side, again and again.
    Asked(Box<ActiveRequest>),
    /// Come from the peer; the program has not answered.
    Received,
    /// Answered by this side: a repeated request gets the same answer.
    Answered { answer: Box<CmDatagram> },
    /// Answered by the peer, or given up.
    Over,
}

/// One side of a request.
#[derive(Debug)]
pub struct ServiceRequest {
    request_id: u32,
    service_id: u64,
    transaction: u64,
    route: Route,
    is_active: bool,
    /// The service's queue pair; 0: it is not known.
    queue_pair: u32,
    /// No answer of a standard peer could come.
    is_cut_off: bool,
    progress: Progress,
}

impl ServiceRequest {
    /// Asks the peer.
    ///
    /// # Errors
    /// `Invalid`: the private data are longer than 180 bytes.
    pub fn ask(
        request_id: u32,
        route: Route,
        service: ServiceQuery,
        data: &[u8],
        now: Duration,
        effects: &mut Effects,
    ) -> Result<ServiceRequest> {
        let mut private_data = [0; 216];
        private_data[..IP_SERVICE_LEN].copy_from_slice(&ip_service(&route).emit());
        fill(&mut private_data[IP_SERVICE_LEN..], data)?;
        let (service_id, transaction) = (service.service_id, u64::from(request_id));
        let message = SidrReq { request_id, partition: DEFAULT_PARTITION, service_id, private_data };
        let message = CmDatagram::new(transaction, message);
        let request = ActiveRequest::begin(message, (service, request_id), &route, now, effects);
        Ok(ServiceRequest {
            request_id,
            service_id,
            transaction,
            route,
            is_active: true,
            queue_pair: 0,
            is_cut_off: false,
            progress: Progress::Asked(Box::new(request)),
        })
    }

    /// A request of the peer has come.
    pub fn received(route: Route, transaction: u64, request: &SidrReq) -> ServiceRequest {
        let (request_id, service_id) = (request.request_id, request.service_id);
        ServiceRequest {
            request_id,
            service_id,
            transaction,
            route,
            is_active: false,
            queue_pair: 0,
            is_cut_off: false,
            progress: Progress::Received,
        }
    }

    /// The way to the peer.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Whether this side asks.
    pub(crate) fn is_active(&self) -> bool {
        self.is_active
    }

    /// The service's queue pair; 0: it is not known.
    pub(crate) fn queue_pair(&self) -> u32 {
        self.queue_pair
    }

    /// Its state in words.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.progress {
            Progress::Asked(ref request) if request.udp_port().is_none() => "port query sent",
            Progress::Asked(_) => "SIDR_REQ sent",
            Progress::Received => "SIDR_REQ received",
            Progress::Answered { .. } if self.queue_pair == 0 => "refused",
            Progress::Answered { .. } => "service answered",
            Progress::Over if self.queue_pair == 0 => "over",
            Progress::Over => "service found",
        }
    }

    /// Whether nothing is to be done for it any more.
    pub fn is_over(&self) -> bool {
        matches!(self.progress, Progress::Over)
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        match &self.progress {
            Progress::Asked(request) => Some(request.deadline()),
            _ => None,
        }
    }

    /// Answers with a queue pair and its Q_Key.
    ///
    /// # Errors
    /// `Invalid`: no request of the peer waits, or the private data are longer than 136 bytes.
    pub fn accept(
        &mut self,
        (queue_pair, queue_key): (u32, u32),
        data: &[u8],
        effects: &mut Effects,
    ) -> Result<()> {
        self.answer(
            SidrRep { status: sidr_status::VALID, queue_pair, queue_key, ..SidrRep::default() },
            data,
            effects,
        )
    }

    /// Refuses.
    ///
    /// # Errors
    /// As those of [`accept`](Self::accept).
    pub fn reject(&mut self, data: &[u8], effects: &mut Effects) -> Result<()> {
        self.answer(SidrRep { status: sidr_status::REJECTED, ..SidrRep::default() }, data, effects)
    }

    fn answer(&mut self, mut answer: SidrRep, data: &[u8], effects: &mut Effects) -> Result<()> {
        if !matches!(self.progress, Progress::Received) {
            return Err(Error::Invalid);
        }
        fill(&mut answer.private_data, data)?;
        self.queue_pair = answer.queue_pair;
        let answer = self.addressed(answer);
        effects.datagrams.push(answer.clone());
        self.progress = Progress::Answered { answer: Box::new(answer) };
        Ok(())
    }

    fn addressed(&self, answer: SidrRep) -> CmDatagram {
        let (request_id, service_id) = (self.request_id, self.service_id);
        CmDatagram::new(self.transaction, SidrRep { request_id, service_id, ..answer })
    }

    /// The refusal of who waits for an answer, when the endpoint is destroyed, or its process killed.
    pub fn last_words(&self) -> Option<CmDatagram> {
        let refusal = SidrRep { status: sidr_status::REJECTED, ..SidrRep::default() };
        matches!(self.progress, Progress::Received).then(|| self.addressed(refusal))
    }

    /// The program destroys the endpoint.
    pub fn close(&mut self, effects: &mut Effects) {
        effects.datagrams.extend(self.last_words());
        self.progress = Progress::Over;
    }

    /// A message for this request has come.
    pub fn receive(&mut self, datagram: &CmDatagram, now: Duration, effects: &mut Effects) {
        match (&mut self.progress, &datagram.message) {
            (Progress::Asked(request), CmMessage::SidrRep(answer)) => {
                if answer.status == sidr_status::NOT_SUPPORTED && request.repeats_refused(now) {
                    return;
                }
                (self.progress, self.queue_pair) = (Progress::Over, answer.queue_pair);
                let private_data = answer.private_data.to_vec();
                effects.events.push(match answer.status {
                    sidr_status::VALID => EventKind::ServiceFound {
                        queue_pair: answer.queue_pair,
                        queue_key: answer.queue_key,
                        private_data,
                    },
                    status => EventKind::ServiceRefused { status, private_data },
                });
            }
            (Progress::Asked(request), CmMessage::PortAnswer(_)) => {
                match request.receive(datagram, now, effects) {
                    RequestStep::GoesOn => {}
                    RequestStep::Refused => {
                        if let Some(refusal) = request.datagram().refusal() {
                            self.receive(&refusal, now, effects);
                        }
                    }
                    RequestStep::GivesUp => self.give_up(effects),
                }
            }
            (Progress::Answered { answer }, CmMessage::SidrReq(_)) => {
                effects.datagrams.push(CmDatagram::clone(answer))
            }
            _ => {}
        }
    }

    /// The request that waits for its answer.
    pub fn unanswered(&self) -> Option<&CmDatagram> {
        self.active_request().map(ActiveRequest::datagram)
    }

    /// Whether this side gave up because no answer of a standard peer could come.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// The request of this side as long as it is not answered.
    pub(crate) fn active_request(&self) -> Option<&ActiveRequest> {
        match &self.progress {
            Progress::Asked(request) => Some(request),
            _ => None,
        }
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Duration, effects: &mut Effects) {
        let Progress::Asked(request) = &mut self.progress else { return };
        if !request.expire(now, effects) {
            self.give_up(effects);
        }
    }

    /// The next refusal is the last one.
    pub(crate) fn ask_no_more(&mut self) {
        if let Progress::Asked(request) = &mut self.progress {
            request.ask_no_more();
        }
    }

    /// The peer does not answer.
    pub(crate) fn give_up(&mut self, effects: &mut Effects) {
        self.is_cut_off = self.active_request().is_some_and(ActiveRequest::is_cut_off);
        self.progress = Progress::Over;
        effects.events.push(EventKind::Unreachable);
    }
}
