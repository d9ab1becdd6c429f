//! What belongs to an opened device: its asynchronous events.

use crate::services::Services;
use crate::services::device::Device;
use crate::services::event::{Acknowledgements, AsyncEvent, AsyncEventKind, Element, EventQueue, Notifier};
use crate::words::limits::MAX_ASYNC_EVENTS;
use pagewire_fabric::Fabric;
use std::sync::Arc;

/// A device and its asynchronous events.
pub struct Context<F: Fabric> {
    services: Arc<Services<F>>,
    device: Device,
    events: EventQueue<(AsyncEventKind, Element)>,
}

impl<F: Fabric> Context<F> {
    /// For a device; `notifier` is the descriptor for asynchronous events.
    pub(crate) fn new(services: Arc<Services<F>>, device: Device, notifier: Arc<dyn Notifier>) -> Arc<Self> {
        Arc::new(Context { services, device, events: EventQueue::new(notifier) })
    }

    pub(crate) fn services(&self) -> &Arc<Services<F>> {
        &self.services
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
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
