//! Posting to queue pairs: from the program's send requests to the engine's. No allocation and no lock of this crate.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, table_status};
use crate::calls::fast::spoilt_key;
use crate::limits::MAX_SEGMENTS;
use crate::objects::address_handle::AddressHandleObject;
use crate::objects::memory_window::type_2_binding_of;
use crate::objects::object::{Object, put};
use crate::objects::queue_pair::QueuePairObject;
use crate::runtime::engine::Host;
use crate::unsupported;
use crate::work_requests::{post_list, receive_request, segments};
use libc::c_int;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::{Data, Destination, FlushRequest, SendOperation, SendRequest, Status, WindowWork};

/// What a send request does, if it moves data.
///
/// # Safety
/// The members of the unions that the opcode asks for are set.
unsafe fn operation(wr: &ibv_send_wr) -> Option<SendOperation> {
    // SAFETY: the caller promises that the members that the opcode asks for are set; all members are plain integers.
    unsafe {
        let immediate = || u32::from_be(wr.__bindgen_anon_1.imm_data);
        let (address, key) = (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
        let atomic = wr.wr.atomic;
        Some(match wr.opcode {
            IBV_WR_SEND => SendOperation::Send,
            IBV_WR_SEND_WITH_IMM => SendOperation::SendImmediate(immediate()),
            IBV_WR_SEND_WITH_INV => SendOperation::SendInvalidate(wr.__bindgen_anon_1.invalidate_rkey),
            IBV_WR_RDMA_WRITE => SendOperation::Write { address, key },
            IBV_WR_RDMA_WRITE_WITH_IMM => {
                SendOperation::WriteImmediate { address, key, immediate: immediate() }
            }
            IBV_WR_RDMA_READ => SendOperation::Read { address, key },
            IBV_WR_ATOMIC_CMP_AND_SWP => SendOperation::CompareSwap {
                address: atomic.remote_addr,
                key: atomic.rkey,
                compare: atomic.compare_add,
                swap: atomic.swap,
            },
            IBV_WR_ATOMIC_FETCH_AND_ADD => SendOperation::FetchAdd {
                address: atomic.remote_addr,
                key: atomic.rkey,
                add: atomic.compare_add,
            },
            IBV_WR_ATOMIC_WRITE => SendOperation::AtomicWrite { address, key },
            _ => return None,
        })
    }
}

/// The opcode of a FLUSH that was built by the extended interface for posting. `struct ibv_send_wr` has no members for a FLUSH, so that
/// `ibv_post_send(3)` has none: no header has this value.
pub const BUILT_FLUSH: ibv_wr_opcode = 0x1_0000 | IBV_WR_FLUSH;

/// What `ibv_wr_flush` asks for, in the members of an atomic.
pub fn set_flush(wr: &mut ibv_send_wr, (address, rkey): (u64, u32), length: usize, (kind, level): (u8, u8)) {
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = length as u64;
    wr.wr.atomic.swap = u64::from(kind) | u64::from(level) << 8;
}

/// A FLUSH that was built.
///
/// # Safety
/// It is one.
#[cold]
unsafe fn flush_operation(wr: &ibv_send_wr) -> Result<SendOperation> {
    // SAFETY: the caller promises that `set_flush` has set these members, which are plain integers.
    let flush = unsafe { wr.wr.atomic };
    let (kind, level) = (flush.swap as u8, (flush.swap >> 8) as u8);
    let Some(request) = FlushRequest::of_bits(kind, level) else {
        return invalid("placement type or selectivity level of a FLUSH");
    };
    // A region may have more bytes than a range, and its length means nothing.
    let length = if request.whole_region { Ok(0) } else { u32::try_from(flush.compare_add) };
    let Ok(length) = length else { return invalid("length of a FLUSH") };
    Ok(SendOperation::Flush { address: flush.remote_addr, key: flush.rkey, length, flush: request })
}

/// Does something with the engine's form of a request for a memory window or of a FLUSH, if it is one.
///
/// # Safety
/// The member of the union that the opcode asks for is set; what it names is NULL, or has not ended.
#[cold]
unsafe fn with_rare_request<T>(
    object: &QueuePairObject,
    wr: &ibv_send_wr,
    work: impl Fn(SendRequest<'_, Host>) -> pagewire_nic::Result<T>,
) -> Result<T> {
    // SAFETY: the caller promises that the member is set, and that what it names has not ended.
    let (operation, window_work) = unsafe {
        match wr.opcode {
            BUILT_FLUSH => (flush_operation(wr)?, None),
            IBV_WR_LOCAL_INV => {
                let key = wr.__bindgen_anon_1.invalidate_rkey;
                (SendOperation::InvalidateWindow, Some(WindowWork::Invalidate(key)))
            }
            IBV_WR_BIND_MW => {
                let bind = wr.__bindgen_anon_2.bind_mw;
                let binding = type_2_binding_of(bind.mw, bind.rkey, &bind.bind_info)?;
                (SendOperation::BindWindow, Some(WindowWork::Bind(binding)))
            }
            opcode => return Err(unsupported::send_opcode(opcode)),
        }
    };
    Ok(work(SendRequest::<Host> {
        wr_id: wr.wr_id,
        data: window_work.as_ref().map_or(Data::Segments(&[]), Data::Window),
        operation,
        signaled: wr.send_flags & IBV_SEND_SIGNALED != 0,
        fence: wr.send_flags & IBV_SEND_FENCE != 0,
        solicited: false,
        // SAFETY: the caller promises a valid request: those of XRC set this member.
        destination: unsafe { shared_queue_of(object, wr) },
    })?)
}

/// The peer's shared receive queue that a request is for, if the queue pair is of XRC.
///
/// # Safety
/// The request is valid: those of XRC set that member.
#[inline(always)] // Part of each post.
unsafe fn shared_queue_of<'a>(object: &QueuePairObject, wr: &ibv_send_wr) -> Option<Destination<'a, Host>> {
    match object.queue_pair().kind() {
        // SAFETY: the caller promises that the member is set.
        QueuePairType::XrcSend => Some(Destination::SharedQueue(unsafe { wr.qp_type.xrc.remote_srqn })),
        QueuePairType::Rc | QueuePairType::Uc | QueuePairType::Ud | QueuePairType::XrcReceive => None,
    }
}

const SEND_FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// Posts one send request; says whether the doorbell has to be rung for it. `failing` gives the status with which it is to fail, if it is.
///
/// # Safety
/// The request, its scatter-gather list, its address handle and, if it is inline, its data are valid.
#[inline(always)] // Part of each post.
unsafe fn post_one(
    object: &QueuePairObject,
    wr: &ibv_send_wr,
    failing: impl Fn(&QueuePairObject, &ibv_send_wr) -> Option<Status>,
) -> Result<bool> {
    let queue_pair = object.queue_pair();
    let post = |request: SendRequest<'_, Host>| match failing(object, wr) {
        None => queue_pair.post_send(&request),
        // The peer itself refuses a key that it does not know, and ends its side, too.
        Some(Status::RemoteAccess) if request.operation.remote_key().is_some() => queue_pair
            .post_send(&SendRequest { operation: request.operation.with_key(spoilt_key), ..request }),
        Some(status) => queue_pair.post_failing(&request, status),
    };
    // SAFETY: the caller promises that the request is valid, with what it names.
    unsafe { with_request(object, wr, post) }
}

/// Whether a send request could be posted, as far as it itself goes.
///
/// # Safety
/// As for [`post_one`].
pub unsafe fn check_one(object: &QueuePairObject, wr: &ibv_send_wr) -> Result<()> {
    // SAFETY: the caller promises that the request is valid, with what it names.
    unsafe { with_request(object, wr, |request| object.queue_pair().check_send(&request)) }
}

/// Does something with the engine's form of a send request.
///
/// # Safety
/// The request, its scatter-gather list, its address handle and, if it is inline, its data are valid.
#[inline(always)] // Part of each post.
unsafe fn with_request<T>(
    object: &QueuePairObject,
    wr: &ibv_send_wr,
    work: impl Fn(SendRequest<'_, Host>) -> pagewire_nic::Result<T>,
) -> Result<T> {
    if wr.send_flags & !SEND_FLAGS != 0 {
        return invalid("send flags");
    }
    let queue_pair = object.queue_pair();
    // SAFETY: the caller promises that the request is valid.
    let Some(operation) = (unsafe { operation(wr) }) else {
        // SAFETY: the caller promises that what the request names has not ended.
        return unsafe { with_rare_request(object, wr, work) };
    };
    // SAFETY: the caller promises that the request's scatter-gather list and its inline data are valid.
    let segments = unsafe { segments(wr.sg_list, wr.num_sge)? };
    let destination = match queue_pair.kind() {
        QueuePairType::Ud => {
            // SAFETY: the caller promises a valid request: those of UD queue pairs set this member.
            let to = unsafe { wr.wr.ud };
            // SAFETY: the caller promises that the request's address handle is valid.
            let address = unsafe { AddressHandleObject::of(to.ah) }?.handle();
            Some(Destination::Address { address, queue_pair: to.remote_qpn, queue_key: to.remote_qkey })
        }
        // SAFETY: the caller promises a valid request.
        _ => unsafe { shared_queue_of(object, wr) },
    };
    let post = |data| {
        work(SendRequest::<Host> {
            wr_id: wr.wr_id,
            data,
            operation,
            signaled: wr.send_flags & IBV_SEND_SIGNALED != 0,
            fence: wr.send_flags & IBV_SEND_FENCE != 0,
            solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
            destination,
        })
    };
    if wr.send_flags & IBV_SEND_INLINE == 0 {
        return Ok(post(Data::Segments(segments))?);
    }
    let capabilities = queue_pair.capabilities();
    if segments.len() > capabilities.max_send_sge as usize {
        return invalid("number of scatter-gather elements");
    }
    let limit = capabilities.max_inline_data as usize;
    let mut pieces: [&[u8]; MAX_SEGMENTS] = [&[]; MAX_SEGMENTS];
    let mut total = 0usize;
    for (piece, segment) in pieces.iter_mut().zip(segments).filter(|(_, segment)| segment.length > 0) {
        total += segment.length as usize;
        if total > limit {
            return invalid("more inline data than the queue pair takes");
        }
        // SAFETY: the caller promises valid inline data: it is the caller's to read, in this thread, until the call returns
        // (ibv_post_send(3)); keys do not matter.
        *piece = unsafe { std::slice::from_raw_parts(segment.address as *const u8, segment.length as usize) };
    }
    Ok(post(Data::Inline(&pieces[..segments.len()]))?)
}

/// `ibv_post_send(3)`, by way of `context->ops`.
///
/// # Safety
/// `qp` is created; the list and everything it refers to is valid; `bad` is NULL or valid for a write.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller promises what the function asks for.
    unsafe { post_send_with(qp, list, bad, |_, _| None) }
}

/// [`post_send`] where some requests fail; see [`post_one`].
///
/// # Safety
/// `qp` is created. The list is valid, with the scatter-gather elements, address handles and inline data of its requests. `bad` is NULL or valid
/// for a write.
#[inline(always)]
pub unsafe fn post_send_with(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    failing: impl Fn(&QueuePairObject, &ibv_send_wr) -> Option<Status>,
) -> c_int {
    table_status(|| {
        // SAFETY: the caller promises that `qp` is created, the list valid, and `bad` NULL or valid for a write.
        unsafe {
            let object = match QueuePairObject::of(qp) {
                Ok(object) => object,
                Err(error) => {
                    put(bad, list);
                    return Err(error);
                }
            };
            let mut kept = false;
            let posted = post_list(list, bad, |wr| post_one(object, wr, &failing).map(|one| kept |= one));
            // Those before the refused one are posted.
            if kept {
                object.queue_pair().doorbell();
            }
            posted
        }
    })
}

/// `ibv_post_recv(3)`, by way of `context->ops`.
///
/// # Safety
/// `qp` is created; the list and its scatter-gather elements are valid; `bad` is NULL or valid for a write.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    table_status(|| {
        // SAFETY: the caller promises that `qp` is created, the list valid, and `bad` NULL or valid for a write.
        unsafe {
            let object = match QueuePairObject::of(qp) {
                Ok(object) => object,
                Err(error) => {
                    put(bad, list);
                    return Err(error);
                }
            };
            let post = |wr: &ibv_recv_wr| {
                object.queue_pair().post_receive(&receive_request(wr)?).map_err(Errno::from)
            };
            post_list(list, bad, post)
        }
    })
}
