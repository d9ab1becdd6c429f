//! PART: page faults during RDMA, treated as errors of transmission (papers/part; PAPERS PART-1 to PART-10).
//!
//! Two nodes with an SMMU each ([`pagewire_iommu::translation`]), an NI FIFO, an interrupt handler that goes before a tasklet, a
//! transport of blocks and packets with ACK, NACK, ERR and timeout. A tasklet reads all that the FIFO holds, brings in each page
//! that failed by a call of its own, and then asks for a retransmission, page by page (section 4.4); one for a transmission that is
//! not the last one of its block is dropped.

mod claims;
mod figures;
mod machine;
mod node;
mod processor;
mod strategies;

pub use claims::claims;
pub use figures::figures;
pub use machine::{Operation, PageIn, Report, Resend, Transfer, run};
pub use strategies::{Before, all_absent, overlap_gain, sometimes_absent, touched_below, with_preparation};
