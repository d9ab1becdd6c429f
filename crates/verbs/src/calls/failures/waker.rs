//! The child that has a stopped process go on.
//!
//! It keeps nothing of the process: it closes all descriptors, so that peers see them end with the process. It takes no signal of the program's,
//! and ends with the thread that made it.

use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::Duration;

/// Descriptors that are closed one by one where the kernel has no close_range(2), at most.
const MAX_CLOSED: u64 = 1 << 16;

/// Between two SIGCONTs of a waker: the first may come before its process has stopped.
static AGAIN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A child that sends SIGCONT to this process until that ends it.
pub struct Waker {
    child: libc::pid_t,
}

/// Stops this process: this thread takes the signal, and stops before it returns from the call.
pub fn stop_own_process() {
    // glibc has gettid since 2.30.
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: tgkill(2) of this very thread has no preconditions.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGSTOP) };
}

impl Waker {
    /// A child that waits for so long.
    ///
    /// # Errors
    /// No child can be made (clone(2)).
    pub fn start(pause: Duration) -> Result<Self> {
        let time = libc::timespec {
            tv_sec: pause.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(pause.subsec_nanos() as i32),
        };
        // SAFETY: these have no preconditions; getrlimit(2) fills the local limit where it returns 0, and else it stays zeroed.
        let (parent, limit) = unsafe {
            let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
            (libc::getpid(), limit.assume_init())
        };
        let descriptors = limit.rlim_cur.min(MAX_CLOSED) as libc::c_int;
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset(3) initialises the set that pthread_sigmask(3) reads, and that fills `before`: with these arguments it does not fail.
        unsafe {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        // SAFETY: clone(2) without flags is fork(2) without the signal at its end, which the program would see. The child only makes system calls:
        // it takes no lock and allocates nothing, and `wake` does not return.
        let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        if child == 0 {
            wake(parent, descriptors, &time);
        }
        let made =
            if child < 0 { Err(Error::last_os_error()) } else { Ok(Waker { child: child as libc::pid_t }) };
        // SAFETY: pthread_sigmask(3) has filled `before` above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
        made
    }

    /// Stops this process until the child has it go on.
    pub fn stop_until_woken(self) {
        stop_own_process();
        self.end();
    }

    /// Ends the child; its status.
    fn end(self) -> libc::c_int {
        // SAFETY: kill(2) of the child that `start` has made, for which nobody has waited.
        unsafe { libc::kill(self.child, libc::SIGKILL) };
        self.wait()
    }

    /// Waits until the child has ended; its status.
    fn wait(self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: waits for the child that `start` has made, with a place for its status.
        while unsafe { libc::waitpid(self.child, &raw mut status, libc::__WCLONE) } < 0
            && Error::last_os_error().raw_os_error() == Some(libc::EINTR)
        {}
        status
    }
}

/// What the child does. All signals are blocked.
fn wake(parent: libc::pid_t, descriptors: libc::c_int, time: &libc::timespec) -> ! {
    // SAFETY: bare system calls, of which one reads a time that the caller has. The descriptors are those of this child alone.
    unsafe {
        // The thread that waits for this child ends only with its process.
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
            for descriptor in 0..descriptors {
                libc::syscall(libc::SYS_close, descriptor);
            }
        }
        libc::syscall(libc::SYS_nanosleep, &raw const *time, 0);
        // The parent may have died before it was bound to this child.
        while libc::syscall(libc::SYS_getppid) == libc::c_long::from(parent) {
            libc::syscall(libc::SYS_kill, parent, libc::SIGCONT);
            libc::syscall(libc::SYS_nanosleep, &raw const AGAIN, 0);
        }
        loop {
            libc::syscall(libc::SYS_exit_group, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::failures::{apply, rules};
    use pagewire_failures::Action;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(600);

    /// A waker that waits for long, and has closed its descriptors.
    fn start_and_await() -> Waker {
        let waker = Waker::start(LONG).unwrap();
        let open = format!("/proc/{}/fd", waker.child);
        let limit = Instant::now() + LONG;
        while std::fs::read_dir(&open).unwrap().count() > 0 {
            assert!(Instant::now() < limit, "descriptors are open");
            std::thread::yield_now();
        }
        waker
    }

    #[test]
    fn waker_has_no_descriptor_and_ends_with_its_thread() {
        let waker = start_and_await();
        assert_eq!(libc::WTERMSIG(waker.end()), libc::SIGKILL);
        // The thread that makes it ends, as the process of a thread that waits for it does.
        let waker = std::thread::spawn(start_and_await).join().unwrap();
        assert_eq!(libc::WTERMSIG(waker.wait()), libc::SIGKILL);
    }

    /// The process is late: it stops when the waker has begun to have it go on.
    #[test]
    fn waker_continues_its_process_that_stops_late() {
        // SAFETY: the child takes only locks that the fork held, and ends by _exit(2).
        let child = unsafe { libc::fork() };
        if child == 0 {
            for late in [0, 20] {
                let waker = Waker::start(Duration::from_millis(1)).unwrap();
                std::thread::sleep(Duration::from_millis(late));
                waker.stop_until_woken();
            }
            // SAFETY: ends this child.
            unsafe { libc::_exit(0) };
        }
        let (mut status, limit) = (-1, Instant::now() + LONG / 10);
        // SAFETY: waitpid(2) of our own child, with a place for its status.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            assert!(Instant::now() < limit, "it is stopped for good");
            std::thread::yield_now();
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    }

    #[test]
    fn process_without_waker_is_not_stopped() {
        // What the child looks at is there before it is forked.
        assert!(rules().is_none());
        // SAFETY: the child takes only locks that the fork held, and ends by _exit(2).
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: prctl(2) with a filter of local instructions, and _exit(2).
            unsafe {
                let is_forbidden = forbid_clone();
                assert!(apply::end_or_stop(Action::Stop(Some(1_000_000))).is_none());
                libc::_exit(i32::from(!is_forbidden));
            }
        }
        let mut status = -1;
        // SAFETY: waitpid(2) of our own child, with a place for its status. WUNTRACED also tells of a child that is stopped.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    }

    /// Has clone(2) fail with EAGAIN in this process from now on.
    ///
    /// # Safety
    /// No other thread of this process makes threads or processes.
    unsafe fn forbid_clone() -> bool {
        let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_clone as u32),
            statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
            statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: prctl(2) reads the program, which lives as long as the call.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        }
    }
}
