//! Messages on their way out. A UNIX socket queues few messages (`net.unix.max_dgram_qlen`, 10): those for a process of this host that has not
//! taken so many stay here for a moment, in their order.

use pagewire_fabric::{Fabric, ManagementTarget};
use pagewire_nic::{ManagementRoute, ManagementSent, Nic, management_target};
use pagewire_wire::cm::{CmDatagram, DATAGRAM_LEN};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Until a busy process is tried again: at first about as long as it needs for the messages that its socket holds, then longer, as it may be
/// stopped.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// A process that takes nothing for so long gets nothing: whoever waits for an answer asks again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages that wait for one process, and processes that are waited for, at most. Further ones are lost, as on a network.
const BOUND: usize = 1 << 14;
const TARGETS: usize = 256;

/// A message, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub route: ManagementRoute,
    pub datagram: CmDatagram,
}

#[derive(Debug)]
struct Backlog {
    messages: VecDeque<Outgoing>,
    /// The bytes of each.
    contents: HashSet<[u8; DATAGRAM_LEN]>,
    /// When the process has last taken one.
    since: Duration,
}

/// Messages that have not left yet.
#[derive(Debug)]
pub struct Outbox {
    new: VecDeque<Outgoing>,
    backlogs: HashMap<ManagementTarget, Backlog>,
    /// When those are tried again.
    next: Option<Duration>,
    /// The time until then.
    pause: Duration,
}

impl Default for Outbox {
    fn default() -> Self {
        Outbox { new: VecDeque::new(), backlogs: HashMap::new(), next: None, pause: SHORTEST_PAUSE }
    }
}

impl Outbox {
    /// When [`send`](Self::send) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Adds a message behind the others.
    pub fn push(&mut self, outgoing: Outgoing) {
        self.new.push_back(outgoing);
    }

    /// Sends what can be sent. Gives the refusals of messages that are nobody's, with the route of each message.
    pub fn send<F: Fabric>(&mut self, nic: &Nic<F>, now: Duration) -> Vec<Outgoing> {
        let mut refused = Vec::new();
        if self.next.is_some_and(|next| next <= now) {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            for backlog in self.backlogs.values_mut() {
                while let Some(first) = backlog.messages.pop_front() {
                    let content = first.datagram.emit();
                    if let Some(busy) = send_one(nic, first, &mut refused) {
                        backlog.messages.push_front(busy);
                        break;
                    }
                    backlog.contents.remove(&content);
                    (backlog.since, self.pause) = (now, SHORTEST_PAUSE);
                }
            }
            self.backlogs.retain(|_, backlog| !backlog.messages.is_empty() && now < backlog.since + PATIENCE);
            self.next = None;
        }
        while let Some(outgoing) = self.new.pop_front() {
            let target = management_target(&outgoing.datagram);
            let waits = target.is_some_and(|target| self.backlogs.contains_key(&target));
            let busy = if waits { Some(outgoing) } else { send_one(nic, outgoing, &mut refused) };
            if let (Some(target), Some(busy)) = (target, busy) {
                self.keep(target, busy, now);
            }
        }
        if !self.backlogs.is_empty() {
            self.next.get_or_insert(now + self.pause);
        }
        refused
    }

    fn keep(&mut self, target: ManagementTarget, busy: Outgoing, now: Duration) {
        if !self.backlogs.contains_key(&target) && self.backlogs.len() >= TARGETS {
            return;
        }
        let backlog = self.backlogs.entry(target).or_insert_with(|| Backlog {
            messages: VecDeque::new(),
            contents: HashSet::new(),
            since: now,
        });
        // A message is sent again by who does not know that it is still here. It would only keep the process busy.
        if backlog.messages.len() < BOUND && backlog.contents.insert(busy.datagram.emit()) {
            backlog.messages.push_back(busy);
        }
    }
}

/// Sends a message; gives it back if its process is busy.
fn send_one<F: Fabric>(nic: &Nic<F>, outgoing: Outgoing, refused: &mut Vec<Outgoing>) -> Option<Outgoing> {
    match nic.send_management(&outgoing.route, &outgoing.datagram) {
        ManagementSent::Sent | ManagementSent::Refused(None) => None,
        ManagementSent::Refused(Some(datagram)) => {
            refused.push(Outgoing { route: outgoing.route, datagram });
            None
        }
        ManagementSent::Busy => Some(outgoing),
    }
}
