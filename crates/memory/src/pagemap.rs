//! Which pages of a process are present, by `/proc/PID/pagemap`: unlike mincore(2) it tells of other processes, and of pages that
//! were swapped out.

use crate::limits::{PAGEMAP_ENTRIES, PAGEMAPS_KEPT};
use crate::{Segment, Uncancelled, above_low_numbers};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::pread;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst of Linux).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

/// What the kernel has for all pages of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Each is present.
    All,
    /// Some have nothing yet; none was swapped out, as far as can be seen: of shared memory it cannot.
    SomeEmpty,
    /// Some were swapped out.
    SomeSwapped,
    /// The kernel does not tell.
    Unknown,
}

/// The pagemap of one process, opened when it is first asked.
#[derive(Debug, Default)]
pub struct Pagemap(OnceLock<Option<CountedDescriptor>>);

/// A descriptor that counts.
#[derive(Debug)]
struct CountedDescriptor(OwnedFd);

static KEPT: AtomicUsize = AtomicUsize::new(0);

impl Drop for CountedDescriptor {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pagemap {
    /// Looks at the pages of a segment of the process `pid`, whose pagemap this is.
    pub fn look(&self, pid: i32, segment: Segment) -> Presence {
        if segment.length == 0 {
            return Presence::All;
        }
        let Some(last) = segment.address.checked_add(segment.length - 1) else { return Presence::Unknown };
        let page = rustix::param::page_size() as u64;
        let (first, end) = (segment.address / page, last / page + 1);
        let kept = self.0.get_or_init(|| {
            let room = |kept| (kept < PAGEMAPS_KEPT).then_some(kept + 1);
            KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
            let opened = open(pid);
            if opened.is_none() {
                KEPT.fetch_sub(1, Ordering::Relaxed);
            }
            opened.map(CountedDescriptor)
        });
        match kept {
            Some(kept) => look(kept.0.as_fd(), first, end),
            // There are too many already, or it cannot be opened.
            None => match open(pid) {
                Some(opened) => {
                    let seen = look(opened.as_fd(), first, end);
                    let _uncancelled = Uncancelled::begin();
                    drop(opened);
                    seen
                }
                None => Presence::Unknown,
            },
        }
    }
}

fn open(pid: i32) -> Option<OwnedFd> {
    let _uncancelled = Uncancelled::begin();
    let path = format!("/proc/{pid}/pagemap");
    let opened = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    above_low_numbers(opened).ok()
}

#[inline(never)] // Its callers are deep on the program's stack, and seldom come here.
fn look(pagemap: BorrowedFd<'_>, first: u64, end: u64) -> Presence {
    let mut worst = Presence::All;
    let mut at = first;
    while at < end {
        let mut room = [const { MaybeUninit::<u8>::uninit() }; 8 * PAGEMAP_ENTRIES];
        let wanted = 8 * (end - at).min(PAGEMAP_ENTRIES as u64) as usize;
        let entries = match pread(pagemap, &mut room[..wanted], at * 8) {
            Ok((entries, _)) if entries.len() >= 8 => entries.chunks_exact(8),
            // Nothing can be mapped there, or the process has ended.
            _ => return Presence::Unknown,
        };
        let got = entries.len();
        // Without a branch for each.
        let (all, any) = entries.fold((u64::MAX, 0), |(all, any), entry| {
            let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
            (all & entry, any | entry)
        });
        if any & SWAPPED != 0 {
            return Presence::SomeSwapped;
        }
        if all & PRESENT == 0 {
            worst = Presence::SomeEmpty;
        }
        at += got as u64;
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    #[test]
    fn pages_are_empty_until_they_are_written() {
        let page = rustix::param::page_size();
        let length = (PAGEMAP_ENTRIES + 3) * page;
        // SAFETY: a mapping of this test's own.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap()
        };
        let pagemap = Pagemap::default();
        let pid = std::process::id() as i32;
        let part = |pages: std::ops::Range<usize>| {
            let from = at as u64 + (pages.start * page) as u64;
            let segment = Segment { address: from + 7, length: (pages.len() * page) as u64 - 7 };
            pagemap.look(pid, segment)
        };
        assert_eq!(part(0..2), Presence::SomeEmpty);
        // SAFETY: bytes of that mapping.
        unsafe {
            // By huge pages the neighbours would come in, too.
            madvise(at, length, Advice::LinuxNoHugepage).unwrap();
            for index in 0..PAGEMAP_ENTRIES + 2 {
                at.cast::<u8>().add(index * page).write_volatile(1);
            }
        }
        assert_eq!(part(0..PAGEMAP_ENTRIES + 2), Presence::All);
        assert_eq!(part(0..PAGEMAP_ENTRIES + 3), Presence::SomeEmpty);
        // SAFETY: nobody uses it any more.
        unsafe { munmap(at, length).unwrap() };
        assert_eq!(pagemap.look(pid, Segment { address: u64::MAX, length: 2 }), Presence::Unknown);
        assert_eq!(Pagemap::default().look(-1, Segment { address: 4096, length: 1 }), Presence::Unknown);
    }
}
