//! Which memory of this process others may write through mappings of their own, so that its page tables do not tell.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// The name of the memory file of a registered heap. Its peers map it, too, and write there only what an access log has.
pub const HEAP_FILE: &str = "pagewire-heap";

/// Ranges of addresses that are mapped shared (mmap(2), MAP_SHARED), in order. Those of registered heaps are left out.
#[derive(Debug, Default)]
pub struct SharedRanges(Vec<Range<u64>>);

impl SharedRanges {
    /// Those that this process has now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn now() -> io::Result<SharedRanges> {
        SharedRanges::parse(BufReader::new(File::open("/proc/self/maps")?))
    }

    /// Whether a range of addresses has bytes of one.
    pub fn touch(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length);
        let first = self.0.partition_point(|range| range.end <= address);
        self.0.get(first).is_some_and(|range| range.start < end)
    }

    /// Reads the form of proc_pid_maps(5): `start-end rights offset device inode name`.
    fn parse(list: impl BufRead) -> io::Result<SharedRanges> {
        let mut ranges = Vec::new();
        for line in list.split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split_ascii_whitespace();
            let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
            let is_heap = words
                .nth(3)
                .and_then(|name| name.strip_prefix("/memfd:"))
                .is_some_and(|name| name == HEAP_FILE);
            if rights.as_bytes().get(3) != Some(&b's') || is_heap {
                continue;
            }
            let address = |text: &str| u64::from_str_radix(text, 16).map_err(io::Error::other);
            let (start, end) = range.split_once('-').ok_or(io::ErrorKind::InvalidData)?;
            ranges.push(address(start)?..address(end)?);
        }
        Ok(SharedRanges(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    #[test]
    fn parse_finds_writable_shared_ranges() {
        const LIST: &str = "\
10000-12000 rw-p 00000000 00:00 0 [heap]
12000-13000 rw-s 00000000 00:01 77 /memfd:slab (deleted)
13000-14000 rw-s 00000000 00:01 78 /memfd:pagewire-heap (deleted)
14000-15000 rw-s 00000000 08:01 5 /tmp/a file
15000-16000 r--p 00001000 08:01 5 /usr/lib/libc.so.6
";
        let ranges = SharedRanges::parse(LIST.as_bytes()).unwrap();
        assert_eq!(ranges.0, [0x12000..0x13000, 0x14000..0x15000]);
        assert!(ranges.touch(0x11fff, 2) && ranges.touch(0x12fff, 1) && ranges.touch(0x10000, u64::MAX));
        assert!(
            !ranges.touch(0x10000, 0x2000) && !ranges.touch(0x13000, 0x1000) && !ranges.touch(0x15000, 1)
        );
    }

    #[test]
    fn own_shared_mapping_is_found() {
        let (page, protection) = (rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
        for (flags, expected) in [(MapFlags::SHARED, true), (MapFlags::PRIVATE, false)] {
            // SAFETY: a new mapping at an address that the kernel chooses.
            let at = unsafe { mmap_anonymous(std::ptr::null_mut(), page, protection, flags) }.unwrap();
            assert_eq!(SharedRanges::now().unwrap().touch(at as u64, 1), expected);
            // SAFETY: the mapping is this test's own.
            unsafe { munmap(at, page) }.unwrap();
        }
    }
}
