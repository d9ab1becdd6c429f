//! Descriptors that the engine keeps are not standard input, output or error, even where the program has closed these: it would
//! write into them by mistake, or put others in their place.

use rustix::io::fcntl_dupfd_cloexec;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The first that is none of the three.
const FIRST: RawFd = 3;

/// Duplicates a descriptor to a number above the three standard ones, close-on-exec.
///
/// # Errors
/// EMFILE, where there is no further number.
pub fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() >= FIRST {
        return Ok(descriptor);
    }
    Ok(fcntl_dupfd_cloexec(&descriptor, FIRST)?)
}
