//! Distributed transactions on memory that reacts (PAPERS AA-14). Experimental.
//!
//! Cells lie in stores, one or more a process. A [`Client`] gets and puts them inside a transaction: plain gets and puts, which the store's log
//! shows it. The store holds each access until the transaction ends, finds conflicts, and notifies the client whose transaction has lost.
//!
//! ```
//! use pagewire_experimental::transactions::{Client, Store, StoreOptions, TransactionError};
//! use std::sync::Arc;
//!
//! fn main() -> Result<(), TransactionError> {
//!     let owner = Arc::new(pagewire::Node::alone()?);
//!     let store = Store::new(&owner, &StoreOptions { cells: 2, value: 8, journal: None })?;
//!     let tokens = [store.token()];
//!     let store = store.serve(&owner, 0, &tokens)?;
//!
//!     // Any process that has the tokens:
//!     let node = pagewire::Node::alone()?;
//!     let mut client = Client::new(&node, &tokens)?;
//!     client.run(|transaction| {
//!         let before = transaction.get(0, 0)?;
//!         transaction.put(0, 1, &before)?; // counts when all of it does
//!         transaction.put(0, 0, &7u64.to_ne_bytes())
//!     })?;
//!     assert_eq!(store.cell(0).map(|(version, value)| (version, value[0])), Some((1, 7)));
//!     Ok(())
//! }
//! ```
//!
//! Two state machines without memory and network decide, one of a store and one of a client. Random histories in virtual time test them.

mod client;
mod coordinator;
mod error;
mod history;
mod journal;
mod owner;
#[cfg(test)]
mod simulation;
mod steps;
mod store;
mod wire;
mod words;
mod work;

pub use client::{Client, Transaction};
pub use error::TransactionError;
pub use history::{Anomaly, History};
pub use steps::Steps;
pub use store::{MAX_VALUE, ServedStore, Store, StoreOptions, StoreToken};
