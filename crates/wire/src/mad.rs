//! Management datagrams of communication management (InfiniBand specification, volume 1, sections 12.6 and 13.4): the requests that
//! ask queue pair 1 for a connection, and how they are refused.

use crate::view::{array, get_u16, get_u32};

/// Bytes of a management datagram (section 13.4.2).
pub const LEN: usize = 256;
/// The queue pair of general services (section 3.9.4).
pub const QUEUE_PAIR: u32 = 1;
/// The Q_Key of queue pair 1 (section 10.2.5).
pub const QUEUE_KEY: u32 = 0x8001_0000;

/// `MgmtClass` of communication management, its version, and the method Send (sections 13.4.4 and 12.6).
const CLASS: [u8; 4] = [1, 0x07, 2, 0x03];

mod field {
    pub const TRANSACTION: usize = 8;
    pub const ATTRIBUTE: usize = 16;
    /// The message behind the common header (section 12.6.2).
    pub const MESSAGE: usize = 24;
}

mod attribute {
    pub const REQ: u16 = 0x10;
    pub const REJ: u16 = 0x12;
    pub const SIDR_REQ: u16 = 0x17;
    pub const SIDR_REP: u16 = 0x18;
}

/// Reason of a REJ: nobody listens for the service (section 12.6.7.2).
const INVALID_SERVICE_ID: u16 = 8;
/// Status of a `SIDR_REP`: the service is not supported (section 12.11.2).
const SERVICE_NOT_SUPPORTED: u8 = 1;

/// What asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagementRequest {
    /// REQ: for a connection (section 12.6.5).
    Connection {
        /// Of the datagram.
        transaction: [u8; 8],
        /// `Local Communication ID` of who asks.
        communication: u32,
    },
    /// `SIDR_REQ`: for the queue pair of a UD service (section 12.11.1).
    Service {
        /// Of the datagram.
        transaction: [u8; 8],
        /// `RequestID`.
        request: u32,
        /// `ServiceID`.
        service: [u8; 8],
    },
}

impl ManagementRequest {
    /// Reads the payload of a datagram to queue pair 1; `None`: it asks for neither.
    pub fn parse(bytes: &[u8]) -> Option<ManagementRequest> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        if bytes[..CLASS.len()] != CLASS {
            return None;
        }
        let transaction = array(bytes, field::TRANSACTION);
        let first = get_u32(bytes, field::MESSAGE);
        match get_u16(bytes, field::ATTRIBUTE) {
            attribute::REQ => Some(ManagementRequest::Connection { transaction, communication: first }),
            attribute::SIDR_REQ => Some(ManagementRequest::Service {
                transaction,
                request: first,
                service: array(bytes, field::MESSAGE + 8),
            }),
            _ => None,
        }
    }

    /// The datagram that refuses it, because nobody listens for any service: REJ (section 12.6.7), or `SIDR_REP` (section 12.11.2).
    pub fn refusal(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..CLASS.len()].copy_from_slice(&CLASS);
        let (attribute, transaction) = match self {
            ManagementRequest::Connection { transaction, .. } => (attribute::REJ, transaction),
            ManagementRequest::Service { transaction, .. } => (attribute::SIDR_REP, transaction),
        };
        bytes[field::TRANSACTION..][..8].copy_from_slice(transaction);
        bytes[field::ATTRIBUTE..][..2].copy_from_slice(&attribute.to_be_bytes());
        let message = &mut bytes[field::MESSAGE..];
        match self {
            // Its own Local Communication ID is 0, as there is none; what is rejected is a REQ, 0 again.
            ManagementRequest::Connection { communication, .. } => {
                message[4..8].copy_from_slice(&communication.to_be_bytes());
                message[10..12].copy_from_slice(&INVALID_SERVICE_ID.to_be_bytes());
            }
            ManagementRequest::Service { request, service, .. } => {
                message[..4].copy_from_slice(&request.to_be_bytes());
                message[4] = SERVICE_NOT_SUPPORTED;
                message[12..20].copy_from_slice(service);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A datagram with this attribute whose message begins with 0xA1A2A3A4 and has a service in its place.
    fn datagram(attribute: u16) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&CLASS);
        bytes[8..16].copy_from_slice(b"transact");
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[24..28].copy_from_slice(&[0xA1, 0xA2, 0xA3, 0xA4]);
        bytes[32..40].copy_from_slice(b"services");
        bytes
    }

    #[test]
    fn a_request_for_a_connection_is_rejected_for_its_service() {
        let request = ManagementRequest::parse(&datagram(0x10)).expect("a REQ");
        let refusal = request.refusal();
        assert_eq!(refusal[..24], [&CLASS[..], &[0; 4], b"transact", &[0, 0x12], &[0; 6]].concat());
        // No Local Communication ID, the requester's as the Remote one; REQ; reason 8.
        assert_eq!(refusal[24..36], [0, 0, 0, 0, 0xA1, 0xA2, 0xA3, 0xA4, 0, 0, 0, 8]);
        assert!(refusal[36..].iter().all(|byte| *byte == 0));
        assert_eq!(ManagementRequest::parse(&refusal), None, "a refusal is not answered");
    }

    #[test]
    fn a_request_for_a_service_hears_that_it_is_not_supported() {
        let refusal = ManagementRequest::parse(&datagram(0x17)).expect("a SIDR_REQ").refusal();
        assert_eq!(refusal[16..18], [0, 0x18]);
        assert_eq!(refusal[24..29], [0xA1, 0xA2, 0xA3, 0xA4, 1]);
        assert_eq!(&refusal[36..44], b"services");
        assert_eq!(ManagementRequest::parse(&refusal), None);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = ManagementRequest::parse(&bytes);
        }

        #[test]
        fn other_classes_and_methods_ask_for_nothing(at in 0..4_usize, by in 1..=255_u8) {
            let mut bytes = datagram(0x10);
            bytes[at] ^= by;
            prop_assert_eq!(ManagementRequest::parse(&bytes), None);
        }
    }
}
