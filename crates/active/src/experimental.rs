//! Applications of memory that reacts which are experimental: what they promise stands in their documents, and both may change with any
//! release.
//!
//! | module | what it is | source |
//! |---|---|---|
//! | [`sort`] | a parallel sort that survives the death of its processes | PAPERS AA-12 |
//! | [`stream`] | a stream of bytes over an access log | DESIGN, "Active Access" |

pub mod gas;
mod mailbox;
mod probe;
#[cfg(test)]
mod random;
pub mod sort;
pub mod stream;
pub mod transactions;
