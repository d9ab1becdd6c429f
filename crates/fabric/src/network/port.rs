//! A UDP port: a socket for each family that this host has.

use crate::descriptors::Descriptor;
use crate::udp::{self, Family};
use std::io;

/// One UDP port.
pub struct UdpPort {
    pub number: u16,
    sockets: [Option<Descriptor>; 2],
}

impl UdpPort {
    /// Binds a socket for each family that this host has, `shared` with other processes of this user.
    pub fn open(number: u16, shared: bool) -> io::Result<Self> {
        let v4 = if_supported(udp::open(Family::V4, number, shared))?;
        let v6 = match if_supported(udp::open(Family::V6, number, shared)) {
            // Somebody holds 4791 for IPv6 alone: IPv4 is what most peers use.
            Err(error) if shared && v4.is_some() => {
                log::debug!("no IPv6 socket: {error}");
                None
            }
            other => other?,
        };
        if v4.is_none() && v6.is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this host has neither IPv4 nor IPv6"));
        }
        Ok(UdpPort { number, sockets: [v4, v6] })
    }

    /// That of a family.
    #[inline]
    pub fn socket(&self, family: Family) -> Option<&Descriptor> {
        self.sockets[family as usize].as_ref()
    }

    /// Those that there are.
    pub fn sockets(&self) -> impl Iterator<Item = (Family, &Descriptor)> {
        Family::ALL.into_iter().filter_map(|family| Some((family, self.socket(family)?)))
    }
}

fn if_supported(socket: io::Result<Descriptor>) -> io::Result<Option<Descriptor>> {
    match socket {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {
            Ok(None)
        }
        other => other.map(Some),
    }
}
