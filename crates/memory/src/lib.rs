//! Copies that survive an unmapped page.
//!
//! The application may unmap, protect, truncate or fork at any moment; nothing here ever raises a signal because
//! of it. Application memory is touched by system calls that answer EFAULT, and by a handful of machine
//! instructions ([`guard`]) whose faults are mended. No lock is held while it is touched.

mod application;
mod arena;
mod atomic;
mod cancellation;
mod cgroup;
mod clock;
mod descriptors;
mod dirty_pages;
mod file_words;
pub mod fork;
pub mod guard;
mod host;
pub mod limits;
mod liveness;
mod mappings;
mod null_pages;
mod pagemap;
mod peer_pages;
mod persistence;
mod process;
mod protection_keys;
mod remote;
mod residency;
mod resource_limits;
mod scratch;
mod segments;
mod shared_mapping;
mod shared_ranges;
mod signals;
mod transfer;
mod userfault;
mod watch_list;

pub use application::*;
pub use arena::Arena;
pub use cancellation::Uncancelled;
pub use cgroup::swaps_at_a_limit;
pub use descriptors::{above_low_numbers, above_standard};
pub use dirty_pages::{DirtyMethod, DirtyPages};
pub use file_words::FileWords;
pub use host::HostMemory;
pub use liveness::OWNER_DIED;
pub use null_pages::{NullPages, null_pages};
pub use process::HostProcess;
pub use protection_keys::open_all_keys;
pub use remote::{CopySource, CrossMemory, RemoteMemory};
pub use resource_limits::file_size_limit;
pub use segments::part_of;
pub use shared_ranges::{HEAP_FILE, SharedRanges};
pub use signals::BlockedSignals;
pub use userfault::*;
