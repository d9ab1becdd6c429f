//! Devices: one for each network device that is up and has an address.

use crate::words::device_names::DeviceNames;
pub use crate::words::gid::{Gid, Mtu, address_of_gid, global_routing_header};
use pagewire_fabric::NetworkDevice;
use std::net::IpAddr;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `pagewire0` and so on, where the program is not given others ([`DeviceNames`]).
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
    devices_named(&DeviceNames::default())
}

/// [`devices`] with these names.
///
/// # Errors
/// As [`devices`].
pub fn devices_named(names: &DeviceNames) -> std::io::Result<Vec<Device>> {
    let interfaces = pagewire_fabric::network_devices()?;
    let numbered = (0..).zip(interfaces);
    Ok(numbered.map(|(index, interface)| device(index, names.of(index), interface)).collect())
}

fn device(index: u32, name: String, interface: NetworkDevice) -> Device {
    let gids = interface
        .addresses
        .iter()
        .map(|address| {
            let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            Gid { address: *address, interface: if link_local { interface.index } else { 0 } }
        })
        .collect();
    Device {
        name,
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
