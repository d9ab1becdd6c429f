//! Translation of what devices name: two levels of translation buffers, a walker of page tables, and a queue of the
//! faults that a program has to resolve (PAPERS PART-2, PART-3, PART-4 and PART-6).
//!
//! Nothing here touches memory, reads a clock or waits: page tables, payloads and the time come in, hits, finished walks
//! and faults come out. The models of the papers' machines run on it. A live engine translates nothing, the processor does: what it
//! remembers of pages is whether they were lately seen to be present (`ResidentPages` of the crate `memory`).

mod fault_queue;
mod iotlb;
mod page;
mod unit;
mod walk_caches;
mod walker;

pub use fault_queue::{Fault, FaultQueue, Reported};
pub use iotlb::{Eviction, Geometry, GeometryError, Hit, Iotlb, IotlbCounters, Level};
pub use page::{Access, DomainId, PageId};
pub use unit::{Answer, TranslationUnit};
pub use walker::{Entry, PageTable, Submitted, Walked, Walker, WalkerCounters, WalkerLimits};
