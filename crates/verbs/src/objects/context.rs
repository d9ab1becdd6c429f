//! Open devices as programs see them, and what ends with them.

use crate::abi::*;
use crate::boundary::{Errno, Result};
use crate::calls;
use crate::checking::retire;
use crate::descriptor::EventDescriptor;
use crate::devices::device::DeviceObject;
use crate::devices::device_list::devices;
use crate::limits::COMPLETION_VECTORS;
use crate::objects::held::epoch;
use crate::runtime::engine::{Engine, Host};
use crate::runtime::leftovers::Leftovers;
use libc::{EINVAL, EIO, EOPNOTSUPP};
use pagewire_memory::fork::PerProcess;
use pagewire_nic::Context;
use pagewire_nic::device::Device;
use std::cell::UnsafeCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The addresses of the contexts that are open.
static OPENED: PerProcess<Vec<usize>> = PerProcess::new();

/// A context as programs see it. They hold the address of `context` in `public`.
#[repr(C)]
pub struct ContextObject {
    public: UnsafeCell<verbs_context>,
    context: Arc<Context<Host>>,
    /// Keeps the device that programs find in the context.
    _device: Arc<DeviceObject>,
    descriptor: Arc<EventDescriptor>,
    /// The program's `cmd_fd`: open, and nobody's. Commands to it are refused by the kernel (ENOTTY, EINVAL).
    commands: EventDescriptor,
    leftovers: Arc<Leftovers>,
    engine: Arc<Engine>,
    epoch: u32,
}

/// A device as it is now: its list may be old.
fn now(device: &Device) -> Result<Device> {
    let is_same = |other: &Device| other.interface_index == device.interface_index;
    Ok(devices()?.into_iter().find(is_same).unwrap_or_else(|| device.without_interface()))
}

impl ContextObject {
    /// The object behind a program's pointer.
    ///
    /// # Safety
    /// `public` is NULL or came from [`open`](Self::open) and was not closed.
    pub unsafe fn of<'a>(public: *const ibv_context) -> Result<&'a Self> {
        // SAFETY: the caller promises what the function asks for.
        let object = unsafe { ContextObject::of_family(public) }?;
        if object.epoch == epoch() { Ok(object) } else { Err(Errno(EIO)) }
    }

    /// As [`of`](Self::of), also of a parent of this forked process: for what never changes.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    pub unsafe fn of_family<'a>(public: *const ibv_context) -> Result<&'a Self> {
        if public.is_null() {
            return Err(Errno(EINVAL));
        }
        // SAFETY: the caller promises that it came from `open` and was not closed: `public` is the last field of the
        // `verbs_context` with which the object begins.
        Ok(unsafe { &*public.byte_sub(CONTEXT_OFFSET).cast::<Self>() })
    }

    /// The engine's context.
    pub fn context(&self) -> &Arc<Context<Host>> {
        &self.context
    }

    /// What ends with the context.
    pub fn leftovers(&self) -> &Arc<Leftovers> {
        &self.leftovers
    }

    /// What the program sleeps on for asynchronous events.
    pub fn descriptor(&self) -> &EventDescriptor {
        &self.descriptor
    }

    /// Opens a device on an engine; `public` has the operations.
    pub fn open(
        engine: Arc<Engine>,
        device: Arc<DeviceObject>,
        mut public: verbs_context,
    ) -> Result<*mut ibv_context> {
        let descriptor = Arc::new(EventDescriptor::new()?);
        let commands = EventDescriptor::new()?;
        let context = pagewire_nic::Context::open(engine.nic(), now(device.device())?, descriptor.clone());
        public.sz = size_of::<verbs_context>();
        public.context.device = device.public();
        public.context.num_comp_vectors = COMPLETION_VECTORS;
        public.context.abi_compat = EXTENDED as *mut _;
        let object = ContextObject {
            public: UnsafeCell::new(public),
            context,
            _device: device,
            descriptor,
            commands,
            leftovers: Arc::default(),
            engine,
            epoch: epoch(),
        };
        Ok(object.publish())
    }

    /// Makes another context of what the one has whose `cmd_fd` was duplicated to `commands`. Both have the same events.
    ///
    /// # Errors
    /// EOPNOTSUPP: it is that of no context of this process. EINVAL: a context has this very descriptor.
    pub fn import(commands: OwnedFd) -> std::result::Result<*mut ibv_context, (Errno, OwnedFd)> {
        let commands = EventDescriptor::of(commands);
        let Some(wanted) = commands.identity() else { return Err((Errno(EOPNOTSUPP), commands.into())) };
        let opened = OPENED.lock();
        // SAFETY: whoever closes a context takes it from the list first.
        let contexts = opened.iter().map(|&address| unsafe { &*(address as *const ContextObject) });
        if opened.iter().any(|&address| {
            // SAFETY: whoever closes a context takes it from the list first, and the list is locked.
            unsafe { &*(address as *const ContextObject) }.commands.number() == commands.number()
        }) {
            return Err((Errno(EINVAL), commands.into()));
        }
        let mut own = contexts.filter(|object| object.epoch == epoch());
        let Some(original) = own.find(|object| object.commands.identity() == Some(wanted)) else {
            return Err((Errno(EOPNOTSUPP), commands.into()));
        };
        original.leftovers.share();
        let object = ContextObject {
            // SAFETY: what is copied are pointers to functions and numbers, which do not change once the context is open.
            public: UnsafeCell::new(unsafe { original.public.get().read() }),
            context: original.context.clone(),
            _device: original._device.clone(),
            descriptor: original.descriptor.clone(),
            commands,
            leftovers: original.leftovers.clone(),
            engine: original.engine.clone(),
            epoch: epoch(),
        };
        drop(opened);
        Ok(object.publish())
    }

    /// Gives the context to the program.
    fn publish(self) -> *mut ibv_context {
        // SAFETY: the object is not shared yet.
        let public = unsafe { &mut *self.public.get() };
        public.context.cmd_fd = self.commands.number();
        public.context.async_fd = self.descriptor.number();
        let object = Box::into_raw(Box::new(self));
        OPENED.lock().push(object as usize);
        // SAFETY: the object was just made; the public part is never moved, as the object stays in its box.
        unsafe { &raw mut (*(*object).public.get()).context }
    }

    /// Ends everything that is left of what was made from a context, and frees it.
    ///
    /// # Safety
    /// As for [`of`](Self::of), and nobody uses the context any more.
    pub unsafe fn close(public: *mut ibv_context) -> Result<()> {
        // SAFETY: the caller promises what `of` asks: `public` is NULL or came from `publish`, and was not taken back.
        let object = unsafe { Self::of(public) }?;
        if object.leftovers.leave() {
            object.leftovers.end()?;
        }
        OPENED.lock().retain(|address| *address != std::ptr::from_ref(object) as usize);
        object.engine.last_round();
        // SAFETY: `of` has checked that it is a context of this process; the pointer came from `Box::into_raw`.
        let object = unsafe { Box::from_raw(public.byte_sub(CONTEXT_OFFSET).cast::<Self>()) };
        if calls::are_observed() {
            retire(object);
        }
        Ok(())
    }
}
