//! The threads that wait for pages, so that nobody else has to, and help with transfers that meet many absent ones.

use crate::counters::Counters;
use crate::fabric::{Direction, PageInThreads, PrefetchError, RegionPart, SyncOutcome, SyncRequest};
use crate::held_pages::{HeldPages, PageFate, PageRules, RegionPages};
use crate::limits::{PAGE_IN_HELPERS, SHARED_PAGE_IN};
use crate::pieces::Pieces;
use crate::shared_move::{SharedMove, move_by_pieces, move_together};
use crate::threads::{CpuPlacement, spawn};
use crate::waiters::{PageWaiters, PrefetchOutcome, Waiter};
use crate::words::MappedWords;
use by_address::ByAddress;
use derive_where::derive_where;
use pagewire_iommu::{RegionLife, RegionView};
use pagewire_memory::{HostMemory, HostProcess, MemoryError, Segment, guard};
use pagewire_paging::limits::{PAGE, THREADS_OF_ONE};
use pagewire_paging::{Executor, ExecutorTask, Offer, PageIn, PieceOrder, Stretch, Tenant};
use parking_lot::Mutex;
use rustix::thread::{gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

/// What tenants have threads for, each by itself: in the top bits of the executor's word for who asks.
#[derive(Clone, Copy)]
enum TaskClass {
    Needed,
    Ahead,
    Peer,
    Moves,
    Sync,
}

/// Bits of the classes.
const CLASS_BITS: u32 = 3;

impl TaskClass {
    fn of(self, tenant: Tenant) -> Tenant {
        let class = (self as u64) << (u64::BITS - CLASS_BITS);
        Tenant { who: class | tenant.who & (u64::MAX >> CLASS_BITS), ..tenant }
    }

    fn of_all(self, who: u64) -> Tenant {
        self.of(Tenant { who, matter: 0 })
    }
}

/// Says that the pages with this token are there, or turned out not to be mapped.
type PageInCallback = dyn Fn(u64) + Send + Sync;

/// Who prefetches, among those who ask for pages ahead of accesses: no queue pair has this word.
const PREFETCHER: u64 = u64::MAX >> CLASS_BITS;

/// The tenant of all syncs.
const SYNCER: u64 = 0;

/// Those who bring pages in.
pub struct Pages {
    executor: Arc<Executor<PageTask>>,
    hands: Arc<PageInContext>,
    /// This process may run on so many processors.
    processors: usize,
}

/// What every task needs.
struct PageInContext {
    memory: Arc<HostMemory>,
    /// Of this process.
    regions: RegionView<MappedWords>,
    pieces: Pieces,
    counters: Arc<Counters>,
    done: Box<PageInCallback>,
    rules: Option<Arc<dyn PageRules>>,
    /// What the rules hold back.
    held: HeldPages,
    /// Those who wait for the same pages on behalf of one tenant: several accesses to them are one fault (PART-6).
    waiting: Mutex<HashMap<(Tenant, PageTaskKind), PageWaiters>>,
}

/// What a thread is asked to do. Regions make no difference between tasks: whoever waits for the same pages of another region is
/// told when this one has ended, and asks again.
#[derive(Clone)]
#[derive_where(PartialEq, Eq, Hash)]
enum PageTaskKind {
    /// Bring in pages of this process; for writing, or not. Each segment lies in one of the regions. With helpers where there is a stretch,
    /// which is the only segment.
    Local {
        write: bool,
        segments: Vec<Segment>,
        #[derive_where(skip)]
        regions: Vec<RegionLife>,
        #[derive_where(skip)]
        stretch: Option<Arc<Stretch>>,
    },
    /// Bring in pages of a peer's region, for reading.
    Peer {
        process: HostProcess,
        segment: Segment,
        #[derive_where(skip)]
        region: (RegionView<MappedWords>, RegionLife),
    },
    /// Bring in pages of a region of this process that will be needed soon, as one of several helpers.
    Ahead { write: bool, stretch: ByAddress<Arc<Stretch>>, region: RegionLife, helper: u32, helpers: u32 },
    /// Help with a transfer.
    Move(ByAddress<Arc<SharedMove>>),
    /// Make memory of this process persistent.
    Sync(ByAddress<Arc<SyncRequest>>),
}

/// Where a task is run, as seen from the processor of whoever asks.
#[derive(Clone, Copy)]
enum TaskPlacement {
    Anywhere,
    /// Who asks goes on meanwhile.
    Off(usize),
    /// Who asks waits meanwhile, mostly polls, and no other processor is free.
    At(usize),
}

/// What became of a task that a thread has done.
enum PageTaskOutcome {
    Ended(Result<(), MemoryError>),
    /// A rule lost the pages.
    Lost,
}

/// A task for the executor: what is done, and for which tenant.
#[derive_where(PartialEq, Eq, Hash)]
struct PageTask {
    what: PageTaskKind,
    tenant: Tenant,
    #[derive_where(skip)]
    place: TaskPlacement,
    #[derive_where(skip)]
    hands: Arc<PageInContext>,
    /// What became of it, once a thread has done it.
    #[derive_where(skip)]
    outcome: OnceLock<PageTaskOutcome>,
}

impl PageTask {
    fn new(what: PageTaskKind, tenant: Tenant, place: TaskPlacement, hands: &Arc<PageInContext>) -> Self {
        PageTask { what, tenant, place, hands: hands.clone(), outcome: OnceLock::new() }
    }

    /// Under which those are kept who wait for it.
    fn key(&self) -> (Tenant, PageTaskKind) {
        (self.tenant, self.what.clone())
    }
}

impl ExecutorTask for PageTask {
    fn tenant(&self) -> Tenant {
        self.tenant
    }

    fn threads(&self) -> usize {
        match self.what {
            PageTaskKind::Ahead { helpers, .. } => helpers as usize,
            _ => THREADS_OF_ONE,
        }
    }

    fn run(&self) {
        let hands = &*self.hands;
        let _placed = match self.place {
            TaskPlacement::Anywhere => None,
            TaskPlacement::Off(processor) => CpuPlacement::off(processor),
            TaskPlacement::At(processor) => CpuPlacement::at(processor),
        };
        // Nobody else is interrupted.
        if let PageTaskKind::Local { .. } = self.what {
            if let Some(waiting) = hands.waiting.lock().get_mut(&self.key()) {
                waiting.begin_by(own_thread());
            }
        }
        if let Some(rules) = &hands.rules
            && hands.hold_back(&**rules, &self.what)
        {
            // A task runs once.
            let _ = self.outcome.set(PageTaskOutcome::Lost);
            return;
        }
        // Where one is not mapped, or its region has ended, an access will find that out, and say so. A prefetch is told.
        let outcome = match &self.what {
            PageTaskKind::Local { write, regions, stretch: Some(stretch), .. } => {
                let brought_in = regions.iter().try_for_each(|region| hands.help(stretch, region, *write));
                stretch.rest();
                // A helper may have come upon the end of a mapping.
                brought_in.and(if stretch.has_failed() { Err(MemoryError::NotMapped) } else { Ok(()) })
            }
            PageTaskKind::Local { write, segments, regions, .. } => segments
                .iter()
                .zip(regions)
                .try_for_each(|(segment, region)| hands.bring_in(segment, region, *write)),
            PageTaskKind::Peer { process, segment, region: (regions, region) } => {
                hands.memory.bring_in_peer(process, segment, || regions.lives(region))
            }
            PageTaskKind::Ahead { write, stretch, region, .. } => hands.help(stretch, region, *write),
            PageTaskKind::Move(shared) => {
                shared.help(&hands.memory);
                Ok(())
            }
            PageTaskKind::Sync(request) => {
                let outcome = hands.memory.sync(request.segment);
                if let Err(error) = outcome {
                    let Segment { address, length } = request.segment;
                    log::debug!("{length} bytes at {address:#x} were not synced: {error}");
                }
                request.end(SyncOutcome::Ended(outcome));
                Ok(())
            }
        };
        // A task runs once.
        let _ = self.outcome.set(PageTaskOutcome::Ended(outcome));
    }

    fn end(&self) {
        let waiting = self.hands.waiting.lock().remove(&self.key());
        let (outcome, waiting) = match self.outcome.get() {
            Some(PageTaskOutcome::Ended(outcome)) => (outcome.map_err(|_| PrefetchError::NotMapped), waiting),
            Some(PageTaskOutcome::Lost) => {
                let pages = self.hands.pages_of(&self.what);
                let left = waiting.and_then(|waiting| self.hands.held.join_all(&pages, waiting));
                (Err(PrefetchError::NotMapped), left)
            }
            // No thread could be had.
            None => {
                if let PageTaskKind::Sync(request) = &self.what {
                    request.end(SyncOutcome::NotRun);
                }
                (Err(PrefetchError::Full), waiting)
            }
        };
        waiting.into_iter().for_each(|waiting| waiting.end(outcome, &self.hands.done));
    }

    /// What is learnt may spare the next ones a thread.
    fn follow_up(&self) {
        let memory = &*self.hands.memory;
        match &self.what {
            PageTaskKind::Local { segments, .. } => {
                segments.iter().take(1).for_each(|first| memory.learn(*first))
            }
            PageTaskKind::Ahead { stretch, .. } => {
                let memory_ahead = stretch.memory();
                let length = memory_ahead.end - memory_ahead.start;
                memory.learn(Segment { address: memory_ahead.start, length });
            }
            PageTaskKind::Peer { process, segment, .. } => memory.learn_peer(process, *segment),
            PageTaskKind::Move(_) | PageTaskKind::Sync(_) => {}
        }
    }
}

/// The number of the calling thread.
fn own_thread() -> u32 {
    gettid().as_raw_nonzero().get() as u32
}

impl PageInContext {
    /// The pages that a task brings in because an access, or a verb, needs them.
    fn pages_of(&self, what: &PageTaskKind) -> Vec<RegionPages> {
        match what {
            PageTaskKind::Local { segments, regions, .. } => segments
                .iter()
                .zip(regions)
                .map(|(segment, region)| self.own_pages(segment, region))
                .collect(),
            PageTaskKind::Peer { process, segment, region: (regions, region) } => vec![RegionPages {
                process: (!process.is_own()).then(|| process.clone()),
                regions: regions.clone(),
                part: RegionPart { region: *region, segment: *segment },
            }],
            PageTaskKind::Ahead { .. } | PageTaskKind::Move(_) | PageTaskKind::Sync(_) => Vec::new(),
        }
    }

    fn own_pages(&self, segment: &Segment, region: &RegionLife) -> RegionPages {
        let part = RegionPart { region: *region, segment: *segment };
        RegionPages { process: None, regions: self.regions.clone(), part }
    }

    /// Asks the rules about a task, and waits where its pages come late. True: they are lost.
    fn hold_back(&self, rules: &dyn PageRules, what: &PageTaskKind) -> bool {
        let pages = self.pages_of(what);
        if pages.is_empty() {
            return false;
        }
        match self.held.decide(rules, &pages) {
            None => false,
            Some(PageFate::Late(delay)) => {
                self.held.wait(delay, &pages);
                false
            }
            Some(PageFate::Lost) => true,
        }
    }

    /// Whether a rule holds back pages of a region of this process.
    fn holds_any(&self, segment: &Segment, region: &RegionLife) -> bool {
        self.rules.is_some() && self.held.has_any(&[self.own_pages(segment, region)])
    }

    /// Tells those who wait for lost pages of regions that have ended.
    #[cold]
    fn end_lost(&self) {
        for waiters in self.held.take_ended() {
            waiters.end(Err(PrefetchError::NotMapped), &self.done);
        }
    }

    /// Brings in pages of a region of this process, as long as it is what it was.
    fn bring_in(&self, segment: &Segment, region: &RegionLife, write: bool) -> Result<(), MemoryError> {
        let thread = own_thread();
        let begin = || self.pieces.begin(&self.regions, region, thread);
        self.memory.bring_in_pieces(segment, write, begin)
    }

    /// Brings in the pieces of a stretch that no other thread has taken, one after the other, until none is left.
    fn help(&self, stretch: &Stretch, region: &RegionLife, write: bool) -> Result<(), MemoryError> {
        std::iter::from_fn(|| stretch.take()).try_for_each(|piece| {
            let memory = piece.memory();
            let segment = Segment { address: memory.start, length: memory.end - memory.start };
            if self.holds_any(&segment, region) {
                return Ok(());
            }
            let brought_in = self.bring_in(&segment, region, write);
            if brought_in.is_err() {
                stretch.fail();
            }
            drop(piece);
            // Whoever is at work here comes first.
            std::thread::yield_now();
            brought_in
        })
    }
}

/// The pages that a segment lies in.
fn whole_pages(segment: &Segment) -> Segment {
    let address = segment.address / PAGE * PAGE;
    let end = segment.address.saturating_add(segment.length).checked_next_multiple_of(PAGE);
    end.map_or(*segment, |end| Segment { address, length: end - address })
}

impl Pages {
    /// With one thread; each will be where the calling thread may be now. `tables`: those of this process. `done` is called with a token
    /// when its pages are there, or turned out not to be mapped, or their region has ended.
    pub fn new(
        memory: Arc<HostMemory>,
        tables: MappedWords,
        counters: Arc<Counters>,
        done: Box<PageInCallback>,
    ) -> Self {
        Self::with_rules(memory, tables, counters, done, None)
    }

    /// [`new`](Self::new) with rules about pages.
    pub fn with_rules(
        memory: Arc<HostMemory>,
        tables: MappedWords,
        counters: Arc<Counters>,
        done: Box<PageInCallback>,
        rules: Option<Arc<dyn PageRules>>,
    ) -> Self {
        // Threads begin with their maker's processors, and whoever is the first to need one may be kept at one.
        let processors = sched_getaffinity(None).ok();
        let spawn = move |body: Box<dyn FnOnce() + Send>| {
            let begin = move || {
                if let Some(Err(error)) = processors.map(|processors| sched_setaffinity(None, &processors)) {
                    log::debug!("a thread for pages stays where it began: {error}");
                }
                pagewire_memory::open_all_keys();
                body();
            };
            spawn("pagewire-pages", begin).map(drop)
        };
        let (regions, pieces) = (RegionView::new(tables), Pieces::new());
        let hands = Arc::new(PageInContext {
            memory,
            regions,
            pieces,
            counters,
            done,
            rules,
            held: HeldPages::default(),
            waiting: Mutex::default(),
        });
        let processors = available_parallelism().map_or(1, NonZero::get);
        Pages { executor: Executor::new(spawn), hands, processors }
    }

    /// Has pages of this process brought in for a tenant among those of the task class.
    fn offer_local(
        &self,
        tenant: Tenant,
        parts: &[RegionPart],
        write: bool,
        waiter: Option<Waiter>,
    ) -> Offer {
        let segments = parts.iter().map(|part| whole_pages(&part.segment)).collect();
        let regions = parts.iter().map(|part| part.region).collect();
        let shared = match parts {
            // Helpers know no rules.
            [part] if part.segment.length > SHARED_PAGE_IN && self.hands.rules.is_none() => {
                let Segment { address, length } = whole_pages(&part.segment);
                Some((part.region, Stretch::new(address..address + length, PieceOrder::Forth)))
            }
            _ => None,
        };
        let stretch = shared.as_ref().map(|(_, stretch)| stretch.clone());
        let what = PageTaskKind::Local { write, segments, regions, stretch };
        let offer = self.offer(what, tenant, waiter);
        if let (Offer::Taken, Some((region, stretch))) = (offer, shared) {
            let memory = stretch.memory();
            let helpers = ((memory.end - memory.start) / SHARED_PAGE_IN).min(PAGE_IN_HELPERS);
            self.bring_in_ahead(tenant, region, &stretch, write, helpers as u32);
        }
        offer
    }

    fn offer(&self, what: PageTaskKind, tenant: Tenant, waiter: Option<Waiter>) -> Offer {
        let place = match &what {
            // Every second one of those whom somebody waits for who brings nothing in.
            PageTaskKind::Ahead { stretch, helper, .. }
                if helper % 2 == 0
                    && stretch.order() == PieceOrder::Forth
                    && !self.has_processors_for_helpers() =>
            {
                TaskPlacement::At(sched_getcpu())
            }
            PageTaskKind::Ahead { .. } | PageTaskKind::Move(_) => TaskPlacement::Off(sched_getcpu()),
            PageTaskKind::Local { .. } | PageTaskKind::Peer { .. } | PageTaskKind::Sync(_) => {
                TaskPlacement::Anywhere
            }
        };
        if self.hands.rules.is_some() && self.waits_for_lost(&what, waiter.as_ref()) {
            return Offer::Known;
        }
        let is_sync = matches!(what, PageTaskKind::Sync(_));
        let key = waiter.map(|waiter| (waiter, (tenant, what.clone())));
        if let Some((waiter, key)) = &key {
            let mut waiting = self.hands.waiting.lock();
            waiting.entry(key.clone()).or_insert_with(PageWaiters::begin).add(waiter.clone());
        }
        let offer = self.executor.offer(PageTask::new(what, tenant, place, &self.hands));
        match offer {
            Offer::Taken if is_sync => {}
            Offer::Taken => self.hands.counters.brought_in.add(1),
            Offer::Known => {
                let mut waiting = self.hands.waiting.lock();
                let due = key.and_then(|(_, key)| Some((waiting.get_mut(&key)?.due()?, key.1)));
                drop(waiting);
                match due {
                    // Helpers bring in parts of it.
                    Some((_, PageTaskKind::Local { regions, stretch: Some(_), .. })) => {
                        regions.iter().for_each(|region| self.hands.pieces.look_again(region.index()));
                    }
                    Some((thread, PageTaskKind::Local { .. })) => guard::end_touch(thread),
                    _ => {}
                }
            }
            Offer::Full => {
                self.hands.counters.bring_in_overflow.add(1);
                // The access is looked at again now and then, and asks again.
                if let Some((waiter, key)) = key {
                    let mut waiting = self.hands.waiting.lock();
                    if waiting.get_mut(&key).is_some_and(|waiting| waiting.remove(&waiter)) {
                        waiting.remove(&key);
                    }
                }
            }
        }
        offer
    }

    /// Whether pages are lost by a rule, for which the waiter then waits.
    #[cold]
    fn waits_for_lost(&self, what: &PageTaskKind, waiter: Option<&Waiter>) -> bool {
        self.hands.end_lost();
        let pages = self.hands.pages_of(what);
        match waiter {
            Some(waiter) => self.hands.held.join(&pages, waiter.clone()),
            None => self.hands.held.has_lost(&pages),
        }
    }

    /// Has idle threads end; those that wait for a page end when it comes. Nobody waits for a rule any more.
    pub fn stop(&self) {
        self.executor.stop();
        for waiters in self.hands.held.stop() {
            waiters.end(Err(PrefetchError::NotMapped), &self.hands.done);
        }
    }
}

impl PageInThreads<MappedWords, HostProcess> for Pages {
    fn bring_in(&self, tenant: Tenant, parts: &[RegionPart], write: bool, token: u64) {
        self.offer_local(TaskClass::Needed.of(tenant), parts, write, Some(Waiter::Token(token)));
    }

    fn bring_in_peer(
        &self,
        process: &HostProcess,
        regions: &RegionView<MappedWords>,
        part: RegionPart,
        token: u64,
    ) {
        let region = (regions.clone(), part.region);
        let what =
            PageTaskKind::Peer { process: process.clone(), segment: whole_pages(&part.segment), region };
        let tenant = TaskClass::Peer.of_all(process.pid() as u64);
        self.offer(what, tenant, Some(Waiter::Token(token)));
    }

    fn bring_in_ahead(
        &self,
        tenant: Tenant,
        region: RegionLife,
        stretch: &Arc<Stretch>,
        write: bool,
        helpers: u32,
    ) {
        for helper in 0..helpers {
            let stretch = ByAddress(stretch.clone());
            self.offer(
                PageTaskKind::Ahead { write, stretch, region, helper, helpers },
                TaskClass::Ahead.of(tenant),
                None,
            );
        }
    }

    fn prefetch(&self, parts: &[RegionPart], write: bool, wait: bool) -> Result<(), PrefetchError> {
        // Regions are matters of their own: pages of one that never come leave threads to the others.
        let matter = parts.first().map_or(0, |part| u64::from(part.region.index()));
        let tenant = TaskClass::Ahead.of(Tenant { who: PREFETCHER, matter });
        let outcome = Arc::new(PrefetchOutcome::default());
        let waiter = wait.then(|| Waiter::Thread(ByAddress(outcome.clone())));
        match self.offer_local(tenant, parts, write, waiter) {
            Offer::Full => Err(PrefetchError::Full),
            Offer::Taken | Offer::Known if wait => outcome.wait(),
            Offer::Taken | Offer::Known => Ok(()),
        }
    }

    fn sync(&self, tenant: Tenant, request: &Arc<SyncRequest>, token: u64) -> bool {
        let what = PageTaskKind::Sync(ByAddress(request.clone()));
        // Those for all peers are one tenant, so that a slow disk leaves threads to pages. A peer is a matter of it.
        let tenant = TaskClass::Sync.of(Tenant { who: SYNCER, matter: tenant.who });
        self.offer(what, tenant, Some(Waiter::Token(token))) != Offer::Full
    }

    #[inline]
    fn end_bring_in(&self, region: u32) {
        self.hands.pieces.end(region);
        if self.hands.rules.is_some() {
            self.hands.end_lost();
        }
    }

    #[inline]
    fn brings_in(&self) -> bool {
        self.hands.memory.is_at_work()
    }

    fn has_processors_for_helpers(&self) -> bool {
        // On two, where both ends were on this host, transfers over absent pages took a twentieth longer with a helper than without.
        self.processors > 2
    }

    #[cold]
    fn move_absent(
        &self,
        direction: Direction,
        process: &HostProcess,
        segments: (&[Segment], &[Segment]),
        tail_last: bool,
        page_in: PageIn,
    ) -> Result<(), MemoryError> {
        let memory = &self.hands.memory;
        if let Some(piece) = page_in.brings_in_at_most() {
            return move_by_pieces(memory, direction, process, segments, tail_last, piece);
        }
        move_together(memory, direction, process, segments, tail_last, |shared| {
            let (tenant, place) = (TaskClass::Moves.of_all(0), TaskPlacement::Off(sched_getcpu()));
            // Without help it takes longer.
            let _ = self.executor.offer(PageTask::new(
                PageTaskKind::Move(ByAddress(shared)),
                tenant,
                place,
                &self.hands,
            ));
        })
    }
}

#[cfg(test)]
mod tests;
