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

/// Words of a record without its data.
pub const HEADER_WORDS: u64 = 6;

/// Nanoseconds for which a reservation holds back records of other sources.
pub const RESERVATION_BOUND: u64 = 200_000_000;

/// Records of one ring that an unordered reader takes before it looks at the next ring.
const MOST_IN_A_ROW: u32 = 64;

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LoggedOperation {
    Write = 1,
    Read = 2,
    FetchAdd = 3,
    CompareSwap = 4,
}

bitflags::bitflags! {
    /// What else there is to say of an access.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RecordFlags: u8 {
        /// The message begins with this record.
        const FIRST = 1;
        /// The message ends with this record.
        const LAST = 1 << 1;
        /// The access was refused.
        const REFUSED = 1 << 2;
        /// Its bytes are here and did not reach memory.
        const REDIRECTED = 1 << 3;
        /// Nobody knows whether it was made: its source has died, or takes too long.
        const MAY_HAVE_WRITTEN = 1 << 4;
        /// A READ that was logged before: its answer was lost, and the peer has asked again.
        const REPEATED = 1 << 5;
    }
}

/// A record without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    pub operation: LoggedOperation,
    pub flags: RecordFlags,
    pub user_domain: u16,
    /// Who made the access: the number of its queue pair at the owner.
    pub source: u64,
    /// Key of the region that it named.
    pub key: u32,
    /// One number for all records of a message.
    pub sequence: u32,
    /// First byte, in the owner's address space.
    pub address: u64,
    /// Bytes that were accessed.
    pub length: u32,
    /// When it was reserved.
    pub stamp: u64,
}

impl RecordHeader {
    fn words(&self, data: usize) -> [u64; HEADER_WORDS as usize] {
        let what = u64::from(self.operation as u8) << 32 | u64::from(self.flags.bits()) << 40;
        [
            data as u64 | what | u64::from(self.user_domain) << 48,
            self.source,
            u64::from(self.key) | u64::from(self.sequence) << 32,
            self.address,
            u64::from(self.length),
            self.stamp,
        ]
    }

    /// `None`: these words are no record.
    fn parse(words: [u64; HEADER_WORDS as usize]) -> Option<(RecordHeader, u32)> {
        let [what, source, named, address, length, stamp] = words;
        let operation = match (what >> 32) as u8 {
            1 => LoggedOperation::Write,
            2 => LoggedOperation::Read,
            3 => LoggedOperation::FetchAdd,
            4 => LoggedOperation::CompareSwap,
            _ => return None,
        };
        let header = RecordHeader {
            operation,
            flags: RecordFlags::from_bits((what >> 40) as u8)?,
            user_domain: (what >> 48) as u16,
            source,
            key: named as u32,
            sequence: (named >> 32) as u32,
            address,
            length: u32::try_from(length).ok()?,
            stamp,
        };
        Some((header, what as u32))
    }
}

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

/// Words that a record with so many bytes of data takes.
pub fn record_words(data: usize) -> u64 {
    HEADER_WORDS + data.div_ceil(8) as u64
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

    /// Ends the reader's sleep.
    pub fn wake(&self) {
        self.words.store(PUBLISH, SLEEPS_WORD, 0);
        self.words.wake_sleepers(SLEEPS_WORD);
    }

    /// Sleeps until a source has `records` that were not read or little space left, or somebody [wakes](Self::wake) the reader, for so long at
    /// most (PAPERS AA-5).
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
        records >= self.words.load(WAKE_AFTER_WORD) || records > 0 && used > self.ring as u64 / 4 * 3
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

    /// Whether handlers have handled what a ring had when it was [flushed](Self::flush), with the access within which its source has died.
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
            (false, false) => FlushState::Waits,
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

/// The writing end of a ring.
pub struct LogSource<W: SharedWords> {
    log: AccessLog<W>,
    place: usize,
    tail: u64,
    /// What the reader had read when this source last looked: only where that is too little does it look again, as each look costs a cache miss.
    head: u64,
    owner: u64,
}

/// A ring has no space for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFull;

/// The reader has taken the record, and told the program that the access may have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken;

impl<W: SharedWords> LogSource<W> {
    fn word(&self, word: usize) -> usize {
        self.log.row(self.place) + word
    }

    /// Words that are free, as far as is known.
    fn known_space(&self) -> u64 {
        (self.log.ring as u64).saturating_sub(self.tail.saturating_sub(self.head))
    }

    /// Whether there is space for a record with so many bytes of data. Wakes the reader where there is not: it may wait for more records.
    pub fn has_space_for(&mut self, data: usize) -> bool {
        let need = record_words(data);
        if self.known_space() >= need {
            return true;
        }
        self.head = self.log.words.load(self.word(HEAD));
        let fits = self.known_space() >= need;
        if !fits {
            self.log.wake_if_asleep();
        }
        fits
    }

    /// The longest data of a record.
    pub fn max_data(&self) -> usize {
        self.log.max_data()
    }

    /// Whether nobody reads the log any more. Asked behind a reservation.
    pub fn is_closed(&self) -> bool {
        self.log.is_closed()
    }

    /// Whether the reader has found that its words make no sense, and reads it no more.
    pub fn is_damaged(&self) -> bool {
        self.log.words.load(self.word(DAMAGED)) != 0
    }

    /// Wakes the reader, if it sleeps and there is enough for it.
    pub fn announce(&self) {
        self.log.words.fence();
        if self.log.words.load(SLEEPS_WORD) != 0 && self.log.is_worth_waking(self.place) {
            self.log.wake();
        }
    }

    /// Whether the handlers have handled all that was published, or nobody reads it any more.
    pub fn is_handled(&self) -> bool {
        self.log.words.load(self.word(HANDLED)) >= self.tail || self.is_damaged() || self.log.is_closed()
    }

    /// Writes a record, whose access is to be made before it is [published](Reservation::publish). The stamp of `header` is taken by `now`.
    ///
    /// # Errors
    /// There is no space: nothing was reserved.
    pub fn reserve(
        &mut self,
        header: &RecordHeader,
        data: &[u8],
        now: impl Fn() -> u64,
    ) -> Result<Reservation<'_, W>, LogFull> {
        let length = record_words(data.len());
        if !self.has_space_for(data.len()) {
            return Err(LogFull);
        }
        loop {
            let (words, reserved) = (&self.log.words, self.word(RESERVED));
            words.store(RECORD, reserved, RESERVING);
            words.fence();
            let stamp = now() & !(PUBLISHING | TAKEN);
            let header = RecordHeader { stamp, ..*header };
            for (at, word) in self.log.positions(self.place, self.tail).zip(header.words(data.len())) {
                words.store(RECORD, at, word);
            }
            self.log.copy_in(self.place, self.tail.wrapping_add(HEADER_WORDS), data);
            // The reader has waited long enough for the stamp, if it is no longer there. So another one is needed.
            if words.compare_exchange(RECORD, reserved, RESERVING, stamp).is_ok() {
                return Ok(Reservation { source: self, stamp, length });
            }
        }
    }
}

impl<W: SharedWords> Drop for LogSource<W> {
    fn drop(&mut self) {
        self.log.leave(self.place, self.owner);
    }
}

/// A record whose access is being made. Dropped without being published, it is taken back.
#[must_use = "the record is taken back"]
pub struct Reservation<'s, W: SharedWords> {
    source: &'s mut LogSource<W>,
    stamp: u64,
    length: u64,
}

impl<W: SharedWords> Reservation<'_, W> {
    /// Whether nobody reads the log any more.
    pub fn is_closed(&self) -> bool {
        self.source.is_closed()
    }

    /// Nobody knows whether the access was made, or how much of it: the reader sees that.
    ///
    /// # Errors
    /// As those of [`publish`](Self::publish).
    pub fn publish_unsure(self) -> Result<(), Taken> {
        let log = &self.source.log;
        let what = log.word_of_ring(self.source.place, self.source.tail);
        let unsure = u64::from(RecordFlags::MAY_HAVE_WRITTEN.bits()) << 40;
        log.words.store(RECORD, what, log.words.load(what) | unsure);
        self.publish()
    }

    /// The access was made: the reader sees it.
    ///
    /// # Errors
    /// The reader has taken it before. It has been told as one that may have been made.
    pub fn publish(self) -> Result<(), Taken> {
        let (words, reserved) = (self.source.log.words.clone(), self.source.word(RESERVED));
        let publishing = self.stamp | PUBLISHING;
        let begun = words.compare_exchange(PUBLISH, reserved, self.stamp, publishing);
        if begun.is_err() {
            return Err(Taken); // The drop skips it.
        }
        // The first tail may be a peer's word.
        self.source.tail = self.source.tail.wrapping_add(self.length);
        words.store(PUBLISH, self.source.word(TAIL), self.source.tail);
        let published = words.load(self.source.word(PUBLISHED));
        words.store(PUBLISH, self.source.word(PUBLISHED), published.wrapping_add(1));
        words.store(PUBLISH, reserved, 0);
        Ok(())
    }
}

impl<W: SharedWords> Drop for Reservation<'_, W> {
    fn drop(&mut self) {
        let (words, reserved) = (&self.source.log.words, self.source.word(RESERVED));
        let before = words.compare_exchange(PUBLISH, reserved, self.stamp, 0);
        if before == Err(self.stamp | TAKEN) {
            words.store(PUBLISH, reserved, 0);
        }
    }
}

/// What the reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A record. [`handled`](LogReader::handled) is owed for it.
    Record(RecordHeader, Receipt),
    /// There is none.
    Empty,
    /// There may be one, behind an access that is under way.
    InFlight,
    /// The ring of a source is inconsistent, and was closed.
    Corrupt(u64),
}

/// What sources had published at some instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published(Vec<u64>);

/// Of which record [`handled`](LogReader::handled) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the record counts as handled only after a call of `handled`"]
pub struct Receipt {
    place: usize,
    end: u64,
}

#[derive(Clone, Copy)]
struct Seen {
    /// Words read.
    head: u64,
    /// Words that had been published when the reader last looked.
    tail: u64,
    /// Since when the reader sees the same reservation, and which.
    reserved: Option<(u64, u64)>,
    is_closed: bool,
}

/// The reading end of all rings of a log. A log has one.
pub struct LogReader<W> {
    log: AccessLog<W>,
    seen: Vec<Seen>,
    /// Rows that have had a source, as far as is known.
    used: usize,
    /// Records of several sources are read in the order of their stamps.
    is_ordered: bool,
    /// Of an ordered reader: no record before this stamp is missing among those that `seen` has.
    horizon: u64,
    /// With which ring the search begins, where they are not, and how many records in a row it gave.
    first: usize,
    in_a_row: u32,
    /// The record that is held back: its ring and stamp, and since when.
    held_back: Option<(usize, u64, u64)>,
}

/// The state of one ring.
enum Ring {
    Empty,
    /// Its first record, and the words that had been published.
    Ready(RecordHeader, u32, u64),
    /// An access is under way, with a stamp if it is known.
    Reserved(Option<u64>),
    Corrupt,
}

impl<W: SharedWords> LogReader<W> {
    /// The reader of a log that has just been made. `is_ordered`: a record whose access began after another one had ended is never read
    /// before it.
    pub fn new(log: AccessLog<W>, is_ordered: bool) -> Self {
        let seen = vec![Seen { head: 0, tail: 0, reserved: None, is_closed: false }; log.sources];
        LogReader { log, seen, used: 0, is_ordered, horizon: 0, first: 0, in_a_row: 0, held_back: None }
    }

    /// The next record, whose data take the place of what was in `data`. `now` is in nanoseconds, of the clock that gives the stamps.
    pub fn next(&mut self, now: u64, data: &mut Vec<u8>) -> Next {
        match self.is_ordered {
            true => self.next_in_order(now, data),
            false => self.next_of_any(now, data),
        }
    }

    fn next_of_any(&mut self, now: u64, data: &mut Vec<u8>) -> Next {
        let used = self.look_for_sources();
        for step in 0..used {
            let place = (self.first + step) % used;
            let found = match self.known(place) {
                Some(known) => known,
                None => match self.look(place) {
                    Ring::Ready(header, length, _) => (header, length),
                    Ring::Corrupt => return self.close(place),
                    Ring::Empty | Ring::Reserved(_) => continue,
                },
            };
            self.stay_or_go_on(place);
            return self.take(place, found, data);
        }
        self.log.words.fence();
        self.wait_for_earlier(u64::MAX, now, data).unwrap_or_else(|| self.nothing())
    }

    fn next_in_order(&mut self, now: u64, data: &mut Vec<u8>) -> Next {
        if let Some((place, found)) = self.earliest_known() {
            return self.take(place, found, data);
        }
        self.horizon = 0;
        let mut first: Option<(usize, RecordHeader, u32)> = None;
        for place in 0..self.look_for_sources() {
            match self.look(place) {
                Ring::Ready(header, length, _) => {
                    if first.is_none_or(|(_, before, _)| header.stamp < before.stamp) {
                        first = Some((place, header, length));
                    }
                }
                Ring::Corrupt => return self.close(place),
                Ring::Empty | Ring::Reserved(_) => {}
            }
        }
        // Behind the records that were seen: whoever reserves from here on takes a later stamp than theirs.
        self.log.words.fence();
        let limit = first.map_or(u64::MAX, |(_, header, _)| header.stamp);
        if let Some(next) = self.wait_for_earlier(limit, now, data)
            && (next != Next::InFlight || !self.is_held_back_for_long(first, now))
        {
            return next;
        }
        let Some((place, header, length)) = first else { return self.nothing() };
        self.horizon = (0..self.used).map(|place| self.earliest_unseen(place)).min().unwrap_or(0);
        self.take(place, (header, length), data)
    }

    fn nothing(&self) -> Next {
        // A reader that polls never sleeps.
        self.free_places();
        Next::Empty
    }

    /// The record with the earliest stamp of those that were published at the last look, if all that are missing there are later. So most
    /// records need no look at words that their sources write.
    fn earliest_known(&self) -> Option<(usize, (RecordHeader, u32))> {
        let known = (0..self.used).filter_map(|place| Some((place, self.known(place)?)));
        let earliest = known.min_by_key(|(_, (header, _))| header.stamp);
        earliest.filter(|(_, (header, _))| header.stamp < self.horizon)
    }

    /// The first record of a ring, if it was published at the last look.
    fn known(&self, place: usize) -> Option<(RecordHeader, u32)> {
        let Seen { head, tail, is_closed, .. } = self.seen[place];
        if is_closed || head >= tail {
            return None;
        }
        self.record_at(place, head, tail - head)
    }

    /// The record that begins there, among so many words that were published. `None`: there is no record.
    fn record_at(&self, place: usize, at: u64, published: u64) -> Option<(RecordHeader, u32)> {
        RecordHeader::parse(self.log.header_at(place, at))
            .filter(|(_, length)| record_words(*length as usize) <= published)
    }

    /// Behind a fence after the last look at all rings: the earliest stamp that a record of this ring may have which that look has not seen.
    fn earliest_unseen(&self, place: usize) -> u64 {
        let (row, words, seen) = (self.log.row(place), &self.log.words, &self.seen[place]);
        if seen.is_closed {
            return u64::MAX;
        }
        // In this order: a source publishes first and says then that nothing is reserved.
        let (reserved, tail) = (words.load(row + RESERVED), words.load(row + TAIL));
        let in_flight = match reserved {
            0 => u64::MAX,
            RESERVING => 0,
            // Its source takes another stamp.
            stamp if stamp & TAKEN != 0 => u64::MAX,
            stamp => stamp & !PUBLISHING,
        };
        match tail == seen.tail {
            true => in_flight,
            false => RecordHeader::parse(self.log.header_at(place, seen.tail))
                .map_or(0, |(header, _)| in_flight.min(header.stamp)),
        }
    }

    /// What has been published by now.
    pub fn published(&self) -> Published {
        let tail = |place| self.log.words.load(self.log.row(place) + TAIL);
        Published((0..self.log.used()).map(tail).collect())
    }

    /// Whether all of that was read.
    pub fn has_read(&self, published: &Published) -> bool {
        let is_read = |(seen, tail): (&Seen, &u64)| seen.is_closed || seen.head >= *tail;
        self.seen.iter().zip(&published.0).all(is_read)
    }

    /// How many rows are to be looked at. It never shrinks, whatever a peer writes there.
    fn look_for_sources(&mut self) -> usize {
        self.used = self.used.max(self.log.used());
        self.used
    }

    /// Where the next search begins, behind a record of this ring: with the same ring, as most others have none, but not for ever.
    fn stay_or_go_on(&mut self, place: usize) {
        self.in_a_row = if place == self.first { self.in_a_row + 1 } else { 1 };
        self.first = place;
        if self.in_a_row >= MOST_IN_A_ROW {
            (self.first, self.in_a_row) = ((place + 1) % self.used, 0);
        }
    }

    /// Whether the next record has been held back by accesses in flight for longer than any source may hold it: then one of them reserves
    /// anew and anew with stamps that are none of the clock.
    fn is_held_back_for_long(&mut self, next: Option<(usize, RecordHeader, u32)>, now: u64) -> bool {
        let Some((place, header, _)) = next else { return false };
        let since = match self.held_back {
            Some((known, stamp, since)) if (known, stamp) == (place, header.stamp) => since,
            _ => self.held_back.insert((place, header.stamp, now)).2,
        };
        now.saturating_sub(since) > 2 * RESERVATION_BOUND
    }

    /// What holds back a record with this stamp.
    fn wait_for_earlier(&mut self, limit: u64, now: u64, data: &mut Vec<u8>) -> Option<Next> {
        let mut waits = false;
        // Once more: a source that came meanwhile may have published before the record that was found.
        for place in 0..self.look_for_sources() {
            let is_earlier = match self.ring(place) {
                Ring::Reserved(stamp) => stamp.is_none_or(|stamp| stamp < limit),
                // It has been published since: the search begins anew.
                Ring::Ready(header, ..) if self.is_ordered && header.stamp < limit => {
                    return Some(Next::InFlight);
                }
                _ => false,
            };
            let reserved = self.log.words.load(self.log.row(place) + RESERVED);
            // The reservation may have ended since.
            if !is_earlier || reserved == 0 {
                self.seen[place].reserved = None;
                continue;
            }
            let since = match self.seen[place].reserved {
                Some((known, since)) if known == reserved => since,
                _ => self.seen[place].reserved.insert((reserved, now)).1,
            };
            if now.saturating_sub(since) > RESERVATION_BOUND {
                return Some(self.take_reservation(place, reserved, data));
            }
            waits |= self.is_ordered || limit == u64::MAX;
        }
        waits.then_some(Next::InFlight)
    }

    /// Looks at what the source of a ring says.
    fn look(&mut self, place: usize) -> Ring {
        let ring = self.ring(place);
        self.seen[place].tail = match ring {
            Ring::Ready(.., tail) => tail,
            _ => self.seen[place].head,
        };
        ring
    }

    fn ring(&self, place: usize) -> Ring {
        let (row, words, seen) = (self.log.row(place), &self.log.words, &self.seen[place]);
        if seen.is_closed {
            return Ring::Empty;
        }
        // In this order: a source publishes first and says then that nothing is reserved.
        let reserved = words.load(row + RESERVED);
        let tail = words.load(row + TAIL);
        if tail < seen.head && reserved & PUBLISHING != 0 && reserved != RESERVING {
            return Ring::Empty; // The reader has taken what is being published.
        }
        let published = tail.wrapping_sub(seen.head);
        if published == 0 {
            return match reserved {
                0 => Ring::Empty,
                RESERVING => Ring::Reserved(None),
                stamp if stamp & TAKEN != 0 => Ring::Empty,
                // The reader has read what is being published, and the source has yet to say that nothing is reserved.
                stamp if stamp & PUBLISHING != 0 && !self.has_stamp(place, stamp & !PUBLISHING) => {
                    Ring::Empty
                }
                stamp => Ring::Reserved(Some(stamp & !PUBLISHING)),
            };
        }
        if published > self.log.ring as u64 || published < HEADER_WORDS {
            return Ring::Corrupt;
        }
        match self.record_at(place, seen.head, published) {
            Some((header, length)) => Ring::Ready(header, length, tail),
            None => Ring::Corrupt,
        }
    }

    /// Whether the words at the head of a ring are the record of a stamp.
    fn has_stamp(&self, place: usize, stamp: u64) -> bool {
        let words = self.log.header_at(place, self.seen[place].head);
        RecordHeader::parse(words).is_some_and(|(header, _)| header.stamp == stamp)
    }

    fn take(&mut self, place: usize, (header, length): (RecordHeader, u32), data: &mut Vec<u8>) -> Next {
        data.resize(length as usize, 0);
        let head = self.seen[place].head;
        self.log.copy_out(place, head + HEADER_WORDS, data);
        let end = head + record_words(length as usize);
        self.seen[place].head = end;
        let read = self.log.row(place) + READ_RECORDS;
        self.log.words.store(READ, read, self.log.words.load(read).wrapping_add(1));
        self.log.words.store(READ, self.log.row(place) + HEAD, end);
        Next::Record(header, Receipt { place, end })
    }

    /// Takes a reservation that lasts too long.
    fn take_reservation(&mut self, place: usize, reserved: u64, data: &mut Vec<u8>) -> Next {
        let (row, words, head) = (self.log.row(place), &self.log.words, self.seen[place].head);
        self.seen[place].reserved = None;
        if reserved == RESERVING {
            // Nothing is accessed yet: its stamp will be a later one.
            // If the stamp is there by now, the search finds it.
            let _ = words.compare_exchange(READ, row + RESERVED, RESERVING, TAKEN);
            return Next::InFlight;
        }
        let Some((header, length)) = RecordHeader::parse(self.log.header_at(place, head)) else {
            return self.close(place);
        };
        if reserved & PUBLISHING != 0 {
            // The access was made, and the record is whole. That it is published remains to be said.
            let fits = record_words(length as usize) <= self.log.ring as u64;
            return if fits { self.take(place, (header, length), data) } else { self.close(place) };
        }
        if words.compare_exchange(READ, row + RESERVED, reserved, reserved | TAKEN).is_err() {
            return Next::InFlight;
        }
        data.clear();
        let flags = header.flags | RecordFlags::MAY_HAVE_WRITTEN;
        Next::Record(RecordHeader { flags, ..header }, Receipt { place, end: head })
    }

    fn close(&mut self, place: usize) -> Next {
        self.seen[place].is_closed = true;
        // Whatever it says that it has published keeps the reader awake no more.
        self.log.words.store(READ, self.log.row(place) + READ_RECORDS, u64::MAX);
        self.log.words.store(READ, self.log.row(place) + DAMAGED, 1);
        self.log.words.store(READ, DAMAGED_WORD, 1);
        let owner = self.log.words.load(self.log.row(place) + OWNER);
        Next::Corrupt(owner_of(owner).unwrap_or(0))
    }

    /// The handlers have returned for a record and all before it of its source.
    pub fn handled(&mut self, receipt: Receipt) {
        let Receipt { place, end } = receipt;
        self.log.words.store(READ, self.log.row(place) + HANDLED, end);
        // Looked at behind the last record that is known: a look costs a cache miss.
        let seen = &self.seen[place];
        if seen.is_closed || seen.head >= seen.tail {
            self.free_if_left(place);
        }
    }

    /// A source that has left, and of which all was handled, makes place for another one.
    fn free_if_left(&self, place: usize) {
        let (row, words, seen) = (self.log.row(place), &self.log.words, &self.seen[place]);
        let has_left = words.load(row + OWNER) & LEAVING != 0;
        // A closed ring stays closed. A source may have died within an access, which the reader takes first.
        if !has_left || seen.is_closed || !matches!(self.ring(place), Ring::Empty) {
            return;
        }
        // A source that died while it published has not said all.
        words.store(READ, row + TAIL, seen.head);
        words.store(READ, row + PUBLISHED, words.load(row + READ_RECORDS));
        words.store(READ, row + RESERVED, 0);
        words.store(SOURCE, row + OWNER, 0);
    }

    /// Makes place of sources that have left.
    pub fn free_places(&self) {
        for place in 0..self.used {
            let (row, words) = (self.log.row(place), &self.log.words);
            let has_left = words.load(row + OWNER) & LEAVING != 0;
            if has_left && words.load(row + HANDLED) == self.seen[place].head {
                self.free_if_left(place);
            }
        }
    }
}

#[cfg(test)]
mod tests;
