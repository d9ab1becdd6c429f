//! Messages that members of an application put to a mailbox, whose log has them: words of 8 bytes, `kind and count`, then what there is of it.
//!
//! Entries are a word and bytes: `word`, `length`, and the bytes, filled up to words. The owner reads what anybody may have written.

use crate::bytes::to_words;

/// Words of a message of entries or keys at most, unless it has one entry alone. Within a host it lies in one record of a
/// log; over udp each packet has a record, and [`Assembler`](crate::assembler::Assembler) puts them together.
pub(crate) const MAX_WORDS: usize = 4001;

/// What a message asks for, of all mailboxes: none takes a message of another one for its own.
pub(crate) mod kind {
    /// A hash table: to insert keys whose values have no bytes.
    pub const KEYS: u32 = 1;
    /// A hash table: to insert keys, and the bytes of their values.
    pub const VALUES: u32 = 2;
    /// A hash table: to delete a key.
    pub const DELETE: u32 = 3;
    /// A hash table: to make a checkpoint.
    pub const CHECKPOINT: u32 = 4;
    /// The puts of a batch.
    pub const BATCH: u32 = 5;
    /// A hash table: to set a value if the present one is expected, and to answer.
    pub const SWAP: u32 = 6;
    /// A hash table: to remove all elements of the volume, and to answer.
    pub const CLEAR: u32 = 7;
}

/// The first word of a message.
pub(crate) fn head(kind: u32, count: usize) -> u64 {
    u64::from(kind) << 32 | count as u64
}

/// The kind and the count of a message, and what follows. `None`: it is none.
pub(crate) fn parse(message: &[u8]) -> Option<(u32, usize, &[u8])> {
    let (head, rest) = split(message)?;
    Some(((head >> 32) as u32, head as u32 as usize, rest))
}

/// The first word, and the bytes behind it.
pub(crate) fn split(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*word), rest))
}

/// Words that an entry takes.
pub(crate) const fn words_of_entry(length: usize) -> usize {
    2 + length.div_ceil(8)
}

/// Appends an entry to a message.
#[inline]
pub(crate) fn push_entry(message: &mut Vec<u64>, word: u64, bytes: &[u8]) {
    message.extend([word, bytes.len() as u64]);
    message.extend(to_words(bytes));
}

/// Entries as they lie in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entries<'m>(&'m [u8]);

impl<'m> Entries<'m> {
    /// So many entries. `None`: they are not all there.
    pub fn parse(count: usize, bytes: &'m [u8]) -> Option<Self> {
        let mut rest = bytes;
        for _ in 0..count {
            rest = next(rest)?.1;
        }
        let taken = bytes.len() - rest.len();
        Some(Entries(&bytes[..taken]))
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry<'m>> + use<'m> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (entry, behind) = next(rest)?;
            rest = behind;
            Some(entry)
        })
    }
}

/// A word, and bytes.
type Entry<'m> = (u64, &'m [u8]);

/// The first entry, and the bytes behind it.
#[inline]
fn next(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (word, rest) = split(bytes)?;
    let (length, rest) = split(rest)?;
    let length = usize::try_from(length).ok()?;
    let filled = length.checked_next_multiple_of(8)?;
    let (entry, behind) = rest.split_at_checked(filled)?;
    Some(((word, &entry[..length]), behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    proptest! {
        #[test]
        fn entries_are_what_was_pushed(entries in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 0..20)) {
            let mut message = vec![head(7, entries.len())];
            entries.iter().for_each(|(word, bytes)| push_entry(&mut message, *word, bytes));
            let words: usize = entries.iter().map(|(_, bytes)| words_of_entry(bytes.len())).sum();
            prop_assert_eq!(message.len(), 1 + words);
            let (kind, count, rest) = parse(message.as_bytes()).unwrap();
            prop_assert_eq!((kind, count), (7, entries.len()));
            let parsed: Vec<_> = Entries::parse(count, rest).unwrap().iter().map(|(word, bytes)| (word, bytes.to_vec())).collect();
            prop_assert_eq!(&parsed, &entries);
            prop_assert!(rest.is_empty() || Entries::parse(count, &rest[..rest.len() - 1]).is_none());
        }

        #[test]
        fn any_bytes_are_entries_or_none(words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..40], 0..40), count in 0usize..50) {
            if let Some(entries) = Entries::parse(count, words.as_bytes()) {
                prop_assert_eq!(entries.iter().count(), count);
            }
        }
    }
}
