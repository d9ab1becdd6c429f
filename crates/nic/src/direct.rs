//! WRITEs and READs that the initiator executes itself, in the memory of a local peer.
//!
//! No thread of the peer takes part, and no packet leaves. What cannot be done this way goes as packets, and the peer
//! gives the verdict.

use crate::access::{AccessError, Pass};
use crate::attributes::QueuePairType;
use crate::completion::{self, Completion, Status};
use crate::drive::page_waits::{Asked, Purpose};
use crate::drive::{Core, LocalWay, Passes};
use crate::path::local::{LocalChannel, ProcessOf, PublishedQueuePair};
use crate::path::ring::Kind;
use crate::queue_pair::QueuePair;
use crate::ready::Again;
use crate::request::{Data, ScatterGather, SendRequest};
use pagewire_fabric::{Direction, Fabric, RegionPart};
use pagewire_iommu::{RegionView, Rights};
use pagewire_memory::{Absence, ApplicationMemory, MemoryError, Segment, Unreached};
use pagewire_transport::{Direct, Operation, RemoteAddress, Work};
use pagewire_wire::{Bth, Header, Opcode, bth};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// What is moved, and which way.
pub struct Transfer {
    remote: RemoteAddress,
    length: u32,
    reads: bool,
}

impl Transfer {
    /// `None`: this is no plain WRITE or READ.
    pub fn of(work: &Work) -> Option<Transfer> {
        Transfer::new(&work.operation, work.length)
    }

    /// The same of an operation with so many bytes.
    pub fn new(operation: &Operation, length: u32) -> Option<Transfer> {
        match *operation {
            Operation::Write { remote, immediate: None } => Some(Transfer { remote, length, reads: false }),
            Operation::Read { remote } => Some(Transfer { remote, length, reads: true }),
            _ => None,
        }
    }
}

/// Where the bytes are at this side.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// Copied when the request was posted.
    Inline(&'a [u8]),
    Segments(&'a [ScatterGather]),
}

/// Where in a local peer the last transfer went, most probably the next one's place, too. What may have changed since is looked at behind
/// the claim.
#[derive(Clone, Copy)]
pub struct Far {
    /// Of the peer's queue pair, in the peer's tables.
    place: u32,
    pass: Pass,
}

impl<F: Fabric> QueuePair<F> {
    /// Executes a transfer in the memory of a local peer. What has waited for pages and is not `Done` or `Wait` ends its wait with
    /// [`end_direct_wait`](Self::end_direct_wait).
    pub(crate) fn execute(&self, way: LocalWay<'_, F>, transfer: &Transfer, bytes: Bytes<'_>) -> Direct {
        let nic = &self.nic;
        let &Transfer { remote, length, reads } = transfer;
        let LocalWay { channel, send_psn, waits, passes, told } = way;
        let Passes { send: near, far, seen_here, seen_there, .. } = passes;
        let process = &channel.channel.process;
        if channel.is_gone() {
            return Direct::Unavailable;
        }
        let need = if reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
        let find = || {
            let found = channel.receptive(self.peer(), self.number);
            found.filter(|(_, peer)| self.is_let_in(peer, send_psn, need))
        };
        if length == 0 {
            let Some((place, _)) = find() else { return Direct::Unavailable };
            self.tell_begun(channel, send_psn, place, told);
            self.counters.direct_operations.add_alone(1);
            return Direct::Done;
        }
        let is_known = |far: &Far| {
            far.pass.names(remote.key, need) && channel.peer_regions.still_open(far.pass.window())
        };
        if !far.as_ref().is_some_and(is_known) {
            let Some((place, peer)) = find() else { return Direct::Unavailable };
            let pass = Pass::look_up(&channel.peer_regions, remote.key, need, peer.domain);
            let Ok(pass) = pass else { return Direct::Unavailable };
            *far = Some(Far { place, pass });
        }
        let Some(Far { place, pass }) = *far else { return Direct::Unavailable };
        let length = u64::from(length);
        let Ok(granted) = pass.window().locate(remote.address, length) else { return Direct::Unavailable };
        let there = [Segment { address: granted.address, length }];
        let memory = nic.fabric().memory();
        let moment = memory.moment();
        if let Err(unreached) = memory.reach(process, there[0], moment, seen_there) {
            let is_there = || {
                channel.peer_regions.still_open(pass.window())
                    && channel.receptive_at(place, self.peer(), self.number).is_some()
            };
            let part = RegionPart { region: granted.life(), segment: there[0] };
            let regions = &channel.peer_regions;
            if let Some(instead) = self.wait_for_far(process, regions, part, unreached, waits, is_there) {
                if instead == Direct::Unavailable {
                    *far = None;
                }
                return instead;
            }
        }
        // Under a claim on the region there.
        let mut reach = |moves: &dyn Fn() -> Result<(), MemoryError>| {
            let Some(claim) = channel.own_hazards.claim(granted.index, place) else {
                nic.ready(self, Again::Later);
                return Direct::Wait;
            };
            // Behind the claim: revocation changes these first and looks for claims then.
            let valid = channel.peer_regions.still_open(pass.window())
                && channel.receptive_at(place, self.peer(), self.number).is_some_and(|peer| {
                    peer.domain == pass.domain() && self.is_let_in(&peer, send_psn, need)
                });
            let moved = valid && moves().is_ok();
            channel.own_hazards.release(claim);
            if !valid {
                *far = None;
            }
            if moved { Direct::Done } else { Direct::Unavailable }
        };
        let between = |here: &[Segment], many_absent: bool| match (many_absent, reads) {
            (false, true) => memory.pull(process, &there, here, true),
            (false, false) => memory.push(process, here, &there, true),
            (true, _) => self.move_absent(reads, process, here, &there),
        };
        let of = (self.domain.number(), if reads { Rights::LOCAL_WRITE } else { Rights::empty() });
        let given_up = |error| match error {
            AccessError::Wait | AccessError::Busy => Direct::Wait,
            AccessError::Refused(_) | AccessError::NotMapped => Direct::Unavailable,
        };
        let done = match bytes {
            Bytes::Inline(bytes) => reach(&|| memory.push_bytes(process, bytes, &there, true)),
            Bytes::Segments([piece]) => {
                match nic.begin_one(self, near, of, piece, reads, waits, (moment, seen_here)) {
                    Ok((segment, claim)) => {
                        let done = reach(&|| between(&[segment], waits.many_absent));
                        nic.own_hazards().release(claim);
                        done
                    }
                    Err(error) => given_up(error),
                }
            }
            Bytes::Segments(pieces) => match nic.begin(self, of.0, pieces, of.1, reads, waits) {
                Ok(access) => {
                    let done = reach(&|| between(&access.segments, waits.many_absent));
                    nic.finish(access);
                    done
                }
                Err(error) => given_up(error),
            },
        };
        if done == Direct::Done {
            nic.end_wait_if_any(waits);
            self.tell_begun(channel, send_psn, place, told);
            self.counters.direct_operations.add_alone(1);
            self.counters.direct_bytes.add_alone(length);
        }
        done
    }

    /// Moves bytes to or from a peer where many pages are absent.
    #[cold]
    #[inline(never)] // Its caller is part of each transfer.
    fn move_absent(
        &self,
        reads: bool,
        process: &ProcessOf<F>,
        here: &[Segment],
        there: &[Segment],
    ) -> Result<(), MemoryError> {
        let direction = if reads { Direction::Pull } else { Direction::Push };
        let page_in = self.nic.options().page_in;
        self.nic.fabric().move_absent(direction, process, (here, there), true, page_in)
    }

    /// What becomes of a transfer to memory of a peer that is not reached at once. `None`: it is made. `is_there`: the peer's queue
    /// pair and its region are what they were.
    #[cold]
    fn wait_for_far(
        &self,
        process: &ProcessOf<F>,
        regions: &RegionView<F::Words>,
        there: RegionPart,
        unreached: Unreached,
        waits: &mut Asked,
        is_there: impl FnOnce() -> bool,
    ) -> Option<Direct> {
        let Unreached::Absent(absence) = unreached else { return Some(Direct::Unavailable) };
        // Whoever waits is to learn of their end. Where the kernel must not meet absent pages the peer brings them in. So it does with those
        // that somebody in user space is asked for: a thread of this process that waits for one in a system call can be called off by
        // nobody.
        let memory = self.nic.fabric().memory();
        let owner_brings_in = absence == Absence::UserSpace
            || !memory.kernel_may_fault()
            || !memory.kernel_may_fault_in(process);
        if owner_brings_in || !is_there() {
            return Some(Direct::Unavailable);
        }
        self.nic.wait_for_far(self, process, regions, there, absence, waits).then_some(Direct::Wait)
    }

    /// Tells a peer that has not heard from this side, and learns nothing of what was executed, that it has begun (COMM_EST).
    #[inline(always)] // Part of each transfer.
    fn tell_begun(&self, channel: &LocalChannel<F>, send_psn: u32, place: u32, told: &mut bool) {
        if !*told {
            let peer = channel.receptive_at(place, self.peer(), self.number);
            let knows = !peer.is_some_and(|peer| peer.unheard);
            *told = knows || self.greet_over_ring(channel, send_psn);
        }
    }

    /// A HELLO without a body. False: there is no room now, and the next transfer tells it.
    #[cold]
    fn greet_over_ring(&self, channel: &LocalChannel<F>, send_psn: u32) -> bool {
        let header = Header::new(Bth::new(Opcode::HELLO, self.peer(), send_psn));
        let mut bytes = [0; bth::LEN];
        header.emit(&mut bytes);
        channel.send(self.nic.fabric(), Kind::Bytes, &bytes, &[], None)
    }

    /// Whether the peer's queue pair takes such accesses by the connection that began with a PSN.
    #[inline(always)] // Part of each transfer.
    fn is_let_in(&self, peer: &PublishedQueuePair, send_psn: u32, need: Rights) -> bool {
        // A peer that began another connection since does not know these requests. UC takes them up anywhere.
        let connected = self.kind != QueuePairType::Rc || peer.receive_psn == send_psn;
        connected && peer.rights.contains(need)
    }

    /// Executes a request at its post, where nothing is before it. False: it must be kept and driven.
    pub(crate) fn post_directly(
        &self,
        core: &mut Core<F>,
        request: &SendRequest<'_, F>,
        transfer: &Transfer,
        opcode: completion::Opcode,
    ) -> bool {
        if !core.is_quiet() || !self.take_slot_to_execute() {
            return false;
        }
        let done = self.executes_directly(core, transfer, request.data);
        if done && (request.signaled || self.signals_all()) {
            let byte_length = if transfer.reads { transfer.length } else { 0 };
            let completion = self.send_completion(request.wr_id, opcode, Status::Success);
            self.announce(&self.send_cq, Completion { byte_length, ..completion });
        }
        // The completion holds it now, or the request as it is kept.
        self.executing.store(false, Ordering::Release);
        if done {
            self.end_if_overrun(core);
        }
        done
    }

    /// Takes a slot for a request that is executed and not kept. False: one is kept before it, or none is free.
    #[inline(always)] // Part of each transfer.
    fn take_slot_to_execute(&self) -> bool {
        let send = self.send.lock();
        let takes = send.is_empty() && self.has_send_slot(&send);
        if takes {
            self.executing.store(true, Ordering::Relaxed);
        }
        takes
    }

    fn executes_directly(&self, core: &mut Core<F>, transfer: &Transfer, data: Data<'_>) -> bool {
        let Some(way) = core.local() else { return false };
        let gathered: SmallVec<[u8; 64]>;
        let bytes = match data {
            Data::Segments(pieces) => Bytes::Segments(pieces),
            Data::Inline([bytes]) => Bytes::Inline(bytes),
            Data::Inline(pieces) => {
                gathered = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                Bytes::Inline(&gathered)
            }
        };
        match self.execute(way, transfer, bytes) {
            Direct::Done => core.executed_directly(),
            Direct::Wait => return false,
            Direct::Unavailable => {
                self.end_direct_wait(core);
                return false;
            }
        }
        true
    }

    /// What waited to be executed directly goes as packets, or fails: its wait for pages is over.
    #[cold]
    pub(crate) fn end_direct_wait(&self, core: &mut Core<F>) {
        self.nic.end_wait_if_any(core.begin_access(Purpose::Request));
    }
}
