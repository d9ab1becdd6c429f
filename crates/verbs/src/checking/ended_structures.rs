//! Structures of objects that have ended, in a process that is checked. Inline functions of the header (`ibv_post_send`, `ibv_poll_cq`) read
//! them before they call the library, so that a program which uses such an object would read freed memory, and no check would see the call.

use super::CheckSettings;
use pagewire_memory::fork::PerProcess;
use std::alloc::{Layout, dealloc};
use std::collections::VecDeque;

/// Structures that are kept: fewer than the ended objects that the checker knows, so that a call on each is refused.
const MAX_ENDED_STRUCTURES: usize = pagewire_checker::limits::MAX_ENDED / 4;

/// The memory of an object whose fields were dropped.
struct EndedStructure {
    memory: *mut u8,
    layout: Layout,
}

// SAFETY: memory of the global allocator, which any thread may free.
unsafe impl Send for EndedStructure {}

static STRUCTURES: PerProcess<VecDeque<EndedStructure>> = PerProcess::new();

/// Drops an object that has ended. Where the process is checked the bytes of its structure stay for a while.
pub fn retire<T>(object: Box<T>) {
    if CheckSettings::of_process().is_none() {
        return;
    }
    let object = Box::into_raw(object);
    // SAFETY: the pointer came from a box, whose fields are dropped here and nowhere else.
    unsafe { object.drop_in_place() };
    let mut kept = STRUCTURES.lock();
    kept.push_back(EndedStructure { memory: object.cast(), layout: Layout::new::<T>() });
    if kept.len() > MAX_ENDED_STRUCTURES
        && let Some(oldest) = kept.pop_front()
    {
        // SAFETY: the memory came from a box of a type with this layout, and nobody else has it.
        unsafe { dealloc(oldest.memory, oldest.layout) };
    }
}
