//! Sockets connected to those of peers that send much ([`tx_peer_sockets`](super::tx_peer_sockets)): the kernel knows at once for whom a packet is, and
//! needs neither routes nor the steering program for it.
//!
//! Such a socket shares the port, but as it is bound to one address it is not among the sockets that are steered
//! ([`steering`](crate::steering)), which are bound to all: the kernel looks for one that is connected to the sender first. From the
//! moment that it is bound until it is connected it gets whatever comes to that address, and hands it on like any other.

use super::{Network, RX_PEER_SOCKET_TOKENS};
use crate::descriptors::Descriptor;
use crate::fabric::ROCE_PORT;
use crate::limits::{RX_PEER_SOCKET_IDLE, RX_PEER_SOCKETS};
use crate::lock::Lock;
use crate::udp::{self, Arrival, Ends, Family};
use parking_lot::RwLock;
use rustix::event::epoll;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The socket for what comes from one socket of a peer.
pub(super) struct RxPeerSocket {
    /// What `ready` tells it by.
    token: u64,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub socket: Descriptor,
    /// It has been empty since it was connected: what comes now comes from there. (What another processor is just adding that came
    /// before is lost, as its ICRC is not that of a packet from there.)
    pub certain: AtomicBool,
    /// Something has come by it lately.
    used: AtomicBool,
    /// It is not among the receiving peer sockets any more.
    closed: AtomicBool,
}

/// The receiving peer sockets of a process.
#[derive(Default)]
pub(super) struct RxPeerSockets {
    open: RwLock<Vec<Arc<RxPeerSocket>>>,
    /// The one that was read last, unless it is being read: mostly it is the next one, too.
    at_hand: Lock<Option<Arc<RxPeerSocket>>>,
    made: AtomicU64,
    /// When it was last looked which are used.
    compared: AtomicU64,
}

impl RxPeerSocket {
    /// What is known of what comes by it.
    pub fn ends(&self) -> Ends {
        let source = self.certain.load(Ordering::Acquire).then_some(self.from);
        Ends { source, destination: Some(self.to.ip()) }
    }

    pub fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

impl RxPeerSockets {
    /// The one that a token stands for.
    fn of(&self, token: u64) -> Option<Arc<RxPeerSocket>> {
        self.open.read().iter().find(|rx_peer_socket| rx_peer_socket.token == token).cloned()
    }

    /// The one that a token stands for, to be read.
    pub fn take(&self, token: u64) -> Option<Arc<RxPeerSocket>> {
        let at_hand = self.at_hand.lock().take_if(|rx_peer_socket| rx_peer_socket.token == token);
        at_hand.or_else(|| self.of(token))
    }

    /// Keeps one that was read at hand for the next time.
    pub fn keep_at_hand(&self, rx_peer_socket: Arc<RxPeerSocket>) {
        let mut at_hand = self.at_hand.lock();
        // Asked under the lock: who closes it looks there afterwards.
        let other = if rx_peer_socket.closed.load(Ordering::SeqCst) {
            Some(rx_peer_socket)
        } else {
            at_hand.replace(rx_peer_socket)
        };
        drop(at_hand);
        // The last to hold a socket closes it: not under the lock.
        drop(other);
    }

    /// Closes the one that a token stands for.
    pub fn close(&self, token: u64) {
        self.retain(|rx_peer_socket| rx_peer_socket.token != token);
    }

    /// Closes those that nothing came by since the last call. False: none is left.
    pub fn close_unused(&self) -> bool {
        self.retain(|rx_peer_socket| rx_peer_socket.used.swap(false, Ordering::Relaxed))
    }

    /// Closes those that are not to stay. False: none is left.
    fn retain(&self, stays: impl Fn(&RxPeerSocket) -> bool) -> bool {
        let mut open = self.open.write();
        open.retain(|rx_peer_socket| {
            let stays = stays(rx_peer_socket);
            if !stays {
                self.note_closed(rx_peer_socket);
            }
            stays
        });
        !open.is_empty()
    }

    /// One is no longer among the receiving peer sockets. The kernel goes on giving its socket what is for it for as long as anybody holds that: at
    /// most who reads it just now.
    fn note_closed(&self, rx_peer_socket: &RxPeerSocket) {
        rx_peer_socket.closed.store(true, Ordering::SeqCst);
        let at_hand = self.at_hand.lock().take_if(|at_hand| at_hand.token == rx_peer_socket.token);
        drop(at_hand);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<RxPeerSocket>> {
        self.open.read().clone()
    }
}

impl Network {
    /// Makes a socket for what comes from where a question came from, unless as many as there may be are in use.
    pub(super) fn open_rx_peer_socket(&self, arrival: &Arrival, port: u16) {
        // Sockets connected to peers have ports of their own. That one is of all processes there, whose packets are for all of
        // this host.
        if arrival.source_port == ROCE_PORT {
            return;
        }
        let from = SocketAddr::new(arrival.source, arrival.source_port);
        let to = SocketAddr::new(arrival.destination, port);
        let mut open = self.rx_peer_sockets.open.write();
        if open.iter().any(|rx_peer_socket| (rx_peer_socket.from, rx_peer_socket.to) == (from, to)) {
            return;
        }
        if open.len() >= RX_PEER_SOCKETS {
            // Strangers who ask do not drive out who sends.
            let now = self.looked.load(Ordering::Relaxed);
            if now.saturating_sub(self.rx_peer_sockets.compared.load(Ordering::Relaxed)) < RX_PEER_SOCKET_IDLE
            {
                return;
            }
            self.rx_peer_sockets.compared.store(now, Ordering::Relaxed);
            let unused = open.iter().position(|rx_peer_socket| !rx_peer_socket.used.load(Ordering::Relaxed));
            open.iter().for_each(|rx_peer_socket| rx_peer_socket.used.store(false, Ordering::Relaxed));
            let Some(place) = unused else { return };
            self.rx_peer_sockets.note_closed(&open.swap_remove(place));
        }
        match self.make_rx_peer_socket(from, to) {
            Ok(rx_peer_socket) => {
                self.counters.rx_peer_sockets.add(1);
                self.has_sockets_of_peers.store(true, Ordering::Relaxed);
                open.push(Arc::new(rx_peer_socket));
            }
            Err(error) => log::debug!("no socket for what {from} sends: {error}"),
        }
    }

    fn make_rx_peer_socket(&self, from: SocketAddr, to: SocketAddr) -> io::Result<RxPeerSocket> {
        let socket = udp::rx_peer_socket(from, to)?;
        // Those that are there already when it is wanted are looked through after this one is among them.
        if self.hop_info_requested.load(Ordering::SeqCst) {
            udp::request_hop_info(&socket, Family::of(from.ip()))?;
        }
        let token = RX_PEER_SOCKET_TOKENS + self.rx_peer_sockets.made.fetch_add(1, Ordering::Relaxed);
        epoll::add(&*self.ready, &socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        let [certain, closed] = [(); 2].map(|()| AtomicBool::new(false));
        Ok(RxPeerSocket { token, from, to, socket, certain, used: AtomicBool::new(true), closed })
    }
}
