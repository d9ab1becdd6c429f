//! Which packets leave by sockets of their own, and how peers are asked whether these get through ([`Echo`]).
//!
//! Packets by such a socket have another source port. A firewall that only lets in what answers to something from port 4791 would drop
//! them: the peer is asked first, and the socket is used once it has answered. A standard peer never does; for it all stays as it
//! was. A peer that is asked opens a socket for what comes by that one.

use super::peer_sockets::{TxPeerSocket, TxPeerSockets};
use super::{Network, RX_PEER_SOCKET_TOKENS};
use crate::batch::HostBatch;
use crate::destination::queue_pair_of;
use crate::fabric::{QUEUE_PAIRS_PER_BLOCK, ROCE_PORT, Route, port_of};
use crate::udp::{self, Family, MessageInfo, Transmit};
use pagewire_wire::packet::{self, ICRC_LEN};
use pagewire_wire::{Bth, Echo, Icrc, bth};
use rustix::event::epoll;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a packet with an ECHO.
const ECHO_BYTES: usize = bth::LEN + Echo::LEN + ICRC_LEN;

impl Network {
    /// The socket that is connected to where the packets of a batch from one on go, if it may be used.
    pub(super) fn tx_peer_socket(&self, batch: &mut HostBatch, first: usize) -> Option<Arc<TxPeerSocket>> {
        let packet = *batch.packets().get(first)?;
        let route = *batch.route(&packet);
        let queue_pair = queue_pair_of(batch.bytes().get(packet.range())?)?;
        let block = (queue_pair / QUEUE_PAIRS_PER_BLOCK) as u16;
        // A batch that is used again mostly goes where it went before.
        if let Some(socket) =
            batch.tx_peer_socket.take_if(|socket| TxPeerSockets::is_still(socket, &route, block))
        {
            socket.count();
            return Some(socket);
        }
        if let Some(socket) = self.tx_peer_sockets.find(&route, block) {
            let sends = socket.count();
            if socket.is_usable() {
                return Some(socket);
            }
            self.request_echo(&socket, sends, queue_pair);
        } else if (1..0xFFFF).contains(&block)
            && route.interface == 0
            && !route.destination.is_multicast()
            && self.tx_peer_sockets.is_wanted(&route, block)
        {
            match self.tx_peer_sockets.open(&route, block) {
                Ok(socket) => {
                    self.has_sockets_of_peers.store(true, Ordering::Relaxed);
                    self.request_echo(&socket, 0, queue_pair);
                }
                Err(error) => log::debug!("no socket for {} alone: {error}", route.destination),
            }
        }
        None
    }

    /// Asks a peer whether what leaves by a socket reaches it, if that is due.
    fn request_echo(&self, socket: &TxPeerSocket, sends: u32, queue_pair: u32) {
        let Some(block) = self.forwards.read().first().map(|(block, _)| *block) else { return };
        if !socket.is_echo_due(sends) {
            return;
        }
        let own = u32::from(block) * QUEUE_PAIRS_PER_BLOCK;
        let question = Echo { answer: false, queue_pair: own, nonce: socket.nonce };
        let Some(mut tx_state) = socket.begin() else { return };
        let bytes = echo(&question, queue_pair, &socket.icrc, tx_state.next);
        // One that is lost is asked again.
        if let Err(error) = socket.send(&mut tx_state, &bytes, None) {
            log::debug!("{} cannot be asked: {error}", socket.route.destination);
            socket.give_up();
        }
    }

    /// Takes an ECHO that was sent to this process. False: it is something else.
    pub(super) fn take_echo(&self, arrival: &MessageInfo, port: u16, bytes: &[u8]) -> bool {
        if bytes.first() != Some(&Echo::OPCODE.0) {
            return false;
        }
        let Some(Ok(echo)) = bytes.get(bth::LEN..bytes.len() - ICRC_LEN).map(Echo::parse) else {
            return true;
        };
        if !echo.answer {
            self.open_rx_peer_socket(arrival, port);
            self.answer(arrival, &echo);
        } else if let Some(socket) = self.tx_peer_sockets.of_nonce(echo.nonce)
            && socket.route.destination == arrival.source
        {
            socket.echo_answered.store(true, Ordering::Release);
        }
        true
    }

    /// Tells a peer that its question has arrived.
    fn answer(&self, arrival: &MessageInfo, question: &Echo) {
        let Some(port) = self.first.get() else { return };
        let route = Route::new(arrival.destination, arrival.source, port_of(question.queue_pair));
        let icrc = Icrc::between(route.source, route.destination, port.number, route.port);
        let (Some(socket), Some(icrc)) = (port.socket(Family::of(route.destination)), icrc) else { return };
        let bytes = echo(&Echo { answer: true, ..*question }, question.queue_pair, &icrc, 0);
        // One that is lost is asked for again.
        if let Err(error) = udp::send(socket, &[Transmit { route: &route, bytes: &bytes, segment: None }]) {
            log::debug!("no answer to {}: {error}", route.destination);
        }
    }

    /// Makes a socket for what comes from where a question came from, unless as many as there may be are in use.
    fn open_rx_peer_socket(&self, arrival: &MessageInfo, port: u16) {
        // Sockets connected to peers have ports of their own. That one is of all processes there, whose packets are for all of
        // this host.
        if arrival.source_port == ROCE_PORT {
            return;
        }
        let from = SocketAddr::new(arrival.source, arrival.source_port);
        let to = SocketAddr::new(arrival.destination, port);
        let now = self.looked.load(Ordering::Relaxed);
        let made = self.rx_peer_sockets.open((from, to), now, RX_PEER_SOCKET_TOKENS, |socket, token| {
            // Those that are there already when it is wanted are looked through after this one is among them.
            if self.hop_info_requested.load(Ordering::SeqCst) {
                udp::request_hop_info(socket, Family::of(from.ip()))?;
            }
            Ok(epoll::add(&*self.ready, socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
        });
        match made {
            Ok(true) => {
                self.counters.rx_peer_sockets.add(1);
                self.has_sockets_of_peers.store(true, Ordering::Relaxed);
            }
            Ok(false) => {}
            Err(error) => log::debug!("no socket for what {from} sends: {error}"),
        }
    }
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
