//! Rings: how packets travel between two processes of one host.
//!
//! One ring a direction, in the words of a channel. A ring begins in the rest of its first page and moves to
//! larger areas when it fills up, so that ten thousand quiet peers cost a page each. Records are whole words:
//! one header word, the packet's headers, then the payload or the pieces of it that the receiver pulls itself.
//! The header word is written last, and the word behind a record is zero by then: a reader looks at the one word that the next
//! record begins with, so that a short record takes one cache line from core to core. How far it has read, it tells
//! only now and then.
//! The other side may die or lie at any moment: whatever is read is checked, and nothing is read twice.

pub use crate::types::channel_layout::{DIRECTION_WORDS, HAZARD_SLOTS, HAZARDS};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_transport::RemoteAddress;

/// Clearing the word behind a record, and writing all its words but the first.
pub const RECORD: Site = Site("ring.record");
/// The first, which makes it visible.
pub const PUBLISH: Site = Site("ring.publish");
/// Giving its room back.
pub const HEAD: Site = Site("ring.head");
/// Telling what became of records.
pub const RING_ACK: Site = Site("ring.ack");

/// The words in which the reader tells what became of records, in the writer's direction.
pub const RING_ACKS: usize = 32;

const HEAD_WORD: usize = 8;
/// Offset and size of each area, in words.
const AREAS: [(usize, u64); 3] = [(64, 448), (512, 8192), (512 + 8192, 131_072)];
/// Where fewer words behind the last record are clear than two cache lines have, up to twice as many are.
const AHEAD: u64 = 16;
/// The reader tells where it is at once where it has read this part of an area since it last did.
const UNPUBLISHED: u64 = 8;
const POSITION_BITS: u32 = 56;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// Largest record in words.
pub const MAX_RECORD_WORDS: usize = 16_384;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum RecordKind {
    /// Headers and payload bytes.
    Bytes = 1,
    /// Headers and pieces of the sender's memory ([`emit_reference`]).
    Reference = 2,
    /// Global routing header, headers and payload bytes.
    Datagram = 3,
    /// A SEND of one packet: what its headers tell ([`send_record_format`](super::send_record_format)), and payload bytes.
    Send = 4,
}

/// Bytes of one piece of the sender's memory in a record.
pub const REFERENCE_BYTES: usize = 16;

/// One piece: address, length, and the sender's own key to it.
pub fn emit_reference(piece: RemoteAddress, length: u32) -> [u8; REFERENCE_BYTES] {
    let mut bytes = [0; REFERENCE_BYTES];
    bytes[..8].copy_from_slice(&piece.address.to_ne_bytes());
    bytes[8..12].copy_from_slice(&length.to_ne_bytes());
    bytes[12..].copy_from_slice(&piece.key.to_ne_bytes());
    bytes
}

/// What [`emit_reference`] wrote.
pub fn parse_reference(bytes: &[u8]) -> (RemoteAddress, u32) {
    let (mut address, mut length, mut key) = ([0; 8], [0; 4], [0; 4]);
    address.copy_from_slice(&bytes[..8]);
    length.copy_from_slice(&bytes[8..12]);
    key.copy_from_slice(&bytes[12..REFERENCE_BYTES]);
    let remote = RemoteAddress { address: u64::from_ne_bytes(address), key: u32::from_ne_bytes(key) };
    (remote, u32::from_ne_bytes(length))
}

const WRAP: u8 = 14;
const GROW: u8 = 15;

/// A record's header word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRecordHeader {
    pub kind: RecordKind,
    /// The writer waits for the ring acknowledgement on the record; see [`ring_ack`](super::ring_ack).
    pub wants_ack: bool,
    /// Bytes of packet headers.
    pub header: u8,
    /// Bytes behind the headers.
    pub payload: u32,
}

/// Words that so many bytes take, far from any overflow.
const fn words_of(bytes: usize) -> usize {
    (bytes + 7) >> 3
}

const WANTS_ACK: u64 = 1 << 7;

impl RingRecordHeader {
    /// Words of the whole record.
    pub fn words(&self) -> usize {
        1 + words_of(self.header.into()) + words_of(self.payload as usize)
    }

    fn encode(&self) -> u64 {
        u64::from(self.kind as u8)
            | if self.wants_ack { WANTS_ACK } else { 0 }
            | u64::from(self.header) << 8
            | u64::from(self.payload) << 32
    }

    fn decode(word: u64) -> Option<Self> {
        Some(RingRecordHeader {
            kind: RecordKind::from_repr((word & !WANTS_ACK) as u8)?,
            wants_ack: word & WANTS_ACK != 0,
            header: (word >> 8) as u8,
            payload: (word >> 32) as u32,
        })
    }
}

/// Where an end of the ring is.
struct Cursor {
    area: usize,
    /// Where the area begins, and behind which word it ends.
    start: u64,
    end: u64,
    /// Words of this area that are behind it, in all rounds.
    position: u64,
    /// The word that it is at.
    at: u64,
}

impl Cursor {
    /// At the beginning of an area of the direction whose words start at `base`.
    fn new(base: usize, area: usize) -> Self {
        let (offset, size) = AREAS[area];
        let start = (base + offset) as u64;
        Cursor { area, start, end: start + size, position: 0, at: start }
    }

    /// Words of the area.
    fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Words from here to the area's end.
    fn to_end(&self) -> u64 {
        self.end - self.at
    }

    /// The index of the word that is `skip` words ahead, less than the area has.
    #[inline]
    fn index(&self, skip: u64) -> usize {
        let at = self.at + skip;
        (if at < self.end { at } else { at - self.size() }) as usize
    }

    /// Goes on by so many words, as many as the area has at most.
    #[inline]
    fn advance(&mut self, length: u64) {
        self.position += length;
        self.at += length;
        if self.at >= self.end {
            self.at -= self.size();
        }
    }

    fn is_in_last(&self) -> bool {
        self.area + 1 == AREAS.len()
    }

    /// Goes to the beginning of the next area of its direction.
    fn grow(&mut self) {
        let base = self.start as usize - AREAS[self.area].0;
        *self = Cursor::new(base, self.area + 1);
    }

    /// The word that tells it.
    fn encoded(&self) -> u64 {
        (self.area as u64) << POSITION_BITS | self.position
    }
}

/// The writing end. The word at its position is zero.
pub struct Producer<W> {
    words: W,
    base: usize,
    cursor: Cursor,
    /// So many words of the area are zero from the cursor on.
    cleared: u64,
    /// What the reader told when it was last looked at.
    head: u64,
    /// Words from the cursor on, without a wrap, that are known to be free and a record may take.
    sure: u64,
}

impl<W: SharedWords> Producer<W> {
    /// The ring of the direction whose words start at `base`; new and empty.
    pub fn new(words: W, base: usize) -> Self {
        Producer { words, base, cursor: Cursor::new(base, 0), cleared: AREAS[0].1, head: 0, sure: 0 }
    }

    /// Whether the reader has told that it has taken all records.
    pub fn is_drained(&self) -> bool {
        self.words.load(self.base + HEAD_WORD) == self.cursor.encoded()
    }

    /// Words free in the present area, by what the reader told. That is not trusted beyond its own room.
    fn free(&self) -> u64 {
        let size = self.cursor.size();
        let in_area = (self.head >> POSITION_BITS) as usize == self.cursor.area;
        let head = if in_area { self.head & POSITION_MASK } else { 0 };
        let used = self.cursor.position.checked_sub(head).unwrap_or(size);
        size.saturating_sub(used)
    }

    /// Words free in the present area. Reads the reader's position again if no more than `enough` are known to be free.
    fn free_anew(&mut self, enough: u64) -> u64 {
        if self.free() <= enough {
            self.head = self.words.load(self.base + HEAD_WORD);
        }
        self.free()
    }

    /// Writes a record from its parts. False: there is no room now.
    #[inline]
    pub fn push(&mut self, header: &RingRecordHeader, headers: &[u8], payload: &[u8]) -> bool {
        let need = header.words() as u64;
        if need >= self.sure && !self.reserve(need) {
            return false;
        }
        let index = self.cursor.index(0);
        self.words.write_bytes(RECORD, index + 1, headers);
        self.words.write_bytes(RECORD, index + 1 + words_of(headers.len()), payload);
        self.publish(header.encode(), need);
        if self.cleared < AHEAD {
            self.clear_ahead();
        }
        true
    }

    /// While the reader is at a record: what comes next finds its lines here, and cleared.
    fn clear_ahead(&mut self) {
        let ahead = self.free().min(2 * AHEAD).min(self.cursor.to_end());
        if let Some(count) = ahead.checked_sub(self.cleared) {
            let zeroes = &[0; 16 * AHEAD as usize][..8 * count as usize];
            self.words.write_bytes(RECORD, self.cursor.index(self.cleared), zeroes);
            self.cleared = ahead;
        }
    }

    /// Makes what is at the position visible, and goes on behind it. The word there is free: one always is.
    fn publish(&mut self, word: u64, length: u64) {
        if self.cleared <= length {
            self.words.store(RECORD, self.cursor.index(length), 0);
            self.cleared = length + 1;
        }
        self.words.store(PUBLISH, self.cursor.index(0), word);
        self.cursor.advance(length);
        self.cleared -= length;
        self.sure = self.sure.saturating_sub(length);
    }

    /// Finds room for `need` contiguous words at the position, wrapping and growing where that helps; one word always stays
    /// free.
    #[cold]
    fn reserve(&mut self, need: u64) -> bool {
        if need > MAX_RECORD_WORDS as u64 {
            return false;
        }
        loop {
            let (size, to_end) = (self.cursor.size(), self.cursor.to_end());
            let skipped = if need > to_end { to_end } else { 0 };
            let fits = need < size / 2 && skipped + need < self.free_anew(skipped + need);
            match (fits, skipped) {
                (true, 0) => {
                    self.sure = self.free().min(to_end).min(MAX_RECORD_WORDS as u64).min(size / 2);
                    return true;
                }
                (true, _) => self.publish(u64::from(WRAP), to_end),
                (false, _) => {
                    if self.cursor.is_in_last() || self.free_anew(0) == 0 {
                        return false;
                    }
                    self.words.store(PUBLISH, self.cursor.index(0), u64::from(GROW));
                    self.cursor.grow();
                    // Nobody has written there yet.
                    self.cleared = self.cursor.size();
                    self.sure = 0;
                }
            }
        }
    }
}

/// The other side broke the rules of the ring; the channel is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenRing;

/// Whether there is a record at the place where the next one begins ([`Consumer::place`]). Needs no lock: the thread that
/// is about to sleep must see a record even while another one looks.
pub fn has_record<W: SharedWords>(words: &W, place: usize) -> bool {
    words.load(place) != 0
}

/// The reading end.
pub struct Consumer<W> {
    words: W,
    base: usize,
    cursor: Cursor,
    /// What the writer was told of that.
    published: u64,
}

impl<W: SharedWords> Consumer<W> {
    /// The ring of the direction whose words start at `base`; new and empty.
    pub fn new(words: W, base: usize) -> Self {
        Consumer { words, base, cursor: Cursor::new(base, 0), published: 0 }
    }

    /// The index of the word that the next record begins with.
    pub fn place(&self) -> usize {
        self.cursor.index(0)
    }

    /// Takes the next record: its header word, and its bytes (headers, then payload, each from a word boundary) into the
    /// beginning of `bytes`, which grows where it must. [`publish_head`](Self::publish_head) the writer afterwards.
    pub fn pop(&mut self, bytes: &mut Vec<u8>) -> Result<Option<RingRecordHeader>, BrokenRing> {
        loop {
            let (size, to_end) = (self.cursor.size(), self.cursor.to_end());
            let index = self.place();
            let word = self.words.load(index);
            if word == 0 {
                return Ok(None);
            }
            match word as u8 {
                // No writer skips a whole ring: one that says so would keep the reader here for ever.
                WRAP if to_end == size => return Err(BrokenRing),
                WRAP => self.cursor.advance(to_end),
                GROW if self.cursor.is_in_last() => return Err(BrokenRing),
                GROW => self.cursor.grow(),
                _ => {
                    let header = RingRecordHeader::decode(word).ok_or(BrokenRing)?;
                    let words = header.words();
                    if words > MAX_RECORD_WORDS || words as u64 > to_end {
                        return Err(BrokenRing);
                    }
                    let length = (words - 1) * 8;
                    if bytes.len() < length {
                        bytes.resize(length, 0);
                    }
                    self.words.read_bytes(index + 1, &mut bytes[..length]);
                    // Of this one it is told once it is handed out: until then the writer waits for it.
                    if self.cursor.encoded().wrapping_sub(self.published) >= size / UNPUBLISHED {
                        self.publish_head();
                    }
                    self.cursor.advance(words as u64);
                    return Ok(Some(header));
                }
            }
        }
    }

    /// Whether the writer knows what was taken.
    pub fn is_published(&self) -> bool {
        self.published == self.cursor.encoded()
    }

    /// Tells the writer what was taken, and gives it back the room.
    pub fn publish_head(&mut self) {
        self.published = self.cursor.encoded();
        self.words.store(HEAD, self.base + HEAD_WORD, self.published);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_iommu::ProcessWords;
    use proptest::prelude::*;

    fn pair() -> (Producer<ProcessWords>, Consumer<ProcessWords>, ProcessWords) {
        let words = ProcessWords::new(DIRECTION_WORDS);
        (Producer::new(words.clone(), 0), Consumer::new(words.clone(), 0), words)
    }

    proptest! {
        /// A reader may tell whatever it likes of where it is, short records or not.
        #[test]
        fn nothing_is_written_beside_the_areas_whatever_the_reader_tells(
            steps in proptest::collection::vec((proptest::option::of(any::<u64>()), 0u64..3, 0u64..140_000, 0usize..400), 1..400),
        ) {
            let (mut producer, _, words) = pair();
            for (head, area, position, payload) in steps {
                // Mostly something that could be true.
                let published = head.filter(|head| head % 8 == 0).unwrap_or(area << POSITION_BITS | position);
                if head.is_some() {
                    words.store(HEAD, HEAD_WORD, published);
                }
                let header = RingRecordHeader { kind: RecordKind::Send, header: 8, wants_ack: true, payload: payload as u32 };
                producer.push(&header, &[1; 8], &vec![2; payload]);
                prop_assert!(producer.sure <= producer.cursor.to_end());
                prop_assert!((0..AREAS[0].0).all(|index| index == HEAD_WORD || words.load(index) == 0));
            }
            let (offset, size) = AREAS[AREAS.len() - 1];
            prop_assert!((offset + size as usize..offset + size as usize + 64).all(|index| words.load(index) == 0));
        }

        #[test]
        fn records_come_out_as_they_went_in(
            steps in proptest::collection::vec((any::<bool>(), 0usize..64, 0usize..6000), 1..300),
        ) {
            let (mut producer, mut consumer, _) = pair();
            let mut expected = std::collections::VecDeque::new();
            let mut bytes = Vec::new();
            for (number, (push, header_length, payload_length)) in steps.into_iter().enumerate() {
                if push {
                    let headers = vec![number as u8; header_length];
                    let payload = vec![!(number as u8); payload_length];
                    let header = RingRecordHeader { kind: RecordKind::Bytes, header: header_length as u8, wants_ack: false, payload: payload_length as u32 };
                    if producer.push(&header, &headers, &payload) {
                        expected.push_back((header, headers, payload));
                    } else {
                        let empty = expected.is_empty() && consumer.is_published();
                        prop_assert!(!empty, "an empty ring refused a record");
                    }
                } else {
                    let popped = consumer.pop(&mut bytes).unwrap();
                    match expected.pop_front() {
                        None => prop_assert_eq!(popped, None),
                        Some((header, headers, payload)) => {
                            prop_assert_eq!(popped, Some(header));
                            prop_assert_eq!(&bytes[..headers.len()], &headers[..]);
                            let at = headers.len().div_ceil(8) * 8;
                            prop_assert_eq!(&bytes[at..at + payload.len()], &payload[..]);
                        }
                    }
                }
                if number % 3 == 0 {
                    consumer.publish_head();
                }
                prop_assert_eq!(producer.is_drained(), expected.is_empty() && consumer.is_published());
            }
        }

        #[test]
        fn garbage_breaks_the_ring_and_nothing_else(words in proptest::collection::vec(any::<u64>(), 1..64)) {
            let (_, mut consumer, shared) = pair();
            for (index, word) in words.iter().enumerate() {
                shared.store(RECORD, AREAS[0].0 + index, *word);
            }
            let mut bytes = Vec::new();
            for _ in 0..100 {
                if consumer.pop(&mut bytes).is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn words_that_no_writer_writes_break_the_ring() {
        let (offset, size) = AREAS[0];
        let header = RingRecordHeader { kind: RecordKind::Bytes, header: 12, wants_ack: false, payload: 8 };
        let long = RingRecordHeader { payload: size as u32 * 8, ..header };
        for (place, word) in [
            // A whole ring that is skipped.
            (0, u64::from(WRAP)),
            (0, 5),
            // Beyond the area.
            (0, long.encode()),
            (0, RingRecordHeader { payload: u32::MAX, ..header }.encode()),
            (header.words(), RingRecordHeader { payload: (size as u32 - 4) * 8, ..header }.encode()),
        ] {
            let (mut producer, mut consumer, words) = pair();
            if place > 0 {
                assert!(producer.push(&header, &[1; 12], &[2; 8]));
                assert_eq!(consumer.pop(&mut Vec::new()), Ok(Some(header)));
            }
            words.store(PUBLISH, offset + place, word);
            assert!(has_record(&words, consumer.place()));
            assert_eq!(consumer.pop(&mut Vec::new()), Err(BrokenRing), "{word:#x}");
        }
        // There is no area behind the last one.
        let (_, mut consumer, words) = pair();
        AREAS.iter().for_each(|(offset, _)| words.store(PUBLISH, *offset, u64::from(GROW)));
        assert_eq!(consumer.pop(&mut Vec::new()), Err(BrokenRing));
    }

    /// Who has a record in its hands may stand still before it is handed out: the writer is not told until the next is asked for.
    #[test]
    fn a_record_counts_as_taken_once_it_was_handed_out() {
        let (mut producer, mut consumer, _) = pair();
        let (header, mut bytes) = (
            RingRecordHeader { kind: RecordKind::Bytes, header: 0, wants_ack: false, payload: 480 },
            Vec::new(),
        );
        for _ in 0..200 {
            assert!(producer.push(&header, &[], &[3; 480]));
            assert_eq!(consumer.pop(&mut bytes), Ok(Some(header)));
            assert!(!producer.is_drained());
        }
        consumer.publish_head();
        assert!(producer.is_drained());
    }

    /// Old records are never taken for new ones, whatever their payload looks like.
    #[test]
    fn what_lies_behind_the_last_record_is_no_record() {
        let (mut producer, mut consumer, _) = pair();
        let forged = RingRecordHeader { kind: RecordKind::Bytes, header: 0, wants_ack: true, payload: 0 };
        let mut bytes = Vec::new();
        for length in (1..100).cycle().take(20_000) {
            let payload: Vec<u8> = (0..length).flat_map(|_| forged.encode().to_ne_bytes()).collect();
            let (kind, payload_length) = (RecordKind::Reference, payload.len() as u32);
            let header = RingRecordHeader { kind, header: 12, wants_ack: false, payload: payload_length };
            assert!(producer.push(&header, &[1; 12], &payload));
            assert_eq!(consumer.pop(&mut bytes), Ok(Some(header)));
            assert_eq!(consumer.pop(&mut bytes), Ok(None));
        }
        assert_eq!(producer.cursor.area, 0);
    }

    /// The reader tells where it is before the writer runs out of room, and at the latest when it is asked to.
    #[test]
    fn a_reader_tells_what_it_took() {
        let (mut producer, mut consumer, words) = pair();
        let header = RingRecordHeader { kind: RecordKind::Bytes, header: 12, wants_ack: false, payload: 8 };
        assert!(producer.push(&header, &[1; 12], &[2; 8]));
        assert_eq!(consumer.pop(&mut Vec::new()), Ok(Some(header)));
        assert!(!consumer.is_published() && !producer.is_drained());
        consumer.publish_head();
        assert!(consumer.is_published() && producer.is_drained());
        let (mut published, mut known) = (0, words.load(HEAD_WORD));
        for _ in 0..1000 {
            assert!(producer.push(&header, &[1; 12], &[2; 8]));
            assert_eq!(consumer.pop(&mut Vec::new()), Ok(Some(header)));
            let before = std::mem::replace(&mut known, words.load(HEAD_WORD));
            published += u32::from(before != known);
        }
        assert_eq!(published, 1000 * header.words() as u32 / (AREAS[0].1 / UNPUBLISHED) as u32);
        assert!((512..DIRECTION_WORDS).all(|index| words.load(index) == 0));
    }

    #[test]
    fn a_look_at_any_moment_of_growing_finds_the_ring_whole() {
        // The reader looks after each store of the writer.
        #[derive(Clone)]
        struct Watched(ProcessWords, std::sync::Arc<std::sync::Mutex<Option<Consumer<ProcessWords>>>>);
        impl Watched {
            fn look(&self) {
                if let Some(consumer) = &mut *self.1.lock().unwrap() {
                    consumer.pop(&mut Vec::new()).expect("a whole ring");
                }
            }
        }
        impl SharedWords for Watched {
            fn len(&self) -> usize {
                self.0.len()
            }
            fn load(&self, index: usize) -> u64 {
                self.0.load(index)
            }
            fn store(&self, site: Site, index: usize, value: u64) {
                self.0.store(site, index, value);
                self.look();
            }
            fn compare_exchange(
                &self,
                site: Site,
                index: usize,
                current: u64,
                value: u64,
            ) -> Result<u64, u64> {
                self.0.compare_exchange(site, index, current, value)
            }
            fn fence(&self) {}
            fn write_bytes(&self, site: Site, index: usize, bytes: &[u8]) {
                self.0.write_bytes(site, index, bytes);
                self.look();
            }
            fn read_bytes(&self, index: usize, bytes: &mut [u8]) {
                self.0.read_bytes(index, bytes);
            }
        }
        let words = ProcessWords::new(DIRECTION_WORDS);
        let consumer = Consumer::new(words.clone(), 0);
        let mut producer =
            Producer::new(Watched(words, std::sync::Arc::new(std::sync::Mutex::new(Some(consumer)))), 0);
        for payload in [8, 4096, 8, 60_000, 8, 130_000usize] {
            let header = RingRecordHeader {
                kind: RecordKind::Bytes,
                header: 12,
                wants_ack: false,
                payload: payload as u32,
            };
            assert!(producer.push(&header, &[1; 12], &vec![2; payload]), "{payload}");
        }
    }

    #[test]
    fn a_ring_grows_beyond_its_first_page_only_when_it_must() {
        let (mut producer, mut consumer, words) = pair();
        let header = RingRecordHeader { kind: RecordKind::Bytes, header: 12, wants_ack: false, payload: 64 };
        let mut bytes = Vec::new();
        for _ in 0..10_000 {
            assert!(producer.push(&header, &[1; 12], &[2; 64]));
            consumer.pop(&mut bytes).unwrap().unwrap();
        }
        assert!((512..DIRECTION_WORDS).all(|index| words.load(index) == 0));
        let mut pushed = 0;
        while producer.push(&header, &[1; 12], &[2; 64]) {
            pushed += 1;
        }
        assert!(pushed > 10_000, "{pushed}");
        for _ in 0..pushed {
            consumer.pop(&mut bytes).unwrap().unwrap();
        }
        assert_eq!(consumer.pop(&mut bytes), Ok(None));
    }
}
