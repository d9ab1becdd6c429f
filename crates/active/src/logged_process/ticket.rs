//! What one process gives another one, so that it may put to it and get from it.

use super::error::LoggedProcessError;
use pagewire::Token;

/// What a process needs to access another one with logs: plain bytes, to be sent by any means. It is for one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Who gives it.
    pub(super) from: u32,
    /// For whom it is.
    pub(super) to: u32,
    /// Memory, by two keys: gets use them in turn, so that one that the network repeats is told from the next one.
    pub(super) memory: [Token; 2],
    /// The logs for whom it is.
    pub(super) logs: Token,
    /// Letters to the handler.
    pub(super) letters: Token,
}

impl Ticket {
    /// Bytes of a ticket.
    pub const LEN: usize = 8 + 4 * Token::LEN;

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [self.from.to_le_bytes(), self.to.to_le_bytes()].concat();
        for token in [&self.memory[0], &self.memory[1], &self.logs, &self.letters] {
            bytes.extend_from_slice(&token.to_bytes());
        }
        bytes
    }

    /// The ticket of bytes.
    ///
    /// # Errors
    /// `Ticket`: they are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Ticket, LoggedProcessError> {
        let none = |why| LoggedProcessError::Ticket { rank: 0, why };
        if bytes.len() != Ticket::LEN {
            return Err(none("it has another length"));
        }
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let token = |index: usize| {
            let at = 8 + index * Token::LEN;
            Token::from_bytes(&bytes[at..at + Token::LEN]).map_err(|_| none("a token of it makes no sense"))
        };
        Ok(Ticket {
            from: word(0),
            to: word(4),
            memory: [token(0)?, token(1)?],
            logs: token(2)?,
            letters: token(3)?,
        })
    }
}
