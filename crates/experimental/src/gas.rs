//! A global address space that plain loads and stores reach (V-GAS, PAPERS AA-15). Experimental.
//!
//! ```no_run
//! use pagewire_experimental::gas::GlobalMemory;
//! use std::sync::atomic::Ordering::Relaxed;
//!
//! fn main() -> pagewire::Result<()> {
//!     let node = pagewire::Node::from_env()?; // all processes of a job
//!     let memory = GlobalMemory::new(&node, 16)?; // pages of each process
//!     let words = memory.words();
//!     words[memory.own_words().start].store(node.rank() as u64, Relaxed); // a plain store
//!     node.barrier()?;
//!     let sum: u64 = (0..node.size()).map(|rank| words[memory.words_of(rank).start].load(Relaxed)).sum();
//!     println!("{sum}");
//!     memory.leave(&node)
//! }
//! ```
//!
//! A page comes from its home when a thread touches it: userfaultfd(2) tells of the fault, and the thread waits. The home has a directory of who has
//! copies; either one process may store to a page, or any number load it. Stores to pages that are only loaded fault once more, which gives the
//! home its dirty bits.
//!
//! # Memory model
//!
//! As on one x86-64 machine: each word is coherent, and whoever sees a store sees all that the storing thread had stored before. As there, a load
//! may overtake an earlier store of its own thread to another word; a fence or a read-modify-write prevents that.

mod cache;
mod directory;
mod memory;
#[cfg(test)]
mod simulation;
mod wire;
mod words;

pub use memory::{GasStatistics, GlobalMemory, PageAccess};
