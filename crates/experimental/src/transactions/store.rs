//! A store: cells in this process's memory, and the thread that handles accesses to them.

use super::journal::Journal;
use super::owner::{Effect, Owner};
use super::wire::{ToStore, encode_notice};
use super::words::{Attempt, OwnerId, Record, Session};
use crate::mailbox::{Incoming, Mailbox, Sender};
use pagewire::access_log::LoggedOperation;
use pagewire::{Error, Node, Region, Result, Rights, Token, TokenError};
use pagewire_active::{AttributesOf, PollOutcome, fork};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest value of a cell.
pub const MAX_VALUE: usize = 4096;
/// Bytes of a store at most, with [`CELL`] for each cell.
const MAX_BYTES: usize = 1 << 30;
/// Bytes of a cell beside its value.
const CELL: usize = 128;
/// Space in the log for each client.
const LOG_BYTES: usize = 1 << 18;
/// Clients of a store at once, and other stores; each has two rings.
const SOURCES: usize = 128;
/// How often clients and homes are looked after.
const TICK: Duration = Duration::from_millis(100);
/// An attempt that holds cells for so long is given up: its client may be stopped.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest sleep of the thread.
const NAP: Duration = Duration::from_millis(20);

/// What a store is made of.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub cells: u32,
    /// Bytes of each cell's value, a multiple of 8, at most [`MAX_VALUE`].
    pub value: usize,
    /// What is committed survives the death of the process in this file. `None`: it does not.
    pub journal: Option<PathBuf>,
}

impl StoreOptions {
    /// Whether a record of a journal is one of such cells.
    fn check(&self, record: &Record<Vec<u8>>) -> std::io::Result<()> {
        let fits = |cell: u32, value: &Vec<u8>| cell < self.cells && value.len() == self.value;
        let all_fit = match record {
            Record::Prepared { writes, .. } => writes.iter().all(|(cell, value)| fits(*cell, value)),
            Record::Cell { cell, value, .. } => fits(*cell, value),
            Record::Ended { .. } | Record::Forgotten { .. } => true,
        };
        let why = "it is of a store with other cells: serve that one, or name another file";
        if all_fit { Ok(()) } else { Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why)) }
    }
}

/// What clients and other stores need to reach a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreToken {
    pub(super) cells: Token,
    pub(super) mailbox: Token,
    pub(super) value: u32,
}

impl StoreToken {
    /// Length of a token as bytes.
    pub const LEN: usize = 2 * Token::LEN + 4;

    /// Bytes to be sent to others by any means.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..Token::LEN].copy_from_slice(&self.cells.to_bytes());
        bytes[Token::LEN..2 * Token::LEN].copy_from_slice(&self.mailbox.to_bytes());
        bytes[2 * Token::LEN..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// The token that the bytes are.
    ///
    /// # Errors
    /// They are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<StoreToken> {
        let whole: &[u8; Self::LEN] = bytes.try_into().map_err(|_| TokenError::Length(bytes.len()))?;
        let (cells, rest) = whole.split_at(Token::LEN);
        let (mailbox, value) = rest.split_at(Token::LEN);
        let mut word = [0; 4];
        word.copy_from_slice(value);
        let length = u32::from_le_bytes(word);
        if length == 0 || length % 8 != 0 || length as usize > MAX_VALUE {
            return Err(TokenError::Field("length of a value").into());
        }
        Ok(StoreToken {
            cells: Token::from_bytes(cells)?,
            mailbox: Token::from_bytes(mailbox)?,
            value: length,
        })
    }

    /// Bytes from one cell to the next: its version and its value.
    pub(super) fn stride(&self) -> u64 {
        8 + u64::from(self.value)
    }

    pub(super) fn count(&self) -> u32 {
        (self.cells.length() / self.stride()) as u32
    }
}

/// What the mailbox of a store says at its beginning when it is served at a place.
pub(super) fn served_at(place: usize) -> u64 {
    1 + place as u64
}

/// A store that is not served yet.
pub struct Store {
    options: StoreOptions,
    region: Region<u64>,
    mailbox: Mailbox,
    token: StoreToken,
}

impl Store {
    /// Makes the memory of a store.
    ///
    /// # Errors
    /// `Range`, `Alignment`: the length of a value. `Limit`: the cells take more than 1 GiB, with 128 bytes for each. Else as those of [`Node::zeroed`] and [`Node::make_access_log`].
    pub fn new(node: &Node, options: &StoreOptions) -> Result<Store> {
        let StoreOptions { cells, value, .. } = *options;
        if value % 8 != 0 {
            return Err(Error::Alignment { offset: value as u64, align: 8 });
        }
        if value == 0 || value > MAX_VALUE || cells == 0 {
            return Err(Error::Range { offset: 0, count: value as u64, length: MAX_VALUE as u64 });
        }
        let most = MAX_BYTES / (CELL + value);
        if cells as usize > most {
            return Err(Error::Limit { what: "cells of a store whose values are so long", most });
        }
        let region = node.zeroed::<u64>(cells as usize * (1 + value / 8))?;
        let mailbox = Mailbox::new(node, LOG_BYTES, SOURCES)?;
        region.attributes(..).redirect_puts().log_get_data().to(mailbox.log())?;
        let cells = region.export(Rights::READ | Rights::WRITE)?;
        let token = StoreToken { cells, mailbox: mailbox.token(), value: value as u32 };
        Ok(Store { options: options.clone(), region, mailbox, token })
    }

    /// What clients and other stores need.
    pub fn token(&self) -> StoreToken {
        self.token
    }

    /// Takes up what the journal has, and starts the thread that handles accesses. `stores` are those of all owners, in the order that all have;
    /// this one is at `place`.
    ///
    /// # Errors
    /// `System`: the journal cannot be read, is none, or that of another store (`InvalidData`), or another store has it (`ResourceBusy`); a store stands
    /// twice in the list (`InvalidInput`); no thread can be started. `Limit`: `place` is none. `Forked`.
    pub fn serve(self, node: &Arc<Node>, place: usize, stores: &[StoreToken]) -> Result<ServedStore> {
        // Before the journal is written.
        self.mailbox.log().check_owner()?;
        if stores.get(place) != Some(&self.token) {
            return Err(Error::Limit {
                what: "stores, in whose list this one must stand at its place,",
                most: stores.len(),
            });
        }
        let id = OwnerId(place as u32);
        if (1..stores.len()).any(|at| stores[..at].contains(&stores[at])) {
            return Err(Error::Argument { what: "stores", why: "one stands twice in the list".to_owned() });
        }
        let (cells, zero) = (self.options.cells as usize, vec![0; self.options.value]);
        let (owner, journal) = match &self.options.journal {
            None => (Owner::new(id, cells, zero), None),
            Some(path) => {
                let system = |why| Error::System { what: format!("the journal {}", path.display()), why };
                let (mut journal, records) = Journal::open(path, id).map_err(system)?;
                records.iter().try_for_each(|record| self.options.check(record)).map_err(system)?;
                let owner = Owner::recover(id, cells, zero, records);
                journal.replace(&owner.snapshot()).map_err(system)?;
                (owner, Some(journal))
            }
        };
        let peers = stores.iter().map(|token| Peer { token: token.mailbox, sender: None }).collect();
        let live = Live {
            node: node.clone(),
            id,
            owner,
            journal,
            region: self.region,
            token: self.token,
            sources: HashMap::new(),
            clients: HashMap::new(),
            peers,
            since: HashMap::new(),
            failure: None,
        };
        live.install_all()?;
        self.mailbox.publish(served_at(place))?;
        let live = Arc::new(Mutex::new(live));
        let ends = Arc::new(AtomicBool::new(false));
        let (served, until) = (live.clone(), ends.clone());
        let run = move || serve(&self.mailbox, &served, &until);
        let thread = std::thread::Builder::new().name("pagewire-cells".into()).spawn(run);
        let thread = thread.map_err(|why| Error::System { what: "a thread for a store".into(), why })?;
        Ok(ServedStore {
            token: self.token,
            live,
            ends,
            thread: Some(thread),
            owner: fork::Owner::this_process(),
        })
    }
}

/// A store whose accesses are handled, until this is dropped.
pub struct ServedStore {
    token: StoreToken,
    live: Arc<Mutex<Live>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    owner: fork::Owner,
}

impl ServedStore {
    /// What clients and other stores need.
    pub fn token(&self) -> StoreToken {
        self.token
    }

    /// What its thread has. `Forked`: a child does not have that thread, which may hold the lock.
    fn live(&self) -> Result<MutexGuard<'_, Live>> {
        if self.owner.is_this_process() { Ok(self.live.lock()) } else { Err(Error::Forked) }
    }

    /// A store that was lost is back, at the place that it had.
    ///
    /// # Errors
    /// `Limit`: there is no such place; `Forked`.
    pub fn replace(&self, place: usize, token: &StoreToken) -> Result<()> {
        let peers = &mut self.live()?.peers;
        let most = peers.len();
        let peer =
            peers.get_mut(place).ok_or(Error::Limit { what: "stores, whose places count from 0,", most })?;
        *peer = Peer { token: token.mailbox, sender: None };
        Ok(())
    }

    /// The committed version and value of a cell. `None`: there is no such cell, or this is a forked child.
    pub fn cell(&self, cell: u32) -> Option<(u64, Vec<u8>)> {
        self.live().ok()?.owner.cell(cell).map(|(version, value)| (version, value.clone()))
    }

    /// Attempts of transactions that hold cells now. In a forked child there are none.
    pub fn held(&self) -> usize {
        self.live().map_or(0, |live| live.owner.attempts().count())
    }

    /// Why the store commits nothing any more: its journal cannot be written, or this is a forked child, whose parent has the store.
    pub fn failure(&self) -> Option<String> {
        match self.live() {
            Ok(live) => live.failure.clone(),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Drop for ServedStore {
    fn drop(&mut self) {
        if !self.owner.is_this_process() {
            // A forked child does not have the thread. To drop the handle detaches a thread, which may be one of the child's that has the same number.
            if let Some(thread) = self.thread.take() {
                std::mem::forget(thread);
            }
            return;
        }
        self.ends.store(true, Ordering::Release);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("the thread of a store panicked");
        }
    }
}

struct Peer {
    token: Token,
    sender: Option<Sender>,
}

struct Client {
    source: u64,
    sender: Sender,
}

/// A store at work.
struct Live {
    node: Arc<Node>,
    id: OwnerId,
    owner: Owner<Vec<u8>>,
    journal: Option<Journal>,
    region: Region<u64>,
    token: StoreToken,
    /// Whose accesses come from which source.
    sources: HashMap<u64, Session>,
    clients: HashMap<Session, Client>,
    peers: Vec<Peer>,
    /// Since when attempts hold cells.
    since: HashMap<Attempt, Instant>,
    /// Nothing is voted for any more.
    failure: Option<String>,
}

fn serve(mailbox: &Mailbox, live: &Mutex<Live>, ends: &AtomicBool) {
    let mut ticked = Instant::now();
    while !ends.load(Ordering::Acquire) {
        let found = mailbox.take(&mut |access| {
            let mut live = live.lock();
            if mailbox.is_message(&access) {
                live.on_message(access)
            } else {
                live.on_access(access)
            }
            live.carry_out();
        });
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            live.lock().tick();
        }
        if found != PollOutcome::Handled {
            mailbox.sleep(NAP);
        }
    }
}

impl Live {
    fn on_access(&mut self, access: Incoming<'_>) {
        let Some(session) = self.sources.get(&access.source).copied() else {
            if access.operation != LoggedOperation::Read {
                log::warn!(
                    "source {} put into a store outside of any transaction, which does nothing",
                    access.source
                );
            }
            return;
        };
        let stride = self.token.stride();
        let at = access.address.wrapping_sub(self.region.address());
        let (cell, within) = ((at / stride) as u32, at % stride);
        let bytes = access.bytes;
        let is_whole = access.is_whole;
        match access.operation {
            LoggedOperation::Read if is_whole && within == 0 && bytes.len() as u64 == stride => {
                let (version, value) = bytes.split_at(8);
                let version = version.try_into().map_or(u64::MAX, u64::from_ne_bytes);
                self.owner.on_get(session, cell, version, &value.to_vec());
            }
            LoggedOperation::Write if is_whole && within == 8 && bytes.len() as u64 == stride - 8 => {
                self.owner.on_put(session, cell, bytes.to_vec());
            }
            // Nobody knows what it was.
            _ => self.owner.on_lost_access(session),
        }
    }

    fn on_message(&mut self, access: Incoming<'_>) {
        if !access.is_whole {
            if let Some(session) = self.sources.get(&access.source) {
                self.owner.on_lost_access(*session);
            }
            return;
        }
        match ToStore::decode(access.bytes) {
            Some(ToStore::Client(attempt, request, token)) => {
                if let Some(token) = token {
                    self.note_client(attempt.session, access.source, &token);
                }
                // What comes from elsewhere than its accesses may have overtaken them.
                let is_known = self.sources.get(&access.source) == Some(&attempt.session);
                if !is_known {
                    self.owner.on_lost_access(attempt.session);
                }
                self.owner.on_request(attempt, request);
            }
            Some(ToStore::Owner(from, attempt, message)) => self.owner.on_owner(from, attempt, message),
            None => log::warn!("source {} sent a store what is no message", access.source),
        }
    }

    /// A client begins, maybe by a new connection.
    fn note_client(&mut self, session: Session, source: u64, token: &Token) {
        if let Some(before) = self.sources.insert(source, session).filter(|before| *before != session) {
            self.lose(before);
        }
        if let Some(client) = self.clients.get_mut(&session) {
            if client.source != source {
                self.sources.remove(&std::mem::replace(&mut client.source, source));
            }
            return;
        }
        match self.node.open(token) {
            Ok(remote) => {
                self.clients.insert(session, Client { source, sender: Sender::new(remote) });
            }
            Err(why) => log::warn!("a store cannot reach the mailbox of a client: {why}"),
        }
    }

    fn lose(&mut self, session: Session) {
        if let Some(client) = self.clients.remove(&session) {
            if self.sources.get(&client.source) == Some(&session) {
                self.sources.remove(&client.source);
            }
        }
        self.owner.on_session_lost(session);
    }

    fn carry_out(&mut self) {
        for effect in self.owner.take_effects() {
            match effect {
                Effect::Journal(record) => {
                    let written = self.journal.as_mut().map_or(Ok(()), |journal| journal.append(&record));
                    if let Err(why) = written {
                        log::error!("a store stops, because its journal cannot be written: {why}");
                        self.failure = Some(why.to_string());
                    }
                }
                // What the journal does not have nobody is told, and nobody sees.
                _ if self.failure.is_some() => {}
                Effect::Install { cell, version, value, .. } => self.install(cell, version, &value),
                Effect::Notify(attempt, notice) => {
                    if let Some(client) = self.clients.get_mut(&attempt.session) {
                        client.sender.send(encode_notice(self.id, attempt, notice));
                    }
                }
                Effect::Tell(to, attempt, message) => {
                    self.tell(to, &ToStore::Owner(self.id, attempt, message))
                }
            }
        }
    }

    fn install(&self, cell: u32, version: u64, value: &[u8]) {
        let words: Vec<u64> = std::iter::once(version)
            .chain(value.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)))
            .collect();
        let index = cell as usize * words.len();
        if let Err(why) = self.region.write(index, &words) {
            log::error!("cell {cell} of a store cannot be written: {why}");
        }
    }

    fn install_all(&self) -> Result<()> {
        for cell in 0..self.token.count() {
            if let Some((version, value)) = self.owner.cell(cell).filter(|(version, _)| *version > 0) {
                self.install(cell, version, value);
            }
        }
        Ok(())
    }

    fn tell(&mut self, to: OwnerId, message: &ToStore) {
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return };
        if peer.sender.is_none() {
            peer.sender = self.node.open(&peer.token).ok().map(Sender::new);
        }
        if let Some(sender) = &mut peer.sender {
            sender.send(message.encode());
        }
    }

    /// Looks after clients that hold cells, and asks the homes of those that wait for a decision.
    fn tick(&mut self) {
        let holding: Vec<Attempt> = self.owner.attempts().collect();
        let is_lost = |live: &mut Live, session: Session| {
            live.clients.get_mut(&session).is_none_or(|client| client.sender.failure().is_some())
        };
        self.since.retain(|attempt, _| holding.contains(attempt));
        for attempt in holding {
            if is_lost(self, attempt.session) {
                self.lose(attempt.session);
            } else if self.since.entry(attempt).or_insert_with(Instant::now).elapsed() > PATIENCE {
                self.owner.expire(attempt);
            }
        }
        for peer in &mut self.peers {
            if peer.sender.as_mut().is_some_and(|sender| sender.failure().is_some()) {
                peer.sender = None;
            }
        }
        self.owner.inquire();
        self.carry_out();
        if let Some(journal) = self.journal.as_mut().filter(|journal| journal.is_long()) {
            if let Err(why) = journal.replace(&self.owner.snapshot()) {
                log::error!("the journal of a store cannot be written anew: {why}");
            }
        }
    }
}
