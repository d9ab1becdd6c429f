//! What a run shows: whether a program handled the failure of its call.

use super::job::{End, RunJob, RunOutcome};
use super::scenario::LeakPolicy;
use serde::Serialize;
use std::fmt;

/// What a run shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The process gave up, and said so by its exit status.
    Handled,
    /// The run did what it should in spite of the failure.
    Tolerated,
    /// The run made no such call: its calls differ from those of the first run.
    NotReached,
    /// A fault.
    Faulty(Finding),
}

/// A fault of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which kind of fault.
    pub kind: FindingKind,
    /// What was seen.
    pub seen: String,
}

/// Which kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A signal ended a process.
    Crash,
    /// A process ran on at the time limit.
    Hang,
    /// The process whose call failed ended as if all were well, and the result is wrong.
    WrongSuccess,
    /// A process ended, and objects of verbs were left.
    Leak,
    /// A process used verbs against their rules.
    Misuse,
}

impl FindingKind {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            FindingKind::Crash => "crash",
            FindingKind::Hang => "hang",
            FindingKind::WrongSuccess => "wrong success",
            FindingKind::Leak => "leak",
            FindingKind::Misuse => "misuse",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// What the engines of a run have written.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Whether the call failed.
    pub fired: bool,
    /// What a process of the failing role left, in words, if the first run did not leave it.
    pub left: Option<String>,
    /// How a process of the failing role misused verbs, in words.
    pub misused: Option<String>,
}

/// Why a run without failures is none of a working scenario; `None` if it works.
pub fn obstacle(job: &RunJob, outcome: &RunOutcome) -> Option<String> {
    let member = job.processes.iter().zip(&outcome.processes).find_map(|(process, seen)| {
        let well = match seen.end {
            End::Exit(0) => true,
            End::Stopped => process.serves,
            _ => false,
        };
        (!well).then_some((&seen.role, seen))
    });
    let verifier = outcome.verifier.iter().find(|seen| seen.end != End::Exit(0));
    let (name, seen) = member.or_else(|| verifier.map(|seen| (&seen.role, seen)))?;
    Some(format!("{name}: {}{}", seen.end.words(), indented(&seen.output)))
}

/// Judges a run in which a call of the processes that `job` says fails.
pub fn judge(job: &RunJob, outcome: &RunOutcome, evidence: &Evidence, leaks: LeakPolicy) -> Verdict {
    if !evidence.fired {
        return Verdict::NotReached;
    }
    let found = |kind, seen: String| Verdict::Faulty(Finding { kind, seen });
    for seen in &outcome.processes {
        if matches!(seen.end, End::Signal(_)) {
            return found(FindingKind::Crash, format!("{} {}", seen.role, seen.end.words()));
        }
    }
    for seen in &outcome.processes {
        if seen.end == End::Limit {
            return found(FindingKind::Hang, format!("{} {}", seen.role, seen.end.words()));
        }
    }
    if let Some(seen) = wrong_success(job, outcome) {
        return found(FindingKind::WrongSuccess, seen);
    }
    if let Some(seen) = &evidence.misused {
        return found(FindingKind::Misuse, seen.clone());
    }
    let failing = || job.processes.iter().zip(&outcome.processes).filter(|(process, _)| process.fails);
    let ended_well = failing().all(|(process, seen)| match seen.end {
        End::Exit(0) => true,
        End::Stopped => process.serves,
        _ => false,
    });
    let counts = match leaks {
        LeakPolicy::Success => ended_well,
        LeakPolicy::Exit => failing().all(|(_, seen)| matches!(seen.end, End::Exit(_))),
        LeakPolicy::Never => false,
    };
    if let Some(left) = evidence.left.as_ref().filter(|_| counts) {
        return found(FindingKind::Leak, left.clone());
    }
    if ended_well && outcome.processes.iter().all(|seen| matches!(seen.end, End::Exit(0) | End::Stopped)) {
        Verdict::Tolerated
    } else {
        Verdict::Handled
    }
}

/// What is wrong though the process whose call failed says that all is well.
fn wrong_success(job: &RunJob, outcome: &RunOutcome) -> Option<String> {
    let all = || job.processes.iter().zip(&outcome.processes);
    let said_well = all().filter(|(process, _)| process.fails).all(|(process, seen)| match seen.end {
        End::Exit(0) => true,
        // Who serves on says nothing: its clients do.
        End::Stopped => process.serves && all().all(|(peer, seen)| peer.serves || seen.end == End::Exit(0)),
        _ => false,
    });
    if !said_well {
        return None;
    }
    if let Some(verifier) = &outcome.verifier {
        return (verifier.end != End::Exit(0)).then(|| format!("the verifier: {}", verifier.end.words()));
    }
    let complaint =
        all().find(|(process, seen)| !process.fails && matches!(seen.end, End::Exit(status) if status != 0));
    complaint.map(|(_, seen)| format!("{}: {}", seen.role, seen.end.words()))
}

/// The lines of an output, under what is said of it.
pub fn indented(output: &str) -> String {
    output.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("\n    | {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::job::{Process, ProcessOutcome};
    use super::*;
    use std::time::Duration;

    /// A run of a server, whose call does not fail, and of a client, whose call fails.
    fn run(server: End, client: End, verifier: Option<End>) -> (RunJob, RunOutcome) {
        let process = |role: &str, fails| Process {
            role: role.to_owned(),
            words: Vec::new(),
            environment: Default::default(),
            ready: None,
            serves: false,
            fails,
        };
        let seen = |role: &str, end| ProcessOutcome { role: role.to_owned(), end, output: String::new() };
        let job = RunJob {
            processes: vec![process("server", false), process("client", true)],
            verifier: verifier.as_ref().map(|_| vec!["true".to_owned()]),
            directory: "/".into(),
            own_network: false,
            limit: Duration::from_secs(1),
            grace: Duration::ZERO,
        };
        let outcome = RunOutcome {
            processes: vec![seen("server", server), seen("client", client)],
            verifier: verifier.map(|end| seen("verifier", end)),
            elapsed: Duration::ZERO,
        };
        (job, outcome)
    }

    fn fired() -> Evidence {
        Evidence { fired: true, ..Evidence::default() }
    }

    fn kind((job, outcome): (RunJob, RunOutcome)) -> Result<FindingKind, Verdict> {
        match judge(&job, &outcome, &fired(), LeakPolicy::Success) {
            Verdict::Faulty(finding) => Ok(finding.kind),
            other => Err(other),
        }
    }

    #[test]
    fn ends_are_judged() {
        let verdict = |server, client| kind(run(server, client, None));
        assert_eq!(verdict(End::Stopped, End::Exit(1)), Err(Verdict::Handled));
        assert_eq!(verdict(End::Exit(0), End::Exit(0)), Err(Verdict::Tolerated));
        assert_eq!(verdict(End::Stopped, End::Signal(11)), Ok(FindingKind::Crash));
        assert_eq!(verdict(End::Signal(6), End::Exit(1)), Ok(FindingKind::Crash));
        assert_eq!(verdict(End::Stopped, End::Limit), Ok(FindingKind::Hang));
        assert_eq!(verdict(End::Limit, End::Exit(0)), Ok(FindingKind::Hang));
        assert_eq!(verdict(End::Exit(3), End::Exit(0)), Ok(FindingKind::WrongSuccess));
        assert_eq!(verdict(End::Exit(3), End::Exit(1)), Err(Verdict::Handled));
    }

    #[test]
    fn verifier_decides_where_there_is_one() {
        let verdict = |client, verifier| kind(run(End::Exit(0), client, Some(verifier)));
        assert_eq!(verdict(End::Exit(0), End::Exit(1)), Ok(FindingKind::WrongSuccess));
        assert_eq!(verdict(End::Exit(1), End::Exit(1)), Err(Verdict::Handled));
        assert_eq!(verdict(End::Exit(0), End::Exit(0)), Err(Verdict::Tolerated));
    }

    #[test]
    fn server_that_serves_on_is_judged_by_its_clients() {
        let verdict = |client| {
            let (mut job, outcome) = run(End::Stopped, client, Some(End::Exit(1)));
            (job.processes[0].serves, job.processes[0].fails, job.processes[1].fails) = (true, true, false);
            kind((job, outcome))
        };
        assert_eq!(verdict(End::Exit(0)), Ok(FindingKind::WrongSuccess));
        assert_eq!(verdict(End::Exit(1)), Err(Verdict::Handled));
    }

    #[test]
    fn leaks_count_as_the_scenario_says() {
        let left = Evidence { fired: true, left: Some("1 PD".to_owned()), misused: None };
        let verdict = |client, policy| {
            let (job, outcome) = run(End::Stopped, client, None);
            matches!(judge(&job, &outcome, &left, policy), Verdict::Faulty(finding) if finding.kind == FindingKind::Leak)
        };
        let cases = [(End::Exit(0), true, true), (End::Exit(1), false, true)];
        for (end, by_success, by_exit) in cases {
            assert_eq!(verdict(end.clone(), LeakPolicy::Success), by_success, "{end:?}");
            assert_eq!(verdict(end.clone(), LeakPolicy::Exit), by_exit, "{end:?}");
            assert!(!verdict(end, LeakPolicy::Never));
        }
    }

    #[test]
    fn call_that_did_not_fail_shows_nothing() {
        let (job, outcome) = run(End::Exit(0), End::Signal(11), None);
        assert_eq!(judge(&job, &outcome, &Evidence::default(), LeakPolicy::Success), Verdict::NotReached);
    }

    #[test]
    fn scenario_that_fails_by_itself_is_named() {
        let of = |server, client, verifier| {
            let (job, outcome) = run(server, client, verifier);
            obstacle(&job, &outcome)
        };
        assert_eq!(of(End::Exit(0), End::Exit(0), Some(End::Exit(0))), None);
        assert_eq!(of(End::Exit(0), End::Exit(2), None).as_deref(), Some("client: exit status 2"));
        assert_eq!(
            of(End::Limit, End::Exit(0), None).as_deref(),
            Some("server: still ran at the time limit")
        );
        assert_eq!(
            of(End::Exit(0), End::Exit(0), Some(End::Exit(1))).as_deref(),
            Some("verifier: exit status 1")
        );
    }
}
