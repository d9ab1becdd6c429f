//! The registered heap: one for each process, which the first call makes.

use crate::boundary::{Result, call, ffi_call, ffi_call_give, place};
use crate::error::{Refusal, pw_error};
use crate::node::share_engine;
use pagewire::raw;
use pagewire_heap::{HeapError, HeapRef};
use pagewire_memory::Uncancelled;
use pagewire_memory::fork::OncePerProcess;
use std::ffi::c_void;
use std::ptr::NonNull;

/// What malloc(3) promises.
pub(crate) const ALIGNMENT: usize = 16;

static HEAP: OncePerProcess<&'static HeapRef> = OncePerProcess::new();

/// The heap; the first call makes it, and the engine with it.
pub(crate) fn heap() -> Result<&'static HeapRef> {
    if let Some(heap) = HEAP.get() {
        return Ok(heap);
    }
    // Making it reads files, which are cancellation points.
    let _uncancelled = Uncancelled::begin();
    share_engine();
    let made = raw::heap()?;
    Ok(HEAP.get_or_set(made))
}

/// Bytes of the registered heap, as they were at about one moment.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_heap_usage {
    /// In objects.
    pub live: u64,
    /// In pages that hold objects, or that are kept at hand for the next ones.
    pub in_use: u64,
    /// The most that was ever in use.
    pub peak: u64,
    /// That have memory.
    pub resident: u64,
    /// Addresses of the heap, all of which are registered.
    pub registered: u64,
    /// Freed, and not given back to the system yet.
    pub freed: u64,
}

fn allocate(size: usize, alignment: usize, zeroed: bool) -> *mut c_void {
    let body = || Ok(heap()?.allocate_unsized(size, alignment, zeroed)?.as_ptr().cast());
    ffi_call_give(body, |_| no_memory())
}

fn no_memory() -> *mut c_void {
    // SAFETY: glibc's `__errno_location` gives the calling thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
}

/// Memory of size bytes in the registered heap, aligned to 16 bytes, not initialised. Peers of this host put and get there by plain copies once
/// it is exported. It needs no node. The first call makes the heap and starts the engine.
///
/// NULL, errno is ENOMEM: pw_error_message() says why.
#[unsafe(no_mangle)]
pub extern "C" fn pw_malloc(size: usize) -> *mut c_void {
    allocate(size, ALIGNMENT, false)
}

/// Memory for count objects of size bytes, all zero. As pw_malloc().
#[unsafe(no_mangle)]
pub extern "C" fn pw_calloc(count: usize, size: usize) -> *mut c_void {
    // So many bytes are in no heap.
    allocate(count.saturating_mul(size), ALIGNMENT, true)
}

/// Memory of size bytes at a multiple of alignment, a power of two of at most 1 GiB. As pw_malloc().
#[unsafe(no_mangle)]
pub extern "C" fn pw_aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    allocate(size, alignment.max(1), false)
}

/// Gives an object another size in bytes. It may move; then what is exported of it ends. pointer: NULL, or of pw_malloc() and its like.
///
/// NULL, errno is ENOMEM: the object is as it was, and pw_error_message() says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    let Some(object) = NonNull::new(pointer.cast::<u8>()) else { return pw_malloc(size) };
    let body = || {
        // SAFETY: an object of the heap (pagewire.h), as far as can be seen.
        let moved = unsafe { of_heap(object)?.reallocate_unsized(object, size) }?;
        Ok(moved.as_ptr().cast())
    };
    ffi_call_give(body, |_| no_memory())
}

/// Frees an object of pw_malloc() and its like. What is exported of it ends first: when it returns, no access by its tokens is under way.
/// NULL: nothing is done. As for free(3), a pointer that was freed before, or that does not begin an object, is not noticed, and harms the heap.
///
/// PW_ARGUMENT: the pointer is not in the heap. PW_ENGINE: a stopped peer is within an access, and the object stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_free(pointer: *mut c_void) -> pw_error {
    let Some(object) = NonNull::new(pointer.cast::<u8>()) else { return pw_error::PW_OK };
    ffi_call(|| {
        let heap = of_heap(object)?;
        // The exports of a forked child are its parent's.
        if raw::has_exports_in_heap() && heap.file().is_ok() {
            // SAFETY: an object of the heap (pagewire.h), as far as can be seen; the heap is this process's own.
            let length = unsafe { heap.usable_size(object) };
            // The wait for an access sleeps, which is a cancellation point.
            let _uncancelled = Uncancelled::begin();
            raw::unexport_within(object.as_ptr() as usize, length)?;
        }
        // SAFETY: an object of the heap that nobody uses any more (pagewire.h).
        unsafe { heap.free_unsized(object) };
        Ok(())
    })
}

/// The heap, if an address is in it. A forked child may have a copy of its parent's.
fn of_heap(object: NonNull<u8>) -> Result<&'static HeapRef> {
    let contains = |heap: &&'static HeapRef| heap.contains(object.as_ptr());
    if let Some(heap) = HEAP.get().copied().filter(contains) {
        return Ok(heap);
    }
    match HEAP.of_parents().copied().find(contains) {
        Some(heap) if matches!(heap.file(), Err(HeapError::Private)) => Ok(heap),
        Some(_) => Err(Refusal::new(
            pw_error::PW_FORKED,
            format!(
                "{object:?} is in the registered heap of the process that this one was forked from, and stays there"
            ),
        )),
        None => Err(Refusal::argument(format!(
            "{object:?} is not in the registered heap: it is no object of pw_malloc()"
        ))),
    }
}

/// Whether an address is in the registered heap, so that peers of this host can reach it by plain copies once it is exported.
#[unsafe(no_mangle)]
pub extern "C" fn pw_is_registered(address: *const c_void) -> bool {
    // A forked child has no memory file behind it.
    raw::made_heap().is_some_and(|heap| heap.contains(address) && heap.file().is_ok())
}

/// How much memory the registered heap has.
///
/// PW_HEAP: the heap cannot be made, or is the parent's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_heap_statistics(statistics: *mut pw_heap_usage) -> pw_error {
    call(|| {
        let to = place(statistics, "statistics")?;
        let now = heap()?.statistics()?;
        let values = pw_heap_usage {
            live: now.live,
            in_use: now.in_use,
            peak: now.peak,
            resident: now.resident,
            registered: now.registered,
            freed: now.freed,
        };
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(values) };
        Ok(())
    })
}

/// Says how many bytes of freed memory of the heap stay resident, for the next objects: 64 MiB unless it was said. What is more goes back to the
/// system about a second after it was freed. UINT64_MAX: all stays.
///
/// PW_HEAP: the heap cannot be made.
#[unsafe(no_mangle)]
pub extern "C" fn pw_heap_retain(bytes: u64) -> pw_error {
    call(|| {
        heap()?.retain(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    })
}

/// Gives all freed memory of the heap back to the system, and what is kept at hand for the calling thread.
///
/// PW_HEAP: the heap cannot be made, or is the parent's.
#[unsafe(no_mangle)]
pub extern "C" fn pw_heap_purge() -> pw_error {
    call(|| Ok(heap()?.purge()?))
}
