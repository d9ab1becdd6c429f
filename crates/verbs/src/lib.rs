//! The C ABI of libibverbs over the software NIC, and nothing else: no queue, no protocol, no table is kept here.
//!
//! Programs built against rdma-core find the same symbols, structures and versions; see `libpagewire.map`, `exports.txt`
//! and [`unsupported`], which lists what answers that it is not supported.

pub mod abi;
mod boundary;
pub mod calls;
mod checking;
mod completion;
mod connection_manager;
mod descriptor;
mod devices;
mod extended_post;
pub mod limits;
mod objects;
mod operations;
mod post;
mod refusals;
mod request_builder;
mod runtime;
pub mod unsupported;
mod work_requests;

pub use objects::protection::{
    RegionAttributesError, checkpoint_region, is_region_of_parent, make_flush_region, restore_region,
    set_region_attributes, watch_region,
};
pub use pagewire_watching::watch::OwnAttributesError;
pub use pagewire_watching::{WatchedAccesses, checkpoint, watch};
pub use runtime::deferred;
pub use runtime::process::{call_on_start, shared_nic};

/// A refusal by the engine, in a sentence.
pub fn engine_refusal(sentence: &'static str) -> pagewire_nic::Error {
    pagewire_nic::Error::InvalidArgument(sentence)
}
