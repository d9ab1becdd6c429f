//! The volume of this process, and the handler that changes it for others.

use super::messages::Message;
use super::volume::{MAX_VALUE, Shape, Written};
use super::{Service, VolumeStatistics};
use crate::access::Access;
use crate::assembler::Assembler;
use crate::attributes::AttributesOf;
use crate::log::{AccessLog, Logs};
use crate::serve::Serving;
use pagewire::{Atomic, Error, Node, Operation, Region, Result, Rights, Token};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the log for each other process.
const LOG_BYTES: usize = 1 << 20;

/// Bytes of the mailbox: the longest message, of a value with its head and key. Puts go to the log, so that none of its pages is ever touched.
const MAILBOX: usize = (MAX_VALUE + 16).next_multiple_of(PAGE);

const PAGE: usize = 4096;

/// Words of the pointer, by which others find the volume: how often it was replaced, twice, and odd while it is; elements that it had no space for;
/// the token of the volume.
pub(super) const COUNT: usize = 0;
pub(super) const REFUSED: usize = 1;
pub(super) const TOKEN: usize = 2;
pub(super) const POINTER: usize = TOKEN + Token::LEN / 8;

pub(super) struct OwnVolume {
    // Ends before the log does.
    _serving: Option<Serving>,
    log: AccessLog,
    /// What the owner itself handles with; `None`: a thread does.
    handler: Option<Mutex<Handler>>,
    _mailbox: Region<u64>,
    /// The tokens of the mailbox and of the pointer.
    tokens: [Token; 2],
    served: Arc<Served>,
}

/// What the handler has, too.
struct Served {
    node: Arc<Node>,
    volume: RwLock<Volume>,
    pointer: Region<u64, Atomic>,
    /// Why the volume could not grow, until somebody is told.
    failure: Mutex<Option<Error>>,
    malformed: AtomicU64,
}

struct Volume {
    shape: Shape,
    region: Region<u64, Atomic>,
    token: Token,
}

impl Volume {
    fn make(node: &Node, shape: Shape) -> Result<Volume> {
        let words = shape.words().ok_or_else(|| Error::NoMemory(shape.needed_bytes()))?;
        let region = node.words(words)?;
        shape.begin(region.words())?;
        let token = region.export(Rights::all())?;
        Ok(Volume { shape, region, token })
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) -> Result<Written> {
        self.shape.insert(self.region.words(), key, value)
    }

    /// Elements, and words that the bytes of their values take.
    fn live(&self) -> Result<(usize, usize)> {
        let (mut elements, mut words) = (0, 0);
        self.shape.walk(self.region.words(), |_, value| {
            elements += 1;
            words += Shape::words_of(value);
            Ok(())
        })?;
        Ok((elements, words))
    }

    /// The shape of the volume that takes the place of this one, which is full and is to take a value of so many bytes: what nothing names any
    /// more is left out, and what is more than half full without that is doubled.
    fn next_shape(&self, value: usize) -> Result<Shape> {
        let (elements, words) = self.live()?;
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

    /// A volume of another shape, which has space for them, with the elements of this one. Nobody else may change this one.
    fn copy(&self, node: &Node, shape: Shape) -> Result<Volume> {
        let (words, new) = (self.region.words(), Volume::make(node, shape)?);
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

impl OwnVolume {
    pub fn begin(node: &Arc<Node>, shape: Shape, service: Service) -> Result<Arc<OwnVolume>> {
        let volume = Volume::make(node, shape)?;
        let pointer = node.words(POINTER)?;
        let mailbox = node.zeroed::<u64>(MAILBOX / 8)?;
        let log = node.access_log(LOG_BYTES)?;
        mailbox.attributes(..).redirect_puts().to(&log)?;
        let tokens = [mailbox.export(Rights::WRITE)?, pointer.export(Rights::READ)?];
        let (failure, malformed) = (Mutex::default(), AtomicU64::new(0));
        let served =
            Arc::new(Served { node: node.clone(), volume: RwLock::new(volume), pointer, failure, malformed });
        served.point(&served.volume.read().token, 0);
        let mut handler = Handler { served: served.clone(), messages: Assembler::default() };
        let (serving, handler) = match service {
            Service::Events(events) => {
                (Some(log.serve_events(&events, move |access| handler.handle(access))?), None)
            }
            Service::Polling => (Some(log.serve_polling(move |access| handler.handle(access))?), None),
            Service::Owner => (None, Some(Mutex::new(handler))),
        };
        Ok(Arc::new(OwnVolume { _serving: serving, log, handler, _mailbox: mailbox, tokens, served }))
    }

    /// Does what others have put here, if no thread does, and gives how many puts.
    pub fn poll(&self) -> usize {
        let Some(handler) = &self.handler else { return 0 };
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
    pub fn tokens(&self) -> Vec<u8> {
        self.tokens.iter().flat_map(Token::to_bytes).collect()
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

    /// Why elements were not inserted since this was last asked.
    pub fn failure(&self) -> Result<()> {
        self.served.failure.lock().take().map_or(Ok(()), Err)
    }

    pub fn resize(&self, cells: usize) -> Result<()> {
        let mut volume = self.served.volume.write();
        let (elements, words) = volume.live()?;
        // All elements find a cell, also where all of them collide.
        let spare = cells.max(elements.saturating_mul(2)).max(8);
        let value_words = volume.shape.value_words.min(words.saturating_mul(2).max(64));
        self.served.replace(&mut volume, Shape { cells: cells.max(1), spare, value_words })
    }

    pub fn clear(&self) {
        let volume = self.served.volume.write();
        volume.shape.clear(volume.region.words());
    }

    pub fn statistics(&self) -> Result<VolumeStatistics> {
        let Served { volume, pointer, malformed, .. } = &*self.served;
        let volume = volume.read();
        Ok(VolumeStatistics {
            elements: volume.live()?.0,
            cells: volume.shape.cells,
            spare_taken: volume.shape.spare_taken(volume.region.words())?,
            resizes: pointer.words()[COUNT].load(Ordering::Acquire) / 2,
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

impl Served {
    #[inline]
    fn insert(&self, key: u64, value: &[u8]) -> Result<()> {
        // The lock is given up behind the statement.
        let written = self.volume.read().insert(key, value)?;
        match written {
            Written::Done => Ok(()),
            Written::Full => self.insert_and_grow(key, value),
        }
    }

    #[cold]
    fn insert_and_grow(&self, key: u64, value: &[u8]) -> Result<()> {
        let mut volume = self.volume.write();
        // Somebody else may have made it larger.
        while volume.insert(key, value)? == Written::Full {
            let shape = volume.next_shape(value.len())?;
            self.replace(&mut volume, shape)?;
        }
        Ok(())
    }

    fn delete(&self, key: u64) -> Result<()> {
        let volume = self.volume.read();
        volume.shape.delete(volume.region.words(), key).map(|_| ())
    }

    /// Has a volume of another shape take the place of the present one, which nobody may change any more.
    fn replace(&self, volume: &mut Volume, shape: Shape) -> Result<()> {
        let count = self.pointer.words()[COUNT].load(Ordering::Acquire);
        // If it stays as it was: nobody has this token yet.
        let again = volume.region.export(Rights::all())?;
        self.pointer.words()[COUNT].store(count + 1, Ordering::Release);
        let replaced = self.node.unexport(&volume.token).and_then(|()| volume.copy(&self.node, shape));
        let outcome = match replaced {
            Ok(new) => {
                *volume = new;
                Ok(())
            }
            Err(error) => {
                volume.token = again;
                Err(error)
            }
        };
        self.point(&volume.token, count + 2);
        outcome
    }

    /// Tells others where the volume is.
    fn point(&self, token: &Token, count: u64) {
        let words = self.pointer.words();
        for (word, bytes) in words[TOKEN..].iter().zip(token.to_bytes().chunks_exact(8)) {
            let mut whole = [0; 8];
            whole.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Release);
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
                keys.iter().for_each(|key| keep(self.insert(key, &[])));
            }
            Some(Message::Value(key, value)) if key != 0 => keep(self.insert(key, value)),
            Some(Message::Delete(key)) => keep(self.delete(key)),
            _ => {
                self.malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if refused > 0 {
            self.pointer.words()[REFUSED].fetch_add(refused, Ordering::AcqRel);
        }
    }
}
