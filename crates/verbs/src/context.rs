//! Open devices, and their asynchronous events.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, number, pointer};
use crate::completion_queue::CompletionQueueObject;
use crate::descriptor::{EventDescriptor, take_event};
use crate::device::DeviceObject;
use crate::engine::{Engine, Host, engine, epoch};
use crate::leftovers::Leftovers;
use crate::object::{Object, not_null};
use crate::queue_pair::QueuePairObject;
use crate::shared_receive::SharedReceiveObject;
use crate::{limits, operations};
use libc::{EINVAL, EIO, c_int};
use pagewire_nic::{Acknowledgements, AsyncEvent, Context, Element};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A context as programs see it. They hold the address of `context` in `public`.
#[repr(C)]
pub struct ContextObject {
    public: UnsafeCell<verbs_context>,
    context: Arc<Context<Host>>,
    /// Keeps the device that programs find in the context.
    _device: Arc<DeviceObject>,
    descriptor: Arc<EventDescriptor>,
    /// The program's `cmd_fd`: open, and nobody's. Commands to it are refused by the kernel (ENOTTY, EINVAL).
    _commands: EventDescriptor,
    leftovers: Arc<Leftovers>,
    engine: Arc<Engine>,
    epoch: u32,
}

impl ContextObject {
    /// The object behind a program's pointer.
    ///
    /// # Safety
    /// `public` is NULL or came from [`ibv_open_device`] and was not closed.
    pub unsafe fn of<'a>(public: *const ibv_context) -> Result<&'a Self> {
        if public.is_null() {
            return Err(Errno(EINVAL));
        }
        // SAFETY: the caller's promise: `public` is the last field of the `verbs_context` with which the object begins.
        let object = unsafe { &*public.byte_sub(CONTEXT_OFFSET).cast::<Self>() };
        if object.epoch == epoch() { Ok(object) } else { Err(Errno(EIO)) }
    }

    /// The engine's context.
    pub fn context(&self) -> &Arc<Context<Host>> {
        &self.context
    }

    /// What ends with the context.
    pub fn leftovers(&self) -> &Arc<Leftovers> {
        &self.leftovers
    }
}

fn translate(event: &AsyncEvent) -> ibv_async_event {
    let element = match event.element {
        Element::QueuePair { cookie } => ibv_async_event__bindgen_ty_1 { qp: cookie as *mut ibv_qp },
        Element::CompletionQueue { cookie } => ibv_async_event__bindgen_ty_1 { cq: cookie as *mut ibv_cq },
        Element::SharedReceiveQueue { cookie } => {
            ibv_async_event__bindgen_ty_1 { srq: cookie as *mut ibv_srq }
        }
    };
    ibv_async_event { element, event_type: event.kind as ibv_event_type }
}

/// `ibv_open_device(3)`.
///
/// # Safety
/// `device` is NULL or a device that the program holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { DeviceObject::of(device) }?;
        let engine = engine()?;
        let descriptor = Arc::new(EventDescriptor::new()?);
        let commands = EventDescriptor::new()?;
        let context = engine.nic().open(device.device().clone(), descriptor.clone());
        let mut public = operations::verbs_operations();
        public.sz = size_of::<verbs_context>();
        public.context.device = device.public();
        public.context.ops = operations::context_operations();
        public.context.cmd_fd = commands.number();
        public.context.async_fd = descriptor.number();
        public.context.num_comp_vectors = limits::COMPLETION_VECTORS;
        public.context.abi_compat = EXTENDED as *mut _;
        let object = Box::into_raw(Box::new(ContextObject {
            public: UnsafeCell::new(public),
            context,
            _device: device,
            descriptor,
            _commands: commands,
            leftovers: Arc::default(),
            engine,
            epoch: epoch(),
        }));
        // SAFETY: the object was just made; the public part is never moved, as the object stays in its box.
        Ok(unsafe { &raw mut (*(*object).public.get()).context })
    })
}

/// `ibv_close_device(3)`: ends everything that is left of what was made from the context, as a kernel does. The structures are not
/// freed, as the program holds them. While an access to one of them is under way that does not end this is EBUSY; the context then is
/// still open, and may be closed again.
///
/// # Safety
/// `context` is NULL or open, and nobody uses it or anything made from it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let object = unsafe { ContextObject::of(context) }?;
        object.leftovers.end()?;
        object.engine.last_round();
        // SAFETY: `of` has checked that it is a context of this process; the pointer came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(context.byte_sub(CONTEXT_OFFSET).cast::<ContextObject>()) });
        Ok(0)
    })
}

/// `ibv_get_async_event(3)`: sleeps for the next event unless `async_fd` is non-blocking. The sleep is a cancellation point:
/// nothing in this frame has to be dropped.
///
/// # Safety
/// `context` is NULL or open; `event` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    loop {
        let descriptor = number(|| {
            not_null(event)?;
            // SAFETY: the caller's promise.
            Ok(unsafe { ContextObject::of(context) }?.descriptor.number())
        });
        if descriptor < 0 || !take_event(descriptor) {
            return -1;
        }
        let taken = number(|| {
            // SAFETY: the caller's promise.
            let context = unsafe { ContextObject::of(context) }?;
            // Nothing is there when the event's object was destroyed meanwhile.
            let Some(next) = context.context.next_async_event() else { return Ok(0) };
            // SAFETY: not NULL, hence valid for a write by the caller's promise.
            unsafe { not_null(event)?.write(translate(&next)) };
            Ok(1)
        });
        match taken {
            0 => {}
            1 => return 0,
            _ => return -1,
        }
    }
}

/// `ibv_ack_async_event(3)`.
///
/// # Safety
/// `event` is NULL or was given by [`ibv_get_async_event`] and not acknowledged yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's promise.
    let Some(event) = (unsafe { event.as_ref() }) else { return };
    let acknowledged = |acknowledgements: Result<&Acknowledgements>| match acknowledgements {
        Ok(acknowledgements) => acknowledgements.acknowledge(1),
        Err(_) => drop(invalid::<()>("an event of no object is acknowledged")),
    };
    // SAFETY: the kind of event says which member of the union was written; its object lives until it is acknowledged.
    unsafe {
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                acknowledged(CompletionQueueObject::of(event.element.cq).map(|cq| cq.queue().async_events()))
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                acknowledged(QueuePairObject::of(event.element.qp).map(|qp| qp.queue_pair().async_events()));
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                acknowledged(
                    SharedReceiveObject::of(event.element.srq).map(|srq| srq.queue().async_events()),
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ibv_free_device_list, ibv_get_device_list};
    use crate::leftovers::Leftover;
    use pagewire_nic::Rights;

    #[test]
    fn what_does_not_end_keeps_its_context_open() {
        let memory = [0u8; 8];
        // SAFETY: the list is freed once, after its first device was opened; the context is used until it is closed.
        unsafe {
            let list = ibv_get_device_list(std::ptr::null_mut());
            assert!(!list.is_null() && !(*list).is_null(), "no device");
            let context = ibv_open_device(*list);
            ibv_free_device_list(list);
            let object = ContextObject::of(context).unwrap();
            let domain = object.context().alloc_pd().unwrap();
            let _membership = object.leftovers().add(Leftover::ProtectionDomain(domain.clone()));
            // One that the context does not know of stands for an access.
            let region = domain.register(memory.as_ptr() as u64, 8, 0, Rights::empty()).unwrap();
            for _ in 0..2 {
                assert_eq!(ibv_close_device(context), -1);
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
            }
            assert_eq!(ContextObject::of(context).unwrap().context().device().index, 0);
            region.deregister().unwrap();
            assert_eq!(ibv_close_device(context), 0);
        }
    }
}
