//! An opened device.

use crate::api::completion::CompletionQueue;
use crate::api::completion_counter::CompletionCounter;
use crate::api::xrc::XrcDomain;
use crate::completion::{CompletionChannel, CompletionQueueInit};
use crate::progress::engine::Nic;
use crate::services::completion_counter::CountedUnit;
use crate::services::context;
use crate::services::device::Device;
use crate::services::event::Notifier;
use crate::services::protection::ProtectionDomain;
use crate::services::thread_domain::ThreadDomain;
use crate::types::error::Result;
use pagewire_fabric::Fabric;
use std::ops::Deref;
use std::sync::Arc;

/// What `ibv_open_device(3)` gives: a device, its asynchronous events, and the engine behind it.
pub struct Context<F: Fabric> {
    engine: Arc<Nic<F>>,
    context: Arc<context::Context<F>>,
}

impl<F: Fabric> Deref for Context<F> {
    type Target = context::Context<F>;

    fn deref(&self) -> &Self::Target {
        &self.context
    }
}

impl<F: Fabric> Context<F> {
    /// Opens a device; `notifier` is the context's descriptor for asynchronous events.
    pub fn open(nic: &Arc<Nic<F>>, device: Device, notifier: Arc<dyn Notifier>) -> Arc<Context<F>> {
        let context = context::Context::new(nic.services.clone(), device, notifier);
        Arc::new(Context { engine: nic.clone(), context })
    }

    /// The engine behind the device.
    pub fn nic(&self) -> &Arc<Nic<F>> {
        &self.engine
    }

    /// `ibv_alloc_pd(3)`.
    pub fn alloc_pd(&self) -> Result<Arc<ProtectionDomain<F>>> {
        ProtectionDomain::new(self.context.clone())
    }

    /// `ibv_alloc_td(3)`.
    pub fn alloc_td(&self) -> Result<Arc<ThreadDomain<F>>> {
        ThreadDomain::new(self.context.clone())
    }

    /// `ibv_create_comp_cntr(3)`.
    ///
    /// # Errors
    /// `NoMemory`: there are too many.
    pub fn create_counter(&self, unit: CountedUnit) -> Result<Arc<CompletionCounter<F>>> {
        CompletionCounter::new(self.engine.clone(), self.context.clone(), unit)
    }

    /// Makes an XRC domain, which is open once (`ibv_open_xrcd(3)`).
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn open_xrcd(&self) -> Result<Arc<XrcDomain<F>>> {
        Ok(XrcDomain::new(self.alloc_pd()?, self.create_cq(1, None)?))
    }

    /// `ibv_create_comp_channel(3)`; `notifier` is its descriptor.
    pub fn create_channel(&self, notifier: Arc<dyn Notifier>) -> Arc<CompletionChannel> {
        CompletionChannel::new(notifier)
    }

    /// `ibv_create_cq(3)`.
    pub fn create_cq(
        &self,
        entries: u32,
        channel: Option<Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue<F>>> {
        let init = CompletionQueueInit {
            entries,
            channel,
            parent_domain: None,
            ignores_overrun: false,
            stamps: None,
        };
        self.create_cq_ex(init)
    }

    /// `ibv_create_cq_ex(3)`.
    pub fn create_cq_ex(&self, init: CompletionQueueInit<F>) -> Result<Arc<CompletionQueue<F>>> {
        CompletionQueue::new(self.engine.clone(), self.context.clone(), init)
    }
}
