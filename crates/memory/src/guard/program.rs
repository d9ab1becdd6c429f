//! What the program believes to be its handlers of the two signals, while ours stands in their place.
//!
//! Our handler stays installed when the program sets one of its own by way of the C library: the program's is kept here,
//! called for every fault that is not ours, and given back when it is asked for. Otherwise an access under way at that moment
//! would fault into the program's.
//!
//! A signal handler may read and change all this at any time: no lock is held while one could run, and readers take none.

use super::handler::{SIGNALS, for_program, is_ours};
use libc::{c_int, sigaction, sigset_t};
use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Words of a set of signals.
const MASK_WORDS: usize = size_of::<sigset_t>() / 8;

/// One action, word by word, so that a reader that is overtaken reads nonsense but nothing undefined.
struct SavedAction {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: [AtomicU64; MASK_WORDS],
}

/// The version's lowest bit says which of the two is valid.
struct VersionedAction {
    version: AtomicUsize,
    actions: [SavedAction; 2],
}

static KEPT: [VersionedAction; 2] = [const { VersionedAction::new() }; 2];
/// Whether ours has been installed.
static STANDING: AtomicBool = AtomicBool::new(false);
/// The process whose handlers these are: a child of vfork(2) writes to the memory of its parent, and has handlers of its own.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Held, with all signals blocked, while a handler is being changed.
static LOCK: AtomicBool = AtomicBool::new(false);

/// `sigaction(2)` of the C library itself, where the program's calls come by here; null: `libc::sigaction` is that.
static REAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// The C library's `sigaction(2)`.
pub type SetAction = unsafe extern "C" fn(c_int, *const sigaction, *mut sigaction) -> c_int;

/// From now on `function` is called to set handlers, not the one that the dynamic linker finds first.
pub fn set_by(function: SetAction) {
    REAL.store(function as *mut (), Ordering::Release);
}

/// `sigaction(2)` as the kernel has it.
///
/// # Safety
/// As for `sigaction(2)`.
pub unsafe fn real(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    let function = REAL.load(Ordering::Acquire);
    if function.is_null() {
        // SAFETY: the caller promises what sigaction(2) asks of both pointers.
        return unsafe { libc::sigaction(signal, new, old) };
    }
    // SAFETY: only `set_by` stores to REAL, what it was given.
    let function = unsafe { std::mem::transmute::<*mut (), SetAction>(function) };
    // SAFETY: the caller promises what sigaction(2) asks of both pointers; `set_by` got a sigaction(2).
    unsafe { function(signal, new, old) }
}

/// What the program has set for the signal of this place in [`SIGNALS`].
pub fn action(place: usize) -> sigaction {
    let kept = &KEPT[place];
    loop {
        let version = kept.version.load(Ordering::Acquire);
        let action = kept.actions[version % 2].load();
        fence(Ordering::Acquire);
        if kept.version.load(Ordering::Relaxed) == version {
            return action;
        }
    }
}

/// As if the program had set the default action.
pub fn set_default(place: usize) {
    locked(|| {
        // SAFETY: zero is a valid sigaction: the default action, no flags, an empty mask.
        keep(place, &unsafe { std::mem::zeroed() });
    });
}

/// Keeps a handler that somebody has set past the C library, before ours takes its place for the time of a fork.
pub fn keep_foreign(signal: c_int, action: &sigaction) {
    if let Some(place) = SIGNALS.iter().position(|known| *known == signal) {
        locked(|| keep(place, action));
    }
}

/// Keeps what was there and runs `install`, which puts ours in its place.
pub fn stand_in(
    before: impl Fn(c_int) -> Option<sigaction>,
    install: impl Fn(c_int, &sigaction) -> bool,
) -> bool {
    locked(|| {
        OWNER.store(std::process::id(), Ordering::Release);
        for (place, signal) in SIGNALS.into_iter().enumerate() {
            let Some(before) = before(signal) else { return false };
            keep(place, &before);
            STANDING.store(true, Ordering::Release);
            if !install(signal, &before) {
                return false;
            }
        }
        true
    })
}

/// `sigaction(2)` of the program, for one of [`SIGNALS`].
///
/// # Safety
/// As for `sigaction(2)`.
pub unsafe fn change(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    let Some(place) = SIGNALS.iter().position(|known| *known == signal) else {
        // SAFETY: the caller promises what sigaction(2) asks of both pointers.
        return unsafe { real(signal, new, old) };
    };
    if STANDING.load(Ordering::Acquire) && OWNER.load(Ordering::Acquire) != std::process::id() {
        // SAFETY: the caller promises what sigaction(2) asks of both pointers.
        return unsafe { change_in_vfork(place, new, old) };
    }
    locked(|| {
        if !STANDING.load(Ordering::Acquire) || !is_ours(signal) {
            // SAFETY: the caller promises what sigaction(2) asks of both pointers.
            return unsafe { real(signal, new, old) };
        }
        let before = action(place);
        // SAFETY: the caller's `new` is one, or null.
        if let Some(new) = unsafe { new.as_ref() } {
            // SAFETY: our handler, with the program's flags and mask.
            let result = unsafe { real(signal, &for_program(new), std::ptr::null_mut()) };
            if result != 0 {
                return result;
            }
            keep(place, new);
        }
        // SAFETY: the caller's `old` may be written to, or is null.
        if let Some(old) = unsafe { old.as_mut() } {
            *old = before;
        }
        0
    })
}

/// [`change`] in a child of vfork(2): what is kept belongs to its parent.
///
/// # Safety
/// As for `sigaction(2)`.
unsafe fn change_in_vfork(place: usize, new: *const sigaction, old: *mut sigaction) -> c_int {
    let (signal, inherited) = (SIGNALS[place], is_ours(SIGNALS[place]));
    // SAFETY: the caller promises what sigaction(2) asks of both pointers.
    let result = unsafe { real(signal, new, old) };
    // SAFETY: the caller's `old` may be written to, or is null.
    if let (Some(old), true, 0) = (unsafe { old.as_mut() }, inherited, result) {
        *old = action(place);
    }
    result
}

/// A forked child has handlers of its own, and not the thread that may have held the lock. Async-signal-safe.
pub fn take_over_in_child() {
    OWNER.store(std::process::id(), Ordering::Release);
    LOCK.store(false, Ordering::Release);
}

fn locked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: sigfillset initialises what pthread_sigmask reads, which fills `before`: with SIG_BLOCK it does not fail.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    while LOCK.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
    let outcome = work();
    LOCK.store(false, Ordering::Release);
    // SAFETY: the mask that the kernel gave above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    outcome
}

/// Called with the lock held.
fn keep(place: usize, action: &sigaction) {
    let kept = &KEPT[place];
    let version = kept.version.load(Ordering::Relaxed);
    // Whoever reads a word of the new one sees that the old one is no longer the latest but one.
    fence(Ordering::Release);
    kept.actions[(version + 1) % 2].store(action);
    kept.version.store(version.wrapping_add(1), Ordering::Release);
}

impl VersionedAction {
    const fn new() -> Self {
        VersionedAction { version: AtomicUsize::new(0), actions: [const { SavedAction::new() }; 2] }
    }
}

impl SavedAction {
    /// The default action.
    const fn new() -> Self {
        SavedAction {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: [const { AtomicU64::new(0) }; MASK_WORDS],
        }
    }

    fn store(&self, action: &sigaction) {
        self.handler.store(action.sa_sigaction, Ordering::Relaxed);
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        // SAFETY: a sigset_t is MASK_WORDS words without padding.
        let words: [u64; MASK_WORDS] = unsafe { std::mem::transmute_copy(&action.sa_mask) };
        for (to, word) in self.mask.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    fn load(&self) -> sigaction {
        // SAFETY: zero is a valid sigaction.
        let mut action: sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = self.handler.load(Ordering::Relaxed);
        action.sa_flags = self.flags.load(Ordering::Relaxed);
        let words: [u64; MASK_WORDS] = std::array::from_fn(|word| self.mask[word].load(Ordering::Relaxed));
        // SAFETY: a sigset_t is MASK_WORDS words without padding, and any words are a set.
        action.sa_mask = unsafe { std::mem::transmute_copy(&words) };
        action
    }
}
