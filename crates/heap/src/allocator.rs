//! The heap as an allocator of Rust collections (allocator-api2 0.2).

use crate::error::Result;
use crate::heap::Heap;
use crate::options::HeapOptions;
use allocator_api2::alloc::{AllocError, Allocator};
use std::alloc::Layout;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A heap that several owners share. The last one drops it.
///
/// ```
/// use allocator_api2::boxed::Box;
/// use pagewire_heap::{HeapOptions, HeapRef};
///
/// let heap = HeapRef::new(HeapOptions { range: 1 << 30, ..HeapOptions::default() })?;
/// let number = Box::new_in(7, heap.clone());
/// drop(heap);
/// assert_eq!(*number, 7);
/// # Ok::<(), pagewire_heap::HeapError>(())
/// ```
#[derive(Debug, Clone)]
pub struct HeapRef(Arc<Heap>);

impl HeapRef {
    /// A new heap with one owner.
    ///
    /// # Errors
    /// Those of [`Heap::new`].
    pub fn new(options: HeapOptions) -> Result<Self> {
        Ok(HeapRef(Arc::new(Heap::new(options)?)))
    }
}

impl From<Heap> for HeapRef {
    fn from(heap: Heap) -> Self {
        HeapRef(Arc::new(heap))
    }
}

impl Deref for HeapRef {
    type Target = Heap;

    fn deref(&self) -> &Heap {
        &self.0
    }
}

/// The address of an object without bytes: it takes no memory.
fn dangling(layout: Layout) -> NonNull<[u8]> {
    let address =
        NonNull::new(std::ptr::without_provenance_mut::<u8>(layout.align())).expect("no alignment is 0");
    NonNull::slice_from_raw_parts(address, 0)
}

#[inline(always)]
fn allocate(heap: &Heap, layout: Layout, zeroed: bool) -> std::result::Result<NonNull<[u8]>, AllocError> {
    if layout.size() == 0 {
        return Ok(dangling(layout));
    }
    let object = if zeroed { heap.allocate_zeroed(layout) } else { heap.allocate(layout) };
    Ok(NonNull::slice_from_raw_parts(object.map_err(|_| AllocError)?, layout.size()))
}

/// # Safety
/// As for [`Allocator::deallocate`].
#[inline(always)]
unsafe fn deallocate(heap: &Heap, object: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        // SAFETY: the caller promises what `Allocator::deallocate` asks; an object with bytes came from the heap.
        unsafe { heap.deallocate(object, layout) }
    }
}

/// # Safety
/// As for [`Allocator::grow`] and [`Allocator::shrink`].
unsafe fn resize(
    heap: &Heap,
    object: NonNull<u8>,
    old: Layout,
    new: Layout,
    zeroed: bool,
) -> std::result::Result<NonNull<[u8]>, AllocError> {
    if old.size() == 0 {
        return allocate(heap, new, zeroed);
    }
    if new.size() == 0 {
        // SAFETY: the caller promises, as for `Allocator::shrink`, that the object is this heap's, of layout `old`.
        unsafe { heap.deallocate(object, old) };
        return Ok(dangling(new));
    }
    // SAFETY: the caller promises, as for `Allocator::grow`, that the object is this heap's, of layout `old`.
    let moved = unsafe { heap.reallocate(object, old, new, zeroed) }.map_err(|_| AllocError)?;
    Ok(NonNull::slice_from_raw_parts(moved, new.size()))
}

/// Methods that give an object another size: the name of each, and whether new bytes are zero.
macro_rules! resizing {
    ($($name:ident $zeroed:literal),*) => {
        $(unsafe fn $name(
            &self,
            object: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> std::result::Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the caller promises what `Allocator` asks of this method: the object is this heap's, of layout `old`.
            unsafe { resize(self, object, old, new, $zeroed) }
        })*
    };
}

macro_rules! allocator {
    ($($what:tt)*) => {
        // SAFETY: objects lie in the range until they are deallocated, and the range is mapped as long as the heap lives, which the
        // allocator and its clones keep alive. A clone names the same heap.
        unsafe impl Allocator for $($what)* {
            #[inline]
            fn allocate(&self, layout: Layout) -> std::result::Result<NonNull<[u8]>, AllocError> {
                allocate(self, layout, false)
            }

            #[inline]
            fn allocate_zeroed(&self, layout: Layout) -> std::result::Result<NonNull<[u8]>, AllocError> {
                allocate(self, layout, true)
            }

            #[inline]
            unsafe fn deallocate(&self, object: NonNull<u8>, layout: Layout) {
                // SAFETY: the caller promises what `Allocator::deallocate` asks: the object is this heap's, of this layout.
                unsafe { deallocate(self, object, layout) }
            }

            resizing!(grow false, grow_zeroed true, shrink false);
        }
    };
}

allocator!(&Heap);
allocator!(HeapRef);
