//! Queue pair states and attributes, and which attributes each transition takes
//! (InfiniBand specification, volume 1, section 11.2.5.2, table 91; `ibv_modify_qp(3)`).

use crate::types::error::{Error, Result, invalid_if};
use crate::types::gid::Mtu;
use bitflags::bitflags;
use pagewire_iommu::Rights;

/// Queue pair types (values of `enum ibv_qp_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum QueuePairType {
    Rc = 2,
    Uc = 3,
    Ud = 4,
    /// The sending end of an extended reliable connection.
    XrcSend = 9,
    /// The receiving end.
    XrcReceive = 10,
}

impl QueuePairType {
    /// Whether its protocol is that of a reliable connection.
    pub fn is_reliable(self) -> bool {
        matches!(self, QueuePairType::Rc | QueuePairType::XrcSend | QueuePairType::XrcReceive)
    }

    /// Whether it is an end of an extended reliable connection.
    pub fn is_xrc(self) -> bool {
        matches!(self, QueuePairType::XrcSend | QueuePairType::XrcReceive)
    }
}

/// Queue pair states (values of `enum ibv_qp_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::FromRepr)]
#[repr(u32)]
pub enum QpState {
    #[default]
    Reset = 0,
    Init = 1,
    ReadyToReceive = 2,
    ReadyToSend = 3,
    SendQueueDrain = 4,
    SendQueueError = 5,
    Error = 6,
}

impl QpState {
    /// Whether packets of the peer are taken.
    pub fn receives(self) -> bool {
        matches!(
            self,
            QpState::ReadyToReceive
                | QpState::ReadyToSend
                | QpState::SendQueueDrain
                | QpState::SendQueueError
        )
    }
}

bitflags! {
    /// Which attributes a call gives (values of `enum ibv_qp_attr_mask`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AttributeMask: u32 {
        const STATE = 1;
        const CURRENT_STATE = 1 << 1;
        const DRAINED_NOTIFY = 1 << 2;
        const ACCESS_FLAGS = 1 << 3;
        const PKEY_INDEX = 1 << 4;
        const PORT = 1 << 5;
        const QUEUE_KEY = 1 << 6;
        const ADDRESS = 1 << 7;
        const PATH_MTU = 1 << 8;
        const TIMEOUT = 1 << 9;
        const RETRY_COUNT = 1 << 10;
        const RNR_RETRY = 1 << 11;
        const RECEIVE_PSN = 1 << 12;
        const MAX_READ_ATOMIC = 1 << 13;
        const ALTERNATE_PATH = 1 << 14;
        const MIN_RNR_TIMER = 1 << 15;
        const SEND_PSN = 1 << 16;
        const MAX_DEST_READ_ATOMIC = 1 << 17;
        const PATH_MIGRATION = 1 << 18;
        const CAPABILITIES = 1 << 19;
        const DESTINATION = 1 << 20;
        const RATE_LIMIT = 1 << 25;
    }
}

/// Where a connected queue pair's peer, or a datagram's receiver, is (`struct ibv_ah_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddressVector {
    pub destination_gid: [u8; 16],
    pub flow_label: u32,
    pub source_gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub destination_lid: u16,
    pub service_level: u8,
    pub source_path_bits: u8,
    pub static_rate: u8,
    pub is_global: bool,
    pub port: u8,
}

/// Room of a queue pair (`struct ibv_qp_cap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QpCapabilities {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $bit:ident,)*) => {
        /// What a queue pair is set to.
        #[derive(Debug, Clone, Copy, Default)]
        pub struct Attributes {
            $($(#[$doc])* pub $name: $type,)*
        }

        /// A change of a queue pair: each field stands for one bit of the attribute mask.
        #[derive(Debug, Clone, Copy, Default)]
        pub struct QueuePairChange {
            $($(#[$doc])* pub $name: Option<$type>,)*
            pub current_state: Option<QpState>,
            pub capabilities: Option<QpCapabilities>,
            /// Alternate paths and rate limits are refused.
            pub alternate_path: bool,
            pub rate_limit: bool,
        }

        impl QueuePairChange {
            /// The attributes that are given.
            pub fn mask(&self) -> AttributeMask {
                let given = [
                    $((self.$name.is_some(), AttributeMask::$bit),)*
                    (self.current_state.is_some(), AttributeMask::CURRENT_STATE),
                    (self.capabilities.is_some(), AttributeMask::CAPABILITIES),
                    (self.alternate_path, AttributeMask::ALTERNATE_PATH),
                    (self.rate_limit, AttributeMask::RATE_LIMIT),
                ];
                given.into_iter().filter(|(given, _)| *given).map(|(_, bit)| bit).collect()
            }
        }

        impl Attributes {
            /// Takes over what a checked change gives.
            pub fn apply(&mut self, change: &QueuePairChange) {
                $(self.$name = change.$name.unwrap_or(self.$name);)*
                (self.receive_psn, self.send_psn) = (self.receive_psn & 0xFF_FFFF, self.send_psn & 0xFF_FFFF);
            }
        }
    };
}

attributes! {
    state: QpState = STATE,
    access: Rights = ACCESS_FLAGS,
    pkey_index: u16 = PKEY_INDEX,
    port: u8 = PORT,
    queue_key: u32 = QUEUE_KEY,
    address: AddressVector = ADDRESS,
    path_mtu: Mtu = PATH_MTU,
    timeout: u8 = TIMEOUT,
    retry_count: u8 = RETRY_COUNT,
    rnr_retry: u8 = RNR_RETRY,
    receive_psn: u32 = RECEIVE_PSN,
    max_read_atomic: u8 = MAX_READ_ATOMIC,
    min_rnr_timer: u8 = MIN_RNR_TIMER,
    send_psn: u32 = SEND_PSN,
    max_dest_read_atomic: u8 = MAX_DEST_READ_ATOMIC,
    destination: u32 = DESTINATION,
    drained_notify: bool = DRAINED_NOTIFY,
    /// 0: migrated, 1: rearm, 2: armed.
    path_migration: u32 = PATH_MIGRATION,
}

/// The attributes a transition needs and may take; `None`: there is no such transition.
fn transition(kind: QueuePairType, from: QpState, to: QpState) -> Option<(AttributeMask, AttributeMask)> {
    use AttributeMask as A;
    use QpState::*;
    use QueuePairType::{Rc, Uc, Ud, XrcReceive, XrcSend};
    let none = A::empty();
    // What can be changed at any time while the queue pair may send.
    let sending = match kind {
        Rc | XrcReceive => A::ALTERNATE_PATH | A::ACCESS_FLAGS | A::PATH_MIGRATION | A::MIN_RNR_TIMER,
        Uc | XrcSend => A::ALTERNATE_PATH | A::ACCESS_FLAGS | A::PATH_MIGRATION,
        Ud => A::QUEUE_KEY,
    };
    let initial = A::PKEY_INDEX
        | A::PORT
        | match kind {
            Ud => A::QUEUE_KEY,
            Rc | Uc | XrcSend | XrcReceive => A::ACCESS_FLAGS,
        };
    let to_peer = A::ADDRESS | A::PATH_MTU | A::DESTINATION | A::RECEIVE_PSN;
    let of_requester = A::TIMEOUT | A::RETRY_COUNT | A::RNR_RETRY | A::MAX_READ_ATOMIC;
    Some(match (from, to) {
        (_, Reset | Error) => (none, none),
        (Reset, Init) => (initial, none),
        (Init, Init) => (none, initial),
        (Init, ReadyToReceive) => match kind {
            Rc | XrcReceive => (
                to_peer | A::MAX_DEST_READ_ATOMIC | A::MIN_RNR_TIMER,
                A::ALTERNATE_PATH | A::ACCESS_FLAGS | A::PKEY_INDEX,
            ),
            Uc => (to_peer, A::ALTERNATE_PATH | A::ACCESS_FLAGS | A::PKEY_INDEX),
            // What only a responder needs means nothing, but perftest gives it.
            XrcSend => (
                to_peer,
                A::ALTERNATE_PATH
                    | A::ACCESS_FLAGS
                    | A::PKEY_INDEX
                    | A::MAX_DEST_READ_ATOMIC
                    | A::MIN_RNR_TIMER,
            ),
            Ud => (none, A::PKEY_INDEX | A::QUEUE_KEY),
        },
        (ReadyToReceive, ReadyToSend) => match kind {
            Rc | XrcSend => (A::SEND_PSN | of_requester, sending | A::CURRENT_STATE),
            // What only a requester needs is optional for a receiver.
            XrcReceive => (A::SEND_PSN | A::TIMEOUT, sending | of_requester | A::CURRENT_STATE),
            Uc | Ud => (A::SEND_PSN, sending | A::CURRENT_STATE),
        },
        (ReadyToSend | SendQueueDrain, ReadyToSend) => (none, sending | A::CURRENT_STATE),
        (ReadyToSend, SendQueueDrain) => (none, A::DRAINED_NOTIFY),
        (SendQueueDrain, SendQueueDrain) => match kind {
            Rc | XrcSend | XrcReceive => (
                none,
                sending | of_requester | A::PORT | A::ADDRESS | A::MAX_DEST_READ_ATOMIC | A::PKEY_INDEX,
            ),
            Uc => (none, sending | A::ADDRESS | A::PKEY_INDEX),
            Ud => (none, sending | A::PKEY_INDEX),
        },
        (SendQueueError, ReadyToSend) => match kind {
            Rc | XrcSend | XrcReceive => return None,
            Uc => (none, A::CURRENT_STATE | A::ACCESS_FLAGS),
            Ud => (none, A::CURRENT_STATE | A::QUEUE_KEY),
        },
        _ => return None,
    })
}

/// Checks that a change is one that a queue pair may make; gives the state it then has.
pub fn check(kind: QueuePairType, from: QpState, change: &QueuePairChange) -> Result<QpState> {
    let assumes_another =
        |current| current != from && !(current == QpState::SendQueueError && from == QpState::ReadyToSend);
    let assumes_another = change.current_state.is_some_and(assumes_another);
    invalid_if(assumes_another, "the queue pair is not in the state that the call assumes")?;
    let to = change.state.unwrap_or(from);
    let (needed, allowed) =
        transition(kind, from, to).ok_or(Error::InvalidArgument("no such state transition"))?;
    let given = change.mask() & !AttributeMask::STATE;
    invalid_if(!given.contains(needed), "an attribute that the transition needs is missing")?;
    let is_taken = (needed | allowed).contains(given);
    invalid_if(!is_taken, "an attribute that the transition does not take is given")?;
    if change.alternate_path { Err(Error::NotSupported("alternate paths")) } else { Ok(to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rc_to_rtr() -> QueuePairChange {
        QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(AddressVector::default()),
            path_mtu: Some(Mtu::Mtu1024),
            destination: Some(1),
            receive_psn: Some(0),
            max_dest_read_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..Default::default()
        }
    }

    #[test]
    fn a_missing_attribute_is_refused() {
        assert_eq!(check(QueuePairType::Rc, QpState::Init, &rc_to_rtr()), Ok(QpState::ReadyToReceive));
        let change = QueuePairChange { min_rnr_timer: None, ..rc_to_rtr() };
        assert!(check(QueuePairType::Rc, QpState::Init, &change).is_err());
        assert!(check(QueuePairType::Uc, QpState::Init, &rc_to_rtr()).is_err(), "UC takes no RNR timer");
    }

    #[test]
    fn transitions_that_do_not_exist_are_refused() {
        for (from, to) in [
            (QpState::Reset, QpState::ReadyToReceive),
            (QpState::Reset, QpState::ReadyToSend),
            (QpState::Init, QpState::ReadyToSend),
            (QpState::Error, QpState::Init),
            (QpState::Error, QpState::ReadyToSend),
            (QpState::ReadyToReceive, QpState::SendQueueDrain),
        ] {
            let change = QueuePairChange { state: Some(to), ..Default::default() };
            assert!(check(QueuePairType::Rc, from, &change).is_err(), "{from:?} to {to:?}");
        }
    }

    #[test]
    fn reset_and_error_are_always_possible() {
        for code in 0..=6 {
            let from = QpState::from_repr(code).unwrap();
            for to in [QpState::Reset, QpState::Error] {
                let change = QueuePairChange { state: Some(to), ..Default::default() };
                assert_eq!(check(QueuePairType::Ud, from, &change), Ok(to));
            }
        }
    }
}
