//! The software NIC: devices, protection domains, regions, completion queues, queue pairs.
//!
//! The NIC is what the verbs, the native API and the simulator share. It is generic over the
//! [`Fabric`](pagewire_fabric::Fabric): the real world of processes, memory and sockets, or a simulated one.
//! It checks everything that a program or a peer asks for, chooses the path of each connection, and drives the
//! protocol of `transport` over it. It never learns what the C ABI looks like.
#![forbid(unsafe_code)]

mod access;
mod api;
#[cfg(test)]
mod claims_tests;
mod completion;
pub mod path;
mod progress;
mod queue_pair;
mod services;
mod types;

pub use api::access_log::{AccessLog, AccessLogInit};
pub use api::completion::CompletionQueue;
pub use api::completion_counter::CompletionCounter;
pub use api::context::Context;
pub use api::explain::ConnectionReport;
pub use api::prefetch::Advice;
pub use api::queue_pair::{QueuePair, QueuePairInit};
pub use api::xrc::{XrcClosing, XrcDomain, XrcOpener};
pub use api::xrc_executor::XrcExecutor;
pub use completion::late::CompletionDelays;
pub use completion::moderation::Moderation;
pub use completion::stamps::CompletionStamp;
pub use completion::{
    Completion, CompletionChannel, CompletionOpcode, CompletionQueueInit, RoutingHeader, Status,
};
pub use pagewire_iommu::access_log::{
    FLUSH_WORDS, LoggedOperation, Next, Receipt, RecordFlags, RecordHeader, flush_offset,
};
pub use pagewire_iommu::{AttributeError, PageAttributes, PageFlags, Rights};
pub use pagewire_paging::{FaultCounts, PageIn, UnknownPageIn};
pub use pagewire_transport::ud::GROUP as GROUP_QUEUE_PAIR;
pub use pagewire_transport::{
    AtomicRequest, Denial, FaultHandling, FlushRequest, ProtocolCounters, RefusalScope, RemoteAddress,
    UnknownFaultHandling,
};
pub use path::ManagementTransport;
pub use progress::engine::Nic;
pub use progress::management::{ManagementRoute, ManagementSent, management_target};
pub use queue_pair::relay::{RelayEnd, RelayOperation, RelayOutcome, RelayRequest, XrcSharing};
pub use queue_pair::request::{Data, Destination, ReceiveRequest, SendOperation, SendRequest};
pub use queue_pair::shared_receive::{SharedReceiveInit, SharedReceiveQueue};
pub use services::address_handle::AddressHandle;
pub use services::completion_counter::{CountedOperation, CountedUnit};
pub use services::device;
pub use services::event::{Acknowledgements, AsyncEvent, AsyncEventKind, EventSource, Notifier, Unwatched};
pub use services::fault_counts::{FaultReport, RegionFaults};
pub use services::interception::Attributes;
pub use services::memory_window;
pub use services::protection::{MemoryRegion, ProtectionDomain, Reregistration};
pub use services::thread_domain::ThreadDomain;
pub use types::delay::{DELAY_VARIABLE, delay};
pub use types::device_names::{DeviceNames, InvalidDeviceName};
pub use types::error::{Error, Forked, Result};
pub use types::options::Options;
pub use types::page_fault_choice::PageFaultChoice;
pub use types::path_choice::{PathChoice, UnknownPath};
pub use types::sge::ScatterGather;
pub use types::window::{WindowBinding, WindowWork};
pub use types::{attributes, limits};

/// The places of this crate that store to shared words.
pub const SITES: &[pagewire_iommu::words::Site] = &[
    services::TABLES,
    services::queue_pairs::BLOCK,
    path::local::QUEUE_PAIR,
    path::local::HOLDING,
    services::wake_request::ATTENTION,
    path::ring::RECORD,
    path::ring::PUBLISH,
    path::ring::HEAD,
    path::ring::RING_ACK,
];
