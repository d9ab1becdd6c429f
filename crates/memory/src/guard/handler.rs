//! The signal handler that mends faults of guarded accesses, and passes all others on.

use super::instructions::{
    pagewire_guard_begin, pagewire_guard_end, pagewire_guard_ended, pagewire_guard_mend, touches,
};
use super::{fork_window, program, watch};
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// What a fault raises.
pub const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Whether ours could be installed.
static INSTALLED: OnceLock<bool> = OnceLock::new();

pub fn install() -> Option<()> {
    let installed = *INSTALLED.get_or_init(|| {
        // A forked child must be seen to be one.
        crate::fork::generation();
        program::stand_in(
            |signal| current(signal).ok(),
            // SAFETY: `handle` is async-signal-safe: it compares addresses, changes the saved program counter, or calls what
            // the program has set, which is kept before.
            |signal, before| unsafe {
                program::real(signal, &for_program(before), std::ptr::null_mut()) == 0
            },
        )
    });
    installed.then_some(())
}

/// Our handler, so that the program's finds its own mask and stack; where it has none, ours takes whichever stack there is.
pub fn for_program(action: &libc::sigaction) -> libc::sigaction {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    let mut ours = *action;
    ours.sa_sigaction = handler as usize;
    let kept = libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
    let kept = if is_handler(action) { action.sa_flags & kept } else { libc::SA_ONSTACK };
    ours.sa_flags = libc::SA_SIGINFO | kept;
    ours
}

pub fn current(signal: i32) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action sigaction(2) only fills `action`.
    if unsafe { program::real(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
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
        // First of all: what the rest of this looks at may be what the child does not have yet.
        if signal == libc::SIGSEGV && !is_sent(signal, info) && fork_window::place((*info).si_addr() as usize)
        {
            return;
        }
        let context = context.cast::<libc::ucontext_t>();
        let counter = program_counter(context);
        if has_our_word(info) {
            // Whoever touches nothing is none of the sender's business any more.
            if touches().contains(&*counter) {
                *counter = &raw const pagewire_guard_ended as u64;
            }
            return;
        }
        let begin = &raw const pagewire_guard_begin as u64;
        let end = &raw const pagewire_guard_end as u64;
        if (begin..end).contains(&*counter) && !is_sent(signal, info) {
            *counter = &raw const pagewire_guard_mend as u64;
            return;
        }
    }
    // The handler before may leave by longjmp(3), with the signal still blocked.
    watch::mask_has_changed();
    pass_on(signal, info, context);
}

/// Whether somebody sent the signal, while the thread was wherever it was: no access of this thread has raised it.
fn is_sent(signal: i32, info: *const libc::siginfo_t) -> bool {
    // SAFETY: `info` is what the kernel gave the handler.
    let code = unsafe { (*info).si_code };
    // Positive ones are the kernel's own (sigaction(2)); of these one tells of memory that nobody has come to yet.
    code <= 0 || (signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO)
}

/// Its address, which nobody else has, comes with the signals that the engine sends itself.
static OUR_WORD: u8 = 0;

/// What rt_tgsigqueueinfo(2) takes for a signal that comes with a word, on 64-bit machines: a siginfo_t.
#[repr(C)]
struct Queued {
    signal: i32,
    error: i32,
    code: i32,
    _padding: i32,
    process: i32,
    user: u32,
    word: *const u8,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

/// Sends a thread of this process a signal that has a touch under way there end, which says so, and that nobody else
/// sees. Only while our handler is in place; a thread that has ended gets none.
pub fn send_end_of_touch(thread: u32) {
    let signal = libc::SIGBUS;
    if INSTALLED.get() != Some(&true) || !is_ours(signal) {
        return;
    }
    let (process, thread) = (std::process::id() as i32, thread as i32);
    let queued = Queued {
        signal,
        error: 0,
        code: libc::SI_QUEUE,
        _padding: 0,
        process,
        user: rustix::process::getuid().as_raw(),
        word: &raw const OUR_WORD,
        _rest: [0; 12],
    };
    // SAFETY: rt_tgsigqueueinfo(2) reads a siginfo_t, of which `queued` has the size and the fields. The handler, ours, changes
    // nothing but the program counter of a touch, which may fault anywhere. Where it cannot be sent the touch goes on.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, &raw const queued) };
}

/// Whether a signal is one of these.
fn has_our_word(info: *const libc::siginfo_t) -> bool {
    // SAFETY: `info` is what the kernel gave the handler; with this code it has a word (sigaction(2)).
    unsafe {
        (*info).si_code == libc::SI_QUEUE
            && (*info).si_value().sival_ptr.cast_const() == (&raw const OUR_WORD).cast()
    }
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
    let Some(place) = SIGNALS.iter().position(|known| *known == signal) else { return };
    let action = program::action(place);
    // Such a handler is there once; then the default action is.
    if is_handler(&action) && action.sa_flags & libc::SA_RESETHAND != 0 {
        program::set_default(place);
    }
    if is_handler(&action) {
        // SAFETY: the handler and its kind are those that the program set for this signal; it gets what the kernel gave.
        unsafe {
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(action.sa_sigaction);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(i32) = std::mem::transmute(action.sa_sigaction);
                handler(signal);
            }
        }
    } else if action.sa_sigaction == libc::SIG_DFL || !is_sent(signal, info) {
        // What was sent can be ignored; a fault cannot.
        // SAFETY: zero is a valid sigaction: the default action, no flags, an empty mask. The signal is sent to this
        // thread again and, blocked while its handler runs, ends the process when the handler returns.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            program::real(signal, &default, std::ptr::null_mut());
            libc::raise(signal);
        }
    }
}
