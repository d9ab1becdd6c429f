//! Memory windows.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, pointer, status};
use crate::calls::Call;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null};
use crate::objects::protection::{ProtectionDomainObject, region_of};
use crate::objects::queue_pair::QueuePairObject;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Membership};
use libc::{EPERM, c_int};
use pagewire_failures::Verb;
use pagewire_nic::memory_window::{MemoryWindow, WindowKind};
use pagewire_nic::{Data, SendOperation, SendRequest, WindowBinding, WindowWork};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// The byte of a key that who binds chooses (`ibv_inc_rkey(3)`).
const CONSUMER_BYTE: u32 = 0xFF;
/// What a window may be bound with (`ibv_bind_mw(3)`). A local right changes nothing; programs name it.
const WINDOW_ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_FLUSH_GLOBAL
    | IBV_ACCESS_FLUSH_PERSISTENT
    | IBV_ACCESS_ZERO_BASED;

/// A memory window as programs see it.
#[repr(C)]
struct MemoryWindowObject {
    public: UnsafeCell<ibv_mw>,
    window: Arc<MemoryWindow<Host>>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_mw`.
unsafe impl Object<ibv_mw> for MemoryWindowObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// `ibv_alloc_mw(3)`, by way of `context->ops`.
///
/// # Safety
/// `pd` is NULL or allocated.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    pointer(Call::on(Verb::AllocMw, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated.
        let domain = unsafe { ProtectionDomainObject::of(pd) }?;
        let (window, type_) = match kind {
            IBV_MW_TYPE_1 => (domain.domain().allocate_window(WindowKind::Type1)?, kind),
            IBV_MW_TYPE_2 => (domain.domain().allocate_window(WindowKind::Type2)?, kind),
            _ => return invalid("type of a memory window"),
        };
        let window = Arc::new(window);
        let public = ibv_mw { context: domain.context(), pd, rkey: window.key(), handle: 0, type_ };
        let object = MemoryWindowObject {
            public: UnsafeCell::new(public),
            membership: domain.leftovers().add(Leftover::MemoryWindow(window.clone())),
            window,
            epoch: epoch(),
        };
        Ok(Box::new(object).publish())
    })
}

/// `ibv_dealloc_mw(3)`, by way of `context->ops`.
///
/// # Safety
/// `mw` is NULL or allocated, and nobody uses it any more.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    status(Call::on(Verb::DeallocMw, mw), || {
        // SAFETY: the caller promises that `mw` is NULL or allocated.
        let object = unsafe { MemoryWindowObject::of(mw) }?;
        object.membership.end(|| object.window.deallocate())?;
        // SAFETY: `of` found `mw`, and the caller promises that nobody uses it any more.
        unsafe { MemoryWindowObject::free(mw) };
        Ok(())
    })
}

/// `ibv_bind_mw(3)`, by way of `context->ops`: posts a request that binds a window of type 1. Its key is the next one at once, and becomes valid
/// when the request completes.
///
/// # Safety
/// `qp` is created, `mw` NULL or allocated; `bind` is NULL or valid, and the region that it names is registered.
pub unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    status(Call::on(Verb::BindMw, qp), || {
        // SAFETY: the caller promises that `mw` is NULL or allocated, and `bind` NULL or valid.
        let (object, bind) = unsafe { (MemoryWindowObject::of(mw)?, &*not_null(bind)?) };
        if object.window.kind() != WindowKind::Type1 {
            return invalid("a window of type 2 is bound by a work request");
        }
        if bind.bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
            return invalid("a window of type 1 is not zero-based");
        }
        // SAFETY: the structure lies in an `UnsafeCell`; binds of one window do not race each other (ibv_bind_mw(3)).
        let public = unsafe { &mut *object.public.get() };
        let key = public.rkey & !CONSUMER_BYTE | public.rkey.wrapping_add(1) & CONSUMER_BYTE;
        // SAFETY: the caller promises a queue pair that is created, and a region that is registered.
        let (queue_pair, binding) =
            unsafe { (QueuePairObject::of(qp)?.queue_pair(), binding_of(mw, key, &bind.bind_info)?) };
        if bind.send_flags & !(IBV_SEND_FENCE | IBV_SEND_SIGNALED) != 0 {
            return invalid("send flags of a bind");
        }
        let request = SendRequest::<Host> {
            wr_id: bind.wr_id,
            data: Data::Window(&WindowWork::Bind(binding)),
            operation: SendOperation::BindWindow,
            signaled: bind.send_flags & IBV_SEND_SIGNALED != 0,
            fence: bind.send_flags & IBV_SEND_FENCE != 0,
            solicited: false,
            destination: None,
        };
        let kept = queue_pair.post_send(&request)?;
        public.rkey = key;
        if kept {
            queue_pair.doorbell();
        }
        Ok(())
    })
}

/// What a work request binds a window of type 2 to.
///
/// # Safety
/// As for [`binding_of`].
pub unsafe fn type_2_binding_of(mw: *mut ibv_mw, key: u32, info: &ibv_mw_bind_info) -> Result<WindowBinding> {
    // SAFETY: the caller promises what the functions ask for.
    unsafe {
        match MemoryWindowObject::of(mw)?.window.kind() {
            WindowKind::Type2 => binding_of(mw, key, info),
            WindowKind::Type1 => invalid("a window of type 1 is bound by ibv_bind_mw"),
        }
    }
}

/// What a window is bound to. A region that does not permit it is refused when the request is executed.
///
/// # Safety
/// `mw` is NULL or allocated; `info` is valid, and the region that it names is registered.
unsafe fn binding_of(mw: *mut ibv_mw, key: u32, info: &ibv_mw_bind_info) -> Result<WindowBinding> {
    // SAFETY: the caller promises that `mw` is NULL or allocated.
    let object = unsafe { MemoryWindowObject::of(mw) }?;
    if (object.window.key() ^ key) & !CONSUMER_BYTE != 0 {
        return invalid("the key is another window's: only its lowest byte may change");
    }
    if info.mw_access_flags & !WINDOW_ACCESS != 0 {
        return invalid("access flags of a memory window");
    }
    let &ibv_mw_bind_info { mr, addr: address, length, mw_access_flags: access } = info;
    let region = match mr.is_null() {
        true if address != 0 || length != 0 => return invalid("a part of no region"),
        true => 0,
        false => {
            // SAFETY: the caller promises a region that is registered.
            let Some((region, _)) = (unsafe { region_of(mr) }) else { return invalid("memory region") };
            // By whichever of its structures, if the protection domain was imported.
            if !object.window.is_in_domain_of(region) {
                return Err(Errno(EPERM));
            }
            region.lkey()
        }
    };
    Ok(WindowBinding { key, region, access, address, length })
}
