//! Accesses to registered memory of this process: check, hazard, residency, then the copy.
//!
//! Every path comes through here, with local keys and with remote ones.

use crate::engine::{Again, Nic};
use crate::limits::BRING_IN_TRIES;
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

impl From<MemoryError> for AccessError {
    /// For copies inside this process.
    fn from(_: MemoryError) -> Self {
        AccessError::NotMapped
    }
}
