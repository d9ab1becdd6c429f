//! What is fuzzed, as ordinary code.
//!
//! A [`FuzzTarget`] takes any bytes, makes packets, calls and accidents of them, and panics where the project breaks a promise.
//! Three drivers run them: libFuzzer (`fuzz/`, nightly Rust), `cargo test` (the corpora in `fuzz/corpus` and a few seeded
//! inputs), and the command `fuzz` (seeded inputs for as long as one likes).
#![forbid(unsafe_code)]

pub mod campaign;
mod connections;
mod datagrams;
mod host;
mod neighbour;
mod sequences;
mod target;
mod transport_receive;
mod wire_parse;
mod wire_roundtrip;

pub use target::FuzzTarget;
