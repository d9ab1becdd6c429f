//! Objects whose size the caller does not keep, for malloc(3) and its like. An object from here is freed and resized here.

use crate::error::{HeapError, Result};
use crate::heap::Heap;
use crate::mimalloc::{mi_free, mi_usable_size};
use std::alloc::Layout;
use std::ptr::NonNull;

impl Heap {
    /// Memory of `size` bytes at a multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate); [`Alignment`](HeapError::Alignment) too where it is no power of two;
    /// [`Exhausted`](HeapError::Exhausted) for a size that no address space has.
    #[inline]
    pub fn allocate_unsized(&self, size: usize, alignment: usize, zeroed: bool) -> Result<NonNull<u8>> {
        let layout = layout(size, alignment)?;
        let operation = self.enter();
        let object = self.allocate_inside(layout, zeroed)?;
        // SAFETY: the object was allocated just now.
        operation.count(self.number, unsafe { self.usable_inside(object) } as i64);
        Ok(object)
    }

    /// Frees an object of [`allocate_unsized`](Self::allocate_unsized). See [`deallocate`](Self::deallocate) for tokens and forks.
    ///
    /// # Safety
    /// The object came from there, was not freed, and nobody uses it any more.
    #[inline]
    pub unsafe fn free_unsized(&self, object: NonNull<u8>) {
        if self.has_exports() {
            // SAFETY: the caller promises that `allocate_unsized` gave the object, and that it is not freed.
            unsafe { self.revoke_unsized(object) };
        }
        let operation = self.enter();
        // SAFETY: the object lies in the range.
        let freed = match unsafe { self.space.is_in_arena(object.as_ptr() as usize) } {
            // SAFETY: the chunk is mimalloc's, so the object is; the caller has done with it.
            Some(true) => unsafe {
                let usable = mi_usable_size(object.as_ptr().cast());
                mi_free(object.as_ptr().cast());
                usable
            },
            Some(false) => self.space.free_run(object.as_ptr() as usize),
            // This process has not the memory.
            None => return,
        };
        operation.count(self.number, -(freed as i64));
    }

    /// # Safety
    /// As for [`free_unsized`](Self::free_unsized).
    #[cold]
    #[inline(never)]
    unsafe fn revoke_unsized(&self, object: NonNull<u8>) {
        if self.space.backing().is_ok() {
            // SAFETY: the object is not freed, as the caller promises, and the heap's memory is here: it has a backing.
            self.revoke(object, unsafe { self.usable_size(object) }, 0);
        }
    }

    /// Gives an object of [`allocate_unsized`](Self::allocate_unsized) another size, as realloc(3) does; the new object is aligned to
    /// 16 bytes at least.
    ///
    /// # Errors
    /// Those of [`allocate_unsized`](Self::allocate_unsized); the object is then as it was.
    ///
    /// # Safety
    /// As for [`free_unsized`](Self::free_unsized). After success only the address that was returned may be used.
    pub unsafe fn reallocate_unsized(&self, object: NonNull<u8>, size: usize) -> Result<NonNull<u8>> {
        /// What malloc(3) promises.
        const ALIGNMENT: usize = 16;
        let new = layout(size, ALIGNMENT)?;
        self.space.backing()?;
        // SAFETY: the object is not freed, as the caller promises, and the heap's memory is here: it has a backing.
        let usable = unsafe { self.usable_size(object) };
        let old = layout(usable, 1)?;
        if self.has_exports() && size < usable {
            self.revoke(object, usable, size);
        }
        let operation = self.enter();
        // SAFETY: the caller promises that the object is not freed and that nobody uses it meanwhile; it has `usable` bytes.
        if unsafe { self.resize_in_place(object, old, new, false)? } {
            // SAFETY: the object is where it was.
            let now = unsafe { self.usable_inside(object) };
            operation.count(self.number, now as i64 - usable as i64);
            return Ok(object);
        }
        drop(operation);
        let moved = self.allocate_unsized(size, ALIGNMENT, false)?;
        // SAFETY: two objects, each at least so long; the caller's promise for the old one.
        unsafe {
            std::ptr::copy_nonoverlapping(object.as_ptr(), moved.as_ptr(), usable.min(size));
            self.free_unsized(object);
        }
        Ok(moved)
    }
}

#[inline]
fn layout(size: usize, alignment: usize) -> Result<Layout> {
    if !alignment.is_power_of_two() {
        return Err(HeapError::Alignment { alignment });
    }
    Layout::from_size_align(size, alignment).map_err(|_| HeapError::Exhausted { length: size, alignment })
}
