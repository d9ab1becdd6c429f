//! Running other people's programs, one or a server and its client, in bounded time.

use crate::limits::{LISTEN_PATIENCE, OUTPUT_BYTES, OUTPUT_PATIENCE};
use crate::running::interrupt;
use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks at a program.
const LOOK: Duration = Duration::from_millis(2);

/// A program that has ended, or was ended at its limit.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its status; `None` if it had to be killed at its time limit.
    pub status: Option<ExitStatus>,
    /// What it wrote to both outputs, in order, up to [`OUTPUT_BYTES`].
    pub output: String,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Finished {
    /// Whether it ended in time and with status 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// How it ended, in words.
    pub fn verdict(&self) -> String {
        match self.status {
            None => format!("still ran after {:.0} s, was killed", self.elapsed.as_secs_f64()),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => "ended".to_owned(),
            },
        }
    }
}

/// A program that runs, with those that it starts: a process group of their own. Dropping it kills them.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// How it ended, once it has been waited for: from then on its number, and the group's, may be another's.
    status: Option<ExitStatus>,
    reader: JoinHandle<()>,
    output: Arc<Mutex<Vec<u8>>>,
    started: Instant,
}

impl Running {
    /// Starts `command` with both outputs captured.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut command: Command) -> Result<Running> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        command.stdout(Stdio::from(write.try_clone()?)).stderr(Stdio::from(write)).stdin(Stdio::null());
        command.process_group(0);
        let output = Arc::new(Mutex::new(Vec::new()));
        let kept = output.clone();
        // Before the program: one whose output nobody reads would have to be killed again.
        let reader = Builder::new()
            .name("pagewire-output".to_owned())
            .spawn(move || read_bounded(File::from(read), &kept))
            .context("a thread that reads a program's output")?;
        let child = command.spawn().with_context(|| command.get_program().to_string_lossy().into_owned())?;
        // The command holds the pipe's writing ends: with it alive the reader would never see the end.
        drop(command);
        Ok(Running { child, status: None, reader, output, started: Instant::now() })
    }

    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended, and nobody whom it started can write any more; kills what is left at `deadline` or when this
    /// process is interrupted.
    pub fn wait_until(mut self, deadline: Instant) -> Finished {
        let go_on = || Instant::now() < deadline && !interrupt::has_come();
        while !self.has_ended() && go_on() {
            std::thread::sleep(LOOK);
        }
        let elapsed = self.started.elapsed();
        let ended = self.has_ended();
        while ended && !self.reader.is_finished() && go_on() {
            std::thread::sleep(LOOK);
        }
        let status = self.kill().filter(|_| ended);
        // Who left the group lives on, and may keep the output open.
        let patience = Instant::now() + OUTPUT_PATIENCE;
        while !self.reader.is_finished() && Instant::now() < patience {
            std::thread::sleep(LOOK);
        }
        let output = String::from_utf8_lossy(&lock(&self.output)).into_owned();
        Finished { status, output, elapsed }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        if self.status.is_some() {
            return true;
        }
        // It stays a zombie: its number, which is the group's, must not become another's.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(self.group()), flags), Ok(WaitStatus::StillAlive))
    }

    /// Kills it, if it has not ended, and whom it started; gives how it ended.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // Fails only if all have ended already.
            killpg(self.group(), Signal::SIGKILL).ok();
            self.status = self.child.wait().ok();
        }
        self.status
    }

    fn group(&self) -> Pid {
        // The kernel's own numbers are positive and below 2^22.
        Pid::from_raw(self.child.id() as i32)
    }

    /// Whether a line that it wrote contains `text`.
    pub fn has_written(&self, text: &str) -> bool {
        String::from_utf8_lossy(&lock(&self.output)).lines().any(|line| line.contains(text))
    }

    /// Whether it, or another process of its network namespace, listens on TCP port `port`.
    pub fn host_listens(&self, port: u16) -> bool {
        ["tcp", "tcp6"].iter().any(|table| {
            std::fs::read_to_string(format!("/proc/{}/net/{table}", self.pid()))
                .is_ok_and(|text| text.lines().skip(1).any(|line| listens(line, port)))
        })
    }

    /// Waits until its host listens on `port`; false if it ends or the patience is at its end before that.
    pub fn wait_listening(&mut self, port: u16) -> bool {
        let deadline = Instant::now() + LISTEN_PATIENCE;
        while Instant::now() < deadline && !interrupt::has_come() {
            if self.host_listens(port) {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A line of /proc/net/tcp: `sl local_address rem_address st ...`, state 0A is LISTEN.
fn listens(line: &str, port: u16) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next().and_then(|address| address.rsplit(':').next());
    let state = fields.nth(1);
    state == Some("0A") && local.is_some_and(|hex| u16::from_str_radix(hex, 16) == Ok(port))
}

fn read_bounded(mut file: File, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    // What is beyond the bound is read too: a full pipe would stop the program.
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        let mut kept = lock(kept);
        let room = OUTPUT_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..length.min(room)]);
    }
}

/// The output so far. A thread that panicked while it had the lock has changed nothing in steps.
fn lock(output: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server and its client, both ended.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The one that listened.
    pub server: Finished,
    /// The one that called; `None` if the server never listened.
    pub client: Option<Finished>,
}

impl Pair {
    /// Whether both ended in time and with status 0.
    pub fn success(&self) -> bool {
        self.server.success() && self.client_success()
    }

    /// Whether the client ended in time and with status 0.
    pub fn client_success(&self) -> bool {
        self.client.as_ref().is_some_and(Finished::success)
    }

    /// What went wrong, with the first and the last lines of what both said.
    pub fn complaint(&self) -> String {
        let end = |finished: &Finished| format!("{}\n    {}", finished.verdict(), excerpt(&finished.output));
        let client = self.client.as_ref().map_or_else(|| "never started".to_owned(), end);
        format!("server: {}\n  client: {client}", end(&self.server))
    }
}

/// The first and the last lines of an output. What a program complains of comes first where its standard output is
/// buffered, as into a file, and its standard error is not.
fn excerpt(output: &str) -> String {
    const LINES: usize = 12;
    let mut lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() > 2 * LINES {
        lines.splice(LINES..lines.len() - LINES, ["..."]);
    }
    lines.join("\n    ")
}

/// Starts `server`, waits until its host listens on `port`, runs `client`; kills what still runs after `limit`.
///
/// # Errors
/// If one of them cannot be started.
pub fn run_pair(server: Command, client: Command, port: u16, limit: Duration) -> Result<Pair> {
    let deadline = Instant::now() + limit;
    let mut server = Running::start(server)?;
    if !server.wait_listening(port) {
        let now = Instant::now();
        return Ok(Pair { server: server.wait_until(now), client: None });
    }
    let client = Running::start(client)?.wait_until(deadline);
    // A server whose client has failed may wait for ever: it gets a moment only.
    let moment = Instant::now() + Duration::from_secs(1);
    let patience = if client.success() { deadline.max(moment) } else { moment };
    Ok(Pair { server: server.wait_until(patience), client: Some(client) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_leaves_out_the_middle_of_what_is_long() {
        let of = |count: u32| (0..count).map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(excerpt(&of(24)).lines().count(), 24);
        let long: Vec<String> = excerpt(&of(100)).lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!((long[0].as_str(), long[12].as_str(), long[24].as_str()), ("0", "...", "99"));
        assert_eq!(long.len(), 25);
    }

    #[test]
    fn a_listening_line_is_told_from_others() {
        let line =
            "   0: 0100007F:4853 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1 0 100";
        assert!(listens(line, 18515));
        assert!(!listens(line, 18516));
        assert!(!listens(&line.replace(" 0A ", " 01 "), 18515));
        assert!(!listens("nonsense", 1));
    }

    #[test]
    fn both_outputs_are_kept_and_a_limit_is_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let finished =
            Running::start(command).expect("sh").wait_until(Instant::now() + Duration::from_secs(60));
        assert_eq!(finished.output, "out\nerr\n");
        assert_eq!(finished.status.and_then(|s| s.code()), Some(3));

        let mut command = Command::new("sleep");
        command.arg("3600");
        let finished = Running::start(command).expect("sleep").wait_until(Instant::now());
        assert!(finished.status.is_none() && !finished.success());
    }

    /// Others that a program has started keep its output open; they end with it.
    #[test]
    fn whom_a_program_starts_ends_at_the_limit_too() {
        for (script, ends) in [("sleep 3600 & echo $!; wait", false), ("sleep 3600 & echo $!", true)] {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let running = Running::start(command).expect("sh");
            let patience = Instant::now() + Duration::from_secs(60);
            while !lock(&running.output).ends_with(b"\n") || running.has_ended() != ends {
                assert!(Instant::now() < patience, "{script}");
                std::thread::sleep(LOOK);
            }
            let finished = running.wait_until(Instant::now());
            assert_eq!(finished.success(), ends, "{script}");
            let status = format!("/proc/{}/status", finished.output.trim());
            // Gone, or a zombie that its new parent has not looked at.
            let gone = || match std::fs::read_to_string(&status) {
                Ok(status) => status.lines().any(|line| line.starts_with("State:\tZ")),
                Err(_) => true,
            };
            while !gone() {
                assert!(Instant::now() < patience, "{script}: it lives on");
                std::thread::sleep(LOOK);
            }
        }
    }
}
