//! Asynchronous events of open devices.

use crate::abi::*;
use crate::boundary::{Result, invalid, nothing, unobserved_number};
use crate::calls::{self, Call};
use crate::completion::completion_queue::CompletionQueueObject;
use crate::descriptor::take_event;
use crate::objects::context::ContextObject;
use crate::objects::object::{Object, not_null};
use crate::objects::queue_pair::QueuePairObject;
use crate::objects::shared_receive::SharedReceiveObject;
use libc::c_int;
use pagewire_failures::Verb;
use pagewire_nic::{Acknowledgements, AsyncEvent, EventSource};

fn translate(event: &AsyncEvent) -> ibv_async_event {
    let element = match event.element {
        EventSource::QueuePair { cookie } => ibv_async_event__bindgen_ty_1 { qp: cookie as *mut ibv_qp },
        EventSource::CompletionQueue { cookie } => {
            ibv_async_event__bindgen_ty_1 { cq: cookie as *mut ibv_cq }
        }
        EventSource::SharedReceiveQueue { cookie } => {
            ibv_async_event__bindgen_ty_1 { srq: cookie as *mut ibv_srq }
        }
        EventSource::Device => ibv_async_event__bindgen_ty_1 { port_num: 0 },
        EventSource::Port { number } => ibv_async_event__bindgen_ty_1 { port_num: c_int::from(number) },
    };
    ibv_async_event { element, event_type: event.kind as ibv_event_type }
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
    // SAFETY: the caller promises what the function asks for.
    let sleep = || unsafe { next_event(context, event) };
    match calls::are_observed() {
        false => sleep(),
        true => calls::observed_sleep(Call::on(Verb::GetAsyncEvent, context).with(event as usize), sleep),
    }
}

/// [`ibv_get_async_event`] without observers.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn next_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    loop {
        let descriptor = unobserved_number(|| {
            not_null(event)?;
            // SAFETY: the caller promises that `context` is NULL or open.
            Ok(unsafe { ContextObject::of(context) }?.descriptor().number())
        });
        if descriptor < 0 || !take_event(descriptor) {
            return -1;
        }
        let taken = unobserved_number(|| {
            // SAFETY: the caller promises that `context` is NULL or open.
            let context = unsafe { ContextObject::of(context) }?;
            // Nothing is there when the event's object was destroyed meanwhile.
            let Some(next) = context.context().next_async_event() else { return Ok(0) };
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
    // SAFETY: the caller promises that `event` is NULL or was given by `ibv_get_async_event` and not acknowledged yet.
    let Some(event) = (unsafe { event.as_ref() }) else { return };
    // SAFETY: the caller promises that the event was given by `ibv_get_async_event` and not acknowledged yet.
    nothing(Call::on(Verb::AckAsyncEvent, event), || unsafe { acknowledge(event) });
}

/// # Safety
/// As for [`ibv_ack_async_event`].
unsafe fn acknowledge(event: &ibv_async_event) {
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
