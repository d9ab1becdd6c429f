//! Accesses to registered memory of this process: check, claim, residency, then the copy.
//!
//! Every path comes through here, with local keys and with remote ones. An access knows no queue pair: a [`Claimant`] stands for it.

pub mod fault_state;
pub mod intercepted;
pub mod page_faults;
pub mod persistence;

use crate::access::fault_state::FaultState;
use crate::access::page_faults::FaultedAccess;
use crate::services::Services;
use crate::types::limits::{BRING_IN_TRIES, LOOK_AHEAD};
use crate::types::outcome::{AccessError, AccessResult, Cause};
use crate::types::sge::ScatterGather;
use pagewire_fabric::{AtomicCounter, Fabric};
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{
    AccessRefusal, AccessScope, Claim, Hazards, ProcessWords, RegionView, RegionWindow, Rights,
};
use pagewire_memory::{ApplicationMemory, LastSeen, Residency, Segment};
use pagewire_transport::Reason;
use smallvec::SmallVec;
use std::ops::Range;

/// Who accesses: it stands for a queue pair.
pub struct Claimant {
    /// Place of the queue pair in the published tables.
    pub place: u32,
    /// Its number.
    pub number: u32,
    /// The name of its device.
    pub device: String,
    /// Times that an access waited for a page.
    pub page_waits: AtomicCounter,
}

/// Memory of this process that an access names.
#[derive(Clone, Copy)]
pub struct AccessRequest<'a> {
    pub by: &'a Claimant,
    /// Some may be empty, where there are several.
    pub pieces: &'a [ScatterGather],
    /// Protection domain.
    pub domain: u32,
    pub need: Rights,
    /// The pages must be writable.
    pub write: bool,
}

impl AccessRequest<'_> {
    /// Who accesses, for the check.
    #[inline(always)] // Part of every access.
    pub fn scope(&self) -> AccessScope {
        AccessScope { domain: self.domain, queue_pair: self.by.number }
    }

    /// The piece of a request that names one.
    #[inline(always)] // Part of every access.
    fn piece(&self) -> AccessResult<&ScatterGather> {
        self.pieces.first().ok_or(AccessError::Refused(Cause::Region(AccessRefusal::Bounds)))
    }
}

/// Checked pieces of this process's memory, under claims until it is dropped.
pub struct ClaimedAccess<'s> {
    pub segments: SmallVec<[Segment; 4]>,
    claims: SmallVec<[Claim; 4]>,
    hazards: &'s Hazards<ProcessWords>,
}

impl Drop for ClaimedAccess<'_> {
    fn drop(&mut self) {
        while let Some(claim) = self.claims.pop() {
            self.hazards.release(claim);
        }
    }
}

/// A region that was found by its key, checked for all but the bounds of an access. Good until the region is revoked, or gets other
/// rights ([`RegionView::still_open`](pagewire_iommu::RegionView::still_open), by a count that comes round after 2^31 of these).
#[derive(Debug, Clone, Copy)]
pub struct MrCacheEntry {
    key: u32,
    need: Rights,
    domain: u32,
    window: RegionWindow,
}

impl MrCacheEntry {
    /// For the region that a key names.
    pub fn look_up<W: SharedWords>(
        regions: &RegionView<W>,
        key: u32,
        need: Rights,
        by: AccessScope,
    ) -> Result<Self, AccessRefusal> {
        Ok(MrCacheEntry { key, need, domain: by.domain, window: regions.window(key, need, by)? })
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
    pub fn window(&self) -> &RegionWindow {
        &self.window
    }

    /// The one that is kept, if it serves and its region is still open; else another one is kept.
    #[inline]
    fn renewed<'p, W: SharedWords>(
        kept: &'p mut Option<MrCacheEntry>,
        regions: &RegionView<W>,
        (key, request): (u32, &AccessRequest<'_>),
    ) -> Result<&'p RegionWindow, AccessRefusal> {
        let serves = |mr_entry: &MrCacheEntry| {
            mr_entry.serves(key, request.need, request.domain) && regions.still_open(&mr_entry.window)
        };
        if !kept.as_ref().is_some_and(serves) {
            *kept = None;
            *kept = Some(MrCacheEntry::look_up(regions, key, request.need, request.scope())?);
        }
        kept.as_ref().map(MrCacheEntry::window).ok_or(AccessRefusal::Key)
    }
}

/// An access to one region that goes on from packet to packet, while a thread handles several packets of a queue pair in a
/// row: the region is looked up and its hazard claimed once. Whether it has been revoked is looked at for each packet. Released
/// when it is dropped: before the lock on the queue pair is, so that whoever waits for it waits for a few packets at most.
pub struct AccessSession<'s, F: Fabric> {
    services: &'s Services<F>,
    held: Option<HeldAccess>,
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

/// A piece of an access that goes on.
struct Located {
    segment: Segment,
    window: RegionWindow,
    residency: Residency,
}

impl<'s, F: Fabric> AccessSession<'s, F> {
    /// No access yet.
    pub fn new(services: &'s Services<F>) -> Self {
        AccessSession { services, held: None }
    }

    /// Ends the access.
    pub fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.services.own_hazards.release(held.claim);
        }
    }

    /// Begins the access to one piece that is not empty, or goes on with it, until the session is released.
    pub fn begin(&mut self, request: &AccessRequest<'_>, fault: &mut FaultState) -> AccessResult<Segment> {
        let located = self.locate(request, fault);
        let Located { segment, window, residency } =
            located.map_err(|error| Accesses(self.services).given_up(error, fault))?;
        let admitted = Accesses(self.services).admit(residency, request, (&[segment], window), fault);
        if admitted.is_err() {
            self.release();
        }
        admitted.map(|()| segment)
    }

    /// The place of the region that is accessed.
    pub fn region(&self) -> Option<u32> {
        self.held.as_ref().map(|held| held.mr_entry.window.index())
    }

    /// As [`begin`](Self::begin) for a burst of packets; `None` where one of them may be refused or has to wait, which is
    /// for an access of its own to find out.
    pub fn begin_burst(&mut self, request: &AccessRequest<'_>, fault: &mut FaultState) -> Option<Segment> {
        let services = self.services;
        match self.locate(request, fault) {
            Ok(Located { segment, residency: Residency::Resident, .. }) => {
                Accesses(services).end_own_wait_if_any(fault);
                Some(segment)
            }
            Ok(Located { segment, window, residency: Residency::Absent }) => {
                let faulted = FaultedAccess { segments: &[segment], window, request };
                let alone =
                    services.options.page_in.brings_in_at_most().is_none_or(|most| segment.length <= most);
                (alone && Accesses(services).resolve_cheap_fault(&faulted, fault)).then_some(segment)
            }
            Ok(Located { residency: Residency::NotMapped, .. }) | Err(_) => None,
        }
    }

    /// Where a piece lies, under a claim on its region, and whether its pages are resident.
    fn locate(&mut self, request: &AccessRequest<'_>, fault: &mut FaultState) -> AccessResult<Located> {
        let (services, view) = (self.services, self.services.regions.view());
        let AccessRequest { by, domain, need, .. } = *request;
        let piece = request.piece()?;
        let known = |held: &HeldAccess| {
            held.mr_entry.serves(piece.key, need, domain) && view.still_open(&held.mr_entry.window)
        };
        if !self.held.as_ref().is_some_and(known) {
            self.release();
            let mr_entry = MrCacheEntry::look_up(view, piece.key, need, request.scope())?;
            let claim = Accesses(services).claim(by, &mr_entry.window)?;
            self.held = Some(HeldAccess { claim, mr_entry, resident: 0..0, sparse: false });
        }
        let Some(held) = &mut self.held else { return Err(AccessRefusal::Key.into()) };
        let length = u64::from(piece.length);
        let granted = match held.mr_entry.window.locate(piece.address, length) {
            Ok(granted) => granted,
            Err(refusal) => {
                self.release();
                return Err(refusal.into());
            }
        };
        let segment = Segment { address: granted.address, length };
        let window = held.mr_entry.window;
        if held.covers(segment) {
            return Ok(Located { segment, window, residency: Residency::Resident });
        }
        // A process that scribbles over its own tables gets nothing.
        let room = window.memory().end.saturating_sub(segment.address);
        let residency = held.residency(services.fabric.memory(), segment, room);
        if fault.ahead.is_past_mark(segment.address.saturating_add(length)) {
            Accesses(services)
                .bring_in_beyond(&FaultedAccess { segments: &[segment], window, request }, fault);
        }
        Ok(Located { segment, window, residency })
    }
}

impl<F: Fabric> Drop for AccessSession<'_, F> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Accesses to registered memory of this process.
pub struct Accesses<'s, F: Fabric>(pub &'s Services<F>);

impl<F: Fabric> Clone for Accesses<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fabric> Copy for Accesses<'_, F> {}

impl<'s, F: Fabric> Accesses<'s, F> {
    /// Where a piece lies, by the region that its key names. `mr_entry` is kept for the next piece, which most probably names the same one.
    #[inline(always)] // Part of every access.
    fn locate<'p>(
        self,
        mr_entry: &'p mut Option<MrCacheEntry>,
        request: &AccessRequest<'_>,
        piece: &ScatterGather,
    ) -> AccessResult<(Segment, &'p RegionWindow)> {
        let window = MrCacheEntry::renewed(mr_entry, self.0.regions.view(), (piece.key, request))?;
        let length = u64::from(piece.length);
        let granted = window.locate(piece.address, length)?;
        Ok((Segment { address: granted.address, length }, window))
    }

    /// Claims a region that is to be accessed.
    #[inline(always)] // Part of every access.
    fn claim(self, by: &Claimant, window: &RegionWindow) -> AccessResult<Claim> {
        let claim = self.0.own_hazards.claim(window.index(), by.place);
        let claim = claim.ok_or(AccessError::Wait(Reason::NoClaim))?;
        // Behind the claim: either this sees that the region was revoked, or whoever revokes it sees the claim.
        if self.0.regions.view().still_open(window) {
            return Ok(claim);
        }
        self.0.own_hazards.release(claim);
        Err(self.changed(window))
    }

    /// What becomes of an access to a region that has changed since it was checked. Where its key is still valid the access is checked again.
    #[cold]
    fn changed(self, window: &RegionWindow) -> AccessError {
        match self.0.regions.view().is_valid(window) {
            true => AccessError::Wait(Reason::NoClaim),
            false => AccessRefusal::Key.into(),
        }
    }

    /// Accesses one piece that is not empty, under a claim on its region, if its key and bounds are right. `mr_entry` is kept for the
    /// next access. False: nothing was done, or `access` did not do it.
    #[inline]
    pub fn access_now(
        self,
        request: &AccessRequest<'_>,
        mr_entry: &mut Option<MrCacheEntry>,
        access: impl FnOnce(Segment) -> bool,
    ) -> bool {
        let Ok(piece) = request.piece() else { return false };
        let Ok((segment, window)) = self.locate(mr_entry, request, piece) else { return false };
        let Ok(claim) = self.claim(request.by, window) else { return false };
        let done = access(segment);
        self.0.own_hazards.release(claim);
        done
    }

    /// Checks all pieces and announces the access, which goes on until what is given is dropped.
    pub fn begin(
        self,
        request: &AccessRequest<'_>,
        fault: &mut FaultState,
    ) -> AccessResult<ClaimedAccess<'s>> {
        let (segments, claims) = (SmallVec::new(), SmallVec::new());
        let mut access = ClaimedAccess { segments, claims, hazards: &self.0.own_hazards };
        let (mut mr_entry, mut claimed) = (None, None);
        for piece in request.pieces.iter().filter(|piece| piece.length > 0) {
            let mut claim_piece = || {
                let (segment, window) = self.locate(&mut mr_entry, request, piece)?;
                access.segments.push(segment);
                if claimed != Some(*window) {
                    access.claims.push(self.claim(request.by, window)?);
                    claimed = Some(*window);
                }
                Ok(())
            };
            claim_piece().map_err(|error| self.given_up(error, fault))?;
        }
        let residency = self.0.fabric.memory().residency(&access.segments);
        // Without a piece there is nothing to wait for.
        let Some(window) = claimed else { return Ok(access) };
        self.admit(residency, request, (&access.segments, window), fault)?;
        Ok(access)
    }

    /// As [`begin`](Self::begin) for one piece that is not empty; the claim is the caller's to release. `mr_entry`: as in
    /// [`access_now`](Self::access_now).
    #[inline(always)] // Part of each transfer that the requester executes itself.
    pub fn begin_one(
        self,
        request: &AccessRequest<'_>,
        mr_entry: &mut Option<MrCacheEntry>,
        fault: &mut FaultState,
        (moment, seen): (u64, &mut LastSeen),
    ) -> AccessResult<(Segment, Claim)> {
        let mut claim_piece = || {
            let (segment, window) = self.locate(mr_entry, request, request.piece()?)?;
            Ok((segment, *window, self.claim(request.by, window)?))
        };
        let (segment, window, claim) = claim_piece().map_err(|error| self.given_up(error, fault))?;
        let residency = self.0.fabric.memory().residency_at(segment, moment, seen);
        match self.admit(residency, request, (&[segment], window), fault) {
            Ok(()) => Ok((segment, claim)),
            Err(error) => {
                self.0.own_hazards.release(claim);
                Err(error)
            }
        }
    }

    /// What the residency of all segments means for an access, of which the last lies in the region of `window`. `Ok`: it is made,
    /// also where pages were asked for often enough.
    #[inline(always)] // Part of every access.
    fn admit(
        self,
        residency: Residency,
        request: &AccessRequest<'_>,
        (segments, window): (&[Segment], RegionWindow),
        fault: &mut FaultState,
    ) -> AccessResult<()> {
        match residency {
            Residency::Absent if fault.times < BRING_IN_TRIES => {
                self.resolve_fault(&FaultedAccess { segments, window, request }, fault)
            }
            Residency::NotMapped => Err(self.given_up(AccessError::Refused(Cause::NotMapped), fault)),
            Residency::Absent | Residency::Resident => {
                self.end_own_wait_if_any(fault);
                Ok(())
            }
        }
    }

    /// An access that will never be made ends its wait.
    #[cold]
    fn given_up(self, error: AccessError, fault: &mut FaultState) -> AccessError {
        if matches!(error, AccessError::Refused(_)) {
            self.end_wait_if_any(fault);
        }
        error
    }
}
