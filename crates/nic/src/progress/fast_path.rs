//! Short SENDs, sent at their post and executed as they are taken from the ring or the socket.
//!
//! They come and go as packets all the same; what is left out are the queues and turns in which a queue pair otherwise does
//! its work. Whatever does not find things as they mostly are takes the long way: [`qp_progress`](crate::progress::qp_progress).

use crate::access::{AccessRequest, MrCacheEntry};
use crate::completion::{Completion, Opcode, Status};
use crate::path::Path;
use crate::path::ring::Kind;
use crate::path::ring_ack::Awaited;
use crate::path::send_record_format;
use crate::progress::transport_ops::append_packet;
use crate::progress::udp_rx::ACKNOWLEDGEMENT;
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::{Incoming, Origin};
use crate::queue_pair::poll_hint::Seeker;
use crate::queue_pair::qp_context::{Connection, QpContext};
use crate::queue_pair::request::operation_of;
use crate::queue_pair::request::{Data, SendFlags, SendQueue, SendRequest, WholeReceive};
use crate::types::attributes::State;
use crate::types::limits::RING_INLINE;
use crate::types::qp_role::QpRole;
use crate::types::sge::ScatterGather;
use pagewire_fabric::lock::LockGuard;
use pagewire_fabric::{Fabric, Route};
use pagewire_iommu::Rights;
use pagewire_memory::ApplicationMemory;
use pagewire_transport::{FastSend, Payload, SendOnlyRequest, Time, Work, WorkId};
use pagewire_wire::Syndrome;
use std::convert::Infallible;
use std::sync::Arc;

/// Bytes of messages for which no memory is asked for; longer ones leave at once inside the host only.
const SHORT: usize = 256;
/// Most are no longer than this.
const SHORTEST: usize = 64;

/// A SEND that may leave at once.
struct Leaving<'q, F: Fabric> {
    /// Where it is kept.
    send: LockGuard<'q, SendQueue<F>>,
    packet: SendOnlyRequest,
    token: FastSend<'q>,
}

impl<F: Fabric> Leaving<'_, F> {
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
        let signaled = request.signaled || queue_pair.signals_all();
        let flags = SendFlags { signaled, linked: false };
        self.send.push(request, &work.operation, Opcode::Send, work.length, flags);
        drop(self.send);
        *submitted = work.id.0 + 1;
        self.token.sent(now, &work).map_or(u64::MAX, |at| at.0)
    }
}

impl<F: Fabric> QueuePair<F> {
    /// Sends a short SEND at its post and keeps it. False: nothing was done.
    #[inline]
    pub(crate) fn send_fast(self: &Arc<Self>, request: &SendRequest<'_, F>, length: u32) -> bool {
        if length > RING_INLINE {
            return false;
        }
        let Some(mut qpc) = self.qpc.try_lock() else { return false };
        let sends = qpc.sending && qpc.attributes.state == State::ReadyToSend;
        let sent = match qpc.path() {
            _ if !sends => false,
            Path::Local(_) if length as usize <= SHORTEST => {
                self.send_by_ring(&mut qpc, request, &mut [0; SHORTEST][..length as usize])
            }
            Path::Local(_) => self.send_longer(&mut qpc, request, length as usize),
            Path::Udp { .. } => self.send_by_network(&mut qpc, request, length as usize),
            _ => false,
        };
        drop(qpc);
        if self.is_wanted() {
            self.run();
        }
        sent
    }

    #[inline(never)] // What shorter ones are not to carry.
    fn send_longer(
        self: &Arc<Self>,
        qpc: &mut QpContext<F>,
        request: &SendRequest<'_, F>,
        length: usize,
    ) -> bool {
        match length {
            ..=SHORT => self.send_by_ring(qpc, request, &mut [0; SHORT][..length]),
            _ => self.send_by_ring(qpc, request, &mut vec![0; length]),
        }
    }

    #[inline(always)] // Part of each short SEND inside a host.
    fn send_by_ring(
        self: &Arc<Self>,
        qpc: &mut QpContext<F>,
        request: &SendRequest<'_, F>,
        payload: &mut [u8],
    ) -> bool {
        let Path::Local(channel) = &qpc.path else { return false };
        let kept = (&mut qpc.connection, &mut qpc.mr_cache.send, qpc.submitted);
        let Some(leaving) = self.begin_fast(kept, request, payload) else { return false };
        let mut headers = [0; send_record_format::LONGEST];
        let header_length = send_record_format::emit(&leaving.packet, &mut headers);
        let awaited = Some(Awaited { queue_pair: Some(self.number), psn: leaving.packet.psn });
        let headers = &headers[..header_length];
        if channel.is_gone() || !channel.send(&self.services.fabric, Kind::Send, headers, payload, awaited) {
            return false;
        }
        // It is on its way: what follows takes no time of it.
        self.counters.ring_packets_sent.add_alone(1);
        let now = self.services.roughly_now();
        let deadline = leaving.keep(self, &mut qpc.submitted, request, payload.len(), now);
        self.services.schedule(&self.schedule, deadline);
        true
    }

    #[inline(never)] // What inside a host is not to carry.
    fn send_by_network(
        self: &Arc<Self>,
        qpc: &mut QpContext<F>,
        request: &SendRequest<'_, F>,
        length: usize,
    ) -> bool {
        // A longer one may be more than a packet.
        let Some(route) = self.fast_route(qpc).filter(|_| length <= SHORT) else { return false };
        let payload = &mut [0; SHORT][..length];
        let kept = (&mut qpc.connection, &mut qpc.mr_cache.send, qpc.submitted);
        let Some(mut leaving) = self.begin_fast(kept, request, payload) else { return false };
        let copy = |into: &mut [u8]| {
            into.copy_from_slice(payload);
            Ok(())
        };
        let fabric = &self.services.fabric;
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
        self.counters.udp_packets_sent.add_alone(packets);
        let deadline = leaving.keep(self, &mut qpc.submitted, request, length, now);
        let _within = self.services.arming.begin_verb();
        fabric.flush(batch);
        self.services.schedule(&self.schedule, deadline);
        true
    }

    /// Sees whether a SEND may leave at once, and copies what it names. `None`: not now, or not so.
    #[inline(always)] // Part of each short SEND.
    fn begin_fast<'q>(
        &'q self,
        (connection, mr_entry, submitted): (&'q mut Connection, &mut Option<MrCacheEntry>, u64),
        request: &SendRequest<'_, F>,
        payload: &mut [u8],
    ) -> Option<Leaving<'q, F>> {
        let send = self.send.lock();
        let id = send.next_id();
        if submitted != id.0 || !self.has_send_slot(&send) {
            return None;
        }
        let Connection::Rc(rc) = connection else { return None };
        let (packet, token) = rc.try_send_fast(&work_of(request, id, payload.len()))?;
        match request.data {
            Data::Segments(pieces) => {
                if !self.gather(mr_entry, pieces, payload) {
                    return None;
                }
            }
            Data::Inline(pieces) => {
                let mut at = 0;
                for piece in pieces {
                    payload[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
            }
        }
        Some(Leaving { send, packet, token })
    }

    /// Where over the network a request leaves at once, if it may.
    fn fast_route(&self, qpc: &QpContext<F>) -> Option<Route> {
        // What several queue pairs share is given out in turns.
        qpc.established_route().filter(|_| self.is_only_network_qp())
    }

    /// Completes a request that the peer tells to be executed. False: it was not, and the acknowledgement is to be taken the long
    /// way.
    pub(crate) fn acknowledged_fast(
        self: &Arc<Self>,
        qpc: &mut QpContext<F>,
        now: Time,
        psn: u32,
        origin: &Origin<F>,
        seeker: Option<&mut Seeker<'_, F>>,
    ) -> bool {
        if !qpc.attributes.state.receives()
            || !qpc.shares_path_with(origin)
            || self.is_from_peer(qpc, origin) != Some(true)
        {
            return false;
        }
        let Some(id) = qpc.acknowledged_fast(now, psn) else { return false };
        self.send_cq.poll_hint.note(self, origin);
        self.complete_send_for(seeker, id, Status::Success);
        true
    }

    /// Copies what a request names; false: not now, or not at all.
    fn gather(&self, mr_entry: &mut Option<MrCacheEntry>, pieces: &[ScatterGather], into: &mut [u8]) -> bool {
        let (memory, domain) = (self.services.fabric.memory(), self.domain.number());
        let mut rest = into;
        pieces.iter().filter(|piece| piece.length > 0).all(|piece| {
            let part = std::mem::take(&mut rest);
            let (part, after) = part.split_at_mut(part.len().min(piece.length as usize));
            rest = after;
            let pieces = std::slice::from_ref(piece);
            let request =
                AccessRequest { by: &self.claimant, pieces, domain, need: Rights::empty(), write: false };
            self.services.access_now(&request, mr_entry, |from| memory.read_resident(from, part))
        })
    }

    /// Copies a whole message to the piece of its receive; false: not now, or not there.
    fn scatter(&self, mr_entry: &mut Option<MrCacheEntry>, payload: &[u8], piece: ScatterGather) -> bool {
        let (memory, domain) = (self.services.fabric.memory(), self.receive_domain());
        let pieces = &[ScatterGather { length: payload.len() as u32, ..piece }];
        let request =
            AccessRequest { by: &self.claimant, pieces, domain, need: Rights::LOCAL_WRITE, write: true };
        self.services.access_now(&request, mr_entry, |to| memory.write_resident(payload, to))
    }

    /// Takes a packet that came over the network at once, if it is a SEND that may be executed or the acknowledgement of the oldest
    /// request. False: it is to be taken the long way.
    #[inline]
    pub(crate) fn take_fast(
        self: &Arc<Self>,
        qpc: &mut QpContext<F>,
        now: Time,
        packet: &Incoming<'_, F>,
    ) -> bool {
        let Incoming { header, payload: Payload::Bytes([payload]), origin, .. } = packet else {
            return false;
        };
        if !self.inbox.is_empty(QpRole::of(header)) {
            return false;
        }
        if let Some(send) = SendOnlyRequest::of(header) {
            let Some(receive) = self.place_fast(qpc, &send, payload, origin) else { return false };
            self.complete_placed(None, &send, payload, receive);
            return true;
        }
        let acknowledges = header.bth.opcode == ACKNOWLEDGEMENT
            && header.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Ack { .. }));
        acknowledges && self.acknowledged_fast(qpc, now, header.bth.psn, origin, None)
    }

    /// Executes a SEND as it is taken from the ring, whose acknowledgement is the caller's to tell, or from the socket: then it is
    /// owed. The receive that it went to, for [`complete_placed`](Self::complete_placed). `None`: it is to be taken the long way.
    #[inline(always)] // What is moved into a call has to be waited for.
    pub(crate) fn place_fast(
        self: &Arc<Self>,
        qpc: &mut QpContext<F>,
        send: &SendOnlyRequest,
        payload: &[u8],
        origin: &Origin<F>,
    ) -> Option<WholeReceive> {
        if !qpc.attributes.state.receives()
            || !qpc.shares_path_with(origin)
            || self.is_from_peer(qpc, origin) != Some(true)
            || qpc.receive.is_some()
        {
            return None;
        }
        let Connection::Rc(rc) = &mut qpc.connection else { return None };
        let execution = rc.try_execute_fast(send, payload.len() as u32)?;
        let receive = self.take_whole_receive(payload.len() as u32)?;
        if !payload.is_empty() && !self.scatter(&mut qpc.mr_cache.receive, payload, receive.piece) {
            // It stays taken for the message.
            self.count_as_taken();
            qpc.receive = Some(receive.into());
            return None;
        }
        execution.executed();
        self.recv_cq.poll_hint.note(self, origin);
        Some(receive)
    }

    /// Completes the receive of a SEND that was [placed](Self::place_fast).
    #[inline(always)] // Part of each short SEND.
    pub(crate) fn complete_placed(
        &self,
        seeker: Option<&mut Seeker<'_, F>>,
        send: &SendOnlyRequest,
        payload: &[u8],
        receive: WholeReceive,
    ) {
        self.announce_to(seeker, &self.recv_cq, || Completion {
            byte_length: payload.len() as u32,
            immediate: send.immediate,
            solicited: send.solicited,
            ..self.completion(receive.wr_id, Opcode::Receive, Status::Success)
        });
    }
}

/// A request for the protocol.
#[inline(always)] // Part of each short SEND.
fn work_of<F: Fabric>(request: &SendRequest<'_, F>, id: WorkId, length: usize) -> Work {
    let (operation, _) = operation_of(&request.operation);
    let (fence, solicited, linked) = (request.fence, request.solicited, false);
    Work { id, operation, length: length as u32, fence, solicited, linked }
}
