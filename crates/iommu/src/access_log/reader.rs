//! The reading end of a log.

use super::record::{HEADER_WORDS, RecordFlags, RecordHeader, record_words};
use super::{
    AccessLog, DAMAGED, DAMAGED_WORD, HANDLED, HEAD, LEAVING, OWNER, PUBLISHED, PUBLISHING, READ,
    READ_RECORDS, RESERVED, RESERVING, SOURCE, TAIL, TAKEN, owner_of,
};
use crate::words::SharedWords;

/// Nanoseconds for which a reservation holds back records of other sources.
pub const RESERVATION_BOUND: u64 = 200_000_000;

/// Records of one ring that an unordered reader takes before it looks at the next ring.
pub(super) const MOST_IN_A_ROW: u32 = 64;

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
pub struct PublishedPositions(Vec<u64>);

/// Of which record [`handled`](LogReader::handled) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the record counts as handled only after a call of `handled`"]
pub struct Receipt {
    place: usize,
    end: u64,
}

#[derive(Clone, Copy)]
struct RingPosition {
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
    seen: Vec<RingPosition>,
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
enum RingState {
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
        let seen = vec![RingPosition { head: 0, tail: 0, reserved: None, is_closed: false }; log.sources];
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
                    RingState::Ready(header, length, _) => (header, length),
                    RingState::Corrupt => return self.close(place),
                    RingState::Empty | RingState::Reserved(_) => continue,
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
                RingState::Ready(header, length, _) => {
                    if first.is_none_or(|(_, before, _)| header.stamp < before.stamp) {
                        first = Some((place, header, length));
                    }
                }
                RingState::Corrupt => return self.close(place),
                RingState::Empty | RingState::Reserved(_) => {}
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
        let RingPosition { head, tail, is_closed, .. } = self.seen[place];
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
    pub fn published(&self) -> PublishedPositions {
        let tail = |place| self.log.words.load(self.log.row(place) + TAIL);
        PublishedPositions((0..self.log.used()).map(tail).collect())
    }

    /// Whether all of that was read.
    pub fn has_read(&self, published: &PublishedPositions) -> bool {
        let is_read = |(seen, tail): (&RingPosition, &u64)| seen.is_closed || seen.head >= *tail;
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
                RingState::Reserved(stamp) => stamp.is_none_or(|stamp| stamp < limit),
                // It has been published since: the search begins anew.
                RingState::Ready(header, ..) if self.is_ordered && header.stamp < limit => {
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
    fn look(&mut self, place: usize) -> RingState {
        let ring = self.ring(place);
        self.seen[place].tail = match ring {
            RingState::Ready(.., tail) => tail,
            _ => self.seen[place].head,
        };
        ring
    }

    fn ring(&self, place: usize) -> RingState {
        let (row, words, seen) = (self.log.row(place), &self.log.words, &self.seen[place]);
        if seen.is_closed {
            return RingState::Empty;
        }
        // In this order: a source publishes first and says then that nothing is reserved.
        let reserved = words.load(row + RESERVED);
        let tail = words.load(row + TAIL);
        if tail < seen.head && reserved & PUBLISHING != 0 && reserved != RESERVING {
            return RingState::Empty; // The reader has taken what is being published.
        }
        let published = tail.wrapping_sub(seen.head);
        if published == 0 {
            return match reserved {
                0 => RingState::Empty,
                RESERVING => RingState::Reserved(None),
                stamp if stamp & TAKEN != 0 => RingState::Empty,
                // The reader has read what is being published, and the source has yet to say that nothing is reserved.
                stamp if stamp & PUBLISHING != 0 && !self.has_stamp(place, stamp & !PUBLISHING) => {
                    RingState::Empty
                }
                stamp => RingState::Reserved(Some(stamp & !PUBLISHING)),
            };
        }
        if published > self.log.ring as u64 || published < HEADER_WORDS {
            return RingState::Corrupt;
        }
        match self.record_at(place, seen.head, published) {
            Some((header, length)) => RingState::Ready(header, length, tail),
            None => RingState::Corrupt,
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
        if !has_left || seen.is_closed || !matches!(self.ring(place), RingState::Empty) {
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
