//! The system calls that copy, until all is copied or the kernel says why not.

use crate::limits::{PIECE, TAIL};
use crate::protection_keys::AllKeysOpen;
use crate::segments::{IoVectors, total};
use crate::{MemoryError, Segment};
use std::io;

/// How far a transfer came.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The page at this position cannot be reached by this system call.
    Fault(u64),
    /// Another process: it is gone.
    Gone,
    /// Another process, which the kernel does not let this one access, or not any more (EPERM of `process_vm_readv(2)`).
    Denied,
}

/// Which way between an arena's file and the application.
#[derive(Clone, Copy)]
pub enum FileTransfer {
    FromApplication,
    ToApplication,
}

/// Where the last bytes begin that must be copied separately, after all others.
fn boundary(length: u64, tail_last: bool) -> u64 {
    if tail_last && length > TAIL { length - TAIL } else { length }
}

/// Copies bytes `position .. position + length` of the application's segments from or to a file.
pub fn through_file(
    transfer: FileTransfer,
    (file, offset): (i32, i64),
    segments: &[Segment],
    position: u64,
    length: u64,
    tail_last: bool,
) -> Result<(), Stop> {
    let end = position + length;
    let boundary = position + boundary(length, tail_last);
    let mut at = position;
    while at < end {
        let cut = IoVectors::cut(segments, at, (end - at).min(PIECE as u64), boundary);
        let vectors = cut.as_slice();
        let file_at = offset + (at - position) as i64;
        // Not by the C library's functions, which are cancellation points.
        let call = match transfer {
            FileTransfer::FromApplication => libc::SYS_pwritev,
            FileTransfer::ToApplication => libc::SYS_preadv,
        };
        // SAFETY: the vectors name memory of the application, which the kernel checks page by page and answers with
        // EFAULT (preadv(2), pwritev(2)); the engine never holds references into it. The file is an arena's, whose bytes the
        // caller has borrowed for writing where they are written. The last argument is the offset's upper half where a
        // register holds only half of it.
        let copy =
            || unsafe { libc::syscall(call, file, vectors.as_ptr(), vectors.len(), file_at, 0i64) as isize };
        at += advance(copy, at)?;
    }
    Ok(())
}

/// Which way between this process and a process.
#[derive(Clone, Copy)]
pub enum ProcessTransfer {
    /// process_vm_readv
    Read,
    /// process_vm_writev
    Write,
}

/// Copies bytes from `position` on between `local` segments of this process and `remote` ones of `pid`, which may be this
/// process; both are `length` bytes long at least.
#[inline(always)] // Part of each transfer that the requester executes itself.
pub fn through_process(
    transfer: ProcessTransfer,
    pid: i32,
    local: &[Segment],
    remote: &[Segment],
    length: u64,
    tail_last: bool,
) -> Result<(), Stop> {
    let boundary = boundary(length, tail_last);
    let mut at = 0;
    if let ([ours], [theirs], true) = (local, remote, length <= TAIL) {
        // The most frequent one, without the search for pieces.
        let vector = |segment: &Segment| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(segment.address as usize),
            iov_len: length as usize,
        };
        at += advance(|| call(transfer, pid, &[vector(ours)], &[vector(theirs)]), 0)?;
    }
    while at < length {
        let (ours, theirs) = pieces(local, remote, at, (length - at).min(PIECE as u64), boundary);
        at += advance(|| call(transfer, pid, ours.as_slice(), theirs.as_slice()), at)?;
    }
    Ok(())
}

/// What one call copies, at most `limit` bytes from `at` on. Cut at the boundary at this side only, which is as good: the kernel copies
/// piece by piece of both. For each piece of the other side it looks the pages up anew.
fn pieces(
    local: &[Segment],
    remote: &[Segment],
    at: u64,
    limit: u64,
    boundary: u64,
) -> (IoVectors, IoVectors) {
    let theirs = IoVectors::cut(remote, at, limit, u64::MAX);
    let ours = IoVectors::cut(local, at, theirs.bytes, boundary);
    (ours, theirs)
}

fn call(transfer: ProcessTransfer, pid: i32, ours: &[libc::iovec], theirs: &[libc::iovec]) -> isize {
    let (ours_at, ours_len) = (ours.as_ptr(), ours.len() as libc::c_ulong);
    let (theirs_at, theirs_len) = (theirs.as_ptr(), theirs.len() as libc::c_ulong);
    // SAFETY: both sides are checked page by page by the kernel, which answers with EFAULT (process_vm_readv(2)). Where
    // `ours` is an engine buffer the caller has it borrowed, for writing where it is written.
    unsafe {
        match transfer {
            ProcessTransfer::Read => libc::process_vm_readv(pid, ours_at, ours_len, theirs_at, theirs_len, 0),
            ProcessTransfer::Write => {
                libc::process_vm_writev(pid, ours_at, ours_len, theirs_at, theirs_len, 0)
            }
        }
    }
}

/// Bytes copied by a call; what stopped it. A call that copies nothing is made once more with all protection keys open.
#[inline(always)] // Part of each transfer that the requester executes itself.
fn advance(mut call: impl FnMut() -> isize, at: u64) -> Result<u64, Stop> {
    match call() {
        done @ 1.. => Ok(done as u64),
        done => copied_nothing(done, call, at),
    }
}

#[cold]
fn copied_nothing(mut done: isize, mut call: impl FnMut() -> isize, at: u64) -> Result<u64, Stop> {
    let is_fault = || io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
    if done == 0 || is_fault() {
        if let Some(_open) = AllKeysOpen::open() {
            done = call();
        }
    }
    if done > 0 {
        return Ok(done as u64);
    }
    if done == 0 {
        return Err(Stop::Fault(at));
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN) => Ok(0),
        Some(libc::ESRCH) => Err(Stop::Gone),
        Some(libc::EPERM | libc::EACCES) => Err(Stop::Denied),
        // EFAULT; ENOMEM and whatever else the kernel may think of mean the same: these bytes cannot be had.
        _ => Err(Stop::Fault(at)),
    }
}

/// Bytes that a copy between two lists has.
pub fn common_length(from: &[Segment], to: &[Segment]) -> Result<u64, MemoryError> {
    Ok(total(from)?.min(total(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processors mostly copy from front to back anyway, so that a copy itself does not tell.
    #[test]
    fn the_tail_is_a_piece_of_its_own_at_this_side_and_the_other_is_not_cut() {
        let one = |address| [Segment { address, length: 8192 }];
        let edge = boundary(8192, true);
        assert_eq!(edge, 8192 - TAIL);
        let lengths = |pieces: &IoVectors| -> Vec<usize> {
            pieces.as_slice().iter().map(|piece| piece.iov_len).collect()
        };
        let (ours, theirs) = pieces(&one(1 << 20), &one(1 << 30), 0, 8192, edge);
        assert_eq!((lengths(&ours), lengths(&theirs)), (vec![8192 - 8, 8], vec![8192]));
        assert_eq!(ours.as_slice()[1].iov_base as u64, (1 << 20) + 8192 - 8);
        // Also where the other side has several pieces, and the tail begins within one of them.
        let parts = [
            Segment { address: 1 << 30, length: 8000 },
            Segment { address: 1 << 31, length: 190 },
            Segment { address: 1 << 32, length: 2 },
        ];
        let (ours, theirs) = pieces(&one(1 << 20), &parts, 0, 8192, edge);
        assert_eq!((lengths(&ours), lengths(&theirs)), (vec![8192 - 8, 8], vec![8000, 190, 2]));
    }
}
