//! Another process, named so that a reuse of its number is noticed.

use crate::clock::tick;
use crate::liveness::{Liveness, outlives_main_thread};
use crate::mappings::{MappingKind, Mappings};
use crate::pagemap::{Pagemap, Presence};
use crate::shared_mapping::SharedMapping;
use crate::{Absence, Segment, Uncancelled, above_standard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use std::any::Any;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A process whose memory may be touched. Clones name the same one; once one of them is told that it has ended,
/// all are.
#[derive(Clone, Debug)]
pub struct HostProcess(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pid: i32,
    /// `None`: this process itself, or a kernel without pidfds (before 5.3).
    descriptor: Option<OwnedFd>,
    /// Whether it has ended, or has become another program.
    liveness: Liveness,
    /// The kernel has denied access to it.
    denied: AtomicBool,
    /// The tick at which it was last seen alive.
    seen: AtomicU64,
    pagemap: Pagemap,
    mappings: Mappings,
    shared: OnceLock<SharedMapping>,
}

/// Clones are equal, and nothing else is.
impl PartialEq for HostProcess {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HostProcess {}

impl Hash for HostProcess {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _uncancelled = Uncancelled::begin();
        drop(self.descriptor.take());
        self.pagemap = Pagemap::default();
    }
}

impl HostProcess {
    /// This process.
    pub fn current() -> Self {
        Self::new(getpid().as_raw_nonzero().get(), None)
    }

    /// The process that has this number now. Where the kernel knows no pidfd, only [`set_gone`](Self::set_gone) tells
    /// of its end.
    ///
    /// # Errors
    /// ESRCH where there is none; EMFILE.
    pub fn open(pid: i32) -> io::Result<Self> {
        if pid == getpid().as_raw_nonzero().get() {
            return Ok(Self::current());
        }
        let named = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        match pidfd_open(named, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Self::new(pid, Some(above_standard(descriptor)?))),
            Err(rustix::io::Errno::NOSYS) => Ok(Self::new(pid, None)),
            Err(error) => Err(error.into()),
        }
    }

    /// A process by a descriptor that names it for sure (SO_PEERPIDFD), and its number.
    pub fn from_descriptor(pid: i32, descriptor: OwnedFd) -> Self {
        Self::new(pid, Some(descriptor))
    }

    fn new(pid: i32, descriptor: Option<OwnedFd>) -> Self {
        HostProcess(Arc::new(Inner {
            pid,
            descriptor,
            liveness: Liveness::new(),
            denied: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            pagemap: Pagemap::default(),
            mappings: Mappings::default(),
            shared: OnceLock::new(),
        }))
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.0.pid
    }

    /// Whether it is the calling process.
    pub fn is_own(&self) -> bool {
        self.pid() == getpid().as_raw_nonzero().get()
    }

    /// The process has ended, or has become another program: its memory is not touched any more.
    pub fn set_gone(&self) {
        self.0.liveness.set_ended();
    }

    /// The kernel has denied this process access to it, which it may have allowed before: one of the two has changed its user, or is not
    /// dumpable any more.
    pub(crate) fn set_denied(&self) {
        self.0.denied.store(true, Ordering::Relaxed);
    }

    /// Whether the kernel has ever denied access to it.
    pub fn is_denied(&self) -> bool {
        self.0.denied.load(Ordering::Relaxed)
    }

    /// Whether it is the same process still, as of the last tick of the kernel's clock. The kernel gives process numbers
    /// out in a circle of at least several hundred, so that none can come back sooner.
    pub fn is_alive(&self) -> bool {
        self.is_alive_at(tick())
    }

    /// [`is_alive`](Self::is_alive) for a caller that knows the present tick.
    #[inline]
    pub(crate) fn is_alive_at(&self, now: u64) -> bool {
        (self.0.liveness.is_unmarked() || self.outlives_mark())
            && (now == self.0.seen.load(Ordering::Relaxed) || self.is_alive_still(now))
    }

    /// The word is marked: whether the process goes on all the same.
    #[cold]
    fn outlives_mark(&self) -> bool {
        if !self.0.liveness.has_ended() && outlives_main_thread(self.0.pid) {
            self.0.liveness.forget();
            return true;
        }
        self.set_gone();
        false
    }

    /// Has every look at the process begin at a word that the kernel marks with [`OWNER_DIED`](crate::OWNER_DIED) when it ends: of a robust mutex that a
    /// thread of it holds (get_robust_list(2)). The first word counts.
    ///
    /// # Safety
    /// The word is mapped here as long as `keeper` lives.
    pub unsafe fn watch_word(&self, word: *const AtomicU32, keeper: Box<dyn Any + Send + Sync>) {
        // SAFETY: the caller promises that the word is mapped here as long as `keeper` lives.
        unsafe { self.0.liveness.watch(word, keeper) };
    }

    #[cold]
    fn is_alive_still(&self, now: u64) -> bool {
        let Some(descriptor) = &self.0.descriptor else { return true };
        // A pidfd becomes readable when its process ends (pidfd_open(2)).
        let mut ask = [PollFd::new(descriptor, PollFlags::IN)];
        if matches!(poll(&mut ask, Some(&Timespec::default())), Ok(ended) if ended > 0) {
            self.set_gone();
            return false;
        }
        self.0.seen.store(now, Ordering::Relaxed);
        true
    }

    /// Maps memory of the process here: `file` is the number of its open memory file, which lies behind these addresses of its. A process
    /// has one such range.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput`: the file may shrink, or is shorter; `AlreadyExists`: another one is mapped.
    pub(crate) fn map_shared(&self, there: Range<u64>, file: i32) -> io::Result<()> {
        let mapping = SharedMapping::new(self.0.pid, file, there)?;
        // Its number may have been given to another process, whose file this was.
        if !self.is_alive() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.0.shared.set(mapping).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// What is mapped here of its memory.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&SharedMapping> {
        self.0.shared.get()
    }

    /// Which pages of a segment are there.
    pub(crate) fn presence(&self, segment: Segment) -> Presence {
        self.0.pagemap.look(self.0.pid, segment)
    }

    /// How the pages of a segment come that are absent, as far as is known; `grace`: what was learnt may be older than usual by so many
    /// nanoseconds. And what kind of memory it is.
    pub(crate) fn absence(&self, segment: Segment, grace: u64) -> (Absence, Option<MappingKind>) {
        let Some(nature) = self.0.mappings.nature(segment, grace) else { return (Absence::Unknown, None) };
        let absence = match (nature.kind, nature.swap) {
            (MappingKind::Other, _) => Absence::UserSpace,
            (MappingKind::Anonymous | MappingKind::Shared, false) => Absence::Cheap,
            (MappingKind::Anonymous, true) => match self.presence(segment) {
                Presence::All | Presence::SomeEmpty => Absence::Cheap,
                Presence::SomeSwapped | Presence::Unknown => Absence::Slow,
            },
            // What was swapped out looks as if nothing had ever been there; what lies on a disk is far away.
            (MappingKind::Shared, true) | (MappingKind::File, _) => Absence::Slow,
        };
        (absence, Some(nature.kind))
    }

    /// Whether it is in a memory cgroup with a limit while there is swap, as far as is known.
    pub(crate) fn swaps_at_a_limit(&self) -> bool {
        self.0.mappings.swaps_at_a_limit()
    }

    /// Whether somebody in user space is known to give, or take away, pages of a segment, or some of them.
    pub(crate) fn is_watched(&self, segment: Segment) -> bool {
        self.0.mappings.has_other(segment)
    }

    /// Learns what kinds of memory it has where, if that is not known of a segment, or was learnt long ago. Takes as long as the kernel
    /// needs.
    pub(crate) fn learn(&self, segment: Segment) {
        if self.0.mappings.wants_learning(segment) {
            // Where it cannot be learnt pages are waited for by other threads.
            let _ = self.0.mappings.learn(self.0.pid);
        }
    }
}
