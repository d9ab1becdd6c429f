//! All tests of the protocol from outside, in one program: building one is cheaper than building many.

mod rc_apart;
mod rc_at_once;
mod rc_faults;
mod rc_gaps;
mod rc_greeting;
mod rc_hostile;
mod rc_large;
mod rc_pacing;
mod rc_patience;
mod rc_refusals;
mod rc_retries;
mod rc_rows;
mod rc_rules;
mod rc_unreadable;
mod rc_workload;
mod support;
mod uc;
