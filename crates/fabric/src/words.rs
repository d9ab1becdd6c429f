//! Shared words: a memory file that several processes map.

use crate::descriptors::Descriptor;
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_memory::fork;
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::thread::futex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// A mapping of a memory file, as words. Clones are the same mapping; the last one unmaps it.
#[derive(Clone, Debug)]
pub struct MappedWords {
    start: *const AtomicU64,
    length: usize,
    writable: bool,
    _mapping: Arc<DontForkMapping>,
}

// SAFETY: the words are only touched as atomics, which any thread may do; the mapping lives as long as any clone.
unsafe impl Send for MappedWords {}
// SAFETY: shared references touch the words as atomics alone; the mapping lives as long as any clone.
unsafe impl Sync for MappedWords {}

/// Memory that forked children do not have: they have no part in the engine. It is unmapped on drop.
#[derive(Debug)]
pub struct DontForkMapping {
    start: usize,
    bytes: usize,
    generation: u64,
}

impl DontForkMapping {
    /// A new mapping of a file, which others share; or without one, of zeros.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(file: Option<BorrowedFd<'_>>, bytes: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            match file {
                Some(file) => {
                    mmap(anywhere, bytes, protection, MapFlags::SHARED | MapFlags::NORESERVE, file, 0)?
                }
                None => mmap_anonymous(anywhere, bytes, protection, MapFlags::PRIVATE)?,
            }
        };
        let mapping = DontForkMapping { start: start as usize, bytes, generation: fork::generation() };
        // SAFETY: exactly the mapping made above.
        unsafe { madvise(start, bytes, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    /// Where it begins.
    pub fn start(&self) -> usize {
        self.start
    }
}

impl Drop for DontForkMapping {
    fn drop(&mut self) {
        // A forked child does not have the mapping; something else may be there.
        if self.generation == fork::generation() {
            // SAFETY: exactly the mapping made by `new`, of which no reference is left.
            let unmapped = unsafe { munmap(self.start as *mut _, self.bytes) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

/// What peers may do with a file that they are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    ReadWrite,
}

/// Bytes of so many words.
fn bytes_of(length: usize) -> io::Result<u64> {
    let bytes = (length as u64).checked_mul(8).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "more words than an address space has"))
}

impl MappedWords {
    /// A new file of `length` zero words, of which only touched pages cost memory, and its mapping for reading and
    /// writing. No other process can change its size; nor its contents with `FileAccess::Read`.
    ///
    /// # Errors
    /// As the kernel's; `FileTooLarge` where RLIMIT_FSIZE would have it answer with SIGXFSZ.
    pub fn create(name: &str, length: usize, peers: FileAccess) -> io::Result<(Self, Descriptor)> {
        let bytes = bytes_of(length)?;
        if pagewire_memory::file_size_limit().is_some_and(|limit| limit < bytes) {
            let reason = format!("RLIMIT_FSIZE is below {bytes} bytes: raise that (ulimit -f unlimited)");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        let file = Descriptor::new(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)?;
        ftruncate(&file, bytes)?;
        let words = Self::map(&file, length, true)?;
        let mut seals = SealFlags::SHRINK | SealFlags::GROW;
        if peers == FileAccess::Read {
            // Our own mapping, made before, stays writable (fcntl(2), F_SEAL_FUTURE_WRITE).
            seals |= SealFlags::FUTURE_WRITE;
        }
        fcntl_add_seals(&file, seals | SealFlags::SEAL)?;
        Ok((words, file))
    }

    /// Address of a word.
    pub(crate) fn address(&self, index: usize) -> *const AtomicU64 {
        assert!(index < self.length, "no such word");
        // SAFETY: the mapping has so many words.
        unsafe { self.start.add(index) }
    }

    /// Maps a file that a peer sent, after a look at it: it must be a memory file of `length` words whose size nobody can
    /// change, so that no access to the mapping can ever raise SIGBUS.
    ///
    /// # Errors
    /// `InvalidData` for any other file, and the kernel's.
    pub fn open(file: &impl AsFd, length: usize, access: FileAccess) -> io::Result<Self> {
        let wrong = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
        let seals = fcntl_get_seals(file).map_err(|_| wrong("not a memory file"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(wrong("a memory file whose size can change"));
        }
        if fstat(file)?.st_size as u64 != bytes_of(length)? {
            return Err(wrong("a memory file of another size"));
        }
        Self::map(file, length, access == FileAccess::ReadWrite)
    }

    /// Maps a file that a peer has open under a number, after the same look. Whoever may trace a process may open its files
    /// (proc_pid_fd(5)).
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn open_of(pid: i32, number: i32, length: usize, access: FileAccess) -> io::Result<Self> {
        let mode = if access == FileAccess::ReadWrite { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(format!("/proc/{pid}/fd/{number}"), flags, Mode::empty())?;
        Self::open(&file, length, access)
    }

    fn map(file: &impl AsFd, length: usize, writable: bool) -> io::Result<Self> {
        // The file is as long as is said and sealed against a change of that, so that all of the mapping stays accessible.
        let mapping = DontForkMapping::new(Some(file.as_fd()), length * 8, writable)?;
        let start = mapping.start as *const AtomicU64;
        Ok(MappedWords { start, length, writable, _mapping: Arc::new(mapping) })
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.length, "word {index} of {}", self.length);
        // SAFETY: in bounds (checked), aligned (a mapping begins at a page), alive (the Arc), and never accessed but as
        // an atomic. Other processes may change it at any time, which an atomic allows.
        unsafe { &*self.start.add(index) }
    }

    #[inline]
    fn writable_word(&self, index: usize) -> &AtomicU64 {
        assert!(self.writable, "these words belong to a peer");
        self.word(index)
    }

    /// The lower half of a word, on which a thread may sleep: the kernel compares 32 bits (futex(2)).
    fn low_half(&self, index: usize) -> &AtomicU32 {
        let word = std::ptr::from_ref(self.word(index)).cast::<AtomicU32>();
        let half = if cfg!(target_endian = "big") { 1 } else { 0 };
        // SAFETY: half of a word that lives as long as the mapping, aligned to its size; it is only touched as an atomic, and by the kernel.
        unsafe { &*word.add(half) }
    }

    #[inline]
    fn range(&self, index: usize, bytes: usize) -> &[AtomicU64] {
        let words = bytes.div_ceil(8);
        assert!(
            index <= self.length && words <= self.length - index,
            "{words} words at {index} of {}",
            self.length
        );
        // SAFETY: as `word`, for all of them.
        unsafe { std::slice::from_raw_parts(self.start.add(index), words) }
    }
}

impl SharedWords for MappedWords {
    fn len(&self) -> usize {
        self.length
    }

    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, _site: Site, index: usize, value: u64) {
        self.writable_word(index).store(value, Ordering::Release);
    }

    #[inline]
    fn compare_exchange(&self, _site: Site, index: usize, current: u64, value: u64) -> Result<u64, u64> {
        self.writable_word(index).compare_exchange(current, value, Ordering::SeqCst, Ordering::SeqCst)
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn fence_behind_exchange(&self) {
        // An exchange is a locked instruction, which no load or store passes (AMD64 manual, volume 2, section 7.4.2).
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    fn sleep(&self, index: usize, current: u64, at_most: Duration) {
        let tv_sec = i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX);
        let at_most = futex::Timespec { tv_sec, tv_nsec: at_most.subsec_nanos().into() };
        // However it ends, the caller looks again.
        let _ = futex::wait(self.low_half(index), futex::Flags::empty(), current as u32, Some(&at_most));
    }

    fn wake_sleepers(&self, index: usize) {
        let woken = futex::wake(self.low_half(index), futex::Flags::empty(), i32::MAX as u32);
        debug_assert!(woken.is_ok(), "{woken:?}");
    }

    #[inline]
    fn write_bytes(&self, _site: Site, index: usize, bytes: &[u8]) {
        assert!(self.writable, "these words belong to a peer");
        // Most of what is short is one word.
        if let Ok(word) = bytes.try_into() {
            return self.word(index).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        let words = self.range(index, bytes.len());
        let (whole, rest) = bytes.split_at(bytes.len() / 8 * 8);
        fill(&words[..whole.len() / 8], whole);
        if let (false, Some(word)) = (rest.is_empty(), words.last()) {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }

    #[inline]
    fn read_bytes(&self, index: usize, bytes: &mut [u8]) {
        let words = self.range(index, bytes.len());
        let (whole, rest) = bytes.split_at_mut(bytes.len() / 8 * 8);
        take(&words[..whole.len() / 8], whole);
        if let (false, Some(word)) = (rest.is_empty(), words.last()) {
            rest.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
        }
    }
}

/// Words from which on the processor copies by itself (`rep movsq`): it takes a while to begin. Measured from twice as many on; where it
/// begins to pay was not.
#[cfg(target_arch = "x86_64")]
const LONG_COPY: usize = 32;

/// Writes as many bytes as the words have.
fn fill(words: &[AtomicU64], bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if words.len() >= LONG_COPY {
        assert_eq!(words.len() * 8, bytes.len());
        // SAFETY: both are as long as is said; the words are atomics of a mapping that may be written (`write_bytes`).
        return unsafe { copy_words(bytes.as_ptr(), words.as_ptr().cast::<u8>().cast_mut(), words.len()) };
    }
    for (word, chunk) in words.iter().zip(bytes.chunks_exact(8)) {
        let mut whole = [0; 8];
        whole.copy_from_slice(chunk);
        word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
    }
}

/// Reads as many bytes as the words have.
fn take(words: &[AtomicU64], bytes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if words.len() >= LONG_COPY {
        assert_eq!(words.len() * 8, bytes.len());
        // SAFETY: both are as long as is said; `bytes` is borrowed for writing.
        return unsafe { copy_words(words.as_ptr().cast(), bytes.as_mut_ptr(), words.len()) };
    }
    for (word, chunk) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
}

/// Copies words of which either side may be shared: another process may change or read them meanwhile.
///
/// # Safety
/// `from` may be read and `to` written for so many words.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_words(from: *const u8, to: *mut u8, words: usize) {
    // SAFETY: the caller promises `words` words at either end, and the direction flag is clear (System V ABI, section
    // 3.2.1). The compiler sees no access that another process could race with: the processor copies byte by byte as
    // far as anybody can tell, like relaxed atomics of bytes, and a store behind it is seen after all of it (Intel SDM,
    // volume 3, section 9.2.4).
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::fd::OwnedFd;

    const TEST: Site = Site("test");

    fn reopen(file: &Descriptor, length: usize, access: FileAccess) -> io::Result<MappedWords> {
        MappedWords::open(&file.as_fd().try_clone_to_owned()?, length, access)
    }

    #[test]
    fn two_mappings_are_one() {
        let (ours, file) = MappedWords::create("test", 512, FileAccess::ReadWrite).unwrap();
        let theirs = reopen(&file, 512, FileAccess::ReadWrite).unwrap();
        ours.store(TEST, 511, 7);
        assert_eq!(theirs.load(511), 7);
        assert_eq!(theirs.compare_exchange(TEST, 511, 8, 9), Err(7));
        assert_eq!(theirs.compare_exchange(TEST, 511, 7, 9), Ok(7));
        assert_eq!(ours.load(511), 9);
        let mut bytes = [0; 13];
        ours.write_bytes(TEST, 3, b"thirteen byte");
        theirs.read_bytes(3, &mut bytes);
        assert_eq!(&bytes, b"thirteen byte");
        assert_eq!(theirs.load(5), 0);
    }

    /// A peer says how many words its file has.
    #[test]
    fn a_length_whose_bytes_have_no_number_is_refused() {
        let (_ours, file) = MappedWords::create("test", 512, FileAccess::ReadWrite).unwrap();
        for length in [(1 << 61) + 512, usize::MAX, 1 << 60] {
            assert!(reopen(&file, length, FileAccess::Read).is_err(), "{length:#x}");
            assert!(MappedWords::create("test", length, FileAccess::Read).is_err(), "{length:#x}");
        }
    }

    #[test]
    fn bytes_of_any_length_are_copied_and_nothing_beside_them() {
        let (ours, file) = MappedWords::create("test", 1024, FileAccess::ReadWrite).unwrap();
        let theirs = reopen(&file, 1024, FileAccess::ReadWrite).unwrap();
        let bytes: Vec<u8> = (0..4200).map(|at: u32| at.wrapping_mul(at) as u8 | 1).collect();
        for length in (0..600).chain(4080..4120) {
            for (start, index) in [(0, 2), (3, 401)] {
                (index - 1..=index + 520).for_each(|index| ours.store(TEST, index, u64::MAX));
                let from = &bytes[start..start + length];
                ours.write_bytes(TEST, index, from);
                let mut read = vec![0; length + 2];
                theirs.read_bytes(index, &mut read[1..=length]);
                assert!(read[1..=length] == *from && read[0] == 0 && read[length + 1] == 0, "{length}");
                // The last word is filled up.
                let behind = index + length.div_ceil(8);
                assert_eq!([index - 1, behind].map(|index| theirs.load(index)), [u64::MAX; 2], "{length}");
                let filled = theirs.load(behind - 1).to_ne_bytes();
                assert!(
                    length == 0 || filled[(length + 7) % 8 + 1..].iter().all(|&byte| byte == 0),
                    "{length}"
                );
            }
        }
    }

    #[test]
    fn peers_can_neither_write_tables_nor_change_sizes() {
        let (ours, file) = MappedWords::create("test", 512, FileAccess::Read).unwrap();
        assert!(reopen(&file, 512, FileAccess::ReadWrite).is_err());
        let theirs = reopen(&file, 512, FileAccess::Read).unwrap();
        ours.store(TEST, 0, 5);
        assert_eq!(theirs.load(0), 5);
        assert!(ftruncate(&file, 0).is_err());
        assert!(ftruncate(&file, 8192).is_err());
    }

    #[test]
    fn files_of_peers_are_looked_at() {
        let (_, file) = MappedWords::create("test", 512, FileAccess::ReadWrite).unwrap();
        assert!(reopen(&file, 513, FileAccess::ReadWrite).is_err());
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 4096).unwrap();
        assert!(MappedWords::open(&unsealed, 512, FileAccess::ReadWrite).is_err());
        let plain = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert!(MappedWords::open(&plain, 512, FileAccess::Read).is_err());
    }
}
