//! The kernel and what it lets processes do to each other.

use super::limits::mend;
use super::{Finding, setting};
use crate::running::probe;
use rustix::process::{PTracer, PidfdFlags, getpid, pidfd_open, set_ptracer};

pub(super) fn findings() -> Vec<Finding> {
    vec![
        version(),
        proc_file_system(),
        cross_memory(),
        pidfd(),
        memfd(),
        io_uring(),
        namespaces(),
        descriptors(),
    ]
}

/// The running kernel's version, as (major, minor).
pub(super) fn kernel_version() -> Option<(u32, u32)> {
    let release = setting("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn version() -> Finding {
    let release = setting("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let found = format!("Linux {release}");
    match kernel_version() {
        Some(version) if version >= (5, 14) => {
            Finding::ok("kernel", found, "every mechanism that Pagewire uses is there")
        }
        Some(version) if version >= (5, 10) => Finding::costs(
            "kernel",
            found,
            "before 5.14 (MADV_POPULATE_WRITE) an atomic looks up in /proc/self/maps whether its page may be written, which is slow",
            "a kernel of 5.14 or later",
        ),
        _ => Finding::costs(
            "kernel",
            found,
            "older than the oldest kernel that Pagewire is written for (5.10): untried",
            "a kernel of 5.10 or later",
        ),
    }
}

fn proc_file_system() -> Finding {
    if std::path::Path::new("/proc/self/maps").exists() {
        Finding::ok("/proc", "mounted", "kinds of memory and peers can be looked up")
    } else {
        Finding::forbids(
            "/proc",
            "not mounted",
            "Pagewire looks up memory and processes there",
            "mount -t proc proc /proc",
        )
    }
}

fn cross_memory() -> Finding {
    const CHECK: &str = "cross-memory attach";
    let scope = match setting("/proc/sys/kernel/yama/ptrace_scope") {
        Some(scope) => format!("Yama ptrace scope {scope}"),
        None => "no Yama".to_owned(),
    };
    let Err(refused) = probe::cross_memory_read() else {
        return Finding::ok(
            CHECK,
            format!("process_vm_readv works between processes of this user ({scope})"),
            "the local path",
        );
    };
    // What the engine does itself in each process.
    if set_ptracer(PTracer::Any).is_ok() {
        let again = probe::cross_memory_read();
        // Only this short-lived command's own memory was open in between; closed again all the same.
        let closed = set_ptracer(PTracer::None);
        if again.is_ok() && closed.is_ok() {
            return Finding::ok(
                CHECK,
                format!("works after PR_SET_PTRACER, which the engine calls by itself ({scope})"),
                "the local path; while it is open every process of this user may read the program's memory",
            );
        }
    }
    if let Some(limit) = crate::limit_in_the_way(&refused) {
        return Finding::costs(
            CHECK,
            format!("not tried: {refused:#} ({scope})"),
            "whether the local path can be had is not known",
            limit,
        );
    }
    Finding::costs(
        CHECK,
        format!("process_vm_readv: {refused:#} ({scope})"),
        "no local path: peers on this host are reached over UDP",
        match setting("/proc/sys/kernel/yama/ptrace_scope").as_deref() {
            Some("3") => {
                "kernel.yama.ptrace_scope=1 in /etc/sysctl.d, then start the machine anew (3 cannot be taken back)"
            }
            Some("2") => "sysctl kernel.yama.ptrace_scope=1",
            _ => {
                "in a container: --cap-add SYS_PTRACE, or a seccomp profile that allows process_vm_readv and process_vm_writev; a kernel with CONFIG_CROSS_MEMORY_ATTACH"
            }
        },
    )
}

fn pidfd() -> Finding {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => Finding::ok("pidfd", "works", "a peer is named for good, whatever becomes of its number"),
        Err(error) => Finding::costs(
            "pidfd",
            format!("pidfd_open: {error}"),
            "a peer's end is noticed by its sockets only",
            mend(&error.into(), "a kernel of 5.3 or later, a seccomp profile with pidfd_open"),
        ),
    }
}

fn memfd() -> Finding {
    match rustix::fs::memfd_create("pagewire-doctor", rustix::fs::MemfdFlags::CLOEXEC) {
        Ok(_) => Finding::ok("memfd", "works", "processes can share their tables"),
        Err(error) => Finding::forbids(
            "memfd",
            format!("memfd_create: {error}"),
            "processes share their tables by it",
            mend(&error.into(), "a seccomp profile with memfd_create"),
        ),
    }
}

fn io_uring() -> Finding {
    let found = match io_uring::IoUring::new(2) {
        Ok(_) => "works".to_owned(),
        Err(error) => format!("not available: {error}"),
    };
    Finding::unused("io_uring", found)
}

fn namespaces() -> Finding {
    const CHECK: &str = "namespaces";
    let Err(refused) = probe::namespaces() else {
        return Finding::ok(
            CHECK,
            "this user may make network namespaces",
            "the demonstration has two hosts",
        );
    };
    if let Some(limit) = crate::limit_in_the_way(&refused) {
        return Finding::costs(
            CHECK,
            format!("not tried: {refused:#}"),
            "whether the demonstration can have two hosts is not known; nothing but the end-to-end tests needs them",
            limit,
        );
    }
    let is = |file: &str, value: &str| setting(file).as_deref() == Some(value);
    let advice = if is("/proc/sys/user/max_user_namespaces", "0") {
        "sysctl user.max_user_namespaces=10000"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "sysctl kernel.unprivileged_userns_clone=1"
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with userns"
    } else if is("/proc/sys/user/max_net_namespaces", "0") {
        "sysctl user.max_net_namespaces=10000"
    } else {
        "in a container: --cap-add SYS_ADMIN, or a seccomp profile that allows unshare"
    };
    Finding::costs(
        CHECK,
        format!("unshare: {refused:#}"),
        "the demonstration has one host instead of two, and the end-to-end tests do not run; nothing else needs them",
        advice,
    )
}

fn descriptors() -> Finding {
    const CHECK: &str = "open files";
    const ENOUGH: u64 = 1024;
    // The engine's, a context's, those of a first queue pair, and the standard ones.
    const LEAST: u64 = 22;
    match nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft >= ENOUGH => Finding::ok(
            CHECK,
            format!("limit {soft}, hard limit {hard}"),
            "descriptors for channels and peers",
        ),
        Ok((soft, hard)) if soft >= LEAST => Finding::costs(
            CHECK,
            format!("limit {soft}, hard limit {hard}"),
            "few completion channels and peers",
            "raise that (ulimit -n 1024, or more)",
        ),
        Ok((soft, hard)) => Finding::forbids(
            CHECK,
            format!("limit {soft}, hard limit {hard}"),
            "a program with a queue pair has 22 at least: none can be made",
            format!("this process may have {soft} files open: raise that (ulimit -n 1024, or more)"),
        ),
        Err(error) => {
            Finding::costs(CHECK, format!("unknown: {error}"), "the limit could not be read", "ulimit -n")
        }
    }
}
