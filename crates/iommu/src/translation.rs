//! Translation of what devices name: two levels of translation buffers, a walker of page tables, and a queue of the
//! faults that a program has to resolve (PAPERS PART-2, PART-3, PART-4 and PART-6).
//!
//! Nothing here touches memory, reads a clock or waits: page tables, payloads and the time come in, hits, finished walks
//! and faults come out. So the same code translates in a simulated machine and remembers, in a live one, which pages
//! were lately seen to be resident ([`Residency`]).

mod fault_queue;
mod iotlb;
mod page;
mod residency;
mod unit;
mod walk_caches;
mod walker;

pub use fault_queue::{Fault, FaultQueue, Reported};
pub use iotlb::{Eviction, Geometry, GeometryError, Hit, Iotlb, IotlbCounters, Level};
pub use page::{Access, DomainId, PageId};
pub use residency::Residency;
pub use unit::{Answer, TranslationUnit};
pub use walker::{Entry, PageTable, Submitted, Walked, Walker, WalkerCounters, WalkerLimits};
