//! Ports: each belongs to one process of a network namespace ([`ManagementSocket`]), and inside that to one endpoint, or to several at
//! different addresses.
//!
//! A socket takes a descriptor. A program with thousands of connections has as many ephemeral ports, on which nobody listens: after the first
//! ones they come from blocks of [`BLOCK`] ports, which belong to the process as a whole. Who binds one port looks at both names: first it
//! takes the port's, then it asks whether somebody has the block. Who has the block asks for the port's name before it gives the port
//! out. So one of two sees the other.
//!
//! A process with many peers needs fewer ports than connections: one port serves endpoints that connect to different peers, as it does with
//! the kernel (`cma_port_is_unique`).

use crate::boundary::{Errno, Result};
use libc::{EADDRINUSE, EADDRNOTAVAIL};
use pagewire_fabric::{ManagementSocket, ManagementTarget};
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

/// Where the system's range of ephemeral ports stands.
const RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// That range where the file cannot be read.
const USUAL_RANGE: (u16, u16) = (32_768, 60_999);
/// Ports of a block.
const BLOCK: u16 = 64;
/// Ephemeral ports that have a socket each. A process that has few should keep nobody from the ports beside them.
const SINGLE: usize = 64;

/// A port of a space of ports.
type SpacePort = (u16, u16);

/// A port that this process owns, as long as an endpoint holds it.
#[derive(Debug)]
pub struct OwnedPort {
    pub port: u16,
    /// Requests come here; `None`: to a port of a block come none.
    pub socket: Option<ManagementSocket>,
    /// What the port is of, if it is of one.
    _block: Option<Arc<OwnedBlock>>,
}

/// Ports from `first` on that nobody else has.
#[derive(Debug)]
struct OwnedBlock {
    first: u16,
    _socket: ManagementSocket,
}

/// The ports that endpoints of this process hold.
#[derive(Debug, Default)]
pub struct PortTable {
    owned: HashMap<SpacePort, Weak<OwnedPort>>,
    /// The block that ports of a space come from now.
    blocks: HashMap<u16, Weak<OwnedBlock>>,
    /// Which endpoint is at which address.
    bound: HashMap<u32, SpacePort>,
    addresses: HashMap<SpacePort, Vec<BoundAddress>>,
    /// The ports of a space that this table chose for endpoints that connect.
    connecting: HashMap<u16, ConnectingPorts>,
}

/// Ports of a space that serve endpoints which connect.
#[derive(Debug, Default)]
struct ConnectingPorts {
    ports: Vec<u16>,
    by_peer: HashMap<SocketAddr, HashSet<u16>>,
}

/// An address that an endpoint is to have a port at.
#[derive(Debug, Clone, Copy)]
pub struct PortAddress {
    pub address: IpAddr,
    /// Another endpoint that says so, too, may have the same.
    pub is_shared: bool,
    /// The unspecified address stands for those of its own family alone.
    pub is_family_only: bool,
}

#[derive(Debug, Clone, Copy)]
struct BoundAddress {
    id: u32,
    at: PortAddress,
    /// To which it connects by a port that this table chose.
    peer: Option<SocketAddr>,
}

impl PortTable {
    /// Gives an endpoint a port at an address; 0: one that nobody has.
    ///
    /// # Errors
    /// EADDRINUSE: another process owns the port, or another endpoint has it at this address; EADDRNOTAVAIL: one of the two wants all
    /// addresses, or no port is free.
    pub fn bind(&mut self, id: u32, (space, port): SpacePort, at: PortAddress) -> Result<Arc<OwnedPort>> {
        let owned = if port == 0 { self.claim_any(space)? } else { self.claim(space, port)? };
        let wanted = BoundAddress { id, at, peer: None };
        let bound = self.addresses.entry((space, owned.port)).or_default();
        if let Some(refusal) = bound.iter().find_map(|other| wanted.at.refusal(&other.at)) {
            return Err(Errno(refusal));
        }
        bound.push(wanted);
        self.bound.insert(id, (space, owned.port));
        Ok(owned)
    }

    /// Gives an endpoint that connects to `peer` a port of the space. Beyond the first [`SINGLE`] ports of this process it is one that serves other
    /// peers, if there is such a port.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: no port is free; else the kernel's.
    pub fn bind_connecting(
        &mut self,
        id: u32,
        space: u16,
        at: PortAddress,
        peer: SocketAddr,
    ) -> Result<Arc<OwnedPort>> {
        let shared = if self.owned.len() < SINGLE { None } else { self.port_of_other_peers(space, peer) };
        let owned = match shared {
            Some(owned) => owned,
            None => self.claim_any(space)?,
        };
        let connecting = self.connecting.entry(space).or_default();
        let bound = self.addresses.entry((space, owned.port)).or_default();
        if bound.is_empty() {
            connecting.ports.push(owned.port);
        }
        connecting.by_peer.entry(peer).or_default().insert(owned.port);
        bound.push(BoundAddress { id, at, peer: Some(peer) });
        self.bound.insert(id, (space, owned.port));
        Ok(owned)
    }

    /// A port by which endpoints of this process connect to others than `peer`, and no endpoint does anything else.
    fn port_of_other_peers(&self, space: u16, peer: SocketAddr) -> Option<Arc<OwnedPort>> {
        let connecting = self.connecting.get(&space)?;
        let used = connecting.by_peer.get(&peer);
        let count = used.map_or(0, HashSet::len);
        // A peer mostly has the ports from the first one on, so the next one mostly is free.
        let (before, after) = connecting.ports.split_at_checked(count)?;
        let is_free = |port: &u16| {
            let bound = self.addresses.get(&(space, *port));
            !used.is_some_and(|used| used.contains(port))
                && bound.is_some_and(|bound| bound.iter().all(|other| other.peer.is_some()))
        };
        let port = after.iter().chain(before).copied().find(is_free)?;
        self.owned((space, port))
    }

    /// An endpoint is about to listen: it shares its address no more.
    ///
    /// # Errors
    /// As those of [`bind`](Self::bind), if it does.
    pub fn end_sharing(&mut self, id: u32) -> Result<()> {
        let bound = self.bound.get(&id).and_then(|port| self.addresses.get_mut(port));
        let Some(bound) = bound else { return Ok(()) };
        let Some(place) = bound.iter().position(|own| own.id == id) else { return Ok(()) };
        if bound[place].at.is_shared {
            let alone = PortAddress { is_shared: false, ..bound[place].at };
            let mut others = bound.iter().filter(|other| other.id != id);
            if let Some(refusal) = others.find_map(|other| alone.refusal(&other.at)) {
                return Err(Errno(refusal));
            }
            bound[place].at = alone;
        }
        Ok(())
    }

    /// An endpoint has no port any more, and has given its [`OwnedPort`] back.
    pub fn release(&mut self, id: u32) {
        let Some(port) = self.bound.remove(&id) else { return };
        if let Some(bound) = self.addresses.get_mut(&port) {
            let peer = bound.iter().find(|bound| bound.id == id).and_then(|bound| bound.peer);
            bound.retain(|bound| bound.id != id);
            let is_unused = bound.is_empty();
            if is_unused {
                self.addresses.remove(&port);
            }
            if let Some(connecting) = self.connecting.get_mut(&port.0) {
                connecting.release(port.1, peer, is_unused);
            }
        }
        if self.owned.get(&port).is_some_and(|owned| owned.strong_count() == 0) {
            self.owned.remove(&port);
        }
    }

    /// The port of a space, if this process owns it.
    pub fn owned(&self, port: SpacePort) -> Option<Arc<OwnedPort>> {
        self.owned.get(&port)?.upgrade()
    }

    /// Has requests for a port of a block come to this process. Another port is given back as it is.
    ///
    /// # Errors
    /// EADDRINUSE: another process tries to have it at this moment; else the kernel's.
    pub fn open(&mut self, space: u16, port: &Arc<OwnedPort>) -> Result<Arc<OwnedPort>> {
        if port.socket.is_some() {
            return Ok(port.clone());
        }
        let socket = ManagementSocket::claim(ManagementTarget::Port { space, port: port.port })?;
        Ok(self.own(space, OwnedPort { port: port.port, socket: Some(socket), _block: port._block.clone() }))
    }

    fn own(&mut self, space: u16, port: OwnedPort) -> Arc<OwnedPort> {
        let owned = Arc::new(port);
        self.owned.insert((space, owned.port), Arc::downgrade(&owned));
        owned
    }

    fn claim(&mut self, space: u16, port: u16) -> Result<Arc<OwnedPort>> {
        if let Some(owned) = self.owned((space, port)) {
            return Ok(owned);
        }
        let socket = ManagementSocket::claim(ManagementTarget::Port { space, port })?;
        let first = block_of(port);
        let is_own =
            self.blocks.get(&space).and_then(Weak::upgrade).is_some_and(|block| block.first == first);
        if !is_own {
            if ManagementSocket::is_owned(ManagementTarget::PortBlock { space, first }) {
                return Err(Errno(EADDRINUSE));
            }
        }
        Ok(self.own(space, OwnedPort { port, socket: Some(socket), _block: None }))
    }

    /// An ephemeral port: one of the system's range that nobody has.
    fn claim_any(&mut self, space: u16) -> Result<Arc<OwnedPort>> {
        if self.owned.len() >= SINGLE {
            return self.claim_of_block(space);
        }
        let (first, last) = ephemeral_range();
        for port in from_anywhere(first, last) {
            if self.owned.contains_key(&(space, port)) {
                continue;
            }
            match self.claim(space, port) {
                Err(Errno(EADDRINUSE)) => {}
                claimed => return claimed,
            }
        }
        Err(Errno(EADDRNOTAVAIL))
    }

    fn claim_of_block(&mut self, space: u16) -> Result<Arc<OwnedPort>> {
        if let Some(block) = self.blocks.get(&space).and_then(Weak::upgrade) {
            if let Some(port) = self.claim_in(space, &block)? {
                return Ok(port);
            }
        }
        let (first, last) = ephemeral_range();
        let (first, end) = (first.div_ceil(BLOCK), (u32::from(last) + 1) / u32::from(BLOCK));
        // Only whole blocks of the range.
        let Some(last) =
            u16::try_from(end).ok().and_then(|end| end.checked_sub(1)).filter(|last| first <= *last)
        else {
            return Err(Errno(EADDRNOTAVAIL));
        };
        for number in from_anywhere(first, last) {
            let first = number * BLOCK;
            let socket = match ManagementSocket::claim(ManagementTarget::PortBlock { space, first }) {
                Ok(socket) => socket,
                Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
                Err(error) => return Err(error.into()),
            };
            let block = Arc::new(OwnedBlock { first, _socket: socket });
            if let Some(port) = self.claim_in(space, &block)? {
                self.blocks.insert(space, Arc::downgrade(&block));
                return Ok(port);
            }
        }
        Err(Errno(EADDRNOTAVAIL))
    }

    /// A free port of a block.
    fn claim_in(&mut self, space: u16, block: &Arc<OwnedBlock>) -> Result<Option<Arc<OwnedPort>>> {
        for port in block.first..block.first + BLOCK {
            if self.owned.contains_key(&(space, port)) {
                continue;
            }
            // Nobody listens on it: who has the name of the block needs none of the port.
            if !ManagementSocket::is_owned(ManagementTarget::Port { space, port }) {
                let owned = OwnedPort { port, socket: None, _block: Some(block.clone()) };
                return Ok(Some(self.own(space, owned)));
            }
        }
        Ok(None)
    }
}

impl ConnectingPorts {
    /// An endpoint has left a port, by which it connected to `peer` if it did. `is_unused`: no endpoint has the port now.
    fn release(&mut self, port: u16, peer: Option<SocketAddr>, is_unused: bool) {
        if let Some(peer) = peer {
            if let Some(used) = self.by_peer.get_mut(&peer) {
                used.remove(&port);
                if used.is_empty() {
                    self.by_peer.remove(&peer);
                }
            }
        }
        if is_unused {
            self.ports.retain(|other| *other != port);
        }
    }
}

impl PortAddress {
    /// Why one endpoint cannot be at an address beside another one of the same port (`cma_check_port` of the kernel).
    fn refusal(&self, other: &PortAddress) -> Option<i32> {
        let is_for_all = |address: IpAddr| address.is_unspecified() || address.is_loopback();
        let is_apart =
            self.is_family_only && other.is_family_only && self.address.is_ipv4() != other.address.is_ipv4();
        if is_apart || other.is_shared && self.is_shared {
            None
        } else if is_for_all(other.address) || is_for_all(self.address) {
            Some(EADDRNOTAVAIL)
        } else {
            (other.address == self.address).then_some(EADDRINUSE)
        }
    }
}

fn block_of(port: u16) -> u16 {
    port / BLOCK * BLOCK
}

/// The numbers from `first` to `last`, from a random one on.
fn from_anywhere(first: u16, last: u16) -> impl Iterator<Item = u16> {
    let count = u32::from(last.saturating_sub(first)) + 1;
    let start = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec as u32 % count;
    (0..count).map(move |step| first + ((start + step) % count) as u16)
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
    use std::net::{Ipv4Addr, Ipv6Addr};

    // Spaces that no program has: the names are those of the whole network namespace.
    const SPACE: u16 = 0xFFFE;
    const OTHER_SPACE: u16 = 0xFFFD;
    const THIRD_SPACE: u16 = 0xFFFC;
    const FOURTH_SPACE: u16 = 0xFFFB;
    const ANY: PortAddress = alone(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    const fn alone(address: IpAddr) -> PortAddress {
        PortAddress { address, is_shared: false, is_family_only: address.is_ipv4() }
    }

    #[test]
    fn addresses_of_a_port_exclude_each_other() {
        let mut table = PortTable::default();
        let here = |last| alone(IpAddr::from([192, 0, 2, last]));
        let first = table.bind(1, (SPACE, 0), here(1)).unwrap();
        let port = first.port;
        let refused = |result: Result<Arc<OwnedPort>>| result.unwrap_err();
        assert_eq!(refused(table.bind(2, (SPACE, port), here(1))), Errno(EADDRINUSE));
        assert_eq!(refused(table.bind(2, (SPACE, port), ANY)), Errno(EADDRNOTAVAIL));
        let second = table.bind(2, (SPACE, port), here(2)).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let target = ManagementTarget::Port { space: SPACE, port };
        assert_eq!(ManagementSocket::claim(target).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop((first, second));
        table.release(1);
        table.release(2);
        let shared = PortAddress { is_shared: true, ..ANY };
        let all = table.bind(3, (SPACE, port), shared).unwrap();
        assert!(Arc::ptr_eq(&all, &table.bind(4, (SPACE, port), shared).unwrap()));
    }

    #[test]
    fn families_that_keep_to_themselves_may_both_have_all_addresses() {
        let mut table = PortTable::default();
        let port = table.bind(1, (SPACE, 0), ANY).unwrap().port;
        let all_ipv6 = alone(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        assert_eq!(table.bind(2, (SPACE, port), all_ipv6).unwrap_err(), Errno(EADDRNOTAVAIL));
        let ipv6_only = PortAddress { is_family_only: true, ..all_ipv6 };
        let _both = table.bind(2, (SPACE, port), ipv6_only).unwrap();
        assert_eq!(table.bind(3, (SPACE, port), ipv6_only).unwrap_err(), Errno(EADDRNOTAVAIL));
    }

    #[test]
    fn one_port_connects_to_many_peers() {
        const COUNT: u32 = 5_000;
        let mut table = PortTable::default();
        let peer = |number: u32| {
            SocketAddr::from((Ipv4Addr::from(0x0A4F_0000 + number / 7), 1 + (number % 7) as u16))
        };
        let connect =
            |table: &mut PortTable, id, peer| table.bind_connecting(id, THIRD_SPACE, ANY, peer).unwrap();
        let ports: Vec<Arc<OwnedPort>> = (0..COUNT).map(|id| connect(&mut table, id, peer(id))).collect();
        assert_eq!(table.owned.len(), SINGLE);
        // Each further connection with one peer needs a port of its own.
        let again: Vec<Arc<OwnedPort>> =
            (0..200).map(|id| connect(&mut table, COUNT + id, peer(9))).collect();
        let mut numbers: Vec<u16> = again.iter().chain([&ports[9]]).map(|port| port.port).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 201);
        // No endpoint gets all addresses of a port that connects.
        let used = again[0].port;
        assert_eq!(table.bind(9_999, (THIRD_SPACE, used), ANY).unwrap_err(), Errno(EADDRNOTAVAIL));
        drop((ports, again));
        (0..COUNT + 200).for_each(|id| table.release(id));
        assert!(table.owned.is_empty() && table.addresses.is_empty() && table.bound.is_empty());
        assert!(table.connecting.values().all(|space| space.ports.is_empty() && space.by_peer.is_empty()));
    }

    #[test]
    fn bound_port_connects_to_no_further_peer() {
        let mut table = PortTable::default();
        let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let peer = |port| SocketAddr::from(([192, 0, 2, 9], port));
        let first: Vec<Arc<OwnedPort>> = (0..SINGLE as u32)
            .map(|id| table.bind_connecting(id, FOURTH_SPACE, alone(here), peer(1)).unwrap())
            .collect();
        // Another address of every port but one is bound.
        for (id, owned) in (1_000..).zip(&first[1..]) {
            table.bind(id, (FOURTH_SPACE, owned.port), alone(there)).unwrap();
        }
        let shared = table.bind_connecting(2_000, FOURTH_SPACE, alone(here), peer(2)).unwrap();
        assert_eq!(shared.port, first[0].port);
        let fresh = table.bind_connecting(2_001, FOURTH_SPACE, alone(here), peer(2)).unwrap();
        assert!(first.iter().all(|owned| owned.port != fresh.port));
    }

    #[test]
    fn ephemeral_ports_take_few_descriptors() {
        let (mut table, mut other) = (PortTable::default(), PortTable::default());
        let ports: Vec<Arc<OwnedPort>> =
            (0..1_000).map(|id| table.bind(id, (OTHER_SPACE, 0), ANY).unwrap()).collect();
        assert_eq!(ports.iter().filter(|port| port.socket.is_some()).count(), SINGLE);
        let mut numbers: Vec<u16> = ports.iter().map(|port| port.port).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 1_000);
        for port in [&ports[3], &ports[700]] {
            // Of another process, as far as names go.
            assert!(
                other.bind(1, (OTHER_SPACE, port.port), ANY).is_err_and(|error| error == Errno(EADDRINUSE))
            );
        }
        // Who listens on one takes requests there.
        let opened = table.open(OTHER_SPACE, &ports[700]).unwrap();
        assert!(opened.socket.is_some() && opened.port == ports[700].port);
        // All at once, with what it is known by.
        let last = ports[900].port;
        drop((ports, opened));
        (0..1_000).for_each(|id| table.release(id));
        assert!(table.owned.is_empty() && table.addresses.is_empty());
        let _held = other.bind(1, (OTHER_SPACE, last), ANY).unwrap();
        // And a port that somebody has bound is given to nobody from a block.
        let block = block_of(last);
        let socket =
            ManagementSocket::claim(ManagementTarget::PortBlock { space: OTHER_SPACE, first: block })
                .unwrap();
        let block = Arc::new(OwnedBlock { first: block, _socket: socket });
        let given: Vec<Arc<OwnedPort>> =
            std::iter::from_fn(|| table.claim_in(OTHER_SPACE, &block).unwrap()).collect();
        assert_eq!(given.len(), usize::from(BLOCK) - 1);
        assert!(given.iter().all(|port| port.port != last));
    }
}
