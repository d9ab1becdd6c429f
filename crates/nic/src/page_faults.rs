//! What is done where an access meets pages that are absent (PART-6, PART-7, JBMT-5).
//!
//! Pages that are only to be filled with zeros come in at once: that is cheaper than any thread. For all others a thread of the fabric
//! is asked, and the access is made when they are there. What probably follows is brought in meanwhile.

use crate::access::AccessError;
use crate::drive::page_waits::Asked;
use crate::engine::Nic;
use crate::limits::{BRING_IN_TRIES, BROUGHT_IN_AT_ONCE, EXPENSIVE, EXPENSIVE_REST, SECTION_PART};
use crate::path::local::ProcessOf;
use crate::queue_pair::QueuePair;
use pagewire_fabric::Fabric;
use pagewire_iommu::Window;
use pagewire_memory::{Absence, ApplicationMemory, Segment};
use pagewire_paging::{FaultCounts, Faults, needed};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a process knows of its faults.
#[derive(Default)]
pub struct PageFaults {
    /// What was counted.
    pub counted: Faults,
    /// The same by regions of this process, and of those that have ended by devices.
    by_region: Mutex<ByRegion>,
    /// There is such a region.
    any_region: AtomicBool,
    /// Until then pages are brought in by threads, also those that are said to be cheap: the last such ones were not.
    expensive_until: AtomicU64,
}

#[derive(Default)]
struct ByRegion {
    regions: BTreeMap<u32, RegionFaults>,
    ended: BTreeMap<String, FaultCounts>,
}

/// The faults of accesses to one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionFaults {
    /// The device by which it was registered.
    pub device: String,
    /// Its memory, as the program sees it.
    pub memory: Range<u64>,
    pub counts: FaultCounts,
}

/// All faults of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultReport {
    /// With those in peers' memory.
    pub all: FaultCounts,
    /// How long accesses were delayed: nanoseconds that a number of them stayed below, each at least half as long.
    pub latency: Vec<(u64, u64)>,
    /// By device, those of regions that have ended with them.
    pub devices: BTreeMap<String, FaultCounts>,
    /// Of regions that had any.
    pub regions: Vec<RegionFaults>,
}

impl PageFaults {
    /// A region ends: its place may soon be another one's.
    #[inline]
    pub fn forget_region(&self, index: u32) {
        if self.any_region.load(Ordering::Acquire) {
            self.end_region(index);
        }
    }

    #[cold]
    fn end_region(&self, index: u32) {
        let mut by_region = self.by_region.lock();
        if let Some(ended) = by_region.regions.remove(&index) {
            *by_region.ended.entry(ended.device).or_default() += ended.counts;
        }
    }

    /// What was counted so far.
    pub fn report(&self) -> FaultReport {
        let by_region = self.by_region.lock();
        let mut devices = by_region.ended.clone();
        let regions: Vec<RegionFaults> = by_region.regions.values().cloned().collect();
        for region in &regions {
            *devices.entry(region.device.clone()).or_default() += region.counts;
        }
        FaultReport { all: self.counted.counts(), latency: self.counted.latency.buckets(), devices, regions }
    }

    fn note<F: Fabric>(&self, queue_pair: &QueuePair<F>, missed: &Missed<'_>, counts: FaultCounts) {
        self.any_region.store(true, Ordering::Release);
        let mut by_region = self.by_region.lock();
        let region = by_region.regions.entry(missed.window.index()).or_insert_with(|| RegionFaults {
            device: queue_pair.domain.context().device().name.clone(),
            memory: missed.window.memory(),
            counts: FaultCounts::default(),
        });
        region.counts += counts;
    }
}

/// The memory of an access that met an absent page.
pub struct Missed<'a> {
    pub segments: &'a [Segment],
    /// The region of the last segment.
    pub window: Window,
    /// The pages are written.
    pub write: bool,
}

impl<F: Fabric> Nic<F> {
    /// Brings in what an access misses. `Ok`: it can be made now.
    #[cold]
    pub(crate) fn meet(
        &self,
        queue_pair: &QueuePair<F>,
        missed: &Missed<'_>,
        waits: &mut Asked,
    ) -> Result<(), AccessError> {
        let met = self.meet_at_once(queue_pair, missed, waits);
        if met {
            self.end_wait(waits);
        } else {
            self.ask(queue_pair, missed, waits);
        }
        self.bring_in_beyond(queue_pair, missed, waits);
        if met { Ok(()) } else { Err(AccessError::Wait) }
    }

    /// As [`meet`](Self::meet) for an access that is given up where it would wait: false.
    #[cold]
    pub(crate) fn meet_cheaply(
        &self,
        queue_pair: &QueuePair<F>,
        missed: &Missed<'_>,
        waits: &mut Asked,
    ) -> bool {
        let met = self.meet_at_once(queue_pair, missed, waits);
        if met {
            self.bring_in_beyond(queue_pair, missed, waits);
        }
        met
    }

    /// Whether a transfer waits for a peer's page; then it is asked for. Pages that are cheap come while the bytes are moved.
    #[cold]
    pub(crate) fn wait_for_far(
        &self,
        queue_pair: &QueuePair<F>,
        process: &ProcessOf<F>,
        there: &Segment,
        absence: Absence,
        waits: &mut Asked,
    ) -> bool {
        if absence == Absence::Cheap || waits.far_times >= BRING_IN_TRIES {
            waits.far_times = 0;
            waits.many_absent |= there.length > BROUGHT_IN_AT_ONCE;
            return false;
        }
        waits.far_times += 1;
        queue_pair.counters.page_waits.add(1);
        if waits.far_times == 1 {
            self.page_faults.counted.handed_on(there.length);
        }
        self.fabric().bring_in_far(process, &[*there], waits.token(queue_pair.number));
        true
    }

    /// The access that waited is made.
    #[cold]
    pub(crate) fn end_wait(&self, waits: &mut Asked) {
        if let Some(waited) = waits.end_wait(self.fabric().now()) {
            self.page_faults.counted.waited(waited);
        }
    }

    /// Brings pages in, where that takes about as long as to hand them on.
    fn meet_at_once(&self, queue_pair: &QueuePair<F>, missed: &Missed<'_>, waits: &mut Asked) -> bool {
        let memory = self.fabric().memory();
        let bytes = missed.bytes();
        if waits.times > 0 || !self.options().faults_at_once {
            return false;
        }
        let began = self.fabric().now();
        let faults = &self.page_faults;
        if began < faults.expensive_until.load(Ordering::Relaxed)
            || memory.absence(missed.segments) != Absence::Cheap
        {
            return false;
        }
        if bytes > BROUGHT_IN_AT_ONCE && !memory.kernel_may_fault() {
            return false;
        }
        faults.note(queue_pair, missed, FaultCounts { minor: 1, bytes, ..FaultCounts::default() });
        if bytes > BROUGHT_IN_AT_ONCE {
            // They come while they are moved.
            faults.counted.met_on_the_way(bytes);
            waits.many_absent = true;
            return true;
        }
        // What cannot be brought in the access finds out, and says so.
        let _ = self.wanted(missed, |segment| memory.bring_in(&segment, missed.write));
        let ended = self.fabric().now();
        let took = ended.saturating_sub(began);
        faults.counted.met(bytes, took);
        if took > EXPENSIVE + bytes {
            faults.expensive_until.store(ended + EXPENSIVE_REST, Ordering::Relaxed);
        }
        true
    }

    /// Has a thread bring pages in.
    fn ask(&self, queue_pair: &QueuePair<F>, missed: &Missed<'_>, waits: &mut Asked) {
        if waits.begin_wait(self.fabric().now()) {
            let bytes = missed.bytes();
            self.page_faults.counted.handed_on(bytes);
            let counts = FaultCounts { major: 1, bytes, ..FaultCounts::default() };
            self.page_faults.note(queue_pair, missed, counts);
        } else if waits.is_in_vain() {
            // It came in, and has gone again: memory is short.
            waits.ahead.shrink();
        }
        queue_pair.counters.page_waits.add(1);
        let mut segments = smallvec::SmallVec::<[Segment; 4]>::new();
        let _ = self.wanted(missed, |segment| {
            segments.push(segment);
            Ok::<(), std::convert::Infallible>(())
        });
        self.fabric().bring_in(waits.asker(), &segments, missed.write, waits.token(queue_pair.number));
    }

    /// The memory that has to come in for an access.
    fn wanted<E>(
        &self,
        missed: &Missed<'_>,
        mut each: impl FnMut(Segment) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((last, before)) = missed.segments.split_last() else { return Ok(()) };
        before.iter().try_for_each(|segment| each(*segment))?;
        let whole = needed(self.options().page_in, range_of(last), missed.window.memory());
        each(segment_of(&whole))
    }

    /// Has pages brought in that will be needed soon. Also for an access that comes to the mark of those.
    #[cold]
    pub(crate) fn bring_in_beyond(&self, queue_pair: &QueuePair<F>, missed: &Missed<'_>, waits: &mut Asked) {
        let Some(last) = missed.segments.last() else { return };
        let access = range_of(last);
        let known = (waits.to_come > 0).then(|| access.end.saturating_add(waits.to_come));
        let end = missed.window.memory().end;
        let section = waits.ahead.beyond(self.options().page_in, access, known, end);
        let Some(section) = section else { return };
        let bytes_ahead = section.end - section.start;
        self.page_faults.counted.ahead(bytes_ahead);
        self.page_faults.note(queue_pair, missed, FaultCounts { bytes_ahead, ..FaultCounts::default() });
        let mut at = section.start;
        while at < section.end {
            let end = (at + SECTION_PART).min(section.end);
            self.fabric().bring_in_ahead(waits.asker(), segment_of(&(at..end)), missed.write);
            at = end;
        }
    }
}

impl Missed<'_> {
    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }
}

fn range_of(segment: &Segment) -> Range<u64> {
    segment.address..segment.address.saturating_add(segment.length)
}

fn segment_of(range: &Range<u64>) -> Segment {
    Segment { address: range.start, length: range.end - range.start }
}
