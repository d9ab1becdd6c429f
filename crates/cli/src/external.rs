//! Commands that are programs of their own: `pagewire NAME ...` runs `libexec/pagewire/pagewire-NAME NAME ...`, as cargo(1) and git(1) run
//! theirs.
//!
//! This command runs whatever is there: only what it says of a name that has no program depends on a list. It looks into the folder, and asks a program there for its command line ([`describe`]), for the help
//! and the completions. Its own commands are never looked for there.

mod description;

pub use description::{describe, described};

use crate::arguments::Arguments;
use crate::limits::PROBE_PATIENCE;
use crate::running::install::{helper_folder, is_executable};
use crate::running::pair::Running;
use anyhow::Context;
use clap::CommandFactory;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What the names of such programs begin with; the name of the command follows.
pub const PREFIX: &str = "pagewire-";

/// The word, in place of a command's name, that asks a program for its command lines.
pub const DESCRIBE: &str = "describe";

/// A program that does what a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct External {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl External {
    /// The program that a command line asks for, if there is one: `pagewire NAME ...` or `pagewire help NAME`.
    pub fn asked_for(line: &[OsString]) -> Option<External> {
        let (name, arguments) = match line {
            [_, help, name, ..] if help == "help" => (name, vec![OsString::from("--help")]),
            [_, name, arguments @ ..] => (name, arguments.to_vec()),
            _ => return None,
        };
        let program = program(&helper_folder().ok()?, name)?;
        Some(External { program, arguments: [vec![name.clone()], arguments].concat() })
    }

    /// Replaces this process by the program. Returns only why it could not.
    pub fn execute(&self) -> anyhow::Error {
        let refused = Command::new(&self.program).args(&self.arguments).exec();
        let repair = "it does not run here; install Pagewire anew (make build, make install)";
        anyhow::Error::new(refused).context(format!("{}: {repair}", self.program.display()))
    }
}

/// The program in `folder` for the command `name`, which is not one of this command's own.
fn program(folder: &Path, name: &OsStr) -> Option<PathBuf> {
    let text = name.to_str()?;
    let is_name = text.starts_with(|first: char| first.is_ascii_alphanumeric()) && !text.contains('/');
    let program = folder.join(format!("{PREFIX}{text}"));
    (is_name && is_executable(&program) && !is_own(name)).then_some(program)
}

/// Whether this command itself has a command of that name.
pub(crate) fn is_own(name: &OsStr) -> bool {
    name == "help" || Arguments::command().find_subcommand(name).is_some()
}

/// The commands of all programs, by name, as their programs describe them. One whose program does not has a name alone, and standard error
/// says why.
pub(crate) fn commands() -> Vec<clap::Command> {
    helper_folder().map(|folder| commands_in(&folder)).unwrap_or_default()
}

fn commands_in(folder: &Path) -> Vec<clap::Command> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned()))
        .filter(|name| program(folder, name.as_ref()).is_some())
        .collect();
    names.sort();
    let mut programs: BTreeMap<PathBuf, Vec<clap::Command>> = BTreeMap::new();
    let mut command = |name: String| {
        let link = folder.join(format!("{PREFIX}{name}"));
        // Names of one program are links to it: it is asked once.
        let file = link.canonicalize().unwrap_or(link);
        let all = programs.entry(file.clone()).or_insert_with(|| {
            ask(&file).unwrap_or_else(|error| {
                crate::tell!("pagewire: {} does not describe its commands: {error:#}", file.display());
                Vec::new()
            })
        });
        let found = all.iter().find(|command| command.get_name() == name);
        found.cloned().unwrap_or_else(|| clap::Command::new(name))
    };
    names.into_iter().map(&mut command).collect()
}

/// Asks a program for its commands.
fn ask(program: &Path) -> anyhow::Result<Vec<clap::Command>> {
    let mut command = Command::new(program);
    command.arg(DESCRIBE);
    let finished = Running::start(command)?.wait_until(Instant::now() + PROBE_PATIENCE);
    described(&finished.output).context(finished.verdict())
}

/// Commands that `make install` brings as programs of their own.
const INSTALLED: [&str; 2] = ["bench", "reproduce"];

/// What helps where a command line has the name of a command that an installation should have as a program, and has not.
pub(crate) fn missing(name: &str) -> Option<String> {
    let folder = helper_folder().ok()?;
    INSTALLED.contains(&name).then(|| {
        format!(
            "{} has no program {PREFIX}{name}: install Pagewire anew (make build, make install)",
            folder.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder with a program that describes the command `measure`, under that name and another one.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("measuring");
        let text = describe(clap::Command::new("pagewire").subcommand(
            clap::Command::new("measure").about("Measure").arg(clap::Arg::new("size").long("size")),
        ));
        // Another process writes it: a file that is open for writing, here or in what a test beside this one starts, cannot be executed.
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf \"#!/bin/sh\\necho '%s'\" \"$1\" > \"$0\" && chmod 755 \"$0\""]);
        assert!(shell.arg(&file).arg(text).status().expect("sh").success());
        for name in ["measure", "other", "doctor"] {
            symlink("measuring", folder.path().join(format!("{PREFIX}{name}"))).expect("a link");
        }
        symlink("absent", folder.path().join(format!("{PREFIX}absent"))).expect("a link");
        folder
    }

    #[test]
    fn commands_are_those_of_programs_that_can_run() {
        let folder = folder();
        let commands = commands_in(folder.path());
        let names: Vec<&str> = commands.iter().map(clap::Command::get_name).collect();
        assert_eq!(names, ["measure", "other"]);
        assert_eq!(commands[0].get_about().map(ToString::to_string).as_deref(), Some("Measure"));
        assert!(commands[0].get_opts().any(|option| option.get_long() == Some("size")));
        assert!(commands[1].get_about().is_none() && commands_in(Path::new("/no/such/folder")).is_empty());
    }

    #[test]
    fn no_name_leaves_the_folder_or_hides_an_own_command() {
        let folder = folder();
        assert!(program(folder.path(), "measure".as_ref()).is_some());
        for name in ["doctor", "help", "absent", "", "-", "--help", "../measure", "x/../../measure"] {
            assert_eq!(program(folder.path(), name.as_ref()), None, "{name}");
        }
    }
}
