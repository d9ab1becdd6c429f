//! What a check has found (`pagewire run --check`), with the places in the source.

use super::symbols::{SourceFrame, Symbols};
use anyhow::Result;
use pagewire_checker::Rule;
use pagewire_checker::report::{ProcessFindings, ReportedFinding};
use serde::Serialize;
use std::io::{self, Write};

/// Frames of a place that are shown to people.
const SHOWN_FRAMES: usize = 12;

/// How many findings there are, each place once.
pub fn count(reports: &[ProcessFindings]) -> usize {
    reports.iter().map(|report| report.findings.len()).sum()
}

/// Prints the findings to the standard error output: the standard output is the program's.
///
/// # Errors
/// If they cannot be written.
pub fn print(reports: &[ProcessFindings], as_json: bool) -> Result<()> {
    let mut out = anstream::stderr().lock();
    let mut symbols = Symbols::default();
    for report in reports {
        for finding in &report.findings {
            let finding = SourceFinding::of(report, finding, &mut symbols);
            match as_json {
                true => writeln!(out, "{}", serde_json::to_string(&finding)?)?,
                false => finding.write(&mut out)?,
            }
        }
        if report.left_out > 0 && !as_json {
            writeln!(
                out,
                "pagewire: {} ({}): {} more were found",
                report.program, report.pid, report.left_out
            )?;
        }
    }
    if !as_json {
        writeln!(out, "{}", summary(reports))?;
    }
    Ok(())
}

fn summary(reports: &[ProcessFindings]) -> String {
    let number = |count: usize, one: &str, more: &str| match count {
        0 => format!("no {more}"),
        1 => format!("1 {one}"),
        _ => format!("{count} {more}"),
    };
    let processes = number(reports.len(), "process", "processes");
    format!("pagewire: {processes} checked: {}", number(count(reports), "finding", "findings"))
}

/// A finding with the text of its rule, and its places in the source.
#[derive(Debug, Serialize)]
struct SourceFinding<'r> {
    pid: u32,
    program: &'r str,
    rule: &'r str,
    verb: &'r str,
    detail: &'r str,
    count: u64,
    place: Vec<SourceFrame>,
    related: Vec<SourceCall<'r>>,
    #[serde(flatten)]
    text: Option<RuleText>,
}

/// Another call that has to do with a finding.
#[derive(Debug, Serialize)]
struct SourceCall<'r> {
    what: &'r str,
    verb: &'r str,
    place: Vec<SourceFrame>,
}

/// What a rule says. A library of another version may have rules that this command does not know.
#[derive(Debug, Serialize)]
struct RuleText {
    sentence: &'static str,
    remedy: &'static str,
    source: String,
}

/// Where a rule stands: what ends an object is in the manual page of the verb that makes it.
fn source_of(rule: Rule, verb: &str) -> String {
    match rule {
        Rule::LeftObject => format!("{verb}(3)"),
        _ => rule.source().to_owned(),
    }
}

impl<'r> SourceFinding<'r> {
    fn of(report: &'r ProcessFindings, finding: &'r ReportedFinding, symbols: &mut Symbols) -> Self {
        let related = finding.related.iter().map(|call| SourceCall {
            what: &call.what,
            verb: &call.verb,
            place: symbols.stack(&call.place),
        });
        let related = related.collect();
        let text = Rule::from_name(&finding.rule).map(|rule| RuleText {
            sentence: rule.sentence(),
            remedy: rule.remedy(),
            source: source_of(rule, &finding.verb),
        });
        SourceFinding {
            pid: report.pid,
            program: &report.program,
            rule: &finding.rule,
            verb: &finding.verb,
            detail: &finding.detail,
            count: finding.count,
            place: symbols.stack(&finding.place),
            related,
            text,
        }
    }

    /// Writes it for people.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let times = if self.count == 1 { String::new() } else { format!(" ({} times)", self.count) };
        writeln!(out, "pagewire: {} ({}): {}: {}{times}", self.program, self.pid, self.rule, self.detail)?;
        write_place(out, self.verb, &self.place)?;
        for call in &self.related {
            writeln!(out, "  {}", call.what)?;
            write_place(out, call.verb, &call.place)?;
        }
        if let Some(text) = &self.text {
            writeln!(out, "  {} {} See {}.", text.sentence, text.remedy, text.source)?;
        }
        Ok(())
    }
}

fn write_place(out: &mut impl Write, verb: &str, place: &[SourceFrame]) -> io::Result<()> {
    writeln!(out, "    {verb}")?;
    for frame in place.iter().take(SHOWN_FRAMES) {
        writeln!(out, "    {}", line_of(frame))?;
    }
    if place.len() > SHOWN_FRAMES {
        writeln!(out, "    and {} more frames", place.len() - SHOWN_FRAMES)?;
    }
    Ok(())
}

/// A frame: the function and the line of its source, or as much of that as is known.
fn line_of(frame: &SourceFrame) -> String {
    let unnamed = &frame.address;
    match (&frame.function, &frame.file, frame.line) {
        (function, Some(file), Some(line)) => {
            format!("in {} ({file}:{line})", function.as_deref().unwrap_or("a function without a name"))
        }
        (Some(function), _, _) => format!("in {function} ({unnamed})"),
        (None, _, _) => format!("in {unnamed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_checker::report::{ReportedCall, StackFrame};

    fn report() -> ProcessFindings {
        let place = vec![StackFrame { module: "/no/program".into(), offset: 0x10 }];
        let related = vec![ReportedCall {
            what: "deregistered".into(),
            verb: "ibv_dereg_mr".into(),
            place: place.clone(),
        }];
        let finding = ReportedFinding {
            rule: "deregistered-key".into(),
            verb: "ibv_post_send".into(),
            detail: "lkey 0x1 is that of no region any more".into(),
            count: 2,
            place,
            related,
        };
        ProcessFindings { pid: 7, program: "program".into(), findings: vec![finding], left_out: 0 }
    }

    #[test]
    fn finding_is_shown_with_rule_and_places() {
        let report = report();
        let finding = SourceFinding::of(&report, &report.findings[0], &mut Symbols::default());
        let mut text = Vec::new();
        finding.write(&mut text).expect("memory");
        let text = String::from_utf8(text).expect("text");
        let begins = "pagewire: program (7): deregistered-key: lkey 0x1 is that of no region any more (2 times)\n    \
                      ibv_post_send\n    in /no/program+0x10\n  deregistered\n    ibv_dereg_mr\n";
        assert!(text.starts_with(begins), "{text}");
        assert!(text.contains(Rule::DeregisteredKey.sentence()), "{text}");
        assert_eq!(summary(&[report]), "pagewire: 1 process checked: 1 finding");
        assert_eq!(summary(&[]), "pagewire: no processes checked: no findings");
    }

    #[test]
    fn lines_of_the_source_are_shown() {
        let frame = SourceFrame {
            address: StackFrame { module: "/program".into(), offset: 16 },
            function: Some("main".into()),
            file: Some("main.c".into()),
            line: Some(3),
        };
        assert_eq!(line_of(&frame), "in main (main.c:3)");
        let no_debug = SourceFrame { file: None, line: None, ..frame.clone() };
        assert_eq!(line_of(&no_debug), "in main (/program+0x10)");
    }

    #[test]
    fn json_has_the_rule() {
        let report = report();
        let finding = SourceFinding::of(&report, &report.findings[0], &mut Symbols::default());
        let value = serde_json::to_value(&finding).expect("JSON");
        assert_eq!(value["rule"], "deregistered-key");
        assert_eq!(value["remedy"], Rule::DeregisteredKey.remedy());
        assert_eq!(value["place"][0]["offset"], 16);
    }
}
