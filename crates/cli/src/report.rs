//! What the engine tells of itself: JSON lines, from a live process or from the file it leaves behind.
//!
//! A live process gives one object about itself, then one for each of its connections (these have a `qpn`). In the file
//! of `PAGEWIRE_STATS` each process is one line, its connections stand in the field `connections`.

use crate::limits::STATISTICS_BYTES;
use crate::table::{Table, heading};
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// One process and its connections.
#[derive(Clone, Debug, Default)]
pub struct ProcessReport {
    /// What the process says of itself: `pid`, `program`, `path_choice`, ...
    pub process: Map<String, Value>,
    /// One object for each connection: `qpn`, `type`, `peer`, `path`, `reason`, counters.
    pub connections: Vec<Map<String, Value>>,
}

impl ProcessReport {
    /// The sum of the counter `name` over all connections.
    pub fn total(&self, name: &str) -> u64 {
        self.connections.iter().map(|c| c.get(name).and_then(Value::as_u64).unwrap_or(0)).sum()
    }

    /// The paths that bytes took, by the counters: `local` (in the peer's memory, or through shared memory), `udp`.
    pub fn paths(&self) -> Vec<&'static str> {
        const LOCAL: [&str; 3] = ["local_direct_operations", "ring_packets_sent", "ring_packets_received"];
        const UDP: [&str; 2] = ["packets_sent", "packets_received"];
        let used = |names: &[&str]| names.iter().any(|name| self.total(name) > 0);
        let mut paths = Vec::new();
        if used(&LOCAL) {
            paths.push("local");
        }
        if used(&UDP) {
            paths.push("udp");
        }
        paths
    }
}

/// Parses the JSON lines in `text`.
///
/// # Errors
/// If a line is not a JSON object.
pub fn parse(text: &str) -> Result<Vec<ProcessReport>> {
    let mut reports: Vec<ProcessReport> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let object: Map<String, Value> =
            serde_json::from_str(line).with_context(|| format!("not a line of a report: {line}"))?;
        match reports.last_mut() {
            Some(report) if object.contains_key("qpn") => report.connections.push(object),
            None if object.contains_key("qpn") => {
                reports.push(ProcessReport { process: Map::new(), connections: vec![object] });
            }
            _ => reports.push(process(object)?),
        }
    }
    Ok(reports)
}

/// A line about a process, with or without its connections.
fn process(mut object: Map<String, Value>) -> Result<ProcessReport> {
    let connections = match object.shift_remove("connections") {
        None => Vec::new(),
        Some(list) => serde_json::from_value(list).context("connections of a report")?,
    };
    Ok(ProcessReport { process: object, connections })
}

/// Reads a file of PAGEWIRE_STATS; a file that does not exist holds no report (no process opened a device).
///
/// # Errors
/// If the file cannot be read, is not UTF-8, or is not in the format.
pub fn read_file(file: &Path) -> Result<Vec<ProcessReport>> {
    let mut text = String::new();
    match File::open(file) {
        Ok(open) => open.take(STATISTICS_BYTES).read_to_string(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    parse(&text)
}

/// Prints reports for people, to the standard error output: the standard output is the program's.
///
/// # Errors
/// If they cannot be written.
pub fn print_summary(reports: &[ProcessReport]) -> Result<()> {
    let mut out = anstream::stderr().lock();
    if reports.is_empty() {
        use std::io::Write;
        writeln!(out, "pagewire: no process opened a device, so there are no counters")?;
    }
    for report in reports {
        write_report(&mut out, report)?;
    }
    Ok(())
}

/// Writes one report for people.
///
/// # Errors
/// If it cannot be written.
pub fn write_report(out: &mut impl std::io::Write, report: &ProcessReport) -> Result<()> {
    let text = |name: &str| report.process.get(name).map_or_else(|| "?".to_owned(), plain);
    let head = heading();
    writeln!(
        out,
        "{head}{} (PID {}){head:#}  path asked for: {}",
        text("program"),
        text("pid"),
        text("path_choice")
    )?;
    for (name, value) in &report.process {
        if !matches!(name.as_str(), "program" | "pid" | "path_choice") && !is_zero(value) {
            writeln!(out, "  {}: {}", name.replace('_', " "), plain(value))?;
        }
    }
    if report.connections.is_empty() {
        writeln!(out, "  no connection")?;
        return Ok(());
    }
    let mut table = Table::new(&["QPN", "type", "state", "peer", "path", "why", "counters"]);
    for connection in &report.connections {
        let field = |name: &str| connection.get(name).map(plain).unwrap_or_default();
        let counters: Vec<String> = connection
            .iter()
            .filter(|(name, value)| !is_described(name) && value.is_number() && !is_zero(value))
            .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
            .collect();
        let peer = match field("peer_qpn").as_str() {
            "" | "0" => field("peer"),
            number => format!("{} QPN {number}", field("peer")),
        };
        table.row(vec![
            field("qpn"),
            field("type"),
            field("state"),
            peer,
            field("path"),
            field("reason"),
            counters.join(", "),
        ]);
    }
    table.write(out, "  ")?;
    Ok(())
}

fn is_described(name: &str) -> bool {
    matches!(name, "qpn" | "type" | "state" | "peer" | "peer_qpn" | "path" | "reason")
}

fn is_zero(value: &Value) -> bool {
    value.as_u64() == Some(0) || value.is_null()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => fields.values().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"pid":7,"program":"a","path_choice":"udp"}
{"qpn":17,"path":"udp","packets_sent":3}
{"qpn":18,"path":"udp","packets_sent":4}
{"pid":8,"program":"b","connections":[{"qpn":19,"path":"local","local_direct_operations":1}]}
"#;

    #[test]
    fn lines_are_grouped_by_process() {
        let reports = parse(LINES).expect("valid");
        assert_eq!(reports.len(), 2);
        assert_eq!(reports[0].connections.len(), 2);
        assert_eq!(reports[0].total("packets_sent"), 7);
        assert_eq!(reports[0].paths(), ["udp"]);
        assert_eq!(reports[1].paths(), ["local"]);
        assert!(!reports[1].process.contains_key("connections"));
    }

    #[test]
    fn garbage_is_an_error_and_no_panic() {
        assert!(parse("{\"pid\":1}\nnonsense\n").is_err());
        assert!(parse("[1]").is_err());
        assert!(parse("").expect("empty").is_empty());
    }

    #[test]
    fn a_report_is_written_with_its_reason() {
        let mut out = Vec::new();
        let lines = "{\"pid\":7,\"program\":\"a\"}\n{\"qpn\":17,\"path\":\"udp\",\"reason\":\"other host\"}";
        for report in parse(lines).expect("valid") {
            write_report(&mut out, &report).expect("memory");
        }
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains("other host") && text.contains("17"), "{text}");
    }
}
