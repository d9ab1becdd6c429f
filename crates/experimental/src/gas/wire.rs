//! Messages as bytes: five words, and a page.

use super::words::{Message, Rank};
use pagewire_active::{USERFAULT_PAGE_BYTES, USERFAULT_PAGE_WORDS};

/// The content of a page.
pub type Content = Box<[u64; USERFAULT_PAGE_WORDS]>;

/// Who sends a message, and how many it has sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    pub from: Rank,
    pub number: u64,
}

const WORDS: usize = 5;

pub fn encode(envelope: Envelope, message: &Message<Content>) -> Vec<u8> {
    let (kind, page, flag, content) = match message {
        Message::Want { page, for_stores } => (1, page, *for_stores, None),
        Message::Grant { page, for_stores, content } => (2, page, *for_stores, content.as_ref()),
        Message::Recall { page, keep } => (3, page, *keep, None),
        Message::Returned { page, content } => (4, page, false, content.as_ref()),
    };
    let words: [u64; WORDS] =
        [kind, u64::from(*page), u64::from(flag), u64::from(envelope.from), envelope.number];
    let mut bytes = Vec::with_capacity(8 * WORDS + content.map_or(0, |_| USERFAULT_PAGE_BYTES));
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    if let Some(content) = content {
        bytes.extend(content.iter().flat_map(|word| word.to_ne_bytes()));
    }
    bytes
}

/// `None`: it is none.
pub fn decode(bytes: &[u8]) -> Option<(Envelope, Message<Content>)> {
    let (head, rest) = bytes.split_at_checked(8 * WORDS)?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let mut words = head.chunks_exact(8).map(word);
    let mut next = || words.next();
    let (kind, page, flag) = (next()?, next()?.try_into().ok()?, next()? != 0);
    let envelope = Envelope { from: next()?.try_into().ok()?, number: next()? };
    let content = match rest.len() {
        0 => None,
        USERFAULT_PAGE_BYTES => {
            let mut content: Content = Box::new([0; USERFAULT_PAGE_WORDS]);
            content.iter_mut().zip(rest.chunks_exact(8)).for_each(|(to, from)| *to = word(from));
            Some(content)
        }
        _ => return None,
    };
    let message = match (kind, content) {
        (1, None) => Message::Want { page, for_stores: flag },
        (2, content) => Message::Grant { page, for_stores: flag, content },
        (3, None) => Message::Recall { page, keep: flag },
        (4, content) => Message::Returned { page, content },
        _ => return None,
    };
    Some((envelope, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let envelope = Envelope { from: 3, number: 8 };
        let content: Content = Box::new(std::array::from_fn(|index| index as u64 * 3));
        let all = [
            Message::Want { page: 5, for_stores: true },
            Message::Grant { page: 5, for_stores: false, content: None },
            Message::Grant { page: 5, for_stores: true, content: Some(content.clone()) },
            Message::Recall { page: 5, keep: true },
            Message::Returned { page: 5, content: Some(content) },
        ];
        for message in all {
            let bytes = encode(envelope, &message);
            assert_eq!(decode(&bytes), Some((envelope, message)));
            assert!([1, 20, 39].iter().all(|length| decode(&bytes[..*length]).is_none()));
        }
        assert_eq!(decode(&[9; 40]), None);
    }
}
