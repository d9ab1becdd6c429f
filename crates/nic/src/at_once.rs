//! Short SENDs between two processes of a host, sent at their post and executed as they are taken from the ring.
//!
//! They come and go as packets all the same; what is left out are the queues and turns in which a queue pair otherwise does
//! its work. Whatever does not find things as they mostly are takes the long way: [`drive`](crate::drive).

use crate::completion::{Completion, Opcode, Status};
use crate::drive::Core;
use crate::inbox::Origin;
use crate::path::ring::Kind;
use crate::path::verdict::Awaited;
use crate::queue_pair::QueuePair;
use crate::request::{Data, KeptData, ScatterGather, SendRequest, SendWork, slice_of, total_length};
use pagewire_fabric::Fabric;
use pagewire_fabric::limits::TICK;
use pagewire_iommu::Rights;
use pagewire_memory::ApplicationMemory;
use pagewire_transport::{Operation, Time, Work};
use pagewire_wire::Header;
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes of the longest message that is sent at once.
const LONGEST: usize = 256;

/// Bytes of the headers of a SEND.
const HEADERS: usize = 16;

impl<F: Fabric> QueuePair<F> {
    /// Sends a short SEND at its post and keeps it. False: nothing was done.
    pub(crate) fn send_at_once(
        self: &Arc<Self>,
        core: &mut Core<F>,
        request: &SendRequest<'_, F>,
        operation: &Operation,
        opcode: Opcode,
        length: u32,
    ) -> bool {
        if !matches!(operation, Operation::Send { .. }) || length as usize > LONGEST {
            return false;
        }
        let id = self.send.lock().next_id();
        if core.submitted != id.0 {
            return false;
        }
        let work =
            Work { id, operation: *operation, length, fence: request.fence, solicited: request.solicited };
        let Some(header) = core.send_at_once(&work) else { return false };
        let Some((channel, waits)) = core.local() else { return false };
        let mut bytes = [0; LONGEST];
        let payload = &mut bytes[..length as usize];
        let data = match request.data {
            Data::Segments(pieces) => {
                if !self.gather(pieces, payload, waits) {
                    return false;
                }
                KeptData::Segments(SmallVec::from_slice(pieces))
            }
            Data::Inline(pieces) => {
                let mut at = 0;
                for piece in pieces {
                    payload[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                KeptData::Inline(SmallVec::from_slice(payload))
            }
        };
        let mut headers = [0; HEADERS];
        let header_length = header.emit(&mut headers);
        let awaited = Some(Awaited { queue_pair: Some(self.number), psn: header.bth.psn });
        let fabric = self.nic.fabric();
        let mut send = self.send.lock();
        if send.next_id() != id
            || send.is_full()
            || channel.is_gone()
            || !channel.send(fabric, Kind::Bytes, &headers[..header_length], payload, awaited)
        {
            return false;
        }
        self.counters.ring_packets_sent.add(1);
        send.push(SendWork {
            wr_id: request.wr_id,
            data,
            work,
            opcode,
            signaled: request.signaled || self.signals_all(),
            destination: None,
        });
        drop(send);
        core.submitted = id.0 + 1;
        // Not before the time that it is: the coarse clock is behind by a tick at most.
        let deadline = core.sent_at_once(Time(fabric.past().saturating_add(TICK)), &work);
        self.nic.schedule(self, deadline.map_or(u64::MAX, |at| at.0));
        true
    }

    /// Copies what a request names; false: not now, or not at all.
    fn gather(&self, pieces: &[ScatterGather], into: &mut [u8], waits: &mut u32) -> bool {
        if into.is_empty() {
            return true;
        }
        let domain = self.domain.number();
        let Ok(access) = self.nic.begin(self, domain, pieces, Rights::empty(), false, waits) else {
            return false;
        };
        let read = self.nic.fabric().memory().read(&access.segments, into).is_ok();
        self.nic.finish(access);
        read
    }

    /// Executes a SEND as it is taken from the ring, whose acknowledgement is the caller's to tell. False: it was not, and is to
    /// be taken the long way.
    pub(crate) fn execute_at_once(
        &self,
        core: &mut Core<F>,
        header: &Header,
        payload: &[u8],
        origin: &Origin<F>,
    ) -> bool {
        if !core.attributes.state.receives()
            || !core.may_execute_at_once(header)
            || self.is_from_peer(core, origin) != Some(true)
        {
            return false;
        }
        if core.receive.is_none() {
            core.receive = self.take_receive();
        }
        // Should it not come to pass, the receive stays taken for the message.
        let Some(receive) = &core.receive else { return false };
        if !payload.is_empty() {
            if total_length(&receive.segments) < payload.len() as u64 {
                return false;
            }
            let pieces = slice_of(&receive.segments, 0, payload.len() as u64);
            let domain = self.receive_domain();
            let waits = &mut core.responder_waits;
            let Ok(access) = self.nic.begin(self, domain, &pieces, Rights::LOCAL_WRITE, true, waits) else {
                return false;
            };
            let placed = self.nic.fabric().memory().write(payload, &access.segments, true);
            self.nic.finish(access);
            if placed.is_err() {
                return false;
            }
        }
        let completion = Completion {
            byte_length: payload.len() as u32,
            immediate: header.immediate,
            solicited: header.bth.solicited,
            ..self.completion(receive.wr_id, Opcode::Receive, Status::Success)
        };
        core.receive = None;
        core.executed_at_once();
        self.complete_receive(completion);
        true
    }
}
