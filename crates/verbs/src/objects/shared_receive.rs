//! Shared receive queues.

use crate::abi::*;
use crate::boundary::{Errno, invalid, pointer, status, table_status};
use crate::calls::Call;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null, put};
use crate::objects::protection::ProtectionDomainObject;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Membership};
use crate::work_requests::{post_list, receive_request};
use libc::{c_int, c_void};
use pagewire_failures::Verb;
use pagewire_nic::{SharedReceiveInit, SharedReceiveQueue};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A shared receive queue as programs see it.
#[repr(C)]
pub struct SharedReceiveObject {
    public: UnsafeCell<ibv_srq>,
    queue: Arc<SharedReceiveQueue<Host>>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_srq`.
unsafe impl Object<ibv_srq> for SharedReceiveObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl SharedReceiveObject {
    /// The engine's queue.
    pub fn queue(&self) -> &Arc<SharedReceiveQueue<Host>> {
        &self.queue
    }
}

/// `ibv_create_srq(3)`.
///
/// # Safety
/// `pd` is NULL or allocated; `init` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    pointer(Call::on(Verb::CreateSrq, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated, and that `init` is NULL or valid.
        let (domain, init) = unsafe { (ProtectionDomainObject::of(pd)?, &mut *not_null(init)?) };
        // `srq_limit` is not looked at here (ibv_create_srq(3)): it is armed by ibv_modify_srq.
        let asked = SharedReceiveInit { max_wr: init.attr.max_wr, max_sge: init.attr.max_sge, limit: 0 };
        let queue = pagewire_nic::SharedReceiveQueue::create(domain.domain(), &asked)?;
        let actual = queue.query();
        (init.attr.max_wr, init.attr.max_sge) = (actual.max_wr, actual.max_sge);
        Ok(publish_shared_receive(domain, pd, init.srq_context, queue))
    })
}

/// Makes the object that programs see of a shared receive queue.
pub fn publish_shared_receive(
    domain: &ProtectionDomainObject,
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    queue: Arc<SharedReceiveQueue<Host>>,
) -> *mut ibv_srq {
    let mut public = ibv_srq::zeroed();
    public.context = domain.context();
    public.srq_context = srq_context;
    public.pd = pd;
    let object = Box::new(SharedReceiveObject {
        public: UnsafeCell::new(public),
        membership: domain.leftovers().add(Leftover::SharedReceiveQueue(queue.clone())),
        queue,
        epoch: epoch(),
    });
    object.queue.set_cookie(&raw const *object as u64);
    object.publish()
}

/// `ibv_modify_srq(3)`.
///
/// # Safety
/// `srq` is NULL or created; `attributes` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attributes: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    status(Call::on(Verb::ModifySrq, srq), || {
        // SAFETY: the caller promises that `srq` is NULL or created, and that `attributes` is NULL or valid.
        let (object, attributes) = unsafe { (SharedReceiveObject::of(srq)?, &*not_null(attributes)?) };
        let mask = mask as u32;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return invalid("attribute mask of a shared receive queue");
        }
        let given = |flag, value| (mask & flag != 0).then_some(value);
        let (max_wr, limit) =
            (given(IBV_SRQ_MAX_WR, attributes.max_wr), given(IBV_SRQ_LIMIT, attributes.srq_limit));
        Ok(object.queue.modify(max_wr, limit)?)
    })
}

/// `ibv_query_srq(3)`.
///
/// # Safety
/// `srq` is NULL or created; `attributes` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attributes: *mut ibv_srq_attr) -> c_int {
    status(Call::on(Verb::QuerySrq, srq), || {
        // SAFETY: the caller promises that `srq` is NULL or created, and that `attributes` is NULL or valid for a write.
        let (object, place) = unsafe { (SharedReceiveObject::of(srq)?, not_null(attributes)?) };
        let now = object.queue.query();
        // SAFETY: not NULL, hence valid for a write.
        unsafe {
            place.write(ibv_srq_attr { max_wr: now.max_wr, max_sge: now.max_sge, srq_limit: now.limit })
        };
        Ok(())
    })
}

/// `ibv_destroy_srq(3)`: refused while a queue pair uses it, else waits until its events are acknowledged.
///
/// # Safety
/// `srq` is NULL or created, and nobody uses it any more but to acknowledge its events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    status(Call::on(Verb::DestroySrq, srq), || {
        // SAFETY: the caller promises that `srq` is NULL or created.
        let object = unsafe { SharedReceiveObject::of(srq) }?;
        object.membership.end(|| object.queue.destroy())?;
        // SAFETY: the caller promises that nobody uses `srq` any more; nothing of the engine refers to the object any more.
        unsafe { SharedReceiveObject::free(srq) };
        Ok(())
    })
}

/// `ibv_post_srq_recv(3)`, by way of `context->ops`.
///
/// # Safety
/// `srq` is created; the list and its scatter-gather elements are valid; `bad` is NULL or valid for a write.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    table_status(|| {
        // SAFETY: the caller promises that `srq` is created, the list valid, and `bad` NULL or valid for a write.
        unsafe {
            let object = match SharedReceiveObject::of(srq) {
                Ok(object) => object,
                Err(error) => {
                    put(bad, list);
                    return Err(error);
                }
            };
            post_list(list, bad, |wr| object.queue.post(&receive_request(wr)?).map_err(Errno::from))
        }
    })
}
