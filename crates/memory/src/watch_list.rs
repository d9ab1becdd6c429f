//! Whether userfaultfd(2) watches a piece of this process's memory, asked at the moment when that matters.
//!
//! What is known of mappings may be out of date, and a thread of the program that touches a page which somebody else has to give waits
//! for that one. The kernel tells by an error: UFFDIO_CONTINUE fails with ENOENT where nobody watches, and with EINVAL where somebody
//! does, whoever that is; of private memory without a file it changes nothing in either case.

use crate::{Segment, Uncancelled, above_standard};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// UFFD_USER_MODE_ONLY (linux/userfaultfd.h, since 5.11): every user may.
const USER_MODE_ONLY: libc::c_int = 1;
/// UFFD_API
const API: u64 = 0xAA;
/// _IOWR(UFFDIO, 0x3F, struct uffdio_api)
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
/// _IOWR(UFFDIO, 0x07, struct uffdio_continue), since 5.13.
const UFFDIO_CONTINUE: libc::c_ulong = 0xC020_AA07;

/// struct uffdio_continue
#[repr(C)]
struct Continue {
    start: u64,
    length: u64,
    mode: u64,
    mapped: i64,
}

/// The descriptor by which it is asked, made at first use. It watches nothing itself.
#[derive(Debug, Default)]
pub struct WatchList(OnceLock<Option<OwnedFd>>);

impl WatchList {
    /// Whether somebody watches a segment of private memory without a file, by its first and its last page. `None`: the kernel does not
    /// tell, as where a filter of system calls forbids userfaultfd(2).
    pub fn has(&self, segment: Segment) -> Option<bool> {
        let descriptor = self.0.get_or_init(open).as_ref()?;
        let page = rustix::param::page_size() as u64;
        let last = segment.address.checked_add(segment.length.saturating_sub(1))?;
        let is_watched = |address: u64| {
            let start = address / page * page;
            let mut one = Continue { start, length: page, mode: 0, mapped: 0 };
            // SAFETY: UFFDIO_CONTINUE (ioctl_userfaultfd(2)) reads and writes the local structure; of memory that is no shared one
            // it maps nothing.
            let failed = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_CONTINUE, &raw mut one) } != 0;
            !(failed && Error::last_os_error().raw_os_error() == Some(libc::ENOENT))
        };
        Some(is_watched(segment.address) || last / page != segment.address / page && is_watched(last))
    }
}

fn open() -> Option<OwnedFd> {
    let _uncancelled = Uncancelled::begin();
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: userfaultfd(2) takes flags alone; what it gives is a new descriptor, or an error.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if made < 0 {
        return None;
    }
    // SAFETY: a descriptor that nobody else has.
    let made = above_standard(unsafe { OwnedFd::from_raw_fd(made as i32) }).ok()?;
    let mut api = [API, 0, 0];
    // SAFETY: UFFDIO_API reads and writes a struct uffdio_api, which is three such words.
    let agreed = unsafe { libc::ioctl(made.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } == 0;
    agreed.then_some(made)
}

#[cfg(test)]
#[path = "../../../tests/src/not_checked.rs"]
pub(crate) mod not_checked;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    #[test]
    fn only_what_somebody_watches_is_watched() {
        let list = WatchList::default();
        let Some(others) = open() else { return not_checked::tell("this user may have no userfaultfd") };
        let page = rustix::param::page_size();
        // SAFETY: a mapping of this test's own.
        let at = unsafe {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(std::ptr::null_mut(), 4 * page, rights, MapFlags::PRIVATE).unwrap()
        };
        let part = |first: usize, pages: usize| Segment {
            address: at as u64 + (first * page) as u64 + 8,
            length: (pages * page) as u64 - 8,
        };
        assert_eq!(list.has(part(0, 4)), Some(false));
        // struct uffdio_register: the last two pages, faults of missing ones; _IOWR(UFFDIO, 0x00, ...)
        let mut register = [at as u64 + 2 * page as u64, 2 * page as u64, 1, 0];
        // SAFETY: UFFDIO_REGISTER of memory that nobody touches.
        assert_eq!(unsafe { libc::ioctl(others.as_raw_fd(), 0xC020_AA00, register.as_mut_ptr()) }, 0);
        assert_eq!(list.has(part(0, 2)), Some(false));
        assert_eq!([part(2, 1), part(3, 1), part(0, 4)].map(|part| list.has(part)), [Some(true); 3]);
        drop(others);
        assert_eq!(list.has(part(0, 4)), Some(false), "who watched has gone");
        // SAFETY: nobody uses it any more.
        unsafe { munmap(at, 4 * page).unwrap() };
    }
}
