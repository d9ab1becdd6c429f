//! The experimental applications between processes.

#[path = "experimental/gas.rs"]
mod gas;
#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;
mod other;
#[path = "experimental/sort.rs"]
mod sort;
#[path = "experimental/stream.rs"]
mod stream;
#[path = "experimental/transactions.rs"]
mod transactions;
