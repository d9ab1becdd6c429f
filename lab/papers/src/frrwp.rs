//! FRRWP: overlapped registration and conditional writes (papers/frrwp; PAPERS FRRWP-1 to FRRWP-4).
//!
//! `exchange` is one transfer between a client and a server, in the traditional order and in that of FRRWP, as events. `strategies` are the
//! ways to spare registrations that the paper names in its related work and does not measure; the sequence of buffers is assumed.

mod claims;
mod exchange;
mod figures;
mod sequence;
mod strategies;

pub use claims::claims;
pub use exchange::{Direction, Exchange, Order, PartSpan, Timeline, overlap, run};
pub use figures::figures;
pub use sequence::{Access, Sequence};
pub use strategies::{Eviction, PinDownCache, Strategy, mean};
