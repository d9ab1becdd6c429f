//! A global address space that plain loads and stores reach.

use crate::boundary::{Result, bytes, call, give, place};
use crate::error::{Refusal, pw_error};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::handler;
use crate::node::{node_of, pw_node};
use pagewire::Node;
use pagewire_experimental::gas::{GlobalMemory, PageAccess};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory that all processes of a job load and store: each has the same words at the same indices.
pub struct pw_global {
    _opaque: [u8; 0],
}

/// A global memory, and its node, which stays until the memory is freed.
pub struct Space {
    memory: GlobalMemory,
    node: Arc<Node>,
    /// Dirty pages for which a caller had no space, in their order.
    dirty: Mutex<VecDeque<u64>>,
}

impl Object for Space {
    type Opaque = pw_global;
    const MARK: u64 = u64::from_be_bytes(*b"pw_globl");
    const NAME: &str = "global memory";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<Space> = Places::new();
        &PLACES
    }
}

/// Words of 8 bytes in a page of global memory.
pub const PW_GLOBAL_PAGE_WORDS: usize = 512;

const _: () = assert!(PW_GLOBAL_PAGE_WORDS == pagewire_active::USERFAULT_PAGE_WORDS);

/// What has happened at one process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_gas_counts {
    /// Times that a thread waited for a page or a right.
    pub faults: u64,
    /// Pages that came.
    pub pages_in: u64,
    /// Pages that were given back, or are only loaded any more.
    pub pages_out: u64,
    /// Pages whose home this is, and whose last stores were lost with the process that had made them.
    pub lost_stores: u64,
    /// Pages that nobody can give any more, because their home is gone.
    pub poisoned: u64,
}

/// An access to a page, as a handler at its home sees it: once for each time that the page comes to a process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_page_access {
    /// The PW_GLOBAL_PAGE_WORDS words that the process will find. What is changed here it finds, if is_alone.
    pub content: *mut u64,
    /// The first word of the page, as an index of pw_global_words().
    pub first_word: u64,
    /// The process whose thread touched it.
    pub by: usize,
    /// The page was touched by a store.
    pub is_store: bool,
    /// No other process has a copy. Else content is a copy of its own, and what is changed there is lost.
    pub is_alone: bool,
}

/// A function that is called at the home of a page, before the page goes to who touched it. context is what was given along with it. It must not touch the global
/// memory, and calls for that memory give PW_IN_HANDLER. No page is served while it runs: it must not wait for a thread that makes such calls, or that touches the memory.
/// It says by pw_handler_failed() that it has failed, which is reported: the page goes all the same. An exception of C++, longjmp(3) and pthread_exit(3) must not leave it; pagewire_experimental.hpp catches exceptions.
pub type pw_page_handler = Option<unsafe extern "C" fn(context: *mut c_void, access: *const pw_page_access)>;

/// A function of C for accesses to pages, with its context.
struct PageHandler {
    function: unsafe extern "C" fn(*mut c_void, *const pw_page_access),
    context: *mut c_void,
}

// SAFETY: an address; who gave it has promised that the function takes it in a thread of the library (pagewire_experimental.h).
unsafe impl Send for PageHandler {}

impl PageHandler {
    fn handle(&self, access: &mut PageAccess<'_>) {
        let mut copy = *access.content();
        let mut of_c = pw_page_access {
            content: copy.as_mut_ptr(),
            first_word: access.words.start as u64,
            by: access.by,
            is_store: access.is_store,
            is_alone: false,
        };
        if let Some(content) = access.content_mut() {
            (of_c.content, of_c.is_alone) = (content.as_mut_ptr(), true);
        }
        // SAFETY: the function takes the context in a thread of the library (pagewire_experimental.h); the words live until it has returned, and nobody else uses them.
        // A failure is reported, and the page goes all the same.
        handler::run(access.by as u64, || unsafe { (self.function)(self.context, &raw const of_c) });
    }
}

/// Makes global memory with all processes of the job, each of which calls this with the same number of pages of 4,096 bytes. Each is the home of so many.
/// *memory is NULL after an error. The node stays until pw_global_leave() or pw_global_free().
///
/// PW_SYSTEM: the kernel does not let this user have such memory (userfaultfd(2)), and what to change, or another process has given another number of pages; PW_LIMIT: no pages, or
/// more than 2^28 together; PW_ARGUMENT; PW_JOB; as pw_log_make(), as it takes a log, and pw_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_make(
    node: *mut pw_node,
    pages_each: usize,
    memory: *mut *mut pw_global,
) -> pw_error {
    call(|| {
        let to = place(memory, "memory")?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let node = unsafe { node_of(node) }?;
        let memory = GlobalMemory::new(node, pages_each)?;
        let made = Space { memory, node: node.clone(), dirty: Mutex::default() };
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(hand_out(made)) };
        Ok(())
    })
}

/// # Safety
/// As for [`object`].
unsafe fn open<'m>(memory: *mut pw_global) -> Result<&'m Space> {
    // SAFETY: `memory` is NULL or a live `pw_global`: pagewire.h lets nobody free it while another call uses it; `object` checks the mark.
    let space = unsafe { object::<Space>(memory) }?;
    if space.memory.is_in_handler() {
        let sentence =
            "a handler of global memory cannot make calls for that memory: make them when it has returned";
        return Err(Refusal::new(pw_error::PW_IN_HANDLER, sentence));
    }
    Ok(space)
}

/// Ends global memory when all processes of the job have called this; the pointer and the words are not valid any more, behind an error, too. NULL: nothing is done.
///
/// PW_HANDLE; PW_IN_HANDLER: its handler calls, and nothing was done; PW_JOB: a process did not come, and the memory was freed all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_leave(memory: *mut pw_global) -> pw_error {
    if memory.is_null() {
        return pw_error::PW_OK;
    }
    call(|| {
        // SAFETY: a pointer of this library that nobody else uses (pagewire_experimental.h).
        let Space { memory, node, .. } = unsafe { taken(memory) }?;
        Ok(memory.leave(&node)?)
    })
}

/// Ends global memory of this process without a wait for others, which find it gone: they lose its pages, and what it stored last. The pointer and the words are not valid any more.
/// NULL: nothing is done.
///
/// PW_HANDLE; PW_IN_HANDLER: its handler calls, and nothing was done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_free(memory: *mut pw_global) -> pw_error {
    if memory.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire_experimental.h).
    call(|| unsafe { taken(memory) }.map(drop))
}

/// # Safety
/// As for [`take_back`].
unsafe fn taken(memory: *mut pw_global) -> Result<Space> {
    // SAFETY: `memory` is NULL or a live `pw_global`, and nobody else uses it, as pagewire.h says of calls that free an object.
    unsafe {
        open(memory)?;
        take_back::<Space>(memory)
    }
}

/// The words of all processes, by plain loads and stores: pages of all times the processes times PW_GLOBAL_PAGE_WORDS. NULL: it is no global memory, and
/// pw_error_message() says so.
///
/// The memory is as that of one x86-64 machine. A store may be overtaken by a later load of its thread of another word; atomic_thread_fence(memory_order_seq_cst) between them
/// prevents that. Read-modify-writes are atomic among all processes. A thread that touches a page whose home is gone gets SIGSEGV. A system call that
/// is given a page that is absent fails with EFAULT: touch it before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_words(memory: *mut pw_global) -> *mut u64 {
    // SAFETY: a pointer of this library (pagewire_experimental.h).
    let words = || Ok(unsafe { open(memory) }?.memory.words().as_ptr().cast_mut().cast());
    give(words, |_| std::ptr::null_mut())
}

/// The words whose home is a process of the job: *count of them, from *first on, as indices of pw_global_words().
///
/// rank: of the process. PW_ARGUMENT: also, there is none; PW_HANDLE, PW_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_home(
    memory: *mut pw_global,
    rank: usize,
    first: *mut usize,
    count: *mut usize,
) -> pw_error {
    call(|| {
        let (to_first, to_count) = (place(first, "first")?, place(count, "count")?);
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let space = unsafe { open(memory) }?;
        let size = space.node.size();
        if rank >= size {
            return Err(Refusal::argument(format!("'rank' is {rank}, and ranks are 0 to {}", size - 1)));
        }
        let words = space.memory.words_of(rank);
        // SAFETY: the caller's places (pagewire_experimental.h), aligned and not NULL.
        unsafe {
            to_first.write(words.start);
            to_count.write(words.len());
        }
        Ok(())
    })
}

/// Has a handler called at each access to a page whose home this process is, before the page goes to who touched it: to count, to check, or to fill it. It takes the
/// place of the one before, and is called by threads of the library, one at a time, until the memory is freed.
///
/// context: is given to the handler. PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_on_access(
    memory: *mut pw_global,
    handler: pw_page_handler,
    context: *mut c_void,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let space = unsafe { open(memory) }?;
        let function = handler.ok_or_else(|| Refusal::argument("'handler' is NULL"))?;
        let handler = PageHandler { function, context };
        space.memory.on_access(move |access| handler.handle(access));
        Ok(())
    })
}

/// Takes the pages whose home this is, and that any process may have stored to since the last call, by the first word of each. A page that a process still may store to is
/// among them the next time, too. *count gets how many there were: where there are more than size, the next call gives others of them, and nothing newer.
///
/// words: size of them. PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_take_dirty(
    memory: *mut pw_global,
    words: *mut u64,
    size: usize,
    count: *mut usize,
) -> pw_error {
    call(|| {
        let to_count = place(count, "count")?;
        let to = list(words, size, "words")?;
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let space = unsafe { open(memory) }?;
        let mut dirty = space.dirty.lock();
        // Else pages that stay dirty would come again and again before the others.
        if dirty.is_empty() {
            dirty.extend(space.memory.take_dirty().into_iter().map(|word| word as u64));
        }
        // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
        unsafe { to_count.write(dirty.len()) };
        for at in 0..size {
            let Some(word) = dirty.pop_front() else { break };
            // SAFETY: `words` has `size` of them (pagewire_experimental.h).
            unsafe { to.add(at).write(word) };
        }
        Ok(())
    })
}

/// The place of a list, which may be NULL if it is empty.
fn list<T>(first: *mut T, size: usize, name: &str) -> Result<*mut T> {
    if size > 0 {
        place(first, name)?;
        bytes(first.cast_const().cast(), size.saturating_mul(size_of::<T>()), name)?;
    }
    Ok(first)
}

/// What has happened at this process so far.
///
/// PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_counts(memory: *mut pw_global, counts: *mut pw_gas_counts) -> pw_error {
    call(|| {
        let to = place(counts, "counts")?;
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let now = unsafe { open(memory) }?.memory.statistics();
        let counts = pw_gas_counts {
            faults: now.faults,
            pages_in: now.pages_in,
            pages_out: now.pages_out,
            lost_stores: now.lost_stores,
            poisoned: now.poisoned,
        };
        // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(counts) };
        Ok(())
    })
}

/// The processes that are gone: *count gets how many there are, of which the first size are written.
///
/// ranks: size of them. PW_ARGUMENT, PW_HANDLE, PW_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_global_lost(
    memory: *mut pw_global,
    ranks: *mut usize,
    size: usize,
    count: *mut usize,
) -> pw_error {
    call(|| {
        let to_count = place(count, "count")?;
        let to = list(ranks, size, "ranks")?;
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let lost = unsafe { open(memory) }?.memory.lost();
        for (at, rank) in lost.iter().take(size).enumerate() {
            // SAFETY: `ranks` has `size` of them (pagewire_experimental.h).
            unsafe { to.add(at).write(*rank) };
        }
        // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
        unsafe { to_count.write(lost.len()) };
        Ok(())
    })
}
