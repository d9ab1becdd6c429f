//! All tests of the protocol from outside, in one program: building one is cheaper than building many.

mod rc_bursts;
mod rc_fast_path;
mod rc_faults;
mod rc_flush;
mod rc_gaps;
mod rc_greeting;
mod rc_hostile;
mod rc_large;
mod rc_pacing;
mod rc_patience;
mod rc_refusals;
mod rc_retries;
mod rc_rules;
mod rc_skips;
mod rc_unreadable;
mod rc_workload;
mod rc_write_only;
mod support;
mod uc;
