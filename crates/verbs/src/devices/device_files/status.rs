//! What stat(2), statx(2) and access(2) say of the tree's nodes.

use super::layout::{DeviceTree, FileContent};
use super::tree::{NodeId, NodeKind, TreeNode};
use crate::boundary::{Errno, Result};
use libc::{AT_EACCESS, EACCES, S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG, STATX_BASIC_STATS, W_OK, X_OK, c_int};
use rustix::fs::{major, makedev, minor, stat};
use std::sync::atomic::{AtomicI64, Ordering};

/// Bytes that sysfs gives each of its files.
const FILE_SIZE: i64 = 4096;
const BLOCK_SIZE: i64 = 4096;
/// Bytes of the blocks that stat(2) counts.
const COUNTED_BLOCK: i64 = 512;

/// What is asked by whatever call.
struct Status {
    device: u64,
    inode: u64,
    mode: u32,
    links: u64,
    user: u32,
    group: u32,
    number: u64,
    size: i64,
    born: libc::timespec,
}

impl Status {
    /// Blocks for the whole size, where sysfs says 0: cp(1) looks for holes in a file with fewer. It would find the end of the
    /// anonymous file, and pad the copy to the size.
    fn blocks(&self) -> i64 {
        self.size / COUNTED_BLOCK
    }
}

/// A number for a node that no other node has, and hardly a file of the kernel's.
pub fn inode(path: &str) -> u64 {
    // FNV-1a; its upper half is far above the numbers that sysfs counts up to.
    let hash = path.bytes().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    hash & 0x7FFF_FFFF_FFFF | 1 << 47
}

/// When this process first looked.
fn born() -> libc::timespec {
    // Nanoseconds; 0: not yet. No lock: a forked child may find it taken by a thread that it does not have.
    static BORN: AtomicI64 = AtomicI64::new(0);
    const SECOND: i64 = 1_000_000_000;
    let mut born = BORN.load(Ordering::Relaxed);
    if born == 0 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = now.tv_sec * SECOND + now.tv_nsec;
        born = BORN
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|born| born, |_| now);
    }
    libc::timespec { tv_sec: born / SECOND, tv_nsec: born % SECOND }
}

fn of(tree: &DeviceTree, id: NodeId) -> Status {
    let node = tree.node(id);
    // File system and owner are those of what the kernel has there.
    let above = if node.path.starts_with("/dev") { "/dev" } else { "/sys" };
    let above = stat(above).or_else(|_| stat("/")).ok();
    let (mode, size) = mode_and_size(node);
    let number = match node.kind {
        NodeKind::CharacterDevice { major, minor } => makedev(major, minor),
        _ => 0,
    };
    Status {
        device: above.map_or(0, |above| above.st_dev),
        inode: inode(&node.path),
        mode,
        links: if node.is_directory() { 2 + tree.directories_in(id) as u64 } else { 1 },
        user: above.map_or(0, |above| above.st_uid),
        group: above.map_or(0, |above| above.st_gid),
        number,
        size,
        born: born(),
    }
}

fn mode_and_size(node: &TreeNode<FileContent>) -> (u32, i64) {
    match node.kind {
        NodeKind::Directory { .. } => (S_IFDIR | 0o755, 0),
        NodeKind::File(_) => (S_IFREG | 0o444, FILE_SIZE),
        NodeKind::Link(_) => (S_IFLNK | 0o777, 0),
        NodeKind::CharacterDevice { .. } => (S_IFCHR | 0o666, 0),
    }
}

/// stat(2).
pub fn simple(tree: &DeviceTree, id: NodeId) -> libc::stat {
    let of = of(tree, id);
    // SAFETY: zero is a valid value of each field, all of which are numbers.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    status.st_dev = of.device;
    status.st_ino = of.inode;
    status.st_mode = of.mode;
    status.st_nlink = of.links as libc::nlink_t;
    status.st_uid = of.user;
    status.st_gid = of.group;
    status.st_rdev = of.number;
    status.st_size = of.size;
    status.st_blksize = BLOCK_SIZE as libc::blksize_t;
    status.st_blocks = of.blocks();
    (status.st_atime, status.st_atime_nsec) = (of.born.tv_sec, of.born.tv_nsec);
    (status.st_mtime, status.st_mtime_nsec) = (of.born.tv_sec, of.born.tv_nsec);
    (status.st_ctime, status.st_ctime_nsec) = (of.born.tv_sec, of.born.tv_nsec);
    status
}

/// statx(2).
pub fn extended(tree: &DeviceTree, id: NodeId) -> libc::statx {
    let of = of(tree, id);
    let time = || {
        // SAFETY: zero is a valid value of each field, all of which are numbers.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        time.tv_sec = of.born.tv_sec;
        time.tv_nsec = of.born.tv_nsec as u32;
        time
    };
    // SAFETY: zero is a valid value of each field, all of which are numbers.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    status.stx_mask = STATX_BASIC_STATS;
    status.stx_blksize = BLOCK_SIZE as u32;
    status.stx_nlink = of.links as u32;
    status.stx_uid = of.user;
    status.stx_gid = of.group;
    status.stx_mode = of.mode as u16;
    status.stx_ino = of.inode;
    status.stx_size = of.size as u64;
    status.stx_blocks = of.blocks() as u64;
    (status.stx_atime, status.stx_mtime, status.stx_ctime) = (time(), time(), time());
    (status.stx_dev_major, status.stx_dev_minor) = (major(of.device), minor(of.device));
    (status.stx_rdev_major, status.stx_rdev_minor) = (major(of.number), minor(of.number));
    status
}

/// access(2), and faccessat(2) with `flags`.
///
/// # Errors
/// EACCES.
pub fn access(tree: &DeviceTree, id: NodeId, mode: c_int, flags: c_int) -> Result<()> {
    let (permissions, _) = mode_and_size(tree.node(id));
    let effective = flags & AT_EACCESS != 0;
    let root = if effective { rustix::process::geteuid() } else { rustix::process::getuid() }.is_root();
    // All others are neither its owner nor in its group. Root may do all but execute what nobody may.
    let may_write = permissions & 0o002 != 0 || root;
    let may_execute = permissions & 0o001 != 0;
    if mode & W_OK != 0 && !may_write || mode & X_OK != 0 && !may_execute {
        return Err(Errno(EACCES));
    }
    Ok(())
}
