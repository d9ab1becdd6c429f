//! Access logs: what peers did to pages with attributes, for the owner to read in order (PAPERS AA-3, AA-4, AA-7 and AA-8).
//!
//! A log has a ring for each source, a queue pair. A ring has one writer and one reader. A source
//!
//! 1. says that it reserves, and fences;
//! 2. takes the stamp, writes the record, and says its stamp;
//! 3. makes the access;
//! 4. publishes the record, by one store.
//!
//! The reader merges the rings by stamp. Where a source has reserved at an earlier time than the next record has, it waits, for a bounded time.
//! Then it takes the reservation: the access may have been made, and its publication fails.
//!
//! Whatever a source writes is checked: a ring that is inconsistent is closed, which harms no other.

mod reader;
mod record;
mod source;

pub use reader::{LogReader, Next, PublishedPositions, RESERVATION_BOUND, Receipt};
pub use record::{HEADER_WORDS, LoggedOperation, RecordFlags, RecordHeader, record_words};
pub use source::{LogFull, LogSource, RecordTaken, Reservation};

use crate::limits::{MAX_LOG_SOURCES, USER_DOMAINS};
use crate::words::{SharedWords, Site};
use std::time::Duration;

/// Writing records and reserving.
pub const RECORD: Site = Site("access_log.record");
/// Publishing a record, or taking a reservation back.
pub const PUBLISH: Site = Site("access_log.publish");
/// What the reader says.
pub const READ: Site = Site("access_log.read");
/// Becoming a source, and leaving.
pub const SOURCE: Site = Site("access_log.source");

/// The reader sleeps, or is about to.
const SLEEPS_WORD: usize = 0;
/// Nobody reads any more.
const CLOSED_WORD: usize = 1;
/// Records of one source for which the reader is woken.
const WAKE_AFTER_WORD: usize = 2;
/// How many rows, from the first one on, have had a source.
const USED_WORD: usize = 3;
/// Some ring is [damaged](DAMAGED), or was.
const DAMAGED_WORD: usize = 4;
const FIRST_ROW: usize = 16;

// Words of a source's row: those that it writes, and in another cache line those of the reader.
const ROW_WORDS: usize = 16;
/// Who the source is, plus one. 0: nobody.
const OWNER: usize = 0;
/// 0: nothing is reserved. [`RESERVING`]: a stamp is being taken. Else a stamp, with marks.
const RESERVED: usize = 1;
/// Words published since the beginning.
const TAIL: usize = 2;
/// Records published since the beginning.
const PUBLISHED: usize = 3;
/// Words up to which a flush waits: the reader does not sleep before it has read them.
const AWAITED: usize = 4;
/// Words whose space is free again.
const HEAD: usize = 8;
/// Words whose records were handled.
const HANDLED: usize = 9;
/// Records that were read.
const READ_RECORDS: usize = 10;
/// The reader has found words that make no sense, and reads the ring no more.
const DAMAGED: usize = 11;

/// No stamp is known yet.
const RESERVING: u64 = u64::MAX;
/// The source is publishing.
const PUBLISHING: u64 = 1 << 63;
/// The reader has taken the reservation.
const TAKEN: u64 = 1 << 62;
/// The source leaves: its row is free once all was read.
const LEAVING: u64 = 1 << 63;
/// The owner of a damaged ring whose source has been told so. Nobody gets the row.
const LOST: u64 = u64::MAX;

/// What the row of a source has in its first word.
fn owner_word(owner: u64) -> u64 {
    (owner & !LEAVING) + 1
}

/// What the first word of a row says of its source. `None`: it has none.
fn owner_of(word: u64) -> Option<u64> {
    if word == LOST { None } else { (word & !LEAVING).checked_sub(1) }
}

/// Bytes of a word of the region of flushes.
const FLUSH_WORD: u64 = 8;
/// Words of the region of flushes: one for all logs, and one for each user domain.
pub const FLUSH_WORDS: usize = USER_DOMAINS + 1;

/// At which offset of the region of flushes a READ waits for handlers: for those of one user domain, or for all.
pub fn flush_offset(user_domain: Option<u16>) -> u64 {
    user_domain.map_or(0, |user_domain| FLUSH_WORD * (u64::from(user_domain) + 1))
}

/// For whose handlers a READ at an offset of the region of flushes waits: for those of one user domain, or for all.
pub fn flushed_domain(offset: u64) -> Option<u16> {
    (offset / FLUSH_WORD).checked_sub(1).map(|user_domain| user_domain as u16)
}

/// The rings of a log.
#[derive(Clone)]
pub struct AccessLog<W> {
    words: W,
    sources: usize,
    ring: usize,
}

impl<W: SharedWords> AccessLog<W> {
    /// Words that a log takes: at most [`MAX_LOG_SOURCES`] rings of so many words, whose number has 32 bits. `None`: there are too many.
    pub fn words_for(sources: usize, ring: usize) -> Option<usize> {
        let fits = (1..=MAX_LOG_SOURCES).contains(&sources)
            && (HEADER_WORDS..=u32::MAX.into()).contains(&(ring as u64));
        let rings = sources.checked_mul(ring.checked_add(ROW_WORDS)?)?;
        fits.then_some(rings.checked_add(FIRST_ROW)?)
    }

    /// The log in these words: a new one where they are zero. `None`: they are fewer than [`words_for`](Self::words_for) says.
    pub fn new(words: W, sources: usize, ring: usize) -> Option<Self> {
        (words.len() >= Self::words_for(sources, ring)?).then_some(AccessLog { words, sources, ring })
    }

    /// Nobody reads any more.
    pub fn close(&self) {
        self.words.store(SOURCE, CLOSED_WORD, 1);
        self.words.fence();
    }

    fn is_closed(&self) -> bool {
        self.words.load(CLOSED_WORD) != 0
    }

    /// Whether some ring is damaged, or was.
    pub fn has_any_damage(&self) -> bool {
        self.words.load(DAMAGED_WORD) != 0
    }

    /// Whether the reader sleeps, or is about to.
    pub fn is_asleep(&self) -> bool {
        self.words.load(SLEEPS_WORD) != 0
    }

    /// Ends the reader's sleep.
    pub fn wake(&self) {
        self.words.store(PUBLISH, SLEEPS_WORD, 0);
        self.words.wake_sleepers(SLEEPS_WORD);
    }

    /// Has the reader read a ring up to there at once, however many records it sleeps for (PAPERS AA-6).
    fn await_handling(&self, place: usize, tail: u64) {
        let awaited = self.row(place) + AWAITED;
        if self.words.load(awaited) < tail {
            self.words.store(SOURCE, awaited, tail);
        }
        self.wake_if_asleep();
    }

    /// Sleeps until a source has `records` that were not read or little space left, a flush waits for it, or somebody [wakes](Self::wake) the
    /// reader, for so long at most (PAPERS AA-5).
    pub fn sleep(&self, records: u64, at_most: Duration) {
        self.words.store(READ, WAKE_AFTER_WORD, records.max(1));
        self.words.store(READ, SLEEPS_WORD, 1);
        self.words.fence();
        if !(0..self.used()).any(|place| self.is_worth_waking(place)) {
            self.words.sleep(SLEEPS_WORD, 1, at_most);
        }
        self.words.store(READ, SLEEPS_WORD, 0);
    }

    /// Whether a source has records enough to wake the reader.
    fn is_worth_waking(&self, place: usize) -> bool {
        let load = |word| self.words.load(self.row(place) + word);
        let records = load(PUBLISHED).saturating_sub(load(READ_RECORDS));
        let used = load(TAIL).saturating_sub(load(HEAD));
        let is_awaited = || load(AWAITED) > load(HEAD);
        let is_urgent = || used > self.ring as u64 / 4 * 3 || is_awaited();
        records >= self.words.load(WAKE_AFTER_WORD) || records > 0 && is_urgent()
    }

    /// A source has ended without having said so: a queue pair, whose accesses have ended.
    pub fn end_source(&self, owner: u64) {
        for place in 0..self.sources {
            if self.words.load(self.row(place) + OWNER) == owner_word(owner) {
                self.leave(place, owner);
            }
        }
    }

    /// The rings of some sources, and what each has published by now.
    pub fn flush(&self, is_concerned: impl Fn(u64) -> bool) -> Vec<Flushed> {
        let flushed = |place| {
            let row = self.row(place);
            let owner = owner_of(self.words.load(row + OWNER)).filter(|owner| is_concerned(*owner))?;
            Some(Flushed { place, owner, tail: self.words.load(row + TAIL) })
        };
        (0..self.used()).filter_map(flushed).collect()
    }

    /// Whether handlers have handled what a ring had when it was [flushed](Self::flush), with the access within which its source has died. Where they
    /// have not, a reader that sleeps is woken.
    pub fn flush_state(&self, flushed: &Flushed) -> FlushState {
        let load = |word| self.words.load(self.row(flushed.place) + word);
        let owner = load(OWNER);
        if self.is_closed() || owner_of(owner) != Some(flushed.owner) {
            return FlushState::Handled;
        }
        // The reader frees the ring of a source that has left.
        let may_write = owner & LEAVING != 0 && load(RESERVED) != 0;
        match (load(DAMAGED) != 0, load(HANDLED) >= flushed.tail && !may_write) {
            (true, _) => FlushState::Lost,
            (false, true) => FlushState::Handled,
            (false, false) => {
                self.await_handling(flushed.place, flushed.tail);
                FlushState::Waits
            }
        }
    }

    /// Who had a damaged ring has been told: nobody asks for it again.
    pub fn note_lost(&self, flushed: &Flushed) {
        let at = self.row(flushed.place) + OWNER;
        let found = self.words.load(at);
        if owner_of(found) == Some(flushed.owner) {
            // It may leave meanwhile, and is told twice then.
            let _ = self.words.compare_exchange(SOURCE, at, found, LOST);
        }
    }

    /// Whether a ring of a source is damaged.
    pub fn has_damaged(&self, owner: u64) -> bool {
        let is_damaged = |place| {
            let load = |word| self.words.load(self.row(place) + word);
            load(DAMAGED) != 0 && owner_of(load(OWNER)) == Some(owner)
        };
        self.words.load(DAMAGED_WORD) != 0 && (0..self.used()).any(is_damaged)
    }

    /// Whether a source has a ring that has something to be read, or may have.
    pub fn knows(&self, owner: u64) -> bool {
        (0..self.used()).any(|place| owner_of(self.words.load(self.row(place) + OWNER)) == Some(owner))
    }

    /// A source leaves its place, unless it has left before: somebody else may have the place since.
    fn leave(&self, place: usize, owner: u64) {
        let owner = owner_word(owner);
        let _ = self.words.compare_exchange(SOURCE, self.row(place) + OWNER, owner, owner | LEAVING);
    }

    fn row(&self, place: usize) -> usize {
        FIRST_ROW + place * ROW_WORDS
    }

    fn word_of_ring(&self, place: usize, at: u64) -> usize {
        FIRST_ROW + self.sources * ROW_WORDS + place * self.ring + (at % self.ring as u64) as usize
    }

    /// The longest data of a record.
    pub fn max_data(&self) -> usize {
        (self.ring - HEADER_WORDS as usize) * 8
    }

    /// Becomes a source, called `owner`. `None`: there are as many as can be.
    pub fn claim_source(&self, owner: u64) -> Option<LogSource<W>> {
        for place in 0..self.sources {
            let row = self.row(place);
            if self.words.load(row + OWNER) != 0 {
                continue;
            }
            // Before it is claimed: who dies in between has claimed nothing.
            self.note_use(place);
            if self.words.compare_exchange(SOURCE, row + OWNER, 0, owner_word(owner)).is_ok() {
                let (tail, head) = (self.words.load(row + TAIL), self.words.load(row + HEAD));
                return Some(LogSource { log: self.clone(), place, tail, head, owner });
            }
        }
        self.wake_if_asleep();
        None
    }

    /// The reader looks at this row, too, from now on.
    fn note_use(&self, place: usize) {
        let (mut known, used) = (self.words.load(USED_WORD), place as u64 + 1);
        while known < used {
            match self.words.compare_exchange(SOURCE, USED_WORD, known, used) {
                Ok(_) => return,
                Err(found) => known = found,
            }
        }
    }

    /// Rows that have had a source.
    fn used(&self) -> usize {
        (self.words.load(USED_WORD) as usize).min(self.sources)
    }

    /// Wakes a reader that sleeps: it makes space, and places of sources that have left.
    fn wake_if_asleep(&self) {
        self.words.fence();
        if self.words.load(SLEEPS_WORD) != 0 {
            self.wake();
        }
    }

    /// Runs over the ring's end and begins again.
    fn copy_in(&self, place: usize, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let until_end = self.ring - (at % self.ring as u64) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(until_end * 8));
        self.words.write_bytes(RECORD, self.word_of_ring(place, at), first);
        if !second.is_empty() {
            self.words.write_bytes(
                RECORD,
                self.word_of_ring(place, at.wrapping_add(until_end as u64)),
                second,
            );
        }
    }

    fn copy_out(&self, place: usize, at: u64, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let until_end = self.ring - (at % self.ring as u64) as usize;
        let middle = bytes.len().min(until_end * 8);
        let (first, second) = bytes.split_at_mut(middle);
        self.words.read_bytes(self.word_of_ring(place, at), first);
        if !second.is_empty() {
            self.words.read_bytes(self.word_of_ring(place, at + until_end as u64), second);
        }
    }

    fn header_at(&self, place: usize, at: u64) -> [u64; HEADER_WORDS as usize] {
        let mut positions = self.positions(place, at);
        std::array::from_fn(|_| positions.next().map_or(0, |at| self.words.load(at)))
    }

    /// The words of a ring from one on, without end. The ring's length is no power of two: a division for each word would cost more than the word.
    fn positions(&self, place: usize, at: u64) -> impl Iterator<Item = usize> + use<W> {
        let first = self.word_of_ring(place, 0);
        let (begin, end) = (self.word_of_ring(place, at), first + self.ring);
        (begin..end).chain(std::iter::repeat_with(move || first..end).flatten())
    }
}

/// A ring that a flush waits for, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flushed {
    place: usize,
    owner: u64,
    tail: u64,
}

/// How far a flush of a ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushState {
    Handled,
    Waits,
    /// The ring is damaged: what it had is never handled.
    Lost,
}

#[cfg(test)]
mod tests;
