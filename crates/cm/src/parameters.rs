//! What the two sides of a connection agree on.

use crate::limits;
use pagewire_wire::cm::{Rep, Req};

/// What a program gives to `rdma_connect` or `rdma_accept` (`rdma_connect(3)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// READs and atomics that this side answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that this side sends at a time.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Retries of the requester. The passive side takes the active side's.
    pub retry_count: u8,
    /// Retries after RNR NAKs, of the peer.
    pub rnr_retry_count: u8,
    /// For the peer's program; shorter than the message has room for, it is followed by zeros.
    pub private_data: Vec<u8>,
}

/// All retries, the deepest queues, no data: what a program that gives no parameters gets.
impl Default for ConnectionParameters {
    fn default() -> Self {
        ConnectionParameters {
            responder_resources: limits::MAX_DEPTH,
            initiator_depth: limits::MAX_DEPTH,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            private_data: Vec::new(),
        }
    }
}

/// The queue pair of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalQueuePair {
    /// Its number.
    pub number: u32,
    /// It takes its receives from a shared receive queue.
    pub has_srq: bool,
    /// UC, not RC.
    pub is_unreliable: bool,
}

/// What the peer has said of its side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteParameters {
    /// Number of its queue pair.
    pub queue_pair: u32,
    /// PSN of its first packet.
    pub starting_psn: u32,
    /// READs and atomics that this side may send at a time, and still be answered: the peer's `responder_resources`.
    pub initiator_depth: u8,
    /// READs and atomics that the peer sends at a time.
    pub responder_resources: u8,
    /// Retries of the requester.
    pub retry_count: u8,
    /// Retries after RNR NAKs, of this side.
    pub rnr_retry_count: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Its queue pair takes its receives from a shared receive queue.
    pub has_srq: bool,
}

impl RemoteParameters {
    /// The active side's. Its depths and this side's are seen from the other end: what one answers, the other may send.
    pub(crate) fn of_req(req: &Req) -> Self {
        RemoteParameters {
            queue_pair: req.queue_pair,
            starting_psn: req.starting_psn,
            initiator_depth: req.responder_resources,
            responder_resources: req.initiator_depth,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            flow_control: req.flow_control,
            has_srq: req.has_srq,
        }
    }

    /// The passive side's; it names no retries of the requester, those of the REQ count.
    pub(crate) fn of_rep(rep: &Rep, retry_count: u8) -> Self {
        RemoteParameters {
            queue_pair: rep.queue_pair,
            starting_psn: rep.starting_psn,
            initiator_depth: rep.responder_resources,
            responder_resources: rep.initiator_depth,
            retry_count,
            rnr_retry_count: rep.rnr_retry_count,
            flow_control: rep.flow_control,
            has_srq: rep.has_srq,
        }
    }
}
