//! What a queue pair of a connection is set to (`INIT_QP_ATTR`): the program's librdmacm gives it to `ibv_modify_qp(3)`.

use super::abi::{AddressVector, QpAttributes};
use super::addresses::LocalDevice;
use pagewire_cm::connection::{Connection, ConnectionState};
use pagewire_cm::{EndpointState, Route, gid};
use zerocopy::FromZeros;

/// Attributes of `ibv_modify_qp(3)` (`enum ibv_qp_attr_mask`).
mod mask {
    pub const STATE: u32 = 1 << 0;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;
}

/// Rights of a queue pair (`enum ibv_access_flags`).
mod access {
    pub const REMOTE_WRITE: u32 = 1 << 1;
    pub const REMOTE_READ: u32 = 1 << 2;
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    pub const FLUSH: u32 = 1 << 8 | 1 << 9;
}

/// States of a queue pair (`enum ibv_qp_state`).
pub mod state {
    pub const INIT: u32 = 1;
    pub const RTR: u32 = 2;
    pub const RTS: u32 = 3;
    pub const ERR: u32 = 6;
}

/// The Q_Key of UD services (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: u32 = 0x0123_4567;
/// The port of each device.
pub const PORT: u8 = 1;

impl QpAttributes {
    /// Whether they set the local ACK timeout.
    pub fn has_timeout(&self) -> bool {
        self.mask & mask::TIMEOUT != 0
    }
}

/// What an ID knows of its connection.
pub struct QpSituation<'a> {
    pub device: &'a LocalDevice,
    pub endpoint: EndpointState,
    pub connection: Option<&'a Connection>,
    pub is_unreliable: bool,
    /// A queue pair of datagrams.
    pub is_datagram: bool,
}

/// The attributes for a state; `None`: the connection is not as far, or has ended. Where no message has been exchanged all states have what
/// the first one needs, as with the kernel.
pub fn attributes(situation: &QpSituation<'_>, wanted: u32) -> Option<QpAttributes> {
    if wanted > state::ERR {
        return None;
    }
    let mut attributes = QpAttributes::new_zeroed();
    (attributes.state, attributes.mask) = (wanted, mask::STATE);
    let is_early = !matches!(
        situation.endpoint,
        EndpointState::Listen | EndpointState::Connect | EndpointState::Disconnect
    );
    match wanted {
        state::RTR if situation.is_datagram => {}
        state::RTS if situation.is_datagram => attributes.mask |= mask::SQ_PSN,
        _ if is_early || situation.is_datagram => init(situation, &mut attributes),
        _ => connected(situation.connection?, situation, &mut attributes)?,
    }
    Some(attributes)
}

/// What a state needs of a connection.
fn connected(
    connection: &Connection,
    situation: &QpSituation<'_>,
    attributes: &mut QpAttributes,
) -> Option<()> {
    let has_peer = match connection.state() {
        ConnectionState::ReqSent => false,
        ConnectionState::RepReceived
        | ConnectionState::ReqReceived
        | ConnectionState::RepSent
        | ConnectionState::Established => true,
        _ => return None,
    };
    match attributes.state {
        state::INIT => init(situation, attributes),
        state::RTR if has_peer => ready_to_receive(connection, situation, attributes),
        state::RTS if has_peer => ready_to_send(connection, situation, attributes),
        _ => return None,
    }
    Some(())
}

fn init(situation: &QpSituation<'_>, attributes: &mut QpAttributes) {
    attributes.mask |= mask::PKEY_INDEX | mask::PORT;
    attributes.port = PORT;
    if situation.is_datagram {
        attributes.mask |= mask::QKEY;
        attributes.queue_key = UDP_QKEY;
        return;
    }
    attributes.mask |= mask::ACCESS_FLAGS;
    if let Some(connection) = situation.connection {
        attributes.access = access::REMOTE_WRITE;
        if connection.remote().responder_resources > 0 && !situation.is_unreliable {
            attributes.access |= access::REMOTE_READ | access::REMOTE_ATOMIC | access::FLUSH;
        }
    }
}

fn ready_to_receive(connection: &Connection, situation: &QpSituation<'_>, attributes: &mut QpAttributes) {
    let remote = connection.remote();
    attributes.mask |= mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
    attributes.address = address_vector(situation.device, connection.route());
    attributes.path_mtu = connection.route().mtu.into();
    attributes.destination = remote.queue_pair;
    attributes.receive_psn = connection.starting_psn();
    if !situation.is_unreliable {
        attributes.mask |= mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
        attributes.max_dest_rd_atomic = remote.responder_resources;
    }
}

fn ready_to_send(connection: &Connection, situation: &QpSituation<'_>, attributes: &mut QpAttributes) {
    let remote = connection.remote();
    attributes.mask |= mask::SQ_PSN;
    attributes.send_psn = remote.starting_psn;
    if !situation.is_unreliable {
        attributes.mask |= mask::TIMEOUT | mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
        attributes.timeout = connection.route().ack_timeout;
        attributes.retry_count = remote.retry_count;
        attributes.rnr_retry = remote.rnr_retry_count;
        attributes.max_rd_atomic = remote.initiator_depth;
    }
}

/// The way to the peer, as an address vector.
pub fn address_vector(device: &LocalDevice, route: &Route) -> AddressVector {
    AddressVector {
        destination_gid: gid(route.destination.ip()),
        source_gid_index: device.gid_index,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
        is_global: 1,
        port: PORT,
        ..AddressVector::new_zeroed()
    }
}
