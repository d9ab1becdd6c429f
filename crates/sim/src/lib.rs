//! A deterministic world in which the software NIC itself runs, and the workload that checks it.
//!
//! [`World`] has hosts, processes with address spaces, links and a clock of its own; [`SimFabric`] shows it to
//! the engine of one process. One seed decides everything. A process can be ended, or interrupted by another,
//! just before any of its stores to memory that others see. The [`workload`] is independent of the world: it
//! drives any engine over any fabric, and knows what every byte and every completion must be.
#![forbid(unsafe_code)]

mod address_space;
mod clock;
mod fabric;
pub mod limits;
mod memory;
mod network;
mod notes;
mod packet;
pub mod panics;
mod plant;
mod ports;
mod process;
pub mod scale;
mod scenario;
pub mod shrink;
mod state;
mod streams;
mod words;
pub mod workload;
mod world;

pub use fabric::{SimBatch, SimFabric};
pub use memory::{SimMemory, SimProcess};
pub use network::{HostId, LinkFaults, NetworkCounters};
pub use notes::{NotePlace, Notes, SimNote};
pub use plant::Plant;
pub use ports::PortLimits;
pub use process::{CrashPoint, ProcessId, SiteTally, VirtualProcess};
pub use scenario::{Built, MEMORY, Scenario, SimStage};
pub use state::{SimChannel, SimEvent};
pub use streams::StreamFaults;
pub use words::SimWords;
pub use world::World;

/// The sites of this crate's own: what a process does to others besides storing words.
pub const SITES: &[pagewire_iommu::words::Site] = &[
    memory::WRITE,
    memory::TAIL,
    memory::ATOMIC,
    fabric::LEASE,
    fabric::CONNECT,
    fabric::SEND,
    fabric::WAKE,
];
