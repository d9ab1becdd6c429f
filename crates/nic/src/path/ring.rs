//! Rings: how packets travel between two processes of one host.
//!
//! One ring a direction, in the words of a channel. A ring begins in the rest of its first page and moves to
//! larger areas when it fills up, so that ten thousand quiet peers cost a page each. Records are whole words:
//! one header word, the packet's headers, then the payload or the pieces of it that the receiver pulls itself.
//! The other side may die or lie at any moment: whatever is read is checked, and nothing is read twice.

use pagewire_iommu::words::{SharedWords, Site};
use pagewire_transport::RemoteAddress;

/// Writing a record's words.
pub const RECORD: Site = Site("ring.record");
/// Making it visible.
pub const TAIL: Site = Site("ring.tail");
/// Giving its room back.
pub const HEAD: Site = Site("ring.head");
/// Telling what became of a record, and taking notice of it.
pub const VERDICT: Site = Site("ring.verdict");

/// Words of one direction of a channel.
pub const DIRECTION_WORDS: usize = 1 << 19;
/// Slots for hazards of the process that writes this direction.
pub const HAZARDS: usize = 16;
/// How many.
pub const HAZARD_SLOTS: usize = 16;
/// Slots in which the reader tells what became of records, in the writer's direction.
pub const VERDICTS: usize = 32;
/// How many.
pub const VERDICT_SLOTS: usize = 32;

const TAIL_WORD: usize = 0;
const HEAD_WORD: usize = 8;
/// Offset and size of each area, in words.
const AREAS: [(usize, u64); 3] = [(64, 448), (512, 8192), (512 + 8192, 131_072)];
const POSITION_BITS: u32 = 56;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// Largest record in words.
pub const MAX_RECORD_WORDS: usize = 16_384;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Headers and payload bytes.
    Bytes,
    /// Headers and pieces of the sender's memory ([`emit_reference`]).
    Reference,
    /// Global routing header, headers and payload bytes.
    Datagram,
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

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Bytes => 1,
            Kind::Reference => 2,
            Kind::Datagram => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Kind::Bytes, Kind::Reference, Kind::Datagram].into_iter().find(|kind| kind.code() == code)
    }
}

/// A record's header word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    pub kind: Kind,
    /// Bytes of packet headers.
    pub header: u8,
    /// The slot in which the writer waits for the verdict on the record.
    pub slot: Option<u8>,
    /// Bytes behind them.
    pub payload: u32,
}

impl RecordHeader {
    /// Words of the whole record.
    pub fn words(&self) -> usize {
        1 + usize::from(self.header).div_ceil(8) + (self.payload as usize).div_ceil(8)
    }

    fn encode(&self) -> u64 {
        let slot = self.slot.map_or(0, |slot| slot + 1);
        u64::from(self.kind.code())
            | u64::from(self.header) << 8
            | u64::from(slot) << 16
            | u64::from(self.payload) << 32
    }

    fn decode(word: u64) -> Option<Self> {
        Some(RecordHeader {
            kind: Kind::from_code(word as u8)?,
            header: (word >> 8) as u8,
            slot: ((word >> 16) as u8).checked_sub(1).filter(|&slot| usize::from(slot) < VERDICT_SLOTS),
            payload: (word >> 32) as u32,
        })
    }
}

fn at(area: usize, position: u64) -> u64 {
    (area as u64) << POSITION_BITS | position
}

/// The writing end.
pub struct Producer<W> {
    words: W,
    base: usize,
    area: usize,
    position: u64,
}

impl<W: SharedWords> Producer<W> {
    /// The ring of the direction whose words start at `base`; new and empty.
    pub fn new(words: W, base: usize) -> Self {
        Producer { words, base, area: 0, position: 0 }
    }

    /// Records that the reader has not taken yet?
    pub fn is_drained(&self) -> bool {
        self.words.load(self.base + HEAD_WORD) == at(self.area, self.position)
    }

    /// Words free in the present area. What the reader reports is not trusted beyond its own room.
    fn free(&self) -> u64 {
        let head = self.words.load(self.base + HEAD_WORD);
        let size = AREAS[self.area].1;
        let head = if (head >> POSITION_BITS) as usize == self.area { head & POSITION_MASK } else { 0 };
        let used = self.position.checked_sub(head).unwrap_or(size);
        size.saturating_sub(used)
    }

    /// Writes a record from its parts. False: there is no room now.
    pub fn push(&mut self, header: &RecordHeader, headers: &[u8], payload: &[u8]) -> bool {
        let need = header.words() as u64;
        if need > MAX_RECORD_WORDS as u64 {
            return false;
        }
        let Some(index) = self.reserve(need) else { return false };
        let payload_at = index + 1 + headers.len().div_ceil(8);
        self.words.write_bytes(RECORD, index + 1, headers);
        self.words.write_bytes(RECORD, payload_at, payload);
        self.words.store(RECORD, index, header.encode());
        self.position += need;
        self.words.store(TAIL, self.base + TAIL_WORD, at(self.area, self.position));
        true
    }

    /// Finds room for `need` contiguous words, wrapping and growing where that helps; one word is always kept for a marker.
    fn reserve(&mut self, need: u64) -> Option<usize> {
        loop {
            let (offset, size) = AREAS[self.area];
            let free = self.free();
            let place = self.position % size;
            let to_end = size - place;
            if need < size / 2 {
                if need <= to_end && need < free {
                    return Some(self.base + offset + place as usize);
                }
                if need > to_end && to_end + need < free {
                    self.marker(WRAP, offset + place as usize, to_end);
                    continue;
                }
            }
            if self.area + 1 == AREAS.len() || free < 1 {
                return None;
            }
            // Becomes visible with the record that follows it: the reader never finds an area that holds nothing.
            self.words.store(RECORD, self.base + offset + place as usize, u64::from(GROW));
            (self.area, self.position) = (self.area + 1, 0);
        }
    }

    fn marker(&mut self, code: u8, offset: usize, skip: u64) {
        self.words.store(RECORD, self.base + offset, u64::from(code));
        self.position += skip;
    }
}

/// The other side broke the rules of the ring; the channel is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenRing;

/// Whether the ring whose words start at `base` holds something that was not taken. Needs no lock: the thread that
/// is about to sleep must see a record even while another one looks.
pub fn has_record<W: SharedWords>(words: &W, base: usize) -> bool {
    words.load(base + TAIL_WORD) != words.load(base + HEAD_WORD)
}

/// The reading end.
pub struct Consumer<W> {
    words: W,
    base: usize,
    area: usize,
    position: u64,
    /// Where the writer left the area for a larger one at the latest, once it has.
    left: Option<u64>,
}

impl<W: SharedWords> Consumer<W> {
    /// The ring of the direction whose words start at `base`; new and empty.
    pub fn new(words: W, base: usize) -> Self {
        Consumer { words, base, area: 0, position: 0, left: None }
    }

    /// Takes the next record: its header word, and its bytes (headers, then payload, each from a word boundary) into the
    /// beginning of `bytes`, which grows where it must.
    pub fn pop(&mut self, bytes: &mut Vec<u8>) -> Result<Option<RecordHeader>, BrokenRing> {
        loop {
            let tail = self.words.load(self.base + TAIL_WORD);
            let tail_area = (tail >> POSITION_BITS) as usize;
            if tail_area == self.area && tail & POSITION_MASK == self.position {
                // This side alone writes it. Were it another, `has_record` would go on telling of records.
                let head = self.words.load(self.base + HEAD_WORD);
                return if head == at(self.area, self.position) { Ok(None) } else { Err(BrokenRing) };
            }
            if tail_area < self.area || tail_area >= AREAS.len() {
                return Err(BrokenRing);
            }
            let (offset, size) = AREAS[self.area];
            // No writer is further ahead than fits: one that says so would keep the reader here for ever.
            let end = match tail_area == self.area {
                true => tail & POSITION_MASK,
                false => *self.left.get_or_insert(self.position + size),
            };
            let ahead = end.wrapping_sub(self.position);
            if ahead == 0 || ahead > size {
                return Err(BrokenRing);
            }
            let place = self.position % size;
            let word = self.words.load(self.base + offset + place as usize);
            match word as u8 {
                // No writer skips a whole ring: one that says so would keep the reader here for ever.
                WRAP if place == 0 => return Err(BrokenRing),
                WRAP => self.position += size - place,
                GROW => {
                    if self.area + 1 >= AREAS.len() {
                        return Err(BrokenRing);
                    }
                    (self.area, self.position, self.left) = (self.area + 1, 0, None);
                }
                _ => {
                    let header = RecordHeader::decode(word).ok_or(BrokenRing)?;
                    let words = header.words();
                    if words > MAX_RECORD_WORDS || words as u64 > ahead.min(size - place) {
                        return Err(BrokenRing);
                    }
                    let length = (words - 1) * 8;
                    if bytes.len() < length {
                        bytes.resize(length, 0);
                    }
                    self.words.read_bytes(self.base + offset + place as usize + 1, &mut bytes[..length]);
                    self.position += words as u64;
                    self.publish();
                    return Ok(Some(header));
                }
            }
            self.publish();
        }
    }

    fn publish(&self) {
        self.words.store(HEAD, self.base + HEAD_WORD, at(self.area, self.position));
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
                    let header = RecordHeader { kind: Kind::Bytes, header: header_length as u8, slot: None, payload: payload_length as u32 };
                    if producer.push(&header, &headers, &payload) {
                        expected.push_back((header, headers, payload));
                    } else {
                        prop_assert!(!expected.is_empty(), "an empty ring refused a record");
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
                prop_assert_eq!(producer.is_drained(), expected.is_empty());
            }
        }

        #[test]
        fn garbage_breaks_the_ring_and_nothing_else(words in proptest::collection::vec(any::<u64>(), 1..64), tail: u64) {
            let (_, mut consumer, shared) = pair();
            for (index, word) in words.iter().enumerate() {
                shared.store(RECORD, AREAS[0].0 + index, *word);
            }
            shared.store(TAIL, TAIL_WORD, tail);
            let mut bytes = Vec::new();
            for _ in 0..100 {
                if consumer.pop(&mut bytes).is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_ring_of_nothing_but_wraps_is_broken() {
        let (_, mut consumer, shared) = pair();
        shared.store(RECORD, AREAS[0].0, u64::from(WRAP));
        shared.store(TAIL, TAIL_WORD, at(0, POSITION_MASK));
        assert_eq!(consumer.pop(&mut Vec::new()), Err(BrokenRing));
    }

    /// Takes records until there is none, or the ring is broken; a ring that never ends is neither.
    fn drain(consumer: &mut Consumer<ProcessWords>) -> Option<Result<(), BrokenRing>> {
        let size = AREAS[0].1;
        (0..2 * size).find_map(|_| match consumer.pop(&mut Vec::new()) {
            Ok(Some(_)) => None,
            Ok(None) => Some(Ok(())),
            Err(broken) => Some(Err(broken)),
        })
    }

    #[test]
    fn a_writer_that_is_further_ahead_than_a_ring_is_long_breaks_it() {
        let header = RecordHeader { kind: Kind::Bytes, header: 12, slot: None, payload: 8 };
        let (offset, size) = AREAS[0];
        let step = header.words();
        assert_eq!(size as usize % step, 0);
        for (tail, end) in [
            (at(0, size), Some(Ok(()))),
            (at(0, size + step as u64), Some(Err(BrokenRing))),
            (at(0, POSITION_MASK), Some(Err(BrokenRing))),
            // A record that goes beyond what is said to be written.
            (at(0, size - 1), Some(Err(BrokenRing))),
            // Grown, without a word of it in the ring that was left.
            (at(1, 0), Some(Err(BrokenRing))),
        ] {
            let (_, mut consumer, words) = pair();
            for place in (0..size as usize).step_by(step) {
                words.store(RECORD, offset + place, header.encode());
            }
            words.store(TAIL, TAIL_WORD, tail);
            assert_eq!(drain(&mut consumer), end, "tail {tail:#x}");
        }
    }

    /// A thread that sleeps only while `has_record` is false would never sleep again.
    #[test]
    fn a_reading_position_that_the_writer_changed_breaks_the_ring() {
        let (mut producer, mut consumer, words) = pair();
        let header = RecordHeader { kind: Kind::Bytes, header: 12, slot: None, payload: 8 };
        let mut bytes = Vec::new();
        assert!(producer.push(&header, &[1; 12], &[2; 8]));
        assert_eq!(consumer.pop(&mut bytes), Ok(Some(header)));
        assert_eq!(consumer.pop(&mut bytes), Ok(None));
        words.store(HEAD, HEAD_WORD, 0);
        assert!(has_record(&words, 0));
        assert_eq!(consumer.pop(&mut bytes), Err(BrokenRing));
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
            fn fetch_or(&self, site: Site, index: usize, bits: u64) -> u64 {
                self.0.fetch_or(site, index, bits)
            }
            fn swap(&self, site: Site, index: usize, value: u64) -> u64 {
                self.0.swap(site, index, value)
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
            let header = RecordHeader { kind: Kind::Bytes, header: 12, slot: None, payload: payload as u32 };
            assert!(producer.push(&header, &[1; 12], &vec![2; payload]), "{payload}");
        }
    }

    #[test]
    fn a_ring_grows_beyond_its_first_page_only_when_it_must() {
        let (mut producer, mut consumer, words) = pair();
        let header = RecordHeader { kind: Kind::Bytes, header: 12, slot: None, payload: 64 };
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
