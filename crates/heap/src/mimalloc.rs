//! What this crate uses of mimalloc 3.3.2. The bindings leave some of it out; Cargo.toml therefore names one version of them.

use libc::{c_int, c_void, pthread_key_t};
pub use libmimalloc_sys::{
    mi_collect, mi_free, mi_heap_collect, mi_heap_malloc, mi_heap_malloc_aligned, mi_heap_new_in_arena,
    mi_heap_t, mi_heap_zalloc, mi_heap_zalloc_aligned, mi_usable_size,
};

/// mimalloc asks for the memory of an arena (`commit`) or gives it back. The result of a commit: whether it may use the memory;
/// of the opposite: whether it must ask again before it uses it. `is_zero`, if there, may be set if all of the memory is zero.
pub type CommitFunction = unsafe extern "C" fn(
    commit: bool,
    start: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    argument: *mut c_void,
) -> bool;

unsafe extern "C" {
    /// Makes an arena of the memory at `start` (mimalloc.h). `exclusive`: only heaps that name it allocate in it.
    pub fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        commit: CommitFunction,
        argument: *mut c_void,
        arena: *mut *mut c_void,
    ) -> bool;

    /// The calling thread's part of a heap, or NULL (src/heap.c). It is the start of a unit of the heap's arena.
    pub fn _mi_heap_theap_get_peek(heap: *const mi_heap_t) -> *mut c_void;

    /// The key whose destructor ends mimalloc's part of a thread (src/prim/unix/prim.c).
    pub static _mi_heap_default_key: pthread_key_t;
}
