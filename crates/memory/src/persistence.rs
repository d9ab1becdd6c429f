//! Memory that outlives a loss of power: shared mappings of files, once they are synced (msync(2)).

use crate::fork::PerProcess;
use crate::mappings::{MappingKind, MapsLine, maps_line};
use crate::{Segment, SyncError, Uncancelled};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// File systems whose files are gone after a loss of power.
const VOLATILE: [&str; 5] = ["tmpfs", "ramfs", "hugetlbfs", "devtmpfs", "rootfs"];

/// A file by its device and its inode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileIdentity {
    device: (u32, u32),
    inode: String,
}

/// The files that are being synced, and for the life of the process those that the kernel could not write: it tells a failure once, and
/// forgets the bytes that it has lost.
static FILES: PerProcess<SyncedFiles> = PerProcess::new();

/// See [`FILES`].
#[derive(Debug, Default)]
struct SyncedFiles(BTreeMap<FileIdentity, Arc<SyncedFile>>);

#[derive(Debug, Default)]
struct SyncedFile {
    /// Held while the file is synced: the error comes to one of several syncs, and each has to know it.
    syncing: Mutex<()>,
    /// The error number of a sync that has failed; 0: none has.
    error: AtomicI32,
}

impl SyncedFile {
    /// # Errors
    /// That of an earlier sync.
    fn check(&self) -> Result<(), SyncError> {
        match self.error.load(Ordering::Acquire) {
            0 => Ok(()),
            error => Err(SyncError::Failed(error)),
        }
    }

    /// Notes how a sync has ended.
    fn note(&self, ended: Result<(), SyncError>) {
        if let Err(SyncError::Failed(error)) = ended {
            self.error.store(error, Ordering::Release);
        }
    }
}

impl SyncedFiles {
    /// What is known of these files, in one order for all callers, each once.
    fn of(&mut self, files: BTreeSet<FileIdentity>) -> Vec<Arc<SyncedFile>> {
        self.0.retain(|_, file| Arc::strong_count(file) > 1 || file.check().is_err());
        files.into_iter().map(|file| self.0.entry(file).or_default().clone()).collect()
    }
}

/// Checks that the program has mapped files at all pages of a segment, shared, which are not known to lie in memory.
///
/// # Errors
/// Also the error of an earlier sync of one of these files, for the life of the process: bytes of it may be lost.
pub fn check(segment: Segment) -> Result<(), SyncError> {
    let files = files_of(segment)?;
    let files = FILES.lock().of(files);
    files.iter().try_for_each(|file| file.check())
}

/// Has the kernel write the pages of a segment to their files, and waits until they are there.
///
/// # Errors
/// As [`check`].
pub fn sync(segment: Segment) -> Result<(), SyncError> {
    let files = files_of(segment)?;
    let files = FILES.lock().of(files);
    let _syncing: Vec<_> = files.iter().map(|file| file.syncing.lock()).collect();
    files.iter().try_for_each(|file| file.check())?;
    let (start, end) = pages_of(segment)?;
    let address = std::ptr::without_provenance_mut(start as usize);
    // SAFETY: msync(2) changes no byte and no mapping. It reads no memory of the caller's: pages that are not mapped are an error.
    let ended = match unsafe { libc::msync(address, (end - start) as usize, libc::MS_SYNC) } {
        0 => Ok(()),
        _ => Err(failed(io::Error::last_os_error())),
    };
    files.iter().for_each(|file| file.note(ended));
    ended
}

/// The files that are mapped at the pages of a segment.
fn files_of(segment: Segment) -> Result<BTreeSet<FileIdentity>, SyncError> {
    let _uncancelled = Uncancelled::begin();
    let open = |name| File::open(name).map(BufReader::new).map_err(failed);
    let volatile = volatile_devices(open("/proc/self/mountinfo")?).map_err(failed)?;
    files_in(open("/proc/self/maps")?, &volatile, pages_of(segment)?)
}

fn failed(error: io::Error) -> SyncError {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => SyncError::NotMapped,
        other => SyncError::Failed(other.unwrap_or(libc::EIO)),
    }
}

/// The pages that a segment lies in: their first byte, and the one behind them.
fn pages_of(segment: Segment) -> Result<(u64, u64), SyncError> {
    let page = rustix::param::page_size() as u64;
    let end = segment.address.checked_add(segment.length).and_then(|end| end.checked_next_multiple_of(page));
    Ok((segment.address / page * page, end.ok_or(SyncError::NotMapped)?))
}

/// The devices of mounts (proc_pid_mountinfo(5)) whose files lie in memory.
fn volatile_devices(mounts: impl BufRead) -> io::Result<Vec<(u32, u32)>> {
    let mut devices = Vec::new();
    for line in mounts.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let device = mount.split(' ').nth(2).and_then(|device| device.split_once(':'));
        let is_volatile = kind.split(' ').next().is_some_and(|kind| VOLATILE.contains(&kind));
        if let (true, Some((major, minor))) = (is_volatile, device)
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
        {
            devices.push((major, minor));
        }
    }
    Ok(devices)
}

/// [`files_of`] by lists of mappings and devices, for whole pages.
fn files_in(
    maps: impl BufRead,
    volatile: &[(u32, u32)],
    (mut start, end): (u64, u64),
) -> Result<BTreeSet<FileIdentity>, SyncError> {
    let mut files = BTreeSet::new();
    for line in maps.split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        let Some(mapping) = maps_line(&line).filter(|mapping| mapping.end > start) else { continue };
        if start >= end {
            return Ok(files);
        }
        if mapping.start > start {
            return Err(SyncError::NotMapped);
        }
        if !is_persistent(&mapping, volatile) {
            return Err(SyncError::Volatile);
        }
        files.insert(FileIdentity { device: mapping.device, inode: mapping.inode.to_owned() });
        start = mapping.end;
    }
    if start >= end { Ok(files) } else { Err(SyncError::NotMapped) }
}

fn is_persistent(mapping: &MapsLine<'_>, volatile: &[(u32, u32)]) -> bool {
    mapping.is_shared && mapping.kind() == MappingKind::File && !volatile.contains(&mapping.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 22 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
31 28 0:25 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,size=1024k
32 28 0:26 / /a\\040place rw - tmpfs none rw
";
    const MAPS: &str = "\
10000-12000 rw-s 00000000 fd:01 77 /data/volume
12000-13000 rw-s 00001000 fd:01 78 /data/other (deleted)
13000-14000 rw-p 00000000 fd:01 77 /data/volume
14000-15000 rw-s 00000000 00:19 79 /run/volume
15000-16000 rw-s 00000000 00:01 80 /memfd:slab (deleted)
16000-17000 rw-p 00000000 00:00 0
18000-19000 rw-s 00000000 fd:01 77 /data/volume
";

    fn checked(start: u64, end: u64) -> Result<(), SyncError> {
        let volatile = volatile_devices(MOUNTS.as_bytes()).unwrap();
        assert_eq!(volatile, [(0, 25), (0, 26)]);
        files_in(MAPS.as_bytes(), &volatile, (start, end)).map(drop)
    }

    #[test]
    fn a_file_that_could_not_be_written_stays_so() {
        let files = |start, end| files_in(MAPS.as_bytes(), &[], (start, end)).unwrap();
        let (volume, other) = (files(0x11000, 0x12000), files(0x12000, 0x13000));
        assert_eq!(files(0x18000, 0x19000), volume, "mapped twice");
        let mut synced = SyncedFiles::default();
        let mut end = |files: &BTreeSet<FileIdentity>, ended| {
            let known = synced.of(files.clone());
            known.iter().for_each(|file| file.note(ended));
            known.iter().try_for_each(|file| file.check())
        };
        // Neither is a failure of the disk.
        assert_eq!(end(&volume, Ok(())), Ok(()));
        assert_eq!(end(&volume, Err(SyncError::NotMapped)), Ok(()));
        let full = Err(SyncError::Failed(libc::ENOSPC));
        assert_eq!(end(&volume, full), full);
        assert_eq!(end(&volume, Ok(())), full);
        assert_eq!(end(&other, Ok(())), Ok(()));
        assert_eq!(end(&files(0x10000, 0x13000), Ok(())), full, "one of two");
        drop(synced.of(other));
        assert_eq!(synced.0.len(), 2, "that nobody syncs is forgotten");
    }

    #[test]
    fn shared_files_on_disks_alone_are_persistent() {
        assert_eq!(checked(0x10000, 0x13000), Ok(()), "two files, one of them without a name");
        assert_eq!(checked(0x18000, 0x19000), Ok(()));
        for private_or_in_memory in [0x13000, 0x14000, 0x15000, 0x16000] {
            let outcome = checked(private_or_in_memory, private_or_in_memory + 0x1000);
            assert_eq!(outcome, Err(SyncError::Volatile), "{private_or_in_memory:#x}");
        }
        assert_eq!(checked(0x12000, 0x14000), Err(SyncError::Volatile), "in part");
    }

    #[test]
    fn holes_are_not_mapped() {
        for (start, end) in [(0x17000, 0x18000), (0x17000, 0x19000), (0x18000, 0x1a000), (0xf000, 0x11000)] {
            assert_eq!(checked(start, end), Err(SyncError::NotMapped), "{start:#x}");
        }
    }

    #[test]
    fn segments_are_whole_pages() {
        let page = rustix::param::page_size() as u64;
        assert_eq!(pages_of(Segment { address: 3 * page + 5, length: page }), Ok((3 * page, 5 * page)));
        assert_eq!(pages_of(Segment { address: u64::MAX, length: 2 }), Err(SyncError::NotMapped));
    }

    #[test]
    fn own_memory_without_a_shared_file_is_not_synced() {
        let bytes = vec![1u8; 2 * rustix::param::page_size()];
        let memory = Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 };
        let code = Segment { address: check as *const () as u64, length: 1 };
        assert_eq!([memory, code].map(sync), [Err(SyncError::Volatile); 2]);
        assert_eq!(sync(Segment { address: 8, length: 8 }), Err(SyncError::NotMapped));
    }
}
