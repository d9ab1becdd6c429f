//! Pollable descriptors that count what waits to be read: `async_fd` and completion channels.

use pagewire_nic::Notifier;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An eventfd in semaphore mode: readable while events wait, each read takes one.
pub struct EventDescriptor(File);

impl EventDescriptor {
    /// A blocking descriptor; programs set `O_NONBLOCK` themselves.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd(2) takes no pointers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(EventDescriptor(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) })))
    }

    /// Takes one event; sleeps for it unless the program made the descriptor non-blocking (EAGAIN). A signal ends the sleep (EINTR).
    pub fn take(&self) -> io::Result<()> {
        let mut count = [0; 8];
        (&self.0).read(&mut count).map(|_| ())
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

    /// The number of the descriptor.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Notifier for EventDescriptor {
    fn raise(&self) {
        if let Err(error) = (&self.0).write_all(&1u64.to_ne_bytes()) {
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
        assert!(descriptor.take().is_ok());
        assert!(descriptor.take().is_ok());
        assert_eq!(descriptor.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
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
