//! Queue pairs.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, pointer, status};
use crate::calls::Call;
use crate::completion::completion_queue::CompletionQueueObject;
use crate::objects::address_handle::{attributes_of, vector_from};
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null, put};
use crate::objects::protection::{ProtectionDomainObject, rights};
use crate::objects::shared_receive::SharedReceiveObject;
use crate::objects::xrc::{ReceiverOf, close_receiver};
use crate::request_builder::RequestBuilder;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Membership};
use crate::runtime::process::engine;
use crate::{devices::port_counters, refusals, runtime::explain, unsupported};
use libc::{EINVAL, EOPNOTSUPP, c_int};
use pagewire_failures::Verb;
use pagewire_nic::attributes::{QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::device::Mtu;
use pagewire_nic::{Error, QueuePair, QueuePairInit};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// A queue pair as programs see it; always with room for the extended structure.
#[repr(C)]
pub struct QueuePairObject {
    public: UnsafeCell<FlushingQueuePair>,
    queue_pair: Arc<QueuePair<Host>>,
    membership: Membership,
    epoch: u32,
    /// Where it was created with operations of the extended interface for posting.
    builder: OnceLock<RequestBuilder>,
    /// Of type XRC_RECV.
    receiver: ReceiverOf,
}

// SAFETY: `repr(C)` and begins with `FlushingQueuePair`, whose first member `ibv_qp_ex` begins with `ibv_qp`.
unsafe impl Object<ibv_qp> for QueuePairObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl QueuePairObject {
    /// The engine's queue pair.
    #[inline]
    pub fn queue_pair(&self) -> &Arc<QueuePair<Host>> {
        &self.queue_pair
    }

    /// Whether another process has the queue pair, and this one has opened it.
    pub fn is_of_another_process(&self) -> bool {
        matches!(self.receiver, ReceiverOf::Elsewhere(_))
    }

    /// What builds requests by the extended interface, if it was created with that.
    pub fn builder(&self) -> Option<&RequestBuilder> {
        self.builder.get()
    }

    /// Gives it that; and the structure that programs see, for the functions of the interface.
    pub fn add_builder(&self) -> *mut FlushingQueuePair {
        self.builder.get_or_init(RequestBuilder::default);
        self.public.get()
    }

    fn show_state(&self, state: QpState) {
        // SAFETY: an aligned integer of the program's structure.
        unsafe { (*self.public.get()).qp.qp_base.state = state as ibv_qp_state };
    }
}

fn capabilities_from(cap: &ibv_qp_cap) -> QpCapabilities {
    QpCapabilities {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

fn capabilities_of(capabilities: &QpCapabilities) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: capabilities.max_send_wr,
        max_recv_wr: capabilities.max_recv_wr,
        max_send_sge: capabilities.max_send_sge,
        max_recv_sge: capabilities.max_recv_sge,
        max_inline_data: capabilities.max_inline_data,
    }
}

/// `ibv_create_qp(3)`.
///
/// # Safety
/// `pd` is NULL or allocated; `init` is NULL or valid, and what it names is created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    pointer(Call::on(Verb::CreateQp, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated, and that `init` is NULL or valid, and what it names is created.
        let (domain, init) = unsafe { (ProtectionDomainObject::of(pd)?, &mut *not_null(init)?) };
        let kind = match init.qp_type {
            IBV_QPT_RC => QueuePairType::Rc,
            IBV_QPT_UC => QueuePairType::Uc,
            IBV_QPT_UD => QueuePairType::Ud,
            IBV_QPT_XRC_SEND => QueuePairType::XrcSend,
            IBV_QPT_XRC_RECV => return invalid("a queue pair of type XRC_RECV is made by ibv_create_qp_ex"),
            other => return Err(unsupported::queue_pair_type(other)),
        };
        let only_sends = kind == QueuePairType::XrcSend;
        if only_sends && !init.srq.is_null() {
            return invalid("a queue pair of type XRC_SEND receives nothing");
        }
        if only_sends {
            (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
        }
        let recv_cq = if only_sends { init.send_cq } else { init.recv_cq };
        // SAFETY: the caller promises that the completion queues that `init` names are created.
        let (send_cq, recv_cq) =
            unsafe { (CompletionQueueObject::of(init.send_cq)?, CompletionQueueObject::of(recv_cq)?) };
        let srq = match init.srq.is_null() {
            true => None,
            // SAFETY: the caller promises that the shared receive queue that `init` names is created.
            false => Some(unsafe { SharedReceiveObject::of(init.srq) }?.queue().clone()),
        };
        if srq.as_ref().is_some_and(|srq| srq.number().is_some()) {
            return invalid("the shared receive queue is of an XRC domain");
        }
        let queue_pair = pagewire_nic::QueuePair::create(
            domain.domain(),
            QueuePairInit {
                kind,
                send_cq: send_cq.queue().clone(),
                recv_cq: recv_cq.queue().clone(),
                srq,
                capabilities: capabilities_from(&init.cap),
                signal_all: init.sq_sig_all != 0,
                xrc: None,
            },
        )?;
        init.cap = capabilities_of(&queue_pair.capabilities());
        let mut public = PublicQueuePair::new(domain.context(), init.qp_type);
        public.qp_context = init.qp_context;
        public.pd = pd;
        public.send_cq = init.send_cq;
        public.recv_cq = init.recv_cq;
        public.srq = init.srq;
        let membership = domain.leftovers().add(Leftover::QueuePair(queue_pair.clone()));
        Ok(publish_queue_pair(public, queue_pair, membership, ReceiverOf::None))
    })
}

/// What programs see of a queue pair, before it has a number.
pub struct PublicQueuePair(ibv_qp_ex);

impl PublicQueuePair {
    /// Nothing but its context and type.
    pub fn new(context: *mut ibv_context, kind: ibv_qp_type) -> Self {
        let mut public = ibv_qp_ex::zeroed();
        (public.qp_base.context, public.qp_base.qp_type) = (context, kind);
        public.qp_base.state = IBV_QPS_RESET;
        PublicQueuePair(public)
    }
}

impl Deref for PublicQueuePair {
    type Target = ibv_qp;

    fn deref(&self) -> &ibv_qp {
        &self.0.qp_base
    }
}

impl DerefMut for PublicQueuePair {
    fn deref_mut(&mut self) -> &mut ibv_qp {
        &mut self.0.qp_base
    }
}

/// Makes the object that programs see of a queue pair.
pub fn publish_queue_pair(
    mut public: PublicQueuePair,
    queue_pair: Arc<QueuePair<Host>>,
    membership: Membership,
    receiver: ReceiverOf,
) -> *mut ibv_qp {
    let number = match &receiver {
        ReceiverOf::Elsewhere(opened) => opened.number(),
        ReceiverOf::None | ReceiverOf::Here(_) => queue_pair.number(),
    };
    (public.qp_num, public.handle) = (number, number);
    public.state = queue_pair.state() as ibv_qp_state;
    let object = Box::new(QueuePairObject {
        public: UnsafeCell::new(FlushingQueuePair { qp: public.0, wr_flush: None }),
        membership,
        queue_pair,
        epoch: epoch(),
        builder: OnceLock::new(),
        receiver,
    });
    object.queue_pair.set_cookie(&raw const *object as u64);
    object.publish()
}

/// The bits of the attribute mask that have a meaning.
const ATTRIBUTE_MASK: u32 = IBV_QP_RATE_LIMIT | ((IBV_QP_DEST_QPN << 1) - 1);

/// What is wrong with a path MTU that is none of the five.
const NO_MTU: Error = Error::InvalidArgument("path_mtu is none of IBV_MTU_256 to IBV_MTU_4096");

/// A change of the queue pair with this number.
pub fn change_from(number: u32, attributes: &ibv_qp_attr, mask: u32) -> Result<QueuePairChange> {
    if mask & !ATTRIBUTE_MASK != 0 {
        return invalid("attribute mask of a queue pair");
    }
    let given = |flag| mask & flag != 0;
    let state = |flag, code| match given(flag) {
        true => QpState::from_repr(code).map(Some).ok_or(Errno(EINVAL)),
        false => Ok(None),
    };
    Ok(QueuePairChange {
        state: state(IBV_QP_STATE, attributes.qp_state)?,
        current_state: state(IBV_QP_CUR_STATE, attributes.cur_qp_state)?,
        drained_notify: given(IBV_QP_EN_SQD_ASYNC_NOTIFY).then_some(attributes.en_sqd_async_notify != 0),
        access: if given(IBV_QP_ACCESS_FLAGS) { Some(rights(attributes.qp_access_flags)?) } else { None },
        pkey_index: given(IBV_QP_PKEY_INDEX).then_some(attributes.pkey_index),
        port: given(IBV_QP_PORT).then_some(attributes.port_num),
        queue_key: given(IBV_QP_QKEY).then_some(attributes.qkey),
        address: given(IBV_QP_AV).then(|| vector_from(&attributes.ah_attr)),
        path_mtu: match given(IBV_QP_PATH_MTU) {
            true => {
                Some(Mtu::from_repr(attributes.path_mtu).ok_or_else(|| refusals::of_rtr(number, NO_MTU))?)
            }
            false => None,
        },
        timeout: given(IBV_QP_TIMEOUT).then_some(attributes.timeout),
        retry_count: given(IBV_QP_RETRY_CNT).then_some(attributes.retry_cnt),
        rnr_retry: given(IBV_QP_RNR_RETRY).then_some(attributes.rnr_retry),
        receive_psn: given(IBV_QP_RQ_PSN).then_some(attributes.rq_psn),
        max_read_atomic: given(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attributes.max_rd_atomic),
        min_rnr_timer: given(IBV_QP_MIN_RNR_TIMER).then_some(attributes.min_rnr_timer),
        send_psn: given(IBV_QP_SQ_PSN).then_some(attributes.sq_psn),
        max_dest_read_atomic: given(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attributes.max_dest_rd_atomic),
        destination: given(IBV_QP_DEST_QPN).then_some(attributes.dest_qp_num),
        capabilities: given(IBV_QP_CAP).then(|| capabilities_from(&attributes.cap)),
        path_migration: given(IBV_QP_PATH_MIG_STATE).then_some(attributes.path_mig_state),
        alternate_path: given(IBV_QP_ALT_PATH),
        rate_limit: given(IBV_QP_RATE_LIMIT),
    })
}

/// `ibv_modify_qp(3)`.
///
/// # Safety
/// `qp` is NULL or created; `attributes` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int {
    status(Call::on(Verb::ModifyQp, qp), || {
        // SAFETY: the caller promises that `qp` is NULL or created, and that `attributes` is NULL or valid.
        let (object, attributes) = unsafe { (QueuePairObject::of(qp)?, &*not_null(attributes)?) };
        if let ReceiverOf::Elsewhere(opened) = &object.receiver {
            let now = opened.modify(attributes, mask as u32)?;
            if let Some(state) = QpState::from_repr(now.qp_state) {
                object.show_state(state);
            }
            return Ok(());
        }
        let number = object.queue_pair.number();
        let change = change_from(number, attributes, mask as u32)?;
        object.queue_pair.modify(&change).map_err(|error| match change.state {
            Some(QpState::ReadyToReceive) => refusals::of_rtr(number, error),
            _ => error.into(),
        })?;
        if let Some(state) = change.state {
            object.show_state(state);
        }
        Ok(())
    })
}

/// All attributes of a queue pair of this process.
pub fn attributes_now(queue_pair: &QueuePair<Host>) -> ibv_qp_attr {
    let now = queue_pair.query();
    let mut answer = ibv_qp_attr::zeroed();
    answer.qp_state = now.state as ibv_qp_state;
    answer.cur_qp_state = now.state as ibv_qp_state;
    answer.path_mtu = now.path_mtu as ibv_mtu;
    answer.path_mig_state = now.path_migration;
    answer.qkey = now.queue_key;
    answer.rq_psn = now.receive_psn;
    answer.sq_psn = now.send_psn;
    answer.dest_qp_num = now.destination;
    answer.qp_access_flags = now.access.bits();
    answer.cap = capabilities_of(&queue_pair.capabilities());
    answer.ah_attr = attributes_of(&now.address);
    answer.pkey_index = now.pkey_index;
    answer.en_sqd_async_notify = u8::from(now.drained_notify);
    answer.sq_draining = u8::from(queue_pair.is_draining());
    answer.max_rd_atomic = now.max_read_atomic;
    answer.max_dest_rd_atomic = now.max_dest_read_atomic;
    answer.min_rnr_timer = now.min_rnr_timer;
    answer.port_num = now.port;
    answer.timeout = now.timeout;
    answer.retry_cnt = now.retry_count;
    answer.rnr_retry = now.rnr_retry;
    answer
}

/// `ibv_query_qp(3)`: gives all attributes, whatever the mask asks for.
///
/// # Safety
/// `qp` is NULL or created; the structures are NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    status(Call::on(Verb::QueryQp, qp), || {
        // SAFETY: the caller promises that `qp` is NULL or created, and the structures NULL or valid for a write.
        let (object, place) = unsafe { (QueuePairObject::of(qp)?, not_null(attributes)?) };
        let answer = match &object.receiver {
            ReceiverOf::Elsewhere(opened) => opened.query()?,
            ReceiverOf::None | ReceiverOf::Here(_) => attributes_now(&object.queue_pair),
        };
        let cap = capabilities_of(&object.queue_pair.capabilities());
        object.show_state(QpState::from_repr(answer.qp_state).ok_or(Errno(libc::EIO))?);
        // SAFETY: the caller promises that the structures are NULL or valid for a write; what the structure names was
        // set at creation.
        unsafe {
            place.write(answer);
            let base = &(*object.public.get()).qp.qp_base;
            put(
                init,
                ibv_qp_init_attr {
                    qp_context: base.qp_context,
                    send_cq: base.send_cq,
                    recv_cq: base.recv_cq,
                    srq: base.srq,
                    cap,
                    qp_type: base.qp_type,
                    sq_sig_all: c_int::from(object.queue_pair.signals_all()),
                },
            );
        }
        Ok(())
    })
}

/// `ibv_destroy_qp(3)`: when it returns no access of the queue pair is under way, and its events are acknowledged.
///
/// # Safety
/// `qp` is NULL or created, and nobody uses it any more but to acknowledge its events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    status(Call::on(Verb::DestroyQp, qp), || {
        // SAFETY: the caller promises that `qp` is NULL or created.
        let object = unsafe { QueuePairObject::of(qp) }?;
        object.membership.end(|| {
            // A program that has its last completion may end the queue pair before the acknowledgement of that message has
            // left; adapters send it by themselves, so drive it out first.
            object.queue_pair.doorbell();
            let (engine, report) = (engine()?, object.queue_pair.report());
            let is_destroyed = match &object.receiver {
                ReceiverOf::Here(domain) => close_receiver(domain, &object.queue_pair, qp as usize)?,
                ReceiverOf::Elsewhere(opened) => opened.close().map(|()| false)?,
                ReceiverOf::None => object.queue_pair.destroy().map(|()| true)?,
            };
            if is_destroyed {
                port_counters::remember(&report);
                explain::remember(&engine, report);
            }
            Ok::<(), Errno>(())
        })?;
        // SAFETY: the caller promises that nobody uses `qp` any more; nothing of the engine refers to the object any more.
        unsafe { QueuePairObject::free(qp) };
        Ok(())
    })
}

/// `ibv_query_qp_data_in_order(3)`: 0; only the last bytes of a message are promised to come last.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _opcode: ibv_wr_opcode, _flags: u32) -> c_int {
    0
}

/// `ibv_query_ece(3)`: there are no enhanced connection establishment options.
///
/// # Safety
/// `qp` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller promises that `qp` is NULL or created.
    status(Call::on(Verb::QueryEce, qp), || unsafe { no_options(qp, ece) })
}

/// `ibv_set_ece(3)`: see [`ibv_query_ece`].
///
/// # Safety
/// `qp` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller promises that `qp` is NULL or created.
    status(Call::on(Verb::SetEce, qp), || unsafe { no_options(qp, ece) })
}

/// # Safety
/// `qp` is NULL or created.
unsafe fn no_options(qp: *mut ibv_qp, ece: *mut ibv_ece) -> Result<()> {
    not_null(ece)?;
    // SAFETY: the caller promises that `qp` is NULL or created.
    unsafe { QueuePairObject::of(qp) }?;
    Err(Errno(EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_extended_attributes_begin_like_the_plain_ones() {
        assert_eq!(offset_of!(ibv_qp_init_attr_ex, send_cq), offset_of!(ibv_qp_init_attr, send_cq));
        assert_eq!(offset_of!(ibv_qp_init_attr_ex, cap), offset_of!(ibv_qp_init_attr, cap));
        assert_eq!(offset_of!(ibv_qp_init_attr_ex, qp_type), offset_of!(ibv_qp_init_attr, qp_type));
        assert_eq!(offset_of!(ibv_qp_init_attr_ex, sq_sig_all), offset_of!(ibv_qp_init_attr, sq_sig_all));
    }

    #[test]
    fn unknown_bits_and_states_are_refused() {
        let mut attributes = ibv_qp_attr::zeroed();
        assert_eq!(change_from(1, &attributes, 1 << 21).err(), Some(Errno(EINVAL)));
        attributes.qp_state = IBV_QPS_UNKNOWN;
        assert_eq!(change_from(1, &attributes, IBV_QP_STATE).err(), Some(Errno(EINVAL)));
        assert!(change_from(1, &attributes, 0).unwrap().mask().is_empty());
    }

    #[test]
    fn the_masks_of_program_and_engine_agree() {
        let mut attributes = ibv_qp_attr::zeroed();
        attributes.path_mtu = IBV_MTU_1024;
        for bit in (0..32).map(|shift| 1 << shift).filter(|bit| ATTRIBUTE_MASK & bit != 0) {
            assert_eq!(change_from(1, &attributes, bit).unwrap().mask().bits(), bit);
        }
    }
}
