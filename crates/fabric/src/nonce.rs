//! A secret of one handshake, which only processes that may read this one's memory can learn.
//!
//! The owner of a nonce sends its address, and never its value. A peer that sends the value back has read it out of the
//! owner's memory, so the kernel lets it trace the owner (ptrace(2), "Ptrace access mode checking"). Nothing else is on the
//! page, and each handshake has a nonce of its own: what one peer has read is of no use to another.

use crate::words::DontForkMapping;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// A random number that nobody outside can guess.
///
/// # Errors
/// The kernel's, where getrandom(2) was taken from this process.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(8) => return Ok(u64::from_ne_bytes(bytes)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A page that holds the value.
#[derive(Debug)]
pub struct NoncePage {
    page: DontForkMapping,
    value: u64,
}

impl NoncePage {
    /// A new random value on a new page, which forked children do not have.
    ///
    /// # Errors
    /// The kernel's: ENOMEM of mmap(2), or no random numbers.
    pub fn new() -> io::Result<Self> {
        let (value, page) = (random()?, DontForkMapping::new(None, rustix::param::page_size(), true)?);
        // SAFETY: the beginning of the mapping made above, which is aligned to a page and writable; nobody else knows it.
        unsafe { (page.start() as *mut u64).write_volatile(value) };
        Ok(NoncePage { page, value })
    }

    /// Where in this process's memory the value stands.
    pub fn address(&self) -> u64 {
        self.page.start() as u64
    }

    /// Whether a peer's proof is the value.
    pub fn is_proved_by(&self, proof: u64) -> bool {
        self.value == proof
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_handshakes_have_two_pages_and_two_values() {
        let (one, other) = (NoncePage::new().unwrap(), NoncePage::new().unwrap());
        assert_ne!(one.address(), other.address());
        assert_eq!(one.address() % rustix::param::page_size() as u64, 0);
        // SAFETY: the page lives as long as the nonce, and is never written again.
        let value = unsafe { (one.address() as *const u64).read_volatile() };
        assert!(one.is_proved_by(value) && !other.is_proved_by(value));
    }
}
