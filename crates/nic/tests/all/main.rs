//! All tests of the engine from outside, in one program: building one is cheaper than building many.

mod answers;
mod arming;
mod at_once;
mod congestion;
mod deafness;
mod death;
mod error_cases;
mod flush;
mod former_life;
mod iova;
mod joined;
mod lane;
mod orders;
mod scribbler;
mod sleeping;
mod sources;
mod support;
mod transfers;
mod turn;
mod unreliable;
mod verdicts;
