//! Multicast groups of queue pairs.

use crate::abi::*;
use crate::boundary::status;
use crate::calls::Call;
use crate::objects::object::{Object, not_null};
use crate::objects::queue_pair::QueuePairObject;
use libc::c_int;
use pagewire_failures::Verb;

/// `ibv_attach_mcast(3)`: 0 or an `errno` value (EINVAL: not UD, or no GID of a group; ENOMEM). RoCE has no LIDs.
///
/// # Safety
/// `qp` is NULL or created; `gid` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    status(Call::on(Verb::AttachMcast, qp), || {
        // SAFETY: the caller promises that both are NULL or valid; every view of a GID is 16 plain bytes.
        let (object, gid) = unsafe { (QueuePairObject::of(qp)?, (*not_null(gid.cast_mut())?).raw) };
        Ok(object.queue_pair().attach_group(gid)?)
    })
}

/// `ibv_detach_mcast(3)`: 0 or an `errno` value (EINVAL: it is not attached).
///
/// # Safety
/// `qp` is NULL or created; `gid` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    status(Call::on(Verb::DetachMcast, qp), || {
        // SAFETY: the caller promises that both are NULL or valid; every view of a GID is 16 plain bytes.
        let (object, gid) = unsafe { (QueuePairObject::of(qp)?, (*not_null(gid.cast_mut())?).raw) };
        Ok(object.queue_pair().detach_group(gid)?)
    })
}
