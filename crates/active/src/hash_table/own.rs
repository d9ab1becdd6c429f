//! The volume of this process, and the handler that changes it for others.

use super::VolumeStatistics;
use super::messages::Message;
use super::volume::{Shape, Written};
use crate::access::Access;
use crate::attributes::AttributesOf;
use crate::log::{AccessLog, Logs};
use crate::serve::Serving;
use pagewire::{Atomic, Error, Node, Region, Result, Rights, Token};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the log for each other process.
const LOG_BYTES: usize = 1 << 20;

/// Bytes of the mailbox: the longest message. Puts go to the log, so that none of its pages is ever touched.
const MAILBOX: usize = 1 << 28;

/// Words of the pointer, by which others find the volume: how often it was replaced, twice, and odd while it is; elements that it had no space for;
/// the token of the volume.
pub(super) const COUNT: usize = 0;
pub(super) const REFUSED: usize = 1;
pub(super) const TOKEN: usize = 2;
pub(super) const POINTER: usize = TOKEN + Token::LEN / 8;

pub(super) struct OwnVolume {
    // Ends before the log does.
    _serving: Serving,
    _log: AccessLog,
    _mailbox: Region<u64>,
    /// The tokens of the mailbox and of the pointer.
    directions: [Token; 2],
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
        let words = shape.words().ok_or(Error::NoMemory(u64::MAX))?;
        let region = node.words(words)?;
        shape.begin(region.words())?;
        let token = region.export(Rights::all())?;
        Ok(Volume { shape, region, token })
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) -> Result<Written> {
        let words = self.region.words();
        match self.shape.keep(words, value)? {
            Some(value) => self.shape.write(words, key, value),
            None => Ok(Written::Full),
        }
    }

    /// A volume of another shape with the elements of this one. Nobody else may change this one.
    fn copy(&self, node: &Node, shape: Shape) -> Result<Volume> {
        let mut larger = shape;
        loop {
            let new = Volume::make(node, larger)?;
            let mut is_full = false;
            self.shape.walk(self.region.words(), |key, value| {
                let bytes = self.shape.bytes(self.region.words(), value)?;
                is_full = is_full || new.insert(key, &bytes)? == Written::Full;
                Ok(())
            })?;
            if !is_full {
                return Ok(new);
            }
            larger = doubled(larger);
        }
    }
}

fn doubled(Shape { cells, spare, value_words }: Shape) -> Shape {
    Shape {
        cells: cells.saturating_mul(2),
        spare: spare.saturating_mul(2).max(8),
        value_words: value_words.saturating_mul(2).max(64),
    }
}

impl OwnVolume {
    pub fn begin(node: &Arc<Node>, shape: Shape) -> Result<Arc<OwnVolume>> {
        let volume = Volume::make(node, shape)?;
        let pointer = node.words(POINTER)?;
        let mailbox = node.zeroed::<u64>(MAILBOX / 8)?;
        let log = node.access_log(LOG_BYTES)?;
        mailbox.attributes(..).redirect_puts().to(&log)?;
        let directions = [mailbox.export(Rights::WRITE)?, pointer.export(Rights::READ)?];
        let (failure, malformed) = (Mutex::default(), AtomicU64::new(0));
        let served =
            Arc::new(Served { node: node.clone(), volume: RwLock::new(volume), pointer, failure, malformed });
        served.point(&served.volume.read().token, 0);
        let mut handler = Handler { served: served.clone(), parts: HashMap::new() };
        let serving = log.serve(move |access| handler.handle(access))?;
        Ok(Arc::new(OwnVolume { _serving: serving, _log: log, _mailbox: mailbox, directions, served }))
    }

    /// By which others find this volume.
    pub fn directions(&self) -> Vec<u8> {
        self.directions.iter().flat_map(Token::to_bytes).collect()
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
        let words = volume.region.words();
        let value = volume.shape.value(words, key)?;
        value.map(|value| volume.shape.bytes(words, value)).transpose()
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
        let shape = Shape { cells: cells.max(1), spare: cells.max(1), ..volume.shape };
        self.served.replace(&mut volume, shape)
    }

    pub fn clear(&self) {
        let volume = self.served.volume.write();
        volume.shape.clear(volume.region.words());
    }

    pub fn statistics(&self) -> Result<VolumeStatistics> {
        let Served { volume, pointer, malformed, .. } = &*self.served;
        let volume = volume.read();
        let mut elements = 0;
        volume.shape.walk(volume.region.words(), |_, _| {
            elements += 1;
            Ok(())
        })?;
        Ok(VolumeStatistics {
            elements,
            cells: volume.shape.cells,
            spare_taken: volume.shape.spare_taken(volume.region.words())?,
            resizes: pointer.words()[COUNT].load(Ordering::Acquire) / 2,
            malformed: malformed.load(Ordering::Relaxed),
        })
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
            let Shape { value_words, .. } = doubled(volume.shape);
            let needed = value_words.max(2 * value.len().div_ceil(8));
            let shape = Shape { value_words: needed, ..doubled(volume.shape) };
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
        self.pointer.words()[COUNT].store(count + 1, Ordering::Release);
        let replaced = self.node.unexport(&volume.token).and_then(|()| volume.copy(&self.node, shape));
        let outcome = match replaced {
            Ok(new) => {
                *volume = new;
                Ok(())
            }
            Err(error) => {
                // It stays as it was, by another token.
                volume.token = volume.region.export(Rights::all())?;
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
}

/// Does what messages of others ask for.
struct Handler {
    served: Arc<Served>,
    /// Messages that are not whole yet, by source.
    parts: HashMap<u64, Vec<u8>>,
}

impl Handler {
    fn handle(&mut self, access: Access<'_>) {
        if access.may_have_written() {
            // Its sender has died before it was told that it was sent.
            self.parts.remove(&access.source());
            return;
        }
        if access.is_first() && access.is_last() {
            return self.served.obey(access.bytes());
        }
        let parts = self.parts.entry(access.source()).or_default();
        if access.is_first() {
            parts.clear();
        }
        parts.extend_from_slice(access.bytes());
        if access.is_last() {
            let whole = self.parts.remove(&access.source()).unwrap_or_default();
            self.served.obey(&whole);
        }
    }
}

impl Served {
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
