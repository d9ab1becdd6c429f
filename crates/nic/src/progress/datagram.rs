//! UD: one packet a message, to wherever its address handle says.

use crate::access::AccessRequest;
use crate::access::fault_state::Purpose;
use crate::completion::{Completion, Opcode, RoutingHeader, Status};
use crate::path::local::LocalChannel;
use crate::path::ring::Kind;
use crate::path::{CONNECT_WAIT, Path};
use crate::progress::packets::Burst;
use crate::progress::transport_ops::{QpTransportOps, append_packet, length_in_batch};
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::Incoming;
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::request::KeptData;
use crate::services::event::AsyncEventKind;
use crate::services::ready::Again;
use crate::types::attributes::{Attributes, State};
use crate::types::gid::global_routing_header;
use crate::types::outcome::AccessError;
use pagewire_fabric::{Batch, Fabric, Route};
use pagewire_iommu::Rights;
use pagewire_memory::ApplicationMemory;
use pagewire_transport::limits::PROGRESS_PACKETS;
use pagewire_transport::{
    Denial, Disposition, DropCause, Operation, Outcome, Payload, Psn, Reason, WorkId, WorkQueues, ud,
};
use pagewire_wire::bth::DEFAULT_PARTITION;
use pagewire_wire::{Header, packet};
use smallvec::SmallVec;

/// Bytes in front of a datagram in its receive buffer.
const GLOBAL_ROUTE: usize = 40;

/// A datagram that is to be sent.
struct Outgoing {
    header: Header,
    data: KeptData,
    route: Route,
    peer: u32,
    length: u32,
}

/// How sending one datagram went.
enum Sent {
    Done,
    Wait(Reason),
    Failed(Status),
}

impl<F: Fabric> QueuePair<F> {
    /// Sends datagrams that were posted, at most [`PROGRESS_PACKETS`]. Tells whether there is more to do, and when.
    pub(crate) fn send_datagrams(&self, qpc: &mut QpContext<F>, attributes: &Attributes) -> Option<Again> {
        if attributes.state != State::ReadyToSend {
            return None;
        }
        let mut batch = None;
        let mut again = Some(Again::Soon);
        qpc.submitted = qpc.submitted.max(self.send.lock().oldest().0);
        let mtu = self.domain.context().device().mtu.bytes();
        for _ in 0..PROGRESS_PACKETS {
            let id = WorkId(qpc.submitted);
            let sent = match self.datagram(id, attributes) {
                None => {
                    again = None;
                    break;
                }
                // Not sent, and no error (InfiniBand specification, volume 1, C10-93.1.1).
                Some(datagram) if datagram.length > mtu => {
                    self.counters.dropped.add(1);
                    Sent::Done
                }
                Some(datagram) => self.send_datagram(qpc, &mut batch, &datagram),
            };
            match sent {
                Sent::Done => {
                    qpc.submitted += 1;
                    self.complete_send(id, Status::Success);
                }
                Sent::Wait(reason) => {
                    again = (!reason.is_announced()).then_some(Again::Later);
                    break;
                }
                Sent::Failed(status) => {
                    qpc.submitted += 1;
                    self.complete_send(id, status);
                    self.enter_send_queue_error(qpc);
                    again = None;
                    break;
                }
            }
        }
        if let Some(batch) = batch {
            self.services.fabric.flush(batch);
        }
        again
    }

    fn datagram_settings(&self, attributes: &Attributes) -> ud::UdSettings {
        ud::UdSettings {
            number: self.number,
            partition: DEFAULT_PARTITION,
            queue_key: attributes.queue_key,
            mtu: self.domain.context().device().mtu.bytes(),
        }
    }

    /// A posted datagram.
    fn datagram(&self, id: WorkId, attributes: &Attributes) -> Option<Outgoing> {
        let send = self.send.lock();
        let work = send.get(id)?;
        let (address, peer, queue_key) = work.destination.as_ref()?;
        let immediate = match work.work.operation {
            Operation::Send { immediate, .. } => immediate,
            _ => None,
        };
        let datagram = ud::Datagram {
            destination: *peer,
            queue_key: *queue_key,
            immediate,
            solicited: work.work.solicited,
        };
        let psn = Psn::new(attributes.send_psn.wrapping_add(id.0 as u32));
        let header = ud::header(&self.datagram_settings(attributes), psn, &datagram);
        let data = match &work.data {
            KeptData::Segments(segments) => KeptData::Segments(segments.clone()),
            KeptData::Inline(bytes) => KeptData::Inline(bytes.clone()),
        };
        Some(Outgoing { header, data, route: *address.route(), peer: *peer, length: work.work.length })
    }

    fn send_datagram(
        &self,
        qpc: &mut QpContext<F>,
        batch: &mut Option<F::Batch>,
        datagram: &Outgoing,
    ) -> Sent {
        let Outgoing { header, data, route, peer, length } = datagram;
        let path = self.paths.choose_datagram_path(self.number, route, *peer);
        let access = match data {
            KeptData::Inline(_) => None,
            KeptData::Segments(pieces) => {
                let request = AccessRequest {
                    by: &self.claimant,
                    pieces,
                    domain: self.domain.number(),
                    need: Rights::empty(),
                    write: false,
                };
                match self.services.begin(&request, qpc.begin_access(Purpose::Request)) {
                    Ok(access) => Some(access),
                    Err(AccessError::Wait(reason)) => return Sent::Wait(reason),
                    Err(AccessError::Refused(_)) => return Sent::Failed(Status::LocalProtection),
                }
            }
        };
        let memory = self.services.fabric.memory();
        let fill = |into: &mut [u8]| match (data, &access) {
            (KeptData::Inline(bytes), _) => {
                into.copy_from_slice(bytes);
                true
            }
            (KeptData::Segments(_), Some(access)) => memory.read(&access.segments, into).is_ok(),
            (KeptData::Segments(_), None) => false,
        };
        let sent = match &path {
            Path::None | Path::Connecting { .. } => {
                self.services.schedule(&self.schedule, self.services.fabric.now() + CONNECT_WAIT);
                Sent::Wait(Reason::Path)
            }
            Path::Dead { .. } => Sent::Done,
            Path::Local(channel) => self.send_datagram_record(channel, datagram, fill),
            Path::Udp { route, .. } => self.batch_datagram(batch, header, route, *length as usize, fill),
        };
        drop(access);
        qpc.set_path(self, path);
        sent
    }

    fn send_datagram_record(
        &self,
        channel: &LocalChannel<F>,
        Outgoing { header, route, length, .. }: &Outgoing,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Sent {
        let mut bytes: SmallVec<[u8; 512]> = SmallVec::from_elem(0, *length as usize);
        let mut headers = [0; 128];
        let route_header = global_routing_header(
            route.source,
            route.destination,
            route.traffic_class,
            route.hop_limit,
            packet::len(header, *length as usize) as u16,
        );
        headers[..GLOBAL_ROUTE].copy_from_slice(&route_header);
        let headers_end = GLOBAL_ROUTE + header.emit(&mut headers[GLOBAL_ROUTE..]);
        if !fill(&mut bytes) {
            return Sent::Failed(Status::LocalProtection);
        }
        if channel.is_gone() {
            return Sent::Done;
        }
        if !channel.send(&self.services.fabric, Kind::Datagram, &headers[..headers_end], &bytes, None) {
            return Sent::Wait(Reason::LinkFull);
        }
        self.counters.ring_packets_sent.add_alone(1);
        Sent::Done
    }

    fn batch_datagram(
        &self,
        batch: &mut Option<F::Batch>,
        header: &Header,
        route: &Route,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Sent {
        let fabric = &self.services.fabric;
        let bytes = length_in_batch(header, length);
        if let Some(full) = batch.take_if(|batch| !batch.fits(bytes)) {
            fabric.flush(full);
        }
        let batch = batch.get_or_insert_with(|| fabric.batch());
        match append_packet(batch, route, header, length, |into| fill(into).then_some(()).ok_or(())) {
            None => Sent::Wait(Reason::LinkFull),
            Some(Err(())) => Sent::Failed(Status::LocalProtection),
            Some(Ok(())) => {
                self.counters.udp_packets_sent.add_alone(1);
                Sent::Done
            }
        }
    }

    /// Takes a datagram that came in.
    pub(crate) fn take_datagram(
        &self,
        qpc: &mut QpContext<F>,
        packet: &Incoming<'_, F>,
        burst: &mut Burst<'_, F>,
    ) -> Disposition {
        let Incoming { header, payload, global_route, origin } = packet;
        let accepted = match ud::accept(&self.datagram_settings(&qpc.attributes), header, payload.len()) {
            Ok(accepted) => accepted,
            Err(cause) => return self.drop_packet(cause),
        };
        let (Some(global_route), Payload::Bytes(_)) = (global_route, payload) else {
            return self.drop_packet(DropCause::Malformed);
        };
        if self.waits_for_receive(qpc, header, burst.now()) {
            return Disposition::Held { reason: Reason::Receive, again: false };
        }
        let session = burst.session();
        let mut ops = QpTransportOps::new(self, qpc, None, session);
        if !ops.begin_receive() {
            ops.finish();
            return self.drop_packet(DropCause::NoReceive);
        }
        let outcome = match ops.place_receive(0, Payload::Bytes(&[global_route]), payload.is_empty()) {
            Outcome::Done(_) => ops.place_receive(GLOBAL_ROUTE as u64, *payload, true),
            other => other,
        };
        ops.finish();
        if let Outcome::Wait(reason) = outcome {
            if reason == Reason::Page && self.drops_faulting(origin) {
                qpc.forget_access(Purpose::Execute);
                return self.drop_packet(DropCause::AbsentPage { resumes: false });
            }
            return Disposition::Held { reason, again: false };
        }
        if outcome == Outcome::Denied(Denial::LocalLength) {
            return self.drop_long_datagram(qpc);
        }
        let Some(receive) = qpc.receive.take() else { return self.drop_packet(DropCause::NoReceive) };
        let byte_length = GLOBAL_ROUTE as u32 + accepted.length;
        if let Outcome::Denied(_) = outcome {
            let status = Status::LocalProtection;
            self.complete_receive(self.completion(receive.wr_id, Opcode::Receive, status));
            session.release();
            self.enter_error(qpc);
            self.raise(AsyncEventKind::QueuePairFatal);
            return Disposition::Dropped(DropCause::NoAccess);
        }
        self.complete_receive(Completion {
            byte_length,
            immediate: accepted.immediate,
            source_queue_pair: accepted.source,
            routing_header: RoutingHeader::of(global_route),
            solicited: accepted.solicited,
            ..self.completion(receive.wr_id, Opcode::Receive, Status::Success)
        });
        Disposition::Executed(1)
    }

    /// A datagram is longer than its receive. It is dropped, and the receive stays for the next one (error class D of the InfiniBand
    /// specification, volume 1, section 9.9.3). One of a shared receive queue ends with an error (class E). Other peers are not concerned.
    #[cold]
    fn drop_long_datagram(&self, qpc: &mut QpContext<F>) -> Disposition {
        if self.srq.is_some() {
            if let Some(receive) = qpc.receive.take() {
                let status = Status::LocalLength;
                self.complete_receive(self.completion(receive.wr_id, Opcode::Receive, status));
            }
        }
        self.drop_packet(DropCause::NoAccess)
    }
}
