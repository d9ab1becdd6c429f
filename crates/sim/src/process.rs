//! Simulated processes: their memory, and the stores at which they can be ended.

use crate::address_space::AddressSpace;
use crate::clock::Clock;
use crate::network::HostId;
use crate::plant::{Plant, Planted};
use crate::words::Array;
use pagewire_iommu::words::Site;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Names a process of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub usize);

/// When a process ends: just before one of its stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// The store of this number, counted from 1 over all sites.
    Store(u64),
    /// The store of this number at one site.
    At(Site, u64),
}

type Interruption = Box<dyn FnOnce() + Send>;

/// Stores of one process.
#[derive(Default)]
struct StoreSteps {
    total: u64,
    by_site: Vec<(Site, u64)>,
    crash: Option<CrashPoint>,
    interruption: Option<(u64, Interruption)>,
}

impl StoreSteps {
    fn of(&mut self, site: Site) -> &mut u64 {
        let place = match self.by_site.iter().position(|(known, _)| *known == site) {
            Some(place) => place,
            None => {
                self.by_site.push((site, 0));
                self.by_site.len() - 1
            }
        };
        &mut self.by_site[place].1
    }
}

/// How often each site was reached, and how often a process ended there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteTally {
    pub stores: u64,
    pub crashes: u64,
}

/// One process.
pub struct VirtualProcess {
    pub(crate) id: ProcessId,
    pub(crate) host: HostId,
    pub(crate) clock: Arc<Clock>,
    pub(crate) space: Mutex<AddressSpace>,
    /// Its absent pages come in from this time on.
    pub(crate) pages_from: AtomicU64,
    pub(crate) plant: Planted,
    /// It knows nothing of Pagewire's own packets.
    pub(crate) standard: AtomicBool,
    deaths: Arc<AtomicU64>,
    alive: AtomicBool,
    ended_at: AtomicU64,
    ended_by: Mutex<Option<Site>>,
    steps: Mutex<StoreSteps>,
    /// Words that peers may map, by their number.
    pub(crate) files: Mutex<Vec<Arc<Array>>>,
}

impl VirtualProcess {
    /// `deaths` counts the processes that have ended.
    pub(crate) fn new(id: ProcessId, host: HostId, clock: Arc<Clock>, deaths: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(VirtualProcess {
            id,
            host,
            clock,
            space: Mutex::new(AddressSpace::default()),
            pages_from: AtomicU64::new(0),
            plant: Planted::default(),
            standard: AtomicBool::new(false),
            deaths,
            alive: AtomicBool::new(true),
            ended_at: AtomicU64::new(0),
            ended_by: Mutex::new(None),
            steps: Mutex::new(StoreSteps::default()),
            files: Mutex::default(),
        })
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether it knows nothing of Pagewire's own packets.
    pub fn is_standard(&self) -> bool {
        self.standard.load(Ordering::Relaxed)
    }

    /// When it ended, if it has.
    pub fn ended_at(&self) -> Option<u64> {
        (!self.is_alive()).then(|| self.ended_at.load(Ordering::Acquire))
    }

    /// The site before whose store it was ended.
    pub fn ended_by(&self) -> Option<Site> {
        *self.ended_by.lock()
    }

    /// Ends it now.
    pub fn kill(&self) {
        if self.alive.swap(false, Ordering::AcqRel) {
            self.ended_at.store(self.clock.now(), Ordering::Release);
            self.deaths.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Has it end at a store.
    pub fn crash_at(&self, point: CrashPoint) {
        self.steps.lock().crash = Some(point);
    }

    /// Has something else happen just before one of its stores (counted from now, the next is 1), while it stands still.
    pub fn interrupt_at(&self, store: u64, with: impl FnOnce() + Send + 'static) {
        let mut steps = self.steps.lock();
        let at = steps.total + store;
        steps.interruption = Some((at, Box::new(with)));
    }

    /// Whether the interruption is still to come; forgets it.
    pub fn cancel_interruption(&self) -> bool {
        self.steps.lock().interruption.take().is_some()
    }

    /// Plants a bug in its memory that shows once, after so many harmless chances.
    pub fn plant(&self, plant: Plant, chances: u32) {
        self.plant.set(plant, chances);
    }

    /// Stores so far.
    pub fn stores(&self) -> u64 {
        self.steps.lock().total
    }

    /// Stores at each site so far, and where it ended.
    pub fn tally(&self) -> BTreeMap<Site, SiteTally> {
        let ended = self.ended_by();
        let steps = self.steps.lock();
        steps
            .by_site
            .iter()
            .map(|(site, stores)| {
                (*site, SiteTally { stores: *stores, crashes: u64::from(ended == Some(*site)) })
            })
            .collect()
    }

    /// Counts a store; whether it takes place.
    pub(crate) fn step(&self, site: Site) -> bool {
        self.steps(site, 1) == 1
    }

    /// Counts stores in a row; how many of them take place.
    pub(crate) fn steps(&self, site: Site, count: u64) -> u64 {
        if !self.is_alive() {
            return 0;
        }
        self.clock.stir();
        let mut steps = self.steps.lock();
        let before = steps.total;
        let at_site = steps.of(site);
        let before_here = *at_site;
        *at_site += count;
        steps.total += count;
        let end = match steps.crash {
            Some(CrashPoint::Store(number)) => number.checked_sub(before + 1),
            Some(CrashPoint::At(at, number)) if at == site => number.checked_sub(before_here + 1),
            _ => None,
        };
        if let Some(end) = end.filter(|end| *end < count) {
            steps.crash = None;
            drop(steps);
            *self.ended_by.lock() = Some(site);
            self.kill();
            return end;
        }
        let due = steps.interruption.as_ref().is_some_and(|(at, _)| *at <= before + count);
        let interruption = if due { steps.interruption.take() } else { None };
        drop(steps);
        if let Some((_, interruption)) = interruption {
            interruption();
            return if self.is_alive() { count } else { 0 };
        }
        count
    }
}
