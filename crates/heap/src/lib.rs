//! The registered heap: one range of addresses whose memory peers may map (REUSE-1 to REUSE-5).
//!
//! A program makes one [`Heap`], registers its range once, and allocates. It knows by the heap which memory is registered (REUSE-1).
//! Registering costs the same at any size, so there are no slabs (REUSE-2). Memory that is freed stays registered.
//!
//! The layers, each of which knows only those below it:
//!
//! | module | what it does |
//! |---|---|
//! | `heap`, `allocator`, `unsized_objects`, `statistics` | what programs call |
//! | `ordinary` | the same mimalloc without a heap, to measure beside |
//! | `pool`, `fork`, `purger` | how heaps begin and end, what a child gets, and freed pages while nobody calls |
//! | `small`, `arena` | small objects: mimalloc in arenas of the range |
//! | `export` | which objects are exported |
//! | `space` | large objects, units in use, freed pages, behind one lock |
//! | `range`, `runs`, `freed` | mappings and system calls; two pure data structures |
//! | `operation`, `presence` | what a fork must know of other threads, and a child of its parent |
//!
//! This crate never touches the bytes of an object but to zero, to copy and to free them, and it never falls back to memory outside
//! the range. Small tables of mimalloc (about 0.2 % of an arena) and of this crate lie outside the memory file.

mod allocator;
mod arena;
mod error;
mod export;
mod fork;
mod fork_lock;
mod freed;
mod heap;
pub mod limits;
mod mimalloc;
mod operation;
mod options;
mod ordinary;
mod pool;
mod presence;
mod purger;
mod range;
mod runs;
mod small;
mod space;
mod statistics;
mod unsized_objects;

pub use allocator::HeapRef;
pub use error::{HeapError, Result};
pub use export::ExportOwner;
pub use fork::around_fork;
pub use heap::Heap;
pub use operation::is_inside;
pub use options::HeapOptions;
pub use ordinary::Ordinary;
pub use statistics::Statistics;
