//! What members of a hash table put to the mailbox of another one (`message.rs`): keys alone, or entries of a key and its value.

use super::swap::Swap;
use crate::bytes::to_words;
use crate::message::kind::{CHECKPOINT, CLEAR, DELETE, KEYS, SWAP, VALUES};
use crate::message::{Entries, head, parse, push_entry, split, words_of_entry};

pub(super) use crate::message::MAX_WORDS;

/// What a message asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'m> {
    /// To insert keys whose values have no bytes.
    Keys(Keys<'m>),
    /// To insert keys, and the bytes of their values.
    Values(Entries<'m>),
    /// To delete a key.
    Delete(u64),
    /// To make a checkpoint, if this generation of logs is still the present one.
    Checkpoint(u64),
    /// To set a value if the present one is expected, and to answer.
    Swap(Reply, Swap<'m>),
    /// To remove all elements, and to answer.
    Clear(Reply),
}

/// Where the answer to a message goes: the member that asks, and which of its questions it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub rank: u32,
    pub number: u64,
}

/// The answer to a question, as the owner of a volume publishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was done.
    Done = 1,
    /// The value is another one than the expected one.
    Different = 2,
    /// The owner could not, and has logged why.
    Failed = 3,
}

impl Answer {
    pub fn of_word(word: u64) -> Option<Self> {
        [Answer::Done, Answer::Different, Answer::Failed].into_iter().find(|answer| *answer as u64 == word)
    }
}

/// In a swap: there is an expected value, and a new one.
const EXPECTED: u64 = 1;
const NEW: u64 = 2;

/// Keys as they lie in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys<'m>(&'m [u8]);

impl Keys<'_> {
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        to_words(self.0)
    }
}

/// Keys of a message at most.
pub(super) const MAX_KEYS: usize = MAX_WORDS - 1;

/// A message that inserts keys.
pub(super) fn keys(keys: impl ExactSizeIterator<Item = u64>) -> Vec<u64> {
    let mut message = vec![head(KEYS, keys.len())];
    message.extend(keys);
    message
}

/// A message that deletes a key.
pub(super) fn delete(key: u64) -> Vec<u64> {
    vec![head(DELETE, 1), key]
}

/// A message that asks for a checkpoint.
pub(super) fn checkpoint(generation: u64) -> Vec<u64> {
    vec![head(CHECKPOINT, 1), generation]
}

/// A message that asks for a swap.
pub(super) fn swap(reply: Reply, swap: &Swap<'_>) -> Vec<u64> {
    let flags = swap.expected.map_or(0, |_| EXPECTED) | swap.new.map_or(0, |_| NEW);
    let mut message = vec![head(SWAP, reply.rank as usize), reply.number, flags];
    push_entry(&mut message, swap.key, swap.expected.unwrap_or_default());
    push_entry(&mut message, swap.key, swap.new.unwrap_or_default());
    message
}

/// A message that asks for all elements to be removed.
pub(super) fn clear(reply: Reply) -> Vec<u64> {
    vec![head(CLEAR, reply.rank as usize), reply.number]
}

/// A message of one value, which may be longer than others.
pub(super) fn value(key: u64, value: &[u8]) -> Vec<u64> {
    let mut message = Vec::with_capacity(1 + words_of_entry(value.len()));
    message.push(head(VALUES, 1));
    push_entry(&mut message, key, value);
    message
}

/// Messages of values, in the same order: as few as fit.
pub(super) fn values<'v>(elements: impl Iterator<Item = (u64, &'v [u8])>) -> impl Iterator<Item = Vec<u64>> {
    let mut elements = elements.peekable();
    std::iter::from_fn(move || {
        elements.peek()?;
        let (mut message, mut count) = (vec![0], 0);
        let has_space = |message: &Vec<u64>, value: &[u8]| {
            message.len() == 1 || message.len() + words_of_entry(value.len()) <= MAX_WORDS
        };
        while let Some((key, value)) = elements.next_if(|(_, value)| has_space(&message, value)) {
            push_entry(&mut message, key, value);
            count += 1;
        }
        message[0] = head(VALUES, count);
        Some(message)
    })
}

impl<'m> Message<'m> {
    /// Reads a message. `None`: it is none.
    pub fn parse(bytes: &'m [u8]) -> Option<Self> {
        let (kind, count, rest) = parse(bytes)?;
        match kind {
            KEYS => Some(Message::Keys(Keys(rest.get(..count.checked_mul(8)?)?))),
            DELETE => split(rest).map(|(key, _)| Message::Delete(key)),
            CHECKPOINT => split(rest).map(|(generation, _)| Message::Checkpoint(generation)),
            VALUES => Entries::parse(count, rest).map(Message::Values),
            SWAP => parse_swap(count, rest),
            CLEAR => split(rest).map(|(number, _)| Message::Clear(Reply { rank: count as u32, number })),
            _ => None,
        }
    }
}

fn parse_swap(rank: usize, rest: &[u8]) -> Option<Message<'_>> {
    let (number, rest) = split(rest)?;
    let (flags, rest) = split(rest)?;
    let entries = Entries::parse(2, rest)?;
    let mut entries = entries.iter();
    let ((key, expected), (_, new)) = (entries.next()?, entries.next()?);
    let (expected, new) = ((flags & EXPECTED != 0).then_some(expected), (flags & NEW != 0).then_some(new));
    Some(Message::Swap(Reply { rank: rank as u32, number }, Swap { key, expected, new }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    #[test]
    fn messages_parse_as_encoded() {
        let two = keys([1, 2].into_iter());
        let Some(Message::Keys(parsed)) = Message::parse(two.as_bytes()) else { panic!("{two:?}") };
        assert_eq!(parsed.iter().collect::<Vec<_>>(), [1, 2]);
        let one = value(7, b"nine bytes");
        let Some(Message::Values(parsed)) = Message::parse(one.as_bytes()) else { panic!("{one:?}") };
        assert_eq!(parsed.iter().collect::<Vec<_>>(), [(7, &b"nine bytes"[..])]);
        assert_eq!(Message::parse(delete(5).as_bytes()), Some(Message::Delete(5)));
        assert_eq!(Message::parse(checkpoint(6).as_bytes()), Some(Message::Checkpoint(6)));
        assert_eq!(Message::parse(&two.as_bytes()[..23]), None, "it is cut");
        let reply = Reply { rank: 3, number: 1 << 40 };
        assert_eq!(Message::parse(clear(reply).as_bytes()), Some(Message::Clear(reply)));
        for (expected, new) in
            [(None, Some(&b"nine bytes"[..])), (Some(&b""[..]), None), (Some(b"1"), Some(b"2"))]
        {
            let asked = Swap { key: 9, expected, new };
            let message = swap(reply, &asked);
            assert_eq!(Message::parse(message.as_bytes()), Some(Message::Swap(reply, asked)));
            assert_eq!(Message::parse(&message.as_bytes()[..message.len() * 8 - 1]), None, "it is cut");
        }
        let batch = [head(crate::message::kind::BATCH, 1), 6, 0];
        assert_eq!(Message::parse(batch.as_bytes()), None, "it is for another mailbox");
    }

    #[test]
    fn values_lie_in_as_few_messages_as_fit() {
        let (short, long) = (vec![1; 100], vec![2; 8 * MAX_WORDS]);
        let elements = (1..=600).map(|key| (key, if key == 300 { &long[..] } else { &short[..] }));
        let messages: Vec<_> = values(elements.clone()).collect();
        let mut found = Vec::new();
        for message in &messages {
            let Some(Message::Values(entries)) = Message::parse(message.as_bytes()) else { panic!() };
            assert!(message.len() <= MAX_WORDS || entries.iter().count() == 1);
            found.extend(entries.iter());
        }
        assert_eq!(messages.len(), 5, "two before the long one, and two behind it");
        assert!(found.into_iter().eq(elements));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(words in prop::collection::vec(any::<u64>(), 0..40), cut in 0usize..300) {
            let bytes = words.as_bytes();
            let _ = Message::parse(&bytes[..cut.min(bytes.len())]);
        }
    }
}
