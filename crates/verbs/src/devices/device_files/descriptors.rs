//! Descriptors of the tree's files: sealed anonymous files (memfd_create(2)) whose names say which node they stand for.
//!
//! A file has the node's content as it was when it was opened. That of a directory is empty, and its descriptor is open for writing, so
//! that reading from it fails (with EBADF; the kernel has EISDIR); its position is that among the records that getdents64(2) gives.

use super::layout::{DeviceTree, FileContent};
use super::tree::{NodeId, NodeKind, TreeNode};
use super::{kernel, status};
use crate::boundary::{Errno, Result};
use crate::connection_manager;
use libc::{
    EACCES, EEXIST, EINVAL, EISDIR, ELOOP, ENOTDIR, EOPNOTSUPP, O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY,
    O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE, O_TRUNC, O_WRONLY, c_int,
};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, open, seek};
use rustix::io::{DupFlags, Errno as SystemError, dup3, write};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is before a node's path in the name of its descriptor's file.
const PREFIX: &str = "pagewire:";

/// Whether this process has opened a file of the tree: before that no descriptor is one. Read by the wrappers in C.
#[unsafe(no_mangle)]
pub static PAGEWIRE_DEVICE_FILES_OPENED: AtomicBool = AtomicBool::new(false);

/// The device number of anonymous files.
static FILE_SYSTEM: AtomicU64 = AtomicU64::new(0);

/// The path of the node that a descriptor stands for.
pub fn path_of(descriptor: RawFd) -> Option<Vec<u8>> {
    if descriptor < 0 || !PAGEWIRE_DEVICE_FILES_OPENED.load(Ordering::Acquire) {
        return None;
    }
    if connection_manager::is_channel(descriptor) {
        return Some(connection_manager::DEVICE_FILE.into());
    }
    // SAFETY: only asked what it is; a number that is no descriptor is refused (EBADF).
    let file_system = kernel::file_system_of(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
    if file_system != FILE_SYSTEM.load(Ordering::Relaxed) {
        return None;
    }
    let name = kernel::name_of(descriptor)?;
    let name = name.strip_prefix(b"/memfd:")?.strip_prefix(PREFIX.as_bytes())?;
    Some(name.strip_suffix(b" (deleted)").unwrap_or(name).to_vec())
}

/// open(2) of a node.
///
/// # Errors
/// As for a file of sysfs, which nobody may write: EACCES for that.
pub fn open_node(tree: &DeviceTree, id: NodeId, flags: c_int) -> Result<RawFd> {
    let node = tree.node(id);
    refuse(node, flags)?;
    if node.path == connection_manager::DEVICE_FILE && flags & O_PATH == 0 {
        let channel = connection_manager::open_channel(flags)?;
        PAGEWIRE_DEVICE_FILES_OPENED.store(true, Ordering::Release);
        return Ok(channel);
    }
    let bytes = match &node.kind {
        NodeKind::File(content) if flags & O_PATH == 0 => content.text().into_bytes(),
        _ => Vec::new(),
    };
    let file = anonymous(&node.path, &bytes)?;
    let access = if node.is_directory() { O_WRONLY } else { 0 };
    reopen(file, flags | access)
}

/// What open(2) of something that exists refuses.
fn refuse(node: &TreeNode<FileContent>, flags: c_int) -> Result<()> {
    let has = |flag| flags & flag == flag;
    let writes = flags & O_ACCMODE != O_RDONLY || has(O_TRUNC);
    let refused = match &node.kind {
        _ if !has(O_PATH) && has(O_CREAT | O_EXCL) => Some(EEXIST),
        NodeKind::Link(_) if has(O_DIRECTORY) => Some(ENOTDIR),
        // Only without following it a link is what is opened.
        NodeKind::Link(_) if has(O_PATH) => None,
        NodeKind::Link(_) => Some(ELOOP),
        NodeKind::File(_) | NodeKind::CharacterDevice { .. } if has(O_DIRECTORY) => Some(ENOTDIR),
        _ if has(O_PATH) => None,
        NodeKind::Directory { .. } if has(O_TMPFILE) => Some(EOPNOTSUPP),
        NodeKind::Directory { .. } if writes || has(O_CREAT) => Some(EISDIR),
        NodeKind::File(_) if writes => Some(EACCES),
        _ => None,
    };
    refused.map_or(Ok(()), |error| Err(Errno(error)))
}

/// A sealed anonymous file.
fn anonymous(path: &str, bytes: &[u8]) -> Result<OwnedFd> {
    let name = format!("{PREFIX}{path}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(name.as_str(), flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(SystemError::INVAL) => memfd_create(name.as_str(), flags)?,
        made => made?,
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[write(&file, rest)?..];
    }
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    if let Some(file_system) = kernel::file_system_of(file.as_fd()) {
        FILE_SYSTEM.store(file_system, Ordering::Relaxed);
    }
    PAGEWIRE_DEVICE_FILES_OPENED.store(true, Ordering::Release);
    Ok(file)
}

/// Opens an anonymous file as `flags` say, under its number: the lowest that was free.
fn reopen(file: OwnedFd, flags: c_int) -> Result<RawFd> {
    let kept = flags & !(O_CREAT | O_EXCL | O_TRUNC | O_DIRECTORY | O_NOFOLLOW);
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = open(name, OFlags::from_bits_retain(kept as u32), Mode::empty())?;
    let mut target = file;
    let cloexec = if flags & O_CLOEXEC != 0 { DupFlags::CLOEXEC } else { DupFlags::empty() };
    dup3(&again, &mut target, cloexec)?;
    Ok(target.into_raw_fd())
}

/// The records of a directory as getdents64(2) gives them.
pub fn records(tree: &DeviceTree, id: NodeId) -> Vec<u8> {
    let mut records = Vec::new();
    add_record(&mut records, tree.node(id), ".");
    add_record(&mut records, tree.node(tree.node(id).parent), "..");
    records.append(&mut entries(tree, id, |_| true));
    records
}

/// The records of what is in a directory and wanted.
pub fn entries(tree: &DeviceTree, id: NodeId, is_wanted: impl Fn(&TreeNode<FileContent>) -> bool) -> Vec<u8> {
    let mut records = Vec::new();
    if let NodeKind::Directory { entries, .. } = &tree.node(id).kind {
        for (name, entry) in entries {
            let node = tree.node(*entry);
            if is_wanted(node) {
                add_record(&mut records, node, name);
            }
        }
    }
    records
}

/// Bytes before the name in `struct linux_dirent64`: inode, offset, length, type.
const HEADER: usize = 8 + 8 + 2 + 1;

fn add_record(records: &mut Vec<u8>, node: &TreeNode<FileContent>, name: &str) {
    let length = (HEADER + name.len() + 1).next_multiple_of(8);
    let end = records.len() + length;
    records.extend(status::inode(&node.path).to_ne_bytes());
    records.extend((end as u64).to_ne_bytes());
    records.extend((length as u16).to_ne_bytes());
    records.push(match node.kind {
        NodeKind::Directory { .. } => libc::DT_DIR,
        NodeKind::File(_) => libc::DT_REG,
        NodeKind::Link(_) => libc::DT_LNK,
        NodeKind::CharacterDevice { .. } => libc::DT_CHR,
    });
    records.extend(name.as_bytes());
    records.resize(end, 0);
}

/// The length of the record at the beginning of some.
pub fn record_length(records: &[u8]) -> usize {
    records.get(16..18).map_or(0, |length| usize::from(u16::from_ne_bytes([length[0], length[1]])))
}

/// The name in the record at the beginning of some.
pub fn record_name(records: &[u8]) -> Option<&CStr> {
    CStr::from_bytes_until_nul(records.get(HEADER..record_length(records))?).ok()
}

/// getdents64(2) of a directory's descriptor.
///
/// # Errors
/// EINVAL where not even one record fits, and the kernel's.
///
/// # Safety
/// There are `room` bytes at `buffer`.
pub unsafe fn next_records(
    tree: &DeviceTree,
    id: NodeId,
    descriptor: RawFd,
    buffer: *mut u8,
    room: usize,
) -> Result<usize> {
    if !tree.node(id).is_directory() {
        return Err(Errno(ENOTDIR));
    }
    // SAFETY: the caller's descriptor, which is used during the call only.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let position = seek(descriptor, SeekFrom::Current(0))?;
    let records = records(tree, id);
    let rest = records.get(position as usize..).unwrap_or_default();
    let mut length = 0;
    while length < rest.len() && length + record_length(&rest[length..]) <= room {
        length += record_length(&rest[length..]);
    }
    if length == 0 && !rest.is_empty() {
        return Err(Errno(EINVAL));
    }
    // SAFETY: `length` is at most `room`, and at most what `rest` has.
    unsafe { buffer.copy_from_nonoverlapping(rest.as_ptr(), length) };
    seek(descriptor, SeekFrom::Start(position + length as u64))?;
    Ok(length)
}

/// Takes a descriptor over.
///
/// # Safety
/// The caller gives it away.
pub unsafe fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the caller gives the descriptor away, so nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
