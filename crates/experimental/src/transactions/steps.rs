//! Transactions step by step, without a borrow of their client: for programs that cannot have one, as those in other languages.

use super::client::{Client, Pause, now};
use super::error::TransactionError;
use super::work::Work;

/// A client, and the transaction that it has started. Dropped, that is aborted.
pub struct Steps {
    client: Client,
    /// When the transaction began at first.
    begun: u64,
    pause: Pause,
    work: Option<Work>,
}

impl Steps {
    /// No transaction is started.
    pub fn new(client: Client) -> Steps {
        Steps { client, begun: 0, pause: Pause::new(), work: None }
    }

    /// Starts a transaction, and gives up one that was started and has not ended. `again`: it is the last one that is tried again, behind a pause of up to
    /// 3.2 ms, and keeps its age, by which it wins in the end.
    pub fn start(&mut self, again: bool) {
        self.abort();
        if again && self.begun != 0 {
            self.pause.take();
        } else {
            (self.begun, self.pause) = (now(), Pause::new());
        }
        self.work = Some(Work::new(&mut self.client, self.begun));
    }

    /// As [`Transaction::get_versioned`](super::Transaction::get_versioned).
    ///
    /// # Errors
    /// `NotStarted`, and as there.
    pub fn get(&mut self, store: usize, cell: u32) -> Result<(u64, Vec<u8>), TransactionError> {
        self.work.as_mut().ok_or(TransactionError::NotStarted)?.get(&mut self.client, store, cell)
    }

    /// As [`Transaction::put`](super::Transaction::put).
    ///
    /// # Errors
    /// `NotStarted`, and as there.
    pub fn put(&mut self, store: usize, cell: u32, value: &[u8]) -> Result<(), TransactionError> {
        self.work.as_mut().ok_or(TransactionError::NotStarted)?.put(&mut self.client, store, cell, value)
    }

    /// As [`Transaction::commit`](super::Transaction::commit). The transaction has ended, whatever it gives.
    ///
    /// # Errors
    /// `NotStarted`, and as there.
    pub fn commit(&mut self) -> Result<(), TransactionError> {
        let mut work = self.work.take().ok_or(TransactionError::NotStarted)?;
        let done = work.commit(&mut self.client);
        work.abort(&mut self.client);
        done
    }

    /// Gives up the transaction that was started, if there is one.
    pub fn abort(&mut self) {
        if let Some(mut work) = self.work.take() {
            work.abort(&mut self.client);
        }
    }

    /// Bytes of a value of a store. `None`: there is no such store.
    pub fn value_bytes(&self, store: usize) -> Option<usize> {
        self.client.stores.get(store).map(|store| store.token.value as usize)
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.abort();
    }
}
