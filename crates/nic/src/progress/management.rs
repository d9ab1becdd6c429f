//! Queue pair 1, which every port has (InfiniBand specification, volume 1, section 3.9.4).
//!
//! What comes there goes on to the process of this host that owns the port of the connection manager, or the connection
//! ([`deliver_management`](Fabric::deliver_management)): that may be this one. Where nobody does the NIC refuses at once, because silence
//! would keep a peer asking for a minute. Refusals are never answered. [`arrivals`] has what is remembered.

mod arrivals;

pub(crate) use arrivals::Arrivals;

use crate::path::{ManagementPath, ManagementTransport};
use crate::progress::engine::Nic;
use crate::progress::transport_ops::append_packet;
use crate::services::device::devices;
use arrivals::Arrival;
use pagewire_fabric::{Fabric, ManagementDatagram, ManagementTarget, ROCE_PORT, ReceivedDatagram, Route};
use pagewire_transport::ud::{self, UdSettings};
use pagewire_transport::{Psn, ud::OutgoingDatagram as UdDatagram};
use pagewire_wire::PacketHeader;
use pagewire_wire::bth::DEFAULT_PARTITION;
use pagewire_wire::cm::{self, CmDatagram};
use std::io::ErrorKind;
use std::net::IpAddr;

/// Queue pair 1, with the Q_Key that is its own.
const SETTINGS: UdSettings = UdSettings {
    number: cm::QUEUE_PAIR,
    partition: DEFAULT_PARTITION,
    queue_key: cm::QUEUE_KEY,
    mtu: cm::DATAGRAM_LEN as u32,
};

/// Hops that an answer may take, as other datagrams of a kernel's connection manager.
const HOP_LIMIT: u8 = 64;

/// Where a datagram of queue pair 1 goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagementRoute {
    /// Address of this host.
    pub source: IpAddr,
    /// Address of the peer.
    pub destination: IpAddr,
    /// UDP port of the peer.
    pub udp_port: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

/// What became of a message.
#[expect(clippy::large_enum_variant, reason = "it is looked at once, where it was made")]
#[derive(Debug, PartialEq, Eq)]
pub enum ManagementSent {
    /// It is on its way, to this host or by a stream.
    Sent,
    /// It is on its way as a datagram.
    SentAsDatagram,
    /// Only a stream may carry it, and there is none.
    Lost,
    /// It is nobody's of this host: the refusal in the name of that.
    Refused(Option<CmDatagram>),
    /// To be sent again soon: the process of this host that it is for has not taken earlier ones, or the stream to its host is being opened.
    Busy,
}

/// The message of a datagram to queue pair 1; `None`: it is not to be taken.
fn message_of(header: &PacketHeader, payload: &[u8]) -> Option<CmDatagram> {
    ud::accept(&SETTINGS, header, payload.len() as u64).ok()?;
    CmDatagram::parse(payload)
}

/// Which process a message is for; `None`: no process can be meant.
pub fn management_target(message: &CmDatagram) -> Option<ManagementTarget> {
    if let Some(comm_id) = message.receiver_comm_id() {
        return Some(ManagementTarget::CommIds((comm_id >> 16) as u16));
    }
    let service_id = message.service_id()?;
    let space = u16::try_from(service_id >> 16).ok()?;
    Some(ManagementTarget::Port { space, port: service_id as u16 })
}

/// The interface of a link-local address of this host, without which the kernel knows no route; 0: an address needs none.
fn interface_of(source: IpAddr) -> u32 {
    if !matches!(source, IpAddr::V6(own) if own.is_unicast_link_local()) {
        return 0;
    }
    // Where devices cannot be listed the kernel refuses the datagram, as if it were lost.
    let devices = devices().unwrap_or_default();
    let mut gids = devices.iter().flat_map(|device| &device.gids);
    gids.find(|gid| gid.address == source).map_or(0, |gid| gid.interface)
}

impl<F: Fabric> Nic<F> {
    /// Takes a datagram that came to queue pair 1.
    #[cold]
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    pub(crate) fn receive_management(
        &self,
        header: &PacketHeader,
        payload: &[u8],
        datagram: &ReceivedDatagram<'_>,
    ) {
        let Some(message) = message_of(header, payload) else { return };
        let psn = Psn::new(header.bth.psn);
        let ReceivedDatagram { source, destination, by_stream, .. } = *datagram;
        let arrival = Arrival { source, destination, psn, by_stream, message };
        self.receive_arrival(arrival);
    }

    fn receive_arrival(&self, arrival: Arrival) {
        if !self.take_arrival(&arrival) {
            self.hold(arrival);
        }
    }

    /// Hands a message from the network over, or refuses it. False: to be done again soon, as for [`ManagementSent::Busy`].
    fn take_arrival(&self, arrival: &Arrival) -> bool {
        let (source, destination) = (arrival.source, arrival.destination);
        let target = management_target(&arrival.message)
            .or_else(|| self.arrivals.requests.lock().taken_back_by(arrival));
        match self.deliver_management((source, destination), target, &arrival.message) {
            ManagementSent::Busy => return false,
            ManagementSent::Sent | ManagementSent::SentAsDatagram | ManagementSent::Lost => {
                if let Some(target) = target {
                    self.arrivals.requests.lock().note(arrival, target);
                }
            }
            ManagementSent::Refused(refusal) => {
                // Receivers do not look at the PSN; that of the request tells which one is answered.
                if let Some(refusal) = refusal {
                    let route = ManagementRoute {
                        source: destination,
                        destination: source,
                        udp_port: refusal.udp_port(),
                        traffic_class: 0,
                        hop_limit: HOP_LIMIT,
                    };
                    // A peer's numbers choose the port: those of direct ports would have as many streams opened.
                    let transport = match arrival.by_stream && route.udp_port == ROCE_PORT {
                        true => ManagementTransport::Best,
                        false => ManagementTransport::Datagram,
                    };
                    let sent = self.transmit_management(&route, arrival.psn, &refusal, transport);
                    return !matches!(sent, ManagementSent::Busy);
                }
            }
        }
        true
    }

    /// Sends a message from queue pair 1 to that of a peer. One of this host gets it without the network.
    pub fn send_management(
        &self,
        route: &ManagementRoute,
        message: &CmDatagram,
        transport: ManagementTransport,
    ) -> ManagementSent {
        if self.fabric().is_local(route.destination) != Ok(true) {
            return self.transmit_management(route, Psn::default(), message, transport);
        }
        let addresses = (route.source, route.destination);
        let sent = self.deliver_management(addresses, management_target(message), message);
        self.capture_local(route, message, &sent);
        sent
    }

    /// Has a capture show what takes no network: a message, and its refusal.
    fn capture_local(&self, route: &ManagementRoute, message: &CmDatagram, sent: &ManagementSent) {
        let capture = |source, destination, message: &CmDatagram| {
            self.fabric().capture_management(&ManagementDatagram {
                source,
                destination,
                payload: message.emit(),
            });
        };
        if !matches!(sent, ManagementSent::Busy) {
            capture(route.source, route.destination, message);
        }
        if let ManagementSent::Refused(Some(refusal)) = sent {
            capture(route.destination, route.source, refusal);
        }
    }

    /// Hands a message to the process of this host that it is for.
    fn deliver_management(
        &self,
        (source, destination): (IpAddr, IpAddr),
        target: Option<ManagementTarget>,
        message: &CmDatagram,
    ) -> ManagementSent {
        let Some(target) = target else { return ManagementSent::Refused(message.refusal()) };
        let datagram = ManagementDatagram { source, destination, payload: message.emit() };
        match self.fabric().deliver_management(target, &datagram) {
            Ok(()) => ManagementSent::Sent,
            Err(error) => match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::Unsupported => {
                    ManagementSent::Refused(message.refusal())
                }
                ErrorKind::WouldBlock => ManagementSent::Busy,
                // As if it were lost.
                _ => ManagementSent::Sent,
            },
        }
    }

    /// Sends a message to another host.
    fn transmit_management(
        &self,
        route: &ManagementRoute,
        psn: Psn,
        message: &CmDatagram,
        transport: ManagementTransport,
    ) -> ManagementSent {
        let datagram = UdDatagram {
            destination: cm::QUEUE_PAIR,
            queue_key: cm::QUEUE_KEY,
            immediate: None,
            solicited: false,
        };
        let header = ud::header(&SETTINGS, psn, &datagram);
        let route = Route {
            source: route.source,
            interface: interface_of(route.source),
            source_port: ROCE_PORT,
            destination: route.destination,
            port: route.udp_port,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            stream: None,
        };
        let stream = match self.paths.choose_management_path(&route, transport) {
            ManagementPath::Datagram => None,
            ManagementPath::Stream(stream) => Some(stream),
            ManagementPath::Opening => return ManagementSent::Busy,
            ManagementPath::Dead(reason) => {
                log::debug!("a message of the connection manager is lost: {reason}");
                return ManagementSent::Lost;
            }
        };
        let route = Route { stream, ..route };
        let bytes = message.emit();
        let mut batch = self.fabric().batch();
        let laid = append_packet(&mut batch, &route, &header, bytes.len(), |into| {
            into.copy_from_slice(&bytes);
            Ok::<(), ()>(())
        });
        if laid.is_some() {
            self.fabric().flush(batch);
        }
        match (stream, laid.is_some()) {
            (None, _) => ManagementSent::SentAsDatagram,
            (Some(_), true) => ManagementSent::Sent,
            // It is full.
            (Some(_), false) => ManagementSent::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::options::Options;
    use crate::types::path_choice::PathChoice;
    use pagewire_fabric::{HostFabric, ManagementSocket};
    use pagewire_wire::cm::{CmMessage, Rej, Req, Rtu};
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    /// A REQ from queue pair 1 of a peer.
    fn request() -> (PacketHeader, [u8; cm::DATAGRAM_LEN]) {
        let datagram = UdDatagram {
            destination: cm::QUEUE_PAIR,
            queue_key: cm::QUEUE_KEY,
            immediate: None,
            solicited: false,
        };
        let req = Req { service_id: 0x0106_1C06, ..Req::default() };
        (ud::header(&SETTINGS, Psn::new(7), &datagram), CmDatagram::new(1, req).emit())
    }

    #[test]
    fn messages_go_to_who_owns_port_or_connection() {
        let (header, bytes) = request();
        let message = message_of(&header, &bytes).expect("a REQ");
        assert_eq!(management_target(&message), Some(ManagementTarget::Port { space: 0x0106, port: 7174 }));
        let rtu = Rtu { remote_comm_id: 0x0012_3456, ..Rtu::default() };
        assert_eq!(management_target(&CmDatagram::new(1, rtu)), Some(ManagementTarget::CommIds(0x12)));
        // Of no IP service, and of nothing that is known.
        let req = Req { service_id: 0x1_0106_1C06, ..Req::default() };
        assert_eq!(management_target(&CmDatagram::new(1, req)), None);
        assert_eq!(management_target(&CmDatagram::new(1, Rej::default())), None);
    }

    #[test]
    fn messages_from_the_network_wait_for_a_busy_process() {
        let options = Options { path: PathChoice::Local, ..Options::default() };
        let nic = Nic::new(HostFabric::new().unwrap(), options);
        // A port that no other test has. A UNIX socket queues fewer messages than come.
        let (space, port) = (0xFFFE, std::process::id() as u16);
        let owner = ManagementSocket::claim(ManagementTarget::Port { space, port }).unwrap();
        let service_id = u64::from(space) << 16 | u64::from(port);
        let limit = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap();
        let count = limit.trim().parse::<u32>().unwrap() + 30;
        let [source, destination] = [1, 2].map(|host| IpAddr::from([192, 0, 2, host]));
        for local_comm_id in 0..count {
            let message = CmDatagram::new(1, Req { service_id, local_comm_id, ..Req::default() });
            nic.receive_arrival(Arrival { source, destination, psn: Psn::new(0), by_stream: false, message });
        }
        let mut received = BTreeSet::new();
        let end = Instant::now() + Duration::from_secs(10);
        while received.len() < count as usize {
            assert!(Instant::now() < end, "{received:?}");
            nic.progress();
            while let Some((datagram, _)) = owner.receive(|_| true).unwrap() {
                let message = CmDatagram::parse(&datagram.payload).unwrap().message;
                let CmMessage::Req(req) = message else { panic!("{message:?}") };
                assert!(received.insert(req.local_comm_id), "{} came twice", req.local_comm_id);
            }
        }
    }

    #[test]
    fn what_is_not_for_queue_pair_1_is_dropped() {
        let (header, bytes) = request();
        let mut other_key = header;
        other_key.deth = header.deth.map(|deth| pagewire_wire::Deth { queue_key: 0x1111_1111, ..deth });
        let mut other_partition = header;
        other_partition.bth.partition = 0x8001;
        for wrong in [other_key, other_partition] {
            assert!(message_of(&wrong, &bytes).is_none(), "{wrong:?}");
        }
        assert!(message_of(&header, &bytes[..255]).is_none());
        assert!(message_of(&header, &[0; cm::DATAGRAM_LEN]).is_none());
    }
}
