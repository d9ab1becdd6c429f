//! The real fabric: one Linux process.

use crate::bring_in::Pages;
use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::devices::Addresses;
use crate::fabric::{
    ChannelId, Fabric, FabricEvent, ROCE_PORT, ReceivedDatagram, Route, StreamAnswer, StreamId,
    StreamQuestion, StreamSend, StreamState, WordsFile,
};
use crate::faults::{FaultBatch, FaultCounters, FaultInjector, FaultPlan, PacketRules};
use crate::groups;
use crate::held_pages::PageRules;
use crate::limits::{
    BLOCKS, LOOK_TIME, MAILBOX_WORDS, RETRY_TIME, STEERING_STEP, STEERING_WAIT, STREAM_ANSWER_TIME,
    TABLE_WORDS,
};
use crate::link_changes::LinkChanges;
use crate::liveness::LivenessMutex;
use crate::lock::prepare_barrier;
use crate::management::{ManagementDatagram, ManagementTarget};
use crate::names;
use crate::neighbours::{Bells, HostEvent, Neighbours, PublishedFiles};
use crate::network::{Network, STUCK};
use crate::nonce::random;
use crate::pcap::Capture;
use crate::streams::StreamOptions;
use crate::words::{FileAccess, MappedWords};
use pagewire_memory::fork::Owner;
use pagewire_memory::{HostMemory, HostProcess, Segment, Uncancelled, swaps_at_a_limit};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const CONTROL: u64 = 0;
const NETWORK: u64 = 1;
const KICK: u64 = 2;
const LINKS: u64 = 3;

/// A NIC that in so many rounds has not asked for datagrams asks for them seldom.
const UNUSED_ROUNDS: u32 = 64;
/// Rounds between two looks at the clock, which costs as much as a round of which nothing comes.
const ROUNDS_PER_LOOK: u32 = 16;

/// Sleep where the kernel answers a wait with an error that should not be, so that nobody spins on it.
const AFTER_ERROR: Duration = Duration::from_millis(10);

/// The fabric of one Linux process.
pub struct HostFabric {
    memory: Arc<HostMemory>,
    owner: Owner,
    shown: Arc<PublishedFiles>,
    /// By which peers see that this process has ended.
    liveness: LivenessMutex,
    /// What a thread sleeps on: `kick`, `neighbours`, `network` and `link_changes`.
    sleep: Descriptor,
    kick: Arc<Descriptor>,
    neighbours: Mutex<Neighbours>,
    bells: Arc<Bells>,
    pending_events: Arc<PendingEvents>,
    network: Network,
    /// The network told a sleeper of datagrams, and says nothing more until it is asked.
    network_notified: AtomicBool,
    /// Rounds of the NIC since it last asked for datagrams, about.
    rounds: AtomicU32,
    /// Rounds before the next look at the clock.
    rounds_to_look: AtomicU32,
    pages: Pages,
    leased: Mutex<usize>,
    /// Blocks were leased since [`await_steering`](Fabric::await_steering) was last called.
    any_unsteered: AtomicBool,
    /// Set before the first block is leased, if at all.
    refuses_channels: AtomicBool,
    sleepers: AtomicU32,
    looked: AtomicU64,
    /// Handshakes, which have a clock, are under way.
    handshakes: AtomicBool,
    /// When the network has something to do again besides what comes.
    network_due: AtomicU64,
    addresses: Arc<Addresses>,
    link_changes: LinkChanges,
    counters: Arc<Counters>,
    faults: FaultInjector,
}

/// What happened and was not taken yet.
#[derive(Default)]
struct PendingEvents {
    any: AtomicBool,
    events: Mutex<Vec<HostEvent>>,
}

impl PendingEvents {
    fn add(&self, events: impl IntoIterator<Item = HostEvent>) {
        let mut all = self.events.lock();
        all.extend(events);
        if !all.is_empty() {
            self.any.store(true, Ordering::Release);
        }
    }

    /// Adds an event of what it is called with, and wakes a sleeper.
    fn teller<T>(self: &Arc<Self>, kick: &Arc<Descriptor>, event: fn(T) -> HostEvent) -> impl Fn(T) + use<T> {
        let (pending_events, kick) = (self.clone(), kick.clone());
        move |what| {
            pending_events.add([event(what)]);
            ring(&kick);
        }
    }
}

/// How a fabric is made.
#[derive(Default)]
pub struct FabricOptions {
    /// Faults that it makes on purpose with the packets that it sends.
    pub faults: FaultPlan,
    pub rules: FabricRules,
    pub streams: StreamOptions,
}

/// Rules about what a fabric does.
#[derive(Default)]
pub struct FabricRules {
    pub packets: Option<Arc<dyn PacketRules>>,
    pub pages: Option<Arc<dyn PageRules>>,
}

impl HostFabric {
    /// Sockets, files and names of this process. No thread is started.
    ///
    /// # Errors
    /// The kernel's: no descriptors, no memory, no sockets.
    pub fn new() -> io::Result<Self> {
        Self::with_faults(FaultPlan::default())
    }

    /// A fabric that makes faults on purpose with the packets that it sends.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_faults(faults: FaultPlan) -> io::Result<Self> {
        Self::with_options(FabricOptions { faults, ..FabricOptions::default() })
    }

    /// A fabric with options.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_options(options: FabricOptions) -> io::Result<Self> {
        let FabricOptions { faults, rules, streams } = options;
        // The program has mostly no other thread yet.
        prepare_barrier();
        let counters = Arc::new(Counters::default());
        let capture = Capture::from_environment(&counters)?;
        let shown = Arc::new(PublishedFiles {
            instance: random()?,
            tables: MappedWords::create("pagewire-tables", TABLE_WORDS, FileAccess::Read)?,
            mailbox: MappedWords::create("pagewire-mailbox", MAILBOX_WORDS, FileAccess::ReadWrite)?,
            swaps_at_a_limit: swaps_at_a_limit(),
        });
        let liveness = LivenessMutex::default();
        liveness.hold_by_main_thread(&shown.tables.0);
        let sleep = Descriptor::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        let control = Arc::new(Descriptor::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)?);
        let kick = Arc::new(Descriptor::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?);
        let addresses = Arc::new(Addresses::default());
        let pending_events = Arc::new(PendingEvents::default());
        let memory = Arc::new(HostMemory::new());
        let streams_changed = pending_events.teller(&kick, |()| FabricEvent::StreamsChanged);
        let changed = Box::new(move || streams_changed(()));
        let counting = (counters.clone(), capture);
        let network =
            Network::new(shown.instance, counting, (addresses.clone(), streams), memory.clone(), changed)?;
        let watch = |source: BorrowedFd<'_>, token: u64, flags: epoll::EventFlags| {
            epoll::add(&sleep, source, epoll::EventData::new_u64(token), flags)
        };
        watch(control.as_fd(), CONTROL, epoll::EventFlags::IN)?;
        watch(kick.as_fd(), KICK, epoll::EventFlags::IN)?;
        let link_changes = LinkChanges::subscribe();
        if let Some(socket) = link_changes.socket() {
            watch(socket, LINKS, epoll::EventFlags::IN)?;
        }
        // Datagrams may come while nobody wants them: told once, then not before they have been looked at.
        watch(network.ready().as_fd(), NETWORK, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT)?;
        let bells = Arc::new(Bells::default());
        let neighbours = Neighbours::new(control.clone(), shown.clone(), bells.clone(), counters.clone());
        let done = Box::new(pending_events.teller(&kick, |token| FabricEvent::BroughtIn { token }));
        let tables = shown.tables.0.clone();
        let pages = Pages::with_rules(memory.clone(), tables, counters.clone(), done, rules.pages);
        Ok(HostFabric {
            memory,
            owner: Owner::this_process(),
            shown,
            liveness,
            sleep,
            kick,
            neighbours: Mutex::new(neighbours),
            bells,
            pending_events,
            network,
            network_notified: AtomicBool::new(false),
            rounds: AtomicU32::new(0),
            rounds_to_look: AtomicU32::new(0),
            pages,
            leased: Mutex::new(0),
            any_unsteered: AtomicBool::new(false),
            refuses_channels: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            handshakes: AtomicBool::new(false),
            network_due: AtomicU64::new(u64::MAX),
            addresses,
            link_changes,
            counters,
            faults: FaultInjector::new(faults, rules.packets),
        })
    }

    /// Whether this process is a forked child of the one that made the fabric. Then it holds nothing of it: no descriptor
    /// and no shared memory; nothing of the fabric may be called any more.
    pub fn is_forked_child(&self) -> bool {
        !self.owner.is_this_process()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was done to packets on purpose.
    pub fn fault_counters(&self) -> &FaultCounters {
        self.faults.counters()
    }

    /// Why there are no streams where some were asked for.
    pub fn refused_streams(&self) -> Vec<String> {
        self.network.streams.refusals()
    }

    /// Whether streams are encrypted, and nothing else goes to other hosts or is taken from them.
    pub fn is_encrypted(&self) -> bool {
        self.network.streams.is_encrypted()
    }

    /// Why port 4791 is not this process's; `None` if it is.
    pub fn port_reason(&self) -> Option<String> {
        self.network.port_reason()
    }

    /// Why the kernel last refused to send a datagram.
    pub fn send_reason(&self) -> Option<String> {
        self.network.send_reason()
    }
}

impl Drop for HostFabric {
    fn drop(&mut self) {
        if self.is_forked_child() {
            return;
        }
        self.pages.stop();
    }
}

impl HostFabric {
    /// Looks at other processes' connections if nobody has done so for a while.
    fn look_now_and_then(&self) {
        if self.count_round()
            && self.sleepers.load(Ordering::Relaxed) == 0
            && self.now().saturating_sub(self.looked.load(Ordering::Relaxed)) >= LOOK_TIME
        {
            self.look(false);
        }
    }

    /// Looks at other processes' connections. A sleeper is told of wake-ups that somebody else has taken off the
    /// connections: it decided to sleep without knowing of them.
    fn look(&self, sleeper: bool) {
        let _uncancelled = Uncancelled::begin();
        if self.link_changes.take(self.now(), sleeper) {
            self.addresses.forget();
            self.pending_events.add([FabricEvent::DevicesChanged]);
        }
        let Some(mut neighbours) = self.neighbours.try_lock() else { return };
        let now = self.now();
        self.looked.store(now, Ordering::Relaxed);
        let wakes = neighbours.serve_ready(now);
        self.handshakes.store(neighbours.has_clocks(), Ordering::Relaxed);
        let events = std::mem::take(&mut neighbours.events);
        let any = wakes > 0 || !events.is_empty();
        // Before the lock is given up: see `catch_up`.
        self.pending_events.add(events);
        drop(neighbours);
        if wakes > 0 {
            self.counters.wakes_received.add(wakes);
        }
        if any && !sleeper {
            ring(&self.kick);
        }
        let nonce = || random().unwrap_or(now);
        let used = self.rounds.load(Ordering::Relaxed) < UNUSED_ROUNDS;
        self.network_due.store(self.network.keep_up(now, nonce, used), Ordering::Relaxed);
        // The NIC may have little use for the network; other processes that share the port still want what came here.
        if !used {
            self.hand_on_only(now);
        }
    }

    /// Leases a block.
    ///
    /// # Errors
    /// `AddrInUse` where another process has it, and the kernel's.
    fn lease(&self, block: u32) -> io::Result<()> {
        let claim = names::claim(&names::of_block(block)?)?;
        // Before the name for forwarding exists: a peer takes a block that has that name alone for one that refuses channels.
        let refuses_channels = self.refuses_channels.load(Ordering::Relaxed);
        if !refuses_channels {
            names::listen_on(&claim)?;
        }
        let forwarding = names::datagrams(Some(&names::of_forwarding(block)?))?;
        self.network.serve_block(block, forwarding)?;
        let mut neighbours = self.neighbours.lock();
        if refuses_channels {
            neighbours.keep(claim);
            return Ok(());
        }
        neighbours.listen(claim)
    }

    /// Waits a moment until the port's datagrams for a new block come here: those that others hand on may overtake each
    /// other, or be lost. Meanwhile this thread answers probes, its own among them; nobody else may be at work here.
    fn wait_for_steering(&self) {
        let until = self.now() + STEERING_WAIT;
        self.look(false);
        while self.network.is_steering_pending() && self.now() < until {
            self.network.serve_others(self.now());
            std::thread::sleep(STEERING_STEP);
            self.look(false);
        }
        self.watch_network();
        self.tell_of_left();
    }

    /// Wakes a sleeper for datagrams that were taken off the sockets and wait for the next [`Fabric::receive`]. Who is about to sleep
    /// says so first and looks for them then.
    fn tell_of_left(&self) {
        if self.network.has_left() && self.sleepers.load(Ordering::SeqCst) > 0 {
            ring(&self.kick);
        }
    }

    /// Counts a round without use of the network. True: it is time for a look at the clock.
    fn count_round(&self) -> bool {
        // Lost counts of two threads at once do no harm.
        self.rounds.store(self.rounds.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        let left = self.rounds_to_look.load(Ordering::Relaxed);
        let over = left == 0;
        self.rounds_to_look.store(if over { ROUNDS_PER_LOOK } else { left - 1 }, Ordering::Relaxed);
        over
    }

    /// Hands on what belongs to other processes. What belongs to this one waits: a NIC whose program polls asks for datagrams, though seldom.
    fn hand_on_only(&self, now: u64) {
        self.network.serve_others(now);
        self.watch_network();
        self.tell_of_left();
    }

    /// Has sleepers told of datagrams again.
    fn watch_network(&self) {
        if self.network_notified.load(Ordering::SeqCst) && self.network_notified.swap(false, Ordering::SeqCst)
        {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
            let data = epoll::EventData::new_u64(NETWORK);
            if let Err(error) = epoll::modify(&self.sleep, self.network.ready(), data, flags) {
                log::debug!("the network cannot be watched: {error}");
            }
        }
    }
}

impl Fabric for HostFabric {
    type SharedMemory = MappedWords;
    type Memory = HostMemory;
    type Batch = FaultBatch;
    type PageInThreads = Pages;

    fn page_in(&self) -> &Pages {
        &self.pages
    }

    fn memory(&self) -> &HostMemory {
        &self.memory
    }

    fn now(&self) -> u64 {
        read_clock(ClockId::Monotonic)
    }

    fn past(&self) -> u64 {
        read_clock(ClockId::MonotonicCoarse)
    }

    fn random(&self) -> u64 {
        // getrandom(2) fails only where it was taken from the kernel; keys that can be guessed are no way out.
        random().expect("the kernel gives random numbers")
    }

    fn instance(&self) -> u64 {
        self.shown.instance
    }

    fn lease_blocks(&self, count: usize) -> io::Result<Vec<u32>> {
        let mut leased = self.leased.lock();
        let wanted = count.min(BLOCKS.saturating_sub(*leased));
        if wanted == 0 {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "all blocks of queue pair numbers are leased",
            ));
        }
        let usable = self.network.blocks_to_lease();
        let first = usable.start + (random()? % u64::from(usable.end - usable.start)) as u32;
        let mut blocks = Vec::with_capacity(wanted);
        for block in (first..usable.end).chain(usable.start..first) {
            // Behind the last number comes the first: no run.
            if blocks.last().is_some_and(|last| last + 1 != block) {
                break;
            }
            match self.lease(block) {
                Ok(()) => blocks.push(block),
                // A run ends at a block of another process.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && blocks.is_empty() => continue,
                // Fewer than asked for will do, for as long as the limits of this process are not in the way of the first.
                Err(_) if !blocks.is_empty() => break,
                Err(error) => return Err(error),
            }
            *leased += 1;
            if blocks.len() == wanted {
                break;
            }
        }
        if blocks.is_empty() {
            let reason = "all queue pair numbers of this host are leased";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, reason));
        }
        self.any_unsteered.store(true, Ordering::Release);
        Ok(blocks)
    }

    fn count_bad_header(&self) {
        self.counters.bad_headers.add(1);
    }

    fn await_steering(&self) {
        // Once for what was leased: other processes may change the steering at any time, which does not concern the caller.
        let is_new = self.any_unsteered.load(Ordering::Acquire);
        if is_new && self.any_unsteered.swap(false, Ordering::AcqRel) && self.network.is_steering_pending() {
            self.wait_for_steering();
        }
    }

    fn begin_thread(&self) {
        self.liveness.hold(&self.shown.tables.0);
    }

    fn end_thread(&self) {
        self.liveness.release();
    }

    fn tables(&self) -> &MappedWords {
        &self.shown.tables.0
    }

    fn mailbox(&self) -> &MappedWords {
        &self.shown.mailbox.0
    }

    fn make_words(&self, name: &str, length: usize, peers_write: bool) -> io::Result<WordsFile<MappedWords>> {
        let peers = if peers_write { FileAccess::ReadWrite } else { FileAccess::Read };
        let (words, file) = MappedWords::create(name, length, peers)?;
        let number = file.as_fd().as_raw_fd() as u32;
        Ok(WordsFile { words, number, keeps: Some(Arc::new(file)) })
    }

    fn open_words(
        &self,
        process: &HostProcess,
        number: u32,
        length: usize,
        writable: bool,
    ) -> io::Result<MappedWords> {
        let access = if writable { FileAccess::ReadWrite } else { FileAccess::Read };
        let words = MappedWords::open_of(process.pid(), number as i32, length, access)?;
        // Its number may have been given to another process, whose file this was.
        if process.is_alive() { Ok(words) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn refuse_channels(&self) {
        self.refuses_channels.store(true, Ordering::Relaxed);
    }

    fn is_local(&self, address: IpAddr) -> Result<bool, String> {
        self.addresses.contains(address, self.now())
    }

    fn connect(&self, block: u32) {
        let _uncancelled = Uncancelled::begin();
        let now = self.now();
        let mut neighbours = self.neighbours.lock();
        neighbours.connect(block, now);
        self.handshakes.store(neighbours.has_clocks(), Ordering::Relaxed);
        let events = std::mem::take(&mut neighbours.events);
        self.pending_events.add(events);
        drop(neighbours);
        // A sleeper must look at clocks from now on.
        ring(&self.kick);
    }

    fn wake(&self, channel: ChannelId) {
        let Some(socket) = self.bells.read().get(&channel).cloned() else { return };
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        // A full connection holds wake-ups enough; an ended one is noticed by whoever looks at it.
        if rustix::net::send(&*socket, &[1], flags).is_ok() {
            self.counters.wakes_sent.add(1);
        }
    }

    fn has_events(&self) -> bool {
        if self.faults.next_due() != u64::MAX {
            return true;
        }
        self.look_now_and_then();
        self.pending_events.any.load(Ordering::Acquire)
    }

    fn events(&self, into: &mut Vec<HostEvent>) {
        self.faults.send_due(&self.network, || self.now());
        self.look_now_and_then();
        if self.pending_events.any.load(Ordering::Acquire) {
            let mut events = self.pending_events.events.lock();
            self.pending_events.any.store(false, Ordering::Release);
            into.append(&mut events);
        }
    }

    fn catch_up(&self) -> bool {
        // Whoever speaks to peers holds it until the events are there.
        drop(self.neighbours.lock());
        self.pending_events.any.load(Ordering::Acquire)
    }

    fn stream_to(&self, route: &Route, blocks: (u32, u32), patience: u64) -> (StreamId, StreamState) {
        let _uncancelled = Uncancelled::begin();
        let (id, state) = self.network.streams.stream_to(route, blocks, patience);
        if state == StreamState::Connecting {
            // A sleeper looks at the clock from now on.
            self.network_due.fetch_min(self.now() + STREAM_ANSWER_TIME, Ordering::Relaxed);
            ring(&self.kick);
        }
        (id, state)
    }

    fn ask_stream(&self, stream: StreamId) -> Option<StreamQuestion> {
        let _uncancelled = Uncancelled::begin();
        self.network.streams.ask(stream)
    }

    fn answer_to(&self, stream: StreamId, question: StreamQuestion) -> StreamAnswer {
        self.network.streams.answer_to(stream, question)
    }

    fn stream_openings(&self, stream: StreamId) -> u32 {
        self.network.streams.openings(stream)
    }

    fn send_from_memory(&self, stream: StreamId, headers: &[u8], payload: Segment) -> StreamSend {
        if self.faults.is_active() {
            return StreamSend::Unavailable;
        }
        self.network.streams.send_from_memory(stream, headers, payload)
    }

    fn batch(&self) -> FaultBatch {
        self.faults.batch(&self.network)
    }

    fn flush(&self, batch: FaultBatch) {
        let due = self.faults.next_due();
        self.faults.flush(&self.network, batch, || self.now());
        // Who sleeps knows nothing of a packet that is held from now on.
        if self.faults.next_due() < due && self.sleepers.load(Ordering::SeqCst) > 0 {
            ring(&self.kick);
        }
    }

    fn receive(&self, limit: usize, each: &mut dyn FnMut(&[ReceivedDatagram<'_>])) -> usize {
        let now = self.now();
        self.rounds.store(0, Ordering::Relaxed);
        // A sleeper was told of something, and not where.
        let all = self.network_notified.load(Ordering::Acquire);
        // Whoever is at it has sleepers told again when it has done.
        let Some(handed) = self.network.receive(limit, now, all, each) else { return 0 };
        self.network_due.fetch_min(self.network.streams.due(), Ordering::Relaxed);
        self.watch_network();
        self.tell_of_left();
        handed
    }

    fn request_hop_info(&self) {
        self.network.request_hop_info();
    }

    fn rx_watermark(&self) -> u64 {
        self.network.rx_watermark()
    }

    fn join_group(&self, group: IpAddr, interface: u32) -> io::Result<groups::GroupMembership> {
        if self.is_encrypted() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "PAGEWIRE_TLS is set, and groups get no encrypted packets",
            ));
        }
        if self.network.port() == ROCE_PORT {
            groups::join(group, interface)
        } else {
            Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "groups are at UDP port 4791, which this process has not",
            ))
        }
    }

    fn deliver_management(&self, target: ManagementTarget, datagram: &ManagementDatagram) -> io::Result<()> {
        self.network.deliver_management(target, datagram)
    }

    fn capture_management(&self, datagram: &ManagementDatagram) {
        self.network.capture_management(datagram);
    }

    fn direct_port(&self) -> u16 {
        self.network.port()
    }

    fn wait(&self, deadline: Option<u64>) {
        if self.pending_events.any.load(Ordering::Acquire) {
            return;
        }
        let network_due = self.network_due.load(Ordering::Relaxed);
        let deadline = deadline.unwrap_or(u64::MAX).min(network_due);
        let mut left = (deadline != u64::MAX).then(|| deadline.saturating_sub(self.now()));
        if self.handshakes.load(Ordering::Relaxed) {
            left = Some(left.unwrap_or(u64::MAX).min(RETRY_TIME));
        }
        if self.network_notified.load(Ordering::Acquire) && self.network.is_at_work() {
            // Nobody is told of datagrams before the thread that takes them has done. It may be that it never has.
            left = Some(left.unwrap_or(u64::MAX).min(STUCK));
        }
        self.count_round();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // Whoever leaves some from now on sees the sleeper.
        if self.network.has_left() {
            left = Some(0);
        }
        let awake_from = self.faults.awake_from();
        if awake_from != u64::MAX {
            left = Some(left.unwrap_or(u64::MAX).min(awake_from.saturating_sub(self.now())));
        }
        let mut timeout = left.map(|left| Timespec {
            tv_sec: (left / 1_000_000_000) as _,
            tv_nsec: (left % 1_000_000_000) as _,
        });
        if awake_from != u64::MAX {
            // Its clock is finer: epoll_pwait(2) sleeps for whole milliseconds.
            let _ = poll(&mut [PollFd::new(&self.sleep, PollFlags::IN)], timeout.as_ref());
            timeout = Some(Timespec::default());
        }
        let mut events = [std::mem::MaybeUninit::uninit(); 4];
        // Where only datagrams are told of, nothing has come from other processes of this host.
        let mut datagrams_only = false;
        match epoll::wait(&self.sleep, &mut events, timeout.as_ref()) {
            Ok((ready, _)) => {
                datagrams_only = ready.len() == 1 && ready[0].data.u64() == NETWORK;
                for event in ready.iter() {
                    match event.data.u64() {
                        NETWORK => self.network_notified.store(true, Ordering::SeqCst),
                        KICK => {
                            // One read takes all kicks; another sleeper may have taken them.
                            let _ = rustix::io::read(&*self.kick, &mut [0; 8]);
                        }
                        _ => {}
                    }
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => {
                log::debug!("cannot sleep: {error}");
                std::thread::sleep(AFTER_ERROR);
            }
        }
        // What has a clock may be due by now, and datagrams that belong elsewhere want the steering.
        let is_due = |now: u64| {
            now >= network_due || now.saturating_sub(self.looked.load(Ordering::Relaxed)) >= LOOK_TIME
        };
        if !datagrams_only || self.handshakes.load(Ordering::Relaxed) || is_due(self.now()) {
            self.look(true);
        }
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
        self.faults.send_due(&self.network, || self.now());
    }

    fn held_until(&self) -> u64 {
        self.faults.next_due()
    }

    fn timer_slack(&self) -> Option<NonZeroU64> {
        self.faults.timer_slack()
    }

    fn kick(&self) {
        ring(&self.kick);
    }
}

fn read_clock(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn ring(kick: &Descriptor) {
    // A full counter (2^64 - 2 kicks) is a kick too.
    let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
}
