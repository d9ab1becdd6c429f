//! Sockets that are connected to a peer, for what is sent to it and for what comes from it. What both have in common is here, and how
//! many there may be; [`echo`](super::echo) opens them and asks peers.
//!
//! *To a peer* to which this process sends much: the kernel looks up no route for what leaves by such a socket, and need not be told
//! the source and the length of segments. It must not have the port that this process receives at, or the kernel would give it
//! whatever comes from that peer, for other processes that share the port, too. So packets leave from another source port, as they
//! do from adapters.
//!
//! *From a peer*, for what one of its sockets of the first kind sends: the kernel knows at once for whom a packet is, and needs neither
//! routes nor the steering program for it. Such a socket shares the port, but as it is bound to one address it is not among the
//! sockets that are steered ([`steering`](crate::steering)), which are bound to all: the kernel looks for one that is connected to
//! the sender first. From the moment that it is bound until it is connected it gets whatever comes to that address, and hands it
//! on like any other.

use crate::descriptors::Descriptor;
use crate::destination::queue_pair_of;
use crate::fabric::{QUEUE_PAIRS_PER_BLOCK, Route};
use crate::limits::{
    MOST_ECHO_REQUESTS, RX_PEER_SOCKET_IDLE, RX_PEER_SOCKETS, TX_PEER_SOCKET_AFTER, TX_PEER_SOCKETS,
};
use crate::lock::Lock;
use crate::nonce::random;
use crate::udp::{self, Cut, KnownAddresses};
use derive_where::derive_where;
use pagewire_wire::Icrc;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Longer than a thread takes for a send that keeps its processor.
const LONGEST_SEND: Duration = Duration::from_micros(100);

/// A socket connected to a peer. `E`: what belongs to its direction.
pub struct PeerSocket<E> {
    pub socket: Descriptor,
    end: E,
    /// Something went by it since it was last looked which are used.
    used: AtomicBool,
    /// It is not among the sockets in use any more.
    closed: AtomicBool,
}

impl<E> PeerSocket<E> {
    fn new(socket: Descriptor, end: E) -> Arc<Self> {
        Arc::new(PeerSocket { socket, end, used: AtomicBool::new(true), closed: AtomicBool::new(false) })
    }

    /// Something goes by it.
    #[inline]
    pub fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Does not use it any more.
    pub fn give_up(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl<E> Deref for PeerSocket<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.end
    }
}

/// The sockets of one direction.
#[derive_where(Default)]
struct OpenSockets<E>(RwLock<Vec<Arc<PeerSocket<E>>>>);

impl<E> OpenSockets<E> {
    /// One in use.
    fn find(&self, wanted: impl Fn(&E) -> bool) -> Option<Arc<PeerSocket<E>>> {
        self.0.read().iter().find(|socket| wanted(socket) && !socket.is_closed()).cloned()
    }

    /// Closes those that are not to stay. False: none is left. The kernel goes on giving a socket what is for it for as long as
    /// anybody holds that: at most who uses it just now.
    fn retain(&self, stays: impl Fn(&PeerSocket<E>) -> bool) -> bool {
        let mut open = self.0.write();
        open.retain(|socket| {
            let stays = stays(socket);
            if !stays {
                socket.give_up();
            }
            stays
        });
        !open.is_empty()
    }

    /// Closes those that nothing went by since the last call. False: none is left.
    fn close_unused(&self) -> bool {
        self.retain(|socket| socket.used.swap(false, Ordering::Relaxed))
    }
}

/// A socket for what is sent to a peer.
pub type TxPeerSocket = PeerSocket<TxEnd>;

/// What a socket for a peer knows of it.
pub struct TxEnd {
    pub route: Route,
    /// The block of queue pair numbers that all that leaves by it is for: what comes from its port is for one process.
    block: u16,
    /// Its source port.
    pub port: u16,
    pub icrc: Icrc,
    pub nonce: u64,
    /// The peer has answered.
    pub echo_answered: AtomicBool,
    /// Sends to the peer since the socket was made, or since all were last compared.
    sends: AtomicU32,
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
    pub next: u16,
    step: u16,
}

impl TxEnd {
    fn is_for(&self, route: &Route, block: u16) -> bool {
        self.block == block && self.route == *route
    }

    /// Whether it is for this packet, as for the one that it was found for.
    pub fn takes(&self, packet: &[u8]) -> bool {
        queue_pair_of(packet).is_some_and(|number| number / QUEUE_PAIRS_PER_BLOCK == u32::from(self.block))
    }

    /// The right to send by it; `None`: another thread is at it, and does not come to an end. What leaves by another socket
    /// meanwhile would mostly overtake what is under way, and packets in disorder cost more than to wait for a send.
    pub fn begin(&self) -> Option<MutexGuard<'_, TxState>> {
        self.tx_state.try_lock_for(LONGEST_SEND)
    }

    /// Whether the peer is to be asked (once more) after so many sends.
    pub fn is_echo_due(&self, sends: u32) -> bool {
        let mut echo_requests = self.echo_requests.lock();
        let (asked, next) = *echo_requests;
        let is_due = sends >= next && asked < MOST_ECHO_REQUESTS;
        if is_due {
            *echo_requests = (asked + 1, sends.saturating_add(TX_PEER_SOCKET_AFTER << asked));
        }
        is_due
    }
}

impl TxPeerSocket {
    fn open(route: &Route, block: u16) -> io::Result<Arc<Self>> {
        let nonce = random()?;
        let (socket, own) = udp::connected(route)?;
        let port = own.port();
        let icrc = Icrc::between(route.source, route.destination, port, route.port)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // The ICRC covers it, and the kernel numbers the packets of such a socket.
        let (next, step) = match own {
            SocketAddr::V4(own) => udp::next_identification(&socket, own)?,
            SocketAddr::V6(_) => (0, 0),
        };
        let end = TxEnd {
            route: *route,
            block,
            port,
            icrc,
            nonce,
            echo_answered: AtomicBool::new(false),
            sends: AtomicU32::new(0),
            echo_requests: Mutex::new((0, 0)),
            tx_state: Mutex::new(TxState { cut: 0, wanted: 0, next, step }),
        };
        Ok(PeerSocket::new(socket, end))
    }

    /// Whether packets may leave by it.
    pub fn is_usable(&self) -> bool {
        self.echo_answered.load(Ordering::Acquire) && !self.is_closed()
    }

    /// Counts a send, and gives how many there were.
    pub fn count(&self) -> u32 {
        // Lost counts of two threads at once do no harm.
        let sends = self.sends.load(Ordering::Relaxed).saturating_add(1);
        self.sends.store(sends, Ordering::Relaxed);
        self.note_use();
        sends
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
}

/// The sockets of a process for what it sends to peers.
#[derive(Default)]
pub struct TxPeerSockets {
    open: OpenSockets<TxEnd>,
    /// Routes that packets left by lately, with the block that they were for, and how often, about: who sends a share of more than
    /// one in [`TX_PEER_SOCKETS`] is among them (Misra and Gries, "Finding repeated elements", 1982).
    candidates: Mutex<Vec<((Route, u16), u32)>>,
    /// Sockets that could not be had.
    failures: AtomicU32,
}

impl TxPeerSockets {
    /// The one for packets to a block by a route.
    pub fn find(&self, route: &Route, block: u16) -> Option<Arc<TxPeerSocket>> {
        self.open.find(|end| end.is_for(route, block))
    }

    /// The one that has asked a peer with this nonce.
    pub fn of_nonce(&self, nonce: u64) -> Option<Arc<TxPeerSocket>> {
        self.open.find(|end| end.nonce == nonce)
    }

    /// Whether one that packets left by before is still the one for these.
    pub fn is_still(socket: &TxPeerSocket, route: &Route, block: u16) -> bool {
        socket.is_for(route, block) && socket.is_usable()
    }

    /// Counts a send by a route that has no socket of its own. True: it should have one.
    pub fn is_wanted(&self, route: &Route, block: u16) -> bool {
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

    /// Opens one, in the place of a closed one or of the one that was used least.
    pub fn open(&self, route: &Route, block: u16) -> io::Result<Arc<TxPeerSocket>> {
        let new = TxPeerSocket::open(route, block).inspect_err(|_| {
            self.failures.fetch_add(1, Ordering::Relaxed);
        })?;
        let mut open = self.open.0.write();
        open.retain(|socket| !socket.is_closed());
        if open.len() >= TX_PEER_SOCKETS {
            let sends = |socket: &Arc<TxPeerSocket>| socket.sends.load(Ordering::Relaxed);
            if let Some(least) = (0..open.len()).min_by_key(|place| sends(&open[*place])) {
                open.swap_remove(least);
            }
            open.iter().for_each(|socket| socket.sends.store(0, Ordering::Relaxed));
        }
        open.push(new.clone());
        Ok(new)
    }

    /// Closes those that nothing was sent by since the last call. False: none is left.
    pub fn close_unused(&self) -> bool {
        self.open.close_unused()
    }
}

/// A socket for what comes from one socket of a peer.
pub type RxPeerSocket = PeerSocket<RxEnd>;

/// What a socket for what comes from a peer knows of it.
pub struct RxEnd {
    /// What the kernel tells it by.
    token: u64,
    from: SocketAddr,
    pub to: SocketAddr,
    /// It has been empty since it was connected: what comes now comes from there. (What another processor is just adding that came
    /// before is lost, as its ICRC is not that of a packet from there.)
    pub certain: AtomicBool,
}

impl RxEnd {
    /// What is known of what comes by it.
    pub fn ends(&self) -> KnownAddresses {
        let source = self.certain.load(Ordering::Acquire).then_some(self.from);
        KnownAddresses { source, destination: Some(self.to.ip()) }
    }
}

/// The sockets of a process for what comes from peers.
#[derive(Default)]
pub struct RxPeerSockets {
    open: OpenSockets<RxEnd>,
    /// The one that was read last, unless it is being read: mostly it is the next one, too.
    at_hand: Lock<Option<Arc<RxPeerSocket>>>,
    made: AtomicU64,
    /// When it was last looked which are used.
    compared: AtomicU64,
}

impl RxPeerSockets {
    /// The one that a token stands for, to be read.
    pub fn take(&self, token: u64) -> Option<Arc<RxPeerSocket>> {
        let at_hand = self.at_hand.lock().take_if(|socket| socket.token == token);
        at_hand.or_else(|| self.open.find(|end| end.token == token))
    }

    /// Keeps one that was read at hand for the next time.
    pub fn keep_at_hand(&self, socket: Arc<RxPeerSocket>) {
        let mut at_hand = self.at_hand.lock();
        // Asked under the lock: who closes it looks there afterwards.
        let other = if socket.is_closed() { Some(socket) } else { at_hand.replace(socket) };
        drop(at_hand);
        // The last to hold a socket closes it: not under the lock.
        drop(other);
    }

    fn let_go_of_closed(&self) {
        let at_hand = self.at_hand.lock().take_if(|socket| socket.is_closed());
        drop(at_hand);
    }

    /// Closes the one that a token stands for.
    pub fn close(&self, token: u64) {
        self.open.retain(|socket| socket.token != token);
        self.let_go_of_closed();
    }

    /// Closes those that nothing came by since the last call. False: none is left.
    pub fn close_unused(&self) -> bool {
        let any_left = self.open.close_unused();
        self.let_go_of_closed();
        any_left
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<RxPeerSocket>> {
        self.open.0.read().clone()
    }

    /// Opens one for what a socket of a peer sends to an address, unless there is one, or as many as there may be are in use. `begin`
    /// has it read from now on, under a token above `first_token`. False: none was made.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(
        &self,
        (from, to): (SocketAddr, SocketAddr),
        now: u64,
        first_token: u64,
        begin: impl FnOnce(&Descriptor, u64) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut open = self.open.0.write();
        if open.iter().any(|socket| (socket.from, socket.to) == (from, to)) {
            return Ok(false);
        }
        if open.len() >= RX_PEER_SOCKETS {
            // Strangers who ask do not drive out who sends.
            if now.saturating_sub(self.compared.load(Ordering::Relaxed)) < RX_PEER_SOCKET_IDLE {
                return Ok(false);
            }
            self.compared.store(now, Ordering::Relaxed);
            let unused = open.iter().position(|socket| !socket.used.load(Ordering::Relaxed));
            open.iter().for_each(|socket| socket.used.store(false, Ordering::Relaxed));
            let Some(place) = unused else { return Ok(false) };
            open.swap_remove(place).give_up();
            self.let_go_of_closed();
        }
        let socket = udp::rx_peer_socket(from, to)?;
        let token = first_token + self.made.fetch_add(1, Ordering::Relaxed);
        begin(&socket, token)?;
        open.push(PeerSocket::new(socket, RxEnd { token, from, to, certain: AtomicBool::new(false) }));
        Ok(true)
    }
}
