//! What the engine tells of itself: JSON lines, from a live process or from the file it leaves behind.
//!
//! A live process gives one object about itself, then one for each of its connections (these have a `qpn`). In the file
//! of `PAGEWIRE_STATS` each process is one line, its connections stand in the field `connections`.

use crate::limits::STATISTICS_BYTES;
use crate::output::connections::ConnectionManager;
use crate::output::table::{Table, heading};
use crate::output::watched::Watch;
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
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

    /// The paths that bytes took, by the counters: `local` (in the peer's memory, or through shared memory), `tcp`, `udp`.
    pub fn paths(&self) -> Vec<&'static str> {
        const LOCAL: [&str; 3] = ["initiator_copies", "ring_packets_sent", "ring_packets_received"];
        const NETWORK: [&str; 2] = ["packets_sent", "packets_received"];
        const TCP: [&str; 2] = ["stream_packets_sent", "stream_packets_received"];
        const UDP: [&str; 2] = ["datagrams_sent", "datagrams_received"];
        let of_process = |names: &[&str]| {
            let counters = self.process.get("counters").and_then(Value::as_object);
            let counted = |name: &&str| counters.and_then(|all| all.get(*name)).and_then(Value::as_u64);
            names.iter().filter_map(counted).any(|count| count > 0)
        };
        let used = |names: &[&str]| names.iter().any(|name| self.total(name) > 0);
        let mut paths = Vec::new();
        if used(&LOCAL) {
            paths.push("local");
        }
        if used(&NETWORK) && of_process(&TCP) {
            paths.push("tcp");
        }
        if used(&NETWORK) && of_process(&UDP) {
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
        let object: Map<String, Value> = serde_json::from_str(line)
            .with_context(|| format!("not a line of a report: {}", printable(line)))?;
        let object = object.into_iter().map(cleaned).collect::<Map<_, _>>();
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

/// Text that does nothing to a terminal: what a report says is chosen by the process that gives it.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{FFFD}")
}

/// A field of which all text is printable.
fn cleaned((name, value): (String, Value)) -> (String, Value) {
    fn clean(value: Value) -> Value {
        match value {
            Value::String(text) => printable(&text).into(),
            Value::Array(items) => items.into_iter().map(clean).collect(),
            Value::Object(fields) => Value::Object(fields.into_iter().map(cleaned).collect()),
            other => other,
        }
    }
    (printable(&name), clean(value))
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
    for report in reports {
        write_report(&mut out, report)?;
    }
    Ok(())
}

/// Writes one report as JSON lines: the process, then its connections, each with its `pid` in front.
///
/// # Errors
/// If it cannot be written.
pub fn write_lines(out: &mut impl io::Write, report: &ProcessReport) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(&report.process)?)?;
    for connection in &report.connections {
        let mut line = Map::new();
        line.insert("pid".to_owned(), report.process.get("pid").cloned().unwrap_or_default());
        line.extend(connection.clone());
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}

/// Writes one report for people: what it says of the process, a table of its queue pairs, and below each of these what
/// it has counted. Counts of 0 are left out.
///
/// # Errors
/// If it cannot be written.
pub fn write_report(out: &mut impl io::Write, report: &ProcessReport) -> Result<()> {
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
        match (name.as_str(), value) {
            ("program" | "pid" | "path_choice", _) => {}
            ("devices", Value::Array(devices)) => {
                for device in devices.iter().filter_map(Value::as_object) {
                    let field = |name: &str| device.get(name).map(plain).unwrap_or_default();
                    writeln!(
                        out,
                        "  device: {} on {}: {}",
                        field("name"),
                        field("interface"),
                        field("addresses")
                    )?;
                }
            }
            // The network has not been used: no port is bound.
            ("port", _) if value.as_u64() == Some(0) => {}
            ("port", _) => writeln!(out, "  UDP port: {}", plain(value))?,
            ("faults", _) => line(out, "faults on purpose", value)?,
            ("watch", Value::Object(_)) => {
                if let Some(watch) = Watch::of(&report.process) {
                    watch.write(out)?;
                }
            }
            ("connection_manager", Value::Object(_)) => {
                if let Some(manager) = ConnectionManager::of(&report.process) {
                    manager.write(out)?;
                }
            }
            ("absent_pages", Value::Object(counted)) => write_absent_pages(out, counted)?,
            ("fault_latency", Value::Array(buckets)) => {
                let text: Vec<String> = buckets.iter().filter_map(bucket).collect();
                line(out, "accesses were delayed", &Value::String(text.join(", ")))?;
            }
            _ => line(out, &words(name), value)?,
        }
    }
    if report.connections.is_empty() {
        writeln!(out, "  no queue pair")?;
        return Ok(());
    }
    let mut table = Table::new(&["QPN", "type", "state", "peer", "path", "why"]);
    for connection in &report.connections {
        let field = |name: &str| connection.get(name).map(plain).unwrap_or_default();
        let peer = match number(connection, "peer_qpn") {
            Some(peer) => format!("{} QPN {peer}", field("peer")),
            None => field("peer"),
        };
        table.row(vec![
            number(connection, "qpn").unwrap_or_default(),
            field("type"),
            field("state"),
            peer,
            field("path"),
            field("reason"),
        ]);
        let counted: Vec<String> = connection
            .iter()
            .filter(|(name, _)| !is_in_table(name))
            .flat_map(|(name, value)| labelled(&words(name), value))
            .collect();
        table.note(counted.join(", "));
    }
    table.write(out, "  ")?;
    Ok(())
}

/// What was counted of absent pages: of the process, of its devices, of its regions.
fn write_absent_pages(out: &mut impl io::Write, counted: &Map<String, Value>) -> io::Result<()> {
    let own = counted.iter().filter(|(_, value)| !value.is_object() && !value.is_array());
    line(
        out,
        "absent pages",
        &Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect()),
    )?;
    for (device, counts) in counted.get("devices").and_then(Value::as_object).into_iter().flatten() {
        line(out, &format!("absent pages of {device}"), counts)?;
    }
    for region in counted.get("regions").and_then(Value::as_array).into_iter().flatten() {
        let Some(fields) = region.as_object() else { continue };
        let field = |name: &str| fields.get(name).map(plain).unwrap_or_default();
        let title = format!(
            "absent pages of {}, region at {}, {} bytes",
            field("device"),
            field("name"),
            field("length")
        );
        let is_title = |name: &str| matches!(name, "name" | "device" | "address" | "length");
        let counts = fields.iter().filter(|(name, _)| !is_title(name));
        line(
            out,
            &title,
            &Value::Object(counts.map(|(name, value)| (name.clone(), value.clone())).collect()),
        )?;
    }
    Ok(())
}

/// How many accesses were delayed for less than a time.
fn bucket(pair: &Value) -> Option<String> {
    let [bound, count] = pair.as_array()?.as_slice() else { return None };
    let nanoseconds = bound.as_u64()?;
    let time = match nanoseconds {
        u64::MAX => return Some(format!("{count} for longer than all others")),
        0..=999_999 => format!("{:.1} us", nanoseconds as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.1} s", nanoseconds as f64 / 1e9),
    };
    Some(format!("{count} for less than {time}"))
}

fn is_in_table(name: &str) -> bool {
    matches!(name, "qpn" | "type" | "state" | "peer" | "peer_qpn" | "path" | "reason" | "pid")
}

/// A queue pair number as verbs programs print it.
fn number(connection: &Map<String, Value>, name: &str) -> Option<String> {
    connection.get(name).and_then(Value::as_u64).map(|number| format!("{number:#06x}"))
}

/// One line `name: value`; none where there is nothing to say.
fn line(out: &mut impl io::Write, name: &str, value: &Value) -> io::Result<()> {
    let text = match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| labelled(&words(name), value))
            .collect::<Vec<_>>()
            .join(", "),
        other => plain(other),
    };
    if text.is_empty() { Ok(()) } else { writeln!(out, "  {name}: {text}") }
}

/// What a field says, with its name; nothing where it counts 0. Groups of fields are taken apart.
fn labelled(name: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::Number(count) if count.as_u64() == Some(0) => Vec::new(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| labelled(&words(name), value)).collect()
        }
        other => vec![format!("{name} {}", plain(other))],
    }
}

/// The name of a field in words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"pid":7,"program":"a","path_choice":"udp","counters":{"datagrams_sent":7}}
{"qpn":17,"path":"udp","packets_sent":3}
{"qpn":18,"path":"udp","packets_sent":4}
{"pid":8,"program":"b","connections":[{"qpn":19,"path":"local","initiator_copies":1}]}
"#;

    #[test]
    fn people_read_whose_absent_pages_were_counted_and_how_long_accesses_were_delayed() {
        let process = r#"{"pid":7,"program":"a","path_choice":"udp","absent_pages":{"page_in":"pio","bytes":12,"minor":3,"major":0,
            "devices":{"pagewire0":{"minor":2,"stashed":1}},
            "regions":[{"name":"0x10","device":"pagewire0","address":16,"length":8192,"minor":2}]},
            "fault_latency":[[4096,24],[2097152,3]]}"#;
        let reports = parse(&process.replace('\n', "")).expect("valid");
        let mut out = Vec::new();
        write_report(&mut out, &reports[0]).expect("room");
        let text = String::from_utf8(out).expect("text");
        for line in [
            "absent pages: page in pio, bytes 12, minor 3\n",
            "absent pages of pagewire0: minor 2, stashed 1\n",
            "absent pages of pagewire0, region at 0x10, 8192 bytes: minor 2\n",
            "accesses were delayed: 24 for less than 4.1 us, 3 for less than 2.1 ms\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

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
    fn no_text_of_a_process_reaches_a_terminal_as_a_command() {
        let hostile = r#"{"pid":7,"program":"a\u001b]0;x\u0007\r\nroot (PID 1)","\u001b[2J":1,"devices":[{"name":"\u009b5n","interface":"\u007f","addresses":["\u001b[1m"]}]}
{"qpn":17,"type":"\b","reason":"\u001b[8m","protocol":{"\u001bc":1,"deep":{"x":["\u0000"]}}}"#;
        let reports = parse(hostile).expect("valid");
        let mut json = Vec::new();
        write_lines(&mut json, &reports[0]).expect("memory");
        let json = String::from_utf8(json).expect("UTF-8");
        // What the table itself adds, styles and ends of lines, is taken away first.
        let mut text = Vec::new();
        write_report(&mut text, &reports[0]).expect("memory");
        let text = String::from_utf8(text).expect("UTF-8").replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        assert!(text.contains("a\u{FFFD}]0;x\u{FFFD}\u{FFFD}\u{FFFD}root (PID 1) (PID 7)"), "{text:?}");
        for line in text.lines().chain(json.lines()) {
            assert!(!line.contains(char::is_control) && !line.contains("\\u00"), "{line:?}");
        }
        let refused = format!("{:#}", parse("nonsense \u{1b}[2J").expect_err("no JSON"));
        assert!(!refused.contains(char::is_control), "{refused:?}");
    }

    const WHOLE: &str = r#"{"pid":7,"program":"a","path_choice":"auto","port":4791,"devices":[{"name":"pagewire0","interface":"eth0","addresses":["10.0.0.1","fe80::1"]}],"counters":{"datagrams_sent":9,"bad_icrc":0},"faults":{"dropped":3,"duplicated":0}}
{"qpn":17,"type":"RC","state":"RTS","peer_qpn":18,"peer":"10.0.0.2","path":"udp","reason":"other host","send_requests":2,"packets_sent":3,"dropped":0,"protocol":{"retransmissions":4,"timeouts":0}}
"#;

    fn written(lines: &str) -> String {
        let mut out = Vec::new();
        for report in parse(lines).expect("valid") {
            write_report(&mut out, &report).expect("memory");
        }
        anstream::adapter::strip_str(&String::from_utf8(out).expect("UTF-8")).to_string()
    }

    #[test]
    fn a_report_names_what_it_counts() {
        let expected = "\
a (PID 7)  path asked for: auto
  UDP port: 4791
  device: pagewire0 on eth0: 10.0.0.1, fe80::1
  counters: datagrams sent 9
  faults on purpose: dropped 3
  QPN     type  state  peer                 path  why
  0x0011  RC    RTS    10.0.0.2 QPN 0x0012  udp   other host
      send requests 2, packets sent 3, retransmissions 4
";
        assert_eq!(written(WHOLE), expected);
    }

    #[test]
    fn no_port_is_shown_before_one_is_bound() {
        let text = written(&WHOLE.replace("4791", "0"));
        assert!(text.contains("device: pagewire0") && !text.contains("port"), "{text}");
    }

    #[test]
    fn a_process_without_queue_pairs_says_so() {
        assert!(
            written("{\"pid\":7,\"program\":\"a\",\"faults\":{\"dropped\":0}}").ends_with("no queue pair\n")
        );
    }

    #[test]
    fn each_line_of_json_names_its_process() {
        let mut out = Vec::new();
        for report in parse(WHOLE).expect("valid") {
            write_lines(&mut out, &report).expect("memory");
        }
        let text = String::from_utf8(out).expect("UTF-8");
        let (process, connection) = text.split_once('\n').expect("two lines");
        assert_eq!(Some(process), WHOLE.lines().next());
        assert!(connection.starts_with(r#"{"pid":7,"qpn":17,"#), "{connection}");
        assert!(connection.contains(r#""protocol":{"retransmissions":4,"timeouts":0}"#), "{connection}");
    }
}
