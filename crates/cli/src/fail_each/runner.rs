//! Runs scenarios: each in a folder, and where the kernel gives one, in a network namespace of its own, several at the same time.

use super::job::{Process, RunAnswer, RunJob, RunOutcome};
use super::scenario::{INDEX, RUN_FOLDER, Readiness, Role, Scenario};
use super::{calls, supervisor};
use crate::limits::{FAIL_EACH_GRACE, FAIL_EACH_TICK};
use crate::output::json_lines;
use crate::running::interrupt;
use anyhow::{Context, Result, bail};
use pagewire_checker::call_count::{self, CallCount};
use pagewire_checker::report::{self, ProcessFindings};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The variable that names the run's folder, for scenarios.
const RUN_VARIABLE: &str = "PAGEWIRE_RUN";

/// What all runs have in common.
#[derive(Debug)]
pub struct Runner {
    /// The scenario.
    pub scenario: Scenario,
    /// The file of the command.
    pub command: PathBuf,
    /// The path asked for.
    pub path: Option<String>,
    /// Whether each run has a network namespace of its own.
    pub own_network: bool,
}

/// What a run is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// To see what the roles call.
    Calls,
    /// To see what becomes of a failure of a role's call, by this rule.
    Failure {
        /// The role.
        role: &'a str,
        /// The rule.
        rule: &'a str,
    },
}

/// A run that has ended.
#[derive(Debug)]
pub struct CompletedRun {
    /// What was asked for.
    pub job: RunJob,
    /// What became of it.
    pub outcome: RunOutcome,
    /// The folder of the files that the engines wrote; it goes with this.
    folder: tempfile::TempDir,
}

impl CompletedRun {
    /// What a role called.
    ///
    /// # Errors
    /// If the file of that is in another format.
    pub fn calls(&self, role: &str) -> Result<Vec<CallCount>> {
        calls::read(&file(self.folder.path(), role, "calls"))
    }

    /// The lines of what has failed.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn fired(&self, role: &str) -> Result<String> {
        read_if_there(&file(self.folder.path(), role, "fired"))
    }

    /// What the processes of a role left and misused.
    ///
    /// # Errors
    /// If their reports cannot be read.
    pub fn findings(&self, role: &str) -> Result<Vec<ProcessFindings>> {
        json_lines::read(&file(self.folder.path(), role, "check"))
    }
}

/// The file of one kind that the engines of a role write.
fn file(folder: &Path, role: &str, kind: &str) -> PathBuf {
    folder.join(format!("{role}.{kind}"))
}

fn read_if_there(file: &Path) -> Result<String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

impl Runner {
    /// Runs the scenario once.
    ///
    /// # Errors
    /// If the run cannot take place, or this process is interrupted.
    pub fn run(&self, purpose: Purpose, limit: Duration) -> Result<CompletedRun> {
        let folder = tempfile::Builder::new()
            .prefix("pagewire-fail-each-")
            .tempdir()
            .context("a run needs a folder, where TMPDIR says or in /tmp")?;
        let run_folder = folder.path().join("run");
        std::fs::create_dir(&run_folder).context("the folder of a run")?;
        let job = self.job(purpose, limit, folder.path(), &run_folder)?;
        let outcome = supervise(&self.command, &job, folder.path())?;
        Ok(CompletedRun { job, outcome, folder })
    }

    fn job(&self, purpose: Purpose, limit: Duration, folder: &Path, run_folder: &Path) -> Result<RunJob> {
        let run_folder = run_folder.to_str().context("the folder of runs has a name that is not UTF-8")?;
        let mut processes = Vec::new();
        for role in &self.scenario.roles {
            for index in 0..role.count {
                processes.push(self.process(role, index, purpose, (folder, run_folder)));
            }
        }
        let fill = |word: &String| word.replace(RUN_FOLDER, run_folder);
        let verifier = self.scenario.verifier.as_ref();
        Ok(RunJob {
            processes,
            verifier: verifier.map(|verifier| verifier.command.iter().map(fill).collect()),
            directory: self.scenario.folder.clone(),
            own_network: self.own_network,
            limit,
            grace: FAIL_EACH_GRACE,
        })
    }

    /// Process `index` of a role; `folders` are that of the engines' files and the run's own.
    fn process(&self, role: &Role, index: usize, purpose: Purpose, folders: (&Path, &str)) -> Process {
        let (folder, run_folder) = folders;
        let fill = |word: &String| word.replace(RUN_FOLDER, run_folder).replace(INDEX, &index.to_string());
        let mut words = vec![self.command.to_string_lossy().into_owned(), "run".to_owned()];
        let of = |kind| file(folder, &role.name, kind).to_string_lossy().into_owned();
        let mut option = |name: &str, value: String| words.push(format!("{name}={value}"));
        option("--role", role.name.clone());
        if let Some(path) = &self.path {
            option("--path", path.clone());
        }
        let mut fails = false;
        if let Purpose::Failure { role: failing, rule } = purpose {
            if failing == role.name {
                fails = true;
                option("--fail", rule.to_owned());
                option("--fail-log", of("fired"));
            }
        }
        words.push("--".to_owned());
        words.extend(role.command.iter().map(fill));
        let mut environment: BTreeMap<String, String> =
            role.environment.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
        let mut set = |name: &str, value: String| environment.insert(name.to_owned(), value);
        set(RUN_VARIABLE, run_folder.to_owned());
        set(report::FILE_VARIABLE, of("check"));
        if let Purpose::Calls = purpose {
            set(call_count::FILE_VARIABLE, of("calls"));
        }
        let ready = role.ready.clone().map(|ready| match ready {
            Readiness::File(file) => Readiness::File(fill(&file)),
            other => other,
        });
        Process { role: role.name.clone(), words, environment, ready, serves: role.serves, fails }
    }
}

/// Whether the kernel gives a run a network namespace of its own; if not, why.
///
/// # Errors
/// If the supervisor cannot be started.
pub fn network_obstacle(command: &Path) -> Result<Option<String>> {
    let folder = tempfile::tempdir().context("a run needs a folder, where TMPDIR says or in /tmp")?;
    let job = RunJob {
        processes: Vec::new(),
        verifier: None,
        directory: "/".into(),
        own_network: true,
        limit: crate::limits::FAIL_EACH_FIRST_LIMIT,
        grace: Duration::ZERO,
    };
    match ask(command, &job, folder.path())? {
        RunAnswer::Done(_) => Ok(None),
        RunAnswer::Refused(why) => Ok(Some(why)),
    }
}

fn supervise(command: &Path, job: &RunJob, folder: &Path) -> Result<RunOutcome> {
    match ask(command, job, folder)? {
        RunAnswer::Done(outcome) => Ok(outcome),
        RunAnswer::Refused(why) => bail!(why),
    }
}

/// Starts a supervisor with `job`, and waits for its answer, which it writes to a file in `folder`.
fn ask(command: &Path, job: &RunJob, folder: &Path) -> Result<RunAnswer> {
    let answer = folder.join("answer.json");
    let mut supervisor = Command::new(command)
        .arg(supervisor::WORD)
        .stdin(Stdio::piped())
        .stdout(File::create(&answer).context("the answer of a run")?)
        // A terminal's signals end it by the end of its input: after it has ended its roles.
        .process_group(0)
        .spawn()
        .context("the supervisor of a run")?;
    let mut input = supervisor.stdin.take();
    if let Some(input) = &mut input {
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        input.write_all(&line).context("the supervisor of a run")?;
    }
    let status = loop {
        if let Some(status) = supervisor.try_wait()? {
            break status;
        }
        if interrupt::has_come() {
            // The end of its input: it ends the run.
            drop(input.take());
        }
        std::thread::sleep(FAIL_EACH_TICK);
    };
    interrupt::check()?;
    let text = std::fs::read_to_string(&answer)?;
    serde_json::from_str(&text).with_context(|| format!("the supervisor of a run ended with {status}"))
}
