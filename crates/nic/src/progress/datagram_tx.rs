//! UD: datagrams that were posted, one packet a message, to wherever the address handle says.

use crate::access::fault_state::Purpose;
use crate::access::{AccessRequest, Accesses};
use crate::completion::Status;
use crate::path::local::LocalChannel;
use crate::path::ring::RecordKind;
use crate::path::{CONNECT_WAIT, Path};

use crate::progress::transport_ops::{append_packet, length_in_batch};
use crate::queue_pair::QueuePair;
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::request::KeptData;
use crate::services::ready::Again;
use crate::types::attributes::{Attributes, QpState};
use crate::types::gid::global_routing_header;
use crate::types::outcome::AccessError;
use pagewire_fabric::{Fabric, Route, SendBatch};
use pagewire_iommu::Rights;
use pagewire_memory::ApplicationMemory;
use pagewire_transport::limits::PROGRESS_PACKETS;
use pagewire_transport::{Psn, Reason, WorkId, WorkOperation, ud};
use pagewire_wire::bth::DEFAULT_PARTITION;
use pagewire_wire::{PacketHeader, packet};
use smallvec::SmallVec;

/// Bytes in front of a datagram in its receive buffer.
pub(super) const GLOBAL_ROUTE: usize = 40;

/// A datagram that is to be sent.
struct QueuedDatagram {
    /// It is not sent, and ends so.
    fails: Option<Status>,
    header: PacketHeader,
    data: KeptData,
    route: Route,
    peer: u32,
    length: u32,
}

/// How sending one datagram went.
enum DatagramOutcome {
    Done,
    Wait(Reason),
    Failed(Status),
}

/// A queue pair whose thread sends datagrams.
pub(crate) struct DatagramSender<'q, F: Fabric> {
    queue_pair: &'q QueuePair<F>,
    qpc: &'q mut QpContext<F>,
}

impl<'q, F: Fabric> DatagramSender<'q, F> {
    /// The caller holds the QP context.
    pub(crate) fn new(queue_pair: &'q QueuePair<F>, qpc: &'q mut QpContext<F>) -> Self {
        DatagramSender { queue_pair, qpc }
    }

    /// Sends datagrams that were posted, at most [`PROGRESS_PACKETS`]. Tells whether there is more to do, and when.
    pub(crate) fn send(&mut self, attributes: &Attributes) -> Option<Again> {
        if attributes.state != QpState::ReadyToSend {
            return None;
        }
        let mut batch = None;
        let mut again = Some(Again::Soon);
        self.qpc.submitted = self.qpc.submitted.max(self.queue_pair.send.lock().oldest().0);
        let mtu = self.queue_pair.domain.context().device().mtu.bytes();
        for _ in 0..PROGRESS_PACKETS {
            let id = WorkId(self.qpc.submitted);
            let sent = match self.datagram(id, attributes) {
                None => {
                    again = None;
                    break;
                }
                Some(QueuedDatagram { fails: Some(status), .. }) => DatagramOutcome::Failed(status),
                // Not sent, and no error (InfiniBand specification, volume 1, C10-93.1.1).
                Some(datagram) if datagram.length > mtu => {
                    self.queue_pair.counters.dropped.add(1);
                    DatagramOutcome::Done
                }
                Some(datagram) => self.send_one(&mut batch, &datagram),
            };
            match sent {
                DatagramOutcome::Done => {
                    self.qpc.submitted += 1;
                    self.queue_pair.complete_send(id, Status::Success);
                }
                DatagramOutcome::Wait(reason) => {
                    again = (!reason.is_announced()).then_some(Again::Later);
                    break;
                }
                DatagramOutcome::Failed(status) => {
                    self.qpc.submitted += 1;
                    self.queue_pair.complete_send(id, status);
                    self.queue_pair.enter_send_queue_error(self.qpc);
                    again = None;
                    break;
                }
            }
        }
        if let Some(batch) = batch {
            self.queue_pair.services.fabric.flush(batch);
        }
        again
    }

    /// A posted datagram.
    fn datagram(&self, id: WorkId, attributes: &Attributes) -> Option<QueuedDatagram> {
        let send = self.queue_pair.send.lock();
        let work = send.get(id)?;
        let (address, peer, queue_key) = work.destination.as_ref()?;
        let immediate = match work.work.operation {
            WorkOperation::Send { immediate, .. } => immediate,
            _ => None,
        };
        let datagram = ud::OutgoingDatagram {
            destination: *peer,
            queue_key: *queue_key,
            immediate,
            solicited: work.work.solicited,
        };
        let psn = Psn::new(attributes.send_psn.wrapping_add(id.0 as u32));
        let header = ud::header(&settings(self.queue_pair, attributes), psn, &datagram);
        let data = match &work.data {
            KeptData::Segments(segments) => KeptData::Segments(segments.clone()),
            KeptData::Inline(bytes) => KeptData::Inline(bytes.clone()),
            KeptData::Window(_) => return None,
        };
        let fails = match work.work.operation {
            WorkOperation::Failing { status } => Some(status),
            _ => None,
        };
        Some(QueuedDatagram {
            fails,
            header,
            data,
            route: *address.route(),
            peer: *peer,
            length: work.work.length,
        })
    }

    fn send_one(&mut self, batch: &mut Option<F::Batch>, datagram: &QueuedDatagram) -> DatagramOutcome {
        let QueuedDatagram { header, data, route, peer, length, .. } = datagram;
        let path =
            self.queue_pair.paths.choose_datagram_path(self.queue_pair.properties.number, route, *peer);
        let access = match data {
            KeptData::Inline(_) | KeptData::Window(_) => None,
            KeptData::Segments(pieces) => {
                let request = AccessRequest {
                    by: &self.queue_pair.properties.claimant,
                    pieces,
                    domain: self.queue_pair.domain.number(),
                    need: Rights::empty(),
                    write: false,
                };
                match Accesses(&self.queue_pair.services)
                    .begin(&request, self.qpc.begin_access(Purpose::Request))
                {
                    Ok(access) => Some(access),
                    Err(AccessError::Wait(reason)) => return DatagramOutcome::Wait(reason),
                    Err(AccessError::Refused(_)) => return DatagramOutcome::Failed(Status::LocalProtection),
                }
            }
        };
        let memory = self.queue_pair.services.fabric.memory();
        let fill = |into: &mut [u8]| match (data, &access) {
            (KeptData::Inline(bytes), _) => {
                into.copy_from_slice(bytes);
                true
            }
            (KeptData::Window(_), _) => false,
            (KeptData::Segments(_), Some(access)) => memory.read(&access.segments, into).is_ok(),
            (KeptData::Segments(_), None) => false,
        };
        let sent = match &path {
            Path::None | Path::Connecting { .. } => {
                self.queue_pair.services.schedule(
                    &self.queue_pair.schedule,
                    self.queue_pair.services.fabric.now() + CONNECT_WAIT,
                );
                DatagramOutcome::Wait(Reason::Path)
            }
            Path::Dead { .. } => DatagramOutcome::Done,
            Path::Local(channel) => self.send_record(channel, datagram, fill),
            Path::Network { route, .. } => self.send_packet(batch, header, route, *length as usize, fill),
        };
        drop(access);
        self.qpc.set_path(self.queue_pair, path);
        sent
    }

    fn send_record(
        &self,
        channel: &LocalChannel<F>,
        QueuedDatagram { header, route, length, .. }: &QueuedDatagram,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> DatagramOutcome {
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
            return DatagramOutcome::Failed(Status::LocalProtection);
        }
        if channel.is_gone() {
            return DatagramOutcome::Done;
        }
        if !channel.send(
            &self.queue_pair.services.fabric,
            RecordKind::Datagram,
            &headers[..headers_end],
            &bytes,
            None,
        ) {
            return DatagramOutcome::Wait(Reason::LinkFull);
        }
        self.queue_pair.counters.ring_packets_sent.add_alone(1);
        DatagramOutcome::Done
    }

    fn send_packet(
        &self,
        batch: &mut Option<F::Batch>,
        header: &PacketHeader,
        route: &Route,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> DatagramOutcome {
        let fabric = &self.queue_pair.services.fabric;
        let bytes = length_in_batch(header, length);
        if let Some(full) = batch.take_if(|batch| !batch.fits(bytes)) {
            fabric.flush(full);
        }
        let batch = batch.get_or_insert_with(|| fabric.batch());
        match append_packet(batch, route, header, length, |into| fill(into).then_some(()).ok_or(())) {
            None => DatagramOutcome::Wait(Reason::LinkFull),
            Some(Err(())) => DatagramOutcome::Failed(Status::LocalProtection),
            Some(Ok(())) => {
                self.queue_pair.counters.udp_packets_sent.add_alone(1);
                DatagramOutcome::Done
            }
        }
    }
}

/// What the UD protocol is told of a queue pair.
pub(super) fn settings<F: Fabric>(queue_pair: &QueuePair<F>, attributes: &Attributes) -> ud::UdSettings {
    ud::UdSettings {
        number: queue_pair.properties.number,
        partition: DEFAULT_PARTITION,
        queue_key: attributes.queue_key,
        mtu: queue_pair.domain.context().device().mtu.bytes(),
    }
}
