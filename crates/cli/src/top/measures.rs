//! What the columns of rates show, and of which counters each is the sum.

use super::rates::{Group, Rates};
use serde_json::Value;

/// A column of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Send requests that ended.
    Operations,
    /// Those of WRITEs and READs executed in a local peer's memory, and for a process those of the UDP payload, both ways.
    Bytes,
    /// Packets through shared memory and over UDP, both ways.
    Packets,
    /// Accesses that met an absent page.
    Faults,
    /// Packets kept because a page was absent.
    Stashed,
    /// Packets sent again.
    Retransmissions,
}

/// Where counters are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// At the process itself.
    Process,
    /// At the entries of one of its lists.
    Entries(&'static str),
    /// At its queue pairs.
    QueuePairs,
}

type Term = (Scope, &'static [&'static str]);

impl Measure {
    /// All, as the columns stand.
    pub const ALL: [Measure; 6] = [
        Measure::Operations,
        Measure::Bytes,
        Measure::Packets,
        Measure::Faults,
        Measure::Stashed,
        Measure::Retransmissions,
    ];

    /// The heading of its column.
    pub const fn title(self) -> &'static str {
        match self {
            Measure::Operations => "op/s",
            Measure::Bytes => "bytes/s",
            Measure::Packets => "packets/s",
            Measure::Faults => "faults/s",
            Measure::Stashed => "stashed/s",
            Measure::Retransmissions => "resent/s",
        }
    }

    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Operations => "operations",
            Measure::Bytes => "bytes",
            Measure::Packets => "packets",
            Measure::Faults => "page_faults",
            Measure::Stashed => "stashed",
            Measure::Retransmissions => "retransmissions",
        }
    }

    /// The heading of its column in a table of queue pairs. Which of the bytes in datagrams are theirs nobody counts.
    pub const fn title_of_queue_pairs(self) -> &'static str {
        match self {
            Measure::Bytes => "direct B/s",
            Measure::Faults => "waits/s",
            other => other.title(),
        }
    }

    /// Its name in JSON at a queue pair.
    pub const fn name_of_queue_pairs(self) -> &'static str {
        match self {
            Measure::Bytes => "direct_bytes",
            Measure::Faults => "page_waits",
            other => other.name(),
        }
    }

    /// Sums of counters, of which the first that a process tells at all holds.
    fn alternatives(self) -> &'static [&'static [Term]] {
        use Scope::{Entries, Process, QueuePairs};
        match self {
            Measure::Operations => &[&[(QueuePairs, &["send_requests_completed"])]],
            Measure::Bytes => {
                const NETWORK: &[&str] =
                    &["bytes_sent", "bytes_received", "stream_bytes_sent", "stream_bytes_received"];
                &[&[(QueuePairs, &["initiator_copy_bytes"]), (Process, NETWORK)]]
            }
            Measure::Packets => &[&[(
                QueuePairs,
                &["packets_sent", "packets_received", "ring_packets_sent", "ring_packets_received"],
            )]],
            Measure::Faults => &[
                &[(Process, &["minor", "major"])],
                &[(Entries("devices"), &["minor", "major"])],
                &[(QueuePairs, &["page_waits"])],
            ],
            Measure::Stashed => &[&[(QueuePairs, &["faults_stashed"])]],
            Measure::Retransmissions => &[&[(QueuePairs, &["retransmissions", "selective_retransmissions"])]],
        }
    }

    /// Of a process, in a second; `None` if it does not tell (yet).
    pub fn of_process(self, rates: &Rates) -> Option<f64> {
        let term = |&(scope, names): &Term| {
            rates.sum(names, |group| match (scope, group) {
                (Scope::Process, Group::Process) | (Scope::QueuePairs, Group::QueuePair(_)) => true,
                (Scope::Entries(list), Group::Entry(name)) => name.split('/').next() == Some(list),
                _ => false,
            })
        };
        let sum = |terms: &&[Term]| terms.iter().filter_map(term).reduce(|sum, rate| sum + rate);
        self.alternatives().iter().find_map(sum)
    }

    /// Of one of its queue pairs.
    pub fn of_queue_pair(self, rates: &Rates, number: u64) -> Option<f64> {
        let terms = self.alternatives().iter().copied().flatten();
        let mut names = terms.filter(|(scope, _)| *scope == Scope::QueuePairs).map(|(_, names)| *names);
        names.find_map(|names| rates.sum_in(names, &Group::QueuePair(number)))
    }
}

/// How many faults took how long, if a process tells: the nanoseconds that they stay below, and their number. What has no bound is
/// told with `u64::MAX`.
pub fn fault_latency(value: Option<&Value>) -> Vec<(u64, u64)> {
    let bucket = |entry: &Value| Some((entry.get(0)?.as_u64()?, entry.get(1)?.as_u64()?));
    value.and_then(Value::as_array).into_iter().flatten().filter_map(bucket).collect()
}

/// A rate in four or five places: `0`, `0.4`, `17`, `1.3k`, `25M`; `-` if it is not known.
pub fn short(rate: Option<f64>) -> String {
    let Some(mut rate) = rate else { return "-".to_owned() };
    // What would be rounded up to 1000 goes to the next one, too.
    let mut prefixes = ["", "k", "M", "G", "T", "P", "E"].into_iter().peekable();
    while let Some(prefix) = prefixes.next() {
        if rate < 999.5 || prefixes.peek().is_none() {
            let whole = rate == 0.0 || rate >= 99.5 || (prefix.is_empty() && rate.fract() == 0.0);
            return if whole { format!("{rate:.0}{prefix}") } else { format!("{rate:.1}{prefix}") };
        }
        rate /= 1000.0;
    }
    unreachable!("the last prefix takes any")
}

/// A time: `1.0 us`, `33 ms`.
pub fn short_time(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000 => (nanoseconds as f64, "ns"),
        1_000..1_000_000 => (nanoseconds as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    if value < 9.95 && unit != "ns" { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::report;
    use crate::top::rates::Readings;
    use std::time::Duration;

    /// The rates of a process that has counted nothing before `process` and its queue pairs were told, in one second.
    fn rates(process: &str, before: &str, queue_pairs: &str) -> Rates {
        let looked = |lines: &str, seconds| {
            let report = report::parse(lines).expect("valid").pop().expect("a process");
            Readings::of(&report, Duration::from_secs(seconds))
        };
        looked(&format!("{process}\n{queue_pairs}"), 1).since(&looked(before, 0))
    }

    #[test]
    fn measures_are_the_sums_that_they_are_said_to_be() {
        let queue_pairs = r#"{"qpn":17,"send_requests_completed":3,"initiator_copy_bytes":24,"ring_packets_sent":2,"packets_received":5,"page_waits":6,"protocol":{"retransmissions":1,"selective_retransmissions":2,"faults_stashed":4}}
{"qpn":18,"send_requests_completed":1,"initiator_copy_bytes":8,"packets_received":1,"page_waits":1}"#;
        let rates = rates(
            r#"{"pid":1,"counters":{"bytes_sent":100,"bytes_received":10}}"#,
            r#"{"pid":1,"counters":{"bytes_sent":0,"bytes_received":0}}"#,
            queue_pairs,
        );
        let of_process: Vec<_> = Measure::ALL.iter().map(|measure| measure.of_process(&rates)).collect();
        assert_eq!(of_process, [4.0, 142.0, 8.0, 7.0, 4.0, 3.0].map(Some));
        let of_first: Vec<_> = Measure::ALL.iter().map(|measure| measure.of_queue_pair(&rates, 17)).collect();
        assert_eq!(of_first, [3.0, 24.0, 7.0, 6.0, 4.0, 3.0].map(Some));
        assert_eq!(Measure::Stashed.of_queue_pair(&rates, 18), None);
    }

    #[test]
    fn faults_that_the_process_counts_itself_go_before_page_waits() {
        let queue_pairs = r#"{"qpn":17,"page_waits":6}"#;
        for (process, before) in [
            (
                r#"{"pid":1,"page_faults":{"minor":9,"major":3}}"#,
                r#"{"pid":1,"page_faults":{"minor":0,"major":0}}"#,
            ),
            (r#"{"pid":1,"devices":[{"name":"d","minor":9,"major":3}]}"#, r#"{"pid":1}"#),
        ] {
            let rates = rates(process, before, queue_pairs);
            assert_eq!(Measure::Faults.of_process(&rates), Some(12.0), "{process}");
            assert_eq!(Measure::Faults.of_queue_pair(&rates, 17), Some(6.0), "{process}");
        }
    }

    #[test]
    fn numbers_are_short_and_never_rounded_to_another_size() {
        let cases = [
            (0.0, "0"),
            (0.04, "0.0"),
            (0.5, "0.5"),
            (17.0, "17"),
            (17.26, "17.3"),
            (99.4, "99.4"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (12_345.0, "12.3k"),
            (999_900.0, "1.0M"),
            (2.5e9, "2.5G"),
            (1e24, "1000000E"),
        ];
        for (rate, expected) in cases {
            assert_eq!(short(Some(rate)), expected, "{rate}");
        }
        assert_eq!(short(None), "-");
    }

    #[test]
    fn times_have_their_unit() {
        let cases =
            [(2, "2 ns"), (1024, "1.0 us"), (65_536, "66 us"), (1 << 20, "1.0 ms"), (1 << 39, "550 s")];
        for (nanoseconds, expected) in cases {
            assert_eq!(short_time(nanoseconds), expected);
        }
    }

    #[test]
    fn a_histogram_is_read_as_far_as_it_is_one() {
        let value = serde_json::json!([[2, 1], [u64::MAX, 2], "x", [3], [4, -1]]);
        assert_eq!(fault_latency(Some(&value)), [(2, 1), (u64::MAX, 2)]);
        assert!(fault_latency(None).is_empty());
    }
}
