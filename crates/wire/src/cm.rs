//! Messages of communication management (InfiniBand specification, volume 1, chapter 12), as the connection managers of two hosts send them
//! to each other's queue pair 1.
//!
//! [`CmDatagram::parse`] and [`CmDatagram::emit`] are the entry points. Formats alone: which message answers which stands in `pagewire-cm`.

mod connection;
mod fields;
mod ip_service;
mod service;

pub use connection::{Drep, Dreq, Mra, Rej, Rep, Req, Rtu};
pub use ip_service::{IP_SERVICE_LEN, IpService};
pub use service::{SidrRep, SidrReq};

use crate::view::{array, get_u16, get_u32};

/// Bytes of a management datagram (section 13.4.2).
pub const DATAGRAM_LEN: usize = 256;
/// Bytes of the message in it.
const MESSAGE_LEN: usize = DATAGRAM_LEN - field::MESSAGE;
/// The queue pair of general services (section 3.9.4).
pub const QUEUE_PAIR: u32 = 1;
/// The Q_Key of queue pair 1 (section 10.2.5).
pub const QUEUE_KEY: u32 = 0x8001_0000;

/// `BaseVersion`, `MgmtClass` of communication management, its version, and the method Send (sections 13.4.4 and 12.6).
const CLASS: [u8; 4] = [1, 0x07, 2, 0x03];

mod field {
    pub const TRANSACTION: usize = 8;
    pub const ATTRIBUTE: usize = 16;
    pub const MODIFIER: usize = 20;
    /// The message after the common header (section 12.6.2).
    pub const MESSAGE: usize = 24;
}

/// Reasons of a REJ (section 12.6.7.2) that Pagewire sends or has a meaning for.
pub mod reject {
    /// The active side gives up.
    pub const TIMEOUT: u16 = 4;
    /// The `Remote Communication ID` names no connection.
    pub const INVALID_COMM_ID: u16 = 6;
    /// Nobody listens for the service.
    pub const INVALID_SERVICE_ID: u16 = 8;
    /// The queue pair of the REQ is that of a connection which the passive side has.
    pub const STALE_CONNECTION: u16 = 10;
    /// The GID of the REQ is none of the passive side.
    pub const INVALID_GID: u16 = 12;
    /// The program refuses.
    pub const CONSUMER_DEFINED: u16 = 28;
}

/// States of a `SIDR_REP` (section 12.11.2).
pub mod sidr_status {
    /// The queue pair is valid.
    pub const VALID: u8 = 0;
    /// Nobody listens for the service.
    pub const NOT_SUPPORTED: u8 = 1;
    /// The program refuses.
    pub const REJECTED: u8 = 2;
}

/// A datagram of communication management.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CmDatagram {
    /// `TransactionID`: an answer repeats that of the request. Nobody checks it.
    pub transaction: u64,
    /// `AttributeModifier`: options of enhanced connection establishment; 0: none.
    pub modifier: u32,
    /// What it says.
    pub message: CmMessage,
}

macro_rules! all_messages {
    ($($name:ident)*) => {
        /// A message.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each holds the message of its name")]
        pub enum CmMessage {
            $($name($name),)*
        }

        $(impl From<$name> for CmMessage {
            fn from(message: $name) -> Self {
                CmMessage::$name(message)
            }
        })*

        impl CmMessage {
            fn read(attribute: u16, message: &[u8; MESSAGE_LEN]) -> Option<CmMessage> {
                match attribute {
                    $($name::ATTRIBUTE => Some($name::read(message).into()),)*
                    _ => None,
                }
            }

            fn write(&self, message: &mut [u8; MESSAGE_LEN]) -> u16 {
                match self {
                    $(CmMessage::$name(this) => {
                        this.write(message);
                        $name::ATTRIBUTE
                    })*
                }
            }

            /// What the specification calls it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(CmMessage::$name(_) => stringify!($name),)*
                }
            }
        }
    };
}

all_messages! { Req Mra Rej Rep Rtu Dreq Drep SidrReq SidrRep }

impl CmDatagram {
    /// A datagram without options.
    pub fn new(transaction: u64, message: impl Into<CmMessage>) -> CmDatagram {
        CmDatagram { transaction, modifier: 0, message: message.into() }
    }

    /// Reads the payload of a datagram to queue pair 1; `None`: it is not of communication management, or of a message that is not known
    /// (LAP and APR: there are no alternate paths).
    pub fn parse(payload: &[u8]) -> Option<CmDatagram> {
        let bytes: &[u8; DATAGRAM_LEN] = payload.try_into().ok()?;
        if bytes[..CLASS.len()] != CLASS {
            return None;
        }
        let message = bytes.last_chunk::<MESSAGE_LEN>()?;
        Some(CmDatagram {
            transaction: u64::from_be_bytes(array(bytes, field::TRANSACTION)),
            modifier: get_u32(bytes, field::MODIFIER),
            message: CmMessage::read(get_u16(bytes, field::ATTRIBUTE), message)?,
        })
    }

    /// The payload of the datagram.
    pub fn emit(&self) -> [u8; DATAGRAM_LEN] {
        let mut message = [0; MESSAGE_LEN];
        let attribute = self.message.write(&mut message);
        let mut bytes = [0; DATAGRAM_LEN];
        bytes[..CLASS.len()].copy_from_slice(&CLASS);
        bytes[field::TRANSACTION..][..8].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[field::ATTRIBUTE..][..2].copy_from_slice(&attribute.to_be_bytes());
        bytes[field::MODIFIER..][..4].copy_from_slice(&self.modifier.to_be_bytes());
        bytes[field::MESSAGE..].copy_from_slice(&message);
        bytes
    }

    /// The answer of a host that knows neither the service nor the connection; `None`: none is due. Whoever asks need not wait for the last
    /// repetition. A REJ of a REQ has no `Local Communication ID` of its own (section 12.6.7).
    pub fn refusal(&self) -> Option<CmDatagram> {
        let answer: CmMessage = match &self.message {
            CmMessage::Req(req) => Rej {
                remote_comm_id: req.local_comm_id,
                reason: reject::INVALID_SERVICE_ID,
                ..Rej::default()
            }
            .into(),
            CmMessage::SidrReq(req) => SidrRep {
                request_id: req.request_id,
                status: sidr_status::NOT_SUPPORTED,
                service_id: req.service_id,
                ..SidrRep::default()
            }
            .into(),
            CmMessage::Rep(rep) => Rej {
                local_comm_id: rep.remote_comm_id,
                remote_comm_id: rep.local_comm_id,
                message: 1,
                reason: reject::INVALID_COMM_ID,
                ..Rej::default()
            }
            .into(),
            CmMessage::Dreq(dreq) => Drep {
                local_comm_id: dreq.remote_comm_id,
                remote_comm_id: dreq.local_comm_id,
                ..Drep::default()
            }
            .into(),
            _ => return None,
        };
        Some(CmDatagram::new(self.transaction, answer))
    }

    /// Whose the message is: the communication ID that its receiver gave to the connection, or to its request for a service. `None`: it
    /// begins something, or its sender does not know the ID.
    pub fn receiver_comm_id(&self) -> Option<u32> {
        match &self.message {
            CmMessage::Req(_) | CmMessage::SidrReq(_) => None,
            CmMessage::Mra(mra) => Some(mra.remote_comm_id),
            CmMessage::Rej(rej) => Some(rej.remote_comm_id).filter(|id| *id != 0),
            CmMessage::Rep(rep) => Some(rep.remote_comm_id),
            CmMessage::Rtu(rtu) => Some(rtu.remote_comm_id),
            CmMessage::Dreq(dreq) => Some(dreq.remote_comm_id),
            CmMessage::Drep(drep) => Some(drep.remote_comm_id),
            CmMessage::SidrRep(answer) => Some(answer.request_id),
        }
    }

    /// The communication ID that its sender gave to the connection. `None`: the message has none, or its sender need not know the connection.
    pub fn sender_comm_id(&self) -> Option<u32> {
        match &self.message {
            CmMessage::Mra(mra) => Some(mra.local_comm_id),
            CmMessage::Rep(rep) => Some(rep.local_comm_id),
            CmMessage::Rtu(rtu) => Some(rtu.local_comm_id),
            CmMessage::Dreq(dreq) => Some(dreq.local_comm_id),
            CmMessage::Drep(drep) => Some(drep.local_comm_id),
            CmMessage::Req(_) | CmMessage::Rej(_) | CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => None,
        }
    }

    /// The service that the message asks for, or no longer asks for: a REJ that gives up a REQ names no ID of its receiver (section
    /// 12.6.7.2), and Pagewire's tell the service behind the GUID.
    pub fn service_id(&self) -> Option<u64> {
        match &self.message {
            CmMessage::Req(req) => Some(req.service_id),
            CmMessage::SidrReq(req) => Some(req.service_id),
            CmMessage::Rej(rej) if rej.reason == reject::TIMEOUT && rej.information_length >= 16 => {
                rej.information[8..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv6Addr};

    /// A datagram with this attribute, each byte of whose message is another.
    fn datagram(attribute: u16) -> [u8; DATAGRAM_LEN] {
        let mut bytes: [u8; DATAGRAM_LEN] = std::array::from_fn(|at| at as u8);
        bytes[..4].copy_from_slice(&CLASS);
        bytes[4..8].fill(0);
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[18..20].fill(0);
        bytes
    }

    #[test]
    fn req_fields_stand_where_the_specification_has_them() {
        let read = CmDatagram::parse(&datagram(0x10)).expect("a REQ");
        assert_eq!((read.transaction, read.modifier), (0x0809_0a0b_0c0d_0e0f, 0x1415_1617));
        let CmMessage::Req(req) = read.message else { panic!("{read:?}") };
        // A message begins at byte 24 = 0x18, whose value is its place.
        assert_eq!(req.local_comm_id, 0x1819_1a1b);
        assert_eq!(req.service_id, 0x2021_2223_2425_2627);
        assert_eq!((req.queue_pair, req.responder_resources), (0x0038_393a, 0x3b));
        assert_eq!((req.starting_psn, req.partition), (0x0044_4546, 0x4849));
        // 0x47 = 01000 111, 0x4a = 0100 1 010, 0x4b = 0100 1 011, 0x43 = 01000 01 1.
        assert_eq!((req.local_response_timeout, req.retry_count), (0b01000, 0b111));
        assert_eq!((req.mtu, req.rnr_retry_count), (0b0100, 0b010));
        assert_eq!((req.max_cm_retries, req.has_srq, req.extended_transport), (0b0100, true, 0b011));
        assert_eq!((req.remote_response_timeout, req.transport, req.flow_control), (0b01000, 0b01, true));
        // 0x70 0x71 0x72 0x73: 20 bits of flow label, 4 reserved, 2 reserved, 6 of rate.
        assert_eq!((req.flow_label, req.rate), (0x70717, 0b11_0011));
        assert_eq!((req.traffic_class, req.hop_limit, req.ack_timeout), (0x74, 0x75, 0x77 >> 3));
        assert_eq!((req.local_gid[0], req.remote_gid[0], req.private_data[0]), (0x50, 0x60, 0xa4));
    }

    #[test]
    fn refusals_name_the_request_and_are_not_refused() {
        let refused = CmDatagram::parse(&datagram(0x10)).and_then(|read| read.refusal()).expect("a REJ");
        let bytes = refused.emit();
        assert_eq!(bytes[..24], [&CLASS[..], &[0; 4], &datagram(0x10)[8..16], &[0, 0x12], &[0; 6]].concat());
        // No Local Communication ID, the requester's as the Remote one; REQ; reason 8.
        assert_eq!(bytes[24..36], [0, 0, 0, 0, 0x18, 0x19, 0x1a, 0x1b, 0, 0, 0, 8]);
        assert!(bytes[36..].iter().all(|byte| *byte == 0));
        assert_eq!(refused.refusal(), None);
        let refused = CmDatagram::parse(&datagram(0x17)).and_then(|read| read.refusal()).expect("a SIDR_REP");
        let bytes = refused.emit();
        assert_eq!(bytes[16..18], [0, 0x18]);
        assert_eq!(bytes[24..29], [0x18, 0x19, 0x1a, 0x1b, 1]);
        assert_eq!(bytes[36..44], datagram(0x17)[32..40]);
        assert_eq!(refused.refusal(), None);
    }

    #[test]
    fn ip_service_has_ipv4_in_the_last_bytes() {
        let service = IpService {
            source: [192, 0, 2, 1].into(),
            source_port: 7174,
            destination: [192, 0, 2, 9].into(),
        };
        let bytes = service.emit();
        assert_eq!((bytes[0], bytes[1], &bytes[2..4]), (0, 0x40, &7174_u16.to_be_bytes()[..]));
        assert_eq!((&bytes[16..20], &bytes[32..36]), (&[192, 0, 2, 1][..], &[192, 0, 2, 9][..]));
        assert_eq!(IpService::parse(&bytes), Some(service));
        let six = IpService {
            source: Ipv6Addr::LOCALHOST.into(),
            destination: Ipv6Addr::from(7).into(),
            ..service
        };
        assert_eq!(IpService::parse(&six.emit()), Some(six));
        let mut other_version = bytes;
        other_version[0] = 1;
        assert_eq!((IpService::parse(&other_version), IpService::parse(&bytes[..35])), (None, None));
        assert!(matches!(service.source, IpAddr::V4(_)));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = CmDatagram::parse(&bytes);
            let _ = IpService::parse(&bytes);
        }

        #[test]
        fn what_is_parsed_is_emitted_again(attribute in 0x10..=0x18_u16, message: [u64; 29]) {
            let mut bytes = datagram(attribute);
            for (at, word) in message.iter().enumerate() {
                bytes[24 + 8 * at..][..8].copy_from_slice(&word.to_be_bytes());
            }
            // Reserved fields come back as zeros: once emitted, nothing changes any more.
            let read = CmDatagram::parse(&bytes).expect("a message");
            let emitted = read.emit();
            prop_assert_eq!(CmDatagram::parse(&emitted), Some(read.clone()));
            prop_assert_eq!(read.emit(), emitted);
        }

        #[test]
        fn other_classes_and_methods_are_none(at in 0..4_usize, by in 1..=255_u8) {
            let mut bytes = datagram(0x10);
            bytes[at] ^= by;
            prop_assert_eq!(CmDatagram::parse(&bytes), None);
        }
    }
}
