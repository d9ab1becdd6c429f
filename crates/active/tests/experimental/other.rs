//! Other processes, which run the same test in a role.

use pagewire::Token;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "PAGEWIRE_ACTIVE_ROLE";

/// The role of this process; `None`: it is the test itself.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Another process, which runs one test of this file in a role and says lines.
pub struct Other {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Other {
    /// `variables`: of its environment, besides.
    pub fn start(test: &str, role: &str, variables: &[(&str, &str)]) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
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
            assert!(length > 0, "the other process ended before it said {word}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").unwrap();
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
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
