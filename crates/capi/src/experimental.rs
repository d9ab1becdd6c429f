//! Experimental applications in C: `include/pagewire_experimental.h`, made from these sources, and the version node PAGEWIRE_EXPERIMENTAL
//! (`experimental.map`). Both may change with any release. The feature `experimental` has them.
//!
//! | module | what it has |
//! |---|---|
//! | [`global_memory`] | a global address space |
//! | [`sort`] | a sort that survives the death of its processes |
//! | [`stream`] | streams of bytes |
//! | [`transactions`] | distributed transactions |

pub mod global_memory;
pub mod sort;
pub mod stream;
pub mod transactions;
