//! The verbs that programs call by the tables of a context, for processes with observers.

use crate::abi::*;
use crate::boundary::{Errno, Result, guarded, set_errno};
use crate::calls::{
    Call, failing_receive, failing_send, observed, observed_always, tell_polled, tell_refused,
};
use crate::completion::{completion_queue, extended_poll};
use crate::objects::object::put;
use crate::objects::queue_pair::QueuePairObject;
use crate::objects::shared_receive;
use crate::post;
use crate::work_requests::{elements_within, max_elements};
use libc::{ENOENT, c_int};
use pagewire_failures::Verb;
use pagewire_nic::Status;
use std::ptr::null_mut;

/// Runs a function of the plain table that gives 0 or an `errno` value.
fn status(call: Call, plain: impl FnOnce() -> c_int) -> c_int {
    let verb = || match plain() {
        0 => Ok(()),
        error => Err(Errno(error)),
    };
    let result = guarded(|| observed(call, |()| 0, verb));
    match result {
        Ok(()) => 0,
        Err(Errno(error)) => {
            set_errno(error);
            error
        }
    }
}

/// As [`status`], for verbs that post a list: whoever refuses the call refuses its first request. `plain` gets the place for the refused one.
///
/// # Safety
/// `bad` is NULL or valid for a write.
unsafe fn posting<W>(
    call: Call,
    list: *mut W,
    bad: *mut *mut W,
    plain: impl FnOnce(*mut *mut W) -> c_int,
) -> c_int {
    let call = call.with(list as usize);
    let mut refused = list;
    let answer = status(call, || plain(&mut refused));
    if answer != 0 {
        // SAFETY: the caller promises that `bad` is NULL or valid for a write.
        unsafe { put(bad, refused) };
        tell_refused(call, refused as usize);
    }
    answer
}

/// [`post::post_send`] with observers.
///
/// # Safety
/// `qp` is created and not destroyed. The list is valid, with the scatter-gather elements, address handles and inline data of its requests. `bad`
/// is NULL or valid for a write.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let call = Call::on(Verb::PostSend, qp);
    let failing = |object: &QueuePairObject, request: &ibv_send_wr| {
        failing_send(call, request, object.queue_pair().kind())
    };
    // SAFETY: the caller promises a queue pair that exists, a valid list, and a `bad` that is NULL or valid for a write.
    unsafe { posting(call, list, bad, |bad| post::post_send_with(qp, list, bad, failing)) }
}

/// [`post::post_recv`] with observers.
///
/// # Safety
/// `qp` is created and not destroyed. The list and its scatter-gather elements are valid. `bad` is NULL or valid for a write.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let call = Call::on(Verb::PostRecv, qp);
    // SAFETY: the caller promises a queue pair that exists, a valid list, and a `bad` that is NULL or valid for a write. A list of one valid
    // request is valid.
    unsafe {
        posting(call, list, bad, |bad| {
            each_receive(call, list, bad, |one, bad| post::post_recv(qp, one, bad))
        })
    }
}

/// Posts each receive request of a list by itself, as the observers want it.
///
/// # Safety
/// The list and its scatter-gather elements are valid; `bad` is NULL or valid for a write.
unsafe fn each_receive(
    call: Call,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    plain: impl Fn(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
) -> c_int {
    let mut place = list;
    // SAFETY: the caller promises a valid list: each element is valid, and the `next` of the last is NULL.
    while let Some(request) = unsafe { place.as_ref() } {
        let status = failing_receive(call, request);
        // SAFETY: the caller promises that the request's scatter-gather list is valid, and the call is on its queue.
        let mut pieces = unsafe { spoilt_pieces(request, status, max_elements(call)) };
        let mut one = ibv_recv_wr { next: null_mut(), ..*request };
        if let Some(pieces) = &mut pieces {
            (one.sg_list, one.num_sge) = (pieces.as_mut_ptr(), pieces.len() as c_int);
        }
        let answer = plain(&mut one, &mut null_mut());
        if answer != 0 {
            // SAFETY: the caller promises that `bad` is NULL or valid for a write.
            unsafe { put(bad, place) };
            return answer;
        }
        place = request.next;
    }
    0
}

/// The scatter-gather list with which a receive fails by itself: one without memory, or whose keys name none.
///
/// # Safety
/// The request's scatter-gather list is valid, if it has no more than `most` elements.
unsafe fn spoilt_pieces(request: &ibv_recv_wr, status: Option<Status>, most: usize) -> Option<Vec<ibv_sge>> {
    let status = status?;
    // What posting itself refuses is left to it.
    if !usize::try_from(request.num_sge).is_ok_and(|count| count <= most) {
        return None;
    }
    if status == Status::LocalLength {
        return Some(Vec::new());
    }
    // SAFETY: the caller promises that a list of no more than `most` elements is valid.
    let elements = unsafe { elements_within(request.sg_list, request.num_sge, most) };
    Some(elements.iter().map(|element| ibv_sge { lkey: spoilt_key(element.lkey), ..*element }).collect())
}

/// A key that no region has at the moment, as the region of this one has another in the consumer's byte.
pub fn spoilt_key(key: u32) -> u32 {
    key ^ 0xFF
}

/// [`shared_receive::post_srq_recv`] with observers.
///
/// # Safety
/// `srq` is created and not destroyed. The list and its scatter-gather elements are valid. `bad` is NULL or valid for a write.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let call = Call::on(Verb::PostSrqRecv, srq);
    // SAFETY: the caller promises a shared receive queue that exists, a valid list, and a `bad` that is NULL or valid for a write. A list of one
    // valid request is valid.
    unsafe {
        posting(call, list, bad, |bad| {
            each_receive(call, list, bad, |one, bad| shared_receive::post_srq_recv(srq, one, bad))
        })
    }
}

/// [`completion_queue::req_notify_cq`] with observers.
///
/// # Safety
/// `cq` is created and not destroyed.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller promises a completion queue that exists.
    status(Call::on(Verb::ReqNotifyCq, cq), || unsafe { completion_queue::req_notify_cq(cq, solicited_only) })
}

/// [`completion_queue::poll_cq`] with observers: a negative `errno` value where it fails, as the plain function gives.
///
/// # Safety
/// `cq` is created and not destroyed; `into` is valid for writes of that many entries.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, into: *mut ibv_wc) -> c_int {
    let call = Call::on(Verb::PollCq, cq);
    // SAFETY: the caller promises a completion queue that exists, and memory for the entries.
    let verb = || match unsafe { completion_queue::poll_cq(cq, entries, into) } {
        count @ 0.. => {
            for place in 0..count as usize {
                // SAFETY: the plain function has written that many completions.
                tell_polled(call, unsafe { &*into.add(place) });
            }
            Ok(count)
        }
        error => Err(Errno(-error)),
    };
    let polled = guarded(|| observed(call, |count| *count as usize, verb));
    polled.unwrap_or_else(|Errno(error)| -error)
}

/// Runs a function of the extended interface that takes the next completion.
///
/// # Safety
/// `cq` is the program's queue.
unsafe fn extended(verb: Verb, cq: *mut ibv_cq_ex, plain: impl FnOnce() -> c_int) -> c_int {
    let call = Call::on(verb, cq);
    // An empty queue is no failure of the call: 0 completions.
    let verb = || match plain() {
        0 => {
            // SAFETY: the plain function has found a completion, and this thread reads it until `end_poll`.
            if let Some(completion) = unsafe { extended_poll::current(cq) } {
                tell_polled(call, &completion);
            }
            Ok(1)
        }
        ENOENT => Ok(0),
        error => Err(Errno(error)),
    };
    let polled: Result<usize> = guarded(|| observed(call, |count| *count, verb));
    match polled {
        Ok(0) => ENOENT,
        Ok(_) => 0,
        Err(Errno(error)) => error,
    }
}

/// `ibv_start_poll(3)` with observers.
///
/// # Safety
/// `cq` is created and not destroyed; `attributes` is valid.
pub unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller promises a completion queue that exists, and valid attributes.
    unsafe { extended(Verb::StartPoll, cq, || extended_poll::start_poll(cq, attributes)) }
}

/// `ibv_next_poll(3)` with observers.
///
/// # Safety
/// `cq` is created and not destroyed, and this thread has begun to poll it.
pub unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller promises a completion queue that exists, which this thread polls.
    unsafe { extended(Verb::NextPoll, cq, || extended_poll::next_poll(cq)) }
}

/// `ibv_end_poll(3)` with observers.
///
/// # Safety
/// `cq` is created and not destroyed, and this thread has begun to poll it.
pub unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller promises a completion queue that exists, which this thread polls.
    let verb = || unsafe { extended_poll::end_poll(cq) };
    let run = || {
        observed_always(Call::on(Verb::EndPoll, cq), verb);
        Ok(())
    };
    if let Err(Errno(error)) = guarded(run) {
        set_errno(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_post_names_its_first_request() {
        let mut request = std::mem::MaybeUninit::<ibv_send_wr>::zeroed();
        let mut bad = std::ptr::null_mut();
        let call = Call::on(Verb::PostSend, std::ptr::null_mut::<ibv_qp>());
        // SAFETY: the request and the place for the refused one are local.
        let answer = unsafe { posting(call, request.as_mut_ptr(), &mut bad, |_| 0) };
        assert_eq!((answer, bad), (0, std::ptr::null_mut()));
        // What the verb itself refuses it names itself.
        // SAFETY: the request and the place for the refused one are local.
        let answer = unsafe { posting(call, request.as_mut_ptr(), &mut bad, |_| libc::ENOMEM) };
        assert_eq!((answer, bad), (libc::ENOMEM, request.as_mut_ptr()));
        let mut second = std::mem::MaybeUninit::<ibv_send_wr>::zeroed();
        let refused = |bad: *mut *mut ibv_send_wr| {
            // SAFETY: the place for the refused request is a local one.
            unsafe { bad.write(second.as_mut_ptr()) };
            libc::ENOMEM
        };
        // SAFETY: the requests and the place for the refused one are local.
        let answer = unsafe { posting(call, request.as_mut_ptr(), &mut bad, refused) };
        assert_eq!((answer, bad), (libc::ENOMEM, second.as_mut_ptr()));
    }
}
