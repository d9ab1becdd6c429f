//! Long messages on the local path: their receiver reads them where they lie in their sender's memory.

use crate::path::local::LocalChannel;
use crate::qp_progress::page_waits::FaultState;
use crate::queue_pair::QueuePair;
use crate::ready::Again;
use crate::request::slice_of;
use pagewire_fabric::{Direction, Fabric, RegionPart};
use pagewire_iommu::Rights;
use pagewire_memory::{Absence, ApplicationMemory, LastSeen, MemoryError, Segment, Unreached};
use pagewire_transport::RemoteAddress;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{Ordering, fence};

/// Why a packet will never be placed, through no fault of this side: the message stays unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Its sender has ended, or has ended its queue pair.
    SenderGone,
    /// Its sender's memory cannot be read: the key is dead, or nothing is mapped there any more.
    Unreadable,
}

/// Why bytes could not be pulled from their sender.
pub enum PullError {
    /// Not now: a page of the sender's comes in.
    Wait,
    /// Not now: too many accesses are under way.
    Busy,
    Lost(Lost),
    /// This side's memory is not mapped.
    NotMapped,
}

impl From<MemoryError> for PullError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::NotMapped => PullError::NotMapped,
            MemoryError::PeerNotMapped => PullError::Lost(Lost::Unreadable),
            MemoryError::PeerGone => PullError::Lost(Lost::SenderGone),
        }
    }
}

impl<F: Fabric> QueuePair<F> {
    /// Pulls what a record names from the sender's memory. The sender's queue pair must still be connected to this one, and
    /// its keys must be good: once it has flushed its requests or deregistered their memory, that is the program's again. The
    /// end of either waits for the claims.
    pub(crate) fn pull_reference(
        &self,
        channel: &LocalChannel<F>,
        from: &[(RemoteAddress, u32)],
        to: &[Segment],
        waits: &mut FaultState,
        last: bool,
    ) -> Result<(), PullError> {
        let nic = &self.nic;
        let process = &channel.channel.process;
        let memory = nic.fabric().memory();
        let (moment, mut seen) = (memory.moment(), LastSeen::default());
        let sender = self.peer();
        let connected = || channel.receptive(sender, self.number).ok_or(PullError::Lost(Lost::SenderGone));
        let (place, peer) = connected()?;
        let mut pieces = from.iter().filter(|(_, length)| *length > 0).peekable();
        let mut offset = 0;
        // One region after the other: slots for claims are few.
        while let Some(&(first, length)) = pieces.next() {
            let granted = |at: RemoteAddress, length: u32| {
                let checked = channel.peer_regions.check(
                    at.key,
                    at.address,
                    u64::from(length),
                    Rights::empty(),
                    peer.domain,
                );
                checked.map_err(|_| PullError::Lost(Lost::Unreadable))
            };
            let (regions, region) = (&channel.peer_regions, granted(first, length)?);
            let mut segments: SmallVec<[Segment; 4]> =
                smallvec![Segment { address: region.address, length: u64::from(length) }];
            while let Some(&(next, length)) = pieces.next_if(|(next, _)| next.key == first.key) {
                let address = granted(next, length)?.address;
                segments.push(Segment { address, length: u64::from(length) });
            }
            let Some(claim) = channel.own_hazards.claim(region.index, place) else {
                nic.ready(self, Again::Later);
                return Err(PullError::Busy);
            };
            // Both are asked once more behind the claim: revocation changes them first and looks for claims then.
            let valid = || match channel.peer_regions.still(&region) {
                true => connected().map(drop),
                false => Err(PullError::Lost(Lost::Unreadable)),
            };
            let bytes = segments.iter().map(|segment| segment.length).sum();
            let reached = segments.iter().try_for_each(|segment| {
                let part = RegionPart { region: region.life(), segment: *segment };
                match memory.reach(process, *segment, moment, &mut seen) {
                    Err(Unreached::Gone) => Err(PullError::Lost(Lost::SenderGone)),
                    // Its owner brings it in: see `QueuePair::wait_for_peer_page`.
                    Err(Unreached::Absent(absence))
                        if absence == Absence::UserSpace || waits.is_peer_late(nic.fabric().now()) =>
                    {
                        Err(PullError::Lost(Lost::Unreadable))
                    }
                    // It has gone since its sender brought it in.
                    Err(Unreached::Absent(absence))
                        if nic.wait_for_peer_page(self, process, regions, part, absence, waits) =>
                    {
                        Err(PullError::Wait)
                    }
                    Err(Unreached::Absent(_)) | Ok(()) => Ok(()),
                }
            });
            let pulled = reached.and_then(|()| valid()).and_then(|()| {
                let into = slice_of(to, offset, bytes);
                let last = last && pieces.peek().is_none();
                Ok(match waits.many_absent {
                    false => memory.pull(process, &segments, &into, last),
                    true => {
                        let page_in = nic.options().page_in;
                        nic.fabric().move_absent(Direction::Pull, process, (&into, &segments), last, page_in)
                    }
                }?)
            });
            // And behind the copy: revocation waits for claims no longer than its bound, and a flush does not wait beyond. A
            // process that was stopped in the midst of its copy has then read what the sender's program has put there since, and
            // must not take it for the message.
            fence(Ordering::SeqCst);
            let pulled = pulled.and_then(|()| valid());
            channel.own_hazards.release(claim);
            pulled?;
            offset += bytes;
        }
        Ok(())
    }
}
