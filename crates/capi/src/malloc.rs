//! What `libpagewire-malloc.so.1` needs: malloc(3) and its kin of an unmodified program, from the registered heap
//! (`pagewire run --heap`, c/malloc.c). No header declares it.

use pagewire::raw;
use pagewire_heap::{HeapError, HeapRef, around_fork, is_inside};
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

static HEAP: OnceLock<&'static HeapRef> = OnceLock::new();

/// The C library is to give the memory.
const ELSEWHERE: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// Makes the heap, and gives its first address and its length in bytes. Other than 0: there is none, and the standard error output says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_malloc_begin(base: *mut usize, length: *mut usize) -> c_int {
    let heap = match raw::heap_for_malloc() {
        Ok(heap) => *HEAP.get_or_init(|| heap),
        Err(error) => {
            eprintln!("pagewire: run --heap: {error}");
            return 1;
        }
    };
    pagewire_verbs::call_on_start(|nic| {
        if let Err(error) = raw::publish_heap(nic) {
            log::debug!("peers do not map the heap: {error}");
        }
    });
    let range = heap.range();
    // SAFETY: two places of the caller (malloc.c).
    unsafe {
        base.write(range.start);
        length.write(range.len());
    }
    0
}

/// Memory of the heap. NULL: there is none. ELSEWHERE: the heap itself asks for memory, or this is a forked child that has no heap.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_malloc_allocate(size: usize, alignment: usize, zeroed: bool) -> *mut c_void {
    let Some(heap) = HEAP.get().filter(|_| !is_inside()) else { return ELSEWHERE };
    match heap.allocate_unsized(size, alignment, zeroed) {
        Ok(object) => object.as_ptr().cast(),
        Err(HeapError::Forked | HeapError::Private | HeapError::ForkCopy { .. }) => ELSEWHERE,
        Err(_) => null_mut(),
    }
}

/// Frees an object of the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_malloc_free(object: *mut c_void) {
    if let (Some(heap), Some(object)) = (HEAP.get(), NonNull::new(object.cast())) {
        // SAFETY: an object of the heap that nobody uses any more, as free(3) asks for.
        unsafe { heap.free_unsized(object) };
    }
}

/// Gives an object of the heap another size. NULL: it stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_malloc_resize(object: *mut c_void, size: usize) -> *mut c_void {
    let (Some(heap), Some(object)) = (HEAP.get(), NonNull::new(object.cast())) else { return null_mut() };
    // SAFETY: an object of the heap, as realloc(3) asks for.
    unsafe { heap.reallocate_unsized(object, size) }.map_or(null_mut(), |moved| moved.as_ptr().cast())
}

/// Bytes that an object of the heap may use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_malloc_usable_size(object: *mut c_void) -> usize {
    match (HEAP.get(), NonNull::new(object.cast::<u8>())) {
        // SAFETY: an object of the heap, as malloc_usable_size(3) asks for.
        (Some(heap), Some(object)) => unsafe { heap.usable_size(object) },
        _ => 0,
    }
}

/// Forks by `fork`, the C library's `_Fork(3)`, which runs no handlers: the child gets its copy of the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_malloc_fork(fork: unsafe extern "C" fn() -> c_int) -> c_int {
    // SAFETY: malloc.c gives the C library's function, which forks.
    unsafe { around_fork(|| fork()) }
}
