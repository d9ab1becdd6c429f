//! What belongs to an opened device: its port as it is now, and its asynchronous events.

use crate::services::Services;
use crate::services::device::{Device, devices};
use crate::services::event::{
    Acknowledgements, AsyncEvent, AsyncEventKind, EventSource, Notifier, ProgramEvents,
};
use crate::types::limits::MAX_ASYNC_EVENTS;
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, Weak};

/// A device, its port and its asynchronous events.
pub struct Context<F: Fabric> {
    services: Arc<Services<F>>,
    device: Device,
    port: RwLock<Arc<Device>>,
    port_events: Arc<Acknowledgements>,
    events: ProgramEvents<(AsyncEventKind, EventSource)>,
}

impl<F: Fabric> Context<F> {
    /// For a device; `notifier` is the descriptor for asynchronous events.
    pub(crate) fn new(services: Arc<Services<F>>, device: Device, notifier: Arc<dyn Notifier>) -> Arc<Self> {
        let port = RwLock::new(Arc::new(device.clone()));
        let events = ProgramEvents::new(notifier);
        let context = Arc::new(Context { services, device, port, port_events: Arc::default(), events });
        context.services.contexts.add(&context);
        context
    }

    pub(crate) fn services(&self) -> &Arc<Services<F>> {
        &self.services
    }

    /// The device as it was opened. Its name, numbers and path MTU stay.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The device as it is now: the state of its link, its MTU and its GIDs.
    pub fn port(&self) -> Arc<Device> {
        self.port.read().clone()
    }

    /// Has the port go down, or up again, as failures on demand want it. What the interface is next time that it changes counts again.
    pub fn set_port_active(&self, is_active: bool) {
        let now = Device { is_active, ..Device::clone(&self.port()) };
        self.set_port(&now);
    }

    /// Raises an event of the port though nothing has changed (`IBV_EVENT_GID_CHANGE`).
    pub fn raise_gid_change(&self) {
        self.raise(AsyncEventKind::GidChange, EventSource::Port { number: 1 }, &self.port_events);
    }

    /// Says that the device is gone (`IBV_EVENT_DEVICE_FATAL`). What that ends is the caller's to end.
    pub fn raise_device_fatal(&self) {
        self.raise(AsyncEventKind::DeviceFatal, EventSource::Device, &self.port_events);
    }

    /// Takes over what the device is now, and raises an event for what has changed, as the kernel's RoCE devices do.
    fn set_port(&self, now: &Device) {
        let before = std::mem::replace(&mut *self.port.write(), Arc::new(now.clone()));
        let raise = |kind| self.raise(kind, EventSource::Port { number: 1 }, &self.port_events);
        if before.is_active && !now.is_active {
            raise(AsyncEventKind::PortError);
        }
        if before.gids != now.gids {
            raise(AsyncEventKind::GidChange);
        }
        if !before.is_active && now.is_active {
            raise(AsyncEventKind::PortActive);
        }
    }

    /// Takes the next asynchronous event; its object is not destroyed before the event is acknowledged. `None`: there is none,
    /// though the descriptor was readable (its object was destroyed).
    pub fn next_async_event(&self) -> Option<AsyncEvent> {
        let ((kind, element), of) = self.events.next()?;
        Some(AsyncEvent { kind, element, of })
    }

    pub(crate) fn raise(&self, kind: AsyncEventKind, element: EventSource, of: &Arc<Acknowledgements>) {
        if !self.events.raise((kind, element), of, MAX_ASYNC_EVENTS) {
            log::warn!("asynchronous event {kind:?} dropped: {MAX_ASYNC_EVENTS} are waiting to be read");
        }
    }

    /// Withdraws the events of an object that goes, and waits until the program has acknowledged those that it was given.
    pub(crate) fn withdraw_events(&self, of: &Arc<Acknowledgements>) {
        self.events.withdraw(of);
    }
}

/// The open devices of one process.
#[derive_where(Default)]
pub struct Contexts<F: Fabric> {
    open: Mutex<Vec<Weak<Context<F>>>>,
    /// Held by who lists the network devices: what was listed later is taken over later.
    listing: Mutex<()>,
}

impl<F: Fabric> Contexts<F> {
    fn add(&self, context: &Arc<Context<F>>) {
        let mut all = self.open.lock();
        // Closed ones leave when the list would grow.
        if all.len() == all.capacity() {
            all.retain(|other| other.strong_count() > 0);
        }
        all.push(Arc::downgrade(context));
    }

    /// Lists the network devices again, and tells each open device what has changed.
    pub fn refresh(&self) {
        let open: Vec<Arc<Context<F>>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        if open.is_empty() {
            return;
        }
        let _listing = self.listing.lock();
        let now = match devices() {
            Ok(now) => now,
            Err(error) => {
                return log::warn!("the network devices have changed and cannot be listed: {error}");
            }
        };
        for context in open {
            let known = now.iter().find(|device| device.interface_index == context.device.interface_index);
            match known {
                Some(device) => context.set_port(device),
                None => context.set_port(&context.port().without_interface()),
            }
        }
    }
}
