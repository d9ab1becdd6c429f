//! Programs that handle SIGSEGV themselves. In a process of their own, since handlers belong to the whole process.

use pagewire_memory::{ApplicationMemory, AtomicOperation, HostMemory, MemoryError};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn of_the_program(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    SEEN.fetch_add(1, Ordering::SeqCst);
}

fn install(handler: usize) -> libc::sigaction {
    // SAFETY: zero is a valid sigaction; the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut before), 0);
        before
    }
}

#[test]
fn handlers_of_the_program() {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = of_the_program;
    install(handler as usize);
    let memory = HostMemory::new();
    let add = AtomicOperation::FetchAdd { add: 1 };
    // Ours comes before the program's, and mends only its own faults.
    assert_eq!(memory.atomic(4096, add), Err(MemoryError::NotMapped));
    assert_eq!(SEEN.load(Ordering::SeqCst), 0);
    // SAFETY: the program's handler counts and returns.
    unsafe { libc::raise(libc::SIGSEGV) };
    assert_eq!(SEEN.load(Ordering::SeqCst), 1);

    // The program takes the signal back: atomics still work, and what is not mapped is still an error.
    install(handler as usize);
    let word = AtomicU64::new(1);
    assert_eq!(memory.atomic(word.as_ptr() as u64, add), Ok(1));
    assert_eq!(word.load(Ordering::SeqCst), 2);
    assert_eq!(memory.atomic(4096, add), Err(MemoryError::NotMapped));
    assert_eq!(SEEN.load(Ordering::SeqCst), 1);
}
