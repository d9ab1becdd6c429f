//! Memory whose pages another thread of the program brings in (userfaultfd(2)). Where it does so for accesses of user mode
//! only, which any user may ask for, the kernel cannot reach an absent page itself: EFAULT.

#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

use not_checked::tell;
use pagewire_memory::{
    ApplicationMemory, Arena, AtomicOperation, HostMemory, HostProcess, Residency, Segment, guard,
};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

const PAGE: usize = 4096;
const PAGES: usize = 8;
/// A word of a page that the handler brings in.
const WORD: u64 = u64::from_ne_bytes([0x5A; 8]);

// linux/userfaultfd.h
const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_COPY: u64 = 0xC028_AA03;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;

/// Pages that are absent until somebody touches them.
struct Absent {
    start: *mut libc::c_void,
    handler: OwnedFd,
}

// SAFETY: the tests touch the pages by address only.
unsafe impl Sync for Absent {}

impl Absent {
    fn new(flags: i32) -> std::io::Result<Self> {
        // SAFETY: userfaultfd(2) takes flags and gives a descriptor of our own.
        let handler = unsafe {
            let descriptor = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags);
            if descriptor < 0 {
                return Err(std::io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(descriptor as i32)
        };
        let mut api = [UFFD_API, 0, 0];
        // SAFETY: UFFDIO_API takes a struct uffdio_api, three words.
        assert_eq!(unsafe { libc::ioctl(handler.as_raw_fd(), UFFDIO_API as _, &mut api) }, 0);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGES * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let mut register = [start as u64, (PAGES * PAGE) as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
        // SAFETY: UFFDIO_REGISTER takes a struct uffdio_register, four words; the range is our mapping.
        assert_eq!(unsafe { libc::ioctl(handler.as_raw_fd(), UFFDIO_REGISTER as _, &mut register) }, 0);
        Ok(Absent { start, handler })
    }

    fn part(&self, at: usize, length: usize) -> Segment {
        Segment { address: self.start as u64 + at as u64, length: length as u64 }
    }

    /// Brings in what is touched, until all pages are there. The program's part.
    fn serve(&self) {
        let page = [0x5Au8; PAGE];
        for _ in 0..PAGES {
            // struct uffd_msg: event (1 byte), then from byte 8 on flags and address.
            let mut message = [0u64; 4];
            // SAFETY: reads one message into 32 bytes.
            let length = unsafe { libc::read(self.handler.as_raw_fd(), message.as_mut_ptr().cast(), 32) };
            assert_eq!((length, message[0] as u8), (32, UFFD_EVENT_PAGEFAULT));
            let at = message[2] / PAGE as u64 * PAGE as u64;
            let mut copy = [at, page.as_ptr() as u64, PAGE as u64, 0, 0];
            // SAFETY: UFFDIO_COPY takes a struct uffdio_copy, five words; source and target are pages of ours.
            assert_eq!(unsafe { libc::ioctl(self.handler.as_raw_fd(), UFFDIO_COPY as _, &mut copy) }, 0);
        }
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which there are no references.
        unsafe { libc::munmap(self.start, PAGES * PAGE) };
    }
}

/// Runs `touch`, which must touch every page, while the program serves faults.
fn with_absent_pages(flags: i32, touch: impl Fn(&HostMemory, &Absent)) {
    let absent = Absent::new(flags).unwrap();
    let memory = HostMemory::new();
    assert_eq!(memory.residency(&[absent.part(0, PAGES * PAGE)]), Residency::Absent);
    std::thread::scope(|scope| {
        scope.spawn(|| absent.serve());
        touch(&memory, &absent);
    });
    // What was remembered of their absence is no more than a wait.
    assert_eq!(memory.residency(&[absent.part(0, PAGES * PAGE)]), Residency::Resident);
}

fn every_access(flags: i32) {
    let all = PAGES * PAGE;
    with_absent_pages(flags, |memory, absent| {
        let mut arena = Arena::new(all).unwrap();
        memory.read(&[absent.part(0, all)], arena.bytes_mut()).unwrap();
        assert!(arena.bytes().iter().all(|byte| *byte == 0x5A));
    });
    // Large and small buffers of the heap, at odd places.
    for length in [all, 100] {
        with_absent_pages(flags, |memory, absent| {
            for at in (0..all).step_by(if length == all { all } else { PAGE }) {
                let mut bytes = vec![0; length];
                let at = if length == all { 0 } else { at + 77 };
                memory.read(&[absent.part(at, length)], &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 0x5A), "{length} bytes");
            }
        });
        with_absent_pages(flags, |memory, absent| {
            for at in (0..all).step_by(if length == all { all } else { PAGE }) {
                let bytes: Vec<u8> = (0..length).map(|index| (index * 31) as u8).collect();
                let at = if length == all { 0 } else { at + 77 };
                memory.write(&bytes, &[absent.part(at, length)], true).unwrap();
                let mut back = vec![0; length];
                memory.read(&[absent.part(at, length)], &mut back).unwrap();
                assert!(back == bytes, "{length} bytes");
            }
        });
    }
    with_absent_pages(flags, |memory, absent| {
        let mut arena = Arena::new(all).unwrap();
        arena.bytes_mut().fill(7);
        memory.write(arena.bytes(), &[absent.part(0, all)], true).unwrap();
        arena.bytes_mut().fill(0);
        memory.read(&[absent.part(0, all)], arena.bytes_mut()).unwrap();
        assert!(arena.bytes().iter().all(|byte| *byte == 7));
    });
    // Between processes: the absent pages are on this side.
    with_absent_pages(flags, |memory, absent| {
        let (mut bytes, here) = (vec![7u8; all], HostProcess::current());
        let there = [Segment { address: bytes.as_mut_ptr() as u64, length: all as u64 }];
        memory.push(&here, &[absent.part(0, all)], &there, true).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0x5A));
    });
    with_absent_pages(flags, |memory, absent| {
        let (bytes, here) = (vec![7u8; all], HostProcess::current());
        let there = [Segment { address: bytes.as_ptr() as u64, length: all as u64 }];
        memory.pull(&here, &there, &[absent.part(0, all)], true).unwrap();
        let mut back = vec![0; all];
        memory.read(&[absent.part(0, all)], &mut back).unwrap();
        assert!(back == bytes);
    });
    with_absent_pages(flags, |memory, absent| {
        for page in 0..PAGES {
            let address = absent.part(page * PAGE + 8, 8).address;
            assert_eq!(memory.atomic(address, AtomicOperation::FetchAdd { add: 1 }), Ok(WORD));
            let swap = AtomicOperation::CompareSwap { compare: WORD + 1, swap: 3 };
            assert_eq!(memory.atomic(address, swap), Ok(WORD + 1));
        }
    });
    for write in [false, true] {
        with_absent_pages(flags, |memory, absent| {
            memory.bring_in(&absent.part(0, all), write).unwrap();
            let mut bytes = vec![0; all];
            memory.read(&[absent.part(0, all)], &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0x5A), "bringing in changes no byte");
        });
    }
}

#[test]
fn for_accesses_of_user_mode() {
    match Absent::new(UFFD_USER_MODE_ONLY) {
        Ok(_) => every_access(UFFD_USER_MODE_ONLY),
        Err(error) => {
            tell(format_args!("this kernel has no userfaultfd for accesses of user mode: {error}"));
        }
    }
}

#[test]
fn for_accesses_of_the_kernel_too() {
    match Absent::new(0) {
        Ok(_) => every_access(0),
        Err(error) => {
            tell(format_args!("this user may not have a userfaultfd for accesses of the kernel: {error}"));
        }
    }
}

/// Nobody answers; the thread that waits is told to end, again and again, as it may not have begun to wait. Its region ends behind so many
/// of its waits: until then it waits anew, as if another wait of the thread had been meant.
fn a_wait_that_is_ended(flags: i32, write: bool, waits: u32) {
    let absent = Absent::new(flags).unwrap();
    let memory = HostMemory::new();
    let (thread, over, pieces) = (AtomicI32::new(0), AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
            let begin = || (pieces.fetch_add(1, Ordering::SeqCst) < waits).then_some(());
            let ended = memory.bring_in_pieces(&absent.part(0, PAGES * PAGE), write, begin);
            assert_eq!(ended, Ok(()));
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) {
            match thread.load(Ordering::SeqCst) {
                0 => {}
                thread => guard::end_touch(thread as u32),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Who touches nothing does not notice.
        guard::end_touch(rustix::thread::gettid().as_raw_nonzero().get() as u32);
    });
    assert_eq!(pieces.load(Ordering::SeqCst), waits + 1, "of one page");
    assert_eq!(memory.residency(&[absent.part(0, PAGES * PAGE)]), Residency::Absent);
}

#[test]
fn a_wait_for_a_page_can_be_ended() {
    for flags in [UFFD_USER_MODE_ONLY, 0] {
        match Absent::new(flags) {
            Ok(_) => {
                for (write, waits) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
                    a_wait_that_is_ended(flags, write, waits);
                }
            }
            Err(error) => tell(format_args!("this user may not have a userfaultfd: {error}")),
        }
    }
}
