//! Messages on their way out. A UNIX socket queues few messages (`net.unix.max_dgram_qlen`, 10): those for a process of this host that has not
//! taken so many stay here for a moment, in their order. So do those for another host, until the stream to it is open.

use crate::calls::{MessageFate, message_fate};
use pagewire_fabric::{Fabric, ManagementTarget};
use pagewire_nic::{ManagementRoute, ManagementSent, ManagementTransport, Nic, management_target};
use pagewire_wire::cm::{CmDatagram, DATAGRAM_LEN};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Until a busy process is tried again: at first about as long as it needs for the messages that its socket holds. The pause doubles each
/// time that it has taken nothing: hundreds of processes that try each other all the time would leave no processor to those that are to take.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Who takes nothing for so long gets nothing: whoever waits for an answer asks again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages that wait for one process or host, and those that are waited for, at most. Further ones are lost, as on a network.
const BOUND: usize = 1 << 14;
const RECEIVERS: usize = 1 << 12;
/// Messages that rules hold back, at most. Further ones leave at once.
const LATE: usize = 1 << 14;

/// A message, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub route: ManagementRoute,
    pub datagram: CmDatagram,
}

/// Who is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Receiver {
    /// A process of this host.
    Process(ManagementTarget),
    /// Another host, at a port.
    Host(IpAddr, u16),
}

impl Receiver {
    /// `None`: it is no process of this host that can be meant.
    fn of<F: Fabric>(nic: &Nic<F>, outgoing: &Outgoing) -> Option<Self> {
        let Outgoing { route, datagram } = outgoing;
        match nic.fabric().is_local(route.destination) {
            Ok(true) => management_target(datagram).map(Receiver::Process),
            _ => Some(Receiver::Host(route.destination, route.udp_port)),
        }
    }
}

#[derive(Debug)]
struct Backlog {
    messages: VecDeque<Outgoing>,
    /// The bytes of each.
    contents: HashSet<[u8; DATAGRAM_LEN]>,
    /// When it has last taken one.
    since: Duration,
    /// When it is tried again, and the time from the last trial to that.
    next: Duration,
    pause: Duration,
}

/// What came of sending.
#[derive(Debug, Default)]
pub struct OutboxOutcome {
    /// The refusals of messages that are nobody's, with the route of each message.
    pub refused: Vec<Outgoing>,
    /// Messages that left as datagrams.
    pub datagrams: Vec<Outgoing>,
    /// Messages that nothing carries.
    pub lost: Vec<Outgoing>,
}

/// Messages that have not left yet.
#[derive(Debug, Default)]
pub struct Outbox {
    new: VecDeque<Outgoing>,
    /// Messages that a rule holds back, and until when.
    late: Vec<(Duration, Outgoing)>,
    backlogs: HashMap<Receiver, Backlog>,
}

impl Outbox {
    /// When [`send`](Self::send) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        let late = self.late.iter().map(|(due, _)| *due);
        self.backlogs.values().map(|backlog| backlog.next).chain(late).min()
    }

    /// Adds a message behind the others.
    pub fn push(&mut self, outgoing: Outgoing) {
        self.new.push_back(outgoing);
    }

    /// Whether messages wait for another host.
    pub fn waits_for_hosts(&self) -> bool {
        self.backlogs.keys().any(|receiver| matches!(receiver, Receiver::Host(..)))
    }

    /// Sends what can be sent.
    pub fn send<F: Fabric>(
        &mut self,
        nic: &Nic<F>,
        now: Duration,
        transport: ManagementTransport,
    ) -> OutboxOutcome {
        let mut outcome = OutboxOutcome::default();
        let sender = OutboxSender { nic, transport };
        for backlog in self.backlogs.values_mut().filter(|backlog| backlog.next <= now) {
            backlog.send(&sender, now, &mut outcome);
        }
        self.backlogs.retain(|_, backlog| !backlog.messages.is_empty() && now < backlog.since + PATIENCE);
        let (due, late): (Vec<_>, Vec<_>) = self.late.drain(..).partition(|(due, _)| *due <= now);
        self.late = late;
        for (_, outgoing) in due {
            self.send_new(&sender, outgoing, now, &mut outcome);
        }
        while let Some(outgoing) = self.new.pop_front() {
            match message_fate(&outgoing.datagram.message, outgoing.route.destination) {
                MessageFate::Leaves => self.send_new(&sender, outgoing, now, &mut outcome),
                MessageFate::Lost => {}
                MessageFate::Refused => {
                    let Outgoing { route, datagram } = outgoing;
                    outcome.refused.extend(datagram.refusal().map(|datagram| Outgoing { route, datagram }));
                }
                MessageFate::Late(delay) => {
                    if let Some(outgoing) = self.hold_back(now + delay, outgoing) {
                        self.send_new(&sender, outgoing, now, &mut outcome);
                    }
                }
            }
        }
        outcome
    }

    /// Keeps a message until this time; gives it back if too many are kept.
    fn hold_back(&mut self, until: Duration, outgoing: Outgoing) -> Option<Outgoing> {
        if self.late.len() >= LATE {
            log::debug!("{LATE} messages of the connection manager are late: this one leaves at once");
            return Some(outgoing);
        }
        self.late.push((until, outgoing));
        None
    }

    /// Sends a message, or keeps it behind others for its process or host.
    fn send_new<F: Fabric>(
        &mut self,
        sender: &OutboxSender<'_, F>,
        outgoing: Outgoing,
        now: Duration,
        outcome: &mut OutboxOutcome,
    ) {
        let receiver = Receiver::of(sender.nic, &outgoing);
        let waits = receiver.is_some_and(|receiver| self.backlogs.contains_key(&receiver));
        let busy = if waits { Some(outgoing) } else { sender.send(outgoing, outcome) };
        if let (Some(receiver), Some(busy)) = (receiver, busy) {
            self.keep(receiver, busy, now);
        }
    }

    fn keep(&mut self, receiver: Receiver, busy: Outgoing, now: Duration) {
        if !self.backlogs.contains_key(&receiver) && self.backlogs.len() >= RECEIVERS {
            return;
        }
        let backlog = self.backlogs.entry(receiver).or_insert_with(|| Backlog {
            messages: VecDeque::new(),
            contents: HashSet::new(),
            since: now,
            next: now + SHORTEST_PAUSE,
            pause: SHORTEST_PAUSE,
        });
        // A message is sent again by who does not know that it is still here. It would only keep the process busy.
        if backlog.messages.len() < BOUND && backlog.contents.insert(busy.datagram.emit()) {
            backlog.messages.push_back(busy);
        }
    }
}

impl Backlog {
    /// Sends what the process takes.
    fn send<F: Fabric>(&mut self, sender: &OutboxSender<'_, F>, now: Duration, outcome: &mut OutboxOutcome) {
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        while let Some(first) = self.messages.pop_front() {
            let content = first.datagram.emit();
            if let Some(busy) = sender.send(first, outcome) {
                self.messages.push_front(busy);
                break;
            }
            self.contents.remove(&content);
            (self.since, self.pause) = (now, SHORTEST_PAUSE);
        }
        self.next = now + self.pause;
    }
}

/// What sends messages.
struct OutboxSender<'n, F: Fabric> {
    nic: &'n Nic<F>,
    transport: ManagementTransport,
}

impl<F: Fabric> OutboxSender<'_, F> {
    /// Sends a message; gives it back if it is to be sent again.
    fn send(&self, outgoing: Outgoing, outcome: &mut OutboxOutcome) -> Option<Outgoing> {
        match self.nic.send_management(&outgoing.route, &outgoing.datagram, self.transport) {
            ManagementSent::Sent | ManagementSent::Refused(None) => None,
            ManagementSent::SentAsDatagram => {
                outcome.datagrams.push(outgoing);
                None
            }
            ManagementSent::Lost => {
                outcome.lost.push(outgoing);
                None
            }
            ManagementSent::Refused(Some(datagram)) => {
                outcome.refused.push(Outgoing { route: outgoing.route, datagram });
                None
            }
            ManagementSent::Busy => Some(outgoing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_wire::cm::Drep;
    use std::net::Ipv4Addr;

    #[test]
    fn late_messages_are_bounded() {
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let route = ManagementRoute {
            source: host,
            destination: host,
            udp_port: 4791,
            traffic_class: 0,
            hop_limit: 64,
        };
        let outgoing = Outgoing { route, datagram: CmDatagram::new(1, Drep::default()) };
        let mut outbox = Outbox::default();
        for _ in 0..LATE {
            assert_eq!(outbox.hold_back(Duration::from_secs(1), outgoing.clone()), None);
        }
        assert_eq!(outbox.hold_back(Duration::from_secs(1), outgoing.clone()), Some(outgoing));
        assert_eq!(outbox.late.len(), LATE);
    }
}
