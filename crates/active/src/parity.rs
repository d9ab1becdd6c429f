//! XOR parity of the checkpoints of several processes, in memory (PAPERS AA-13).
//!
//! Each member puts its checkpoint to the owner of the parity, whose handler XORs it. A member that dies is rebuilt from the parity and
//! the checkpoints of the others. Nothing is written to a disk.
//!
//! The owner keeps the parity of two rounds, and each member its own checkpoint of two rounds. So a death in the midst of a round leaves
//! the round before.

mod error;
mod layout;
mod member;
mod owner;

pub use error::ParityError;
pub use member::{ParityMember, Rebuilt};
pub use owner::Parity;
