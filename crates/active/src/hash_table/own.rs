//! The volume of this process, and the handler that changes it for others.

use super::compaction::Live;
use super::durable::{
    self, Appended, Change, Durability, Files, LogWriter, Logged, LoggedSwap, Ownership, fingerprint,
    is_unwritable,
};
use super::elements::Part;
use super::messages::{Answer, Message, Reply};
use super::swap::{Swap, Swapped};
use super::ticket::Ticket;
use super::volume::{MAX_VALUE, Shape, Written};
use super::{Service, VolumeStatistics};
use crate::access::Access;
use crate::assembler::Assembler;
use crate::attributes::AttributesOf;
use crate::bytes::to_words;
use crate::log::{AccessLog, Logs};
use crate::serve::Serving;
use pagewire::{Atomic, Error, Node, Operation, Region, Result, Rights, Token};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of the log for each other process.
const LOG_BYTES: usize = 1 << 20;

/// Bytes of the mailbox: the longest message, of a swap with its head, number, flags, and a key and a length of each value, which are filled up to words. Puts go to the log, so that none of its pages is ever touched.
const MAILBOX: usize = (MAX_VALUE + 80).next_multiple_of(PAGE);

const PAGE: usize = 4096;

/// Words of the pointer, by which others find the volume: how often it was replaced, twice, and odd while it is; elements of all callers that it had
/// no space for; checkpoints that callers asked for and that failed; the generation of its logs; its token. Answers to members stand behind them.
pub(super) const COUNT: usize = 0;
pub(super) const REFUSED: usize = 1;
pub(super) const FAILED_CHECKPOINTS: usize = 2;
pub(super) const GENERATION: usize = 3;
pub(super) const TOKEN: usize = 4;
pub(super) const POINTER: usize = TOKEN + Token::LEN / 8;

/// Words of the answer to a member: the number of its last question, and the answer.
pub(super) const ANSWER: usize = 2;

pub(super) struct OwnVolume {
    // Ends before the log does.
    _serving: Option<Serving>,
    log: AccessLog,
    /// What the owner itself handles with; `None`: a thread does.
    handler: Option<Mutex<Handler>>,
    _mailbox: Region<u64>,
    /// By which others find this volume.
    ticket: Ticket,
    served: Arc<Served>,
}

/// What the handler has, too.
struct Served {
    node: Arc<Node>,
    volume: RwLock<Volume>,
    pointer: Region<u64, Atomic>,
    /// Why the volume could not grow, until a flush of this process reports it.
    failure: Mutex<Option<Error>>,
    malformed: AtomicU64,
    /// `None`: the volume ends with this process.
    durable: Option<Durable>,
}

/// What makes a volume outlive its owner.
struct Durable {
    ownership: Ownership,
    /// Processes of the table.
    size: usize,
    /// Where this process logs what it does, and what it does for others. It is held until that is done, so that both have one order.
    log: Mutex<LogWriter>,
    /// The present generation. One checkpoint at a time is made.
    generation: Mutex<u64>,
    checkpoints: AtomicU64,
    /// The last checkpoint could not be written, so that the logs have all since the one before.
    is_overdue: AtomicBool,
}

struct Volume {
    shape: Shape,
    /// How often it was made anew.
    resizes: u64,
    region: Region<u64, Atomic>,
    token: Token,
    /// Earlier tokens whose revocation failed, as a peer was stopped within an access.
    unrevoked: Vec<Token>,
}

impl Volume {
    fn make(node: &Node, shape: Shape) -> Result<Volume> {
        let words = shape.words().ok_or_else(|| Error::NoMemory(shape.needed_bytes()))?;
        let region = node.words(words)?;
        shape.begin(region.words())?;
        let token = region.export(Rights::all())?;
        Ok(Volume { shape, resizes: 0, region, token, unrevoked: Vec::new() })
    }

    /// Gives the volume another token, and revokes all that it had. Behind that nobody is within a change by one of them.
    ///
    /// # Errors
    /// A peer is stopped within an access: the volume has the new token all the same.
    fn replace_token(&mut self, node: &Node, token: Token) -> Result<()> {
        self.unrevoked.push(std::mem::replace(&mut self.token, token));
        let mut outcome = Ok(());
        self.unrevoked.retain(|token| {
            let revoked = node.unexport(token);
            let is_held = revoked.is_err();
            if outcome.is_ok() {
                outcome = revoked;
            }
            is_held
        });
        outcome
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) -> Result<Written> {
        self.shape.insert(self.region.words(), key, value)
    }

    /// What of it is in use.
    fn live(&self) -> Result<Live> {
        self.shape.live(self.region.words())
    }

    /// The shape of the volume that takes the place of this one, which is full and is to take a value of so many bytes: what nothing names any
    /// more is left out, and what is more than half full without that is doubled.
    fn next_shape(&self, value: usize) -> Result<Shape> {
        let Live { elements, words, .. } = self.live()?;
        let words = words + value.div_ceil(8);
        let Shape { cells, spare, value_words } = self.shape;
        let is_crowded = elements + 1 > spare / 2;
        let (cells, spare) = if is_crowded {
            (cells.saturating_mul(2), spare.saturating_mul(2).max(8))
        } else {
            (cells, spare)
        };
        let value_words = if words > value_words / 2 { words.saturating_mul(2).max(64) } else { value_words };
        Ok(Shape { cells, spare, value_words })
    }

    /// Makes space for a value of so many bytes: where it lies, if nothing has to grow, or there are words for that. Else in a larger volume; and where there
    /// is no memory for one, where it lies, as long as that leaves space.
    fn make_space(&mut self, node: &Node, value: usize) -> Result<()> {
        let shape = self.next_shape(value)?;
        if self.has_words_for(&shape) {
            return self.rebuild(shape);
        }
        match self.copy(node, shape) {
            Ok(larger) => *self = larger,
            Err(Error::NoMemory(_) | Error::Heap(_)) if self.live()?.leaves_space(&self.shape, value) => {
                self.rebuild(self.shape)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes another shape: elsewhere, so that memory is given back, or where it lies, if there is no memory for a second volume.
    fn reshape(&mut self, node: &Node, shape: Shape) -> Result<()> {
        match self.copy(node, shape) {
            Ok(other) => *self = other,
            Err(Error::NoMemory(_) | Error::Heap(_)) if self.has_words_for(&shape) => self.rebuild(shape)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn has_words_for(&self, shape: &Shape) -> bool {
        shape.words().is_some_and(|words| words <= self.region.words().len())
    }

    /// Makes it anew where it lies. Nobody else may have it.
    fn rebuild(&mut self, shape: Shape) -> Result<()> {
        self.shape.rebuild(self.region.words(), shape)?;
        self.shape = shape;
        self.resizes += 1;
        Ok(())
    }

    /// A volume of another shape, which has space for them, with the elements of this one. Nobody else may change this one.
    fn copy(&self, node: &Node, shape: Shape) -> Result<Volume> {
        let (words, mut new) = (self.region.words(), Volume::make(node, shape)?);
        new.resizes = self.resizes + 1;
        self.shape.walk(words, |key, value| {
            let bytes = self.shape.bytes(words, value)?;
            match new.insert(key, &bytes)? {
                Written::Done => Ok(()),
                Written::Full => Err(Error::NoMemory(shape.needed_bytes())),
            }
        })?;
        Ok(new)
    }
}

/// Where a volume is kept, of which process, and of how many.
pub(super) struct Kept<'d> {
    pub durability: &'d Durability,
    pub rank: usize,
    pub size: usize,
}

impl OwnVolume {
    /// Refuses a forked child, before it takes a lock.
    pub fn check_owner(&self) -> Result<()> {
        self.served.node.check_owner()
    }

    pub fn begin(
        node: &Arc<Node>,
        shape: Shape,
        service: Service,
        members: usize,
        kept: Option<Kept<'_>>,
    ) -> Result<Arc<OwnVolume>> {
        let mut volume = Volume::make(node, shape)?;
        let durable = kept.map(|kept| Durable::begin(node, &mut volume, &kept)).transpose()?;
        let pointer = node.words(POINTER + ANSWER * members)?;
        let mailbox = node.zeroed::<u64>(MAILBOX / 8)?;
        let log = node.access_log(LOG_BYTES)?;
        mailbox.attributes(..).redirect_puts().to(&log)?;
        let owner = durable.as_ref().map(|durable| durable.ownership.ticket);
        let ticket =
            Ticket { mailbox: mailbox.export(Rights::WRITE)?, pointer: pointer.export(Rights::READ)?, owner };
        let (failure, malformed) = (Mutex::default(), AtomicU64::new(0));
        let (node, volume) = (node.clone(), RwLock::new(volume));
        let served = Arc::new(Served { node, volume, pointer, failure, malformed, durable });
        if let Some(durable) = &served.durable {
            served.publish_generation(*durable.generation.lock());
        }
        served.publish_token(&served.volume.read().token, 0);
        let mut handler = Handler { served: served.clone(), messages: Assembler::default() };
        let (serving, handler) = match service {
            Service::Events(events) => {
                (Some(log.serve_events(&events, move |access| handler.handle(access))?), None)
            }
            Service::Polling => (Some(log.serve_polling(move |access| handler.handle(access))?), None),
            Service::Owner => (None, Some(Mutex::new(handler))),
        };
        Ok(Arc::new(OwnVolume { _serving: serving, log, handler, _mailbox: mailbox, ticket, served }))
    }

    /// Does what others have put here, if no thread does, and gives how many puts.
    pub fn poll(&self) -> usize {
        let Some(handler) = self.handler.as_ref().filter(|_| self.check_owner().is_ok()) else { return 0 };
        let mut handler = handler.lock();
        self.log.poll(|access| handler.handle(access))
    }

    /// Waits for an operation. Where no thread serves this volume, others may wait for it meanwhile.
    pub fn wait(&self, operation: Operation<Vec<u64>>) -> Result<Vec<u64>> {
        while self.handler.is_some() && !operation.is_done() {
            if self.poll() == 0 {
                std::thread::yield_now();
            }
        }
        Ok(operation.wait()?)
    }

    /// By which others find this volume.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The files of another process's volume.
    pub fn files_of(&self, rank: usize) -> Option<Files> {
        Some(self.served.durable.as_ref()?.ownership.files.of(rank))
    }

    #[inline]
    pub fn insert(&self, key: u64, value: &[u8]) -> Result<()> {
        self.served.insert(key, value)
    }

    pub fn insert_all(&self, elements: &[(u64, &[u8])]) -> Result<()> {
        {
            let volume = self.served.volume.read();
            elements.iter().for_each(|(key, _)| volume.shape.touch(volume.region.words(), *key));
        }
        if let Some(durable) = &self.served.durable {
            return self.served.change(durable, &durable::inserts(elements).collect::<Vec<_>>());
        }
        elements.iter().try_for_each(|(key, value)| self.insert(*key, value))
    }

    #[inline]
    pub fn lookup(&self, key: u64) -> Result<Option<Vec<u8>>> {
        let volume = self.served.volume.read();
        volume.shape.lookup(volume.region.words(), key)
    }

    pub fn delete(&self, key: u64) -> Result<()> {
        self.served.delete(key)
    }

    /// Sets a value if the present one is expected: whether it was.
    pub fn compare_and_set(&self, swap: &Swap<'_>) -> Result<bool> {
        self.served.compare_and_set(swap)
    }

    /// A part of the elements, from a hash on.
    pub fn part(&self, from: u64) -> Result<Part> {
        let volume = self.served.volume.read();
        volume.shape.part(volume.region.words(), from)
    }

    /// Why elements were not inserted since this was last asked.
    pub fn failure(&self) -> Result<()> {
        self.served.failure.lock().take().map_or(Ok(()), Err)
    }

    pub fn resize(&self, cells: usize) -> Result<()> {
        let mut volume = self.served.volume.write();
        let Live { elements, words, .. } = volume.live()?;
        // All elements find a cell, also where all of them collide.
        let spare = cells.max(elements.saturating_mul(2)).max(8);
        let value_words = volume.shape.value_words.min(words.saturating_mul(2).max(64));
        let shape = Shape { cells: cells.max(1), spare, value_words };
        self.served.alone(&mut volume, |volume| volume.reshape(&self.served.node, shape))
    }

    pub fn clear(&self) -> Result<()> {
        self.served.clear()
    }

    pub fn checkpoint(&self) -> Result<()> {
        match &self.served.durable {
            Some(durable) => self.served.checkpoint(durable, None),
            None => Err(super::not_durable("only a durable table has checkpoints: join it as one")),
        }
    }

    pub fn statistics(&self) -> Result<VolumeStatistics> {
        let Served { volume, malformed, durable, .. } = &*self.served;
        let checkpoints = durable.as_ref().map_or(0, |durable| durable.checkpoints.load(Ordering::Relaxed));
        let volume = volume.read();
        Ok(VolumeStatistics {
            elements: volume.live()?.elements,
            cells: volume.shape.cells,
            spare_taken: volume.shape.spare_taken(volume.region.words())?,
            resizes: volume.resizes,
            checkpoints,
            malformed: malformed.load(Ordering::Relaxed),
        })
    }
}

/// Does what messages of others ask for.
struct Handler {
    served: Arc<Served>,
    messages: Assembler,
}

impl Handler {
    fn handle(&mut self, access: Access<'_>) {
        if let Some(message) = self.messages.take(&access) {
            self.served.obey(&message);
        }
    }
}

impl Durable {
    /// Takes a volume over, and puts what it had into a new one.
    fn begin(node: &Node, volume: &mut Volume, kept: &Kept<'_>) -> Result<Durable> {
        let ownership = Ownership::take(Files::new(kept.durability, kept.rank)?)?;
        let generation = ownership.rebuild(kept.size, |change| make_again(node, volume, change))?;
        let log = Mutex::new(LogWriter::new(ownership.files.clone(), generation));
        let (generation, checkpoints) = (Mutex::new(generation), AtomicU64::new(0));
        let is_overdue = AtomicBool::new(false);
        let durable = Durable { ownership, size: kept.size, log, generation, checkpoints, is_overdue };
        let saved = durable.save(volume, *durable.generation.lock());
        match saved {
            // The files that it was loaded from have all of it. Whoever changes an element learns that the disk takes nothing.
            Err(error) if is_unwritable(&error) => {
                log::warn!("a hash table has no new checkpoint, and can be read: {error}");
                Ok(durable)
            }
            saved => saved.map(|()| durable),
        }
    }

    /// Writes a checkpoint that has all of what the logs before a generation have. Elements may change meanwhile: the logs of the generation have that.
    fn save(&self, volume: &Volume, generation: u64) -> Result<()> {
        let words = volume.region.words();
        let saved = self.ownership.files.save((generation, self.size), |sink| {
            volume.shape.walk(words, |key, value| sink(key, &volume.shape.bytes(words, value)?))
        });
        self.is_overdue.store(saved.is_err(), Ordering::Relaxed);
        saved?;
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.ownership.files.remove_logs_before(generation)
    }
}

/// Makes a change of the files again.
fn make_again(node: &Node, volume: &mut Volume, change: &Logged) -> Result<()> {
    let Logged { key, value, expected, .. } = change;
    if let Some(expected) = expected {
        let found = volume.shape.lookup(volume.region.words(), *key)?;
        if fingerprint(found.as_deref()) != *expected {
            return Ok(());
        }
    }
    let Some(value) = value else {
        return volume.shape.delete(volume.region.words(), *key).map(|_| ());
    };
    while volume.insert(*key, value)? == Written::Full {
        volume.make_space(node, value.len())?;
    }
    Ok(())
}

impl Served {
    /// Makes changes, which are logged before. Behind a growth the rest is logged again: a generation may have begun meanwhile, whose logs lack it.
    fn change(&self, durable: &Durable, changes: &[Change<'_>]) -> Result<()> {
        let mut rest = changes;
        loop {
            let (made, resizes) = self.log_and_apply(durable, rest)?;
            rest = &rest[made..];
            if durable.is_overdue.load(Ordering::Relaxed) {
                self.catch_up(durable);
            }
            let Some((_, value)) = rest.first() else { return Ok(()) };
            self.grow(resizes, value.map_or(0, <[u8]>::len))?;
        }
    }

    /// Logs changes, and makes them in the same generation until one finds no space. Gives how many were made, and how often the volume had grown.
    fn log_and_apply(&self, durable: &Durable, changes: &[Change<'_>]) -> Result<(usize, u64)> {
        loop {
            let generation = {
                let volume = self.volume.read();
                let mut log = durable.log.lock();
                match log.append(changes, None)? {
                    Appended::Done => {
                        let made = volume.shape.apply(volume.region.words(), changes.iter().copied())?;
                        return Ok((made, volume.resizes));
                    }
                    Appended::Full => log.generation(),
                }
            };
            self.checkpoint(durable, Some(generation))?;
        }
    }

    /// Begins a generation of logs, writes a checkpoint, and removes the logs of before. `of`: only if that is still the present generation.
    fn checkpoint(&self, durable: &Durable, of: Option<u64>) -> Result<()> {
        let mut generation = durable.generation.lock();
        if of.is_some_and(|of| of != *generation) {
            return Ok(());
        }
        let mut volume = self.volume.write();
        // Behind this nobody is within a change of the generation, and nobody begins one.
        self.alone(&mut volume, |_| {
            self.begin_generation(durable, &mut generation);
            Ok(())
        })?;
        let volume = RwLockWriteGuard::downgrade(volume);
        durable.save(&volume, *generation)
    }

    /// Has all changes go to new logs from now on. Nobody else has the volume meanwhile.
    fn begin_generation(&self, durable: &Durable, generation: &mut u64) {
        *generation += 1;
        *durable.log.lock() = LogWriter::new(durable.ownership.files.clone(), *generation);
        self.publish_generation(*generation);
    }

    /// Writes the checkpoint that could not be written before, once the disk has taken a log again.
    #[cold]
    fn catch_up(&self, durable: &Durable) {
        if !durable.log.lock().take_begun() {
            return;
        }
        let generation = durable.generation.lock();
        // The logs of the generation have what changes meanwhile, and what has changed since it began.
        let saved = durable.save(&self.volume.read(), *generation);
        if let Err(error) = saved {
            log::warn!(
                "a hash table has no new checkpoint, and its logs have all since the one before: {error}"
            );
        }
    }

    /// Removes all elements at once.
    fn clear(&self) -> Result<()> {
        let Some(durable) = &self.durable else {
            return self.alone(&mut self.volume.write(), |volume| {
                volume.shape.clear(volume.region.words());
                Ok(())
            });
        };
        let mut generation = durable.generation.lock();
        self.alone(&mut self.volume.write(), |volume| {
            // From here on the files have no element, whoever is killed.
            durable.ownership.files.save((*generation + 1, durable.size), |_| Ok(()))?;
            volume.shape.clear(volume.region.words());
            self.begin_generation(durable, &mut generation);
            Ok(())
        })?;
        durable.is_overdue.store(false, Ordering::Relaxed);
        durable.checkpoints.fetch_add(1, Ordering::Relaxed);
        durable.ownership.files.remove_logs_before(*generation)
    }

    /// Sets a value if the present one is expected: whether it was.
    fn compare_and_set(&self, swap: &Swap<'_>) -> Result<bool> {
        loop {
            let (swapped, resizes, generation) = {
                let volume = self.volume.read();
                let words = volume.region.words();
                let (swapped, generation) = match &self.durable {
                    None => (volume.shape.compare_and_set(words, swap, &mut ())?, 0),
                    Some(durable) => {
                        let mut log = durable.log.lock();
                        let mut logged = LoggedSwap { log: &mut log, owner: None };
                        let swapped = volume.shape.compare_and_set(words, swap, &mut logged)?;
                        (swapped, log.generation())
                    }
                };
                (swapped, volume.resizes, generation)
            };
            match (swapped, &self.durable) {
                (Swapped::Done, _) => return Ok(true),
                (Swapped::Different, _) => return Ok(false),
                (Swapped::LogFull, Some(durable)) => self.checkpoint(durable, Some(generation))?,
                (Swapped::Full | Swapped::LogFull, _) => {
                    self.grow(resizes, swap.new.map_or(0, <[u8]>::len))?;
                }
            }
        }
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) -> Result<()> {
        if let Some(durable) = &self.durable {
            return self.change(durable, &[(key, Some(value))]);
        }
        loop {
            // The lock is given up behind the block.
            let (written, resizes) = {
                let volume = self.volume.read();
                (volume.insert(key, value)?, volume.resizes)
            };
            match written {
                Written::Done => return Ok(()),
                Written::Full => self.grow(resizes, value.len())?,
            }
        }
    }

    /// Makes space for a value of so many bytes, if the volume has not grown more often than `resizes` since.
    #[cold]
    fn grow(&self, resizes: u64, value: usize) -> Result<()> {
        let mut volume = self.volume.write();
        if volume.resizes != resizes {
            return Ok(());
        }
        self.alone(&mut volume, |volume| volume.make_space(&self.node, value))
    }

    fn delete(&self, key: u64) -> Result<()> {
        if let Some(durable) = &self.durable {
            return self.change(durable, &[(key, None)]);
        }
        let volume = self.volume.read();
        volume.shape.delete(volume.region.words(), key).map(|_| ())
    }

    /// Does something to the volume while nobody else has it, and gives it another token.
    ///
    /// # Errors
    /// A peer is stopped within an access, and nothing was done; those of `work`.
    fn alone(&self, volume: &mut Volume, work: impl FnOnce(&mut Volume) -> Result<()>) -> Result<()> {
        // If it stays as it was: nobody has this token yet.
        let again = volume.region.export(Rights::all())?;
        let count = self.begin_publishing();
        let outcome = volume.replace_token(&self.node, again).and_then(|()| work(volume));
        self.publish_token(&volume.token, count);
        outcome
    }

    /// Marks the volume as being replaced, and gives the count to publish behind that.
    fn begin_publishing(&self) -> u64 {
        self.pointer.words()[COUNT].fetch_add(1, Ordering::AcqRel) + 2
    }

    /// Publishes which logs to append to. `publish_token` follows.
    fn publish_generation(&self, generation: u64) {
        self.pointer.words()[GENERATION].store(generation, Ordering::Release);
    }

    /// Publishes where the volume is.
    fn publish_token(&self, token: &Token, count: u64) {
        let words = self.pointer.words();
        for (word, value) in words[TOKEN..].iter().zip(to_words(&token.to_bytes())) {
            word.store(value, Ordering::Release);
        }
        words[COUNT].store(count, Ordering::Release);
    }

    fn obey(&self, message: &[u8]) {
        let mut refused = 0;
        let mut keep = |outcome: Result<()>| {
            if let Err(error) = outcome {
                log::error!("an element of a hash table was not inserted: {error}");
                self.failure.lock().get_or_insert(error);
                refused += 1;
            }
        };
        match Message::parse(message) {
            Some(Message::Keys(keys)) if keys.iter().all(|key| key != 0) => {
                let touch = |volume: &Volume| {
                    keys.iter().for_each(|key| volume.shape.touch(volume.region.words(), key));
                };
                touch(&self.volume.read());
                match &self.durable {
                    Some(durable) => {
                        let changes: Vec<Change<'_>> = keys.iter().map(|key| (key, Some(&[][..]))).collect();
                        keep(self.change(durable, &changes));
                    }
                    None => keys.iter().for_each(|key| keep(self.insert(key, &[]))),
                }
            }
            Some(Message::Values(entries)) if entries.iter().all(is_element) => {
                entries.iter().for_each(|(key, value)| keep(self.insert(key, value)));
            }
            Some(Message::Delete(key)) if key != 0 => keep(self.delete(key)),
            Some(Message::Checkpoint(of)) if self.durable.is_some() => self.obey_checkpoint(of),
            Some(Message::Swap(reply, swap)) if self.can_answer(reply) && is_swap(&swap) => {
                self.answer(reply, self.compare_and_set(&swap));
            }
            Some(Message::Clear(reply)) if self.can_answer(reply) => {
                self.answer(reply, self.clear().map(|()| true));
            }
            _ => {
                self.malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if refused > 0 {
            self.pointer.words()[REFUSED].fetch_add(refused, Ordering::AcqRel);
        }
    }

    /// Whether a member has a place for answers here.
    fn can_answer(&self, reply: Reply) -> bool {
        self.pointer.words().len() >= POINTER + ANSWER * (reply.rank as usize + 1)
    }

    /// Publishes the answer to a member, which reads it behind its flush.
    fn answer(&self, reply: Reply, outcome: Result<bool>) {
        let answer = match outcome {
            Ok(true) => Answer::Done,
            Ok(false) => Answer::Different,
            Err(error) => {
                log::error!("a hash table did not do what another process asked for: {error}");
                Answer::Failed
            }
        };
        let at = POINTER + ANSWER * reply.rank as usize;
        let words = self.pointer.words();
        words[at + 1].store(answer as u64, Ordering::Release);
        words[at].store(reply.number, Ordering::Release);
    }

    fn obey_checkpoint(&self, of: u64) {
        let Some(durable) = &self.durable else { return };
        if let Err(error) = self.checkpoint(durable, Some(of)) {
            log::error!("a checkpoint of a hash table failed, and the logs have all that they had: {error}");
            self.pointer.words()[FAILED_CHECKPOINTS].fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Whether a volume takes a key and its value, which another process may have made up.
fn is_element((key, value): (u64, &[u8])) -> bool {
    key != 0 && value.len() <= MAX_VALUE
}

/// Whether a volume takes a swap, which another process may have made up.
pub(super) fn is_swap(swap: &Swap<'_>) -> bool {
    let bytes = [swap.expected, swap.new].map(|value| value.map_or(0, <[u8]>::len));
    swap.key != 0 && bytes[0] + bytes[1] <= MAX_VALUE
}

#[cfg(test)]
mod tests;
