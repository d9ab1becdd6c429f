//! Small objects: from mimalloc, out of the current arena. When it is full, another one takes its place.

use crate::error::{HeapError, Result};
use crate::limits::{MOST_SMALL, UNIT};
use crate::mimalloc::{
    _mi_heap_theap_get_peek, mi_collect, mi_heap_collect, mi_heap_malloc, mi_heap_malloc_aligned, mi_heap_t,
    mi_heap_zalloc, mi_heap_zalloc_aligned,
};
use crate::presence::Gate;
use crate::space::HeapSpace;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Whether mimalloc serves such objects.
#[inline(always)]
pub fn is_small(layout: Layout) -> bool {
    layout.size() <= MOST_SMALL && layout.align() <= UNIT
}

/// Memory for a small object from the current arena, if there is one and it has some.
#[inline(always)]
pub fn allocate_at_once(gate: &'static Gate, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let heap = gate.current.load(Ordering::Acquire);
    if heap.is_null() { None } else { allocate_in(heap, layout, zeroed) }
}

#[inline(always)]
fn allocate_in(heap: *mut mi_heap_t, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let (size, alignment) = (layout.size(), layout.align());
    // mimalloc aligns every object to 8 bytes, and one of more than 8 bytes to 16.
    let is_aligned_anyway = alignment <= 8 || (alignment == 16 && size > 8);
    // SAFETY: `heap` is a heap of an arena of this process, which lives as long as the heap of this crate.
    let object = unsafe {
        match (is_aligned_anyway, zeroed) {
            (true, false) => mi_heap_malloc(heap, size),
            (true, true) => mi_heap_zalloc(heap, size),
            (false, false) => mi_heap_malloc_aligned(heap, size, alignment),
            (false, true) => mi_heap_zalloc_aligned(heap, size, alignment),
        }
    };
    NonNull::new(object.cast())
}

/// Memory for a small object, where the current arena has none, or the ceiling is reached.
pub fn allocate(space: &'static HeapSpace, layout: Layout, zeroed: bool) -> Result<NonNull<u8>> {
    /// New arenas that this call tries: others may have filled the first by the time it comes to it.
    const ROUNDS: usize = 3;
    let mut tried = space.arenas.latest();
    let refusals = space.ceiling_refusals();
    for arena in space.arenas.list().iter().filter(|arena| !arena.is_mostly_used()) {
        if let Some(object) = allocate_in(arena.heap(), layout, zeroed) {
            space.arenas.set_current(space, arena.heap());
            return Ok(object);
        }
    }
    for _ in 0..ROUNDS {
        if space.ceiling_refusals() != refusals {
            collect(space);
            let ceiling = space.lists().ceiling;
            return in_any_arena(space, layout, zeroed)
                .ok_or(HeapError::Ceiling { length: layout.size(), ceiling });
        }
        let heap = match space.arenas.make(space, tried) {
            Ok(heap) => heap,
            Err(error) => return in_any_arena(space, layout, zeroed).ok_or(error),
        };
        if let Some(object) = allocate_in(heap, layout, zeroed) {
            return Ok(object);
        }
        tried = heap;
    }
    let exhausted = HeapError::Exhausted { length: layout.size(), alignment: layout.align() };
    in_any_arena(space, layout, zeroed).ok_or(exhausted)
}

/// From an arena that looks full, too: it may have free blocks of this size.
fn in_any_arena(space: &HeapSpace, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    space.arenas.list().iter().find_map(|arena| allocate_in(arena.heap(), layout, zeroed))
}

/// Has mimalloc give back the units that it keeps at hand: those of this thread, and of arenas.
pub fn collect(space: &HeapSpace) {
    for arena in space.arenas.list() {
        // SAFETY: the heap lives as long as the heap of this crate, whose operation this is. A thread that has no part in it is left out.
        unsafe {
            if !_mi_heap_theap_get_peek(arena.heap()).is_null() {
                mi_heap_collect(arena.heap(), true);
            }
        }
    }
    // SAFETY: mi_collect has no preconditions.
    unsafe { mi_collect(true) };
}

/// Has mimalloc give back units that were freed a while ago.
pub fn collect_expired() {
    // SAFETY: mi_collect has no preconditions.
    unsafe { mi_collect(false) };
}
