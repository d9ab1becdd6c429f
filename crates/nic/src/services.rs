//! What all objects of one process need: its fabric, tables, lists and counters. Nothing here knows a queue pair or its protocol.

pub mod address_handle;
pub mod arming;
pub mod callers;
pub mod cheap_pages;
pub mod completion_counter;
pub mod context;
pub mod counters;
pub mod device;
pub mod event;
pub mod fabric_event_queue;
pub mod fault_counts;
pub mod groups;
pub mod interception;
pub mod memory_window;
pub mod protection;
pub mod queue_pairs;
pub mod ready;
pub mod send_budget;
pub mod thread_domain;
pub mod timers;
pub mod tombstones;
pub mod wake_request;

use crate::services::arming::Arming;
use crate::services::cheap_pages::CheapPages;
use crate::services::context::Contexts;
use crate::services::counters::ObjectCount;
use crate::services::fabric_event_queue::FabricEventQueue;
use crate::services::fault_counts::PageFaults;
use crate::services::groups::Groups;
use crate::services::interception::Interception;
use crate::services::memory_window::MemoryWindows;
use crate::services::ready::{Again, Ready};
use crate::services::send_budget::SendBudget;
use crate::services::timers::{Schedule, Timed, Timers};
use crate::services::tombstones::Tombstones;
use crate::types::error::{Error, Result};
use crate::types::limits;
use crate::types::options::Options;
use pagewire_fabric::limits::TICK;
use pagewire_fabric::{Fabric, PageInThreads};
use pagewire_iommu::hazards::Revoked;
use pagewire_iommu::layout::{MAGIC, MAGIC_WORD, SHARED_BASE, SHARED_FILE, SHARED_LENGTH};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_iommu::{Hazards, ProcessWords, RegionTable};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Making the tables valid.
pub const TABLES: Site = Site("tables.publish");

/// Objects of one process, each kind bounded.
pub struct ObjectCounts {
    pub completion_queues: ObjectCount,
    pub completion_counters: ObjectCount,
    pub protection_domains: ObjectCount,
    pub thread_domains: ObjectCount,
    pub shared_receive_queues: ObjectCount,
    pub address_handles: ObjectCount,
}

/// The services of one process.
pub struct Services<F: Fabric> {
    pub fabric: F,
    pub options: Options,
    pub regions: RegionTable<F::SharedMemory>,
    /// Accesses of this process to its own memory.
    pub own_hazards: Hazards<ProcessWords>,
    pub fabric_events: FabricEventQueue<F>,
    /// Numbers of queue pairs that the next round runs, each once.
    pub ready: Ready,
    pub timers: Timers,
    pub arming: Arming,
    pub next_domain: AtomicU32,
    /// Connections on which this process has begun to send.
    pub connections: AtomicU32,
    key_bytes: AtomicU64,
    pub counts: ObjectCounts,
    /// Queue pairs whose path is UDP or not known yet.
    pub network_users: AtomicU32,
    pub send_budget: SendBudget,
    pub page_faults: PageFaults,
    pub cheap_pages: CheapPages,
    pub interception: Interception<F>,
    pub memory_windows: MemoryWindows,
    pub contexts: Contexts<F>,
    pub tombstones: Tombstones,
    pub groups: Groups,
}

impl<F: Fabric> Services<F> {
    /// Those of a process on a fabric, whose tables become valid.
    pub fn new(fabric: F, options: Options) -> Arc<Self> {
        let tables = fabric.tables().clone();
        let regions = RegionTable::new(tables.clone(), fabric.random());
        if !options.path.may_be_local() {
            fabric.refuse_channels();
        }
        tables.store(TABLES, MAGIC_WORD, MAGIC);
        Arc::new(Services {
            regions,
            own_hazards: Hazards::new(ProcessWords::new(limits::OWN_HAZARDS), 0, limits::OWN_HAZARDS),
            fabric_events: FabricEventQueue::default(),
            tombstones: Tombstones::default(),
            groups: Groups::default(),
            ready: Ready::default(),
            timers: Timers::default(),
            arming: Arming::default(),
            next_domain: AtomicU32::new(1),
            connections: AtomicU32::new(0),
            key_bytes: AtomicU64::new(fabric.random()),
            counts: ObjectCounts {
                completion_queues: ObjectCount::new(limits::MAX_COMPLETION_QUEUES),
                completion_counters: ObjectCount::new(limits::MAX_COMPLETION_COUNTERS),
                protection_domains: ObjectCount::new(limits::MAX_PROTECTION_DOMAINS),
                thread_domains: ObjectCount::new(limits::MAX_THREAD_DOMAINS),
                shared_receive_queues: ObjectCount::new(limits::MAX_SHARED_RECEIVE_QUEUES),
                address_handles: ObjectCount::new(limits::MAX_ADDRESS_HANDLES),
            },
            network_users: AtomicU32::new(0),
            send_budget: SendBudget::default(),
            page_faults: PageFaults::default(),
            cheap_pages: CheapPages::default(),
            interception: Interception::default(),
            memory_windows: MemoryWindows::default(),
            contexts: Contexts::default(),
            fabric,
            options,
        })
    }

    /// Publishes the memory file that lies behind these addresses, so that peers which may trace this process map it. It is for the life of
    /// the process.
    pub fn publish_shared_memory(&self, range: Range<u64>, file: RawFd) {
        let tables = self.fabric.tables();
        tables.store(TABLES, SHARED_BASE, range.start);
        tables.store(TABLES, SHARED_LENGTH, range.end - range.start);
        tables.fence();
        tables.store(TABLES, SHARED_FILE, file as u64 + 1);
    }

    /// The consumer's byte of a new key: no system call, and not to be guessed from other keys (splitmix64 over a
    /// secret start).
    pub fn random_byte(&self) -> u8 {
        let step = self.key_bytes.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (step ^ (step >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 56) as u8
    }

    /// Ends a region: makes its key invalid and waits until no access through it is in flight.
    pub fn revoke_region(&self, key: u32) -> Result<()> {
        let index = self.suspend_region(key)?;
        self.unbind_from_region(index)?;
        self.page_faults.forget_region(index);
        self.forget_attributes(index);
        self.regions.release(index);
        Ok(())
    }

    /// Makes a region's key invalid and waits until no access through it is in flight. The region keeps its place, which is
    /// returned.
    pub fn suspend_region(&self, key: u32) -> Result<u32> {
        let index = match self.regions.revoke(key) {
            Some(index) => index,
            // Revoked before, but an access did not end in time.
            None => self.regions.place_of(key),
        };
        self.fabric.page_in().end_bring_in(index);
        self.wait_for_hazards(Revoked::Region(index))?;
        Ok(index)
    }

    /// Waits a bounded time until nobody touches what was revoked.
    #[inline(always)] // Part of each deregistration.
    pub fn wait_for_hazards(&self, revoked: Revoked) -> Result<()> {
        // A peer whose channel the engine has not taken over yet may hold a claim, too.
        let held = || self.own_hazards.holds(revoked) || self.fabric_events.peer_holds(revoked);
        if self.fabric.catch_up() {
            self.note_events();
        }
        let mut until = None;
        while held() {
            let now = self.fabric.now();
            if now > *until.get_or_insert(now + limits::REVOCATION_BOUND) {
                return Err(Error::Busy("an access through the key is under way and does not end"));
            }
            std::thread::yield_now();
            self.note_events();
        }
        Ok(())
    }

    /// Whether somebody still touches what was revoked.
    #[cold]
    pub fn is_held(&self, revoked: Revoked) -> bool {
        if self.fabric.catch_up() {
            self.note_events();
        }
        self.own_hazards.holds(revoked) || self.fabric_events.peer_holds(revoked)
    }

    /// Notes what happened outside, and leaves what follows from it to the engine's next round: this thread may hold a QP context, and
    /// the reading end of the very ring whose writer has ended.
    fn note_events(&self) {
        self.fabric_events.note(&self.fabric);
        if self.fabric_events.has_noted() {
            self.wake();
        }
    }

    /// Has the next round run a queue pair, by whichever thread makes it.
    pub fn ready(&self, queue_pair: &Schedule, again: Again) {
        if queue_pair.queued.swap(true, Ordering::SeqCst) {
            return self.ready.raise(again);
        }
        self.ready.add(queue_pair.number, again);
        self.wake();
    }

    /// Whether at most one queue pair of the process uses the network.
    #[inline]
    pub fn has_one_network_user(&self) -> bool {
        self.network_users.load(Ordering::Relaxed) <= 1
    }

    /// Something has come up for the next round. A NIC thread that goes to sleep says so first and looks then; one that
    /// sleeps is woken.
    pub fn wake(&self) {
        self.fabric.mailbox().fence();
        if wake_request::is_requested(self.fabric.mailbox()) {
            self.fabric.kick();
        }
    }

    /// Has a queue pair run at a time. Called by the thread that runs it.
    pub fn schedule(&self, queue_pair: &Schedule, deadline: u64) {
        if self.timers.schedule(queue_pair, deadline) {
            self.kick_for_timer();
        }
    }

    /// Has an object's timer run out at a time.
    #[cold]
    pub fn hold_event(&self, timed: Weak<dyn Timed>, due: u64) {
        if self.timers.add_object(timed, due) {
            self.kick_for_timer();
        }
    }

    /// A timer is due sooner than all others were.
    pub fn kick_for_timer(&self) {
        if !self.arming.leaves_work_to_polls() {
            self.fabric.kick();
        }
    }

    /// The time without a look at the exact clock: not before the time that it is, and late by a tick of the coarse one at most.
    pub fn roughly_now(&self) -> pagewire_transport::Time {
        pagewire_transport::Time(self.fabric.past().saturating_add(TICK))
    }

    /// The time by which timers are judged: a peer whose answer waits in a socket of this process is not silent.
    pub fn rx_watermark(&self, now: u64) -> u64 {
        if self.network_users.load(Ordering::Relaxed) == 0 {
            return now;
        }
        self.fabric.rx_watermark().min(now)
    }
}
