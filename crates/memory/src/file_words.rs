//! Words of a file that several processes of the host have mapped. What a process has stored there stays when the process is killed.

use crate::fork;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

/// The words of a whole file. A forked child does not have them: there they are none.
///
/// Whoever truncates the file under it has this process killed by SIGBUS at the next access: map files of folders that only this user may change.
#[derive(Debug)]
pub struct FileWords {
    start: *mut AtomicU64,
    count: usize,
    /// Of forks: another one is a child's.
    generation: u64,
}

// SAFETY: the mapping is this value's own, and its words are atomics, which any thread may access.
unsafe impl Send for FileWords {}
// SAFETY: as for Send: atomics alone.
unsafe impl Sync for FileWords {}

impl FileWords {
    /// Gives a file so many bytes of zeros behind its end, and maps it. The file system keeps space for all of them, so that no store finds it full.
    ///
    /// # Errors
    /// The kernel's: `StorageFull`; `Unsupported`: the file system keeps no space.
    pub fn create(file: &File, bytes: usize) -> io::Result<FileWords> {
        fallocate(file, FallocateFlags::empty(), 0, bytes as u64)?;
        FileWords::map(file)
    }

    /// Maps a file that is open to read and write: its whole words.
    ///
    /// # Errors
    /// The kernel's; `InvalidData`: it has no whole word.
    pub fn map(file: &File) -> io::Result<FileWords> {
        let count = usize::try_from(fstat(file)?.st_size).unwrap_or_default() / 8;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file has less than 8 bytes"));
        }
        let generation = fork::generation();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), count * 8, protection, MapFlags::SHARED, file, 0)? };
        let words = FileWords { start: start.cast(), count, generation };
        // SAFETY: the range was mapped above. A child of a fork must not write to it as its parent does.
        unsafe { madvise(start, count * 8, Advice::LinuxDontFork)? };
        Ok(words)
    }
}

impl Deref for FileWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        if fork::generation() != self.generation {
            return &[];
        }
        // SAFETY: the words lie in this value's mapping, which is aligned to pages and lives as long as the borrow. All who have the file mapped by
        // this type access it as atomics.
        unsafe { std::slice::from_raw_parts(self.start, self.count) }
    }
}

impl Drop for FileWords {
    fn drop(&mut self) {
        if fork::generation() != self.generation {
            return;
        }
        // SAFETY: the mapping is this value's own, and all borrows have ended.
        let unmapped = unsafe { munmap(self.start.cast(), self.count * 8) };
        debug_assert!(unmapped.is_ok(), "it was mapped as one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_of_a_file_have_the_same_words() {
        let file = File::from(memfd_create("words", MemfdFlags::CLOEXEC).unwrap());
        assert_eq!(FileWords::map(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let words = FileWords::create(&file, 8192).unwrap();
        assert_eq!((words.len(), words[1023].load(Ordering::Relaxed)), (1024, 0));
        words[1023].store(7, Ordering::Release);
        let other = FileWords::map(&file).unwrap();
        drop(words);
        assert_eq!(other[1023].load(Ordering::Acquire), 7);
    }
}
