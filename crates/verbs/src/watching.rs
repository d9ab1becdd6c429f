//! Regions of verbs programs that are watched or saved.

pub mod checkpoint;
pub mod watch;
pub mod watch_snapshot;
