//! The memory of a process under attack: what lies where, and which bytes may change now.
//!
//! Regions and buffers have bytes around them that nobody may touch. The model is told what is permitted, never what
//! happened: whatever else changes is a violation.

use pagewire_iommu::Rights;
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_nic::{MemoryRegion, ProtectionDomain};
use pagewire_sim::{ProcessId, SimFabric, SimMemory, World};
use std::sync::Arc;

/// First byte of the memory.
const BASE: u64 = 0x7F00_0000_0000;
const PAGE: u64 = 4096;
/// Bytes of each region; not a whole number of pages.
const REGION_BYTES: u64 = 2 * PAGE + 88;
/// From one region to the next.
const REGION_STRIDE: u64 = 4 * PAGE;
/// Where a region begins in its place.
const REGION_START: u64 = 512 + 8;
/// Bytes of a buffer of the program.
pub const BUFFER_BYTES: u64 = 1024;
/// From one buffer to the next.
const BUFFER_STRIDE: u64 = BUFFER_BYTES + 32;
/// Buffers of the program.
pub const BUFFERS: usize = 96;
/// What memory holds that peers may not read.
const SECRET: u8 = 0xEE;
/// What memory holds that they may.
const OPEN: u8 = 0x11;
/// So many secret bytes in a row are no accident.
const LEAK: usize = 32;

/// Who may change a byte: one bit for each queue pair, and one for the program.
type Permits = u32;
const PROGRAM: Permits = 1 << 31;

/// A region of the process, and what it is in the test.
pub struct TestRegion {
    pub address: u64,
    pub iova: u64,
    pub rights: Rights,
    /// Of the protection domain of the queue pairs.
    pub same_domain: bool,
    pub key: u32,
    region: Option<Arc<MemoryRegion<SimFabric>>>,
}

impl TestRegion {
    /// Bytes that it holds.
    pub const LENGTH: u64 = REGION_BYTES;

    /// The bytes of the process that an access names, if the region permits it.
    fn grants(&self, key: u32, address: u64, length: u64, right: Rights) -> Option<u64> {
        let offset = address.wrapping_sub(self.iova);
        let inside = offset <= REGION_BYTES && length <= REGION_BYTES - offset;
        (self.region.is_some()
            && self.same_domain
            && key == self.key
            && self.rights.contains(right)
            && inside)
            .then(|| self.address + offset)
    }
}

/// The memory and its model.
pub struct ModelMemory {
    world: World,
    process: ProcessId,
    reader: SimMemory,
    domains: [Arc<ProtectionDomain<SimFabric>>; 2],
    pub targets: Vec<TestRegion>,
    /// The region of the program's own buffers.
    buffers: Arc<MemoryRegion<SimFabric>>,
    buffers_at: u64,
    shadow: Vec<u8>,
    permits: Vec<Permits>,
    /// What each queue pair's peer may write, to be withdrawn again: offset and length.
    granted: Vec<Vec<(usize, usize)>>,
    scratch: Vec<u8>,
}

impl ModelMemory {
    /// Maps and registers; `domains[0]` is that of the queue pairs.
    pub fn new(
        world: &World,
        process: ProcessId,
        domains: [Arc<ProtectionDomain<SimFabric>>; 2],
        queue_pairs: usize,
    ) -> Self {
        let all = Rights::LOCAL_WRITE | Rights::REMOTE | Rights::FLUSH;
        // Rights, domain, and how far the iova lies from the address.
        let kinds = [
            (all, true, 0),
            (Rights::REMOTE_READ, true, 0),
            (all, false, 0),
            (Rights::LOCAL_WRITE, true, 0),
            (all, true, 0x1234_5678_0000),
            (Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, true, 0),
            (all, true, 0),
        ];
        let buffers_at = BASE + (kinds.len() as u64 + 1) * REGION_STRIDE;
        let end = buffers_at + (BUFFERS as u64 * BUFFER_STRIDE).next_multiple_of(PAGE) + PAGE;
        let length = (end - BASE) as usize;
        world.map(process, BASE, end - BASE);
        let buffers = domains[0]
            .register(buffers_at, BUFFERS as u64 * BUFFER_STRIDE, buffers_at, Rights::LOCAL_WRITE)
            .expect("the buffers");
        let mut shadow = vec![SECRET; length];
        let mut targets = Vec::new();
        for (index, (rights, same_domain, displacement)) in kinds.into_iter().enumerate() {
            let address = BASE + (index as u64 + 1) * REGION_STRIDE + REGION_START;
            if rights.contains(Rights::REMOTE_READ) && same_domain {
                let at = (address - BASE) as usize;
                shadow[at..at + REGION_BYTES as usize].fill(OPEN);
            }
            let iova = address + displacement;
            targets.push(TestRegion { address, iova, rights, same_domain, key: 0, region: None });
        }
        world.poke(process, BASE, &shadow);
        let mut memory = ModelMemory {
            reader: SimMemory::new(world.get(process)),
            world: world.clone(),
            process,
            domains,
            targets,
            buffers,
            buffers_at,
            permits: vec![0; length],
            granted: vec![Vec::new(); queue_pairs],
            scratch: shadow.clone(),
            shadow,
        };
        for index in 0..memory.targets.len() {
            memory.register(index);
        }
        // The last one is dead, its key known.
        memory.deregister(memory.targets.len() - 1);
        memory
    }

    /// The key of the program's own buffers.
    pub fn buffer_key(&self) -> u32 {
        self.buffers.lkey()
    }

    /// The address of a buffer of the program.
    pub fn buffer(&self, index: usize) -> u64 {
        self.buffers_at + index as u64 * BUFFER_STRIDE
    }

    fn register(&mut self, index: usize) {
        let target = &mut self.targets[index];
        let domain = &self.domains[usize::from(!target.same_domain)];
        let region = domain
            .register(target.address, REGION_BYTES, target.iova, target.rights)
            .expect("there is room for regions");
        target.key = region.rkey();
        target.region = Some(region);
    }

    /// Ends a region: from now on no peer may write it.
    fn deregister(&mut self, index: usize) {
        if let Some(region) = self.targets[index].region.take() {
            region.deregister().expect("nobody is at it");
        }
        let at = (self.targets[index].address - BASE) as usize;
        self.close(at, REGION_BYTES as usize, !PROGRAM);
    }

    /// The program ends a region and registers the memory anew.
    pub fn replace(&mut self, index: usize) {
        self.deregister(index);
        self.register(index);
    }

    /// Lets pages be absent.
    pub fn evict(&self, page: u64, pages: u64) {
        let all = self.shadow.len() as u64 / PAGE;
        self.world.evict(self.process, BASE + page % all * PAGE, pages.min(all - page % all) * PAGE);
    }

    /// A packet for a queue pair, from its peer, names memory: what it may change from now on.
    pub fn grant(&mut self, queue_pair: usize, key: u32, address: u64, length: u64, right: Rights) {
        let Some(at) = self.targets.iter().find_map(|target| target.grants(key, address, length, right))
        else {
            return;
        };
        let (at, length) = ((at - BASE) as usize, length as usize);
        self.permits[at..at + length].iter_mut().for_each(|permits| *permits |= 1 << queue_pair);
        self.granted[queue_pair].push((at, length));
    }

    /// A queue pair was reset or destroyed: nothing of its peer's may change anything any more.
    pub fn withdraw(&mut self, queue_pair: usize) {
        for (at, length) in std::mem::take(&mut self.granted[queue_pair]) {
            self.close(at, length, 1 << queue_pair);
        }
    }

    /// The program waits for data in a buffer.
    pub fn expect(&mut self, buffer: usize) {
        let at = (self.buffer(buffer) - BASE) as usize;
        self.permits[at..at + BUFFER_BYTES as usize].fill(PROGRAM);
    }

    /// Its completion was polled, or can come no more: the buffer is the program's again.
    pub fn done(&mut self, buffer: usize) {
        let at = (self.buffer(buffer) - BASE) as usize;
        self.close(at, BUFFER_BYTES as usize, PROGRAM);
    }

    /// Withdraws permits; what stands where nobody has one now is what must stay.
    fn close(&mut self, at: usize, length: usize, of: Permits) {
        self.read(at, length);
        let range = at..at + length;
        let now = &self.scratch[range.clone()];
        let model = self.permits[range.clone()].iter_mut().zip(&mut self.shadow[range]);
        for ((permits, shadow), now) in model.zip(now) {
            let before = *permits;
            *permits = before & !of;
            *shadow = if before != 0 && *permits == 0 { *now } else { *shadow };
        }
    }

    fn read(&mut self, at: usize, length: usize) {
        let piece = Segment { address: BASE + at as u64, length: length as u64 };
        self.reader.read(&[piece], &mut self.scratch[at..at + length]).expect("it is mapped");
    }

    /// Nothing changed that may not.
    pub fn check(&mut self) {
        self.read(0, self.shadow.len());
        let pages = self.scratch.chunks(PAGE as usize).zip(self.shadow.chunks(PAGE as usize));
        let changed = pages.enumerate().filter(|(_, (now, then))| now != then);
        for (page, (now, then)) in changed {
            for (offset, (now, then)) in now.iter().zip(then).enumerate() {
                let at = page * PAGE as usize + offset;
                assert!(
                    now == then || self.permits[at] != 0,
                    "byte {:#x} was {then:#x}, is {now:#x}, and nobody may write it",
                    BASE + at as u64
                );
            }
        }
    }

    /// What a peer was given to read holds nothing secret.
    pub fn check_disclosed(bytes: &[u8]) {
        let mut run = 0;
        for byte in bytes {
            run = if *byte == SECRET { run + 1 } else { 0 };
            assert!(run < LEAK, "a peer read memory that it has no key for");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no key for")]
    fn a_read_of_what_is_secret_is_found() {
        ModelMemory::check_disclosed(&[SECRET; LEAK]);
    }

    #[test]
    fn a_read_of_what_is_open_is_none() {
        ModelMemory::check_disclosed(&[OPEN; 2 * LEAK]);
        ModelMemory::check_disclosed(&[SECRET; LEAK - 1]);
    }
}
