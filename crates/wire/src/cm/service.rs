//! The messages by which one asks for the queue pair of a UD service (section 12.11).

use super::fields::{BitField, FieldValue, messages};

messages! {
    /// `SIDR_REQ`: asks for the queue pair (section 12.11.1).
    SidrReq = 0x17 {
        /// Names the request.
        request_id: u32 = 0:0 / 32,
        /// Partition of the path.
        partition: u16 = 4:0 / 16,
        /// What is asked for.
        service_id: u64 = 8:0 / 64,
        /// Private data; of the IP services the first 36 bytes are an [`IpService`](super::IpService).
        private_data: [u8; 216] = 16:0 / 1728,
    }

    /// `SIDR_REP`: names the queue pair, or refuses (section 12.11.2).
    SidrRep = 0x18 {
        /// Of the request.
        request_id: u32 = 0:0 / 32,
        /// 0: the queue pair is valid; see [`sidr_status`](super::sidr_status).
        status: u8 = 4:0 / 8,
        /// Bytes of `information` that count.
        information_length: u8 = 5:0 / 8,
        /// Queue pair of the service.
        queue_pair: u32 = 8:0 / 24,
        /// Of the request.
        service_id: u64 = 12:0 / 64,
        /// Q_Key of the queue pair.
        queue_key: u32 = 20:0 / 32,
        /// Additional information, whose form depends on the status.
        information: [u8; 72] = 24:0 / 576,
        /// Private data.
        private_data: [u8; 136] = 96:0 / 1088,
    }
}
