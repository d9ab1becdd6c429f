//! Active Access: handlers on put and get (papers/active-access.txt; PAPERS AA-1 to AA-15).
//!
//! `table` runs the distributed hash table of section 5.2.1 as events, by scheme, over nodes of 32 processes. `buffer` is the IOMMU's translation
//! buffer. `streams` is section 5.1, `counter` the access counter, `gets` logging and sort, `power` the energy of network cards and routers: sums of
//! unit costs. What the text does not give is assumed, and each assumption is halved and doubled.

mod buffer;
mod claims;
mod counter;
mod figures;
mod gets;
mod power;
mod streams;
mod table;

pub use buffer::Buffer;
pub use claims::all as claims;
pub use counter::Counting;
pub use figures::all as figures;
pub use gets::Logging;
pub use power::{TOPOLOGIES, Topology};
pub use streams::{Stream, single_inserter};
pub use table::{Load, Scheme, TableOutcome, run};
