//! The tests of `copies` once more, where faults are known to be mended and copies are made directly.

#[path = "copies.rs"]
mod copies;
