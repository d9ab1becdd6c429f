//! Short SENDs that leave at their post.
//!
//! They go as packets all the same; what is left out are the queues and turns in which a queue pair otherwise does its work. What does
//! not find things as they mostly are takes the long way: [`qp_progress`](crate::progress::qp_progress).

use crate::access::{AccessRequest, Accesses, MrCacheEntry};
use crate::completion::CompletionOpcode;
use crate::path::ring::RecordKind;
use crate::path::ring_ack::Awaited;
use crate::path::{Path, send_record_format};
use crate::progress::transport_ops::append_packet;
use crate::queue_pair::QueuePair;
use crate::queue_pair::qp_context::{QpConnection, QpContext};
use crate::queue_pair::request::{Data, SendFlags, SendQueue, SendRequest, operation_of};
use crate::types::attributes::QpState;
use crate::types::sge::ScatterGather;
use pagewire_fabric::lock::LockGuard;
use pagewire_fabric::{Fabric, Route};
use pagewire_iommu::Rights;
use pagewire_memory::ApplicationMemory;
use pagewire_transport::{FastSend, SendOnlyRequest, Time, WorkId, WorkRequest};
use std::convert::Infallible;
use std::sync::Arc;

/// Bytes of messages for which no memory is asked for; longer ones leave at once inside the host only.
const SHORT: usize = 256;
/// Most are no longer than this.
const SHORTEST: usize = 64;

/// A queue pair whose thread posts a short SEND.
pub(crate) struct ShortSend<'q, F: Fabric> {
    queue_pair: &'q Arc<QueuePair<F>>,
    qpc: &'q mut QpContext<F>,
}

impl<'q, F: Fabric> ShortSend<'q, F> {
    /// The caller holds the QP context.
    #[inline(always)] // Part of each short SEND.
    pub(crate) fn new(queue_pair: &'q Arc<QueuePair<F>>, qpc: &'q mut QpContext<F>) -> Self {
        ShortSend { queue_pair, qpc }
    }

    /// Sends a short SEND at its post and keeps it. False: nothing was done.
    #[inline]
    pub(crate) fn post(&mut self, request: &SendRequest<'_, F>, length: u32) -> bool {
        let sends = self.qpc.sending && self.qpc.attributes.state == QpState::ReadyToSend;
        match self.qpc.path() {
            _ if !sends => false,
            Path::Local(_) if length as usize <= SHORTEST => {
                self.send_by_ring(request, &mut [0; SHORTEST][..length as usize])
            }
            Path::Local(_) => self.send_longer(request, length as usize),
            Path::Network { .. } => self.send_by_network(request, length as usize),
            _ => false,
        }
    }

    #[inline(never)] // What shorter ones are not to carry.
    fn send_longer(&mut self, request: &SendRequest<'_, F>, length: usize) -> bool {
        match length {
            ..=SHORT => self.send_by_ring(request, &mut [0; SHORT][..length]),
            _ => self.send_by_ring(request, &mut vec![0; length]),
        }
    }

    #[inline(always)] // Part of each short SEND inside a host.
    fn send_by_ring(&mut self, request: &SendRequest<'_, F>, payload: &mut [u8]) -> bool {
        let Path::Local(channel) = &self.qpc.path else { return false };
        let kept = (&mut self.qpc.connection, &mut self.qpc.mr_cache.send, self.qpc.submitted);
        let Some(leaving) = ReadySend::begin(self.queue_pair, kept, request, payload) else { return false };
        let mut headers = [0; send_record_format::LONGEST];
        let header_length = send_record_format::emit(&leaving.packet, &mut headers);
        let awaited =
            Some(Awaited { queue_pair: Some(self.queue_pair.properties.number), psn: leaving.packet.psn });
        let headers = &headers[..header_length];
        if channel.is_gone()
            || !channel.send(&self.queue_pair.services.fabric, RecordKind::Send, headers, payload, awaited)
        {
            return false;
        }
        // It is on its way: what follows takes no time of it.
        self.queue_pair.counters.ring_packets_sent.add_alone(1);
        let now = self.queue_pair.services.roughly_now();
        let deadline = leaving.keep(self.queue_pair, &mut self.qpc.submitted, request, payload.len(), now);
        self.queue_pair.services.schedule(&self.queue_pair.schedule, deadline);
        true
    }

    #[inline(never)] // What inside a host is not to carry.
    fn send_by_network(&mut self, request: &SendRequest<'_, F>, length: usize) -> bool {
        // A longer one may be more than a packet.
        let Some(route) = self.fast_route().filter(|_| length <= SHORT) else { return false };
        let payload = &mut [0; SHORT][..length];
        let kept = (&mut self.qpc.connection, &mut self.qpc.mr_cache.send, self.qpc.submitted);
        let Some(mut leaving) = ReadySend::begin(self.queue_pair, kept, request, payload) else {
            return false;
        };
        let copy = |into: &mut [u8]| {
            into.copy_from_slice(payload);
            Ok(())
        };
        let fabric = &self.queue_pair.services.fabric;
        let mut batch = fabric.batch();
        let laid = append_packet(&mut batch, &route, &leaving.packet.header(), payload.len(), copy);
        let Some(Ok::<(), Infallible>(())) = laid else { return false };
        // Behind the request: shorter, it leaves with it in one send.
        let mut packets = 1;
        // Round trips are measured.
        let now = Time(fabric.now());
        if let Some(owed) = leaving.token.take_owed(now) {
            // For want of room it would be lost, as it may be on the way: the peer would ask again.
            let laid = append_packet(&mut batch, &route, &owed, 0, |_| Ok::<(), Infallible>(()));
            packets += u64::from(laid.is_some());
        }
        self.queue_pair.counters.udp_packets_sent.add_alone(packets);
        let deadline = leaving.keep(self.queue_pair, &mut self.qpc.submitted, request, length, now);
        let _within = self.queue_pair.services.arming.begin_verb();
        fabric.flush(batch);
        self.queue_pair.services.schedule(&self.queue_pair.schedule, deadline);
        true
    }

    /// Where over the network a request leaves at once, if it may.
    fn fast_route(&self) -> Option<Route> {
        // What several queue pairs share is given out in turns.
        self.qpc.established_route().filter(|_| self.queue_pair.services.has_one_network_user())
    }
}

/// A SEND that may leave at once.
struct ReadySend<'q, F: Fabric> {
    /// Where it is kept.
    send: LockGuard<'q, SendQueue<F>>,
    packet: SendOnlyRequest,
    token: FastSend<'q>,
}

impl<'q, F: Fabric> ReadySend<'q, F> {
    /// Sees whether a SEND may leave at once, and copies what it names. `None`: not now, or not so.
    #[inline(always)] // Part of each short SEND.
    fn begin(
        queue_pair: &'q QueuePair<F>,
        (connection, mr_entry, submitted): (&'q mut QpConnection, &mut Option<MrCacheEntry>, u64),
        request: &SendRequest<'_, F>,
        payload: &mut [u8],
    ) -> Option<Self> {
        let send = queue_pair.send.lock();
        let id = send.next_id();
        if submitted != id.0 || !queue_pair.has_send_slot(&send) {
            return None;
        }
        let QpConnection::Rc(rc) = connection else { return None };
        let (packet, token) = rc.try_send_fast(&work_of(request, id, payload.len()))?;
        match request.data {
            Data::Segments(pieces) => {
                if !gather(queue_pair, mr_entry, pieces, payload) {
                    return None;
                }
            }
            // No SEND.
            Data::Window(_) => return None,
            Data::Inline(pieces) => {
                let mut at = 0;
                for piece in pieces {
                    payload[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
            }
        }
        Some(ReadySend { send, packet, token })
    }

    /// Keeps it, as it has left, until it is acknowledged; gives when the queue pair is to be driven.
    #[inline(always)] // Part of each short SEND.
    fn keep(
        mut self,
        queue_pair: &QueuePair<F>,
        submitted: &mut u64,
        request: &SendRequest<'_, F>,
        length: usize,
        now: Time,
    ) -> u64 {
        // Made anew: moved here from before, it would be waited for.
        let work = work_of(request, self.send.next_id(), length);
        let signaled = request.signaled || queue_pair.properties.signal_all;
        let flags = SendFlags { signaled, linked: false };
        self.send.push(request, &work.operation, CompletionOpcode::Send, work.length, flags);
        drop(self.send);
        *submitted = work.id.0 + 1;
        self.token.sent(now, &work).map_or(u64::MAX, |at| at.0)
    }
}

/// Copies what a request names; false: not now, or not at all.
fn gather<F: Fabric>(
    queue_pair: &QueuePair<F>,
    mr_entry: &mut Option<MrCacheEntry>,
    pieces: &[ScatterGather],
    into: &mut [u8],
) -> bool {
    let (memory, domain) = (queue_pair.services.fabric.memory(), queue_pair.domain.number());
    let mut rest = into;
    pieces.iter().filter(|piece| piece.length > 0).all(|piece| {
        let part = std::mem::take(&mut rest);
        let (part, after) = part.split_at_mut(part.len().min(piece.length as usize));
        rest = after;
        let pieces = std::slice::from_ref(piece);
        let request = AccessRequest {
            by: &queue_pair.properties.claimant,
            pieces,
            domain,
            need: Rights::empty(),
            write: false,
        };
        Accesses(&queue_pair.services).access_now(&request, mr_entry, |from| memory.read_resident(from, part))
    })
}

/// A request for the protocol.
#[inline(always)] // Part of each short SEND.
fn work_of<F: Fabric>(request: &SendRequest<'_, F>, id: WorkId, length: usize) -> WorkRequest {
    let (operation, _) = operation_of(&request.operation);
    let (fence, solicited, linked) = (request.fence, request.solicited, false);
    WorkRequest { id, operation, length: length as u32, fence, solicited, linked, shared_queue: 0 }
}
