//! Addresses of programs, and the devices that have them.

use super::abi::Address;
use crate::boundary::{Errno, Result};
use crate::devices::device_list::devices;
use libc::{AF_INET, AF_INET6, EADDRNOTAVAIL, EINVAL, ENETUNREACH, ENODEV};
use pagewire_fabric::socket_at;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::device::Device;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the route to an address is looked up with; nothing is sent there.
const ANY_PORT: u16 = 4791;

/// A device, and the place of an address in its GID table.
#[derive(Debug, Clone)]
pub struct LocalDevice {
    pub device: Device,
    pub gid_index: u8,
}

/// Reads an address; `None`: its family is 0, so it is none.
///
/// # Errors
/// EINVAL: it is of no family of IP.
pub fn read(address: &Address) -> Result<Option<SocketAddr>> {
    let port = u16::from_be_bytes(address.port);
    let rest = &address.rest;
    match i32::from(address.family) {
        0 => Ok(None),
        AF_INET => {
            let octets: [u8; 4] = [rest[0], rest[1], rest[2], rest[3]];
            Ok(Some(SocketAddr::new(Ipv4Addr::from(octets).into(), port)))
        }
        AF_INET6 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&rest[4..20]);
            let scope = u32::from_ne_bytes([rest[20], rest[21], rest[22], rest[23]]);
            Ok(Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into()))
        }
        _ => Err(Errno(EINVAL)),
    }
}

/// An address as programs read it.
pub fn write(address: Option<SocketAddr>) -> Address {
    let mut rest = [0; 24];
    let Some(address) = address else { return Address { family: 0, port: [0; 2], rest } };
    let family = match address {
        SocketAddr::V4(address) => {
            rest[..4].copy_from_slice(&address.ip().octets());
            AF_INET
        }
        SocketAddr::V6(address) => {
            rest[4..20].copy_from_slice(&address.ip().octets());
            rest[20..].copy_from_slice(&address.scope_id().to_ne_bytes());
            AF_INET6
        }
    };
    Address { family: family as u16, port: address.port().to_be_bytes(), rest }
}

/// The devices as they were a moment ago: the kernel takes longer to list its network devices than a connection takes.
static LISTED: PerProcess<Option<(Instant, Arc<[Device]>)>> = PerProcess::new();
/// For so long the list is taken for true. An address that it lacks is looked for in a new one.
const LIST_AGE: Duration = Duration::from_millis(100);

fn list(is_new: bool) -> Result<Arc<[Device]>> {
    let mut listed = LISTED.lock();
    let now = Instant::now();
    let young = listed.as_ref().filter(|(at, _)| !is_new && now.duration_since(*at) < LIST_AGE);
    if let Some((_, devices)) = young {
        return Ok(devices.clone());
    }
    let devices: Arc<[Device]> = devices()?.into();
    *listed = Some((now, devices.clone()));
    Ok(devices)
}

/// The network interfaces that have devices now.
///
/// # Errors
/// The kernel's, where it does not tell its network devices.
pub fn interfaces() -> Result<BTreeSet<u32>> {
    Ok(list(true)?.iter().map(|device| device.interface_index).collect())
}

/// The device that has an address.
///
/// # Errors
/// ENODEV: none has; else the kernel's, where it does not tell its network devices.
pub fn device_of(address: IpAddr) -> Result<LocalDevice> {
    if let Some(found) = device_among(&list(false)?, address) {
        return Ok(found);
    }
    device_among(&list(true)?, address).ok_or(Errno(ENODEV))
}

fn device_among(devices: &[Device], address: IpAddr) -> Option<LocalDevice> {
    devices.iter().find_map(|device| {
        let index = device.gids.iter().position(|gid| !gid.is_empty() && gid.address == address)?;
        Some(LocalDevice { device: device.clone(), gid_index: u8::try_from(index).ok()? })
    })
}

/// The first address of a device in a family, for a peer at a loopback address, which no device has.
///
/// # Errors
/// ENODEV: there is none.
fn first_address(is_ipv4: bool) -> Result<IpAddr> {
    let all = list(false)?;
    let addresses = all.iter().flat_map(|device| &device.gids).filter(|gid| !gid.is_empty());
    addresses.map(|gid| gid.address).find(|address| address.is_ipv4() == is_ipv4).ok_or(Errno(ENODEV))
}

/// The numbers of the users who have sockets at a UDP port; `None`: the kernel does not tell, or there are none.
pub fn users_of_udp_port(port: u16) -> Option<Vec<u32>> {
    let mut users = Vec::new();
    for file in ["/proc/self/net/udp", "/proc/self/net/udp6"] {
        // A host without IPv6 lacks one.
        let table = std::fs::read_to_string(file).unwrap_or_default();
        users.extend(table.lines().skip(1).filter_map(|line| user_of(line, port)));
    }
    (!users.is_empty()).then_some(users)
}

/// The user of a line of that table (proc_net_udp(5)), if it is of the port.
fn user_of(line: &str, port: u16) -> Option<u32> {
    let mut fields = line.split_whitespace();
    let (_, own) = fields.nth(1)?.rsplit_once(':')?;
    let is_port = u16::from_str_radix(own, 16) == Ok(port);
    is_port.then(|| fields.nth(5)?.parse().ok())?
}

/// An address of a side of a connection with its port, and with the interface that a link-local one needs.
pub fn with_port(address: IpAddr, port: u16, local: Option<&LocalDevice>) -> SocketAddr {
    match address {
        IpAddr::V6(own) if own.is_unicast_link_local() => {
            let scope = local.map_or(0, |local| local.device.interface_index);
            SocketAddrV6::new(own, port, 0, scope).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

/// Checks that a link-local address names its interface, as the kernel does.
///
/// # Errors
/// EINVAL: it does not.
pub fn check_scope(address: &SocketAddr) -> Result<()> {
    match address {
        SocketAddr::V6(own) if own.ip().is_unicast_link_local() && own.scope_id() == 0 => Err(Errno(EINVAL)),
        _ => Ok(()),
    }
}

/// The device and the addresses of both sides of a connection to `destination`: `source`, if it is given, or the one that the kernel would send from. A
/// loopback address stands for this host, and becomes the first address of a device.
///
/// # Errors
/// EINVAL: the families differ, or a link-local address names no interface; ENODEV: no device has the source; ENETUNREACH or another one of
/// the kernel: there is no route.
pub fn resolve(source: Option<IpAddr>, destination: &SocketAddr) -> Result<(LocalDevice, IpAddr, IpAddr)> {
    check_scope(destination)?;
    let scope = match destination {
        SocketAddr::V6(destination) => destination.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let destination = destination.ip();
    let source = source.filter(|source| !source.is_unspecified());
    if source.is_some_and(|source| source.is_ipv4() != destination.is_ipv4()) {
        return Err(Errno(EINVAL));
    }
    let destination = if destination.is_loopback() || destination.is_unspecified() {
        match source.filter(|source| !source.is_loopback()) {
            Some(source) => source,
            None => first_address(destination.is_ipv4())?,
        }
    } else {
        destination
    };
    let source = match source.filter(|source| !source.is_loopback()) {
        Some(source) => source,
        None => {
            let any: IpAddr = if destination.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = socket_at(any)?;
            let mut probed = SocketAddr::new(destination, ANY_PORT);
            if let SocketAddr::V6(probed) = &mut probed {
                probed.set_scope_id(scope);
            }
            socket.connect(probed).map_err(|error| Errno(error.raw_os_error().unwrap_or(ENETUNREACH)))?;
            socket.local_addr()?.ip()
        }
    };
    Ok((device_of(source)?, source, destination))
}

/// The device of an address that an endpoint may be bound to; `None`: the address is one for all.
///
/// # Errors
/// EADDRNOTAVAIL: it is none of this host.
pub fn own_device(address: IpAddr) -> Result<Option<LocalDevice>> {
    match device_of(address) {
        Ok(found) => Ok(Some(found)),
        Err(_) if address.is_unspecified() || address.is_loopback() => Ok(None),
        Err(_) => Err(Errno(EADDRNOTAVAIL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn link_local_addresses_need_an_interface() {
        let link_local: Ipv6Addr = "fe80::1".parse().unwrap();
        let scoped = |scope| SocketAddr::from(SocketAddrV6::new(link_local, 5, 0, scope));
        assert_eq!(check_scope(&scoped(0)), Err(Errno(EINVAL)));
        assert_eq!(check_scope(&scoped(3)), Ok(()));
        assert_eq!(check_scope(&"[2001:db8::1]:5".parse().unwrap()), Ok(()));
        assert_eq!(resolve(None, &scoped(0)).unwrap_err(), Errno(EINVAL));
        // Programs read back what they have written.
        assert_eq!(read(&write(Some(scoped(3)))).unwrap(), Some(scoped(3)));
    }

    #[test]
    fn users_of_a_port_are_found() {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(users_of_udp_port(port), Some(vec![rustix::process::geteuid().as_raw()]));
        drop(socket);
        let line = "  42: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 99 2 0000 0";
        assert_eq!((user_of(line, 4791), user_of(line, 4792), user_of("sl", 1)), (Some(1000), None, None));
    }
}
