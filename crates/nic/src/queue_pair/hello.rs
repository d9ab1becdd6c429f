//! HELLO: two Pagewires recognise each other over the network.

use crate::path::Path;
use crate::queue_pair::QueuePair;
use crate::queue_pair::qp_context::{QpConnection, QpContext};
use crate::types::attributes::{Attributes, QpState};
use pagewire_fabric::Fabric;
use pagewire_wire::limits::STREAM_MTU;
use pagewire_wire::{Capabilities, Hello, VendorPacket};
use std::sync::atomic::Ordering;

/// HELLOs sent to a peer that does not answer them.
const HELLO_TRIES: u32 = 12;
/// HELLOs over a stream, which wait for the peer's answer before anything else is sent: a second passes until a peer that does not answer is sent
/// requests all the same.
const STREAM_HELLO_TRIES: u32 = 50;
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
    /// How the packets of a stream are cut.
    cut: PacketCut,
    /// It goes before all else, until that is known.
    ahead: bool,
    /// The peer has asked, and the answer could not leave.
    owes_reply: bool,
}

/// How packets are cut that travel in a stream. PSNs count packets: both ends have to cut alike, and agree before the first PSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PacketCut {
    /// The peer has not been heard.
    #[default]
    Unknown,
    /// By the path MTU, as over UDP: the peer's packets do not travel in a stream.
    PathMtu,
    /// By [`STREAM_MTU`]: the packets of both do.
    StreamMtu,
}

impl HelloState {
    /// When the next one is due; `u64::MAX`: none is any more.
    pub(crate) fn due(&self) -> u64 {
        if self.peer.is_some() || self.sent >= HELLO_TRIES && !self.ahead { u64::MAX } else { self.next }
    }
}

impl<F: Fabric> QpContext<F> {
    /// The connection begins to send: to the peer it is another one than those before.
    pub(crate) fn begin_greeting(&mut self, queue_pair: &QueuePair<F>) {
        if self.hello.connection == 0 {
            let before = queue_pair.services.connections.fetch_add(1, Ordering::Relaxed);
            self.hello.connection = before.wrapping_add(1).max(1);
        }
    }

    /// Whether the ends have not agreed yet how they cut the packets of a stream: nothing is sent before, but HELLO.
    pub(crate) fn awaits_cut(&self) -> bool {
        self.hello.cut == PacketCut::Unknown && self.path.is_stream()
    }

    /// Whether the protocol may begin, as far as the cut of packets goes. The peer may have been heard before this side had a stream.
    pub(crate) fn knows_cut(&mut self) -> bool {
        if let (true, Some(peer)) = (self.awaits_cut(), self.hello.peer) {
            self.agree_on_cut(&peer);
        }
        !self.awaits_cut()
    }

    /// Payload bytes of a packet.
    pub(crate) fn mtu(&self, queue_pair: &QueuePair<F>, attributes: &Attributes) -> u32 {
        match self.hello.cut {
            PacketCut::StreamMtu => STREAM_MTU as u32,
            PacketCut::Unknown | PacketCut::PathMtu => queue_pair.link_mtu(attributes),
        }
    }

    /// A request has come before the ends have agreed, and this side, which only receives, asks nothing: the peer has given up to agree.
    #[cold]
    pub(crate) fn cut_as_sent(&mut self) {
        let is_receiver = self.attributes.state == QpState::ReadyToReceive;
        if is_receiver && self.hello.connection == 0 && self.hello.peer.is_none() {
            self.cut_by_path_mtu();
        }
    }

    /// The peer does not say.
    fn cut_by_path_mtu(&mut self) {
        if self.awaits_cut() {
            log::debug!(
                "packets to queue pair {:#x} are cut by the path MTU: the peer does not say",
                self.attributes.destination
            );
            self.hello.cut = PacketCut::PathMtu;
        }
    }

    /// Agrees with what the peer says of its packets. A connection that has not begun does as the peer says last.
    fn agree_on_cut(&mut self, greeting: &Hello) {
        if !self.path.is_stream() {
            return;
        }
        let cut = match greeting.capabilities.contains(Capabilities::STREAM_UNITS) {
            true => PacketCut::StreamMtu,
            false => PacketCut::PathMtu,
        };
        let gives_in =
            self.hello.cut == PacketCut::StreamMtu && cut == PacketCut::PathMtu && self.is_untouched();
        if gives_in {
            // What was posted is posted again.
            (self.connection, self.sending, self.submitted) = (QpConnection::None, false, 0);
        }
        if gives_in || self.hello.cut == PacketCut::Unknown {
            log::debug!("packets to queue pair {:#x} are cut by {cut:?}", self.attributes.destination);
            self.hello.cut = cut;
        }
    }

    /// Whether nothing of the connection has been sent or come.
    fn is_untouched(&self) -> bool {
        let counters = self.connection.counters();
        counters.requests_sent + counters.packets_received == 0
    }

    /// Greets the peer over the network until it answers or seems to be a standard one.
    pub(crate) fn greet(&mut self, queue_pair: &QueuePair<F>, now: u64) -> Option<VendorPacket> {
        if self.hello.sent >= HELLO_TRIES && self.hello.peer.is_none() && now >= self.hello.next {
            if let QpConnection::Uc(uc) = &mut self.connection {
                uc.set_reporting(false);
            }
        }
        // Only who sends has a PSN by which the peer knows the greeting.
        if self.hello.owes_reply && matches!(self.path, Path::Network { .. }) {
            self.hello.owes_reply = false;
            return Some(VendorPacket::Hello(self.hello(queue_pair, true)));
        }
        if self.greets_ahead() {
            self.begin_greeting(queue_pair);
            if self.hello.sent >= STREAM_HELLO_TRIES && now >= self.hello.next {
                // Said once more, as it is not what was said before.
                self.cut_by_path_mtu();
                self.hello.sent = HELLO_TRIES - 1;
            }
        }
        self.hello.ahead = self.greets_ahead();
        let (ahead, tries) = match self.hello.ahead {
            true => (true, STREAM_HELLO_TRIES),
            false => (false, HELLO_TRIES),
        };
        let due = (ahead
            || self.sending && matches!(self.connection, QpConnection::Rc(_) | QpConnection::Uc(_)))
            && matches!(self.path, Path::Network { .. })
            && self.hello.peer.is_none()
            && self.hello.sent < tries
            && now >= self.hello.next;
        due.then(|| {
            self.hello.next = now + (FIRST_HELLO_INTERVAL << self.hello.sent.min(8)).min(HELLO_INTERVAL);
            self.hello.sent += 1;
            VendorPacket::Hello(self.hello(queue_pair, false))
        })
    }

    /// Notes whether an answer to HELLO has still to leave.
    pub(crate) fn owe_reply(&mut self, owes: bool) {
        self.hello.owes_reply |= owes;
    }

    /// Whether one does.
    pub(crate) fn owes_reply(&self) -> bool {
        self.hello.owes_reply
    }

    /// Whether HELLO goes before all else that this side sends.
    pub(crate) fn greets_ahead(&self) -> bool {
        self.awaits_cut() && matches!(self.attributes.state, QpState::ReadyToSend | QpState::SendQueueDrain)
    }

    /// Tells the protocol whether the peer may still answer HELLO.
    pub(crate) fn tell_greeting(&mut self, now: u64) {
        let answered = self.hello.peer.is_some();
        let given_up = self.hello.sent >= HELLO_TRIES && now >= self.hello.next;
        let network = matches!(self.path, Path::Network { .. });
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
        self.agree_on_cut(greeting);
        if is_new {
            let known = self.hello.peer.replace(*greeting);
            self.believe_hello();
            if let (Some(known), QpConnection::Uc(uc)) = (known, &mut self.connection) {
                if known.connection != 0 {
                    uc.peer_began_anew(self.attributes.receive_psn);
                }
            }
        }
        if matches!(self.path, Path::None | Path::Connecting { .. }) {
            self.owe_reply(!greeting.reply);
            return None;
        }
        (!greeting.reply).then(|| VendorPacket::Hello(self.hello(queue_pair, true)))
    }

    fn hello(&self, queue_pair: &QueuePair<F>, reply: bool) -> Hello {
        let fabric = &queue_pair.services.fabric;
        let by_stream = self.path.is_stream() && self.hello.cut != PacketCut::PathMtu;
        let stream_units = if by_stream { Capabilities::STREAM_UNITS } else { Capabilities::empty() };
        Hello {
            version: Hello::VERSION,
            reply,
            capabilities: Capabilities::SELECTIVE_ACK
                | Capabilities::HOLD
                | Capabilities::RESUME
                | Capabilities::REMAINING_LENGTH
                | Capabilities::PARTIAL_READ
                | stream_units,
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
        if let Path::Network { route, .. } = &mut self.path {
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
