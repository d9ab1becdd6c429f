//! One party: an engine, its memory, and the model of that memory.

use super::connection::PostedReceive;
use super::pattern;
use super::space::{FreeSpace, RequestRange};
use super::window::{WINDOW, WindowModel};
use pagewire_fabric::Fabric;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::device::Device;
use pagewire_nic::{
    CompletionQueue, Context, Error, MemoryRegion, Nic, ProtectionDomain, Rights, ScatterGather,
    SharedReceiveInit, SharedReceiveQueue, XrcDomain,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// An engine that takes part, and memory of its process that only the workload uses.
pub struct PartyInit<F: Fabric> {
    pub nic: Arc<Nic<F>>,
    pub device: Device,
    /// First byte, on a page boundary.
    pub address: u64,
    /// Bytes; [`PartyInit::MEMORY`] for messages of up to 1 MiB and 64 connections.
    pub length: u64,
    /// It knows nothing of Pagewire's own packets: where packets are lost, it and its peers give connections up.
    pub standard: bool,
    /// Its memory can be made persistent.
    pub is_persistent: bool,
}

/// How many ends of connections a party has.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndCounts {
    pub all: usize,
    /// Those that have a window.
    pub windows: usize,
    /// Those that receive by XRC.
    pub extended: usize,
    /// Sides of native connections.
    pub natives: usize,
}

impl<F: Fabric> PartyInit<F> {
    /// Bytes that a party needs for the usual plan.
    pub const MEMORY: u64 = 48 << 20;
}

pub const PAGE: u64 = 4096;
/// Words that atomics work on.
pub const ATOMIC_WORDS: u64 = 64;
/// Bytes of one side of a native connection: whole pages.
pub const NATIVE: u64 = 16 << 10;
const DATA_ZONES: usize = 8;
/// Bytes in which regions come and go, an eighth of a small party's memory.
const TEMPORARY: u64 = 1 << 20;
/// Bytes of the receives in a shared receive queue.
pub const SHARED_RECEIVE: u64 = 4096;
const SHARED_RECEIVES: u32 = 128;
/// Shared receive queues of the XRC domain of a party.
pub const XRC_QUEUES: usize = 2;

/// Bytes that the native connections of a party need, with a page that no region covers.
fn native_bytes(ends: EndCounts) -> u64 {
    if ends.natives == 0 { 0 } else { NATIVE * ends.natives as u64 + PAGE }
}

/// What a zone is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneUse {
    Atomics,
    Windows,
    Temporary,
    Receives,
    Data,
    /// Native connections, which know by themselves what it holds.
    Native,
}

/// A stretch of memory that is registered as a whole.
pub struct Zone<F: Fabric> {
    pub kind: ZoneUse,
    pub address: u64,
    pub length: u64,
    pub space: FreeSpace,
    pub region: Option<Arc<MemoryRegion<F>>>,
    /// About to be deregistered: nothing new is placed here.
    pub closing: bool,
}

/// A shared receive queue.
pub struct SharedQueue<F: Fabric> {
    pub queue: Arc<SharedReceiveQueue<F>>,
    /// Posted and not complete.
    pub receives: HashMap<u64, PostedReceive>,
}

impl<F: Fabric> From<Arc<SharedReceiveQueue<F>>> for SharedQueue<F> {
    fn from(queue: Arc<SharedReceiveQueue<F>>) -> Self {
        SharedQueue { queue, receives: HashMap::new() }
    }
}

/// A party.
pub struct Party<F: Fabric> {
    pub nic: Arc<Nic<F>>,
    pub context: Arc<Context<F>>,
    pub domain: Arc<ProtectionDomain<F>>,
    pub zones: Vec<Zone<F>>,
    pub send_cq: Arc<CompletionQueue<F>>,
    pub receive_cq: Arc<CompletionQueue<F>>,
    /// For sends and receives of some queue pairs.
    pub common_cq: Arc<CompletionQueue<F>>,
    /// Of its queue pairs of type XRC_RECV, if it has any.
    pub xrc: Option<Arc<XrcDomain<F>>>,
    /// The first is for some queue pairs of RC. The others are of `xrc`, and each message says for which it is.
    pub shared: Vec<SharedQueue<F>>,
    /// It has died, and when that was noticed.
    pub dead: bool,
    pub died_at: u64,
    pub standard: bool,
    pub is_persistent: bool,
    pub windows_taken: u64,
    base: u64,
    shadow: Vec<u8>,
    /// Ranges whose bytes are not known now: first byte and end.
    flux: BTreeMap<u64, u64>,
}

impl<F: Fabric> Party<F> {
    /// Bytes of memory that suffice for these ends and some pages in each zone.
    pub fn least_memory(ends: EndCounts) -> u64 {
        let fixed = WINDOW * ends.windows.max(1) as u64 + 4 * PAGE;
        let rest = (DATA_ZONES as u64 + 4) * 4 * PAGE;
        // An eighth is for temporary regions.
        (fixed + rest) / 7 * 8 + 8 * PAGE + native_bytes(ends)
    }

    /// Registers the memory, fills it and makes the queues.
    pub fn new(init: PartyInit<F>, random: &mut fastrand::Rng, ends: EndCounts) -> Result<Self, Error> {
        let context = pagewire_nic::Context::open(&init.nic, init.device, Arc::new(pagewire_nic::Unwatched));
        let domain = context.alloc_pd()?;
        let entries = ends.all as u32 * 80 + 1024;
        let shared = SharedReceiveInit { max_wr: SHARED_RECEIVES, max_sge: 8, limit: 0 };
        let srq = SharedReceiveQueue::create(&domain, &shared)?;
        let receive_cq = context.create_cq(entries, None)?;
        let mut queues = vec![srq.into()];
        let xrc = if ends.extended > 0 { Some(context.open_xrcd()?) } else { None };
        for xrc in xrc.iter().flat_map(|xrc| [xrc; XRC_QUEUES]) {
            queues.push(xrc.create_queue(&domain, &shared, &receive_cq)?.into());
        }
        let mut party = Party {
            send_cq: context.create_cq(entries, None)?,
            receive_cq,
            common_cq: context.create_cq(entries, None)?,
            nic: init.nic,
            context,
            domain,
            zones: Vec::new(),
            xrc,
            shared: queues,
            dead: false,
            died_at: 0,
            standard: init.standard,
            is_persistent: init.is_persistent,
            windows_taken: 0,
            base: init.address,
            shadow: vec![0; init.length as usize],
            flux: BTreeMap::new(),
        };
        let mut next = init.address;
        let end = init.address + init.length - native_bytes(ends);
        party.add_zone(ZoneUse::Atomics, &mut next, ATOMIC_WORDS * 8)?;
        party.add_zone(ZoneUse::Windows, &mut next, WINDOW * ends.windows.max(1) as u64)?;
        party.add_zone(ZoneUse::Temporary, &mut next, TEMPORARY.min(init.length / 8))?;
        let rest = (end - next) / (DATA_ZONES as u64 + 4) - 2 * PAGE;
        party.add_zone(ZoneUse::Receives, &mut next, 4 * rest)?;
        for _ in 0..DATA_ZONES {
            party.add_zone(ZoneUse::Data, &mut next, rest)?;
        }
        let mut bytes = vec![0; init.length as usize];
        pattern::fill(random.u64(..), &mut bytes);
        // The windows start empty, and what lies behind the last zone is not used.
        let windows = (party.zones[1].address - init.address) as usize;
        bytes[windows..windows + party.zones[1].length as usize].fill(0);
        party.program_writes(init.address, &bytes);
        if ends.natives > 0 {
            let mut next = end;
            party.add_zone(ZoneUse::Native, &mut next, NATIVE * ends.natives as u64)?;
            party.unsettle(end, NATIVE * ends.natives as u64);
        }
        Ok(party)
    }

    fn add_zone(&mut self, kind: ZoneUse, next: &mut u64, length: u64) -> Result<(), Error> {
        let length = length.next_multiple_of(PAGE);
        let mut zone = Zone {
            kind,
            address: *next,
            length,
            space: FreeSpace::new(*next, length),
            region: None,
            closing: false,
        };
        if kind != ZoneUse::Temporary {
            zone.region = Some(self.register(*next, length)?);
        }
        self.zones.push(zone);
        // A page that no region covers.
        *next += length + PAGE;
        Ok(())
    }

    /// Registers memory with all rights.
    pub fn register(&self, address: u64, length: u64) -> Result<Arc<MemoryRegion<F>>, Error> {
        let mut rights =
            Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
        rights |= Rights::FLUSH_GLOBAL;
        rights.set(Rights::FLUSH_PERSISTENT, self.is_persistent);
        self.domain.register(address, length, address, rights)
    }

    /// Registers memory which peers reach by windows alone.
    pub fn register_for_windows(&self, address: u64, length: u64) -> Result<Arc<MemoryRegion<F>>, Error> {
        let rights = Rights::LOCAL_WRITE | Rights::MEMORY_WINDOW_BIND | Rights::FLUSH_GLOBAL;
        self.domain.register(address, length, address, rights)
    }

    /// Takes a range in a zone of a kind.
    pub fn take(
        &mut self,
        random: &mut fastrand::Rng,
        kind: ZoneUse,
        length: u64,
        aligned: bool,
    ) -> Option<RequestRange> {
        let start = random.usize(0..self.zones.len());
        for offset in 0..self.zones.len() {
            let index = (start + offset) % self.zones.len();
            let zone = &mut self.zones[index];
            if zone.kind == kind && !zone.closing {
                if let Some(range) = zone.space.take(random, index, length, aligned) {
                    return Some(range);
                }
            }
        }
        None
    }

    /// Looks at the bytes around a range; where the first is that was touched.
    pub fn touched_guard(&self, range: &RequestRange) -> Option<u64> {
        range.guards().into_iter().filter(|(_, length)| *length > 0 && !self.dead).find_map(
            |(address, length)| {
                let place =
                    pattern::difference(&self.memory(address, length), self.expected(address, length))?;
                Some(address + place as u64)
            },
        )
    }

    /// Takes the next window; `salt` decides its bytes.
    pub fn take_window(&mut self, salt: u64) -> WindowModel {
        let range = RequestRange::fixed(1, self.zones[1].address + self.windows_taken * WINDOW, WINDOW);
        self.windows_taken += 1;
        self.unsettle(range.address, range.length);
        WindowModel::new(range, salt)
    }

    /// The memory of a native connection, by its number among those of this party, and its key.
    pub fn native_memory(&self, number: usize) -> Option<(u64, u32)> {
        let zone = self.zones.iter().find(|zone| zone.kind == ZoneUse::Native)?;
        Some((zone.address + NATIVE * number as u64, zone.region.as_ref()?.lkey()))
    }

    /// Takes 1 to `pieces` ranges that hold `length` bytes together.
    pub fn take_pieces(
        &mut self,
        random: &mut fastrand::Rng,
        kind: ZoneUse,
        length: u64,
        pieces: usize,
    ) -> Option<Vec<RequestRange>> {
        let mut taken = Vec::with_capacity(pieces);
        let mut left = length;
        for piece in (0..pieces).rev() {
            let size = if piece == 0 { left } else { random.u64(0..=left) };
            match self.take(random, kind, size, false) {
                Some(range) => taken.push(range),
                None => {
                    taken.iter().for_each(|range| self.give_back(range));
                    return None;
                }
            }
            left -= size;
        }
        Some(taken)
    }

    /// Gives a range back.
    pub fn give_back(&mut self, range: &RequestRange) {
        self.zones[range.zone].space.give_back(range);
    }

    /// The key of a range.
    pub fn key(&self, range: &RequestRange) -> u32 {
        self.zones[range.zone].region.as_ref().map_or(0, |region| region.lkey())
    }

    /// Ranges as a scatter-gather list.
    pub fn segments(&self, ranges: &[RequestRange]) -> Vec<ScatterGather> {
        ranges
            .iter()
            .map(|range| ScatterGather {
                address: range.address,
                length: range.length as u32,
                key: self.key(range),
            })
            .collect()
    }

    /// What the memory really holds.
    pub fn memory(&self, address: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        let read = self.nic.fabric().memory().read(&[Segment { address, length }], &mut bytes);
        assert!(self.dead || read.is_ok(), "the workload's own memory cannot be read: {read:?}");
        bytes
    }

    /// The program itself writes.
    pub fn program_writes(&mut self, address: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let to = [Segment { address, length: bytes.len() as u64 }];
        // A process that is ended in the middle of this writes no more.
        let _ = self.nic.fabric().memory().write(bytes, &to, false);
        self.expect(address, bytes);
    }

    /// The model: what the memory must hold.
    pub fn expected(&self, address: u64, length: u64) -> &[u8] {
        let at = (address - self.base) as usize;
        &self.shadow[at..at + length as usize]
    }

    /// From now on the memory must hold these bytes.
    pub fn expect(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - self.base) as usize;
        self.shadow[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes of a range may change from now on.
    pub fn unsettle(&mut self, address: u64, length: u64) {
        if length > 0 {
            self.flux.insert(address, address + length);
        }
    }

    /// The bytes of a range are what the model says again.
    pub fn leave_flux(&mut self, address: u64) {
        self.flux.remove(&address);
    }

    /// Compares all memory with the model, but for what may change. Gives the bytes compared, or where the first difference is.
    pub fn compare(&self) -> Result<u64, u64> {
        let bytes = self.memory(self.base, self.shadow.len() as u64);
        let mut at = self.base;
        let mut compared = 0;
        let end = self.base + self.shadow.len() as u64;
        for (start, stop) in self.flux.iter().map(|(start, stop)| (*start, *stop)).chain([(end, end)]) {
            if start > at {
                let (from, to) = ((at - self.base) as usize, (start - self.base) as usize);
                if let Some(place) = pattern::difference(&bytes[from..to], &self.shadow[from..to]) {
                    return Err(at + place as u64);
                }
                compared += start - at;
            }
            at = at.max(stop);
        }
        Ok(compared)
    }
}
