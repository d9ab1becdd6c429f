//! Pollable descriptors that count what waits to be read: `async_fd` and completion channels.

use pagewire_memory::above_standard;
use pagewire_nic::Notifier;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

unsafe extern "C-unwind" {
    /// read(2). A thread that is cancelled in it unwinds from it.
    #[link_name = "read"]
    fn read_or_be_cancelled(descriptor: c_int, into: *mut c_void, length: usize) -> isize;
}

/// Takes one event off an [`EventDescriptor`]; sleeps for it unless the program made the descriptor non-blocking (EAGAIN). A signal
/// ends the sleep (EINTR). False: there is none, and `errno` says why.
///
/// As with rdma-core this is a cancellation point (pthreads(7)). To be called outside of everything that holds cancellation off or
/// has something to drop: all frames up to the program are unwound without running any code of theirs.
pub fn take_event(descriptor: RawFd) -> bool {
    let mut count = [0u8; 8];
    // SAFETY: room for the 8 bytes that an eventfd gives; a number that is no descriptor is refused (EBADF). Nothing in this frame
    // has to be dropped.
    unsafe { read_or_be_cancelled(descriptor, count.as_mut_ptr().cast(), count.len()) >= 0 }
}

/// An eventfd in semaphore mode: readable while events wait, each read takes one.
pub struct EventDescriptor(OwnedFd);

impl EventDescriptor {
    /// A blocking descriptor; programs set `O_NONBLOCK` themselves.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd(2) takes no pointers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(EventDescriptor(above_standard(unsafe { OwnedFd::from_raw_fd(descriptor) })?))
    }

    /// Whether a thread that takes an event sleeps until there is one.
    pub fn is_blocking(&self) -> io::Result<bool> {
        // SAFETY: fcntl(2) on an open descriptor, no pointers.
        match unsafe { libc::fcntl(self.number(), libc::F_GETFL) } {
            flags if flags < 0 => Err(io::Error::last_os_error()),
            flags => Ok(flags & libc::O_NONBLOCK == 0),
        }
    }

    /// Takes one event if there is one, without sleeping, and without the program's `O_NONBLOCK`, which is the program's.
    fn take_now(&self) -> io::Result<bool> {
        let mut count = [0u8; 8];
        let into = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
        // SAFETY: one vector, which names the 8 bytes of `count`; the descriptor is open.
        let read = unsafe { libc::preadv2(self.number(), &into, 1, -1, libc::RWF_NOWAIT) };
        if read >= 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    /// One that a program has, by another number of its own.
    pub fn of(descriptor: OwnedFd) -> Self {
        EventDescriptor(descriptor)
    }

    /// What all descriptors of the same eventfd have in common, and no other (proc_pid_fdinfo(5); Linux 5.2). `None`: it is none.
    pub fn identity(&self) -> Option<u64> {
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.number())).ok()?;
        let number = told.lines().find_map(|line| line.strip_prefix("eventfd-id:"))?;
        number.trim().parse().ok()
    }

    /// The number of the descriptor.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<EventDescriptor> for OwnedFd {
    fn from(descriptor: EventDescriptor) -> OwnedFd {
        descriptor.0
    }
}

impl Notifier for EventDescriptor {
    fn raise(&self) {
        // A bare system call: the thread that polls may come by here, and is not cancelled in it.
        if let Err(error) = rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
            log::error!("an event was lost: writing to its descriptor failed: {error}");
        }
    }

    fn withdraw(&self) {
        // There is none when a thread has just taken it: that one finds no event and goes on waiting.
        if let Err(error) = self.take_now() {
            log::error!("a descriptor stays readable though its event is gone: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_takes_one_event() {
        let descriptor = EventDescriptor::new().unwrap();
        // SAFETY: fcntl(2) on an open descriptor, no pointers.
        unsafe { libc::fcntl(descriptor.number(), libc::F_SETFL, libc::O_NONBLOCK) };
        descriptor.raise();
        descriptor.raise();
        assert!(take_event(descriptor.number()));
        assert!(take_event(descriptor.number()));
        assert!(!take_event(descriptor.number()));
        assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn withdrawing_never_blocks() {
        let descriptor = EventDescriptor::new().unwrap();
        descriptor.raise();
        assert!(descriptor.take_now().unwrap());
        assert!(!descriptor.take_now().unwrap());
        descriptor.raise();
        descriptor.raise();
        descriptor.withdraw();
        assert!(descriptor.take_now().unwrap());
        assert!(!descriptor.take_now().unwrap());
    }
}
