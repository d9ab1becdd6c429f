//! The other processes of this host: how channels to them are made, and how their end is noticed.
//!
//! Everything here is driven by an epoll instance of its own (`control`), one caller at a time, and never blocks. A
//! connection of SOCK_SEQPACKET stays open for as long as the channel lives: its end is the peer's end, one byte
//! on it is a wake-up.

mod connection;

use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::fabric::{Channel, ChannelEnd, ChannelId, FabricEvent};
use crate::handshake::{ACCEPT_FILES, HandshakeMessage, Identity, READY_FILES};
use crate::limits::{
    CHANNEL_WORDS, CHANNELS, DESCRIPTORS_PER_HANDSHAKE, FEW_HANDSHAKES, HANDSHAKES, MESSAGE_BYTES,
    MESSAGES_IN_A_ROW, OPENINGS, RETRY_TIME,
};
use crate::nonce::NoncePage;
use crate::words::{FileAccess, MappedWords};
use crate::{names, sockets, trust};
use connection::{
    ChannelConnection, ChannelMappings, DisconnectReason, HandshakeStage, HandshakeStep, Traceable,
    WithFiles, map,
};
use pagewire_iommu::layout::LIVENESS;
use pagewire_memory::HostProcess;
use parking_lot::RwLock;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, connect};
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Events of the real fabric.
pub type HostEvent = FabricEvent<MappedWords, HostProcess>;
type HostChannel = Channel<MappedWords, HostProcess>;

/// What this process shows to peers that have proved that they may trace it.
pub struct PublishedFiles {
    pub instance: u64,
    pub tables: (MappedWords, Descriptor),
    pub mailbox: (MappedWords, Descriptor),
    /// Found out once: two processes that made two channels at once may each use another one, and have to agree.
    pub swaps_at_a_limit: bool,
}

impl PublishedFiles {
    fn identity(&self, nonce: &NoncePage) -> Identity {
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
    control: Arc<Descriptor>,
    shown: Arc<PublishedFiles>,
    bells: Arc<Bells>,
    counters: Arc<Counters>,
    listeners: HashMap<u64, Descriptor>,
    /// Names held by sockets that do not listen ([`Fabric::refuse_channels`](crate::Fabric::refuse_channels)).
    claims: Vec<Descriptor>,
    connections: BTreeMap<u64, ChannelConnection>,
    open: Vec<(u64, HostChannel)>,
    /// Nothing is accepted since then: it would be refused, and peers can wait.
    paused: Option<u64>,
    /// A handshake of this process's own has ended since deferred answers to Hello were looked at.
    answers_hellos: bool,
    /// Blocks to whose processes channels are to be opened, when handshakes under way have ended.
    postponed: VecDeque<u32>,
    next_token: u64,
    next_channel: u32,
    /// What happened, not taken yet.
    pub events: Vec<HostEvent>,
}

impl Neighbours {
    pub fn new(
        control: Arc<Descriptor>,
        shown: Arc<PublishedFiles>,
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
            answers_hellos: false,
            postponed: VecDeque::new(),
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

    /// Asks for a channel to the process that leases a block. The answer is an event. A process with hundreds of peers opens a few
    /// channels at a time: each handshake needs descriptors, and peers that open theirs need some, too.
    pub fn connect(&mut self, block: u32, now: u64) {
        let asked = self.connections.values().any(|connection| connection.stage.block() == Some(block));
        if asked || self.postponed.contains(&block) {
            return;
        }
        self.postponed.push_back(block);
        self.open_postponed(now);
    }

    fn open_postponed(&mut self, now: u64) {
        let is_opening = |connection: &&ChannelConnection| connection.stage.is_opening();
        let mut openings = self.connections.values().filter(is_opening).count();
        let at_most = handshakes_at_most(OPENINGS);
        while openings < at_most
            && let Some(block) = self.postponed.pop_front()
        {
            match self.open_connection(block, now) {
                Ok(()) => openings += 1,
                Err(end) => self.refuse(block, end),
            }
        }
    }

    fn open_connection(&mut self, block: u32, now: u64) -> Result<(), DisconnectReason> {
        if self.connections.len() >= CHANNELS {
            return Err(DisconnectReason::Because(format!("all {CHANNELS} channels are in use")));
        }
        let socket = Arc::new(names::connection().map_err(because("no connection"))?);
        let token = self.token();
        let stage = HandshakeStage::Unconnected { block, tried: now };
        self.connections.insert(token, ChannelConnection::new(socket, stage, now, None));
        self.try_connect(token, block, now).inspect_err(|_| self.drop_connection(token))
    }

    /// Connects and sends Hello. A full backlog leaves the connection as it is.
    fn try_connect(&mut self, token: u64, block: u32, now: u64) -> Result<(), DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let name = names::of_block(block).map_err(because("no name"))?;
        match connect(&*connection.socket, &name) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::INTR) => {
                connection.stage = HandshakeStage::Unconnected { block, tried: now };
                return Ok(());
            }
            Err(Errno::CONNREFUSED) => return Err(no_listener(block)),
            Err(error) => return Err(because("cannot connect to the process")(error)),
        }
        let peer = trust::peer_of(&connection.socket).map_err(DisconnectReason::Because)?;
        trust::allow(&peer);
        let nonce = NoncePage::new().map_err(because("no memory for a nonce"))?;
        let identity = self.shown.identity(&nonce);
        send(&connection.socket, &HandshakeMessage::Hello { identity }, &[])?;
        connection.stage = HandshakeStage::Requested { block, nonce };
        connection.peer = Some(peer);
        watch(&self.control, &connection.socket, token).map_err(DisconnectReason::Because)
    }

    /// Serves whatever is ready; gives the number of wake-ups taken. Does not wait.
    pub fn serve_ready(&mut self, now: u64) -> u64 {
        let mut wakes = 0;
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
                    self.serve(token, &mut wakes);
                }
            }
            // Peers that send without end have their turn again at the next call.
            if found.is_err() || ready.len() < ready.capacity() {
                break;
            }
            if wakes as usize > CHANNELS * MESSAGES_IN_A_ROW || self.events.len() > crate::limits::EVENTS {
                break;
            }
        }
        self.look_at_clocks(now);
        wakes
    }

    /// Whether a handshake is under way or put off, so that clocks must be looked at.
    pub fn has_clocks(&self) -> bool {
        self.connections.len() > self.open.len() || self.paused.is_some() || !self.postponed.is_empty()
    }

    fn look_at_clocks(&mut self, now: u64) {
        if !self.has_clocks() {
            return;
        }
        if self.paused.is_some_and(|since| now.saturating_sub(since) >= RETRY_TIME) {
            self.paused = None;
            self.watch_listeners(epoll::EventFlags::IN);
        }
        let hellos = std::mem::take(&mut self.answers_hellos);
        let due = |(token, connection): (&u64, &mut ChannelConnection)| {
            Some((*token, connection.due(now, hellos)?))
        };
        let due: Vec<_> = self.connections.iter_mut().filter_map(due).collect();
        let mut may_send_files = true;
        for (token, due) in due {
            let done = match due {
                HandshakeStep::End(reason) => Err(DisconnectReason::Because(reason)),
                HandshakeStep::AnswerHello => self.answer_hello(token),
                // Where one message with files finds no place, others would find none.
                HandshakeStep::SendFiles if may_send_files => {
                    self.send_files(token).map(|sent| may_send_files = sent)
                }
                HandshakeStep::SendFiles => Ok(()),
                HandshakeStep::Connect(block) => {
                    if let Err(end) = self.try_connect(token, block, now) {
                        self.drop_connection(token);
                        self.refuse(block, end);
                    }
                    Ok(())
                }
            };
            if let Err(end) = done {
                self.end(token, end);
            }
        }
        if !self.postponed.is_empty() {
            self.open_postponed(now);
        }
    }

    fn accept(&mut self, token: u64, now: u64) {
        let at_most = handshakes_at_most(HANDSHAKES);
        for _ in 0..MESSAGES_IN_A_ROW {
            if self.strangers() >= at_most {
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
                    let _ = send(&socket, &HandshakeMessage::Refuse { reason }, &[]);
                }
            }
        }
    }

    /// Peers whose handshakes are under way.
    fn strangers(&self) -> usize {
        let of_strangers = |connection: &&ChannelConnection| {
            matches!(
                connection.stage,
                HandshakeStage::Accepted | HandshakeStage::Challenged { .. } | HandshakeStage::Granted { .. }
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
        self.connections
            .insert(token, ChannelConnection::new(socket, HandshakeStage::Accepted, now, Some(peer)));
        Ok(())
    }

    fn serve(&mut self, token: u64, wakes: &mut u64) {
        for _ in 0..MESSAGES_IN_A_ROW {
            let Some(connection) = self.connections.get(&token) else { return };
            let mut buffer = [0; MESSAGE_BYTES];
            let outcome = match sockets::receive_message(&connection.socket, &mut buffer) {
                Ok(None) => return,
                Ok(Some((0, _))) => Err(DisconnectReason::Departed),
                Ok(Some((length, files))) => match connection.stage {
                    HandshakeStage::Open { .. } if length == 1 && files.is_empty() => {
                        *wakes += 1;
                        Ok(())
                    }
                    HandshakeStage::Open { .. } => Err(broken()),
                    _ => HandshakeMessage::decode(&buffer[..length])
                        .map_err(DisconnectReason::Because)
                        .and_then(|message| self.take_message(token, message, files)),
                },
                Err(error) => Err(because("the connection to the process broke")(error)),
            };
            if let Err(end) = outcome {
                self.end(token, end);
                return;
            }
        }
    }

    fn take_message(
        &mut self,
        token: u64,
        message: HandshakeMessage,
        files: Vec<OwnedFd>,
    ) -> Result<(), DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        // A failure ends the connection, and its stage says who must know: it is left as it is until then.
        match (&connection.stage, message) {
            (
                HandshakeStage::Requested { .. }
                | HandshakeStage::Offered { .. }
                | HandshakeStage::Challenged { .. },
                HandshakeMessage::Refuse { reason },
            ) => Err(DisconnectReason::RefusedByPeer(reason)),
            (HandshakeStage::Accepted, HandshakeMessage::Hello { identity }) => {
                connection.stage = HandshakeStage::Deferred { theirs: identity };
                self.answer_hello(token)
            }
            (HandshakeStage::Requested { .. }, HandshakeMessage::Welcome { identity, proof }) => {
                self.offer(token, &identity, proof)
            }
            (HandshakeStage::Challenged { .. }, HandshakeMessage::Ready { proof }) => {
                self.accept_channel(token, proof, files)
            }
            (HandshakeStage::Offered { .. }, HandshakeMessage::Accept) => self.finish_opening(token, files),
            (HandshakeStage::Granted { channel }, HandshakeMessage::Confirm) => {
                let channel = channel.clone();
                self.open_channel(token, channel);
                Ok(())
            }
            _ => Err(broken()),
        }
    }

    /// Acceptor: answers Hello, unless this process is about to open a channel to the peer itself. Of two that do so at once, the one
    /// of the greater instance defers its answer: the other then uses the one channel that there is.
    fn answer_hello(&mut self, token: u64) -> Result<(), DisconnectReason> {
        let Some(ChannelConnection { stage: HandshakeStage::Deferred { theirs }, peer: Some(peer), .. }) =
            self.connections.get(&token)
        else {
            return Ok(());
        };
        let is_opening = |other: &ChannelConnection| {
            other.stage.is_opening() && other.peer.as_ref().is_some_and(|other| other.pid == peer.pid)
        };
        let may_defer = peer.pid.is_some() && self.shown.instance > theirs.instance;
        if may_defer && self.connections.values().any(is_opening) {
            return Ok(());
        }
        self.challenge(token)
    }

    /// Acceptor: proves that this process may trace the opener, and asks for the same proof.
    fn challenge(&mut self, token: u64) -> Result<(), DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let (HandshakeStage::Deferred { theirs }, Some(peer)) = (&connection.stage, &mut connection.peer)
        else {
            return Err(broken());
        };
        let (peer, proof) = Traceable::new(peer, theirs)?;
        let nonce = NoncePage::new().map_err(because("no memory for a nonce"))?;
        let identity = self.shown.identity(&nonce);
        send(&connection.socket, &HandshakeMessage::Welcome { identity, proof }, &[])?;
        connection.stage = HandshakeStage::Challenged { nonce, peer };
        Ok(())
    }

    /// Opener: once the acceptor has proved that it may trace this process, proves the same and sends the files.
    fn offer(&mut self, token: u64, theirs: &Identity, proof: u64) -> Result<(), DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let (HandshakeStage::Requested { block, nonce }, Some(peer)) =
            (&connection.stage, &mut connection.peer)
        else {
            return Err(broken());
        };
        let block = *block;
        check_proof(nonce, proof)?;
        let (peer, proof) = Traceable::new(peer, theirs)?;
        // To itself a process has both ends of a channel: the one that it opened is given again.
        let known = self.open.iter().map(|(_, channel)| channel);
        let known = known.filter(|channel| channel.instance == peer.instance);
        if let Some(channel) = known.min_by_key(|channel| channel.side == ChannelEnd::Accepted).cloned() {
            self.drop_connection(token);
            self.events.push(FabricEvent::Connected { block, channel });
            return Ok(());
        }
        let (words, file) = MappedWords::create("pagewire-channel", CHANNEL_WORDS, FileAccess::ReadWrite)
            .map_err(because("no memory for a channel"))?;
        connection.stage = HandshakeStage::Offered { block, words, peer };
        connection.unsent = Some(WithFiles { message: HandshakeMessage::Ready { proof }, words: Some(file) });
        self.send_files(token).map(drop)
    }

    /// Acceptor: once the opener has proved that it may trace this process, sends the files and makes the channel.
    fn accept_channel(
        &mut self,
        token: u64,
        proof: u64,
        files: Vec<OwnedFd>,
    ) -> Result<(), DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let HandshakeStage::Challenged { nonce, peer } = &connection.stage else { return Err(broken()) };
        check_proof(nonce, proof)?;
        let peer = peer.clone();
        let [tables, mailbox, words]: [OwnedFd; READY_FILES] = files.try_into().map_err(|_| no_files())?;
        let words = map(&words, CHANNEL_WORDS, FileAccess::ReadWrite)?;
        let pieces = ChannelMappings::new(words, &tables, &mailbox)?;
        connection.unsent = Some(WithFiles { message: HandshakeMessage::Accept, words: None });
        let channel = self.make_channel(token, ChannelEnd::Accepted, peer, pieces)?;
        self.events.push(FabricEvent::Accepted { channel });
        self.send_files(token).map(drop)
    }

    /// Sends a message with files, once. The kernel allows as many files in messages that wait to be received as the user may have
    /// descriptors (ETOOMANYREFS, `unix(7)`): where many processes connect at once, this waits until their receivers have run.
    /// False: that is so, and the message is to be sent again.
    fn send_files(&mut self, token: u64) -> Result<bool, DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(true) };
        let Some(WithFiles { message, words }) = &connection.unsent else { return Ok(true) };
        let mut files = vec![self.shown.tables.1.as_fd(), self.shown.mailbox.1.as_fd()];
        files.extend(words.as_ref().map(|file| file.as_fd()));
        match sockets::send_message(&connection.socket, &message.encode(), &files) {
            Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => return Ok(false),
            sent => sent.map_err(|error| handshake_broke(&error))?,
        }
        connection.unsent = None;
        Ok(true)
    }

    /// Opener: the acceptor knows the channel, and has sent its files.
    fn finish_opening(&mut self, token: u64, files: Vec<OwnedFd>) -> Result<(), DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let HandshakeStage::Offered { block, words, peer } = &connection.stage else { return Err(broken()) };
        let (block, words, peer) = (*block, words.clone(), peer.clone());
        let [tables, mailbox]: [OwnedFd; ACCEPT_FILES] = files.try_into().map_err(|_| no_files())?;
        let pieces = ChannelMappings::new(words, &tables, &mailbox)?;
        let socket = connection.socket.clone();
        let channel = self.make_channel(token, ChannelEnd::Opened, peer, pieces)?;
        self.open_channel(token, channel.clone());
        self.events.push(FabricEvent::Connected { block, channel });
        send(&socket, &HandshakeMessage::Confirm, &[])
    }

    /// The channel of a handshake, which the opener may use when Accept has been sent, and the acceptor when Confirm has.
    fn make_channel(
        &mut self,
        token: u64,
        side: ChannelEnd,
        peer: Traceable,
        pieces: ChannelMappings,
    ) -> Result<HostChannel, DisconnectReason> {
        let Some(connection) = self.connections.get_mut(&token) else { return Err(broken()) };
        let id = ChannelId(self.next_channel);
        // 4,096 exist at once, and a new one costs two processes a handshake: the numbers last for years.
        self.next_channel = self
            .next_channel
            .checked_add(1)
            .ok_or_else(|| DisconnectReason::Because("channel numbers ran out".into()))?;
        if peer.process.pid() != std::process::id() as i32 {
            let word = pieces.tables.address(LIVENESS).cast();
            // SAFETY: the word lies in the mapping of the peer's tables, which the clone keeps.
            unsafe { peer.process.watch_word(word, Box::new(pieces.tables.clone())) };
        }
        let channel = Channel {
            id,
            side,
            instance: peer.instance,
            words: pieces.words,
            tables: pieces.tables,
            mailbox: pieces.mailbox,
            process: peer.process,
            bounce_only: self.shown.swaps_at_a_limit || peer.swaps_at_a_limit,
        };
        self.bells.write().insert(id, connection.socket.clone());
        self.counters.channels.add(1);
        connection.stage = HandshakeStage::Granted { channel: channel.clone() };
        Ok(channel)
    }

    /// Both ends know the channel: this process may use it.
    fn open_channel(&mut self, token: u64, channel: HostChannel) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.stage = HandshakeStage::Open { channel: channel.id, process: channel.process.clone() };
            connection.peer = None;
            self.answers_hellos = true;
            self.open.push((token, channel));
        }
    }

    /// Ends a connection and tells whoever must know.
    fn end(&mut self, token: u64, end: DisconnectReason) {
        let Some(connection) = self.connections.get(&token) else { return };
        if matches!(end, DisconnectReason::Because(_)) {
            self.counters.broken_peers.add(1);
        }
        let is_handshake = !matches!(
            connection.stage,
            HandshakeStage::Unconnected { .. } | HandshakeStage::Granted { .. } | HandshakeStage::Open { .. }
        );
        if let (
            true,
            DisconnectReason::Untraceable { there: reason, .. } | DisconnectReason::Because(reason),
        ) = (is_handshake, &end)
        {
            // The peer would take the connection's end for this process's. It does, if this does not fit.
            let _ = send(&connection.socket, &HandshakeMessage::Refuse { reason: reason.clone() }, &[]);
        }
        match &connection.stage {
            HandshakeStage::Granted { channel: HostChannel { id, process, .. } }
            | HandshakeStage::Open { channel: id, process } => {
                process.set_gone();
                log::debug!("channel {} ends: {}", id.0, end.reason());
                self.events.push(FabricEvent::Departed { channel: *id });
            }
            stage => match stage.block() {
                Some(block) => self.refuse(block, end),
                None => log::debug!("a handshake failed: {}", end.reason()),
            },
        }
        self.drop_connection(token);
    }

    fn drop_connection(&mut self, token: u64) {
        let Some(connection) = self.connections.remove(&token) else { return };
        self.answers_hellos = true;
        if let HandshakeStage::Granted { channel: HostChannel { id, .. } }
        | HandshakeStage::Open { channel: id, .. } = connection.stage
        {
            self.open.retain(|(of, _)| *of != token);
            self.bells.write().remove(&id);
        }
        // A thread that wakes the peer may hold the socket for a moment longer: epoll must forget it now.
        if !matches!(connection.stage, HandshakeStage::Unconnected { .. }) {
            let _ = epoll::delete(&*self.control, &*connection.socket);
        }
        let _ = rustix::net::shutdown(&*connection.socket, rustix::net::Shutdown::Both);
    }

    fn refuse(&mut self, block: u32, end: DisconnectReason) {
        let (reason, absent) = (
            end.reason().to_owned(),
            matches!(end, DisconnectReason::Departed | DisconnectReason::Absent(_)),
        );
        log::debug!("no channel to the process of block {block}: {reason}");
        self.events.push(FabricEvent::Refused { block, reason, absent });
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
}

/// How many handshakes of a kind this process has at a time, `most` at most. The limit of descriptors may change at any time.
fn handshakes_at_most(most: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    match usize::try_from(limit / DESCRIPTORS_PER_HANDSHAKE) {
        // So few that handshakes would wait for peers without descriptors: whoever finds none takes another path at once.
        Ok(part) if part < FEW_HANDSHAKES => most,
        Ok(part) => part.min(most),
        Err(_) => most,
    }
}

fn broken() -> DisconnectReason {
    DisconnectReason::Because("the process there broke the rules of the channel".into())
}

fn no_files() -> DisconnectReason {
    DisconnectReason::Because(
        "the files of the channel did not arrive: the limit of descriptors (ulimit -n) may be reached".into(),
    )
}

/// A wrong value comes from a peer that may not read this process's memory, or has read another process's.
fn check_proof(nonce: &NoncePage, proof: u64) -> Result<(), DisconnectReason> {
    if nonce.is_proved_by(proof) {
        return Ok(());
    }
    let known = "another PID namespace, or a false claim";
    Err(DisconnectReason::Untraceable {
        here: format!("the peer did not prove that it may touch this process's memory ({known})"),
        there: format!("this process did not prove that it may touch the peer's memory ({known})"),
    })
}

/// Why nobody listens under the name of a block: a process that takes the network only has claimed it, or there is none.
fn no_listener(block: u32) -> DisconnectReason {
    let is_held = || -> std::io::Result<bool> {
        let probe = names::datagrams(None)?;
        Ok(connect(&probe, &names::of_forwarding(block)?).is_ok())
    };
    match is_held() {
        Ok(true) => DisconnectReason::Because("the peer takes the network only (--path udp)".into()),
        Ok(false) => DisconnectReason::Absent(format!(
            "no process of this host holds the queue pair numbers of block {block}"
        )),
        Err(error) => because("no connection")(error),
    }
}

/// Why a connection ends for which the kernel refuses something.
fn because<E: Into<std::io::Error>>(what: &str) -> impl FnOnce(E) -> DisconnectReason + '_ {
    move |error| DisconnectReason::Because(explain(what, &error.into()))
}

fn explain(what: &str, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            format!("{what}: the limit of descriptors (ulimit -n) is reached")
        }
        _ => format!("{what}: {error}"),
    }
}

fn send(
    socket: &Descriptor,
    message: &HandshakeMessage,
    files: &[BorrowedFd<'_>],
) -> Result<(), DisconnectReason> {
    sockets::send_message(socket, &message.encode(), files).map_err(|error| handshake_broke(&error))
}

fn handshake_broke(error: &std::io::Error) -> DisconnectReason {
    match error.raw_os_error() {
        Some(libc::EPIPE | libc::ECONNRESET) => DisconnectReason::Departed,
        _ => DisconnectReason::Because(explain("the handshake broke", error)),
    }
}

fn watch(control: &Descriptor, socket: &Descriptor, token: u64) -> Result<(), String> {
    epoll::add(control, socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        .map_err(|error| explain("cannot watch a connection", &error.into()))
}

#[cfg(test)]
mod tests;
