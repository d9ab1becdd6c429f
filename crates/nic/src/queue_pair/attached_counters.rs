//! The completion counters of a queue pair (`ibv_qp_attach_comp_cntr(3)`): at most one for each operation, as long as the queue pair lives.

use crate::completion::{CompletionOpcode, Status};
use crate::services::completion_counter::{CompletionCounter, CountedOperation};
use crate::types::error::{Result, busy_if};
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use pagewire_iommu::Rights;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The completion counters of a queue pair.
#[derive_where(Default)]
pub struct AttachedCounters<F: Fabric> {
    /// One is attached: mostly there is none, and completions only look here.
    is_any: AtomicBool,
    counters: [OnceLock<Arc<CompletionCounter<F>>>; CountedOperation::ALL.len()],
}

impl<F: Fabric> AttachedCounters<F> {
    fn counter_of(&self, operation: CountedOperation) -> Option<&CompletionCounter<F>> {
        self.counters[operation as usize].get().map(|counter| &**counter)
    }

    /// Attaches a counter to operations: to all of them, or to none. The caller holds the QP context.
    ///
    /// # Errors
    /// `Busy`: one of them has a counter.
    pub fn attach(&self, counter: &Arc<CompletionCounter<F>>, operations: &[CountedOperation]) -> Result<()> {
        let is_taken = operations.iter().any(|operation| self.counter_of(*operation).is_some());
        busy_if(is_taken, "the queue pair has a completion counter for such an operation")?;
        for operation in operations {
            self.counters[*operation as usize].get_or_init(|| {
                counter.users.fetch_add(1, Ordering::AcqRel);
                counter.clone()
            });
        }
        self.is_any.store(true, Ordering::Release);
        Ok(())
    }

    /// Detaches all, as the queue pair ends.
    pub fn detach(&self) {
        if self.is_any.swap(false, Ordering::AcqRel) {
            for counter in self.counters.iter().filter_map(OnceLock::get) {
                counter.users.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Counts a request of this queue pair that ends.
    #[inline(always)] // Part of each completion.
    pub fn count(&self, opcode: CompletionOpcode, bytes: u32, status: Status) {
        if self.is_any.load(Ordering::Relaxed) {
            self.count_request(opcode, bytes, status);
        }
    }

    #[cold]
    fn count_request(&self, opcode: CompletionOpcode, bytes: u32, status: Status) {
        let counter = operation_of(opcode).and_then(|operation| self.counter_of(operation));
        match (counter, status) {
            (Some(counter), Status::Success) => counter.count_success(1, bytes),
            (Some(counter), _) => counter.failed.add(1),
            (None, _) => {}
        }
    }

    /// Counts a request of the peer that was executed: messages, and bytes.
    #[inline(always)] // Part of each message.
    pub fn count_executed(&self, operation: CountedOperation, messages: u32, bytes: u32) {
        if self.is_any.load(Ordering::Relaxed) {
            if let Some(counter) = self.counter_of(operation) {
                counter.count_success(messages, bytes);
            }
        }
    }

    /// Rights that a local peer must not use without asking: where this process counts its WRITEs or READs, it has to execute them.
    pub fn withheld_rights(&self) -> Rights {
        let withheld = |operation, rights| match self.counter_of(operation) {
            Some(_) => rights,
            None => Rights::empty(),
        };
        withheld(CountedOperation::RemoteRead, Rights::REMOTE_READ)
            | withheld(CountedOperation::RemoteWrite, Rights::REMOTE_WRITE)
    }
}

/// What a completion with this opcode is one of. No counter counts the others.
fn operation_of(opcode: CompletionOpcode) -> Option<CountedOperation> {
    match opcode {
        CompletionOpcode::Send => Some(CountedOperation::Send),
        CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteImmediate => {
            Some(CountedOperation::Receive)
        }
        CompletionOpcode::Read => Some(CountedOperation::Read),
        CompletionOpcode::Write => Some(CountedOperation::Write),
        CompletionOpcode::CompareSwap
        | CompletionOpcode::FetchAdd
        | CompletionOpcode::AtomicWrite
        | CompletionOpcode::Flush
        | CompletionOpcode::BindWindow
        | CompletionOpcode::LocalInvalidate => None,
    }
}
