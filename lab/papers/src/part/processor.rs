//! The processor that serves a node's faults: interrupt handler before tasklet (PART, section 4.4).
//!
//! The handler interrupts the tasklet, again and again while packets fail. Each run of the tasklet reads all entries of the NI FIFO,
//! brings in each page that failed by a call of its own, and then has a retransmission asked for, for each page.

use std::collections::VecDeque;
use std::ops::Range;

/// A part of the tasklet's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read what the FIFO holds.
    Read,
    /// Call `get_user_pages` for these pages.
    Call(Range<u64>),
    /// Bring in one page, within a call.
    PageIn(u64),
    /// Have a retransmission of the block with that sequence number asked for.
    Notify {
        /// Which block.
        block: usize,
        /// Which transmission of it failed.
        sequence: u32,
    },
}

/// What the processor does next, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The handler runs; say when it has ended.
    Handler,
    /// The step under way ends after so many nanoseconds, unless a handler comes between, which changes the number.
    Continue {
        /// Of this continuation.
        number: u64,
        /// Until the end.
        remaining: u64,
    },
    /// The next step is to be begun.
    Begin,
}

/// One processor.
#[derive(Debug, Default)]
pub(super) struct Processor {
    /// Interrupts that came while the handler ran are one.
    pending: bool,
    in_handler: bool,
    /// A handler has asked for a run of the tasklet.
    scheduled: bool,
    steps: VecDeque<Step>,
    /// The step under way, and when it ends or how long it still takes.
    current: Option<Step>,
    ends: u64,
    remaining: u64,
    number: u64,
    /// Runs of the handler.
    pub handler_runs: u64,
    /// Runs of the tasklet.
    pub tasklet_runs: u64,
}

impl Processor {
    /// The SMMU reports a fault.
    pub fn interrupt(&mut self, now: u64) -> Option<Next> {
        if self.in_handler {
            self.pending = true;
            return None;
        }
        if self.current.is_some() {
            self.remaining = self.ends - now;
            self.number += 1;
        }
        self.in_handler = true;
        self.handler_runs += 1;
        Some(Next::Handler)
    }

    /// A run of the handler is over.
    pub fn handler_ended(&mut self, now: u64) -> Option<Next> {
        self.scheduled = true;
        if std::mem::take(&mut self.pending) {
            self.handler_runs += 1;
            return Some(Next::Handler);
        }
        self.in_handler = false;
        if self.current.is_some() {
            self.ends = now + self.remaining;
            return Some(Next::Continue { number: self.number, remaining: self.remaining });
        }
        Some(Next::Begin)
    }

    /// The next step, if there is work; a new run of the tasklet if one is scheduled.
    pub fn begin(&mut self) -> Option<Step> {
        if self.in_handler || self.current.is_some() {
            return None;
        }
        if self.steps.is_empty() && std::mem::take(&mut self.scheduled) {
            self.tasklet_runs += 1;
            self.steps.push_back(Step::Read);
        }
        self.current = self.steps.pop_front();
        self.current.clone()
    }

    /// Whether nothing is under way and nothing waits.
    pub fn is_idle(&self) -> bool {
        !self.in_handler && !self.scheduled && self.current.is_none() && self.steps.is_empty()
    }

    /// The step that was begun takes so long.
    pub fn takes(&mut self, now: u64, length: u64) -> Next {
        self.ends = now + length;
        self.number += 1;
        Next::Continue { number: self.number, remaining: length }
    }

    /// The continuation of that number is over; gives its step, unless a handler came between.
    pub fn step_ended(&mut self, number: u64) -> Option<Step> {
        if self.in_handler || number != self.number { None } else { self.current.take() }
    }

    /// More steps, before those that wait.
    pub fn before(&mut self, steps: impl DoubleEndedIterator<Item = Step>) {
        steps.rev().for_each(|step| self.steps.push_front(step));
    }

    /// More steps, behind those that wait.
    pub fn behind(&mut self, steps: impl Iterator<Item = Step>) {
        self.steps.extend(steps);
    }
}
