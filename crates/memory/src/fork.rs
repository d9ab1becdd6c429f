//! Notices that this process was forked: the child has none of the parent's engine memory.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static REGISTERED: Once = Once::new();

/// How many forks lie between this process and the one that loaded the engine. What was made in an earlier
/// generation belongs to a parent.
pub fn generation() -> u64 {
    REGISTERED.call_once(|| {
        // SAFETY: `in_child` may be called in a forked child of a program with threads: it only stores to
        // atomics, closes descriptors and asks for the process's number, all async-signal-safe (signal-safety(7)).
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // Only ENOMEM exists; without the handler a child would be taken for its parent.
        assert_eq!(failed, 0, "no memory for the fork handler");
    });
    GENERATION.load(Ordering::Acquire)
}

unsafe extern "C" fn in_child() {
    let _uncancelled = crate::Uncancelled::begin();
    GENERATION.fetch_add(1, Ordering::AcqRel);
    crate::arena::forget_in_child();
    crate::guard::take_over_in_child();
}
