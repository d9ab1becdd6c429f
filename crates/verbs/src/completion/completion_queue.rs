//! Completion queues, by the plain interface; the extended one stands on them ([`extended_poll`](crate::completion::extended_poll)).

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, nothing, pointer, status, table_status};
use crate::calls::Call;
use crate::completion::completion_channel::CompletionChannelObject;
use crate::completion::polling::Polling;
use crate::limits;
use crate::objects::context::ContextObject;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null};
use crate::objects::protection::ProtectionDomainObject;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Membership};
use libc::{EIO, c_int, c_uint, c_void};
use pagewire_failures::Verb;
use pagewire_nic::{
    Completion, CompletionQueue, CompletionQueueInit, CompletionStamp, Moderation, RoutingHeader,
};
use rustix::time::{ClockId, clock_gettime};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A completion queue as programs see it; always with room for the extended structure.
#[repr(C)]
pub struct CompletionQueueObject {
    public: UnsafeCell<ibv_cq_ex>,
    queue: Arc<CompletionQueue<Host>>,
    pub(crate) polling: Polling,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_cq_ex`, which begins with the fields of `ibv_cq` (a test compares them).
unsafe impl Object<ibv_cq> for CompletionQueueObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl CompletionQueueObject {
    /// The engine's queue.
    pub fn queue(&self) -> &Arc<CompletionQueue<Host>> {
        &self.queue
    }

    /// The structure that programs hold.
    pub(crate) fn public(&self) -> *mut ibv_cq_ex {
        self.public.get()
    }
}

/// What a completion queue is made with.
pub(crate) struct CqOptions {
    pub entries: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub vector: u32,
    pub parent_domain: *mut ibv_pd,
    /// The program polls from one thread at a time.
    pub single_threaded: bool,
    /// Completions for which there is no room take the places of the oldest.
    pub ignores_overrun: bool,
    /// The program reads when completions came.
    pub is_stamped: bool,
}

/// The time, by the clock that `ibv_query_rt_values_ex(3)` reads and by the wall clock.
fn stamp_now() -> CompletionStamp {
    let nanoseconds = |clock| {
        let now = clock_gettime(clock);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    CompletionStamp { raw: nanoseconds(ClockId::MonotonicRaw), wall: nanoseconds(ClockId::Realtime) }
}

/// Makes a completion queue.
///
/// # Safety
/// `context` is NULL or open; the channel is NULL or created, the parent domain NULL or allocated.
pub(crate) unsafe fn create(context: *mut ibv_context, options: &CqOptions) -> Result<*mut ibv_cq> {
    let &CqOptions { entries, cq_context, channel, vector, parent_domain, .. } = options;
    // SAFETY: the caller promises that `context` is NULL or open.
    let opened = unsafe { ContextObject::of(context) }?;
    let announced = match channel.is_null() {
        true => None,
        // SAFETY: the caller promises that the channel is NULL or created; it is not NULL here.
        false => Some(unsafe { CompletionChannelObject::of(channel) }?),
    };
    if announced.is_some_and(|channel| channel.context() != context) {
        return invalid("the completion channel is of another context");
    }
    if vector >= limits::COMPLETION_VECTORS as u32 {
        return invalid("completion vector");
    }
    let parent_domain = match parent_domain.is_null() {
        true => None,
        // SAFETY: the caller promises that the parent domain is NULL or allocated; it is not NULL here.
        false => Some(unsafe { ProtectionDomainObject::of(parent_domain) }?.domain().clone()),
    };
    let queue = opened.context().create_cq_ex(CompletionQueueInit {
        entries,
        channel: announced.map(|channel| channel.channel().clone()),
        parent_domain,
        ignores_overrun: options.ignores_overrun,
        stamps: options.is_stamped.then_some(stamp_now as fn() -> CompletionStamp),
    })?;
    let mut public = ibv_cq_ex::zeroed();
    public.context = context;
    public.channel = channel;
    public.cq_context = cq_context;
    public.cqe = queue.entries() as c_int;
    let object = Box::new(CompletionQueueObject {
        public: UnsafeCell::new(public),
        membership: opened.leftovers().add(Leftover::CompletionQueue(queue.clone())),
        queue,
        polling: Polling::new(options.single_threaded),
        epoch: epoch(),
    });
    object.queue.set_cookie(&raw const *object as u64);
    if let Some(channel) = announced {
        channel.count(1);
    }
    Ok(object.publish())
}

/// `ibv_create_cq(3)`.
///
/// # Safety
/// `context` is NULL or open; `channel` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    pointer(Call::on(Verb::CreateCq, context), || {
        let (Ok(entries), Ok(vector)) = (u32::try_from(entries), u32::try_from(vector)) else {
            return invalid("number of entries or completion vector");
        };
        let options = CqOptions {
            entries,
            cq_context,
            channel,
            vector,
            parent_domain: std::ptr::null_mut(),
            single_threaded: false,
            ignores_overrun: false,
            is_stamped: false,
        };
        // SAFETY: the caller promises that `context` is NULL or open and `channel` NULL or created; the parent domain is NULL.
        unsafe { create(context, &options) }
    })
}

/// `ibv_resize_cq(3)`.
///
/// # Safety
/// `cq` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, entries: c_int) -> c_int {
    status(Call::on(Verb::ResizeCq, cq), || {
        // SAFETY: the caller promises that `cq` is NULL or created.
        let object = unsafe { CompletionQueueObject::of(cq) }?;
        let Ok(entries) = u32::try_from(entries) else { return invalid("number of entries") };
        object.queue.resize(entries)?;
        // SAFETY: an aligned `int` of the caller's structure.
        unsafe { (*object.public()).cqe = object.queue.entries() as c_int };
        Ok(())
    })
}

/// `ibv_modify_cq(3)`, by way of `verbs_context`: moderates the queue's events.
///
/// # Safety
/// `cq` is NULL or created; `attributes` is NULL or valid.
pub unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attributes: *mut ibv_modify_cq_attr) -> c_int {
    status(Call::on(Verb::ModifyCq, cq), || {
        // SAFETY: the caller promises that `cq` is NULL or created, and that `attributes` is NULL or valid.
        let (object, attributes) = unsafe { (CompletionQueueObject::of(cq)?, &*not_null(attributes)?) };
        if attributes.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
            return invalid("attribute mask of a completion queue");
        }
        if attributes.attr_mask & IBV_CQ_ATTR_MODERATE != 0 {
            let ibv_moderate_cq { cq_count: count, cq_period: period } = attributes.moderate;
            object.queue.moderate(Moderation { count, period });
        }
        Ok(())
    })
}

/// `ibv_destroy_cq(3)`: refused while a queue pair uses it, else waits until its events are acknowledged.
///
/// # Safety
/// `cq` is NULL or created, and nobody uses it any more but to acknowledge its events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    status(Call::on(Verb::DestroyCq, cq), || {
        // SAFETY: the caller promises that `cq` is NULL or created.
        let object = unsafe { CompletionQueueObject::of(cq) }?;
        object.membership.end(|| {
            object.queue.destroy()?;
            // SAFETY: the structure's fields stay as they were set at creation; the channel outlives the queue.
            unsafe {
                if let Ok(channel) = CompletionChannelObject::of((*object.public()).channel) {
                    channel.count(-1);
                }
            }
            Ok::<(), Errno>(())
        })?;
        // SAFETY: the caller promises that nobody uses `cq` any more; nothing of the engine refers to the object any more.
        unsafe { CompletionQueueObject::free(cq) };
        Ok(())
    })
}

/// `ibv_ack_cq_events(3)`.
///
/// # Safety
/// `cq` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: c_uint) {
    nothing(Call::on(Verb::AckCqEvents, cq).with(events as usize), || {
        // SAFETY: the caller promises that `cq` is NULL or created.
        if let Ok(cq) = unsafe { CompletionQueueObject::of(cq) } {
            cq.queue().completion_events().acknowledge(events);
        }
    });
}

/// `ibv_poll_cq(3)`, by way of `context->ops`.
///
/// # Safety
/// `cq` is created; `into` has room for `entries` completions.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: the caller promises that `cq` is created.
    let object = match unsafe { CompletionQueueObject::of(cq) } {
        Ok(object) => object,
        Err(Errno(value)) => return -value,
    };
    let Ok(room) = usize::try_from(entries) else { return -libc::EINVAL };
    let mut place = into;
    let polled = catch_unwind(AssertUnwindSafe(|| {
        object.queue.poll(room, &mut |completion| {
            // SAFETY: the engine hands over at most `room` completions, for each of which there is room.
            unsafe {
                place.write(work_completion(completion));
                place = place.add(1);
            }
        })
    }));
    polled.map_or(-EIO, |polled| polled as c_int)
}

/// A completion as programs read it.
#[inline]
pub(crate) fn work_completion(completion: &Completion) -> ibv_wc {
    let (brings, data) = match (completion.immediate, completion.invalidated) {
        (_, Some(invalidated_rkey)) => (IBV_WC_WITH_INV, ibv_wc__bindgen_ty_1 { invalidated_rkey }),
        (Some(data), None) => (IBV_WC_WITH_IMM, ibv_wc__bindgen_ty_1 { imm_data: data.to_be() }),
        (None, None) => (0, ibv_wc__bindgen_ty_1 { imm_data: 0 }),
    };
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as ibv_wc_status,
        opcode: completion.opcode as ibv_wc_opcode,
        vendor_err: 0,
        byte_len: completion.byte_length,
        __bindgen_anon_1: data,
        qp_num: completion.queue_pair,
        src_qp: completion.source_queue_pair,
        wc_flags: brings | if completion.routing_header == RoutingHeader::None { 0 } else { IBV_WC_GRH },
        pkey_index: 0,
        slid: 0,
        // RoCE has no service level in its packets; UCX expects the packet type here, where mlx5 shows it.
        sl: completion.routing_header as u8,
        dlid_path_bits: 0,
    }
}

/// `ibv_req_notify_cq(3)`, by way of `context->ops`.
///
/// # Safety
/// `cq` is NULL or created.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    table_status(|| {
        // SAFETY: the caller promises that `cq` is NULL or created.
        unsafe { CompletionQueueObject::of(cq) }?.queue.arm(solicited_only != 0);
        Ok(())
    })
}
