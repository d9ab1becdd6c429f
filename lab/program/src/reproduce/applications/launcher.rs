//! mpirun of which half of the processes are on a second host, without a remote shell.
//!
//! mpirun runs on the first host. It starts its agent with the command line of its daemon, as it would start ssh(1). A program has no
//! right to enter the network namespace of the second host. So a shell waits there, and the agent hands the command line over to it.

use crate::limits::OTHER_HOST;
use anyhow::{Context, Result};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pagewire_cli::hosts::{Hosts, INTERFACE};
use pagewire_cli::interrupt;
use pagewire_cli::pair::{Finished, Running};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Between two looks at both hosts.
const LOOK: Duration = Duration::from_millis(2);

/// What mpirun starts: the name of the host, and the words of the daemon. It opens the answer first, because an answer that comes into
/// a FIFO which nobody has open is lost.
const AGENT: &str = r#"#!/bin/sh
shift
exec 3<>"$0.status"
printf '%s\n' "$*" >"$0.request"
read -r status <&3
exit "$status"
"#;

/// The shell on the second host. Its answer does not wait for an agent, which mpirun may have ended.
const DAEMON: &str =
    r#"read -r line <"$1.request"; sh -c "$line"; status=$?; echo "$status" 1<>"$1.status"; exit "$status""#;

/// The agent, and both FIFOs beside it.
pub(super) struct Launcher {
    agent: PathBuf,
}

impl Launcher {
    /// Makes the files in the folder in which the application runs.
    ///
    /// # Errors
    /// If they cannot be made.
    pub(super) fn prepare(folder: &Path) -> Result<Launcher> {
        let agent = folder.join("agent");
        fs::write(&agent, AGENT).with_context(|| agent.display().to_string())?;
        fs::set_permissions(&agent, Permissions::from_mode(0o755))?;
        for end in ["request", "status"] {
            let file = agent.with_extension(end);
            mkfifo(&file, Mode::S_IRUSR | Mode::S_IWUSR).with_context(|| file.display().to_string())?;
        }
        Ok(Launcher { agent })
    }

    /// mpirun's words by which half of the processes start on each host. Without a session of its own the daemon ends with its shell.
    pub(super) fn words(&self, hosts: &Hosts, processes: u32) -> Vec<OsString> {
        let half = processes / 2;
        let (first, second) = (hosts.first.address, hosts.second.address);
        let mut words = vec!["--leave-session-attached".into(), "--host".into()];
        words.push(format!("{first}:{half},{second}:{half}").into());
        for (name, value) in
            [("plm", "rsh"), ("oob_tcp_if_include", INTERFACE), ("btl_tcp_if_include", INTERFACE)]
        {
            words.extend(["--mca", name, value].map(OsString::from));
        }
        words.extend(["--mca".into(), "plm_rsh_agent".into(), self.agent.clone().into()]);
        words
    }

    /// The words of the shell on the second host.
    pub(super) fn daemon(&self) -> [OsString; 5] {
        ["sh".into(), "-c".into(), DAEMON.into(), "sh".into(), self.agent.clone().into()]
    }
}

/// Runs mpirun on the first host and the shell of its daemon on the second, and gives how mpirun ended. If the daemon failed, mpirun's
/// output has that of the daemon below.
///
/// # Errors
/// If one of them cannot be started.
pub(super) fn run(mpirun: Command, daemon: Command, deadline: Instant) -> Result<Finished> {
    let daemon = Running::start(daemon)?;
    let mpirun = Running::start(mpirun)?;
    let goes_on = || Instant::now() < deadline && !interrupt::has_come();
    while !mpirun.has_ended() && !daemon.has_ended() && goes_on() {
        std::thread::sleep(LOOK);
    }
    // mpirun waits for ever for a shell that could not start.
    let soon = || deadline.min(Instant::now() + OTHER_HOST);
    let mut finished = mpirun.wait_until(if daemon.has_ended() { soon() } else { deadline });
    let daemon = daemon.wait_until(soon());
    if !daemon.success() {
        finished.output += &format!("\nthe second host: {}\n{}", daemon.verdict(), daemon.output);
    }
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(words: &[OsString]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    #[test]
    fn agent_has_command_run_by_shell_of_second_host() {
        let folder = tempfile::tempdir().expect("a directory");
        let launcher = Launcher::prepare(folder.path()).expect("files");
        let deadline = Instant::now() + Duration::from_secs(60);
        let ask = |command: &str| {
            let mut agent = Command::new(&launcher.agent);
            agent.args(["10.79.0.2", command]);
            run(agent, shell(&launcher.daemon()), deadline).expect("both start")
        };
        let file = folder.path().join("written");
        let done = ask(&format!("A=\"1 2\"; echo $A >{}", file.display()));
        assert!(done.success() && fs::read_to_string(&file).expect("written") == "1 2\n", "{done:?}");
        let failed = ask("echo complaint; exit 3");
        assert_eq!(failed.status.and_then(|status| status.code()), Some(3));
        assert!(failed.output.contains("the second host: exit status 3\ncomplaint"), "{failed:?}");
    }

    #[test]
    fn second_host_that_cannot_start_ends_mpirun() {
        let folder = tempfile::tempdir().expect("a directory");
        let launcher = Launcher::prepare(folder.path()).expect("files");
        let mut agent = Command::new(&launcher.agent);
        agent.args(["10.79.0.2", "true"]);
        let deadline = Instant::now() + Duration::from_secs(600);
        let finished = run(agent, Command::new("false"), deadline).expect("both start");
        assert!(!finished.success() && finished.output.contains("the second host: exit status 1"));
    }
}
