//! Limits of this process (getrlimit(2)).

/// The soft limit on the length of files, memory files included. `None`: there is none, or the kernel does not say (a seccomp filter may
/// forbid the question).
pub fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) fills a local structure. rustix takes zeros for an answer where a filter refuses the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
