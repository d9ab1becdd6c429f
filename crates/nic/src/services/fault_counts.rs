//! Faults as they are counted: by process, device and region.

use pagewire_iommu::RegionWindow;
use pagewire_paging::{FaultCounts, Histogram};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a process counts of its faults.
#[derive(Default)]
pub struct PageFaults {
    counted: Mutex<Counted>,
    /// How long the faults took, from each until the access could go on.
    pub latency: Histogram,
    /// There is such a region.
    any_region: AtomicBool,
}

#[derive(Default)]
struct Counted {
    /// Of all, those in peers' memory with them.
    all: FaultCounts,
    /// Of each region of this process.
    regions: BTreeMap<u32, RegionFaults>,
    /// For each device the sum of the regions that have ended.
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
        let mut counted = self.counted.lock();
        if let Some(ended) = counted.regions.remove(&index) {
            *counted.ended.entry(ended.device).or_default() += ended.counts;
        }
    }

    /// What was counted so far.
    pub fn report(&self) -> FaultReport {
        let counted = self.counted.lock();
        let mut devices = counted.ended.clone();
        let regions: Vec<RegionFaults> = counted.regions.values().cloned().collect();
        for region in &regions {
            *devices.entry(region.device.clone()).or_default() += region.counts;
        }
        FaultReport { all: counted.all, latency: self.latency.buckets(), devices, regions }
    }

    /// A packet waits for a page: of the region at this place, if that is still there, or of a peer.
    #[cold]
    pub fn note_packet(&self, region: Option<u32>, counts: FaultCounts) {
        let mut counted = self.counted.lock();
        counted.all += counts;
        if let Some(region) = region.and_then(|region| counted.regions.get_mut(&region)) {
            region.counts += counts;
        }
    }

    /// Counts faults in the memory of a peer.
    pub fn note_peer(&self, counts: FaultCounts) {
        self.counted.lock().all += counts;
    }

    /// Counts faults of accesses to a region that was registered by a device.
    pub fn note(&self, window: &RegionWindow, device: &str, counts: FaultCounts) {
        self.any_region.store(true, Ordering::Release);
        let mut counted = self.counted.lock();
        counted.all += counts;
        let region = counted.regions.entry(window.index()).or_insert_with(|| RegionFaults {
            device: device.to_owned(),
            memory: window.memory(),
            counts: FaultCounts::default(),
        });
        region.counts += counts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_faults_of_peers_count_for_the_process() {
        let faults = PageFaults::default();
        faults.note_peer(FaultCounts { major: 1, bytes: 4096, ..FaultCounts::default() });
        for fate in [
            FaultCounts { stashed: 1, ..FaultCounts::default() },
            FaultCounts { resumed: 1, ..FaultCounts::default() },
        ] {
            (0..2).for_each(|_| faults.note_packet(None, fate));
        }
        let FaultReport { all, devices, regions, .. } = faults.report();
        assert_eq!(
            all,
            FaultCounts { major: 1, bytes: 4096, stashed: 2, resumed: 2, ..FaultCounts::default() }
        );
        assert!(devices.is_empty() && regions.is_empty());
    }
}
