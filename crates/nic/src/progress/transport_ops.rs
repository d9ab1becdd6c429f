//! What the protocol of one queue pair is given by the NIC: memory, receives, completions, the link.

mod flush;
mod intercepted;
mod memory_access;
mod packet_sink;
mod relayed;
mod work_queues;

pub use packet_sink::{append_packet, length_in_batch};

use crate::access::fault_state::Purpose;
use crate::access::{AccessRequest, AccessSession, Claimant};
use crate::progress::ended::{ProtocolFailure, ProtocolReport};
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::PacketOrigin;
use crate::queue_pair::qp_context::QpContext;
use crate::queue_pair::request::KeptData;
use crate::services::event::AsyncEventKind;
use crate::services::ready::Again;
use crate::types::outcome::{AccessError, Cause};
use crate::types::sge::{ScatterGather, slice_of};
use pagewire_fabric::{DeferredPayload, Fabric};
use pagewire_iommu::Rights;
use pagewire_transport::{Denial, Outcome, Reason, RemoteAddress, Right, WorkId};
use smallvec::SmallVec;

/// Registered memory of this process that a payload goes to or comes from.
#[derive(Clone, Copy)]
struct PayloadMemory<'a> {
    domain: u32,
    pieces: &'a [ScatterGather],
    need: Rights,
    /// What a refusal means to the protocol.
    denial: Denial,
    purpose: Purpose,
    /// Bytes that follow in the same transfer, where that is known; else 0.
    to_come: u64,
}

impl<'a> PayloadMemory<'a> {
    /// The access to it.
    fn request(&self, by: &'a Claimant, write: bool) -> AccessRequest<'a> {
        AccessRequest { by, pieces: self.pieces, domain: self.domain, need: self.need, write }
    }
}

/// The surroundings of one queue pair while it is driven.
pub struct QpTransportOps<'a, 'n, F: Fabric> {
    queue_pair: &'a QueuePair<F>,
    qpc: &'a mut QpContext<F>,
    /// Where the packet in hand came from.
    origin: Option<&'a PacketOrigin<F>>,
    /// Who reads its payload, if that is deferred.
    deferred: Option<&'a dyn DeferredPayload>,
    batch: Option<F::Batch>,
    /// It has no room for one more packet like the last.
    full: bool,
    /// The access that the packets handled in a row share.
    session: &'a mut AccessSession<'n, F>,
    /// The send request of the last packet, where its bytes are one piece. A request does not change while it is kept.
    gathered: Option<(WorkId, ScatterGather)>,
    ended: ProtocolReport,
}

impl<'a, 'n, F: Fabric> QpTransportOps<'a, 'n, F> {
    /// For one call of the protocol.
    pub fn new(
        queue_pair: &'a QueuePair<F>,
        qpc: &'a mut QpContext<F>,
        origin: Option<&'a PacketOrigin<F>>,
        session: &'a mut AccessSession<'n, F>,
    ) -> Self {
        let ended = ProtocolReport::default();
        let (deferred, batch, full, gathered) = (None, None, false, None);
        QpTransportOps { queue_pair, qpc, origin, deferred, batch, full, session, gathered, ended }
    }

    /// Has the payload of the packet in hand read by this, if it is deferred.
    pub fn defer(&mut self, deferred: Option<&'a dyn DeferredPayload>) {
        self.deferred = deferred;
    }

    /// The state of the queue pair that is driven.
    pub fn qpc(&mut self) -> &mut QpContext<F> {
        self.qpc
    }

    /// Sends what was gathered and tells what happened.
    #[inline(always)] // Part of each packet.
    pub fn finish(mut self) -> ProtocolReport {
        if self.ended.failure.is_some() {
            // Whoever ends the queue pair waits for accesses through it.
            self.session.release();
        }
        if let Some(batch) = self.batch.take() {
            self.queue_pair.services.fabric.flush(batch);
        }
        if self.ended.requeue {
            self.queue_pair.services.ready(&self.queue_pair.schedule, Again::Later);
        }
        self.ended
    }

    /// The pieces of a send request that hold some of its bytes, or the bytes themselves if they are inline.
    fn pieces(&self, id: WorkId, offset: u32, length: u32) -> Option<KeptData> {
        let send = self.queue_pair.send.lock();
        Some(match &send.get(id)?.data {
            KeptData::Segments(segments) => {
                KeptData::Segments(slice_of(segments, u64::from(offset), u64::from(length)))
            }
            KeptData::Inline(bytes) => {
                let from = (offset as usize).min(bytes.len());
                let to = (from + length as usize).min(bytes.len());
                KeptData::Inline(SmallVec::from_slice(&bytes[from..to]))
            }
            KeptData::Window(_) => return None,
        })
    }

    /// What it means to the protocol that an access is not made now; `of_region`: what a region's refusal means.
    fn outcome_of<T>(&mut self, error: AccessError, of_region: Denial) -> Outcome<T> {
        match error {
            AccessError::Wait(reason) => self.wait(reason),
            AccessError::Refused(cause) => Outcome::Denied(self.denial_of(cause, of_region)),
        }
    }

    /// How the protocol refuses for a cause. Where the key is valid and nothing is mapped, verbs programs get the remote access error that
    /// pagewire(7) promises; a node of the native interface learns that the memory is gone.
    #[cold]
    fn denial_of(&self, cause: Cause, of_region: Denial) -> Denial {
        let interception = &self.queue_pair.services.interception;
        match cause {
            Cause::PeerGone => Denial::SenderGone,
            Cause::PeerUnreadable => Denial::SenderUnreadable,
            Cause::LogDamaged | Cause::NotSynced => Denial::Operational,
            Cause::NotMapped
                if of_region == Denial::RemoteAccess
                    && interception.connects_nodes(self.queue_pair.properties.number) =>
            {
                Denial::Operational
            }
            Cause::Region(_) | Cause::NotMapped | Cause::NoRemoteAccess => of_region,
        }
    }

    fn wait<T>(&mut self, reason: Reason) -> Outcome<T> {
        self.ended.requeue |= !reason.is_announced();
        Outcome::Wait(reason)
    }

    fn fail(&mut self, event: Option<AsyncEventKind>, send_only: bool) {
        if self.ended.failure.is_none() {
            self.ended.failure = Some(ProtocolFailure { event, send_only });
        }
    }
}

/// Memory that a send request names, with so many bytes behind it.
fn requested(domain: u32, pieces: &[ScatterGather], to_come: u64) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::empty(), Denial::LocalProtection);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::Request, to_come }
}

/// Memory that a receive names.
fn received(domain: u32, pieces: &[ScatterGather]) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::LOCAL_WRITE, Denial::LocalProtection);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::Execute, to_come: 0 }
}

/// Memory that the peer writes, and `rest` bytes more behind it.
fn written(domain: u32, pieces: &[ScatterGather], rest: u32) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::REMOTE_WRITE, Denial::RemoteAccess);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::Execute, to_come: rest.into() }
}

/// Memory that a response goes to, with so many bytes behind it.
fn responded(domain: u32, pieces: &[ScatterGather], to_come: u64) -> PayloadMemory<'_> {
    let (need, denial) = (Rights::LOCAL_WRITE, Denial::LocalProtection);
    PayloadMemory { domain, pieces, need, denial, purpose: Purpose::PlaceResponse, to_come }
}

fn rights_of(right: Right) -> Rights {
    match right {
        Right::RemoteRead => Rights::REMOTE_READ,
        Right::RemoteWrite | Right::RemoteWord => Rights::REMOTE_WRITE,
        Right::RemoteAtomic => Rights::REMOTE_ATOMIC,
    }
}

fn piece(remote: RemoteAddress, length: u32) -> [ScatterGather; 1] {
    [ScatterGather { address: remote.address, length, key: remote.key }]
}
