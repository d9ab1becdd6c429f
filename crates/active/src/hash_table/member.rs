//! The volume of another process: where it is, and how it is changed.

use super::durable::{self, Appended, Change, Files, LogWriter, LoggedSwap, OwnerFile};
use super::elements::Part;
use super::messages::{self, Answer, MAX_KEYS, Reply};
use super::own::{ANSWER, COUNT, FAILED_CHECKPOINTS, GENERATION, OwnVolume, POINTER, REFUSED, TOKEN};
use super::swap::{Swap, Swapped};
use super::ticket::Ticket;
use super::volume::{Shape, Words, Written};
use super::{Scheme, not_durable};
use crate::clock::now;
use pagewire::{Error, Failure, Node, Operation, RemoteRegion, Result, Rule, Token};
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Messages that are under way to one owner at most. One more waits.
const WINDOW: usize = 64;

/// How long a volume may take to grow.
const GROWS_WITHIN: Duration = Duration::from_secs(120);
/// Pause between two looks at whether it has.
const LOOK: Duration = Duration::from_micros(100);

pub(super) struct Member {
    node: Arc<Node>,
    scheme: Scheme,
    /// This process changes the volume where it lies. It stays so when the volume grows: messages would be overtaken, or overtake.
    is_mapped: bool,
    mailbox: RemoteRegion,
    pointer: RemoteRegion,
    volume: RwLock<RemoteVolume>,
    in_flight: Mutex<VecDeque<Operation<Vec<u64>>>>,
    /// Elements of all callers that had no space, as far as this process has reported them, or they were none of its own.
    refused: AtomicU64,
    /// Messages, and how many of them were flushed.
    sent: AtomicU64,
    flushed: AtomicU64,
    /// A message since the last flush may not have arrived.
    has_lost: AtomicBool,
    /// The number of the last question to the owner. Held by whoever asks: an answer has one place.
    last_request: Mutex<u64>,
    /// Held by a flush, so that none succeeds while another one finds that a message was lost.
    flushing: Mutex<()>,
    /// The table is durable, and this process has the volume mapped, so that it logs what it changes.
    owner: Option<OwnerFile>,
    is_durable: bool,
}

struct RemoteVolume {
    /// How often it was replaced, twice.
    count: u64,
    /// Of its logs.
    generation: u64,
    shape: Shape,
    region: RemoteRegion,
    /// Where this process logs what it changes in a durable volume. It is held until the change is done, so that both have one order.
    log: Option<Mutex<LogWriter>>,
}

/// What became of changes that this process makes in a durable volume.
enum Changed {
    /// So many were made, and the next one found no space.
    Count(usize),
    /// The logs of this generation are full.
    LogFull(u64),
}

/// The key of a volume is not valid any more: another one has taken its place.
fn is_replaced(error: &Error) -> bool {
    matches!(error, Error::Failed(Failure::Refused { rule: Rule::Key, .. }))
}

/// An earlier call has failed.
fn lost() -> Error {
    let why = "messages to it were lost since the last flush: do everything since then again, and flush";
    let why = io::Error::new(io::ErrorKind::ConnectionReset, why);
    Error::System { what: "the volume of another process of a hash table".into(), why }
}

/// The owner has not done what was asked for.
fn failed(why: &str) -> Error {
    let why = io::Error::new(io::ErrorKind::StorageFull, why);
    Error::System { what: "the volume of another process of a hash table".into(), why }
}

impl Member {
    /// `ticket`: of the owner. `files`: of the volume, if the table is durable.
    pub fn open(node: &Arc<Node>, ticket: &Ticket, files: Option<Files>, scheme: Scheme) -> Result<Member> {
        let (mailbox, pointer) = (node.open(&ticket.mailbox)?, node.open(&ticket.pointer)?);
        let mut volume = RemoteVolume::open(node, &pointer)?;
        let is_durable = files.is_some();
        if is_durable != ticket.owner.is_some() {
            return Err(not_durable("all its members join it as a durable one, or none"));
        }
        let owner = match (files, ticket.owner) {
            (Some(files), Some(owner)) if volume.region.is_mapped() => Some(OwnerFile::open(files, owner)?),
            _ => None,
        };
        let is_mapped = scheme == Scheme::Nearest && volume.region.is_mapped();
        if is_mapped && let Some(owner) = &owner {
            volume.log = Some(Mutex::new(LogWriter::new(owner.files.clone(), volume.generation)));
        }
        let (volume, node) = (RwLock::new(volume), node.clone());
        let in_flight = Mutex::default();
        // The owner counts since its start.
        let refused = AtomicU64::new(pointer.load(REFUSED)?);
        let [sent, flushed] = [(); 2].map(|()| AtomicU64::new(0));
        Ok(Member {
            node,
            scheme,
            is_mapped,
            mailbox,
            pointer,
            volume,
            in_flight,
            refused,
            sent,
            flushed,
            has_lost: AtomicBool::new(false),
            last_request: Mutex::default(),
            flushing: Mutex::default(),
            owner,
            is_durable,
        })
    }

    /// The member that takes the place of this one, whose process has ended: as `open`. And how many messages that one may not have handled.
    pub fn reopen_as(&self, ticket: &Ticket, files: Option<Files>) -> Result<(Member, u64)> {
        let member = Member::open(&self.node, ticket, files, self.scheme)?;
        let flushed = self.flushed.load(Ordering::Acquire);
        Ok((member, self.sent.load(Ordering::Acquire) - flushed))
    }

    /// Whether this process changes the volume where it lies.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    #[inline]
    pub fn insert(&self, key: u64, value: &[u8], own: &OwnVolume) -> Result<()> {
        if self.is_mapped() {
            return self.insert_mapped(&[(key, value)], own);
        }
        match self.scheme {
            Scheme::Operations => self.insert_by_operations(key, value, own),
            Scheme::Nearest | Scheme::Handler if value.is_empty() => {
                self.send(messages::keys([key].into_iter()), own)
            }
            Scheme::Nearest | Scheme::Handler => self.send(messages::value(key, value), own),
        }
    }

    /// Inserts elements where they lie, under one claim on the volume.
    #[inline]
    pub fn insert_mapped(&self, elements: &[(u64, &[u8])], own: &OwnVolume) -> Result<()> {
        if self.is_durable {
            return self.change_mapped(&durable::inserts(elements).collect::<Vec<_>>(), own);
        }
        let inserted = {
            let volume = self.volume.read();
            volume.region.with_words(|words| volume.shape.apply(words, durable::inserts(elements)))
        };
        let inserted = match inserted {
            Some(inserted) => inserted?,
            None => 0,
        };
        elements[inserted..].iter().try_for_each(|(key, value)| self.insert_by_operations(*key, value, own))
    }

    /// Makes changes where they lie, which are logged before.
    fn change_mapped(&self, changes: &[Change<'_>], own: &OwnVolume) -> Result<()> {
        loop {
            let (changed, count) = {
                let volume = self.volume.read();
                (volume.change(changes, self.owner.as_ref()), volume.count)
            };
            match changed.transpose()? {
                Some(Changed::Count(made)) => return self.change_by_messages(&changes[made..], own),
                Some(Changed::LogFull(generation)) => self.request_checkpoint(generation, count, own)?,
                None if self.reopen_if_replaced(count)? => {}
                // An operation of another thread is under way, or the memory is not mapped any more.
                None => return self.change_by_messages(changes, own),
            }
        }
    }

    /// Has the owner begin another generation of logs than the one that is full. `count`: of the volume.
    fn request_checkpoint(&self, generation: u64, count: u64, own: &OwnVolume) -> Result<()> {
        let failed = self.pointer.load(FAILED_CHECKPOINTS)?;
        self.send(messages::checkpoint(generation), own)?;
        self.flush(own)?;
        self.reopen_if_replaced(count)?;
        if self.volume.read().generation == generation && self.pointer.load(FAILED_CHECKPOINTS)? != failed {
            return Err(not_durable(
                "its logs are full, and the owner of the volume could not make a checkpoint; the owner has logged why",
            ));
        }
        Ok(())
    }

    /// Has the owner make changes, and waits until they are made: what follows may be made where it lies.
    fn change_by_messages(&self, changes: &[Change<'_>], own: &OwnVolume) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        for (key, value) in changes {
            self.send(
                value.map_or_else(|| messages::delete(*key), |value| messages::value(*key, value)),
                own,
            )?;
        }
        self.flush(own)
    }

    /// Whether another volume has taken the place of the one with this count, which is open then.
    fn reopen_if_replaced(&self, count: u64) -> Result<bool> {
        if self.pointer.load(COUNT)? == count {
            return Ok(false);
        }
        let mut volume = self.volume.write();
        if volume.count == count {
            volume.replace(RemoteVolume::open(&self.node, &self.pointer)?);
        }
        Ok(true)
    }

    #[cold]
    fn insert_by_operations(&self, key: u64, value: &[u8], own: &OwnVolume) -> Result<()> {
        let written = self.on_volume(|volume| volume.shape.insert(&volume.region, key, value))?;
        match written {
            Written::Done => Ok(()),
            // The owner makes it larger. What follows finds it done.
            Written::Full => {
                self.send(messages::value(key, value), own)?;
                self.flush(own)
            }
        }
    }

    pub fn insert_all(&self, elements: &[(u64, &[u8])], own: &OwnVolume) -> Result<()> {
        if self.scheme == Scheme::Operations {
            return elements.iter().try_for_each(|(key, value)| self.insert_by_operations(*key, value, own));
        }
        let keys: Vec<u64> =
            elements.iter().filter(|(_, value)| value.is_empty()).map(|(key, _)| *key).collect();
        keys.chunks(MAX_KEYS).try_for_each(|keys| self.send(messages::keys(keys.iter().copied()), own))?;
        let values = elements.iter().filter(|(_, value)| !value.is_empty()).copied();
        messages::values(values).try_for_each(|message| self.send(message, own))
    }

    pub fn lookup(&self, key: u64) -> Result<Option<Vec<u8>>> {
        if let Some(owner) = &self.owner {
            owner.check()?;
        }
        if self.scheme != Scheme::Operations && self.is_durable == self.owner.is_some() {
            let volume = self.volume.read();
            if let Some(found) = volume.region.with_words(|words| volume.shape.lookup(words, key)) {
                return found;
            }
        }
        self.on_volume(|volume| volume.shape.lookup(&volume.region, key))
    }

    pub fn delete(&self, key: u64, own: &OwnVolume) -> Result<()> {
        if self.is_mapped() && self.is_durable {
            return self.change_mapped(&[(key, None)], own);
        }
        if self.is_mapped() || self.scheme == Scheme::Operations {
            return self.on_volume(|volume| volume.shape.delete(&volume.region, key)).map(|_| ());
        }
        self.send(messages::delete(key), own)
    }

    /// A part of the elements, from a hash on.
    pub fn part(&self, from: u64) -> Result<Part> {
        if let Some(owner) = &self.owner {
            owner.check()?;
        }
        if self.scheme != Scheme::Operations && self.is_durable == self.owner.is_some() {
            let volume = self.volume.read();
            if let Some(part) = volume.region.with_words(|words| volume.shape.part(words, from)) {
                return part;
            }
        }
        self.on_volume(|volume| volume.shape.part(&volume.region, from))
    }

    /// Sets a value if the present one is expected: whether it was. `rank`: of this process.
    pub fn compare_and_set(&self, rank: usize, swap: &Swap<'_>, own: &OwnVolume) -> Result<bool> {
        let swapped = match self.scheme {
            Scheme::Operations => {
                self.on_volume(|volume| volume.shape.compare_and_set(&volume.region, swap, &mut ()))?
            }
            _ if self.is_mapped() => self.swap_mapped(swap, own)?,
            _ => Swapped::Full,
        };
        match swapped {
            Swapped::Done => Ok(true),
            Swapped::Different => Ok(false),
            // The owner has space, or makes some.
            Swapped::Full | Swapped::LogFull => {
                self.ask(rank, |reply| messages::swap(reply, swap), own).map(|answer| answer == Answer::Done)
            }
        }
    }

    /// Makes a swap where the volume lies. `Full`: the owner is to make it.
    fn swap_mapped(&self, swap: &Swap<'_>, own: &OwnVolume) -> Result<Swapped> {
        loop {
            let (swapped, count, generation) = {
                let volume = self.volume.read();
                (volume.swap(swap, self.owner.as_ref()), volume.count, volume.generation)
            };
            match swapped.transpose()? {
                Some(Swapped::LogFull) => self.request_checkpoint(generation, count, own)?,
                Some(swapped) => return Ok(swapped),
                None if self.reopen_if_replaced(count)? => {}
                // An operation of another thread is under way, or the memory is not mapped any more.
                None => return Ok(Swapped::Full),
            }
        }
    }

    /// Removes all elements of the volume at once. `rank`: of this process.
    pub fn clear(&self, rank: usize, own: &OwnVolume) -> Result<()> {
        self.ask(rank, messages::clear, own).map(drop)
    }

    /// Has the owner do something behind all that this process did before, and gives its answer.
    fn ask(&self, rank: usize, message: impl FnOnce(Reply) -> Vec<u64>, own: &OwnVolume) -> Result<Answer> {
        let mut last_request = self.last_request.lock();
        // Of a process that had the rank before there may be an answer.
        *last_request = now().max(*last_request + 1);
        self.send(message(Reply { rank: rank as u32, number: *last_request }), own)?;
        self.flush_messages(own)?;
        let [number, answer] = self.pointer.load_all::<ANSWER>(POINTER + ANSWER * rank)?;
        match Answer::of_word(answer) {
            Some(Answer::Failed) if number == *last_request => {
                Err(failed("it could not; its process has logged why"))
            }
            Some(answer) if number == *last_request => Ok(answer),
            _ => Err(lost()),
        }
    }

    /// Has the owner do what a message asks for. An error may be of an earlier message: the new one was sent all the same.
    fn send(&self, message: Vec<u64>, own: &OwnVolume) -> Result<()> {
        let outcome = self.start(message, own);
        if outcome.is_err() {
            self.has_lost.store(true, Ordering::Release);
        }
        outcome
    }

    fn start(&self, message: Vec<u64>, own: &OwnVolume) -> Result<()> {
        let (mut outcome, mut in_flight) = (Ok(()), self.in_flight.lock());
        while in_flight.front().is_some_and(Operation::is_done) || in_flight.len() >= WINDOW {
            let Some(oldest) = in_flight.pop_front() else { break };
            outcome = outcome.and(own.wait(oldest).map(drop));
        }
        self.sent.fetch_add(1, Ordering::AcqRel);
        let put = self.mailbox.put(0, message);
        if put.is_done() {
            return outcome.and(put.wait().map(drop).map_err(Error::from));
        }
        in_flight.push_back(put);
        outcome
    }

    /// Waits until the owner has done what all messages ask for.
    pub fn flush(&self, own: &OwnVolume) -> Result<()> {
        self.flush_messages(own)?;
        self.check_refused()
    }

    fn flush_messages(&self, own: &OwnVolume) -> Result<()> {
        let flushing = self.flushing.lock();
        let sent = self.sent.load(Ordering::Acquire);
        let in_flight = std::mem::take(&mut *self.in_flight.lock());
        // All of them end here: none may fail unseen.
        let ended = in_flight.into_iter().map(|put| own.wait(put).map(drop)).fold(Ok(()), Result::and);
        let handled = ended.and_then(|()| own.wait(self.mailbox.flush_handled(None)).map(drop));
        let had_lost = self.has_lost.swap(false, Ordering::AcqRel);
        handled?;
        if had_lost {
            return Err(lost());
        }
        self.flushed.fetch_max(sent, Ordering::AcqRel);
        drop(flushing);
        Ok(())
    }

    /// Whether the owner had space for all elements that it was to insert since the last look.
    fn check_refused(&self) -> Result<()> {
        let refused = self.pointer.load(REFUSED)?;
        let known = self.refused.fetch_max(refused, Ordering::AcqRel);
        if refused <= known {
            return Ok(());
        }
        let why = format!(
            "{} elements of this process or others had no space in its memory or on its disk; its process has logged why",
            refused - known
        );
        Err(failed(&why))
    }

    /// Works on the volume by operations, again if another one takes its place meanwhile.
    fn on_volume<R>(&self, work: impl Fn(&RemoteVolume) -> Result<R>) -> Result<R> {
        loop {
            let (outcome, count) = {
                let volume = self.volume.read();
                (work(&volume), volume.count)
            };
            match outcome {
                Err(error) if is_replaced(&error) => self.reopen(count, error)?,
                outcome => return outcome,
            }
        }
    }

    /// Opens the volume that has taken the place of the one with this count. `error`: why.
    #[cold]
    fn reopen(&self, count: u64, error: Error) -> Result<()> {
        let mut volume = self.volume.write();
        if volume.count != count {
            return Ok(());
        }
        let new = RemoteVolume::open(&self.node, &self.pointer)?;
        if new.count == count {
            return Err(error);
        }
        volume.replace(new);
        Ok(())
    }
}

impl RemoteVolume {
    /// Has another volume take the place of this one. This process goes on with its log until the generation ends.
    fn replace(&mut self, new: RemoteVolume) {
        let generation = new.generation;
        let log = self.log.take().map(|log| match log.into_inner() {
            log if log.generation() == generation => Mutex::new(log),
            log => Mutex::new(LogWriter::new(log.files().clone(), generation)),
        });
        *self = RemoteVolume { log, ..new };
    }

    /// Makes changes behind their records. `None`: nothing was done.
    fn change(&self, changes: &[Change<'_>], owner: Option<&OwnerFile>) -> Option<Result<Changed>> {
        let log = self.log.as_ref()?;
        self.region.with_words(|words| {
            let mut log = log.lock();
            match log.append(changes, owner)? {
                Appended::Done => self.shape.apply(words, changes.iter().copied()).map(Changed::Count),
                Appended::Full => Ok(Changed::LogFull(log.generation())),
            }
        })
    }

    /// Makes a swap. `None`: nothing was done.
    fn swap(&self, swap: &Swap<'_>, owner: Option<&OwnerFile>) -> Option<Result<Swapped>> {
        self.region.with_words(|words| match &self.log {
            Some(log) => {
                let mut logged = LoggedSwap { log: &mut log.lock(), owner };
                self.shape.compare_and_set(words, swap, &mut logged)
            }
            None => self.shape.compare_and_set(words, swap, &mut ()),
        })
    }

    /// The volume that a pointer names, behind a replacement that is under way.
    fn open(node: &Node, pointer: &RemoteRegion) -> Result<RemoteVolume> {
        let start = Instant::now();
        loop {
            let count = pointer.load(COUNT)?;
            let words = pointer.load_all::<POINTER>(0)?;
            // Copied in pieces, in any order, or between two: so the count is read before and behind.
            if count % 2 == 0 && words[COUNT] == count && pointer.load(COUNT)? == count {
                let bytes: Vec<u8> = words[TOKEN..].iter().flat_map(|word| word.to_le_bytes()).collect();
                let region = node.open(&Token::from_bytes(&bytes)?)?;
                match Shape::of(&region, region.length()) {
                    Ok(shape) => {
                        let generation = words[GENERATION];
                        return Ok(RemoteVolume { count, generation, shape, region, log: None });
                    }
                    Err(error) if is_replaced(&error) && start.elapsed() < GROWS_WITHIN => {}
                    Err(error) => return Err(error),
                }
            }
            if start.elapsed() >= GROWS_WITHIN {
                return Err(Error::Timeout {
                    what: "the growth of a volume of a hash table",
                    after: GROWS_WITHIN,
                });
            }
            std::thread::sleep(LOOK);
        }
    }
}
