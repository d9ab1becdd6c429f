//! Which process of a host gets a message: whoever has the UDP port hands it on, or refuses it in the name of the host.

use super::World;
use pagewire_cm::{IncomingDatagram, Origin, OutgoingDatagram};
use pagewire_wire::cm::{CmDatagram, CmMessage};
use std::net::{IpAddr, SocketAddr};

/// Two on each of two hosts, and the kernel.
pub const PROCESSES: usize = 5;
pub const KERNEL: usize = 4;

const STANDARD_PORT: u16 = 4791;
const FIRST_PORT: u16 = 7174;
/// Status of a kernel's answer: it does not support the method with this attribute.
const NOT_SUPPORTED: u16 = 0x0C;

pub fn host_of(process: usize) -> usize {
    process / 2
}

pub fn address(process: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, 1 + host_of(process) as u8])
}

/// The port at which a process listens.
pub fn port_of(process: usize) -> u16 {
    FIRST_PORT + (process % 2) as u16
}

fn processes_at(address_of_host: IpAddr) -> impl Iterator<Item = usize> {
    (0..PROCESSES).filter(move |process| address(*process) == address_of_host)
}

fn is_request(datagram: &CmDatagram) -> bool {
    matches!(datagram.message, CmMessage::Req(_) | CmMessage::SidrReq(_))
}

impl World {
    /// Whether the user of a process has UDP port 4791 of its host.
    pub(super) fn is_holder(&self, process: usize) -> bool {
        self.holders.contains(&process)
    }

    /// A datagram arrives at a host.
    pub(super) fn arrive(&mut self, sent: &OutgoingDatagram) {
        let parsed = CmDatagram::parse(&sent.datagram.emit()).expect("it was emitted");
        if sent.source == sent.destination {
            return self.arrive_here(sent, &parsed);
        }
        if sent.destination == address(KERNEL) {
            return self.arrive_at_kernel(sent, &parsed);
        }
        let target = self.addressee(sent.destination, &parsed);
        let taker = processes_at(sent.destination).find(|process| self.has_port(*process, sent.udp_port));
        match (taker, target) {
            (None, _) => self.refuse_at_closed_port(sent),
            (Some(_), None) => {
                if let CmMessage::PortQuery(_) = parsed.message {
                    self.totals.count("nobody owns the port");
                }
                self.refuse_for_host(sent, &parsed);
            }
            (Some(taker), Some(target)) if taker == target => {
                self.receive(target, sent, Origin::Network, &parsed);
            }
            (Some(_), Some(target)) => {
                if is_request(&parsed) {
                    // The query may be lost, and a kernel sends none.
                    let is_known = self.loss > 0.0 || sent.source == address(KERNEL);
                    assert!(is_known, "seed {}: another user sees {sent:?}", self.seed);
                    self.totals.count("request seen by another user");
                } else if let CmMessage::PortQuery(_) = parsed.message {
                    self.totals.count("port answered across users");
                }
                self.receive(target, sent, Origin::OtherUser, &parsed);
            }
        }
    }

    /// From a process of this host.
    fn arrive_here(&mut self, sent: &OutgoingDatagram, parsed: &CmDatagram) {
        if let Some(target) = self.addressee(sent.destination, parsed) {
            self.receive(target, sent, Origin::ThisHost, parsed);
        } else if let Some(refusal) = parsed.refusal() {
            if let Some(asker) = self.addressee(sent.source, &refusal) {
                self.receive(asker, sent, Origin::ThisHost, &refusal);
            }
        }
    }

    fn arrive_at_kernel(&mut self, sent: &OutgoingDatagram, parsed: &CmDatagram) {
        assert_eq!(sent.udp_port, STANDARD_PORT, "seed {}: a kernel has no direct ports", self.seed);
        let CmMessage::PortQuery(query) = &parsed.message else {
            return self.receive(KERNEL, sent, Origin::Network, parsed);
        };
        if self.kernel_answers {
            self.totals.count("kernel answers");
            let mut answer = CmDatagram::new(parsed.transaction, query.answer(0));
            answer.status = NOT_SUPPORTED;
            self.send_back(sent, answer);
        }
    }

    /// The process that owns the port or the communication ID of a message.
    fn addressee(&self, host: IpAddr, datagram: &CmDatagram) -> Option<usize> {
        let is_meant = |process: &usize| match datagram.receiver_comm_id() {
            Some(comm_id) => comm_id >> 16 == u32::from(self.processes[*process].block),
            None => datagram.service_id().is_some_and(|service| service as u16 == port_of(*process)),
        };
        processes_at(host).find(|process| *process == KERNEL || is_meant(process))
    }

    fn has_port(&self, process: usize, udp_port: u16) -> bool {
        match self.is_holder(process) {
            true => udp_port == STANDARD_PORT,
            false => udp_port == self.processes[process].block,
        }
    }

    /// ICMP tells of it, whoever of the sender's host asked: all who did.
    fn refuse_at_closed_port(&mut self, sent: &OutgoingDatagram) {
        if !is_request(&sent.datagram) {
            return;
        }
        self.totals.count("closed port");
        let port = SocketAddr::new(sent.destination, sent.udp_port);
        for process in processes_at(sent.source) {
            self.processes[process].manager.refuse_unanswered(self.now, sent.source, port);
        }
    }

    fn refuse_for_host(&mut self, sent: &OutgoingDatagram, parsed: &CmDatagram) {
        if let Some(refusal) = parsed.refusal() {
            self.send_back(sent, refusal);
        }
    }

    fn send_back(&mut self, sent: &OutgoingDatagram, datagram: CmDatagram) {
        let (source, destination) = (sent.destination, sent.source);
        let udp_port = datagram.udp_port();
        self.send(OutgoingDatagram { source, destination, udp_port, datagram, ..*sent });
    }

    fn receive(&mut self, target: usize, sent: &OutgoingDatagram, origin: Origin, datagram: &CmDatagram) {
        let (source, destination) = (sent.source, sent.destination);
        let incoming = IncomingDatagram { source, destination, origin, datagram };
        self.processes[target].manager.receive(self.now, &incoming);
    }
}
