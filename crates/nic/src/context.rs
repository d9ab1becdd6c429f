//! An opened device.

use crate::completion::{CompletionChannel, CompletionQueue};
use crate::device::Device;
use crate::engine::Nic;
use crate::error::Result;
use crate::event::{AsyncEvent, AsyncEventKind, Element};
use crate::limits::MAX_ASYNC_EVENTS;
use crate::protection::ProtectionDomain;
use pagewire_fabric::Fabric;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// What `ibv_open_device(3)` gives: a device and its asynchronous events.
pub struct Context<F: Fabric> {
    nic: Arc<Nic<F>>,
    device: Device,
    events: Mutex<VecDeque<AsyncEvent>>,
    notify: Box<dyn Fn() + Send + Sync>,
}

impl<F: Fabric> Nic<F> {
    /// Opens a device; `notify` makes the context's event descriptor readable once.
    pub fn open(self: &Arc<Self>, device: Device, notify: Box<dyn Fn() + Send + Sync>) -> Arc<Context<F>> {
        Arc::new(Context { nic: self.clone(), device, events: Mutex::new(VecDeque::new()), notify })
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

    /// `ibv_create_comp_channel(3)`; `notify` makes its descriptor readable once.
    pub fn create_channel(&self, notify: Box<dyn Fn() + Send + Sync>) -> Arc<CompletionChannel> {
        CompletionChannel::new(notify)
    }

    /// `ibv_create_cq(3)`.
    pub fn create_cq(
        self: &Arc<Self>,
        entries: u32,
        channel: Option<Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue<F>>> {
        CompletionQueue::new(self.clone(), entries, channel)
    }

    /// Takes the next asynchronous event. `None`: there is none, though the descriptor was readable (its object was destroyed).
    pub fn next_async_event(&self) -> Option<AsyncEvent> {
        self.events.lock().pop_front()
    }

    pub(crate) fn raise(&self, kind: AsyncEventKind, element: Element) {
        let mut events = self.events.lock();
        if events.len() >= MAX_ASYNC_EVENTS {
            log::warn!("asynchronous event {kind:?} dropped: {MAX_ASYNC_EVENTS} are waiting to be read");
            return;
        }
        events.push_back(AsyncEvent { kind, element });
        drop(events);
        (self.notify)();
    }

    /// Forgets the events of an object that goes.
    pub(crate) fn forget(&self, of: impl Fn(&Element) -> bool) {
        self.events.lock().retain(|event| !of(&event.element));
    }
}
