//! Faults as they are counted: by process, device and region.

use pagewire_iommu::Window;
use pagewire_paging::{Fate, FaultCounts, Faults};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a process counts of its faults.
#[derive(Default)]
pub struct PageFaults {
    /// Of all.
    pub counted: Faults,
    /// Counts of each region of this process, and for each device the sum of the regions that have ended.
    by_region: Mutex<ByRegion>,
    /// There is such a region.
    any_region: AtomicBool,
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

    /// A packet waits for a page: of the region at this place, if that is still there, or of a peer.
    #[cold]
    pub fn note_packet(&self, region: Option<u32>, fate: Fate) {
        self.counted.packet(fate);
        let Some(region) = region else { return };
        if let Some(region) = self.by_region.lock().regions.get_mut(&region) {
            region.counts += fate.into();
        }
    }

    /// Counts faults of accesses to a region that was registered by a device.
    pub fn note(&self, window: &Window, device: &str, counts: FaultCounts) {
        self.any_region.store(true, Ordering::Release);
        let mut by_region = self.by_region.lock();
        let region = by_region.regions.entry(window.index()).or_insert_with(|| RegionFaults {
            device: device.to_owned(),
            memory: window.memory(),
            counts: FaultCounts::default(),
        });
        region.counts += counts;
    }
}
