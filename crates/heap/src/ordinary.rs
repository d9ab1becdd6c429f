//! mimalloc on ordinary memory, which is not registered.

use crate::error::Result;
use crate::fork;
use crate::mimalloc::{mi_free, mi_malloc, mi_malloc_aligned};
use allocator_api2::alloc::{AllocError, Allocator};
use std::alloc::Layout;
use std::ptr::NonNull;

/// The heap's own mimalloc on ordinary memory (REUSE-1): the allocator beside which a [`Heap`](crate::Heap) is measured. Nothing of it is registered,
/// or lies in a memory file.
///
/// ```
/// let plain = pagewire_heap::Ordinary::new()?;
/// let mut numbers = allocator_api2::vec::Vec::new_in(plain);
/// numbers.push(7);
/// # Ok::<(), pagewire_heap::HeapError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Ordinary(());

impl Ordinary {
    /// The allocator, of which a process has one.
    ///
    /// # Errors
    /// [`System`](crate::HeapError::System): mimalloc cannot begin.
    pub fn new() -> Result<Self> {
        fork::install()?;
        Ok(Ordinary(()))
    }
}

// SAFETY: mimalloc's objects stay where they are until they are freed, by whatever thread; all values of this type name the same allocator. An
// object without bytes gets an address of its own.
unsafe impl Allocator for Ordinary {
    #[inline]
    fn allocate(&self, layout: Layout) -> std::result::Result<NonNull<[u8]>, AllocError> {
        let (size, alignment) = (layout.size(), layout.align());
        // mimalloc aligns every object to 8 bytes.
        // SAFETY: both take any size; the alignment is a power of two.
        let object =
            unsafe { if alignment <= 8 { mi_malloc(size) } else { mi_malloc_aligned(size, alignment) } };
        let object = NonNull::new(object.cast::<u8>()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(object, size))
    }

    #[inline]
    unsafe fn deallocate(&self, object: NonNull<u8>, _layout: Layout) {
        // SAFETY: the caller promises what `Allocator::deallocate` asks: an object of `allocate` that nobody uses any more.
        unsafe { mi_free(object.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::vec::Vec;

    #[test]
    fn objects_are_aligned_and_their_own() {
        let plain = Ordinary::new().expect("mimalloc");
        for alignment in [1, 8, 16, 64, 4096] {
            for size in [0, 1, 100, 5000, 3 << 20] {
                let layout = Layout::from_size_align(size, alignment).expect("a layout");
                let object = plain.allocate(layout).expect("memory");
                assert_eq!(object.cast::<u8>().as_ptr() as usize % alignment, 0);
                // SAFETY: an object of this layout, which nobody uses any more.
                unsafe { plain.deallocate(object.cast(), layout) };
            }
        }
        let mut vectors: std::vec::Vec<_> = (0..100u32).map(|_| Vec::new_in(plain)).collect();
        for (number, vector) in vectors.iter_mut().enumerate() {
            vector.extend(std::iter::repeat_n(number, 1000));
        }
        assert!(
            vectors.iter().enumerate().all(|(number, vector)| vector.iter().all(|value| *value == number))
        );
    }
}
