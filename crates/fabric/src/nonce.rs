//! A secret of one handshake, which only processes that may read this one's memory can learn.
//!
//! The owner of a nonce sends its address, and never its value. A peer that sends the value back has read it out of the
//! owner's memory, so the kernel lets it trace the owner (ptrace(2), "Ptrace access mode checking"). Nothing else is on the
//! page, and each handshake has a nonce of its own: what one peer has read is of no use to another.

use crate::host::random;
use pagewire_memory::fork;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;

/// The page that holds the value. It is unmapped on drop.
#[derive(Debug)]
pub struct Nonce {
    page: usize,
    bytes: usize,
    value: u64,
    generation: u64,
}

impl Nonce {
    /// A new random value on a new page, which forked children do not have.
    ///
    /// # Errors
    /// The kernel's: ENOMEM of mmap(2), or no random numbers.
    pub fn new() -> io::Result<Self> {
        let value = random()?;
        let bytes = rustix::param::page_size();
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let nonce = Nonce { page: page as usize, bytes, value, generation: fork::generation() };
        // SAFETY: exactly the mapping made above, which is aligned to a page and writable; nobody else knows it.
        unsafe {
            madvise(page, bytes, Advice::LinuxDontFork)?;
            page.cast::<u64>().write_volatile(value);
        }
        Ok(nonce)
    }

    /// Where in this process's memory the value stands.
    pub fn address(&self) -> u64 {
        self.page as u64
    }

    /// Whether a peer's proof is the value.
    pub fn is_proved_by(&self, proof: u64) -> bool {
        self.value == proof
    }
}

impl Drop for Nonce {
    fn drop(&mut self) {
        // A forked child does not have the page; something else may be there.
        if self.generation == fork::generation() {
            // SAFETY: exactly the mapping that `new` made, of which no reference exists.
            let unmapped = unsafe { munmap(self.page as *mut _, self.bytes) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_handshakes_have_two_pages_and_two_values() {
        let (one, other) = (Nonce::new().unwrap(), Nonce::new().unwrap());
        assert_ne!(one.address(), other.address());
        assert_eq!(one.address() % rustix::param::page_size() as u64, 0);
        // SAFETY: the page lives as long as the nonce, and is never written again.
        let value = unsafe { (one.address() as *const u64).read_volatile() };
        assert!(one.is_proved_by(value) && !other.is_proved_by(value));
    }
}
