//! A completion counter as the program reads it.

use crate::api::queue_pair::QueuePair;
use crate::progress::engine::Nic;
use crate::services::completion_counter::{self, CountedOperation, CountedUnit, CounterValue};
use crate::services::context::Context;
use crate::types::attributes::QpState;
use crate::types::error::{Result, invalid_if};
use pagewire_fabric::Fabric;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A completion counter (`ibv_create_comp_cntr(3)`), and the engine that a read runs.
pub struct CompletionCounter<F: Fabric> {
    engine: Arc<Nic<F>>,
    counter: Arc<completion_counter::CompletionCounter<F>>,
    /// The values that were read last.
    last_succeeded: AtomicU64,
    last_failed: AtomicU64,
}

impl<F: Fabric> Deref for CompletionCounter<F> {
    type Target = completion_counter::CompletionCounter<F>;

    fn deref(&self) -> &Self::Target {
        &self.counter
    }
}

impl<F: Fabric> CompletionCounter<F> {
    pub(crate) fn new(engine: Arc<Nic<F>>, context: Arc<Context<F>>, unit: CountedUnit) -> Result<Arc<Self>> {
        let counter = completion_counter::CompletionCounter::new(context, unit)?;
        let (last_succeeded, last_failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(CompletionCounter { engine, counter, last_succeeded, last_failed }))
    }

    /// What has succeeded (`ibv_read_comp_cntr(3)`).
    pub fn read_succeeded(&self) -> u64 {
        self.read(&self.counter.succeeded, &self.last_succeeded)
    }

    /// What has failed (`ibv_read_err_comp_cntr(3)`).
    pub fn read_failed(&self) -> u64 {
        self.read(&self.counter.failed, &self.last_failed)
    }

    /// A value. Where it is what the last read gave, the calling thread does the NIC's work for a moment, as one does that polls an
    /// empty completion queue.
    fn read(&self, value: &CounterValue, last: &AtomicU64) -> u64 {
        let mut now = value.get();
        if now == last.load(Ordering::Relaxed) {
            let _within = self.engine.services.arming.begin_verb();
            self.engine.progress_by_poller();
            now = value.get();
        }
        last.store(now, Ordering::Relaxed);
        now
    }
}

impl<F: Fabric> QueuePair<F> {
    /// `ibv_qp_attach_comp_cntr(3)`: counts operations of the queue pair, until that is destroyed.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no operation, the counter is of another context, or the queue pair is neither in RESET nor in INIT; `Busy`:
    /// an operation has a counter, or a thread is at the queue pair, and stays.
    pub fn attach_counter(
        &self,
        counter: &CompletionCounter<F>,
        operations: &[CountedOperation],
    ) -> Result<()> {
        invalid_if(operations.is_empty(), "no operation to count")?;
        let is_foreign = !Arc::ptr_eq(counter.context(), self.state.domain.context());
        invalid_if(is_foreign, "the completion counter is of another context")?;
        let qpc = self.state.lock_qpc()?;
        let is_early = matches!(qpc.attributes.state, QpState::Reset | QpState::Init);
        let attached = invalid_if(!is_early, "completion counters are attached in RESET or INIT")
            .and_then(|()| self.state.counted.attach(&counter.counter, operations));
        drop(qpc);
        self.state.pass_on_pending();
        attached
    }
}
