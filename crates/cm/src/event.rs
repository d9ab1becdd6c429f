//! What a program hears (`rdma_get_cm_event(3)`).

use crate::endpoint::EndpointId;
use crate::parameters::RemoteParameters;

/// Private data of a message: always all that the message has room for, with zeros after what the peer gave.
pub type PrivateData = Vec<u8>;

/// An event of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CmEvent {
    /// Whose event it is.
    pub endpoint: EndpointId,
    /// What has happened.
    pub kind: EventKind,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// `RDMA_CM_EVENT_CONNECT_REQUEST`: the endpoint is new, and a listener's.
    ConnectRequest {
        /// The listener.
        listener: EndpointId,
        /// What the active side has said.
        remote: RemoteParameters,
        /// Of the REQ, after its head.
        private_data: PrivateData,
    },
    /// `RDMA_CM_EVENT_CONNECT_REQUEST` of a UD service: the endpoint is new, and a listener's.
    ServiceRequest {
        /// The listener.
        listener: EndpointId,
        /// Of the `SIDR_REQ`, after its head.
        private_data: PrivateData,
    },
    /// `RDMA_CM_EVENT_CONNECT_RESPONSE`: the passive side has accepted; the program (or its library) establishes the connection.
    ConnectResponse {
        /// What the passive side has said.
        remote: RemoteParameters,
        /// Of the REP.
        private_data: PrivateData,
    },
    /// `RDMA_CM_EVENT_ESTABLISHED`, of the passive side: the active side is ready.
    Established,
    /// `RDMA_CM_EVENT_ESTABLISHED`, of a UD service.
    ServiceFound {
        /// Its queue pair.
        queue_pair: u32,
        /// The Q_Key of that.
        queue_key: u32,
        /// Of the `SIDR_REP`.
        private_data: PrivateData,
    },
    /// `RDMA_CM_EVENT_REJECTED`.
    Rejected {
        /// See [`reject`](pagewire_wire::cm::reject).
        reason: u16,
        /// Of the REJ.
        private_data: PrivateData,
    },
    /// `RDMA_CM_EVENT_UNREACHABLE`: the peer has not answered.
    Unreachable,
    /// `RDMA_CM_EVENT_UNREACHABLE` with the status of a `SIDR_REP`: there is no such service, or its program refuses.
    ServiceRefused {
        /// See [`sidr_status`](pagewire_wire::cm::sidr_status).
        status: u8,
        /// Of the `SIDR_REP`.
        private_data: PrivateData,
    },
    /// `RDMA_CM_EVENT_DISCONNECTED`.
    Disconnected {
        /// The peer has not answered the DREQ.
        is_timeout: bool,
    },
    /// `RDMA_CM_EVENT_TIMEWAIT_EXIT`: nothing of the connection is under way any more.
    TimewaitExit,
}
