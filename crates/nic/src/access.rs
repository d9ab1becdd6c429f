//! Accesses to registered memory of this process: check, hazard, residency, then the copy.
//!
//! Every path comes through here, with local keys and with remote ones.

use crate::engine::Nic;
use crate::limits::{BRING_IN_TRIES, LOOK_AHEAD};
use crate::page_faults::{FaultedAccess, KeyedPieces};
use crate::qp_progress::page_waits::FaultState;
use crate::queue_pair::QueuePair;
use crate::ready::Again;
use crate::request::ScatterGather;
use pagewire_fabric::Fabric;
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{Claim, Hazards, ProcessWords, Refusal, RegionView, Rights, Window};
use pagewire_memory::{ApplicationMemory, LastSeen, MemoryError, Residency, Segment};
use smallvec::SmallVec;
use std::ops::Range;

/// Checked pieces of this process's memory; hazards are held until [`Nic::finish`].
pub struct Access {
    pub segments: SmallVec<[Segment; 4]>,
    claims: SmallVec<[Claim; 4]>,
}

/// A region that was found by its key, checked for all but the bounds of an access. Good until the region is revoked, or gets other
/// rights ([`RegionView::still_open`](pagewire_iommu::RegionView::still_open), by a count that comes round after 2^31 of these).
#[derive(Debug, Clone, Copy)]
pub struct MrCacheEntry {
    key: u32,
    need: Rights,
    domain: u32,
    window: Window,
}

impl MrCacheEntry {
    /// For the region that a key names.
    pub fn look_up<W: SharedWords>(
        regions: &RegionView<W>,
        key: u32,
        need: Rights,
        domain: u32,
    ) -> Result<Self, Refusal> {
        Ok(MrCacheEntry { key, need, domain, window: regions.window(key, need, domain)? })
    }

    /// Whether it is for such accesses, by a queue pair of its [domain](Self::domain).
    #[inline]
    pub fn names(&self, key: u32, need: Rights) -> bool {
        self.key == key && self.need.contains(need)
    }

    #[inline]
    fn serves(&self, key: u32, need: Rights, domain: u32) -> bool {
        self.names(key, need) && self.domain == domain
    }

    /// The region's protection domain.
    #[inline]
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// The region.
    #[inline]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The one that is kept, if it serves and its region is still open; else another one is kept.
    #[inline]
    fn renewed<'p, W: SharedWords>(
        kept: &'p mut Option<MrCacheEntry>,
        regions: &RegionView<W>,
        (key, need, domain): (u32, Rights, u32),
    ) -> Result<&'p Window, Refusal> {
        let serves = |mr_entry: &MrCacheEntry| {
            mr_entry.serves(key, need, domain) && regions.still_open(&mr_entry.window)
        };
        if !kept.as_ref().is_some_and(serves) {
            *kept = None;
            *kept = Some(MrCacheEntry::look_up(regions, key, need, domain)?);
        }
        kept.as_ref().map(MrCacheEntry::window).ok_or(Refusal::Key)
    }
}

/// An access to one region that goes on from packet to packet, while a thread handles several packets of a queue pair in a
/// row: the region is looked up and its hazard claimed once. Whether it has been revoked is looked at for each packet. Given up
/// when it is dropped: before the lock on the queue pair is, so that whoever waits for it waits for a few packets at most.
pub struct AccessSession<'n> {
    hazards: &'n Hazards<ProcessWords>,
    access: Option<HeldAccess>,
}

struct HeldAccess {
    claim: Claim,
    mr_entry: MrCacheEntry,
    /// Addresses that were resident when the last look was made, as [`Residency::Resident`] means it.
    resident: Range<u64>,
    /// What lies ahead was not all resident: only what is accessed is asked for.
    sparse: bool,
}

impl HeldAccess {
    /// Whether a segment lies in what was resident.
    fn covers(&self, segment: Segment) -> bool {
        let end = segment.address.saturating_add(segment.length);
        self.resident.start <= segment.address && end <= self.resident.end
    }

    /// Whether the pages of a segment are resident, of which so many bytes lie in the region from its beginning on.
    fn residency(&mut self, memory: &impl ApplicationMemory, segment: Segment, room: u64) -> Residency {
        if self.sparse {
            return memory.residency(&[segment]);
        }
        let ahead = Segment { length: room.min(LOOK_AHEAD).max(segment.length), ..segment };
        let (residency, all) = memory.residency_ahead(segment, ahead);
        match all {
            true => self.resident = ahead.address..ahead.address.saturating_add(ahead.length),
            false => self.sparse = true,
        }
        residency
    }
}

impl<'n> AccessSession<'n> {
    /// No access yet.
    pub fn new<F: Fabric>(nic: &'n Nic<F>) -> Self {
        AccessSession { hazards: nic.own_hazards(), access: None }
    }

    /// Ends the access.
    pub fn let_go(&mut self) {
        if let Some(access) = self.access.take() {
            self.hazards.release(access.claim);
        }
    }
}

impl Drop for AccessSession<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Why an access cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    /// Keys, bounds or rights.
    Refused(Refusal),
    /// Not mapped, though the key is valid.
    NotMapped,
    /// Not now: a page comes in. The queue pair will be driven again.
    Wait,
    /// Not now: too many accesses are under way. Likewise.
    Busy,
}

impl<F: Fabric> Nic<F> {
    /// Where a piece lies, by the region that its key names. `mr_entry` is kept for the next piece, which most probably names the same one.
    #[inline(always)] // Part of every access.
    fn locate<'p>(
        &self,
        mr_entry: &'p mut Option<MrCacheEntry>,
        (domain, need): (u32, Rights),
        piece: &ScatterGather,
    ) -> Result<(Segment, &'p Window), AccessError> {
        let window = MrCacheEntry::renewed(mr_entry, self.regions().view(), (piece.key, need, domain));
        let window = window.map_err(AccessError::Refused)?;
        let length = u64::from(piece.length);
        let granted = window.locate(piece.address, length).map_err(AccessError::Refused)?;
        Ok((Segment { address: granted.address, length }, window))
    }

    /// Claims a region that is to be accessed.
    #[inline(always)] // Part of every access.
    fn try_claim(&self, queue_pair: &QueuePair<F>, window: &Window) -> Result<Claim, Unclaimed> {
        let claim = self.own_hazards().claim(window.index(), queue_pair.place).ok_or(Unclaimed::AllTaken)?;
        // Behind the claim: either this sees that the region was revoked, or whoever revokes it sees the claim.
        if self.regions().view().still_open(window) {
            return Ok(claim);
        }
        self.own_hazards().release(claim);
        Err(Unclaimed::Revoked)
    }

    /// Claims a region for an access that is queued again where all claims are taken.
    #[inline(always)] // Part of every access.
    fn claim(&self, queue_pair: &QueuePair<F>, window: &Window) -> Result<Claim, AccessError> {
        self.try_claim(queue_pair, window).map_err(|unclaimed| match unclaimed {
            Unclaimed::Revoked => AccessError::Refused(Refusal::Key),
            Unclaimed::AllTaken => {
                self.ready(queue_pair, Again::Later);
                AccessError::Busy
            }
        })
    }

    /// Accesses one piece that is not empty, under a claim on its region, if its key and bounds are right. `mr_entry` is kept for the
    /// next access. False: nothing was done, or `access` did not do it.
    #[inline]
    pub fn access_now(
        &self,
        queue_pair: &QueuePair<F>,
        mr_entry: &mut Option<MrCacheEntry>,
        domain_and_need: (u32, Rights),
        piece: &ScatterGather,
        access: impl FnOnce(Segment) -> bool,
    ) -> bool {
        let Ok((segment, window)) = self.locate(mr_entry, domain_and_need, piece) else { return false };
        let Ok(claim) = self.try_claim(queue_pair, window) else { return false };
        let done = access(segment);
        self.own_hazards().release(claim);
        done
    }

    /// Checks pieces named by keys and announces the access. With `write` the pages must be writable.
    pub fn begin(
        &self,
        queue_pair: &QueuePair<F>,
        domain: u32,
        pieces: &[ScatterGather],
        need: Rights,
        write: bool,
        waits: &mut FaultState,
    ) -> Result<Access, AccessError> {
        let mut access = Access { segments: SmallVec::new(), claims: SmallVec::new() };
        let (mut mr_entry, mut claimed) = (None, None);
        for piece in pieces.iter().filter(|piece| piece.length > 0) {
            let mut admit = || {
                let (segment, window) = self.locate(&mut mr_entry, (domain, need), piece)?;
                access.segments.push(segment);
                if claimed != Some(*window) {
                    access.claims.push(self.claim(queue_pair, window)?);
                    claimed = Some(*window);
                }
                Ok(())
            };
            if let Err(error) = admit() {
                self.finish(access);
                return Err(self.given_up(error, waits));
            }
        }
        let residency = self.fabric().memory().residency(&access.segments);
        // Without a piece there is nothing to wait for.
        let Some(window) = mr_entry.map(|mr_entry| *mr_entry.window()) else { return Ok(access) };
        let keyed = KeyedPieces { pieces, domain, need };
        match self.admit(residency, queue_pair, (&access.segments, keyed), window, write, waits) {
            Ok(()) => Ok(access),
            Err(error) => {
                self.finish(access);
                Err(error)
            }
        }
    }

    /// As [`begin`](Self::begin) for one piece that is not empty; the claim is the caller's to release. `mr_entry`: as in
    /// [`access_now`](Self::access_now).
    #[inline(always)] // Part of each transfer that the requester executes itself.
    #[allow(clippy::too_many_arguments)] // Those of `begin`, the moment, and what was seen at that.
    pub fn begin_one(
        &self,
        queue_pair: &QueuePair<F>,
        mr_entry: &mut Option<MrCacheEntry>,
        domain_and_need: (u32, Rights),
        piece: &ScatterGather,
        write: bool,
        waits: &mut FaultState,
        (moment, seen): (u64, &mut LastSeen),
    ) -> Result<(Segment, Claim), AccessError> {
        let (segment, window) =
            self.locate(mr_entry, domain_and_need, piece).map_err(|error| self.given_up(error, waits))?;
        let claim = self.claim(queue_pair, window).map_err(|error| self.given_up(error, waits))?;
        let residency = self.fabric().memory().residency_at(segment, moment, seen);
        match self.admit(residency, queue_pair, (&[segment], KeyedPieces::ALONE), *window, write, waits) {
            Ok(()) => Ok((segment, claim)),
            Err(error) => {
                self.own_hazards().release(claim);
                Err(error)
            }
        }
    }

    /// As [`begin`](Self::begin) for one piece that is not empty; the access goes on until `session` is given up.
    #[allow(clippy::too_many_arguments)] // Those of `begin`.
    pub fn begin_in_session(
        &self,
        session: &mut AccessSession<'_>,
        queue_pair: &QueuePair<F>,
        domain: u32,
        piece: &ScatterGather,
        need: Rights,
        write: bool,
        waits: &mut FaultState,
    ) -> Result<Segment, AccessError> {
        let seen = self.look(session, queue_pair, domain, piece, need, write, waits);
        let Seen { segment, window, residency } = seen.map_err(|error| self.given_up(error, waits))?;
        let admitted =
            self.admit(residency, queue_pair, (&[segment], KeyedPieces::ALONE), window, write, waits);
        if admitted.is_err() {
            session.let_go();
        }
        admitted.map(|()| segment)
    }

    /// What the residency of all pieces means for an access, of which the last lies in the region of `window`. `Ok`: it is made, also where pages were
    /// asked for often enough.
    #[inline(always)] // Part of every access.
    fn admit(
        &self,
        residency: Residency,
        queue_pair: &QueuePair<F>,
        (segments, keyed): (&[Segment], KeyedPieces<'_>),
        window: Window,
        write: bool,
        waits: &mut FaultState,
    ) -> Result<(), AccessError> {
        match residency {
            Residency::Absent if waits.times < BRING_IN_TRIES => {
                self.resolve_fault(queue_pair, &FaultedAccess { segments, window, keyed, write }, waits)
            }
            Residency::NotMapped => Err(self.given_up(AccessError::NotMapped, waits)),
            Residency::Absent | Residency::Resident => {
                self.end_own_wait_if_any(waits);
                Ok(())
            }
        }
    }

    /// An access that will never be made ends its wait.
    #[cold]
    fn given_up(&self, error: AccessError, waits: &mut FaultState) -> AccessError {
        if matches!(error, AccessError::Refused(_) | AccessError::NotMapped) {
            self.end_wait_if_any(waits);
        }
        error
    }

    /// As [`begin_in_session`](Self::begin_in_session) for a burst of packets; `None` where one of them may be refused or has to wait, which is
    /// for an access of its own to find out.
    #[allow(clippy::too_many_arguments)] // Those of `begin`.
    pub fn begin_burst_in_session(
        &self,
        session: &mut AccessSession<'_>,
        queue_pair: &QueuePair<F>,
        domain: u32,
        piece: &ScatterGather,
        need: Rights,
        write: bool,
        waits: &mut FaultState,
    ) -> Option<Segment> {
        match self.look(session, queue_pair, domain, piece, need, write, waits) {
            Ok(Seen { segment, residency: Residency::Resident, .. }) => {
                self.end_own_wait_if_any(waits);
                Some(segment)
            }
            Ok(Seen { segment, window, residency: Residency::Absent }) => {
                let faulted =
                    FaultedAccess { segments: &[segment], window, keyed: KeyedPieces::ALONE, write };
                let alone =
                    self.options().page_in.brings_in_at_most().is_none_or(|most| segment.length <= most);
                (alone && self.resolve_cheap_fault(queue_pair, &faulted, waits)).then_some(segment)
            }
            Ok(Seen { residency: Residency::NotMapped, .. }) | Err(_) => None,
        }
    }

    /// Where a piece lies, under a claim on its region, and whether its pages are resident.
    #[allow(clippy::too_many_arguments)] // Those of `begin`.
    fn look(
        &self,
        session: &mut AccessSession<'_>,
        queue_pair: &QueuePair<F>,
        domain: u32,
        piece: &ScatterGather,
        need: Rights,
        write: bool,
        waits: &mut FaultState,
    ) -> Result<Seen, AccessError> {
        let view = self.regions().view();
        let known = |access: &HeldAccess| {
            access.mr_entry.serves(piece.key, need, domain) && view.still_open(&access.mr_entry.window)
        };
        if !session.access.as_ref().is_some_and(known) {
            session.let_go();
            let mr_entry =
                MrCacheEntry::look_up(view, piece.key, need, domain).map_err(AccessError::Refused)?;
            let claim = self.claim(queue_pair, &mr_entry.window)?;
            session.access = Some(HeldAccess { claim, mr_entry, resident: 0..0, sparse: false });
        }
        let Some(access) = &mut session.access else { return Err(AccessError::Refused(Refusal::Key)) };
        let length = u64::from(piece.length);
        let granted = match access.mr_entry.window.locate(piece.address, length) {
            Ok(granted) => granted,
            Err(refusal) => {
                session.let_go();
                return Err(AccessError::Refused(refusal));
            }
        };
        let segment = Segment { address: granted.address, length };
        let window = access.mr_entry.window;
        if access.covers(segment) {
            return Ok(Seen { segment, window, residency: Residency::Resident });
        }
        let room = window.memory().end - segment.address;
        let residency = access.residency(self.fabric().memory(), segment, room);
        if waits.ahead.is_past_mark(segment.address.saturating_add(length)) {
            let faulted = FaultedAccess { segments: &[segment], window, keyed: KeyedPieces::ALONE, write };
            self.bring_in_beyond(queue_pair, &faulted, waits);
        }
        Ok(Seen { segment, window, residency })
    }

    /// Ends an access.
    pub fn finish(&self, access: Access) {
        for claim in access.claims {
            self.own_hazards().release(claim);
        }
    }
}

/// Why a region was not claimed.
enum Unclaimed {
    /// The hazards, by others. Some are free soon.
    AllTaken,
    /// The region is not what it was.
    Revoked,
}

/// A piece of an access that goes on.
struct Seen {
    segment: Segment,
    window: Window,
    residency: Residency,
}

impl From<MemoryError> for AccessError {
    /// For copies inside this process.
    fn from(_: MemoryError) -> Self {
        AccessError::NotMapped
    }
}
