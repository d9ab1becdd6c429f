//! Memory that peers access: own regions, those of others, their tokens, signals and logs.

pub mod access_log;
pub mod atomics;
pub mod heap;
pub mod mapped_file;
#[allow(unsafe_code)]
pub mod memory;
#[allow(unsafe_code)]
pub mod raw;
pub mod region;
pub mod remote;
pub mod rights;
pub mod signal;
pub mod signals;
pub mod token;
pub mod word_change;
