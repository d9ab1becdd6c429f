//! Running other people's programs, one or a server and its client, in bounded time.

use crate::interrupt;
use crate::limits::{LISTEN_PATIENCE, OUTPUT_BYTES};
use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// A program that runs; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    reader: Option<JoinHandle<Vec<u8>>>,
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
        let child = command.spawn().with_context(|| command.get_program().to_string_lossy().into_owned())?;
        // The command holds the pipe's writing ends: with it alive the reader would never see the end.
        drop(command);
        let reader = std::thread::spawn(move || read_bounded(File::from(read)));
        Ok(Running { child, reader: Some(reader), started: Instant::now() })
    }

    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended, or kills it at `deadline` or when this process is interrupted.
    pub fn wait_until(mut self, deadline: Instant) -> Finished {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline && !interrupt::has_come() => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(None) | Err(_) => break None,
            }
        };
        let elapsed = self.started.elapsed();
        self.kill();
        let output = self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        Finished { status, output: String::from_utf8_lossy(&output).into_owned(), elapsed }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, if it has not ended.
    pub fn kill(&mut self) {
        // Either fails only if it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
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

fn read_bounded(mut file: File) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    // What is beyond the bound is read too: a full pipe would stop the program.
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        let room = OUTPUT_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..length.min(room)]);
    }
    kept
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
        self.server.success() && self.client.as_ref().is_some_and(Finished::success)
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
}
