//! Accesses to registered memory of this process: check, hazard, residency, then the copy.
//!
//! Every path comes through here, with local keys and with remote ones.

use crate::engine::{Again, Nic};
use crate::limits::{BRING_IN_TRIES, TRIAL_BYTES};
use crate::queue_pair::QueuePair;
use crate::request::ScatterGather;
use pagewire_fabric::Fabric;
use pagewire_iommu::{Claim, Refusal, Rights};
use pagewire_memory::{ApplicationMemory, MemoryError, Residency, Segment};
use smallvec::SmallVec;

/// Checked pieces of this process's memory; hazards are held until [`Nic::finish`].
pub struct Access {
    pub segments: SmallVec<[Segment; 4]>,
    claims: SmallVec<[Claim; 4]>,
}

/// Why an access cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    /// Keys, bounds or rights.
    Refused(Refusal),
    /// Not mapped, though the key is valid.
    NotMapped,
    /// Not now: a page comes in, or too many accesses are under way. The queue pair will be driven again.
    Wait,
}

impl<F: Fabric> Nic<F> {
    /// Checks pieces named by keys and announces the access. With `write` the pages must be writable.
    pub fn begin(
        &self,
        queue_pair: &QueuePair<F>,
        domain: u32,
        pieces: &[ScatterGather],
        need: Rights,
        write: bool,
        waits: &mut u32,
    ) -> Result<Access, AccessError> {
        let mut access = Access { segments: SmallVec::new(), claims: SmallVec::new() };
        let mut last: Option<u32> = None;
        for piece in pieces.iter().filter(|piece| piece.length > 0) {
            let view = self.regions().view();
            let checked = view.check(piece.key, piece.address, u64::from(piece.length), need, domain);
            let outcome = checked.map_err(AccessError::Refused).and_then(|granted| {
                if last != Some(granted.index) {
                    let claim =
                        self.own_hazards().claim(granted.index, queue_pair.place).ok_or_else(|| {
                            self.ready(queue_pair, Again::Later);
                            AccessError::Wait
                        })?;
                    access.claims.push(claim);
                    last = Some(granted.index);
                }
                if view.still(&granted) { Ok(granted) } else { Err(AccessError::Refused(Refusal::Key)) }
            });
            match outcome {
                Ok(granted) => access
                    .segments
                    .push(Segment { address: granted.address, length: u64::from(piece.length) }),
                Err(error) => {
                    self.finish(access);
                    return Err(error);
                }
            }
        }
        match self.fabric().memory().residency(&access.segments) {
            Residency::Absent if *waits < BRING_IN_TRIES => {
                *waits += 1;
                queue_pair.counters.page_waits.add(1);
                let segments = std::mem::take(&mut access.segments);
                self.finish(access);
                self.fabric().bring_in(&segments, write, u64::from(queue_pair.number));
                Err(AccessError::Wait)
            }
            Residency::NotMapped => {
                self.finish(access);
                Err(AccessError::NotMapped)
            }
            Residency::Absent | Residency::Resident => {
                *waits = 0;
                Ok(access)
            }
        }
    }

    /// Ends an access.
    pub fn finish(&self, access: Access) {
        for claim in access.claims {
            self.own_hazards().release(claim);
        }
    }
}

/// Whether all of these bytes can be read now. What residency tells is not enough: pages may be protected, or lie beyond the
/// end of their file.
pub fn is_readable<M: ApplicationMemory>(memory: &M, segments: &[Segment]) -> bool {
    let longest = segments.iter().map(|segment| segment.length).max().unwrap_or(0).min(TRIAL_BYTES);
    let mut bytes = vec![0; longest as usize];
    segments.iter().all(|segment| {
        (0..segment.length).step_by(TRIAL_BYTES as usize).all(|at| {
            let length = (segment.length - at).min(TRIAL_BYTES);
            let part = [Segment { address: segment.address + at, length }];
            memory.read(&part, &mut bytes[..length as usize]).is_ok()
        })
    })
}

impl From<MemoryError> for AccessError {
    /// For copies inside this process.
    fn from(_: MemoryError) -> Self {
        AccessError::NotMapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_memory::{AtomicOperation, HostMemory, HostProcess};
    use std::sync::Mutex;

    /// Notes the buffers that are read into; from an address on nothing can be read.
    struct Noting {
        end: u64,
        reads: Mutex<Vec<(Segment, usize)>>,
    }

    impl ApplicationMemory for Noting {
        type Process = HostProcess;

        fn read(&self, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
            let mut reads = self.reads.lock().unwrap();
            reads.extend(from.iter().map(|segment| (*segment, into.len())));
            let readable = from.iter().all(|segment| segment.address + segment.length <= self.end);
            if readable { Ok(()) } else { Err(MemoryError::NotMapped) }
        }

        fn write(&self, _: &[u8], _: &[Segment], _: bool) -> Result<(), MemoryError> {
            unreachable!("nothing is written")
        }

        fn pull(&self, _: &HostProcess, _: &[Segment], _: &[Segment], _: bool) -> Result<(), MemoryError> {
            unreachable!("nothing is written")
        }

        fn push(&self, _: &HostProcess, _: &[Segment], _: &[Segment], _: bool) -> Result<(), MemoryError> {
            unreachable!("nothing is written")
        }

        fn atomic(&self, _: u64, _: AtomicOperation) -> Result<u64, MemoryError> {
            unreachable!("nothing is written")
        }

        fn residency(&self, _: &[Segment]) -> Residency {
            Residency::Resident
        }
    }

    #[test]
    fn long_memory_is_tried_in_pieces() {
        let segments = [
            Segment { address: 1 << 20, length: (1 << 31) + 5 },
            Segment { address: 1 << 33, length: 0 },
            Segment { address: 1 << 34, length: 3 },
        ];
        let memory = Noting { end: (1 << 34) + 3, reads: Mutex::default() };
        assert!(is_readable(&memory, &segments));
        let reads = memory.reads.into_inner().unwrap();
        assert!(
            reads.iter().all(|(part, buffer)| part.length == *buffer as u64 && part.length <= TRIAL_BYTES)
        );
        // One after the other, and all.
        let mut next = 1 << 20;
        for (part, _) in &reads[..reads.len() - 1] {
            assert_eq!(part.address, next);
            next += part.length;
        }
        assert_eq!(next, (1 << 20) + (1 << 31) + 5);
        assert_eq!(reads.last().unwrap().0, segments[2]);
        let shorter = Noting { end: (1 << 34) + 2, reads: Mutex::default() };
        assert!(!is_readable(&shorter, &segments));
        assert!(is_readable(&HostMemory::new(), &[]));
    }
}
