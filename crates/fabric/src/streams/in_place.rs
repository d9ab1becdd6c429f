//! Payloads that the kernel copies between a stream and the memory of the program, without a copy in this process.

use crate::descriptors::Descriptor;
use pagewire_memory::Segment;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sends bytes of this process, then those that the program has in a segment. Gives how many the kernel took; 0: it has no room.
///
/// # Errors
/// The kernel's; EFAULT: the segment cannot be read, and nothing was sent.
pub fn send(socket: &Descriptor, first: &[u8], payload: Segment) -> io::Result<usize> {
    let mut parts =
        [libc::iovec { iov_base: first.as_ptr().cast_mut().cast(), iov_len: first.len() }, part_of(payload)];
    // SAFETY: sendmsg(2) only reads what the parts name. The first lives through the call; the second is memory of the program, which
    // the kernel checks itself (EFAULT).
    unsafe { call(libc::SYS_sendmsg, socket, &mut parts, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
}

/// Receives into a segment of the program, then into bytes of this process. Gives how many bytes came.
///
/// # Errors
/// The kernel's; EFAULT: the segment cannot be written to, and nothing was taken from the socket.
pub fn receive(socket: &Descriptor, payload: Segment, behind: &mut [u8]) -> io::Result<usize> {
    let mut parts =
        [part_of(payload), libc::iovec { iov_base: behind.as_mut_ptr().cast(), iov_len: behind.len() }];
    // SAFETY: recvmsg(2) writes to what the parts name, and no further. The second lives through the call; the first is memory of the
    // program that the caller holds an access to, which the kernel checks itself (EFAULT), and nothing of this crate lies there.
    unsafe { call(libc::SYS_recvmsg, socket, &mut parts, libc::MSG_DONTWAIT) }
}

/// Bytes that wait in a socket.
///
/// # Errors
/// The kernel's.
pub fn waiting(socket: &Descriptor) -> io::Result<usize> {
    Ok(usize::try_from(rustix::io::ioctl_fionread(socket)?).unwrap_or(usize::MAX))
}

fn part_of(segment: Segment) -> libc::iovec {
    libc::iovec { iov_base: segment.address as *mut libc::c_void, iov_len: segment.length as usize }
}

/// # Safety
/// The parts may be used as the call does.
unsafe fn call(
    number: libc::c_long,
    socket: &Descriptor,
    parts: &mut [libc::iovec],
    flags: libc::c_int,
) -> io::Result<usize> {
    // SAFETY: a C structure of integers and pointers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the message names the parts alone, and lives through the call (sendmsg(2), recvmsg(2)). Not by the C library's functions,
    // which are cancellation points.
    let moved = unsafe { libc::syscall(number, socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    match usize::try_from(moved) {
        Ok(moved) => Ok(moved),
        Err(_) => match io::Error::last_os_error() {
            error
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::AGAIN | Errno::INTR | Errno::NOBUFS)
                ) =>
            {
                Ok(0)
            }
            error => Err(error),
        },
    }
}
