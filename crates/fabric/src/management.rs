//! Datagrams to queue pair 1, handed to the process of this host that they are for.
//!
//! Every process has a queue pair 1, and any of those that share UDP port 4791 may receive what is sent there. The process that is meant
//! holds a name in the abstract UNIX namespace: one for each port of the connection manager that it owns, and one for the block from which
//! it takes communication IDs. A name belongs to one process at a time, for a network namespace, and is free again when that process ends:
//! so names are what makes a port somebody's, too.
//!
//! Any process can write to an abstract name. So of another user only those messages are taken which it could have sent by itself, with an
//! address of this host. The others are told apart: they came from the network to a process of a user who is not trusted with them. What a
//! message says is as untrusted as any datagram.

use crate::descriptors::Descriptor;
use crate::forward::octets;
use crate::limits::MESSAGES_IN_A_ROW;
use crate::{names, sockets};
use pagewire_wire::cm::DATAGRAM_LEN;
use rustix::net::{SocketAddrUnix, connect};
use rustix::process::{Uid, geteuid};
use std::io;
use std::net::{IpAddr, Ipv6Addr};

const MESSAGE: usize = ADDRESSES + DATAGRAM_LEN;
/// Who sent it, to whom, and whether it came encrypted.
const ADDRESSES: usize = 16 + 16 + 1;
const ENCRYPTED: u8 = 1;

/// Who a datagram to queue pair 1 is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ManagementTarget {
    /// The process that owns a port.
    Port {
        /// The number of the port space.
        space: u16,
        /// The port.
        port: u16,
    },
    /// The process whose communication IDs begin so.
    CommIds(u16),
    /// The process that owns a block of ports, on which nobody listens.
    PortBlock {
        /// The number of the port space.
        space: u16,
        /// The first port.
        first: u16,
    },
}

/// A datagram to queue pair 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagementDatagram {
    /// Who sent it.
    pub source: IpAddr,
    /// The address of this host that it was sent to.
    pub destination: IpAddr,
    /// What it says.
    pub payload: [u8; DATAGRAM_LEN],
}

/// Through whose hands a datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// Those of this user or root, to which it came encrypted.
    Encrypted,
    /// Those of this user or root, or its sender is of this host.
    Trusted,
    /// Those of another user, who has UDP port 4791: it may have read the datagram, or made it up.
    Foreign,
}

/// Takes datagrams of a target, as long as it lives.
#[derive(Debug)]
pub struct ManagementSocket(Descriptor);

impl ManagementSocket {
    /// Becomes the owner of a target.
    ///
    /// # Errors
    /// `AddrInUse`: another process is, or this one; else the kernel's.
    pub fn claim(target: ManagementTarget) -> io::Result<Self> {
        let socket = names::datagrams(Some(&name(target)?))?;
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        Ok(ManagementSocket(socket))
    }

    /// Whether a process is the owner of a target now. Where that cannot be found out nobody is kept from it: the claim tells.
    pub fn is_owned(target: ManagementTarget) -> bool {
        Self::has_owner(target).unwrap_or(false)
    }

    /// As [`is_owned`](Self::is_owned).
    ///
    /// # Errors
    /// The kernel's, where it does not tell: no descriptors.
    pub fn has_owner(target: ManagementTarget) -> io::Result<bool> {
        let socket = names::datagrams(None)?;
        match connect(&socket, &name(target)?) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::CONNREFUSED) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The next datagram to an address of this host, and whether it is to be believed; `None`: there is none now. `is_local` tells whether an address is one of this host.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(
        &self,
        is_local: impl Fn(IpAddr) -> bool,
    ) -> io::Result<Option<(ManagementDatagram, Handover)>> {
        let mut buffer = [0; MESSAGE + 1];
        for _ in 0..MESSAGES_IN_A_ROW {
            let received = sockets::receive_datagram(&self.0, &mut buffer)?;
            let Some((length, sender)) = received else { return Ok(None) };
            let datagram = ManagementDatagram::parse(&buffer[..length]);
            let Some(datagram) = datagram.filter(|datagram| is_local(datagram.destination)) else { continue };
            let is_trusted = sender == geteuid().as_raw() || Uid::from_raw(sender).is_root();
            let handover = match is_trusted {
                true if buffer[ADDRESSES - 1] == ENCRYPTED => Handover::Encrypted,
                false if !is_local(datagram.source) => Handover::Foreign,
                _ => Handover::Trusted,
            };
            return Ok(Some((datagram, handover)));
        }
        Ok(None)
    }
}

impl std::os::fd::AsFd for ManagementSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Hands a datagram to the owner of a target; `is_encrypted`: this process takes nothing from other hosts that is not encrypted.
///
/// # Errors
/// `ConnectionRefused`: nobody owns it. `WouldBlock`: the owner has not taken earlier ones.
pub(crate) fn deliver(
    socket: &Descriptor,
    target: ManagementTarget,
    datagram: &ManagementDatagram,
    is_encrypted: bool,
) -> io::Result<()> {
    sockets::send_datagram(socket, &name(target)?, &datagram.addresses(is_encrypted), &datagram.payload)
}

fn name(target: ManagementTarget) -> io::Result<SocketAddrUnix> {
    match target {
        ManagementTarget::Port { space, port } => names::of_cm_port(space, port),
        ManagementTarget::CommIds(block) => names::of_comm_ids(block),
        ManagementTarget::PortBlock { space, first } => names::of_cm_port_block(space, first),
    }
}

impl ManagementDatagram {
    fn addresses(&self, is_encrypted: bool) -> [u8; ADDRESSES] {
        let mut bytes = [0; ADDRESSES];
        bytes[ADDRESSES - 1] = if is_encrypted { ENCRYPTED } else { 0 };
        for (at, address) in [(0, self.source), (16, self.destination)] {
            bytes[at..at + 16].copy_from_slice(&octets(address));
        }
        bytes
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let message: &[u8; MESSAGE] = message.try_into().ok()?;
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = message[at..at + 16].try_into().ok()?;
            Some(Ipv6Addr::from(octets).to_canonical())
        };
        let payload = *message.last_chunk()?;
        Some(ManagementDatagram { source: address(0)?, destination: address(16)?, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_has_one_owner_who_gets_its_datagrams() {
        // A port that no other test has: the name is one of the whole network namespace.
        let target = ManagementTarget::Port { space: 0xFFFF, port: std::process::id() as u16 };
        let sender = names::datagrams(None).unwrap();
        let datagram = ManagementDatagram {
            source: [192, 0, 2, 1].into(),
            destination: "2001:db8::1".parse().unwrap(),
            payload: std::array::from_fn(|at| at as u8),
        };
        let refused = deliver(&sender, target, &datagram, false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(!ManagementSocket::has_owner(target).unwrap());
        let owner = ManagementSocket::claim(target).unwrap();
        assert!(ManagementSocket::has_owner(target).unwrap());
        assert_eq!(ManagementSocket::claim(target).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        deliver(&sender, target, &datagram, true).unwrap();
        assert_eq!(owner.receive(|_| true).unwrap(), Some((datagram.clone(), Handover::Encrypted)));
        deliver(&sender, target, &datagram, false).unwrap();
        // Neither too short nor too long is one.
        for bytes in [&[7; 20][..], &[7; 400]] {
            sockets::send_datagram(&sender, &name(target).unwrap(), bytes, &[]).unwrap();
        }
        assert_eq!(owner.receive(|_| true).unwrap(), Some((datagram, Handover::Trusted)));
        assert_eq!(owner.receive(|_| false).unwrap(), None);
        drop(owner);
        ManagementSocket::claim(target).unwrap();
    }
}
