//! The scenario: which processes a run has, how each is known to be ready, and who says whether all went well.
//!
//! It is a TOML file, or one program of the command line. A key that is not known is an error.

use crate::arguments::PathChoice;
use crate::limits::{FAIL_EACH_LIMIT, FAIL_EACH_PROCESSES};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// In words of commands and in values of variables: the run's own folder.
pub const RUN_FOLDER: &str = "{run}";

/// In words of commands and in values of variables: the number of the process in its role, from 0.
pub const INDEX: &str = "{index}";

/// What one run consists of.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// Seconds that a run may take.
    pub limit: Option<f64>,
    /// The roles whose calls are failed; empty: all.
    #[serde(default)]
    pub fail: Vec<String>,
    /// How connections travel.
    pub path: Option<String>,
    /// Which ends of a process may leave objects of verbs.
    #[serde(default)]
    pub leaks: LeakPolicy,
    /// The roles, in the order in which they start.
    #[serde(rename = "role", default)]
    pub roles: Vec<Role>,
    /// Says whether a run did what it should; without it, the exit statuses of all roles say so.
    pub verifier: Option<Verifier>,
    /// Where commands run: the folder of the file.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Which ends of a process may leave objects of verbs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum LeakPolicy {
    /// A process that exits with 0 must have destroyed what it created; one that gives up leaves that to the kernel.
    #[default]
    Success,
    /// A process that exits with any status must have.
    Exit,
    /// What is left is no fault.
    Never,
}

/// A program with a part in the scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Role {
    /// What reports call it.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Further variables of its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// How many processes of this command start.
    #[serde(default = "one")]
    pub count: usize,
    /// How it is known to be ready; without it, it is once it has started.
    pub ready: Option<Readiness>,
    /// Whether it serves on until it is stopped, as a daemon does: it gets SIGTERM when the others have ended.
    #[serde(default)]
    pub serves: bool,
}

/// How a process is known to be ready for the next role.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Readiness {
    /// A line of its output contains this text.
    Line(String),
    /// A process of its host listens on this TCP port.
    Port(u16),
    /// This file exists.
    File(String),
    /// So many seconds have passed.
    Seconds(f64),
}

/// Says whether a run did what it should.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Verifier {
    /// A command that exits with 0 if all is well.
    pub command: Vec<String>,
}

const fn one() -> usize {
    1
}

impl Scenario {
    /// Reads the file `file`.
    ///
    /// # Errors
    /// If it cannot be read, or is no scenario.
    pub fn read(file: &Path) -> Result<Scenario> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let mut scenario = Scenario::parse(&text).with_context(|| file.display().to_string())?;
        let file = std::path::absolute(file)?;
        scenario.folder = file.parent().unwrap_or(Path::new("/")).to_path_buf();
        Ok(scenario)
    }

    /// The scenario of one program.
    ///
    /// # Errors
    /// If the program's words are not UTF-8, or the working directory is gone.
    pub fn of_program(words: &[OsString]) -> Result<Scenario> {
        let word = |word: &OsString| {
            word.to_str().map(str::to_owned).with_context(|| format!("{}: not UTF-8", word.display()))
        };
        let command = words.iter().map(word).collect::<Result<Vec<String>>>()?;
        let name = Path::new(&command[0])
            .file_name()
            .map_or_else(|| command[0].clone(), |name| name.to_string_lossy().into_owned());
        let role = Role { name, command, environment: BTreeMap::new(), count: 1, ready: None, serves: false };
        Ok(Scenario {
            limit: None,
            fail: Vec::new(),
            path: None,
            leaks: LeakPolicy::default(),
            roles: vec![role],
            verifier: None,
            folder: std::env::current_dir().context("the working directory")?,
        })
    }

    fn parse(text: &str) -> Result<Scenario> {
        let scenario: Scenario = toml::from_str(text)?;
        ensure!(!scenario.roles.is_empty(), "it has no [[role]]");
        if let Some(limit) = scenario.limit {
            let allowed = FAIL_EACH_LIMIT;
            ensure!(
                allowed.contains(&limit),
                "limit is to be {} to {} seconds",
                allowed.start(),
                allowed.end()
            );
        }
        if let Some(path) = &scenario.path {
            path.parse::<PathChoice>()?;
        }
        let processes: usize = scenario.roles.iter().map(|role| role.count).sum();
        ensure!(
            processes <= FAIL_EACH_PROCESSES,
            "it has {processes} processes, and {FAIL_EACH_PROCESSES} are allowed"
        );
        for (index, role) in scenario.roles.iter().enumerate() {
            check_role(role).with_context(|| format!("role {}", role.name))?;
            if scenario.roles[..index].iter().any(|other| other.name == role.name) {
                bail!("two roles are called {}", role.name);
            }
        }
        if scenario.roles.iter().all(|role| role.serves) {
            bail!("each role serves: none would end a run");
        }
        for name in &scenario.fail {
            ensure!(scenario.roles.iter().any(|role| role.name == *name), "fail: no role is called {name}");
        }
        if let Some(verifier) = &scenario.verifier {
            ensure!(!verifier.command.is_empty(), "verifier: its command is empty");
        }
        Ok(scenario)
    }

    /// The roles whose calls are failed.
    pub fn failing(&self) -> impl Iterator<Item = &Role> {
        self.roles.iter().filter(|role| self.fail.is_empty() || self.fail.contains(&role.name))
    }
}

fn check_role(role: &Role) -> Result<()> {
    // The name stands in names of files, and between colons in names of failures.
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    ensure!(
        !role.name.is_empty() && role.name.chars().all(allowed) && !role.name.starts_with('.'),
        "a name has letters, digits and -_.+ alone"
    );
    ensure!(!role.command.is_empty(), "its command is empty");
    ensure!(role.count > 0, "count is to be 1 at least");
    match &role.ready {
        Some(Readiness::Line(text)) => ensure!(!text.is_empty(), "ready: the text of the line is empty"),
        Some(Readiness::Port(port)) => ensure!(*port != 0, "ready: port 0 is none"),
        Some(Readiness::File(file)) => ensure!(!file.is_empty(), "ready: the file has no name"),
        Some(Readiness::Seconds(seconds)) => ensure!(
            (0.0..=*FAIL_EACH_LIMIT.end()).contains(seconds),
            "ready: seconds are to be 0 to {}",
            FAIL_EACH_LIMIT.end()
        ),
        None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        limit = 2.5
        fail = ["client"]
        path = "udp"
        leaks = "exit"

        [[role]]
        name = "server"
        command = ["./server", "18515"]
        environment = { MODE = "quick" }
        ready = { port = 18515 }
        serves = true

        [[role]]
        name = "client"
        command = ["./client", "{index}"]
        count = 2

        [verifier]
        command = ["cmp", "{run}/out", "expected"]
    "#;

    #[test]
    fn each_key_is_read() {
        let scenario = Scenario::parse(WHOLE).expect("valid");
        assert_eq!((scenario.limit, scenario.path.as_deref()), (Some(2.5), Some("udp")));
        assert_eq!(scenario.leaks, LeakPolicy::Exit);
        let [server, client] = &scenario.roles[..] else { panic!("{scenario:?}") };
        assert_eq!(server.environment["MODE"], "quick");
        assert_eq!(
            (server.ready.clone(), server.serves, server.count),
            (Some(Readiness::Port(18515)), true, 1)
        );
        assert_eq!((client.ready.clone(), client.serves, client.count), (None, false, 2));
        assert_eq!(scenario.verifier.as_ref().expect("one").command[0], "cmp");
        assert_eq!(scenario.failing().map(|role| role.name.as_str()).collect::<Vec<_>>(), ["client"]);
    }

    #[test]
    fn readiness_has_four_forms() {
        for (text, expected) in [
            ("{ line = \"up\" }", Readiness::Line("up".to_owned())),
            ("{ port = 1 }", Readiness::Port(1)),
            ("{ file = \"{run}/up\" }", Readiness::File("{run}/up".to_owned())),
            ("{ seconds = 0.5 }", Readiness::Seconds(0.5)),
        ] {
            let text = format!("[[role]]\nname = \"a\"\ncommand = [\"b\"]\nready = {text}\n");
            assert_eq!(Scenario::parse(&text).expect(&text).roles[0].ready, Some(expected));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, said) in [
            ("limit = 2.5", "limits = 2.5", "limits"),
            ("limit = 2.5", "limit = 0", "limit is to be"),
            ("path = \"udp\"", "path = \"rdma\"", "rdma"),
            ("leaks = \"exit\"", "leaks = \"some\"", "some"),
            ("fail = [\"client\"]", "fail = [\"clients\"]", "clients"),
            ("name = \"server\"", "name = \"client\"", "two roles are called client"),
            ("name = \"server\"", "name = \"a/b\"", "letters"),
            ("command = [\"./server\", \"18515\"]", "command = []", "command is empty"),
            ("count = 2", "count = 0", "count"),
            ("count = 2", "count = 2000", "processes"),
            ("count = 2", "serves = true", "each role serves"),
            ("{ port = 18515 }", "{ port = 0 }", "port 0"),
            ("{ port = 18515 }", "{ ports = 18515 }", "ports"),
            ("{ port = 18515 }", "{ seconds = -1 }", "seconds"),
        ] {
            let text = WHOLE.replacen(from, to, 1);
            assert_ne!(text, WHOLE, "{from}");
            let error = format!("{:#}", Scenario::parse(&text).expect_err(&text));
            assert!(error.contains(said), "{to}: {error}");
        }
        let error = format!("{:#}", Scenario::parse("limit = 1").expect_err("no role"));
        assert!(error.contains("[[role]]"), "{error}");
    }
}
