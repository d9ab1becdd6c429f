//! Thread domains: a program's promise that one thread at a time uses what is made for one of them (`ibv_alloc_td(3)`).
//!
//! The engine keeps its locks: peers and the NIC thread use the same objects. So the promise changes nothing but what may be destroyed.

use crate::services::context::Context;
use crate::types::error::{Result, busy_if};
use pagewire_fabric::Fabric;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A thread domain.
pub struct ThreadDomain<F: Fabric> {
    context: Arc<Context<F>>,
    /// Parent domains.
    pub(crate) users: AtomicU32,
}

impl<F: Fabric> ThreadDomain<F> {
    pub(crate) fn new(context: Arc<Context<F>>) -> Result<Arc<Self>> {
        context.services().counts.thread_domains.take("thread domains")?;
        Ok(Arc::new(ThreadDomain { context, users: AtomicU32::new(0) }))
    }

    pub(crate) fn context(&self) -> &Arc<Context<F>> {
        &self.context
    }

    /// Refused while a parent domain uses it (`ibv_dealloc_td(3)`).
    pub fn dealloc(&self) -> Result<()> {
        busy_if(self.users.load(Ordering::Acquire) != 0, "a parent domain uses the thread domain")?;
        self.context.services().counts.thread_domains.give_back();
        Ok(())
    }
}
