//! Sockets connected to those of peers that send much ([`ways`](super::ways)): the kernel knows at once for whom a packet is, and
//! needs neither routes nor the steering program for it.
//!
//! Such a socket shares the port, but as it is bound to one address it is not among the sockets that are steered
//! ([`steering`](crate::steering)), which are bound to all: the kernel looks for one that is connected to the sender first. From the
//! moment that it is bound until it is connected it gets whatever comes to that address, and hands it on like any other.

use super::{INLETS_FROM, Network};
use crate::descriptors::Descriptor;
use crate::fabric::ROCE_PORT;
use crate::limits::{INLET_REST, INLETS};
use crate::lock::Lock;
use crate::udp::{self, Arrival, Ends, Family};
use parking_lot::RwLock;
use rustix::event::epoll;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The socket for what comes from one socket of a peer.
pub(super) struct Inlet {
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
    /// It is not among the inlets any more.
    closed: AtomicBool,
}

/// The inlets of a process.
#[derive(Default)]
pub(super) struct Inlets {
    open: RwLock<Vec<Arc<Inlet>>>,
    /// The one that was read last, unless it is being read: mostly it is the next one, too.
    at_hand: Lock<Option<Arc<Inlet>>>,
    made: AtomicU64,
    /// When it was last looked which are used.
    compared: AtomicU64,
}

impl Inlet {
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

impl Inlets {
    /// The one that a token stands for.
    fn of(&self, token: u64) -> Option<Arc<Inlet>> {
        self.open.read().iter().find(|inlet| inlet.token == token).cloned()
    }

    /// The one that a token stands for, to be read.
    pub fn take(&self, token: u64) -> Option<Arc<Inlet>> {
        let at_hand = self.at_hand.lock().take_if(|inlet| inlet.token == token);
        at_hand.or_else(|| self.of(token))
    }

    /// Keeps one that was read at hand for the next time.
    pub fn keep_at_hand(&self, inlet: Arc<Inlet>) {
        let mut at_hand = self.at_hand.lock();
        // Asked under the lock: who closes it looks there afterwards.
        let other = if inlet.closed.load(Ordering::SeqCst) { Some(inlet) } else { at_hand.replace(inlet) };
        drop(at_hand);
        // The last to hold a socket closes it: not under the lock.
        drop(other);
    }

    /// Closes the one that a token stands for.
    pub fn close(&self, token: u64) {
        self.retain(|inlet| inlet.token != token);
    }

    /// Closes those that nothing came by since the last call. False: none is left.
    pub fn close_unused(&self) -> bool {
        self.retain(|inlet| inlet.used.swap(false, Ordering::Relaxed))
    }

    /// Closes those that are not to stay. False: none is left.
    fn retain(&self, stays: impl Fn(&Inlet) -> bool) -> bool {
        let mut open = self.open.write();
        open.retain(|inlet| {
            let stays = stays(inlet);
            if !stays {
                self.note_closed(inlet);
            }
            stays
        });
        !open.is_empty()
    }

    /// One is no longer among the inlets. The kernel goes on giving its socket what is for it for as long as anybody holds that: at
    /// most who reads it just now.
    fn note_closed(&self, inlet: &Inlet) {
        inlet.closed.store(true, Ordering::SeqCst);
        let at_hand = self.at_hand.lock().take_if(|at_hand| at_hand.token == inlet.token);
        drop(at_hand);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Inlet>> {
        self.open.read().clone()
    }
}

impl Network {
    /// Makes a socket for what comes from where a question came from, unless as many as there may be are in use.
    pub(super) fn open_inlet(&self, arrival: &Arrival, port: u16) {
        // Sockets connected to peers have ports of their own. That one is of all processes there, whose packets are for all of
        // this host.
        if arrival.source_port == ROCE_PORT {
            return;
        }
        let from = SocketAddr::new(arrival.source, arrival.source_port);
        let to = SocketAddr::new(arrival.destination, port);
        let mut open = self.inlets.open.write();
        if open.iter().any(|inlet| (inlet.from, inlet.to) == (from, to)) {
            return;
        }
        if open.len() >= INLETS {
            // Strangers who ask do not drive out who sends.
            let now = self.looked.load(Ordering::Relaxed);
            if now.saturating_sub(self.inlets.compared.load(Ordering::Relaxed)) < INLET_REST {
                return;
            }
            self.inlets.compared.store(now, Ordering::Relaxed);
            let unused = open.iter().position(|inlet| !inlet.used.load(Ordering::Relaxed));
            open.iter().for_each(|inlet| inlet.used.store(false, Ordering::Relaxed));
            let Some(place) = unused else { return };
            self.inlets.note_closed(&open.swap_remove(place));
        }
        match self.make_inlet(from, to) {
            Ok(inlet) => {
                self.counters.inlets.add(1);
                self.has_sockets_of_peers.store(true, Ordering::Relaxed);
                open.push(Arc::new(inlet));
            }
            Err(error) => log::debug!("no socket for what {from} sends: {error}"),
        }
    }

    fn make_inlet(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Inlet> {
        let socket = udp::inlet(from, to)?;
        // Those that are there already when it is wanted are looked through after this one is among them.
        if self.hops_told.load(Ordering::SeqCst) {
            udp::tell_hops(&socket, Family::of(from.ip()))?;
        }
        let token = INLETS_FROM + self.inlets.made.fetch_add(1, Ordering::Relaxed);
        epoll::add(&*self.ready, &socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        let [certain, closed] = [(); 2].map(|()| AtomicBool::new(false));
        Ok(Inlet { token, from, to, socket, certain, used: AtomicBool::new(true), closed })
    }
}
