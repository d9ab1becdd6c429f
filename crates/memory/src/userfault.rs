//! Memory whose pages this process brings in and takes away itself, while its threads load and store (userfaultfd(2)).
//!
//! A thread that touches a page which is absent, or stores to one that is write-protected, waits. Who [reads the faults](UserfaultMemory::faults)
//! gives the page or the right, and the thread goes on. Only faults of user mode are served (UFFD_USER_MODE_ONLY), so every user may have such
//! memory, and a system call that is given an absent page of it fails with EFAULT.

use crate::{Uncancelled, above_standard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a page.
pub const USERFAULT_PAGE_BYTES: usize = 4096;
/// Words of a page.
pub const USERFAULT_PAGE_WORDS: usize = USERFAULT_PAGE_BYTES / 8;

// linux/userfaultfd.h
const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xAA;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const COPY_MODE_WP: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_AA02;
const UFFDIO_COPY: libc::c_ulong = 0xC028_AA03;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xC018_AA06;
/// Messages that are read at once.
const MESSAGES: usize = 16;

/// A thread that waits for a page, or for the right to store to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFault {
    pub page: usize,
    pub is_store: bool,
}

/// A range of such pages, all absent at first.
#[derive(Debug)]
pub struct UserfaultMemory {
    start: u64,
    pages: usize,
    handler: OwnedFd,
}

impl UserfaultMemory {
    /// Reserves addresses for some pages.
    ///
    /// # Errors
    /// `PermissionDenied`, `Unsupported`: this user or this kernel has no such memory; the message says what to change. `InvalidInput`: no
    /// pages, or the processor's pages have another length. `OutOfMemory`: there are no addresses.
    pub fn new(pages: usize) -> Result<UserfaultMemory> {
        let length = pages.checked_mul(USERFAULT_PAGE_BYTES).filter(|length| *length > 0);
        let length = length.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "memory of no pages"))?;
        if rustix::param::page_size() != USERFAULT_PAGE_BYTES {
            return Err(Error::new(ErrorKind::InvalidInput, "pages of this machine have not 4096 bytes"));
        }
        let handler = open()?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(null_mut(), length, rights, MapFlags::PRIVATE | MapFlags::NORESERVE)? };
        let made = UserfaultMemory { start: start as u64, pages, handler };
        // SAFETY: the range was mapped above. Pages come one by one; a forked child would have them without anybody who serves its faults.
        unsafe {
            madvise(start, length, Advice::LinuxNoHugepage)?;
            madvise(start, length, Advice::LinuxDontFork)?;
        }
        let mut register = [made.start, length as u64, MODE_MISSING | MODE_WP, 0];
        // SAFETY: UFFDIO_REGISTER takes a struct uffdio_register, four words; the range is the mapping of this value.
        unsafe { made.control(UFFDIO_REGISTER, &mut register)? };
        Ok(made)
    }

    /// # Safety
    /// `request` takes a structure of these words, and what it does to the pages that they name keeps to the caller's rules.
    unsafe fn control(&self, request: libc::c_ulong, words: &mut [u64]) -> Result<()> {
        loop {
            // SAFETY: the caller promises that `request` takes a structure of these words, and what it does to their pages.
            if unsafe { libc::ioctl(self.handler.as_raw_fd(), request, words.as_mut_ptr()) } == 0 {
                return Ok(());
            }
            let why = Error::last_os_error();
            // The mappings of the process are being changed (ioctl_userfaultfd(2)).
            if why.raw_os_error() != Some(libc::EAGAIN) {
                return Err(why);
            }
            std::thread::yield_now();
        }
    }

    /// All of it, to load and store; relaxed ones are plain instructions. Whoever touches it waits for pages that are absent.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lives as long as this value, is aligned, and any bytes make words. All who touch it do so by atomics, or are the
        // kernel, which gives a page whole before anybody sees it.
        unsafe {
            std::slice::from_raw_parts(self.start as *const AtomicU64, self.pages * USERFAULT_PAGE_WORDS)
        }
    }

    fn range(&self, page: usize) -> (u64, u64) {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        (self.start + (page * USERFAULT_PAGE_BYTES) as u64, USERFAULT_PAGE_BYTES as u64)
    }

    /// Waits until threads wait for pages, for so long at most, and adds whom it found.
    ///
    /// # Errors
    /// The kernel's.
    pub fn faults(&self, found: &mut Vec<PageFault>, at_most: Duration) -> Result<()> {
        let limit = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        let mut polled = [PollFd::new(&self.handler, PollFlags::IN)];
        match poll(&mut polled, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(why) => return Err(why.into()),
        }
        // struct uffd_msg: event (1 byte), then from byte 8 on flags and address.
        let mut messages = [[0u64; 4]; MESSAGES];
        let length = size_of_val(&messages);
        // SAFETY: reads whole messages into the local array.
        let read = unsafe { libc::read(self.handler.as_raw_fd(), messages.as_mut_ptr().cast(), length) };
        if read < 0 {
            let why = Error::last_os_error();
            return if why.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(why) };
        }
        for [event, flags, address, _] in &messages[..read as usize / size_of::<[u64; 4]>()] {
            if *event as u8 == EVENT_PAGEFAULT {
                let page = (address.wrapping_sub(self.start) / USERFAULT_PAGE_BYTES as u64) as usize;
                found.push(PageFault { page, is_store: flags & FLAG_WRITE != 0 });
            }
        }
        Ok(())
    }

    /// Gives an absent page its content, for stores or only for loads, and wakes who waits.
    ///
    /// # Errors
    /// `AlreadyExists`: it is there. Else the kernel's.
    pub fn give(&self, page: usize, content: &[u64; USERFAULT_PAGE_WORDS], for_stores: bool) -> Result<()> {
        let (start, length) = self.range(page);
        let mode = if for_stores { 0 } else { COPY_MODE_WP };
        let mut copy = [start, content.as_ptr() as u64, length, mode, 0];
        // SAFETY: UFFDIO_COPY takes a struct uffdio_copy, five words; it reads `content`, and fills an absent page of this value whole.
        unsafe { self.control(UFFDIO_COPY, &mut copy) }
    }

    /// Lets threads store to a page that is there, and wakes who waits; or has those that will store to it wait. When this returns, no thread
    /// stores any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn allow_stores(&self, page: usize, allowed: bool) -> Result<()> {
        let (start, length) = self.range(page);
        let mut protect = [start, length, u64::from(!allowed)];
        // SAFETY: UFFDIO_WRITEPROTECT takes a struct uffdio_writeprotect, three words; no byte changes.
        unsafe { self.control(UFFDIO_WRITEPROTECT, &mut protect) }
    }

    /// Wakes who waits for a page that is there by now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wake(&self, page: usize) -> Result<()> {
        let (start, length) = self.range(page);
        // SAFETY: UFFDIO_WAKE takes a struct uffdio_range, two words; threads touch the page again.
        unsafe { self.control(UFFDIO_WAKE, &mut [start, length]) }
    }

    /// The content of a page that is there, and whose stores are not allowed. Of another one it waits for ever.
    pub fn content(&self, page: usize) -> [u64; USERFAULT_PAGE_WORDS] {
        let words = &self.words()[page * USERFAULT_PAGE_WORDS..][..USERFAULT_PAGE_WORDS];
        std::array::from_fn(|index| words[index].load(Ordering::Relaxed))
    }

    /// Makes a page absent again; what it had is lost.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, page: usize) -> Result<()> {
        let (start, length) = self.range(page);
        // SAFETY: a page of this value's mapping. Threads that touch it wait until it is given anew.
        unsafe { Ok(madvise(start as *mut _, length as usize, Advice::LinuxDontNeed)?) }
    }

    /// Nobody can give the page any more: who touches it, and who waits for it, gets SIGSEGV.
    ///
    /// # Errors
    /// The kernel's.
    pub fn poison(&self, page: usize) -> Result<()> {
        let (start, length) = self.range(page);
        // SAFETY: a page of this value's mapping. A signal instead of a wait is what is promised of it.
        unsafe { mprotect(start as *mut _, length as usize, MprotectFlags::empty())? };
        self.wake(page)
    }
}

impl Drop for UserfaultMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and words are borrowed from it.
        let unmapped = unsafe { munmap(self.start as *mut _, self.pages * USERFAULT_PAGE_BYTES) };
        debug_assert!(unmapped.is_ok(), "it was mapped as one");
    }
}

fn open() -> Result<OwnedFd> {
    let _uncancelled = Uncancelled::begin();
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: userfaultfd(2) takes flags alone; what it gives is a new descriptor, or an error.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if made < 0 {
        return Err(explain(&Error::last_os_error()));
    }
    // SAFETY: a descriptor that nobody else has.
    let made = above_standard(unsafe { OwnedFd::from_raw_fd(made as i32) })?;
    let mut api = [API, FEATURE_PAGEFAULT_FLAG_WP, 0];
    // SAFETY: UFFDIO_API reads and writes a struct uffdio_api, three words.
    if unsafe { libc::ioctl(made.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } != 0 {
        let why = Error::last_os_error();
        let text =
            format!("userfaultfd(2) here has no write protection ({why}): Linux 5.7 or later is needed");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(made)
}

/// What to do where there is no userfaultfd.
fn explain(why: &Error) -> Error {
    let (kind, advice) = match why.raw_os_error() {
        Some(libc::ENOSYS) => (ErrorKind::Unsupported, "this kernel has none (CONFIG_USERFAULTFD)"),
        // It takes the flag since 5.11.
        Some(libc::EINVAL) => (
            ErrorKind::Unsupported,
            "this kernel has none for user mode alone (UFFD_USER_MODE_ONLY): Linux 5.11 or later is needed",
        ),
        Some(libc::EPERM) => (
            ErrorKind::PermissionDenied,
            "a filter of system calls forbids it, as those of containers do: allow userfaultfd there, or \
             set sysctl vm.unprivileged_userfaultfd=1 where the kernel asks for that",
        ),
        _ => (why.kind(), "the kernel refused"),
    };
    Error::new(kind, format!("userfaultfd(2) failed ({why}): {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch_list::not_checked;
    use std::sync::atomic::AtomicBool;

    const PATIENCE: Duration = Duration::from_millis(20);

    /// Serves faults by `serve` until `work` has ended.
    fn with_server(pages: &UserfaultMemory, serve: impl Fn(PageFault) + Sync, work: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut found = Vec::new();
                while !is_over.load(Ordering::Acquire) {
                    pages.faults(&mut found, PATIENCE).unwrap();
                    found.drain(..).for_each(&serve);
                }
            });
            work();
            is_over.store(true, Ordering::Release);
        });
    }

    fn made(pages: usize) -> Option<UserfaultMemory> {
        match UserfaultMemory::new(pages) {
            Ok(made) => Some(made),
            Err(why) => {
                not_checked::tell(format_args!("{why}"));
                None
            }
        }
    }

    #[test]
    fn pages_come_at_the_first_touch_and_rights_at_the_first_store() {
        let Some(pages) = made(4) else { return };
        let (loads, stores) = (AtomicU64::new(0), AtomicU64::new(0));
        let serve = |fault: PageFault| {
            let of = if fault.is_store { &stores } else { &loads };
            // The first fault of a page is one of absence, whatever the access.
            if fault.page == 3 || loads.load(Ordering::Relaxed) > fault.page as u64 && fault.is_store {
                match pages.allow_stores(fault.page, true) {
                    Ok(()) => {}
                    Err(_) => pages.give(fault.page, &[7; USERFAULT_PAGE_WORDS], true).unwrap(),
                }
            } else {
                pages.give(fault.page, &[fault.page as u64 + 10; USERFAULT_PAGE_WORDS], false).unwrap();
            }
            of.fetch_add(1, Ordering::Relaxed);
        };
        with_server(&pages, serve, || {
            for page in 0..3u64 {
                let words = &pages.words()[page as usize * USERFAULT_PAGE_WORDS..][..USERFAULT_PAGE_WORDS];
                assert_eq!(words[511].load(Ordering::Relaxed), page + 10);
                words[1].store(1, Ordering::Relaxed);
                words[2].fetch_add(1, Ordering::Relaxed);
                assert_eq!(
                    (words[1].load(Ordering::Relaxed), words[2].load(Ordering::Relaxed)),
                    (1, page + 11)
                );
            }
        });
        assert_eq!((loads.into_inner(), stores.into_inner()), (3, 3), "one fault of each kind for a page");
    }

    #[test]
    fn a_page_that_was_taken_away_is_given_anew() {
        let Some(pages) = made(1) else { return };
        let round = AtomicU64::new(1);
        let serve = |fault: PageFault| {
            pages.give(fault.page, &[round.load(Ordering::Relaxed); USERFAULT_PAGE_WORDS], true).unwrap();
        };
        with_server(&pages, serve, || {
            for value in 1..50 {
                round.store(value, Ordering::Relaxed);
                assert_eq!(pages.words()[5].load(Ordering::Relaxed), value);
                pages.words()[5].store(1000 + value, Ordering::Relaxed);
                pages.allow_stores(0, false).unwrap();
                assert_eq!((pages.content(0)[5], pages.content(0)[6]), (1000 + value, value));
                pages.remove(0).unwrap();
            }
        });
    }

    /// What system calls cannot do: the manual says so.
    #[test]
    fn a_system_call_gets_no_absent_page() {
        let Some(pages) = made(2) else { return };
        let (mut reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let write = |page: usize| {
            let from = &pages.words()[page * USERFAULT_PAGE_WORDS];
            // SAFETY: write(2) reads 8 bytes of the mapping, or fails.
            unsafe { libc::write(writer.as_raw_fd(), std::ptr::from_ref(from).cast(), 8) }
        };
        pages.give(0, &[9; USERFAULT_PAGE_WORDS], false).unwrap();
        assert_eq!(write(0), 8, "a page that is there");
        assert_eq!((write(1), Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
        let mut word = [0; 8];
        std::io::Read::read_exact(&mut reader, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 9);
    }

    #[test]
    fn what_is_missing_is_said() {
        let why = |code| explain(&Error::from_raw_os_error(code));
        assert_eq!(why(libc::EPERM).kind(), ErrorKind::PermissionDenied);
        assert!(why(libc::EPERM).to_string().contains("vm.unprivileged_userfaultfd"));
        assert!(why(libc::EINVAL).to_string().contains("5.11"));
        assert_eq!(UserfaultMemory::new(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
