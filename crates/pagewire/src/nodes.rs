//! A node: its engine, its connections, its peers, and parts of its job.

pub mod completions;
pub mod conditional_writes;
pub mod connection;
pub mod engine;
pub mod handshake;
pub mod inbox;
pub mod listener;
pub mod node;
pub mod part;
pub mod peers;
pub mod readiness;
pub mod services;
pub mod sources;
