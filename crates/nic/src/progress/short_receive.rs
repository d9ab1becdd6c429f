//! Short SENDs that are executed as they are taken from the ring or the socket, and acknowledgements of the oldest request.
//!
//! What does not find things as they mostly are takes the long way: [`arriving_burst`](crate::progress::arriving_burst).

use crate::access::{AccessRequest, Accesses, MrCacheEntry};
use crate::completion::{Completion, CompletionOpcode, Status};
use crate::progress::udp_rx::ACKNOWLEDGEMENT;
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::{Incoming, PacketOrigin, is_default_partition};
use crate::queue_pair::poll_hint::Seeker;
use crate::queue_pair::qp_context::{QpConnection, QpContext};
use crate::queue_pair::request::WholeReceive;
use crate::types::attributes::QueuePairType;
use crate::types::qp_role::QpRole;
use crate::types::sge::ScatterGather;
use pagewire_fabric::Fabric;
use pagewire_iommu::Rights;
use pagewire_memory::ApplicationMemory;
use pagewire_transport::{Payload, SendOnlyRequest, Time};
use pagewire_wire::Syndrome;
use std::sync::Arc;

/// A queue pair that a short packet has come for, and whose QP context this thread holds.
pub(crate) struct ShortReceive<'q, F: Fabric> {
    queue_pair: &'q Arc<QueuePair<F>>,
    qpc: &'q mut QpContext<F>,
}

impl<'q, F: Fabric> ShortReceive<'q, F> {
    /// The caller holds the QP context.
    #[inline(always)] // Part of each short SEND.
    pub(crate) fn new(queue_pair: &'q Arc<QueuePair<F>>, qpc: &'q mut QpContext<F>) -> Self {
        ShortReceive { queue_pair, qpc }
    }

    /// Takes a packet that came over the network at once, if it is a SEND that may be executed or the acknowledgement of the oldest
    /// request. False: it is to be taken the long way.
    #[inline]
    pub(crate) fn take(&mut self, now: Time, packet: &Incoming<'_, F>) -> bool {
        let Incoming { header, payload: Payload::Bytes([payload]), origin, .. } = packet else {
            return false;
        };
        if !self.queue_pair.inbox.is_empty(QpRole::of(header)) {
            return false;
        }
        if let Some(send) = SendOnlyRequest::of(header) {
            let Some(receive) = self.place(&send, payload, origin) else { return false };
            self.complete(None, &send, payload, receive);
            return true;
        }
        let acknowledges = header.bth.opcode == ACKNOWLEDGEMENT
            && header.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Ack { .. }));
        acknowledges && self.acknowledge(now, header.bth.psn, origin, None)
    }

    /// Whether a SEND over a ring is one for the queue pair.
    #[inline(always)] // Part of each short SEND.
    pub(crate) fn accepts(&self, send: &SendOnlyRequest) -> bool {
        let queue_pair = self.queue_pair;
        queue_pair.properties.kind == QueuePairType::Rc
            && is_default_partition(send.partition)
            && queue_pair.state().receives()
    }

    /// Executes a SEND as it is taken from the ring, whose acknowledgement is the caller's to tell, or from the socket: then it is
    /// owed. The receive that it went to, for [`complete_placed`](Self::complete_placed). `None`: it is to be taken the long way.
    #[inline(always)] // What is moved into a call has to be waited for.
    pub(crate) fn place(
        &mut self,
        send: &SendOnlyRequest,
        payload: &[u8],
        origin: &PacketOrigin<F>,
    ) -> Option<WholeReceive> {
        if !self.qpc.attributes.state.receives()
            || !self.qpc.shares_path_with(origin)
            || self.qpc.is_from_peer(origin) != Some(true)
            || self.qpc.receive.is_some()
        {
            return None;
        }
        let QpConnection::Rc(rc) = &mut self.qpc.connection else { return None };
        let execution = rc.try_execute_fast(send, payload.len() as u32)?;
        let receive = self.queue_pair.receives.take_whole(payload.len() as u32)?;
        if !payload.is_empty()
            && !scatter(self.queue_pair, &mut self.qpc.mr_cache.receive, payload, receive.piece)
        {
            // It stays taken for the message.
            self.queue_pair.receives.count_as_taken();
            self.qpc.receive = Some(receive.into());
            return None;
        }
        execution.executed();
        self.queue_pair.recv_cq.poll_hint.note(self.queue_pair, origin);
        Some(receive)
    }

    /// Completes the receive of a SEND that was [placed](Self::place).
    #[inline(always)] // Part of each short SEND.
    pub(crate) fn complete(
        &self,
        seeker: Option<&mut Seeker<'_, F>>,
        send: &SendOnlyRequest,
        payload: &[u8],
        receive: WholeReceive,
    ) {
        self.queue_pair.counted.count(CompletionOpcode::Receive, payload.len() as u32, Status::Success);
        self.queue_pair.announce_to(seeker, &self.queue_pair.recv_cq, || Completion {
            byte_length: payload.len() as u32,
            immediate: send.immediate,
            solicited: send.solicited,
            ..Completion::new(
                self.queue_pair.properties.number,
                receive.wr_id,
                CompletionOpcode::Receive,
                Status::Success,
            )
        });
    }

    /// Completes a request that the peer tells to be executed. False: it was not, and the acknowledgement is to be taken the long
    /// way.
    pub(crate) fn acknowledge(
        &mut self,
        now: Time,
        psn: u32,
        origin: &PacketOrigin<F>,
        seeker: Option<&mut Seeker<'_, F>>,
    ) -> bool {
        if !self.qpc.attributes.state.receives()
            || !self.qpc.shares_path_with(origin)
            || self.qpc.is_from_peer(origin) != Some(true)
        {
            return false;
        }
        let Some(id) = self.qpc.acknowledged_fast(now, psn) else { return false };
        self.queue_pair.send_cq.poll_hint.note(self.queue_pair, origin);
        self.queue_pair.complete_send_for(seeker, id, Status::Success);
        true
    }
}

/// Copies a whole message to the piece of its receive; false: not now, or not there.
fn scatter<F: Fabric>(
    queue_pair: &QueuePair<F>,
    mr_entry: &mut Option<MrCacheEntry>,
    payload: &[u8],
    piece: ScatterGather,
) -> bool {
    let (memory, domain) =
        (queue_pair.services.fabric.memory(), queue_pair.receives.domain_number(queue_pair.domain.number()));
    let pieces = &[ScatterGather { length: payload.len() as u32, ..piece }];
    let request = AccessRequest {
        by: &queue_pair.properties.claimant,
        pieces,
        domain,
        need: Rights::LOCAL_WRITE,
        write: true,
    };
    Accesses(&queue_pair.services).access_now(&request, mr_entry, |to| memory.write_resident(payload, to))
}
