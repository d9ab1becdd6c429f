//! Protection domains, keys, regions and the one check that every access passes.
//!
//! A region is a token: nothing is pinned and no page table is built, so that registering costs the same
//! at any size (PAPERS JBMT-1). Regions live in words that peers on the same host can read, because a local
//! initiator checks its access itself. What must hold at all times: once [`RegionTable::revoke`] and the
//! wait on [`hazards`] are over, no access that was checked against the region is still under way.
#![forbid(unsafe_code)]

pub mod access_log;
mod attributes;
pub mod hazards;
mod keys;
pub mod layout;
pub mod limits;
#[cfg(feature = "model")]
mod model;
mod process_words;
mod region;
mod rights;
pub mod words;

pub use attributes::{
    AccessEffect, AccessKind, AttributeError, AttributeTable, Logging, PAGE, PageAttributes, PageFlags,
};
pub use hazards::{Claim, Hazards};
pub use keys::KeySecret;
#[cfg(feature = "model")]
pub use model::ModelWords;
pub use process_words::ProcessWords;
pub use region::{
    AccessRefusal, AccessScope, AttributesAt, Granted, NullMemory, RegionLife, RegionTable, RegionView,
    RegionWindow, RegisteredRegion, WindowTarget,
};
pub use rights::Rights;

/// The places of this crate that store to shared words.
pub const SITES: &[words::Site] =
    &[hazards::CLAIM, hazards::RELEASE, region::FIELDS, region::PUBLISH, region::REVOKE];
