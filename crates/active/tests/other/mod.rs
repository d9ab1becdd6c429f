//! Other processes of a test: each runs the same test in a role, and says lines.

#![allow(dead_code)] // Each test file uses some of it.

use pagewire::Token;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub const ROLE: &str = "PAGEWIRE_ACTIVE_ROLE";

/// The role of this process; `None`: it is the test itself.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Another process, which runs one test of this file in a role and says lines.
pub struct Other {
    pub child: Child,
    pub says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Other {
    /// On a path.
    pub fn start(test: &str, role: &str, path: &str) -> Other {
        Other::start_with(test, role, &[("PAGEWIRE_PATH", path)])
    }

    /// `variables`: of its environment, besides.
    pub fn start_with(test: &str, role: &str, variables: &[(&str, &str)]) -> Other {
        Other::start_by(test, role, variables, &[])
    }

    fn start_by(test: &str, role: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .args(arguments)
            .env(ROLE, role)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (says, hears) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        Other { child, says, hears }
    }

    /// The next line that has a word: what follows it.
    pub fn expect(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.says.read_line(&mut line).unwrap();
            if length == 0 {
                panic!("the other process ended before it said {word}: {:?}", self.child.try_wait());
            }
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").unwrap();
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills it, waits until it is gone, and gives whether it was still there.
    pub fn kill(&mut self) -> bool {
        self.child.kill().unwrap();
        std::os::unix::process::ExitStatusExt::signal(&self.child.wait().unwrap()) == Some(9)
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of a job, all in one role of a test.
pub struct Job {
    pub members: Vec<Other>,
    folder: std::path::PathBuf,
}

impl Job {
    pub fn start(test: &str, size: usize, path: &str) -> Job {
        Job::start_as(test, "member", size, path)
    }

    /// In a role of their own.
    pub fn start_as(test: &str, role: &str, size: usize, path: &str) -> Job {
        Job::start_with(test, role, size, path, &[])
    }

    /// `arguments`: for the test, as `--ignored`.
    pub fn start_with(test: &str, role: &str, size: usize, path: &str, arguments: &[&str]) -> Job {
        static JOBS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = JOBS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("pagewire-job-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (text, count) = (folder.to_str().unwrap(), size.to_string());
        let start = |rank: usize| {
            let rank = rank.to_string();
            let variables = [
                ("PAGEWIRE_JOB_FILE", text),
                ("PAGEWIRE_SIZE", count.as_str()),
                ("PAGEWIRE_RANK", rank.as_str()),
                ("PAGEWIRE_JOB_TIMEOUT", "60"),
                ("PAGEWIRE_PATH", path),
            ];
            Other::start_by(test, role, &variables, arguments)
        };
        Job { members: (0..size).map(start).collect(), folder }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.members.clear();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

pub fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

pub fn say(text: &str) {
    println!("{text}");
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    (0..text.len() / 2).map(digits).collect()
}

pub fn token_of(text: &str) -> Token {
    Token::from_bytes(&unhex(text)).unwrap()
}

/// Runs a test in another process for each path, as the path of a process is chosen when its engine starts.
pub fn on_each_path(name: &str, test: fn()) {
    if std::env::var_os(ROLE).is_some() {
        return test();
    }
    for path in ["local", "udp"] {
        run_with(name, &[("PAGEWIRE_PATH", path)]);
    }
}

/// Runs a test in another process, with these variables.
pub fn run_with(name: &str, variables: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ROLE, name)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{variables:?}: {text}\n{errors}");
}
