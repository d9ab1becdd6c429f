//! The engine of one process: its tables, and the rounds in which packets, timers and events are served.
//!
//! Any thread may run a round ([`workers`](crate::progress::workers)). Rounds of several threads do not wait for each other.

use crate::access::fault_state::waiter_of;
use crate::path::local::LocalChannel;
use crate::path::{Followups, Paths};
use crate::progress::management::Arrivals;
use crate::progress::qp_progress::Driver;
use crate::progress::workers::Workers;
use crate::queue_pair::QueuePair;
use crate::queue_pair::inbox::{InboxPacket, Incoming, PacketContent, PacketOrigin};
use crate::services::Services;
use crate::services::fault_counts::FaultReport;
use crate::services::interception::Attributes;
use crate::services::queue_pairs::Numbered;
use crate::services::ready::{Again, Occasion};
use crate::types::channel_layout::DIRECTION_WORDS;
use crate::types::error::Result;
use crate::types::limits;
use crate::types::options::Options;
use derive_where::derive_where;
use pagewire_fabric::limits::TICK;
use pagewire_fabric::lock::lock_until;
use pagewire_fabric::{ChannelId, Fabric};
use pagewire_iommu::access_log::RecordHeader;
use pagewire_transport::{DropCause, Payload};
use pagewire_wire::VendorPacket;
use smallvec::SmallVec;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A full ring or batch is tried again after this many nanoseconds.
const RETRY_NANOSECONDS: u64 = 50_000;

/// Rounds in which datagrams are taken that came in before a queue pair receives.
const MAX_DRAIN_ROUNDS: usize = 100;

/// Rounds in which the records of a full ring are taken: each has two words at least.
const MAX_RING_ROUNDS: usize = DIRECTION_WORDS / 2 / limits::ROUND;

/// Rounds in which a departed peer's ring is read to its end.
const MAX_LAST_ROUNDS: usize = 1 << 16;

/// The engine: it holds the queue pairs of a process, and makes the rounds in which they run.
pub struct Nic<F: Fabric> {
    pub(crate) services: Arc<Services<F>>,
    pub(crate) paths: Arc<Paths<F>>,
    pub(crate) queue_pairs: Numbered<QueuePair<F>>,
    /// Polls have not published to peers what they took; so many polls later one does. 0: everything is published.
    pub(crate) polls_to_publish: AtomicU32,
    /// Peers were told something, and may have gone to sleep without having seen it.
    pub(crate) unsure: AtomicBool,
    pub(crate) workers: Workers,
    pub(crate) arrivals: Arrivals<F>,
}

impl<F: Fabric> Nic<F> {
    /// An engine on a fabric.
    pub fn new(fabric: F, options: Options) -> Arc<Self> {
        let services = Services::new(fabric, options);
        Arc::new_cyclic(|nic| Nic {
            arrivals: Arrivals::new(nic.clone()),
            paths: Paths::new(services.clone()),
            services,
            queue_pairs: Numbered::default(),
            polls_to_publish: AtomicU32::new(0),
            unsure: AtomicBool::new(false),
            workers: Workers::default(),
        })
    }

    /// The world around the engine.
    pub fn fabric(&self) -> &F {
        &self.services.fabric
    }

    /// How the engine was set up.
    pub fn options(&self) -> &Options {
        &self.services.options
    }

    fn run_timers(&self, now: u64) {
        let timers = &self.services.timers;
        if now < timers.earliest() {
            return;
        }
        let mut due = Vec::new();
        let objects = timers.take_due(now, |number| {
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                queue_pair.schedule.scheduled.store(u64::MAX, Ordering::SeqCst);
                due.push(queue_pair);
            }
        });
        for queue_pair in due {
            match queue_pair.schedule.deadline.load(Ordering::SeqCst) {
                u64::MAX => {}
                deadline if deadline > now => {
                    if timers.arm(&queue_pair.schedule, deadline) {
                        self.services.kick_for_timer();
                    }
                }
                _ => Driver(&queue_pair).run(),
            }
        }
        objects.iter().for_each(|object| object.run_timer(now));
    }

    /// One round: events, rings, the network, queue pairs that wait for a turn, timers. Gives when the next is due
    /// at the latest (fabric time), if nothing happens before.
    pub fn progress(&self) -> Option<u64> {
        self.due_after(self.round(true, Occasion::Round))
    }

    /// The last round before the process may end: no acknowledgement waits any longer.
    pub fn last_round(&self) {
        self.progress();
        self.queue_pairs.all().iter().for_each(|queue_pair| Driver(queue_pair).acknowledge_now());
    }

    /// `occasion` is what queue pairs that got datagrams are driven for. What becomes ready by them has its turn in the next
    /// round: an acknowledgement that waits for the program's answer to a message, too.
    pub(crate) fn round(&self, network: bool, occasion: Occasion) -> RoundInput {
        let services = &*self.services;
        if services.fabric.has_events() || services.fabric_events.has_noted() {
            self.handle_events();
        }
        let channels = self.poll_channels(occasion);
        if services.ready.urgency().is_some() {
            self.run_ready();
        }
        let datagrams = if network { self.poll_network(occasion) } else { RoundInput::Nothing };
        // Mostly nothing is due for long, and there is no need to know the time.
        let near = services.fabric.past().saturating_add(TICK);
        if services.timers.earliest() <= near || services.send_budget.is_waiting() {
            self.run_due();
        }
        channels.max(datagrams)
    }

    fn run_due(&self) {
        let now = self.services.fabric.now();
        self.serve_send_budget(now);
        self.run_timers(self.services.rx_watermark(now));
    }

    pub(crate) fn due_after(&self, round: RoundInput) -> Option<u64> {
        let now = self.services.fabric.now();
        if round == RoundInput::More { Some(now) } else { self.next_due(now) }
    }

    /// When the next round is due at the latest.
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        if self.services.fabric_events.has_noted() {
            return Some(now);
        }
        let again = match self.services.ready.urgency() {
            None => u64::MAX,
            Some(Again::Later) => now + RETRY_NANOSECONDS,
            Some(Again::Soon) => now,
        };
        let earliest = match self.services.timers.earliest() {
            // A timer that has to wait until what came in was handed over: another thread is at that.
            at if at <= now && self.services.rx_watermark(now) < at => now + RETRY_NANOSECONDS,
            at => at,
        };
        let budget_due = self.services.send_budget.due(now);
        let publishing = if self.has_unpublished() { now } else { u64::MAX };
        Some(earliest.min(again).min(budget_due).min(publishing)).filter(|at| *at != u64::MAX)
    }

    /// Takes what happened outside, and does what follows from it.
    #[cold]
    fn handle_events(&self) {
        self.services.fabric_events.note(&self.services.fabric);
        let Followups { departed, mut waiting, brought_in, devices_changed, streams_changed } =
            self.paths.take_events();
        if devices_changed {
            self.services.contexts.refresh();
        }
        for token in brought_in {
            let (wait, number) = waiter_of(token);
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                queue_pair.notes.brought_in.fetch_or(wait, Ordering::Release);
            }
            waiting.push(number);
        }
        departed.into_iter().for_each(|channel| self.depart(channel));
        if streams_changed {
            for queue_pair in self.queue_pairs.all().iter().filter(|queue_pair| queue_pair.is_on_network()) {
                queue_pair.notes.streams_changed.store(true, Ordering::SeqCst);
                queue_pair.notes.pending.store(true, Ordering::SeqCst);
                Driver(queue_pair).run();
            }
        }
        for number in waiting {
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                Driver(&queue_pair).run();
            }
        }
    }

    /// The process at the other end has ended.
    fn depart(&self, id: ChannelId) {
        let Some(channel) = self.paths.channel(id) else { return self.services.fabric_events.forget(id) };
        // What the peer sent before it ended still counts.
        let mut rounds = 0;
        while rounds < MAX_LAST_ROUNDS && channel.has_unread() {
            rounds += 1;
            let origin = PacketOrigin::Local(channel.clone());
            self.take_records(&origin, &channel, Some(channel.reading.lock()), Occasion::Round);
        }
        self.paths.forget(id);
        self.close(&channel);
    }

    /// Attributes for the pages of a range of addresses, all of them ordinary at first.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn make_attributes(&self, range: Range<u64>) -> Result<Arc<Attributes<F>>> {
        self.services.attribute_table(range)
    }

    /// Takes the records of the fault log: of accesses whose pages have metadata logged and E not set, or whose log has ended. Also how many
    /// found no space there since the beginning.
    pub fn take_logged_faults(&self) -> (Vec<RecordHeader>, u64) {
        self.services.interception.take_faults()
    }

    /// The GID of the peer of a queue pair, and the number of its queue pair. `None`: there is no such queue pair, or it is not connected.
    pub fn peer_of(&self, number: u32) -> Option<([u8; 16], u32)> {
        let attributes = *self.queue_pairs.get(number)?.shown.attributes.lock();
        let peer = (attributes.address.destination_gid, attributes.destination);
        (attributes.destination != 0).then_some(peer)
    }

    /// What was counted of accesses that met absent pages.
    pub fn page_faults(&self) -> FaultReport {
        self.services.page_faults.report()
    }

    /// Publishes the memory file that lies behind these addresses of the process: peers that may trace it map the file, and copy without
    /// system calls. It is for the life of the process, which has one such range.
    pub fn publish_shared_memory(&self, range: Range<u64>, file: BorrowedFd<'_>) {
        self.services.publish_shared_memory(range, file.as_raw_fd());
    }

    /// Nothing goes over the channel any more.
    pub(crate) fn close(&self, channel: &LocalChannel<F>) {
        self.paths.close(channel);
        for queue_pair in self.queue_pairs.all() {
            queue_pair.send_cq.poll_hint.leave_channel(channel.channel.id);
            queue_pair.recv_cq.poll_hint.leave_channel(channel.channel.id);
            Driver(&queue_pair).run();
        }
    }

    /// Takes what came in before now, so that packets of a queue pair's former life are gone before it receives again: an adapter
    /// would have dropped them as they came. Gives up where another thread keeps them.
    pub(crate) fn drain_rx(&self) {
        self.drain_rings();
        let now = self.services.fabric.now();
        for _ in 0..MAX_DRAIN_ROUNDS {
            match self.poll_network(Occasion::Round) {
                RoundInput::Nothing if self.services.fabric.rx_watermark() >= now => return,
                RoundInput::Nothing => std::thread::yield_now(),
                RoundInput::All | RoundInput::More => {}
            }
        }
    }

    /// Takes the records that are in the rings, and waits for a thread that has one in its hands.
    fn drain_rings(&self) {
        let until = Instant::now() + Duration::from_nanos(limits::REVOCATION_BOUND);
        let channels: Vec<_> = self.paths.channels.read().iter().cloned().collect();
        for channel in channels {
            let origin = PacketOrigin::Local(channel.clone());
            for _ in 0..MAX_RING_ROUNDS {
                let Some(reading) = lock_until(&channel.reading, until) else { return };
                if !channel.has_record() {
                    break;
                }
                self.take_records(&origin, &channel, Some(reading), Occasion::Round);
            }
        }
    }

    /// A packet of Pagewire's own that came from the network.
    pub(crate) fn deliver_vendor_packet(&self, queue_pair: &QueuePair<F>, packet: &Incoming<'_, F>) {
        let parsed = match packet.payload {
            Payload::Bytes([bytes]) => VendorPacket::parse(packet.header.bth.opcode, bytes).ok(),
            _ => None,
        };
        let is_of_connection = |own: &VendorPacket| match own {
            VendorPacket::Hello(greeting) => queue_pair.knows_greeting(greeting, packet.header.bth.psn),
            _ => true,
        };
        let _ = match parsed {
            Some(own) if is_of_connection(&own) => {
                let (content, origin) = (PacketContent::Vendor(own), (*packet.origin).clone());
                queue_pair.keep(InboxPacket { content, origin })
            }
            Some(_) => queue_pair.counters.drop_packet(DropCause::Stale),
            None => queue_pair.counters.drop_packet(DropCause::Malformed),
        };
    }

    #[inline(never)] // Most rounds have no need of it.
    fn run_ready(&self) {
        for number in self.services.ready.take() {
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                queue_pair.schedule.queued.store(false, Ordering::SeqCst);
                Driver(&queue_pair).run();
            }
        }
    }

    /// Has queue pairs driven that waited for their part of what all share.
    fn serve_send_budget(&self, now: u64) {
        for _ in 0..limits::ROUND {
            let Some(number) = self.services.send_budget.next(now) else { return };
            if let Some(queue_pair) = self.queue_pairs.get(number) {
                queue_pair.notes.budget_ready.store(true, Ordering::Release);
                Driver(&queue_pair).run();
            }
        }
    }
}

/// What came in during a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoundInput {
    Nothing,
    /// All there was.
    All,
    /// There may be more.
    More,
}

/// Queue pairs that got packets in a round, and whether they are to be driven: once, at its end, so that one acknowledgement
/// covers many packets.
#[derive_where(Default)]
pub(crate) struct Touched<F: Fabric>(SmallVec<[(Arc<QueuePair<F>>, bool); 4]>);

impl<F: Fabric> Touched<F> {
    /// A queue pair, and whether it is to be driven.
    pub(crate) fn get(
        &mut self,
        all: &Numbered<QueuePair<F>>,
        number: u32,
    ) -> Option<(&Arc<QueuePair<F>>, &mut bool)> {
        let known = self.0.iter().position(|(known, _)| known.properties.number == number);
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
        match self.0.iter_mut().find(|(known, _)| known.properties.number == queue_pair.properties.number) {
            Some((_, needs_progress)) => *needs_progress = true,
            None => self.0.push((queue_pair, true)),
        }
    }

    pub(crate) fn run(&mut self, occasion: Occasion) {
        for (queue_pair, _) in self.0.drain(..).filter(|(_, needs_progress)| *needs_progress) {
            Driver(&queue_pair).run_for(occasion);
        }
    }
}
