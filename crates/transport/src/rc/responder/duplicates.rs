//! Requests that were executed before and come again (InfiniBand specification, volume 1, section 9.7.5.1.5).

use pagewire_wire::{PacketHeader, PacketOperation as Code};

use super::Responder;
use super::outputs::{ExecutedRead, ReadResponses, ResponderOutput};
use crate::rc::execute::refusal;
use crate::rc::{RcShared, RefusalScope};
use crate::{
    Denial, Disposition, DropCause, MemoryAccess, Outcome, Psn, RemoteAddress, Right, WorkQueues, limits,
    packets_for,
};

impl Responder {
    /// A request that was executed before (section 9.7.5.1.5).
    pub(super) fn duplicate<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        psn: Psn,
        shared: &RcShared,
        ops: &mut E,
    ) -> Disposition {
        self.hold_due |= self.kept.has(0) || self.stalled;
        match header.bth.opcode.operation() {
            Some(Code::ReadRequest) => self.duplicate_read(header, psn, shared, ops),
            Some(Code::CompareSwap | Code::FetchAdd | Code::AtomicWrite) => {
                // Unknown: so old that the peer cannot have meant it; silence.
                if let Some(result) = self.remembered(psn) {
                    let message = self.executor.message();
                    self.answer_again(ResponderOutput::Atomic { psn, result, message }, shared);
                }
                Disposition::Duplicate
            }
            Some(Code::Flush) => {
                let message = self.executor.message();
                self.answer_again(ResponderOutput::Flushed { psn, message }, shared);
                Disposition::Duplicate
            }
            _ => {
                self.acknowledge_again();
                Disposition::Duplicate
            }
        }
    }

    /// Queues the answer to an atomic or a FLUSH once more, unless it is still queued, or there is no space.
    fn answer_again(&mut self, answer: ResponderOutput, shared: &RcShared) {
        let is_same = |output: &ResponderOutput| {
            let is_one = matches!(output, ResponderOutput::Atomic { .. } | ResponderOutput::Flushed { .. });
            is_one && output.psn() == answer.psn()
        };
        let is_queued = self.outputs.iter().chain(&self.replays).any(is_same);
        if !is_queued && self.has_room_to_replay(shared) {
            self.replays.push_back(answer);
        }
    }

    fn duplicate_read<E: MemoryAccess + WorkQueues>(
        &mut self,
        header: &PacketHeader,
        psn: Psn,
        shared: &RcShared,
        ops: &mut E,
    ) -> Disposition {
        let Some(reth) = header.reth else { return Disposition::Duplicate };
        let remote = RemoteAddress { address: reth.address, key: reth.key };
        let packets = packets_for(reth.length, shared.link.response_mtu);
        let executed = self.expected.since(psn);
        if !self.executor.placer.rights.read || reth.length > limits::MAX_MESSAGE || packets > executed {
            // Not a piece of what was executed.
            return Disposition::Dropped(DropCause::Stale);
        }
        if shared.refusal == RefusalScope::Request && self.executed_read(psn, 1).is_none() {
            // It was refused and skipped, or is long done: nobody waits for it, and no log is to have it twice.
            return Disposition::Dropped(DropCause::Stale);
        }
        let on_its_way = self.outputs.iter().chain(&self.replays).any(|output| match output {
            ResponderOutput::Read(responses) => {
                let left = ExecutedRead { psn: responses.psn, packets: responses.packets, ..responses.of };
                left.has(psn, packets)
            }
            _ => false,
        });
        if on_its_way {
            return Disposition::Duplicate;
        }
        if let (Some(number), true) = (header.xrc, reth.length > 0) {
            if let Outcome::Denied(denial) = ops.select_shared_queue(number) {
                self.deny_again(psn, denial, shared);
                return Disposition::Duplicate;
            }
        }
        if reth.length > 0 {
            match ops.check_remote(remote, reth.length, Right::RemoteRead) {
                Outcome::Done(()) => {}
                Outcome::Wait(reason) => return Disposition::Held { reason, again: false },
                Outcome::Denied(denial) => {
                    self.deny_again(psn, denial, shared);
                    return Disposition::Duplicate;
                }
            }
        }
        let (length, message) = (reth.length, self.executor.message());
        if self.has_room_to_replay(shared) {
            self.forget_rest(psn, packets);
            // A READ that is forgotten is long done: whatever comes of it has been sent.
            let of =
                self.executed_read(psn, packets).unwrap_or(ExecutedRead { psn, packets, length, to_come: 0 });
            let shared_queue = header.xrc.unwrap_or(0);
            let responses =
                ReadResponses { psn, packets, remote, shared_queue, length, first: true, message, of };
            self.replays.push_back(ResponderOutput::Read(responses));
        }
        Disposition::Duplicate
    }

    /// Queues a NAK for a READ that was executed before, and whose region has gone since. Whoever misses its responses ends it by that. It may
    /// be a late copy of a READ that is long done: then nobody does, as the PSN is not outstanding. So this side goes on in any case.
    #[cold]
    pub(super) fn deny_again(&mut self, psn: Psn, denial: Denial, shared: &RcShared) {
        let is_queued = self
            .replays
            .iter()
            .any(|output| matches!(output, ResponderOutput::Denied { psn: at, .. } if *at == psn));
        if !is_queued && self.has_room_to_replay(shared) {
            let (nak, message) = (refusal(denial).0, self.executor.message());
            self.replays.push_back(ResponderOutput::Denied { psn, nak, message });
        }
    }

    /// What is left of a READ's first responses need not go out where a repetition brings all of it: the requester would
    /// have the READ before this side was done with it, and might ask for one more than there may be.
    fn forget_rest(&mut self, psn: Psn, packets: u32) {
        let Some(ResponderOutput::Read(rest)) = self.outputs.front() else { return };
        let offset = rest.psn.since(psn);
        let is_covered = !rest.first && offset < packets && rest.packets <= packets - offset;
        if is_covered {
            self.outputs.pop_front();
            self.reads = self.reads.saturating_sub(1);
        }
    }

    /// The READ that has so many responses from `psn` on, if it is one of the latest.
    pub(super) fn executed_read(&self, psn: Psn, packets: u32) -> Option<ExecutedRead> {
        self.executed_reads.iter().rev().find(|read| read.has(psn, packets)).copied()
    }

    /// Whether there is room for the answer to a repeated request. Without, the peer will ask again.
    fn has_room_to_replay(&self, shared: &RcShared) -> bool {
        // A selective peer asks for every gap in the responses to one request by itself.
        let gaps = if shared.fills_gaps() { limits::LOSSY_SPAN as usize } else { 0 };
        self.replays.len() <= usize::from(self.max_dest_rd_atomic).max(gaps)
    }
}
