//! Thread domains and parent domains.

use crate::abi::*;
use crate::boundary::{invalid, pointer, status};
use crate::calls::Call;
use crate::objects::context::ContextObject;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null};
use crate::objects::protection::ProtectionDomainObject;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Membership};
use libc::c_int;
use pagewire_failures::Verb;
use pagewire_nic::ThreadDomain;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC` of rdma-core 65: a wish about buffers of devices that cannot access all
/// memory, which this one can.
const ALLOW_UNPROTECTED: u32 = 1 << 2;

/// A thread domain as programs see it.
#[repr(C)]
struct ThreadDomainObject {
    public: UnsafeCell<ibv_td>,
    domain: Arc<ThreadDomain<Host>>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_td`.
unsafe impl Object<ibv_td> for ThreadDomainObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// `ibv_alloc_td(3)`, by way of `verbs_context`.
///
/// # Safety
/// `context` is NULL or open; `init` is NULL or valid.
pub unsafe extern "C" fn alloc_td(context: *mut ibv_context, init: *mut ibv_td_init_attr) -> *mut ibv_td {
    pointer(Call::on(Verb::AllocTd, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `init` is NULL or valid.
        let (opened, init) = unsafe { (ContextObject::of(context)?, &*not_null(init)?) };
        if init.comp_mask != 0 {
            return invalid("comp_mask");
        }
        let domain = opened.context().alloc_td()?;
        let object = ThreadDomainObject {
            public: UnsafeCell::new(ibv_td { context }),
            membership: opened.leftovers().add(Leftover::ThreadDomain(domain.clone())),
            domain,
            epoch: epoch(),
        };
        Ok(Box::new(object).publish())
    })
}

/// `ibv_dealloc_td(3)`, by way of `verbs_context`: refused while a parent domain uses it.
///
/// # Safety
/// `td` is NULL or allocated, and nobody uses it any more.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    status(Call::on(Verb::DeallocTd, td), || {
        // SAFETY: the caller promises that `td` is NULL or allocated.
        let object = unsafe { ThreadDomainObject::of(td) }?;
        object.membership.end(|| object.domain.dealloc())?;
        // SAFETY: `of` found `td`, and the caller promises that nobody uses it any more.
        unsafe { ThreadDomainObject::free(td) };
        Ok(())
    })
}

/// `ibv_alloc_parent_domain(3)`, by way of `verbs_context`. The allocators are for buffers of a device's queues; none of Pagewire's
/// objects has one, so that they are never called.
///
/// # Safety
/// `context` is NULL or open; `init` is NULL or valid, and what it names is allocated.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    init: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    const KNOWN: u32 =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | ALLOW_UNPROTECTED;
    pointer(Call::on(Verb::AllocParentDomain, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `init` is NULL or valid, and what it
        // names is allocated.
        let init = unsafe {
            ContextObject::of(context)?;
            &*not_null(init)?
        };
        if init.comp_mask & !KNOWN != 0 {
            return invalid("comp_mask");
        }
        // SAFETY: the caller promises that the protection domain that `init` names is allocated.
        let given = unsafe { ProtectionDomainObject::of(init.pd) }?;
        if given.context() != context {
            return invalid("the protection domain is of another context");
        }
        let thread_domain = match init.td.is_null() {
            true => None,
            // SAFETY: the caller promises that the thread domain that `init` names is allocated.
            false => Some(unsafe { ThreadDomainObject::of(init.td) }?.domain.clone()),
        };
        let domain = given.domain().extend(thread_domain)?;
        Ok(ProtectionDomainObject::publish_domain(context, given.leftovers(), domain))
    })
}
