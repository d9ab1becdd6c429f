//! Completion channels.

use crate::abi::*;
use crate::boundary::{pointer, status, unobserved_number};
use crate::calls::{self, Call};
use crate::descriptor::{EventDescriptor, take_event};
use crate::objects::context::ContextObject;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null, put};
use libc::{c_int, c_void};
use pagewire_failures::Verb;
use pagewire_nic::CompletionChannel;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A completion channel as programs see it.
#[repr(C)]
pub struct CompletionChannelObject {
    public: UnsafeCell<ibv_comp_channel>,
    channel: Arc<CompletionChannel>,
    descriptor: Arc<EventDescriptor>,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_comp_channel`.
unsafe impl Object<ibv_comp_channel> for CompletionChannelObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl CompletionChannelObject {
    /// The engine's channel.
    pub fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    /// The context that programs find in it.
    pub fn context(&self) -> *mut ibv_context {
        // SAFETY: the field was set at creation and programs do not change it.
        unsafe { (*self.public.get()).context }
    }

    /// Counts the completion queues in the structure's `refcnt`, which debuggers and pyverbs show.
    pub fn count(&self, change: c_int) {
        // SAFETY: the field is an aligned `int` that only this function writes.
        let references =
            unsafe { std::sync::atomic::AtomicI32::from_ptr(&raw mut (*self.public.get()).refcnt) };
        references.fetch_add(change, std::sync::atomic::Ordering::Relaxed);
    }
}

/// `ibv_create_comp_channel(3)`.
///
/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(Call::on(Verb::CreateCompChannel, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        let opened = unsafe { ContextObject::of(context) }?;
        let descriptor = Arc::new(EventDescriptor::new()?);
        let channel = opened.context().create_channel(descriptor.clone());
        let public = ibv_comp_channel { context, fd: descriptor.number(), refcnt: 0 };
        let object =
            CompletionChannelObject { public: UnsafeCell::new(public), channel, descriptor, epoch: epoch() };
        Ok(Box::new(object).publish())
    })
}

/// `ibv_destroy_comp_channel(3)`.
///
/// # Safety
/// `channel` is NULL or created, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    status(Call::on(Verb::DestroyCompChannel, channel), || {
        // SAFETY: the caller promises that `channel` is NULL or created.
        unsafe { CompletionChannelObject::of(channel) }?.channel.destroy()?;
        // SAFETY: `of` found `channel`, and the caller promises that nobody uses it any more.
        unsafe { CompletionChannelObject::free(channel) };
        Ok(())
    })
}

/// `ibv_get_cq_event(3)`: sleeps for the next event unless the channel's descriptor is non-blocking. The sleep is a cancellation
/// point: nothing in this frame has to be dropped.
///
/// # Safety
/// `channel` is NULL or created; `cq` and `cq_context` are NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises what the function asks for.
    let sleep = || unsafe { next_event(channel, cq, cq_context) };
    match calls::are_observed() {
        false => sleep(),
        true => calls::observed_sleep(Call::on(Verb::GetCqEvent, channel).with(cq as usize), sleep),
    }
}

/// [`ibv_get_cq_event`] without observers.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn next_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        let descriptor = unobserved_number(|| {
            // SAFETY: the caller promises that `channel` is NULL or created.
            let channel = unsafe { CompletionChannelObject::of(channel) }?;
            not_null(cq)?;
            if channel.channel.something_was_left() && channel.descriptor.is_blocking()? {
                channel.channel.announce_what_was_left();
            }
            Ok(channel.descriptor.number())
        });
        if descriptor < 0 || !take_event(descriptor) {
            return -1;
        }
        let taken = unobserved_number(|| {
            // SAFETY: the caller promises that `channel` is NULL or created.
            let channel = unsafe { CompletionChannelObject::of(channel) }?;
            // Nothing is there when the event's queue was destroyed meanwhile.
            let Some(cookie) = channel.channel.next_event() else { return Ok(0) };
            let public = cookie as *mut ibv_cq;
            // SAFETY: the cookie is the address of a completion queue that lives: its destruction withdraws its events or
            // waits until they are acknowledged, which this one cannot be yet. The places are the caller's.
            unsafe {
                not_null(cq)?.write(public);
                put(cq_context, (*public).cq_context);
            }
            Ok(1)
        });
        match taken {
            0 => {}
            1 => return 0,
            _ => return -1,
        }
    }
}
