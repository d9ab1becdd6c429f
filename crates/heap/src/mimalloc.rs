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

/// `mi_manage_memory` (mimalloc.h) makes an arena of memory: start, size, whether it is committed, pinned, zero, NUMA node, whether only heaps
/// that name it allocate in it, the function that commits, that one's argument, and where the arena is told.
pub type ManageMemory = unsafe extern "C" fn(
    *mut c_void,
    usize,
    bool,
    bool,
    bool,
    c_int,
    bool,
    CommitFunction,
    *mut c_void,
    *mut *mut c_void,
) -> bool;

/// The function of mimalloc.
pub fn manage_memory() -> ManageMemory {
    // SAFETY: the symbol is this function, of exactly this type in the pinned version of mimalloc.
    unsafe { std::mem::transmute::<*const u8, ManageMemory>(&raw const MANAGE_MEMORY) }
}

unsafe extern "C" {
    /// The function [`ManageMemory`].
    #[link_name = "mi_manage_memory"]
    static MANAGE_MEMORY: u8;

    /// The calling thread's part of a heap, or NULL (src/heap.c). It is the start of a unit of the heap's arena.
    pub fn _mi_heap_theap_get_peek(heap: *const mi_heap_t) -> *mut c_void;

    /// Whether mimalloc's constructor has not run (src/init.c).
    fn _mi_preloading() -> bool;

    /// What that constructor does (src/init.c).
    fn _mi_auto_process_init();

    /// The key whose destructor ends mimalloc's part of a thread (src/prim/unix/prim.c).
    pub static _mi_heap_default_key: pthread_key_t;
}

/// Begins mimalloc where its constructor was left out of the program: in the shared object, as programs that never use a heap would pay
/// for it at their start (scripts/link-library). To be called once, before any other function of it.
pub fn begin() {
    // SAFETY: functions without arguments; no other thread uses mimalloc yet, as before its constructor.
    unsafe {
        if _mi_preloading() {
            _mi_auto_process_init();
        }
    }
}
