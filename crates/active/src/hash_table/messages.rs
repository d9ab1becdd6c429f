//! What members of a hash table put to the mailbox of another one, whose log has it: words of 8 bytes, `kind and count`, then the entries.

/// What a message asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'m> {
    /// To insert keys whose values have no bytes.
    Keys(Keys<'m>),
    /// To insert a key, and the bytes of its value.
    Value(u64, &'m [u8]),
    /// To delete a key.
    Delete(u64),
    /// To make a checkpoint, if this generation of logs is still the present one.
    Checkpoint(u64),
}

/// Keys as they lie in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys<'m>(&'m [u8]);

impl Keys<'_> {
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.chunks_exact(8).map(|bytes| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        })
    }
}

const KEYS: u32 = 1;
const VALUE: u32 = 2;
const DELETE: u32 = 3;
const CHECKPOINT: u32 = 4;

/// Keys of a message at most. It lies in one record of a log on each path.
pub(super) const MAX_KEYS: usize = 4000;

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

/// A message of one value.
pub(super) fn value(key: u64, value: &[u8]) -> Vec<u64> {
    let mut message = Vec::with_capacity(2 + value.len().div_ceil(8));
    message.extend([head(VALUE, value.len()), key]);
    message.extend(value.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }));
    message
}

fn head(kind: u32, count: usize) -> u64 {
    u64::from(kind) << 32 | count as u64
}

impl<'m> Message<'m> {
    /// Reads a message. `None`: it is none.
    pub fn parse(bytes: &'m [u8]) -> Option<Self> {
        let (head, rest) = split(bytes)?;
        let count = head as u32 as usize;
        match (head >> 32) as u32 {
            KEYS => Some(Message::Keys(Keys(rest.get(..count.checked_mul(8)?)?))),
            DELETE => split(rest).map(|(key, _)| Message::Delete(key)),
            CHECKPOINT => split(rest).map(|(generation, _)| Message::Checkpoint(generation)),
            VALUE => {
                let (key, value) = split(rest)?;
                Some(Message::Value(key, value.get(..count)?))
            }
            _ => None,
        }
    }
}

fn split(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    #[test]
    fn messages_say_what_was_asked() {
        let two = keys([1, 2].into_iter());
        let Some(Message::Keys(parsed)) = Message::parse(two.as_bytes()) else { panic!("{two:?}") };
        assert_eq!(parsed.iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(
            Message::parse(value(7, b"nine bytes").as_bytes()),
            Some(Message::Value(7, b"nine bytes"))
        );
        assert_eq!(Message::parse(delete(5).as_bytes()), Some(Message::Delete(5)));
        assert_eq!(Message::parse(checkpoint(6).as_bytes()), Some(Message::Checkpoint(6)));
        assert_eq!(Message::parse(&two.as_bytes()[..23]), None, "it is cut");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(words in prop::collection::vec(any::<u64>(), 0..40), cut in 0usize..300) {
            let bytes = words.as_bytes();
            let _ = Message::parse(&bytes[..cut.min(bytes.len())]);
        }
    }
}
