//! How a result is shown.

use pagewire_sim::scale::{PhaseTime, ScaleReport, ScaleWorkload};
use serde_json::json;

/// One JSON object.
pub fn json(report: &ScaleReport) -> serde_json::Value {
    let mut object = json!({ "result": "ok" });
    for part in [run(report), time(report), memory(report)] {
        if let (Some(object), serde_json::Value::Object(part)) = (object.as_object_mut(), part) {
            object.extend(part);
        }
    }
    object
}

/// What was run, in virtual time.
fn run(report: &ScaleReport) -> serde_json::Value {
    let (plan, network) = (&report.plan, &report.network);
    json!({
        "workload": plan.workload.name(),
        "hosts": plan.hosts,
        "peers_of_a_host": report.most_peers(),
        "bytes": plan.bytes,
        "rounds": plan.rounds,
        "depth": plan.depth,
        "timeout": plan.timeout,
        "seed": plan.seed,
        "queue_pairs": report.queue_pairs,
        "messages": report.messages,
        "bytes_checked": report.bytes_checked,
        "virtual_seconds": report.virtual_time as f64 / 1e9,
        "virtual_seconds_of_others": report.virtual_time_of_others as f64 / 1e9,
        "runs_of_hosts": report.runs,
        "events": report.happened,
        "packets_sent": network.sent,
        "packets_dropped_at_ports": network.overflowed,
    })
}

/// Real time.
fn time(report: &ScaleReport) -> serde_json::Value {
    let times = &report.times;
    json!({
        "seconds": times.total().wall,
        "processor_seconds": times.total().processor,
        "processor_seconds_hosts": times.hosts.processor,
        "processor_seconds_connections": times.connections.processor,
        "processor_seconds_messages": times.messages.processor,
        "processor_seconds_check": times.check.processor,
        "processor_milliseconds_per_host": report.processor_seconds_per_host() * 1e3,
        "processor_microseconds_per_message": report.processor_seconds_per_message() * 1e6,
    })
}

/// Resident memory of this process.
fn memory(report: &ScaleReport) -> serde_json::Value {
    let resident = &report.resident;
    json!({
        "resident_bytes_start": resident.start,
        "resident_bytes_hosts": resident.hosts,
        "resident_bytes_connections": resident.connections,
        "resident_bytes_messages": resident.messages,
        "resident_bytes_peak": resident.peak,
        "message_memory_bytes": report.message_memory,
        "bytes_per_host": report.bytes_per_host(),
        "bytes_per_idle_queue_pair": report.bytes_per_idle_queue_pair(),
        "bytes_per_used_queue_pair": report.bytes_per_used_queue_pair(),
    })
}

/// Lines for people.
pub fn text(report: &ScaleReport) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<34}{value}"));
    let (plan, times) = (&report.plan, &report.times);
    line("workload", format!("{}, {} hosts", plan.workload, plan.hosts));
    line("queue pairs", format!("{}, at most {} of a host", report.queue_pairs, report.most_peers()));
    line("messages", format!("{} of {} bytes, all checked", report.messages, plan.bytes));
    line("virtual time", format!("{:.6} s", report.virtual_time as f64 / 1e9));
    if plan.workload == ScaleWorkload::SlowPager {
        let others = report.virtual_time_of_others as f64 / 1e9;
        line("virtual time of the other hosts", format!("{others:.6} s"));
    }
    line("packets", format!("{}, {} dropped at ports", report.network.sent, report.network.overflowed));
    line("events, runs of hosts", format!("{}, {}", report.happened, report.runs));
    for (name, time) in [
        ("time", times.total()),
        ("  to make hosts", times.hosts),
        ("  to connect", times.connections),
        ("  for messages", times.messages),
        ("  for the last check", times.check),
    ] {
        let PhaseTime { wall, processor } = time;
        line(name, format!("{wall:.1} s, {processor:.1} s of a processor"));
    }
    line("processor for each host", format!("{:.2} ms", report.processor_seconds_per_host() * 1e3));
    line("processor for each message", format!("{:.2} us", report.processor_seconds_per_message() * 1e6));
    line("resident at most", format!("{:.1} MB", report.resident.peak as f64 / 1e6));
    line("resident for each host", format!("{} bytes without connections", report.bytes_per_host()));
    line("resident for each queue pair", format!("{} bytes connected", report.bytes_per_idle_queue_pair()));
    let used = report.bytes_per_used_queue_pair();
    line("", format!("{used} bytes after its messages, without their memory"));
    lines.join("\n")
}
