//! Contexts and their objects once more (ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3)): other structures of what
//! this process has. What another process has is refused, because the engine of a process knows its own objects alone.
//!
//! An object ends with the first of its structures that is destroyed. Whoever destroys another one frees that structure alone, as by
//! `ibv_unimport_pd` and its like.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, nothing, pointer};
use crate::calls::Call;
use crate::objects::context::ContextObject;
use crate::objects::device_memory::{self, DeviceMemoryObject};
use crate::objects::object::Object;
use crate::objects::protection::{MemoryRegionObject, ProtectionDomainObject, publish_region_again};
use crate::runtime::leftovers::{Leftover, Leftovers, Membership};
use libc::{EBADF, c_int};
use pagewire_failures::Verb;
use rustix::io::fcntl_getfd;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// `ibv_import_device(3)`: the new context owns the descriptor. Where it is refused, the descriptor stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    pointer(Call::on(Verb::ImportDevice, null::<ibv_device>()), || {
        // SAFETY: only asked whether it is open.
        if cmd_fd < 0 || fcntl_getfd(unsafe { BorrowedFd::borrow_raw(cmd_fd) }).is_err() {
            return Err(Errno(EBADF));
        }
        // SAFETY: it is open, and ibv_import_device(3) gives it to the context.
        let commands = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
        ContextObject::import(commands).map_err(|(error, commands)| {
            let _ = commands.into_raw_fd();
            error
        })
    })
}

/// The object with a handle, and its place among those of a context.
fn with_handle(leftovers: &Arc<Leftovers>, handle: u32) -> Result<(Leftover, Membership)> {
    match leftovers.import(handle) {
        Some(found) => Ok(found),
        None => invalid("a handle of nothing"),
    }
}

/// `ibv_import_pd(3)`.
///
/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    pointer(Call::on(Verb::ImportPd, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        let leftovers = unsafe { ContextObject::of(context) }?.leftovers();
        let (Leftover::ProtectionDomain(domain), membership) = with_handle(leftovers, pd_handle)? else {
            return invalid("the handle of something else than a protection domain");
        };
        Ok(ProtectionDomainObject::publish_again(context, leftovers, domain, membership))
    })
}

/// `ibv_unimport_pd(3)`: frees the structure. The protection domain goes on.
///
/// # Safety
/// `pd` is NULL or allocated, and nobody uses the structure any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    nothing(Call::on(Verb::UnimportPd, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated, and that nobody uses the structure any more.
        unsafe { free_structure::<_, ProtectionDomainObject>(pd) }
    });
}

/// `ibv_import_mr(3)`. The region's address is not told.
///
/// # Safety
/// `pd` is NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    pointer(Call::on(Verb::ImportMr, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated.
        let domain = unsafe { ProtectionDomainObject::of(pd) }?;
        let (Leftover::Region(region), membership) = with_handle(domain.leftovers(), mr_handle)? else {
            return invalid("the handle of something else than a memory region");
        };
        if !region.is_in(domain.domain()) {
            return invalid("a memory region of another protection domain");
        }
        let length = usize::try_from(region.length()).unwrap_or(usize::MAX);
        Ok(publish_region_again(pd, domain, (null_mut(), length), (region, membership)))
    })
}

/// `ibv_unimport_mr(3)`: frees the structure. The memory region goes on.
///
/// # Safety
/// `mr` is NULL or registered, and nobody uses the structure any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    nothing(Call::on(Verb::UnimportMr, mr), || {
        // SAFETY: the caller promises that `mr` is NULL or registered, and that nobody uses the structure any more.
        unsafe { free_structure::<_, MemoryRegionObject>(mr) }
    });
}

/// `ibv_import_dm(3)`.
///
/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    pointer(Call::on(Verb::ImportDm, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        let leftovers = unsafe { ContextObject::of(context) }?.leftovers();
        let (Leftover::DeviceMemory(memory), membership) = with_handle(leftovers, dm_handle)? else {
            return invalid("the handle of something else than device memory");
        };
        Ok(device_memory::publish(context, memory, Some(membership)))
    })
}

/// `ibv_unimport_dm(3)`: frees the structure. The memory goes on.
///
/// # Safety
/// `dm` is NULL or allocated, and nobody uses the structure any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    nothing(Call::on(Verb::UnimportDm, dm), || {
        // SAFETY: the caller promises that `dm` is NULL or allocated, and that nobody uses the structure any more.
        unsafe { free_structure::<_, DeviceMemoryObject>(dm) }
    });
}

/// Frees a structure of an object, if it is one of this process.
///
/// # Safety
/// As for [`Object::free`], but for NULL.
unsafe fn free_structure<Public, Structure: Object<Public>>(public: *mut Public) {
    // SAFETY: the caller promises that it is NULL or a structure of this type, which nobody uses any more.
    unsafe {
        match Structure::of(public) {
            Ok(_) => Structure::free(public),
            Err(Errno(error)) => crate::boundary::set_errno(error),
        }
    }
}
