//! What a program calls.

pub mod explain;
pub mod prefetch;
