//! The heap: what programs call. Start at [`Heap::new`] and [`Heap::allocate`].

use crate::error::{HeapError, Result};
use crate::export::{ExportOwner, Exports};
use crate::limits::{HEAPS, MOST_ALIGNMENT};
use crate::mimalloc::{mi_free, mi_usable_size};
use crate::operation::{self, HeapOperation};
use crate::options::HeapOptions;
use crate::presence::{self, Gate};
use crate::range::Backing;
use crate::space::HeapSpace;
use crate::{pool, small};
use std::alloc::Layout;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers of heaps that are taken, a bit for each.
static NUMBERS: AtomicU32 = AtomicU32::new(0);
const _: () = assert!(HEAPS <= u32::BITS as usize);

/// A heap whose memory lies in one range of addresses, behind which stands one memory file (REUSE-1, REUSE-2).
///
/// A program registers [`range`](Self::range) once, and every object is registered from its birth. Freed memory stays registered.
/// Every thread may allocate and free; an object may be freed by another thread than made it.
///
/// When the heap is dropped, its free pages go back to the system. Its addresses and its memory file stay for the next heap of the
/// same size. An object up to 4 MiB that nobody has freed by then keeps its place for ever; a larger one is freed.
///
/// ```
/// use pagewire_heap::{Heap, HeapOptions};
/// use std::alloc::Layout;
///
/// let heap = Heap::new(HeapOptions { range: 1 << 30, ..HeapOptions::default() })?;
/// let layout = Layout::new::<[u64; 100]>();
/// let object = heap.allocate_zeroed(layout)?;
/// assert!(heap.contains(object.as_ptr()));
/// // SAFETY: the object was allocated with this layout and is used no more.
/// unsafe { heap.deallocate(object, layout) };
/// assert_eq!(heap.statistics()?.live, 0);
/// # Ok::<(), pagewire_heap::HeapError>(())
/// ```
#[derive(Debug)]
pub struct Heap {
    pub(crate) space: &'static HeapSpace,
    /// That of the space, for the fast paths.
    gate: &'static Gate,
    pub(crate) number: usize,
    exports: Exports,
}

impl Heap {
    /// Reserves the range and makes the memory file. No page is taken yet.
    ///
    /// # Errors
    /// [`Range`](HeapError::Range), [`AddressSpace`](HeapError::AddressSpace), [`FileSize`](HeapError::FileSize),
    /// [`Heaps`](HeapError::Heaps), [`System`](HeapError::System).
    pub fn new(options: HeapOptions) -> Result<Heap> {
        let number = take_number()?;
        match pool::take(&options) {
            Ok(space) => Ok(Heap { space, gate: space.gate, number, exports: Exports::new(space.range) }),
            Err(error) => {
                return_number(number);
                Err(error)
            }
        }
    }

    /// Addresses of the heap: what is to be registered.
    pub fn range(&self) -> Range<usize> {
        self.space.range.base..self.space.range.base + self.space.range.length
    }

    /// The memory file behind the range: offset 0 is the first address. Peers map it shared; mimalloc's tables are not in it.
    ///
    /// # Errors
    /// [`Forked`](HeapError::Forked), [`Private`](HeapError::Private) in a forked child.
    pub fn file(&self) -> Result<BorrowedFd<'_>> {
        match self.space.backing()? {
            // SAFETY: the file stays open until self is dropped.
            Backing::File => Ok(unsafe { BorrowedFd::borrow_raw(self.space.file.load(Ordering::Relaxed)) }),
            Backing::Private => Err(HeapError::Private),
        }
    }

    /// Whether the address lies in the range.
    #[inline]
    pub fn contains<T>(&self, pointer: *const T) -> bool {
        self.space.contains(pointer as usize)
    }

    /// Memory for an object, not initialised. Up to 4 MiB with an alignment of up to 64 KiB it comes from mimalloc (REUSE-3); larger
    /// or more aligned objects are runs of units of 64 KiB. An object of no bytes gets an address of its own.
    ///
    /// # Errors
    /// [`Exhausted`](HeapError::Exhausted), [`Ceiling`](HeapError::Ceiling), [`Arenas`](HeapError::Arenas),
    /// [`Alignment`](HeapError::Alignment) for more than 1 GiB, [`Forked`](HeapError::Forked), [`ForkCopy`](HeapError::ForkCopy).
    #[inline(always)]
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<u8>> {
        self.allocate_counted(layout, false)
    }

    /// As [`allocate`](Self::allocate), and all bytes are zero.
    ///
    /// # Errors
    /// Those of `allocate`, and [`System`](HeapError::System).
    #[inline]
    pub fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<u8>> {
        self.allocate_counted(layout, true)
    }

    #[inline(always)]
    fn allocate_counted(&self, layout: Layout, zeroed: bool) -> Result<NonNull<u8>> {
        let operation = operation::enter();
        let object = self.allocate_inside(layout, zeroed)?;
        operation.count(self.number, layout.size() as i64);
        Ok(object)
    }

    /// Inside an operation: from the current arena, if that has it.
    #[inline(always)]
    pub(crate) fn allocate_inside(&self, layout: Layout, zeroed: bool) -> Result<NonNull<u8>> {
        let is_small = small::is_small(layout);
        match is_small.then(|| small::allocate_at_once(self.gate, layout, zeroed)).flatten() {
            Some(object) => Ok(object),
            None => self.allocate_slowly(layout, zeroed),
        }
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, layout: Layout, zeroed: bool) -> Result<NonNull<u8>> {
        self.space.backing()?;
        if small::is_small(layout) {
            return small::allocate(self.space, layout, zeroed);
        }
        self.allocate_large(layout, zeroed)
    }

    fn allocate_large(&self, layout: Layout, zeroed: bool) -> Result<NonNull<u8>> {
        if layout.align() > MOST_ALIGNMENT {
            return Err(HeapError::Alignment { alignment: layout.align() });
        }
        let allocate = || self.space.allocate_run(layout.size().max(1), layout.align(), zeroed);
        let (address, _) = match allocate() {
            // Units that mimalloc keeps at hand count for the ceiling.
            Err(HeapError::Ceiling { .. }) => {
                small::collect(self.space);
                allocate()?
            }
            other => other?,
        };
        Ok(NonNull::new(address as *mut u8).expect("the range does not begin at 0"))
    }

    /// Frees an object. If a part of it is exported, its tokens are revoked first.
    ///
    /// In a forked child that has no copy of the heap, it does nothing.
    ///
    /// # Safety
    /// The object was allocated by this heap with a layout of this size and alignment, and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn deallocate(&self, object: NonNull<u8>, layout: Layout) {
        if self.exports.any() {
            self.revoke(object, layout.size(), 0);
        }
        let operation = operation::enter();
        // SAFETY: the caller promises that this heap allocated the object, and that nobody uses it any more.
        if unsafe { self.free_inside(object) } {
            operation.count(self.number, -(layout.size() as i64));
        }
    }

    /// False: this process has not the memory.
    ///
    /// # Safety
    /// The object was allocated by this heap, and nobody uses it any more.
    #[inline(always)]
    pub(crate) unsafe fn free_inside(&self, object: NonNull<u8>) -> bool {
        debug_assert!(self.contains(object.as_ptr()), "{object:?} is not of this heap");
        // SAFETY: the object lies in the range.
        match unsafe { self.space.is_in_arena(object.as_ptr() as usize) } {
            // SAFETY: the chunk is mimalloc's, so the object is; the caller has done with it.
            Some(true) => unsafe { mi_free(object.as_ptr().cast()) },
            Some(false) => _ = self.space.free_run(object.as_ptr() as usize),
            None => return self.free_in_child(object),
        }
        true
    }

    /// Frees an object in a forked child that has no memory yet, or never gets any.
    #[cold]
    #[inline(never)]
    fn free_in_child(&self, object: NonNull<u8>) -> bool {
        // SAFETY: the caller of `free_inside` promises what it asks for; there is memory now.
        presence::place() && unsafe { self.free_inside(object) }
    }

    /// Gives an object another size. It may move; its bytes up to the smaller size stay. With `zeroed`, bytes beyond the old size are
    /// zero. If it moves, or becomes smaller, tokens of what it leaves are revoked.
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate); the object is then as it was, but tokens of what it was to leave may be revoked.
    ///
    /// # Safety
    /// As for [`deallocate`](Self::deallocate), with the old layout. After success only the address that was returned may be used.
    pub unsafe fn reallocate(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
        zeroed: bool,
    ) -> Result<NonNull<u8>> {
        if self.exports.any() && new.size() < old.size() {
            self.revoke(object, old.size(), new.size());
        }
        let operation = operation::enter();
        // SAFETY: the caller promises that this heap allocated the object with `old`, and that nobody uses it meanwhile.
        if unsafe { self.resize_in_place(object, old, new, zeroed)? } {
            operation.count(self.number, new.size() as i64 - old.size() as i64);
            return Ok(object);
        }
        drop(operation);
        let moved = self.allocate_counted(new, zeroed)?;
        // SAFETY: two objects, each at least so long; the caller's promise for the old one.
        unsafe {
            std::ptr::copy_nonoverlapping(object.as_ptr(), moved.as_ptr(), old.size().min(new.size()));
            self.deallocate(object, old);
        }
        Ok(moved)
    }

    /// Whether the object has the new size now, at its address.
    ///
    /// # Safety
    /// As for [`reallocate`](Self::reallocate).
    pub(crate) unsafe fn resize_in_place(
        &self,
        object: NonNull<u8>,
        old: Layout,
        new: Layout,
        zeroed: bool,
    ) -> Result<bool> {
        self.space.backing()?;
        let address = object.as_ptr() as usize;
        if address % new.align() != 0 {
            return Ok(false);
        }
        let added = new.size().saturating_sub(old.size());
        // SAFETY: the object lies in the range.
        if unsafe { self.space.is_in_arena(address) } == Some(true) {
            // SAFETY: the chunk is mimalloc's, so the object is.
            let usable = unsafe { mi_usable_size(object.as_ptr().cast()) };
            // A block that would be half empty is given up.
            if new.size() > usable || new.size() < usable / 2 {
                return Ok(false);
            }
            if zeroed {
                // SAFETY: these bytes lie in the block, and in no object yet.
                unsafe { object.add(old.size()).write_bytes(0, added) };
            }
            return Ok(true);
        }
        if small::is_small(new) {
            return Ok(false);
        }
        let length = self.space.run_length(address);
        if self.space.resize_run(address, new.size(), zeroed)?.is_none() {
            return Ok(false);
        }
        if zeroed {
            // What comes behind the old run is zero already.
            let inside = added.min(length - old.size().min(length));
            // SAFETY: these bytes lie in the run, behind the object's old end.
            unsafe { object.add(old.size()).write_bytes(0, inside) };
        }
        Ok(true)
    }

    /// Bytes that an object may use: its size, or more.
    ///
    /// # Safety
    /// The object was allocated by this heap and not freed, and this process has the heap's memory.
    pub unsafe fn usable_size(&self, object: NonNull<u8>) -> usize {
        let _operation = operation::enter();
        // SAFETY: the caller promises that this heap allocated the object, that it is not freed, and that its memory is here.
        unsafe { self.usable_inside(object) }
    }

    /// # Safety
    /// As for [`usable_size`](Self::usable_size).
    #[inline(always)]
    pub(crate) unsafe fn usable_inside(&self, object: NonNull<u8>) -> usize {
        // SAFETY: the object lies in the range.
        if unsafe { self.space.is_in_arena(object.as_ptr() as usize) } == Some(true) {
            // SAFETY: the chunk is mimalloc's, so the object is.
            unsafe { mi_usable_size(object.as_ptr().cast()) }
        } else {
            self.space.run_length(object.as_ptr() as usize)
        }
    }

    /// Says who revokes the tokens of exported objects. A heap has one such owner for its life.
    ///
    /// # Errors
    /// [`ExportOwner`](HeapError::ExportOwner): it has one already.
    pub fn set_export_owner(&self, owner: Arc<dyn ExportOwner>) -> Result<()> {
        self.exports.set_owner(owner)
    }

    /// Notes that `length` bytes at `address`, a part of one object or all of it, are exported under a number of the owner's choice.
    /// When the object is freed, [`ExportOwner::freed`] is called first.
    ///
    /// # Errors
    /// [`NotInHeap`](HeapError::NotInHeap), [`NoExportOwner`](HeapError::NoExportOwner), [`Exports`](HeapError::Exports),
    /// [`System`](HeapError::System); [`Forked`](HeapError::Forked) or [`Private`](HeapError::Private) in a forked child.
    pub fn mark_exported(&self, address: usize, length: usize, export: u64) -> Result<()> {
        self.file()?;
        let _operation = operation::enter();
        self.exports.mark(address, length, export)
    }

    /// Forgets an export. False: it was not noted, its object was freed already or is just being freed, or this is a forked child. So it does not
    /// say that the owner has revoked the tokens.
    pub fn unmark_exported(&self, address: usize, export: u64) -> bool {
        if self.file().is_err() {
            return false;
        }
        let _operation = operation::enter();
        self.exports.unmark(address, export)
    }

    /// Revokes what is exported of an object beyond the bytes that are kept, outside of any operation: the owner may wait. A forked child has no exports.
    #[cold]
    #[inline(never)]
    pub(crate) fn revoke(&self, object: NonNull<u8>, length: usize, kept: usize) {
        if matches!(self.space.backing(), Ok(Backing::File)) {
            self.exports.revoke(object.as_ptr() as usize, length, kept);
        }
    }

    /// Whether anything of this heap is exported.
    #[inline]
    pub(crate) fn has_exports(&self) -> bool {
        self.exports.any()
    }

    /// An operation and the number of this heap in it.
    #[inline]
    pub(crate) fn enter(&self) -> HeapOperation {
        operation::enter()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.exports.any() {
            let range = self.range();
            if let Some(first) = NonNull::new(range.start as *mut u8) {
                self.revoke(first, range.len(), 0);
            }
        }
        // SAFETY: whoever drops the heap has no object left: allocators borrow it.
        unsafe { pool::give(self.space) };
        operation::forget_live_bytes(self.number);
        return_number(self.number);
    }
}

fn take_number() -> Result<usize> {
    let free = |taken: u32| (taken.trailing_ones() < HEAPS as u32).then_some(taken | (taken + 1));
    let taken =
        NUMBERS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, free).map_err(|_| HeapError::Heaps)?;
    Ok(taken.trailing_ones() as usize)
}

fn return_number(number: usize) {
    NUMBERS.fetch_and(!(1 << number), Ordering::AcqRel);
}
