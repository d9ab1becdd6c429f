//! What kinds of memory a process has where, by `/proc/PID/smaps`, remembered for a while.
//!
//! Nobody else tells whether a page that is absent comes at once: an untouched page and one that userfaultfd(2) watches look alike
//! to mincore(2) and in pagemap. To ask takes from tenths of a millisecond to many milliseconds, as the kernel looks at every page
//! that is present, so that only threads ask for which nobody waits.

use crate::cgroup::{has_limit, swap_is_used};
use crate::clock::tick;
use crate::limits::{LEAST_KNOWLEDGE, MOST_KNOWLEDGE, SHARE_OF_LEARNING};
use crate::{Segment, Uncancelled};
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::time::Instant;

/// How the pages of a mapping come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingKind {
    /// Private memory without a file. Pages that were never written are filled with zeros; others may be swapped out.
    Anonymous,
    /// Shared memory without a file on a disk: likewise, but a page that was swapped out looks as if it had never been written.
    Shared,
    /// A file's.
    File,
    /// Somebody in user space is asked for them (userfaultfd), or a device; huge pages of their own file system.
    Other,
}

/// What was learnt of one process.
#[derive(Debug, Default)]
pub struct Mappings {
    known: RwLock<KnownMappings>,
    /// Held by whoever asks the kernel.
    learning: Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownMappings {
    /// In order of address.
    ranges: Vec<Mapping>,
    /// Swap is in use on this machine.
    swap: bool,
    /// And the process is in a memory cgroup with a limit.
    limited: bool,
    /// The tick up to which it is fresh.
    until: u64,
    /// The tick from which on it is worth while to ask again for what was not known.
    again: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    kind: MappingKind,
}

/// How the pages of one piece of memory come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    pub kind: MappingKind,
    /// Pages may have been swapped out: swap is in use on this machine.
    pub swap: bool,
}

impl Mappings {
    /// How the pages of a segment come, where all of it is of one kind. `None`: not known, or not any more: what was learnt of private
    /// memory is believed for so many nanoseconds after it was fresh.
    pub fn nature(&self, segment: Segment, grace: u64) -> Option<Nature> {
        let known = self.known.read();
        let kind = known.kind(segment)?;
        let grace = if kind == MappingKind::Anonymous { grace } else { 0 };
        if known.until.saturating_add(grace) <= tick() {
            return None;
        }
        Some(Nature { kind, swap: known.swap })
    }

    /// Whether to ask the kernel about a segment: what is known is not fresh, or has nothing of it and was not learnt just now.
    pub fn wants_learning(&self, segment: Segment) -> bool {
        let (known, now) = (self.known.read(), tick());
        known.until <= now || known.again <= now && known.kind(segment).is_none()
    }

    /// Whether pages of a segment, some at least, are known to come from somebody in user space. What was learnt long ago counts, too.
    pub fn has_other(&self, segment: Segment) -> bool {
        let end = segment.address.saturating_add(segment.length);
        let known = self.known.read();
        let first = known.ranges.partition_point(|mapping| mapping.end <= segment.address);
        let mut within = known.ranges[first..].iter().take_while(|mapping| mapping.start < end);
        within.any(|mapping| mapping.kind == MappingKind::Other)
    }

    /// Whether the process was in a memory cgroup with a limit, and swap in use, when that was last looked at.
    pub fn swaps_at_a_limit(&self) -> bool {
        self.known.read().limited
    }

    /// Asks the kernel, unless another thread is just doing so. Takes as long as that takes.
    ///
    /// # Errors
    /// Where the lists cannot be read: nothing is known then.
    pub fn learn(&self, pid: i32) -> io::Result<()> {
        let Some(_learning) = self.learning.try_lock() else { return Ok(()) };
        let _uncancelled = Uncancelled::begin();
        let began = Instant::now();
        let ranges = File::open(format!("/proc/{pid}/smaps")).and_then(|list| parse(BufReader::new(list)));
        // Without /proc/swaps there may be swap.
        let swap = swap_is_used().unwrap_or(true);
        let limited = swap && has_limit(pid);
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (now, again) = (tick(), took.saturating_mul(SHARE_OF_LEARNING / 10));
        let until = now + took.saturating_mul(SHARE_OF_LEARNING).clamp(LEAST_KNOWLEDGE, MOST_KNOWLEDGE);
        let (ranges, failed) = match ranges {
            Ok(ranges) => (ranges, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        *self.known.write() = KnownMappings { ranges, swap, limited, until, again: now + again };
        failed.map_or(Ok(()), Err)
    }
}

impl KnownMappings {
    fn kind(&self, segment: Segment) -> Option<MappingKind> {
        let end = segment.address.checked_add(segment.length)?;
        let first = self.ranges.partition_point(|mapping| mapping.end <= segment.address);
        let kind = self.ranges.get(first)?.kind;
        let mut at = segment.address;
        for mapping in &self.ranges[first..] {
            if mapping.start > at || mapping.kind != kind {
                return None;
            }
            at = mapping.end;
            if at >= end {
                return Some(kind);
            }
        }
        None
    }
}

/// Reads the form that proc_pid_smaps(5) describes: of each mapping a line as in `maps`, lines of sizes, and one of flags.
fn parse(list: impl BufRead) -> io::Result<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in list.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some(last) = mappings.last_mut().filter(|_| flags.split_whitespace().any(comes_otherwise))
            {
                last.kind = MappingKind::Other;
            }
        } else if let Some(mapping) = maps_line(&line) {
            let MapsLine { start, end, .. } = mapping;
            mappings.push(Mapping { start, end, kind: mapping.kind() });
        }
    }
    Ok(mappings)
}

/// Flags of mappings whose pages userfaultfd watches (missing, write-protected, minor), of devices, and of huge pages.
fn comes_otherwise(flag: &str) -> bool {
    matches!(flag, "um" | "uw" | "ui" | "io" | "pf" | "ht")
}

/// The first line of a mapping: `start-end rights offset device inode name`.
pub(crate) struct MapsLine<'l> {
    pub start: u64,
    /// After its last byte.
    pub end: u64,
    pub is_shared: bool,
    /// Major and minor number.
    pub device: (u32, u32),
    pub inode: &'l str,
    name: &'l str,
}

impl MapsLine<'_> {
    /// How its pages come, if nobody in user space gives them.
    pub fn kind(&self) -> MappingKind {
        let shared_memory = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"];
        match self.is_shared {
            false if self.inode == "0" => MappingKind::Anonymous,
            true if shared_memory.iter().any(|start| self.name.starts_with(start)) => MappingKind::Shared,
            _ => MappingKind::File,
        }
    }
}

/// Reads a line of proc_pid_maps(5). `None`: it is none.
pub(crate) fn maps_line(line: &str) -> Option<MapsLine<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let is_shared = *words.next()?.as_bytes().get(3)? == b's';
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = words.next()?;
    let name = words.next().unwrap_or_default();
    (start < end).then_some(MapsLine { start, end, is_shared, device, inode, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIST: &str = "\
10000-12000 rw-p 00000000 00:00 0 [heap]
Size:                  8 kB
VmFlags: rd wr mr mw me ac sd
12000-13000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me um ac
13000-14000 rw-s 00000000 00:01 77 /memfd:slab (deleted)
VmFlags: rd wr sh mr mw me ms sd
14000-15000 r--p 00001000 08:01 5 /usr/lib/libc.so.6
VmFlags: rd mr mw me sd
16000-18000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac sd
18000-19000 rw-p 00000000 00:00 0 [anon:a name]
VmFlags: rd wr mr mw me ac sd
";

    fn known() -> KnownMappings {
        KnownMappings { ranges: parse(LIST.as_bytes()).unwrap(), ..KnownMappings::default() }
    }

    fn kind(address: u64, length: u64) -> Option<MappingKind> {
        known().kind(Segment { address, length })
    }

    #[test]
    fn each_mapping_has_its_kind() {
        assert_eq!(kind(0x10000, 0x2000), Some(MappingKind::Anonymous));
        assert_eq!(kind(0x12fff, 1), Some(MappingKind::Other), "userfaultfd watches it");
        assert_eq!(kind(0x13000, 0x1000), Some(MappingKind::Shared));
        assert_eq!(kind(0x14000, 8), Some(MappingKind::File));
        assert_eq!(kind(0x17000, 0x2000), Some(MappingKind::Anonymous), "two that follow each other");
    }

    #[test]
    fn what_is_of_two_kinds_or_not_mapped_is_not_known() {
        assert_eq!(kind(0x11fff, 2), None);
        assert_eq!(kind(0x14fff, 0x1002), None, "a hole");
        assert_eq!(kind(0x15000, 1), None);
        assert_eq!(kind(0x18fff, 2), None, "beyond the last");
        assert_eq!(kind(u64::MAX, 2), None);
    }

    #[test]
    fn a_piece_that_is_watched_in_part_is_watched() {
        let mappings = Mappings { known: RwLock::new(known()), ..Mappings::default() };
        let has = |address, length| mappings.has_other(Segment { address, length });
        assert!(has(0x11fff, 2) && has(0x12000, 1) && has(0x12fff, 0x2000));
        assert!(!has(0x10000, 0x2000) && !has(0x13000, 0x1000) && !has(0x19000, 0x1000));
    }

    #[test]
    fn learn_finds_own_mappings() {
        let page = rustix::param::page_size() as u64;
        let bytes = vec![1u8; 4 * page as usize];
        let segment = Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 };
        let mappings = Mappings::default();
        assert_eq!(mappings.nature(segment, 0), None, "nothing was learnt yet");
        mappings.learn(std::process::id() as i32).unwrap();
        assert_eq!(mappings.nature(segment, 0).map(|nature| nature.kind), Some(MappingKind::Anonymous));
        let code = Segment { address: maps_line as *const () as u64, length: 1 };
        assert_eq!(mappings.nature(code, 0).map(|nature| nature.kind), Some(MappingKind::File));
    }

    proptest! {
        #[test]
        fn no_list_of_bytes_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes[..]);
        }

        #[test]
        fn a_segment_has_the_kind_that_each_of_its_pages_has(from in 0xfu64..0x1b, pages in 1u64..6) {
            let page = 0x1000;
            let each: Vec<_> = (from..from + pages).map(|at| kind(at * page, page)).collect();
            let all = each[0].filter(|first| each.iter().all(|kind| *kind == Some(*first)));
            prop_assert_eq!(kind(from * page, pages * page), all);
        }
    }
}
