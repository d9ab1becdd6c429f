//! An opened device.

use crate::completion::{CompletionChannel, CompletionQueue, CompletionQueueInit};
use crate::device::Device;
use crate::engine::Nic;
use crate::error::Result;
use crate::event::{Acknowledgements, AsyncEvent, AsyncEventKind, Element, EventQueue, Notifier};
use crate::limits::MAX_ASYNC_EVENTS;
use crate::protection::ProtectionDomain;
use crate::thread_domain::ThreadDomain;
use pagewire_fabric::Fabric;
use std::sync::Arc;

/// What `ibv_open_device(3)` gives: a device and its asynchronous events.
pub struct Context<F: Fabric> {
    nic: Arc<Nic<F>>,
    device: Device,
    events: EventQueue<(AsyncEventKind, Element)>,
}

impl<F: Fabric> Nic<F> {
    /// Opens a device; `notifier` is the context's descriptor for asynchronous events.
    pub fn open(self: &Arc<Self>, device: Device, notifier: Arc<dyn Notifier>) -> Arc<Context<F>> {
        Arc::new(Context { nic: self.clone(), device, events: EventQueue::new(notifier) })
    }
}

impl<F: Fabric> Context<F> {
    /// The engine behind the device.
    pub fn nic(&self) -> &Arc<Nic<F>> {
        &self.nic
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// `ibv_alloc_pd(3)`.
    pub fn alloc_pd(self: &Arc<Self>) -> Result<Arc<ProtectionDomain<F>>> {
        ProtectionDomain::new(self.clone())
    }

    /// `ibv_alloc_td(3)`.
    pub fn alloc_td(self: &Arc<Self>) -> Result<Arc<ThreadDomain<F>>> {
        ThreadDomain::new(self.clone())
    }

    /// `ibv_create_comp_channel(3)`; `notifier` is its descriptor.
    pub fn create_channel(&self, notifier: Arc<dyn Notifier>) -> Arc<CompletionChannel> {
        CompletionChannel::new(notifier)
    }

    /// `ibv_create_cq(3)`.
    pub fn create_cq(
        self: &Arc<Self>,
        entries: u32,
        channel: Option<Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue<F>>> {
        let init = CompletionQueueInit { entries, channel, parent_domain: None, ignores_overrun: false };
        self.create_cq_ex(init)
    }

    /// `ibv_create_cq_ex(3)`.
    pub fn create_cq_ex(self: &Arc<Self>, init: CompletionQueueInit<F>) -> Result<Arc<CompletionQueue<F>>> {
        CompletionQueue::new(self.clone(), init)
    }

    /// Takes the next asynchronous event; its object is not destroyed before the event is acknowledged. `None`: there is none,
    /// though the descriptor was readable (its object was destroyed).
    pub fn next_async_event(&self) -> Option<AsyncEvent> {
        let ((kind, element), of) = self.events.next()?;
        Some(AsyncEvent { kind, element, of })
    }

    pub(crate) fn raise(&self, kind: AsyncEventKind, element: Element, of: &Arc<Acknowledgements>) {
        if !self.events.raise((kind, element), of, MAX_ASYNC_EVENTS) {
            log::warn!("asynchronous event {kind:?} dropped: {MAX_ASYNC_EVENTS} are waiting to be read");
        }
    }

    /// Withdraws the events of an object that goes, and waits until the program has acknowledged those that it was given.
    pub(crate) fn withdraw_events(&self, of: &Arc<Acknowledgements>) {
        self.events.withdraw(of);
    }
}
