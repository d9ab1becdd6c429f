//! Operations under way: their buffers, their ends, and waits for them.

#[allow(unsafe_code)]
pub mod buffer;
pub mod flush;
pub mod operation;
pub mod operation_end;
pub mod pending;
pub mod ticks;
pub mod waiting;
pub mod waits;
