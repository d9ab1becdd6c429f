//! Which pages of its own memory this process has written since it last asked.
//!
//! Two methods, and none:
//! - asynchronous write protection (userfaultfd(2)) with PAGEMAP_SCAN (ioctl(2) on /proc/PID/pagemap), Linux 6.7: pages are read and
//!   protected anew in one step, so that no write is lost.
//! - soft-dirty bits (proc_pid_pagemap(5)), where a trial write shows that they work. They are cleared for the whole process at once,
//!   and a write between the look and the clearing is lost: nobody may write meanwhile.
//! - none: each page counts as written.
//!
//! Only writes through this process's page tables are seen: neither those of a peer that maps the same memory file, nor those to a file.

use crate::{above_low_numbers, fork};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ftruncate, memfd_create, openat};
use rustix::io::{pread, write};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

/// How writes are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DirtyMethod {
    /// Asynchronous write protection with PAGEMAP_SCAN.
    WriteProtect,
    /// Soft-dirty bits.
    SoftDirty,
    /// They are not: each page counts as written.
    None,
}

impl DirtyMethod {
    /// The best one that works here, each tried on a page of its own.
    pub fn best() -> DirtyMethod {
        let works = |method: &DirtyMethod| try_out(*method).unwrap_or(false);
        [DirtyMethod::WriteProtect, DirtyMethod::SoftDirty]
            .into_iter()
            .find(works)
            .unwrap_or(DirtyMethod::None)
    }
}

/// Watches a range of addresses for writes of this process.
pub struct DirtyPages {
    /// The whole pages of the range. Those at its edges, which it shares with others, always count as written.
    pages: Range<u64>,
    /// All pages that have bytes of the range.
    touched: Range<u64>,
    watch: DirtyTracking,
}

enum DirtyTracking {
    WriteProtect { pagemap: OwnedFd, _protector: Protector },
    SoftDirty(Arc<SoftDirty>),
    None,
}

/// Pages are protected as long as it lives.
struct Protector {
    descriptor: OwnedFd,
    pages: Range<u64>,
    /// Of the process whose pages they are.
    generation: u64,
}

impl Drop for Protector {
    fn drop(&mut self) {
        // A forked child has the descriptor, too: closing this one ends nothing. And its own copy would end the watch of its parent.
        if self.generation != fork::generation() {
            return;
        }
        // struct uffdio_range
        let mut range = [self.pages.start, self.pages.end - self.pages.start];
        // Where it fails they are unmapped, and nothing is left to be done.
        drop(control(self.descriptor.as_fd(), UFFDIO_UNREGISTER, &mut range));
    }
}

impl DirtyPages {
    /// Watches `length` bytes from `address` on, which must stay mapped. The first [`take`](Self::take) gives each page that has been
    /// written before, and maybe others.
    ///
    /// # Errors
    /// The kernel's, as where it has not the method (`Unsupported`, EINVAL) or somebody else watches the pages (EBUSY).
    pub fn watch(address: u64, length: u64, method: DirtyMethod) -> io::Result<DirtyPages> {
        let page = rustix::param::page_size() as u64;
        let end = address.checked_add(length).filter(|end| *end <= u64::MAX - page);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let (first, last) = (address.div_ceil(page) * page, end / page * page);
        let pages = first..last.max(first);
        let touched = address / page * page..end.div_ceil(page) * page;
        let watch = match method {
            DirtyMethod::WriteProtect if pages.is_empty() => DirtyTracking::None,
            DirtyMethod::WriteProtect => {
                let pagemap = open_own("pagemap", OFlags::RDONLY)?;
                DirtyTracking::WriteProtect { pagemap, _protector: write_protect(&pages)? }
            }
            DirtyMethod::SoftDirty => DirtyTracking::SoftDirty(SoftDirty::new(pages.clone())?),
            DirtyMethod::None => DirtyTracking::None,
        };
        Ok(DirtyPages { pages, touched, watch })
    }

    /// How it sees writes.
    pub fn method(&self) -> DirtyMethod {
        match self.watch {
            DirtyTracking::WriteProtect { .. } => DirtyMethod::WriteProtect,
            DirtyTracking::SoftDirty(_) => DirtyMethod::SoftDirty,
            DirtyTracking::None => DirtyMethod::None,
        }
    }

    /// Gives the addresses of whole pages that were written since the last call, in order, and begins anew. More may be given than were
    /// written.
    ///
    /// # Errors
    /// The kernel's: what was written is not known then, and is not given by the next call either.
    pub fn take(&self, mut written: impl FnMut(Range<u64>)) -> io::Result<()> {
        let (pages, touched) = (&self.pages, &self.touched);
        if pages.is_empty() || matches!(self.watch, DirtyTracking::None) {
            written(touched.clone());
            return Ok(());
        }
        let mut give = |range: Range<u64>| {
            if !range.is_empty() {
                written(range);
            }
        };
        give(touched.start..pages.start);
        match &self.watch {
            DirtyTracking::WriteProtect { pagemap, .. } => scan(pagemap.as_fd(), pages, &mut give)?,
            DirtyTracking::SoftDirty(soft) => soft.take(&mut give)?,
            DirtyTracking::None => {}
        }
        give(pages.end..touched.end);
        Ok(())
    }
}

fn open_own(name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    above_low_numbers(openat(CWD, format!("/proc/self/{name}"), flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Whether a method sees a write to a page of shared memory, and only that.
fn try_out(method: DirtyMethod) -> io::Result<bool> {
    let page = rustix::param::page_size();
    let file = memfd_create("pagewire-trial", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, page as u64)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe { mmap(null_mut(), page, protection, MapFlags::SHARED, &file, 0)? };
    // SAFETY: a byte of that mapping, whose file is a page long and nobody else's.
    let touch = || unsafe { at.cast::<u8>().write_volatile(1) };
    let try_it = || -> io::Result<bool> {
        touch();
        let watched = DirtyPages::watch(at as u64, page as u64, method)?;
        let is_written = || -> io::Result<bool> {
            let mut is_written = false;
            watched.take(|_| is_written = true)?;
            Ok(is_written)
        };
        let (before, between) = (is_written()?, is_written()?);
        touch();
        Ok(before && !between && is_written()?)
    };
    let works = try_it();
    // SAFETY: the mapping is this function's own, and nobody uses it any more.
    unsafe { munmap(at, page)? };
    works
}

// linux/userfaultfd.h
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_AA01;
const UFFDIO_REGISTER_MODE_WP: u64 = 2;
const UFFD_FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
// linux/fs.h
const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1;
const PM_SCAN_CHECK_WPASYNC: u64 = 2;
const PAGE_IS_WRITTEN: u64 = 2;

/// Ranges that one call of PAGEMAP_SCAN gives at most.
const SCANNED_RANGES: usize = 512;

/// Puts pages under asynchronous write protection: the kernel resolves their faults itself, for all modes.
fn write_protect(pages: &Range<u64>) -> io::Result<Protector> {
    // SAFETY: userfaultfd(2) takes flags and gives a new descriptor.
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY) };
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else has it.
    let protector = above_low_numbers(unsafe { OwnedFd::from_raw_fd(descriptor) })?;
    let features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
    // struct uffdio_api
    control(protector.as_fd(), UFFDIO_API, &mut [UFFD_API, features, 0])?;
    // struct uffdio_register
    let length = pages.end - pages.start;
    control(protector.as_fd(), UFFDIO_REGISTER, &mut [pages.start, length, UFFDIO_REGISTER_MODE_WP, 0])?;
    Ok(Protector { descriptor: protector, pages: pages.clone(), generation: fork::generation() })
}

/// Calls ioctl(2) with a struct of so many words; gives what that gives.
fn control<const WORDS: usize>(
    descriptor: BorrowedFd<'_>,
    request: libc::c_ulong,
    argument: &mut [u64; WORDS],
) -> io::Result<usize> {
    // SAFETY: the requests of this module take a struct of as many words as `argument` has, which the number of the request says.
    let gave = unsafe { libc::ioctl(descriptor.as_raw_fd(), request as _, argument.as_mut_ptr()) };
    usize::try_from(gave).map_err(|_| io::Error::last_os_error())
}

/// Gives the written pages, and protects them anew.
fn scan(pagemap: BorrowedFd<'_>, pages: &Range<u64>, give: &mut dyn FnMut(Range<u64>)) -> io::Result<()> {
    // struct page_region: start, end, categories
    let mut found = [[0u64; 3]; SCANNED_RANGES];
    let mut at = pages.start;
    while at < pages.end {
        // struct pm_scan_arg: size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask,
        // category_anyof_mask, return_mask
        let flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC;
        let vector = found.as_mut_ptr() as u64;
        #[rustfmt::skip]
        let mut scan = [96, flags, at, pages.end, 0, vector, SCANNED_RANGES as u64, 0, 0, PAGE_IS_WRITTEN, 0, PAGE_IS_WRITTEN];
        let ranges = match control(pagemap, PAGEMAP_SCAN, &mut scan) {
            Ok(ranges) => ranges,
            // Nothing was done yet.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        found[..ranges].iter().for_each(|[start, end, _]| give(*start..*end));
        let walked_to = scan[4];
        if walked_to <= at {
            return Err(io::Error::other("PAGEMAP_SCAN has looked at nothing"));
        }
        at = walked_to;
    }
    Ok(())
}

// proc_pid_pagemap(5)
const PRESENT: u64 = 1 << 63;
const SOFT_DIRTY: u64 = 1 << 55;

/// Entries of pagemap that are read at once.
const ENTRIES: usize = 512;

/// Pages that are watched by soft-dirty bits.
struct SoftDirty {
    pages: Range<u64>,
    pagemap: OwnedFd,
    /// A bit for each page that was written. Whoever clears the bits of the process notes here what they were.
    written: parking_lot::Mutex<Vec<u64>>,
}

/// All that watch by soft-dirty bits.
static SOFT_DIRTY_WATCHES: parking_lot::Mutex<Vec<Weak<SoftDirty>>> = parking_lot::Mutex::new(Vec::new());

impl SoftDirty {
    fn new(pages: Range<u64>) -> io::Result<Arc<SoftDirty>> {
        let count = ((pages.end - pages.start) / rustix::param::page_size() as u64) as usize;
        let soft = Arc::new(SoftDirty {
            pages,
            pagemap: open_own("pagemap", OFlags::RDONLY)?,
            written: parking_lot::Mutex::new(vec![u64::MAX; count.div_ceil(64)]),
        });
        let mut watches = SOFT_DIRTY_WATCHES.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&soft));
        Ok(soft)
    }

    fn take(&self, give: &mut dyn FnMut(Range<u64>)) -> io::Result<()> {
        {
            let watches = SOFT_DIRTY_WATCHES.lock();
            let living: Vec<_> = watches.iter().filter_map(Weak::upgrade).collect();
            for watch in &living {
                watch.note()?;
            }
            write(open_own("clear_refs", OFlags::WRONLY)?, b"4")?;
        }
        let page = rustix::param::page_size() as u64;
        let mut written = self.written.lock();
        let pages = (self.pages.end - self.pages.start) / page;
        for index in 0..pages {
            if written[index as usize / 64] >> (index % 64) & 1 == 1 {
                let start = self.pages.start + index * page;
                give(start..start + page);
            }
        }
        written.fill(0);
        Ok(())
    }

    /// Notes which pages have been written. A page that is absent has lost its bit, and counts as written.
    fn note(&self) -> io::Result<()> {
        let page = rustix::param::page_size() as u64;
        let mut written = self.written.lock();
        let mut entries = [0u8; 8 * ENTRIES];
        let (first, end) = (self.pages.start / page, self.pages.end / page);
        let mut at = first;
        while at < end {
            let wanted = 8 * (end - at).min(ENTRIES as u64) as usize;
            let got = pread(&self.pagemap, &mut entries[..wanted], at * 8)? / 8;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for (step, entry) in entries[..8 * got].chunks_exact(8).enumerate() {
                let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
                let index = (at - first) as usize + step;
                let is_written = entry & PRESENT == 0 || entry & SOFT_DIRTY != 0;
                written[index / 64] |= u64::from(is_written) << (index % 64);
            }
            at += got as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGES: usize = 3000;

    /// Memory of a memory file, as that of regions.
    struct FileMemory(*mut u8);

    impl FileMemory {
        fn new() -> FileMemory {
            let length = PAGES * rustix::param::page_size();
            let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, length as u64).unwrap();
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping.
            FileMemory(unsafe {
                mmap(null_mut(), length, protection, MapFlags::SHARED, &file, 0).unwrap().cast()
            })
        }

        fn write(&self, page: usize) {
            assert!(page < PAGES);
            // SAFETY: a byte of the mapping.
            unsafe { self.0.add(page * rustix::param::page_size() + 17).write_volatile(1) }
        }
    }

    impl Drop for FileMemory {
        fn drop(&mut self) {
            // SAFETY: nobody uses it any more.
            unsafe { munmap(self.0.cast(), PAGES * rustix::param::page_size()).unwrap() }
        }
    }

    fn taken(watched: &DirtyPages, memory: &FileMemory) -> BTreeSet<usize> {
        let page = rustix::param::page_size() as u64;
        let mut taken = BTreeSet::new();
        watched
            .take(|range| {
                let index = |address: u64| ((address - memory.0 as u64) / page) as usize;
                taken.extend(index(range.start)..index(range.end));
            })
            .unwrap();
        taken
    }

    /// Each method that works here sees exactly what was written; at the edges, more.
    #[test]
    fn pages_that_were_written_are_given_once() {
        for method in [DirtyMethod::WriteProtect, DirtyMethod::SoftDirty] {
            if !matches!(try_out(method), Ok(true)) {
                eprintln!("not checked: {method:?} does not work here");
                continue;
            }
            let memory = FileMemory::new();
            (0..PAGES).step_by(2).for_each(|page| memory.write(page));
            let page = rustix::param::page_size() as u64;
            let address = memory.0 as u64 + 100;
            let watched = DirtyPages::watch(address, (PAGES as u64 - 1) * page, method).unwrap();
            assert_eq!(watched.method(), method);
            let edges = [0, PAGES - 1];
            assert!(taken(&watched, &memory).is_superset(&(0..PAGES).step_by(2).collect()));
            // Absent pages may count as written by soft-dirty bits.
            let absent = |page: &usize| method == DirtyMethod::WriteProtect || page % 2 == 0;
            let mut expected: BTreeSet<usize> = edges.into();
            let seen = |watched| taken(watched, &memory).into_iter().filter(absent).collect::<BTreeSet<_>>();
            assert_eq!(seen(&watched), expected.iter().copied().filter(absent).collect());
            // Many ranges, pages that were absent, and one page twice.
            for page in (0..PAGES).step_by(5).chain([7, 7, 8]) {
                memory.write(page);
                expected.insert(page);
            }
            assert_eq!(seen(&watched), expected.into_iter().filter(absent).collect());
            assert_eq!(seen(&watched), edges.into_iter().filter(absent).collect());
        }
    }

    /// While threads write, each write is given by the take during it or by a later one.
    #[test]
    fn no_write_is_lost_between_two_looks() {
        if DirtyMethod::best() != DirtyMethod::WriteProtect {
            eprintln!("not checked: there is no asynchronous write protection here");
            return;
        }
        let memory = FileMemory::new();
        let (start, page) = (memory.0 as u64, rustix::param::page_size() as u64);
        let watched = DirtyPages::watch(start, PAGES as u64 * page, DirtyMethod::WriteProtect).unwrap();
        taken(&watched, &memory);
        let mut all = BTreeSet::new();
        std::thread::scope(|scope| {
            let base = memory.0 as usize;
            let writer = scope.spawn(move || {
                for index in 0..PAGES {
                    // SAFETY: a byte of the mapping, which lives as long as the scope.
                    unsafe { (base as *mut u8).add(index * page as usize).write_volatile(1) }
                }
            });
            while !writer.is_finished() {
                all.extend(taken(&watched, &memory));
            }
        });
        all.extend(taken(&watched, &memory));
        assert_eq!(all.len(), PAGES);
    }

    /// Who watches no more leaves the pages to the next one, though a forked child has the descriptor still.
    #[test]
    fn a_forked_child_does_not_keep_pages_watched() {
        if DirtyMethod::best() != DirtyMethod::WriteProtect {
            eprintln!("not checked: there is no asynchronous write protection here");
            return;
        }
        let memory = FileMemory::new();
        let watch = || {
            let length = (PAGES * rustix::param::page_size()) as u64;
            DirtyPages::watch(memory.0 as u64, length, DirtyMethod::WriteProtect)
        };
        let watched = watch().unwrap();
        // SAFETY: the child only waits to be killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: pause(2) has no preconditions.
                unsafe { libc::pause() };
            }
        }
        drop(watched);
        let again = watch().map(|watched| taken(&watched, &memory));
        // SAFETY: a child of this test's own, and no place for its status.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, null_mut(), 0);
        }
        assert!(again.is_ok(), "{:?}", again.err());
    }

    #[test]
    fn without_a_method_each_page_counts_as_written() {
        let page = rustix::param::page_size() as u64;
        let watched = DirtyPages::watch(3 * page + 1, page, DirtyMethod::None).unwrap();
        for _ in 0..2 {
            let mut taken = Vec::new();
            watched.take(|range| taken.push(range)).unwrap();
            assert_eq!((taken.len(), taken[0].clone()), (1, 3 * page..5 * page));
        }
        assert!(DirtyPages::watch(u64::MAX, 2, DirtyMethod::None).is_err());
    }
}
