//! The messages by which two queue pairs connect and disconnect (section 12.6).

use super::fields::{BitField, FieldValue, messages};

messages! {
    /// REQ: the active side asks for a connection (section 12.6.5).
    Req = 0x10 {
        /// Of the active side.
        local_comm_id: u32 = 0:0 / 32,
        /// Vendor of the enhanced connection establishment that is offered; 0: none.
        ece_vendor: u32 = 5:0 / 24,
        /// What is asked for.
        service_id: u64 = 8:0 / 64,
        /// GUID of the active side's channel adapter.
        ca_guid: u64 = 16:0 / 64,
        /// Q_Key, of datagrams alone.
        queue_key: u32 = 28:0 / 32,
        /// Queue pair of the active side.
        queue_pair: u32 = 32:0 / 24,
        /// READs and atomics that the active side answers at a time.
        responder_resources: u8 = 35:0 / 8,
        /// READs and atomics that the active side sends at a time.
        initiator_depth: u8 = 39:0 / 8,
        /// Time that the passive side may take to answer: 4.096 us times two to this power.
        remote_response_timeout: u8 = 43:0 / 5,
        /// 0: RC, 1: UC, 3: what `extended_transport` says.
        transport: u8 = 43:5 / 2,
        /// End-to-end flow control.
        flow_control: bool = 43:7 / 1,
        /// PSN of the first packet of the active side.
        starting_psn: u32 = 44:0 / 24,
        /// Time that the active side may take to answer, in the form of `remote_response_timeout`.
        local_response_timeout: u8 = 47:0 / 5,
        /// Retries of the requester.
        retry_count: u8 = 47:5 / 3,
        /// Partition of the path.
        partition: u16 = 48:0 / 16,
        /// Path MTU: 1 is 256 bytes, 5 is 4,096.
        mtu: u8 = 50:0 / 4,
        /// Retries after RNR NAKs.
        rnr_retry_count: u8 = 50:5 / 3,
        /// Times that either side repeats a message of this connection.
        max_cm_retries: u8 = 51:0 / 4,
        /// The queue pair takes its receives from a shared receive queue.
        has_srq: bool = 51:4 / 1,
        /// Type of the connection where `transport` is 3; 1: XRC.
        extended_transport: u8 = 51:5 / 3,
        /// LID of the active side; 0xFFFF where the path has routers.
        local_lid: u16 = 52:0 / 16,
        /// LID of the passive side.
        remote_lid: u16 = 54:0 / 16,
        /// GID of the active side.
        local_gid: [u8; 16] = 56:0 / 128,
        /// GID of the passive side.
        remote_gid: [u8; 16] = 72:0 / 128,
        /// Flow label of the path.
        flow_label: u32 = 88:0 / 20,
        /// Static rate.
        rate: u8 = 91:2 / 6,
        /// Traffic class.
        traffic_class: u8 = 92:0 / 8,
        /// Hop limit.
        hop_limit: u8 = 93:0 / 8,
        /// Service level.
        service_level: u8 = 94:0 / 4,
        /// The path stays in one subnet.
        is_subnet_local: bool = 94:4 / 1,
        /// Local ACK timeout of the active side, in the form of `remote_response_timeout`.
        ack_timeout: u8 = 95:0 / 5,
        /// Private data; of the IP services the first 36 bytes are an [`IpService`](super::IpService).
        private_data: [u8; 92] = 140:0 / 736,
    }

    /// MRA: the message has come, and its answer takes longer (section 12.6.6).
    Mra = 0x11 {
        /// Of who sends it.
        local_comm_id: u32 = 0:0 / 32,
        /// Of who receives it.
        remote_comm_id: u32 = 4:0 / 32,
        /// Which message has come; 0: REQ, 1: REP, 2: LAP.
        message: u8 = 8:0 / 2,
        /// Time until the answer, 4.096 us times two to this power.
        service_timeout: u8 = 9:0 / 5,
        /// Private data.
        private_data: [u8; 222] = 10:0 / 1776,
    }

    /// REJ: refuses a REQ or a REP, or gives a connection up (section 12.6.7).
    Rej = 0x12 {
        /// Of who sends it; 0: it has none.
        local_comm_id: u32 = 0:0 / 32,
        /// Of who receives it; 0: not known.
        remote_comm_id: u32 = 4:0 / 32,
        /// What is refused; 0: a REQ, 1: a REP, 2: neither.
        message: u8 = 8:0 / 2,
        /// Bytes of `information` that count.
        information_length: u8 = 9:0 / 7,
        /// Why, see [`reject`](super::reject).
        reason: u16 = 10:0 / 16,
        /// Additional reject information, whose form depends on the reason.
        information: [u8; 72] = 12:0 / 576,
        /// Private data.
        private_data: [u8; 148] = 84:0 / 1184,
    }

    /// REP: accepts a REQ (section 12.6.8).
    Rep = 0x13 {
        /// Of the passive side.
        local_comm_id: u32 = 0:0 / 32,
        /// Of the active side.
        remote_comm_id: u32 = 4:0 / 32,
        /// Q_Key, of datagrams alone.
        queue_key: u32 = 8:0 / 32,
        /// Queue pair of the passive side.
        queue_pair: u32 = 12:0 / 24,
        /// Bits 23 to 16 of the vendor of enhanced connection establishment.
        ece_vendor_high: u8 = 15:0 / 8,
        /// Bits 15 to 8 of the vendor.
        ece_vendor_middle: u8 = 19:0 / 8,
        /// PSN of the first packet of the passive side.
        starting_psn: u32 = 20:0 / 24,
        /// Bits 7 to 0 of the vendor.
        ece_vendor_low: u8 = 23:0 / 8,
        /// READs and atomics that the passive side answers at a time.
        responder_resources: u8 = 24:0 / 8,
        /// READs and atomics that the passive side sends at a time.
        initiator_depth: u8 = 25:0 / 8,
        /// Time that the passive side takes to acknowledge: 4.096 us times two to this power.
        ack_delay: u8 = 26:0 / 5,
        /// Whether failover was accepted.
        failover: u8 = 26:5 / 2,
        /// End-to-end flow control.
        flow_control: bool = 26:7 / 1,
        /// Retries after RNR NAKs.
        rnr_retry_count: u8 = 27:0 / 3,
        /// The queue pair takes its receives from a shared receive queue.
        has_srq: bool = 27:3 / 1,
        /// GUID of the passive side's channel adapter.
        ca_guid: u64 = 28:0 / 64,
        /// Private data.
        private_data: [u8; 196] = 36:0 / 1568,
    }

    /// RTU: the active side has taken the REP (section 12.6.9).
    Rtu = 0x14 {
        /// Of the active side.
        local_comm_id: u32 = 0:0 / 32,
        /// Of the passive side.
        remote_comm_id: u32 = 4:0 / 32,
        /// Private data.
        private_data: [u8; 224] = 8:0 / 1792,
    }

    /// DREQ: ends a connection (section 12.6.10).
    Dreq = 0x15 {
        /// Of who sends it.
        local_comm_id: u32 = 0:0 / 32,
        /// Of who receives it.
        remote_comm_id: u32 = 4:0 / 32,
        /// Queue pair of who receives it.
        remote_queue_pair: u32 = 8:0 / 24,
        /// Private data.
        private_data: [u8; 220] = 12:0 / 1760,
    }

    /// DREP: answers a DREQ (section 12.6.11).
    Drep = 0x16 {
        /// Of who sends it.
        local_comm_id: u32 = 0:0 / 32,
        /// Of who receives it.
        remote_comm_id: u32 = 4:0 / 32,
        /// Private data.
        private_data: [u8; 224] = 8:0 / 1792,
    }
}
