//! What the NIC needs of the world around it: other processes on this host, the network, the time.
//!
//! [`Fabric`] is the seam between the NIC and the machine. The real one maps memory files, speaks through
//! UNIX and UDP sockets and asks the kernel's clock; the simulator has one of its own.

use crate::groups::GroupMembership;
use crate::limits::STREAMS;
use crate::management::{ManagementDatagram, ManagementTarget};
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{RegionLife, RegionView};
use pagewire_memory::{ApplicationMemory, MemoryError, Segment, SyncError};
use pagewire_paging::{PageIn, Stretch, Tenant};
use pagewire_wire::packet::DIRECT_PORTS;
use std::fmt::{self, Debug, Formatter};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// UDP destination port of RoCEv2 (IANA).
pub use pagewire_wire::packet::PORT as ROCE_PORT;

/// Queue pair numbers are leased to processes in blocks of this many.
pub const QUEUE_PAIRS_PER_BLOCK: u32 = 256;

/// First of the blocks that are reached at direct ports: their process could not have port 4791, because another user or the
/// kernel holds it. A block from here on is the number of a UDP port, which only its leaseholder binds. A peer, on whatever
/// host, therefore knows the port by the queue pair number alone; adapters and rxe number their queue pairs from below, and do
/// not come this far.
pub const FIRST_DIRECT_BLOCK: u32 = DIRECT_PORTS.start as u32;

/// The UDP port at which a queue pair is reached.
pub fn port_of(queue_pair: u32) -> u16 {
    let block = queue_pair / QUEUE_PAIRS_PER_BLOCK;
    // The last block has the multicast number; nobody leases it.
    if (FIRST_DIRECT_BLOCK..0xFFFF).contains(&block) { block as u16 } else { ROCE_PORT }
}

/// The block of the special queue pairs, which every process has: a stream to it leads to any process of the user who has the port.
pub const SPECIAL_BLOCK: u32 = 0;

/// Names one channel of this process for as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// Which end of a channel this process holds: the one that opened it, or the one that accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelEnd {
    Opened,
    Accepted,
}

/// Another process on this host (or this process itself), reached over shared memory.
#[derive(Clone)]
pub struct Channel<W, P> {
    pub id: ChannelId,
    pub side: ChannelEnd,
    /// Unique number of the peer's engine instance.
    pub instance: u64,
    /// Words that both may write: rings and hazards. Zero when the channel is new.
    pub words: W,
    /// The peer's published tables; this process may only read them.
    pub tables: W,
    /// The peer's mailbox: its wish to be woken; all its peers may write it.
    pub mailbox: W,
    /// The peer's process. Each end has proved to the other that the kernel lets it read and write the other's memory.
    pub process: P,
    /// All bytes go through the rings, though both could touch the other's memory: the kernel may end one of them for that
    /// ([`swaps_at_a_limit`](pagewire_memory::swaps_at_a_limit)). Both ends have the same here.
    pub bounce_only: bool,
}

/// What happened outside since the last look.
pub enum FabricEvent<W, P> {
    /// `connect(block)` succeeded. A channel that was there before is given again.
    Connected { block: u32, channel: Channel<W, P> },
    /// A peer opened a channel to this process.
    Accepted { channel: Channel<W, P> },
    /// `connect(block)` failed; the reason is one sentence for the user. `absent`: no process holds the block now.
    Refused { block: u32, reason: String, absent: bool },
    /// The process at the other end has ended (or broke the rules of the channel).
    Departed { channel: ChannelId },
    /// `bring_in(token)` is done: the pages were touched, or turned out not to be mapped.
    BroughtIn { token: u64 },
    /// Network devices or their addresses have changed.
    DevicesChanged,
    /// A [stream](Fabric::stream_to) stands otherwise than before.
    StreamsChanged,
}

/// One UDP datagram that came in: `bytes` run from the BTH to the end of the payload's padding; the ICRC was
/// there, was right, and is cut off.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedDatagram<'a> {
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    /// Traffic class (TOS) and hop limit (TTL), where they are told ([`Fabric::request_hop_info`]), else 0.
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// It came by a stream.
    pub by_stream: bool,
    pub bytes: &'a [u8],
    /// The payload, where it is not among the bytes.
    pub deferred: Option<&'a dyn DeferredPayload>,
}

/// A payload that still lies in the kernel, whole. It is placed once, or read, or not taken at all.
pub trait DeferredPayload {
    /// Bytes; at least one.
    fn length(&self) -> usize;
    /// Has the kernel copy them into memory of the program, which the caller holds an access to; `tail_last`: the last 8 bytes are to be
    /// visible last.
    ///
    /// # Errors
    /// `NotMapped`. A part may have been written; the rest is lost.
    fn place(&self, to: Segment, tail_last: bool) -> Result<(), MemoryError>;
    /// Copies them into this process; once, and gives the copy again. `None`: the kernel does not give them, or they were to be placed.
    fn read(&self) -> Option<Rc<[u8]>>;
}

impl Debug for dyn DeferredPayload + '_ {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.length())
    }
}

/// What became of a packet that was to leave by a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamSend {
    /// It leaves; or the stream has broken, and it is lost.
    Taken,
    /// The stream has no room now.
    NoRoom,
    /// It has to be laid into a [batch](Fabric::batch), as others are: its memory cannot be read, say.
    Unavailable,
}

/// A question to the process at the end of a [stream](Fabric::stream_to): has it read what was sent before?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamQuestion {
    /// By which connection it was asked.
    pub opening: u32,
    /// Its number there.
    pub number: u32,
}

/// What has become of a [question](StreamQuestion).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamAnswer {
    /// The process has not read it yet.
    Pending,
    /// It has.
    Read,
    /// The connection by which it was asked has ended.
    Lost,
}

/// Names a [stream](Fabric::stream_to) of this process for as long as the process lives: its place, and how many had that before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The place, below [`STREAMS`].
    pub(crate) fn place(self) -> usize {
        self.0 as usize % STREAMS
    }

    /// The next one with this place.
    pub(crate) fn next(self) -> Self {
        StreamId(self.0.wrapping_add(STREAMS as u32))
    }
}

/// How a stream to a process of another host stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamState {
    /// The process is asked; [`FabricEvent::StreamsChanged`] tells of the answer.
    Connecting,
    Open,
    /// There is none; the reason is one sentence for the user.
    Refused(String),
    /// There is none, and the process there takes nothing that is not encrypted.
    EncryptedOnly(String),
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub source: IpAddr,
    /// Interface index for link-local IPv6 addresses, else 0.
    pub interface: u32,
    pub source_port: u16,
    pub destination: IpAddr,
    /// Destination UDP port: 4791, or a Pagewire peer's direct port.
    pub port: u16,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// It goes by this stream, and not as a datagram.
    pub stream: Option<StreamId>,
}

impl Route {
    /// From one address to a port of another, as the sockets send by themselves.
    pub fn new(source: IpAddr, destination: IpAddr, port: u16) -> Self {
        Route {
            source,
            interface: 0,
            source_port: 0,
            destination,
            port,
            traffic_class: 0,
            hop_limit: 0,
            stream: None,
        }
    }
}

/// Packets under way to the network. Packets are laid one after the other into one buffer and leave the
/// process together, runs of equal length to one route as one batch.
pub trait SendBatch {
    /// Whether there is room for a packet of `length` bytes, as [`packet`](Self::packet) takes it.
    fn fits(&self, length: usize) -> bool;
    /// Makes room for a packet of `length` bytes (BTH to padding; the ICRC is added behind it by the fabric)
    /// and gives it to be filled. `None`: the batch is full, flush it first.
    fn packet(&mut self, route: &Route, length: usize) -> Option<&mut [u8]>;
    /// Takes the last packet back (its payload could not be read).
    fn cancel(&mut self);
    /// As many packets of `length` bytes to one route as there is room for, at most `count`: `fill` is given the place of each among
    /// them and its bytes, and says whether it could fill them. The first that it could not ends the row. Gives how many there are.
    fn burst(
        &mut self,
        route: &Route,
        length: usize,
        count: usize,
        fill: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> usize
    where
        Self: Sized,
    {
        burst_one_by_one(self, route, length, count, fill)
    }
}

/// [`SendBatch::burst`] by its packets.
pub(crate) fn burst_one_by_one(
    batch: &mut impl SendBatch,
    route: &Route,
    length: usize,
    count: usize,
    mut fill: impl FnMut(usize, &mut [u8]) -> bool,
) -> usize {
    for index in 0..count {
        let Some(bytes) = batch.packet(route, length) else { return index };
        if !fill(index, bytes) {
            batch.cancel();
            return index;
        }
    }
    count
}

/// Which way bytes go between this process and a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the peer.
    Pull,
    /// To the peer.
    Push,
}

/// Why pages were not prefetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefetchError {
    /// A page is not mapped, or not with the right that was asked for.
    NotMapped,
    /// Too many pages are being brought in already.
    Full,
}

/// Memory of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionPart {
    pub region: RegionLife,
    pub segment: Segment,
}

/// Memory of this process that a thread is to make persistent, and what became of that.
#[derive(Debug)]
pub struct SyncRequest {
    pub segment: Segment,
    outcome: OnceLock<SyncOutcome>,
}

/// How a [`SyncRequest`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncOutcome {
    Ended(Result<(), SyncError>),
    /// No thread could be had for it.
    NotRun,
}

impl SyncRequest {
    /// Nobody has done anything yet.
    pub fn new(segment: Segment) -> Arc<Self> {
        Arc::new(SyncRequest { segment, outcome: OnceLock::new() })
    }

    /// What became of it; `None`: a thread is at it.
    pub fn outcome(&self) -> Option<SyncOutcome> {
        self.outcome.get().copied()
    }

    /// Says what became of it. The first word counts.
    pub fn end(&self, outcome: SyncOutcome) {
        let _ = self.outcome.set(outcome);
    }
}

/// Threads that bring in absent pages: of this process, whose tables are of words `W`, and of peers (`P`).
pub trait PageInThreads<W, P> {
    /// Has another thread touch absent pages (for writing where `write`), however long that takes; the end comes as an event, one
    /// for all calls that ask for the same pages until then. Who asks for pages that never come leaves threads to other tenants. It
    /// ends with one of the regions, too.
    fn bring_in(&self, tenant: Tenant, parts: &[RegionPart], write: bool, token: u64);
    /// Has a thread touch absent pages of a peer, for reading, as long as the peer's region is what it was. The end comes as an event
    /// with `token`. The peer is the tenant.
    fn bring_in_peer(&self, process: &P, regions: &RegionView<W>, part: RegionPart, token: u64);
    /// Has `helpers` threads touch pages of a region of this process that will be needed soon. No event reports the end.
    fn bring_in_ahead(
        &self,
        tenant: Tenant,
        region: RegionLife,
        stretch: &Arc<Stretch>,
        write: bool,
        helpers: u32,
    );
    /// Brings in pages of regions of this process that a program will need soon (`ibv_advise_mr(3)`), for writing where `write`. With
    /// `wait` it returns when they are there; else another thread brings them in later. It ends with one of the regions.
    ///
    /// # Errors
    /// [`PrefetchError`]; `NotMapped` only with `wait`.
    fn prefetch(&self, parts: &[RegionPart], write: bool, wait: bool) -> Result<(), PrefetchError>;
    /// Has a thread make memory persistent (msync(2)), however long that takes; the end comes as an event, and `request` says what became
    /// of it. Each request is executed by itself: what was placed since an earlier one began would be missing in that. False: too many wait.
    fn sync(&self, tenant: Tenant, request: &Arc<SyncRequest>, token: u64) -> bool;
    /// Called behind the end of a region of this process, by its place: when this returns its pages are not brought in any more. But a
    /// thread that sleeps in the kernel and cannot be woken is not waited for: that page may come in later.
    fn end_bring_in(&self, region: u32) {
        let _ = region;
    }
    /// Whether a thread is bringing in pages that the kernel has, for which it may want the processor of whoever polls.
    fn brings_in(&self) -> bool {
        false
    }
    /// Whether that is worth while for pages that are cheap: there are processors beside those of the two ends.
    fn has_processors_for_helpers(&self) -> bool {
        true
    }
    /// As [`pull`](ApplicationMemory::pull) and [`push`](ApplicationMemory::push), made for long transfers that meet many absent pages,
    /// which come in by so much at once; with all of a transfer other threads may help.
    fn move_absent(
        &self,
        direction: Direction,
        process: &P,
        segments: (&[Segment], &[Segment]),
        tail_last: bool,
        page_in: PageIn,
    ) -> Result<(), MemoryError>;
}

/// Words, and the file behind them that peers may map.
pub struct WordsFile<W> {
    pub words: W,
    /// The number under which the process has the file open, as long as this lives.
    pub number: u32,
    /// What keeps it open.
    pub keeps: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// The world around an engine.
pub trait Fabric: Send + Sync + 'static {
    /// Memory that processes share: tables, mailboxes, channels and access logs.
    type SharedMemory: SharedWords;
    type Memory: ApplicationMemory;
    type Batch: SendBatch;
    type PageInThreads: PageInThreads<Self::SharedMemory, <Self::Memory as ApplicationMemory>::RemoteProcess>;

    /// Those who bring in absent pages.
    fn page_in(&self) -> &Self::PageInThreads;

    /// The application's memory.
    fn memory(&self) -> &Self::Memory;

    /// The calling thread is the NIC thread from now on.
    fn begin_thread(&self) {}

    /// It is that no more.
    fn end_thread(&self) {}

    /// Nanoseconds on a clock that never goes back.
    fn now(&self) -> u64;

    /// A time that [`now`](Self::now) is not before, and not more than [`TICK`](crate::limits::TICK) after; cheaper to have.
    fn past(&self) -> u64 {
        self.now()
    }

    /// Counts a datagram that was delivered and whose headers do not parse; a fabric without counters does nothing.
    fn count_bad_header(&self) {}

    /// A random number that outsiders cannot guess (keys, PSNs).
    fn random(&self) -> u64;

    /// Unique number of this engine instance.
    fn instance(&self) -> u64;

    // This host.

    /// Leases more blocks of queue pair numbers (the block number: QPN / 256): at least one, at most `count`, one after the
    /// other. The leases end with the process.
    ///
    /// # Errors
    /// The kernel's, or that no block is free.
    fn lease_blocks(&self, count: usize) -> std::io::Result<Vec<u32>>;
    /// Waits, for a bounded time, until the kernel delivers datagrams for the leased blocks to this process. Before that, other
    /// processes that share the port hand them on: some may overtake others, or be lost.
    fn await_steering(&self) {}
    /// Leases one block, and waits until datagrams for it come here.
    ///
    /// # Errors
    /// As [`lease_blocks`](Self::lease_blocks).
    fn lease_block(&self) -> std::io::Result<u32> {
        let leased = self.lease_blocks(1)?;
        self.await_steering();
        Ok(leased[0])
    }
    /// This process's published tables.
    fn tables(&self) -> &Self::SharedMemory;
    /// This process's mailbox.
    fn mailbox(&self) -> &Self::SharedMemory;
    /// New words of zero, of which only those that are written cost memory, and which peers may map. `peers_write`: they may write, too. `name`
    /// is for people who look at the process.
    ///
    /// # Errors
    /// The kernel's: no descriptors, no memory, no address space.
    fn make_words(
        &self,
        name: &str,
        length: usize,
        peers_write: bool,
    ) -> std::io::Result<WordsFile<Self::SharedMemory>>;
    /// Maps words that a peer has [made](Self::make_words), by the number of their file.
    ///
    /// # Errors
    /// The kernel's; `InvalidData`: it is another kind of file, or has another length.
    fn open_words(
        &self,
        process: &<Self::Memory as ApplicationMemory>::RemoteProcess,
        number: u32,
        length: usize,
        writable: bool,
    ) -> std::io::Result<Self::SharedMemory>;
    /// Has no peer of this host make a channel to this process: it listens for none, sends none of its files, and lets no
    /// peer trace it. Called before the first block is leased.
    fn refuse_channels(&self);
    /// Whether an address belongs to this host (this network namespace); `Err`: one sentence why that is not known.
    fn is_local(&self, address: IpAddr) -> Result<bool, String>;
    /// Asks for a channel to the process that leases `block`; the answer comes as an event.
    fn connect(&self, block: u32);
    /// Wakes the process at the other end of a channel from its sleep in the kernel.
    fn wake(&self, channel: ChannelId);
    /// Whether [`events`](Self::events) has something to tell now. Cheaper, for those who look often.
    fn has_events(&self) -> bool {
        true
    }
    /// Takes what happened since the last call. Cheap when nothing did.
    fn events(
        &self,
        into: &mut Vec<FabricEvent<Self::SharedMemory, <Self::Memory as ApplicationMemory>::RemoteProcess>>,
    );
    /// Returns when [`events`](Self::events) tells of every channel that a peer may already use. False: of nothing new.
    fn catch_up(&self) -> bool;

    // The network.

    /// The stream from the first block, which this process leases, to the process that leases the second at the end of a route, over TCP; it is
    /// opened if there is none. What a route names as its stream leaves by it. The process there may send to the first block by the same
    /// connection, unless that is 0. A stream that breaks is opened anew; what was sent meanwhile is lost. `patience`: nanoseconds for which a
    /// process is waited for whose host has accepted the connection. It may get no processor.
    fn stream_to(&self, _route: &Route, _blocks: (u32, u32), _patience: u64) -> (StreamId, StreamState) {
        (StreamId::default(), StreamState::Refused("this fabric has no streams".into()))
    }
    /// Asks whether the process at the end of a stream has read what was sent by it. It answers when it has, and may get no processor for
    /// long. `None`: the stream is not open, or nothing is sent back by its connection.
    fn ask_stream(&self, _stream: StreamId) -> Option<StreamQuestion> {
        None
    }
    /// What has become of a question.
    fn answer_to(&self, _stream: StreamId, _question: StreamQuestion) -> StreamAnswer {
        StreamAnswer::Lost
    }
    /// How often a stream was opened. Where that is more than before, what was sent by it meanwhile may be lost.
    fn stream_openings(&self, _stream: StreamId) -> u32 {
        0
    }
    /// Sends a packet whose payload is `payload`, by a stream; the kernel reads it where it lies. Behind what was flushed before.
    fn send_from_memory(&self, _stream: StreamId, _headers: &[u8], _payload: Segment) -> StreamSend {
        StreamSend::Unavailable
    }
    /// An empty batch; give it back by `flush`.
    fn batch(&self) -> Self::Batch;
    /// Sends a batch. A packet that the kernel does not take now is lost, as in any network, and counted.
    fn flush(&self, batch: Self::Batch);
    /// Hands over datagrams that have come in, at most `limit`; gives how many. Those that came together are handed over
    /// together, in their order. Another thread may be at it already: then 0.
    fn receive(&self, limit: usize, each: &mut dyn FnMut(&[ReceivedDatagram<'_>])) -> usize;
    /// Has datagrams that are received from now on told with their traffic class and hop limit, which others may be without
    /// (0): the kernel tells them at a price, and only UD needs them.
    fn request_hop_info(&self);
    /// The time by which every datagram that had come in has been handed over. As long as it lies behind, silence of a peer
    /// may be one's own deafness: what it has sent may be waiting in the sockets.
    fn rx_watermark(&self) -> u64;
    /// Hands a datagram to queue pair 1 to the process of this host that it is for.
    ///
    /// # Errors
    /// `ConnectionRefused`: nobody is meant; `Unsupported`: this fabric has no such processes; else the kernel's, as `WouldBlock` where that
    /// process has not taken earlier ones.
    fn deliver_management(
        &self,
        _target: ManagementTarget,
        _datagram: &ManagementDatagram,
    ) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    /// Joins a multicast group at the interface with this index, as long as the membership lives: what is sent to it comes in.
    ///
    /// # Errors
    /// The kernel's; `AddrNotAvailable`: this process does not get what is sent to port 4791; `Unsupported`: this fabric has no groups.
    fn join_group(&self, _group: IpAddr, _interface: u32) -> std::io::Result<GroupMembership> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    /// Has the capture of packets, if there is one, show a datagram to queue pair 1 that takes no network.
    fn capture_management(&self, _datagram: &ManagementDatagram) {}
    /// The UDP port that takes packets for all queue pairs of this process: 4791, or a direct port where that could not be
    /// had (0 before the first block is leased).
    fn direct_port(&self) -> u16;

    // Sleep.

    /// Sleeps until something happens (event, datagram, wake, kick) or the clock reaches `deadline`. While there are events that
    /// [`events`](Self::events) has not taken, it returns at once and does nothing else: a caller takes them before each sleep.
    /// Otherwise handshakes and the steering of the port stand still.
    fn wait(&self, deadline: Option<u64>);

    /// When the fabric is to send the first of the packets that it holds back on purpose; `u64::MAX`: it holds none. [`events`](Self::events),
    /// [`flush`](Self::flush) and [`wait`](Self::wait) send what is due.
    #[inline]
    fn held_until(&self) -> u64 {
        u64::MAX
    }

    /// By how many nanoseconds the thread that drives the fabric may oversleep; `None`: as usual.
    fn timer_slack(&self) -> Option<NonZeroU64> {
        None
    }

    /// Ends a `wait` of another thread of this process.
    fn kick(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_tells_the_port() {
        assert_eq!(port_of(0), ROCE_PORT);
        assert_eq!(port_of(1), ROCE_PORT);
        assert_eq!(port_of(0xEF_FFFF), ROCE_PORT);
        assert_eq!(port_of(0xF0_0000), 0xF000);
        assert_eq!(port_of(0xFF_FEFF), 0xFFFE);
        assert_eq!(port_of(0xFF_FFFF), ROCE_PORT);
    }
}
