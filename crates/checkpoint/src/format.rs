//! The format of a checkpoint file: segments, one for each checkpoint, one behind the other.
//!
//! ```text
//! a page    header: identity of the file, number, kind, counts, lengths of the regions, checksum of the page
//! n pages   data
//! n entries index: region, page, checksum of the data
//!           note of the program
//!           zeros, up to 64 bytes before the end of a page
//! 64 bytes  commit record: checksums of the header, and of the index and the note
//! ```
//!
//! The header is written last. The file has its first 8 bytes before: what was begun is told from somebody's zeros. Words are little-endian.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a page of a region, and of the file.
pub const PAGE: usize = 4096;
/// Regions of a checkpoint.
pub const REGIONS: usize = 256;
/// Bytes of all regions of a checkpoint, which are 16 TiB.
pub const BYTES: u64 = 1 << 44;
/// Numbers of checkpoints are less.
pub const NUMBERS: u64 = 1 << 62;
/// Bytes of a program's note.
pub const NOTE: usize = 16 << 20;
/// The version of the format.
pub const VERSION: u32 = 1;

/// The first bytes of a file. They are there before any checkpoint is.
pub const MAGIC: [u8; 8] = *b"PWCHECK\n";
const COMMIT_MAGIC: [u8; 8] = *b"PWCOMMIT";

/// What a segment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// All pages. Those that are not there are zeros.
    Full,
    /// What has changed since the checkpoint before.
    Incremental,
}

impl SegmentKind {
    /// In a word, as tables and JSON have it.
    pub const fn name(self) -> &'static str {
        match self {
            SegmentKind::Full => "full",
            SegmentKind::Incremental => "incremental",
        }
    }
}

/// A header, as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Random, the same in all segments of a file: memory that holds a checkpoint file is not mistaken for one.
    pub file: u64,
    pub number: u64,
    pub kind: SegmentKind,
    pub pages: u64,
    pub note: u32,
    /// Seconds since 1970.
    pub time: u64,
    /// Bytes of each region.
    pub regions: Vec<u64>,
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHeader {
    /// They begin otherwise.
    Magic,
    /// Their version is another one.
    Version,
    /// The checksum does not fit, or the words make no sense.
    Damaged,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    /// Of the whole page, with zeros here.
    checksum: U32,
    file: U64,
    number: U64,
    pages: U64,
    time: U64,
    kind: U32,
    note: U32,
    region_count: U32,
    reserved: U32,
    regions: [U64; REGIONS],
}

const CHECKSUM_AT: usize = 12;

impl SegmentHeader {
    /// Its page.
    pub fn to_page(&self) -> [u8; PAGE] {
        let mut regions = [U64::ZERO; REGIONS];
        regions.iter_mut().zip(&self.regions).for_each(|(raw, bytes)| raw.set(*bytes));
        let raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: U32::ZERO,
            file: self.file.into(),
            number: self.number.into(),
            pages: self.pages.into(),
            time: self.time.into(),
            kind: U32::new(if self.kind == SegmentKind::Full { 0 } else { 1 }),
            note: self.note.into(),
            region_count: U32::new(self.regions.len().min(REGIONS) as u32),
            reserved: U32::ZERO,
            regions,
        };
        let mut page = [0; PAGE];
        page[..size_of::<RawHeader>()].copy_from_slice(raw.as_bytes());
        let checksum = crc32fast::hash(&page);
        page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    /// The header of a page.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(page: &[u8; PAGE]) -> Result<SegmentHeader, NoHeader> {
        let (raw, _) = RawHeader::read_from_prefix(page).map_err(|_| NoHeader::Damaged)?;
        if raw.magic != MAGIC {
            return Err(NoHeader::Magic);
        }
        let mut clean = *page;
        clean[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        if crc32fast::hash(&clean) != raw.checksum.get() {
            return Err(NoHeader::Damaged);
        }
        if raw.version != VERSION {
            return Err(NoHeader::Version);
        }
        let count = raw.region_count.get() as usize;
        let kind = match raw.kind.get() {
            0 => SegmentKind::Full,
            1 => SegmentKind::Incremental,
            _ => return Err(NoHeader::Damaged),
        };
        let regions: Vec<u64> = raw.regions.iter().take(count).map(|bytes| bytes.get()).collect();
        let most_pages =
            regions.iter().fold(0u64, |sum, bytes| sum.saturating_add(bytes.div_ceil(PAGE as u64)));
        let all = regions.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        if count > REGIONS || raw.pages.get() > most_pages || raw.note.get() as usize > NOTE || all > BYTES {
            return Err(NoHeader::Damaged);
        }
        if !(1..NUMBERS).contains(&raw.number.get()) {
            return Err(NoHeader::Damaged);
        }
        Ok(SegmentHeader {
            file: raw.file.get(),
            number: raw.number.get(),
            kind,
            pages: raw.pages.get(),
            note: raw.note.get(),
            time: raw.time.get(),
            regions,
        })
    }

    /// The checksum that its page has.
    pub fn checksum(page: &[u8; PAGE]) -> u32 {
        page[CHECKSUM_AT..CHECKSUM_AT + 4].try_into().map_or(0, u32::from_le_bytes)
    }

    /// Bytes behind the data: index, note, zeros and commit record. `None`: more than there can be.
    pub fn tail_length(&self) -> Option<u64> {
        let index = self.pages.checked_mul(size_of::<IndexEntry>() as u64)?;
        let used = index.checked_add(u64::from(self.note))?.checked_add(size_of::<SegmentCommit>() as u64)?;
        used.checked_next_multiple_of(PAGE as u64)
    }

    /// Bytes of the segment.
    pub fn segment_length(&self) -> Option<u64> {
        let data = self.pages.checked_add(1)?.checked_mul(PAGE as u64)?;
        data.checked_add(self.tail_length()?)
    }
}

/// Which page a page of the data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IndexEntry {
    pub region: U32,
    pub checksum: U32,
    pub page: U64,
}

/// The last bytes of a segment, which say that it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SegmentCommit {
    magic: [u8; 8],
    number: U64,
    header: U32,
    tail: U32,
    reserved: [U64; 4],
    reserved_word: U32,
    checksum: U32,
}

impl SegmentCommit {
    /// For a header with this checksum, and a tail with this one (without the commit record).
    pub fn new(number: u64, header: u32, tail: u32) -> SegmentCommit {
        let mut commit = SegmentCommit {
            magic: COMMIT_MAGIC,
            number: number.into(),
            header: header.into(),
            tail: tail.into(),
            reserved: [U64::ZERO; 4],
            reserved_word: U32::ZERO,
            checksum: U32::ZERO,
        };
        commit.checksum = crc32fast::hash(commit.as_bytes()).into();
        commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = SegmentHeader> {
        let regions = prop::collection::vec(1u64..1 << 36, 1..REGIONS);
        (any::<[u64; 2]>(), 1..NUMBERS, any::<bool>(), regions, 0..NOTE as u32).prop_map(
            |([file, time], number, is_full, regions, note)| {
                let pages = regions.iter().map(|bytes| bytes.div_ceil(PAGE as u64)).sum();
                let kind = if is_full { SegmentKind::Full } else { SegmentKind::Incremental };
                SegmentHeader { file, number, kind, pages, note, time, regions }
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(header in header(), at in 0..PAGE, bit in 0..8) {
            let mut page = header.to_page();
            prop_assert_eq!(SegmentHeader::parse(&page), Ok(header));
            page[at] ^= 1u8 << bit;
            prop_assert!(SegmentHeader::parse(&page).is_err(), "a changed bit is seen");
        }
    }

    #[test]
    fn records_have_their_sizes() {
        assert!(size_of::<RawHeader>() <= PAGE);
        assert_eq!((size_of::<IndexEntry>(), size_of::<SegmentCommit>()), (16, 64));
    }
}
