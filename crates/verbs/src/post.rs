//! Posting to queue pairs: from the program's send requests to the engine's. No allocation and no lock of this crate.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, quick_status};
use crate::limits::MAX_SEGMENTS;
use crate::objects::address_handle::AddressHandleObject;
use crate::objects::object::{Object, put};
use crate::objects::queue_pair::QueuePairObject;
use crate::runtime::engine::Host;
use crate::unsupported;
use crate::work_requests::{post_list, receive_request, segments};
use libc::c_int;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::{Data, Destination, SendOperation, SendRequest};

/// What a send request does.
///
/// # Safety
/// The members of the unions that the opcode asks for are set.
unsafe fn operation(wr: &ibv_send_wr) -> Result<SendOperation> {
    // SAFETY: the caller promises that the members that the opcode asks for are set; all members are plain integers.
    unsafe {
        let immediate = || u32::from_be(wr.__bindgen_anon_1.imm_data);
        let (address, key) = (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
        let atomic = wr.wr.atomic;
        Ok(match wr.opcode {
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
            opcode => return Err(unsupported::send_opcode(opcode)),
        })
    }
}

const SEND_FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// Posts one send request; says whether the doorbell has to be rung for it.
///
/// # Safety
/// The request, its scatter-gather list, its address handle and, if it is inline, its data are valid.
unsafe fn post_one(object: &QueuePairObject, wr: &ibv_send_wr) -> Result<bool> {
    if wr.send_flags & !SEND_FLAGS != 0 {
        return invalid("send flags");
    }
    let queue_pair = object.queue_pair();
    // SAFETY: the caller promises that the request, its scatter-gather list and its inline data are valid.
    let (operation, segments) = unsafe { (operation(wr)?, segments(wr.sg_list, wr.num_sge)?) };
    let destination = match queue_pair.kind() {
        QueuePairType::Ud => {
            // SAFETY: the caller promises a valid request: those of UD queue pairs set this member.
            let to = unsafe { wr.wr.ud };
            // SAFETY: the caller promises that the request's address handle is valid.
            let address = unsafe { AddressHandleObject::of(to.ah) }?.handle();
            Some(Destination { address, queue_pair: to.remote_qpn, queue_key: to.remote_qkey })
        }
        QueuePairType::Rc | QueuePairType::Uc => None,
    };
    let post = |data| {
        queue_pair.post_send(&SendRequest::<Host> {
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
    let limit = queue_pair.capabilities().max_inline_data as usize;
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
    quick_status(|| {
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
            let posted = post_list(list, bad, |wr| wr.next, |wr| post_one(object, wr).map(|one| kept |= one));
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
    quick_status(|| {
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
            post_list(list, bad, |wr| wr.next, post)
        }
    })
}
