//! Programs that commands start, alone and in pairs, and where.

pub mod connection_probe;
pub mod directory;
pub mod hosts;
pub mod install;
pub mod interrupt;
pub mod launch;
pub mod loader;
pub mod pair;
pub mod perftest;
pub mod preload;
pub mod probe;
pub mod stage;
pub mod swap;
pub mod workload;
