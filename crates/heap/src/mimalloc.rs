//! What this crate uses of mimalloc 3.3.2. The bindings leave some of it out; Cargo.toml therefore names one version of them.

use crate::range::map_anywhere;
use libc::{c_int, c_void, pthread_key_t, pthread_setspecific};
pub use libmimalloc_sys::{
    mi_collect, mi_free, mi_heap_collect, mi_heap_malloc, mi_heap_malloc_aligned, mi_heap_new_in_arena,
    mi_heap_t, mi_heap_zalloc, mi_heap_zalloc_aligned, mi_malloc, mi_malloc_aligned, mi_usable_size,
};
use std::io;
use std::mem::MaybeUninit;

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

/// Bytes of the stack on which mimalloc begins, which holds the thread's part of all libraries, too.
const STACK: usize = 1 << 20;

/// Begins mimalloc where its constructor was left out of the program: in the shared object, as programs that never use a heap would pay
/// for it at their start (scripts/link-library). To be called before any other function of it, by one thread at a time.
///
/// # Errors
/// As mmap(2) and pthread_create(3).
pub fn begin() -> io::Result<()> {
    // SAFETY: a look at a variable.
    if !unsafe { _mi_preloading() } {
        return Ok(());
    }
    if rustix::thread::gettid() == rustix::process::getpid() {
        // SAFETY: no thread uses mimalloc yet, as before its constructor.
        unsafe { _mi_auto_process_init() };
        return Ok(());
    }
    begin_in_thread()
}

/// mimalloc takes the thread that it begins on for the first one of the process: its address must never become another thread's
/// (src/init.c, `_mi_is_main_thread`). So that is a thread on a stack that stays for ever.
fn begin_in_thread() -> io::Result<()> {
    extern "C" fn body(argument: *mut c_void) -> *mut c_void {
        // SAFETY: no thread uses mimalloc yet. Without a value the key's destructor does not end mimalloc's part of this thread.
        unsafe {
            _mi_auto_process_init();
            pthread_setspecific(_mi_heap_default_key, std::ptr::null());
        }
        argument
    }
    let checked = |code: c_int| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let stack = map_anywhere(STACK, libc::PROT_READ | libc::PROT_WRITE)?;
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: each call gets what the ones before it have initialised, and the stack is nobody else's; it is never unmapped.
    unsafe {
        checked(libc::pthread_attr_init(attributes.as_mut_ptr()))?;
        checked(libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack as *mut c_void, STACK))?;
        checked(libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), body, std::ptr::null_mut()))?;
        checked(libc::pthread_join(thread.assume_init(), std::ptr::null_mut()))?;
        checked(libc::pthread_attr_destroy(attributes.as_mut_ptr()))
    }
}
