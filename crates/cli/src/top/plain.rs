//! The rates as a table of text, and as JSON.

use super::board::{Board, Watched};
use super::measures::{Measure, fault_latency, short, short_time};
use super::rates::Group;
use crate::output::connections::ConnectionManager;
use crate::output::table::{Table, bad};
use crate::output::watched::Watch;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Fields of a queue pair that are told as they are.
const AS_TOLD: [&str; 9] =
    ["qpn", "type", "state", "peer_qpn", "peer", "path", "reason", "send_requests", "receive_requests"];

/// Writes a table of the processes, and one of the queue pairs of each.
///
/// # Errors
/// If it cannot be written.
pub fn write_tables(out: &mut impl Write, board: &Board) -> io::Result<()> {
    let rows = board.rows();
    let titles = Measure::ALL.map(Measure::title);
    let mut table = Table::new(&[&["PID", "program"], &titles[..], &["fault latency"]].concat());
    for (_, watched) in &rows {
        let rates = Measure::ALL.iter().map(|measure| short(watched.rate(*measure)));
        let mut cells = vec![watched.pid.to_string(), watched.program().to_owned()];
        cells.extend(rates);
        cells.push(latency_in_words(watched));
        table.row(cells);
        if let Some(silence) = &watched.silence {
            let style = bad();
            table.note(format!("{style}{silence}{style:#}"));
        }
    }
    table.write(out, "")?;
    for (_, watched) in rows.iter().filter(|(_, watched)| !watched.report.connections.is_empty()) {
        writeln!(out, "\n{} (PID {})", watched.program(), watched.pid)?;
        let titles = Measure::ALL.map(Measure::title_of_queue_pairs);
        let mut table =
            Table::new(&[&["QPN", "type", "state", "peer", "path", "send", "receive"], &titles[..]].concat());
        for connection in &watched.report.connections {
            let mut cells = queue_pair_cells(connection).to_vec();
            let number = connection.get("qpn").and_then(Value::as_u64).unwrap_or_default();
            cells.extend(
                Measure::ALL.iter().map(|measure| short(measure.of_queue_pair(&watched.rates, number))),
            );
            table.row(cells);
        }
        table.write(out, "  ")?;
    }
    for (_, watched) in &rows {
        if let Some(manager) = ConnectionManager::of(&watched.report.process) {
            writeln!(out, "\n{} (PID {}), connections by rdma_cm", watched.program(), watched.pid)?;
            manager.write(out)?;
        }
        if let Some(watch) = Watch::of(&watched.report.process) {
            writeln!(out, "\n{} (PID {}), accesses to its memory", watched.program(), watched.pid)?;
            watch.write(out)?;
        }
    }
    Ok(())
}

/// Number, type, state, peer, path, and the depths of the send and the receive queue.
pub fn queue_pair_cells(connection: &Map<String, Value>) -> [String; 7] {
    let text = |name: &str| connection.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |name: &str| connection.get(name).and_then(Value::as_u64);
    let hexadecimal = |name: &str| number(name).map(|number| format!("{number:#06x}"));
    let depth = |name: &str| number(name).map_or_else(|| "-".to_owned(), |depth| depth.to_string());
    let peer = match hexadecimal("peer_qpn") {
        Some(peer) => format!("{} QPN {peer}", text("peer")),
        None => text("peer"),
    };
    [
        hexadecimal("qpn").unwrap_or_default(),
        text("type"),
        text("state"),
        peer,
        text("path"),
        depth("send_requests"),
        depth("receive_requests"),
    ]
}

/// Where half of the faults, and 99 of 100, are below.
fn latency_in_words(watched: &Watched) -> String {
    let buckets = fault_latency(watched.report.process.get("fault_latency"));
    let total: u64 = buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
    let below = |share: u64| {
        let mut seen = 0_u64;
        let wanted = (u128::from(total) * u128::from(share)).div_ceil(100);
        let reached = |(_, count): &&(u64, u64)| {
            seen = seen.saturating_add(*count);
            u128::from(seen) >= wanted
        };
        buckets.iter().find(reached).map(|(bound, _)| match *bound {
            u64::MAX => "unbounded".to_owned(),
            bound => format!("< {}", short_time(bound)),
        })
    };
    match (below(50), below(99)) {
        (Some(half), Some(most)) if total > 0 => format!("50 % {half}, 99 % {most}"),
        _ => "-".to_owned(),
    }
}

/// Everything as one JSON object: rates in a second, `null` where they are not known.
pub fn object(board: &Board, interval: Duration, now: SystemTime) -> Value {
    let processes: Vec<Value> = board.rows().iter().map(|(_, watched)| process(watched)).collect();
    json!({
        "time": now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        "interval": interval.as_secs_f64(),
        "processes": processes,
    })
}

fn process(watched: &Watched) -> Value {
    let mut object = Map::new();
    object.insert("pid".to_owned(), watched.pid.into());
    for name in ["program", "path_choice", "page_faults", "fault_latency", "watch", "connection_manager"] {
        if let Some(value) = watched.report.process.get(name) {
            object.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(silence) = &watched.silence {
        object.insert("silence".to_owned(), silence.clone().into());
    }
    object.insert("rates".to_owned(), measures(Measure::name, |measure| watched.rate(measure)));
    let of_group = |wanted: &Group| -> Value {
        watched.rates.group(wanted).map_or_else(|| json!({}), |rates| json!(rates))
    };
    object.insert("counters".to_owned(), of_group(&Group::Process));
    let entries = watched.rates.groups().filter_map(|(group, rates)| match group {
        Group::Entry(name) if !rates.is_empty() => Some((name.clone(), json!(rates))),
        _ => None,
    });
    let entries: Map<String, Value> = entries.collect();
    if !entries.is_empty() {
        object.insert("entries".to_owned(), entries.into());
    }
    let connections = watched.report.connections.iter().map(|connection| {
        let fields =
            AS_TOLD.iter().filter_map(|&name| Some((name.to_owned(), connection.get(name)?.clone())));
        let mut object: Map<String, Value> = fields.collect();
        let number = connection.get("qpn").and_then(Value::as_u64).unwrap_or_default();
        object.insert(
            "rates".to_owned(),
            measures(Measure::name_of_queue_pairs, |measure| measure.of_queue_pair(&watched.rates, number)),
        );
        object.insert("counters".to_owned(), of_group(&Group::QueuePair(number)));
        Value::from(object)
    });
    object.insert("connections".to_owned(), connections.collect());
    object.into()
}

fn measures(name: fn(Measure) -> &'static str, of: impl Fn(Measure) -> Option<f64>) -> Value {
    let named = Measure::ALL.iter().map(|&measure| (name(measure).to_owned(), json!(of(measure))));
    named.collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Silence;
    use crate::top::board::Filter;
    use crate::top::board::tests::answer;
    use crate::top::inquiry::Answer;
    use std::time::Instant;

    /// More than a PID can be (`PID_MAX_LIMIT`, proc_sys_kernel(5)): a process of this number has no name.
    const NO_PROCESS: u32 = 4_194_305;

    fn board() -> Board {
        let start = Instant::now();
        let mut board = Board::new(Filter::default(), start);
        for (seconds, sent, operations) in [(0.0, 0, 0), (2.0, 3000, 50)] {
            let lines = format!(
                "{{\"pid\":7,\"program\":\"ib_write_bw\",\"path_choice\":\"auto\",\"fault_latency\":[[1024,98],[65536,2]],\
                 \"counters\":{{\"bytes_sent\":{sent}}}}}\n\
                 {{\"qpn\":17,\"type\":\"RC\",\"state\":\"RTS\",\"peer_qpn\":18,\"peer\":\"10.0.0.2\",\"path\":\"local\",\
                 \"send_requests\":2,\"send_requests_completed\":{operations},\"protocol\":{{\"timeouts\":0}}}}\n"
            );
            board.take(answer(start, 7, &lines, seconds));
        }
        board.take(Answer { told: Err(Silence::Stopped), ..answer(start, NO_PROCESS, "", 2.0) });
        board
    }

    #[test]
    fn the_tables_show_processes_and_their_queue_pairs() {
        let mut out = Vec::new();
        write_tables(&mut out, &board()).expect("memory");
        let text = anstream::adapter::strip_str(&String::from_utf8(out).expect("UTF-8")).to_string();
        let expected = "\
PID      program      op/s  bytes/s  packets/s  faults/s  stashed/s  resent/s  fault latency
7        ib_write_bw  25    1.5k     -          -         -          -         50 % < 1.0 us, 99 % < 66 us
4194305  ?            -     -        -          -         -          -         -
    no answer within 2 s; it may be stopped (kill -CONT lets it go on)

ib_write_bw (PID 7)
  QPN     type  state  peer                 path   send  receive  op/s  direct B/s  packets/s  waits/s  stashed/s  resent/s
  0x0011  RC    RTS    10.0.0.2 QPN 0x0012  local  2     -        25    -           -          -        -          -
";
        assert_eq!(text, expected);
    }

    #[test]
    fn connections_are_told_and_their_numbers_are_no_rates() {
        let start = Instant::now();
        let mut board = Board::new(Filter::default(), start);
        for (seconds, ids, refused) in [(0.0, 2, 1), (2.0, 6, 9)] {
            let line = format!(
                "{{\"pid\":7,\"program\":\"a\",\"connection_manager\":{{\"event_channels\":{ids},\"lingering\":{ids},\
                 \"ids_left_out\":{ids},\"ids\":[{{\"id\":{ids},\"queue_pair\":{ids}}}],\"refusals_sent\":{refused}}}}}\n"
            );
            board.take(answer(start, 7, &line, seconds));
        }
        let told = object(&board, Duration::from_secs(2), UNIX_EPOCH);
        let process = &told["processes"][0];
        assert_eq!(process["connection_manager"]["ids"][0]["queue_pair"], json!(6));
        assert_eq!(process["counters"], json!({"connection_manager/refusals_sent": 4.0}));
        let mut out = Vec::new();
        write_tables(&mut out, &board).expect("memory");
        let text = anstream::adapter::strip_str(&String::from_utf8(out).expect("UTF-8")).to_string();
        let expected = "\na (PID 7), connections by rdma_cm\n  connection manager: 6 event channels, 7 IDs, 6 in timewait";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn the_object_has_every_rate() {
        let object = object(&board(), Duration::from_secs(2), UNIX_EPOCH + Duration::from_millis(1500));
        assert_eq!((&object["time"], &object["interval"]), (&json!(1.5), &json!(2.0)));
        let first = &object["processes"][0];
        assert_eq!((&first["pid"], &first["program"]), (&json!(7), &json!("ib_write_bw")));
        assert_eq!(first["rates"]["bytes"], json!(1500.0));
        assert_eq!(first["rates"]["packets"], Value::Null);
        assert_eq!(first["counters"], json!({"counters/bytes_sent": 1500.0}));
        assert_eq!(first["fault_latency"], json!([[1024, 98], [65536, 2]]));
        let connection = &first["connections"][0];
        assert_eq!((&connection["path"], &connection["send_requests"]), (&json!("local"), &json!(2)));
        assert_eq!(
            connection["counters"],
            json!({"send_requests_completed": 25.0, "protocol/timeouts": 0.0})
        );
        let second = &object["processes"][1];
        assert!(second["silence"].as_str().is_some_and(|why| why.contains("no answer")));
        assert_eq!(second["rates"]["bytes"], Value::Null);
    }
}
