//! Completion counters (`ibv_create_comp_cntr(3)`, rdma-core 65).

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, pointer, quick_status, status};
use crate::calls::Call;
use crate::devices::query::copy_prefix;
use crate::objects::context::ContextObject;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null};
use crate::objects::queue_pair::QueuePairObject;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Membership};
use libc::{EOPNOTSUPP, c_int};
use pagewire_failures::Verb;
use pagewire_nic::{CompletionCounter, CountedOperation, CountedUnit, limits};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// Each operation has a bit.
const ALL_OPERATIONS: u32 = (1 << CountedOperation::ALL.len()) - 1;

/// A completion counter as programs see it.
#[repr(C)]
struct CompletionCounterObject {
    public: UnsafeCell<ibv_comp_cntr>,
    counter: Arc<CompletionCounter<Host>>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_comp_cntr`.
unsafe impl Object<ibv_comp_cntr> for CompletionCounterObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// `ibv_query_comp_cntr_caps(3)`, whose inline function gives the length of its structure.
///
/// # Safety
/// `context` is NULL or open; `caps` is NULL or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
    length: usize,
) -> c_int {
    status(Call::on(Verb::QueryCompCntrCaps, context), || {
        let all = ibv_comp_cntr_caps {
            max_value: u64::MAX,
            max_counters: limits::MAX_COMPLETION_COUNTERS,
            supported_qp_attach_ops: ALL_OPERATIONS,
        };
        // SAFETY: the caller promises that `context` is NULL or open, and that `caps` is NULL or has room for `length` bytes.
        unsafe {
            ContextObject::of_family(context)?;
            copy_prefix(&all, not_null(caps)?, length);
        }
        Ok(())
    })
}

/// `ibv_create_comp_cntr(3)`.
///
/// # Safety
/// `context` is NULL or open; `init` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_cntr(
    context: *mut ibv_context,
    init: *mut ibv_comp_cntr_init_attr,
) -> *mut ibv_comp_cntr {
    pointer(Call::on(Verb::CreateCompCntr, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `init` is NULL or valid.
        let (opened, init) = unsafe { (ContextObject::of(context)?, &*not_null(init)?) };
        if init.comp_mask != 0 || init.flags != 0 {
            return invalid("comp_mask and flags of a completion counter are 0");
        }
        let unit = match init.type_ {
            IBV_COMP_CNTR_TYPE_WRS => CountedUnit::Requests,
            IBV_COMP_CNTR_TYPE_BYTES => CountedUnit::Bytes,
            _ => return invalid("type of a completion counter"),
        };
        let counter = opened.context().create_counter(unit)?;
        let membership = opened.leftovers().add(Leftover::CompletionCounter(counter.clone()));
        let object = CompletionCounterObject {
            public: UnsafeCell::new(ibv_comp_cntr { context, handle: membership.handle() }),
            counter,
            membership,
            epoch: epoch(),
        };
        Ok(Box::new(object).publish())
    })
}

/// `ibv_destroy_comp_cntr(3)`: refused while a queue pair has it.
///
/// # Safety
/// `counter` is NULL or created, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_cntr(counter: *mut ibv_comp_cntr) -> c_int {
    status(Call::on(Verb::DestroyCompCntr, counter), || {
        // SAFETY: the caller promises that `counter` is NULL or created.
        let object = unsafe { CompletionCounterObject::of(counter) }?;
        object.membership.end(|| object.counter.destroy())?;
        // SAFETY: `of` found `counter`, and the caller promises that nobody uses it any more.
        unsafe { CompletionCounterObject::free(counter) };
        Ok(())
    })
}

/// `ibv_qp_attach_comp_cntr(3)`.
///
/// # Safety
/// `qp` and `counter` are NULL or created; `attributes` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_attach_comp_cntr(
    qp: *mut ibv_qp,
    counter: *mut ibv_comp_cntr,
    attributes: *mut ibv_qp_attach_comp_cntr_attr,
) -> c_int {
    status(Call::on(Verb::QpAttachCompCntr, qp), || {
        // SAFETY: the caller promises that each is NULL, or created or valid.
        let (queue_pair, counter, attributes) = unsafe {
            (QueuePairObject::of(qp)?, CompletionCounterObject::of(counter)?, &*not_null(attributes)?)
        };
        if attributes.comp_mask != 0 {
            return invalid("comp_mask");
        }
        if attributes.op_mask & !ALL_OPERATIONS != 0 {
            return Err(Errno(EOPNOTSUPP));
        }
        if queue_pair.is_of_another_process() {
            return Err(Errno(EOPNOTSUPP));
        }
        let mut operations = CountedOperation::ALL.to_vec();
        operations.retain(|operation| attributes.op_mask & 1 << *operation as u32 != 0);
        Ok(queue_pair.queue_pair().attach_counter(&counter.counter, &operations)?)
    })
}

/// Works with a counter. Nothing below may call a cancellation point of the C library.
///
/// # Safety
/// `counter` is NULL or created.
unsafe fn with_counter(
    verb: Verb,
    counter: *mut ibv_comp_cntr,
    work: impl FnOnce(&CompletionCounter<Host>) -> Result<()>,
) -> c_int {
    quick_status(Call::on(verb, counter), || {
        // SAFETY: the caller promises that `counter` is NULL or created.
        work(&unsafe { CompletionCounterObject::of(counter) }?.counter)
    })
}

/// `ibv_set_comp_cntr(3)`.
///
/// # Safety
/// `counter` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_set_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
    let work = |counter: &CompletionCounter<Host>| {
        counter.succeeded.set(value);
        Ok(())
    };
    // SAFETY: the caller promises what the function asks for.
    unsafe { with_counter(Verb::SetCompCntr, counter, work) }
}

/// `ibv_set_err_comp_cntr(3)`.
///
/// # Safety
/// `counter` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_set_err_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
    let work = |counter: &CompletionCounter<Host>| {
        counter.failed.set(value);
        Ok(())
    };
    // SAFETY: the caller promises what the function asks for.
    unsafe { with_counter(Verb::SetErrCompCntr, counter, work) }
}

/// `ibv_inc_comp_cntr(3)`.
///
/// # Safety
/// `counter` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_inc_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
    let work = |counter: &CompletionCounter<Host>| {
        counter.succeeded.add(amount);
        Ok(())
    };
    // SAFETY: the caller promises what the function asks for.
    unsafe { with_counter(Verb::IncCompCntr, counter, work) }
}

/// `ibv_inc_err_comp_cntr(3)`.
///
/// # Safety
/// `counter` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_inc_err_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
    let work = |counter: &CompletionCounter<Host>| {
        counter.failed.add(amount);
        Ok(())
    };
    // SAFETY: the caller promises what the function asks for.
    unsafe { with_counter(Verb::IncErrCompCntr, counter, work) }
}

/// `ibv_read_comp_cntr(3)`: a program may call it again and again, as it polls a completion queue.
///
/// # Safety
/// `counter` is NULL or created; `value` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_comp_cntr(counter: *mut ibv_comp_cntr, value: *mut u64) -> c_int {
    let work = |counter: &CompletionCounter<Host>| {
        // SAFETY: the caller promises that `value` is NULL or valid for a write.
        unsafe { not_null(value)?.write(counter.read_succeeded()) };
        Ok(())
    };
    // SAFETY: the caller promises what the function asks for.
    unsafe { with_counter(Verb::ReadCompCntr, counter, work) }
}

/// `ibv_read_err_comp_cntr(3)`: it may be called as often as [`ibv_read_comp_cntr`].
///
/// # Safety
/// `counter` is NULL or created; `value` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_err_comp_cntr(counter: *mut ibv_comp_cntr, value: *mut u64) -> c_int {
    let work = |counter: &CompletionCounter<Host>| {
        // SAFETY: the caller promises that `value` is NULL or valid for a write.
        unsafe { not_null(value)?.write(counter.read_failed()) };
        Ok(())
    };
    // SAFETY: the caller promises what the function asks for.
    unsafe { with_counter(Verb::ReadErrCompCntr, counter, work) }
}
