//! Why bytes are not a packet.

use etherparse::err::{LenError, ipv4, ipv6};

use crate::Opcode;

/// Why bytes could not be parsed. Receivers drop such a packet silently and count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer bytes than the format (or its own length field) calls for.
    #[error("truncated: {have} bytes where {need} are needed")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// A length field contradicts the bytes or breaks a rule of its format.
    #[error("a length field does not fit the packet")]
    Length,
    /// The version field holds a version that is not known here.
    #[error("unknown version {0}")]
    Version(u8),
    /// The opcode is reserved, or of a transport that is not supported.
    #[error("opcode {0} is not known")]
    Opcode(Opcode),
    /// The pad count is more than the bytes behind the headers, or the packet is no multiple of
    /// four bytes.
    #[error("the padding does not fit the packet")]
    Padding,
    /// The IPv4 header checksum is wrong.
    #[error("wrong IPv4 header checksum")]
    Checksum,
    /// An IP datagram that is a fragment, or does not carry UDP.
    #[error("not an unfragmented UDP datagram")]
    Protocol,
    /// The invariant CRC is wrong.
    #[error("wrong invariant CRC")]
    Icrc,
}

impl From<LenError> for Error {
    fn from(error: LenError) -> Error {
        Error::Truncated { need: error.required_len, have: error.len }
    }
}

impl From<ipv4::HeaderSliceError> for Error {
    fn from(error: ipv4::HeaderSliceError) -> Error {
        use ipv4::HeaderError;
        match error {
            ipv4::HeaderSliceError::Len(error) => error.into(),
            ipv4::HeaderSliceError::Content(HeaderError::UnexpectedVersion { version_number }) => {
                Error::Version(version_number)
            }
            ipv4::HeaderSliceError::Content(HeaderError::HeaderLengthSmallerThanHeader { .. }) => {
                Error::Length
            }
        }
    }
}

impl From<ipv6::HeaderSliceError> for Error {
    fn from(error: ipv6::HeaderSliceError) -> Error {
        match error {
            ipv6::HeaderSliceError::Len(error) => error.into(),
            ipv6::HeaderSliceError::Content(ipv6::HeaderError::UnexpectedVersion { version_number }) => {
                Error::Version(version_number)
            }
        }
    }
}
