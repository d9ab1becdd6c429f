//! What all posting verbs share: lists of work requests, and their scatter-gather lists. No lock, and mostly no allocation.

use crate::abi::*;
use crate::boundary::{Result, invalid};
use crate::calls::Call;
use crate::limits::MAX_SEGMENTS;
use crate::objects::object::{Object, put};
use crate::objects::queue_pair::QueuePairObject;
use crate::objects::shared_receive::SharedReceiveObject;
use libc::c_int;
use pagewire_failures::Verb;
use pagewire_nic::{ReceiveRequest, ScatterGather};
use smallvec::SmallVec;

/// A work request as it stands in a linked list.
pub trait Listed: Copy {
    /// The one behind it, or NULL.
    fn next(&self) -> *mut Self;
    /// Its scatter-gather list, and how many elements that is said to have.
    fn list(&self) -> (*const ibv_sge, c_int);
    /// This request with another list, of as many elements.
    fn with_list(self, list: *mut ibv_sge) -> Self;
}

impl Listed for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn list(&self) -> (*const ibv_sge, c_int) {
        (self.sg_list, self.num_sge)
    }

    fn with_list(self, list: *mut ibv_sge) -> Self {
        ibv_send_wr { sg_list: list, ..self }
    }
}

impl Listed for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn list(&self) -> (*const ibv_sge, c_int) {
        (self.sg_list, self.num_sge)
    }

    fn with_list(self, list: *mut ibv_sge) -> Self {
        ibv_recv_wr { sg_list: list, ..self }
    }
}

/// Posts each request of a linked list; stops at the first that is refused and stores it in `bad`.
///
/// # Safety
/// The list is valid, with the scatter-gather lists of its requests; `bad` is NULL or valid for a write.
pub unsafe fn post_list<W: Listed>(
    list: *mut W,
    bad: *mut *mut W,
    mut post: impl FnMut(&W) -> Result<()>,
) -> Result<()> {
    let mut copy = None;
    let mut place = list;
    // SAFETY: the caller promises a valid list: each element is valid and the last one's `next` is NULL.
    while let Some(request) = unsafe { place.as_ref() } {
        let aligned = match request.list().0.is_aligned() {
            true => request,
            // SAFETY: the caller promises a valid scatter-gather list.
            false => &copy.insert(unsafe { AlignedRequest::new(request) }).request,
        };
        if let Err(error) = post(aligned) {
            // SAFETY: the caller promises that `bad` is NULL or valid for a write.
            unsafe { put(bad, place) };
            return Err(error);
        }
        place = request.next();
    }
    Ok(())
}

/// A request with a copy of its scatter-gather list, which lies where none may: programs with packed structures have such lists (libiscsi), and
/// adapters take them.
pub struct AlignedRequest<W> {
    pub request: W,
    _list: Box<[ibv_sge]>,
}

impl<W: Listed> AlignedRequest<W> {
    /// # Safety
    /// The request's scatter-gather list is valid.
    #[cold]
    #[inline(never)]
    pub unsafe fn new(request: &W) -> Box<Self> {
        let (list, count) = request.list();
        // SAFETY: the caller promises a valid list. One that is too long is refused, and is not looked at.
        let mut list = unsafe { elements_within(list, count, MAX_SEGMENTS) }.into_vec().into_boxed_slice();
        Box::new(AlignedRequest { request: request.with_list(list.as_mut_ptr()), _list: list })
    }
}

/// A request's scatter-gather list.
///
/// # Safety
/// `list` points to `count` valid elements, where elements may lie.
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

/// Scatter-gather elements that a request of a posting verb may have, by the queue that the call is on; 0: it is none, and the verb refuses
/// all requests.
///
/// # Safety
/// The object of the call is NULL or a queue of the verb's kind that does not end meanwhile.
pub unsafe fn max_elements(call: Call) -> usize {
    // SAFETY: the caller promises that the object is NULL or a queue pair, or of its verb a shared receive queue, that does not end meanwhile.
    let most = unsafe {
        match call.verb {
            Verb::PostSrqRecv => SharedReceiveObject::of(call.object as *const ibv_srq)
                .map(|object| object.queue().query().max_sge),
            verb => QueuePairObject::of(call.object as *const ibv_qp).map(|object| {
                let capabilities = object.queue_pair().capabilities();
                if verb == Verb::PostSend { capabilities.max_send_sge } else { capabilities.max_recv_sge }
            }),
        }
    };
    most.map_or(0, |most| most as usize)
}

/// The elements of a list, for those who look at it before the verb: none of a list that the verb refuses as too long, of which nobody knows
/// how much is there.
///
/// # Safety
/// `list` is NULL or points to `count` valid elements, if these are no more than `most`.
pub unsafe fn elements_within(list: *const ibv_sge, count: c_int, most: usize) -> SmallVec<[ibv_sge; 4]> {
    match usize::try_from(count) {
        Ok(count) if count <= most && !list.is_null() => {
            // SAFETY: the caller promises that a list of no more than `most` elements has them.
            (0..count).map(|index| unsafe { list.add(index).read_unaligned() }).collect()
        }
        _ => SmallVec::new(),
    }
}

/// A receive request.
///
/// # Safety
/// The request's scatter-gather list is valid, and lies where one may.
pub unsafe fn receive_request(wr: &ibv_recv_wr) -> Result<ReceiveRequest<'_>> {
    // SAFETY: the caller promises that the request's scatter-gather list is valid.
    Ok(ReceiveRequest { wr_id: wr.wr_id, segments: unsafe { segments(wr.sg_list, wr.num_sge) }? })
}
