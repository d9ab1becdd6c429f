//! All tests of the engine from outside, in one program: building one is cheaper than building many.

mod arming;
mod congestion;
mod deafness;
mod death;
mod delayed_ack;
mod error_cases;
mod fast_path;
mod flush;
mod former_life;
mod initiator_copy_order;
mod iova;
mod orders;
mod poll_hint;
mod ring_acks;
mod scribbler;
mod sleeping;
mod sources;
mod support;
mod transfers;
mod unreliable;
