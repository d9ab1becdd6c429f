//! Memory of another process that is mapped here, too: a memory file behind a range of its addresses. Copies to and from it need no
//! system call.

use crate::Segment;
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fstat, open};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Range;
use std::ptr::null_mut;

/// A range of another process's addresses, and where it lies in this process.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    there: Range<u64>,
    here: u64,
}

impl SharedMapping {
    /// Maps the memory file that the process has open under this number, and from its beginning on behind these addresses. Whoever
    /// may trace a process may open its files (proc_pid_fd(5)).
    ///
    /// # Errors
    /// The kernel's; `InvalidInput`: it is no memory file that keeps its length (`F_SEAL_SHRINK`, fcntl(2)), or is shorter than the range.
    pub fn new(pid: i32, file: i32, there: Range<u64>) -> io::Result<Self> {
        let length = there.end.checked_sub(there.start).filter(|length| *length > 0);
        let length = length.and_then(|length| usize::try_from(length).ok()).ok_or(io::ErrorKind::InvalidInput)?;
        let file = open(format!("/proc/{pid}/fd/{file}"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // What is cut off under a mapping is SIGBUS for whoever touches it.
        let keeps_length = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if !keeps_length || fstat(&file)?.st_size < length as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let here = unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED | MapFlags::NORESERVE, &file, 0)? };
        let mapping = SharedMapping { there, here: here as u64 };
        // SAFETY: the range was mapped above. A forked child has no engine: it would only keep the memory.
        unsafe { madvise(here, length, Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// Where a segment of the other process lies here, if it is in the range.
    #[inline]
    pub fn place(&self, segment: Segment) -> Option<u64> {
        let offset = segment.address.checked_sub(self.there.start)?;
        let end = offset.checked_add(segment.length)?;
        (end <= self.there.end - self.there.start).then(|| self.here + offset)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and copies borrow it.
        let unmapped = unsafe { munmap(self.here as *mut _, (self.there.end - self.there.start) as usize) };
        debug_assert!(unmapped.is_ok(), "it was mapped as one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::process::getpid;
    use std::os::fd::AsRawFd;

    #[test]
    fn only_memory_files_that_keep_their_length_are_mapped() {
        let pid = getpid().as_raw_nonzero().get();
        let file = memfd_create("shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 8192).unwrap();
        let try_map = |length| SharedMapping::new(pid, file.as_raw_fd(), 0x10_0000..0x10_0000 + length);
        assert_eq!(try_map(8192).unwrap_err().kind(), io::ErrorKind::InvalidInput, "it may shrink");
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(try_map(8193).unwrap_err().kind(), io::ErrorKind::InvalidInput, "it is shorter");
        assert_eq!(try_map(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let mapping = try_map(8192).unwrap();
        let place = |address, length| mapping.place(Segment { address, length });
        assert_eq!(place(0x10_0008, 8184), Some(mapping.here + 8));
        for (address, length) in [(0x10_0008, 8185), (0xF_FFFF, 2), (u64::MAX, 1), (0x10_0000, u64::MAX)] {
            assert_eq!(place(address, length), None);
        }
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedMapping::new(pid, null.as_raw_fd(), 0..4096).is_err());
    }
}
