//! Forked children of a test: each makes calls on objects of its parent, and reports those that do not end as they must.

#![allow(dead_code)] // Each test file uses some of it.

use std::fmt::{Debug, Display};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The environment variable of a process that runs a test on one path.
const PATH_IS_SET: &str = "PAGEWIRE_FORKED_TEST";
/// The environment variable of a process that has locked files: their folder.
const LOCKED_FOLDER: &str = "PAGEWIRE_FORKED_LOCKED_FOLDER";
/// A child that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// What each error of a forked child says.
const FORKED: &str = "this process was forked";
/// Forks of a test, and the time after which it makes no more.
const FORKS: usize = 100;
const FORKS_FOR: Duration = Duration::from_secs(6);

/// The pipe to the parent. Negative: this process is no child.
static REPORT: AtomicI32 = AtomicI32::new(-1);

/// Reports what the library logs in a child: destructors there are silent.
struct ChildLog;

impl log::Log for ChildLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn && REPORT.load(Ordering::Relaxed) >= 0
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            Child::current().report(&format!("it logs: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// The calling process, which is a forked child.
pub struct Child {
    report: PipeWriter,
}

impl Child {
    fn current() -> std::mem::ManuallyDrop<Child> {
        // SAFETY: the descriptor is open as long as the child lives, and is not closed here.
        let report = unsafe { PipeWriter::from_raw_fd(REPORT.load(Ordering::Relaxed)) };
        std::mem::ManuallyDrop::new(Child { report })
    }

    fn report(&mut self, what: &str) {
        // One write(2) of less than a page: no lock, and nothing comes between.
        let _ = self.report.write_all(format!("{}\n", what.replace('\n', " ")).as_bytes());
    }

    fn make<T>(&mut self, call: &str, body: impl FnOnce() -> T) -> Option<T> {
        self.report(&format!(">{call}"));
        let made = catch_unwind(AssertUnwindSafe(body)).ok();
        if made.is_none() {
            self.report(&format!("{call} panics"));
        }
        made
    }

    /// A call that must be refused because of the fork.
    pub fn refuses<T, E: Display>(&mut self, call: &str, body: impl FnOnce() -> Result<T, E>) {
        match self.make(call, body) {
            Some(Err(error)) if error.to_string().contains(FORKED) => {}
            Some(Err(error)) => self.report(&format!("{call} fails otherwise: {error}")),
            Some(Ok(_)) => self.report(&format!("{call} succeeds")),
            None => {}
        }
    }

    /// A call without an error, which must give this.
    pub fn gives<T: PartialEq + Debug>(&mut self, call: &str, expected: T, body: impl FnOnce() -> T) {
        if let Some(found) = self.make(call, body)
            && found != expected
        {
            self.report(&format!("{call} gives {found:?}"));
        }
    }

    /// A call that must return, and log nothing.
    pub fn ends(&mut self, call: &str, body: impl FnOnce()) {
        self.make(call, body);
    }
}

/// Forks. The child makes calls, and ends by _exit(2). Gives what was wrong there.
pub fn in_child(calls: impl FnOnce(&mut Child)) -> Vec<String> {
    static LOG: ChildLog = ChildLog;
    if log::set_logger(&LOG).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the C library makes its allocator usable in the child, which makes the calls that are to be checked there, and ends by _exit(2).
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        drop(reader);
        let report = writer.into_raw_fd();
        REPORT.store(report, Ordering::Relaxed);
        // SAFETY: dup2(2) of two descriptors of this process: what goes to standard error is reported, too.
        unsafe { libc::dup2(report, 2) };
        let mut current = Child::current();
        if catch_unwind(AssertUnwindSafe(|| calls(&mut current))).is_err() {
            current.report("the calls end in a panic");
        }
        // SAFETY: _exit(2) has no preconditions.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let (said, hangs) = read_report(reader);
    if hangs {
        // SAFETY: kill(2) of our own child, which was not waited for yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = -1;
    // SAFETY: waitpid(2) of our own child, with a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    let (calls, mut wrong): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with('>'));
    let last = calls.last().map_or("the first call", |call| &call[1..]);
    let ended = match (hangs, status) {
        (true, _) => format!("{last} does not end"),
        (false, 0) => return wrong.into_iter().map(str::to_owned).collect(),
        (false, status) => format!("{last} ends the child with status {status:#x}"),
    };
    wrong.push(&ended);
    wrong.into_iter().map(str::to_owned).collect()
}

/// What a child has reported, and whether it is still there after the time that it may take.
fn read_report(mut reader: PipeReader) -> (String, bool) {
    let (start, mut bytes) = (Instant::now(), Vec::new());
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        let mut ready = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: poll(2) of one descriptor.
        let count = unsafe { libc::poll(&raw mut ready, 1, left.as_millis() as i32) };
        if count < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
            continue;
        }
        let mut part = [0; 4096];
        let length = if count > 0 { reader.read(&mut part).unwrap() } else { 0 };
        if length == 0 {
            return (String::from_utf8_lossy(&bytes).into_owned(), count <= 0);
        }
        bytes.extend(&part[..length]);
    }
}

/// Calls `body` while threads do their work again and again, each with its number.
pub fn while_busy(threads: u64, work: impl Fn(u64) + Sync, body: impl FnOnce()) {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (ends, work) = (&ends, &work);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    work(number);
                }
            });
        }
        let outcome = catch_unwind(AssertUnwindSafe(body));
        ends.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Forks again and again.
///
/// # Panics
/// Something was wrong in a child.
pub fn in_many_children(mut calls: impl FnMut(&mut Child)) {
    let start = Instant::now();
    for number in 0..FORKS {
        let wrong = in_child(&mut calls);
        assert!(wrong.is_empty(), "child {number}: {wrong:#?}");
        if start.elapsed() > FORKS_FOR {
            return;
        }
    }
}

/// The child's copy of a value of its parent, to be dropped there.
pub fn copy_of<T>(value: &T) -> T {
    assert!(REPORT.load(Ordering::Relaxed) >= 0, "only a child drops what its parent has");
    // SAFETY: the child ends by _exit(2), so that the value is not dropped by the one who has it; nobody uses it behind its drop.
    unsafe { std::ptr::read(value) }
}

/// Runs a test in another process for each path, as the path of a process is chosen when its engine starts.
pub fn on_each_path(name: &str, test: fn()) {
    if std::env::var_os(PATH_IS_SET).is_some() {
        return test();
    }
    for path in ["local", "udp"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PATH_IS_SET, "1")
            .env("PAGEWIRE_PATH", path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{path}: {text}\n{errors}");
    }
}

/// Locks files of a folder in another process, which forks a child and is killed, and locks them here while the child lives.
/// A lock of flock(2) lasts as long as any process has the file. `name`: of the calling test, which is all that the other process runs.
///
/// # Panics
/// The files cannot be locked here.
pub fn relock_beside_child<L, T>(
    name: &str,
    lock: impl FnOnce(&Path) -> L,
    relock: impl FnOnce(&Path) -> T,
) -> T {
    if let Some(folder) = std::env::var_os(LOCKED_FOLDER) {
        let _locked = lock(Path::new(&folder));
        sleep_with_child();
    }
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(LOCKED_FOLDER, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let child = said.filter_map(|line| line.split_once("child ")?.1.parse::<libc::pid_t>().ok()).next();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| relock(folder.path())));
    // SAFETY: kill(2) has no preconditions; the pid is that of the holder's child, which sleeps still.
    assert_eq!(unsafe { libc::kill(child.unwrap(), libc::SIGKILL) }, 0);
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Forks a child that sleeps, prints its pid, and waits to be killed.
fn sleep_with_child() -> ! {
    // SAFETY: the child calls alarm(2) and pause(2) alone, until a signal ends it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: alarm(2) has no preconditions.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        loop {
            // SAFETY: pause(2) has no preconditions.
            unsafe { libc::pause() };
        }
    }
    println!("child {child}");
    std::thread::sleep(PATIENCE);
    panic!("nobody has killed the process that locked the files");
}
