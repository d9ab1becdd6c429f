//! One descriptor that poll(2) reports while a node has something for its program.

use crate::error::{Result, system};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that is readable while something is ready.
pub(crate) struct Readiness {
    descriptor: OwnedFd,
    /// How much is ready. Held while the descriptor changes with it.
    ready: Mutex<usize>,
}

impl Readiness {
    pub fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = eventfd(0, flags).map_err(system("a descriptor to wait at"))?;
        Ok(Readiness { descriptor, ready: Mutex::new(0) })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// One thing more is ready.
    pub fn add(&self) {
        let mut ready = self.ready.lock();
        *ready += 1;
        if *ready == 1 {
            // It holds 0, so one more fits.
            if let Err(error) = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()) {
                log::error!("the descriptor of a node is not raised: {error}");
            }
        }
    }

    /// One thing was taken.
    pub fn take(&self) {
        let mut ready = self.ready.lock();
        *ready = ready.saturating_sub(1);
        if *ready == 0 {
            // A program that has read it by itself has done this already.
            let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn it_is_readable_while_something_is_ready() {
        let readiness = Readiness::new().unwrap();
        let is_readable = || {
            let mut fds = [PollFd::from_borrowed_fd(readiness.descriptor(), PollFlags::IN)];
            poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
        };
        assert!(!is_readable());
        readiness.add();
        readiness.add();
        assert!(is_readable());
        readiness.take();
        assert!(is_readable());
        readiness.take();
        assert!(!is_readable());
    }
}
