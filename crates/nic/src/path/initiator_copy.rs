//! WRITEs, READs and atomics that the initiator executes itself, in the memory of a local peer.
//!
//! No thread of the peer takes part, and no packet leaves. What cannot be done this way goes as packets, and the peer
//! says what became of them. The order is fixed: locate and reach there, claim and residency here, claim there, check again, copy.

use crate::access::fault_state::FaultState;
use crate::access::page_faults::PeerMemory;
use crate::access::{AccessRequest, Accesses, Claimant, MrCacheEntry};
use crate::path::intercepted_copy::PeerLogs;
use crate::path::local::{LocalChannel, PublishedQueuePair};
use crate::path::ring::RecordKind;
use crate::services::Services;
use crate::services::fabric_event_queue::ProcessOf;
use crate::types::outcome::{AccessError, AccessResult, Cause};
use crate::types::sge::ScatterGather;
use pagewire_fabric::{Direction, Fabric, PageInThreads, RegionPart};
use pagewire_iommu::{AccessRefusal, AccessScope, Rights};
use pagewire_memory::{
    Absence, ApplicationMemory, AtomicOperation, CopySource, LastSeen, MemoryError, RemoteMemory, Segment,
    Unreached,
};
use pagewire_transport::{AtomicRequest, Reason, RemoteAddress, WorkOperation};
use pagewire_wire::{Bth, Opcode, PacketHeader, bth};
use std::sync::atomic::AtomicU64;

/// What is moved, and which way.
pub struct InitiatorTransfer {
    pub(super) remote: RemoteAddress,
    pub length: u32,
    pub reads: bool,
}

impl InitiatorTransfer {
    /// The transfer of an operation with `length` bytes. `None`: this is no plain WRITE or READ.
    pub fn new(operation: &WorkOperation, length: u32) -> Option<InitiatorTransfer> {
        match *operation {
            WorkOperation::Write { remote, immediate: None } => {
                Some(InitiatorTransfer { remote, length, reads: false })
            }
            WorkOperation::Read { remote } => Some(InitiatorTransfer { remote, length, reads: true }),
            _ => None,
        }
    }
}

/// An atomic on memory of a local peer that is mapped here.
pub struct AtomicTransfer {
    remote: RemoteAddress,
    operation: AtomicOperation,
}

impl AtomicTransfer {
    /// Bytes that an atomic changes, and gives.
    pub const LENGTH: u32 = 8;

    /// `None`: this is no atomic.
    pub fn new(operation: &WorkOperation) -> Option<AtomicTransfer> {
        let WorkOperation::Atomic { remote, atomic } = *operation else { return None };
        Some(AtomicTransfer { remote, operation: memory_operation(atomic) })
    }
}

/// What an atomic of the protocol does to memory.
pub fn memory_operation(atomic: AtomicRequest) -> AtomicOperation {
    match atomic {
        AtomicRequest::CompareSwap { compare, swap } => AtomicOperation::CompareSwap { compare, swap },
        AtomicRequest::FetchAdd { add } => AtomicOperation::FetchAdd { add },
    }
}

/// Where the bytes are at this side.
#[derive(Clone, Copy)]
pub enum InitiatorBytes<'a> {
    /// Copied when the request was posted.
    Inline(&'a [u8]),
    Segments(&'a [ScatterGather]),
    /// Memory that the caller holds until the transfer has ended: no region of it is claimed.
    Held(&'a [Segment]),
}

/// Where in a local peer the last transfer went, most probably the next one's place, too. What may have changed since is looked at behind
/// the claim.
#[derive(Clone, Copy)]
pub struct RemoteHint {
    /// Of the peer's queue pair, in the peer's tables.
    pub(super) place: u32,
    pub(super) mr_entry: MrCacheEntry,
}

/// Regions that are most probably accessed again.
#[derive(Default)]
pub struct MrCache {
    /// What was last sent from at a post, or by a transfer that the requester executed itself, or read into.
    pub send: Option<MrCacheEntry>,
    /// What a message was last received into at once.
    pub receive: Option<MrCacheEntry>,
    /// What was last accessed in the local peer's memory.
    pub remote_hint: Option<RemoteHint>,
    /// What of that memory, and of the own, such transfers last saw present.
    pub resident_remote: LastSeen,
    pub resident_local: LastSeen,
}

/// A local peer's memory, as the requester reaches it.
pub struct LocalPath<'c, F: Fabric, R> {
    pub services: &'c Services<F>,
    pub by: &'c Claimant,
    pub channel: &'c LocalChannel<F>,
    pub remote: R,
    /// Number of the peer's queue pair.
    pub peer: u32,
    /// The protection domain of this side.
    pub domain: u32,
    /// With which PSN the connection began.
    pub send_psn: u32,
    /// The peer must know that connection. UC takes requests up anywhere.
    pub is_reliable: bool,
    /// The requester's accesses that find pages absent.
    pub waits: &'c mut FaultState,
    pub mr_cache: &'c mut MrCache,
    /// The peer knows that this side is in RTS.
    pub peer_knows_rts: &'c mut bool,
    pub peer_logs: &'c mut PeerLogs<F>,
}

/// Where a transfer goes in the peer.
pub(super) struct TransferPlan {
    pub hint: RemoteHint,
    pub need: Rights,
    pub there: [Segment; 1],
}

impl<F: Fabric, R: RemoteMemory> LocalPath<'_, F, R> {
    /// Executes a transfer in the memory of a local peer. What has waited for pages and is refused ends its wait by the caller.
    #[inline(always)] // Part of each transfer.
    pub fn execute(&mut self, transfer: &InitiatorTransfer, bytes: InitiatorBytes<'_>) -> AccessResult<()> {
        if self.channel.is_gone() {
            return Err(AccessError::Refused(Cause::PeerGone));
        }
        let need = if transfer.reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
        if transfer.length == 0 {
            let (place, _) = self.find_peer(need)?;
            self.announce_rts(place);
            return Ok(());
        }
        let plan = match self.plan(transfer.remote, transfer.length.into(), need) {
            Ok(plan) => plan,
            Err(error) => return self.execute_otherwise(error, transfer, bytes),
        };
        let moment = self.services.fabric.memory().moment();
        self.reach(&plan, moment)?;
        self.claim_and_copy(&plan, transfer.reads, bytes, moment)?;
        Accesses(self.services).end_wait_if_any(self.waits);
        self.announce_rts(plan.hint.place);
        Ok(())
    }

    /// Executes a transfer that has no plan, if page attributes are why.
    #[cold]
    #[inline(never)] // Transfers are to carry nothing of it.
    fn execute_otherwise(
        &mut self,
        error: AccessError,
        transfer: &InitiatorTransfer,
        bytes: InitiatorBytes<'_>,
    ) -> AccessResult<()> {
        match error {
            AccessError::Refused(Cause::Region(AccessRefusal::Rights)) => {
                self.execute_intercepted(transfer, bytes)
            }
            _ => Err(error),
        }
    }

    /// Runs an atomic in memory of a local peer that is mapped here, and writes what was there to this side.
    #[cold] // Transfers are to carry nothing of it.
    #[inline(never)]
    pub fn execute_atomic(&mut self, atomic: &AtomicTransfer, pieces: &[ScatterGather]) -> AccessResult<()> {
        let plan = match self.plan_atomic(atomic) {
            Ok(plan) => plan,
            Err(error) => return self.atomic_otherwise(error, atomic, Some(pieces)).map(|_| ()),
        };
        let services = self.services;
        let memory = services.fabric.memory();
        let (need, write) = (Rights::LOCAL_WRITE, true);
        let request = AccessRequest { by: self.by, pieces, domain: self.domain, need, write };
        let access = Accesses(services).begin(&request, self.waits)?;
        self.copy(&plan, |remote, there| {
            update(memory, remote, atomic.operation, (&access.segments, there))
        })?;
        Accesses(services).end_wait_if_any(self.waits);
        self.announce_rts(plan.hint.place);
        Ok(())
    }

    /// Runs an atomic in memory of a local peer that is mapped here, and gives what was there.
    pub fn execute_atomic_now(&mut self, atomic: &AtomicTransfer) -> AccessResult<u64> {
        let plan = match self.plan_atomic(atomic) {
            Ok(plan) => plan,
            Err(error) => return self.atomic_otherwise(error, atomic, None),
        };
        let mut original = 0;
        self.copy(&plan, |remote, there| {
            let [there] = there else { return Err(MemoryError::NotMapped) };
            original = remote.atomic(*there, atomic.operation)?;
            Ok(())
        })?;
        Accesses(self.services).end_wait_if_any(self.waits);
        self.announce_rts(plan.hint.place);
        Ok(original)
    }

    /// Runs an atomic that has no plan, if page attributes are why.
    #[cold]
    fn atomic_otherwise(
        &mut self,
        error: AccessError,
        AtomicTransfer { remote, operation }: &AtomicTransfer,
        pieces: Option<&[ScatterGather]>,
    ) -> AccessResult<u64> {
        match error {
            AccessError::Refused(Cause::Region(AccessRefusal::Rights)) => {
                self.execute_atomic_intercepted(*remote, *operation, pieces)
            }
            _ => Err(error),
        }
    }

    /// Has the caller work on words of a local peer's memory that is mapped here, under one claim on its region.
    pub fn with_words(
        &mut self,
        remote: RemoteAddress,
        length: u64,
        work: &mut dyn FnMut(&[AtomicU64]),
    ) -> AccessResult<()> {
        if self.channel.is_gone() {
            return Err(AccessError::Refused(Cause::PeerGone));
        }
        let need = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        let plan = self.plan(remote, length, need)?;
        self.copy(&plan, |remote, there| {
            let [there] = there else { return Err(MemoryError::NotMapped) };
            work(remote.words(*there).ok_or(MemoryError::NotMapped)?);
            Ok(())
        })?;
        self.announce_rts(plan.hint.place);
        Ok(())
    }

    /// The place of an atomic in the peer's memory, where that is mapped here and its page is there.
    fn plan_atomic(&mut self, atomic: &AtomicTransfer) -> AccessResult<TransferPlan> {
        if self.channel.is_gone() {
            return Err(AccessError::Refused(Cause::PeerGone));
        }
        let plan = self.plan(atomic.remote, AtomicTransfer::LENGTH.into(), Rights::REMOTE_ATOMIC)?;
        if !self.remote.takes_atomics(plan.there[0]) {
            return Err(AccessError::Refused(Cause::PeerUnreadable));
        }
        self.reach(&plan, self.services.fabric.memory().moment())?;
        Ok(plan)
    }

    pub(super) fn find_peer(&self, need: Rights) -> AccessResult<(u32, PublishedQueuePair)> {
        let found = self.channel.receptive(self.peer, self.by.number);
        let found = found.filter(|(_, peer)| self.accepts_access(peer, need));
        found.ok_or(AccessError::Refused(Cause::PeerGone))
    }

    /// The place of a transfer in the peer's memory, by what the last one found or by the peer's tables.
    #[inline(always)] // Part of each transfer.
    fn plan(&mut self, remote: RemoteAddress, length: u64, need: Rights) -> AccessResult<TransferPlan> {
        let hint = match self.known_hint(remote.key, need) {
            Some(hint) => hint,
            None => self.look_up(remote.key, need)?,
        };
        let granted = hint.mr_entry.window().locate(remote.address, length)?;
        let there = [Segment { address: granted.address, length }];
        Ok(TransferPlan { hint, need, there })
    }

    /// What a key of the peer names for such accesses.
    #[cold] // Transfers most probably go where the last one went.
    #[inline(never)]
    fn look_up(&mut self, key: u32, need: Rights) -> AccessResult<RemoteHint> {
        // No region has plain and intercepted rights at the same time.
        if self.known_hint(key, need.intercepted(true)).is_some() {
            return Err(AccessRefusal::Rights.into());
        }
        self.find(key, need, need)
    }

    /// The region that was accessed last, if it is that of a key, for such accesses.
    #[inline(always)] // Part of each transfer.
    pub(super) fn known_hint(&self, key: u32, need: Rights) -> Option<RemoteHint> {
        let regions = &self.channel.peer_regions;
        self.mr_cache
            .remote_hint
            .filter(|hint| hint.mr_entry.names(key, need) && regions.still_open(hint.mr_entry.window()))
    }

    /// Finds the region of a key in the peer's tables, for accesses that need a right of its queue pair and one of the region.
    pub(super) fn find(&mut self, key: u32, need: Rights, of_region: Rights) -> AccessResult<RemoteHint> {
        let (place, peer) = self.find_peer(need)?;
        self.channel.map_shared(&self.services.fabric);
        let by = AccessScope { domain: peer.domain, queue_pair: self.peer };
        let look_up = |need| MrCacheEntry::look_up(&self.channel.peer_regions, key, need, by);
        // A program that puts most probably gets, too.
        let every = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        let every = every.intercepted(of_region != need);
        let mr_entry = look_up(every).or_else(|_| look_up(of_region))?;
        Ok(*self.mr_cache.remote_hint.insert(RemoteHint { place, mr_entry }))
    }

    /// Whether the peer's pages are there; else what becomes of the transfer.
    #[inline(always)] // Part of each transfer.
    pub(super) fn reach(&mut self, plan: &TransferPlan, moment: u64) -> AccessResult<()> {
        match self.remote.reach(plan.there[0], moment, &mut self.mr_cache.resident_remote) {
            Ok(()) => Ok(()),
            Err(unreached) => self.wait_for_peer_page(plan, unreached),
        }
    }

    /// What becomes of a transfer to memory of a peer that is not reached at once. `Ok`: it is made.
    #[cold]
    fn wait_for_peer_page(&mut self, plan: &TransferPlan, unreached: Unreached) -> AccessResult<()> {
        let channel = self.channel;
        let is_there = || {
            channel.peer_regions.still_open(plan.hint.mr_entry.window())
                && channel.receptive_at(plan.hint.place, self.peer, self.by.number).is_some()
        };
        // Where the kernel denies access, this process can neither see nor bring in pages of the peer.
        if self.services.fabric.memory().is_denied(&channel.channel.process) {
            channel.set_denied();
        }
        // This thread waits for a page only if it learns of the peer's end meanwhile. The peer itself brings in pages that a pager in user
        // space provides, and late ones: nobody can interrupt a system call that waits for them.
        let absence = match unreached {
            Unreached::Absent(absence)
                if !channel.is_denied()
                    && absence != Absence::UserSpace
                    && !self.waits.is_peer_late(self.services.fabric.now())
                    && self.remote.may_fault()
                    && is_there() =>
            {
                absence
            }
            _ => {
                self.mr_cache.remote_hint = None;
                return Err(AccessError::Refused(Cause::PeerUnreadable));
            }
        };
        let part = RegionPart { region: plan.hint.mr_entry.window().life(), segment: plan.there[0] };
        let peer = PeerMemory { process: &channel.channel.process, regions: &channel.peer_regions };
        match Accesses(self.services).wait_for_peer_page(self.by, peer, part, absence, self.waits) {
            true => Err(AccessError::Wait(Reason::Page)),
            false => Ok(()),
        }
    }

    /// Claims the memory here, and has its pages brought in; then claims that of the peer, checks it again and copies.
    #[inline(always)] // Part of each transfer.
    fn claim_and_copy(
        &mut self,
        plan: &TransferPlan,
        reads: bool,
        bytes: InitiatorBytes<'_>,
        moment: u64,
    ) -> AccessResult<()> {
        let services = self.services;
        let pieces = match bytes {
            InitiatorBytes::Inline(bytes) => {
                return self.copy(plan, |remote, there| remote.put(CopySource::Bytes(bytes), there, true));
            }
            InitiatorBytes::Held(here) => return self.copy_segments(plan, reads, here),
            InitiatorBytes::Segments(pieces) => pieces,
        };
        let need = if reads { Rights::LOCAL_WRITE } else { Rights::empty() };
        let request = AccessRequest { by: self.by, pieces, domain: self.domain, need, write: reads };
        if let [_] = pieces {
            let MrCache { send, resident_local, .. } = &mut *self.mr_cache;
            let (segment, claim) =
                Accesses(services).begin_one(&request, send, self.waits, (moment, resident_local))?;
            let copied = self.copy_segments(plan, reads, &[segment]);
            services.own_hazards.release(claim);
            return copied;
        }
        let access = Accesses(services).begin(&request, self.waits)?;
        self.copy_segments(plan, reads, &access.segments)
    }

    #[inline(always)] // Part of each transfer.
    fn copy_segments(&mut self, plan: &TransferPlan, reads: bool, here: &[Segment]) -> AccessResult<()> {
        if self.waits.many_absent {
            let (services, process) = (self.services, &self.channel.channel.process);
            return self.copy(plan, |_, there| move_absent(services, reads, process, (here, there)));
        }
        self.copy(plan, |remote, there| match reads {
            true => remote.get(there, here, true),
            false => remote.put(CopySource::Segments(here), there, true),
        })
    }

    /// Copies under a claim on the region there.
    #[inline(always)] // Part of each transfer.
    pub(super) fn copy(
        &mut self,
        plan: &TransferPlan,
        copy: impl FnOnce(&R, &[Segment]) -> Result<(), MemoryError>,
    ) -> AccessResult<()> {
        let (channel, RemoteHint { place, mr_entry }) = (self.channel, &plan.hint);
        let claim = channel.own_hazards.claim(mr_entry.window().index(), *place);
        let claim = claim.ok_or(AccessError::Wait(Reason::NoClaim))?;
        // Behind the claim: revocation changes these first and looks for claims then.
        let valid = channel.peer_regions.still_open(mr_entry.window())
            && channel.receptive_at(*place, self.peer, self.by.number).is_some_and(|peer| {
                peer.domain == mr_entry.domain() && self.accepts_access(&peer, plan.need)
            });
        let moved = if valid { copy(&self.remote, &plan.there) } else { Err(MemoryError::PeerNotMapped) };
        channel.own_hazards.release(claim);
        if !valid {
            self.mr_cache.remote_hint = None;
        }
        moved.map_err(|error| self.not_copied(error))
    }

    /// What becomes of a transfer whose copy failed: it goes as packets. Where the kernel denies access to the peer, so does all that
    /// follows.
    #[cold]
    fn not_copied(&self, error: MemoryError) -> AccessError {
        if error == MemoryError::PeerDenied {
            self.channel.set_denied();
        }
        AccessError::Refused(Cause::PeerUnreadable)
    }

    /// Tells a peer that has not heard from this side, and learns nothing of what was executed, that it has begun (COMM_EST).
    #[inline(always)] // Part of each transfer.
    pub(super) fn announce_rts(&mut self, place: u32) {
        if !*self.peer_knows_rts {
            let peer = self.channel.receptive_at(place, self.peer, self.by.number);
            let knows = !peer.is_some_and(|peer| peer.unestablished);
            *self.peer_knows_rts = knows || self.greet_over_ring();
        }
    }

    /// A HELLO without a body. False: there is no room now, and the next transfer tells it.
    #[cold]
    fn greet_over_ring(&self) -> bool {
        let header = PacketHeader::new(Bth::new(Opcode::HELLO, self.peer, self.send_psn));
        let mut bytes = [0; bth::LEN];
        header.emit(&mut bytes);
        self.channel.send(&self.services.fabric, RecordKind::Bytes, &bytes, &[], None)
    }

    /// Whether the peer's queue pair takes such accesses by this connection.
    #[inline(always)] // Part of each transfer.
    fn accepts_access(&self, peer: &PublishedQueuePair, need: Rights) -> bool {
        // A peer that began another connection since does not know these requests.
        let connected = !self.is_reliable || peer.receive_psn == self.send_psn;
        connected && peer.rights.contains(need)
    }
}

/// Runs an atomic, and writes what was there to this side.
fn update(
    memory: &impl ApplicationMemory,
    remote: &impl RemoteMemory,
    operation: AtomicOperation,
    (here, there): (&[Segment], &[Segment]),
) -> Result<(), MemoryError> {
    let [there] = there else { return Err(MemoryError::NotMapped) };
    // Where nothing can be written nothing is to be done there: it goes as a packet, whose answer tells that.
    memory.write(&[0; 8], here, true)?;
    let original = remote.atomic(*there, operation)?;
    // It is done. A program that has taken the buffer away meanwhile does not learn what was there.
    memory.write(&original.to_ne_bytes(), here, true).or(Ok(()))
}

/// Moves bytes to or from a peer where many pages are absent.
#[cold]
#[inline(never)] // Its caller is part of each transfer.
fn move_absent<F: Fabric>(
    services: &Services<F>,
    reads: bool,
    process: &ProcessOf<F>,
    segments: (&[Segment], &[Segment]),
) -> Result<(), MemoryError> {
    let direction = if reads { Direction::Pull } else { Direction::Push };
    services.fabric.page_in().move_absent(direction, process, segments, true, services.options.page_in)
}
