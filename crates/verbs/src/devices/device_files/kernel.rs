//! The kernel's own files, by bare system calls: those of the C library come by the wrappers of this library again.

use super::attributes::{mask, parse_list};
use super::resolve::{Kernel, KernelNode};
use crate::limits::MAX_SMALL_FILE;
use pagewire_nic::device::Device;
use rustix::fs::{FileType, Mode, OFlags, fstat, lstat, open, readlink, stat};
use rustix::io::read;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where the kernel has its own verbs devices, and the tree the others.
pub const VERBS: &str = "/sys/class/infiniband_verbs";

/// The file system of this process.
pub struct Files;

impl Kernel for Files {
    fn look(&self, path: &[u8]) -> KernelNode {
        match lstat(path).map(|status| FileType::from_raw_mode(status.st_mode)) {
            Ok(FileType::Directory) => KernelNode::Directory,
            Ok(FileType::Symlink) => link(path).map_or(KernelNode::Other, KernelNode::Link),
            _ => KernelNode::Other,
        }
    }
}

/// The target of a link, if that is a path. Links in procfs may lead where no path does (proc(5)).
fn link(path: &[u8]) -> Option<Vec<u8>> {
    let target = readlink(path, Vec::new()).ok()?.into_bytes();
    if path.starts_with(b"/proc/") && target.starts_with(b"/") {
        let (here, there) = (stat(path).ok()?, stat(target.as_slice()).ok()?);
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
            return None;
        }
    }
    Some(target)
}

/// What the kernel says of a descriptor's file: its path, or a name of another kind.
pub fn name_of(descriptor: i32) -> Option<Vec<u8>> {
    Some(readlink(format!("/proc/self/fd/{descriptor}"), Vec::new()).ok()?.into_bytes())
}

/// The device number of the file system that a descriptor's file is in.
pub fn file_system_of(descriptor: BorrowedFd<'_>) -> Option<u64> {
    Some(fstat(descriptor).ok()?.st_dev)
}

/// The path of a directory, by its descriptor, if it is in a file system in which the tree may have something, too.
pub fn shared_directory(descriptor: i32) -> Option<Vec<u8>> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: not -1; only asked what it is, and a number that is no descriptor is refused (EBADF).
    let file_system = file_system_of(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
    let of = |path: &str, known: &AtomicU64| match known.load(Ordering::Relaxed) {
        0 => {
            let found = stat(path).map_or(u64::MAX, |status| status.st_dev);
            known.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    };
    static SYSFS: AtomicU64 = AtomicU64::new(0);
    static DEVICES: AtomicU64 = AtomicU64::new(0);
    let is_shared = file_system == of("/sys", &SYSFS) || file_system == of("/dev", &DEVICES);
    if is_shared { name_of(descriptor) } else { None }
}

/// The current directory, if it has a path.
pub fn current_directory() -> Option<Vec<u8>> {
    let path = rustix::process::getcwd(Vec::new()).ok()?.into_bytes();
    path.starts_with(b"/").then_some(path)
}

/// The content of a small file.
fn content(path: &Path) -> Option<String> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0; MAX_SMALL_FILE];
    let length = read(file.as_fd(), &mut bytes).ok()?;
    String::from_utf8(bytes[..length].to_vec()).ok()
}

/// Whether the kernel has something at a path.
pub fn exists(path: &str) -> bool {
    lstat(path).is_ok()
}

/// The names in a directory; none if there is no such directory.
pub fn names_in(path: &str) -> Vec<String> {
    let Ok(directory) = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    else {
        return Vec::new();
    };
    let Ok(entries) = rustix::fs::Dir::new(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| name != "." && name != "..").collect()
}

/// The number in `uverbsN` of a device: behind those of the kernel's own devices, which stay visible.
pub fn uverbs_number(device: &Device) -> u32 {
    // It never changes while the process lives. No lock: a forked child may find it taken by a thread that it does not have.
    static FIRST: AtomicU32 = AtomicU32::new(UNKNOWN);
    const UNKNOWN: u32 = u32::MAX;
    let mut first = FIRST.load(Ordering::Relaxed);
    if first == UNKNOWN {
        let number = |name: String| name.strip_prefix("uverbs")?.parse::<u16>().ok();
        let numbers = names_in(VERBS).into_iter().filter_map(number);
        let found = numbers.map(|number| u32::from(number) + 1).max().unwrap_or(0);
        first = match FIRST.compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => found,
            Err(first) => first,
        };
    }
    first + device.index
}

/// The directory in sysfs of a network device, if sysfs shows this network namespace.
pub fn interface(device: &Device) -> Option<PathBuf> {
    let interface = Path::new("/sys/class/net").join(&device.interface);
    let index = content(&interface.join("ifindex"))?;
    (index.trim().parse() == Ok(device.interface_index)).then_some(interface)
}

/// The directory in sysfs of what the network device sits on, if that is known, and if it sits on anything.
fn hardware(device: &Device) -> Option<PathBuf> {
    let interface = interface(device)?;
    // `device` is a link beside the directory that it names.
    let link = readlink(interface.join("device"), Vec::new()).ok()?.into_bytes();
    let name = Path::new(OsStr::from_bytes(&link)).file_name()?.to_owned();
    let place = readlink(&interface, Vec::new()).ok()?.into_bytes();
    let place = Path::new("/sys/class/net").join(OsStr::from_bytes(&place));
    place.ancestors().find(|above| above.file_name() == Some(&name)).map(Path::to_owned)
}

/// A file of the hardware, or of what it is part of.
fn hardware_file(device: &Device, name: &str) -> Option<String> {
    let hardware = hardware(device)?;
    let within = hardware.ancestors().take_while(|above| above.file_name() != Some(OsStr::new("devices")));
    within.into_iter().find_map(|directory| content(&directory.join(name)))
}

/// The NUMA node that the network device's hardware is at; -1 where there is none, as the kernel says it.
pub fn numa_node(device: &Device) -> String {
    hardware_file(device, "numa_node").unwrap_or_else(|| "-1\n".into())
}

/// CPUs near the network device's hardware, as a list and as a mask; all that are online where it has no place of its own.
pub fn local_cpus(device: &Device) -> (String, String) {
    let system = |file: &str| content(&Path::new("/sys/devices/system/cpu").join(file));
    let near = hardware_file(device, "local_cpulist").filter(|list| !list.trim().is_empty());
    let list = near.or_else(|| system("online")).unwrap_or_else(|| "0\n".into());
    let possible = system("possible").map_or(1, |list| parse_list(&list).last().map_or(1, |last| last + 1));
    let mask = mask(&parse_list(&list), possible);
    (list, mask)
}
