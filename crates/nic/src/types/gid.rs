//! GIDs and path MTUs, and the global routing header that addresses make.

use pagewire_wire::grh;
use std::net::{IpAddr, Ipv6Addr};

/// Path MTU (values of `enum ibv_mtu`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, strum::FromRepr)]
#[repr(u32)]
pub enum Mtu {
    Mtu256 = 1,
    Mtu512 = 2,
    #[default]
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

/// Bytes of headers that a packet may need besides its payload: IPv6, UDP, BTH with the longest extension, pad, ICRC.
const OVERHEAD: u32 = 40 + 8 + 12 + 28 + 4 + 4;

impl Mtu {
    /// Payload bytes.
    pub fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The largest that a network device of this MTU carries (rxe does the same).
    pub fn fitting(device: u32) -> Self {
        [Mtu::Mtu4096, Mtu::Mtu2048, Mtu::Mtu1024, Mtu::Mtu512]
            .into_iter()
            .find(|mtu| mtu.bytes() + OVERHEAD <= device)
            .unwrap_or(Mtu::Mtu256)
    }
}

/// One entry of a port's GID table; all are RoCE v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gid {
    pub address: IpAddr,
    /// Interface index, for link-local addresses.
    pub interface: u32,
}

impl Gid {
    /// An entry whose address was taken away. Entries after it keep their places.
    pub const EMPTY: Gid = Gid { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), interface: 0 };

    /// Whether the entry has no address.
    pub fn is_empty(&self) -> bool {
        *self == Gid::EMPTY
    }

    /// The 16 bytes on the wire: IPv4 addresses are mapped (`::ffff:a.b.c.d`).
    pub fn raw(&self) -> [u8; 16] {
        match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }
}

/// The address that a GID stands for.
pub fn address_of_gid(raw: [u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(raw);
    match address.to_ipv4_mapped() {
        Some(v4) => IpAddr::V4(v4),
        None => IpAddr::V6(address),
    }
}

/// The 40 bytes in front of a datagram's payload in its receive buffer. `udp_payload`: bytes from the BTH to the ICRC.
pub fn global_routing_header(
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    udp_payload: u16,
) -> [u8; grh::LEN] {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            grh::emit_ipv4(source, destination, traffic_class, hop_limit, udp_payload)
        }
        (source, destination) => {
            grh::emit_ipv6(mapped(source), mapped(destination), traffic_class, hop_limit, udp_payload)
        }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
