//! The reservation: a range of addresses, the memory file behind it, and how pages come and go. Start at [`Range::reserve`].

use crate::error::{HeapError, Result};
use crate::limits::{CHUNK, LEAST_RANGE, MOST_ALIGNMENT, MOST_RANGE};
use pagewire_memory::{HEAP_FILE, above_low_numbers};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::null_mut;

/// A reserved range of addresses. It is never unmapped: threads of mimalloc may hold pointers into it as long as the process lives.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// First address, a multiple of a chunk.
    pub base: usize,
    /// Bytes, a whole number of chunks.
    pub length: usize,
}

impl Range {
    /// Reserves `length` bytes of inaccessible addresses.
    pub fn reserve(length: usize) -> Result<Self> {
        if !(LEAST_RANGE..=MOST_RANGE).contains(&length) || length % CHUNK != 0 {
            return Err(HeapError::Range { range: length });
        }
        let alignment = if length >= 8 * MOST_ALIGNMENT { MOST_ALIGNMENT } else { CHUNK };
        let start =
            map_anywhere(length + alignment, libc::PROT_NONE).map_err(|_| address_space_error(length))?;
        let base = start.next_multiple_of(alignment);
        unmap(start, base - start);
        unmap(base + length, start + alignment - base);
        Ok(Range { base, length })
    }

    /// Makes a memory file of the range's length.
    pub fn make_file(self) -> Result<OwnedFd> {
        if let Some(limit) = pagewire_memory::file_size_limit().filter(|limit| *limit < self.length as u64) {
            return Err(HeapError::FileSize { range: self.length, limit });
        }
        let system = |call| move |error: rustix::io::Errno| HeapError::System { call, error: error.into() };
        let file = memfd_create(HEAP_FILE, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(system("memfd_create(2)"))?;
        let file = above_low_numbers(file).map_err(|error| HeapError::System { call: "fcntl(2)", error })?;
        ftruncate(&file, self.length as u64).map_err(system("ftruncate(2)"))?;
        // Peers map it: what is cut off under a mapping is SIGBUS for whoever touches it. And none of them may add other seals.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(system("fcntl(2), F_ADD_SEALS,"))?;
        Ok(file)
    }

    /// Puts the file's pages at a part of the range, in place of what is there. Forked children do not have them.
    ///
    /// # Safety
    /// The part lies in the range, and nobody uses what is mapped there.
    pub unsafe fn map_file(self, file: &OwnedFd, part: std::ops::Range<usize>) -> Result<()> {
        // SAFETY: the caller promises that the part lies in the range and that nobody uses what is mapped there; the
        // offset is the part's place in the range.
        let mapped = unsafe {
            libc::mmap(
                part.start as *mut _,
                part.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
                file.as_raw_fd(),
                (part.start - self.base) as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(address_space_error(self.length));
        }
        // SAFETY: exactly the mapping made above.
        if unsafe { libc::madvise(mapped, part.len(), libc::MADV_DONTFORK) } != 0 {
            return Err(HeapError::last_os("madvise(2), MADV_DONTFORK,"));
        }
        Ok(())
    }
}

/// Puts private zeroed pages at `length` bytes from `start`, in place of what is there. Forked children inherit them.
///
/// # Safety
/// The pages belong to the caller, and nobody uses what is mapped there.
pub unsafe fn map_private(start: usize, length: usize) -> std::io::Result<()> {
    // SAFETY: the caller promises that the pages are its own, and that nobody uses what is mapped there.
    let mapped = unsafe {
        libc::mmap(
            start as *mut _,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Maps `length` private zeroed bytes somewhere, which take no memory until they are touched.
pub fn map_anywhere(length: usize, protection: libc::c_int) -> std::io::Result<usize> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            length,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(mapped as usize) }
}

/// Unmaps what [`map_anywhere`] has mapped, or a part of it. Nobody uses it any more.
pub fn unmap(start: usize, length: usize) {
    if length > 0 {
        // SAFETY: the caller owns these pages. A refusal (too many mappings) leaves addresses reserved, nothing worse.
        unsafe { libc::munmap(start as *mut _, length) };
    }
}

/// How freed pages go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// The memory file, which peers may map.
    File,
    /// Private pages: the copy in a forked child.
    Private,
}

/// Gives pages of the range back to the system. They read as zero afterwards.
///
/// mimalloc's own purging is madvise(MADV_DONTNEED): on shared pages of a file it only drops this process's mapping, and the file
/// keeps the bytes. MADV_REMOVE makes a hole in the file. The kernel refuses both for pages that the program has locked (mlock(2)) and freed
/// without unlocking them; they are unlocked then.
///
/// # Safety
/// The pages lie in the range, and hold nothing that anybody owns.
pub unsafe fn give_back(start: usize, length: usize, backing: Backing) -> std::io::Result<()> {
    let advice = match backing {
        Backing::File => libc::MADV_REMOVE,
        Backing::Private => libc::MADV_DONTNEED,
    };
    // SAFETY: the caller promises that the pages lie in the range and hold nothing that anybody owns.
    let advise = || match unsafe { libc::madvise(start as *mut _, length, advice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    match advise() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: it changes no byte, and a lock on pages that nobody owns is of no use to anybody.
            match unsafe { libc::munlock(start as *const _, length) } {
                0 => advise(),
                _ => Err(error),
            }
        }
        other => other,
    }
}

/// Bytes of memory that the file has.
pub fn resident_in_file(file: impl AsFd) -> Result<u64> {
    /// Bytes of a block of `st_blocks` (stat(2)).
    const BLOCK: u64 = 512;
    let status = fstat(file).map_err(|error| HeapError::System { call: "fstat(2)", error: error.into() })?;
    Ok(status.st_blocks as u64 * BLOCK)
}

/// Why a reservation failed: the limit on the address space, if there is one.
fn address_space_error(range: usize) -> HeapError {
    let error = HeapError::last_os("mmap(2)");
    match getrlimit(Resource::As).current {
        Some(limit) => HeapError::AddressSpace { range, limit },
        None => error,
    }
}
