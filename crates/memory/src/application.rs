//! The application's memory, as the engine may touch it.

use crate::null_pages::NullPages;
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// A piece of some process's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Segment {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

impl Segment {
    /// `length` bytes from `skip` on, which are there.
    #[inline]
    pub fn part(self, skip: u64, length: u64) -> Self {
        Segment { address: self.address + skip, length }
    }
}

/// Why memory could not be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryError {
    /// Nothing is mapped there, or not with the right that the access needs.
    NotMapped,
    /// Nothing is mapped at the other process's side, or not with the right that the access needs. Only reads from there give it
    /// ([`pull`](ApplicationMemory::pull)).
    PeerNotMapped,
    /// The other process has ended.
    PeerGone,
    /// The kernel does not let this process access the other one, or not any more: it has other credentials than before, or is not
    /// dumpable (`ptrace(2)`, access mode checking).
    PeerDenied,
}

/// Why memory cannot be made to outlive a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    #[error("nothing is mapped there")]
    NotMapped,
    #[error("no file is mapped there, shared, that outlives a loss of power")]
    Volatile,
    #[error("the kernel could not write it: error {0}")]
    Failed(i32),
}

/// An atomic operation on 8 aligned bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOperation {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

/// What a page's absence means for an access ([`ApplicationMemory::residency`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// Every page was there when it was last looked at; touching them will not wait.
    Resident,
    /// At least one page is absent: touching it may wait without bound.
    Absent,
    /// At least one page is not mapped at all.
    NotMapped,
}

/// How pages that are absent come. Of several the last one counts: whoever waits for all of them may have to wait so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absence {
    /// They are filled with zeros, which takes about a microsecond each, unless the machine is short of memory.
    Cheap,
    /// The kernel has them on a disk or in a compressed store: it may take any time, but they come one after the other.
    Slow,
    /// Not known yet.
    Unknown,
    /// Somebody in user space is asked for them, and may not give some of them at all.
    UserSpace,
}

/// What memory was last seen present, for one who mostly accesses the same again. Good for a moment.
#[derive(Debug, Clone, Default)]
pub struct LastSeen {
    pub(crate) moment: u64,
    pub(crate) range: Range<u64>,
}

impl LastSeen {
    /// Whether all of a segment was seen at this moment.
    #[inline]
    pub(crate) fn covers(&self, segment: Segment, moment: u64) -> bool {
        let end = segment.address.saturating_add(segment.length);
        self.moment == moment && self.range.start <= segment.address && end <= self.range.end
    }
}

/// Why a peer's memory is not accessed now ([`ApplicationMemory::reach`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreached {
    /// The process has ended.
    Gone,
    /// An access would have to wait for pages, which come so.
    Absent(Absence),
}

/// Touches the application's memory, in this process and in peers that allow it. No call ever raises a
/// signal; a page that is absent makes the calling thread wait for it. Segments are taken in order, as one
/// string of bytes; both sides of a copy have the same length, else the shorter one ends it. Where
/// `tail_last` is set the final 8 bytes become visible after all others, because programs poll on them.
pub trait ApplicationMemory: Send + Sync + 'static {
    /// Names another process whose memory may be touched.
    type RemoteProcess: Clone + Send + Sync + 'static;

    /// Copies from the application into `into`.
    fn read(&self, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError>;

    /// Copies `from` into the application's memory.
    fn write(&self, from: &[u8], to: &[Segment], tail_last: bool) -> Result<(), MemoryError>;

    /// Copies from a peer's memory into the application's. A caller that is to notice that the process has ended, and has become another
    /// one, asks [`reach`](Self::reach) before.
    fn pull(
        &self,
        process: &Self::RemoteProcess,
        from: &[Segment],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError>;

    /// Copies from the application's memory into a peer's, likewise.
    fn push(
        &self,
        process: &Self::RemoteProcess,
        from: &[Segment],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError>;

    /// Copies bytes of the engine itself into a peer's memory.
    fn push_bytes(
        &self,
        process: &Self::RemoteProcess,
        from: &[u8],
        to: &[Segment],
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        // The engine's own bytes have an address in this process like any others.
        let from = [Segment { address: from.as_ptr() as u64, length: from.len() as u64 }];
        self.push(process, &from, to, tail_last)
    }

    /// Copies from a peer's memory into bytes of the engine itself.
    ///
    /// # Errors
    /// As those of [`pull`](Self::pull).
    fn pull_bytes(
        &self,
        process: &Self::RemoteProcess,
        from: &[Segment],
        into: &mut [u8],
    ) -> Result<(), MemoryError>;

    /// [`read`](Self::read) of one segment, as long as what it is read into, for several in a row: what has to be known of this thread is
    /// asked once, so that they are to follow each other at once. False: as an error.
    fn reads(&self) -> impl Fn(Segment, &mut [u8]) -> bool {
        |from, into| self.read(&[from], into).is_ok()
    }

    /// [`write`](Self::write) to one segment, as long as what is written, likewise; the tail in any order.
    fn writes(&self) -> impl Fn(&[u8], Segment) -> bool {
        |from, to| self.write(from, &[to], false).is_ok()
    }

    /// Runs a CPU atomic on the application's memory and gives the original value. The address is aligned.
    fn atomic(&self, address: u64, operation: AtomicOperation) -> Result<u64, MemoryError>;

    /// Whether the pages of these segments are present. May be remembered for a short while: a stale answer
    /// costs a wait, never a wrong byte.
    fn residency(&self, segments: &[Segment]) -> Residency;

    /// Whether the pages of one segment that is not empty are present, and whether all of `ahead` is, which begins with the segment.
    /// The second may be false where the kernel would have to be asked once more.
    fn residency_ahead(&self, segment: Segment, ahead: Segment) -> (Residency, bool) {
        let residency = self.residency(&[segment]);
        (residency, residency == Residency::Resident && self.residency(&[ahead]) == Residency::Resident)
    }

    /// How pages of these segments come that are absent, for an access to all of them. What is known may be out of date: that costs
    /// a wait.
    fn absence(&self, segments: &[Segment]) -> Absence {
        let _ = segments;
        Absence::Unknown
    }

    /// Whether it is well that system calls which copy meet absent pages. Not where there is swap and a limit: at the limit of a memory cgroup
    /// Linux 6.18 ends processes for what such calls bring in, where it swaps other pages out for what a program touches. Who was at a limit from
    /// the beginning is spared such calls altogether ([`swaps_at_a_limit`](crate::swaps_at_a_limit)); limits may be set later.
    fn kernel_may_fault(&self) -> bool {
        true
    }

    /// Whether the kernel has denied this process access to another one, so that no copy to or from it can be made.
    fn is_denied(&self, _process: &Self::RemoteProcess) -> bool {
        false
    }

    /// Whether system calls that copy may meet absent pages of a peer. See [`kernel_may_fault`](Self::kernel_may_fault).
    fn kernel_may_fault_in(&self, process: &Self::RemoteProcess) -> bool {
        let _ = process;
        true
    }

    /// Brings in the pages of a segment, for writing too where `write`, however long that takes; changes no byte.
    ///
    /// # Errors
    /// `NotMapped` where a page is not mapped, or not with that right.
    fn bring_in(&self, segment: &Segment, write: bool) -> Result<(), MemoryError>;

    /// The present moment, for calls that follow at once: it is not asked for in each of them.
    fn moment(&self) -> u64 {
        0
    }

    /// As [`residency`](Self::residency) of one segment at this moment.
    fn residency_at(&self, segment: Segment, moment: u64, seen: &mut LastSeen) -> Residency {
        let _ = (moment, seen);
        self.residency(&[segment])
    }

    /// Whether a segment of a peer can be accessed at this moment without a wait for its pages: `Ok` also if that cannot be known. May be
    /// remembered as [`residency`](Self::residency).
    ///
    /// # Errors
    /// [`Unreached`].
    fn reach(
        &self,
        process: &Self::RemoteProcess,
        segment: Segment,
        moment: u64,
        seen: &mut LastSeen,
    ) -> Result<(), Unreached>;

    /// Maps memory of a peer here, so that copies to and from it need no system call: `file` is the number under which the peer has the
    /// memory file open that lies behind these addresses of its.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput`: the file may become shorter, or is too short; `Unsupported` where memory is not mapped.
    fn map_shared(&self, process: &Self::RemoteProcess, there: Range<u64>, file: i32) -> io::Result<()> {
        let _ = (process, there, file);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Runs an atomic on 8 aligned bytes of a peer's memory that is [mapped](Self::map_shared) here, and gives what was there.
    ///
    /// # Errors
    /// `NotMapped`: it is not, or not aligned; nothing was done.
    fn atomic_in_mapping(
        &self,
        process: &Self::RemoteProcess,
        there: Segment,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let _ = (process, there, operation);
        Err(MemoryError::NotMapped)
    }

    /// The words of a segment of a peer's memory that is [mapped](Self::map_shared) here. `None`: it is not, its address or length is no multiple of 8, or the peer has ended.
    fn words_in_mapping<'p>(
        &self,
        process: &'p Self::RemoteProcess,
        there: Segment,
    ) -> Option<&'p [AtomicU64]> {
        let _ = (process, there);
        None
    }

    /// Whether any of a peer's memory is [mapped](Self::map_shared) here.
    fn has_mapping(&self, process: &Self::RemoteProcess) -> bool {
        let _ = process;
        false
    }

    /// Whether a segment of a peer's memory is [mapped](Self::map_shared) here.
    fn is_in_mapping(&self, process: &Self::RemoteProcess, there: Segment) -> bool {
        let _ = (process, there);
        false
    }

    /// Checks that a segment could be made to outlive a loss of power: the program has mapped files there, shared. May take milliseconds.
    ///
    /// # Errors
    /// [`SyncError`].
    fn check_persistent(&self, segment: Segment) -> Result<(), SyncError> {
        let _ = segment;
        Err(SyncError::Volatile)
    }

    /// The memory that stands for null regions.
    ///
    /// # Errors
    /// The kernel's; `Unsupported` where there is none.
    fn null_pages(&self) -> io::Result<NullPages> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`read`](Self::read) of one segment, as long as `into`, if its pages are resident; made for short ones. False: `into` may hold
    /// part of it.
    fn read_resident(&self, from: Segment, into: &mut [u8]) -> bool {
        self.residency(&[from]) == Residency::Resident && self.read(&[from], into).is_ok()
    }

    /// As [`write`](Self::write) to one segment, as long as `from`, the tail last, if its pages are resident; made for short ones.
    /// False: part of it may be written.
    fn write_resident(&self, from: &[u8], to: Segment) -> bool {
        self.residency(&[to]) == Residency::Resident && self.write(from, &[to], true).is_ok()
    }
}
