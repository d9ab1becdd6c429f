//! What a program calls.

pub mod access_log;
pub mod completion;
pub mod completion_counter;
pub mod context;
pub mod explain;
pub mod post;
pub mod prefetch;
pub mod queue_pair;
pub mod xrc;
pub mod xrc_executor;
