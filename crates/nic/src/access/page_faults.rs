//! What is done where an access meets pages that are absent (PART-6, PART-7, JBMT-5).
//!
//! Pages that are only to be filled with zeros come in at once: that is cheaper than any thread. For all others a thread of the fabric
//! is asked, and the access is made when they are there. What probably follows is brought in meanwhile.

use crate::access::fault_state::{FaultState, Missing};
use crate::access::{AccessRequest, Accesses, Claimant};
use crate::services::fabric_event_queue::ProcessOf;
use crate::types::limits::{BRING_IN_TRIES, BYTES_OF_A_HELPER, RESOLVE_NOW_BYTES};
use crate::types::outcome::{AccessError, AccessResult};
use pagewire_fabric::{Fabric, PageInThreads, RegionPart};
use pagewire_iommu::{RegionView, RegionWindow};
use pagewire_memory::{Absence, ApplicationMemory, Segment};
use pagewire_paging::limits::BLOCK;
use pagewire_paging::{FaultCounts, PageIn, PieceOrder, Stretch, needed};
use pagewire_transport::Reason;
use smallvec::SmallVec;
use std::ops::Range;

/// A peer, and the regions that it publishes.
pub struct PeerMemory<'a, F: Fabric> {
    pub process: &'a ProcessOf<F>,
    pub regions: &'a RegionView<F::SharedMemory>,
}

/// The memory of an access that met an absent page.
pub struct FaultedAccess<'a> {
    pub segments: &'a [Segment],
    /// The region of the last segment.
    pub window: RegionWindow,
    /// Names it, and those before it.
    pub request: &'a AccessRequest<'a>,
}

impl<'s, F: Fabric> Accesses<'s, F> {
    /// Brings in what an access misses. `Ok`: it can be made now.
    #[cold]
    pub(crate) fn resolve_fault(
        self,
        faulted: &FaultedAccess<'_>,
        waits: &mut FaultState,
    ) -> AccessResult<()> {
        let Err(missing) = self.resolve_now(faulted, waits) else { return Ok(()) };
        self.ask(faulted, missing, waits);
        // A pager in user space is not asked for what may not be needed.
        let is_needed = waits.known_end(faulted.last().end).is_some();
        if !waits.from_user_space || is_needed || self.0.options.page_in != PageIn::Dynamic {
            self.bring_in_beyond(faulted, waits);
        }
        Err(AccessError::Wait(Reason::Page))
    }

    /// As [`resolve_fault`](Self::resolve_fault) for an access that is given up where it would wait: false.
    #[cold]
    pub(crate) fn resolve_cheap_fault(self, faulted: &FaultedAccess<'_>, waits: &mut FaultState) -> bool {
        match self.resolve_now(faulted, waits) {
            Ok(()) => true,
            Err(missing) => {
                waits.note_burst(faulted.last().start, missing);
                false
            }
        }
    }

    fn resolve_now(self, faulted: &FaultedAccess<'_>, waits: &mut FaultState) -> Result<(), Missing> {
        self.bring_in_now(faulted, waits)?;
        self.end_own_wait_if_any(waits);
        self.bring_in_beyond(faulted, waits);
        Ok(())
    }

    /// Whether a transfer waits for a peer's page; then it is asked for. Pages that are cheap come while the bytes are moved: where threads
    /// bring in every page, once one has answered.
    #[cold]
    pub(crate) fn wait_for_peer_page(
        self,
        by: &Claimant,
        peer: PeerMemory<'_, F>,
        part: RegionPart,
        absence: Absence,
        waits: &mut FaultState,
    ) -> bool {
        let bytes = part.segment.length;
        let may_come_now = self.0.options.faults_at_once || waits.peer_times > 0;
        if absence == Absence::Cheap && may_come_now || waits.peer_times >= BRING_IN_TRIES {
            // Not each time that the transfer is tried while it waits for something else.
            if !waits.is_waiting() {
                self.0.page_faults.note_peer(FaultCounts { minor: 1, bytes, ..FaultCounts::default() });
            }
            waits.many_absent |= bytes > RESOLVE_NOW_BYTES;
            return false;
        }
        if waits.begin_peer_wait(self.0.fabric.now()) {
            self.0.page_faults.note_peer(FaultCounts { major: 1, bytes, ..FaultCounts::default() });
            by.page_waits.add(1);
        }
        self.0.fabric.page_in().bring_in_peer(peer.process, peer.regions, part, waits.token(by.number));
        true
    }

    /// An access is made, or never will be, which may have waited.
    #[inline(always)] // Part of every access.
    pub(crate) fn end_wait_if_any(self, waits: &mut FaultState) {
        if waits.is_waiting() {
            let waited = waits.end_wait(self.0.fabric.now());
            self.count_wait(waited);
        }
    }

    /// The pages of this process that an access needs are there, for which it may have waited.
    #[inline(always)] // Part of every access.
    pub(crate) fn end_own_wait_if_any(self, waits: &mut FaultState) {
        if waits.is_waiting() {
            let waited = waits.end_own_wait(self.0.fabric.now());
            self.count_wait(waited);
        }
    }

    #[cold]
    fn count_wait(self, waited: Option<u64>) {
        waited.into_iter().for_each(|waited| self.0.page_faults.latency.add(waited));
    }

    /// Brings pages in, where that takes about as long as to hand them on; else says how they come, as far as that was asked.
    fn bring_in_now(self, faulted: &FaultedAccess<'_>, waits: &mut FaultState) -> Result<(), Missing> {
        let memory = self.0.fabric.memory();
        let bytes = faulted.bytes();
        let (last, needed) = (faulted.last(), self.needed(faulted));
        if waits.times > 0 || !self.0.options.faults_at_once {
            return Err(Missing { absence: Absence::Unknown, whole: needed });
        }
        if let Some(missing) = waits.take_burst(last.start).filter(|burst| burst.whole.end >= needed.end) {
            return Err(missing);
        }
        let began = self.0.fabric.now();
        let known = waits.known_end(last.end);
        let end = faulted.memory(known).end;
        let whole = waits.ahead.before_access(self.0.options.page_in, needed, known, end);
        let Missing { absence, whole } = self.missing(faulted, whole);
        if absence != Absence::Cheap
            || self.0.cheap_pages.are_expensive(began)
            || bytes > RESOLVE_NOW_BYTES && !memory.kernel_may_fault()
        {
            return Err(Missing { absence, whole });
        }
        self.note_fault(faulted, FaultCounts { minor: 1, bytes, ..FaultCounts::default() });
        if bytes > RESOLVE_NOW_BYTES {
            // They come while they are moved.
            waits.many_absent = true;
            return Ok(());
        }
        // What cannot be brought in the access finds out, and says so.
        waits.last_was_cheap = true;
        waits.reach(&whole);
        waits.cheap_until = whole.end;
        let _ = faulted.with_last(&whole, |segment| memory.bring_in(&segment, faulted.request.write));
        let ended = self.0.fabric.now();
        let took = ended.saturating_sub(began);
        self.0.page_faults.latency.add(took);
        self.0.cheap_pages.judge(took, bytes.max(whole.end - whole.start), ended);
        Ok(())
    }

    /// Has a thread bring pages in, which come so.
    fn ask(self, faulted: &FaultedAccess<'_>, missing: Missing, waits: &mut FaultState) {
        let (mut own, last, region) = (self.needed(faulted), faulted.last(), faulted.window.index());
        waits.begin_wait(self.0.fabric.now());
        match waits.requested_until(region, &last) {
            // It came in, and has gone again: memory is short.
            Some(_) if waits.is_in_vain() => waits.ahead.shrink(),
            Some(until) => own.end = own.end.max(until),
            None => {
                waits.from_user_space = matches!(missing.absence, Absence::UserSpace | Absence::Unknown);
                let bytes = faulted.bytes();
                self.note_fault(faulted, FaultCounts { major: 1, bytes, ..FaultCounts::default() });
                faulted.request.by.page_waits.add(1);
                if matches!(missing.absence, Absence::Slow | Absence::Cheap) {
                    own = missing.whole;
                } else if let Some(known) = waits.known_end(last.end) {
                    // A pager is waited for as seldom as can be, and never for what may not be needed.
                    let block = own.end.checked_next_multiple_of(BLOCK).unwrap_or(own.end);
                    own.end = block.min(known).max(own.end);
                }
            }
        }
        // What was noted may be of a region that lay there before.
        let memory = faulted.window.memory();
        own = own.start.max(memory.start)..own.end.min(memory.end);
        waits.request_pages(region, last, own.end);
        waits.last_was_cheap = false;
        waits.cheap_until = own.end;
        waits.reach(&own);
        let parts = self.parts_of(faulted, &own);
        self.0.fabric.page_in().bring_in(
            waits.tenant(),
            &parts,
            faulted.request.write,
            waits.token(faulted.request.by.number),
        );
    }

    /// What an access misses by its regions, with another segment in place of the last. Of what ended meanwhile nothing: the access
    /// itself finds that out.
    fn parts_of(self, faulted: &FaultedAccess<'_>, last: &Range<u64>) -> SmallVec<[RegionPart; 4]> {
        let Some((_, before)) = faulted.segments.split_last() else { return SmallVec::new() };
        let AccessRequest { pieces, need, .. } = *faulted.request;
        let by = faulted.request.scope();
        let pieces = pieces.iter().filter(|piece| piece.length > 0);
        let parts = before.iter().zip(pieces).filter_map(|(segment, piece)| {
            let window = self.0.regions.view().window(piece.key, need, by).ok()?;
            Some(RegionPart { region: window.life(), segment: *segment })
        });
        parts.chain([RegionPart { region: faulted.window.life(), segment: segment_of(last) }]).collect()
    }

    /// How what an access misses comes in, and what comes with its last segment: `whole`, unless some of that comes more slowly, or is
    /// given by somebody in user space, for whom nobody may wait then.
    fn missing(self, faulted: &FaultedAccess<'_>, whole: Range<u64>) -> Missing {
        let (memory, last) = (self.0.fabric.memory(), faulted.last());
        if whole == last {
            return Missing { absence: memory.absence(faulted.segments), whole };
        }
        let of_whole = memory.absence(&[segment_of(&whole)]);
        let before = faulted.segments.split_last().map_or(&[][..], |(_, before)| before);
        if of_whole == Absence::Cheap && (before.is_empty() || memory.absence(before) == Absence::Cheap) {
            return Missing { absence: Absence::Cheap, whole };
        }
        let absence = memory.absence(faulted.segments);
        let goes = of_whole == Absence::Slow && absence == Absence::Slow;
        Missing { absence, whole: if goes { whole } else { last } }
    }

    fn note_fault(self, faulted: &FaultedAccess<'_>, counts: FaultCounts) {
        self.0.page_faults.note(&faulted.window, &faulted.request.by.device, counts);
    }

    /// What has to come in of the last segment of an access, or with it.
    fn needed(self, faulted: &FaultedAccess<'_>) -> Range<u64> {
        needed(self.0.options.page_in, faulted.last(), faulted.memory(None))
    }

    /// Has pages brought in that will be needed soon. Also for an access that comes to the mark of those.
    #[cold]
    pub(crate) fn bring_in_beyond(self, faulted: &FaultedAccess<'_>, waits: &mut FaultState) {
        let access = faulted.last();
        let known = waits.known_end(access.end);
        let end = faulted.memory(known).end;
        if waits.last_was_cheap && !self.0.fabric.page_in().has_processors_for_helpers() {
            waits.ahead.alone(access, waits.cheap_until);
            return;
        }
        let own = access.start..waits.cheap_until.max(access.end);
        let section = waits.ahead.beyond(self.0.options.page_in, access, known, end);
        let Some(section) = section else { return };
        let bytes_ahead = section.end - section.start;
        self.note_fault(faulted, FaultCounts { bytes_ahead, ..FaultCounts::default() });
        let helpers = if waits.last_was_cheap { 1 } else { bytes_ahead.div_ceil(BYTES_OF_A_HELPER) as u32 };
        let stretch =
            Stretch::new(section, if waits.last_was_cheap { PieceOrder::Back } else { PieceOrder::Forth });
        stretch.reach(&own);
        let region = faulted.window.life();
        self.0.fabric.page_in().bring_in_ahead(
            waits.tenant(),
            region,
            &stretch,
            faulted.request.write,
            helpers,
        );
        waits.add_stretch(stretch);
    }
}

impl FaultedAccess<'_> {
    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// What of the region of the last segment may be brought in with it; `known`: the end of the transfer, where that is known. Of an
    /// implicit region that is nothing else: the program named no other memory.
    fn memory(&self, known: Option<u64>) -> Range<u64> {
        match self.window.is_implicit() {
            true => self.last().start..known.unwrap_or(0).max(self.last().end),
            false => self.window.memory(),
        }
    }

    /// The last segment; nothing, where there is none.
    fn last(&self) -> Range<u64> {
        self.segments.last().map_or(0..0, range_of)
    }

    /// All segments, with another one in place of the last.
    fn with_last<E>(
        &self,
        last: &Range<u64>,
        mut each: impl FnMut(Segment) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((_, before)) = self.segments.split_last() else { return Ok(()) };
        before.iter().try_for_each(|segment| each(*segment))?;
        each(segment_of(last))
    }
}

fn range_of(segment: &Segment) -> Range<u64> {
    segment.address..segment.address.saturating_add(segment.length)
}

fn segment_of(range: &Range<u64>) -> Segment {
    Segment { address: range.start, length: range.end - range.start }
}
