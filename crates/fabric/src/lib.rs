//! How bytes leave a process: memory shared with other processes of the host, UDP, and what the NIC sleeps on.
//!
//! [`Fabric`] is the contract, [`HostFabric`] the real one. Nothing here knows what a queue pair does; everything that comes
//! from a peer, by whatever way, is checked before it is believed.

mod batch;
mod bring_in;
mod counters;
mod descriptors;
mod destination;
mod devices;
mod fabric;
mod faults;
mod forward;
mod groups;
mod handshake;
mod held_pages;
mod host;
mod interfaces;
mod last_words;
pub mod limits;
mod link_changes;
mod liveness;
pub mod lock;
mod management;
mod management_packet;
pub mod members;
mod names;
mod neighbours;
mod network;
mod network_delay;
mod nonce;
mod pcap;
mod pieces;
mod seccomp;
mod shared_move;
mod shortage;
mod sockets;
mod steering;
mod streams;
mod threads;
mod trust;
mod udp;
mod waiters;
mod words;

pub use counters::{AtomicCounter, Counters};
pub use devices::{NetworkDevice, all_network_devices, network_devices, usable_network_devices};
pub use fabric::*;
pub use faults::{FaultBatch, FaultCounters, FaultPlan, PacketFate, PacketRules, RecordedBatch};
pub use groups::GroupMembership;
pub use held_pages::{PageFate, PageRules};
pub use host::{FabricOptions, FabricRules, HostFabric};
pub use last_words::{Inheritance, LastMessage, LastWordsFile, SaidMark, Sibling};
pub use limits::LONG_PAYLOAD;
pub use link_changes::LinkChanges;
pub use management::{Handover, ManagementDatagram, ManagementSocket, ManagementTarget};
pub use network_delay::{InvalidDelay, NetworkDelay};
pub use pcap::{CAPTURE_VARIABLE, finish_captures};
pub use shortage::{Explained, shortage};
pub use streams::{ConnectTo, InvalidConnectTo, StreamOptions, Tls, TlsChoice, TlsError};
pub use threads::{TimerSlack, spawn};
pub use udp::{PORT_PROBE, probe, socket_at};
pub use words::MappedWords;
