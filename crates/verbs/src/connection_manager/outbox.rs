//! Messages on their way out. A UNIX socket queues few messages (`net.unix.max_dgram_qlen`, 10): one for a process of this host that has not
//! taken so many stays here for a moment.

use pagewire_fabric::Fabric;
use pagewire_nic::{ManagementRoute, ManagementSent, Nic};
use pagewire_wire::cm::CmDatagram;
use std::collections::VecDeque;
use std::time::Duration;

/// Until a busy process is tried again.
const PAUSE: Duration = Duration::from_millis(1);
/// Messages that are tried in vain before the next pause.
const TRIES: usize = 16;
/// Messages that wait at most. Further ones are lost, as on a network.
const BOUND: usize = 1 << 16;

/// A message, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub route: ManagementRoute,
    pub datagram: CmDatagram,
}

/// Messages that have not left yet.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Outgoing>,
    /// When they are tried again.
    next: Option<Duration>,
}

impl Outbox {
    /// When [`send`](Self::send) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Adds a message behind the others.
    pub fn push(&mut self, outgoing: Outgoing) {
        if self.waiting.len() < BOUND {
            self.waiting.push_back(outgoing);
        }
    }

    /// Sends what can be sent. Gives the refusals of messages that are nobody's, with the route of each message.
    pub fn send<F: Fabric>(&mut self, nic: &Nic<F>, now: Duration) -> Vec<Outgoing> {
        let mut refused = Vec::new();
        if self.next.is_some_and(|next| now < next) {
            return refused;
        }
        let mut busy = VecDeque::new();
        while busy.len() < TRIES {
            let Some(outgoing) = self.waiting.pop_front() else { break };
            match nic.send_management(&outgoing.route, &outgoing.datagram) {
                ManagementSent::Sent | ManagementSent::Refused(None) => {}
                ManagementSent::Refused(Some(datagram)) => {
                    refused.push(Outgoing { route: outgoing.route, datagram });
                }
                ManagementSent::Busy => busy.push_back(outgoing),
            }
        }
        // Behind those that were not tried: another process's are not held up.
        self.waiting.append(&mut busy);
        self.next = (!self.waiting.is_empty()).then_some(now + PAUSE);
        refused
    }
}
