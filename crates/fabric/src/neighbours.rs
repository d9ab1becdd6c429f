//! The other processes of this host: how channels to them are made, and how their end is noticed.
//!
//! Everything here is driven by an epoll instance of its own (`control`), one caller at a time, and never blocks. A
//! connection of SOCK_SEQPACKET stays open for as long as the channel lives: its end is the peer's end, one byte
//! on it is a wake-up.

use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::fabric::{Channel, ChannelId, FabricEvent, Side};
use crate::handshake::{ACCEPT_FILES, Identity, Message, READY_FILES};
use crate::limits::{
    CHANNEL_WORDS, CHANNELS, HANDSHAKE_TIME, HANDSHAKES, MAILBOX_WORDS, MESSAGE_BYTES, MESSAGES_IN_A_ROW,
    RETRY_TIME, TABLE_WORDS,
};
use crate::nonce::Nonce;
use crate::trust::{self, Peer};
use crate::words::{Access, MappedWords};
use crate::{names, sockets};
use pagewire_memory::HostProcess;
use parking_lot::RwLock;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, connect};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Events of the real fabric.
pub type HostEvent = FabricEvent<MappedWords, HostProcess>;
type HostChannel = Channel<MappedWords, HostProcess>;

/// What this process shows to peers that have proved that they may trace it.
pub struct Shown {
    pub instance: u64,
    pub tables: (MappedWords, Descriptor),
    pub mailbox: (MappedWords, Descriptor),
    /// Found out once: two processes that made two channels at once may each use another one, and have to agree.
    pub swaps_at_a_limit: bool,
}

impl Shown {
    fn identity(&self, nonce: &Nonce) -> Identity {
        Identity {
            instance: self.instance,
            nonce_address: nonce.address(),
            swaps_at_a_limit: self.swaps_at_a_limit,
        }
    }
}

/// The connections of open channels, for whoever wakes a peer.
pub type Bells = RwLock<HashMap<ChannelId, Arc<Descriptor>>>;

/// All connections of this process.
pub struct Neighbours {
    control: BorrowedEpoll,
    shown: Arc<Shown>,
    bells: Arc<Bells>,
    counters: Arc<Counters>,
    listeners: HashMap<u64, Descriptor>,
    /// Names held by sockets that do not listen ([`Fabric::refuse_channels`](crate::Fabric::refuse_channels)).
    claims: Vec<Descriptor>,
    connections: BTreeMap<u64, Connection>,
    open: Vec<(u64, HostChannel)>,
    /// Nothing is accepted since then: it would be refused, and peers can wait.
    paused: Option<u64>,
    next_token: u64,
    next_channel: u32,
    /// What happened, not taken yet.
    pub events: Vec<HostEvent>,
}

type BorrowedEpoll = Arc<Descriptor>;

struct Connection {
    socket: Arc<Descriptor>,
    stage: Stage,
    since: u64,
}

enum Stage {
    /// The peer's backlog was full: to be tried again.
    Unconnected { block: u32, tried: u64 },
    /// Opener: Hello was sent.
    Asked { block: u32, peer: Peer, nonce: Nonce },
    /// Opener: Ready was sent, with this process's files.
    Offered { block: u32, words: MappedWords, peer: Traceable },
    /// Acceptor: a Hello is expected.
    Accepted { peer: Peer },
    /// Acceptor: Welcome was sent.
    Challenged { nonce: Nonce, peer: Traceable },
    /// Acceptor: the channel is known here, Accept was sent; the opener's Confirm is expected.
    Granted { channel: HostChannel },
    /// Both ends know the channel.
    Open { channel: ChannelId, process: HostProcess },
}

/// A peer whose memory this process can read.
#[derive(Clone)]
struct Traceable {
    process: HostProcess,
    instance: u64,
    swaps_at_a_limit: bool,
}

impl Traceable {
    /// Reads the nonce that the peer's identity names. The value is the proof for the peer.
    fn new(peer: &Peer, theirs: &Identity) -> Result<(Self, u64), End> {
        let refuse = |reason| End::Untraceable {
            here: format!("this process may not touch the peer's memory: {reason}"),
            there: format!("the peer may not touch this process's memory: {reason}"),
        };
        let (process, proof) = trust::read_nonce(peer, theirs.nonce_address).map_err(refuse)?;
        let Identity { instance, swaps_at_a_limit, .. } = *theirs;
        Ok((Traceable { process, instance, swaps_at_a_limit }, proof))
    }
}

/// The files of a channel, mapped.
struct Pieces {
    words: MappedWords,
    tables: MappedWords,
    mailbox: MappedWords,
}

impl Pieces {
    /// Of a channel with these words, what a peer has sent.
    fn new(words: MappedWords, tables: &OwnedFd, mailbox: &OwnedFd) -> Result<Self, End> {
        Ok(Pieces {
            words,
            tables: map(tables, TABLE_WORDS, Access::Read)?,
            mailbox: map(mailbox, MAILBOX_WORDS, Access::ReadWrite)?,
        })
    }
}

fn map(file: &OwnedFd, length: usize, access: Access) -> Result<MappedWords, End> {
    MappedWords::open(file, length, access)
        .map_err(|error| End::Because(explain("a file of the channel cannot be used", &error)))
}

/// Why a connection ends.
enum End {
    /// The process has ended.
    Departed,
    /// One of the two may not touch the other's memory: as this process says it to its user, and as the peer says it.
    Untraceable { here: String, there: String },
    /// The peer makes no channel, for this reason.
    RefusedByPeer(String),
    /// Something failed, or the peer broke the rules.
    Because(String),
}

/// What driving the connections brought.
#[derive(Default)]
pub struct Driven {
    /// Wake-ups taken.
    pub wakes: u64,
}

impl Neighbours {
    pub fn new(
        control: Arc<Descriptor>,
        shown: Arc<Shown>,
        bells: Arc<Bells>,
        counters: Arc<Counters>,
    ) -> Self {
        Neighbours {
            control,
            shown,
            bells,
            counters,
            listeners: HashMap::new(),
            claims: Vec::new(),
            connections: BTreeMap::new(),
            open: Vec::new(),
            paused: None,
            next_token: 1,
            next_channel: 1,
            events: Vec::new(),
        }
    }

    /// Keeps the claim on a block on which no peer can connect.
    pub fn keep(&mut self, claim: Descriptor) {
        self.claims.push(claim);
    }

    /// Takes a socket on which peers will connect.
    pub fn listen(&mut self, listener: Descriptor) -> std::io::Result<()> {
        let token = self.token();
        epoll::add(&*self.control, &listener, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        self.listeners.insert(token, listener);
        Ok(())
    }

    /// Asks for a channel to the process that leases a block. The answer is an event.
    pub fn connect(&mut self, block: u32, now: u64) {
        let asked = self.connections.values().any(|connection| match connection.stage {
            Stage::Unconnected { block: asked, .. }
            | Stage::Asked { block: asked, .. }
            | Stage::Offered { block: asked, .. } => asked == block,
            Stage::Accepted { .. }
            | Stage::Challenged { .. }
            | Stage::Granted { .. }
            | Stage::Open { .. } => false,
        });
        if asked {
            return;
        }
        if let Err(error) = self.open_connection(block, now) {
            self.refuse(block, error);
        }
    }

    fn open_connection(&mut self, block: u32, now: u64) -> Result<(), Refusal> {
        if self.connections.len() >= CHANNELS {
            return Err(Refusal::new(format!("all {CHANNELS} channels are in use")));
        }
        let socket = names::connection().map_err(|error| Refusal::new(explain("no connection", &error)))?;
        let socket = Arc::new(socket);
        let token = self.token();
        let stage = Stage::Unconnected { block, tried: now };
        self.connections.insert(token, Connection { socket, stage, since: now });
        if let Err(refusal) = self.try_connect(token, block, now) {
            self.drop_connection(token);
            return Err(refusal);
        }
        Ok(())
    }

    /// Connects and sends Hello. A full backlog leaves the connection as it is.
    fn try_connect(&mut self, token: u64, block: u32, now: u64) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let name = names::of_block(block).map_err(|error| Refusal::new(explain("no name", &error)))?;
        match connect(&*connection.socket, &name) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::INTR) => {
                connection.stage = Stage::Unconnected { block, tried: now };
                return Ok(());
            }
            Err(Errno::CONNREFUSED) => return Err(nobody_listens(block)),
            Err(error) => return Err(Refusal::new(explain("cannot connect to the process", &error.into()))),
        }
        let peer = trust::peer_of(&connection.socket).map_err(Refusal::new)?;
        trust::allow(&peer);
        let nonce = Nonce::new().map_err(|error| Refusal::new(explain("no memory for a nonce", &error)))?;
        let identity = self.shown.identity(&nonce);
        send(&connection.socket, &Message::Hello { identity }, &[]).map_err(|end| match end {
            End::Departed => Refusal { reason: DEPARTED.into(), absent: true },
            End::Untraceable { here: reason, .. } | End::RefusedByPeer(reason) | End::Because(reason) => {
                Refusal::new(reason)
            }
        })?;
        connection.stage = Stage::Asked { block, peer, nonce };
        watch(&self.control, &connection.socket, token).map_err(Refusal::new)
    }

    /// Serves whatever is ready. Does not wait.
    pub fn drive(&mut self, now: u64) -> Driven {
        let mut driven = Driven::default();
        let mut ready = Vec::with_capacity(64);
        loop {
            ready.clear();
            let zero = rustix::event::Timespec::default();
            let found = epoll::wait(&*self.control, rustix::buffer::spare_capacity(&mut ready), Some(&zero));
            for event in &ready {
                let token = event.data.u64();
                if self.listeners.contains_key(&token) {
                    self.accept(token, now);
                } else {
                    self.serve(token, &mut driven);
                }
            }
            // Peers that send without end have their turn again at the next call.
            if found.is_err() || ready.len() < ready.capacity() {
                break;
            }
            if driven.wakes as usize > CHANNELS * MESSAGES_IN_A_ROW
                || self.events.len() > crate::limits::EVENTS
            {
                break;
            }
        }
        self.look_at_clocks(now);
        driven
    }

    /// Whether a handshake is under way or put off, so that clocks must be looked at.
    pub fn has_clocks(&self) -> bool {
        self.connections.len() > self.open.len() || self.paused.is_some()
    }

    fn look_at_clocks(&mut self, now: u64) {
        if !self.has_clocks() {
            return;
        }
        if self.paused.is_some_and(|since| now.saturating_sub(since) >= RETRY_TIME) {
            self.paused = None;
            self.watch_listeners(epoll::EventFlags::IN);
        }
        let mut late = Vec::new();
        let mut again = Vec::new();
        for (token, connection) in &self.connections {
            match connection.stage {
                Stage::Open { .. } => {}
                _ if now.saturating_sub(connection.since) > HANDSHAKE_TIME => late.push(*token),
                Stage::Unconnected { block, tried } if now.saturating_sub(tried) >= RETRY_TIME => {
                    again.push((*token, block));
                }
                _ => {}
            }
        }
        for token in late {
            let reason = format!("the process did not answer within {} s", HANDSHAKE_TIME / 1_000_000_000);
            self.end(token, End::Because(reason));
        }
        for (token, block) in again {
            if let Err(refusal) = self.try_connect(token, block, now) {
                self.drop_connection(token);
                self.refuse(block, refusal);
            }
        }
    }

    fn accept(&mut self, token: u64, now: u64) {
        for _ in 0..MESSAGES_IN_A_ROW {
            if self.strangers() >= HANDSHAKES {
                return self.pause(now);
            }
            let Some(listener) = self.listeners.get(&token) else { return };
            let accepted = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Err(Errno::AGAIN) => return,
                accepted => accepted.map_err(std::io::Error::from).and_then(Descriptor::new),
            };
            let socket = match accepted {
                Ok(socket) => Arc::new(socket),
                Err(error) => {
                    log::debug!("a peer's connection was not accepted: {error}");
                    // Mostly the limit of descriptors is reached.
                    return self.pause(now);
                }
            };
            match self.welcome_stranger(socket.clone(), now) {
                Ok(()) => {}
                Err(reason) => {
                    log::debug!("a peer was refused: {reason}");
                    // It will see the connection's end if this does not fit.
                    let _ = send(&socket, &Message::Refuse { reason }, &[]);
                }
            }
        }
    }

    /// Peers whose handshakes are under way.
    fn strangers(&self) -> usize {
        let of_strangers = |connection: &&Connection| {
            matches!(
                connection.stage,
                Stage::Accepted { .. } | Stage::Challenged { .. } | Stage::Granted { .. }
            )
        };
        self.connections.values().filter(of_strangers).count()
    }

    /// Leaves peers waiting in the kernel for a while: a listener that is ready and not served would keep every sleeper awake.
    fn pause(&mut self, now: u64) {
        self.paused = Some(now);
        self.watch_listeners(epoll::EventFlags::empty());
    }

    fn watch_listeners(&self, flags: epoll::EventFlags) {
        for (token, listener) in &self.listeners {
            if let Err(error) =
                epoll::modify(&*self.control, listener, epoll::EventData::new_u64(*token), flags)
            {
                log::warn!("peers' connections are not watched as they should be: {error}");
            }
        }
    }

    fn welcome_stranger(&mut self, socket: Arc<Descriptor>, now: u64) -> Result<(), String> {
        let peer = trust::peer_of(&socket)?;
        if self.connections.len() >= CHANNELS {
            return Err(format!("all {CHANNELS} channels of the process are in use"));
        }
        let token = self.token();
        watch(&self.control, &socket, token)?;
        trust::allow(&peer);
        let stage = Stage::Accepted { peer };
        self.connections.insert(token, Connection { socket, stage, since: now });
        Ok(())
    }

    fn serve(&mut self, token: u64, driven: &mut Driven) {
        for _ in 0..MESSAGES_IN_A_ROW {
            let Some(connection) = self.connections.get(&token) else { return };
            let mut buffer = [0; MESSAGE_BYTES];
            let outcome = match sockets::receive_message(&connection.socket, &mut buffer) {
                Ok(None) => return,
                Ok(Some((0, _))) => Err(End::Departed),
                Ok(Some((length, files))) => match connection.stage {
                    Stage::Open { .. } if length == 1 && files.is_empty() => {
                        driven.wakes += 1;
                        Ok(())
                    }
                    Stage::Open { .. } => Err(broken()),
                    _ => Message::decode(&buffer[..length])
                        .map_err(End::Because)
                        .and_then(|message| self.take_message(token, message, files)),
                },
                Err(error) => Err(End::Because(explain("the connection to the process broke", &error))),
            };
            if let Err(end) = outcome {
                self.end(token, end);
                return;
            }
        }
    }

    fn take_message(&mut self, token: u64, message: Message, files: Vec<OwnedFd>) -> Result<(), End> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        // A failure ends the connection, and its stage says who must know: it is left as it is until then.
        match (&connection.stage, message) {
            (
                Stage::Asked { .. } | Stage::Offered { .. } | Stage::Challenged { .. },
                Message::Refuse { reason },
            ) => Err(End::RefusedByPeer(reason)),
            (Stage::Accepted { .. }, Message::Hello { identity }) => self.challenge(token, &identity),
            (Stage::Asked { .. }, Message::Welcome { identity, proof }) => {
                self.offer(token, &identity, proof)
            }
            (Stage::Challenged { .. }, Message::Ready { proof }) => self.accept_channel(token, proof, files),
            (Stage::Offered { .. }, Message::Accept) => self.finish_opening(token, files),
            (Stage::Granted { channel }, Message::Confirm) => {
                let channel = channel.clone();
                self.open_channel(token, channel);
                Ok(())
            }
            _ => Err(broken()),
        }
    }

    /// Acceptor: proves that this process may trace the opener, and asks for the same proof.
    fn challenge(&mut self, token: u64, theirs: &Identity) -> Result<(), End> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Stage::Accepted { peer } = &connection.stage else { return Err(broken()) };
        let (peer, proof) = Traceable::new(peer, theirs)?;
        let nonce = Nonce::new().map_err(|error| End::Because(explain("no memory for a nonce", &error)))?;
        let identity = self.shown.identity(&nonce);
        send(&connection.socket, &Message::Welcome { identity, proof }, &[])?;
        connection.stage = Stage::Challenged { nonce, peer };
        Ok(())
    }

    /// Opener: once the acceptor has proved that it may trace this process, proves the same and sends the files.
    fn offer(&mut self, token: u64, theirs: &Identity, proof: u64) -> Result<(), End> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Stage::Asked { block, peer, nonce } = &connection.stage else { return Err(broken()) };
        let block = *block;
        check_proof(nonce, proof)?;
        let (peer, proof) = Traceable::new(peer, theirs)?;
        // To itself a process has both ends of a channel: the one that it opened is given again.
        let known = self.open.iter().map(|(_, channel)| channel);
        let known = known.filter(|channel| channel.instance == peer.instance);
        if let Some(channel) = known.min_by_key(|channel| channel.side == Side::Accepted).cloned() {
            self.drop_connection(token);
            self.events.push(FabricEvent::Connected { block, channel });
            return Ok(());
        }
        let (words, file) = MappedWords::create("pagewire-channel", CHANNEL_WORDS, Access::ReadWrite)
            .map_err(|error| End::Because(explain("no memory for a channel", &error)))?;
        let files = [self.shown.tables.1.as_fd(), self.shown.mailbox.1.as_fd(), file.as_fd()];
        send(&connection.socket, &Message::Ready { proof }, &files)?;
        connection.stage = Stage::Offered { block, words, peer };
        Ok(())
    }

    /// Acceptor: once the opener has proved that it may trace this process, sends the files and makes the channel.
    fn accept_channel(&mut self, token: u64, proof: u64, files: Vec<OwnedFd>) -> Result<(), End> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Stage::Challenged { nonce, peer } = &connection.stage else { return Err(broken()) };
        check_proof(nonce, proof)?;
        let peer = peer.clone();
        let [tables, mailbox, words]: [OwnedFd; READY_FILES] = files.try_into().map_err(|_| no_files())?;
        let words = map(&words, CHANNEL_WORDS, Access::ReadWrite)?;
        let pieces = Pieces::new(words, &tables, &mailbox)?;
        let socket = connection.socket.clone();
        let channel = self.make_channel(token, Side::Accepted, peer, pieces)?;
        self.events.push(FabricEvent::Accepted { channel });
        let files = [self.shown.tables.1.as_fd(), self.shown.mailbox.1.as_fd()];
        send(&socket, &Message::Accept, &files)
    }

    /// Opener: the acceptor knows the channel, and has sent its files.
    fn finish_opening(&mut self, token: u64, files: Vec<OwnedFd>) -> Result<(), End> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Stage::Offered { block, words, peer } = &connection.stage else { return Err(broken()) };
        let (block, words, peer) = (*block, words.clone(), peer.clone());
        let [tables, mailbox]: [OwnedFd; ACCEPT_FILES] = files.try_into().map_err(|_| no_files())?;
        let pieces = Pieces::new(words, &tables, &mailbox)?;
        let socket = connection.socket.clone();
        let channel = self.make_channel(token, Side::Opened, peer, pieces)?;
        self.open_channel(token, channel.clone());
        self.events.push(FabricEvent::Connected { block, channel });
        send(&socket, &Message::Confirm, &[])
    }

    /// The channel of a handshake, which the opener may use when Accept has been sent, and the acceptor when Confirm has.
    fn make_channel(
        &mut self,
        token: u64,
        side: Side,
        peer: Traceable,
        pieces: Pieces,
    ) -> Result<HostChannel, End> {
        let Some(connection) = self.connections.get_mut(&token) else { return Err(broken()) };
        let id = ChannelId(self.next_channel);
        // 4,096 exist at once, and a new one costs two processes a handshake: the numbers last for years.
        self.next_channel =
            self.next_channel.checked_add(1).ok_or_else(|| End::Because("channel numbers ran out".into()))?;
        let channel = Channel {
            id,
            side,
            instance: peer.instance,
            words: pieces.words,
            tables: pieces.tables,
            mailbox: pieces.mailbox,
            process: peer.process,
            through_rings: self.shown.swaps_at_a_limit || peer.swaps_at_a_limit,
        };
        self.bells.write().insert(id, connection.socket.clone());
        self.counters.channels.add(1);
        connection.stage = Stage::Granted { channel: channel.clone() };
        Ok(channel)
    }

    /// Both ends know the channel: this process may use it.
    fn open_channel(&mut self, token: u64, channel: HostChannel) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.stage = Stage::Open { channel: channel.id, process: channel.process.clone() };
            self.open.push((token, channel));
        }
    }

    /// Ends a connection and tells whoever must know.
    fn end(&mut self, token: u64, end: End) {
        let Some(connection) = self.connections.get(&token) else { return };
        if matches!(end, End::Because(_)) {
            self.counters.broken_peers.add(1);
        }
        let is_handshake = !matches!(
            connection.stage,
            Stage::Unconnected { .. } | Stage::Granted { .. } | Stage::Open { .. }
        );
        if let (true, End::Untraceable { there: reason, .. } | End::Because(reason)) = (is_handshake, &end) {
            // The peer would take the connection's end for this process's. It does, if this does not fit.
            let _ = send(&connection.socket, &Message::Refuse { reason: reason.clone() }, &[]);
        }
        let (reason, absent) = match end {
            End::Departed => (DEPARTED.to_owned(), true),
            End::Untraceable { here: reason, .. } | End::RefusedByPeer(reason) | End::Because(reason) => {
                (reason, false)
            }
        };
        match &connection.stage {
            Stage::Unconnected { block, .. } | Stage::Asked { block, .. } | Stage::Offered { block, .. } => {
                let block = *block;
                self.refuse(block, Refusal { reason, absent });
            }
            Stage::Accepted { .. } | Stage::Challenged { .. } => log::debug!("a handshake failed: {reason}"),
            Stage::Granted { channel: HostChannel { id, process, .. } }
            | Stage::Open { channel: id, process } => {
                process.set_gone();
                log::debug!("channel {} ends: {reason}", id.0);
                self.events.push(FabricEvent::Departed { channel: *id });
            }
        }
        self.drop_connection(token);
    }

    fn drop_connection(&mut self, token: u64) {
        let Some(connection) = self.connections.remove(&token) else { return };
        if let Stage::Granted { channel: HostChannel { id, .. } } | Stage::Open { channel: id, .. } =
            connection.stage
        {
            self.open.retain(|(of, _)| *of != token);
            self.bells.write().remove(&id);
        }
        // A thread that wakes the peer may hold the socket for a moment longer: epoll must forget it now.
        if !matches!(connection.stage, Stage::Unconnected { .. }) {
            let _ = epoll::delete(&*self.control, &*connection.socket);
        }
        let _ = rustix::net::shutdown(&*connection.socket, rustix::net::Shutdown::Both);
    }

    fn refuse(&mut self, block: u32, refusal: Refusal) {
        let Refusal { reason, absent } = refusal;
        log::debug!("no channel to the process of block {block}: {reason}");
        self.events.push(FabricEvent::Refused { block, reason, absent });
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
}

struct Refusal {
    reason: String,
    absent: bool,
}

impl Refusal {
    fn new(reason: String) -> Self {
        Refusal { reason, absent: false }
    }
}

fn broken() -> End {
    End::Because("the process there broke the rules of the channel".into())
}

fn no_files() -> End {
    End::Because(
        "the files of the channel did not arrive: the limit of descriptors (ulimit -n) may be reached".into(),
    )
}

/// A wrong value comes from a peer that may not read this process's memory, or has read another process's.
fn check_proof(nonce: &Nonce, proof: u64) -> Result<(), End> {
    if nonce.is_proved_by(proof) {
        return Ok(());
    }
    let known = "another PID namespace, or a false claim";
    Err(End::Untraceable {
        here: format!("the peer did not prove that it may touch this process's memory ({known})"),
        there: format!("this process did not prove that it may touch the peer's memory ({known})"),
    })
}

/// Why nobody listens under the name of a block: a process that takes the network only has claimed it, or there is none.
fn nobody_listens(block: u32) -> Refusal {
    let is_held = || -> std::io::Result<bool> {
        let probe = names::datagrams(None)?;
        Ok(connect(&probe, &names::of_forwarding(block)?).is_ok())
    };
    match is_held() {
        Ok(true) => Refusal::new("the peer takes the network only (--path udp)".into()),
        Ok(false) => {
            let reason = format!("no process of this host holds the queue pair numbers of block {block}");
            Refusal { reason, absent: true }
        }
        Err(error) => Refusal::new(explain("no connection", &error)),
    }
}

fn explain(what: &str, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            format!("{what}: the limit of descriptors (ulimit -n) is reached")
        }
        _ => format!("{what}: {error}"),
    }
}

const DEPARTED: &str = "the process has ended";

fn send(socket: &Descriptor, message: &Message, files: &[BorrowedFd<'_>]) -> Result<(), End> {
    sockets::send_message(socket, &message.encode(), files).map_err(|error| match error.raw_os_error() {
        Some(libc::EPIPE | libc::ECONNRESET) => End::Departed,
        _ => End::Because(explain("the handshake broke", &error)),
    })
}

fn watch(control: &Descriptor, socket: &Descriptor, token: u64) -> Result<(), String> {
    epoll::add(control, socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        .map_err(|error| explain("cannot watch a connection", &error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fabric, HostFabric};
    use std::time::{Duration, Instant};

    /// A peer that speaks the handshake by hand.
    struct Stranger {
        socket: Descriptor,
    }

    impl Stranger {
        fn connect(to: &HostFabric) -> Self {
            let socket = names::connection().unwrap();
            connect(&socket, &names::of_block(to.lease_block().unwrap()).unwrap()).unwrap();
            Stranger { socket }
        }

        fn say(&self, message: &Message, files: &[BorrowedFd<'_>]) {
            assert!(send(&self.socket, message, files).is_ok());
        }

        /// What the fabric answers, and how many files came with it.
        fn hear(&self, fabric: &HostFabric) -> (Message, usize) {
            let limit = Instant::now() + Duration::from_secs(30);
            let mut buffer = [0; MESSAGE_BYTES];
            loop {
                fabric.events(&mut Vec::new());
                match sockets::receive_message(&self.socket, &mut buffer).unwrap() {
                    Some((0, _)) => panic!("the connection ends without a word"),
                    Some((length, files)) => {
                        return (Message::decode(&buffer[..length]).unwrap(), files.len());
                    }
                    None => assert!(Instant::now() < limit, "no answer"),
                }
            }
        }

        /// Says Hello with a nonce at an address of this process; gives the fabric's identity and its proof.
        fn greet(&self, fabric: &HostFabric, nonce_address: u64) -> (Identity, u64) {
            let identity = Identity { instance: 1, nonce_address, swaps_at_a_limit: false };
            self.say(&Message::Hello { identity }, &[]);
            match self.hear(fabric) {
                (Message::Welcome { identity, proof }, 0) => (identity, proof),
                other => panic!("{other:?}"),
            }
        }
    }

    fn refusal_of(answer: (Message, usize)) -> String {
        match answer {
            (Message::Refuse { reason }, 0) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn value_at(address: u64) -> u64 {
        // SAFETY: the fabric is of this process, and its handshake is under way: the page is mapped.
        unsafe { (address as *const u64).read_volatile() }
    }

    /// A peer that is there, but cannot make the channel (no memory for it, a file that is none), says so: it has not ended.
    #[test]
    fn who_cannot_make_a_channel_says_why() {
        let fabric = HostFabric::new().unwrap();
        let stranger = Stranger::connect(&fabric);
        let nonce = 77u64;
        let (theirs, proof) = stranger.greet(&fabric, &raw const nonce as u64);
        assert_eq!(proof, 77);
        // Too short for what they are said to be.
        let (_words, file) = MappedWords::create("pagewire-test", 8, Access::ReadWrite).unwrap();
        let files = [file.as_fd(), file.as_fd(), file.as_fd()];
        stranger.say(&Message::Ready { proof: value_at(theirs.nonce_address) }, &files);
        let reason = refusal_of(stranger.hear(&fabric));
        assert!(reason.contains("cannot be used"), "{reason}");
    }

    /// What a peer says of itself proves nothing: without the value of the nonce it gets no file.
    #[test]
    fn a_peer_without_proof_gets_no_file() {
        let fabric = HostFabric::new().unwrap();
        let nonce = 77u64;
        let (words, file) = MappedWords::create("pagewire-test", CHANNEL_WORDS, Access::ReadWrite).unwrap();
        for wrong in [0, 1, 77, u64::MAX] {
            let stranger = Stranger::connect(&fabric);
            let (theirs, _) = stranger.greet(&fabric, &raw const nonce as u64);
            assert_ne!(value_at(theirs.nonce_address), wrong);
            let files = [file.as_fd(), file.as_fd(), file.as_fd()];
            stranger.say(&Message::Ready { proof: wrong }, &files);
            let reason = refusal_of(stranger.hear(&fabric));
            assert!(reason.contains("did not prove"), "{reason}");
        }
        assert_eq!(fabric.counters().channels.get(), 0);
        drop(words);
    }

    /// Messages out of their order, and those of another version, end the handshake with a reason and without a file.
    #[test]
    fn a_handshake_out_of_order_gets_no_file() {
        let fabric = HostFabric::new().unwrap();
        let wrong = [
            Message::Ready { proof: 1 },
            Message::Accept,
            Message::Confirm,
            Message::Welcome {
                identity: Identity { instance: 1, nonce_address: 0, swaps_at_a_limit: false },
                proof: 1,
            },
        ];
        for message in wrong {
            let stranger = Stranger::connect(&fabric);
            stranger.say(&message, &[]);
            let reason = refusal_of(stranger.hear(&fabric));
            assert!(reason.contains("broke the rules"), "{message:?}: {reason}");
        }
        let stranger = Stranger::connect(&fabric);
        let mut older = Message::Accept.encode();
        older[8] -= 1;
        sockets::send_message(&stranger.socket, &older, &[]).unwrap();
        let reason = refusal_of(stranger.hear(&fabric));
        assert!(reason.contains("version"), "{reason}");
    }

    /// The opener proves too late, or not at all: the acceptor is not held up by it, and sends nothing.
    #[test]
    fn the_opener_gives_files_to_none_but_who_proves() {
        let fabric = HostFabric::new().unwrap();
        let block = 0xEE77;
        let claim = names::claim(&names::of_block(block).unwrap()).unwrap();
        names::listen_on(&claim).unwrap();
        fabric.connect(block);
        let stranger = Stranger { socket: accepted(&claim) };
        let (hello, files) = stranger.hear(&fabric);
        let Message::Hello { identity } = hello else { panic!("{hello:?}") };
        assert_eq!(files, 0);
        assert_ne!(value_at(identity.nonce_address), 0);
        let nonce = 77u64;
        let identity =
            Identity { instance: 1, nonce_address: &raw const nonce as u64, swaps_at_a_limit: false };
        stranger.say(&Message::Welcome { identity, proof: 0 }, &[]);
        let reason = refusal_of(stranger.hear(&fabric));
        assert!(reason.contains("did not prove"), "{reason}");
    }

    fn accepted(listener: &Descriptor) -> Descriptor {
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => return Descriptor::new(socket).unwrap(),
                Err(error) => assert!(error == Errno::AGAIN && Instant::now() < limit, "{error}"),
            }
        }
    }

    /// Revocation looks at the channels that a process knows: so each end knows a channel before the other may use it.
    #[test]
    fn a_channel_is_known_here_before_the_peer_may_use_it() {
        let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
        let block = b.lease_block().unwrap();
        a.connect(block);
        let limit = Instant::now() + Duration::from_secs(30);
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        while of_a.is_empty() {
            // Whatever makes the opener ready has been sent by an acceptor that already tells of the channel.
            b.events(&mut of_b);
            a.events(&mut of_a);
            assert!(Instant::now() < limit, "no channel");
        }
        assert!(matches!(of_a[..], [FabricEvent::Connected { .. }]));
        assert!(matches!(of_b[..], [FabricEvent::Accepted { .. }]), "not known to the acceptor yet");
    }

    /// Who comes while many others are being welcomed has to wait, and is not sent away.
    #[test]
    fn who_comes_in_a_crowd_waits() {
        let fabrics = [HostFabric::new().unwrap(), HostFabric::new().unwrap()];
        let [opener, crowded] = &fabrics;
        let block = crowded.lease_block().unwrap();
        let crowd: Vec<_> = (0..HANDSHAKES + 40)
            .map(|_| {
                let socket = names::connection().unwrap();
                connect(&socket, &names::of_block(block).unwrap()).unwrap();
                socket
            })
            .collect();
        opener.connect(block);
        let mut crowd = Some(crowd);
        let (mut opened, mut rounds) = (Vec::new(), 0);
        let limit = Instant::now() + Duration::from_secs(30);
        while opened.is_empty() {
            crowded.events(&mut Vec::new());
            opener.events(&mut opened);
            rounds += 1;
            if rounds == 1000 {
                drop(crowd.take());
            }
            assert!(Instant::now() < limit, "no answer");
        }
        assert!(matches!(opened[0], FabricEvent::Connected { .. }), "sent away");
        assert!(crowd.is_none(), "it did not have to wait");
    }
}
