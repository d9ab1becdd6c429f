//! The helper programs of an installation: plain verbs programs (lab/helpers/*.c), each of which makes both ends on this host.

use crate::limits::BENCH_RUN;
use anyhow::Result;
use pagewire_cli::hosts::Host;
use pagewire_cli::pair::Running;
use pagewire_cli::stage::Stage;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

/// The status by which a helper says that this machine does not let it do what it was asked for.
const NOT_HERE: i32 = 77;

/// One that is installed.
pub struct Helper<'a> {
    stage: &'a Stage,
    program: PathBuf,
}

/// With whose rights one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// None, as users' programs.
    User,
    /// Those of who measures: mlock(2), and pagers that hold up the kernel's own accesses, need some.
    Caller,
}

/// Why a run gave no figure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was said.
    pub text: String,
    /// Whether this machine does not let it do that.
    pub not_here: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Helper<'_> {
    /// Looks for it.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn find<'a>(stage: &'a Stage, name: &str) -> Result<Helper<'a>, Failure> {
        let program = stage.helpers.join(name);
        if program.is_file() {
            return Ok(Helper { stage, program });
        }
        let text = format!("{} is missing (built where libibverbs-dev is installed)", program.display());
        Err(Failure { text, not_here: false })
    }

    /// One run with these options of `pagewire run`, and these words of its own; gives what it printed, or what went wrong with
    /// it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run<W: AsRef<OsStr>>(
        &self,
        rights: Rights,
        options: &[&str],
        words: &[W],
    ) -> Result<Result<String, Failure>> {
        let mut command = match rights {
            Rights::User => Host::here().command(&self.stage.command),
            Rights::Caller => Host::here().privileged(&self.stage.command),
        };
        command.arg("run").args(options).arg("--").arg(&self.program).args(words);
        let finished = Running::start(command)?.wait_until(Instant::now() + BENCH_RUN);
        if finished.success() {
            return Ok(Ok(finished.output));
        }
        let text = format!("{}\n{}", finished.verdict(), finished.output.trim());
        let not_here = finished.status.and_then(|status| status.code()) == Some(NOT_HERE);
        Ok(Err(Failure { text, not_here }))
    }
}

/// What some helpers print of each size: an object a line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Point {
    /// In bytes.
    pub size: u64,
    /// Of whose pages so many in a hundred are absent.
    #[serde(default)]
    pub percent: u64,
    /// Figures by name; null where they are not permitted.
    #[serde(flatten)]
    pub values: BTreeMap<String, Option<f64>>,
}

/// All lines of an output.
///
/// # Errors
/// If one is no such object.
pub fn points(output: &str) -> Result<Vec<Point>, Failure> {
    let point = |line| {
        serde_json::from_str(line)
            .map_err(|error| Failure { text: format!("{error}: {line}"), not_here: false })
    };
    output.lines().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_with_what_is_null() {
        let text =
            "{\"size\":64,\"percent\":40,\"before\":null,\"whole\":1.5}\n{\"size\":8,\"reg_mr\":0.5}\n";
        let points = points(text).expect("two objects");
        assert_eq!((points[0].size, points[0].percent, points[1].percent), (64, 40, 0));
        assert_eq!(points[0].values["before"], None);
        assert_eq!((points[0].values["whole"], points[1].values["reg_mr"]), (Some(1.5), Some(0.5)));
        assert!(super::points("{\"size\":64}\nnonsense\n").unwrap_err().text.contains("nonsense"));
    }
}
