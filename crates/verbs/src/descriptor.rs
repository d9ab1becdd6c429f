//! Pollable descriptors that count what waits to be read: `async_fd` and completion channels.

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

    /// One more event waits.
    pub fn raise(&self) {
        if let Err(error) = (&self.0).write_all(&1u64.to_ne_bytes()) {
            log::error!("an event was lost: writing to its descriptor failed: {error}");
        }
    }

    /// Takes one event; sleeps for it unless the program made the descriptor non-blocking (EAGAIN). A signal ends the sleep (EINTR).
    pub fn take(&self) -> io::Result<()> {
        let mut count = [0; 8];
        (&self.0).read(&mut count).map(|_| ())
    }

    /// The number of the descriptor.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
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
}
