//! RDMA on memory that is never pinned, from Rust.

pub mod bootstrap;
