//! A completion queue as the program polls it.

use crate::completion;
use crate::completion::{Completion, CompletionQueueInit};
use crate::progress::engine::Nic;
use crate::queue_pair::poll_hint::CqBinding;
use crate::services::context::Context;
use crate::types::error::Result;
use pagewire_fabric::Fabric;
use std::ops::Deref;
use std::sync::Arc;

/// A completion queue (`ibv_create_cq(3)`), and the engine that a poll runs.
pub struct CompletionQueue<F: Fabric> {
    pub(crate) engine: Arc<Nic<F>>,
    pub(crate) binding: Arc<CqBinding<F>>,
}

impl<F: Fabric> Deref for CompletionQueue<F> {
    type Target = completion::CompletionQueue<F>;

    fn deref(&self) -> &Self::Target {
        &self.binding
    }
}

impl<F: Fabric> CompletionQueue<F> {
    pub(crate) fn new(
        engine: Arc<Nic<F>>,
        context: Arc<Context<F>>,
        init: CompletionQueueInit<F>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(CompletionQueue { engine, binding: CqBinding::new(context, init)? }))
    }

    /// Hands over at most `max` completions, oldest first, and gives how many (`ibv_poll_cq(3)`). With none
    /// there the calling thread does the NIC's work for a moment.
    pub fn poll(&self, max: usize, each: &mut dyn FnMut(&Completion)) -> usize {
        let found = self.take_or_work(max, each);
        self.engine.note_poll(found);
        found
    }

    #[inline(always)]
    fn take_or_work(&self, max: usize, each: &mut dyn FnMut(&Completion)) -> usize {
        let (engine, binding) = (&*self.engine, &*self.binding);
        let found = binding.take(max, each);
        if found > 0 || max == 0 {
            return found;
        }
        let _within = engine.services.arming.begin_verb();
        let mut found = None;
        let looked = binding.poll_hint.is_known()
            && !engine.owes_round()
            && engine.seek(binding, &mut found).is_some();
        if let Some(completion) = &found {
            engine.record_hint_hit(1 + binding.waiting() as u64);
            each(completion);
            // Others may have come with it.
            return 1 + binding.take(max - 1, each);
        }
        if looked && engine.may_skip_round() {
            return 0;
        }
        // As it is before the round, which may make another one.
        let hinted = binding.poll_hint.queue_pair();
        let interval = engine.progress_by_poller();
        let mut by_others = false;
        let found = binding.take(max, &mut |completion| {
            by_others |= hinted != Some(completion.queue_pair);
            each(completion);
        });
        if found > 0 && !by_others {
            // A look would have found them as well.
            engine.set_round_interval(interval);
        }
        found
    }

    /// Destroys the queue; waits until its events are acknowledged (`ibv_destroy_cq(3)`).
    pub fn destroy(&self) -> Result<()> {
        self.binding.destroy()?;
        self.binding.poll_hint.clear();
        Ok(())
    }
}
