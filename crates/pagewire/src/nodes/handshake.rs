//! How the queue pairs of two nodes are connected: what the nodes tell each other over TCP, and what they make of it.

use crate::error::{Error, Result, refused};
use crate::limits::{CONNECT_PATIENCE, DESTROY_TRIES, KEEP_ALIVE, SEND_DEPTH};
use crate::nodes::engine::Host;
use crate::nodes::inbox::Inbox;
use crate::nodes::services::{FlushRegion, NodeServices, random};
use crate::nodes::sources::KnownPeers;
use crate::regions::token::NodeAddress;
use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::device::Mtu;
use pagewire_nic::{QueuePair, QueuePairInit, RefusalScope, Rights};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

const MAGIC: [u8; 8] = *b"PAGEWIRE";
/// Of the messages below.
const VERSION: u8 = 4;
/// Bytes of a message at most; one byte in front of it says how many it has.
pub(crate) const MAX_MESSAGE: usize = 128;

/// What a node that has a token says first. Magic and version stand first in all versions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConnectRequest {
    magic: [u8; 8],
    version: u8,
    /// That of the token: who does not know it is a stranger.
    nonce: u64,
    /// The node that says it.
    from: NodeAddress,
    endpoint: ConnectionEndpoint,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ConnectionEndpoint {
    gid: [u8; 16],
    queue_pair: u32,
    /// Of the first request.
    psn: u32,
    /// A value of `enum ibv_mtu`.
    mtu: u32,
}

/// What the other node says to it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HandshakeAnswer {
    Accepted(ConnectionEndpoint, FlushRegion),
    Refused(ConnectRefusal),
}

/// Why a node takes no connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum ConnectRefusal {
    #[error("it speaks version {0} of Pagewire's handshake, and this process version {VERSION}")]
    Version(u8),
    #[error("it is not the node that made the token: that has ended")]
    Nonce,
    #[error("it has as many peers as it can have")]
    TooManyPeers,
    #[error("it could not make a queue pair (error {0})")]
    Engine(i32),
}

/// A message with its length in front.
pub(crate) fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0];
    let body = postcard::to_allocvec(message)
        .unwrap_or_else(|error| unreachable!("a message of numbers cannot be encoded: {error}"));
    debug_assert!((1..=MAX_MESSAGE).contains(&body.len()));
    bytes[0] = body.len() as u8;
    bytes.extend(body);
    bytes
}

/// A queue pair in INIT. `inbox`: where messages of the peer come, which then may access this process.
fn queue_pair(services: &NodeServices, inbox: Option<&Inbox>) -> Result<Arc<QueuePair<Host>>> {
    let what = "a queue pair";
    let completions = services.completions.queue();
    let rights = match inbox {
        Some(_) => Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC,
        None => Rights::empty(),
    };
    let init = QueuePairInit {
        kind: QueuePairType::Rc,
        send_cq: completions.clone(),
        recv_cq: inbox.map_or(completions, Inbox::queue).clone(),
        srq: inbox.map(Inbox::receives),
        capabilities: QpCapabilities {
            max_send_wr: SEND_DEPTH,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        signal_all: true,
        xrc: None,
    };
    let queue_pair = pagewire_nic::QueuePair::create(&services.domain, init).map_err(refused(what))?;
    // Both ends do so: the handshake has a version of its own.
    queue_pair.set_refusal_scope(RefusalScope::Request);
    let change = QueuePairChange {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(rights),
        ..Default::default()
    };
    match queue_pair.modify(&change) {
        Ok(()) => Ok(queue_pair),
        Err(error) => {
            discard(&queue_pair);
            Err(refused(what)(error))
        }
    }
}

impl ConnectionEndpoint {
    fn new(services: &NodeServices, queue_pair: &QueuePair<Host>) -> Result<ConnectionEndpoint> {
        Ok(ConnectionEndpoint {
            gid: services.port.gid,
            queue_pair: queue_pair.number(),
            psn: random()? as u32 & 0xFF_FFFF,
            mtu: services.port.mtu as u32,
        })
    }

    /// Connects a queue pair in INIT to the other end, which `self` is the own one of.
    fn connect(
        &self,
        services: &NodeServices,
        queue_pair: &QueuePair<Host>,
        other: &ConnectionEndpoint,
    ) -> Result<()> {
        let what = "a connection of queue pairs";
        let mtu = Mtu::from_repr(self.mtu.min(other.mtu)).unwrap_or_default();
        let address = AddressVector {
            destination_gid: other.gid,
            source_gid_index: services.port.gid_index,
            hop_limit: 64,
            is_global: true,
            port: 1,
            ..Default::default()
        };
        let receive = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(address),
            path_mtu: Some(mtu),
            destination: Some(other.queue_pair),
            receive_psn: Some(other.psn),
            max_dest_read_atomic: Some(16),
            min_rnr_timer: Some(12),
            ..Default::default()
        };
        let send = QueuePairChange {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(self.psn),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_read_atomic: Some(16),
            ..Default::default()
        };
        queue_pair.modify(&receive).map_err(refused(what))?;
        queue_pair.modify(&send).map_err(refused(what))
    }
}

/// What a node that connects gets.
pub(crate) struct Connected {
    pub queue_pair: Arc<QueuePair<Host>>,
    /// The TCP connection that lasts as long.
    pub stream: TcpStream,
    pub flush: FlushRegion,
}

/// Connects to a node.
pub(crate) fn connect(services: &NodeServices, to: &NodeAddress) -> Result<Connected> {
    let queue_pair = queue_pair(services, None)?;
    let connected = greet(services, to, &queue_pair);
    if connected.is_err() {
        discard(&queue_pair);
    }
    let (stream, flush) = connected?;
    Ok(Connected { queue_pair, stream, flush })
}

/// Why nodes of other hosts are not connected to.
const CUT_OFF: &str = "PAGEWIRE_TLS is set, and nodes greet each other in the clear";

fn greet(
    services: &NodeServices,
    to: &NodeAddress,
    queue_pair: &QueuePair<Host>,
) -> Result<(TcpStream, FlushRegion)> {
    let cannot = |why: String| Error::Connect { node: to.socket(), why };
    let failed = |error: std::io::Error| cannot(error.to_string());
    if services.is_cut_off(to.socket().ip()) {
        return Err(cannot(format!("{CUT_OFF}: only nodes of this host can be connected to")));
    }
    let own = ConnectionEndpoint::new(services, queue_pair)?;
    let mut stream = TcpStream::connect_timeout(&to.socket(), CONNECT_PATIENCE).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    keep_alive(&stream).map_err(failed)?;
    let from = services.address;
    let request = ConnectRequest { magic: MAGIC, version: VERSION, nonce: to.nonce, from, endpoint: own };
    stream.write_all(&frame(&request)).map_err(failed)?;
    let mut bytes = [0; MAX_MESSAGE];
    let deadline = Instant::now() + CONNECT_PATIENCE;
    read_until(&mut stream, &mut bytes[..1], deadline).map_err(failed)?;
    let length = usize::from(bytes[0]);
    let body = bytes.get_mut(..length).ok_or_else(|| cannot("what answers there is no Pagewire".into()))?;
    read_until(&mut stream, body, deadline).map_err(|error| match error.kind() {
        // It has said less than it announced.
        ErrorKind::UnexpectedEof => cannot("what answers there is no Pagewire".into()),
        _ => failed(error),
    })?;
    match postcard::from_bytes(body) {
        Ok(HandshakeAnswer::Accepted(other, flush)) => {
            own.connect(services, queue_pair, &other)?;
            Ok((stream, flush))
        }
        Ok(HandshakeAnswer::Refused(refusal)) => Err(cannot(refusal.to_string())),
        Err(_) => Err(cannot("what answers there is no Pagewire".into())),
    }
}

/// Fills `bytes`, however slowly they come, by this time.
fn read_until(stream: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> std::io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
        match stream.read(&mut bytes[at..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Has the kernel notice that the other host is gone, which closes nothing.
pub(crate) fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, KEEP_ALIVE)?;
    set_tcp_keepintvl(stream, KEEP_ALIVE)?;
    Ok(set_tcp_keepcnt(stream, 3)?)
}

/// Answers a node: the queue pair of this side if it is accepted, and what to send. `None`: it says nothing that deserves an answer.
/// `is_full`: it has as many peers as it can have.
pub(crate) fn accept(
    services: &NodeServices,
    message: &[u8],
    is_full: bool,
) -> Option<(Option<HandshakeResponder>, HandshakeAnswer)> {
    let (magic, behind) = message.split_at_checked(MAGIC.len())?;
    let version = *behind.first()?;
    if magic != MAGIC {
        return None;
    }
    let refuse = |refusal| Some((None, HandshakeAnswer::Refused(refusal)));
    if version != VERSION {
        return refuse(ConnectRefusal::Version(VERSION));
    }
    let request: ConnectRequest = postcard::from_bytes(message).ok()?;
    if request.nonce != services.address.nonce {
        return refuse(ConnectRefusal::Nonce);
    }
    if is_full {
        return refuse(ConnectRefusal::TooManyPeers);
    }
    let made = respond(services, request.from, &request.endpoint);
    Some(match made {
        Ok((responder, own, flush)) => (Some(responder), HandshakeAnswer::Accepted(own, flush)),
        Err(error) => {
            log::debug!("a peer cannot connect: {error}");
            let errno = if let Error::Engine { why, .. } = error { why.errno() } else { 0 };
            (None, HandshakeAnswer::Refused(ConnectRefusal::Engine(errno)))
        }
    })
}

/// This side of a peer's connection.
pub(crate) struct HandshakeResponder {
    queue_pair: Arc<QueuePair<Host>>,
    inbox: Arc<Inbox>,
    known_peers: Arc<KnownPeers>,
}

impl HandshakeResponder {
    /// Destroys its queue pair, in another thread where that takes time. What the peer has said before is read.
    pub fn discard_soon(self) {
        self.inbox.completions().drain();
        self.inbox.leave(self.queue_pair.number());
        self.known_peers.leave(self.queue_pair.number());
        discard_soon(self.queue_pair);
    }
}

fn respond(
    services: &NodeServices,
    from: NodeAddress,
    other: &ConnectionEndpoint,
) -> Result<(HandshakeResponder, ConnectionEndpoint, FlushRegion)> {
    let flush = services.flush_region()?;
    let inbox = services.inbox()?;
    let queue_pair = queue_pair(services, Some(&inbox))?;
    inbox.enter(queue_pair.number(), from);
    services.known_peers.enter(queue_pair.number(), from);
    // Nobody else knows the nonce.
    queue_pair.set_caller(from.nonce);
    let responder = HandshakeResponder { queue_pair, inbox, known_peers: services.known_peers.clone() };
    let connected = ConnectionEndpoint::new(services, &responder.queue_pair).and_then(|own| {
        own.connect(services, &responder.queue_pair, other)?;
        Ok(own)
    });
    match connected {
        Ok(own) => Ok((responder, own, flush)),
        Err(error) => {
            responder.discard_soon();
            Err(error)
        }
    }
}

/// Destroys a queue pair, in another thread where that takes time.
fn discard_soon(queue_pair: Arc<QueuePair<Host>>) {
    if queue_pair.destroy().is_ok() {
        return;
    }
    let destroyed = pagewire_fabric::spawn("pagewire-discard", move || {
        discard(&queue_pair);
    });
    if let Err(error) = destroyed {
        log::warn!("a queue pair stays: {error}");
    }
}

/// Destroys a queue pair. False: an access does not end (it waits for a page that does not come), and the queue pair stays.
pub(crate) fn discard(queue_pair: &QueuePair<Host>) -> bool {
    for _ in 0..DESTROY_TRIES {
        match queue_pair.destroy() {
            Ok(()) => return true,
            Err(error) => log::warn!("a queue pair is not destroyed yet: {error}"),
        }
    }
    false
}
