//! Messages of communication management (InfiniBand specification, volume 1, chapter 12), as the connection managers of two hosts send them
//! to each other's queue pair 1.
//!
//! [`CmDatagram::parse`] and [`CmDatagram::emit`] are the entry points. Formats alone: which message answers which stands in `pagewire-cm`.

mod connection;
mod fields;
mod ip_service;
mod port_query;
mod service;

pub use connection::{Drep, Dreq, Mra, Rej, Rep, Req, Rtu};
pub use ip_service::{IP_SERVICE_LEN, IpService};
pub use port_query::{PORT_QUERY_MARK, PortAnswer, PortQuery};
pub use service::{SidrRep, SidrReq};

use crate::packet::{DIRECT_PORTS, PORT};
use crate::view::{array, get_u16, get_u32};

/// Bytes of a management datagram (section 13.4.2).
pub const DATAGRAM_LEN: usize = 256;
/// Bytes of the message in it.
const MESSAGE_LEN: usize = DATAGRAM_LEN - field::MESSAGE;
/// The queue pair of general services (section 3.9.4).
pub const QUEUE_PAIR: u32 = 1;
/// The Q_Key of queue pair 1 (section 10.2.5).
pub const QUEUE_KEY: u32 = 0x8001_0000;

/// `BaseVersion`, `MgmtClass` of communication management, and its version (sections 13.4.4 and 12.6).
const CLASS: [u8; 3] = [1, 0x07, 2];

/// What a datagram is (section 13.4.5).
mod method {
    pub const GET: u8 = 0x01;
    pub const SEND: u8 = 0x03;
    pub const GET_RESP: u8 = 0x81;
}

/// The upper half of the transaction of messages between two Pagewires: "PWCM". A kernel's is the number of its client, less than 2^24. The
/// communication IDs of both sides begin with blocks of queue pair numbers then.
const PAGEWIRES: u64 = 0x5057_434D;

mod field {
    pub const METHOD: usize = 3;
    pub const STATUS: usize = 4;
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
    /// Why a Get was not carried out (section 13.4.7); 0: it was, or the datagram is none that answers one.
    pub status: u16,
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
            fn read(kind: (u8, u16), message: &[u8; MESSAGE_LEN]) -> Option<CmMessage> {
                match kind {
                    $(($name::METHOD, $name::ATTRIBUTE) => Some($name::read(message).into()),)*
                    _ => None,
                }
            }

            fn write(&self, message: &mut [u8; MESSAGE_LEN]) -> (u8, u16) {
                match self {
                    $(CmMessage::$name(this) => {
                        this.write(message);
                        ($name::METHOD, $name::ATTRIBUTE)
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

all_messages! { Req Mra Rej Rep Rtu Dreq Drep SidrReq SidrRep PortQuery PortAnswer }

impl CmDatagram {
    /// A datagram without options.
    pub fn new(transaction: u64, message: impl Into<CmMessage>) -> CmDatagram {
        CmDatagram { transaction, modifier: 0, status: 0, message: message.into() }
    }

    /// Reads the payload of a datagram to queue pair 1; `None`: it is not of communication management, or of a message that is not known
    /// (LAP and APR: there are no alternate paths).
    pub fn parse(payload: &[u8]) -> Option<CmDatagram> {
        let bytes: &[u8; DATAGRAM_LEN] = payload.try_into().ok()?;
        if bytes[..CLASS.len()] != CLASS {
            return None;
        }
        let kind = (bytes[field::METHOD], get_u16(bytes, field::ATTRIBUTE));
        let message = CmMessage::read(kind, bytes.last_chunk()?)?;
        let (mark, status) = match &message {
            CmMessage::PortQuery(query) => (query.mark, 0),
            CmMessage::PortAnswer(answer) => (answer.mark, get_u16(bytes, field::STATUS)),
            _ => (PORT_QUERY_MARK, 0),
        };
        let transaction = u64::from_be_bytes(array(bytes, field::TRANSACTION));
        let modifier = get_u32(bytes, field::MODIFIER);
        (mark == PORT_QUERY_MARK).then_some(CmDatagram { transaction, modifier, status, message })
    }

    /// The payload of the datagram.
    pub fn emit(&self) -> [u8; DATAGRAM_LEN] {
        let mut message = [0; MESSAGE_LEN];
        let (method, attribute) = self.message.write(&mut message);
        let mut bytes = [0; DATAGRAM_LEN];
        bytes[..CLASS.len()].copy_from_slice(&CLASS);
        bytes[field::METHOD] = method;
        bytes[field::STATUS..][..2].copy_from_slice(&self.status.to_be_bytes());
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
            CmMessage::PortQuery(query) => query.answer(0).into(),
            _ => return None,
        };
        Some(CmDatagram::new(self.transaction, answer))
    }

    /// Whose the message is: the communication ID that its receiver gave to the connection, or to its request for a service. `None`: it
    /// begins something, or its sender does not know the ID.
    pub fn receiver_comm_id(&self) -> Option<u32> {
        match &self.message {
            CmMessage::Req(_) | CmMessage::SidrReq(_) | CmMessage::PortQuery(_) => None,
            CmMessage::Mra(mra) => Some(mra.remote_comm_id),
            CmMessage::Rej(rej) => Some(rej.remote_comm_id).filter(|id| *id != 0),
            CmMessage::Rep(rep) => Some(rep.remote_comm_id),
            CmMessage::Rtu(rtu) => Some(rtu.remote_comm_id),
            CmMessage::Dreq(dreq) => Some(dreq.remote_comm_id),
            CmMessage::Drep(drep) => Some(drep.remote_comm_id),
            CmMessage::SidrRep(answer) => Some(answer.request_id),
            CmMessage::PortAnswer(answer) => Some(answer.remote_comm_id),
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
            CmMessage::Req(_)
            | CmMessage::Rej(_)
            | CmMessage::SidrReq(_)
            | CmMessage::SidrRep(_)
            | CmMessage::PortQuery(_)
            | CmMessage::PortAnswer(_) => None,
        }
    }

    /// The transaction of messages between two Pagewires that is this side's own.
    pub fn transaction_of_pagewires(comm_id: u32) -> u64 {
        PAGEWIRES << 32 | u64::from(comm_id)
    }

    /// UDP port at which the receiver takes the message: that which its communication ID begins with, if it is a Pagewire with direct ports, and
    /// else 4791. Who begins something knows where to by a [`PortAnswer`].
    pub fn udp_port(&self) -> u16 {
        let is_to_pagewire =
            self.transaction >> 32 == PAGEWIRES || matches!(self.message, CmMessage::PortAnswer(_));
        let block = self.receiver_comm_id().filter(|_| is_to_pagewire).map(|comm_id| (comm_id >> 16) as u16);
        block.filter(|block| DIRECT_PORTS.contains(block)).unwrap_or(PORT)
    }

    /// The service that the message asks for, or no longer asks for: a REJ that gives up a REQ names no ID of its receiver (section
    /// 12.6.7.2), and Pagewire's tell the service behind the GUID.
    pub fn service_id(&self) -> Option<u64> {
        match &self.message {
            CmMessage::Req(req) => Some(req.service_id),
            CmMessage::SidrReq(req) => Some(req.service_id),
            CmMessage::PortQuery(query) => Some(query.service_id),
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

    /// A sent datagram with this attribute, each byte of whose message is another.
    fn datagram(attribute: u16) -> [u8; DATAGRAM_LEN] {
        let mut bytes: [u8; DATAGRAM_LEN] = std::array::from_fn(|at| at as u8);
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
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
        assert_eq!(
            bytes[..24],
            [&[1, 7, 2, 3][..], &[0; 4], &datagram(0x10)[8..16], &[0, 0x12], &[0; 6]].concat()
        );
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
    fn port_query_is_a_get_that_a_kernel_answers() {
        let query = PortQuery { mark: PORT_QUERY_MARK, local_comm_id: 0xF012_3456, service_id: 0x0106_1C06 };
        let sent = CmDatagram::new(0x1122_3344_5566_7788, query.clone());
        let bytes = sent.emit();
        // Get of ClassPortInfo.
        assert_eq!((&bytes[..8], &bytes[16..18]), (&[1, 7, 2, 1, 0, 0, 0, 0][..], &[0, 1][..]));
        // Behind the 72 bytes of the attribute.
        assert!(bytes[20..96].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[96..112], *b"PWPQ\xF0\x12\x34\x56\0\0\0\0\x01\x06\x1C\x06");
        assert_eq!((sent.receiver_comm_id(), sent.service_id()), (None, Some(0x0106_1C06)));
        assert_eq!((CmDatagram::parse(&bytes), sent.udp_port()), (Some(sent.clone()), PORT));
        // A kernel makes the request a GetResp, with the status of what it does not support.
        let mut bytes = bytes;
        (bytes[3], bytes[5]) = (0x81, 0x0C);
        let answer = CmDatagram::parse(&bytes).expect("an answer");
        assert_eq!((answer.transaction, answer.status), (sent.transaction, 0x0C));
        assert_eq!((answer.receiver_comm_id(), answer.service_id()), (Some(0xF012_3456), None));
        assert_eq!((answer.emit(), answer.refusal()), (bytes, None));
        // Nobody owns the port.
        let nobody = CmDatagram::new(sent.transaction, query.answer(0));
        assert_eq!((sent.refusal(), nobody.udp_port()), (Some(nobody), 0xF012));
        // What somebody else asks for.
        bytes[96] = 0;
        assert_eq!(CmDatagram::parse(&bytes), None);
    }

    #[test]
    fn messages_between_pagewires_go_to_direct_ports() {
        let rtu = |transaction, remote_comm_id| {
            CmDatagram::new(transaction, Rtu { remote_comm_id, ..Rtu::default() }).udp_port()
        };
        let own = CmDatagram::transaction_of_pagewires(9);
        assert_eq!(
            (rtu(own, 0xF012_3456), rtu(own, 0xEFFF_3456), rtu(own, 0xFFFF_3456)),
            (0xF012, PORT, PORT)
        );
        // A kernel's number of the client, and communication ID.
        assert_eq!(rtu(7 << 32 | 0xF012_3456, 0xF012_3456), PORT);
        let req = Req { local_comm_id: 0xF012_3456, ..Req::default() };
        let refusal = CmDatagram::new(CmDatagram::transaction_of_pagewires(9), req).refusal();
        assert_eq!(refusal.expect("a REJ").udp_port(), 0xF012);
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
