//! Batches: many small puts to one owner in one message.
//!
//! The owner [redirects](Batches::redirect) the puts to a region to a handler, which sees each put of a batch as it sees a single one, in the order in
//! which a caller made them. Or it has them [reach memory](Batches::to_memory), by its own thread.
//!
//! ```
//! # fn main() -> pagewire::Result<()> {
//! use pagewire::{Node, Rights};
//! use pagewire_active::{Batch, Batches};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! let node = Arc::new(Node::alone()?);
//! let table = Arc::new(node.zeroed::<u64>(512)?);
//! let sum = Arc::new(AtomicU64::new(0));
//! let adds = sum.clone();
//! let served = Batches::redirect(&node, &table, move |put| {
//!     adds.fetch_add(put.value::<u64>().unwrap_or(0), Ordering::Relaxed);
//! })?;
//!
//! // In any process that has the address:
//! let mut batch = Batch::open(&node, &served.address())?;
//! for index in 0..100u64 {
//!     batch.put_value(8 * index, index)?;
//! }
//! batch.flush_handled()?; // all puts of the batch are handled
//! assert_eq!((sum.load(Ordering::Relaxed), served.counts().messages), (4950, 1));
//!
//! // A plain put goes to the same handler.
//! let remote = node.open(&table.export(Rights::WRITE)?)?;
//! remote.put_value(0, 50u64).wait()?;
//! remote.flush_handled(None).wait()?;
//! assert_eq!(sum.load(Ordering::Relaxed), 5000);
//! # Ok(())
//! # }
//! ```
//!
//! # What a batch is as good as
//! - Its puts are handled in their order, behind what the same caller sent to the owner before.
//! - Between two of them other callers' puts may come only where the batch needed several messages.
//! - A caller that dies leaves each message whole, or not there.
//! - An owner that does not read stops the caller when its space in the log is used up. Nothing is dropped, and no other caller waits.
//!
//! # What survives
//! What was handled is where the handler has put it. What lies in the log ends with the owner.

mod sender;
mod server;

pub use sender::Batch;
pub use server::{BatchCounts, BatchedPut, Batches};

use crate::message::{MAX_WORDS, words_of_entry};
use pagewire::{Error, Result, Token};

/// Bytes of a put of a batch at most, with which it fills a message. A longer one is an ordinary put.
pub const MAX_BATCHED: usize = 8 * (MAX_WORDS - 1 - words_of_entry(0));

/// Bytes of an address of batches.
pub const BATCH_ADDRESS_LEN: usize = Address::LEN;

/// By which others put in batches.
struct Address {
    mailbox: Token,
    /// Bytes of the memory.
    length: u64,
    /// The user domain of the log.
    domain: u16,
}

impl Address {
    const LEN: usize = Token::LEN + 10;

    fn to_bytes(&self) -> Vec<u8> {
        let Address { mailbox, length, domain } = self;
        [&mailbox.to_bytes()[..], &length.to_le_bytes(), &domain.to_le_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Address> {
        let whole = bytes.split_at_checked(Token::LEN).and_then(|(token, rest)| {
            let (length, rest) = rest.split_first_chunk()?;
            Some((token, u64::from_le_bytes(*length), u16::from_le_bytes(*rest.first_chunk()?)))
        });
        let Some((token, length, domain)) = whole.filter(|_| bytes.len() == Address::LEN) else {
            let why = format!("it has {} bytes, and these are {}: send it whole", Address::LEN, bytes.len());
            return Err(Error::Argument { what: "an address of batches", why });
        };
        Ok(Address { mailbox: Token::from_bytes(token)?, length, domain })
    }
}
