//! Engine buffers that application memory can be copied to and from cheaply.
//!
//! `preadv` and `pwritev` between a memory file and the application's pages cost a third of `process_vm_readv` on
//! oneself, and answer EFAULT just the same. An arena is a mapping of such a file. All arenas lie in one
//! reserved range, so that one comparison tells whether a buffer is part of one.
//!
//! An arena's file is written to under the file's own lock, which is held while a page of the application comes
//! in. Therefore every arena has a file of its own: a waiting copy delays nobody but its owner.

use crate::fork::PerProcess;
use crate::limits::{ARENA_BYTES, ARENAS};
use crate::{above_low_numbers, fork};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

const RESERVED: usize = ARENAS * ARENA_BYTES;

/// First address of the reserved range; 0: not reserved yet in this process.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// The file of each arena, or -1.
static FILES: [AtomicI32; ARENAS] = [const { AtomicI32::new(-1) }; ARENAS];
/// Which slots are taken.
static TAKEN: PerProcess<ArenaSlots> = PerProcess::new();

struct ArenaSlots([bool; ARENAS]);

impl Default for ArenaSlots {
    fn default() -> Self {
        ArenaSlots([false; ARENAS])
    }
}

/// A buffer of the engine that is mapped from a memory file of its own. Forked children do not have it.
#[derive(Debug)]
pub struct Arena {
    start: *mut u8,
    length: usize,
    slot: usize,
    generation: u64,
}

// SAFETY: an Arena owns its bytes like a Box<[u8]>; the pointer is only used through &self and &mut self.
unsafe impl Send for Arena {}
// SAFETY: an Arena owns its bytes like a Box<[u8]>, and &Arena gives out &[u8] only.
unsafe impl Sync for Arena {}

impl Arena {
    /// Zeroed memory of `length` bytes, at most [`ARENA_BYTES`].
    ///
    /// # Errors
    /// As the kernel's; `OutOfMemory` where all [`ARENAS`] exist; `InvalidInput` for a length that is zero or too large;
    /// `FileTooLarge` where RLIMIT_FSIZE would have the kernel answer a write with SIGXFSZ.
    pub fn new(length: usize) -> io::Result<Self> {
        Arena::among(length, ARENAS)
    }

    /// An arena for a use that can do without one: half of all [`ARENAS`] are left for others.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn spare(length: usize) -> io::Result<Self> {
        Arena::among(length, ARENAS / 2)
    }

    /// One of the first `most`.
    fn among(length: usize, most: usize) -> io::Result<Self> {
        if length == 0 || length > ARENA_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no length for an arena"));
        }
        if crate::file_size_limit().is_some_and(|limit| limit < ARENA_BYTES as u64) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "RLIMIT_FSIZE is below 1 MiB: raise that (ulimit -f unlimited)",
            ));
        }
        let generation = fork::generation();
        let mut taken = TAKEN.lock();
        let slot = taken.0[..most]
            .iter()
            .position(|taken| !taken)
            .ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, "all arenas are in use"))?;
        let start = (reserve()? + slot * ARENA_BYTES) as *mut u8;
        let file = above_low_numbers(memfd_create("pagewire-arena", MemfdFlags::CLOEXEC)?)?;
        ftruncate(&file, length as u64)?;
        let file = file.into_raw_fd();
        // SAFETY: the range is ours: part of the reservation, and the slot is free (TAKEN is locked). MAP_FIXED
        // therefore replaces nothing but inaccessible pages.
        let mapped = unsafe {
            libc::mmap(
                start.cast(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE,
                file,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: the descriptor was made above and given to nobody.
            unsafe { rustix::io::close(file) };
            return Err(error);
        }
        // SAFETY: exactly the mapping made above.
        if unsafe { libc::madvise(mapped, length, libc::MADV_DONTFORK) } != 0 {
            let error = io::Error::last_os_error();
            unmap(start, file);
            return Err(error);
        }
        FILES[slot].store(file, Ordering::Release);
        taken.0[slot] = true;
        Ok(Arena { start, length, slot, generation })
    }

    /// The bytes. Empty in a forked child, which does not have them.
    pub fn bytes(&self) -> &[u8] {
        if self.generation != fork::generation() {
            return &[];
        }
        // SAFETY: the mapping lives as long as self and is written through &mut self only; the kernel writes to it
        // through `bytes_mut` borrows only.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.generation != fork::generation() {
            return &mut [];
        }
        // SAFETY: as `bytes`, and &mut self is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A forked child has neither mapping nor file.
        if self.generation != fork::generation() {
            return;
        }
        let mut taken = TAKEN.lock();
        let file = FILES[self.slot].swap(-1, Ordering::AcqRel);
        unmap(self.start, file);
        taken.0[self.slot] = false;
    }
}

/// Puts inaccessible pages in an arena's place again.
fn unmap(start: *mut u8, file: i32) {
    // SAFETY: the range is one slot of our reservation, whose Arena ends or never began; the file was its own.
    unsafe {
        libc::mmap(
            start.cast(),
            ARENA_BYTES,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        );
        libc::madvise(start.cast(), ARENA_BYTES, libc::MADV_DONTFORK);
        rustix::io::close(file);
    }
}

/// The reserved range; called with TAKEN locked.
fn reserve() -> io::Result<usize> {
    let base = BASE.load(Ordering::Acquire);
    if base != 0 {
        return Ok(base);
    }
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            RESERVED,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: exactly the mapping made above. Should it fail, children have inaccessible pages there: harmless.
    unsafe { libc::madvise(mapped, RESERVED, libc::MADV_DONTFORK) };
    BASE.store(mapped as usize, Ordering::Release);
    Ok(mapped as usize)
}

/// The file and offset behind a buffer of the engine, if it lies in an arena.
#[inline]
pub fn file_of(buffer: &[u8]) -> Option<(i32, i64)> {
    let base = BASE.load(Ordering::Acquire);
    let offset = (buffer.as_ptr() as usize).wrapping_sub(base);
    if base == 0 || offset >= RESERVED {
        return None;
    }
    let file = FILES[offset / ARENA_BYTES].load(Ordering::Acquire);
    (file >= 0).then_some((file, (offset % ARENA_BYTES) as i64))
}

/// The reserved range is not there in a forked child. Async-signal-safe.
pub fn forget_in_child() {
    BASE.store(0, Ordering::Release);
    for file in &FILES {
        let file = file.swap(-1, Ordering::AcqRel);
        if file >= 0 {
            // SAFETY: the child's copy of a descriptor that only its parent uses; close(2) is async-signal-safe.
            unsafe { libc::close(file) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_recognised_while_it_lives() {
        let mut arena = Arena::new(8192).unwrap();
        arena.bytes_mut()[4096] = 7;
        let (file, offset) = file_of(&arena.bytes()[4096..]).unwrap();
        assert_eq!(offset % ARENA_BYTES as i64, 4096);
        let mut byte = [0];
        rustix::io::pread(unsafe_borrow(file), &mut byte, offset as u64).unwrap();
        assert_eq!(byte, [7]);
        assert_eq!(file_of(&[0; 16]), None);
    }

    #[test]
    fn lengths_are_checked() {
        assert!(Arena::new(0).is_err());
        assert!(Arena::new(ARENA_BYTES + 1).is_err());
    }

    fn unsafe_borrow(file: i32) -> std::os::fd::BorrowedFd<'static> {
        // SAFETY: the test's arena keeps the file open.
        unsafe { std::os::fd::BorrowedFd::borrow_raw(file) }
    }
}
