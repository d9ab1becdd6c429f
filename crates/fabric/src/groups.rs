//! Multicast groups (RFC 1112, RFC 3810): the kernel delivers a copy of each datagram to every socket of a port, once anybody of the host has
//! joined its group.

use crate::descriptors::Descriptor;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::any::Any;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// As long as it lives datagrams to a group come in at an interface.
#[derive(Debug)]
pub struct GroupMembership {
    _keeps: Box<dyn Any + Send + Sync>,
}

impl GroupMembership {
    /// One that ends when what it keeps is dropped.
    pub fn new(keeps: impl Any + Send + Sync) -> Self {
        GroupMembership { _keeps: Box::new(keeps) }
    }
}

/// Joins a group at the interface with this index.
///
/// # Errors
/// The kernel's.
pub fn join(group: IpAddr, interface: u32) -> io::Result<GroupMembership> {
    // A socket of its own: one has few memberships at most (net.ipv4.igmp_max_memberships).
    let family = if group.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = Descriptor::new(socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)?;
    match group {
        IpAddr::V4(group) => {
            let any = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &any, interface)?;
        }
        IpAddr::V6(group) => sockopt::set_ipv6_add_membership(&socket, &group, interface)?,
    }
    Ok(GroupMembership::new(socket))
}
