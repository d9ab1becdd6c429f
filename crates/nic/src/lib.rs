//! The software NIC: devices, protection domains, regions, completion queues, queue pairs.
//!
//! The NIC is what the verbs, the native API and the simulator share. It is generic over the
//! [`Fabric`](pagewire_fabric::Fabric): the real world of processes, memory and sockets, or a simulated one.
//! It checks everything that a program or a peer asks for, chooses the path of each connection, and drives the
//! protocol of `transport` over it. It never learns what the C ABI looks like.
#![forbid(unsafe_code)]

mod access;
mod address_handle;
pub mod attributes;
mod completion;
mod context;
mod counters;
mod datagram;
pub mod device;
mod engine;
mod error;
mod event;
mod explain;
mod fast_path;
mod fault_counts;
mod inbox;
mod initiator_copy;
pub mod limits;
mod management;
mod moderation;
mod page_fault_choice;
mod page_faults;
pub mod path;
mod poll_hint;
mod prefetch;
mod protection;
mod pull;
mod qp_progress;
mod queue_pair;
mod queue_pairs;
mod ready;
mod request;
mod ring_rx;
mod send_budget;
mod shared_receive;
mod slots;
mod thread_domain;
mod transport_ops;
mod udp_rx;
mod unpolled;
mod workers;

pub use address_handle::AddressHandle;
pub use completion::{
    Completion, CompletionChannel, CompletionQueue, CompletionQueueInit, Opcode, RoutingHeader, Status,
};
pub use context::Context;
pub use counters::ProtocolCounters;
pub use engine::{Nic, Options};
pub use error::{Error, Result};
pub use event::{Acknowledgements, AsyncEvent, AsyncEventKind, Element, Notifier, Unwatched};
pub use explain::ConnectionReport;
pub use fault_counts::{FaultReport, RegionFaults};
pub use moderation::Moderation;
pub use page_fault_choice::PageFaultChoice;
pub use pagewire_iommu::Rights;
pub use pagewire_paging::{FaultCounts, PageIn, UnknownPageIn};
pub use pagewire_transport::{FaultHandling, UnknownFaultHandling};
pub use path::{PathChoice, UnknownPath};
pub use prefetch::Advice;
pub use protection::{MemoryRegion, ProtectionDomain, Reregistration};
pub use queue_pair::{QueuePair, QueuePairInit};
pub use request::{Data, Destination, ReceiveRequest, ScatterGather, SendOperation, SendRequest};
pub use shared_receive::{SharedReceiveInit, SharedReceiveQueue};
pub use thread_domain::ThreadDomain;

/// The places of this crate that store to shared words.
pub const SITES: &[pagewire_iommu::words::Site] = &[
    engine::TABLES,
    queue_pairs::BLOCK,
    path::local::QUEUE_PAIR,
    path::local::HOLDING,
    path::attention::ATTENTION,
    path::ring::RECORD,
    path::ring::PUBLISH,
    path::ring::HEAD,
    path::ring::RING_ACK,
];
