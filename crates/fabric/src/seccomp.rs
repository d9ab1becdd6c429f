//! Which system calls a seccomp filter of this process refuses (seccomp(2)). Containers and service managers set such filters.

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::fs;

/// Makes a call in a way that changes nothing.
type SyscallProbe = fn() -> rustix::io::Result<()>;

/// Calls without which no engine starts.
const CALLS: [(&str, SyscallProbe); 4] = [
    ("memfd_create(2)", || memfd_create("pagewire-probe", MemfdFlags::CLOEXEC).map(drop)),
    ("epoll_create1(2)", || epoll::create(epoll::CreateFlags::CLOEXEC).map(drop)),
    ("eventfd2(2)", || eventfd(0, EventfdFlags::CLOEXEC).map(drop)),
    ("sched_getaffinity(2)", || rustix::thread::sched_getaffinity(None).map(drop)),
];

/// The calls that are refused and how to mend that, if this process has a filter.
pub fn refused_calls() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    // 2: SECCOMP_MODE_FILTER (proc_pid_status(5)).
    status.lines().find(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))?;
    let is_refused = |error: Errno| matches!(error, Errno::PERM | Errno::ACCESS | Errno::NOSYS);
    let refused: Vec<&str> =
        CALLS.iter().filter(|(_, call)| call().is_err_and(is_refused)).map(|(name, _)| *name).collect();
    (!refused.is_empty()).then(|| {
        format!(
            "a seccomp filter of this process refuses {}: allow it (SystemCallFilter= of a service, --security-opt seccomp= of a container)",
            refused.join(", ")
        )
    })
}
