//! The network devices of this host, and its addresses.

use crate::interfaces::{control_socket, interface_addresses, question};
use crate::limits::ADDRESSES_TIME;
use nix::net::if_::if_nametoindex;
use pagewire_memory::Uncancelled;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkDevice {
    pub name: String,
    /// Interface index.
    pub index: u32,
    /// `IFF_UP`: switched on.
    pub is_up: bool,
    /// `IFF_LOWER_UP`: it has a carrier.
    pub has_carrier: bool,
    /// Bytes of the largest IP datagram.
    pub mtu: u32,
    /// IPv4 first, then IPv6, link-local ones last.
    pub addresses: Vec<IpAddr>,
    /// Hardware address; zero where the device has none.
    pub mac: [u8; 6],
    pub is_loopback: bool,
    /// Megabits a second, where the driver tells.
    pub speed: Option<u32>,
    pub has_default_route: bool,
}

/// All network devices that are up and have an address that can be used: the one with the default route first, those that
/// have link-local addresses only last, else by index. The loopback device only where there is no other.
///
/// # Errors
/// The kernel's.
pub fn network_devices() -> io::Result<Vec<NetworkDevice>> {
    Ok(usable_network_devices(&all_network_devices()?))
}

/// Those of [`network_devices`] among all.
pub fn usable_network_devices(all: &[NetworkDevice]) -> Vec<NetworkDevice> {
    let is_usable = |device: &&NetworkDevice| device.is_up && !device.addresses.is_empty();
    let mut devices: Vec<NetworkDevice> = all.iter().filter(is_usable).cloned().collect();
    if devices.iter().any(|device| !device.is_loopback) {
        devices.retain(|device| !device.is_loopback);
    }
    devices.sort_by_key(|device| {
        (!device.has_default_route, device.has_only_link_local_addresses(), device.index)
    });
    devices
}

/// All network devices, also those that are down or have no address that can be used, by index.
///
/// # Errors
/// The kernel's.
pub fn all_network_devices() -> io::Result<Vec<NetworkDevice>> {
    let mut devices: BTreeMap<u32, NetworkDevice> = BTreeMap::new();
    let default = default_route_device();
    let unusable =
        unusable_addresses(&std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default());
    for entry in interface_addresses()? {
        // A device may go between the two calls.
        let Ok(index) = if_nametoindex(entry.name.as_str()) else { continue };
        let device = devices.entry(index).or_insert_with(|| NetworkDevice {
            mtu: 0,
            speed: None,
            addresses: Vec::new(),
            mac: [0; 6],
            is_up: entry.is_up,
            has_carrier: entry.has_carrier,
            is_loopback: entry.is_loopback,
            has_default_route: default.as_deref() == Some(entry.name.as_str()),
            name: entry.name,
            index,
        });
        if let Some(mac) = entry.mac {
            device.mac = mac;
        }
        device.addresses.extend(entry.address.filter(|ip| !unusable.contains(&(index, *ip))));
    }
    let mut devices: Vec<NetworkDevice> = devices.into_values().collect();
    let mut gone = Vec::new();
    for device in &mut devices {
        device.mtu = match mtu_of(&device.name) {
            Ok(mtu) => mtu,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                gone.push(device.index);
                continue;
            }
            Err(error) => return Err(error),
        };
        device.speed = speed_of(device);
        device.addresses.sort_by_key(|address| match address {
            IpAddr::V4(_) => 0,
            IpAddr::V6(address) if address.is_unicast_link_local() => 2,
            IpAddr::V6(_) => 1,
        });
    }
    // A device that went away while it was looked at has no MTU.
    devices.retain(|device| !gone.contains(&device.index));
    Ok(devices)
}

impl NetworkDevice {
    fn has_only_link_local_addresses(&self) -> bool {
        self.addresses.iter().all(|address| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
    }
}

/// IPv6 addresses that cannot be used yet, or never will (with their interface's index): duplicate address detection
/// (RFC 4862) is under way for up to 2 s after an interface came up, or has found a duplicate. Until it is over the kernel takes
/// no packet from such an address, and answers none to it. `list`: /proc/net/if_inet6.
fn unusable_addresses(list: &str) -> HashSet<(u32, IpAddr)> {
    list.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let address = u128::from_str_radix(fields.next()?, 16).ok()?;
            let index = u32::from_str_radix(fields.next()?, 16).ok()?;
            let flags = u32::from_str_radix(fields.nth(2)?, 16).ok()?;
            let unusable = flags & (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) != 0
                && flags & libc::IFA_F_OPTIMISTIC == 0;
            unusable.then_some((index, IpAddr::V6(Ipv6Addr::from(address))))
        })
        .collect()
}

/// The device of the default route, IPv4's if there is one. /proc/self/net follows the process's network namespace, which
/// sysfs need not.
fn default_route_device() -> Option<String> {
    let v4 = std::fs::read_to_string("/proc/self/net/route").unwrap_or_default();
    let from_v4 = v4.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000"))
            .then(|| fields[0].to_owned())
    });
    from_v4.or_else(|| {
        let v6 = std::fs::read_to_string("/proc/self/net/ipv6_route").unwrap_or_default();
        v6.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_default =
                fields.first()?.bytes().all(|digit| digit == b'0') && fields.get(1) == Some(&"00");
            let device = *fields.get(9)?;
            (is_default && device != "lo").then(|| device.to_owned())
        })
    })
}

fn mtu_of(name: &str) -> io::Result<u32> {
    let socket = control_socket()?;
    let mut question = question(name)?;
    // SAFETY: SIOCGIFMTU takes a named ifreq and fills ifru_mtu (netdevice(7)).
    unsafe {
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut question) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u32::try_from(question.ifr_ifru.ifru_mtu).unwrap_or(0))
    }
}

/// From sysfs, if that shows this network namespace.
fn speed_of(device: &NetworkDevice) -> Option<u32> {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{}/{file}", device.name)).ok();
    if read("ifindex")?.trim().parse() != Ok(device.index) {
        return None;
    }
    let speed: i64 = read("speed")?.trim().parse().ok()?;
    u32::try_from(speed).ok().filter(|speed| *speed > 0)
}

/// The addresses of this host, looked up anew from time to time.
#[derive(Default)]
pub struct Addresses(Mutex<Option<(u64, HashSet<IpAddr>)>>);

/// The addresses of this network namespace, now.
fn all_addresses() -> io::Result<HashSet<IpAddr>> {
    let _uncancelled = Uncancelled::begin();
    Ok(interface_addresses()?.into_iter().filter_map(|entry| entry.address).collect())
}

impl Addresses {
    /// Has the next call look them up anew.
    pub fn forget(&self) {
        if let Some((at, _)) = &mut *self.0.lock() {
            *at = 0;
        }
    }

    /// Whether an address is one of this network namespace's: as it was last known, where the kernel does not tell.
    ///
    /// # Errors
    /// One sentence, where it was never known.
    pub fn contains(&self, address: IpAddr, now: u64) -> Result<bool, String> {
        if address.is_loopback() {
            return Ok(true);
        }
        let mut known = self.0.lock();
        let is_fresh = |at: u64| now.saturating_sub(at) < ADDRESSES_TIME * 1_000_000;
        if !known.as_ref().is_some_and(|(at, _)| is_fresh(*at)) {
            match (all_addresses(), &mut *known) {
                (Ok(addresses), known) => *known = Some((now, addresses)),
                (Err(error), Some((at, _))) => {
                    log::debug!("the addresses of this host may be others: {error}");
                    *at = now;
                }
                (Err(error), None) => {
                    return Err(format!("the addresses of this host are not known: {error}"));
                }
            }
        }
        Ok(known.as_ref().is_some_and(|(_, addresses)| addresses.contains(&address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_under_detection_are_not_used() {
        // Address, interface, length of the prefix, scope, flags, name: tentative, permanent, duplicate, optimistic.
        let list = "\
fe80000000000000541fabfffe000001 02 40 20 c0    veth0
fe80000000000000541fabfffe000002 03 40 20 80    veth1
20010db8000000000000000000000001 03 40 00 88    veth1
20010db8000000000000000000000002 0a 40 00 44    veth2
";
        let expected = [(2, "fe80::541f:abff:fe00:1"), (3, "2001:db8::1")];
        let expected = expected.map(|(index, address)| (index, address.parse().unwrap()));
        assert_eq!(unusable_addresses(list), HashSet::from(expected));
        assert!(unusable_addresses("nonsense\n\nfe80 zz\n").is_empty());
    }
}
