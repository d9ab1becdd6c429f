//! Why a transaction was not done.

use pagewire::Failure;

/// Why a transaction, or an access of it, was not done.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// Another transaction has accessed the same cell. Nothing was done; try again, or have [`Client::run`](super::Client::run) do so.
    #[error("the transaction conflicts with another one, and nothing of it was done: try it again")]
    Conflict,
    /// A store is gone. Nothing was done.
    #[error("store {store} is lost, and nothing of the transaction was done: {why}")]
    StoreLost { store: usize, why: Failure },
    /// The store that decides is gone after it was asked to commit. All of it was done, or nothing; the stores agree when it is back.
    #[error("store {store} was lost while it decided: the transaction is done as a whole, or not at all")]
    Unknown { store: usize },
    /// There is no such store or cell.
    #[error(
        "store {store} has no cell {cell}: it has {cells} cells, and there are {stores} stores; both count from 0"
    )]
    Range { store: usize, cell: u32, stores: usize, cells: u32 },
    /// The value has another length than the cells.
    #[error("a value of {found} bytes, where the cells of store {store} have {expected}")]
    Length { store: usize, found: usize, expected: usize },
    /// No transaction was started, or it has ended: see [`Steps`](super::Steps).
    #[error("no transaction is started, or it has ended: start one first")]
    NotStarted,
    /// The stores cannot be used.
    #[error("transactions: {0}")]
    Setup(#[from] pagewire::Error),
}
