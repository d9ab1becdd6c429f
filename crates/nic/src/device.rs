//! Devices: one for each network device that is up and has an address.

use crate::limits;
use pagewire_fabric::NetworkDevice;
use pagewire_wire::{Grh, Ipv4, Ipv6, grh};
use std::net::{IpAddr, Ipv6Addr};

const UDP_PROTOCOL: u8 = 17;
const UDP_HEADER: u16 = 8;
const IPV4_AND_UDP: u16 = 20 + UDP_HEADER;

/// Path MTU (values of `enum ibv_mtu`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Mtu {
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

/// Bytes of headers that a packet may need besides its payload: IPv6, UDP, BTH with the longest extension, pad, ICRC.
const OVERHEAD: u32 = 40 + 8 + 12 + 28 + 4 + 4;

impl Mtu {
    /// From `enum ibv_mtu`.
    pub fn from_code(code: u32) -> Option<Self> {
        [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096]
            .into_iter()
            .find(|mtu| *mtu as u32 == code)
    }

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

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `pagewire0` and so on.
    pub name: String,
    /// Place in the list of devices.
    pub index: u32,
    /// Node GUID in host order (EUI-64 of the hardware address).
    pub guid: u64,
    pub interface: String,
    pub interface_index: u32,
    /// The network device's MTU.
    pub interface_mtu: u32,
    pub mtu: Mtu,
    pub gids: Vec<Gid>,
    /// Megabits a second, where the network device tells.
    pub speed: Option<u32>,
}

/// The devices of this host: one for each network device that is up and has an address.
///
/// # Errors
/// The kernel's, where it does not tell its network devices.
pub fn devices() -> std::io::Result<Vec<Device>> {
    let interfaces = pagewire_fabric::network_devices()?;
    Ok(interfaces.into_iter().enumerate().map(|(index, interface)| device(index as u32, interface)).collect())
}

fn device(index: u32, interface: NetworkDevice) -> Device {
    let gids = interface
        .addresses
        .iter()
        .map(|address| {
            let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            Gid { address: *address, interface: if link_local { interface.index } else { 0 } }
        })
        .collect();
    Device {
        name: format!("pagewire{index}"),
        index,
        guid: guid_of(interface.mac, index),
        mtu: Mtu::fitting(interface.mtu),
        interface: interface.name,
        interface_index: interface.index,
        interface_mtu: interface.mtu,
        gids,
        speed: interface.speed,
    }
}

/// EUI-64 of a hardware address; devices without one (loopback) are told apart by their place.
fn guid_of(mac: [u8; 6], index: u32) -> u64 {
    let [a, b, c, d, e, f] = mac;
    let f = if mac == [0; 6] { index as u8 + 1 } else { f };
    u64::from_be_bytes([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
}

/// What every device can do (`struct ibv_device_attr`).
#[derive(Debug, Clone, Copy)]
pub struct DeviceLimits {
    pub max_mr_size: u64,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u8,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u8,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_pkeys: u16,
    pub max_inline: u32,
    pub max_message: u32,
}

/// The limits of every device.
pub const LIMITS: DeviceLimits = DeviceLimits {
    max_mr_size: pagewire_iommu::limits::MAX_REGION_LENGTH,
    max_qp: limits::MAX_QUEUE_PAIRS,
    max_qp_wr: limits::MAX_WORK_REQUESTS,
    max_sge: limits::MAX_SEGMENTS,
    max_sge_rd: limits::MAX_SEGMENTS,
    max_cq: limits::MAX_COMPLETION_QUEUES,
    max_cqe: limits::MAX_COMPLETIONS,
    max_mr: pagewire_iommu::limits::MAX_REGIONS,
    max_pd: limits::MAX_PROTECTION_DOMAINS,
    max_qp_rd_atom: limits::MAX_READ_ATOMIC,
    max_res_rd_atom: limits::MAX_QUEUE_PAIRS * limits::MAX_READ_ATOMIC as u32,
    max_qp_init_rd_atom: limits::MAX_READ_ATOMIC,
    max_ah: limits::MAX_ADDRESS_HANDLES,
    max_srq: limits::MAX_SHARED_RECEIVE_QUEUES,
    max_srq_wr: limits::MAX_WORK_REQUESTS,
    max_srq_sge: limits::MAX_SEGMENTS,
    max_pkeys: 1,
    max_inline: limits::MAX_INLINE,
    max_message: limits::MAX_MESSAGE,
};

/// The 40 bytes in front of a datagram's payload in its receive buffer. `udp_payload`: bytes from the BTH to the ICRC.
pub fn global_routing_header(
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    udp_payload: u16,
) -> [u8; grh::LEN] {
    let mut bytes = [0; grh::LEN];
    let Ok(mut packet) = grh::Packet::new(&mut bytes[..]) else { return bytes };
    let header = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Grh::Ipv4(Ipv4 {
            type_of_service: traffic_class,
            total_length: udp_payload.saturating_add(IPV4_AND_UDP),
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: hop_limit,
            protocol: UDP_PROTOCOL,
            source,
            destination,
        }),
        (source, destination) => Grh::Ipv6(Ipv6 {
            traffic_class,
            flow_label: 0,
            payload_length: udp_payload.saturating_add(UDP_HEADER),
            next_header: UDP_PROTOCOL,
            hop_limit,
            source: mapped(source),
            destination: mapped(destination),
        }),
    };
    header.emit(&mut packet);
    bytes
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
