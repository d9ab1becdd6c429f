//! What all posting verbs share: lists of work requests, and their scatter-gather lists. No allocation and no lock.

use crate::abi::*;
use crate::boundary::{Result, invalid};
use crate::limits::MAX_SEGMENTS;
use crate::objects::object::put;
use libc::c_int;
use pagewire_nic::{ReceiveRequest, ScatterGather};

/// Posts each request of a linked list; stops at the first that is refused and stores it in `bad`.
///
/// # Safety
/// The list is valid; `bad` is NULL or valid for a write.
pub unsafe fn post_list<W>(
    list: *mut W,
    bad: *mut *mut W,
    next: impl Fn(&W) -> *mut W,
    mut post: impl FnMut(&W) -> Result<()>,
) -> Result<()> {
    let mut place = list;
    // SAFETY: the caller promises a valid list: each element is valid and the last one's `next` is NULL.
    while let Some(request) = unsafe { place.as_ref() } {
        if let Err(error) = post(request) {
            // SAFETY: the caller promises that `bad` is NULL or valid for a write.
            unsafe { put(bad, place) };
            return Err(error);
        }
        place = next(request);
    }
    Ok(())
}

/// A request's scatter-gather list.
///
/// # Safety
/// `list` points to `count` valid elements.
pub unsafe fn segments<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [ScatterGather]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(_) if list.is_null() => invalid("no scatter-gather list"),
        // SAFETY: the caller promises that `list` points to `count` valid elements; `ScatterGather` has the layout of
        // `ibv_sge` (a test compares them).
        Ok(count) if count <= MAX_SEGMENTS => Ok(unsafe { std::slice::from_raw_parts(list.cast(), count) }),
        _ => invalid("number of scatter-gather elements"),
    }
}

/// A receive request.
///
/// # Safety
/// The request's scatter-gather list is valid.
pub unsafe fn receive_request(wr: &ibv_recv_wr) -> Result<ReceiveRequest<'_>> {
    // SAFETY: the caller promises that the request's scatter-gather list is valid.
    Ok(ReceiveRequest { wr_id: wr.wr_id, segments: unsafe { segments(wr.sg_list, wr.num_sge) }? })
}
