//! WRITEs and READs that the initiator executes itself, in the memory of a local peer.
//!
//! No thread of the peer takes part, and no packet leaves. What cannot be done this way goes as packets, and the peer
//! says what became of them.

use crate::access::{AccessError, MrCacheEntry};
use crate::attributes::QueuePairType;
use crate::completion::{self, Completion, Status};
use crate::path::local::{LocalChannel, ProcessOf, PublishedQueuePair};
use crate::path::ring::Kind;
use crate::qp_progress::page_waits::{FaultState, Purpose};
use crate::qp_progress::{LocalPath, MrCache, QpContext};
use crate::queue_pair::QueuePair;
use crate::ready::Again;
use crate::request::{Data, ScatterGather, SendRequest};
use pagewire_fabric::{Direction, Fabric, RegionPart};
use pagewire_iommu::{RegionView, Rights};
use pagewire_memory::{Absence, ApplicationMemory, MemoryError, Segment, Unreached};
use pagewire_transport::{InitiatorCopy, Operation, RemoteAddress, Work};
use pagewire_wire::{Bth, Header, Opcode, bth};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

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

    /// The transfer of an operation with `length` bytes. `None`: this is no plain WRITE or READ.
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

/// Where in a local peer the last transfer went, most probably the next one's place, too. What may have changed since is looked at behind
/// the claim.
#[derive(Clone, Copy)]
pub struct RemoteHint {
    /// Of the peer's queue pair, in the peer's tables.
    place: u32,
    mr_entry: MrCacheEntry,
}

impl<F: Fabric> QueuePair<F> {
    /// Executes a transfer in the memory of a local peer. What has waited for pages and is not `Done` or `Wait` ends its wait with
    /// [`end_initiator_copy_wait`](Self::end_initiator_copy_wait).
    pub(crate) fn execute(
        &self,
        local_path: LocalPath<'_, F>,
        transfer: &Transfer,
        bytes: Bytes<'_>,
    ) -> InitiatorCopy {
        let nic = &self.nic;
        let &Transfer { remote, length, reads } = transfer;
        let LocalPath { channel, send_psn, waits, mr_cache, peer_knows_rts } = local_path;
        let MrCache { send: local_entry, remote_hint, resident_local, resident_remote, .. } = mr_cache;
        let process = &channel.channel.process;
        if channel.is_gone() {
            return InitiatorCopy::Unavailable;
        }
        let need = if reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
        let find = || {
            let found = channel.receptive(self.peer(), self.number);
            found.filter(|(_, peer)| self.is_let_in(peer, send_psn, need))
        };
        if length == 0 {
            let Some((place, _)) = find() else { return InitiatorCopy::Unavailable };
            self.announce_rts(channel, send_psn, place, peer_knows_rts);
            self.counters.initiator_copies.add_alone(1);
            return InitiatorCopy::Done;
        }
        let is_known = |remote_hint: &RemoteHint| {
            remote_hint.mr_entry.names(remote.key, need)
                && channel.peer_regions.still_open(remote_hint.mr_entry.window())
        };
        if !remote_hint.as_ref().is_some_and(is_known) {
            let Some((place, peer)) = find() else { return InitiatorCopy::Unavailable };
            let mr_entry = MrCacheEntry::look_up(&channel.peer_regions, remote.key, need, peer.domain);
            let Ok(mr_entry) = mr_entry else { return InitiatorCopy::Unavailable };
            *remote_hint = Some(RemoteHint { place, mr_entry });
        }
        let Some(RemoteHint { place, mr_entry }) = *remote_hint else { return InitiatorCopy::Unavailable };
        let length = u64::from(length);
        let Ok(granted) = mr_entry.window().locate(remote.address, length) else {
            return InitiatorCopy::Unavailable;
        };
        let there = [Segment { address: granted.address, length }];
        let memory = nic.fabric().memory();
        let moment = memory.moment();
        if let Err(unreached) = memory.reach(process, there[0], moment, resident_remote) {
            let is_there = || {
                channel.peer_regions.still_open(mr_entry.window())
                    && channel.receptive_at(place, self.peer(), self.number).is_some()
            };
            let part = RegionPart { region: granted.life(), segment: there[0] };
            let regions = &channel.peer_regions;
            if let Some(instead) = self.wait_for_peer_page(process, regions, part, unreached, waits, is_there)
            {
                if instead == InitiatorCopy::Unavailable {
                    *remote_hint = None;
                }
                return instead;
            }
        }
        // Under a claim on the region there.
        let mut reach = |moves: &dyn Fn() -> Result<(), MemoryError>| {
            let Some(claim) = channel.own_hazards.claim(granted.index, place) else {
                nic.ready(self, Again::Later);
                return InitiatorCopy::Wait;
            };
            // Behind the claim: revocation changes these first and looks for claims then.
            let valid = channel.peer_regions.still_open(mr_entry.window())
                && channel.receptive_at(place, self.peer(), self.number).is_some_and(|peer| {
                    peer.domain == mr_entry.domain() && self.is_let_in(&peer, send_psn, need)
                });
            let moved = valid && moves().is_ok();
            channel.own_hazards.release(claim);
            if !valid {
                *remote_hint = None;
            }
            if moved { InitiatorCopy::Done } else { InitiatorCopy::Unavailable }
        };
        let between = |here: &[Segment], many_absent: bool| match (many_absent, reads) {
            (false, true) => memory.pull(process, &there, here, true),
            (false, false) => memory.push(process, here, &there, true),
            (true, _) => self.move_absent(reads, process, here, &there),
        };
        let of = (self.domain.number(), if reads { Rights::LOCAL_WRITE } else { Rights::empty() });
        let given_up = |error| match error {
            AccessError::Wait | AccessError::Busy => InitiatorCopy::Wait,
            AccessError::Refused(_) | AccessError::NotMapped => InitiatorCopy::Unavailable,
        };
        let done = match bytes {
            Bytes::Inline(bytes) => reach(&|| memory.push_bytes(process, bytes, &there, true)),
            Bytes::Segments([piece]) => {
                match nic.begin_one(self, local_entry, of, piece, reads, waits, (moment, resident_local)) {
                    Ok((segment, claim)) => {
                        let done = reach(&|| between(&[segment], waits.many_absent));
                        nic.own_hazards().release(claim);
                        done
                    }
                    Err(error) => given_up(error),
                }
            }
            Bytes::Segments(pieces) => match nic.begin(self, of.0, pieces, of.1, reads, waits) {
                Ok(access) => {
                    let done = reach(&|| between(&access.segments, waits.many_absent));
                    nic.finish(access);
                    done
                }
                Err(error) => given_up(error),
            },
        };
        if done == InitiatorCopy::Done {
            nic.end_wait_if_any(waits);
            self.announce_rts(channel, send_psn, place, peer_knows_rts);
            self.counters.initiator_copies.add_alone(1);
            self.counters.initiator_copy_bytes.add_alone(length);
        }
        done
    }

    /// Moves bytes to or from a peer where many pages are absent.
    #[cold]
    #[inline(never)] // Its caller is part of each transfer.
    fn move_absent(
        &self,
        reads: bool,
        process: &ProcessOf<F>,
        here: &[Segment],
        there: &[Segment],
    ) -> Result<(), MemoryError> {
        let direction = if reads { Direction::Pull } else { Direction::Push };
        let page_in = self.nic.options().page_in;
        self.nic.fabric().move_absent(direction, process, (here, there), true, page_in)
    }

    /// What becomes of a transfer to memory of a peer that is not reached at once. `None`: it is made. `is_there`: the peer's queue
    /// pair and its region are what they were.
    #[cold]
    fn wait_for_peer_page(
        &self,
        process: &ProcessOf<F>,
        regions: &RegionView<F::Words>,
        there: RegionPart,
        unreached: Unreached,
        waits: &mut FaultState,
        is_there: impl FnOnce() -> bool,
    ) -> Option<InitiatorCopy> {
        let Unreached::Absent(absence) = unreached else { return Some(InitiatorCopy::Unavailable) };
        // Whoever waits is to learn of their end. Where the kernel must not meet absent pages the peer brings them in. So it does with those
        // that somebody in user space is asked for: a thread of this process that waits for one in a system call can be called off by
        // nobody. What turns out to be late may be one of those.
        let memory = self.nic.fabric().memory();
        let owner_brings_in = absence == Absence::UserSpace
            || waits.is_peer_late(self.nic.fabric().now())
            || !memory.kernel_may_fault()
            || !memory.kernel_may_fault_in(process);
        if owner_brings_in || !is_there() {
            return Some(InitiatorCopy::Unavailable);
        }
        self.nic
            .wait_for_peer_page(self, process, regions, there, absence, waits)
            .then_some(InitiatorCopy::Wait)
    }

    /// Tells a peer that has not heard from this side, and learns nothing of what was executed, that it has begun (COMM_EST).
    #[inline(always)] // Part of each transfer.
    fn announce_rts(&self, channel: &LocalChannel<F>, send_psn: u32, place: u32, peer_knows_rts: &mut bool) {
        if !*peer_knows_rts {
            let peer = channel.receptive_at(place, self.peer(), self.number);
            let knows = !peer.is_some_and(|peer| peer.unestablished);
            *peer_knows_rts = knows || self.greet_over_ring(channel, send_psn);
        }
    }

    /// A HELLO without a body. False: there is no room now, and the next transfer tells it.
    #[cold]
    fn greet_over_ring(&self, channel: &LocalChannel<F>, send_psn: u32) -> bool {
        let header = Header::new(Bth::new(Opcode::HELLO, self.peer(), send_psn));
        let mut bytes = [0; bth::LEN];
        header.emit(&mut bytes);
        channel.send(self.nic.fabric(), Kind::Bytes, &bytes, &[], None)
    }

    /// Whether the peer's queue pair takes such accesses by the connection that began with a PSN.
    #[inline(always)] // Part of each transfer.
    fn is_let_in(&self, peer: &PublishedQueuePair, send_psn: u32, need: Rights) -> bool {
        // A peer that began another connection since does not know these requests. UC takes them up anywhere.
        let connected = self.kind != QueuePairType::Rc || peer.receive_psn == send_psn;
        connected && peer.rights.contains(need)
    }

    /// Executes a request at its post, where nothing is before it. False: it must be kept and driven.
    pub(crate) fn post_directly(
        &self,
        qpc: &mut QpContext<F>,
        request: &SendRequest<'_, F>,
        transfer: &Transfer,
        opcode: completion::Opcode,
    ) -> bool {
        if !qpc.is_quiet() || !self.take_slot_to_execute() {
            return false;
        }
        let done = self.executes_directly(qpc, transfer, request.data);
        if done && (request.signaled || self.signals_all()) {
            let byte_length = if transfer.reads { transfer.length } else { 0 };
            let completion = self.send_completion(request.wr_id, opcode, Status::Success);
            self.announce(&self.send_cq, Completion { byte_length, ..completion });
        }
        // The completion holds it now, or the request as it is kept.
        self.executing.store(false, Ordering::Release);
        if done {
            self.end_if_overrun(qpc);
        }
        done
    }

    /// Takes a slot for a request that is executed and not kept. False: one is kept before it, or none is free.
    #[inline(always)] // Part of each transfer.
    fn take_slot_to_execute(&self) -> bool {
        let send = self.send.lock();
        let takes = send.is_empty() && self.has_send_slot(&send);
        if takes {
            self.executing.store(true, Ordering::Relaxed);
        }
        takes
    }

    fn executes_directly(&self, qpc: &mut QpContext<F>, transfer: &Transfer, data: Data<'_>) -> bool {
        let Some(local_path) = qpc.local() else { return false };
        let gathered: SmallVec<[u8; 64]>;
        let bytes = match data {
            Data::Segments(pieces) => Bytes::Segments(pieces),
            Data::Inline([bytes]) => Bytes::Inline(bytes),
            Data::Inline(pieces) => {
                gathered = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                Bytes::Inline(&gathered)
            }
        };
        match self.execute(local_path, transfer, bytes) {
            InitiatorCopy::Done => qpc.note_initiator_copy(),
            InitiatorCopy::Wait => return false,
            InitiatorCopy::Unavailable => {
                self.end_initiator_copy_wait(qpc);
                return false;
            }
        }
        true
    }

    /// What waited to be executed directly goes as packets, or fails: its wait for pages is over.
    #[cold]
    pub(crate) fn end_initiator_copy_wait(&self, qpc: &mut QpContext<F>) {
        self.nic.end_wait_if_any(qpc.begin_access(Purpose::Request));
    }
}
