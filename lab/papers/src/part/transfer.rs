//! One transfer, and what becomes of it.

use crate::unit_costs::{PAGE, PartCosts};
use std::ops::Range;

/// How many pages a fault brings in (PAPERS PART-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageIn {
    /// PIO: the failed page.
    One,
    /// PI4: its block.
    Block,
    /// PIA: it and all pages of the transfer behind it.
    All,
}

/// What makes the source send again (PAPERS PART-6, PART-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// An ERR, or the timeout if that comes first.
    ErrAndTimeout(u64),
    /// The timeout alone.
    Timeout(u64),
    /// NTO: the ERR alone. The NACK of a page fault cancels the block's timeout, which is the usual one.
    Err,
    /// The ERR alone, for a block as soon as its own pages are in and before the rest of the transfer comes in: what section 3.3
    /// leaves to future work.
    EarlyErr,
}

/// What becomes of a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It arrives so many nanoseconds later, by another way through the network.
    Late(u64),
    /// It is lost: nobody learns of it, and the block's ACK is missing.
    Lost,
    /// It arrives with a wrong CRC: the destination sends a NACK.
    Corrupted,
}

/// What goes wrong between the nodes (PAPERS PART-5). The text has no rate of any of it: nothing is its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Of a million data packets so many are lost.
    pub lost: u32,
    /// Of a million data packets so many arrive corrupted.
    pub corrupted: u32,
    /// Of a million ACKs, NACKs and ERRs so many are lost.
    pub lost_answers: u32,
    /// The fate of one data packet, by its number in the order in which they leave.
    pub of_one: Option<(u64, Fate)>,
    /// Of the random numbers.
    pub seed: u64,
}

/// What the user asks for. A READ is a WRITE by the other side (section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the initiator's memory to the other's.
    Write,
    /// The other way.
    Read,
}

/// One transfer. Its buffers are any addresses of the two processes: nothing is pinned, and any page may be absent (PAPERS PART-1).
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Its length, more than 0.
    pub bytes: u64,
    /// What the user asks for.
    pub operation: Operation,
    /// The source's pages that are in memory.
    pub source: Vec<bool>,
    /// The destination's pages that are in memory.
    pub destination: Vec<bool>,
    /// Whether the destination's SMMU has translated the pages in memory before; the source's always has.
    pub warm: bool,
    /// How many pages a fault brings in.
    pub page_in: PageIn,
    /// What makes the source send again.
    pub resend: Resend,
    /// What goes wrong on the way.
    pub errors: Errors,
    /// Pages of the destination that its kernel takes away while the transfer runs, and when, in nanoseconds.
    pub taken_away: Vec<(u64, Range<u64>)>,
}

impl Transfer {
    /// A WRITE of so many bytes, everything in memory and translated before, ERR and the usual timeout.
    pub fn resident(costs: &PartCosts, bytes: u64) -> Self {
        let pages = vec![true; bytes.div_ceil(PAGE) as usize];
        Transfer {
            bytes,
            operation: Operation::Write,
            source: pages.clone(),
            destination: pages,
            warm: true,
            page_in: PageIn::All,
            resend: Resend::ErrAndTimeout(costs.timeout()),
            errors: Errors::default(),
            taken_away: Vec::new(),
        }
    }

    /// Whether nothing may be left that sends a block again: NTO's NACK cancels the timeout, and then the ERR is lost.
    pub(super) const fn may_stand_still(&self) -> bool {
        self.errors.lost_answers > 0 && matches!(self.resend, Resend::Err | Resend::EarlyErr)
    }

    /// A transfer whose source is resident and of whose destination every page is absent.
    pub fn absent(costs: &PartCosts, bytes: u64, page_in: PageIn) -> Self {
        let resident = Transfer::resident(costs, bytes);
        Transfer { destination: vec![false; resident.source.len()], page_in, ..resident }
    }
}

/// What a transfer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// From the user's call until the last byte is in memory, in nanoseconds.
    pub latency: u64,
    /// Runs of the interrupt handlers, of both nodes.
    pub handler_runs: u64,
    /// Runs of the tasklets.
    pub tasklet_runs: u64,
    /// ERRs sent.
    pub errs: u64,
    /// ERRs for a transmission that was not the last one of its block any more.
    pub stale_errs: u64,
    /// Timeouts after which a block was sent again.
    pub timeouts: u64,
    /// Transmissions of blocks, the first one of each included.
    pub transmissions: u64,
    /// Pages brought in.
    pub page_ins: u64,
    /// Packets that found their page absent.
    pub failed_packets: u64,
    /// Walks of the destination's page table.
    pub walks: u64,
    /// Data packets that were lost.
    pub lost_packets: u64,
    /// Data packets that arrived corrupted.
    pub corrupted_packets: u64,
    /// Data packets of an earlier transmission of their block, which the destination dropped.
    pub stale_packets: u64,
    /// ACKs, NACKs and ERRs that were lost.
    pub lost_answers: u64,
    /// Blocks that never arrived: nothing was left to send them again.
    pub unfinished: u64,
}
