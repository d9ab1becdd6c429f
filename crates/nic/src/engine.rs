//! The engine of one process: its tables, and the rounds in which packets, timers and events are served.
//!
//! Any thread may run a round ([`workers`](crate::workers)). Rounds of several threads do not wait for each other.

use crate::counters::ObjectCount;
use crate::error::{Error, Result};
use crate::fault_counts::PageFaults;
use crate::inbox::{Content, Half, InboxPacket, Incoming, Origin};
use crate::limits;
use crate::moderation::ModeratedQueues;
use crate::page_fault_choice::PageFaultChoice;
use crate::page_faults::CheapPages;
use crate::path::attention;
use crate::path::local::{LocalChannel, ProcessOf};
use crate::path::{BlockState, PathChoice};
use crate::qp_progress::page_waits::waiter_of;
use crate::qp_progress::{Burst, Occasion, QpContext};
use crate::queue_pair::QueuePair;
use crate::queue_pairs::QueuePairs;
use crate::ready::{Again, Ready};
use crate::send_budget::SendBudget;
use crate::workers::Workers;
use pagewire_fabric::limits::TICK;
use pagewire_fabric::{ChannelId, Fabric, FabricEvent};
use pagewire_iommu::hazards::Revoked;
use pagewire_iommu::layout::{MAGIC, MAGIC_WORD};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_iommu::{Hazards, ProcessWords, RegionTable};
use pagewire_paging::PageIn;
use pagewire_transport::{Payload, Time};
use pagewire_wire::VendorPacket;
use parking_lot::{Mutex, MutexGuard, RwLock};
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Making the tables valid.
pub const TABLES: Site = Site("tables.publish");

/// A full ring or batch is tried again after this many nanoseconds.
const RETRY_NANOSECONDS: u64 = 50_000;

/// Rounds in which datagrams are taken that came in before a queue pair receives.
const MAX_DRAIN_ROUNDS: usize = 100;

/// Rounds in which a departed peer's ring is read to its end.
const MAX_LAST_ROUNDS: usize = 1 << 16;

/// Stands in the list of timers for completion queues that hold events back. No queue pair has this number.
pub const MODERATED_QUEUES: u32 = u32::MAX;

/// The list of timers: times (of the fabric) and numbers of queue pairs.
pub(crate) type Timers<'a> = MutexGuard<'a, BTreeSet<(u64, u32)>>;

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct Options {
    pub path: PathChoice,
    /// What becomes of packets that find a page absent.
    pub page_faults: PageFaultChoice,
    /// How much is brought in where pages are absent.
    pub page_in: PageIn,
    /// Whether pages that are cheap come in at once. Else threads bring in all.
    pub faults_at_once: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            path: PathChoice::Auto,
            page_faults: PageFaultChoice::default(),
            page_in: PageIn::default(),
            faults_at_once: true,
        }
    }
}

/// Objects of one process, each kind bounded.
pub struct Counts {
    pub completion_queues: ObjectCount,
    pub protection_domains: ObjectCount,
    pub thread_domains: ObjectCount,
    pub shared_receive_queues: ObjectCount,
    pub address_handles: ObjectCount,
}

/// The engine.
pub struct Nic<F: Fabric> {
    fabric: F,
    options: Options,
    regions: RegionTable<F::Words>,
    own_hazards: Hazards<ProcessWords>,
    queue_pairs: QueuePairs<F>,
    pub(crate) channels: RwLock<Vec<Arc<LocalChannel<F>>>>,
    pub(crate) blocks: Mutex<HashMap<u32, BlockState<F>>>,
    /// Numbers of queue pairs that want to be driven in the next round, each once.
    ready: Ready,
    /// Held while events are taken and the channels they tell of are noted, so that these are known in their order.
    event_lock: Mutex<()>,
    /// Channels whose peers have ended, and that are still to be closed.
    departed: Mutex<Vec<ChannelId>>,
    /// Whether there are any, for a look without the lock.
    any_departed: AtomicBool,
    /// Polls have left peers untold what they took; so many polls later they are told. 0: nothing is untold.
    pub(crate) unsettled: AtomicU32,
    /// Peers were told something, and may have gone to sleep without having seen it.
    pub(crate) unsure: AtomicBool,
    timers: Mutex<BTreeSet<(u64, u32)>>,
    earliest: AtomicU64,
    next_domain: AtomicU32,
    /// Connections on which this process has begun to send.
    pub(crate) connections: AtomicU32,
    key_bytes: AtomicU64,
    pub(crate) counts: Counts,
    pub(crate) workers: Workers,
    /// Queue pairs whose path is UDP or not known yet.
    pub(crate) network_users: AtomicU32,
    pub(crate) send_budget: SendBudget,
    pub(crate) page_faults: PageFaults,
    pub(crate) cheap_pages: CheapPages,
    pub(crate) moderated: ModeratedQueues<F>,
}

impl<F: Fabric> Nic<F> {
    /// An engine on a fabric.
    pub fn new(fabric: F, options: Options) -> Arc<Self> {
        let tables = fabric.tables().clone();
        let regions = RegionTable::new(tables.clone(), fabric.random());
        if options.path == PathChoice::Udp {
            fabric.refuse_channels();
        }
        tables.store(TABLES, MAGIC_WORD, MAGIC);
        Arc::new(Nic {
            regions,
            own_hazards: Hazards::new(ProcessWords::new(limits::OWN_HAZARDS), 0, limits::OWN_HAZARDS),
            queue_pairs: QueuePairs::new(),
            channels: RwLock::new(Vec::new()),
            blocks: Mutex::new(HashMap::new()),
            ready: Ready::default(),
            event_lock: Mutex::new(()),
            departed: Mutex::new(Vec::new()),
            any_departed: AtomicBool::new(false),
            unsettled: AtomicU32::new(0),
            unsure: AtomicBool::new(false),
            timers: Mutex::new(BTreeSet::new()),
            earliest: AtomicU64::new(u64::MAX),
            next_domain: AtomicU32::new(1),
            connections: AtomicU32::new(0),
            key_bytes: AtomicU64::new(fabric.random()),
            counts: Counts {
                completion_queues: ObjectCount::new(limits::MAX_COMPLETION_QUEUES),
                protection_domains: ObjectCount::new(limits::MAX_PROTECTION_DOMAINS),
                thread_domains: ObjectCount::new(limits::MAX_THREAD_DOMAINS),
                shared_receive_queues: ObjectCount::new(limits::MAX_SHARED_RECEIVE_QUEUES),
                address_handles: ObjectCount::new(limits::MAX_ADDRESS_HANDLES),
            },
            workers: Workers::default(),
            network_users: AtomicU32::new(0),
            send_budget: SendBudget::default(),
            page_faults: PageFaults::default(),
            cheap_pages: CheapPages::default(),
            moderated: ModeratedQueues::default(),
            fabric,
            options,
        })
    }

    /// The world around the engine.
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// How the engine was set up.
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn regions(&self) -> &RegionTable<F::Words> {
        &self.regions
    }

    pub(crate) fn own_hazards(&self) -> &Hazards<ProcessWords> {
        &self.own_hazards
    }

    pub(crate) fn queue_pairs(&self) -> &QueuePairs<F> {
        &self.queue_pairs
    }

    /// The consumer's byte of a new key: no system call, and not to be guessed from other keys (splitmix64 over a
    /// secret start).
    pub(crate) fn random_byte(&self) -> u8 {
        let step = self.key_bytes.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (step ^ (step >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 56) as u8
    }

    pub(crate) fn next_protection_domain(&self) -> u32 {
        self.next_domain.fetch_add(1, Ordering::Relaxed)
    }

    /// All queue pairs that exist.
    pub fn all_queue_pairs(&self) -> Vec<Arc<QueuePair<F>>> {
        self.queue_pairs.all()
    }

    /// Ends a region: makes its key invalid and waits until no access through it is under way.
    pub(crate) fn revoke_region(&self, key: u32) -> Result<()> {
        let index = self.suspend_region(key)?;
        self.page_faults.forget_region(index);
        self.regions.release(index);
        Ok(())
    }

    /// Makes a region's key invalid and waits until no access through it is under way. The region keeps its place, which is
    /// returned.
    pub(crate) fn suspend_region(&self, key: u32) -> Result<u32> {
        let index = match self.regions.revoke(key) {
            Some(index) => index,
            // Revoked before, but an access did not end in time.
            None => self.regions.place_of(key),
        };
        self.fabric.end_bring_in(index);
        self.wait_for_hazards(Revoked::Region(index))?;
        Ok(index)
    }

    /// Waits a bounded time until nobody touches what was revoked.
    pub(crate) fn wait_for_hazards(&self, revoked: Revoked) -> Result<()> {
        // A peer whose channel is not known yet may be at it, too; one that has died holds nothing any more. A peer that broke
        // the rules of its ring still lives.
        let theirs =
            |channel: &Arc<LocalChannel<F>>| !channel.has_ended() && channel.peer_hazards.holds(revoked);
        let held = || self.own_hazards.holds(revoked) || self.channels.read().iter().any(theirs);
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

    /// Has a queue pair driven in the next round, by whichever thread runs it.
    pub(crate) fn ready(&self, queue_pair: &QueuePair<F>, again: Again) {
        if queue_pair.queued.swap(true, Ordering::SeqCst) {
            return self.ready.raise(again);
        }
        self.ready.add(queue_pair.number, again);
        self.wake();
    }

    /// Something has come up for the next round. A NIC thread that goes to sleep says so first and looks then; one that
    /// sleeps is woken.
    pub(crate) fn wake(&self) {
        self.fabric.mailbox().fence();
        if attention::is_requested(self.fabric.mailbox()) {
            self.fabric.kick();
        }
    }

    /// Has a queue pair driven at a time. Called by whoever drives it.
    pub(crate) fn schedule(&self, queue_pair: &QueuePair<F>, deadline: u64) {
        // `run_timers` writes `scheduled` and reads `deadline`, this does the opposite: one of them sees the other.
        if queue_pair.deadline.load(Ordering::Relaxed) != deadline {
            queue_pair.deadline.store(deadline, Ordering::SeqCst);
        }
        if deadline < queue_pair.scheduled.load(Ordering::SeqCst) {
            self.arm(queue_pair, deadline);
        }
    }

    /// Enters a queue pair in the list of timers, unless it is there with an earlier time.
    fn arm(&self, queue_pair: &QueuePair<F>, deadline: u64) {
        let mut timers = self.timers.lock();
        let scheduled = queue_pair.scheduled.load(Ordering::SeqCst);
        if scheduled <= deadline {
            return;
        }
        timers.remove(&(scheduled, queue_pair.number));
        queue_pair.scheduled.store(deadline, Ordering::SeqCst);
        self.add_timer(timers, deadline, queue_pair.number);
    }

    /// Enters a queue pair, or [`MODERATED_QUEUES`], in the list of timers.
    pub(crate) fn add_timer(&self, mut timers: Timers<'_>, deadline: u64, number: u32) {
        timers.insert((deadline, number));
        let sooner = deadline < self.earliest.load(Ordering::SeqCst);
        if sooner {
            self.earliest.store(deadline, Ordering::SeqCst);
        }
        drop(timers);
        if sooner && !self.leaves_work_to_polls() {
            self.fabric.kick();
        }
    }

    /// The list of timers.
    pub(crate) fn timers(&self) -> Timers<'_> {
        self.timers.lock()
    }

    fn run_timers(&self, now: u64) {
        if now < self.earliest.load(Ordering::Acquire) {
            return;
        }
        let (mut due, mut moderated) = (Vec::new(), false);
        {
            let mut timers = self.timers.lock();
            while let Some(&(at, number)) = timers.first() {
                if at > now {
                    break;
                }
                timers.pop_first();
                moderated |= number == MODERATED_QUEUES;
                if let Some(queue_pair) = self.queue_pairs.get(number) {
                    queue_pair.scheduled.store(u64::MAX, Ordering::SeqCst);
                    due.push(queue_pair);
                }
            }
            self.earliest.store(timers.first().map_or(u64::MAX, |first| first.0), Ordering::SeqCst);
        }
        for queue_pair in due {
            let deadline = queue_pair.deadline.load(Ordering::SeqCst);
            match deadline {
                u64::MAX => {}
                deadline if deadline > now => self.arm(&queue_pair, deadline),
                _ => queue_pair.run(),
            }
        }
        if moderated {
            self.announce_moderated(now);
        }
    }

    /// One round: events, rings, the network, queue pairs that wait for a turn, timers. Gives when the next is due
    /// at the latest (fabric time), if nothing happens before.
    pub fn progress(&self) -> Option<u64> {
        self.due_after(self.round(true, Occasion::Round))
    }

    /// The last round before the process may end: no acknowledgement waits any longer.
    pub fn last_round(&self) {
        self.progress();
        self.queue_pairs.all().iter().for_each(QueuePair::acknowledge_now);
    }

    /// `occasion` is what queue pairs that got datagrams are driven for. What becomes ready by them has its turn in the next
    /// round: an acknowledgement that waits for the program's answer to a message, too.
    pub(crate) fn round(&self, network: bool, occasion: Occasion) -> Taken {
        if self.fabric.has_events() || self.any_departed.load(Ordering::SeqCst) {
            self.handle_events();
        }
        let channels = self.poll_channels(occasion);
        self.run_ready();
        let datagrams = if network { self.poll_network(occasion) } else { Taken::Nothing };
        // Mostly nothing is due for long, and there is no need to know the time.
        let near = self.fabric.past().saturating_add(TICK);
        if self.earliest.load(Ordering::SeqCst) <= near || self.send_budget.is_waiting() {
            let now = self.fabric.now();
            self.serve_send_budget(now);
            self.run_timers(self.rx_watermark(now));
        }
        channels.max(datagrams)
    }

    pub(crate) fn due_after(&self, round: Taken) -> Option<u64> {
        let now = self.fabric.now();
        if round == Taken::More { Some(now) } else { self.next_due(now) }
    }

    /// The time without a look at the exact clock: not before the time that it is, and late by a tick of the coarse one at most.
    pub(crate) fn roughly_now(&self) -> Time {
        Time(self.fabric.past().saturating_add(TICK))
    }

    /// The time by which timers are judged: a peer whose answer waits in a socket of this process is not silent.
    pub(crate) fn rx_watermark(&self, now: u64) -> u64 {
        if self.network_users.load(Ordering::Relaxed) == 0 {
            return now;
        }
        self.fabric.rx_watermark().min(now)
    }

    /// When the next round is due at the latest.
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        if self.any_departed.load(Ordering::SeqCst) {
            return Some(now);
        }
        let again = match self.ready.urgency() {
            None => u64::MAX,
            Some(Again::Later) => now + RETRY_NANOSECONDS,
            Some(Again::Soon) => now,
        };
        let earliest = match self.earliest.load(Ordering::SeqCst) {
            // A timer that has to wait until what came in was handed over: another thread is at that.
            at if at <= now && self.rx_watermark(now) < at => now + RETRY_NANOSECONDS,
            at => at,
        };
        let budget_due = self.send_budget.due(now);
        let publishing = if self.has_unpublished() { now } else { u64::MAX };
        Some(earliest.min(again).min(budget_due).min(publishing)).filter(|at| *at != u64::MAX)
    }

    /// Takes what happened outside, and does what follows from it.
    fn handle_events(&self) {
        let waiting = self.take_events();
        if self.any_departed.load(Ordering::SeqCst) {
            let departed = {
                let mut departed = self.departed.lock();
                self.any_departed.store(false, Ordering::SeqCst);
                std::mem::take(&mut *departed)
            };
            for channel in departed {
                self.depart(channel);
            }
        }
        for number in waiting {
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                queue_pair.run();
            }
        }
    }

    /// Takes what happened outside, and leaves what follows from it to the next round: this thread may hold a core, and the
    /// reading end of the very ring whose writer has ended.
    fn note_events(&self) {
        for number in self.take_events() {
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                self.ready(&queue_pair, Again::Soon);
            }
        }
        if self.any_departed.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Takes what happened outside; gives the queue pairs that waited for it. Channels are known, and open to revocation,
    /// before anything is done with them.
    fn take_events(&self) -> Vec<u32> {
        let mut events = Vec::new();
        let mut waiting: Vec<u32> = Vec::new();
        {
            let _guard = self.event_lock.lock();
            self.fabric.events(&mut events);
            for event in events {
                match event {
                    FabricEvent::Connected { block, channel } => {
                        let now = self.fabric.now();
                        let state = match self.adopt(channel) {
                            Ok(channel) => BlockState::Open(channel),
                            Err(reason) => BlockState::refused(reason, false, now),
                        };
                        waiting.extend(self.finish_connect(block, state));
                    }
                    FabricEvent::Accepted { channel } => {
                        if let Err(reason) = self.adopt(channel) {
                            log::debug!("a channel was not taken: {reason}");
                        }
                    }
                    FabricEvent::Refused { block, reason, absent } => {
                        let state = BlockState::refused(reason, absent, self.fabric.now());
                        waiting.extend(self.finish_connect(block, state));
                    }
                    FabricEvent::Departed { channel } => self.note_departure(channel),
                    FabricEvent::BroughtIn { token } => {
                        let (wait, number) = waiter_of(token);
                        if let Some(queue_pair) = self.queue_pairs.get(number) {
                            queue_pair.brought_in.fetch_or(wait, Ordering::Release);
                        }
                        waiting.push(number);
                    }
                }
            }
        }
        waiting
    }

    /// The process at the other end touches nothing any more.
    fn note_departure(&self, id: ChannelId) {
        if let Some(channel) = self.channels.read().iter().find(|channel| channel.channel.id == id) {
            channel.set_ended();
        }
        self.departed.lock().push(id);
        self.any_departed.store(true, Ordering::SeqCst);
    }

    fn adopt(
        &self,
        channel: pagewire_fabric::Channel<F::Words, ProcessOf<F>>,
    ) -> std::result::Result<Arc<LocalChannel<F>>, String> {
        let mut channels = self.channels.write();
        if let Some(known) = channels.iter().find(|known| known.channel.id == channel.id) {
            return Ok(known.clone());
        }
        let adopted = LocalChannel::new(channel).ok_or("the peer's tables are of another version")?;
        channels.push(adopted.clone());
        Ok(adopted)
    }

    /// The answer to a question for the process behind a block; gives the queue pairs that waited for it.
    fn finish_connect(&self, block: u32, state: BlockState<F>) -> Vec<u32> {
        let mut blocks = self.blocks.lock();
        // Whoever asks once more asks the fabric: nothing is lost, and those who have gone leave nothing behind.
        blocks.retain(|_, known| !known.is_out_of_date(|| self.fabric.now()));
        match blocks.insert(block, state) {
            Some(BlockState::Connecting { waiting, .. }) => waiting,
            _ => Vec::new(),
        }
    }

    /// The process at the other end has ended.
    fn depart(&self, id: ChannelId) {
        let known = self.channels.read().iter().find(|channel| channel.channel.id == id).cloned();
        let Some(channel) = known else { return };
        // What the peer sent before it ended still counts.
        let mut rounds = 0;
        while rounds < MAX_LAST_ROUNDS && channel.has_unread() {
            rounds += 1;
            let origin = Origin::Local(channel.clone());
            self.take_records(&origin, &channel, Some(channel.reading.lock()), Occasion::Round);
        }
        self.channels.write().retain(|channel| channel.channel.id != id);
        self.close(&channel);
    }

    /// Nothing goes over the channel any more.
    pub(crate) fn close(&self, channel: &LocalChannel<F>) {
        channel.set_gone();
        self.blocks.lock().retain(|_, state| !state.uses(channel.channel.id));
        for queue_pair in self.queue_pairs.all() {
            queue_pair.send_cq.poll_hint.leave_channel(channel.channel.id);
            queue_pair.recv_cq.poll_hint.leave_channel(channel.channel.id);
            queue_pair.run();
        }
    }

    /// Takes the datagrams that came in before now, so that those of a queue pair's former life are gone before it
    /// receives again: an adapter would have dropped them as they came. Gives up where another thread keeps them.
    pub(crate) fn drain_rx(&self) {
        let now = self.fabric.now();
        for _ in 0..MAX_DRAIN_ROUNDS {
            match self.poll_network(Occasion::Round) {
                Taken::Nothing if self.fabric.rx_watermark() >= now => return,
                Taken::Nothing => std::thread::yield_now(),
                Taken::All | Taken::More => {}
            }
        }
    }

    /// A packet of Pagewire's own that came from the network.
    pub(crate) fn deliver_vendor_packet(&self, queue_pair: &QueuePair<F>, packet: &Incoming<'_, F>) {
        let Payload::Bytes(bytes) = packet.payload else { return };
        match VendorPacket::parse(packet.header.bth.opcode, bytes) {
            Ok(VendorPacket::Hello(greeting))
                if !queue_pair.knows_greeting(&greeting, packet.header.bth.psn) =>
            {
                queue_pair.counters.dropped.add(1);
            }
            Ok(own) => {
                let (content, origin) = (Content::Vendor(own), (*packet.origin).clone());
                self.keep(queue_pair, InboxPacket { content, origin });
            }
            Err(_) => queue_pair.counters.dropped.add(1),
        }
    }

    /// Has a packet taken by the thread that holds its queue pair, unless others wait before it. False: it waits.
    pub(crate) fn hand_over(
        &self,
        queue_pair: &QueuePair<F>,
        qpc: &mut QpContext<F>,
        burst: &mut Burst<'_>,
        packet: &Incoming<'_, F>,
    ) -> bool {
        if !queue_pair.inbox.is_empty(Half::of(&packet.header)) {
            self.keep(queue_pair, packet.keep());
            return false;
        }
        let taken = queue_pair.take_packet(qpc, packet, burst);
        if !taken {
            queue_pair.inbox.put_back(packet.keep());
        }
        taken
    }

    pub(crate) fn keep(&self, queue_pair: &QueuePair<F>, packet: InboxPacket<F>) {
        if !queue_pair.inbox.push(packet) {
            queue_pair.counters.dropped.add(1);
        }
    }

    /// Whether queue pairs wait to be driven in the next round.
    pub(crate) fn is_any_ready(&self) -> bool {
        self.ready.urgency().is_some()
    }

    fn run_ready(&self) {
        for number in self.ready.take() {
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                queue_pair.queued.store(false, Ordering::SeqCst);
                queue_pair.run();
            }
        }
    }

    /// Has queue pairs driven that waited for their part of what all share.
    fn serve_send_budget(&self, now: u64) {
        for _ in 0..limits::ROUND {
            let Some(number) = self.send_budget.next(now) else { return };
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                queue_pair.budget_ready.store(true, Ordering::Release);
                queue_pair.run();
            }
        }
    }
}

/// What came in during a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Taken {
    Nothing,
    /// All there was.
    All,
    /// There may be more.
    More,
}

/// Queue pairs that got packets in a round, and whether they are to be driven: once, at its end, so that one acknowledgement
/// covers many packets.
pub(crate) struct Touched<F: Fabric>(SmallVec<[(Arc<QueuePair<F>>, bool); 4]>);

impl<F: Fabric> Default for Touched<F> {
    fn default() -> Self {
        Touched(SmallVec::new())
    }
}

impl<F: Fabric> Touched<F> {
    /// A queue pair, and whether it is to be driven.
    pub(crate) fn get(
        &mut self,
        all: &QueuePairs<F>,
        number: u32,
    ) -> Option<(&Arc<QueuePair<F>>, &mut bool)> {
        let known = self.0.iter().position(|(known, _)| known.number == number);
        let at = match known {
            Some(at) => at,
            None => {
                self.0.push((all.get(number)?, false));
                self.0.len() - 1
            }
        };
        self.0.get_mut(at).map(|(queue_pair, needs_progress)| (&*queue_pair, needs_progress))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A queue pair that is to be driven.
    pub(crate) fn mark(&mut self, queue_pair: Arc<QueuePair<F>>) {
        match self.0.iter_mut().find(|(known, _)| known.number == queue_pair.number) {
            Some((_, needs_progress)) => *needs_progress = true,
            None => self.0.push((queue_pair, true)),
        }
    }

    pub(crate) fn run(&mut self, occasion: Occasion) {
        for (queue_pair, _) in self.0.drain(..).filter(|(_, needs_progress)| *needs_progress) {
            queue_pair.run_for(occasion);
        }
    }
}
