//! Events of the state machines, as the program reads them from its channel.

use super::abi::{AddressVector, ConnectionParam, DatagramParam, EventAnswer, event};
use super::addresses::{device_of, with_port};
use super::channel::QueuedEvent;
use super::qp_attributes::address_vector;
use super::service::{CmId, CmService, IdOptions};
use libc::ETIMEDOUT;
use pagewire_cm::{CmEvent, EndpointId, EventKind, RemoteParameters};
use std::net::SocketAddr;
use zerocopy::{FromZeros, IntoBytes};

impl CmService {
    /// Queues an event at the channel of its ID. One of a request that the program has not accepted is dropped, but for the request itself.
    pub fn announce(&mut self, happened: CmEvent) {
        if let EventKind::ConnectRequest { listener, .. } | EventKind::ServiceRequest { listener, .. } =
            happened.kind
        {
            return self.announce_request(listener, &happened);
        }
        let Some(&number) = self.by_endpoint.get(&happened.endpoint) else { return };
        let id = &self.ids[number as usize];
        if id.uid == 0 {
            return;
        }
        let mut answer = answer_of(&happened.kind);
        if let (EventKind::ServiceFound { queue_pair, queue_key, private_data }, Some(local)) =
            (&happened.kind, &id.local)
        {
            let vector = self.manager.route(happened.endpoint).map(|route| address_vector(local, route));
            let vector = vector.unwrap_or_else(AddressVector::new_zeroed);
            put(&mut answer, datagram_param((*queue_pair, *queue_key), vector, private_data).as_bytes());
        }
        (answer.uid, answer.id) = (id.uid, number);
        let channel = id.channel;
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.push(QueuedEvent { counted_for: number, group: None, request: None, answer });
        }
    }

    /// Queues an event that has no more to say than its number.
    pub fn announce_plain(&mut self, number: u32, event: u32) {
        let Some(id) = self.ids.get(number as usize) else { return };
        let (uid, channel) = (id.uid, id.channel);
        let mut answer = EventAnswer::new_zeroed();
        (answer.uid, answer.id, answer.event) = (uid, number, event);
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.push(QueuedEvent { counted_for: number, group: None, request: None, answer });
        }
    }

    fn announce_request(&mut self, listener: EndpointId, happened: &CmEvent) {
        let listening = self.by_endpoint.get(&listener).copied();
        let Some((listening, parent)) =
            listening.and_then(|number| Some((number, self.ids.get(number as usize)?)))
        else {
            return;
        };
        let route = self.manager.route(happened.endpoint).copied();
        let local = route.and_then(|route| device_of(route.source.ip()).ok());
        let with_port = |address: SocketAddr| with_port(address.ip(), address.port(), local.as_ref());
        let id = CmId {
            uid: 0,
            channel: parent.channel,
            endpoint: happened.endpoint,
            space: parent.space,
            queue_pair_type: parent.queue_pair_type,
            source: route.map(|route| with_port(route.source)),
            destination: route.map(|route| with_port(route.destination)),
            local,
            is_route_resolved: true,
            is_removed: false,
            reported: 0,
            port: None,
            // An ACK timeout is of one connection.
            options: IdOptions { ack_timeout: None, ..parent.options },
        };
        let (uid, channel) = (parent.uid, parent.channel);
        let number = self.add_id(id);
        let mut answer = answer_of(&happened.kind);
        (answer.uid, answer.id) = (uid, number);
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.push(QueuedEvent { counted_for: listening, group: None, request: Some(number), answer });
        }
    }
}

/// The event as the program reads it, without names.
fn answer_of(kind: &EventKind) -> EventAnswer {
    let mut answer = EventAnswer::new_zeroed();
    let (number, status) = match kind {
        EventKind::ConnectRequest { remote, private_data, .. } => {
            put(&mut answer, connection_param(remote, private_data).as_bytes());
            (event::CONNECT_REQUEST, 0)
        }
        EventKind::ServiceRequest { private_data, .. } => {
            put(&mut answer, datagram_param((0, 0), AddressVector::new_zeroed(), private_data).as_bytes());
            (event::CONNECT_REQUEST, 0)
        }
        EventKind::ConnectResponse { remote, private_data } => {
            put(&mut answer, connection_param(remote, private_data).as_bytes());
            (event::CONNECT_RESPONSE, 0)
        }
        EventKind::Established | EventKind::ServiceFound { .. } => (event::ESTABLISHED, 0),
        EventKind::Rejected { reason, private_data } => {
            put(&mut answer, connection_param(&RemoteParameters::default(), private_data).as_bytes());
            (event::REJECTED, i32::from(*reason))
        }
        EventKind::Unreachable => (event::UNREACHABLE, -ETIMEDOUT),
        EventKind::ServiceRefused { status, private_data } => {
            put(&mut answer, datagram_param((0, 0), AddressVector::new_zeroed(), private_data).as_bytes());
            (event::UNREACHABLE, i32::from(*status))
        }
        EventKind::Disconnected { is_timeout } => {
            (event::DISCONNECTED, if *is_timeout { -ETIMEDOUT } else { 0 })
        }
        EventKind::TimewaitExit => (event::TIMEWAIT_EXIT, 0),
    };
    (answer.event, answer.status) = (number, status);
    answer
}

fn put(answer: &mut EventAnswer, param: &[u8]) {
    answer.param[..param.len()].copy_from_slice(param);
}

fn private_data_of(data: &[u8]) -> ([u8; 256], u8) {
    let mut bytes = [0; 256];
    bytes[..data.len()].copy_from_slice(data);
    (bytes, data.len() as u8)
}

fn connection_param(remote: &RemoteParameters, data: &[u8]) -> ConnectionParam {
    let (private_data, private_data_length) = private_data_of(data);
    ConnectionParam {
        queue_pair: remote.queue_pair,
        queue_key: 0,
        private_data,
        private_data_length,
        srq: u8::from(remote.has_srq),
        responder_resources: remote.responder_resources,
        initiator_depth: remote.initiator_depth,
        flow_control: u8::from(remote.flow_control),
        retry_count: remote.retry_count,
        rnr_retry_count: remote.rnr_retry_count,
        valid: 0,
    }
}

fn datagram_param((queue_pair, queue_key): (u32, u32), address: AddressVector, data: &[u8]) -> DatagramParam {
    let (private_data, private_data_length) = private_data_of(data);
    DatagramParam { queue_pair, queue_key, address, private_data, private_data_length, reserved: [0; 7] }
}
