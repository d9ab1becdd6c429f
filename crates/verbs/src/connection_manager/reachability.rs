//! Whether a host can be reached, and has port 4791, while a peer is asked for a connection: a host without a connection manager sends no
//! REJ. A datagram that nobody takes ([`PORT_PROBE`]) from a connected socket tells, as the kernel gives that socket the errors of ICMP
//! (udp(7)).

use pagewire_fabric::{PORT_PROBE, probe};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// So long an answer of ICMP may take: the kernel asks for a neighbour's address three times, a second each.
const PATIENCE: Duration = Duration::from_secs(5);
/// Hosts that are asked at a time. Beyond that a peer is waited for.
const BOUND: usize = 64;

/// From where to where.
pub type Pair = (IpAddr, IpAddr);

/// What an error says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachability {
    /// Nobody has port 4791 there.
    PortClosed,
    /// The host, or its network, is not there.
    HostUnreachable,
}

#[derive(Debug)]
struct Probe {
    socket: UdpSocket,
    until: Duration,
}

/// The hosts that are asked now.
#[derive(Debug, Default)]
pub struct Probes(HashMap<Pair, Probe>);

impl Probes {
    /// Asks a host, again if it was asked before. Gives the socket, if it is a new one, which is to be watched for errors.
    pub fn ask(&mut self, pair: Pair, now: Duration) -> Option<BorrowedFd<'_>> {
        let is_new = !self.0.contains_key(&pair);
        if is_new {
            if self.0.len() >= BOUND {
                return None;
            }
            // Where no socket can be had the peer is waited for.
            let socket = probe(pair.0, pair.1).ok()?;
            self.0.insert(pair, Probe { socket, until: now });
        }
        let probe = self.0.get_mut(&pair)?;
        probe.until = now + PATIENCE;
        // An error of before is read by `error`.
        let _is_sent = probe.socket.send(&PORT_PROBE);
        is_new.then(|| probe.socket.as_fd())
    }

    /// What is known of a host now.
    pub fn error(&mut self, pair: Pair) -> Option<Unreachability> {
        let error = self.0.get(&pair)?.socket.take_error().ok().flatten()?;
        match error.kind() {
            ErrorKind::ConnectionRefused => Some(Unreachability::PortClosed),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                Some(Unreachability::HostUnreachable)
            }
            _ => None,
        }
    }

    /// Forgets a host.
    pub fn end(&mut self, pair: Pair) {
        self.0.remove(&pair);
    }

    /// Forgets hosts of which nothing came, and gives them.
    pub fn expire(&mut self, now: Duration) -> Vec<Pair> {
        self.0.extract_if(|_, probe| probe.until <= now).map(|(pair, _)| pair).collect()
    }
}
