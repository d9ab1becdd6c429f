//! Distributed transactions on memory that reacts (PAPERS AA-14). Experimental.

mod coordinator;
mod history;
mod owner;
#[cfg(test)]
mod simulation;
mod words;

pub use coordinator::Outcome;
pub use history::{Anomaly, History};
