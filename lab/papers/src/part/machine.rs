//! PART's testbed as a discrete-event model: one transfer between two nodes, packet by packet.

use super::node::{Node, Outcome, Packet};
use super::processor::{Next, Step};
use super::transfer::{Fate, Operation, PageIn, Report, Resend, Transfer};
use crate::event_queue::EventQueue;
use crate::translation::Access;
use crate::unit_costs::{PAGE, PartCosts};
use std::collections::BTreeMap;

const SOURCE: usize = 0;
const DESTINATION: usize = 1;

#[derive(Clone, Copy, Debug)]
enum PartEvent {
    /// The co-processor has handed the block to the engine.
    Fetch(usize, u32),
    /// A packet whose access found no place in the SMMU tries again.
    Again(usize, Packet),
    /// A walk may have ended.
    Walk(usize),
    Arrives(Packet),
    /// A packet arrives with a wrong CRC.
    Corrupted(Packet),
    Ack(usize),
    Nack(usize, u32, Qualifier),
    Err(usize, u32),
    Timeout(usize, u32),
    HandlerEnds(usize),
    StepEnds(usize, u64),
    /// The destination's kernel takes pages away: which ones of the transfer's.
    TakeAway(usize),
}

/// Why a block is refused (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Qualifier {
    /// A packet's CRC was wrong.
    Corrupted,
    /// The SMMU refused an access.
    PageFault,
}

/// Where a block is, as the source sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    sequence: u32,
    acknowledged: bool,
    /// A NACK has come, or packets failed at the source.
    suspended: bool,
    /// An ERR came before the NACK.
    asked: bool,
}

/// Where a block is, as the destination sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Receiving {
    /// The newest transmission that was seen.
    sequence: u32,
    written: u64,
    /// A NACK of a page fault, or of a wrong CRC, has been sent for this transmission.
    refused: bool,
    is_corrupted: bool,
    complete: bool,
}

struct Machine<'a> {
    costs: &'a PartCosts,
    transfer: &'a Transfer,
    events: EventQueue<PartEvent>,
    nodes: [Node; 2],
    sending: Vec<Sending>,
    receiving: Vec<Receiving>,
    next_block: usize,
    link_free: u64,
    incomplete: usize,
    random: fastrand::Rng,
    packets_sent: u64,
    report: Report,
}

/// Runs the transfer until nothing happens any more.
///
/// # Panics
/// If it has no bytes, if there are not as many pages as it touches, or if it cannot end (no ERR, no timeout) although no answer is lost.
pub fn run(costs: &PartCosts, transfer: &Transfer) -> Report {
    let pages = transfer.bytes.div_ceil(PAGE) as usize;
    assert!(pages > 0 && transfer.source.len() == pages && transfer.destination.len() == pages);
    let blocks = transfer.bytes.div_ceil(costs.block()) as usize;
    let mut machine = Machine {
        costs,
        transfer,
        events: EventQueue::new(),
        nodes: [(&transfer.source, true), (&transfer.destination, transfer.warm)]
            .map(|(pages, warm)| Node::new(costs, pages.clone(), warm)),
        sending: vec![Sending::default(); blocks],
        receiving: vec![Receiving::default(); blocks],
        next_block: 0,
        link_free: 0,
        incomplete: blocks,
        random: fastrand::Rng::with_seed(transfer.errors.seed),
        packets_sent: 0,
        report: Report::default(),
    };
    let request = match transfer.operation {
        Operation::Write => 0,
        Operation::Read => costs.initiation() + costs.network(),
    };
    for _ in 0..costs.outstanding() {
        machine.issue_next(request);
    }
    for (index, (at, _)) in transfer.taken_away.iter().enumerate() {
        machine.events.after(*at, PartEvent::TakeAway(index));
    }
    while let Some(event) = machine.events.next() {
        machine.happens(event);
    }
    assert!(machine.incomplete == 0 || transfer.may_stand_still(), "the transfer stands still");
    machine.report.unfinished = machine.incomplete as u64;
    for node in &machine.nodes {
        machine.report.handler_runs += node.processor.handler_runs;
        machine.report.tasklet_runs += node.processor.tasklet_runs;
    }
    machine.report.walks = machine.nodes[DESTINATION].walks();
    machine.report
}

impl Machine<'_> {
    fn happens(&mut self, event: PartEvent) {
        match event {
            PartEvent::Fetch(block, sequence) => self.fetch(block, sequence),
            PartEvent::Again(node, packet) => self.access(node, packet),
            PartEvent::Walk(node) => self.walk(node),
            PartEvent::Arrives(packet) => self.arrives(packet),
            PartEvent::Corrupted(packet) => self.corrupted(packet),
            PartEvent::Ack(block) => self.acknowledged(block),
            PartEvent::Nack(block, sequence, qualifier) => self.refused(block, sequence, qualifier),
            PartEvent::Err(block, sequence) => self.asked(block, sequence),
            PartEvent::Timeout(block, sequence) => self.timed_out(block, sequence),
            PartEvent::HandlerEnds(node) => {
                let next = self.nodes[node].processor.handler_ended(self.events.now());
                self.goes_on(node, next);
            }
            PartEvent::StepEnds(node, number) => {
                if let Some(step) = self.nodes[node].processor.step_ended(number) {
                    self.step_ended(node, step);
                    self.goes_on(node, Some(Next::Begin));
                }
            }
            PartEvent::TakeAway(index) => {
                let (_, pages) = &self.transfer.taken_away[index];
                self.nodes[DESTINATION].take_away(self.events.now(), pages.clone());
            }
        }
    }
}

/// The source's side of the transport.
impl Machine<'_> {
    fn issue_next(&mut self, delay: u64) {
        if self.next_block < self.sending.len() {
            let block = self.next_block;
            self.next_block += 1;
            self.issue(block, delay + self.costs.initiation());
        }
    }

    fn issue(&mut self, block: usize, delay: u64) {
        self.report.transmissions += 1;
        let sequence = self.sending[block].sequence;
        self.events.after(delay, PartEvent::Fetch(block, sequence));
        let timeout = match self.transfer.resend {
            Resend::ErrAndTimeout(timeout) | Resend::Timeout(timeout) => timeout,
            Resend::Err | Resend::EarlyErr => self.costs.timeout(),
        };
        self.events.after(delay + timeout, PartEvent::Timeout(block, sequence));
    }

    fn resend(&mut self, block: usize) {
        let sequence = self.sending[block].sequence + 1;
        self.sending[block] = Sending { sequence, ..Sending::default() };
        self.issue(block, self.costs.resume());
    }

    /// The engine reads the block from the source's memory, as many packets at once as the SMMU takes.
    fn fetch(&mut self, block: usize, sequence: u32) {
        for index in 0..self.packets(block) {
            self.access(SOURCE, Packet { block, sequence, index });
        }
    }

    /// The packet's bytes have been read: it goes onto the link behind those before it.
    fn send(&mut self, packet: Packet) {
        let now = self.events.now();
        self.link_free = self.link_free.max(now) + self.costs.wire(self.length(packet));
        let delay = self.link_free - now + self.costs.network();
        match self.fate() {
            Fate::Arrives => self.events.after(delay, PartEvent::Arrives(packet)),
            Fate::Late(more) => self.events.after(delay + more, PartEvent::Arrives(packet)),
            Fate::Lost => self.report.lost_packets += 1,
            Fate::Corrupted => self.events.after(delay, PartEvent::Corrupted(packet)),
        }
    }

    /// What becomes of the next data packet.
    fn fate(&mut self) -> Fate {
        let errors = self.transfer.errors;
        let number = self.packets_sent;
        self.packets_sent += 1;
        if let Some((_, fate)) = errors.of_one.filter(|(one, _)| *one == number) {
            return fate;
        }
        if errors.lost == 0 && errors.corrupted == 0 {
            return Fate::Arrives;
        }
        match self.random.u32(0..1_000_000) {
            drawn if drawn < errors.lost => Fate::Lost,
            drawn if drawn < errors.lost + errors.corrupted => Fate::Corrupted,
            _ => Fate::Arrives,
        }
    }

    /// Sends an ACK, a NACK or an ERR, which may be lost.
    fn answer(&mut self, delay: u64, event: PartEvent) {
        let rate = self.transfer.errors.lost_answers;
        if rate > 0 && self.random.u32(0..1_000_000) < rate {
            self.report.lost_answers += 1;
        } else {
            self.events.after(delay, event);
        }
    }

    /// Of whichever transmission an ACK is: the block is in memory.
    fn acknowledged(&mut self, block: usize) {
        let sending = &mut self.sending[block];
        if !sending.acknowledged {
            sending.acknowledged = true;
            self.issue_next(0);
        }
    }

    /// Of a wrong CRC the block is sent again at once; of a page fault it waits (section 4.2). A block that waits for pages goes on waiting.
    fn refused(&mut self, block: usize, sequence: u32, qualifier: Qualifier) {
        let sending = self.sending[block];
        match qualifier {
            Qualifier::PageFault => self.suspend(block, sequence),
            Qualifier::Corrupted => {
                if sending.sequence == sequence && !sending.acknowledged && !sending.suspended {
                    self.resend(block);
                }
            }
        }
    }

    /// The block waits for an ERR or its timeout.
    fn suspend(&mut self, block: usize, sequence: u32) {
        let sending = &mut self.sending[block];
        if sending.sequence == sequence && !sending.acknowledged && !sending.suspended {
            sending.suspended = true;
            if sending.asked {
                self.resend(block);
            }
        }
    }

    fn asked(&mut self, block: usize, sequence: u32) {
        let sending = &mut self.sending[block];
        if sending.sequence != sequence || sending.acknowledged {
            self.report.stale_errs += 1;
        } else if sending.suspended {
            self.resend(block);
        } else {
            sending.asked = true;
        }
    }

    fn timed_out(&mut self, block: usize, sequence: u32) {
        let sending = self.sending[block];
        let has_timeout = matches!(self.transfer.resend, Resend::ErrAndTimeout(_) | Resend::Timeout(_));
        if sending.sequence == sequence && !sending.acknowledged && (has_timeout || !sending.suspended) {
            self.report.timeouts += 1;
            self.resend(block);
        }
    }
}

/// Accesses to memory, of both sides.
impl Machine<'_> {
    fn access(&mut self, node: usize, packet: Packet) {
        let page = self.page(packet);
        let access = if node == SOURCE { Access::Read } else { Access::Write };
        match self.nodes[node].access(self.events.now(), page, access, packet) {
            Outcome::Done => self.accessed(node, packet, true),
            Outcome::Failed => self.accessed(node, packet, false),
            Outcome::Busy => self.events.after(self.costs.walker().read_time, PartEvent::Again(node, packet)),
            Outcome::Walking => self.watch(node),
        }
    }

    fn watch(&mut self, node: usize) {
        if let Some(due) = self.nodes[node].smmu.next_due() {
            self.events.after(due.saturating_sub(self.events.now()), PartEvent::Walk(node));
        }
    }

    fn walk(&mut self, node: usize) {
        for (packet, present) in self.nodes[node].walked(self.events.now()) {
            self.accessed(node, packet, present);
        }
        self.watch(node);
    }

    fn accessed(&mut self, node: usize, packet: Packet, well: bool) {
        match (node, well) {
            (SOURCE, true) => self.send(packet),
            (_, true) => self.written(packet),
            (_, false) => {
                self.report.failed_packets += 1;
                let (now, page) = (self.events.now(), self.page(packet));
                let access = if node == SOURCE { Access::Read } else { Access::Write };
                self.nodes[node].log(now, page, access, packet);
                let next = self.nodes[node].processor.interrupt(now);
                self.goes_on(node, next);
                if node == SOURCE {
                    self.suspend(packet.block, packet.sequence);
                } else {
                    self.refuse(packet);
                }
            }
        }
    }

    fn arrives(&mut self, packet: Packet) {
        if !self.is_of_newest(packet) {
            return;
        }
        if self.receiving[packet.block].complete {
            // Assumption: a block that is in memory is not written again, but acknowledged when all of it has come again.
            self.written(packet);
        } else {
            self.access(DESTINATION, packet);
        }
    }

    /// Whether a packet is of the newest transmission of its block that was seen; those of older ones are dropped (section 4.4).
    fn is_of_newest(&mut self, packet: Packet) -> bool {
        let receiving = &mut self.receiving[packet.block];
        if packet.sequence < receiving.sequence {
            self.report.stale_packets += 1;
            return false;
        }
        if packet.sequence > receiving.sequence {
            let complete = receiving.complete;
            *receiving = Receiving { sequence: packet.sequence, complete, ..Receiving::default() };
        }
        true
    }

    /// Tells the source, once for each transmission, that the block has to be sent again at once.
    fn corrupted(&mut self, packet: Packet) {
        self.report.corrupted_packets += 1;
        if self.is_of_newest(packet) {
            let receiving = &mut self.receiving[packet.block];
            if !std::mem::replace(&mut receiving.is_corrupted, true) {
                let nack = PartEvent::Nack(packet.block, packet.sequence, Qualifier::Corrupted);
                self.answer(self.costs.network(), nack);
            }
        }
    }

    fn written(&mut self, packet: Packet) {
        let packets = self.packets(packet.block);
        let receiving = &mut self.receiving[packet.block];
        if packet.sequence != receiving.sequence {
            return;
        }
        receiving.written += 1;
        if receiving.written < packets {
            return;
        }
        if !std::mem::replace(&mut receiving.complete, true) {
            self.incomplete -= 1;
            if self.incomplete == 0 {
                self.report.latency = self.events.now();
            }
        }
        self.answer(self.costs.network(), PartEvent::Ack(packet.block));
    }

    /// Tells the source, once for each transmission, that the block met a fault.
    fn refuse(&mut self, packet: Packet) {
        let receiving = &mut self.receiving[packet.block];
        if packet.sequence == receiving.sequence && !std::mem::replace(&mut receiving.refused, true) {
            let nack = PartEvent::Nack(packet.block, packet.sequence, Qualifier::PageFault);
            self.answer(self.costs.network(), nack);
        }
    }

    fn packets(&self, block: usize) -> u64 {
        let bytes = self.transfer.bytes - block as u64 * self.costs.block();
        bytes.min(self.costs.block()).div_ceil(self.costs.packet())
    }

    fn length(&self, packet: Packet) -> u64 {
        let start = packet.block as u64 * self.costs.block() + packet.index * self.costs.packet();
        (self.transfer.bytes - start).min(self.costs.packet())
    }

    fn page(&self, packet: Packet) -> u64 {
        (packet.block as u64 * self.costs.block() + packet.index * self.costs.packet()) / PAGE
    }
}

/// The service of faults.
impl Machine<'_> {
    fn goes_on(&mut self, node: usize, next: Option<Next>) {
        let next = match next {
            Some(Next::Begin) => match self.nodes[node].processor.begin() {
                Some(step) => {
                    let length = self.length_of(node, &step);
                    Some(self.nodes[node].processor.takes(self.events.now(), length))
                }
                None => {
                    self.nodes[node].resume();
                    None
                }
            },
            other => other,
        };
        match next {
            Some(Next::Handler) => self.events.after(self.costs.handler(), PartEvent::HandlerEnds(node)),
            Some(Next::Continue { number, remaining }) => {
                self.events.after(remaining, PartEvent::StepEnds(node, number));
            }
            Some(Next::Begin) | None => {}
        }
    }

    /// Nanoseconds of a step that begins now. What the FIFO holds is taken out of it here.
    fn length_of(&mut self, node: usize, step: &Step) -> u64 {
        match step {
            Step::Call(_) => self.costs.page_in_call(),
            Step::PageIn(_) => self.costs.page_in_page(),
            Step::Notify { .. } => self.costs.packing() + self.costs.netlink(),
            Step::Read => self.read_fifo(node),
        }
    }

    /// Plans what the tasklet does for what the FIFO holds; gives how long reading it takes.
    fn read_fifo(&mut self, node: usize) -> u64 {
        let (mut entries, mut faults) = (0, Vec::new());
        while let Some(fault) = self.nodes[node].fifo.take() {
            // The FIFO forgets what was read: a later access to the page is a new entry.
            self.nodes[node].fifo.resolve(fault.page);
            entries += u64::from(fault.accesses);
            faults.push((fault.page.number, fault.cause));
        }
        let steps = match self.transfer.resend {
            Resend::EarlyErr => self.early(&faults),
            Resend::ErrAndTimeout(_) | Resend::Timeout(_) | Resend::Err => self.one_by_one(&faults),
        };
        self.nodes[node].processor.behind(steps.into_iter());
        entries * self.costs.fifo_read()
    }

    /// Each page by a call of its own, and then a request for each.
    fn one_by_one(&self, faults: &[(u64, (usize, u32))]) -> Vec<Step> {
        let call = |&(page, _): &(u64, _)| Step::Call(self.wanted(page, self.transfer.page_in));
        let notify = |&(_, (block, sequence)): &(u64, (usize, u32))| Step::Notify { block, sequence };
        faults.iter().map(call).chain(faults.iter().map(notify)).collect()
    }

    /// Each block by one call and one request, and then the rest of what is to come in.
    fn early(&self, faults: &[(u64, (usize, u32))]) -> Vec<Step> {
        let mut blocks: BTreeMap<usize, (u64, u32)> = BTreeMap::new();
        for &(page, (block, sequence)) in faults {
            let (first, last) = blocks.entry(block).or_insert((page, sequence));
            (*first, *last) = (page.min(*first), sequence.max(*last));
        }
        let calls = blocks.values().map(|&(page, _)| Step::Call(self.wanted(page, PageIn::Block)));
        let notices = blocks.iter().map(|(&block, &(_, sequence))| Step::Notify { block, sequence });
        let first = blocks.values().next().map(|&(page, _)| page);
        let rest = first.map(|page| Step::Call(self.wanted(page, self.transfer.page_in)));
        calls.chain(notices).chain(rest).collect()
    }

    /// The pages to bring in when `page` has failed.
    fn wanted(&self, page: u64, page_in: PageIn) -> std::ops::Range<u64> {
        let all = self.transfer.source.len() as u64;
        match page_in {
            PageIn::One => page..page + 1,
            PageIn::All => page..all,
            PageIn::Block => {
                let pages = self.costs.block() / PAGE;
                let first = page / pages * pages;
                first..(first + pages).min(all)
            }
        }
    }

    fn step_ended(&mut self, node: usize, step: Step) {
        match step {
            Step::Read => {}
            Step::Call(pages) => {
                let Node { pages: memory, processor, .. } = &mut self.nodes[node];
                processor.before(pages.filter(|&page| !memory.0[page as usize]).map(Step::PageIn));
            }
            Step::PageIn(page) => {
                self.nodes[node].pages.0[page as usize] = true;
                self.report.page_ins += 1;
            }
            Step::Notify { block, sequence } => {
                if !matches!(self.transfer.resend, Resend::Timeout(_)) {
                    self.report.errs += 1;
                    self.answer(self.costs.err(), PartEvent::Err(block, sequence));
                }
            }
        }
    }
}
