//! What people and machines read of the results.

use super::plan::{FailureKind, Injection};
use super::verdict::{Finding, FindingKind, Verdict, indented};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

/// A failure that was run.
#[derive(Clone, Debug)]
pub struct TrialResult {
    /// The failure.
    pub injection: Injection,
    /// What it shows.
    pub verdict: Verdict,
    /// How long the run took.
    pub elapsed: Duration,
    /// How each process ended, and what it printed last.
    pub seen: String,
    /// The command line that repeats it.
    pub repeat: String,
}

impl TrialResult {
    fn finding(&self) -> Option<&Finding> {
        match &self.verdict {
            Verdict::Faulty(finding) => Some(finding),
            _ => None,
        }
    }
}

/// Findings of one kind at one place: one fault, seen by several failures.
#[derive(Debug)]
pub struct Fault<'a> {
    /// The one with the shortest rule.
    pub first: &'a TrialResult,
    /// What it shows.
    pub finding: &'a Finding,
    /// The others.
    pub others: Vec<&'a TrialResult>,
}

/// The faults that were found, in the order of the calls.
pub fn faults(results: &[TrialResult]) -> Vec<Fault<'_>> {
    let mut faults: Vec<Fault> = Vec::new();
    for one in results {
        let Some(finding) = one.finding() else { continue };
        let same = |fault: &&mut Fault| {
            let (this, other) = (&one.injection, &fault.first.injection);
            fault.finding.kind == finding.kind
                && (&this.role, this.kind, &this.what, &this.place)
                    == (&other.role, other.kind, &other.what, &other.place)
        };
        let words = |result: &TrialResult| result.injection.rule.split_whitespace().count();
        match faults.iter_mut().find(same) {
            Some(fault) if words(one) < words(fault.first) => {
                fault.others.push(fault.first);
                (fault.first, fault.finding) = (one, finding);
            }
            Some(fault) => fault.others.push(one),
            None => faults.push(Fault { first: one, finding, others: Vec::new() }),
        }
    }
    faults
}

/// A fault in words.
pub fn describe(fault: &Fault) -> String {
    let Injection { role, kind, what, nth, how, rule, place } = &fault.first.injection;
    let mut text = format!("{}: {}\n", fault.finding.kind, fault.finding.seen);
    text += &match kind {
        FailureKind::Event => format!("  event: {how} at {what} of {role}, number {nth}\n"),
        FailureKind::Call | FailureKind::Request => {
            format!("  failed: {what} of {role}, number {nth}, with {how}\n")
        }
    };
    for line in place.lines().take(8) {
        text += &format!("      at {line}\n");
    }
    text += &format!("  rule: {rule}\n  repeat: {}\n", fault.first.repeat);
    if !fault.others.is_empty() {
        let others: Vec<String> =
            fault.others.iter().map(|one| format!("#{}={}", one.injection.nth, one.injection.how)).collect();
        text += &format!("  also with: {}\n", others.join(", "));
    }
    text + &fault.first.seen
}

/// How many failures had which result.
pub fn summary(results: &[TrialResult], faults: usize) -> String {
    let count = |wanted: &Verdict| results.iter().filter(|one| one.verdict == *wanted).count();
    let (handled, tolerated) = (count(&Verdict::Handled), count(&Verdict::Tolerated));
    let missed = count(&Verdict::NotReached);
    let faulty = match results.iter().filter(|one| one.finding().is_some()).count() {
        0 => "none shows a fault".to_owned(),
        1 => "1 shows a fault".to_owned(),
        faulty if faults == 1 => format!("{faulty} show one fault"),
        faulty => format!("{faulty} show {faults} faults"),
    };
    let mut text = format!(
        "{} failures: {handled} ended the program with an error, {tolerated} did no harm, {faulty}",
        results.len()
    );
    if missed > 0 {
        text += &format!(", {missed} did not happen (the calls of the program differ from run to run)");
    }
    text
}

/// One object for a failure.
pub fn json(result: &TrialResult) -> serde_json::Value {
    let Injection { role, what, nth, how, rule, place, .. } = &result.injection;
    let word = match &result.verdict {
        Verdict::Handled => "handled",
        Verdict::Tolerated => "tolerated",
        Verdict::NotReached => "not-reached",
        Verdict::Faulty(_) => "fault",
    };
    serde_json::json!({
        "name": result.injection.name(),
        "role": role,
        "call": what,
        "number": nth,
        "error": how,
        "rule": rule,
        "place": place.lines().collect::<Vec<_>>(),
        "result": word,
        "kind": result.finding().map(|finding| finding.kind),
        "seen": result.finding().map(|finding| finding.seen.as_str()),
        "seconds": result.elapsed.as_secs_f64(),
        "repeat": result.repeat,
    })
}

/// All results as JUnit XML.
///
/// # Errors
/// If they cannot be written as XML.
pub fn junit(subject: &str, results: &[TrialResult]) -> Result<String, quick_junit::SerializeError> {
    let mut suite = TestSuite::new(subject);
    for one in results {
        let status = match (&one.verdict, one.finding()) {
            (_, Some(finding)) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_type(kind_word(finding.kind)).set_message(finding.seen.clone());
                let Injection { rule, place, .. } = &one.injection;
                let place: String = place.lines().map(|line| format!("at {line}\n")).collect();
                status.set_description(format!("rule: {rule}\nrepeat: {}\n{place}{}", one.repeat, one.seen));
                status
            }
            (Verdict::NotReached, _) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message("the run made no such call");
                status
            }
            _ => TestCaseStatus::success(),
        };
        let mut case = TestCase::new(one.injection.name(), status);
        case.set_classname(one.injection.role.clone()).set_time(one.elapsed);
        suite.add_test_case(case);
    }
    let mut report = quick_junit::Report::new("pagewire fail-each");
    report.add_test_suite(suite);
    report.to_string()
}

const fn kind_word(kind: FindingKind) -> &'static str {
    kind.words()
}

/// How each process of a run ended, and what it printed last.
pub fn seen(outcome: &super::job::RunOutcome) -> String {
    let members = outcome.processes.iter().chain(&outcome.verifier);
    let of = |seen: &super::job::ProcessOutcome| {
        let lines: Vec<&str> = seen.output.lines().collect();
        let tail = lines[lines.len().saturating_sub(10)..].join("\n");
        format!("  {}: {}{}\n", seen.role, seen.end.words(), indented(&tail))
    };
    members.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::place::CallPlace;
    use super::*;

    fn tried(nth: u64, how: &str, rule: &str, kind: Option<FindingKind>) -> TrialResult {
        let finding = |kind| Verdict::Faulty(Finding { kind, seen: "client killed by <SIGSEGV>".to_owned() });
        TrialResult {
            injection: Injection {
                role: "client".to_owned(),
                kind: FailureKind::Call,
                what: "ibv_reg_mr".to_owned(),
                nth,
                how: how.to_owned(),
                rule: rule.to_owned(),
                place: CallPlace::known("setup", "main.c", 42),
            },
            verdict: kind.map_or(Verdict::Handled, finding),
            elapsed: Duration::from_millis(1500),
            seen: "  client: killed by SIGSEGV\n".to_owned(),
            repeat: "pagewire run".to_owned(),
        }
    }

    #[test]
    fn one_fault_has_its_shortest_rule() {
        let tried = [
            tried(1, "ENOMEM", "long rule", Some(FindingKind::Crash)),
            tried(2, "ENOMEM", "rule", Some(FindingKind::Crash)),
            tried(2, "EINVAL", "rule", Some(FindingKind::Hang)),
            tried(3, "ENOMEM", "rule", None),
        ];
        let faults = faults(&tried);
        assert_eq!(faults.len(), 2);
        let text = describe(&faults[0]);
        for part in [
            "crash: client killed",
            "number 2, with ENOMEM",
            "setup (main.c:42)",
            "rule: rule\n",
            "#1=ENOMEM",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = summary(&tried, faults.len());
        assert!(text.starts_with("4 failures: 1 ended") && text.contains("3 show 2 faults"), "{text}");
    }

    #[test]
    fn junit_has_a_case_for_each_failure() {
        let mut missed = tried(3, "EIO", "rule", None);
        missed.verdict = Verdict::NotReached;
        let all =
            [tried(1, "ENOMEM", "rule", Some(FindingKind::Crash)), tried(2, "ENOMEM", "rule", None), missed];
        let xml = junit("pingpong.toml", &all).expect("XML");
        for part in [
            "tests=\"3\"",
            "failures=\"1\"",
            "name=\"client:ibv_reg_mr#1=ENOMEM at main.c:42\"",
            "type=\"crash\"",
            "&lt;SIGSEGV&gt;",
            "time=\"1.500\"",
            "<skipped",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
    }

    #[test]
    fn json_says_what_was_seen() {
        let value = json(&tried(1, "ENOMEM", "rule", Some(FindingKind::WrongSuccess)));
        assert_eq!(
            (value["kind"].as_str(), value["result"].as_str()),
            (Some("wrong-success"), Some("fault"))
        );
        let value = json(&tried(1, "ENOMEM", "rule", None));
        assert_eq!((value["kind"].as_str(), value["result"].as_str()), (None, Some("handled")));
    }
}
