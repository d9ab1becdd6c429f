//! What the wrappers in `c/` call. Each finds out first what a path or a descriptor leads to ([`pagewire_find`]), and then
//! asks for what the C library's function gives, by the node's canonical path.

use super::kernel::{self, Files};
use super::layout::ROOTS;
use super::resolve::{Base, Lazy, Resolution, resolve};
use super::streams::{self, RealStream};
use super::tree::{NodeId, NodeKind};
use super::{Busy, are_shown, descriptors, status, tree};
use crate::boundary::{Errno, Result, set_errno, unobserved_number, unobserved_pointer};
use libc::{
    AT_FDCWD, DIR, EFAULT, EINVAL, ENAMETOOLONG, ENOENT, ENOMEM, PATH_MAX, c_char, c_int, c_long, dirent64,
    ssize_t,
};
use std::ffi::CStr;
use std::os::fd::IntoRawFd;

/// The word that every path of the tree has in it.
const WORD: &[u8] = b"infiniband";

/// The path of a node, or one that the kernel has to be asked for, from malloc(3). The caller frees it.
#[repr(C)]
pub struct NodePath {
    path: *mut c_char,
}

/// What [`pagewire_find`] answers; -1 is an error.
const ELSEWHERE: c_int = 0;
const KERNEL: c_int = 1;
const NODE: c_int = 2;
const MISSING: c_int = 3;

/// Runs a call; where it succeeds `errno` is what it was.
fn undisturbed<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: glibc's `__errno_location` gives the calling thread's own variable.
    let before = unsafe { *libc::__errno_location() };
    let result = call();
    if result.is_ok() {
        set_errno(before);
    }
    result
}

/// Runs a call that may look devices up: the files that this thread opens meanwhile are the kernel's.
///
/// # Errors
/// The call's; ENOENT where this thread is in such a call already.
fn busy<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(_busy) = Busy::begin() else { return Err(Errno(ENOENT)) };
    undisturbed(call)
}

/// Fills a place.
///
/// # Safety
/// `place` is valid for a write.
unsafe fn put_path(place: *mut NodePath, path: &[u8]) -> Result<()> {
    if path.len() >= PATH_MAX as usize {
        return Err(Errno(ENAMETOOLONG));
    }
    // SAFETY: malloc(3) has no preconditions.
    let copy = unsafe { libc::malloc(path.len() + 1) }.cast::<u8>();
    if copy.is_null() {
        return Err(Errno(ENOMEM));
    }
    // SAFETY: the copy has the path's bytes and one more; `place` by the caller's promise.
    unsafe {
        copy.copy_from_nonoverlapping(path.as_ptr(), path.len());
        copy.add(path.len()).write(0);
        (*place).path = copy.cast();
    }
    Ok(())
}

/// Where a relative path begins; whether that is ours. None: the path is the kernel's. No memory is allocated then.
fn base_of(directory: c_int, path: &[u8]) -> Option<(Vec<u8>, bool)> {
    if let Some(path) = descriptors::path_of(directory) {
        return Some((path, true));
    }
    if !has_word(path) {
        return None;
    }
    if directory == AT_FDCWD {
        return Some((kernel::current_directory()?, false));
    }
    let name = kernel::name_of(directory)?;
    (name.starts_with(b"/") && !name.ends_with(b" (deleted)")).then_some((name, false))
}

fn has_word(path: &[u8]) -> bool {
    path.windows(WORD.len()).any(|window| window == WORD)
}

fn find(directory: c_int, path: &[u8], follow: bool) -> Result<(Resolution, Vec<u8>)> {
    let elsewhere = Ok((Resolution::Elsewhere, Vec::new()));
    let base = if path.starts_with(b"/") { Some((Vec::new(), false)) } else { base_of(directory, path) };
    let Some((base, is_ours)) = base else { return elsewhere };
    let lazy = Lazy::new(ROOTS, tree);
    let found = resolve(&lazy, &Files, Base { path: &base, is_ours }, path, follow)?;
    let path = match found {
        Resolution::Node(node) => lazy.get().node(node).path.clone().into_bytes(),
        Resolution::Kernel(ref path) => path.clone(),
        Resolution::Missing | Resolution::Elsewhere => Vec::new(),
    };
    Ok((found, path))
}

/// What a path leads to from a directory: ELSEWHERE (it is not ours: the call is the kernel's as it is), KERNEL (the same
/// call for `place`), NODE (the node at `place`), MISSING (nothing, in a directory of ours), or -1 with `errno`.
///
/// # Safety
/// `path` is NUL-terminated; `place` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_find(
    directory: c_int,
    path: *const c_char,
    follow: c_int,
    place: *mut NodePath,
) -> c_int {
    unobserved_number(|| {
        let Some(_busy) = Busy::begin().filter(|_| are_shown()) else { return Ok(ELSEWHERE) };
        undisturbed(|| {
            // SAFETY: the caller promises that `path` is NUL-terminated.
            let path = unsafe { CStr::from_ptr(path) }.to_bytes();
            let (found, path) = find(directory, path, follow != 0)?;
            if matches!(found, Resolution::Node(_) | Resolution::Kernel(_)) {
                // SAFETY: the caller promises that `place` is valid for a write.
                unsafe { put_path(place, &path) }?;
            }
            Ok(match found {
                Resolution::Node(_) => NODE,
                Resolution::Kernel(_) => KERNEL,
                Resolution::Missing => MISSING,
                Resolution::Elsewhere => ELSEWHERE,
            })
        })
    })
}

/// What a descriptor stands for: NODE, or ELSEWHERE.
///
/// # Safety
/// `place` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_find_descriptor(descriptor: c_int, place: *mut NodePath) -> c_int {
    unobserved_number(|| {
        undisturbed(|| {
            let Some(path) = descriptors::path_of(descriptor) else { return Ok(ELSEWHERE) };
            // SAFETY: the caller promises that `place` is valid for a write.
            unsafe { put_path(place, &path) }?;
            Ok(NODE)
        })
    })
}

/// Runs `call` on the node at a canonical path.
///
/// # Safety
/// `path` is NUL-terminated.
unsafe fn on_node<T>(
    path: *const c_char,
    call: impl FnOnce(&super::layout::DeviceTree, NodeId) -> Result<T>,
) -> Result<T> {
    busy(|| {
        // SAFETY: the caller promises that `path` is NUL-terminated.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let tree = tree();
        let node = tree.find(path).ok_or(Errno(ENOENT))?;
        call(&tree, node)
    })
}

/// stat(2) of a node.
///
/// # Safety
/// `path` is NUL-terminated; `into` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_stat(path: *const c_char, into: *mut libc::stat) -> c_int {
    unobserved_number(|| {
        if into.is_null() {
            return Err(Errno(EFAULT));
        }
        // SAFETY: the caller promises that `path` is NUL-terminated.
        let status = unsafe { on_node(path, |tree, node| Ok(status::simple(tree, node))) }?;
        // SAFETY: the caller promises that `into` is NULL or valid for a write, and it is not NULL.
        unsafe { into.write(status) };
        Ok(0)
    })
}

/// statx(2) of a node.
///
/// # Safety
/// `path` is NUL-terminated; `into` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_statx(path: *const c_char, into: *mut libc::statx) -> c_int {
    unobserved_number(|| {
        if into.is_null() {
            return Err(Errno(EFAULT));
        }
        // SAFETY: the caller promises that `path` is NUL-terminated.
        let status = unsafe { on_node(path, |tree, node| Ok(status::extended(tree, node))) }?;
        // SAFETY: the caller promises that `into` is NULL or valid for a write, and it is not NULL.
        unsafe { into.write(status) };
        Ok(0)
    })
}

/// faccessat(2) of a node.
///
/// # Safety
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_access(path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    unobserved_number(|| {
        // SAFETY: the caller promises that `path` is NUL-terminated.
        unsafe { on_node(path, |tree, node| status::access(tree, node, mode, flags)) }?;
        Ok(0)
    })
}

/// open(2) of a node.
///
/// # Safety
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_open(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller promises that `path` is NUL-terminated.
    unobserved_number(|| unsafe { on_node(path, |tree, node| descriptors::open_node(tree, node, flags)) })
}

/// readlink(2) of a node.
///
/// # Safety
/// `path` is NUL-terminated; there are `size` bytes at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_readlink(
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    let length = unobserved_number(|| {
        // SAFETY: the caller promises that `path` is NUL-terminated.
        let target = unsafe {
            on_node(path, |tree, node| match &tree.node(node).kind {
                NodeKind::Link(target) if size > 0 => Ok(target.clone()),
                _ => Err(Errno(EINVAL)),
            })
        }?;
        let length = target.len().min(size);
        // SAFETY: the caller promises `size` bytes at `buffer`, and `length` is not above `size`.
        unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(target.as_ptr(), length) };
        Ok(length as c_int)
    });
    length as ssize_t
}

/// getdents64(2) of a descriptor of the node at `path`.
///
/// # Safety
/// `path` is NUL-terminated; there are `size` bytes at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_getdents(
    path: *const c_char,
    descriptor: c_int,
    buffer: *mut u8,
    size: usize,
) -> ssize_t {
    let length = unobserved_number(|| {
        // SAFETY: the caller promises that `path` is NUL-terminated, and that there are `size` bytes at `buffer`.
        let length = unsafe {
            on_node(path, |tree, node| descriptors::next_records(tree, node, descriptor, buffer, size))
        };
        Ok(length? as c_int)
    });
    length as ssize_t
}

/// opendir(3) of a node.
///
/// # Safety
/// `path` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_opendir(path: *const c_char) -> *mut DIR {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    unobserved_pointer(|| {
        // SAFETY: the caller promises that `path` is NUL-terminated.
        unsafe {
            on_node(path, |tree, node| {
                let descriptor = descriptors::owned(descriptors::open_node(tree, node, flags)?);
                streams::of_descriptor(tree, node, descriptor).map_err(|(error, _)| error)
            })
        }
    })
}

/// fdopendir(3) of a descriptor of the node at `path`; the stream takes the descriptor over.
///
/// # Safety
/// `path` is NUL-terminated; the caller gives the descriptor away where the call succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_node_fdopendir(path: *const c_char, descriptor: c_int) -> *mut DIR {
    unobserved_pointer(|| {
        // SAFETY: the caller promises that `path` is NUL-terminated, and gives the descriptor away; where it fails
        // the descriptor is given back.
        unsafe {
            on_node(path, |tree, node| {
                let stream = streams::of_descriptor(tree, node, descriptors::owned(descriptor));
                stream.map_err(|(error, descriptor)| {
                    let _kept = descriptor.into_raw_fd();
                    error
                })
            })
        }
    })
}

/// The stream of a directory of the kernel's, which is given back, or one that shows what the tree has there, too.
///
/// # Safety
/// `stream` is NULL or the C library's, open, and its only user's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_join_stream(stream: *mut DIR, descriptor: c_int) -> *mut DIR {
    let joined = unobserved_pointer(|| {
        let Some(_busy) = Busy::begin().filter(|_| are_shown()) else { return Ok(stream) };
        undisturbed(|| {
            let Some(path) = kernel::shared_directory(descriptor) else { return Ok(stream) };
            let tree = tree();
            let Some(node) = tree.find(&path).filter(|node| tree.node(*node).is_shared()) else {
                return Ok(stream);
            };
            // SAFETY: the caller promises that `stream` is NULL or the C library's, open, and its only user's.
            streams::of_both(&tree, node, unsafe { RealStream::new(stream) })
        })
    });
    // What the kernel has is shown in any case.
    if joined.is_null() { stream } else { joined }
}

/// Whether a stream is one of ours.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_is_stream(stream: *mut DIR) -> c_int {
    c_int::from(streams::is_ours(stream))
}

/// readdir(3) of a stream of ours.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_stream_next(stream: *mut DIR) -> *mut dirent64 {
    unobserved_pointer(|| undisturbed(|| streams::next(stream)))
}

/// telldir(3) of a stream of ours.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_stream_tell(stream: *mut DIR) -> c_long {
    streams::tell(stream).unwrap_or(-1)
}

/// seekdir(3) of a stream of ours.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_stream_seek(stream: *mut DIR, position: c_long) {
    // seekdir(3) has no errors: a stream that is closed is left alone.
    let _ = streams::seek(stream, position);
}

/// rewinddir(3) of a stream of ours.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_stream_rewind(stream: *mut DIR) {
    // rewinddir(3) has no errors: a stream that is closed is left alone.
    let _ = streams::rewind(stream);
}

/// dirfd(3) of a stream of ours.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_stream_descriptor(stream: *mut DIR) -> c_int {
    unobserved_number(|| streams::descriptor(stream))
}

/// closedir(3) of a stream of ours.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_stream_close(stream: *mut DIR) -> c_int {
    unobserved_number(|| undisturbed(|| streams::close(stream)).map(|()| 0))
}
