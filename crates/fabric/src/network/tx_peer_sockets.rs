//! Sockets connected to the peers that this process sends to most: the kernel looks up no route for what leaves by one, and need
//! not be told the source and the length of segments.
//!
//! Such a socket must not have the port that this process receives at, or the kernel would give it whatever comes from that
//! peer, for other processes that share the port, too. So packets leave from another source port, as they do from adapters. A
//! firewall that only lets in what answers to something from port 4791 would drop them: the peer is asked first ([`Echo`]), and
//! the socket is used once it has answered. A standard peer never does; for it all stays as it was.

use super::Network;
use crate::batch::HostBatch;
use crate::descriptors::Descriptor;
use crate::fabric::{QUEUE_PAIRS_PER_BLOCK, Route, port_of};
use crate::host::random;
use crate::limits::{MOST_ECHO_REQUESTS, TX_PEER_SOCKET_AFTER, TX_PEER_SOCKETS};
use crate::udp::{self, Arrival, Cut, Transmit};
use pagewire_wire::packet::{self, ICRC_LEN};
use pagewire_wire::{Bth, Echo, Icrc, bth};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Longer than a thread takes for a send that keeps its processor.
const LONGEST_SEND: Duration = Duration::from_micros(100);
/// Bytes of a packet with an ECHO.
const ECHO_BYTES: usize = bth::LEN + Echo::LEN + ICRC_LEN;

/// A socket connected to a peer.
pub struct TxPeerSocket {
    route: Route,
    /// The block of queue pair numbers that all that leaves by it is for: what comes from its port is for one process.
    block: u16,
    socket: Descriptor,
    /// Its source port.
    pub port: u16,
    pub icrc: Icrc,
    nonce: u64,
    /// The peer has answered.
    echo_answered: AtomicBool,
    /// It failed, and is not used any more.
    broken: AtomicBool,
    /// Sends to the peer since the socket was made, or since all were last compared.
    sends: AtomicU32,
    /// There were some since it was last looked which are used.
    used: AtomicBool,
    /// Questions asked, and the number of sends after which the next one is.
    echo_requests: Mutex<(u32, u32)>,
    tx_state: Mutex<TxState>,
}

/// What a socket does to what is sent by it.
pub struct TxState {
    /// It is cut into segments of so many bytes; 0: not at all.
    cut: u16,
    /// What the last send wanted.
    wanted: u16,
    /// IPv4 identification of the next packet, and by how much that of the next send differs.
    next: u16,
    step: u16,
}

impl TxState {
    /// The IPv4 identification of the first packet of the next send; each following one has the next.
    pub fn identification(&self) -> u16 {
        self.next
    }
}

/// The sockets of a process that are connected to peers.
#[derive(Default)]
pub struct TxPeerSockets {
    open: RwLock<Vec<Arc<TxPeerSocket>>>,
    /// Routes that packets left by lately, with the block that they were for, and how often, about: who sends a share of more than one in [`TX_PEER_SOCKETS`] is among them
    /// (Misra and Gries, "Finding repeated elements", 1982).
    candidates: Mutex<Vec<((Route, u16), u32)>>,
    /// Sockets that could not be had.
    failures: AtomicU32,
}

impl TxPeerSocket {
    fn open(route: &Route, block: u16, nonce: u64) -> io::Result<Self> {
        let (socket, own) = udp::connected(route)?;
        let port = own.port();
        let icrc = match (route.source, route.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Icrc::ipv4(source, destination, port, route.port, true)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Icrc::ipv6(source, destination, port, route.port)
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        // The ICRC covers it, and the kernel numbers the packets of such a socket.
        let (next, step) = match own {
            SocketAddr::V4(own) => udp::next_identification(&socket, own)?,
            SocketAddr::V6(_) => (0, 0),
        };
        Ok(TxPeerSocket {
            route: *route,
            block,
            socket,
            port,
            icrc,
            nonce,
            echo_answered: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            sends: AtomicU32::new(0),
            used: AtomicBool::new(true),
            echo_requests: Mutex::new((0, 0)),
            tx_state: Mutex::new(TxState { cut: 0, wanted: 0, next, step }),
        })
    }

    fn is_for(&self, route: &Route, block: u16) -> bool {
        self.block == block && self.route == *route
    }

    fn is_usable(&self) -> bool {
        self.echo_answered.load(Ordering::Acquire) && !self.broken.load(Ordering::Relaxed)
    }

    /// Counts a send, and gives how many there were.
    fn count(&self) -> u32 {
        // Lost counts of two threads at once do no harm.
        let sends = self.sends.load(Ordering::Relaxed).saturating_add(1);
        self.sends.store(sends, Ordering::Relaxed);
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        sends
    }

    /// Whether it is for this packet, as for the one that it was found for.
    pub(super) fn takes(&self, packet: &[u8]) -> bool {
        queue_pair_of(packet).is_some_and(|number| number / QUEUE_PAIRS_PER_BLOCK == u32::from(self.block))
    }

    /// The right to send by it; `None`: another thread is at it, and does not come to an end. What leaves by another socket
    /// meanwhile would mostly overtake what is under way, and packets in disorder cost more than to wait for a send.
    pub fn begin(&self) -> Option<MutexGuard<'_, TxState>> {
        self.tx_state.try_lock_for(LONGEST_SEND)
    }

    /// Sends bytes, cut into datagrams of `segment` bytes (the last may be shorter).
    ///
    /// # Errors
    /// The kernel's. Nothing was sent; after others than EAGAIN the socket is not to be used any more.
    pub fn send(&self, tx_state: &mut TxState, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let wanted = segment.unwrap_or(0);
        // What is asked for twice in a row is mostly asked for again, and a message without control data is cheaper.
        if tx_state.cut != wanted && tx_state.wanted == wanted {
            udp::set(&self.socket, libc::SOL_UDP, libc::UDP_SEGMENT, wanted.into())?;
            tx_state.cut = wanted;
        }
        tx_state.wanted = wanted;
        let cut = if tx_state.cut == wanted { Cut::AsSet } else { Cut::Into(wanted) };
        udp::send_connected(&self.socket, bytes, cut)?;
        tx_state.next = tx_state.next.wrapping_add(tx_state.step);
        Ok(())
    }

    /// Does not use it any more.
    pub fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

impl TxPeerSockets {
    fn find(&self, route: &Route, block: u16) -> Option<Arc<TxPeerSocket>> {
        let wanted = |peer_socket: &&Arc<TxPeerSocket>| {
            peer_socket.is_for(route, block) && !peer_socket.broken.load(Ordering::Relaxed)
        };
        self.open.read().iter().find(wanted).cloned()
    }

    /// Counts a send by a route that has no socket of its own. True: it should have one.
    fn is_wanted(&self, route: &Route, block: u16) -> bool {
        if self.failures.load(Ordering::Relaxed) >= MOST_ECHO_REQUESTS {
            return false;
        }
        let mut candidates = self.candidates.lock();
        if let Some(place) = candidates.iter().position(|(known, _)| *known == (*route, block)) {
            candidates[place].1 += 1;
            let wanted = candidates[place].1 >= TX_PEER_SOCKET_AFTER;
            if wanted {
                candidates.swap_remove(place);
            }
            return wanted;
        }
        if candidates.len() < TX_PEER_SOCKETS {
            candidates.push(((*route, block), 1));
        } else {
            candidates.retain_mut(|(_, sends)| {
                *sends -= 1;
                *sends > 0
            });
        }
        false
    }

    /// Adds one, in the place of a broken one or of the one that was used least.
    fn add(&self, peer_socket: Arc<TxPeerSocket>) {
        let mut open = self.open.write();
        open.retain(|peer_socket| !peer_socket.broken.load(Ordering::Relaxed));
        if open.len() >= TX_PEER_SOCKETS {
            let sends = |peer_socket: &Arc<TxPeerSocket>| peer_socket.sends.load(Ordering::Relaxed);
            if let Some(least) = (0..open.len()).min_by_key(|place| sends(&open[*place])) {
                open.swap_remove(least);
            }
            open.iter().for_each(|peer_socket| peer_socket.sends.store(0, Ordering::Relaxed));
        }
        open.push(peer_socket);
    }

    /// Closes those that nothing was sent by since the last call. False: none is left.
    pub(super) fn close_unused(&self) -> bool {
        let mut open = self.open.write();
        open.retain(|peer_socket| peer_socket.used.swap(false, Ordering::Relaxed));
        !open.is_empty()
    }
}

impl Network {
    /// The socket that is connected to where the packets of a batch from one on go, if it may be used.
    pub(super) fn tx_peer_socket(&self, batch: &mut HostBatch, first: usize) -> Option<Arc<TxPeerSocket>> {
        let packet = *batch.packets().get(first)?;
        // Whatever else a peer takes, its socket is the same.
        let route = Route { joined: false, ..*batch.route(&packet) };
        let queue_pair = queue_pair_of(batch.bytes().get(packet.range())?)?;
        let block = (queue_pair / QUEUE_PAIRS_PER_BLOCK) as u16;
        // A batch that is used again mostly goes where it went before.
        if let Some(peer_socket) = batch
            .tx_peer_socket
            .take_if(|peer_socket| peer_socket.is_for(&route, block) && peer_socket.is_usable())
        {
            peer_socket.count();
            return Some(peer_socket);
        }
        if let Some(peer_socket) = self.tx_peer_sockets.find(&route, block) {
            let sends = peer_socket.count();
            if peer_socket.is_usable() {
                return Some(peer_socket);
            }
            self.request_echo(&peer_socket, sends, queue_pair);
        } else if (1..0xFFFF).contains(&block)
            && route.interface == 0
            && !route.destination.is_multicast()
            && self.tx_peer_sockets.is_wanted(&route, block)
        {
            match random().and_then(|nonce| TxPeerSocket::open(&route, block, nonce)) {
                Ok(peer_socket) => {
                    let peer_socket = Arc::new(peer_socket);
                    self.tx_peer_sockets.add(peer_socket.clone());
                    self.has_sockets_of_peers.store(true, Ordering::Relaxed);
                    self.request_echo(&peer_socket, 0, queue_pair);
                }
                Err(error) => {
                    self.tx_peer_sockets.failures.fetch_add(1, Ordering::Relaxed);
                    log::debug!("no socket for {} alone: {error}", route.destination);
                }
            }
        }
        None
    }

    /// Asks a peer whether what leaves by a socket reaches it, if that is due.
    fn request_echo(&self, peer_socket: &TxPeerSocket, sends: u32, queue_pair: u32) {
        let Some(block) = self.forwards.read().first().map(|(block, _)| *block) else { return };
        {
            let mut echo_requests = peer_socket.echo_requests.lock();
            let (asked, next) = *echo_requests;
            if sends < next || asked >= MOST_ECHO_REQUESTS {
                return;
            }
            *echo_requests = (asked + 1, sends.saturating_add(TX_PEER_SOCKET_AFTER << asked));
        }
        let own = u32::from(block) * QUEUE_PAIRS_PER_BLOCK;
        let question = Echo { answer: false, queue_pair: own, nonce: peer_socket.nonce };
        let Some(mut tx_state) = peer_socket.begin() else { return };
        let bytes = echo(&question, queue_pair, &peer_socket.icrc, tx_state.identification());
        // One that is lost is asked again.
        if let Err(error) = peer_socket.send(&mut tx_state, &bytes, None) {
            log::debug!("{} cannot be asked: {error}", peer_socket.route.destination);
            peer_socket.give_up();
        }
    }

    /// Takes an ECHO that was sent to this process. False: it is something else.
    pub(super) fn take_echo(&self, arrival: &Arrival, port: u16, bytes: &[u8]) -> bool {
        if bytes.first() != Some(&Echo::OPCODE.0) {
            return false;
        }
        let Some(Ok(echo)) = bytes.get(bth::LEN..bytes.len() - ICRC_LEN).map(Echo::parse) else {
            return true;
        };
        if !echo.answer {
            self.open_rx_peer_socket(arrival, port);
            self.answer(arrival, &echo);
            return true;
        }
        let asked = |peer_socket: &&Arc<TxPeerSocket>| {
            peer_socket.nonce == echo.nonce && peer_socket.route.destination == arrival.source
        };
        if let Some(peer_socket) = self.tx_peer_sockets.open.read().iter().find(asked) {
            peer_socket.echo_answered.store(true, Ordering::Release);
        }
        true
    }

    /// Tells a peer that its question has arrived.
    fn answer(&self, arrival: &Arrival, question: &Echo) {
        let Some(port) = self.first.get() else { return };
        let route = Route {
            source: arrival.destination,
            interface: 0,
            source_port: 0,
            destination: arrival.source,
            port: port_of(question.queue_pair),
            traffic_class: 0,
            hop_limit: 0,
            joined: false,
        };
        let (socket, icrc) = match (route.source, route.destination, &port.v4, &port.v6) {
            (IpAddr::V4(from), IpAddr::V4(to), Some(socket), _) => {
                (socket, Icrc::ipv4(from, to, port.number, route.port, true))
            }
            (IpAddr::V6(from), IpAddr::V6(to), _, Some(socket)) => {
                (socket, Icrc::ipv6(from, to, port.number, route.port))
            }
            _ => return,
        };
        let bytes = echo(&Echo { answer: true, ..*question }, question.queue_pair, &icrc, 0);
        // One that is lost is asked for again.
        if let Err(error) = udp::send(socket, &[Transmit { route: &route, bytes: &bytes, segment: None }]) {
            log::debug!("no answer to {}: {error}", route.destination);
        }
    }
}

/// The queue pair that a packet is for.
pub(super) fn queue_pair_of(packet: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*packet.get(4..8)?.first_chunk()?) & 0xFF_FFFF)
}

/// A packet with an ECHO.
fn echo(echo: &Echo, to: u32, icrc: &Icrc, identification: u16) -> [u8; ECHO_BYTES] {
    let mut bytes = [0; ECHO_BYTES];
    if let Ok(mut header) = bth::Packet::new(&mut bytes[..]) {
        Bth::new(Echo::OPCODE, to, 0).emit(&mut header);
    }
    echo.emit(&mut bytes[bth::LEN..]);
    packet::seal(icrc, identification, &mut bytes);
    bytes
}
