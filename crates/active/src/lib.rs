//! Memory that reacts: what peers put to and get from pages with attributes is logged, redirected, counted or handled by the owner's code,
//! while the caller just puts and gets (PAPERS AA-1).
//!
//! The owner gives pages [attributes](AttributesOf), and [serves](AccessLog::serve) the log of their accesses.
//!
//! ```
//! fn main() -> pagewire::Result<()> {
//!     use pagewire::{Node, Rights};
//!     use pagewire_active::{AttributesOf, Logs};
//!     use std::sync::Arc;
//!     use std::sync::atomic::{AtomicU64, Ordering};
//!
//!     let node = Node::alone()?;
//!     let table = node.zeroed::<u64>(512)?;
//!     let log = node.access_log(1 << 16)?; // bytes for each source
//!     table.attributes(..4096).redirect_puts().to(&log)?;
//!
//!     let sum = Arc::new(AtomicU64::new(0));
//!     let adds = sum.clone();
//!     let serving = log.serve(move |access| {
//!         adds.fetch_add(access.value::<u64>().unwrap_or(0), Ordering::Relaxed);
//!     })?;
//!
//!     // Any process that has the token:
//!     let remote = node.open(&table.export(Rights::WRITE)?)?;
//!     remote.put_value(0, 40u64).wait()?; // the caller just puts,
//!     remote.put_value(8, 2u64).wait()?;
//!     remote.flush_handled(None).wait()?; // and asks for "handled" where it must know
//!     assert_eq!(sum.load(Ordering::Relaxed), 42);
//!     assert_eq!(table.get(0)?, 0); // the puts went to the log, and not to memory
//!     assert_eq!(serving.end().handled, 2);
//!     Ok(())
//! }
//! ```
//!
//! # What the caller sees
//!
//! | attributes | put | get | atomic |
//! |---|---|---|---|
//! | W=1, R=1 | reaches memory | gives memory | runs |
//! | W=0, logged with data | success: its data are in the log | | remote access error |
//! | W=0 otherwise | remote access error, nothing moved | | remote access error |
//! | R=0 | | remote access error, nothing moved | remote access error |
//!
//! Whatever is logged has its record published before the caller's operation ends. A caller whose ring in the log is full waits, and nobody
//! else does (PAPERS AA-8). A get that the network loses may be logged once more: it was done once more.

#![forbid(unsafe_code)]

mod access;
mod access_statistics;
mod assembler;
mod attributes;
mod batch;
pub mod built_in;
mod bytes;
mod checkpoint;
mod clock;
pub mod fork;
pub mod hash_table;
mod log;
mod logged_process;
mod memory;
mod message;
mod parity;
mod serve;

pub use access::Access;
pub use access_statistics::{AccessStatistics, AccessStatisticsOptions, Counts, RemoteAccessStatistics};
pub use attributes::{AttributesOf, AttributesOfTokens, PageSetting};
pub use batch::{BATCH_ADDRESS_LEN, Batch, BatchCounts, BatchedPut, Batches, MAX_BATCHED};
pub use checkpoint::{
    Checkpoint, CheckpointError, CheckpointInfo, CheckpointKind, CheckpointOptions, Inspection, LocalWrites,
    MemoryError, RemoteWrites, Restored, SaveError, Saved, SavedMemory, Verified,
};
pub use hash_table::{HashTable, TableOptions};
pub use log::{AccessLog, Events, LogOptions, Logs, PollOutcome};
pub use logged_process::{LoggedProcess, LoggedProcessError, LoggedProcessOptions, Ticket};
pub use memory::Memory;
pub use pagewire::access_log::LoggedOperation;
pub use pagewire_memory::{PageFault, USERFAULT_PAGE_BYTES, USERFAULT_PAGE_WORDS, UserfaultMemory};
pub use parity::{Parity, ParityError, ParityMember, Rebuilt};
pub use serve::{Reported, Serving, Summary};
