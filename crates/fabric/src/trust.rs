//! Whether two processes may touch each other's memory, and the reason where not.

use crate::descriptors::Descriptor;
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use pagewire_memory::fork::PerProcess;
use pagewire_memory::{ApplicationMemory, HostMemory, HostProcess, MemoryError, Segment};
use rustix::process::{PTracer, Pid, geteuid, getpid, set_ptracer};
use std::os::fd::OwnedFd;

/// The process at the other end of a connection, as the kernel tells.
#[derive(Debug)]
pub struct PeerProcess {
    pub pid: Option<i32>,
    /// Names it for sure, even if it has ended and its number is another process's by now (Linux 6.5). [`read_nonce`] takes it.
    descriptor: Option<OwnedFd>,
}

impl PeerProcess {
    /// A process by its number alone.
    #[cfg(test)]
    pub fn by_pid(pid: i32) -> Self {
        PeerProcess { pid: Some(pid), descriptor: None }
    }

    /// Whether the process runs, or would if it got a processor: it has not ended, and neither a signal nor a debugger has stopped it
    /// (the state in `proc_pid_stat(5)`). False where this process cannot see it.
    pub fn is_runnable(&self) -> bool {
        let Some(pid) = self.pid else { return false };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        // The name before the state may contain anything, parentheses too.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, None | Some('T' | 't' | 'Z' | 'X' | 'x'))
    }
}

/// Who is at the other end.
///
/// # Errors
/// The reason to have no channel to it, as a sentence.
pub fn peer_of(socket: &Descriptor) -> Result<PeerProcess, String> {
    let credentials = getsockopt(socket, sockopt::PeerCredentials)
        .map_err(|error| format!("the process cannot be identified: {error}"))?;
    let (theirs, ours) = (credentials.uid(), geteuid().as_raw());
    if theirs != ours {
        return Err(format!("the process there belongs to user {theirs}, this one to user {ours}"));
    }
    // A process that this one does not see has the number 0.
    let pid = Some(credentials.pid()).filter(|pid| *pid > 0);
    let descriptor = match pid.map(|_| getsockopt(socket, sockopt::PeerPidfd)) {
        Some(Ok(descriptor)) => Some(descriptor),
        // The kernel knows none for sockets.
        None | Some(Err(Errno::ENOPROTOOPT)) => None,
        // The process has ended (ESRCH), or there is no descriptor for it.
        Some(Err(error)) => return Err(format!("the process cannot be named: {error}")),
    };
    Ok(PeerProcess { pid, descriptor })
}

/// Lets a peer touch our memory where Yama would forbid it among processes of one user (ptrace_scope 1). One process can
/// be named at a time, so that from the second on it must be all of this user. A forked child has named nobody yet.
pub fn allow(peer: &PeerProcess) {
    static ALLOWED: PerProcess<Option<i32>> = PerProcess::new();
    let Some(pid) = peer.pid else { return };
    if yama_scope() != Some(1) || pid == getpid().as_raw_nonzero().get() {
        return;
    }
    let mut allowed = ALLOWED.lock();
    let tracer = match (*allowed, Pid::from_raw(pid)) {
        (None, Some(named)) => PTracer::ProcessID(named),
        (Some(known), _) if known == pid => return,
        _ => PTracer::Any,
    };
    *allowed = Some(pid);
    match set_ptracer(tracer) {
        Ok(()) => log::debug!("Yama ptrace_scope is 1: PR_SET_PTRACER was called for {tracer:?}"),
        Err(error) => log::debug!("PR_SET_PTRACER failed: {error}"),
    }
}

/// Reads the peer's nonce out of its memory: the proof that this process may trace it.
///
/// Where the kernel has no SO_PEERPIDFD (before Linux 6.5) the process is named by its number alone, which another one may
/// have by now: what is read then is no proof, and the peer refuses it.
///
/// # Errors
/// Why the kernel refuses, as a sentence.
pub fn read_nonce(peer: &mut PeerProcess, nonce_address: u64) -> Result<(HostProcess, u64), String> {
    let pid = peer.pid.ok_or("the process is not visible from here (another PID namespace)")?;
    let named = match peer.descriptor.take() {
        Some(descriptor) if pid != getpid().as_raw_nonzero().get() => {
            Ok(HostProcess::from_descriptor(pid, descriptor))
        }
        _ => HostProcess::open(pid),
    };
    let process = named.map_err(|error| format!("process {pid} cannot be named: {error}"))?;
    let mut proof = 0u64;
    let from = [Segment { address: nonce_address, length: 8 }];
    let to = [Segment { address: &raw mut proof as u64, length: 8 }];
    match HostMemory::new().pull(&process, &from, &to, false) {
        Ok(()) => Ok((process, std::hint::black_box(proof))),
        Err(MemoryError::NotMapped | MemoryError::PeerNotMapped) => {
            Err(format!("process {pid} is another one than it seems (another PID namespace)"))
        }
        Err(MemoryError::PeerGone | MemoryError::PeerDenied) => Err(refusal(pid)),
    }
}

fn refusal(pid: i32) -> String {
    match yama_scope() {
        Some(scope @ 2..) => format!("process {pid} may not be traced: kernel.yama.ptrace_scope is {scope}"),
        Some(1) => format!(
            "process {pid} may not be traced: kernel.yama.ptrace_scope is 1, and PR_SET_PTRACER did not help"
        ),
        _ => format!("process {pid} may not be traced: it has more rights than this one, or is not dumpable"),
    }
}

fn yama_scope() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

#[cfg(test)]
#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{Signal, kill_process};
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    #[test]
    fn a_stopped_or_ended_peer_is_not_runnable() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let peer = PeerProcess::by_pid(child.id() as i32);
        let wait_until = |runnable: bool| {
            let limit = Instant::now() + Duration::from_secs(30);
            while peer.is_runnable() != runnable && Instant::now() < limit {
                std::thread::yield_now();
            }
            assert_eq!(peer.is_runnable(), runnable);
        };
        wait_until(true);
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        wait_until(false);
        kill_process(pid, Signal::CONT).unwrap();
        wait_until(true);
        child.kill().unwrap();
        wait_until(false);
        child.wait().unwrap();
        assert!(!peer.is_runnable());
        assert!(!PeerProcess { pid: None, descriptor: None }.is_runnable());
    }

    #[test]
    fn peer_has_pidfd() {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let peer = peer_of(&Descriptor::new(pair.0).unwrap()).unwrap();
        let own = getpid().as_raw_nonzero().get();
        assert_eq!(peer.pid, Some(own));
        let Some(descriptor) = peer.descriptor else {
            return not_checked::tell("this kernel has no SO_PEERPIDFD");
        };
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).unwrap();
        assert!(told.lines().any(|line| line == format!("Pid:\t{own}")), "{told}");
        let flags = rustix::io::fcntl_getfd(&descriptor).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
