//! What a member of a hash table gives the others, so that they find its volume.

use super::durable::OwnerTicket;
use crate::bytes::to_words;
use pagewire::{Result, Token};

/// Where a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ticket {
    pub mailbox: Token,
    pub pointer: Token,
    /// `None`: the volume ends with its owner.
    pub owner: Option<OwnerTicket>,
}

impl Ticket {
    pub const LEN: usize = 2 * Token::LEN + 8 * OwnerTicket::WORDS;

    pub fn to_bytes(&self) -> Vec<u8> {
        let owner = self.owner.map_or([0; OwnerTicket::WORDS], OwnerTicket::to_words);
        let mut bytes = [self.mailbox.to_bytes(), self.pointer.to_bytes()].concat();
        bytes.extend(owner.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Ticket> {
        if bytes.len() != Ticket::LEN {
            let why = format!(
                "it has {} bytes, and not {}: give the ticket that its member has made, whole",
                bytes.len(),
                Ticket::LEN
            );
            return Err(pagewire::Error::Argument { what: "a ticket of a hash table", why });
        }
        let (tokens, owner) = bytes.split_at(2 * Token::LEN);
        let mut words = [0; OwnerTicket::WORDS];
        words.iter_mut().zip(to_words(owner)).for_each(|(word, value)| *word = value);
        Ok(Ticket {
            mailbox: Token::from_bytes(&tokens[..Token::LEN])?,
            pointer: Token::from_bytes(&tokens[Token::LEN..])?,
            owner: OwnerTicket::of_words(words),
        })
    }
}
