//! What is remembered of messages that came from the network: which process got a request, and messages whose process has not taken earlier
//! ones.

use crate::progress::engine::Nic;
use crate::services::timers::Timed;
use pagewire_fabric::{Fabric, ManagementTarget};
use pagewire_transport::Psn;
use pagewire_wire::cm::{CmDatagram, CmMessage, reject};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Weak;

/// Requests that are remembered: more than a listener keeps waiting, as only those are taken back.
const REQUESTS: usize = 1 << 12;
/// Nanoseconds until a busy process is tried again.
const PAUSE: u64 = 1_000_000;
/// Messages that are tried in vain before the next pause.
const TRIES: usize = 16;
/// Messages that wait at most. Further ones are lost, as on a network.
const BOUND: usize = 1 << 12;
/// Nanoseconds that a message waits at most, as its process may be stopped. Then it is lost.
const PATIENCE: u64 = 1_000_000_000;

/// A message that came from the network.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) psn: Psn,
    pub(super) by_stream: bool,
    pub(super) message: CmDatagram,
}

/// How the REJ that takes a REQ back names it: the peer, its GUID, and the communication ID that it gave (section 12.6.7.2).
type RequestKey = (IpAddr, u64, u32);

/// Which processes got the last requests.
#[derive(Debug, Default)]
pub(super) struct RecentRequests(VecDeque<(RequestKey, ManagementTarget)>);

impl RecentRequests {
    /// A message was handed over.
    pub(super) fn note(&mut self, arrival: &Arrival, target: ManagementTarget) {
        let CmMessage::Req(req) = &arrival.message.message else { return };
        let entry = ((arrival.source, req.ca_guid, req.local_comm_id), target);
        if self.0.back() != Some(&entry) {
            if self.0.len() == REQUESTS {
                self.0.pop_front();
            }
            self.0.push_back(entry);
        }
    }

    /// Who got the request that a message takes back. A kernel names nothing else in it.
    pub(super) fn taken_back_by(&self, arrival: &Arrival) -> Option<ManagementTarget> {
        let CmMessage::Rej(rej) = &arrival.message.message else { return None };
        let guid = u64::from_be_bytes(*rej.information.first_chunk()?);
        let is_taken_back = rej.reason == reject::TIMEOUT && rej.information_length >= 8;
        let key = (arrival.source, guid, rej.local_comm_id);
        self.0.iter().rev().find(|(request, _)| is_taken_back && *request == key).map(|(_, target)| *target)
    }
}

#[derive(Debug, Default)]
struct Held {
    /// With the time at which each is lost.
    waiting: VecDeque<(Arrival, u64)>,
    has_timer: bool,
}

/// See this module.
pub(crate) struct Arrivals<F: Fabric> {
    nic: Weak<Nic<F>>,
    pub(super) requests: Mutex<RecentRequests>,
    held: Mutex<Held>,
}

impl<F: Fabric> Arrivals<F> {
    /// Nothing has come yet.
    pub(crate) fn new(nic: Weak<Nic<F>>) -> Self {
        Arrivals { nic, requests: Mutex::default(), held: Mutex::default() }
    }
}

impl<F: Fabric> Nic<F> {
    /// Keeps a message whose process is busy.
    pub(super) fn hold(&self, arrival: Arrival) {
        let now = self.fabric().now();
        let mut held = self.arrivals.held.lock();
        if held.waiting.len() == BOUND {
            return;
        }
        held.waiting.push_back((arrival, now + PATIENCE));
        if !std::mem::replace(&mut held.has_timer, true) {
            self.services.hold_event(self.arrivals.nic.clone(), now + PAUSE);
        }
    }
}

/// Tries the messages that wait.
impl<F: Fabric> Timed for Nic<F> {
    fn run_timer(&self, _: u64) {
        let now = self.fabric().now();
        let mut waiting = std::mem::take(&mut self.arrivals.held.lock().waiting);
        let mut busy = VecDeque::new();
        while busy.len() < TRIES {
            let Some((arrival, end)) = waiting.pop_front() else { break };
            if !self.take_arrival(&arrival) && now < end {
                busy.push_back((arrival, end));
            }
        }
        let mut held = self.arrivals.held.lock();
        // Those that were not tried come first: another process's are not held up.
        waiting.append(&mut busy);
        waiting.append(&mut held.waiting);
        held.waiting = waiting;
        held.has_timer = !held.waiting.is_empty();
        if held.has_timer {
            self.services.hold_event(self.arrivals.nic.clone(), now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_wire::cm::{Rej, Req};

    fn arrival(message: impl Into<CmMessage>) -> Arrival {
        let [source, destination] = [1, 2].map(|host| IpAddr::from([192, 0, 2, host]));
        Arrival {
            source,
            destination,
            psn: Psn::new(0),
            by_stream: false,
            message: CmDatagram::new(1, message),
        }
    }

    fn req(local_comm_id: u32) -> Arrival {
        arrival(Req { ca_guid: 0xca, local_comm_id, ..Req::default() })
    }

    /// As a kernel writes it.
    fn rej(local_comm_id: u32, reason: u16) -> Arrival {
        let mut rej = Rej { local_comm_id, reason, information_length: 8, ..Rej::default() };
        rej.information[7] = 0xca;
        arrival(rej)
    }

    #[test]
    fn rej_of_kernel_goes_to_who_got_the_req() {
        let target = |port| ManagementTarget::Port { space: 0x0106, port };
        let mut requests = RecentRequests::default();
        requests.note(&req(5), target(1));
        requests.note(&req(5), target(1));
        requests.note(&req(6), target(2));
        requests.note(&rej(7, reject::TIMEOUT), target(3));
        assert_eq!(requests.0.len(), 2);
        assert_eq!(requests.taken_back_by(&rej(5, reject::TIMEOUT)), Some(target(1)));
        assert_eq!(requests.taken_back_by(&rej(6, reject::TIMEOUT)), Some(target(2)));
        assert_eq!(requests.taken_back_by(&rej(7, reject::TIMEOUT)), None);
        assert_eq!(requests.taken_back_by(&rej(5, reject::CONSUMER_DEFINED)), None);
        let stranger = Arrival { source: IpAddr::from([192, 0, 2, 9]), ..rej(5, reject::TIMEOUT) };
        assert_eq!(requests.taken_back_by(&stranger), None);
        // The oldest is forgotten.
        for comm_id in 0..REQUESTS as u32 {
            requests.note(&req(100 + comm_id), target(4));
        }
        assert_eq!(requests.0.len(), REQUESTS);
        assert_eq!(requests.taken_back_by(&rej(6, reject::TIMEOUT)), None);
    }
}
