//! What programs create on a device: protection domains, memory regions, queue pairs, shared receive queues.

pub mod address_handle;
pub mod advise;
pub mod completion_counter;
pub mod context;
pub mod device_memory;
pub mod extended_registration;
pub mod groups;
pub mod held;
pub mod import;
pub mod memory_window;
pub mod object;
pub mod parent_domain;
pub mod protection;
pub mod queue_pair;
pub mod shared_receive;
pub mod xrc;
