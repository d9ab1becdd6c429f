//! How fast the counters of a process grow: the difference of two looks, by the time between them.
//!
//! Counters are known by no list: every number in a report is one, but for those that name something or say how much there is now.
//! They stand in groups (the process, each queue pair, each entry of a list such as its devices), which may begin and end.

use crate::output::report::ProcessReport;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Numbers that name something, or say how much there is at the moment.
const NO_COUNTERS: [&str; 10] = [
    "pid",
    "port",
    "qpn",
    "peer_qpn",
    "send_requests",
    "receive_requests",
    "key",
    "event_channels",
    "lingering",
    "ids_left_out",
];

/// What counters belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The process.
    Process,
    /// An entry of one of its lists: the name of the list and of the entry, such as `devices/pagewire0`.
    Entry(String),
    /// The queue pair of this number.
    QueuePair(u64),
}

/// A counter's value, and when it was told (since any fixed instant).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The value.
    pub value: u64,
    /// The time.
    pub at: Duration,
}

/// By group, and there by the counter's name with what it stands in: `packets_sent`, `protocol/timeouts`.
type Grouped<T> = BTreeMap<Group, BTreeMap<String, T>>;

/// What a process counted, as it was last told.
#[derive(Clone, Debug)]
pub struct Readings {
    /// When the process answered.
    at: Duration,
    readings: Grouped<Reading>,
}

/// How often in a second each counter grew by one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates(Grouped<f64>);

impl Readings {
    /// The counters of a report that came at the time `at`.
    pub fn of(report: &ProcessReport, at: Duration) -> Readings {
        let mut readings = Grouped::new();
        add_object(&mut readings, &Group::Process, "", &report.process, at);
        for connection in &report.connections {
            if let Some(number) = connection.get("qpn").and_then(Value::as_u64) {
                add_object(&mut readings, &Group::QueuePair(number), "", connection, at);
            }
        }
        Readings { at, readings }
    }

    /// The rates since the look `before`, as far as they can be told. A counter that was not told this time is kept as it was, so
    /// that its rate is known again as soon as it is.
    pub fn since(&mut self, before: &Readings) -> Rates {
        let mut rates = Grouped::new();
        for (group, readings) in &mut self.readings {
            let earlier = before.readings.get(group);
            let group_rates: &mut BTreeMap<String, f64> = rates.entry(group.clone()).or_default();
            for (name, now) in readings.iter() {
                let start = match earlier {
                    Some(earlier) => earlier.get(name).copied(),
                    // It began between the two looks.
                    None => Some(Reading { value: 0, at: before.at }),
                };
                if let Some(rate) = start.and_then(|start| rate(start, *now)) {
                    group_rates.insert(name.clone(), rate);
                }
            }
            for (name, reading) in earlier.into_iter().flatten() {
                readings.entry(name.clone()).or_insert(*reading);
            }
        }
        Rates(rates)
    }
}

/// Counts in a second from one reading to the next; `None` if no time has passed. A counter that fell has begun anew, from 0.
pub fn rate(before: Reading, now: Reading) -> Option<f64> {
    let seconds = now.at.checked_sub(before.at)?.as_secs_f64();
    let increase = now.value.checked_sub(before.value).unwrap_or(now.value);
    (seconds > 0.0).then(|| increase as f64 / seconds)
}

fn add_object(
    readings: &mut Grouped<Reading>,
    group: &Group,
    prefix: &str,
    object: &Map<String, Value>,
    at: Duration,
) {
    // A group exists also if it counts nothing.
    readings.entry(group.clone()).or_default();
    for (name, value) in object {
        if NO_COUNTERS.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        match value {
            Value::Number(_) => {
                if let (Some(value), Some(counters)) = (value.as_u64(), readings.get_mut(group)) {
                    counters.insert(path, Reading { value, at });
                }
            }
            Value::Object(fields) => add_object(readings, group, &format!("{path}/"), fields, at),
            Value::Array(entries) => {
                for entry in entries.iter().filter_map(Value::as_object) {
                    let entry_name = ["name", "key"].iter().find_map(|name| entry.get(*name));
                    if let Some(entry_name) = entry_name {
                        let entry_name =
                            entry_name.as_str().map_or_else(|| entry_name.to_string(), str::to_owned);
                        add_object(readings, &Group::Entry(format!("{path}/{entry_name}")), "", entry, at);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Rates {
    /// The sum of the counters that bear one of the `names` (without what they stand in) in the groups that `wanted` admits; `None`
    /// if there is none.
    pub fn sum(&self, names: &[&str], wanted: impl Fn(&Group) -> bool) -> Option<f64> {
        let groups = self.0.iter().filter(|(group, _)| wanted(group));
        groups.filter_map(|(_, rates)| sum_of(rates, names)).reduce(|sum, rate| sum + rate)
    }

    /// The sum of the counters of one group that bear one of the `names`; `None` if there is none.
    pub fn sum_in(&self, names: &[&str], group: &Group) -> Option<f64> {
        sum_of(self.group(group)?, names)
    }

    /// The rate of each counter of a group.
    pub fn group(&self, group: &Group) -> Option<&BTreeMap<String, f64>> {
        self.0.get(group)
    }

    /// Every counter that grows, by its name with what it stands in, summed over the groups; the fastest first.
    pub fn growing(&self) -> Vec<(String, f64)> {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (group, rates) in &self.0 {
            let list = match group {
                Group::Entry(name) => format!("{}/", name.split('/').next().unwrap_or(name)),
                Group::Process | Group::QueuePair(_) => String::new(),
            };
            for (path, rate) in rates.iter().filter(|(_, rate)| **rate > 0.0) {
                *sums.entry(format!("{list}{path}")).or_default() += rate;
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        sums
    }

    /// The groups, with the rate of each of their counters.
    pub fn groups(&self) -> impl Iterator<Item = (&Group, &BTreeMap<String, f64>)> {
        self.0.iter()
    }
}

fn sum_of(rates: &BTreeMap<String, f64>, names: &[&str]) -> Option<f64> {
    let named = rates.iter().filter(|(path, _)| names.contains(&path.rsplit('/').next().unwrap_or(path)));
    named.map(|(_, rate)| *rate).reduce(|sum, rate| sum + rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::report;
    use proptest::prelude::*;

    fn readings(lines: &str, seconds: f64) -> Readings {
        let report = report::parse(lines).expect("valid").pop().expect("one process");
        Readings::of(&report, Duration::from_secs_f64(seconds))
    }

    fn anywhere(_: &Group) -> bool {
        true
    }

    #[test]
    fn every_number_that_counts_is_one() {
        let before = readings(
            "{\"pid\":1,\"port\":4791,\"counters\":{\"bytes_sent\":5}}\n{\"qpn\":17,\"dropped\":1}\n",
            1.0,
        );
        let mut now = readings(
            "{\"pid\":9,\"port\":4792,\"counters\":{\"bytes_sent\":25}}\n{\"qpn\":17,\"send_requests\":9,\"dropped\":1}\n",
            3.0,
        );
        let rates = now.since(&before);
        assert_eq!(rates.sum(&["bytes_sent"], anywhere), Some(10.0));
        assert_eq!(rates.sum(&["dropped"], anywhere), Some(0.0));
        for name in ["pid", "port", "qpn", "send_requests", "unheard_of"] {
            assert_eq!(rates.sum(&[name], anywhere), None, "{name}");
        }
        assert_eq!(rates.growing(), [("counters/bytes_sent".to_owned(), 10.0)]);
    }

    #[test]
    fn a_queue_pair_that_began_counts_from_nothing_and_one_that_ended_does_not_count() {
        let before = readings("{\"pid\":1}\n{\"qpn\":17,\"packets_sent\":1000}\n", 0.0);
        let mut now = readings("{\"pid\":1}\n{\"qpn\":18,\"packets_sent\":6}\n", 2.0);
        let rates = now.since(&before);
        assert_eq!(rates.sum(&["packets_sent"], anywhere), Some(3.0));
        assert_eq!(rates.sum_in(&["packets_sent"], &Group::QueuePair(18)), Some(3.0));
        assert_eq!(rates.sum_in(&["packets_sent"], &Group::QueuePair(17)), None);
    }

    #[test]
    fn a_counter_that_was_not_told_for_a_while_is_measured_over_all_that_time() {
        let first = readings("{\"pid\":1}\n{\"qpn\":17,\"protocol\":{\"timeouts\":10}}\n", 0.0);
        let mut second = readings("{\"pid\":1}\n{\"qpn\":17}\n", 1.0);
        assert_eq!(second.since(&first).sum(&["timeouts"], anywhere), None);
        let mut third = readings("{\"pid\":1}\n{\"qpn\":17,\"protocol\":{\"timeouts\":40}}\n", 3.0);
        assert_eq!(third.since(&second).sum(&["timeouts"], anywhere), Some(10.0));
        // One that was never told before has no rate yet.
        let mut fourth =
            readings("{\"pid\":1}\n{\"qpn\":17,\"protocol\":{\"timeouts\":40,\"probes\":7}}\n", 4.0);
        let rates = fourth.since(&third);
        assert_eq!((rates.sum(&["timeouts"], anywhere), rates.sum(&["probes"], anywhere)), (Some(0.0), None));
    }

    #[test]
    fn entries_of_lists_are_groups_of_their_own() {
        let before =
            readings("{\"pid\":1,\"regions\":[{\"key\":7,\"minor\":4},{\"key\":8,\"minor\":50}]}", 0.0);
        let mut now =
            readings("{\"pid\":1,\"regions\":[{\"key\":7,\"minor\":6},{\"key\":9,\"minor\":1}]}", 1.0);
        let rates = now.since(&before);
        assert_eq!(rates.sum(&["minor"], anywhere), Some(3.0));
        assert_eq!(rates.sum_in(&["minor"], &Group::Entry("regions/7".into())), Some(2.0));
        assert_eq!(rates.growing(), [("regions/minor".to_owned(), 3.0)]);
    }

    proptest! {
        #[test]
        fn a_rate_times_its_time_is_what_was_counted(
            values in prop::array::uniform2(any::<u32>()), times in prop::array::uniform2(0..1_000_000_u64),
        ) {
            let [before, now] = [0, 1].map(|index| Reading {
                value: values[index].into(),
                at: Duration::from_micros(times[index]),
            });
            match rate(before, now) {
                None => prop_assert!(now.at <= before.at),
                Some(rate) => {
                    prop_assert!(now.at > before.at && rate >= 0.0 && rate.is_finite());
                    let counted = if now.value >= before.value { now.value - before.value } else { now.value };
                    let seconds = (now.at - before.at).as_secs_f64();
                    prop_assert!((rate * seconds - counted as f64).abs() <= 1e-6 * (counted as f64 + 1.0));
                }
            }
        }

        /// Also of numbers that no counter has: nothing overflows.
        #[test]
        fn rates_are_numbers_whatever_is_told(
            looks in prop::collection::vec((any::<u64>(), any::<u64>(), 0..3_u64), 2..8),
        ) {
            let mut at = 0.0;
            let mut before: Option<Readings> = None;
            for (sent, number, pause) in looks {
                at += pause as f64;
                let line = format!("{{\"pid\":1,\"counters\":{{\"bytes_sent\":{sent}}}}}\n{{\"qpn\":{},\"dropped\":{number}}}\n", number % 3);
                let mut now = readings(&line, at);
                if let Some(before) = &before {
                    let rates = now.since(before);
                    let told = [rates.sum(&["bytes_sent"], |_| true), rates.sum(&["dropped"], |_| true)];
                    for rate in told {
                        prop_assert_eq!(rate.is_some(), pause > 0);
                        prop_assert!(rate.is_none_or(|rate| rate.is_finite() && rate >= 0.0));
                    }
                }
                before = Some(now);
            }
        }
    }
}
