//! The memory of simulated processes, as an engine copies from and to it.

use crate::limits::{FAULT_TIME, PAGE};
use crate::plant::Plant;
use crate::process::VirtualProcess;
use pagewire_iommu::words::Site;
use pagewire_memory::{
    Absence, ApplicationMemory, AtomicOperation, LastSeen, MemoryError, Residency, Segment, SyncError,
    Unreached, part_of,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A process writes its own memory, or another's.
pub const WRITE: Site = Site("memory.write");
/// It writes the last bytes of a message.
pub const TAIL: Site = Site("memory.tail");
/// It runs an atomic.
pub const ATOMIC: Site = Site("memory.atomic");

/// Bytes that become visible last.
const TAIL_BYTES: usize = 8;

/// The application memory of one simulated process.
#[derive(Clone)]
pub struct SimMemory(Arc<VirtualProcess>);

/// A peer whose memory may be touched.
#[derive(Clone)]
pub struct SimProcess(pub(crate) Arc<VirtualProcess>);

impl SimMemory {
    /// The memory of `process`, as its engine touches it.
    pub fn new(process: Arc<VirtualProcess>) -> Self {
        SimMemory(process)
    }

    fn gather(&self, of: &VirtualProcess, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
        let mut at = 0;
        let mut absent = 0;
        let mut space = of.space.lock();
        for segment in from {
            let take = segment.length.min((into.len() - at) as u64);
            if take == 0 {
                continue;
            }
            let (bytes, faults) = space.touch(segment.address, take)?;
            into[at..at + take as usize].copy_from_slice(bytes);
            at += take as usize;
            absent += faults;
        }
        drop(space);
        self.0.clock.pass(absent * FAULT_TIME);
        Ok(())
    }

    /// Writes page by page; between any two the process may end. The last bytes come last.
    fn scatter(
        &self,
        of: &VirtualProcess,
        bytes: &[u8],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        let room: u64 = to.iter().map(|segment| segment.length).sum();
        let length = bytes.len().min(room as usize);
        let body = if tail_last { length - length.min(TAIL_BYTES) } else { length };
        for (from, until, site) in [(0, body, WRITE), (body, length, TAIL)] {
            let mut at = 0;
            for segment in to {
                let end = at + segment.length as usize;
                let (mut start, stop) = (at.max(from), end.min(until));
                while start < stop {
                    let address = segment.address + (start - at) as u64;
                    let take = ((PAGE - address % PAGE) as usize).min(stop - start);
                    self.put(of, address, &bytes[start..start + take], site)?;
                    start += take;
                }
                at = end;
            }
        }
        Ok(())
    }

    fn put(&self, of: &VirtualProcess, address: u64, bytes: &[u8], site: Site) -> Result<(), MemoryError> {
        if !self.0.step(site) {
            return Err(MemoryError::PeerGone);
        }
        let mut space = of.space.lock();
        let (into, absent) = space.touch(address, bytes.len() as u64)?;
        into.copy_from_slice(bytes);
        match self.0.plant.fires(bytes.len(), site == TAIL) {
            Some(Plant::LostByte) => into[bytes.len() / 2] ^= 0x5A,
            Some(Plant::Overrun) => {
                if let Ok((beyond, _)) = space.touch(address + bytes.len() as u64, 1) {
                    beyond[0] ^= 0xA5;
                }
            }
            Some(Plant::Panic) => panic!("a copy of {} bytes panics, as was planted", bytes.len()),
            Some(Plant::AtomicTwice) | None => {}
        }
        drop(space);
        self.0.clock.pass(absent * FAULT_TIME);
        Ok(())
    }

    /// Whether memory of another process can be touched from this one.
    fn reach(&self, process: &SimProcess, segments: &[Segment]) -> Result<(), MemoryError> {
        let other = &process.0;
        if !self.0.is_alive() || !other.is_alive() {
            return Err(MemoryError::PeerGone);
        }
        if self.0.clock.now() < other.pages_from.load(Ordering::Relaxed) {
            let mut space = other.space.lock();
            if segments.iter().any(|segment| space.residency(segment) == Residency::Absent) {
                return Err(MemoryError::PeerNotMapped);
            }
        }
        Ok(())
    }
}

/// What is not mapped is the other process's.
fn of_peer(error: MemoryError) -> MemoryError {
    match error {
        MemoryError::NotMapped => MemoryError::PeerNotMapped,
        other => other,
    }
}

fn total(segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.length as usize).sum()
}

impl ApplicationMemory for SimMemory {
    type RemoteProcess = SimProcess;

    fn read(&self, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
        self.gather(&self.0, from, into)
    }

    fn write(&self, from: &[u8], to: &[Segment], tail_last: bool) -> Result<(), MemoryError> {
        self.scatter(&self.0, from, to, tail_last)
    }

    fn pull(
        &self,
        process: &SimProcess,
        from: &[Segment],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        self.reach(process, from)?;
        let length = total(from).min(total(to));
        let mut at = 0;
        // Page by page, as the kernel does: what the peer changes meanwhile may be seen. The tail is never cut.
        while at < length {
            let left = length - at;
            let size = if left > 2 * PAGE as usize { PAGE as usize } else { left };
            let mut bytes = vec![0; size];
            self.gather(&process.0, &part_of(from, at as u64, size as u64), &mut bytes).map_err(of_peer)?;
            at += size;
            self.scatter(
                &self.0,
                &bytes,
                &part_of(to, (at - size) as u64, size as u64),
                tail_last && at == length,
            )?;
        }
        Ok(())
    }

    fn pull_bytes(&self, process: &SimProcess, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
        self.reach(process, from)?;
        self.gather(&process.0, from, into).map_err(of_peer)
    }

    fn push(
        &self,
        process: &SimProcess,
        from: &[Segment],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        self.reach(process, to)?;
        let mut bytes = vec![0; total(from).min(total(to))];
        self.gather(&self.0, from, &mut bytes)?;
        self.scatter(&process.0, &bytes, to, tail_last)
    }

    fn push_bytes(
        &self,
        process: &SimProcess,
        from: &[u8],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        self.reach(process, to)?;
        self.scatter(&process.0, from, to, tail_last)
    }

    fn atomic(&self, address: u64, operation: AtomicOperation) -> Result<u64, MemoryError> {
        assert_eq!(address % 8, 0);
        if !self.0.step(ATOMIC) {
            return Err(MemoryError::PeerGone);
        }
        let times = if self.0.plant.fires_at_atomic() { 2 } else { 1 };
        let mut space = self.0.space.lock();
        let (bytes, absent) = space.touch(address, 8)?;
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        let original = u64::from_ne_bytes(word);
        let mut value = original;
        for _ in 0..times {
            value = match operation {
                AtomicOperation::CompareSwap { compare, swap } if value == compare => swap,
                AtomicOperation::CompareSwap { .. } => value,
                AtomicOperation::FetchAdd { add } => value.wrapping_add(add),
            };
        }
        bytes.copy_from_slice(&value.to_ne_bytes());
        drop(space);
        self.0.clock.pass(absent * FAULT_TIME);
        Ok(original)
    }

    fn residency(&self, segments: &[Segment]) -> Residency {
        let mut space = self.0.space.lock();
        let mut all = Residency::Resident;
        for segment in segments {
            match space.residency(segment) {
                Residency::Resident => {}
                Residency::Absent => all = Residency::Absent,
                Residency::NotMapped => return Residency::NotMapped,
            }
        }
        all
    }

    fn absence(&self, segments: &[Segment]) -> Absence {
        let mut space = self.0.space.lock();
        segments.iter().map(|segment| space.absence(segment)).max().unwrap_or(Absence::Cheap)
    }

    fn bring_in(&self, segment: &Segment, _write: bool) -> Result<(), MemoryError> {
        let (_, absent) = self.0.space.lock().touch(segment.address, segment.length)?;
        self.0.clock.pass(absent * FAULT_TIME);
        Ok(())
    }

    fn check_persistent(&self, _segment: Segment) -> Result<(), SyncError> {
        Ok(())
    }

    fn reach(
        &self,
        process: &SimProcess,
        segment: Segment,
        _moment: u64,
        _seen: &mut LastSeen,
    ) -> Result<(), Unreached> {
        let mut space = process.0.space.lock();
        match space.residency(&segment) {
            Residency::Absent => Err(Unreached::Absent(space.absence(&segment))),
            // What is not mapped the access finds out.
            Residency::Resident | Residency::NotMapped => Ok(()),
        }
    }
}
