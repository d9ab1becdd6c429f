//! How much memory a heap has, and what stays with it.

use crate::error::{HeapError, Result};
use crate::heap::Heap;
use crate::limits::UNIT;
use crate::range::{Backing, resident_in_file};
use crate::{operation, small};
use std::sync::atomic::Ordering;

/// Bytes of a heap, as they were at about one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// In objects: the sizes that were asked for (of unsized objects: those that they may use).
    pub live: u64,
    /// In units that hold objects, or that mimalloc keeps at hand. The ceiling bounds this.
    pub in_use: u64,
    /// The most that was ever in use.
    pub peak: u64,
    /// Of the memory file that have pages; in a child's copy: pages of the range.
    pub resident: u64,
    /// Of the range, all of which is registered.
    pub registered: u64,
    /// Freed, and not given back yet. Pages that were never touched count here.
    pub freed: u64,
    /// Times that the kernel refused to take pages back. They are tried again.
    pub refused_purges: u64,
}

impl Heap {
    /// How much memory the heap has.
    ///
    /// # Errors
    /// [`Forked`](HeapError::Forked), [`ForkCopy`](HeapError::ForkCopy), [`System`](HeapError::System).
    pub fn statistics(&self) -> Result<Statistics> {
        // Before the operation: who stops all operations holds what this locks.
        let live = operation::live_bytes(self.number).max(0) as u64;
        let _operation = operation::enter();
        let resident = match self.space.backing()? {
            Backing::File => resident_in_file(self.file()?)?,
            Backing::Private => self.resident_in_pages()?,
        };
        let freed = self.space.freed_bytes() as u64;
        let lists = self.space.lists();
        Ok(Statistics {
            live,
            in_use: lists.in_use() as u64,
            peak: lists.peak as u64,
            resident,
            registered: self.space.range.length as u64,
            freed,
            refused_purges: lists.refused_purges,
        })
    }

    /// Says how many bytes of freed memory stay resident, for the next objects. What is more goes back to the system once it is old
    /// enough; see [`HeapOptions::purge_delay`](crate::HeapOptions).
    pub fn retain(&self, bytes: usize) {
        let _operation = operation::enter();
        self.space.retain(bytes);
    }

    /// Gives all freed memory back to the system, and what mimalloc keeps at hand for the calling thread.
    ///
    /// # Errors
    /// [`Forked`](HeapError::Forked), [`ForkCopy`](HeapError::ForkCopy): this process has no such memory.
    pub fn purge(&self) -> Result<()> {
        let _operation = operation::enter();
        self.space.backing()?;
        small::collect(self.space);
        self.space.purge_all();
        Ok(())
    }

    /// Gives freed memory back that is old enough, as far as more is resident than [`retain`](Self::retain) says. Allocating and
    /// freeing do it on the way, and a thread while nobody does either; a program that wants it now calls this.
    ///
    /// # Errors
    /// Those of [`purge`](Self::purge).
    pub fn purge_expired(&self) -> Result<()> {
        let _operation = operation::enter();
        self.space.backing()?;
        small::collect_expired();
        self.space.purge_expired();
        Ok(())
    }

    /// Says whether children of fork(2) get a copy of the heap, so that their objects are their own. Without it a child finds the heap
    /// unmapped, and its calls fail.
    ///
    /// The copy is made before fork returns, of all resident pages, private to the child; its time grows with them. Other threads of the
    /// parent wait meanwhile where they allocate or free; what they write into their objects is in the copy or not. A copy is no
    /// longer registered, and peers cannot map it. vfork(2) and posix_spawn(3) copy nothing.
    pub fn fork_copies(&self, copies: bool) {
        self.space.fork_copies.store(copies, Ordering::Release);
    }

    /// Pages of the range that this process has.
    fn resident_in_pages(&self) -> Result<u64> {
        /// Bytes that one call asks for.
        const WINDOW: usize = 4096 * UNIT;
        let page = rustix::param::page_size();
        let mut states = vec![0u8; WINDOW / page];
        let mut resident = 0;
        for part in self.space.parts_of_file() {
            let end = part.end.min(self.space.end_in_use());
            for start in (part.start..end).step_by(WINDOW) {
                let length = WINDOW.min(end - start);
                // SAFETY: mincore(2) reads nothing of the range, and writes a byte for each page to `states`.
                if unsafe { libc::mincore(start as *mut _, length, states.as_mut_ptr()) } != 0 {
                    return Err(HeapError::last_os("mincore(2)"));
                }
                resident +=
                    states[..length.div_ceil(page)].iter().filter(|state| *state & 1 != 0).count() * page;
            }
        }
        Ok(resident as u64)
    }
}
