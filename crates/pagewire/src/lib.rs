//! RDMA on memory that is never pinned, from Rust: put, get, atomics and signals between processes, with no RDMA hardware, no
//! privileges and no limit of locked memory.
//!
//! A [`Node`] is this process as others see it. It has [`Region`]s, whose [`Token`]s it sends to others by any means. Who holds a token
//! [opens](Node::open) it, and puts and gets.
//!
//! ```
//! fn main() -> pagewire::Result<()> {
//!     use pagewire::{Node, Rights};
//!     let node = Node::alone()?;
//!     let table = node.zeroed::<u64>(1 << 20)?;
//!     let token = table.export(Rights::READ | Rights::WRITE)?;
//!
//!     // Any process that has the token:
//!     let remote = node.open(&token)?;
//!     let put = remote.put(8, vec![7u64; 4]); // starts now, and owns its buffer
//!     let buffer = put.wait()?; // or put.await: the bytes are visible there, and the buffer comes back
//!     assert_eq!(remote.get_into(8, buffer).wait()?, [7; 4]);
//!     Ok(())
//! }
//! ```
//!
//! # Completions
//!
//! | completion | says | how to wait for it |
//! |---|---|---|
//! | `source` | the buffer may be used again | [`Operation::wait_source`] |
//! | `remote` | the bytes are visible at the target | [`Operation::wait`], `await`, [`RemoteRegion::flush`], [`Node::flush`] |
//! | `signal` | the target's word has changed, behind the bytes | [`Signal::wait_until`], at the target |
//!
//! # Threads, polls and tasks
//!
//! One implementation has three forms. No future needs a runtime; what the features `tokio` and `async-io` add does.
//!
//! | of | a thread waits | polled | a task awaits |
//! |---|---|---|---|
//! | any or all of several | [`wait_any`], [`wait_all`], [`wait_some`] | the same with no time | of the executor |
//! | an operation | [`Operation::wait`] | [`Operation::is_done`], [`Operation::try_wait`] | [`Operation`] |
//! | a flush | [`RemoteRegion::flush`], [`Node::flush`] | [`Flush::is_done`] | [`Flush`] |
//! | a signal | [`Signal::wait_until`], [`signal_wait_any`], [`signal_wait_all`], [`signal_wait_some`] | [`Signal::value`] | [`Signal::reaches`], [`signal_reaches_any`], [`signal_reaches_all`] |
//! | a held write | [`HeldWrite::wait`] | [`HeldWrite::is_done`] | [`HeldWrite`] |
//! | a release | [`Acceptance::wait`] | [`Acceptance::is_done`] | [`Acceptance`] |
//! | what a peer opens | [`Node::next_conditional_request`] | [`Node::next_conditional_request`] with no time | [`Node::conditional_request`] |
//! | any of these but signals | poll(2) on [`Node::descriptor`] | | `Ready` in `pagewire::tokio` and `pagewire::async_io` |
//!
//! # Order
//!
//! | | local path | over UDP |
//! |---|---|---|
//! | operations to one peer, but for atomics that repeat | executed in the order in which they were started | the same |
//! | bytes of one put | in any order; the last 8 bytes of a long one go last | in order of their addresses, packet by packet |
//! | a signal behind its put | changes when all bytes are visible | the same |
//! | operations to different peers | none | none |
//! | an atomic that repeats: all but fetch-add and compare-swap of 8 bytes | is posted again until nobody came between, so later ones may overtake it | the same |

#![deny(unsafe_code)]

pub mod bootstrap;
mod conditional;
mod error;
pub mod limits;
mod nodes;
mod operations;
mod regions;
mod tasks;

pub use conditional::{Acceptance, Canceller, ConditionalRequest, Direction, HeldWrite, Tag, WriteOutcome};
pub use error::{Error, Failure, OperationError, Result, Rule, Side};
pub use limits::FOREVER;
#[doc(hidden)]
pub use nodes::engine::{EngineSource, set_engine_source};
pub use nodes::node::Node;
pub use nodes::part::Part;
pub use operations::buffer::{Buffer, BufferMut};
pub use operations::flush::Flush;
pub use operations::operation::Operation;
pub use operations::waiting;
pub use operations::waits::{Waitable, wait_all, wait_any, wait_some};
pub use regions::access_log;
pub use regions::mapped_file::MappedFile;
pub use regions::raw;
pub use regions::region::{Atomic, Kind, ReadOnly, Region, Shared};
pub use regions::remote::{RemoteRegion, RemoteSignal, SignalUpdate};
pub use regions::rights::Rights;
pub use regions::signal::Signal;
pub use regions::signals::{
    signal_reaches_all, signal_reaches_any, signal_wait_all, signal_wait_any, signal_wait_some,
};
pub use regions::token::{Peer, Token, TokenError};
#[cfg(feature = "async-io")]
pub use tasks::async_io;
#[cfg(feature = "tokio")]
pub use tasks::tokio;

/// The tables of conditional writes, and their messages: the simulator plays both sides by them, in virtual time.
#[doc(hidden)]
pub mod tables {
    pub use crate::conditional::message::{ConditionalMessage, Ending, Release};
    pub use crate::conditional::releases::{NotReleased, OpenOutcome, Opening, Outgoing, Releases};
    pub use crate::conditional::writes::{Expired, NotHeld, ReleaseArrival, WriteTable};
    pub use crate::regions::token::NodeAddress;
}
