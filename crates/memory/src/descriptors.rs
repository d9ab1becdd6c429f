//! Descriptors that the engine keeps are not standard input, output or error, even where the program has closed these: it would
//! write into them by mistake, or put others in their place.

use crate::Uncancelled;
use rustix::io::fcntl_dupfd_cloexec;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The first that is none of the three.
const FIRST: RawFd = 3;

/// The engine's own descriptors begin here, where there are so many. The numbers below are the program's: netcat takes none above 16, and
/// select(2) none above 1,023.
const FIRST_OF_ENGINE: RawFd = 256;

/// Moves a descriptor that the program does not know to a number that is in no program's way.
///
/// # Errors
/// As those of [`above_standard`].
pub fn above_low_numbers(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() >= FIRST_OF_ENGINE {
        return Ok(descriptor);
    }
    // close(2) is a cancellation point. Closed before that ends: locals are dropped before arguments, and the latest first.
    let _uncancelled = Uncancelled::begin();
    let descriptor = descriptor;
    match fcntl_dupfd_cloexec(&descriptor, FIRST_OF_ENGINE) {
        Ok(moved) => Ok(moved),
        // RLIMIT_NOFILE is lower, or nothing is free above.
        Err(_) => above_standard(descriptor),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn engine_leaves_low_numbers_to_the_program() {
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let moved = above_low_numbers(open()).unwrap();
        assert!(moved.as_raw_fd() >= FIRST_OF_ENGINE);
        // Where there are no such numbers it stays.
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(FIRST_OF_ENGINE as u64), ..limits }).unwrap();
        let kept = above_low_numbers(open());
        setrlimit(Resource::Nofile, limits).unwrap();
        assert!((FIRST..FIRST_OF_ENGINE).contains(&kept.unwrap().as_raw_fd()));
    }
}
