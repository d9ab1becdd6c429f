//! Completion queues and channels, and asynchronous events.

pub mod async_event;
pub mod completion_channel;
pub mod completion_queue;
pub mod extended_poll;
pub mod polling;
