//! One run, in a process of its own: `pagewire fail-each-run`, which the command starts for each run.
//!
//! The process makes the run's namespaces, starts the roles, watches over their time, and leaves none of them behind: those whose parent
//! has ended become its children (PR_SET_CHILD_SUBREAPER). If the command ends, so does the run.

use super::job::{End, Process, ProcessOutcome, RunAnswer, RunJob, RunOutcome};
use super::loopback;
use super::scenario::Readiness;
use crate::limits::{FAIL_EACH_END_LIMIT, FAIL_EACH_OUTPUT_BYTES, FAIL_EACH_TICK};
use crate::running::pair::Running;
use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getegid, geteuid};
use std::io::{BufRead, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The word by which the command starts itself once more for a run.
pub const WORD: &str = "fail-each-run";

/// Takes a job from standard input, runs it, and prints the answer.
///
/// # Errors
/// If input or output fails; what the run meets stands in the answer.
pub fn serve() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let job: RunJob = serde_json::from_str(&line).context("the job")?;
    let answer = match run(&job) {
        Ok(outcome) => RunAnswer::Done(outcome),
        Err(error) => RunAnswer::Refused(format!("{error:#}")),
    };
    let answer = match end_descendants(FAIL_EACH_END_LIMIT) {
        left if left.is_empty() => answer,
        left => RunAnswer::Refused(format!("processes of a run do not end by SIGKILL: {left:?}")),
    };
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, &answer)?;
    output.write_all(b"\n")?;
    Ok(())
}

fn run(job: &RunJob) -> Result<RunOutcome> {
    nix::sys::prctl::set_child_subreaper(true).context("PR_SET_CHILD_SUBREAPER")?;
    if job.own_network {
        // Before the first thread: a process of several cannot have a user namespace of its own.
        make_network().context("a network namespace")?;
    }
    let orphaned = watch_input()?;
    let started = Instant::now();
    let mut run = Run { job, members: Vec::new(), deadline: started + job.limit, orphaned };
    run.start()?;
    run.wait();
    let processes = run.conclude();
    let verifier = verify(job, &processes)?;
    Ok(RunOutcome { processes, verifier, elapsed: started.elapsed() })
}

/// A network namespace with a loopback interface, in a user namespace where that is needed.
fn make_network() -> Result<()> {
    let direct = geteuid().is_root() && unshare(CloneFlags::CLONE_NEWNET).is_ok();
    if !direct {
        let (user, group) = (geteuid(), getegid());
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
        let write = |file: &str, text: String| std::fs::write(file, text).with_context(|| file.to_owned());
        // Programs run as who they were: root in the namespace would be another user to them.
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("{user} {user} 1\n"))?;
        write("/proc/self/gid_map", format!("{group} {group} 1\n"))?;
    }
    loopback::raise().context("the loopback interface")
}

/// Becomes true when the command has ended: standard input is its pipe.
fn watch_input() -> Result<Arc<AtomicBool>> {
    let orphaned = Arc::new(AtomicBool::new(false));
    let flag = orphaned.clone();
    let watch = move || {
        let mut byte = [0];
        // Nothing more comes but the end, or an error, which is one.
        while let Ok(1..) = std::io::stdin().read(&mut byte) {}
        flag.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("pagewire-input".to_owned()).spawn(watch).context("a thread")?;
    Ok(orphaned)
}

struct Run<'a> {
    job: &'a RunJob,
    members: Vec<RunningProcess<'a>>,
    deadline: Instant,
    orphaned: Arc<AtomicBool>,
}

struct RunningProcess<'a> {
    process: &'a Process,
    running: Running,
    ready: bool,
    /// Whether it got SIGTERM.
    asked_to_end: bool,
}

impl Run<'_> {
    /// Starts the processes one after the other, each when those before it are ready.
    fn start(&mut self) -> Result<()> {
        for process in &self.job.processes {
            let mut command = Command::new(&process.words[0]);
            command.args(&process.words[1..]).envs(&process.environment).current_dir(&self.job.directory);
            let running = Running::start(command)?;
            self.members.push(RunningProcess { process, running, ready: false, asked_to_end: false });
            let since = Instant::now();
            loop {
                let last = self.members.len() - 1;
                let member = &mut self.members[last];
                member.ready = member.is_ready(&self.job.directory, since);
                if member.ready {
                    break;
                }
                if member.running.has_ended() || self.must_end() {
                    return Ok(());
                }
                std::thread::sleep(FAIL_EACH_TICK);
            }
        }
        Ok(())
    }

    fn must_end(&self) -> bool {
        Instant::now() >= self.deadline || self.orphaned.load(Ordering::Relaxed)
    }

    /// Waits until the run is over: all have ended but those that serve, or one has given up and its peers had time to see it.
    fn wait(&mut self) {
        let all_started = self.members.len() == self.job.processes.len();
        let mut given_up: Option<Instant> = None;
        while !self.must_end() {
            let open = |member: &RunningProcess| !member.process.serves && !member.running.has_ended();
            if all_started && !self.members.iter().any(open) {
                return;
            }
            if given_up.is_none() && (self.has_given_up() || !all_started) {
                given_up = Some(Instant::now());
            }
            let over = self.members.iter().all(|member| member.running.has_ended());
            if over || given_up.is_some_and(|moment| moment.elapsed() >= self.job.grace) {
                return;
            }
            std::thread::sleep(FAIL_EACH_TICK);
        }
    }

    /// Whether a process whose peers wait in vain has ended badly. While one whose call fails still runs, nobody else's end counts: how
    /// that one goes on is what the run shows.
    fn has_given_up(&mut self) -> bool {
        let fails_and_runs = |member: &RunningProcess| {
            member.process.fails && !member.process.serves && !member.running.has_ended()
        };
        if self.members.iter().any(fails_and_runs) {
            return false;
        }
        let ended_badly = |member: &mut RunningProcess| match member.end_now() {
            Some(End::Exit(0)) | None => false,
            Some(_) => true,
        };
        self.members.iter_mut().any(ended_badly)
    }

    /// Ends what still runs, and says how each process ended.
    fn conclude(mut self) -> Vec<ProcessOutcome> {
        let at_limit = self.must_end();
        for member in &mut self.members {
            if member.process.serves && !member.running.has_ended() {
                member.asked_to_end = true;
                // It may have ended just now.
                let _ended = kill(Pid::from_raw(member.running.pid().cast_signed()), Signal::SIGTERM);
            }
        }
        let patience = Instant::now() + self.job.grace;
        let serving = |member: &RunningProcess| member.process.serves && !member.running.has_ended();
        while self.members.iter().any(serving) && Instant::now() < patience {
            std::thread::sleep(FAIL_EACH_TICK);
        }
        let mut outcomes: Vec<ProcessOutcome> = Vec::new();
        for mut member in self.members.drain(..) {
            let role = member.process.role.clone();
            let end = match member.end_now() {
                Some(End::Exit(_)) if member.asked_to_end => End::Stopped,
                Some(End::Signal(number)) if member.asked_to_end && number == Signal::SIGTERM as i32 => {
                    End::Stopped
                }
                Some(end) => end,
                None if at_limit && !member.process.serves => End::Limit,
                None => End::Stopped,
            };
            let finished = member.running.wait_until(Instant::now());
            outcomes.push(ProcessOutcome { role, end, output: tail(&finished.output) });
        }
        for process in &self.job.processes[outcomes.len()..] {
            outcomes.push(ProcessOutcome {
                role: process.role.clone(),
                end: End::NotStarted,
                output: String::new(),
            });
        }
        outcomes
    }
}

impl RunningProcess<'_> {
    fn is_ready(&self, directory: &Path, since: Instant) -> bool {
        match &self.process.ready {
            None => true,
            Some(Readiness::Line(text)) => self.running.has_written(text),
            Some(Readiness::Port(port)) => self.running.host_listens(*port),
            Some(Readiness::File(file)) => directory.join(file).exists(),
            Some(Readiness::Seconds(seconds)) => since.elapsed() >= Duration::from_secs_f64(*seconds),
        }
    }

    /// How it ended, if it has.
    fn end_now(&mut self) -> Option<End> {
        if !self.running.has_ended() {
            return None;
        }
        self.running.kill().map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (None, signal) => End::Signal(signal.unwrap_or_default()),
        })
    }
}

/// Runs the verifier, if every process did what was asked of it.
fn verify(job: &RunJob, processes: &[ProcessOutcome]) -> Result<Option<ProcessOutcome>> {
    let Some(words) = &job.verifier else { return Ok(None) };
    let well = |(process, outcome): (&Process, &ProcessOutcome)| match outcome.end {
        End::Exit(0) => true,
        End::Stopped => process.serves,
        _ => false,
    };
    let worth_it = job.processes.iter().zip(processes).filter(|(process, _)| process.fails).all(well)
        || job.processes.iter().zip(processes).all(well);
    if !worth_it {
        return Ok(None);
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(&job.directory);
    let running = Running::start(command).context("the verifier")?;
    let finished = running.wait_until(Instant::now() + job.limit);
    let end = match finished.status.map(|status| (status.code(), status.signal())) {
        None => End::Limit,
        Some((Some(code), _)) => End::Exit(code),
        Some((None, signal)) => End::Signal(signal.unwrap_or_default()),
    };
    Ok(Some(ProcessOutcome { role: "verifier".to_owned(), end, output: tail(&finished.output) }))
}

/// The last lines of an output.
fn tail(output: &str) -> String {
    let mut start = output.len().saturating_sub(FAIL_EACH_OUTPUT_BYTES);
    while !output.is_char_boundary(start) {
        start += 1;
    }
    output[start..].to_owned()
}

/// Ends whoever is left of the roles: those that left their process groups, too. Gives those that have not ended at the limit: a process in
/// a call of the kernel that waits for a disk does not.
fn end_descendants(limit: Duration) -> Vec<i32> {
    let deadline = Instant::now() + limit;
    loop {
        let left = children();
        for pid in &left {
            // It may have ended just now.
            let _ended = kill(*pid, Signal::SIGKILL);
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            // No child is left.
            Err(_) => return Vec::new(),
            _ if Instant::now() >= deadline => return left.into_iter().map(Pid::as_raw).collect(),
            Ok(nix::sys::wait::WaitStatus::StillAlive) => std::thread::sleep(FAIL_EACH_TICK),
            Ok(_) => {}
        }
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let of = |entry: std::fs::DirEntry| -> Option<Pid> {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in parentheses may have any character.
        let (_, fields) = stat.rsplit_once(')')?;
        (fields.split_whitespace().nth(1)? == own).then(|| Pid::from_raw(pid))
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of).collect()
}
