//! Who does the work: rounds and timers, the turn of one queue pair, what comes in, and the fast path.

pub mod datagram;
pub mod engine;
pub mod fast_path;
pub mod initiator;
pub mod management;
pub mod packets;
pub mod qp_progress;
pub mod ring_rx;
pub mod transport_ops;
pub mod udp_rx;
pub mod workers;
