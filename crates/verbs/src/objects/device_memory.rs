//! Device memory (`ibv_alloc_dm(3)`): here ordinary memory, of which a process has a bounded amount, as of an adapter's.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, pointer, status, table_status};
use crate::calls::Call;
use crate::limits::MAX_DEVICE_MEMORY;
use crate::objects::context::ContextObject;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null};
use crate::objects::protection::register_device_memory;
use crate::runtime::leftovers::{Leftover, Membership};
use libc::{EBUSY, EFAULT, EIO, ENOMEM, c_int, c_uint, c_void};
use pagewire_failures::Verb;
use pagewire_memory::fork::PerProcess;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// No two allocations share a line of the cache.
const LEAST_ALIGNMENT: usize = 64;

/// Copies are of words of so many bytes, as with adapters.
const WORD: u64 = 4;

/// Bytes that are allocated.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// Some memory of a device.
pub struct DeviceMemory {
    start: NonNull<u8>,
    layout: Layout,
    /// Regions of it.
    regions: AtomicU32,
    has_ended: AtomicBool,
}

// SAFETY: the memory is nobody's but the program's and its peers', who access it by copies of bytes whose order is theirs to keep.
unsafe impl Send for DeviceMemory {}
// SAFETY: threads share the memory as they share any that peers access: by copies of bytes; the other fields are atomic, or never change.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    fn new(length: usize, alignment: usize) -> Result<Self> {
        let layout = Layout::from_size_align(length, alignment).map_err(|_| Errno(ENOMEM))?;
        let taken = ALLOCATED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |allocated| {
            allocated.checked_add(length).filter(|all| *all <= MAX_DEVICE_MEMORY)
        });
        taken.map_err(|_| Errno(ENOMEM))?;
        // SAFETY: the length is not 0 (see `alloc_dm`).
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            ALLOCATED.fetch_sub(length, Ordering::AcqRel);
            return Err(Errno(ENOMEM));
        };
        Ok(DeviceMemory { start, layout, regions: AtomicU32::new(0), has_ended: AtomicBool::new(false) })
    }

    /// Ends the allocation as far as others are concerned: what it took is free for them.
    pub fn end(&self) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            ALLOCATED.fetch_sub(self.layout.size(), Ordering::AcqRel);
        }
    }

    /// As [`part`](Self::part), for a copy.
    ///
    /// # Errors
    /// EINVAL: offset or length is no multiple of 4 bytes; EFAULT: there are fewer bytes.
    fn words(&self, offset: u64, length: usize) -> Result<NonNull<u8>> {
        if offset % WORD != 0 || length as u64 % WORD != 0 {
            return invalid("offset and length of a copy are multiples of 4 bytes");
        }
        self.part(offset, length).ok_or(Errno(EFAULT))
    }

    /// The address of `length` bytes at an offset, if there are so many.
    fn part(&self, offset: u64, length: usize) -> Option<NonNull<u8>> {
        let offset = usize::try_from(offset).ok()?;
        let is_inside = offset.checked_add(length)? <= self.layout.size();
        // SAFETY: inside the allocation, or one byte behind it.
        is_inside.then(|| unsafe { self.start.add(offset) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.end();
        // SAFETY: allocated with this layout; nobody has a share in it any more, and regions have one.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Whether regions of device memory were ever registered: those that end are looked for.
static IS_USED: AtomicBool = AtomicBool::new(false);
/// The device memory of each region, by its key.
static REGIONS: PerProcess<HashMap<u32, Arc<DeviceMemory>>> = PerProcess::new();

/// Whether a region that ends may be one of device memory.
#[inline(always)] // Part of each deregistration.
pub fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// Whether a region is one of device memory.
pub fn has_region(key: u32) -> bool {
    is_used() && REGIONS.lock().contains_key(&key)
}

/// A region has ended: its memory may be freed.
#[cold]
pub fn region_ended(key: u32) {
    if let Some(memory) = REGIONS.lock().remove(&key) {
        memory.regions.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Device memory as programs see it.
#[repr(C)]
pub(crate) struct DeviceMemoryObject {
    public: UnsafeCell<ibv_dm>,
    memory: Arc<DeviceMemory>,
    /// None in a forked child, which uses its parent's context: that has no part in the memory.
    membership: Option<Membership>,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_dm`.
unsafe impl Object<ibv_dm> for DeviceMemoryObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// `ibv_alloc_dm(3)`, by way of `verbs_context`. The memory is zeroed. It needs no engine, so that a forked child may allocate some by its
/// parent's context.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or valid.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attributes: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    pointer(Call::on(Verb::AllocDm, context), || {
        // SAFETY: the caller promises that `attributes` is NULL or valid.
        let wanted = unsafe { &*not_null(attributes)? };
        if wanted.comp_mask != 0 {
            return invalid("comp_mask");
        }
        if wanted.length == 0 {
            return invalid("length of device memory");
        }
        let alignment = 1usize.checked_shl(wanted.log_align_req).ok_or(Errno(ENOMEM))?.max(LEAST_ALIGNMENT);
        if alignment > MAX_DEVICE_MEMORY {
            return Err(Errno(ENOMEM));
        }
        let memory = Arc::new(DeviceMemory::new(wanted.length, alignment)?);
        // SAFETY: the caller promises that `context` is NULL or open.
        let membership = match unsafe { ContextObject::of(context) } {
            Err(Errno(EIO)) => None,
            opened => Some(opened?.leftovers().add(Leftover::DeviceMemory(memory.clone()))),
        };
        Ok(publish(context, memory, membership))
    })
}

/// Makes an object that programs see of device memory.
pub(crate) fn publish(
    context: *mut ibv_context,
    memory: Arc<DeviceMemory>,
    membership: Option<Membership>,
) -> *mut ibv_dm {
    let public = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: 0,
        handle: membership.as_ref().map_or(0, Membership::handle),
    };
    Box::new(DeviceMemoryObject { public: UnsafeCell::new(public), membership, memory, epoch: epoch() })
        .publish()
}

/// `ibv_free_dm(3)`, by way of `verbs_context`: EBUSY while a region of it is registered.
///
/// # Safety
/// `dm` is NULL or allocated, and nobody uses it any more.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    status(Call::on(Verb::FreeDm, dm), || {
        // SAFETY: the caller promises that `dm` is NULL or allocated.
        let object = unsafe { DeviceMemoryObject::of(dm) }?;
        let end = || {
            if object.memory.regions.load(Ordering::Acquire) != 0 {
                return Err(Errno(EBUSY));
            }
            object.memory.end();
            Ok(())
        };
        match &object.membership {
            Some(membership) => membership.end(end)?,
            None => end()?,
        }
        // SAFETY: `of` found `dm`, and the caller promises that nobody uses it any more.
        unsafe { DeviceMemoryObject::free(dm) };
        Ok(())
    })
}

/// `ibv_reg_dm_mr(3)`, by way of `verbs_context`: a region that begins at 0 (`IBV_ACCESS_ZERO_BASED`).
///
/// # Safety
/// `pd` and `dm` are NULL or allocated.
pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    pointer(Call::on(Verb::RegDmMr, pd), || {
        // SAFETY: the caller promises that `dm` is NULL or allocated.
        let object = unsafe { DeviceMemoryObject::of(dm) }?;
        if access & IBV_ACCESS_ZERO_BASED == 0 {
            return invalid("a region of device memory is zero-based");
        }
        let Some(start) = object.memory.part(offset, length) else {
            return invalid("a part that leaves the device memory");
        };
        object.memory.regions.fetch_add(1, Ordering::AcqRel);
        let part = (start.as_ptr().cast::<c_void>(), length);
        // SAFETY: the caller promises that `pd` is NULL or allocated.
        let region = unsafe { register_device_memory(pd, part, access) };
        match region {
            Ok(mr) => {
                IS_USED.store(true, Ordering::Relaxed);
                // SAFETY: it was just made, and nobody else has it yet.
                REGIONS.lock().insert(unsafe { (*mr).rkey }, object.memory.clone());
            }
            Err(_) => drop(object.memory.regions.fetch_sub(1, Ordering::AcqRel)),
        }
        region
    })
}

/// `ibv_memcpy_to_dm(3)`.
unsafe extern "C" fn memcpy_to_dm(dm: *mut ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int {
    table_status(|| {
        // SAFETY: ibv_memcpy_to_dm(3) asks for device memory that is allocated.
        let object = unsafe { DeviceMemoryObject::of(dm) }?;
        let to = object.memory.words(offset, length)?;
        // SAFETY: ibv_memcpy_to_dm(3) asks for so many bytes of the program's; those at the other end are inside the allocation.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.as_ptr(), length) };
        Ok(())
    })
}

/// `ibv_memcpy_from_dm(3)`.
unsafe extern "C" fn memcpy_from_dm(to: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int {
    table_status(|| {
        // SAFETY: ibv_memcpy_from_dm(3) asks for device memory that is allocated.
        let object = unsafe { DeviceMemoryObject::of(dm) }?;
        let from = object.memory.words(offset, length)?;
        // SAFETY: ibv_memcpy_from_dm(3) asks for room for so many bytes; those at the other end are inside the allocation.
        unsafe { std::ptr::copy(from.as_ptr(), to.cast::<u8>(), length) };
        Ok(())
    })
}
