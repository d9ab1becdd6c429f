//! Who does the work: rounds and timers, the turn of one queue pair, what comes in, and the fast path.

pub mod arriving_burst;
pub mod datagram_rx;
pub mod datagram_tx;
pub mod ended;
pub mod engine;
pub mod initiator;
pub mod management;
pub mod qp_progress;
pub mod ring_rx;
pub mod short_receive;
pub mod short_send;
pub mod transport_ops;
pub mod udp_rx;
pub mod workers;
