//! Experimental applications of memory that reacts. Their names, their promises and their wire formats may change with any release.
//!
//! | module | what it is | source |
//! |---|---|---|
//! | [`gas`] | a global address space that plain loads and stores reach | PAPERS AA-15 |
//! | [`sort`] | a parallel sort that survives the death of its processes | PAPERS AA-12 |
//! | [`stream`] | a stream of bytes over an access log | DESIGN, "Active Access" |
//! | [`transactions`] | distributed transactions on cells of several stores | PAPERS AA-14 |
//!
//! The crate uses public interfaces of `pagewire` and `pagewire-active` alone, and no crate of the product but `capi` uses it.

#![forbid(unsafe_code)]

pub mod gas;
mod mailbox;
mod probe;
#[cfg(test)]
mod random;
pub mod sort;
pub mod stream;
pub mod transactions;
