//! Bytes of the program that a command names. As with the kernel a wrong address is an error (EFAULT), not a signal.

use crate::boundary::{Errno, Result};
use libc::{EFAULT, iovec};

/// Copies bytes from an address of the program.
///
/// # Errors
/// EFAULT.
pub fn read(address: u64, into: &mut [u8]) -> Result<()> {
    let local = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = iovec { iov_base: address as *mut _, iov_len: into.len() };
    // SAFETY: `local` is the slice. The kernel checks `remote`, which is of this process.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    complete(copied, into.len())
}

/// Copies bytes to an address of the program.
///
/// # Errors
/// EFAULT.
pub fn write(address: u64, from: &[u8]) -> Result<()> {
    let local = iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = iovec { iov_base: address as *mut _, iov_len: from.len() };
    // SAFETY: `local` is the slice, which is read only. The kernel checks `remote`, which is memory that the program gives for the answer.
    let copied =
        unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    complete(copied, from.len())
}

fn complete(copied: isize, length: usize) -> Result<()> {
    if usize::try_from(copied) == Ok(length) { Ok(()) } else { Err(Errno(EFAULT)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_are_errors() {
        let mut found = [0; 4];
        let there = [1, 2, 3, 4];
        read(there.as_ptr() as u64, &mut found).unwrap();
        assert_eq!(found, there);
        write(found.as_mut_ptr() as u64, &[9; 4]).unwrap();
        assert_eq!(found, [9; 4]);
        for address in [0, 8, u64::MAX - 2] {
            assert_eq!(read(address, &mut found), Err(Errno(EFAULT)));
            assert_eq!(write(address, &[1]), Err(Errno(EFAULT)));
        }
    }
}
