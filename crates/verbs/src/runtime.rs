//! The engine in a process: its start, its settings, what it prints, and its end.

pub mod deferred;
pub mod engine;
pub mod explain;
pub mod fork;
pub mod leftovers;
pub mod messages;
pub mod process;
pub mod settings;
pub mod signals;
mod unused_checkpoint;
