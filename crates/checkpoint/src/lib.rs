//! Incremental checkpoints of memory that peers write, too, in a file (PAPERS AA-11).
//!
//! A [`Saver`] takes what has changed since the checkpoint before: writes of this process from its page tables, those of peers from whoever logs
//! them ([`PeerWrites`]). It knows neither regions nor access logs: regions of the native interface and of verbs programs are saved by the same
//! code. A reader starts at `saver.rs`; `format.rs` has the bytes of a file.
#![forbid(unsafe_code)]

mod choice;
mod error;
mod file;
mod format;
mod inspect;
mod saver;
mod written;

pub use choice::CheckpointChoice;
pub use error::{MemoryError, SaveError};
pub use format::{NOTE, PAGE, REGIONS, SegmentKind as CheckpointKind};
pub use inspect::{CheckpointInfo, Inspection, Verified};
pub use pagewire_memory::DirtyMethod as LocalWrites;
pub use saver::{NoPeers, PeerWrites, Restored, Saved, SavedMemory, Saver};
pub use written::WrittenPages;
