//! Tokens: what names exported memory to other processes.

use crate::regions::rights::Rights;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

/// Names exported memory: which node has it, by which key, how much, and what may be done with it.
///
/// A token is plain bytes of a fixed size. It may be sent by any means: whoever holds it can [open](crate::Node::open) it. It is valid
/// until its owner [unexports](crate::Node::unexport) it, or the region that it names ends.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Node, Rights, Token};
/// let node = Node::alone()?;
/// let region = node.zeroed::<u64>(512)?;
/// let token = region.export(Rights::READ)?;
/// let bytes: [u8; Token::LEN] = token.to_bytes();
/// assert_eq!(Token::from_bytes(&bytes)?, token);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    pub(crate) node: NodeAddress,
    pub(crate) rights: Rights,
    pub(crate) key: u32,
    /// Address of the first byte in the owner's process.
    pub(crate) base: u64,
    pub(crate) length: u64,
}

/// Where a node takes connections, and a number that only holders of its tokens know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[doc(hidden)] // For the simulator.
pub struct NodeAddress {
    pub address: IpAddr,
    pub port: u16,
    pub nonce: u64,
}

impl NodeAddress {
    pub(crate) fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// Another process's node, or this one's own, by its address. [`Node::peer`](crate::Node::peer) gives those of the job, and
/// [`Token::owner`](crate::Token::owner) that which made a token.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Peer};
/// # let node = Node::alone()?;
/// let peer = node.identity();
/// println!("{peer}"); // its address and port
/// assert_eq!(Peer::from_bytes(&peer.to_bytes())?, peer);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub(crate) NodeAddress);

impl Peer {
    /// Bytes of it.
    pub const LEN: usize = Token::LEN;

    /// The peer as bytes, to be sent by any means.
    pub fn to_bytes(&self) -> [u8; Peer::LEN] {
        Token::of_node(self.0).to_bytes()
    }

    /// The peer that these bytes are.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Peer, TokenError> {
        Token::from_bytes(bytes).map(|token| token.owner())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.socket(), formatter)
    }
}

/// Why bytes are no token.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Token, TokenError};
/// assert_eq!(Token::from_bytes(b"token"), Err(TokenError::Length(5)));
/// assert_eq!(Token::from_bytes(&[0; Token::LEN]), Err(TokenError::Magic));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There are not [`Token::LEN`] of them.
    #[error("a token has {LEN} bytes, and these are {0}: send it whole", LEN = Token::LEN)]
    Length(usize),
    /// They do not begin as a token does.
    #[error("these bytes are no token: they do not begin as one does")]
    Magic,
    /// They are of another version of Pagewire.
    #[error(
        "the token has version {0}, and this Pagewire reads version {VERSION}: use the same version at both ends"
    )]
    Version(u8),
    /// They were changed on their way.
    #[error("the token was damaged: its checksum is wrong")]
    Checksum,
    /// The checksum is right and a field has no meaning.
    #[error("the token makes no sense: its {0} cannot be")]
    Field(&'static str),
}

const MAGIC: [u8; 2] = *b"PW";
const VERSION: u8 = 1;

/// Where each field lies. Numbers are big-endian.
mod field {
    use super::Range;

    pub const MAGIC: Range<usize> = 0..2;
    pub const VERSION: usize = 2;
    pub const RIGHTS: usize = 3;
    pub const PORT: Range<usize> = 4..6;
    pub const KEY: Range<usize> = 8..12;
    pub const CHECKSUM: Range<usize> = 12..16;
    pub const BASE: Range<usize> = 16..24;
    pub const LENGTH: Range<usize> = 24..32;
    pub const ADDRESS: Range<usize> = 32..48;
    pub const NONCE: Range<usize> = 48..56;
}

impl Token {
    /// Bytes of a token.
    pub const LEN: usize = 56;

    /// A token that names a node, and no memory of it.
    pub(crate) fn of_node(node: NodeAddress) -> Token {
        Token { node, rights: Rights::empty(), key: 0, base: 0, length: 0 }
    }

    /// A token that gives the right to put, for the simulator.
    #[doc(hidden)] // For the simulator.
    pub fn of_memory(node: NodeAddress, key: u32, base: u64, length: u64) -> Token {
        Token { rights: Rights::WRITE, key, base, length, ..Token::of_node(node) }
    }

    /// Where its memory lies at its owner, and its key.
    #[doc(hidden)] // For the simulator, and for applications over `raw`.
    pub fn memory(&self) -> (u64, u32) {
        (self.base, self.key)
    }

    /// The token as bytes.
    pub fn to_bytes(&self) -> [u8; Token::LEN] {
        let mut bytes = [0; Token::LEN];
        let address = match self.node.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        bytes[field::MAGIC].copy_from_slice(&MAGIC);
        bytes[field::VERSION] = VERSION;
        bytes[field::RIGHTS] = self.rights.bits();
        bytes[field::PORT].copy_from_slice(&self.node.port.to_be_bytes());
        bytes[field::KEY].copy_from_slice(&self.key.to_be_bytes());
        bytes[field::BASE].copy_from_slice(&self.base.to_be_bytes());
        bytes[field::LENGTH].copy_from_slice(&self.length.to_be_bytes());
        bytes[field::ADDRESS].copy_from_slice(&address.octets());
        bytes[field::NONCE].copy_from_slice(&self.node.nonce.to_be_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// The token that these bytes are.
    ///
    /// # Errors
    /// What is wrong with them. That a token is well formed does not say that its memory is still exported: who uses it learns that.
    pub fn from_bytes(bytes: &[u8]) -> Result<Token, TokenError> {
        let Ok(mut bytes) = <[u8; Token::LEN]>::try_from(bytes) else {
            return Err(TokenError::Length(bytes.len()));
        };
        if bytes[field::MAGIC] != MAGIC {
            return Err(TokenError::Magic);
        }
        if bytes[field::VERSION] != VERSION {
            return Err(TokenError::Version(bytes[field::VERSION]));
        }
        let checksum = number(&bytes, field::CHECKSUM);
        bytes[field::CHECKSUM].fill(0);
        if u64::from(crc32fast::hash(&bytes)) != checksum {
            return Err(TokenError::Checksum);
        }
        let rights = Rights::from_bits(bytes[field::RIGHTS]).ok_or(TokenError::Field("rights"))?;
        let (base, length) = (number(&bytes, field::BASE), number(&bytes, field::LENGTH));
        if base.checked_add(length).is_none() {
            return Err(TokenError::Field("length"));
        }
        let mut octets = [0; 16];
        octets.copy_from_slice(&bytes[field::ADDRESS]);
        let address = Ipv6Addr::from(octets);
        let node = NodeAddress {
            address: address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
            port: number(&bytes, field::PORT) as u16,
            nonce: number(&bytes, field::NONCE),
        };
        Ok(Token { node, rights, key: number(&bytes, field::KEY) as u32, base, length })
    }

    /// The node that made it.
    pub fn owner(&self) -> Peer {
        Peer(self.node)
    }

    /// Bytes of the memory that it names.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What may be done with it.
    pub fn rights(&self) -> Rights {
        self.rights
    }
}

fn number(bytes: &[u8; Token::LEN], field: Range<usize>) -> u64 {
    bytes[field].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
