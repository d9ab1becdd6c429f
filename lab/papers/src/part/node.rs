//! One node of PART's testbed: page table, SMMU, NI FIFO and the processor that serves faults.

use super::processor::Processor;
use crate::translation::{Access, Answer, Entry, FaultQueue, PageId, PageTable, Reported, TranslationUnit};
use crate::unit_costs::PartCosts;
use std::ops::Range;

/// The protection domain of the one process, which the NI's packets name (PAPERS PART-2).
const DOMAIN: u32 = 1;

/// A packet of one transmission of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub block: usize,
    pub sequence: u32,
    pub index: u64,
}

/// What became of a packet's access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Failed,
    /// Known when the walk ends.
    Walking,
    /// The SMMU takes no more now.
    Busy,
}

/// Which pages are in memory.
#[derive(Debug)]
pub(super) struct Pages(pub Vec<bool>);

impl PageTable for Pages {
    type Value = ();

    fn entry(&self, page: PageId, level: u32) -> Entry<()> {
        match (level, self.0.get(page.number as usize)) {
            (0 | 1, _) => Entry::Table,
            (_, Some(true)) => Entry::Page { value: (), writable: true },
            _ => Entry::Absent,
        }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub pages: Pages,
    pub smmu: TranslationUnit<(), Packet>,
    /// The entries of the NI FIFO; those of one page count as one fault, with the number of entries.
    pub fifo: FaultQueue<(usize, u32)>,
    pub processor: Processor,
    /// Walks before the transfer.
    walked_before: u64,
}

impl Node {
    /// A node with these pages; the SMMU knows those that are present if it is `warm`.
    pub fn new(costs: &PartCosts, present: Vec<bool>, warm: bool) -> Self {
        let smmu = TranslationUnit::new(costs.buffers(), costs.walker(), costs.hit_under_fault())
            .expect("the paper's sizes are valid");
        let mut node = Node {
            pages: Pages(present),
            smmu,
            fifo: FaultQueue::new(costs.fifo()),
            processor: Processor::default(),
            walked_before: 0,
        };
        if warm {
            let present = (0..).zip(&node.pages.0).filter(|(_, present)| **present);
            for (number, _) in present {
                let packet = Packet { block: 0, sequence: 0, index: 0 };
                let page = PageId { domain: DOMAIN, number };
                // All walks are over before the next one begins: none is refused.
                if node.smmu.translate(0, page, Access::Write, packet) == Answer::Walking {
                    node.smmu.advance(u64::MAX / 2, &node.pages, |_| {});
                }
            }
        }
        node.walked_before = node.smmu.walker().walks;
        node
    }

    /// Walks of the page table since the transfer began.
    pub fn walks(&self) -> u64 {
        self.smmu.walker().walks - self.walked_before
    }

    /// The kernel takes these pages away and invalidates what the SMMU knows of them.
    pub fn take_away(&mut self, now: u64, pages: Range<u64>) {
        self.pages.0[pages.start as usize..pages.end as usize].fill(false);
        self.smmu.invalidate(now, DOMAIN, pages);
    }

    /// The processor has nothing to do: if its faults are served, accesses that waited for them go on.
    pub fn resume(&mut self) {
        if self.processor.is_idle() {
            self.smmu.resume(DOMAIN);
        }
    }

    /// A packet's access to page `number`.
    pub fn access(&mut self, now: u64, number: u64, access: Access, packet: Packet) -> Outcome {
        match self.smmu.translate(now, PageId { domain: DOMAIN, number }, access, packet) {
            Answer::Hit(()) => Outcome::Done,
            Answer::Walking => Outcome::Walking,
            Answer::Forbidden => Outcome::Failed,
            Answer::Held | Answer::Busy => Outcome::Busy,
        }
    }

    /// The walks that are over by now: packets, and whether their page is there.
    pub fn walked(&mut self, now: u64) -> Vec<(Packet, bool)> {
        let mut ended = Vec::new();
        self.smmu.advance(now, &self.pages, |walked| ended.push((walked.token, walked.value.is_some())));
        ended
    }

    /// Puts a failed access into the FIFO. Of several on one page the last transmission counts: an ERR for an earlier one would be
    /// dropped. What finds the FIFO full is not recorded: its block is sent again by the timeout.
    pub fn log(&mut self, now: u64, number: u64, access: Access, packet: Packet) {
        let page = PageId { domain: DOMAIN, number };
        let reported = self.fifo.report(now, page, access, (packet.block, packet.sequence));
        let known = self.fifo.cause_mut(page).filter(|_| reported == Reported::Merged);
        if let Some((_, sequence)) = known {
            *sequence = packet.sequence.max(*sequence);
        }
    }
}
