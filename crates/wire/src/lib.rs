//! RoCEv2 packets: checked views, plain values, the ICRC, and Pagewire's own opcodes.
//!
//! Every format of InfiniBand is one file with a `Packet` (a view over any bytes, checked for length once, when it
//! is made) and a plain value that parses from and emits into it. [`PacketHeader`] puts together what
//! stands between the UDP header and the payload; [`packet`] is the whole UDP payload, and
//! [`datagram`] the IP datagram around it, whose headers [`etherparse`] reads and writes.
//!
//! This crate does no I/O, knows no clock, allocates nothing, and never panics on what it parses.
#![forbid(unsafe_code)]

pub mod aeth;
pub mod atomic_ack_eth;
pub mod atomic_eth;
pub mod bth;
pub mod cm;
pub mod cnp;
pub mod datagram;
pub mod deth;
mod error;
pub mod feth;
pub mod grh;
mod header;
pub mod icrc;
pub mod ieth;
pub mod imm_dt;
pub mod limits;
pub mod opcode;
pub mod packet;
pub mod reth;
pub mod vendor;
mod view;
pub mod xrceth;

pub use aeth::{Aeth, Nak, Syndrome};
pub use atomic_eth::AtomicEth;
pub use bth::Bth;
pub use deth::Deth;
pub use error::Error;
pub use etherparse;
pub use feth::Feth;
pub use header::PacketHeader;
pub use icrc::Icrc;
pub use opcode::{Extensions, Opcode, PacketOperation, Transport};
pub use packet::Packet;
pub use reth::Reth;
pub use vendor::{
    Capabilities, Echo, Hello, Hold, HoldFlags, Received, Resume, SelectiveAck, Skip, VendorPacket,
};
