//! The fabric of a simulated process.

use crate::limits;
use crate::memory::{SimMemory, SimProcess};
use crate::packet::is_vendor;
use crate::process::VirtualProcess;
use crate::state::{SharedWorld, SimEvent, join_group};
use crate::words::{Array, SimWords};
use pagewire_fabric::{
    ChannelId, Direction, Fabric, GroupMembership, PageInThreads, PrefetchError, ROCE_PORT, ReceivedDatagram,
    RegionPart, Route, SendBatch, StreamId, StreamState, SyncRequest, WordsFile,
};
use pagewire_iommu::words::Site;
use pagewire_iommu::{RegionLife, RegionView};
use pagewire_memory::{ApplicationMemory, MemoryError, Segment};
use pagewire_paging::{PageIn, Stretch, Tenant};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process leases a block of queue pair numbers.
pub const LEASE: Site = Site("fabric.lease");
/// It opens a channel.
pub const CONNECT: Site = Site("fabric.connect");
/// It sends a packet.
pub const SEND: Site = Site("fabric.send");
/// It wakes a peer.
pub const WAKE: Site = Site("fabric.wake");

type SleepHook = Arc<dyn Fn() + Send + Sync>;

/// The world as one process's engine sees it.
pub struct SimFabric {
    shared: Arc<SharedWorld>,
    process: Arc<VirtualProcess>,
    memory: SimMemory,
    tables: SimWords,
    regions: RegionView<SimWords>,
    mailbox: SimWords,
    instance: u64,
    sleep: Mutex<Option<SleepHook>>,
    wakes: AtomicU64,
}

impl SimFabric {
    pub(crate) fn new(
        shared: Arc<SharedWorld>,
        process: Arc<VirtualProcess>,
        tables: SimWords,
        mailbox: SimWords,
        instance: u64,
    ) -> Self {
        SimFabric {
            shared,
            memory: SimMemory::new(process.clone()),
            process,
            regions: RegionView::new(tables.clone()),
            tables,
            mailbox,
            instance,
            sleep: Mutex::new(None),
            wakes: AtomicU64::new(0),
        }
    }

    /// The process it belongs to.
    pub fn process(&self) -> &Arc<VirtualProcess> {
        &self.process
    }

    /// What happens in the world while this process sleeps ([`Fabric::wait`]); it must let time pass.
    pub fn while_asleep(&self, does: impl Fn() + Send + Sync + 'static) {
        *self.sleep.lock() = Some(Arc::new(does));
    }

    /// Peers that this process has woken.
    pub fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }
}

/// Packets that leave together.
#[derive(Default)]
pub struct SimBatch {
    packets: Vec<(Route, Vec<u8>)>,
    bytes: usize,
    /// Knows which streams are blocked.
    shared: Option<Arc<SharedWorld>>,
}

impl SimBatch {
    fn is_blocked(&self, stream: StreamId) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_blocked(stream))
    }
}

impl SendBatch for SimBatch {
    fn fits(&self, length: usize) -> bool {
        self.packets.len() < limits::BATCH_PACKETS && self.bytes + length <= limits::BATCH_BYTES
    }

    fn packet(&mut self, route: &Route, length: usize) -> Option<&mut [u8]> {
        let longest = match route.stream {
            Some(stream) if self.is_blocked(stream) => return None,
            Some(_) => limits::STREAM_PACKET_BYTES,
            None => limits::PACKET_BYTES,
        };
        if !self.fits(length) || length > longest {
            return None;
        }
        self.bytes += length;
        self.packets.push((*route, vec![0; length]));
        self.packets.last_mut().map(|(_, bytes)| bytes.as_mut_slice())
    }

    fn cancel(&mut self) {
        if let Some((_, bytes)) = self.packets.pop() {
            self.bytes -= bytes.len();
        }
    }
}

impl PageInThreads<SimWords, SimProcess> for SimFabric {
    fn bring_in(&self, _asker: Tenant, parts: &[RegionPart], _write: bool, token: u64) {
        if self.process.is_alive() {
            self.shared.bring_in(self.process.id, self.process.id, &self.regions, parts, Some(token));
        }
    }

    fn bring_in_peer(
        &self,
        process: &SimProcess,
        regions: &RegionView<SimWords>,
        part: RegionPart,
        token: u64,
    ) {
        if self.process.is_alive() {
            self.shared.bring_in(process.0.id, self.process.id, regions, &[part], Some(token));
        }
    }

    fn bring_in_ahead(
        &self,
        _asker: Tenant,
        region: RegionLife,
        stretch: &Arc<Stretch>,
        _write: bool,
        _helpers: u32,
    ) {
        while let Some(piece) = stretch.take().filter(|_| self.process.is_alive()) {
            let memory = piece.memory();
            let segment = Segment { address: memory.start, length: memory.end - memory.start };
            let parts = [RegionPart { region, segment }];
            self.shared.bring_in(self.process.id, self.process.id, &self.regions, &parts, None);
        }
    }

    fn sync(&self, _asker: Tenant, request: &Arc<SyncRequest>, token: u64) -> bool {
        if self.process.is_alive() {
            self.shared.sync(self.process.id, request, token);
        }
        true
    }

    fn prefetch(&self, parts: &[RegionPart], write: bool, wait: bool) -> Result<(), PrefetchError> {
        let brought_in = parts.iter().try_for_each(|part| self.memory.bring_in(&part.segment, write));
        if wait { brought_in.map_err(|_| PrefetchError::NotMapped) } else { Ok(()) }
    }

    fn move_absent(
        &self,
        direction: Direction,
        process: &SimProcess,
        (ours, theirs): (&[Segment], &[Segment]),
        tail_last: bool,
        _page_in: PageIn,
    ) -> Result<(), MemoryError> {
        match direction {
            Direction::Pull => self.memory.pull(process, theirs, ours, tail_last),
            Direction::Push => self.memory.push(process, ours, theirs, tail_last),
        }
    }
}

impl Fabric for SimFabric {
    type SharedMemory = SimWords;
    type Memory = SimMemory;
    type Batch = SimBatch;
    type PageInThreads = Self;

    fn page_in(&self) -> &Self {
        self
    }

    fn memory(&self) -> &SimMemory {
        &self.memory
    }

    fn now(&self) -> u64 {
        self.shared.clock.look(self.process.id.0)
    }

    fn random(&self) -> u64 {
        self.shared.random()
    }

    fn instance(&self) -> u64 {
        self.instance
    }

    fn lease_blocks(&self, count: usize) -> std::io::Result<Vec<u32>> {
        let leased = if self.process.step(LEASE) {
            self.shared.lease_blocks(&self.process, count)
        } else {
            Vec::new()
        };
        if leased.is_empty() { Err(std::io::ErrorKind::AddrInUse.into()) } else { Ok(leased) }
    }

    fn tables(&self) -> &SimWords {
        &self.tables
    }

    fn mailbox(&self) -> &SimWords {
        &self.mailbox
    }

    fn make_words(
        &self,
        _name: &str,
        length: usize,
        _peers_write: bool,
    ) -> std::io::Result<WordsFile<SimWords>> {
        let array = Array::new(length);
        let mut files = self.process.files.lock();
        files.push(array.clone());
        let words = SimWords::new(array, self.process.clone());
        Ok(WordsFile { words, number: files.len() as u32 - 1, keeps: None })
    }

    fn open_words(
        &self,
        process: &SimProcess,
        number: u32,
        length: usize,
        writable: bool,
    ) -> std::io::Result<SimWords> {
        let array = process.0.files.lock().get(number as usize).cloned();
        let array = array.filter(|array| array.length() == length).ok_or(std::io::ErrorKind::InvalidData)?;
        let holder = self.process.clone();
        Ok(if writable { SimWords::new(array, holder) } else { SimWords::read_only(array, holder) })
    }

    fn join_group(&self, group: IpAddr, _interface: u32) -> std::io::Result<GroupMembership> {
        Ok(join_group(&self.shared, self.process.id, group))
    }

    fn refuse_channels(&self) {
        self.shared.refuse_channels(self.process.id);
    }

    fn is_local(&self, address: IpAddr) -> Result<bool, String> {
        Ok(address.is_loopback() || self.shared.is_local(self.process.host, address))
    }

    fn connect(&self, block: u32) {
        if self.process.step(CONNECT) {
            self.shared.connect(self.process.id, block);
        }
    }

    fn wake(&self, _channel: ChannelId) {
        if self.process.step(WAKE) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn has_events(&self) -> bool {
        self.process.is_alive() && self.shared.has_events(self.process.id)
    }

    fn events(&self, into: &mut Vec<SimEvent>) {
        let before = into.len();
        if self.process.is_alive() {
            self.shared.take_events(self.process.id, into);
        }
        // To find none is but a look: whoever waits for time to pass gets there.
        if into.len() > before {
            self.shared.clock.stir();
        }
    }

    fn catch_up(&self) -> bool {
        true
    }

    fn stream_to(&self, route: &Route, (_, block): (u32, u32), _patience: u64) -> (StreamId, StreamState) {
        self.shared.stream_to(&self.process, route, block)
    }

    fn stream_openings(&self, stream: StreamId) -> u32 {
        self.shared.stream_openings(stream)
    }

    fn batch(&self) -> SimBatch {
        SimBatch { shared: Some(self.shared.clone()), ..SimBatch::default() }
    }

    fn flush(&self, batch: SimBatch) {
        for (route, bytes) in batch.packets {
            if self.process.step(SEND) && !(self.process.is_standard() && is_vendor(&bytes)) {
                self.shared.send(&self.process, &route, bytes);
            }
        }
    }

    fn receive(&self, limit: usize, each: &mut dyn FnMut(&[ReceivedDatagram<'_>])) -> usize {
        if !self.process.is_alive() {
            return 0;
        }
        let datagrams = self.shared.take_datagrams(self.process.id, limit);
        let sound = datagrams.iter().filter_map(|datagram| {
            let sound = datagram.check();
            if sound.is_none() {
                self.shared.bad_icrc();
            }
            sound.filter(|sound| !(self.process.is_standard() && is_vendor(sound.bytes)))
        });
        let sound: Vec<_> = sound.collect();
        if !sound.is_empty() {
            each(&sound);
        }
        datagrams.len()
    }

    fn request_hop_info(&self) {}

    fn rx_watermark(&self) -> u64 {
        self.now()
    }

    fn direct_port(&self) -> u16 {
        ROCE_PORT
    }

    fn wait(&self, deadline: Option<u64>) {
        let sleep = self.sleep.lock().clone();
        match sleep {
            Some(does) => does(),
            None => {
                let next = self.shared.state.lock().next_due().into_iter().chain(deadline).min();
                if let Some(next) = next {
                    self.shared.clock.advance_to(next);
                }
            }
        }
    }

    fn kick(&self) {}
}
