//! Other processes of a test: each runs the same test in a role, and says lines.

#![allow(dead_code)] // Each test file uses some of it.

use pagewire::Token;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub const ROLE: &str = "PAGEWIRE_ACTIVE_ROLE";

/// Another process, which runs one test of this file in a role and says lines.
pub struct Other {
    pub child: Child,
    pub says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Other {
    pub fn start(test: &str, role: &str, path: &str) -> Other {
        Other::start_with(test, role, path, &[])
    }

    /// With variables of the environment.
    pub fn start_with(test: &str, role: &str, path: &str, variables: &[(&str, &str)]) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .env("PAGEWIRE_PATH", path)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (says, hears) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        Other { child, says, hears }
    }

    /// The next line that begins with a word, without it.
    pub fn expect(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.says.read_line(&mut line).unwrap() > 0,
                "the other process ended before it said {word}"
            );
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").unwrap();
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

pub fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn token_of(text: &str) -> Token {
    let digits = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..text.len() / 2).map(digits).collect();
    Token::from_bytes(&bytes).unwrap()
}

/// Runs a test in another process for each path, as the path of a process is chosen when its engine starts.
pub fn on_each_path(name: &str, test: fn()) {
    if std::env::var_os(ROLE).is_some() {
        return test();
    }
    for path in ["local", "udp"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ROLE, name)
            .env("PAGEWIRE_PATH", path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{path}: {text}\n{errors}");
    }
}
