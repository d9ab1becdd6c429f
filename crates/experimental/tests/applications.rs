//! The experimental applications between processes.

#[path = "applications/gas.rs"]
mod gas;
#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;
#[path = "../../active/tests/other/mod.rs"]
mod other;
#[path = "applications/sort.rs"]
mod sort;
#[path = "applications/stream.rs"]
mod stream;
#[path = "applications/transactions.rs"]
mod transactions;
