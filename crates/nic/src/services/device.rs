//! Devices: one for each network device that is up and has an address.

pub use crate::words::gid::{Gid, Mtu, address_of_gid, global_routing_header};
use crate::words::limits;
use pagewire_fabric::NetworkDevice;
use std::net::IpAddr;

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
