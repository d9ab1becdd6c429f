//! The other processes of this host: how channels to them are made, and how their end is noticed.
//!
//! Everything here is driven by an epoll instance of its own (`control`), one caller at a time, and never blocks. A
//! connection of SOCK_SEQPACKET stays open for as long as the channel lives: its end is the peer's end, one byte
//! on it is a wake-up.

use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::fabric::{Channel, ChannelId, FabricEvent, Side};
use crate::handshake::{HELLO_FILES, Identity, Message, WELCOME_FILES};
use crate::limits::{
    CHANNEL_WORDS, CHANNELS, HANDSHAKE_TIME, HANDSHAKES, MAILBOX_WORDS, MESSAGE_BYTES, MESSAGES_IN_A_ROW,
    RETRY_TIME, TABLE_WORDS,
};
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

/// What this process shows to its peers.
pub struct Shown {
    pub instance: u64,
    pub nonce: Box<u64>,
    pub tables: (MappedWords, Descriptor),
    pub mailbox: (MappedWords, Descriptor),
    /// Found out once: two processes that made two channels at once may each use another one, and have to agree.
    pub swaps_at_a_limit: bool,
}

impl Shown {
    fn identity(&self) -> Identity {
        let nonce_address = &raw const *self.nonce as u64;
        Identity {
            instance: self.instance,
            nonce_address,
            nonce: *self.nonce,
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
    /// Hello was sent.
    Asked { block: u32, words: MappedWords, peer: Peer },
    /// A Hello is expected.
    Accepted { peer: Peer },
    /// Welcome was sent.
    Answered { pieces: Box<Pieces> },
    /// The channel is made.
    Open { channel: ChannelId, process: Option<HostProcess> },
}

struct Pieces {
    theirs: Identity,
    words: MappedWords,
    tables: MappedWords,
    mailbox: MappedWords,
    cross_memory: Result<HostProcess, String>,
}

impl Pieces {
    /// Of a channel with these words, what a peer has sent.
    fn new(
        peer: &Peer,
        theirs: Identity,
        words: MappedWords,
        tables: &OwnedFd,
        mailbox: &OwnedFd,
    ) -> Result<Self, End> {
        let open =
            |file, length, access| MappedWords::open(file, length, access).map_err(|error| unusable(&error));
        Ok(Pieces {
            words,
            tables: open(tables, TABLE_WORDS, Access::Read)?,
            mailbox: open(mailbox, MAILBOX_WORDS, Access::ReadWrite)?,
            cross_memory: trust::touch(peer, theirs.nonce_address, theirs.nonce),
            theirs,
        })
    }
}

/// Why a connection ends.
enum End {
    /// The process has ended.
    Departed,
    /// For this reason.
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
            connections: BTreeMap::new(),
            open: Vec::new(),
            paused: None,
            next_token: 1,
            next_channel: 1,
            events: Vec::new(),
        }
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
            Stage::Unconnected { block: asked, .. } | Stage::Asked { block: asked, .. } => asked == block,
            _ => false,
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
            Err(Errno::CONNREFUSED) => {
                let reason = format!("no process of this host holds the queue pair numbers of block {block}");
                return Err(Refusal { reason, absent: true });
            }
            Err(error) => return Err(Refusal::new(explain("cannot connect to the process", &error.into()))),
        }
        let peer = trust::peer_of(&connection.socket).map_err(Refusal::new)?;
        trust::allow(&peer);
        let (words, file) = MappedWords::create("pagewire-channel", CHANNEL_WORDS, Access::ReadWrite)
            .map_err(|error| Refusal::new(explain("no memory for a channel", &error)))?;
        let identity = self.shown.identity();
        let files = [self.shown.tables.1.as_fd(), self.shown.mailbox.1.as_fd(), file.as_fd()];
        send(&connection.socket, &Message::Hello { identity }, &files).map_err(|end| match end {
            End::Departed => Refusal { reason: DEPARTED.into(), absent: true },
            End::Because(reason) => Refusal::new(reason),
        })?;
        connection.stage = Stage::Asked { block, words, peer };
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
            matches!(connection.stage, Stage::Accepted { .. } | Stage::Answered { .. })
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
        // Whatever goes wrong below ends the connection; its stage is needed until then.
        match (&mut connection.stage, message) {
            (Stage::Asked { words, peer, .. }, Message::Welcome { identity, touches }) => {
                let [tables, mailbox]: [OwnedFd; WELCOME_FILES] = files.try_into().map_err(|_| no_files())?;
                let pieces = Pieces::new(peer, identity, words.clone(), &tables, &mailbox)?;
                self.finish_opening(token, pieces, touches)
            }
            (Stage::Asked { .. }, Message::Refuse { reason }) => Err(End::Because(reason)),
            (Stage::Accepted { peer }, Message::Hello { identity }) => {
                let [tables, mailbox, words]: [OwnedFd; HELLO_FILES] =
                    files.try_into().map_err(|_| no_files())?;
                let words = MappedWords::open(&words, CHANNEL_WORDS, Access::ReadWrite);
                let words = words.map_err(|error| unusable(&error))?;
                let pieces = Pieces::new(peer, identity, words, &tables, &mailbox)?;
                let touches = pieces.cross_memory.as_ref().map(|_| ()).map_err(String::clone);
                let identity = self.shown.identity();
                let files = [self.shown.tables.1.as_fd(), self.shown.mailbox.1.as_fd()];
                send(&connection.socket, &Message::Welcome { identity, touches }, &files)?;
                connection.stage = Stage::Answered { pieces: Box::new(pieces) };
                Ok(())
            }
            (Stage::Answered { .. }, Message::Ready { touches }) => {
                let channel = ChannelId(self.next_channel);
                let stage = std::mem::replace(&mut connection.stage, Stage::Open { channel, process: None });
                let Stage::Answered { pieces } = stage else { return Err(broken()) };
                let channel = self.make_channel(token, Side::Accepted, *pieces, touches)?;
                self.events.push(FabricEvent::Accepted { channel });
                Ok(())
            }
            _ => Err(broken()),
        }
    }

    fn finish_opening(&mut self, token: u64, pieces: Pieces, touches: Result<(), String>) -> Result<(), End> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Stage::Asked { block, .. } = connection.stage else { return Err(broken()) };
        let theirs = pieces.theirs.instance;
        // To itself a process has both ends of a channel: the one that it opened is given again.
        let known = self.open.iter().map(|(_, channel)| channel).filter(|channel| channel.instance == theirs);
        if let Some(channel) = known.min_by_key(|channel| channel.side == Side::Accepted).cloned() {
            self.drop_connection(token);
            self.events.push(FabricEvent::Connected { block, channel });
            return Ok(());
        }
        let verdict = pieces.cross_memory.as_ref().map(|_| ()).map_err(String::clone);
        send(&connection.socket, &Message::Ready { touches: verdict }, &[])?;
        let channel = self.make_channel(token, Side::Opened, pieces, touches)?;
        self.events.push(FabricEvent::Connected { block, channel });
        Ok(())
    }

    fn make_channel(
        &mut self,
        token: u64,
        side: Side,
        pieces: Pieces,
        touches: Result<(), String>,
    ) -> Result<HostChannel, End> {
        let id = ChannelId(self.next_channel);
        let Some(connection) = self.connections.get_mut(&token) else { return Err(broken()) };
        // 4,096 exist at once, and a new one costs two processes a handshake: the numbers last for years.
        self.next_channel =
            self.next_channel.checked_add(1).ok_or_else(|| End::Because("channel numbers ran out".into()))?;
        connection.stage = Stage::Open { channel: id, process: pieces.cross_memory.as_ref().ok().cloned() };
        let channel = Channel {
            id,
            side,
            instance: pieces.theirs.instance,
            words: pieces.words,
            tables: pieces.tables,
            mailbox: pieces.mailbox,
            cross_memory: pieces.cross_memory,
            peer_cross_memory: touches,
            through_rings: self.shown.swaps_at_a_limit || pieces.theirs.swaps_at_a_limit,
        };
        self.bells.write().insert(id, connection.socket.clone());
        self.open.push((token, channel.clone()));
        self.counters.channels.add(1);
        Ok(channel)
    }

    /// Ends a connection and tells whoever must know.
    fn end(&mut self, token: u64, end: End) {
        let (reason, absent) = match end {
            End::Departed => (DEPARTED.to_owned(), true),
            End::Because(reason) => (reason, false),
        };
        if !absent {
            self.counters.broken_peers.add(1);
        }
        let Some(connection) = self.connections.get(&token) else { return };
        match &connection.stage {
            Stage::Unconnected { block, .. } | Stage::Asked { block, .. } => {
                let block = *block;
                self.refuse(block, Refusal { reason, absent });
            }
            Stage::Accepted { .. } if !absent => {
                log::debug!("a handshake failed: {reason}");
                // The peer would take the connection's end for this process's. It does, if this does not fit.
                let _ = send(&connection.socket, &Message::Refuse { reason }, &[]);
            }
            Stage::Accepted { .. } | Stage::Answered { .. } => log::debug!("a handshake failed: {reason}"),
            Stage::Open { channel, process } => {
                if let Some(process) = process {
                    process.set_gone();
                }
                log::debug!("channel {} ends: {reason}", channel.0);
                self.events.push(FabricEvent::Departed { channel: *channel });
            }
        }
        self.drop_connection(token);
    }

    fn drop_connection(&mut self, token: u64) {
        let Some(connection) = self.connections.remove(&token) else { return };
        if let Stage::Open { channel, .. } = connection.stage {
            self.open.retain(|(of, _)| *of != token);
            self.bells.write().remove(&channel);
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

fn unusable(error: &std::io::Error) -> End {
    End::Because(explain("a file of the channel cannot be used", error))
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

    /// A peer that is there, but cannot make the channel (no memory for it, a file that is none), says so: it has not ended.
    #[test]
    fn who_cannot_make_a_channel_says_why() {
        let fabric = HostFabric::new().unwrap();
        let block = fabric.lease_block().unwrap();
        let socket = names::connection().unwrap();
        connect(&socket, &names::of_block(block).unwrap()).unwrap();
        let identity = Identity { instance: 1, nonce_address: 0, nonce: 0, swaps_at_a_limit: false };
        // Too short for what they are said to be.
        let (_words, file) = MappedWords::create("pagewire-test", 8, Access::ReadWrite).unwrap();
        let files = [file.as_fd(), file.as_fd(), file.as_fd()];
        assert!(send(&socket, &Message::Hello { identity }, &files).is_ok());
        let limit = Instant::now() + Duration::from_secs(30);
        let mut buffer = [0; MESSAGE_BYTES];
        let length = loop {
            fabric.events(&mut Vec::new());
            match sockets::receive_message(&socket, &mut buffer).unwrap() {
                Some((length, _)) => break length,
                None => assert!(Instant::now() < limit, "no answer"),
            }
        };
        assert!(length > 0, "the connection ends without a word");
        match Message::decode(&buffer[..length]) {
            Ok(Message::Refuse { reason }) => assert!(reason.contains("cannot be used"), "{reason}"),
            other => panic!("{other:?}"),
        }
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
