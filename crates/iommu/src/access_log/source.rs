//! The writing end of a ring.

use super::record::{HEADER_WORDS, RecordFlags, RecordHeader, record_words};
use super::{
    AccessLog, DAMAGED, HANDLED, HEAD, LOST, OWNER, PUBLISH, PUBLISHED, PUBLISHING, RECORD, RESERVED,
    RESERVING, SLEEPS_WORD, TAIL, TAKEN,
};
use crate::words::SharedWords;

/// The writing end of a ring.
pub struct LogSource<W: SharedWords> {
    pub(super) log: AccessLog<W>,
    pub(super) place: usize,
    pub(super) tail: u64,
    /// What the reader had read when this source last looked: only where that is too little does it look again, as each look costs a cache miss.
    pub(super) head: u64,
    pub(super) owner: u64,
}

/// A ring has no space for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFull;

/// The reader has taken the record, and told the program that the access may have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordTaken;

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

    /// Whether its source was told that it is damaged: it may have another ring.
    pub fn is_lost(&self) -> bool {
        self.log.words.load(self.word(OWNER)) == LOST
    }

    /// Has the reader read all that was published at once, if it sleeps: a flush waits.
    pub fn await_handling(&self) {
        self.log.await_handling(self.place, self.tail);
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
    pub fn publish_unsure(self) -> Result<(), RecordTaken> {
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
    pub fn publish(self) -> Result<(), RecordTaken> {
        let (words, reserved) = (self.source.log.words.clone(), self.source.word(RESERVED));
        let publishing = self.stamp | PUBLISHING;
        let begun = words.compare_exchange(PUBLISH, reserved, self.stamp, publishing);
        if begun.is_err() {
            return Err(RecordTaken); // The drop skips it.
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
