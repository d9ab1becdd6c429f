//! The few instructions that touch application memory directly, and the signal handler that mends their faults.
//!
//! The handler is installed when it is first needed, and passes every fault that is not at one of these
//! instructions on to the handler that was there before. A program may replace it (language runtimes do), and a
//! thread may block the signals: [`Guard::enter`] therefore looks each time whether it is in place, and
//! unblocks the two signals as long as the guard lives.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".balign 64",
    ".hidden pagewire_guard_begin",
    ".hidden pagewire_guard_end",
    ".hidden pagewire_guard_mend",
    ".hidden pagewire_guard_add",
    ".hidden pagewire_guard_swap",
    ".hidden pagewire_guard_touch",
    ".hidden pagewire_guard_touch_write",
    ".globl pagewire_guard_begin, pagewire_guard_end, pagewire_guard_mend",
    ".globl pagewire_guard_add, pagewire_guard_swap, pagewire_guard_touch, pagewire_guard_touch_write",
    "pagewire_guard_begin:",
    // (address, add, original) -> 0
    "pagewire_guard_add:",
    "mov rax, rsi",
    "lock xadd qword ptr [rdi], rax",
    "mov qword ptr [rdx], rax",
    "xor eax, eax",
    "ret",
    // (address, compare, swap, original) -> 0
    "pagewire_guard_swap:",
    "mov rax, rsi",
    "lock cmpxchg qword ptr [rdi], rdx",
    "mov qword ptr [rcx], rax",
    "xor eax, eax",
    "ret",
    // (address) -> 0
    "pagewire_guard_touch:",
    "mov al, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    // (address) -> 0; changes nothing, whatever others write meanwhile
    "pagewire_guard_touch_write:",
    "lock or byte ptr [rdi], 0",
    "xor eax, eax",
    "ret",
    "pagewire_guard_end:",
    "pagewire_guard_mend:",
    "mov eax, 1",
    "ret",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".balign 64",
    ".hidden pagewire_guard_begin",
    ".hidden pagewire_guard_end",
    ".hidden pagewire_guard_mend",
    ".hidden pagewire_guard_add",
    ".hidden pagewire_guard_swap",
    ".hidden pagewire_guard_touch",
    ".hidden pagewire_guard_touch_write",
    ".globl pagewire_guard_begin, pagewire_guard_end, pagewire_guard_mend",
    ".globl pagewire_guard_add, pagewire_guard_swap, pagewire_guard_touch, pagewire_guard_touch_write",
    "pagewire_guard_begin:",
    "pagewire_guard_add:",
    "1: ldaxr x3, [x0]",
    "add x4, x3, x1",
    "stlxr w5, x4, [x0]",
    "cbnz w5, 1b",
    "dmb ish",
    "str x3, [x2]",
    "mov w0, #0",
    "ret",
    "pagewire_guard_swap:",
    "2: ldaxr x4, [x0]",
    "cmp x4, x1",
    "b.ne 3f",
    "stlxr w5, x2, [x0]",
    "cbnz w5, 2b",
    "3: clrex",
    "dmb ish",
    "str x4, [x3]",
    "mov w0, #0",
    "ret",
    "pagewire_guard_touch:",
    "ldrb w1, [x0]",
    "mov w0, #0",
    "ret",
    "pagewire_guard_touch_write:",
    "4: ldxrb w1, [x0]",
    "stxrb w2, w1, [x0]",
    "cbnz w2, 4b",
    "mov w0, #0",
    "ret",
    "pagewire_guard_end:",
    "pagewire_guard_mend:",
    "mov w0, #1",
    "ret",
);

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("guarded accesses are written for x86_64 and aarch64");

unsafe extern "C" {
    static pagewire_guard_begin: u8;
    static pagewire_guard_end: u8;
    static pagewire_guard_mend: u8;
    fn pagewire_guard_add(address: u64, add: u64, original: *mut u64) -> i32;
    fn pagewire_guard_swap(address: u64, compare: u64, swap: u64, original: *mut u64) -> i32;
    fn pagewire_guard_touch(address: u64) -> i32;
    fn pagewire_guard_touch_write(address: u64) -> i32;
}

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What handled the signals before; `None`: our handler could not be installed.
static PREVIOUS: OnceLock<Option<[libc::sigaction; 2]>> = OnceLock::new();

/// Nothing could be read or written at the address.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault;

/// As long as it lives a fault of a guarded access on this thread is mended.
pub struct Guard {
    /// The mask to be set again, where a signal was blocked.
    mask: Option<libc::sigset_t>,
    /// A guard belongs to the thread whose mask it has changed.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Guard {
    /// `None`: somebody else handles the signals now.
    pub fn enter() -> Option<Self> {
        install()?;
        if !SIGNALS.into_iter().all(is_ours) {
            return None;
        }
        let mut unblocked = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that the calls after it use; pthread_sigmask fills `before` where it
        // returns 0 (pthread_sigmask(3)).
        unsafe {
            libc::sigemptyset(unblocked.as_mut_ptr());
            for signal in SIGNALS {
                libc::sigaddset(unblocked.as_mut_ptr(), signal);
            }
            if libc::pthread_sigmask(libc::SIG_UNBLOCK, unblocked.as_ptr(), before.as_mut_ptr()) != 0 {
                return None;
            }
            let before = before.assume_init();
            let blocked = SIGNALS.into_iter().any(|signal| libc::sigismember(&before, signal) == 1);
            Some(Guard { mask: blocked.then_some(before), _thread: std::marker::PhantomData })
        }
    }

    /// Adds to the 8 aligned bytes at an address (sequentially consistent); gives what was there.
    pub fn fetch_add(&self, address: u64, add: u64) -> Result<u64, Fault> {
        assert_eq!(address % 8, 0, "atomics are aligned");
        let mut original = 0;
        // SAFETY: a fault at `address` is mended by our handler, which is in place and whose signals are unblocked (self). What
        // is written is application memory, to which the engine holds no references.
        match unsafe { pagewire_guard_add(address, add, &mut original) } {
            0 => Ok(original),
            _ => Err(Fault),
        }
    }

    /// Replaces the 8 aligned bytes at an address if they are `compare` (sequentially consistent); gives what was
    /// there.
    pub fn compare_swap(&self, address: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        assert_eq!(address % 8, 0, "atomics are aligned");
        let mut original = 0;
        // SAFETY: as fetch_add.
        match unsafe { pagewire_guard_swap(address, compare, swap, &mut original) } {
            0 => Ok(original),
            _ => Err(Fault),
        }
    }

    /// Has the page at an address brought in, for writing too where `write`, without a change of its bytes. Waits as
    /// long as that takes.
    pub fn touch(&self, address: u64, write: bool) -> Result<(), Fault> {
        // SAFETY: as fetch_add; the one writes nothing, the other what is there, atomically.
        let outcome = unsafe {
            if write { pagewire_guard_touch_write(address) } else { pagewire_guard_touch(address) }
        };
        if outcome == 0 { Ok(()) } else { Err(Fault) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mask) = &self.mask {
            // SAFETY: a mask that the kernel gave for this thread (a Guard does not leave its thread).
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
        }
    }
}

/// An atomic on memory that was found writable just before, while no fault could be mended: the program has taken
/// the signals over. Should it unmap the page between the look and the access, its own handler sees the fault, as
/// for any access of the program to memory that it unmaps while in use.
///
/// # Safety
/// 8 aligned bytes are mapped for reading and writing at the address.
pub(crate) unsafe fn unguarded(address: u64, operation: crate::AtomicOperation) -> u64 {
    let mut original = 0;
    // SAFETY: by the caller's promise the access does not fault.
    unsafe {
        match operation {
            crate::AtomicOperation::FetchAdd { add } => pagewire_guard_add(address, add, &mut original),
            crate::AtomicOperation::CompareSwap { compare, swap } => {
                pagewire_guard_swap(address, compare, swap, &mut original)
            }
        }
    };
    original
}

fn install() -> Option<&'static [libc::sigaction; 2]> {
    PREVIOUS
        .get_or_init(|| {
            let previous = [current(SIGNALS[0]).ok()?, current(SIGNALS[1]).ok()?];
            for (signal, before) in SIGNALS.into_iter().zip(&previous) {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
                let mut ours = *before;
                ours.sa_sigaction = handler as usize;
                // The handler before finds its own mask and stack.
                ours.sa_flags = libc::SA_SIGINFO
                    | libc::SA_ONSTACK
                    | before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
                // SAFETY: `handle` is async-signal-safe: it compares addresses, changes the saved program counter, or
                // calls what was installed before. `previous` is published by the OnceLock after both are installed; a
                // fault before that is taken for the default action by `handle`, which cannot be ours: no guarded
                // access runs before `install` has returned.
                if unsafe { libc::sigaction(signal, &ours, std::ptr::null_mut()) } != 0 {
                    return None;
                }
            }
            Some(previous)
        })
        .as_ref()
}

fn current(signal: i32) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action sigaction(2) only fills `action`.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled, since the call succeeded.
    Ok(unsafe { action.assume_init() })
}

fn is_ours(signal: i32) -> bool {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    current(signal).is_ok_and(|action| action.sa_sigaction == handler as usize)
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives an SA_SIGINFO handler a valid ucontext_t, whose registers are loaded again when the
    // handler returns (sigaction(2)). The symbols are labels; only their addresses are used.
    unsafe {
        let context = context.cast::<libc::ucontext_t>();
        let counter = program_counter(context);
        let begin = &raw const pagewire_guard_begin as u64;
        let end = &raw const pagewire_guard_end as u64;
        if (begin..end).contains(&*counter) {
            *counter = &raw const pagewire_guard_mend as u64;
            return;
        }
    }
    pass_on(signal, info, context);
}

#[cfg(target_arch = "x86_64")]
unsafe fn program_counter(context: *mut libc::ucontext_t) -> *mut u64 {
    // SAFETY: `handle` passes on the kernel's valid context.
    unsafe { (&raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize]).cast() }
}

#[cfg(target_arch = "aarch64")]
unsafe fn program_counter(context: *mut libc::ucontext_t) -> *mut u64 {
    // SAFETY: `handle` passes on the kernel's valid context.
    unsafe { (&raw mut (*context).uc_mcontext.pc).cast() }
}

fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().and_then(|previous| {
        let place = SIGNALS.iter().position(|known| *known == signal)?;
        Some(previous.as_ref()?[place])
    });
    match previous {
        // SAFETY: the handler and its kind are those that the program installed for this signal; it gets what the
        // kernel gave.
        Some(action) if action.sa_sigaction > libc::SIG_IGN => unsafe {
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(action.sa_sigaction);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(i32) = std::mem::transmute(action.sa_sigaction);
                handler(signal);
            }
        },
        // A signal that another process sent can be ignored; a fault cannot.
        // SAFETY: `info` is the kernel's.
        Some(action) if action.sa_sigaction == libc::SIG_IGN && unsafe { (*info).si_code } <= 0 => {}
        _ => {
            // SAFETY: zero is a valid sigaction: the default action, no flags, an empty mask. The signal is sent to this
            // thread again and, blocked while its handler runs, ends the process when the handler returns.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &default, std::ptr::null_mut());
                libc::raise(signal);
            }
        }
    }
}
