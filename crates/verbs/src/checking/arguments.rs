//! What the structures of programs say of objects and requests.

use crate::abi::*;
use crate::completion::completion_queue::CompletionQueueObject;
use crate::objects::object::Object;
use crate::objects::protection::region_of;
use crate::objects::queue_pair::QueuePairObject;
use crate::post::BUILT_FLUSH;
use crate::work_requests::elements_within;
use pagewire_checker::{Details, Keys, ObjectKind, QueuePairDetails, RegionDetails, Request};
use pagewire_failures::Verb;
use pagewire_nic::attributes::QpState;

/// The kind of object that a verb makes, if it makes one.
pub fn kind_made(verb: Verb) -> Option<ObjectKind> {
    Some(match verb {
        Verb::OpenDevice | Verb::ImportDevice => ObjectKind::Context,
        Verb::CreateCompChannel => ObjectKind::CompletionChannel,
        Verb::AllocPd | Verb::AllocParentDomain | Verb::ImportPd => ObjectKind::ProtectionDomain,
        Verb::AllocTd => ObjectKind::ThreadDomain,
        Verb::RegMr
        | Verb::RegMrIova
        | Verb::RegMrEx
        | Verb::AllocNullMr
        | Verb::RegDmMr
        | Verb::ImportMr => ObjectKind::MemoryRegion,
        Verb::AllocDm | Verb::ImportDm => ObjectKind::DeviceMemory,
        Verb::AllocMw => ObjectKind::MemoryWindow,
        Verb::CreateCompCntr => ObjectKind::CompletionCounter,
        Verb::CreateCq | Verb::CreateCqEx => ObjectKind::CompletionQueue,
        Verb::CreateSrq | Verb::CreateSrqEx => ObjectKind::SharedReceiveQueue,
        Verb::OpenXrcd => ObjectKind::XrcDomain,
        Verb::CreateQp | Verb::CreateQpEx | Verb::OpenQp => ObjectKind::QueuePair,
        Verb::CreateAh | Verb::CreateAhFromWc => ObjectKind::AddressHandle,
        _ => return None,
    })
}

/// Whether a verb ends the object that it is called on.
pub fn ends(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::CloseDevice
            | Verb::DestroyCompChannel
            | Verb::DeallocPd
            | Verb::DeallocTd
            | Verb::DeregMr
            | Verb::DeallocMw
            | Verb::FreeDm
            | Verb::UnimportPd
            | Verb::UnimportMr
            | Verb::UnimportDm
            | Verb::CloseXrcd
            | Verb::DestroyCompCntr
            | Verb::DestroyCq
            | Verb::DestroySrq
            | Verb::DestroyQp
            | Verb::DestroyAh
    )
}

/// Whether the object of a call is one of the kinds that are known, and not a device, a buffer or an event.
pub fn is_on_known_object(verb: Verb) -> bool {
    !matches!(
        verb,
        Verb::GetDeviceList
            | Verb::FreeDeviceList
            | Verb::OpenDevice
            | Verb::ImportDevice
            | Verb::FreeBuf
            | Verb::AckAsyncEvent
            | Verb::ResolveEthL2FromGid
    )
}

/// The context of an object that a verb made.
///
/// # Safety
/// `address` is that of an object of this kind that has not ended.
pub unsafe fn context_of(kind: ObjectKind, address: usize) -> usize {
    if kind == ObjectKind::Context {
        return address;
    }
    // SAFETY: the caller promises an object; the structure of each kind but the context begins with the context's address.
    unsafe { *(address as *const *mut ibv_context) as usize }
}

/// What the rules want to know of an object that a verb made.
///
/// # Safety
/// As for [`context_of`].
pub unsafe fn details_of(kind: ObjectKind, address: usize) -> Details {
    // SAFETY: the caller promises an object of this kind that has not ended.
    unsafe {
        match kind {
            ObjectKind::MemoryRegion => region_details(address).map(Details::Region),
            ObjectKind::CompletionQueue => {
                CompletionQueueObject::of(address as *const ibv_cq).ok().map(|object| {
                    let queue = object.queue();
                    Details::CompletionQueue {
                        entries: queue.entries(),
                        ignores_overrun: queue.ignores_overrun(),
                    }
                })
            }
            ObjectKind::QueuePair => queue_pair_details(address).map(Details::QueuePair),
            _ => None,
        }
    }
    .unwrap_or(Details::None)
}

/// The keys and bytes of a region.
///
/// # Safety
/// The address is 0 or that of a region that does not end meanwhile.
pub unsafe fn region_details(address: usize) -> Option<RegionDetails> {
    // SAFETY: the caller promises that the address is NULL or that of a region that does not end meanwhile.
    let (region, (address, length)) = unsafe { region_of(address as *mut ibv_mr) }?;
    Some(RegionDetails { lkey: region.lkey(), rkey: region.rkey(), address, length, iova: region.iova() })
}

/// # Safety
/// The address is that of a queue pair that does not end meanwhile.
unsafe fn queue_pair_details(address: usize) -> Option<QueuePairDetails> {
    let qp = address as *const ibv_qp;
    // SAFETY: the caller promises that the address is that of a queue pair that does not end meanwhile.
    let object = unsafe { QueuePairObject::of(qp) }.ok()?;
    // SAFETY: the fields were set at creation, and programs do not change them.
    let (send_cq, srq) = unsafe { ((*qp).send_cq as usize, (*qp).srq as usize) };
    let queue_pair = object.queue_pair();
    Some(QueuePairDetails {
        number: queue_pair.number(),
        send_cq,
        srq,
        max_send_wr: queue_pair.capabilities().max_send_wr,
        signals_all: queue_pair.signals_all(),
    })
}

/// The state of a queue pair.
///
/// # Safety
/// The address is 0 or that of a queue pair that does not end meanwhile.
pub unsafe fn state_of(address: usize) -> Option<QpState> {
    // SAFETY: the caller promises that the address is NULL or that of a queue pair that does not end meanwhile.
    let object = unsafe { QueuePairObject::of(address as *const ibv_qp) }.ok()?;
    Some(object.queue_pair().query().state)
}

/// The keys of scatter-gather elements, of those with bytes.
fn keys_of(elements: &[ibv_sge]) -> Keys {
    elements.iter().filter(|element| element.length > 0).map(|element| element.lkey).collect()
}

/// A send request as the checker knows it. Lists of more than `most` elements are not read: the verb refuses them.
///
/// # Safety
/// The request is valid, and its list, if that has no more than `most` elements.
pub unsafe fn send_request<S>(wr: &ibv_send_wr, most: usize) -> Request<S> {
    let is_inline = wr.send_flags & IBV_SEND_INLINE != 0;
    // SAFETY: the caller promises a valid request with the members that its opcode asks for.
    let (lkeys, rkey) = unsafe {
        let lkeys = match is_inline {
            true => Keys::default(),
            false => keys_of(&elements_within(wr.sg_list, wr.num_sge, most)),
        };
        let rkey = match wr.opcode {
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_RDMA_READ | IBV_WR_ATOMIC_WRITE => {
                Some(wr.wr.rdma.rkey)
            }
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD | BUILT_FLUSH => Some(wr.wr.atomic.rkey),
            _ => None,
        };
        (lkeys, rkey)
    };
    let is_signaled = wr.send_flags & IBV_SEND_SIGNALED != 0;
    Request { wr_id: wr.wr_id, is_signaled, lkeys, rkey, content: None }
}

/// A receive request as the checker knows it. Lists of more than `most` elements are not read: the verb refuses them.
///
/// # Safety
/// The request is valid, and its list, if that has no more than `most` elements.
pub unsafe fn receive_request<S>(wr: &ibv_recv_wr, most: usize) -> Request<S> {
    // SAFETY: the caller promises a valid list of no more than `most` elements.
    let lkeys = keys_of(&unsafe { elements_within(wr.sg_list, wr.num_sge, most) });
    Request { wr_id: wr.wr_id, is_signaled: true, lkeys, rkey: None, content: None }
}
