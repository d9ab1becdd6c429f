//! Puts that are logged at their source and gets that are logged at their target, and replay after one process has died (PAPERS AA-12).
//!
//! Each process saves checkpoints when it likes (they are not coordinated). What others need of it after its death lies in their memory:
//! - what they have put to it since its checkpoint, logged by themselves before they put;
//! - what it has got from them since its checkpoint, logged by their handlers from the access log, with the data (R=1, RL=1, RLD=1).
//!
//! The process that takes its place restores the checkpoint and repeats its work. Its gets are answered from the logs; its puts that had
//! arrived are not made again; what others put to it comes when its epoch comes. A checkpoint trims the logs.

mod error;
mod ring;
mod ticket;

pub use error::LoggedProcessError;
pub use ticket::Ticket;

use crate::access::Access;
use crate::attributes::AttributesOf;
use crate::checkpoint::{Checkpoint, CheckpointOptions, RemoteWrites};
use crate::clock::now;
use crate::log::{AccessLog, LogOptions, Logs};
use crate::serve::Serving;
use pagewire::access_log::LoggedOperation;
use pagewire::{Atomic, Node, Region, RemoteRegion, Rights};
use parking_lot::Mutex;
use ring::{
    EPOCH, GETS_BEFORE, LOST_GET, PUTS_DONE, Ring, RingEntry, TRIM_GETS, TRIM_PUTS, Which, parse,
    region_words, ring_words, words_of,
};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

type Result<T> = std::result::Result<T, LoggedProcessError>;

/// Bytes of the access log for each source.
const LOG_BYTES: usize = 1 << 20;
/// Bytes of one get: it has one record in the log.
const PIECE: usize = 32 << 10;
/// The time that the handlers of a peer get to handle what a process that died has left.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a process logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedProcessOptions {
    /// Bytes of each log: of puts to each peer, and of gets of each peer, between two checkpoints of that peer.
    pub log_bytes: usize,
    /// How checkpoints are saved. `logs_puts` has no effect.
    pub checkpoints: CheckpointOptions,
}

impl Default for LoggedProcessOptions {
    fn default() -> Self {
        LoggedProcessOptions { log_bytes: 1 << 20, checkpoints: CheckpointOptions::default() }
    }
}

/// A process of several, each of which has memory that the others put to and get from, and any one of which may die.
///
/// The program of each must repeat its work when it begins again from a checkpoint: what it does depends on its memory, its note and what it
/// gets, and on nothing else. It reads what others put only behind [`next_epoch`](Self::next_epoch), which all processes call as often,
/// with a barrier before it.
pub struct LoggedProcess {
    rank: usize,
    memory: Arc<Region<u64>>,
    letters: Region<u64>,
    shared: Arc<LoggedShared>,
    /// By rank: what this process does to them.
    peers: Vec<Peer>,
    node: Arc<Node>,
    checkpoint: Checkpoint,
    epoch: u64,
    /// The epoch in which the others are: until then it repeats its work.
    target: u64,
    /// What others have put before this process died, by epoch, and is not in the memory yet.
    to_replay: VecDeque<(usize, RingEntry)>,
    /// It was restored, and has not asked for the logs yet.
    must_replay: bool,
    log: AccessLog,
    _serving: Serving,
}

/// Who uses a key of the memory.
#[derive(Debug, Clone, Copy)]
struct Holder {
    rank: usize,
    /// Which of the two keys of its ticket it is.
    index: usize,
    /// The ticket: a process that takes the place of another one has another.
    ticket: u64,
}

/// What the handler uses, too.
struct LoggedShared {
    address: u64,
    noting: RemoteWrites,
    /// Who uses a key.
    keys: Mutex<HashMap<u32, Holder>>,
    /// The logs for each peer.
    logs: Vec<Region<u64, Atomic>>,
    gets: Vec<Mutex<GetLog>>,
    /// By rank.
    unsure: Vec<Mutex<Unsure>>,
    /// The first change of the memory that nobody has logged: what it was, and where.
    unlogged: OnceLock<(&'static str, u64)>,
}

/// Accesses by a ticket of which nobody knows whether they were made. A holder that accesses again has made them. One that died has not: the
/// process in its place has another ticket.
#[derive(Debug, Clone, Copy, Default)]
struct Unsure {
    ticket: u64,
    puts: u64,
    /// The last put of these.
    put: Option<u32>,
    gets: u64,
}

/// The log of what a peer has got.
struct GetLog {
    ring: Ring,
    number: u64,
    /// The key of the last one, and its data.
    last: Option<(usize, u64, Vec<u8>)>,
    /// Records of a message that has not ended.
    begun: Vec<u8>,
    offset: u64,
}

/// What this process does to a peer.
struct Peer {
    remote: Option<Remote>,
    puts: Ring,
    /// Numbers of the last put and of the last get.
    put: u64,
    get: u64,
    /// Words of the log at the peer that gets since the last checkpoint take.
    got: u64,
    /// Puts up to this one have arrived: they are not made again.
    arrived: u64,
    /// What gets had returned before.
    logged_gets: VecDeque<RingEntry>,
}

struct Remote {
    memory: [RemoteRegion; 2],
    logs: RemoteRegion,
    letters: RemoteRegion,
}

impl LoggedProcess {
    /// Begins, with `bytes` of memory, as process `rank` of `size`. If the file has a checkpoint of it, it is restored, and the note is
    /// given: then connect all peers, [replay](Self::replay), and repeat the work from there. Else the memory is zeros.
    ///
    /// # Errors
    /// As those of [`Checkpoint::open`] and [`Checkpoint::restore`]; the logs cannot be made.
    pub fn start(
        node: &Arc<Node>,
        (rank, size): (usize, usize),
        bytes: usize,
        path: impl AsRef<Path>,
        options: &LoggedProcessOptions,
    ) -> Result<(LoggedProcess, Option<Vec<u8>>)> {
        let memory = Arc::new(node.zeroed::<u64>(bytes.div_ceil(8))?);
        let letters = node.zeroed::<u64>(1)?;
        let ring = (options.log_bytes / 8).max(ring::RECORD + 1);
        let logs = (0..size).map(|_| node.words(region_words(ring))).collect::<pagewire::Result<Vec<_>>>()?;
        let checkpoints = CheckpointOptions { logs_puts: false, ..options.checkpoints };
        let checkpoint = Checkpoint::open_with(node, path, &checkpoints)?;
        let gets = |_| {
            let ring = Ring::new(Which::Gets, ring);
            Mutex::new(GetLog { ring, number: 0, last: None, begun: Vec::new(), offset: 0 })
        };
        let shared = Arc::new(LoggedShared {
            address: memory.address(),
            noting: checkpoint.remote_writes(),
            keys: Mutex::default(),
            logs,
            gets: (0..size).map(gets).collect(),
            unsure: (0..size).map(|_| Mutex::default()).collect(),
            unlogged: OnceLock::new(),
        });
        let log = node.access_log_with(&LogOptions {
            sources: (4 * size + 4).min(4096),
            ..LogOptions::new(LOG_BYTES)
        })?;
        let handling = shared.clone();
        let serving = log.serve(move |access| handling.handle(&access))?;
        memory.attributes(..).log_puts().log_get_data().to(&log)?;
        letters.attributes(..).redirect_puts().to(&log)?;
        let peer = |_| Peer {
            remote: None,
            puts: Ring::new(Which::Puts, ring),
            put: 0,
            get: 0,
            got: 0,
            arrived: 0,
            logged_gets: VecDeque::new(),
        };
        let peers = (0..size).map(peer).collect();
        let node = node.clone();
        let (epoch, target, to_replay, must_replay) = (0, 0, VecDeque::new(), false);
        let mut this = LoggedProcess {
            rank,
            memory,
            letters,
            shared,
            peers,
            node,
            checkpoint,
            epoch,
            target,
            to_replay,
            must_replay,
            log,
            _serving: serving,
        };
        let note = this.restore()?;
        Ok((this, note))
    }

    fn restore(&mut self) -> Result<Option<Vec<u8>>> {
        let memory = self.memory.clone();
        let Some(restored) = self.checkpoint.restore(&*memory)? else { return Ok(None) };
        let own = 8 * (1 + 3 * self.peers.len());
        if restored.note.len() < own {
            return Err(LoggedProcessError::Order(
                "the file has checkpoints of another program, or of another count of processes",
            ));
        }
        let mut words =
            restored.note.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or_default();
        self.epoch = next();
        for (peer, logs) in self.peers.iter_mut().zip(&self.shared.logs) {
            (peer.put, peer.get) = (next(), next());
            logs.words()[PUTS_DONE].store(next(), Ordering::Release);
        }
        self.must_replay = true;
        self.publish_epoch();
        Ok(Some(restored.note[own..].to_vec()))
    }

    /// The memory of this process. What others put is there behind [`next_epoch`](Self::next_epoch).
    pub fn memory(&self) -> &Region<u64> {
        &self.memory
    }

    /// The number of barriers that this process has passed.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes a ticket for a peer.
    ///
    /// # Errors
    /// As those of [`Region::export`].
    pub fn ticket(&self, peer: usize) -> Result<Ticket> {
        self.node.check_owner()?;
        let logs = self.shared.logs.get(peer).ok_or(LoggedProcessError::NotConnected { rank: peer })?;
        let memory = || self.memory.export(Rights::READ | Rights::WRITE);
        let memory = [memory()?, memory()?];
        let mut keys = self.shared.keys.lock();
        let ticket = keys.len() as u64 + 1;
        memory.iter().enumerate().for_each(|(index, token)| {
            keys.insert(token.memory().1, Holder { rank: peer, index, ticket });
        });
        let letters = self.letters.export(Rights::WRITE)?;
        let logs = logs.export(Rights::READ | Rights::WRITE)?;
        Ok(Ticket { from: self.rank as u32, to: peer as u32, memory, logs, letters })
    }

    /// Connects a peer by the ticket that it has made for this process, once in the life of the peer.
    ///
    /// A process that takes the place of one that died connects all others, and calls [`replay`](Self::replay). It makes its tickets for them
    /// when it [is replaying](Self::is_replaying) no more: what they had put meanwhile is put when they connect it.
    ///
    /// # Errors
    /// `Ticket`; as those of [`Node::open`], of a get and of a put.
    pub fn connect(&mut self, ticket: &Ticket) -> Result<()> {
        self.node.check_owner()?;
        let rank = ticket.from as usize;
        if ticket.to as usize != self.rank || rank >= self.peers.len() {
            return Err(LoggedProcessError::Ticket { rank: self.rank, why: "it is for another one" });
        }
        let open = |token| self.node.open(token);
        let memory = [open(&ticket.memory[0])?, open(&ticket.memory[1])?];
        let remote = Remote { memory, logs: open(&ticket.logs)?, letters: open(&ticket.letters)? };
        if self.must_replay {
            self.peers[rank].remote = Some(remote);
            return Ok(());
        }
        let before = self.peers[rank].get;
        remote.logs.put_value(8 * GETS_BEFORE as u64, before).wait()?;
        let arrived = remote.logs.get::<u64>(8 * PUTS_DONE as u64, 1)?.wait()?[0];
        let peer = &mut self.peers[rank];
        for entry in peer.puts.entries_behind(&self.shared.logs[rank], arrived) {
            remote.memory[0].put(entry.offset, entry.data).wait()?;
        }
        peer.remote = Some(remote);
        Ok(())
    }

    /// Takes the logs of all peers, of a process that was restored: what they had put, what gets had returned, and which puts had arrived.
    ///
    /// # Errors
    /// `NotConnected`; `Lost`; as those of a get.
    pub fn replay(&mut self) -> Result<()> {
        self.node.check_owner()?;
        if !self.must_replay {
            return Err(LoggedProcessError::Order(
                "this process was not restored: there is nothing to replay",
            ));
        }
        let (mut puts, mut target) = (Vec::new(), self.epoch);
        for rank in (0..self.peers.len()).filter(|rank| *rank != self.rank) {
            let peer = &mut self.peers[rank];
            let remote = peer.remote.as_ref().ok_or(LoggedProcessError::NotConnected { rank })?;
            // Behind all that the process that died has put and got.
            remote.letters.put_value(0, 1u64).wait()?;
            let flush = remote.letters.flush_handled(None);
            if !flush.ends_within(PATIENCE) {
                return Err(LoggedProcessError::Lost { rank, why: "its handlers do not return" });
            }
            flush.wait()?;
            let words = remote.logs.get::<u64>(0, (remote.logs.length() / 8) as usize)?.wait()?;
            peer.arrived = words[PUTS_DONE];
            target = target.max(words[EPOCH]);
            if words[LOST_GET] > peer.get {
                return Err(LoggedProcessError::Lost {
                    rank,
                    why: "it had no space, or was repeated with other data",
                });
            }
            let damaged = || LoggedProcessError::Lost { rank, why: "the log makes no sense" };
            let mut gets = parse(&words, Which::Gets).ok_or_else(damaged)?;
            gets.retain(|entry| entry.number > peer.get);
            peer.logged_gets = gets.into();
            let done = &self.shared.logs[rank].words()[PUTS_DONE];
            let before = done.load(Ordering::Acquire);
            let mut entries = parse(&words, Which::Puts).ok_or_else(damaged)?;
            entries.retain(|entry| entry.number > before);
            // They count as arrived: the peer puts those behind them when it connects this process.
            done.store(entries.last().map_or(before, |entry| entry.number), Ordering::Release);
            puts.extend(entries.into_iter().map(|entry| (rank, entry)));
        }
        puts.sort_by_key(|(rank, entry)| (entry.epoch, entry.stamp, *rank));
        self.to_replay = puts.into();
        self.must_replay = false;
        self.target = target;
        self.apply()
    }

    /// Applies what others had put before this epoch; all of it, when the process is where the others are.
    fn apply(&mut self) -> Result<()> {
        let (epoch, is_there) = (self.epoch, self.epoch >= self.target);
        while self.to_replay.front().is_some_and(|(_, entry)| is_there || entry.epoch < epoch) {
            if let Some((_, entry)) = self.to_replay.pop_front() {
                self.memory.write_bytes(entry.offset, &entry.data)?;
            }
        }
        Ok(())
    }

    fn publish_epoch(&self) {
        self.shared.logs.iter().for_each(|logs| logs.words()[EPOCH].store(self.epoch, Ordering::Release));
    }

    /// Whether this process is in an epoch that the others have left: there is no barrier to wait for, and nobody may put to it yet.
    pub fn is_replaying(&self) -> bool {
        self.must_replay || self.epoch < self.target
    }

    /// Whether it repeats what it had done before it died.
    fn repeats(&self) -> bool {
        let is_behind = |peer: &Peer| !peer.logged_gets.is_empty() || peer.put < peer.arrived;
        self.is_replaying() || self.peers.iter().any(is_behind)
    }

    /// A barrier of all processes has been passed: what they had put before is in the memory, in a replay, too.
    ///
    /// # Errors
    /// `Order`: [`replay`](Self::replay) was not called. `Unlogged`: somebody has changed the memory by an atomic, or by another token than those
    /// of tickets.
    pub fn next_epoch(&mut self) -> Result<()> {
        self.node.check_owner()?;
        // What has ended before the barrier is seen, though no thread has come to it yet.
        self.log.drain(|access| self.shared.handle(&access));
        self.check_replayed()?;
        self.epoch += 1;
        self.publish_epoch();
        self.apply()
    }

    fn check_replayed(&self) -> Result<()> {
        self.check_logged()?;
        match self.must_replay {
            true => Err(LoggedProcessError::Order(
                "this process was restored: connect all peers, and call `replay`",
            )),
            false => Ok(()),
        }
    }

    /// Refuses to go on where a replay would give other memory.
    fn check_logged(&self) -> Result<()> {
        match self.shared.unlogged.get() {
            Some((what, offset)) => {
                Err(LoggedProcessError::Unlogged { what, rank: self.rank, offset: *offset })
            }
            None => Ok(()),
        }
    }

    /// Puts bytes into the memory of a peer, and logs them here first. In a replay, one that had arrived is not made again.
    ///
    /// # Errors
    /// `Full`; `Pagewire`: the peer is lost. Then the put is logged: it is made by [`connect`](Self::connect).
    pub fn put(&mut self, rank: usize, offset: u64, data: &[u8]) -> Result<()> {
        self.node.check_owner()?;
        self.check_replayed()?;
        let logs = self.shared.logs.get(rank).ok_or(LoggedProcessError::NotConnected { rank })?;
        let peer = &mut self.peers[rank];
        let remote = peer.remote.as_ref().ok_or(LoggedProcessError::NotConnected { rank })?;
        // What is refused is no part of what is replayed.
        let (count, length) = (data.len() as u64, remote.memory[0].length());
        if offset.checked_add(count).is_none_or(|end| end > length) {
            return Err(pagewire::Error::Range { offset, count, length }.into());
        }
        let entry =
            RingEntry { number: peer.put + 1, epoch: self.epoch, stamp: now(), offset, data: data.to_vec() };
        if !peer.puts.append(logs, &entry) {
            return Err(LoggedProcessError::Full { what: "puts", rank, bytes: data.len() as u64 });
        }
        peer.put += 1;
        if peer.put > peer.arrived {
            remote.memory[0].put(offset, entry.data).wait()?;
        }
        Ok(())
    }

    /// Gets bytes from the memory of a peer, which logs them. In a replay they come from that log.
    ///
    /// # Errors
    /// `Full`, `Diverged`; `Pagewire`: the peer is lost. The same get may be made again when another process is in its place.
    pub fn get(&mut self, rank: usize, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.node.check_owner()?;
        self.check_replayed()?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| pagewire::Error::NoMemory(length as u64))?;
        while bytes.len() < length {
            let piece = (length - bytes.len()).min(PIECE);
            bytes.extend(self.get_piece(rank, offset.saturating_add(bytes.len() as u64), piece)?);
        }
        Ok(bytes)
    }

    fn get_piece(&mut self, rank: usize, offset: u64, length: usize) -> Result<Vec<u8>> {
        let logs = self.shared.logs.get(rank).ok_or(LoggedProcessError::NotConnected { rank })?;
        let most = ring_words(logs.len()) as u64;
        let peer = &mut self.peers[rank];
        if let Some(entry) = peer.logged_gets.front() {
            let (now, then) =
                ((peer.get + 1, offset, length), (entry.number, entry.offset, entry.data.len()));
            if now != then {
                let text = |(number, offset, length)| format!("{length} bytes at {offset} by get {number}");
                let (logged, now) = (text(then), text(now));
                return Err(LoggedProcessError::Diverged { what: "a get", rank, logged, now });
            }
            peer.get += 1;
            peer.got += words_of(length);
            return Ok(peer.logged_gets.pop_front().map(|entry| entry.data).unwrap_or_default());
        }
        if peer.got + words_of(length) > most {
            return Err(LoggedProcessError::Full { what: "gets", rank: self.rank, bytes: length as u64 });
        }
        let remote = peer.remote.as_ref().ok_or(LoggedProcessError::NotConnected { rank })?;
        let got = remote.memory[(peer.get + 1) as usize % 2].get::<u8>(offset, length)?.wait()?;
        peer.get += 1;
        peer.got += words_of(length);
        Ok(got)
    }

    /// Saves the memory and a note, which says where the work is; then trims the logs of the peers. No other process takes part. A peer that
    /// is dead is trimmed when it matters no more.
    ///
    /// # Errors
    /// As those of [`Checkpoint::save_all`]; `Order`: the process is replaying; `Unlogged`.
    pub fn checkpoint(&mut self, note: &[u8]) -> Result<u64> {
        self.node.check_owner()?;
        if self.repeats() {
            return Err(LoggedProcessError::Order(
                "this process repeats its work: it can save again when it is where it was",
            ));
        }
        // What has ended is counted, before the memory is saved.
        self.log.drain(|access| self.shared.handle(&access));
        self.check_logged()?;
        let mut words = vec![self.epoch];
        let arrived: Vec<u64> =
            self.shared.logs.iter().map(|logs| logs.words()[PUTS_DONE].load(Ordering::Acquire)).collect();
        for (peer, arrived) in self.peers.iter().zip(&arrived) {
            words.extend([peer.put, peer.get, *arrived]);
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(note);
        let memory = self.memory.clone();
        let saved = self.checkpoint.save_all(&[&*memory], &bytes)?;
        for (peer, arrived) in self.peers.iter_mut().zip(arrived) {
            peer.got = 0;
            if let Some(remote) = &peer.remote {
                let trimmed = remote.logs.put(8 * TRIM_PUTS as u64, vec![arrived, peer.get]).wait();
                // A peer that died has no logs any more.
                if let Err(error) = trimmed {
                    log::warn!("the logs of a peer are not trimmed: {error}");
                }
            }
        }
        Ok(saved.number)
    }
}

const _: () = assert!(TRIM_GETS == TRIM_PUTS + 1);

impl LoggedShared {
    fn handle(&self, access: &Access<'_>) {
        self.noting.note(access);
        let known = self.keys.lock().get(&access.key()).copied();
        let Some(offset) = access.offset_from(self.address) else { return };
        let (is_get, is_logged, what) = match access.operation() {
            LoggedOperation::Read => (true, true, "a get"),
            LoggedOperation::Write => (false, true, "a put by a token that is of no ticket"),
            LoggedOperation::FetchAdd | LoggedOperation::CompareSwap => (false, false, "an atomic"),
        };
        let Some(holder) = known.filter(|_| is_logged) else {
            // A letter is redirected.
            if !is_get && !access.was_refused() && !access.was_redirected() {
                // The first one is kept.
                let _ = self.unlogged.set((what, offset));
            }
            return;
        };
        let (logs, mut unsure) = (&self.logs[holder.rank], self.unsure[holder.rank].lock());
        if unsure.ticket != holder.ticket {
            *unsure = Unsure { ticket: holder.ticket, ..Unsure::default() };
        }
        match (is_get, access.may_have_written()) {
            (true, true) => unsure.gets += 1,
            (false, true) if unsure.put != Some(access.message()) => {
                unsure.put = Some(access.message());
                unsure.puts += 1;
            }
            (false, true) => {}
            (true, false) => {
                let lost = std::mem::take(&mut unsure.gets);
                self.log_get(holder, lost, offset, access);
            }
            (false, false) if access.is_last() => {
                let mut count = std::mem::take(&mut unsure.puts) + 1;
                // A part of this one was unsure, and was counted.
                count -= u64::from(unsure.put.take() == Some(access.message()));
                logs.words()[PUTS_DONE].fetch_add(count, Ordering::AcqRel);
            }
            (false, false) => {}
        }
    }

    /// Logs what a peer has got. One that comes by the same key as the one before was repeated by the network. `lost`: of so many gets before
    /// nobody knows what they have returned.
    fn log_get(&self, Holder { rank, index: key, .. }: Holder, lost: u64, offset: u64, access: &Access<'_>) {
        let (mut log, logs) = (self.gets[rank].lock(), &self.logs[rank]);
        if lost > 0 {
            log.number += lost;
            log.last = None;
            let number = log.number + logs.words()[GETS_BEFORE].load(Ordering::Acquire);
            logs.words()[LOST_GET].store(number, Ordering::Release);
        }
        if access.is_first() {
            (log.begun, log.offset) = (Vec::new(), offset);
        }
        log.begun.extend_from_slice(access.bytes());
        if !access.is_last() {
            return;
        }
        let (data, offset) = (std::mem::take(&mut log.begun), log.offset);
        if let Some((last, at, before)) = &log.last
            && *last == key
        {
            if (*at, before) != (offset, &data) {
                let number = log.number + logs.words()[GETS_BEFORE].load(Ordering::Acquire);
                logs.words()[LOST_GET].store(number, Ordering::Release);
            }
            return;
        }
        log.number += 1;
        log.last = Some((key, offset, data.clone()));
        let number = log.number + logs.words()[GETS_BEFORE].load(Ordering::Acquire);
        let entry = RingEntry { number, epoch: 0, stamp: access.stamp(), offset, data };
        if !log.ring.append(logs, &entry) {
            logs.words()[LOST_GET].store(entry.number, Ordering::Release);
        }
    }
}
