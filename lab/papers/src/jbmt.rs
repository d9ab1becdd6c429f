//! JBMT: RDMA in which a helper thread pins small sections while their data move (papers/onloaded-dynamic-pinning; PAPERS
//! JBMT-1 to JBMT-6).
//!
//! Two nodes with a helper thread each (JBMT-3), credits, sections, fault threads and one Ethernet link. Registration pins nothing
//! and costs the same whatever the size (JBMT-1). A get (JBMT-2) is cut into local sections, one after the other; each asks the other
//! side by a control message, which answers with one or more remote sections. A helper never waits for a page: a portion of what is
//! absent it gives to the fault threads in turn, and looks again later.

mod claims;
mod figures;
mod helper;
mod machine;

pub use claims::claims;
pub use figures::{figures, serial_parts};
pub use machine::{Finished, Get, run};
