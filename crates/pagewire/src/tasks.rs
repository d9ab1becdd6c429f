//! Waits of asynchronous tasks.

#[cfg(feature = "async-io")]
pub mod async_io;
#[cfg(any(feature = "tokio", feature = "async-io"))]
pub mod runtime;
#[cfg(feature = "tokio")]
pub mod tokio;
