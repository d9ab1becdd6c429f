//! WRITEs and READs that the initiator executes itself, in the memory of a local peer.
//!
//! No thread of the peer takes part, and no packet leaves. What cannot be done this way goes as packets, and the peer
//! gives the verdict.

use crate::access::AccessError;
use crate::attributes::QueuePairType;
use crate::completion::{Completion, Opcode, Status};
use crate::drive::Core;
use crate::drive::page_waits::Asked;
use crate::path::local::{LocalChannel, PublishedQueuePair};
use crate::queue_pair::QueuePair;
use crate::ready::Again;
use crate::request::{Data, ScatterGather, SendRequest};
use pagewire_fabric::Fabric;
use pagewire_iommu::Rights;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_transport::{Direct, Operation, RemoteAddress, Work};
use smallvec::SmallVec;

/// What is moved, and which way.
pub struct Transfer {
    remote: RemoteAddress,
    length: u32,
    reads: bool,
}

impl Transfer {
    /// `None`: this is no plain WRITE or READ.
    pub fn of(work: &Work) -> Option<Transfer> {
        Transfer::new(&work.operation, work.length)
    }

    /// The same of an operation with so many bytes.
    pub fn new(operation: &Operation, length: u32) -> Option<Transfer> {
        match *operation {
            Operation::Write { remote, immediate: None } => Some(Transfer { remote, length, reads: false }),
            Operation::Read { remote } => Some(Transfer { remote, length, reads: true }),
            _ => None,
        }
    }
}

/// Where the bytes are at this side.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// Copied when the request was posted.
    Inline(&'a [u8]),
    Segments(&'a [ScatterGather]),
}

impl<F: Fabric> QueuePair<F> {
    /// Executes a transfer over a channel to the peer's process. `send_psn`: with which the connection began; `waits`: times in a
    /// row that pages were brought in for the requester.
    pub(crate) fn execute(
        &self,
        channel: &LocalChannel<F>,
        send_psn: u32,
        waits: &mut Asked,
        transfer: &Transfer,
        bytes: Bytes<'_>,
    ) -> Direct {
        let nic = &self.nic;
        let &Transfer { remote, length, reads } = transfer;
        let Ok(process) = &channel.channel.cross_memory else { return Direct::Unavailable };
        let Some((place, peer)) = channel.receptive(self.peer(), self.number) else {
            return Direct::Unavailable;
        };
        // A peer that began another connection since does not know these requests. UC takes them up anywhere.
        let connected =
            |peer: &PublishedQueuePair| self.kind != QueuePairType::Rc || peer.receive_psn == send_psn;
        if !connected(&peer) {
            return Direct::Unavailable;
        }
        let need = if reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
        if !peer.rights.contains(need) || channel.is_gone() {
            return Direct::Unavailable;
        }
        if length == 0 {
            self.counters.direct_operations.add_alone(1);
            return Direct::Done;
        }
        let length = u64::from(length);
        let Ok(granted) = channel.peer_regions.check(remote.key, remote.address, length, need, peer.domain)
        else {
            return Direct::Unavailable;
        };
        let access = match bytes {
            Bytes::Inline(_) => None,
            Bytes::Segments(pieces) => {
                let need = if reads { Rights::LOCAL_WRITE } else { Rights::empty() };
                match nic.begin(self, self.domain.number(), pieces, need, reads, waits) {
                    Ok(access) => Some(access),
                    Err(AccessError::Wait) => return Direct::Wait,
                    Err(_) => return Direct::Unavailable,
                }
            }
        };
        let far = [Segment { address: granted.address, length }];
        let memory = nic.fabric().memory();
        let done = match channel.own_hazards.claim(granted.index, place) {
            None => {
                nic.ready(self, Again::Later);
                Direct::Wait
            }
            Some(claim) => {
                // Both are asked once more behind the claim: revocation changes them first and looks for claims then.
                let valid = channel.peer_regions.still(&granted)
                    && channel
                        .receptive_at(place, self.peer(), self.number)
                        .is_some_and(|peer| connected(&peer));
                let moved = valid
                    && match (&access, bytes) {
                        (Some(access), _) if reads => memory.pull(process, &far, &access.segments, true),
                        (Some(access), _) => memory.push(process, &access.segments, &far, true),
                        (None, Bytes::Inline(bytes)) => memory.push_bytes(process, bytes, &far, true),
                        (None, Bytes::Segments(_)) => Ok(()),
                    }
                    .is_ok();
                channel.own_hazards.release(claim);
                if moved { Direct::Done } else { Direct::Unavailable }
            }
        };
        if let Some(access) = access {
            nic.finish(access);
        }
        if done == Direct::Done {
            self.counters.direct_operations.add_alone(1);
            self.counters.direct_bytes.add_alone(length);
        }
        done
    }

    /// Executes a request at its post, where nothing is before it. False: it must be kept and driven.
    pub(crate) fn post_directly(
        &self,
        core: &mut Core<F>,
        request: &SendRequest<'_, F>,
        transfer: &Transfer,
        opcode: Opcode,
    ) -> bool {
        let done = self.executes_directly(core, transfer, request.data);
        if done {
            if request.signaled || self.signals_all() {
                let byte_length = if transfer.reads { transfer.length } else { 0 };
                let completion = self.completion(request.wr_id, opcode, Status::Success);
                self.announce(&self.send_cq, Completion { byte_length, ..completion });
            }
            self.end_if_overrun(core);
        }
        done
    }

    fn executes_directly(&self, core: &mut Core<F>, transfer: &Transfer, data: Data<'_>) -> bool {
        if !core.is_quiet() || !self.send.lock().is_empty() {
            return false;
        }
        let send_psn = core.attributes.send_psn;
        let Some((channel, waits)) = core.local() else { return false };
        let gathered: SmallVec<[u8; 64]>;
        let bytes = match data {
            Data::Segments(pieces) => Bytes::Segments(pieces),
            Data::Inline([bytes]) => Bytes::Inline(bytes),
            Data::Inline(pieces) => {
                gathered = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                Bytes::Inline(&gathered)
            }
        };
        let done = self.execute(channel, send_psn, waits, transfer, bytes) == Direct::Done;
        if done {
            core.executed_directly();
        }
        done
    }
}
