//! Small objects: from mimalloc, out of the current arena. When it is full, another one takes its place.

use crate::error::{HeapError, Result};
use crate::limits::{MOST_SMALL, UNIT};
use crate::mimalloc::{
    _mi_heap_theap_get_peek, mi_collect, mi_heap_collect, mi_heap_malloc, mi_heap_malloc_aligned, mi_heap_t, mi_heap_zalloc,
    mi_heap_zalloc_aligned,
};
use crate::space::Space;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Whether mimalloc serves such objects.
#[inline]
pub fn is_small(layout: Layout) -> bool {
    layout.size() <= MOST_SMALL && layout.align() <= UNIT
}

/// Memory for a small object; at least one byte.
#[inline]
pub fn allocate(space: &'static Space, layout: Layout, zeroed: bool) -> Result<NonNull<u8>> {
    let heap = space.arenas.current();
    if !heap.is_null() {
        if let Some(object) = allocate_in(heap, layout, zeroed) {
            return Ok(object);
        }
    }
    allocate_elsewhere(space, layout, zeroed, heap)
}

#[inline]
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

/// The arena of the heap `tried` is full, or the ceiling is reached.
#[cold]
fn allocate_elsewhere(space: &'static Space, layout: Layout, zeroed: bool, tried: *mut mi_heap_t) -> Result<NonNull<u8>> {
    let mut tried = tried;
    // Each round tries an arena that nobody had tried before, so there are at most as many as arenas.
    loop {
        let full = space.arenas.list();
        let emptier = full.iter().filter(|arena| arena.heap() != tried && !arena.is_mostly_used());
        for heap in emptier.map(|arena| arena.heap()) {
            if let Some(object) = allocate_in(heap, layout, zeroed) {
                space.arenas.set_current(heap);
                return Ok(object);
            }
        }
        let ceiling = ceiling_error(space, layout);
        if ceiling.is_some() {
            collect(space);
        }
        let heap = match (ceiling, ceiling_error(space, layout)) {
            (Some(_), Some(error)) => return last_attempt(space, layout, zeroed).ok_or(error),
            (Some(_), None) if !tried.is_null() => tried,
            _ => match space.arenas.make(space, tried) {
                Ok(heap) => heap,
                Err(error) => return last_attempt(space, layout, zeroed).ok_or(error),
            },
        };
        if let Some(object) = allocate_in(heap, layout, zeroed) {
            return Ok(object);
        }
        if heap == tried || full.len() >= crate::limits::ARENAS {
            let error = HeapError::Exhausted { length: layout.size(), alignment: layout.align() };
            return last_attempt(space, layout, zeroed).ok_or(ceiling_error(space, layout).unwrap_or(error));
        }
        tried = heap;
    }
}

/// Any arena, full as it may look: it may have free blocks of this size.
fn last_attempt(space: &Space, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    space.arenas.list().iter().find_map(|arena| allocate_in(arena.heap(), layout, zeroed))
}

/// Whether the ceiling is so near that mimalloc could not take the units that it takes for objects of this size.
fn ceiling_error(space: &Space, layout: Layout) -> Option<HeapError> {
    /// mimalloc takes so many bytes at once for objects of up to 64 KiB, and eight times as many for those of up to 512 KiB.
    const MEDIUM_PAGE: usize = 512 << 10;
    let page = match layout.size() + layout.align() {
        0..=8192 => 2 * UNIT,
        8193..=65536 => MEDIUM_PAGE + UNIT,
        65537..=524_288 => 8 * MEDIUM_PAGE + UNIT,
        size => size + 2 * UNIT,
    };
    let lists = space.lists();
    let is_near = lists.ceiling.saturating_sub(lists.in_use) < page;
    is_near.then_some(HeapError::Ceiling { length: layout.size(), ceiling: lists.ceiling })
}

/// Has mimalloc give back the units that it keeps at hand: those of this thread, and of arenas.
pub fn collect(space: &Space) {
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
