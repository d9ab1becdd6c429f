//! Endpoints: what librdmacm calls an `rdma_cm_id`.

use std::net::{IpAddr, SocketAddr};

/// Names an endpoint of a [`ConnectionManager`](crate::ConnectionManager).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// A space of ports (`rdma_create_id(3)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// `RDMA_PS_TCP`: connections.
    Tcp,
    /// `RDMA_PS_UDP`: datagrams.
    Udp,
    /// `RDMA_PS_IB`: either.
    Ib,
    /// `RDMA_PS_IPOIB`: datagrams, to groups.
    IpoIb,
}

impl PortSpace {
    /// All of them.
    pub const ALL: [PortSpace; 4] = [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib, PortSpace::IpoIb];

    /// The number of `enum rdma_port_space`.
    pub fn number(self) -> u16 {
        match self {
            PortSpace::Tcp => 0x0106,
            PortSpace::Udp => 0x0111,
            PortSpace::Ib => 0x013F,
            PortSpace::IpoIb => 0x0002,
        }
    }

    /// The space with a number.
    pub fn of_number(number: u16) -> Option<PortSpace> {
        Self::ALL.into_iter().find(|space| space.number() == number)
    }

    /// The service ID of a port (annex A11 of the InfiniBand specification).
    pub fn service_id(self, port: u16) -> u64 {
        u64::from(self.number()) << 16 | u64::from(port)
    }

    /// Space and port of a service ID; `None`: it is none of the IP services.
    pub fn of_service_id(service_id: u64) -> Option<(PortSpace, u16)> {
        let space = Self::of_number(u16::try_from(service_id >> 16).ok()?)?;
        Some((space, service_id as u16))
    }
}

/// The state of an endpoint (`enum rdma_cm_state` of the kernel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointState {
    /// It is new.
    Idle,
    /// It has an address.
    AddressBound,
    /// It has the peer's address, and a route to it.
    RouteResolved,
    /// Messages of a connection are exchanged, or it is established.
    Connect,
    /// The connection has ended.
    Disconnect,
    /// It takes requests.
    Listen,
}

/// Between which addresses datagrams of an endpoint go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// This side, with the endpoint's port.
    pub source: SocketAddr,
    /// The peer, with its port.
    pub destination: SocketAddr,
    /// Path MTU as REQ says it: 1 is 256 bytes, 5 is 4,096.
    pub mtu: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The peer is a process of this host.
    pub is_on_this_host: bool,
    /// What comes to UDP port 4791 of this host comes to this process. Else only Pagewires can answer, at its direct port.
    pub takes_standard_answers: bool,
    /// Local ACK timeout of this side's queue pair: 4.096 us times two to this power.
    pub ack_timeout: u8,
}

/// A GID: an IPv6 address, or an IPv4 address in it (annex A17 of the InfiniBand specification).
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
