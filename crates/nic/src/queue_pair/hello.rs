//! HELLO: two Pagewires recognise each other over the network.

use crate::path::Path;
use crate::queue_pair::QueuePair;
use crate::queue_pair::qp_context::{QpConnection, QpContext};
use pagewire_fabric::Fabric;
use pagewire_wire::{Capabilities, Hello, VendorPacket};
use std::sync::atomic::Ordering;

/// HELLOs sent to a peer that does not answer them.
const HELLO_TRIES: u32 = 12;
/// Nanoseconds between the first two; each interval is twice the one before. Until HELLO has gone both ways losses are
/// met by count, which short acknowledgement timeouts use up soon.
const FIRST_HELLO_INTERVAL: u64 = 1_000_000;
/// Nanoseconds between two at most.
const HELLO_INTERVAL: u64 = 20_000_000;

/// How far the greeting of one connection has come.
#[derive(Default)]
pub(crate) struct HelloState {
    sent: u32,
    next: u64,
    /// This side's connection in its greetings.
    connection: u32,
    /// What the peer said of itself.
    peer: Option<Hello>,
}

impl HelloState {
    /// When the next one is due; `u64::MAX`: none is any more.
    pub(crate) fn due(&self) -> u64 {
        if self.peer.is_some() || self.sent >= HELLO_TRIES { u64::MAX } else { self.next }
    }
}

impl<F: Fabric> QpContext<F> {
    /// The connection begins to send: to the peer it is another one than those before.
    pub(crate) fn begin_greeting(&mut self, queue_pair: &QueuePair<F>) {
        let before = queue_pair.services.connections.fetch_add(1, Ordering::Relaxed);
        self.hello.connection = before.wrapping_add(1).max(1);
    }

    /// Greets the peer over the network until it answers or seems to be a standard one.
    pub(crate) fn greet(&mut self, queue_pair: &QueuePair<F>, now: u64) -> Option<VendorPacket> {
        if self.hello.sent >= HELLO_TRIES && self.hello.peer.is_none() && now >= self.hello.next {
            if let QpConnection::Uc(uc) = &mut self.connection {
                uc.set_reporting(false);
            }
        }
        // Only who sends has a PSN by which the peer knows the greeting.
        let due = self.sending
            && matches!(self.connection, QpConnection::Rc(_) | QpConnection::Uc(_))
            && matches!(self.path, Path::Udp { .. })
            && self.hello.peer.is_none()
            && self.hello.sent < HELLO_TRIES
            && now >= self.hello.next;
        due.then(|| {
            self.hello.next = now + (FIRST_HELLO_INTERVAL << self.hello.sent).min(HELLO_INTERVAL);
            self.hello.sent += 1;
            VendorPacket::Hello(self.hello(queue_pair, false))
        })
    }

    /// Tells the protocol whether the peer may still answer HELLO.
    pub(crate) fn tell_greeting(&mut self, now: u64) {
        let answered = self.hello.peer.is_some();
        let given_up = self.hello.sent >= HELLO_TRIES && now >= self.hello.next;
        let network = matches!(self.path, Path::Udp { .. });
        if let QpConnection::Rc(rc) = &mut self.connection {
            rc.set_greeting(network && !answered && !given_up);
        }
    }

    /// The peer's HELLO has come; gives the answer that it wants.
    pub(crate) fn take_hello(&mut self, queue_pair: &QueuePair<F>, greeting: &Hello) -> Option<VendorPacket> {
        let is_new = match self.hello.peer {
            Some(known) if known.instance == greeting.instance => {
                // A repetition only wants to be answered again, one of an earlier connection was late on its way.
                greeting.connection.wrapping_sub(known.connection) as i32 > 0
            }
            _ => true,
        };
        if is_new {
            let known = self.hello.peer.replace(*greeting);
            self.believe_hello();
            if let (Some(known), QpConnection::Uc(uc)) = (known, &mut self.connection) {
                if known.connection != 0 {
                    uc.peer_began_anew(self.attributes.receive_psn);
                }
            }
        }
        (!greeting.reply).then(|| VendorPacket::Hello(self.hello(queue_pair, true)))
    }

    fn hello(&self, queue_pair: &QueuePair<F>, reply: bool) -> Hello {
        let fabric = &queue_pair.services.fabric;
        Hello {
            version: Hello::VERSION,
            reply,
            capabilities: Capabilities::SELECTIVE_ACK
                | Capabilities::HOLD
                | Capabilities::RESUME
                | Capabilities::REMAINING_LENGTH
                | Capabilities::PARTIAL_READ,
            direct_port: fabric.direct_port(),
            instance: fabric.instance(),
            connection: self.hello.connection,
        }
    }

    /// Does as the peer's HELLO says it can, once there is a connection.
    pub(crate) fn believe_hello(&mut self) {
        let Some(peer) = self.hello.peer else { return };
        let needed =
            Capabilities::SELECTIVE_ACK | Capabilities::REMAINING_LENGTH | Capabilities::PARTIAL_READ;
        let selective = peer.capabilities.contains(needed);
        match &mut self.connection {
            QpConnection::Rc(rc) => {
                rc.set_resumes(peer.capabilities.contains(Capabilities::RESUME));
                rc.set_selective(selective);
            }
            QpConnection::Uc(uc) => uc.set_reporting(selective),
            QpConnection::None | QpConnection::Ud => {}
        }
        if let Path::Udp { route, .. } = &mut self.path {
            if peer.direct_port != 0 {
                route.port = peer.direct_port;
            }
        }
    }
}

impl<F: Fabric> QueuePair<F> {
    /// Whether a greeting shows that its sender knows the connection: it carries the PSN at which the asking side begins
    /// to send, the answer that one again.
    pub(crate) fn knows_greeting(&self, greeting: &Hello, psn: u32) -> bool {
        let attributes = self.shown.attributes.lock();
        psn == if greeting.reply { attributes.send_psn } else { attributes.receive_psn }
    }
}
