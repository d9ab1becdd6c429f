//! Ports: each belongs to one process of a network namespace ([`ManagementSocket`]), and inside that to one endpoint, or to several at
//! different addresses.

use crate::boundary::{Errno, Result};
use libc::{EADDRINUSE, EADDRNOTAVAIL};
use pagewire_fabric::{ManagementSocket, ManagementTarget};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Where the system's range of ephemeral ports stands.
const RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// That range where the file cannot be read.
const USUAL_RANGE: (u16, u16) = (32_768, 60_999);

/// A port that this process owns, as long as an endpoint holds it.
#[derive(Debug)]
pub struct OwnedPort {
    pub port: u16,
    pub socket: ManagementSocket,
}

/// The ports that endpoints of this process hold.
#[derive(Debug, Default)]
pub struct PortTable {
    owned: HashMap<(u16, u16), Weak<OwnedPort>>,
    /// Which endpoint is at which address of a port.
    bound: HashMap<u32, BoundAddress>,
}

#[derive(Debug, Clone, Copy)]
struct BoundAddress {
    space: u16,
    port: u16,
    address: IpAddr,
    is_shared: bool,
}

impl PortTable {
    /// Gives an endpoint a port at an address; 0: one that nobody has. `is_shared`: it and another one that says so may have the same.
    ///
    /// # Errors
    /// EADDRINUSE: another process owns the port, or another endpoint has it at this address; EADDRNOTAVAIL: another has it at all addresses,
    /// or no port is free.
    pub fn bind(
        &mut self,
        id: u32,
        (space, port): (u16, u16),
        address: IpAddr,
        is_shared: bool,
    ) -> Result<Arc<OwnedPort>> {
        let owned = if port == 0 { self.claim_any(space)? } else { self.claim(space, port)? };
        let wanted = BoundAddress { space, port: owned.port, address, is_shared };
        self.check(id, &wanted)?;
        self.bound.insert(id, wanted);
        Ok(owned)
    }

    /// An endpoint has no port any more.
    pub fn release(&mut self, id: u32) {
        self.bound.remove(&id);
        self.owned.retain(|_, owned| owned.strong_count() > 0);
    }

    fn check(&self, id: u32, wanted: &BoundAddress) -> Result<()> {
        for (other, bound) in &self.bound {
            let is_same_port = (bound.space, bound.port) == (wanted.space, wanted.port);
            if *other == id || !is_same_port || bound.is_shared && wanted.is_shared {
                continue;
            }
            let is_for_all = |address: IpAddr| address.is_unspecified() || address.is_loopback();
            if bound.address == wanted.address {
                return Err(Errno(EADDRINUSE));
            }
            if is_for_all(bound.address) || is_for_all(wanted.address) {
                return Err(Errno(EADDRNOTAVAIL));
            }
        }
        Ok(())
    }

    fn claim(&mut self, space: u16, port: u16) -> Result<Arc<OwnedPort>> {
        if let Some(owned) = self.owned.get(&(space, port)).and_then(Weak::upgrade) {
            return Ok(owned);
        }
        let socket = ManagementSocket::claim(ManagementTarget::Port { space, port })?;
        let owned = Arc::new(OwnedPort { port, socket });
        self.owned.insert((space, port), Arc::downgrade(&owned));
        Ok(owned)
    }

    /// One of the system's ephemeral ports, from a random one on.
    fn claim_any(&mut self, space: u16) -> Result<Arc<OwnedPort>> {
        let (first, last) = ephemeral_range();
        let count = u32::from(last - first) + 1;
        let start = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec as u32 % count;
        for step in 0..count {
            let port = first + ((start + step) % count) as u16;
            if self.owned.contains_key(&(space, port)) {
                continue;
            }
            match ManagementSocket::claim(ManagementTarget::Port { space, port }) {
                Ok(socket) => {
                    let owned = Arc::new(OwnedPort { port, socket });
                    self.owned.insert((space, port), Arc::downgrade(&owned));
                    return Ok(owned);
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno(EADDRNOTAVAIL))
    }
}

fn ephemeral_range() -> (u16, u16) {
    let text = std::fs::read_to_string(RANGE_FILE).unwrap_or_default();
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(last)) if first > 0 && first <= last => (first, last),
        _ => USUAL_RANGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_of_a_port_exclude_each_other() {
        let mut table = PortTable::default();
        let here = |last| IpAddr::from([192, 0, 2, last]);
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        // A space that no program has: the names are those of the whole network namespace.
        let first = table.bind(1, (0xFFFE, 0), here(1), false).unwrap();
        let port = first.port;
        let refused = |result: Result<Arc<OwnedPort>>| result.unwrap_err();
        assert_eq!(refused(table.bind(2, (0xFFFE, port), here(1), false)), Errno(EADDRINUSE));
        assert_eq!(refused(table.bind(2, (0xFFFE, port), any, false)), Errno(EADDRNOTAVAIL));
        let second = table.bind(2, (0xFFFE, port), here(2), false).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let target = ManagementTarget::Port { space: 0xFFFE, port };
        assert_eq!(ManagementSocket::claim(target).unwrap_err().kind(), ErrorKind::AddrInUse);
        table.release(1);
        table.release(2);
        drop((first, second));
        let all = table.bind(3, (0xFFFE, port), any, true).unwrap();
        assert!(Arc::ptr_eq(&all, &table.bind(4, (0xFFFE, port), any, true).unwrap()));
    }
}
