//! Memory of another process that is mapped here, too: a memory file behind a range of its addresses. Copies to and from it need no
//! system call.

use crate::{Segment, Uncancelled};
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fstat, open};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

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
        let length =
            length.and_then(|length| usize::try_from(length).ok()).ok_or(io::ErrorKind::InvalidInput)?;
        let _uncancelled = Uncancelled::begin();
        let file = open(format!("/proc/{pid}/fd/{file}"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // What is cut off under a mapping is SIGBUS for whoever touches it.
        let keeps_length = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if !keeps_length || fstat(&file)?.st_size < length as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let here = unsafe {
            mmap(null_mut(), length, protection, MapFlags::SHARED | MapFlags::NORESERVE, &file, 0)?
        };
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

impl SharedMapping {
    /// The words of a segment of the other process, if it is in the range and whole words.
    pub fn words(&self, segment: Segment) -> Option<&[AtomicU64]> {
        let here = self.place(segment)?;
        if here % 8 != 0 || segment.length % 8 != 0 {
            return None;
        }
        // SAFETY: the words lie in this value's mapping, which is borrowed and keeps its length (F_SEAL_SHRINK). Every process accesses them
        // as atomics or behind the compiler's back, by the kernel or by copies of the guard.
        Some(unsafe { std::slice::from_raw_parts(here as *const AtomicU64, segment.length as usize / 8) })
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
    use crate::{ApplicationMemory, HostMemory, HostProcess};
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::process::getpid;
    use std::os::fd::AsRawFd;

    #[test]
    fn only_memory_files_that_keep_their_length_are_mapped() {
        let pid = getpid().as_raw_nonzero().get();
        let file = memfd_create("shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 8192).unwrap();
        let try_map = |length: u64| SharedMapping::new(pid, file.as_raw_fd(), 0x10_0000..0x10_0000 + length);
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

    /// A memory file that is mapped twice: as the program of a "peer" has it, and as a process that shares it.
    #[test]
    fn copies_go_through_the_mapping() {
        const LENGTH: usize = 1 << 16;
        let file = memfd_create("shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, LENGTH as u64).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let memory = HostMemory::new();
        let process = HostProcess::current();
        // These addresses are not mapped at all: only the mapping leads to the file.
        let base = 0x5000_0000_0000u64;
        process.map_shared(base..base + LENGTH as u64, file.as_raw_fd()).unwrap();
        let from: Vec<u8> = (0..LENGTH).map(|index| (index * 7 % 251) as u8).collect();
        let segment = |address: u64, length: usize| Segment { address, length: length as u64 };
        let here =
            |bytes: &[u8], at: usize, length: usize| segment(bytes.as_ptr() as u64 + at as u64, length);
        for length in [1, 7, 8, 9, 64, 4096, 40_000] {
            for tail_last in [false, true] {
                memory
                    .push(&process, &[here(&from, 3, length)], &[segment(base + 5, length)], tail_last)
                    .unwrap();
                let mut there = vec![0; length];
                rustix::io::pread(&file, &mut there[..], 5).unwrap();
                assert_eq!(there, from[3..3 + length], "{length} {tail_last}");
                let into = vec![0u8; length];
                memory
                    .pull(&process, &[segment(base + 5, length)], &[here(&into, 0, length)], tail_last)
                    .unwrap();
                assert_eq!(into, from[3..3 + length]);
            }
        }
        // In pieces that meet nowhere, the last of them shorter than the tail.
        let ours = [here(&from, 0, 100), here(&from, 1000, 3000), here(&from, 5000, 5)];
        let theirs = [segment(base + 10, 17), segment(base + 9000, 3085), segment(base + 20_000, 3)];
        memory.push(&process, &ours, &theirs, true).unwrap();
        let sent: Vec<u8> = [&from[..100], &from[1000..4000], &from[5000..5005]].concat();
        let mut there = vec![0; LENGTH];
        rustix::io::pread(&file, &mut there[..], 0).unwrap();
        assert_eq!([&there[10..27], &there[9000..12_085], &there[20_000..20_003]].concat(), sent);
        // Beyond the range.
        let beyond = segment(base + LENGTH as u64 - 4, 8);
        assert!(memory.push(&process, &[here(&from, 0, 8)], &[beyond], true).is_err());
    }
}
