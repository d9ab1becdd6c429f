//! What the engines of a run have written: which call failed, what the processes left, and what they misused.

use super::runner::CompletedRun;
use super::verdict::Evidence;
use anyhow::Result;
use pagewire_checker::Rule;
use pagewire_checker::report::{ProcessFindings, StackFrame};
use pagewire_failures::Note;
use std::collections::BTreeMap;

/// Findings by kind and place, and how many.
pub type FindingCounts = BTreeMap<FindingPlace, u64>;

/// A kind of findings at a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FindingPlace {
    /// The name of the rule of `pagewire run --check`.
    rule: String,
    /// The verb that made what was left, or that misused something.
    verb: String,
    /// The call stack of that verb.
    place: Vec<StackFrame>,
}

/// Misuse that no failure excuses. What else the check finds, such as a region that is deregistered before its queue pair, is how programs end
/// after an error.
const MISUSE: [Rule; 2] = [Rule::EndedObject, Rule::DeregisteredKey];

/// The evidence of a run in which a call of `role` failed; `without` is found if none does.
///
/// # Errors
/// If a file of the run cannot be read.
pub fn of(run: &CompletedRun, role: &str, without: &FindingCounts) -> Result<Evidence> {
    let fired = run.fired(role)?.lines().any(|line| !line.trim().is_empty() && !Note::is_line(line));
    let found = findings(run.findings(role)?);
    let left = more(&found, without, &[Rule::LeftObject]);
    let misused = more(&found, without, &MISUSE);
    Ok(Evidence {
        fired,
        left: left.map(|what| format!("left behind, made by {what}")),
        misused: misused.map(|what| format!("used after its end, by {what}")),
    })
}

/// What the processes of a role left and misused, together.
pub fn findings(reports: Vec<ProcessFindings>) -> FindingCounts {
    let mut counts = FindingCounts::new();
    for finding in reports.into_iter().flat_map(|report| report.findings) {
        let place = FindingPlace { rule: finding.rule, verb: finding.verb, place: finding.place };
        *counts.entry(place).or_default() += finding.count;
    }
    counts
}

/// The verbs of what `found` has more than `without`, of some rules.
fn more(found: &FindingCounts, without: &FindingCounts, rules: &[Rule]) -> Option<String> {
    let more = found.iter().filter_map(|(place, count)| {
        let before = without.get(place).copied().unwrap_or(0);
        let is_wanted = Rule::from_name(&place.rule).is_some_and(|rule| rules.contains(&rule));
        (is_wanted && *count > before).then_some(place.verb.as_str())
    });
    let mut verbs: Vec<&str> = more.collect();
    verbs.dedup();
    (!verbs.is_empty()).then(|| verbs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_checker::report::ReportedFinding;

    fn report(findings: &[(Rule, &str, u64, u64)]) -> FindingCounts {
        let reported = findings.iter().map(|&(rule, verb, offset, count)| ReportedFinding {
            rule: rule.name().to_owned(),
            verb: verb.to_owned(),
            detail: String::new(),
            count,
            place: vec![StackFrame { module: "/p".to_owned(), offset }],
            related: Vec::new(),
        });
        let findings = reported.collect();
        super::findings(vec![ProcessFindings { pid: 1, program: "p".to_owned(), findings, left_out: 0 }])
    }

    #[test]
    fn only_what_is_more_counts() {
        let without = report(&[(Rule::LeftObject, "ibv_alloc_pd", 1, 1)]);
        let of = |findings: &[_]| more(&report(findings), &without, &[Rule::LeftObject]);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(Rule::LeftObject, "ibv_alloc_pd", 1, 1)]), None);
        assert_eq!(of(&[(Rule::LeftObject, "ibv_alloc_pd", 1, 2)]).as_deref(), Some("ibv_alloc_pd"));
        assert_eq!(of(&[(Rule::LeftObject, "ibv_alloc_pd", 2, 1)]).as_deref(), Some("ibv_alloc_pd"));
        assert_eq!(of(&[(Rule::EndedObject, "ibv_destroy_qp", 2, 1)]), None);
        let two = [(Rule::LeftObject, "ibv_alloc_pd", 2, 1), (Rule::LeftObject, "ibv_reg_mr", 3, 1)];
        assert_eq!(of(&two).as_deref(), Some("ibv_alloc_pd, ibv_reg_mr"));
    }
}
