//! Long messages on the local path: their receiver reads them where they lie in their sender's memory.
//!
//! The sender's queue pair must still be connected to the receiver's, and its keys must be good: once it has flushed its requests or
//! deregistered their memory, that is the program's again. The end of either waits for the claims.

use crate::access::fault_state::FaultState;
use crate::access::page_faults::PeerMemory;
use crate::access::{Accesses, Claimant};
use crate::path::local::{LocalChannel, PublishedQueuePair};
use crate::services::Services;
use crate::types::outcome::{AccessError, AccessResult, Cause};
use crate::types::sge::slice_of;
use pagewire_fabric::{Direction, Fabric, PageInThreads, RegionPart};
use pagewire_iommu::{AccessScope, Granted, Rights};
use pagewire_memory::{Absence, ApplicationMemory, LastSeen, MemoryError, RemoteMemory, Segment, Unreached};
use pagewire_transport::{Reason, RemoteAddress};
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{Ordering, fence};

/// The receiver's cross-memory read of one message.
pub struct ReceiverRead<'a, F: Fabric, R> {
    pub services: &'a Services<F>,
    pub by: &'a Claimant,
    pub channel: &'a LocalChannel<F>,
    pub remote: R,
    /// Number of the sender's queue pair.
    pub sender: u32,
    pub fault: &'a mut FaultState,
}

/// Where a message is read to.
pub enum CopyTarget<'a> {
    /// Memory of the application.
    Segments(&'a [Segment]),
    /// Bytes of the engine.
    Bytes(&'a mut [u8]),
}

/// The part of a message in one region of the sender.
struct MessagePart<'a> {
    /// Of the sender's queue pair.
    place: u32,
    region: Granted,
    segments: &'a [Segment],
    into: CopyTarget<'a>,
    /// Nothing of the message follows.
    last: bool,
}

impl<F: Fabric, R: RemoteMemory> ReceiverRead<'_, F, R> {
    /// Reads the pieces that a record names into memory of this process; `last`: the message ends with them.
    pub fn read(
        &mut self,
        from: &[(RemoteAddress, u32)],
        mut to: CopyTarget<'_>,
        last: bool,
    ) -> AccessResult<()> {
        let (moment, mut seen) = (self.services.fabric.memory().moment(), LastSeen::default());
        let (place, sender) = self.connected()?;
        let mut pieces = from.iter().filter(|(_, length)| *length > 0).peekable();
        let mut offset = 0;
        // One region after the other: slots for claims are few.
        while let Some(&(first, length)) = pieces.next() {
            let region = self.locate(first, length, sender.domain)?;
            let mut segments: SmallVec<[Segment; 4]> =
                smallvec![Segment { address: region.address, length: length.into() }];
            while let Some(&(next, length)) = pieces.next_if(|(next, _)| next.key == first.key) {
                let address = self.locate(next, length, sender.domain)?.address;
                segments.push(Segment { address, length: length.into() });
            }
            let bytes = segments.iter().map(|segment| segment.length).sum();
            let last = last && pieces.peek().is_none();
            let cut;
            let into = match &mut to {
                CopyTarget::Segments(to) => {
                    cut = slice_of(to, offset, bytes);
                    CopyTarget::Segments(&cut)
                }
                CopyTarget::Bytes(to) => {
                    CopyTarget::Bytes(&mut to[offset as usize..(offset + bytes) as usize])
                }
            };
            let part = &mut MessagePart { place, region, segments: &segments, into, last };
            self.read_part(part, moment, &mut seen)?;
            offset += bytes;
        }
        Ok(())
    }

    fn connected(&self) -> AccessResult<(u32, PublishedQueuePair)> {
        let sender = self.channel.receptive(self.sender, self.by.number);
        sender.ok_or(AccessError::Refused(Cause::PeerGone))
    }

    fn locate(&self, at: RemoteAddress, length: u32, domain: u32) -> AccessResult<Granted> {
        let regions = &self.channel.peer_regions;
        let checked =
            regions.check(at.key, at.address, length.into(), Rights::empty(), AccessScope::of_domain(domain));
        checked.map_err(|_| AccessError::Refused(Cause::PeerUnreadable))
    }

    /// Reads the part of a message in one region, under a claim.
    fn read_part(
        &mut self,
        part: &mut MessagePart<'_>,
        moment: u64,
        seen: &mut LastSeen,
    ) -> AccessResult<()> {
        let claim = self.channel.own_hazards.claim(part.region.index, part.place);
        let claim = claim.ok_or(AccessError::Wait(Reason::NoClaim))?;
        // Both are asked once more behind the claim: revocation changes them first and looks for claims then.
        let reached = part.segments.iter().try_for_each(|segment| self.reach(part, *segment, moment, seen));
        let read = reached.and_then(|()| self.verify(part)).and_then(|()| self.copy(part));
        // And behind the copy: revocation waits for claims no longer than its bound, and a flush does not wait beyond. A
        // process that was stopped in the midst of its copy has then read what the sender's program has put there since, and
        // must not take it for the message.
        fence(Ordering::SeqCst);
        let read = read.and_then(|()| self.verify(part));
        self.channel.own_hazards.release(claim);
        read
    }

    /// Whether region and queue pair of the sender are what they were.
    fn verify(&self, part: &MessagePart<'_>) -> AccessResult<()> {
        match self.channel.peer_regions.still(&part.region) {
            true => self.connected().map(drop),
            false => Err(AccessError::Refused(Cause::PeerUnreadable)),
        }
    }

    fn reach(
        &mut self,
        part: &MessagePart<'_>,
        segment: Segment,
        moment: u64,
        seen: &mut LastSeen,
    ) -> AccessResult<()> {
        let absence = match self.remote.reach(segment, moment, seen) {
            Ok(()) => return Ok(()),
            Err(Unreached::Gone) => return Err(AccessError::Refused(Cause::PeerGone)),
            Err(Unreached::Absent(_)) if self.is_denied() => {
                return Err(AccessError::Refused(Cause::PeerUnreadable));
            }
            // Its owner brings it in: see `LocalPath::wait_for_peer_page`.
            Err(Unreached::Absent(absence))
                if absence == Absence::UserSpace || self.fault.is_peer_late(self.services.fabric.now()) =>
            {
                return Err(AccessError::Refused(Cause::PeerUnreadable));
            }
            // It has gone since its sender brought it in.
            Err(Unreached::Absent(absence)) => absence,
        };
        let (process, regions) = (&self.channel.channel.process, &self.channel.peer_regions);
        let peer = PeerMemory { process, regions };
        let part = RegionPart { region: part.region.life(), segment };
        match Accesses(self.services).wait_for_peer_page(self.by, peer, part, absence, self.fault) {
            true => Err(AccessError::Wait(Reason::Page)),
            false => Ok(()),
        }
    }

    /// Whether the kernel denies access to the sender: none of its pages can be seen or brought in.
    fn is_denied(&self) -> bool {
        let is_denied = self.services.fabric.memory().is_denied(&self.channel.channel.process);
        if is_denied {
            self.channel.set_denied();
        }
        is_denied
    }

    fn copy(&self, part: &mut MessagePart<'_>) -> AccessResult<()> {
        let (fabric, process) = (&self.services.fabric, &self.channel.channel.process);
        let (segments, last) = (part.segments, part.last);
        let into = match &mut part.into {
            CopyTarget::Segments(into) => *into,
            CopyTarget::Bytes(into) => {
                return self.remote.get_bytes(segments, into).map_err(|error| self.not_copied(error));
            }
        };
        let page_in = self.services.options.page_in;
        let copied = match self.fault.many_absent {
            false => self.remote.get(segments, into, last),
            true => fabric.page_in().move_absent(Direction::Pull, process, (into, segments), last, page_in),
        };
        copied.map_err(|error| self.not_copied(error))
    }

    /// What becomes of a message that was not read. Where the kernel denies access, this process does not try transfers of its own.
    #[cold]
    fn not_copied(&self, error: MemoryError) -> AccessError {
        if error == MemoryError::PeerDenied {
            self.channel.set_denied();
        }
        error.into()
    }
}
