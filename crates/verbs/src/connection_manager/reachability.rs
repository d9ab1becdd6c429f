//! Whether a host can be reached, and has the UDP port that is asked, while a peer is asked for a connection: a host without a connection manager sends no
//! REJ. A datagram that nobody takes ([`PORT_PROBE`]) from a connected socket tells, as the kernel gives that socket the errors of ICMP
//! (udp(7)).

use pagewire_fabric::{PORT_PROBE, probe};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// So long an answer of ICMP may take: the kernel asks for a neighbour's address three times, a second each.
const PATIENCE: Duration = Duration::from_secs(5);
/// Hosts that are asked at a time. Beyond that a peer is waited for.
const BOUND: usize = 64;

/// From where to where.
pub type Pair = (IpAddr, SocketAddr);

/// What an error says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachability {
    /// Nobody has the port there.
    PortClosed,
    /// The host, or its network, is not there.
    HostUnreachable,
}

#[derive(Debug)]
struct Probe {
    socket: UdpSocket,
    /// What a send has told of earlier ones.
    error: Option<io::Error>,
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
            self.0.insert(pair, Probe { socket, error: None, until: now });
        }
        let probe = self.0.get_mut(&pair)?;
        probe.until = now + PATIENCE;
        // An error of before ends a call, and is read by it.
        if let Err(before) = probe.socket.send(&PORT_PROBE) {
            probe.error = Some(before);
        }
        is_new.then(|| probe.socket.as_fd())
    }

    /// What is known of a host now.
    pub fn error(&mut self, pair: Pair) -> Option<Unreachability> {
        let probe = self.0.get_mut(&pair)?;
        let error = probe.socket.take_error().ok().flatten().or_else(|| probe.error.take())?;
        match error.kind() {
            ErrorKind::ConnectionRefused => Some(Unreachability::PortClosed),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                Some(Unreachability::HostUnreachable)
            }
            _ => None,
        }
    }

    /// Forgets a host. Gives its socket, which is watched no more.
    pub fn end(&mut self, pair: Pair) -> Option<UdpSocket> {
        Some(self.0.remove(&pair)?.socket)
    }

    /// Forgets hosts of which nothing came, and gives them with their sockets.
    pub fn expire(&mut self, now: Duration) -> Vec<(Pair, UdpSocket)> {
        self.0.extract_if(|_, probe| probe.until <= now).map(|(pair, probe)| (pair, probe.socket)).collect()
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.0.values().map(|probe| probe.until).min()
    }
}
