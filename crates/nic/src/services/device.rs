//! Devices: one for each network device that is up and has an address.
//!
//! A device stays listed as long as its network device exists, with its number and the places of its GIDs: programs hold both, while links
//! go down and addresses change.

use crate::types::attributes::AddressVector;
use crate::types::device_names::DeviceNames;
use crate::types::error::{Error, Result, invalid_if};
pub use crate::types::gid::{Gid, Mtu, address_of_gid, global_routing_header};
use pagewire_fabric::{NetworkDevice, ROCE_PORT, Route, all_network_devices, usable_network_devices};
use pagewire_memory::fork::PerProcess;
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
    /// The network device is switched on and has a carrier (`IBV_PORT_ACTIVE`).
    pub is_active: bool,
    /// The port's GID table. An entry whose address was taken away is [empty](Gid::is_empty) until another address needs it.
    pub gids: Vec<Gid>,
    /// Megabits a second, where the network device tells.
    pub speed: Option<u32>,
}

/// The devices that this process has listed, without names.
static LISTED: PerProcess<Vec<Device>> = PerProcess::new();

/// The devices of this host: one for each network device that is up and has an address, or that this process has listed before.
///
/// # Errors
/// The kernel's, where it does not tell its network devices.
pub fn devices() -> std::io::Result<Vec<Device>> {
    devices_with_names(&DeviceNames::default())
}

/// [`devices`] with these names.
///
/// # Errors
/// As [`devices`].
pub fn devices_with_names(names: &DeviceNames) -> std::io::Result<Vec<Device>> {
    let all = all_network_devices()?;
    let mut listed = LISTED.lock();
    listed.retain_mut(|device| {
        let interface = all.iter().find(|interface| interface.index == device.interface_index);
        interface.inspect(|interface| device.update(interface)).is_some()
    });
    for interface in usable_network_devices(&all) {
        if !listed.iter().any(|device| device.interface_index == interface.index) {
            let is_free = |index: &u32| !listed.iter().any(|device| device.index == *index);
            let index = (0..).find(is_free).unwrap_or(u32::MAX);
            listed.push(Device::new(index, &interface));
        }
    }
    listed.sort_by_key(|device| device.index);
    let named = |device: &Device| Device { name: names.of(device.index), ..device.clone() };
    Ok(listed.iter().map(named).collect())
}

impl Device {
    /// The route that packets take from the device to an address.
    pub(crate) fn route_to(&self, vector: &AddressVector) -> Result<Route> {
        invalid_if(
            !vector.is_global,
            "the address vector has no GRH (is_global is 0), which RoCE needs: many programs take a GID index, as in -g 0",
        )?;
        invalid_if(vector.port != 1, "port number in the address vector")?;
        let source = self
            .gids
            .get(usize::from(vector.source_gid_index))
            .filter(|gid| !gid.is_empty())
            .ok_or(Error::InvalidArgument("source GID index in the address vector"))?;
        let destination = crate::types::gid::address_of_gid(vector.destination_gid);
        invalid_if(destination.is_unspecified(), "destination GID in the address vector")?;
        invalid_if(
            destination.is_ipv4() != source.address.is_ipv4(),
            "sgid_index names an address of another IP version than the destination GID",
        )?;
        Ok(Route {
            source: source.address,
            // A group has no route of its own.
            interface: if destination.is_multicast() { self.interface_index } else { source.interface },
            source_port: ROCE_PORT,
            destination,
            port: ROCE_PORT,
            traffic_class: vector.traffic_class,
            hop_limit: if vector.hop_limit == 0 { 64 } else { vector.hop_limit },
            stream: None,
        })
    }

    fn new(index: u32, interface: &NetworkDevice) -> Self {
        let mut device = Device {
            name: String::new(),
            index,
            guid: guid_of(interface.mac, index),
            interface: String::new(),
            interface_index: interface.index,
            interface_mtu: 0,
            mtu: Mtu::default(),
            is_active: false,
            gids: Vec::new(),
            speed: None,
        };
        device.update(interface);
        device
    }

    /// Takes over what may change while a network device exists.
    fn update(&mut self, interface: &NetworkDevice) {
        self.interface.clone_from(&interface.name);
        self.interface_mtu = interface.mtu;
        self.mtu = Mtu::fitting(interface.mtu);
        self.is_active = interface.is_up && interface.has_carrier;
        self.speed = interface.speed;
        update_gids(&mut self.gids, &gids_of(interface));
    }

    /// The device when its network device is gone: no link, no address.
    pub fn without_interface(&self) -> Self {
        let gids = vec![Gid::EMPTY; self.gids.len()];
        Device { is_active: false, gids, ..self.clone() }
    }
}

fn gids_of(interface: &NetworkDevice) -> Vec<Gid> {
    let gid = |address: &IpAddr| {
        let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        Gid { address: *address, interface: if link_local { interface.index } else { 0 } }
    };
    interface.addresses.iter().map(gid).collect()
}

/// Takes over the addresses that an interface has now. Those that were there before keep their places.
fn update_gids(table: &mut Vec<Gid>, now: &[Gid]) {
    for entry in table.iter_mut() {
        if !now.contains(entry) {
            *entry = Gid::EMPTY;
        }
    }
    for gid in now {
        if !table.contains(gid) {
            match table.iter_mut().find(|entry| entry.is_empty()) {
                Some(empty) => *empty = *gid,
                None => table.push(*gid),
            }
        }
    }
}

/// EUI-64 of a hardware address; devices without one (loopback) are told apart by their place.
fn guid_of(mac: [u8; 6], index: u32) -> u64 {
    let [a, b, c, d, e, f] = mac;
    let f = if mac == [0; 6] { index as u8 + 1 } else { f };
    u64::from_be_bytes([a ^ 2, b, c, 0xFF, 0xFE, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(last: u8) -> Gid {
        Gid { address: IpAddr::from([10, 0, 0, last]), interface: 0 }
    }

    #[test]
    fn gids_keep_their_places() {
        let mut table = Vec::new();
        update_gids(&mut table, &[gid(1), gid(2), gid(3)]);
        update_gids(&mut table, &[gid(3), gid(1)]);
        assert_eq!(table, [gid(1), Gid::EMPTY, gid(3)]);
        update_gids(&mut table, &[gid(4), gid(5), gid(3), gid(1)]);
        assert_eq!(table, [gid(1), gid(4), gid(3), gid(5)]);
        update_gids(&mut table, &[]);
        assert!(table.iter().all(Gid::is_empty));
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn empty_gid_is_zero() {
        assert_eq!(Gid::EMPTY.raw(), [0; 16]);
    }
}
