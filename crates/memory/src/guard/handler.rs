//! The signal handler that mends faults of guarded accesses, and passes all others on.

use super::instructions::{pagewire_guard_begin, pagewire_guard_end, pagewire_guard_mend};
use super::watch;
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a fault raises.
pub const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What handled the signals before; `None`: our handler could not be installed.
static PREVIOUS: OnceLock<Option<[libc::sigaction; 2]>> = OnceLock::new();
/// Which of them was to be called once (SA_RESETHAND), and has been.
static SPENT: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

pub fn install() -> Option<&'static [libc::sigaction; 2]> {
    PREVIOUS
        .get_or_init(|| {
            let previous = [current(SIGNALS[0]).ok()?, current(SIGNALS[1]).ok()?];
            for (signal, before) in SIGNALS.into_iter().zip(&previous) {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
                let mut ours = *before;
                ours.sa_sigaction = handler as usize;
                // The handler before finds its own mask and stack; where there was none, ours takes whichever stack there is.
                let kept = libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
                let kept = if is_handler(before) { before.sa_flags & kept } else { libc::SA_ONSTACK };
                ours.sa_flags = libc::SA_SIGINFO | kept;
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

/// Whether it is a function of the program's.
fn is_handler(action: &libc::sigaction) -> bool {
    action.sa_sigaction > libc::SIG_IGN
}

pub fn is_ours(signal: i32) -> bool {
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
    // The handler before may leave by longjmp(3), with the signal still blocked.
    watch::mask_has_changed();
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
        let action = previous.as_ref()?[place];
        // Such a handler is there once; then the default action is.
        let once = is_handler(&action) && action.sa_flags & libc::SA_RESETHAND != 0;
        (!once || !SPENT[place].swap(true, Ordering::AcqRel)).then_some(action)
    });
    match previous {
        // SAFETY: the handler and its kind are those that the program installed for this signal; it gets what the
        // kernel gave.
        Some(action) if is_handler(&action) => unsafe {
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
