//! What a verbs program called, what it left at its exit, and what it misused: the state of its objects and work requests, and the rules.
//!
//! No I/O, no clock, no thread, no address is followed: whoever observes the calls tells the [`Checker`], and writes its [`report`] and its [`call_count`]s.
//! Start at [`Rule`], which lists what is found, and [`Checker`].

#![forbid(unsafe_code)]

pub mod call_count;
mod checker;
mod finding;
pub mod limits;
mod object;
mod recent;
pub mod report;
mod requests;
mod rule;

pub use checker::{Checker, PolledCompletion, Use};
pub use finding::{Finding, Related};
pub use object::{Details, NewObject, ObjectKind, QueuePairDetails, RegionDetails};
pub use requests::{Content, Keys, Request};
pub use rule::Rule;
