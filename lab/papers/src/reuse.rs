//! REUSE: an allocator of registered memory beside the ordinary one (papers/explicit-reuse; PAPERS REUSE-1 to REUSE-5).
//!
//! `slabs` is the allocator as far as costs go: slabs of at least 1 MiB, each registered once. The rest is arithmetic on the costs of a system.

mod claims;
mod figures;
mod slabs;

pub use claims::claims;
pub use figures::figures;
pub use slabs::{Slabs, Trials, acquire_new};

use crate::unit_costs::ReuseCosts;

/// How a View comes to be in registered memory (REUSE-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// It is made in registered memory (`PinnedMemorySpace`).
    Registered,
    /// Its host memory is registered by hand (`HostSpace`).
    ByHand,
    /// It is copied into registered memory ("serialisation").
    Copied,
}

/// Nanoseconds until a buffer or View of so many bytes has been had and put; registered memory is reused. Without a copy it is figure 6.
pub fn transfer(costs: &ReuseCosts, view: View, bytes: u64) -> u64 {
    costs.put(bytes)
        + match view {
            View::Registered => costs.allocate(),
            View::ByHand => costs.register(bytes),
            View::Copied => costs.allocate() + costs.copied(bytes),
        }
}
