//! `pagewire doctor`: what this machine allows, what that costs, and how to mend it.
//!
//! Whatever can be tried is tried; a version number or a setting is read only where a try would need more than this
//! command may have, and then the finding says so.

mod connections;
mod installation;
mod kernel;
mod limits;
mod memory;
mod network;

pub use self::limits::require_memory;

use crate::arguments::DoctorArguments;
use crate::output::table::{bad, good, heading, warning};
use anstyle::Style;
use anyhow::Result;
use serde::Serialize;
use std::io::Write;

/// What a finding means for Pagewire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Pagewire runs, but slower or with less.
    Costs,
    /// Pagewire cannot run.
    Forbids,
    /// There or not: Pagewire does not use it.
    Unused,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// What it means.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What follows from it.
    pub means: &'static str,
    /// How to mend it, if there is something to mend.
    pub mend: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>, means: &'static str) -> Finding {
        Finding { check, verdict: Verdict::Ok, found: found.into(), means, mend: None }
    }

    fn unused(check: &'static str, found: impl Into<String>) -> Finding {
        let means = "Pagewire runs without it";
        Finding { check, verdict: Verdict::Unused, found: found.into(), means, mend: None }
    }

    fn costs(
        check: &'static str,
        found: impl Into<String>,
        means: &'static str,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { check, verdict: Verdict::Costs, found: found.into(), means, mend: Some(mend.into()) }
    }

    fn forbids(
        check: &'static str,
        found: impl Into<String>,
        means: &'static str,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { check, verdict: Verdict::Forbids, found: found.into(), means, mend: Some(mend.into()) }
    }
}

/// Prints the findings; gives the exit status: 1 if something keeps Pagewire from running at all.
///
/// # Errors
/// If they cannot be printed.
pub fn doctor(arguments: &DoctorArguments) -> Result<u8> {
    let findings = examine();
    let mut out = anstream::stdout().lock();
    if arguments.json {
        for finding in &findings {
            writeln!(out, "{}", serde_json::to_string(finding)?)?;
        }
    } else {
        print(&mut out, &findings)?;
    }
    Ok(u8::from(findings.iter().any(|finding| finding.verdict == Verdict::Forbids)))
}

/// Looks at everything.
pub fn examine() -> Vec<Finding> {
    let mut findings = limits::findings();
    if limits::leave_too_little() {
        return findings;
    }
    findings.extend(installation::findings());
    findings.extend(kernel::findings());
    findings.extend(memory::findings());
    findings.extend(network::findings());
    findings.extend(connections::findings());
    findings
}

fn print(out: &mut impl Write, findings: &[Finding]) -> Result<()> {
    let wide = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    for finding in findings {
        let (style, word) = match finding.verdict {
            Verdict::Ok => (good(), "ok"),
            Verdict::Costs => (warning(), "costs"),
            Verdict::Forbids => (bad(), "forbids"),
            Verdict::Unused => (Style::new(), "unused"),
        };
        write!(out, "{style}{word:<8}{style:#}{:<wide$}  {}", finding.check, finding.found)?;
        match finding.verdict {
            Verdict::Ok | Verdict::Unused => writeln!(out, "; {}", finding.means)?,
            Verdict::Costs | Verdict::Forbids => {
                writeln!(out, "\n{:width$}{}", "", finding.means, width = wide + 10)?;
            }
        }
        if let Some(mend) = &finding.mend {
            writeln!(out, "{:width$}mend: {mend}", "", width = wide + 10)?;
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let head = heading();
    let (costs, forbids) = (count(Verdict::Costs), count(Verdict::Forbids));
    let conclusion = if forbids == 0 { "Pagewire runs here" } else { "Pagewire does not run here" };
    let unused = count(Verdict::Unused);
    writeln!(
        out,
        "\n{head}{conclusion}{head:#}: {} ok, {costs} cost something, {forbids} forbid it, {unused} do not matter",
        count(Verdict::Ok)
    )?;
    Ok(())
}

/// The contents of a file of /proc or /sys, trimmed; `None` where it is absent or closed to this user.
fn setting(file: &str) -> Option<String> {
    std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_well_says_how_to_mend_it() {
        for finding in examine() {
            let well = matches!(finding.verdict, Verdict::Ok | Verdict::Unused);
            assert_eq!(well, finding.mend.is_none(), "{finding:?}");
            assert!(!finding.found.is_empty() && !finding.means.is_empty(), "{finding:?}");
        }
    }

    #[test]
    fn each_finding_says_what_it_means() {
        let findings = [
            Finding::ok("a", "there", "good for x"),
            Finding::unused("io_uring", "not available: EPERM"),
            Finding::costs("b", "small", "slow", "make it larger"),
        ];
        let mut out = Vec::new();
        print(&mut out, &findings).expect("memory");
        let text = anstream::adapter::strip_str(&String::from_utf8(out).expect("UTF-8")).to_string();
        let expected = "\
ok      a         there; good for x
unused  io_uring  not available: EPERM; Pagewire runs without it
costs   b         small
                  slow
                  mend: make it larger

Pagewire runs here: 1 ok, 1 cost something, 0 forbid it, 1 do not matter
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_line_has_the_promised_fields() {
        let text = |finding: &Finding| serde_json::to_string(finding).expect("plain data");
        assert_eq!(
            text(&Finding::costs("b", "small", "slow", "make it larger")),
            r#"{"check":"b","verdict":"costs","found":"small","means":"slow","mend":"make it larger"}"#
        );
        assert_eq!(
            text(&Finding::unused("u", "works")),
            r#"{"check":"u","verdict":"unused","found":"works","means":"Pagewire runs without it","mend":null}"#
        );
    }
}
