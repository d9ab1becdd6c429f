//! Completion counters: how many requests, or bytes, have completed at the queue pairs that a counter is attached to
//! (`ibv_create_comp_cntr(3)`).
//!
//! A counter is passive: whoever completes something adds to it, before the completion can be polled.

use crate::services::context::Context;
use crate::types::error::{Result, busy_if};
use pagewire_fabric::Fabric;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a counter counts of operations that succeed (`enum ibv_comp_cntr_type`). Failures are counted one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedUnit {
    Requests,
    Bytes,
}

/// An operation of a queue pair that a counter can be attached to (`enum ibv_qp_attach_comp_cntr_op`, by the numbers of its bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CountedOperation {
    Send = 0,
    Receive = 1,
    Read = 2,
    /// A READ by the peer.
    RemoteRead = 3,
    Write = 4,
    /// A WRITE by the peer.
    RemoteWrite = 5,
}

impl CountedOperation {
    /// All, by their numbers.
    pub const ALL: [CountedOperation; 6] = [
        CountedOperation::Send,
        CountedOperation::Receive,
        CountedOperation::Read,
        CountedOperation::RemoteRead,
        CountedOperation::Write,
        CountedOperation::RemoteWrite,
    ];
}

/// One of the two values of a counter. It wraps.
#[derive(Default)]
pub struct CounterValue(AtomicU64);

impl CounterValue {
    /// The value now. What was counted before, with the bytes that were placed for it, is visible.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Adds an amount.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::AcqRel);
    }

    /// Sets it. What is counted at the same time may be lost (`ibv_create_comp_cntr(3)`, NOTES).
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

/// A completion counter.
pub struct CompletionCounter<F: Fabric> {
    context: Arc<Context<F>>,
    unit: CountedUnit,
    pub succeeded: CounterValue,
    pub failed: CounterValue,
    /// How often it is attached.
    pub(crate) users: AtomicU32,
}

impl<F: Fabric> CompletionCounter<F> {
    pub(crate) fn new(context: Arc<Context<F>>, unit: CountedUnit) -> Result<Arc<Self>> {
        context.services().counts.completion_counters.take("completion counters")?;
        let (succeeded, failed) = (CounterValue::default(), CounterValue::default());
        Ok(Arc::new(CompletionCounter { context, unit, succeeded, failed, users: AtomicU32::new(0) }))
    }

    pub(crate) fn context(&self) -> &Arc<Context<F>> {
        &self.context
    }

    /// Counts an operation that has succeeded: `requests` messages, mostly one, of so many bytes.
    pub(crate) fn count_success(&self, requests: u32, bytes: u32) {
        self.succeeded.add(match self.unit {
            CountedUnit::Requests => requests.into(),
            CountedUnit::Bytes => bytes.into(),
        });
    }

    /// Refused while it is attached to a queue pair (`ibv_destroy_comp_cntr(3)`).
    pub fn destroy(&self) -> Result<()> {
        busy_if(self.users.load(Ordering::Acquire) != 0, "a queue pair has the completion counter")?;
        self.context.services().counts.completion_counters.give_back();
        Ok(())
    }
}
