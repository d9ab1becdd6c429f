//! Memory that reads as zeros, and memory that is written and never read: what stands for null regions (`ibv_alloc_null_mr(3)`).
//!
//! Peers and the kernel access it as they access any memory of the program. Of the zeros no page is ever allocated. The sink is one
//! piece of shared memory, mapped again and again.

use crate::limits::{NULL_PAGES, SINK_PAGES};
use parking_lot::Mutex;
use std::io;
use std::ptr::null_mut;

/// Where it lies: [`NULL_PAGES`] bytes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullPages {
    /// The zeros.
    pub zeros: u64,
    /// What is written.
    pub sink: u64,
}

/// Those of this process, from their first use to its end. Forked children have them, too, and may use them.
static PAGES: Mutex<Option<NullPages>> = Mutex::new(None);

/// The memory, which is mapped at its first use.
///
/// # Errors
/// The kernel's, as where there is no address space left.
pub fn null_pages() -> io::Result<NullPages> {
    let mut pages = PAGES.lock();
    if let Some(pages) = *pages {
        return Ok(pages);
    }
    let zeros = map(libc::PROT_READ)?;
    let sink = map_sink().inspect_err(|_| unmap(zeros))?;
    Ok(*pages.insert(NullPages { zeros: zeros as u64, sink: sink as u64 }))
}

/// Private memory of [`NULL_PAGES`] bytes without a file, which is not part of core dumps.
fn map(rights: libc::c_int) -> io::Result<*mut libc::c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at a place that the kernel chooses.
    let start = unsafe { libc::mmap(null_mut(), NULL_PAGES, rights, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    leave_out_of_dumps(start);
    Ok(start)
}

fn map_sink() -> io::Result<*mut libc::c_void> {
    // Nobody else maps anything there meanwhile.
    let start = map(libc::PROT_NONE)?;
    let fill = || {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: it takes the place of memory that was just reserved here, to which nobody has a reference.
        let first = unsafe { libc::mmap(start, SINK_PAGES, rights, flags, -1, 0) };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for place in 1..NULL_PAGES / SINK_PAGES {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: `place` counts the pieces that the reserved memory has. With an old size of 0 the same pages of shared memory are
            // mapped once more (mremap(2)), in the place of reserved memory, as above.
            let again =
                unsafe { libc::mremap(start, 0, SINK_PAGES, flags, start.byte_add(place * SINK_PAGES)) };
            if again == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        leave_out_of_dumps(start);
        Ok(start)
    };
    fill().inspect_err(|_| unmap(start))
}

fn leave_out_of_dumps(start: *mut libc::c_void) {
    // SAFETY: MADV_DONTDUMP changes no byte (madvise(2)). It is advice: without it dumps are larger.
    unsafe { libc::madvise(start, NULL_PAGES, libc::MADV_DONTDUMP) };
}

fn unmap(start: *mut libc::c_void) {
    // SAFETY: a mapping of this module's own, of which nobody knows yet.
    unsafe { libc::munmap(start, NULL_PAGES) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApplicationMemory, HostMemory, Segment};

    #[test]
    fn zeros_stay_zeros_and_the_sink_takes_everything() {
        let pages = null_pages().unwrap();
        assert_eq!(null_pages().unwrap(), pages);
        let (memory, bytes) = (HostMemory::new(), vec![7u8; 3 * SINK_PAGES]);
        let all = [Segment { address: pages.sink, length: bytes.len() as u64 }];
        memory.write(&bytes, &all, true).unwrap();
        let last = pages.sink + NULL_PAGES as u64 - 5000;
        memory.write(&bytes[..5000], &[Segment { address: last, length: 5000 }], false).unwrap();
        for address in [pages.zeros, pages.zeros + NULL_PAGES as u64 - 5000] {
            let mut read = vec![1u8; 5000];
            memory.read(&[Segment { address, length: 5000 }], &mut read).unwrap();
            assert!(read.iter().all(|byte| *byte == 0));
            assert!(memory.write(&bytes[..1], &[Segment { address, length: 1 }], false).is_err());
        }
        // However much is written, it is one piece.
        let resident = |of: &str| -> usize {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let start = format!("{of}-");
            let mapping = smaps.lines().skip_while(|line| !line.starts_with(&start));
            let line = mapping.skip(1).find(|line| line.starts_with("Rss:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        assert!(resident(&format!("{:x}", pages.sink)) * 1024 <= SINK_PAGES);
        assert_eq!(resident(&format!("{:x}", pages.zeros)), 0, "of zeros nothing is allocated");
    }
}
