//! Which variables start a job, and what they may say. This module reads variables and touches nothing else.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::error::{JobError, Result};
use super::limits::{MAX_JOB_NAME, MAX_PROCESSES, MAX_TIMEOUT, TIMEOUT};

/// How a job is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobStart {
    /// By a launcher that offers PMIx.
    Pmix { rank: usize },
    /// By an address. Rank 0 listens there.
    Rendezvous { address: String, rank: usize, size: usize },
    /// By a directory. Without a rank the process takes a free one.
    Directory { path: PathBuf, rank: Option<usize>, size: usize },
    /// By nothing: one process.
    Alone { reason: String },
}

/// All that the environment says about the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobSettings {
    pub start: JobStart,
    /// `PAGEWIRE_JOB`: the name of the job, and the secret that its processes share.
    pub job: String,
    /// How long an operation waits for other processes.
    pub timeout: Duration,
}

/// Source of the variables: the environment, or a table of a test.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

const NAMESPACE: &str = "PMIX_NAMESPACE";
const PMIX_RANK: &str = "PMIX_RANK";
const RENDEZVOUS: &str = "PAGEWIRE_RENDEZVOUS";
const JOB_FILE: &str = "PAGEWIRE_JOB_FILE";
const RANK: &str = "PAGEWIRE_RANK";
const SIZE: &str = "PAGEWIRE_SIZE";
const JOB: &str = "PAGEWIRE_JOB";
const TIMEOUT_SECONDS: &str = "PAGEWIRE_JOB_TIMEOUT";

impl JobSettings {
    /// Reads the variables. The first of PMIx, rendezvous and directory that is set decides.
    pub fn read(lookup: Lookup<'_>) -> Result<Self> {
        let start = if text(lookup, NAMESPACE)?.is_some() {
            JobStart::Pmix {
                rank: needed(number(lookup, PMIX_RANK, 0, MAX_PROCESSES - 1)?, PMIX_RANK, NAMESPACE)?,
            }
        } else if let Some(address) = text(lookup, RENDEZVOUS)? {
            check_address(&address)?;
            let size = needed(size(lookup)?, SIZE, RENDEZVOUS)?;
            let rank = needed(rank(lookup, size)?, RANK, RENDEZVOUS)?;
            JobStart::Rendezvous { address, rank, size }
        } else if let Some(path) = lookup(JOB_FILE).filter(|path| !path.is_empty()) {
            let size = needed(size(lookup)?, SIZE, JOB_FILE)?;
            JobStart::Directory { path: path.into(), rank: rank(lookup, size)?, size }
        } else {
            JobStart::Alone { reason: why_alone(lookup)? }
        };
        let job = text(lookup, JOB)?.unwrap_or_default();
        if job.len() > MAX_JOB_NAME {
            let rule = format!("it must have at most {MAX_JOB_NAME} bytes");
            return Err(JobError::BadVariable { name: JOB, value: job, rule });
        }
        let most = MAX_TIMEOUT.as_secs();
        let timeout = number(lookup, TIMEOUT_SECONDS, 1, most)?.map_or(TIMEOUT, Duration::from_secs);
        Ok(Self { start, job, timeout })
    }
}

/// The reason to be alone. A rank or a size without a meeting point is an error, because its user meant a job.
fn why_alone(lookup: Lookup<'_>) -> Result<String> {
    for name in [RANK, SIZE] {
        if text(lookup, name)?.is_some() {
            return Err(JobError::MissingVariable {
                name: RENDEZVOUS,
                needed_by: name,
                expected: "HOST:PORT (or set PAGEWIRE_JOB_FILE to a directory that all processes share)",
            });
        }
    }
    let tasks = lookup("SLURM_STEP_NUM_TASKS").and_then(|tasks| tasks.to_str()?.parse::<u64>().ok());
    Ok(match tasks {
        Some(tasks) if tasks > 1 && lookup("SLURM_PROCID").is_some() => {
            format!("Slurm started {tasks} tasks without PMIx; srun --mpi=pmix makes them one job")
        }
        _ => "PMIX_NAMESPACE, PAGEWIRE_RENDEZVOUS and PAGEWIRE_JOB_FILE are not set".to_string(),
    })
}

fn size(lookup: Lookup<'_>) -> Result<Option<usize>> {
    number(lookup, SIZE, 1, MAX_PROCESSES)
}

fn rank(lookup: Lookup<'_>, size: usize) -> Result<Option<usize>> {
    number(lookup, RANK, 0, size - 1)
}

fn needed<T>(value: Option<T>, name: &'static str, needed_by: &'static str) -> Result<T> {
    let expected = if name == SIZE { "the number of processes" } else { "this process's number, from 0 on" };
    value.ok_or(JobError::MissingVariable { name, needed_by, expected })
}

/// A variable that is set and not empty.
fn text(lookup: Lookup<'_>, name: &'static str) -> Result<Option<String>> {
    let Some(value) = lookup(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|value| JobError::BadVariable {
        name,
        value: value.to_string_lossy().into_owned(),
        rule: "it must be UTF-8".to_string(),
    })
}

fn number<T>(lookup: Lookup<'_>, name: &'static str, least: T, most: T) -> Result<Option<T>>
where
    T: FromStr + PartialOrd + std::fmt::Display,
{
    let Some(value) = text(lookup, name)? else { return Ok(None) };
    match value.parse::<T>() {
        Ok(parsed) if parsed >= least && parsed <= most => Ok(Some(parsed)),
        _ => Err(JobError::BadVariable {
            name,
            value,
            rule: format!("it must be a number from {least} to {most}"),
        }),
    }
}

fn check_address(address: &str) -> Result<()> {
    let port =
        address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(port)) if port != 0) {
        return Err(JobError::BadVariable {
            name: RENDEZVOUS,
            value: address.to_string(),
            rule: "it must be HOST:PORT, where rank 0 listens, with a port from 1 to 65535".to_string(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<JobSettings> {
        JobSettings::read(&|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    fn start(variables: &[(&str, &str)]) -> JobStart {
        read(variables).expect("settings").start
    }

    const RENDEZVOUS_OF_4: [(&str, &str); 3] = [(RENDEZVOUS, "node1:7000"), (RANK, "3"), (SIZE, "4")];

    #[test]
    fn the_first_form_that_is_set_decides() {
        let mut all = vec![(JOB_FILE, "/shared/job")];
        all.extend(RENDEZVOUS_OF_4);
        assert_eq!(start(&all), JobStart::Rendezvous { address: "node1:7000".to_string(), rank: 3, size: 4 });
        all.extend([(NAMESPACE, "prterun-1"), (PMIX_RANK, "2")]);
        assert_eq!(start(&all), JobStart::Pmix { rank: 2 });
        assert_eq!(
            start(&[(JOB_FILE, "/shared/job"), (SIZE, "4")]),
            JobStart::Directory { path: "/shared/job".into(), rank: None, size: 4 }
        );
    }

    #[test]
    fn alone_says_why() {
        let JobStart::Alone { reason } = start(&[]) else { panic!("not alone") };
        assert!(reason.contains("not set"), "{reason}");
        let JobStart::Alone { reason } = start(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")])
        else {
            panic!("not alone")
        };
        assert!(reason.contains("srun --mpi=pmix"), "{reason}");
    }

    #[test]
    fn wrong_job_settings_are_reported() {
        let cases: [(&[(&str, &str)], &str); 10] = [
            (&[(NAMESPACE, "x")], "PMIX_RANK is not set"),
            (&[(NAMESPACE, "x"), (PMIX_RANK, "4294967295")], "PMIX_RANK is \"4294967295\""),
            (&[(RENDEZVOUS, "a:1"), (RANK, "0")], "PAGEWIRE_SIZE is not set"),
            (&[(RENDEZVOUS, "a:1"), (SIZE, "2")], "PAGEWIRE_RANK is not set"),
            (&[(RENDEZVOUS, "a:1"), (SIZE, "2"), (RANK, "2")], "PAGEWIRE_RANK is \"2\""),
            (&[(RENDEZVOUS, "7000"), (SIZE, "2"), (RANK, "0")], "PAGEWIRE_RENDEZVOUS is \"7000\""),
            (&[(RENDEZVOUS, "a:0"), (SIZE, "2"), (RANK, "0")], "PAGEWIRE_RENDEZVOUS is \"a:0\""),
            (&[(JOB_FILE, "/x"), (SIZE, "0")], "PAGEWIRE_SIZE is \"0\""),
            (&[(SIZE, "4")], "PAGEWIRE_RENDEZVOUS is not set"),
            (&[(TIMEOUT_SECONDS, "soon")], "PAGEWIRE_JOB_TIMEOUT is \"soon\""),
        ];
        for (variables, expected) in cases {
            let error = read(variables).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(read(&[(JOB, &"x".repeat(MAX_JOB_NAME + 1))]).is_err());
    }

    #[test]
    fn the_timeout_is_in_seconds() {
        assert_eq!(read(&[]).expect("settings").timeout, TIMEOUT);
        assert_eq!(read(&[(TIMEOUT_SECONDS, "7")]).expect("settings").timeout, Duration::from_secs(7));
    }
}
