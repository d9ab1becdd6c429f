//! A request of the active side, REQ or `SIDR_REQ`: the query for the port at which it is taken, if the peer is on another host, and then the request,
//! again and again.
//!
//! | what happens | what follows |
//! |---|---|
//! | a Pagewire names the port | the request goes there, and both sides reach each other by their communication IDs |
//! | the peer is no Pagewire, or silent | the request goes to UDP port 4791; this side gives up if another user has that port here |
//! | nobody owns the port, or listens there | the query again after a pause, a few times |

use crate::effects::Effects;
use crate::endpoint::Route;
use crate::inquiry::{Inquiry, RequestDestination, ServiceQuery};
use crate::limits;
use crate::repetition::Repetition;
use pagewire_wire::cm::CmDatagram;
use pagewire_wire::packet::PORT;
use std::time::Duration;

/// What became of an answer to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestStep {
    /// The request goes on, or nothing is to be done yet.
    GoesOn,
    /// Nobody owns the port: as a refusal.
    Refused,
    /// No answer can come: this side gives up.
    GivesUp,
}

/// A request that waits for its first answer.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    request: Repetition,
    service: ServiceQuery,
    comm_id: u32,
    /// The query that is to be answered before the request leaves.
    inquiry: Option<Inquiry>,
    destination: Option<RequestDestination>,
    takes_standard_answers: bool,
}

impl ActiveRequest {
    /// Sends the query, or the request itself to a peer of this host.
    pub(crate) fn begin(
        datagram: CmDatagram,
        (service, comm_id): (ServiceQuery, u32),
        route: &Route,
        now: Duration,
        effects: &mut Effects,
    ) -> Self {
        let mut active = ActiveRequest {
            request: Repetition::new(datagram, route, now),
            service,
            comm_id,
            inquiry: None,
            destination: None,
            takes_standard_answers: route.is_on_this_host || route.takes_standard_answers,
        };
        if route.is_on_this_host {
            active.destination = Some(RequestDestination::Standard);
            active.request.send(now, effects);
        } else {
            let mut inquiry = Inquiry::begin(service, comm_id, false, now);
            // The first one leaves at once.
            let _not_silent = inquiry.expire(now, effects);
            active.inquiry = Some(inquiry);
        }
        active
    }

    /// The request.
    pub(crate) fn datagram(&self) -> &CmDatagram {
        self.request.datagram()
    }

    /// UDP port that the request goes to; `None`: it has not left yet.
    pub(crate) fn udp_port(&self) -> Option<u16> {
        match self.destination? {
            RequestDestination::Pagewire(port) => Some(port),
            RequestDestination::Standard | RequestDestination::Silent => {
                self.takes_standard_answers.then_some(PORT)
            }
            RequestDestination::Nobody => None,
        }
    }

    /// UDP port from which an answer is to come next.
    pub(crate) fn awaited_port(&self) -> u16 {
        self.udp_port().filter(|_| self.inquiry.is_none()).unwrap_or(PORT)
    }

    /// Whether this side gave up because no answer of a standard peer could come.
    pub(crate) fn is_cut_off(&self) -> bool {
        let is_standard =
            matches!(self.destination, Some(RequestDestination::Standard | RequestDestination::Silent));
        is_standard && !self.takes_standard_answers
    }

    pub(crate) fn deadline(&self) -> Duration {
        let inquiry = self.inquiry.as_ref().map(|inquiry| inquiry.deadline().min(self.request.end()));
        inquiry.unwrap_or_else(|| self.request.deadline())
    }

    /// Does what is due. False: this side gives up.
    pub(crate) fn expire(&mut self, now: Duration, effects: &mut Effects) -> bool {
        let Some(inquiry) = &mut self.inquiry else { return self.request.expire(now, effects) };
        if self.request.end() <= now {
            return false;
        }
        match inquiry.expire(now, effects) {
            Some(destination) => self.go_on(destination, now, effects) != RequestStep::GivesUp,
            None => true,
        }
    }

    /// Takes an answer to the query.
    pub(crate) fn receive(
        &mut self,
        answer: &CmDatagram,
        now: Duration,
        effects: &mut Effects,
    ) -> RequestStep {
        let found = self.inquiry.as_ref().and_then(|inquiry| inquiry.destination(answer));
        found.map_or(RequestStep::GoesOn, |destination| self.go_on(destination, now, effects))
    }

    fn go_on(
        &mut self,
        destination: RequestDestination,
        now: Duration,
        effects: &mut Effects,
    ) -> RequestStep {
        (self.inquiry, self.destination) = (None, Some(destination));
        match destination {
            RequestDestination::Nobody => return RequestStep::Refused,
            RequestDestination::Standard | RequestDestination::Silent if !self.takes_standard_answers => {
                return RequestStep::GivesUp;
            }
            RequestDestination::Pagewire(_) => {
                self.request.set_transaction(CmDatagram::transaction_of_pagewires(self.comm_id));
            }
            RequestDestination::Standard | RequestDestination::Silent => {
                self.request.set_transaction(u64::from(self.comm_id));
            }
        }
        self.request.send(now, effects);
        RequestStep::GoesOn
    }

    /// Nobody listens at the peer. Whether this side asks once more after a pause.
    pub(crate) fn repeats_refused(&mut self, now: Duration) -> bool {
        if !self.request.repeats_refused(now) {
            return false;
        }
        // The next owner of the port may take messages elsewhere.
        if let Some(
            destination @ (RequestDestination::Pagewire(_)
            | RequestDestination::Nobody
            | RequestDestination::Silent),
        ) = self.destination
        {
            self.service.transaction = self.service.transaction.wrapping_add(1);
            let was_silent = destination == RequestDestination::Silent;
            let begin = now + limits::REFUSAL_PAUSE;
            self.inquiry = Some(Inquiry::begin(self.service, self.comm_id, was_silent, begin));
        }
        true
    }

    /// The next refusal is the last one.
    pub(crate) fn ask_no_more(&mut self) {
        self.request.ask_no_more();
    }

    /// The peer has the request and answers later.
    pub(crate) fn postpone(&mut self, now: Duration, service_timeout: u8) {
        self.request.postpone(now, service_timeout);
    }
}
