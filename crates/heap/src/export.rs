//! Which parts of the heap are exported, so that the free of an exported object revokes its tokens.
//!
//! An object that was never exported pays one test of a counter. While something is exported, the free of an object of up to
//! 64 KiB looks at counters of its pages too; only an object that shares a page with an export looks into the list.

use crate::error::{HeapError, Result};
use crate::limits::{EXPORT_PAGE, EXPORTS, UNIT};
use crate::operation;
use crate::range::{Range, map_anywhere, unmap};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Who makes tokens for parts of a heap, and revokes them.
pub trait ExportOwner: Send + Sync {
    /// The object that holds the `length` bytes at `address` is about to be freed, or to be moved. When this returns, the tokens of
    /// `export` are revoked: no access through them may land any more. The heap has forgotten the export by then.
    ///
    /// The memory is the object's until this returns. The call may come from any thread that frees. It may allocate and free in the
    /// heap; it must not panic.
    fn freed(&self, export: u64, address: usize, length: usize);
}

/// The exports of one heap.
pub struct Exports {
    range: Range,
    /// How many there are.
    count: AtomicUsize,
    owner: OnceLock<Arc<dyn ExportOwner>>,
    /// Address of one counter for each page of the range: exports that begin in it. Mapped with the first export.
    pages: OnceLock<usize>,
    /// Length by {address, export}.
    list: Mutex<BTreeMap<(usize, u64), usize>>,
}

impl std::fmt::Debug for Exports {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Exports").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Exports {
    pub fn new(range: Range) -> Self {
        Exports {
            range,
            count: AtomicUsize::new(0),
            owner: OnceLock::new(),
            pages: OnceLock::new(),
            list: Mutex::new(BTreeMap::new()),
        }
    }

    pub fn set_owner(&self, owner: Arc<dyn ExportOwner>) -> Result<()> {
        self.owner.set(owner).map_err(|_| HeapError::ExportOwner)
    }

    /// Notes an export. Several may name the same bytes, if their numbers differ.
    pub fn mark(&self, address: usize, length: usize, export: u64) -> Result<()> {
        let outside = HeapError::NotInHeap { address, length };
        let Some(offset) = address.checked_sub(self.range.base) else { return Err(outside) };
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > self.range.length) {
            return Err(outside);
        }
        if self.owner.get().is_none() {
            return Err(HeapError::NoExportOwner);
        }
        let mut list = self.list.lock();
        let page = self.page(self.pages()?, address);
        if list.len() >= EXPORTS || page.load(Ordering::Relaxed) == u16::MAX {
            return Err(HeapError::Exports);
        }
        if list.insert((address, export), length).is_none() {
            page.fetch_add(1, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Forgets an export. False: it was not noted, or its object was freed.
    pub fn unmark(&self, address: usize, export: u64) -> bool {
        let mut list = self.list.lock();
        let is_noted = list.remove(&(address, export)).is_some();
        if is_noted {
            self.forget(address);
        }
        is_noted
    }

    /// Whether anything is exported.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Of the object of `length` bytes at `address` only the first `kept` stay: revokes every export in it that ends beyond them.
    #[cold]
    pub fn revoke(&self, address: usize, length: usize, kept: usize) {
        if length <= UNIT && !self.begins_in_pages(address, length) {
            return;
        }
        loop {
            let first = {
                // A fork waits for it, so that the child's list is whole.
                let _operation = operation::enter();
                let mut list = self.list.lock();
                let first = list
                    .range((address, 0)..(address + length, 0))
                    .find(|((start, _), bytes)| start + *bytes > address + kept)
                    .map(|(key, length)| (*key, *length));
                if let Some((key, _)) = first {
                    list.remove(&key);
                    self.forget(key.0);
                }
                first
            };
            let Some(((start, export), bytes)) = first else { return };
            let owner = self.owner.get().expect("an export is noted only after the owner is set");
            owner.freed(export, start, bytes);
        }
    }

    /// Whether an export begins in a page of these bytes.
    fn begins_in_pages(&self, address: usize, length: usize) -> bool {
        let Some(pages) = self.pages.get() else { return false };
        let first = address / EXPORT_PAGE * EXPORT_PAGE;
        (first..address + length)
            .step_by(EXPORT_PAGE)
            .any(|page| self.page(*pages, page).load(Ordering::Relaxed) != 0)
    }

    /// One export that began at `address` is no more. The list is locked.
    fn forget(&self, address: usize) {
        if let Some(pages) = self.pages.get() {
            self.page(*pages, address).fetch_sub(1, Ordering::Relaxed);
        }
        self.count.fetch_sub(1, Ordering::Release);
    }

    fn table_bytes(&self) -> usize {
        self.range.length / EXPORT_PAGE * size_of::<AtomicU16>()
    }

    /// The counters, mapped if they are not yet. The list is locked.
    fn pages(&self) -> Result<usize> {
        if let Some(pages) = self.pages.get() {
            return Ok(*pages);
        }
        let pages = map_anywhere(self.table_bytes(), libc::PROT_READ | libc::PROT_WRITE)
            .map_err(|error| HeapError::System { call: "mmap(2) of the table of exports", error })?;
        Ok(*self.pages.get_or_init(|| pages))
    }

    fn page(&self, pages: usize, address: usize) -> &AtomicU16 {
        let index = (address.max(self.range.base) - self.range.base) / EXPORT_PAGE;
        debug_assert!(index < self.range.length / EXPORT_PAGE);
        // SAFETY: the table has a counter for each page of the range, and lives as long as self.
        unsafe { &*(pages as *const AtomicU16).add(index) }
    }
}

impl Drop for Exports {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.get() {
            unmap(*pages, self.table_bytes());
        }
    }
}
