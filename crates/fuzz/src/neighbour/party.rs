//! A process of the host with an engine: its queue pairs, its memory, and what it has posted.

use pagewire_iommu::Rights;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::device::Mtu;
use pagewire_nic::{
    AddressHandle, CompletionOpcode, CompletionQueue, Data, Destination, FlushRequest, MemoryRegion, Nic,
    Options, ProtectionDomain, QueuePair, QueuePairInit, ReceiveRequest, ScatterGather, SendOperation,
    SendRequest, Status, Unwatched,
};
use pagewire_sim::{HostId, ProcessId, SimFabric, SimMemory, World};
use std::collections::HashMap;
use std::sync::Arc;

/// First byte of everybody's memory.
pub const BASE: u64 = 0x7F00_0000_0000;
/// What nobody writes.
const UNTOUCHED: u8 = 0xEE;
/// Pages of the whole.
pub const PAGES: u64 = 48;
const PAGE: u64 = 4096;
/// Bytes of the whole.
pub const LENGTH: u64 = PAGES * PAGE;
/// From one area to the next; between them lies what nobody may touch.
const STRIDE: u64 = 12 * 4096;
/// Bytes of an area; not a whole number of pages.
pub const AREA: u64 = 10 * 4096 + 24;
const DEPTH: u32 = 64;
pub const QUEUE_KEY: u32 = 0x2222;

/// Memory of a process that a peer, or its own program for that peer, uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    /// Open to one peer, and its buffers.
    OpenToOne,
    BuffersOfOne,
    /// Open to the other peer, and its buffers.
    OpenToOther,
    BuffersOfOther,
}

impl Area {
    pub const ALL: [Area; 4] = [Area::OpenToOne, Area::BuffersOfOne, Area::OpenToOther, Area::BuffersOfOther];

    /// First byte.
    pub fn address(self) -> u64 {
        BASE + self as u64 * STRIDE + 4096 - 8
    }

    fn is_open(self) -> bool {
        matches!(self, Area::OpenToOne | Area::OpenToOther)
    }

    /// Which of the protection domains it belongs to.
    fn domain(self) -> usize {
        usize::from(matches!(self, Area::OpenToOther | Area::BuffersOfOther))
    }
}

/// A send request in few words.
pub struct Wish {
    /// Which operation: a number that is mapped to them.
    pub operation: u8,
    /// Where its bytes are.
    pub local: (Area, u64, u32),
    /// Address and key at the peer.
    pub remote: (u64, u32),
}

/// A process with its engine.
pub struct FuzzProcess {
    pub world: World,
    pub process: ProcessId,
    pub nic: Arc<Nic<SimFabric>>,
    /// For one peer and for the other.
    pub domains: [Arc<ProtectionDomain<SimFabric>>; 2],
    pub cq: Arc<CompletionQueue<SimFabric>>,
    pub queue_pairs: Vec<Arc<QueuePair<SimFabric>>>,
    pub handle: Arc<AddressHandle<SimFabric>>,
    regions: [Option<Arc<MemoryRegion<SimFabric>>>; 4],
    /// Keys, also of regions that have ended.
    pub keys: [u32; 4],
    /// What is posted and not complete: number of the queue pair, and whether it is a receive.
    outstanding: HashMap<u64, (u32, bool)>,
    next: u64,
    /// How requests ended, by number.
    pub ended: HashMap<u64, Status>,
}

impl FuzzProcess {
    /// A process with its memory registered.
    pub fn new(world: &World, host: HostId) -> Self {
        let (process, fabric) = world.process(host);
        world.map(process, BASE, LENGTH);
        world.poke(process, BASE, &[UNTOUCHED; LENGTH as usize]);
        let nic = Nic::new(fabric, Options::default());
        let context = pagewire_nic::Context::open(&nic, world.device(process), Arc::new(Unwatched));
        let domains = [context.alloc_pd().expect("a domain"), context.alloc_pd().expect("another")];
        let cq = context.create_cq(16_384, None).expect("a completion queue");
        let handle = domains[0].create_ah(&vector(world, process)).expect("an address handle");
        let mut party = FuzzProcess {
            world: world.clone(),
            process,
            nic,
            domains,
            cq,
            queue_pairs: Vec::new(),
            handle,
            regions: [const { None }; 4],
            keys: [0; 4],
            outstanding: HashMap::new(),
            next: 0,
            ended: HashMap::new(),
        };
        Area::ALL.into_iter().for_each(|area| party.register(area));
        party
    }

    /// Opens an area to peers, or to its own queue pairs.
    pub fn register(&mut self, area: Area) {
        let all = Rights::LOCAL_WRITE | Rights::REMOTE | Rights::FLUSH;
        let rights = if area.is_open() { all } else { Rights::LOCAL_WRITE };
        let address = area.address();
        let region = self.domains[area.domain()].register(address, AREA, address, rights).expect("a region");
        self.keys[area as usize] = region.rkey();
        self.regions[area as usize] = Some(region);
    }

    /// Closes it. False: somebody says to be at it, and does not end.
    pub fn deregister(&mut self, area: Area) -> bool {
        let Some(region) = &self.regions[area as usize] else { return true };
        let ended = region.deregister().is_ok();
        if ended {
            self.regions[area as usize] = None;
        }
        ended
    }

    /// A queue pair in RESET, in one of the domains.
    pub fn queue_pair(&mut self, kind: QueuePairType, domain: usize) -> usize {
        let init = QueuePairInit {
            kind,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            srq: None,
            capabilities: QpCapabilities {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 0,
            },
            signal_all: true,
            xrc: None,
        };
        self.queue_pairs
            .push(pagewire_nic::QueuePair::create(&self.domains[domain], init).expect("a queue pair"));
        self.queue_pairs.len() - 1
    }

    /// RESET to RTS, towards a queue pair of another process.
    pub fn connect(&self, index: usize, peer: ProcessId, number: u32) {
        let queue_pair = &self.queue_pairs[index];
        let (rc, connected) =
            (queue_pair.kind() == QueuePairType::Rc, queue_pair.kind() != QueuePairType::Ud);
        let all = Rights::LOCAL_WRITE | Rights::REMOTE | Rights::FLUSH;
        let init = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: connected.then_some(all),
            queue_key: (!connected).then_some(QUEUE_KEY),
            ..Default::default()
        };
        let receive = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: connected.then(|| vector(&self.world, peer)),
            path_mtu: connected.then_some(Mtu::Mtu1024),
            destination: connected.then_some(number),
            receive_psn: connected.then_some(0xFF_FFF0),
            max_dest_read_atomic: rc.then_some(4),
            min_rnr_timer: rc.then_some(1),
            ..Default::default()
        };
        let send = QueuePairChange {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(0xFF_FFF0),
            timeout: rc.then_some(10),
            retry_count: rc.then_some(7),
            rnr_retry: rc.then_some(7),
            max_read_atomic: rc.then_some(4),
            ..Default::default()
        };
        for change in [init, receive, send] {
            queue_pair.modify(&change).expect("the transition is one of the table");
        }
    }

    fn to(&self, index: usize, state: QpState) {
        let change = QueuePairChange { state: Some(state), ..Default::default() };
        // Busy: a peer says that it is still at the queue pair's memory. The state has changed.
        let _ = self.queue_pairs[index].modify(&change);
        assert_eq!(self.queue_pairs[index].state(), state);
    }

    /// Flushes a queue pair: what was posted has completed, everything once.
    pub fn flush(&mut self, index: usize) {
        self.to(index, QpState::Error);
        self.poll();
        let number = self.queue_pairs[index].number();
        let left: Vec<_> = self.outstanding.iter().filter(|(_, (of, _))| *of == number).collect();
        assert!(left.is_empty(), "queue pair {index} did not flush {left:?}");
    }

    /// Brings it to RESET.
    pub fn reset(&mut self, index: usize) {
        self.flush(index);
        self.to(index, QpState::Reset);
    }

    /// Posts a receive. Its number, if there was room.
    pub fn receive(&mut self, index: usize, (area, offset, length): (Area, u64, u32)) -> Option<u64> {
        self.next += 1;
        let wr_id = self.next;
        let key = self.keys[area as usize];
        let segments = [ScatterGather { address: area.address() + offset, length, key }];
        let queue_pair = &self.queue_pairs[index];
        self.outstanding.insert(wr_id, (queue_pair.number(), true));
        if queue_pair.post_receive(&ReceiveRequest { wr_id, segments: &segments }).is_err() {
            self.outstanding.remove(&wr_id);
            return None;
        }
        Some(wr_id)
    }

    /// Posts a send request. Its number, if it was taken.
    pub fn send(&mut self, index: usize, wish: &Wish, datagram_to: u32) -> Option<u64> {
        self.next += 1;
        let wr_id = self.next;
        let (area, offset, length) = wish.local;
        let (address, key) = wish.remote;
        let operation = match wish.operation % 10 {
            0 | 1 => SendOperation::Send,
            2 => SendOperation::SendImmediate(7),
            3 => SendOperation::Write { address, key },
            4 => SendOperation::WriteImmediate { address, key, immediate: 9 },
            5 => SendOperation::Read { address, key },
            6 => SendOperation::CompareSwap { address, key, compare: 1, swap: 2 },
            7 => SendOperation::FetchAdd { address, key, add: 3 },
            8 => SendOperation::AtomicWrite { address, key },
            _ => {
                let global = length % 2 == 0;
                let flush = FlushRequest { global, persistent: !global, whole_region: length % 3 == 0 };
                SendOperation::Flush { address, key, length, flush }
            }
        };
        let length = if wish.operation % 10 >= 6 { 8 } else { length };
        let own = self.keys[area as usize];
        let segments = [ScatterGather { address: area.address() + offset, length, key: own }];
        let queue_pair = self.queue_pairs[index].clone();
        let datagram = queue_pair.kind() == QueuePairType::Ud;
        self.outstanding.insert(wr_id, (queue_pair.number(), false));
        let request = SendRequest {
            wr_id,
            data: Data::Segments(&segments),
            operation,
            signaled: true,
            fence: false,
            solicited: false,
            destination: datagram.then_some(Destination::Address {
                address: &self.handle,
                queue_pair: datagram_to,
                queue_key: QUEUE_KEY,
            }),
        };
        if queue_pair.post_send(&request).is_err() {
            self.outstanding.remove(&wr_id);
            return None;
        }
        queue_pair.doorbell();
        Some(wr_id)
    }

    /// Send requests of a queue pair that are not complete.
    pub fn sends(&self, index: usize) -> usize {
        let number = self.queue_pairs[index].number();
        self.outstanding.values().filter(|(of, receive)| *of == number && !receive).count()
    }

    /// Takes all completions: each is of a request that was posted, once.
    pub fn poll(&mut self) {
        let (outstanding, ended) = (&mut self.outstanding, &mut self.ended);
        let mut each = |completion: &pagewire_nic::Completion| {
            let (number, receive) = outstanding
                .remove(&completion.wr_id)
                .unwrap_or_else(|| panic!("{completion:?} is of no request"));
            assert_eq!(number, completion.queue_pair);
            let received = matches!(
                completion.opcode,
                CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteImmediate
            );
            assert_eq!(receive, received, "{completion:?}");
            ended.insert(completion.wr_id, completion.status);
        };
        while self.cq.poll(64, &mut each) > 0 {}
    }

    /// Lets pages be absent.
    pub fn evict(&self, page: u64, pages: u64) {
        self.world.evict(self.process, BASE + page * PAGE, pages * PAGE);
    }

    /// Takes a page away for good.
    pub fn unmap(&self, page: u64) {
        self.world.unmap(self.process, BASE + page * PAGE, PAGE);
    }

    /// The bytes of an area.
    pub fn bytes(&self, area: Area) -> Vec<u8> {
        self.read(area.address(), AREA)
    }

    /// Changes the first bytes of an area.
    pub fn fill(&self, area: Area, bytes: &[u8]) {
        self.world.poke(self.process, area.address(), bytes);
    }

    fn read(&self, address: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        let reader = SimMemory::new(self.world.get(self.process));
        reader.read(&[Segment { address, length }], &mut bytes).expect("it is mapped");
        bytes
    }

    /// Nothing outside the areas was touched.
    pub fn check_surroundings(&self) {
        let all = self.read(BASE, LENGTH);
        let mut from = 0;
        for area in Area::ALL {
            let start = (area.address() - BASE) as usize;
            assert!(all[from..start].iter().all(|byte| *byte == UNTOUCHED), "in front of {area:?}");
            from = start + AREA as usize;
        }
        assert!(all[from..].iter().all(|byte| *byte == UNTOUCHED), "behind the last area");
    }

    /// Lets go of what a dead process leaves: its engine and its queue pairs refer to each other.
    pub fn bury(&self) {
        for queue_pair in &self.queue_pairs {
            queue_pair.destroy().expect("nothing is claimed any more");
        }
    }

    /// Destroys everything; nothing may be in the way.
    pub fn end(&mut self) {
        for index in 0..self.queue_pairs.len() {
            self.flush(index);
            self.queue_pairs[index].destroy().expect("nobody is at it");
        }
        assert!(self.outstanding.is_empty());
        for area in Area::ALL {
            assert!(self.deregister(area), "a dead process holds {area:?}");
        }
    }
}

fn vector(world: &World, of: ProcessId) -> AddressVector {
    AddressVector {
        destination_gid: world.device(of).gids[0].raw(),
        is_global: true,
        hop_limit: 64,
        port: 1,
        ..Default::default()
    }
}
