//! A child of vfork(2) shares its parent's memory, but not its handlers. In a process of its own, since handlers belong to
//! the whole process.

use pagewire_memory::{ApplicationMemory, AtomicOperation, HostMemory, MemoryError, guard};
use std::ptr::{null, null_mut};

extern "C" fn of_the_program(_signal: i32) {}

fn handler_now() -> usize {
    // SAFETY: zero is a valid sigaction, which the call replaces.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(guard::change_action(libc::SIGSEGV, null(), &mut now), 0);
        now.sa_sigaction
    }
}

/// The child: what it finds, and the default action in its place.
extern "C" fn child(expected: *mut libc::c_void) -> i32 {
    if handler_now() != expected as usize {
        return 1;
    }
    // SAFETY: zero is a valid sigaction: the default action.
    let changed = unsafe { guard::change_action(libc::SIGSEGV, &std::mem::zeroed(), null_mut()) };
    if changed != 0 || handler_now() != libc::SIG_DFL { 2 } else { 0 }
}

#[test]
fn what_a_child_of_vfork_sets_changes_nothing_for_its_parent() {
    let handler = of_the_program as extern "C" fn(i32) as usize;
    // SAFETY: zero is a valid sigaction; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, null_mut()), 0);
    }
    let memory = HostMemory::new();
    let add = AtomicOperation::FetchAdd { add: 1 };
    assert_eq!(memory.atomic(4096, add), Err(MemoryError::NotMapped));
    assert_eq!(handler_now(), handler);
    let mut stack = vec![0u64; 1 << 13];
    // SAFETY: as vfork(2), on a stack of its own: the parent waits until the child, which calls nothing that could not
    // be called in a signal handler, has ended.
    let status = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid =
            libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, handler as *mut libc::c_void);
        assert!(pid > 0, "{}", std::io::Error::last_os_error());
        let mut status = -1;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    };
    assert_eq!(status, 0);
    assert_eq!(handler_now(), handler);
    assert_eq!(memory.atomic(4096, add), Err(MemoryError::NotMapped));
}
