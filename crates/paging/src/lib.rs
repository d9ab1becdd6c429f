//! How absent pages come in: how much at once, by which thread, and how long it took.
//!
//! The policy ([`Ahead`]) has no clock, thread or memory of its own; the [`Executor`] has threads, and knows nothing of pages.

#![forbid(unsafe_code)]

mod ahead;
mod executor;
pub mod limits;
mod page_in;
mod statistics;
mod stretch;

pub use ahead::{Ahead, needed};
pub use executor::{Executor, ExecutorTask, Offer, Tenant};
pub use page_in::{PageIn, UnknownPageIn};
pub use statistics::{FaultCounts, Histogram};
pub use stretch::{PieceOrder, Stretch, StretchPiece};
