//! PART: page faults during RDMA, treated as errors of transmission (papers/part; PAPERS PART-1 to PART-10).
//!
//! Two nodes with an SMMU each ([`crate::translation`]), an NI FIFO, an interrupt handler that goes before a tasklet, a
//! transport of blocks and packets with ACK, NACK, ERR and timeout. A tasklet reads all that the FIFO holds and brings in each page
//! that failed by a call of its own (section 4.4). When all are in it asks for retransmissions, page by page: were each asked for as
//! soon as it is in, the four faults of a block would not end in one retransmission, as they do in section 6.1.1. Assumption: an ERR
//! for a transmission that is not the last one of its block is dropped, as section 4.4 says of packets.
//!
//! Packets may be lost or corrupted ([`Errors`]): a corrupted one is refused by a NACK that sends its block again at once, a lost one is missed by
//! the timeout. The text has no rate of either, so that no number of it depends on them.

mod applications;
mod claims;
mod figures;
mod machine;
mod node;
mod processor;
mod strategies;
mod transfer;

pub use claims::claims;
pub use figures::figures;
pub use machine::run;
pub use strategies::{Before, all_absent, overlap_gain, sometimes_absent, touched_below, with_preparation};
pub use transfer::{Errors, Fate, Operation, PageIn, Report, Resend, Transfer};
