//! The C ABI of libibverbs over the software NIC, and nothing else: no queue, no protocol, no table is kept here.
//!
//! Programs built against rdma-core find the same symbols, structures and versions; see `libpagewire.map`, `exports.txt`
//! and [`unsupported`], which lists what answers that it is not supported.

pub mod abi;
mod address_handle;
mod advise;
mod async_event;
mod boundary;
pub mod checkpoint;
mod completion_channel;
mod completion_queue;
mod connection_manager;
mod context;
pub mod deferred;
mod descriptor;
mod device;
mod device_attributes;
mod device_files;
mod engine;
mod explain;
mod extended_poll;
mod extended_registration;
mod fork;
mod held;
mod kernel_structures;
mod leftovers;
pub mod limits;
mod messages;
mod named_devices;
mod names;
mod neighbour;
mod object;
mod open_device;
mod operations;
mod parent_domain;
mod polling;
mod port_counters;
mod post;
mod process;
mod protection;
mod query;
mod queue_pair;
mod rates;
mod refusals;
mod settings;
mod shared_receive;
mod signals;
mod sysfs;
pub mod unsupported;
pub mod watch;
mod watch_snapshot;
mod work_requests;

pub use process::{call_on_start, shared_nic};
pub use protection::{
    RegionAttributesError, checkpoint_region, is_region_of_parent, restore_region, set_region_attributes,
    watch_region,
};
pub use settings::Watched;
pub use watch::OwnAttributesError;

/// A refusal by the engine, in a sentence.
pub fn engine_refusal(sentence: &'static str) -> pagewire_nic::Error {
    pagewire_nic::Error::InvalidArgument(sentence)
}
