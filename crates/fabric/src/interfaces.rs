//! The network interfaces of this host and their addresses, as the kernel lists them.
//!
//! getifaddrs(3) asks by a netlink socket, which service managers forbid (RestrictAddressFamilies of systemd.exec(5)). Then ioctl(2) and /proc tell
//! (netdevice(7), proc_net(5)).

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage};
use rustix::net::{SocketFlags, SocketType, socket_with};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// IPv4 addresses that the ioctl is asked for at once.
const MOST_ADDRESSES: usize = 4096;

/// An address of an interface, or the interface alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub name: String,
    /// `IFF_UP`: switched on.
    pub is_up: bool,
    /// `IFF_LOWER_UP`, by which a kernel's RoCE device takes its port for active. `IFF_RUNNING` follows it up to a second later.
    pub has_carrier: bool,
    pub is_loopback: bool,
    pub address: Option<IpAddr>,
    /// The hardware address, in the entry that has one.
    pub mac: Option<[u8; 6]>,
}

/// All interfaces of this network namespace with their addresses, in no order.
///
/// # Errors
/// The kernel's answer to ioctl(2), where neither a netlink socket nor that tells.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    match by_netlink() {
        Ok(found) => Ok(found),
        Err(error) => {
            log::debug!("a netlink socket does not list the network interfaces: {error}");
            by_ioctl()
        }
    }
}

fn by_netlink() -> io::Result<Vec<InterfaceAddress>> {
    let entries = getifaddrs()?;
    let found = entries.map(|entry| InterfaceAddress {
        is_up: entry.flags.contains(InterfaceFlags::IFF_UP),
        has_carrier: entry.flags.contains(InterfaceFlags::IFF_LOWER_UP),
        is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        address: entry.address.as_ref().and_then(ip_of),
        mac: entry
            .address
            .as_ref()
            .and_then(SockaddrStorage::as_link_addr)
            .map(|link| link.addr().unwrap_or_default()),
        name: entry.interface_name,
    });
    Ok(found.collect())
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    match address.family()? {
        AddressFamily::Inet => Some(IpAddr::V4(address.as_sockaddr_in()?.ip())),
        AddressFamily::Inet6 => Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())),
        _ => None,
    }
}

fn by_ioctl() -> io::Result<Vec<InterfaceAddress>> {
    let socket = control_socket()?;
    let v6 = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
    let mut addresses = v4_addresses(&socket)?;
    addresses.extend(v6.lines().filter_map(v6_address));
    let names: BTreeSet<String> = addresses.iter().map(|(name, _)| name.clone()).collect();
    let mut found = Vec::new();
    for name in names {
        // It may go meanwhile.
        let Ok(flags) = flags_of(&socket, &name) else { continue };
        let entry = InterfaceAddress {
            is_up: flags & libc::IFF_UP != 0,
            // The ioctl has no bit for IFF_LOWER_UP.
            has_carrier: flags & libc::IFF_RUNNING != 0,
            is_loopback: flags & libc::IFF_LOOPBACK != 0,
            address: None,
            mac: mac_of(&socket, &name).ok(),
            name,
        };
        let own = addresses.iter().filter(|(name, _)| *name == entry.name);
        found.extend(own.map(|(_, address)| InterfaceAddress {
            address: Some(*address),
            mac: None,
            ..entry.clone()
        }));
        found.push(entry);
    }
    Ok(found)
}

/// A socket for questions about interfaces.
///
/// # Errors
/// The kernel's, where it has neither IPv4 nor IPv6 sockets for this process.
pub fn control_socket() -> io::Result<OwnedFd> {
    use rustix::net::AddressFamily;
    let open = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    Ok(open(AddressFamily::INET).or_else(|_| open(AddressFamily::INET6))?)
}

/// A line of /proc/net/if_inet6: address, index, length of the prefix, scope, flags, name.
fn v6_address(line: &str) -> Option<(String, IpAddr)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [address, _, _, _, _, name] = fields[..] else { return None };
    Some((name.to_owned(), IpAddr::V6(Ipv6Addr::from(u128::from_str_radix(address, 16).ok()?))))
}

/// The IPv4 addresses with the names of their interfaces.
fn v4_addresses(socket: &OwnedFd) -> io::Result<Vec<(String, IpAddr)>> {
    // SAFETY: zero is a valid ifreq.
    let mut entries = vec![unsafe { std::mem::zeroed::<libc::ifreq>() }; MOST_ADDRESSES];
    let mut list = libc::ifconf {
        ifc_len: size_of_val(&entries[..]) as libc::c_int,
        ifc_ifcu: libc::__c_anonymous_ifc_ifcu { ifcu_req: entries.as_mut_ptr() },
    };
    // SAFETY: SIOCGIFCONF writes at most ifc_len bytes to the entries, which live until it has returned, and says in ifc_len how many
    // (netdevice(7)).
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFCONF, &raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let count = usize::try_from(list.ifc_len).unwrap_or(0) / size_of::<libc::ifreq>();
    Ok(entries.iter().take(count).filter_map(v4_address).collect())
}

fn v4_address(entry: &libc::ifreq) -> Option<(String, IpAddr)> {
    // SAFETY: SIOCGIFCONF fills the address, whose bytes are of any value.
    let address = unsafe { entry.ifr_ifru.ifru_addr };
    if address.sa_family != libc::AF_INET as libc::sa_family_t {
        return None;
    }
    // struct sockaddr_in: port (2 bytes), then the address.
    let [_, _, a, b, c, d, ..] = address.sa_data.map(|byte| byte as u8);
    let name: Vec<u8> = entry.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    // Behind a colon: a label of the address (netdevice(7), interface aliases).
    let name = name.split(|byte| *byte == b':').next()?;
    Some((String::from_utf8_lossy(name).into_owned(), IpAddr::V4(Ipv4Addr::new(a, b, c, d))))
}

/// A question about the interface of a name.
///
/// # Errors
/// `InvalidInput`: the name is too long.
pub fn question(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zero is a valid ifreq.
    let mut question: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= question.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in question.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(question)
}

fn flags_of(socket: &OwnedFd, name: &str) -> io::Result<libc::c_int> {
    let mut question = question(name)?;
    // SAFETY: SIOCGIFFLAGS takes a named ifreq and fills ifru_flags (netdevice(7)).
    unsafe {
        match libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut question) {
            0 => Ok(libc::c_int::from(question.ifr_ifru.ifru_flags)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn mac_of(socket: &OwnedFd, name: &str) -> io::Result<[u8; 6]> {
    let mut question = question(name)?;
    // SAFETY: SIOCGIFHWADDR takes a named ifreq and fills ifru_hwaddr (netdevice(7)).
    let address = unsafe {
        match libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut question) {
            0 => question.ifr_ifru.ifru_hwaddr,
            _ => return Err(io::Error::last_os_error()),
        }
    };
    let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte as u8);
    Ok([a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever order they come in.
    #[test]
    fn ioctl_tells_what_netlink_tells() {
        let sorted = |found: Vec<InterfaceAddress>| {
            let with_address = found.iter().filter(|entry| entry.address.is_some() && entry.is_up);
            let mut all: Vec<_> =
                with_address.map(|entry| (entry.name.clone(), entry.address, entry.is_loopback)).collect();
            all.sort();
            let mut macs: Vec<_> = found
                .iter()
                .filter_map(|entry| Some((entry.name.clone(), entry.mac?)))
                .filter(|(name, _)| all.iter().any(|(other, ..)| other == name))
                .collect();
            macs.sort();
            (all, macs)
        };
        assert_eq!(sorted(by_ioctl().unwrap()), sorted(by_netlink().unwrap()));
    }

    #[test]
    fn lines_of_ipv6_addresses_are_read() {
        let line = "20010db8000000000000000000000001 03 40 00 80    veth1";
        assert_eq!(v6_address(line), Some(("veth1".to_owned(), "2001:db8::1".parse().unwrap())));
        assert!(v6_address("nonsense").is_none() && v6_address("zz 1 2 3 4 a").is_none());
    }
}
