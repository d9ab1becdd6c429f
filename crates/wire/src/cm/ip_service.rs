//! Who asks for an IP service: the head of the private data of REQ and `SIDR_REQ` (InfiniBand specification, annex A11).

use super::fields::{BitField, FieldValue};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the head.
pub const IP_SERVICE_LEN: usize = 36;

const VERSION: BitField = BitField { byte: 0, bit: 0, width: 8 };
const IP_VERSION: BitField = BitField { byte: 1, bit: 0, width: 4 };
const SOURCE_PORT: BitField = BitField { byte: 2, bit: 0, width: 16 };
const SOURCE: usize = 4;
const DESTINATION: usize = 20;

/// Addresses of the two sides, as the active side sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpService {
    /// Address of the active side.
    pub source: IpAddr,
    /// Port of the active side.
    pub source_port: u16,
    /// Address of the passive side, of the same family.
    pub destination: IpAddr,
}

impl IpService {
    /// Reads the head; `None`: it is of another version, or names no family.
    pub fn parse(private_data: &[u8]) -> Option<IpService> {
        let bytes: &[u8; IP_SERVICE_LEN] = private_data.first_chunk()?;
        if u8::read(bytes, VERSION) != 0 {
            return None;
        }
        let address = |at: usize| match u8::read(bytes, IP_VERSION) {
            4 => Some(IpAddr::V4(Ipv4Addr::from(crate::view::array::<4>(bytes, at + 12)))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(crate::view::array::<16>(bytes, at)))),
            _ => None,
        };
        Some(IpService {
            source: address(SOURCE)?,
            source_port: u16::read(bytes, SOURCE_PORT),
            destination: address(DESTINATION)?,
        })
    }

    /// The head's bytes.
    pub fn emit(&self) -> [u8; IP_SERVICE_LEN] {
        let mut bytes = [0; IP_SERVICE_LEN];
        let version: u8 = if self.source.is_ipv4() { 4 } else { 6 };
        version.write(&mut bytes, IP_VERSION);
        self.source_port.write(&mut bytes, SOURCE_PORT);
        for (at, address) in [(SOURCE, self.source), (DESTINATION, self.destination)] {
            match address {
                IpAddr::V4(address) => bytes[at + 12..][..4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => bytes[at..][..16].copy_from_slice(&address.octets()),
            }
        }
        bytes
    }
}
