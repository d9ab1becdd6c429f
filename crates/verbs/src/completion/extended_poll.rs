//! The extended completion queue (`ibv_create_cq_ex(3)`): one completion at a time, read by functions.

use crate::abi::*;
use crate::boundary::{Errno, Result, pointer};
use crate::calls::{self, Call, fast};
use crate::completion::completion_queue::{self, CompletionQueueObject, CqOptions, work_completion};
use crate::objects::object::{Object, not_null};
use libc::{EINVAL, EIO, ENOENT, EOPNOTSUPP, c_int, c_uint};
use pagewire_failures::Verb;
use pagewire_nic::CompletionStamp;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// What a program asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flags {
    /// Fields that are to be read (`enum ibv_create_cq_wc_flags`).
    fields: u64,
    single_threaded: bool,
    ignores_overrun: bool,
}

/// Fields that completions can be asked for.
const FIELDS: u64 = (IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

/// `ibv_create_cq_ex(3)`, by way of `verbs_context`. What cannot be had is refused with EOPNOTSUPP: VLAN and flow tags, tag
/// matching.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or valid, and what it names is created.
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer(Call::on(Verb::CreateCqEx, context), || {
        // SAFETY: the caller promises that `attributes` is NULL or valid, and what it names is created.
        let attributes = unsafe { &*not_null(attributes)? };
        let flags = check(attributes)?;
        let has_domain = attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0;
        let options = CqOptions {
            entries: attributes.cqe,
            cq_context: attributes.cq_context,
            channel: attributes.channel,
            vector: attributes.comp_vector,
            parent_domain: if has_domain { not_null(attributes.parent_domain)? } else { null_mut() },
            single_threaded: flags.single_threaded,
            ignores_overrun: flags.ignores_overrun,
            is_stamped: flags.fields & !u64::from(IBV_WC_STANDARD_FLAGS) != 0,
        };
        // SAFETY: the caller promises that `context` is NULL or open and that what the attributes name is created. Each queue
        // has the extended structure, which nobody else uses yet.
        unsafe {
            let cq = completion_queue::create(context, &options)?.cast::<ibv_cq_ex>();
            install(&mut *cq, flags);
            Ok(cq)
        }
    })
}

fn check(attributes: &ibv_cq_init_attr_ex) -> Result<Flags> {
    let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if attributes.comp_mask & !known != 0 {
        return Err(Errno(EINVAL));
    }
    let options = if attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attributes.flags } else { 0 };
    if options & !(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0
        || attributes.wc_flags & !FIELDS != 0
    {
        return Err(Errno(EOPNOTSUPP));
    }
    Ok(Flags {
        fields: attributes.wc_flags,
        single_threaded: options & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
        ignores_overrun: options & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
    })
}

/// Sets the reading functions that were asked for; the others stay NULL.
fn install(cq: &mut ibv_cq_ex, flags: Flags) {
    let wanted = |flag| flags.fields & u64::from(flag) != 0;
    let is_observed = calls::has_observers();
    cq.start_poll = Some(if is_observed { fast::start_poll } else { start_poll });
    cq.next_poll = Some(if is_observed { fast::next_poll } else { next_poll });
    cq.end_poll = Some(if is_observed { fast::end_poll } else { end_poll });
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    if wanted(IBV_WC_EX_WITH_BYTE_LEN) {
        cq.read_byte_len = Some(read_byte_len);
    }
    if wanted(IBV_WC_EX_WITH_IMM) {
        cq.read_imm_data = Some(read_imm_data);
    }
    if wanted(IBV_WC_EX_WITH_QP_NUM) {
        cq.read_qp_num = Some(read_qp_num);
    }
    if wanted(IBV_WC_EX_WITH_SRC_QP) {
        cq.read_src_qp = Some(read_src_qp);
    }
    if wanted(IBV_WC_EX_WITH_SLID) {
        cq.read_slid = Some(read_slid);
    }
    if wanted(IBV_WC_EX_WITH_SL) {
        cq.read_sl = Some(read_sl);
    }
    if wanted(IBV_WC_EX_WITH_DLID_PATH_BITS) {
        cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    }
    if wanted(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) {
        cq.read_completion_ts = Some(read_completion_ts);
    }
    if wanted(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
        cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    }
}

/// Takes the next completion; ENOENT if there is none.
fn advance(object: &CompletionQueueObject) -> c_int {
    let polled = catch_unwind(AssertUnwindSafe(|| {
        object.queue().poll(1, &mut |completion| {
            // SAFETY: `poll_lock` is held, or the program has promised to poll from one thread at a time; both places
            // are this queue's own.
            unsafe {
                let wc = work_completion(completion);
                let public = object.public();
                ((*public).wr_id, (*public).status) = (wc.wr_id, wc.status);
                object.polling.current().write(wc);
            }
        })
    }));
    match polled {
        Ok(0) => ENOENT,
        Ok(_) => 0,
        Err(_) => EIO,
    }
}

/// The completion that this thread reads, if `cq` is a queue of this process.
///
/// # Safety
/// `cq` is the program's queue; this thread has found a completion, and not ended the poll.
pub unsafe fn current(cq: *mut ibv_cq_ex) -> Option<ibv_wc> {
    // SAFETY: the caller promises that the queue is the program's.
    let object = unsafe { CompletionQueueObject::of(cq.cast()) }.ok()?;
    // SAFETY: the caller promises that this thread reads the completion, so that nobody else changes it.
    Some(unsafe { *object.polling.current() })
}

/// `ibv_start_poll(3)`, by the queue's table.
///
/// # Safety
/// `cq` is the program's queue; `attributes` is NULL or valid.
pub unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: programs pass the queue that they got, and NULL or valid attributes.
    let (object, attributes) = unsafe { (CompletionQueueObject::of(cq.cast()), attributes.as_ref()) };
    let object = match object {
        Ok(object) => object,
        Err(Errno(value)) => return value,
    };
    if attributes.is_some_and(|attributes| attributes.comp_mask != 0) {
        return EINVAL;
    }
    object.polling.begin();
    let found = advance(object);
    if found != 0 {
        // SAFETY: begun above. A `start_poll` that fails is not followed by `end_poll`.
        unsafe { object.polling.end() };
    }
    found
}

/// `ibv_next_poll(3)`, by the queue's table.
///
/// # Safety
/// As for [`end_poll`].
pub unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: programs pass the queue that they got.
    match unsafe { CompletionQueueObject::of(cq.cast()) } {
        Ok(object) => advance(object),
        Err(Errno(value)) => value,
    }
}

/// `ibv_end_poll(3)`, by the queue's table.
///
/// # Safety
/// `cq` is the program's queue, in which this thread began a poll that found a completion.
pub unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: programs pass the queue that they got, after a `start_poll` that succeeded, from the same thread.
    unsafe {
        if let Ok(object) = CompletionQueueObject::of(cq.cast()) {
            object.polling.end();
        }
    }
}

/// When the current completion came.
///
/// # Safety
/// `cq` is the program's queue, between a `start_poll` that succeeded and `end_poll`.
unsafe fn stamp(cq: *mut ibv_cq_ex) -> CompletionStamp {
    // SAFETY: the caller promises the program's queue.
    unsafe { CompletionQueueObject::of(cq.cast()) }
        .map(|object| object.queue().taken_stamp())
        .unwrap_or_default()
}

/// `ibv_wc_read_completion_ts(3)`: in ticks of the device's clock, which are nanoseconds of `CLOCK_MONOTONIC_RAW`.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: programs pass the queue that they got, between a `start_poll` that succeeded and `end_poll`.
    unsafe { stamp(cq) }.raw
}

/// `ibv_wc_read_completion_wallclock_ns(3)`.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: programs pass the queue that they got, between a `start_poll` that succeeded and `end_poll`.
    unsafe { stamp(cq) }.wall
}

macro_rules! reading {
    ($($name:ident: $result:ty = |$wc:ident| $value:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $result {
            // SAFETY: programs pass the queue that they got, between a `start_poll` that succeeded and `end_poll`,
            // when no other thread changes the current completion; the members of the union are plain integers.
            unsafe {
                let $wc = &*(*cq.cast::<CompletionQueueObject>()).polling.current();
                $value
            }
        }
    )*};
}

reading! {
    read_opcode: ibv_wc_opcode = |wc| wc.opcode;
    read_vendor_err: u32 = |wc| wc.vendor_err;
    read_byte_len: u32 = |wc| wc.byte_len;
    read_imm_data: __be32 = |wc| wc.__bindgen_anon_1.imm_data;
    read_qp_num: u32 = |wc| wc.qp_num;
    read_src_qp: u32 = |wc| wc.src_qp;
    read_wc_flags: c_uint = |wc| wc.wc_flags;
    read_slid: u32 = |wc| u32::from(wc.slid);
    read_sl: u8 = |wc| wc.sl;
    read_dlid_path_bits: u8 = |wc| wc.dlid_path_bits;
}
