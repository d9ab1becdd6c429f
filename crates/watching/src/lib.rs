//! Regions of verbs programs that are watched or saved: accesses of peers are counted, and memory is written to checkpoints.
//!
//! Whoever registers regions tells it, by [`watch::registered`], [`watch::suspend`] and [`watch::ended`], and gives it [`Hooks`] for what it
//! cannot do itself.
#![forbid(unsafe_code)]

pub mod checkpoint;
mod hooks;
pub mod limits;
pub mod process_socket;
mod snapshot;
pub mod watch;

pub use hooks::Hooks;
pub use snapshot::remove as remove_snapshot;

/// The fabric of this process.
pub type Host = pagewire_fabric::HostFabric;

/// Which accesses of peers to regions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchedAccesses {
    /// WRITEs and atomics.
    pub writes: bool,
    /// READs.
    pub reads: bool,
}

impl WatchedAccesses {
    /// Whether nothing is counted.
    pub fn is_nothing(self) -> bool {
        self == WatchedAccesses::default()
    }
}

/// The name of the program.
pub fn program() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&program).file_name().unwrap_or(&program).to_string_lossy().into_owned()
}
