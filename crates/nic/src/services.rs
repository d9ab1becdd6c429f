//! What all objects of one process need: its devices, tables, lists and counters. Nothing here knows a queue pair's protocol.

pub mod address_handle;
pub mod context;
pub mod counters;
pub mod device;
pub mod event;
pub mod fault_counts;
pub mod protection;
pub mod queue_pairs;
pub mod ready;
pub mod send_budget;
pub mod thread_domain;
