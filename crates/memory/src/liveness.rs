//! The word by which a process that has ended is seen to have: see [`HostProcess::watch_word`](crate::HostProcess::watch_word).

use std::any::Any;
use std::fs::{read_dir, read_to_string};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

/// The bit that the kernel sets in the word of a robust mutex whose owner has ended (linux/futex.h, FUTEX_OWNER_DIED).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// PF_EXITING (linux/sched.h): the thread is about to end.
const EXITING: u64 = 0x4;
/// How often, and how far apart, the threads of a process are looked at whose main thread has ended: others end just after it.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(1);

static ALIVE: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicU32 = AtomicU32::new(OWNER_DIED);

/// Where the word of a process is.
#[derive(Debug)]
pub(crate) struct Liveness {
    word: AtomicPtr<AtomicU32>,
    /// What keeps the word mapped.
    keeper: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Liveness {
    /// Of a process that is alive and has no word yet.
    pub fn new() -> Self {
        Liveness { word: AtomicPtr::new((&raw const ALIVE).cast_mut()), keeper: OnceLock::new() }
    }

    /// Whether nothing says that the process has ended.
    #[inline(always)] // Part of each transfer that the requester executes itself.
    pub fn is_unmarked(&self) -> bool {
        // SAFETY: one of the statics above, or a word that lives as long as self (`watch`).
        unsafe { &*self.word.load(Ordering::Acquire) }.load(Ordering::Acquire) & OWNER_DIED == 0
    }

    /// Whether it is known for good that the process has ended.
    pub fn has_ended(&self) -> bool {
        std::ptr::eq(self.word.load(Ordering::Acquire), &raw const ENDED)
    }

    pub fn set_ended(&self) {
        self.word.store((&raw const ENDED).cast_mut(), Ordering::Release);
    }

    /// The marked word says nothing: the process goes on without the thread that held it.
    pub fn forget(&self) {
        let (word, alive) = (self.word.load(Ordering::Acquire), (&raw const ALIVE).cast_mut());
        if !self.has_ended() {
            // If another thread has seen its end meanwhile, that counts.
            let _ = self.word.compare_exchange(word, alive, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// The word is mapped as long as the keeper lives.
    pub unsafe fn watch(&self, word: *const AtomicU32, keeper: Box<dyn Any + Send + Sync>) {
        if self.keeper.set(keeper).is_ok() {
            let alive = (&raw const ALIVE).cast_mut();
            // A process that has ended stays so.
            let _ = self.word.compare_exchange(alive, word.cast_mut(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Whether a process goes on whose main thread held a word and has ended (pthread_exit(3)). False: it ends, or has become another program.
pub(crate) fn outlives_main_thread(pid: i32) -> bool {
    let is_main_ended = thread_state(pid, pid).is_some_and(|state| state.is_ended);
    is_main_ended
        && (0..LOOKS).all(|look| {
            if look > 0 {
                std::thread::sleep(PAUSE);
            }
            has_other_threads(pid)
        })
}

/// Whether a process has a thread beside the main one that nobody has told to end.
fn has_other_threads(pid: i32) -> bool {
    let Ok(threads) = read_dir(format!("/proc/{pid}/task")) else { return false };
    let numbers = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut others = numbers.filter(|thread| *thread != pid);
    others.any(|thread| thread_state(pid, thread).is_some_and(|state| !state.is_ended && !state.is_killed))
}

struct ThreadState {
    is_ended: bool,
    /// SIGKILL waits for it.
    is_killed: bool,
}

/// What proc_pid_stat(5) and proc_pid_status(5) say of a thread.
fn thread_state(pid: i32, thread: i32) -> Option<ThreadState> {
    let stat = read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    // The name before may hold any characters.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    // From the state, field 3, to the flags, field 9.
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let status = read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"))?;
    let pending = u64::from_str_radix(pending.trim(), 16).ok()?;
    Some(ThreadState {
        is_ended: matches!(state, "Z" | "X") || flags & EXITING != 0,
        is_killed: pending & (1 << (libc::SIGKILL - 1)) != 0,
    })
}
