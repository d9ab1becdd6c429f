//! Which limit or filter is in the way where a thread, a process, memory or a descriptor cannot be had, and how to mend that.
//!
//! The kernel answers EAGAIN, ENOMEM or EMFILE, and names no limit. What is said here is read from the limits themselves
//! (getrlimit(2), cgroups), once something has been refused. Likewise of families of sockets that a filter forbids.

use crate::seccomp::refused_calls;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, getrlimit, getuid};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Address space that the engine takes: arenas, tables, the stacks of its threads.
const ENGINE_SPACE: u64 = 512 << 20;
/// Private writable memory that the engine takes before it touches it: the stacks of its threads.
const ENGINE_DATA: u64 = 64 << 20;

/// Threads and processes that an engine and whoever starts it take at a time: some may have ended when this is asked.
const ENGINE_TASKS: u64 = 32;

/// What is in the way and how to mend it, if a limit explains `error`.
pub fn shortage(error: &io::Error) -> Option<String> {
    let found: Vec<String> = match error.raw_os_error()? {
        libc::EMFILE => descriptors().into_iter().collect(),
        libc::ENFILE => {
            vec!["the machine has no more open files: sysctl fs.file-max, with a larger value".to_owned()]
        }
        libc::EAGAIN => {
            [processes(), tasks_of_cgroup(), data(), address_space()].into_iter().flatten().collect()
        }
        libc::ENOMEM => [data(), address_space()].into_iter().flatten().collect(),
        libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EAFNOSUPPORT => {
            [families(), refused_calls()].into_iter().flatten().collect()
        }
        _ => Vec::new(),
    };
    (!found.is_empty()).then(|| found.join("; "))
}

/// The families of sockets that the engine needs and this process may not have.
fn families() -> Option<String> {
    let is_refused = |family| {
        let opened = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        matches!(opened, Err(Errno::AFNOSUPPORT | Errno::PERM | Errno::ACCESS))
    };
    let mut refused = Vec::new();
    if is_refused(AddressFamily::UNIX) {
        refused.push("AF_UNIX");
    }
    // One of the two will do.
    if is_refused(AddressFamily::INET) && is_refused(AddressFamily::INET6) {
        refused.push("AF_INET or AF_INET6");
    }
    (!refused.is_empty()).then(|| {
        let names = refused.join(" and ");
        format!(
            "this process may have no sockets of {names}: a service manager (RestrictAddressFamilies=) or a seccomp filter forbids \
             them; allow {names}"
        )
    })
}

fn descriptors() -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    Some(format!("this process may have {limit} files open: raise that (ulimit -n 1024, or more)"))
}

/// The limit of processes and threads of this user, if they are about as many. It does not hold for root.
fn processes() -> Option<String> {
    let limit = getrlimit(Resource::Nproc).current?;
    if getuid().is_root() {
        return None;
    }
    let used = tasks_of_user(getuid().as_raw());
    (used + ENGINE_TASKS > limit).then(|| {
        format!(
            "this user may have {limit} processes and threads: raise that (ulimit -u 4096, or nproc in \
             /etc/security/limits.conf)"
        )
    })
}

/// How many processes and threads a user has, as far as /proc shows them.
fn tasks_of_user(user: u32) -> u64 {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let of_user = processes.flatten().filter(|entry| {
        let is_process =
            entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        is_process && entry.metadata().is_ok_and(|about| about.uid() == user)
    });
    let threads =
        |entry: fs::DirEntry| field(&fs::read_to_string(entry.path().join("status")).ok()?, "Threads:");
    of_user.filter_map(threads).sum()
}

/// The number behind `name` in a file of /proc.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The limit of processes and threads of this process's cgroup, or of one above it, if there are about as many.
fn tasks_of_cgroup() -> Option<String> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
    let root = std::path::Path::new("/sys/fs/cgroup");
    let number = |file: std::path::PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    root.join(path).ancestors().take_while(|group| group.starts_with(root)).find_map(|group| {
        let (limit, used) = (number(group.join("pids.max"))?, number(group.join("pids.current"))?);
        (used + ENGINE_TASKS > limit).then(|| {
            format!(
                "the cgroup {} may have {limit} processes and threads: write more to its pids.max",
                group.display()
            )
        })
    })
}

fn data() -> Option<String> {
    short(Resource::Data, "VmData:", ENGINE_DATA).map(|limit| {
        format!(
            "this process may have {limit} KB of private writable memory: raise that (ulimit -d unlimited)"
        )
    })
}

fn address_space() -> Option<String> {
    short(Resource::As, "VmSize:", ENGINE_SPACE).map(|limit| {
        format!("this process may have {limit} KB of address space: raise that (ulimit -v unlimited)")
    })
}

/// A limit in KB, if less than `needed` bytes of it are left.
fn short(resource: Resource, used: &str, needed: u64) -> Option<u64> {
    let limit = getrlimit(resource).current?;
    let used = field(&fs::read_to_string("/proc/self/status").ok()?, used)? << 10;
    (limit < used.saturating_add(needed)).then_some(limit >> 10)
}

/// The error with what is in the way, for people.
#[derive(Debug)]
pub struct Explained<'a>(pub &'a io::Error);

impl std::fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        match shortage(self.0) {
            Some(limit) => write!(f, ": {limit}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_limit_names_it_and_others_do_not() {
        let of = |code| shortage(&io::Error::from_raw_os_error(code));
        let text = of(libc::EMFILE).expect("a limit of open files");
        assert!(text.contains(" files open") && text.contains("ulimit -n"), "{text}");
        assert_eq!(of(libc::ENOENT), None);
        assert_eq!(shortage(&io::Error::other("text")), None);
    }

    #[test]
    fn fields_of_proc_are_found() {
        assert_eq!(field("Name:\tx\nThreads:\t3\nVmSize:\t  12 kB\n", "Threads:"), Some(3));
        assert_eq!(field("VmSize:\t  12 kB\n", "VmSize:"), Some(12));
        assert_eq!(field("Name:\tx\n", "VmSize:"), None);
        assert!(tasks_of_user(getuid().as_raw()) >= 1);
    }
}
