//! Ethernet addresses of destinations. Pagewire itself needs none, as the kernel sends its packets; the providers' libraries and
//! a few programs ask.

use crate::abi::*;
use crate::boundary::{Errno, Result, status};
use crate::calls::Call;
use crate::limits::MAX_SYSTEM_FILE;
use crate::objects::context::ContextObject;
use crate::objects::object::{not_null, put};
use libc::{EHOSTUNREACH, EINVAL, ENODEV, c_int};
use pagewire_fabric::network_devices;
use pagewire_failures::Verb;
use pagewire_nic::device::{Device, address_of_gid};
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
type Mac = [u8; 6];

/// No VLAN tag.
const NO_VLAN: u16 = 0xFFFF;

fn read(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_SYSTEM_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

fn parse(text: &str) -> Option<Mac> {
    let mut mac = Mac::default();
    let mut parts = text.trim().split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// The multicast address on Ethernet (RFC 1112, section 6.4; RFC 2464, section 7).
fn multicast(address: IpAddr) -> Option<Mac> {
    match address {
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            Some([0x01, 0x00, 0x5E, b & 0x7F, c, d])
        }
        IpAddr::V6(v6) if v6.is_multicast() => {
            let octets = v6.octets();
            Some([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
        }
        _ => None,
    }
}

/// The address inside a link-local address made from it (modified EUI-64, RFC 4291, appendix A).
fn from_link_local(address: Ipv6Addr) -> Option<Mac> {
    let octets = address.octets();
    let made_from_it = octets[..2] == [0xFE, 0x80] && octets[11..13] == [0xFF, 0xFE];
    made_from_it.then(|| [octets[8] ^ 2, octets[9], octets[10], octets[13], octets[14], octets[15]])
}

/// The kernel's neighbour table: IPv4 only, which is all that it shows without a socket.
fn in_neighbour_table(table: &str, address: Ipv4Addr, interface: &str) -> Option<Mac> {
    let address = address.to_string();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        match fields[..] {
            [of, _, flags, mac, _, device] if of == address && device == interface && flags != "0x0" => {
                parse(mac)
            }
            _ => None,
        }
    })
}

fn resolve(device: &Device, destination: IpAddr) -> Result<Mac> {
    if device.gids.iter().any(|gid| address_of_gid(gid.raw()) == destination) {
        // Not from sysfs, which need not show this network namespace.
        let interfaces = network_devices()?;
        let own = interfaces.iter().find(|interface| interface.index == device.interface_index);
        return own.map(|interface| interface.mac).ok_or(Errno(ENODEV));
    }
    let found = multicast(destination).or_else(|| match destination {
        IpAddr::V4(v4) => in_neighbour_table(&read("/proc/net/arp")?, v4, &device.interface),
        IpAddr::V6(v6) => from_link_local(v6),
    });
    found.ok_or(Errno(EHOSTUNREACH))
}

/// `ibv_resolve_eth_l2_from_gid`: 0 or an `errno` value.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or valid; `mac` has room for 6 bytes; `vlan` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attributes: *mut ibv_ah_attr,
    mac: *mut u8,
    vlan: *mut u16,
) -> c_int {
    status(Call::on(Verb::ResolveEthL2FromGid, context), || {
        // SAFETY: the caller promises that each pointer is NULL or valid and that `mac` has room for 6 bytes; every
        // view of a GID is 16 plain bytes.
        unsafe {
            let device = ContextObject::of(context)?.context().port();
            let vector = &*not_null(attributes)?;
            if vector.is_global == 0 || usize::from(vector.grh.sgid_index) >= device.gids.len() {
                return Err(Errno(EINVAL));
            }
            let found = resolve(&device, address_of_gid(vector.grh.dgid.raw))?;
            not_null(mac)?.cast::<Mac>().write(found);
            put(vlan, NO_VLAN);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_addresses_are_mapped() {
        assert_eq!(multicast(Ipv4Addr::new(239, 129, 2, 3).into()), Some([0x01, 0, 0x5E, 1, 2, 3]));
        assert_eq!(multicast("ff02::1:ff00:1".parse().unwrap()), Some([0x33, 0x33, 0xFF, 0, 0, 1]));
        assert_eq!(multicast(Ipv4Addr::LOCALHOST.into()), None);
    }

    #[test]
    fn link_local_addresses_tell_theirs() {
        let address = "fe80::5054:ff:fe12:3456".parse().unwrap();
        assert_eq!(from_link_local(address), Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        assert_eq!(from_link_local("fe80::1".parse().unwrap()), None);
    }

    #[test]
    fn the_neighbour_table_is_read() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.0.0.2         0x1         0x2         52:54:00:aa:bb:cc     *        eth0\n\
                     10.0.0.3         0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        let look_up = |last, interface| in_neighbour_table(table, Ipv4Addr::new(10, 0, 0, last), interface);
        assert_eq!(look_up(2, "eth0"), Some([0x52, 0x54, 0, 0xAA, 0xBB, 0xCC]));
        assert_eq!(look_up(2, "eth1"), None);
        assert_eq!(look_up(3, "eth0"), None);
    }
}
