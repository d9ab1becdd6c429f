//! The local path: another process of this host, reached through a channel's rings and, where the kernel lets
//! us, by touching its memory directly.

use super::ring::{self, Consumer, Producer, RecordKind, RingRecordHeader};
use super::ring_ack::{Awaited, AwaitedRingAcks, PendingRingAcks, RingAck, TakenAcks};
use super::wake_request;
use crate::services::fabric_event_queue::ProcessOf;
use crate::types::channel_layout::{CHANNEL_WORDS, DIRECTION_WORDS, HAZARD_SLOTS, HAZARDS};
use crate::types::limits::ROUND;
use pagewire_fabric::lock::Lock;
use pagewire_fabric::{Channel, ChannelEnd, ChannelId, Fabric};
use pagewire_iommu::layout::{
    BLOCKS, MAGIC, MAGIC_WORD, QUEUE_PAIR_WORDS, QUEUE_PAIRS, SHARED_BASE, SHARED_FILE, SHARED_LENGTH,
    TABLE_WORDS,
};
use pagewire_iommu::limits::MAX_BLOCKS;
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_iommu::{Hazards, RegionView, Rights};
use pagewire_memory::{ApplicationMemory, CrossMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Publishing a queue pair.
pub const QUEUE_PAIR: Site = Site("queue_pair.publish");
/// Publishing that a queue pair waits for a page.
pub const HOLDING: Site = Site("queue_pair.holding");

// Words of a published queue pair.
const QP_TAG: usize = 0;
const QP_PEER: usize = 1;
const QP_DOMAIN: usize = 2;
const QP_HOLDING: usize = 3;
const QP_KEPT: usize = 4;

/// In QP_PEER, beside the rights.
const UNESTABLISHED: u64 = 1 << 31;

/// What this process publishes of a queue pair, and reads of a peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedQueuePair {
    pub number: u32,
    /// Takes requests now.
    pub receptive: bool,
    pub rights: Rights,
    /// In RTR, and its program does not know yet that the peer has begun: whoever executes a request by itself is to say so.
    pub unestablished: bool,
    /// The queue pair it is connected to.
    pub destination: u32,
    pub domain: u32,
    /// The first PSN of its connection: requests of another one are not for it.
    pub receive_psn: u32,
}

impl PublishedQueuePair {
    /// Writes the entry at a place of the process's own tables. Where only the rights are others it is valid all the time: a peer that
    /// looks meanwhile does not take the queue pair to have ended.
    pub fn publish<W: SharedWords>(&self, tables: &W, index: u32) {
        let at = QUEUE_PAIRS + index as usize * QUEUE_PAIR_WORDS;
        let unestablished = if self.unestablished { UNESTABLISHED } else { 0 };
        let peer = u64::from(self.destination) << 32 | unestablished | u64::from(self.rights.bits());
        let domain = u64::from(self.receive_psn) << 32 | u64::from(self.domain);
        let tag = if self.receptive { u64::from(self.number) | 1 << 32 } else { 0 };
        let stays = tables.load(at + QP_TAG) == tag
            && tables.load(at + QP_DOMAIN) == domain
            && tables.load(at + QP_PEER) >> 32 == u64::from(self.destination);
        if !stays {
            tables.store(QUEUE_PAIR, at + QP_TAG, 0);
        }
        tables.store(QUEUE_PAIR, at + QP_PEER, peer);
        if !stays {
            tables.store(QUEUE_PAIR, at + QP_DOMAIN, domain);
            tables.store(QUEUE_PAIR, at + QP_TAG, tag);
        }
        tables.fence();
    }

    /// Reads the entry of a queue pair in a peer's tables. `None`: it takes no requests.
    fn read<W: SharedWords>(tables: &W, index: u32, number: u32) -> Option<Self> {
        let at = QUEUE_PAIRS + index as usize * QUEUE_PAIR_WORDS;
        let tag = tables.load(at + QP_TAG);
        if tag != u64::from(number) | 1 << 32 {
            return None;
        }
        let peer = tables.load(at + QP_PEER);
        let domain = tables.load(at + QP_DOMAIN);
        if tables.load(at + QP_TAG) != tag {
            return None;
        }
        Some(PublishedQueuePair {
            number,
            receptive: true,
            rights: Rights::from_bits_truncate(peer as u32),
            unestablished: peer & UNESTABLISHED != 0,
            destination: (peer >> 32) as u32,
            domain: domain as u32,
            receive_psn: (domain >> 32) as u32,
        })
    }
}

/// Tells local peers whether a queue pair's silence means that it waits for a page.
pub fn publish_holding<W: SharedWords>(tables: &W, index: u32, holding: bool) {
    tables.store(HOLDING, QUEUE_PAIRS + index as usize * QUEUE_PAIR_WORDS + QP_HOLDING, u64::from(holding));
}

/// Tells local peers whether requests wait for whoever drives a queue pair.
pub fn publish_kept<W: SharedWords>(tables: &W, index: u32, kept: bool) {
    tables.store(HOLDING, QUEUE_PAIRS + index as usize * QUEUE_PAIR_WORDS + QP_KEPT, u64::from(kept));
}

/// How far a channel was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxPosition {
    channel: ChannelId,
    records: u64,
    ring_acks: u64,
}

/// The reading end of a ring, and where its records are put.
pub struct RingReader<W> {
    pub consumer: Consumer<W>,
    pub bytes: Vec<u8>,
    /// Records that a poll takes before it looks whether there are more. A look for one that is not there costs as much as
    /// taking one that is: the writer has just cleared the word.
    poll_batch: usize,
    /// What became of them.
    pub pending_acks: PendingRingAcks,
}

/// The writing end of a ring, and the ring acknowledgements that its records wait for.
struct Writing<W> {
    producer: Producer<W>,
    ring_acks: AwaitedRingAcks,
}

/// A channel to another process (or to this one), as the NIC uses it.
pub struct LocalChannel<F: Fabric> {
    pub channel: Channel<F::SharedMemory, ProcessOf<F>>,
    writing: Lock<Writing<F::SharedMemory>>,
    next_ack: TakenAcks,
    pub reading: Lock<RingReader<F::SharedMemory>>,
    /// Where the next record begins, for whoever does not read the ring.
    next_record: AtomicUsize,
    /// Records that were taken.
    records_taken: AtomicU64,
    /// There was none at the last look.
    was_empty: AtomicBool,
    /// This process's accesses to the peer's memory.
    pub own_hazards: Hazards<F::SharedMemory>,
    pub peer_regions: RegionView<F::SharedMemory>,
    /// First word of our direction.
    ours: usize,
    /// Of the peer's.
    theirs: usize,
    /// Something was told, and it is not sure that the peer does not sleep.
    unsure: AtomicBool,
    gone: AtomicBool,
    broken: AtomicBool,
    /// The kernel does not let this process access the peer's memory any more.
    denied: AtomicBool,
    /// The peer's shared memory is mapped here, or cannot be.
    shared_is_known: AtomicBool,
}

impl<F: Fabric> LocalChannel<F> {
    /// Takes over a channel. `None`: the peer's files are not of this layout.
    pub fn new(channel: Channel<F::SharedMemory, ProcessOf<F>>) -> Option<Arc<Self>> {
        if channel.words.len() < CHANNEL_WORDS
            || channel.tables.len() < TABLE_WORDS
            || channel.mailbox.is_empty()
            || channel.tables.load(MAGIC_WORD) != MAGIC
        {
            return None;
        }
        let (ours, theirs) = match channel.side {
            ChannelEnd::Opened => (0, DIRECTION_WORDS),
            ChannelEnd::Accepted => (DIRECTION_WORDS, 0),
        };
        let words = &channel.words;
        let consumer = Consumer::new(words.clone(), theirs);
        Some(Arc::new(LocalChannel {
            writing: Lock::new(Writing {
                producer: Producer::new(words.clone(), ours),
                ring_acks: AwaitedRingAcks::default(),
            }),
            next_ack: TakenAcks::default(),
            next_record: AtomicUsize::new(consumer.place()),
            records_taken: AtomicU64::new(0),
            was_empty: AtomicBool::new(true),
            reading: Lock::new(RingReader {
                consumer,
                bytes: Vec::new(),
                poll_batch: 1,
                pending_acks: PendingRingAcks::default(),
            }),
            own_hazards: Hazards::new(words.clone(), ours + HAZARDS, HAZARD_SLOTS),
            peer_regions: RegionView::new(channel.tables.clone()),
            ours,
            theirs,
            unsure: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            denied: AtomicBool::new(false),
            shared_is_known: AtomicBool::new(false),
            channel,
        }))
    }

    /// The peer's memory.
    #[inline]
    pub fn cross_memory<'m>(&'m self, fabric: &'m F) -> CrossMemory<'m, F::Memory> {
        CrossMemory { memory: fabric.memory(), process: &self.channel.process }
    }

    /// Maps the memory that the peer shares, once it does. Where that fails, its memory is reached as any other.
    pub fn map_shared(&self, fabric: &F) {
        let tables = &self.channel.tables;
        if self.shared_is_known.load(Ordering::Relaxed) {
            return;
        }
        let Some(file) = tables.load(SHARED_FILE).checked_sub(1) else { return };
        if self.shared_is_known.swap(true, Ordering::AcqRel) {
            return;
        }
        let base = tables.load(SHARED_BASE);
        let range = base..base.saturating_add(tables.load(SHARED_LENGTH));
        let file = i32::try_from(file).unwrap_or(-1);
        match fabric.memory().map_shared(&self.channel.process, range, file) {
            Ok(()) => log::debug!("the shared memory of a peer is mapped"),
            Err(error) => log::debug!("the shared memory of a peer cannot be mapped: {error}"),
        }
    }

    /// Whether this side may run atomics in memory of the peer: some of that is mapped here.
    pub fn maps_memory(&self, fabric: &F) -> bool {
        self.map_shared(fabric);
        fabric.memory().has_mapping(&self.channel.process)
    }

    /// The place of a queue pair in the peer's tables.
    pub fn place_of(&self, queue_pair: u32) -> Option<u32> {
        let block = u64::from(queue_pair >> 8) + 1;
        (0..MAX_BLOCKS)
            .find(|ordinal| self.channel.tables.load(BLOCKS + ordinal) == block)
            .map(|ordinal| (ordinal as u32) << 8 | queue_pair & 0xFF)
    }

    /// The peer's queue pair, if it takes requests from ours.
    pub fn receptive(&self, number: u32, ours: u32) -> Option<(u32, PublishedQueuePair)> {
        let place = self.place_of(number)?;
        Some((place, self.receptive_at(place, number, ours)?))
    }

    /// The peer's queue pair at a known place in the peer's tables, if it takes requests from ours.
    pub fn receptive_at(&self, place: u32, number: u32, ours: u32) -> Option<PublishedQueuePair> {
        let published = PublishedQueuePair::read(&self.channel.tables, place, number)?;
        (published.destination == ours).then_some(published)
    }

    /// Whether the peer's queue pair waits for a page, or for a thread that has it in its hands and gets no processor: requests
    /// were taken from the ring, and nobody has executed them.
    pub fn is_holding(&self, number: u32) -> bool {
        self.place_of(number).is_some_and(|place| {
            let at = QUEUE_PAIRS + place as usize * QUEUE_PAIR_WORDS;
            let is_set = |word| self.channel.tables.load(at + word) != 0;
            // What waits at one that takes no requests any more is never executed.
            is_set(QP_HOLDING) || is_set(QP_TAG) && is_set(QP_KEPT)
        })
    }

    /// Sends a record and wakes the peer if it sleeps. False: there is no room now. `awaited`: the request that it is, if that
    /// wants an acknowledgement, which comes as a ring acknowledgement where it can ([`take_ring_ack`](Self::take_ring_ack)).
    pub fn send(
        &self,
        fabric: &F,
        kind: RecordKind,
        headers: &[u8],
        payload: &[u8],
        awaited: Option<Awaited>,
    ) -> bool {
        {
            let mut writing = self.writing.lock();
            let Writing { producer, ring_acks } = &mut *writing;
            let awaited = awaited.filter(|_| ring_acks.has_room());
            let header = RingRecordHeader {
                kind,
                header: headers.len() as u8,
                wants_ack: awaited.is_some(),
                payload: payload.len() as u32,
            };
            // Awaited before the record can be seen: a NIC thread that is about to sleep, and does not find anything awaited
            // yet, has asked to be woken before the peer can tell.
            if let Some(awaited) = awaited {
                ring_acks.expect(awaited, &self.next_ack);
            }
            if !producer.push(&header, headers, payload) {
                if awaited.is_some() {
                    ring_acks.withdraw_last(&self.next_ack);
                }
                return false;
            }
        }
        self.wake(fabric);
        true
    }

    fn wake(&self, fabric: &F) {
        // What was told before can be seen from here on.
        if self.unsure.load(Ordering::Acquire) {
            self.unsure.store(false, Ordering::Relaxed);
        }
        if wake_request::take(&self.channel.mailbox) {
            fabric.wake(self.channel.id);
        }
    }

    /// Tells the peer what became of its records, and wakes it if it sleeps.
    pub fn publish_ring_acks(&self, fabric: &F, pending_acks: &mut PendingRingAcks) {
        if pending_acks.publish(&self.channel.words, self.theirs) {
            self.wake(fabric);
        }
    }

    /// Tells the peer what became of its records, without the fence behind it, which waits until this processor has the cache line.
    /// True: a peer that was about to sleep may not have been woken. Call [`make_sure`](Self::make_sure) soon, or send something.
    pub fn publish_ring_acks_unfenced(&self, fabric: &F, pending_acks: &mut PendingRingAcks) -> bool {
        if !pending_acks.publish(&self.channel.words, self.theirs) {
            return false;
        }
        self.unsure.store(true, Ordering::Release);
        if wake_request::is_requested(&self.channel.mailbox) {
            self.wake(fabric);
        }
        self.unsure.load(Ordering::Relaxed)
    }

    /// Wakes the peer if it sleeps and may not have seen what it was told.
    pub fn make_sure(&self, fabric: &F) {
        if self.unsure.load(Ordering::Relaxed) {
            self.wake(fabric);
        }
    }

    /// Tells the peer what was taken, unless somebody is at the ring, who does.
    pub fn publish_position(&self) {
        if let Some(mut reading) = self.reading.try_lock() {
            if !reading.consumer.is_published() {
                reading.consumer.publish_head();
            }
        }
    }

    /// Where the next record begins, now that one is taken. Called by whoever reads the ring.
    pub fn set_next_record(&self, place: usize) {
        self.next_record.store(place, Ordering::Release);
        let taken = self.records_taken.load(Ordering::Relaxed);
        self.records_taken.store(taken.wrapping_add(1), Ordering::Relaxed);
    }

    /// How far it was read, if there is more.
    pub fn unread(&self) -> Option<RxPosition> {
        self.has_unread().then(|| RxPosition {
            channel: self.channel.id,
            records: self.records_taken.load(Ordering::Relaxed),
            ring_acks: self.next_ack.taken(),
        })
    }

    /// What became of the oldest request that was sent and waits for a ring acknowledgement, if the peer has told.
    pub fn take_ring_ack(&self) -> Option<(Awaited, RingAck)> {
        if !self.has_ring_ack() {
            return None;
        }
        self.writing.lock().ring_acks.take(&self.channel.words, self.ours, &self.next_ack)
    }

    /// What a queue pair has sent is not its own any more: it begins anew.
    pub fn forget_awaited(&self, queue_pair: u32) {
        self.writing.lock().ring_acks.forget(queue_pair);
    }

    /// Whether the peer has told what became of a request.
    pub fn has_ring_ack(&self) -> bool {
        self.next_ack.has_come(&self.channel.words, self.ours)
    }

    /// Whether the peer has taken everything that was sent.
    pub fn is_drained(&self) -> bool {
        self.writing.lock().producer.is_drained()
    }

    /// Whether the peer has sent or told something that was not taken.
    pub fn has_unread(&self) -> bool {
        (self.has_record() || self.has_ring_ack()) && !self.is_broken()
    }

    /// Whether the peer has sent something that was not taken.
    pub fn has_record(&self) -> bool {
        let has = ring::has_record(&self.channel.words, self.next_record.load(Ordering::Acquire));
        if !has && !self.was_empty.load(Ordering::Relaxed) {
            self.was_empty.store(true, Ordering::Relaxed);
        }
        has
    }

    /// How many records a poll takes at most: more and more while they come faster than they are taken.
    pub fn poll_batch(&self, reading: &mut RingReader<F::SharedMemory>) -> usize {
        let was_empty = self.was_empty.load(Ordering::Relaxed);
        if was_empty {
            self.was_empty.store(false, Ordering::Relaxed);
        }
        reading.poll_batch = if was_empty { 1 } else { (reading.poll_batch * 2).min(ROUND) };
        reading.poll_batch
    }

    /// The peer wrote what no writer of a ring writes: nothing more is read.
    pub fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// See [`set_broken`](Self::set_broken).
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The kernel denies this process access to the peer's memory, which it allowed when the channel was made: one of the two has
    /// changed its user, or is not dumpable any more. What the peer cannot be given by a copy goes through the ring.
    pub fn set_denied(&self) {
        if !self.denied.swap(true, Ordering::AcqRel) {
            log::debug!("the kernel denies access to the memory of a peer: transfers go through the ring");
        }
    }

    /// See [`set_denied`](Self::set_denied).
    #[inline]
    pub fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// The peer has ended and everything that it sent is read, or it broke the rules: nothing goes there any more.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// See [`set_gone`](Self::set_gone).
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}
