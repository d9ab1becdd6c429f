//! Directory streams (opendir(3)) of directories that the tree has.
//!
//! A program holds the address of a place in [`STREAMS`], which no stream of the C library can have. Where the kernel has
//! the directory, too, its stream is read first, and then what only the tree has.

use super::descriptors::{self, record_length, record_name};
use super::kernel;
use super::layout::{DeviceTree, FileContent};
use super::tree::{NodeId, TreeNode};
use crate::boundary::{Errno, Result, set_errno};
use crate::limits::MAX_STREAMS;
use libc::{DIR, EBADF, EMFILE, ENOTDIR, c_int, c_long, dirent64};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The streams that programs hold.
static STREAMS: [AtomicPtr<Mutex<Stream>>; MAX_STREAMS] = [const { AtomicPtr::new(null_mut()) }; MAX_STREAMS];

// In c/directories.c: the C library's.
unsafe extern "C" {
    fn pagewire_real_readdir(stream: *mut DIR) -> *mut dirent64;
    fn pagewire_real_rewinddir(stream: *mut DIR);
    fn pagewire_real_telldir(stream: *mut DIR) -> c_long;
    fn pagewire_real_seekdir(stream: *mut DIR, position: c_long);
    fn pagewire_real_dirfd(stream: *mut DIR) -> c_int;
    fn pagewire_real_closedir(stream: *mut DIR) -> c_int;
}

/// One stream.
struct Stream {
    under: Under,
    /// Records, and behind them as much as a program may copy that takes a record for a whole `struct dirent`.
    records: Vec<u64>,
    /// Bytes of records.
    length: usize,
    /// The byte at which the next record begins.
    at: usize,
}

/// What a stream reads.
enum Under {
    /// A directory of the tree alone.
    Tree(OwnedFd),
    /// One of the kernel's, too.
    Kernel { stream: RealStream, is_read: bool },
}

/// A stream of the C library, which is closed with it.
pub struct RealStream(*mut DIR);

// SAFETY: a stream is not tied to a thread (readdir(3)), and is used under the lock of its `Stream`.
unsafe impl Send for RealStream {}

impl RealStream {
    /// Takes a stream over.
    ///
    /// # Safety
    /// It is the C library's, open, and nobody else's.
    pub unsafe fn new(stream: *mut DIR) -> Self {
        RealStream(stream)
    }
}

impl Stream {
    fn new(under: Under, mut records: Vec<u8>) -> Self {
        let length = records.len();
        records.resize(length + size_of::<dirent64>(), 0);
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        };
        Stream { under, records: records.chunks(8).map(word).collect(), length, at: 0 }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the words are initialized memory, and bytes have no alignment.
        unsafe { std::slice::from_raw_parts(self.records.as_ptr().cast(), self.length) }
    }

    /// Whether the tree has an entry of that name.
    fn has(&self, name: &CStr) -> bool {
        let mut rest = self.bytes();
        while !rest.is_empty() {
            if record_name(rest) == Some(name) {
                return true;
            }
            rest = &rest[record_length(rest)..];
        }
        false
    }

    /// The next entry; NULL at the end.
    ///
    /// # Errors
    /// The C library's, of the kernel's directory.
    fn next(&mut self) -> Result<*mut dirent64> {
        if let Under::Kernel { stream: RealStream(stream), is_read: false } = self.under {
            loop {
                // readdir(3): only `errno` tells an error from the end.
                set_errno(0);
                // SAFETY: the stream is open.
                let entry = unsafe { pagewire_real_readdir(stream) };
                if entry.is_null() {
                    break;
                }
                // SAFETY: an entry of the C library, whose name ends with a NUL.
                if !self.has(unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }) {
                    return Ok(entry);
                }
            }
            match std::io::Error::last_os_error().raw_os_error() {
                None | Some(0) => {}
                Some(error) => return Err(Errno(error)),
            }
            self.under = Under::Kernel { stream: RealStream(stream), is_read: true };
        }
        if self.at >= self.length {
            return Ok(null_mut());
        }
        let next = self.at;
        self.at += record_length(&self.bytes()[next..]);
        // SAFETY: within the words, at a multiple of eight: records are that long.
        Ok(unsafe { self.records.as_mut_ptr().byte_add(next).cast() })
    }

    /// The position of the stream. Beside a stream of the kernel, whose positions are not negative, those among the tree's records
    /// count from the lowest number: -1 means an error (telldir(3)).
    fn tell(&self) -> c_long {
        match self.under {
            // SAFETY: the stream is open.
            Under::Kernel { stream: RealStream(stream), is_read: false } => unsafe {
                pagewire_real_telldir(stream)
            },
            Under::Kernel { is_read: true, .. } => c_long::MIN + self.at as c_long,
            Under::Tree(_) => self.at as c_long,
        }
    }

    fn seek(&mut self, position: c_long) {
        let own = match &mut self.under {
            Under::Tree(_) => position,
            Under::Kernel { stream: RealStream(stream), is_read } => {
                *is_read = position < 0;
                if !*is_read {
                    // SAFETY: the stream is open; the position came from it.
                    unsafe { pagewire_real_seekdir(*stream, position) };
                }
                if *is_read { position - c_long::MIN } else { 0 }
            }
        };
        let own = usize::try_from(own).unwrap_or(0);
        self.at = if own <= self.length && own % 8 == 0 { own } else { self.length };
    }

    fn rewind(&mut self) {
        self.at = 0;
        if let Under::Kernel { stream: RealStream(stream), is_read } = &mut self.under {
            *is_read = false;
            // SAFETY: the stream is open.
            unsafe { pagewire_real_rewinddir(*stream) };
        }
    }

    fn descriptor(&self) -> RawFd {
        match &self.under {
            Under::Tree(descriptor) => descriptor.as_raw_fd(),
            // SAFETY: the stream is open.
            Under::Kernel { stream: RealStream(stream), .. } => unsafe { pagewire_real_dirfd(*stream) },
        }
    }
}

/// A stream of a directory that the tree alone has, by a descriptor of it, which ends with the stream.
///
/// # Errors
/// ENOTDIR, and EMFILE; the descriptor is given back.
pub fn of_descriptor(
    tree: &DeviceTree,
    id: NodeId,
    descriptor: OwnedFd,
) -> std::result::Result<*mut DIR, (Errno, OwnedFd)> {
    if !tree.node(id).is_directory() {
        return Err((Errno(ENOTDIR), descriptor));
    }
    publish(Stream::new(Under::Tree(descriptor), descriptors::records(tree, id))).map_err(
        |(error, stream)| match stream.under {
            Under::Tree(descriptor) => (error, descriptor),
            Under::Kernel { .. } => unreachable!("made above"),
        },
    )
}

/// A stream of a directory that the kernel has, too; it takes the kernel's over.
///
/// # Errors
/// EMFILE: the C library's stream is left as it was.
pub fn of_both(tree: &DeviceTree, id: NodeId, stream: RealStream) -> Result<*mut DIR> {
    // A directory that the kernel has, too, is the kernel's.
    let is_vendor = |node: &TreeNode<FileContent>| !node.is_shared() || !kernel::exists(&node.path);
    let records = descriptors::entries(tree, id, is_vendor);
    publish(Stream::new(Under::Kernel { stream, is_read: false }, records)).map_err(|(error, _)| error)
}

fn publish(stream: Stream) -> std::result::Result<*mut DIR, (Errno, Stream)> {
    let new = Box::into_raw(Box::new(Mutex::new(stream)));
    for place in &STREAMS {
        if place.load(Ordering::Relaxed).is_null()
            && place.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return Ok((&raw const *place).cast_mut().cast());
        }
    }
    // SAFETY: made above, and nobody else has seen it.
    let stream = unsafe { Box::from_raw(new) };
    Err((Errno(EMFILE), stream.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// The place that a program's stream is the address of.
fn place(stream: *const DIR) -> Option<&'static AtomicPtr<Mutex<Stream>>> {
    let offset = (stream.addr()).checked_sub(STREAMS.as_ptr().addr())?;
    STREAMS.get(offset / size_of::<AtomicPtr<Mutex<Stream>>>())
}

/// Whether a stream is one of ours.
pub fn is_ours(stream: *const DIR) -> bool {
    place(stream).is_some()
}

/// The stream behind a program's pointer.
fn locked(stream: *const DIR) -> Result<MutexGuard<'static, Stream>> {
    let there = place(stream).ok_or(Errno(EBADF))?.load(Ordering::Acquire);
    // SAFETY: NULL, or from `publish`, and not closed: whoever reads a stream holds it (readdir(3)).
    let stream = unsafe { there.as_ref() }.ok_or(Errno(EBADF))?;
    Ok(stream.lock().unwrap_or_else(PoisonError::into_inner))
}

/// readdir(3).
///
/// # Errors
/// EBADF for a stream that is closed, and the C library's.
pub fn next(stream: *const DIR) -> Result<*mut dirent64> {
    locked(stream)?.next()
}

/// telldir(3).
///
/// # Errors
/// EBADF for a stream that is closed.
pub fn tell(stream: *const DIR) -> Result<c_long> {
    Ok(locked(stream)?.tell())
}

/// seekdir(3).
///
/// # Errors
/// EBADF for a stream that is closed.
pub fn seek(stream: *const DIR, position: c_long) -> Result<()> {
    locked(stream)?.seek(position);
    Ok(())
}

/// rewinddir(3).
///
/// # Errors
/// EBADF for a stream that is closed.
pub fn rewind(stream: *const DIR) -> Result<()> {
    locked(stream)?.rewind();
    Ok(())
}

/// dirfd(3).
///
/// # Errors
/// EBADF for a stream that is closed.
pub fn descriptor(stream: *const DIR) -> Result<RawFd> {
    Ok(locked(stream)?.descriptor())
}

/// closedir(3).
///
/// # Errors
/// EBADF for a stream that is closed, and the C library's.
pub fn close(stream: *const DIR) -> Result<()> {
    let there = place(stream).ok_or(Errno(EBADF))?.swap(null_mut(), Ordering::AcqRel);
    if there.is_null() {
        return Err(Errno(EBADF));
    }
    // SAFETY: from `publish`; whoever closes a stream is the last who uses it (closedir(3)).
    let stream = unsafe { Box::from_raw(there) }.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Under::Kernel { stream: RealStream(stream), .. } = stream.under {
        // SAFETY: the stream is open, and used no more.
        if unsafe { pagewire_real_closedir(stream) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    Ok(())
}
