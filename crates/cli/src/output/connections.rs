//! What a process tells of its connection manager (rdma_cm): its IDs, and requests for connections that were refused.

use crate::output::table::Table;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Columns of the IDs.
pub const COLUMNS: [&str; 7] = ["ID", "space", "state", "source", "destination", "QPN", "peer QPN"];

/// IDs that are shown to people.
const SHOWN_IDS: usize = 64;

/// The connection manager of one process.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionManager<'r>(&'r Map<String, Value>);

impl<'r> ConnectionManager<'r> {
    /// What a process tells. `None`: it has opened no event channel.
    pub fn of(process: &'r Map<String, Value>) -> Option<Self> {
        process.get("connection_manager").and_then(Value::as_object).map(ConnectionManager)
    }

    fn count(self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or_default()
    }

    fn list(self, name: &str) -> impl DoubleEndedIterator<Item = &'r Map<String, Value>> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
    }

    /// How much there is, in a sentence.
    pub fn sentence(self) -> String {
        let ids = self.count("ids_left_out").saturating_add(self.list("ids").count() as u64);
        let mut text = format!(
            "connection manager: {}, {}",
            counted(self.count("event_channels"), "event channel"),
            counted(ids, "ID")
        );
        for (name, words) in [
            ("lingering", "in timewait without an ID"),
            ("refusals_sent", "requests of peers refused"),
            ("refusals_received", "own requests refused"),
        ] {
            if self.count(name) > 0 {
                text += &format!(", {} {words}", self.count(name));
            }
        }
        text
    }

    /// The IDs, as cells of [`COLUMNS`].
    pub fn ids(self) -> impl Iterator<Item = [String; 7]> {
        self.list("ids").map(|id| {
            let text = |name: &str| id.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let number = |name: &str| id.get(name).and_then(Value::as_u64);
            let queue_pair =
                |name: &str| number(name).map(|number| format!("{number:#06x}")).unwrap_or_default();
            let state = match number("waiting").zip(number("backlog")) {
                Some((waiting, backlog)) => format!("{}, {waiting} of {backlog} wait", text("state")),
                None => text("state"),
            };
            [
                number("id").map(|number| number.to_string()).unwrap_or_default(),
                text("space"),
                state,
                text("source"),
                text("destination"),
                queue_pair("queue_pair"),
                queue_pair("peer_queue_pair"),
            ]
        })
    }

    /// The refusals in sentences, the newest first; `now` is the time since 1970.
    pub fn refusals(self, now: Duration) -> impl Iterator<Item = String> {
        self.list("refusals").rev().map(move |refusal| {
            let text = |name: &str| refusal.get(name).and_then(Value::as_str).unwrap_or("?");
            let number = |name: &str| refusal.get(name).and_then(Value::as_u64).unwrap_or_default();
            let time = refusal.get("time").and_then(Value::as_f64).unwrap_or_default();
            let age = (now.as_secs_f64() - time).max(0.0);
            let what = match text("direction") {
                "sent" => "refused a request of",
                "dropped" => "dropped a request of",
                "received" => "was refused by",
                _ => "got no answer of",
            };
            let code = refusal.get("code").and_then(Value::as_u64);
            let code = code.map(|code| format!(" (reason {code})")).unwrap_or_default();
            let times =
                if number("count") > 1 { format!(", {} times", number("count")) } else { String::new() };
            format!("{age:.0} s ago: {what} {}{times}: {}{code}", text("peer"), text("reason"))
        })
    }

    /// Writes it for people.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(self, out: &mut impl Write) -> io::Result<()> {
        self.write_at(out, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn write_at(self, out: &mut impl Write, now: Duration) -> io::Result<()> {
        writeln!(out, "  {}", self.sentence())?;
        let ids: Vec<_> = self.ids().collect();
        if !ids.is_empty() {
            let mut table = Table::new(&COLUMNS);
            ids.iter().take(SHOWN_IDS).for_each(|cells| table.row(cells.to_vec()));
            table.write(out, "    ")?;
        }
        let left_out = self.count("ids_left_out").saturating_add(ids.len().saturating_sub(SHOWN_IDS) as u64);
        if left_out > 0 {
            writeln!(out, "    and {left_out} more IDs")?;
        }
        for refusal in self.refusals(now) {
            writeln!(out, "    {refusal}")?;
        }
        Ok(())
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("{count} {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn people_see_ids_and_refusals() {
        let told = json!({"connection_manager": {
            "event_channels": 1, "lingering": 2, "refusals_sent": 3, "refusals_received": 0, "ids_left_out": 4,
            "ids": [
                {"id": 0, "space": "TCP", "state": "listening", "source": "0.0.0.0:7174", "is_listener": true,
                 "waiting": 1, "backlog": 8},
                {"id": 3, "space": "TCP", "state": "established", "source": "192.0.2.1:7174",
                 "destination": "192.0.2.2:40000", "queue_pair": 17, "peer_queue_pair": 300, "is_listener": false}],
            "refusals": [
                {"time": 940.0, "direction": "dropped", "peer": "192.0.2.2", "port": 7174, "count": 2,
                 "reason": "the backlog is full"},
                {"time": 997.6, "direction": "sent", "peer": "192.0.2.3", "port": 7175, "code": 8, "count": 1,
                 "reason": "nobody listens"}]}});
        let mut text = Vec::new();
        let told = ConnectionManager::of(told.as_object().expect("an object")).expect("it is there");
        told.write_at(&mut text, Duration::from_secs(1000)).expect("memory");
        let text = anstream::adapter::strip_str(std::str::from_utf8(&text).expect("UTF-8")).to_string();
        let expected = "  \
  connection manager: 1 event channel, 6 IDs, 2 in timewait without an ID, 3 requests of peers refused
    ID  space  state                   source          destination      QPN     peer QPN
    0   TCP    listening, 1 of 8 wait  0.0.0.0:7174
    3   TCP    established             192.0.2.1:7174  192.0.2.2:40000  0x0011  0x012c
    and 4 more IDs
    2 s ago: refused a request of 192.0.2.3: nobody listens (reason 8)
    60 s ago: dropped a request of 192.0.2.2, 2 times: the backlog is full
";
        assert_eq!(text, expected);
        assert!(ConnectionManager::of(&Map::new()).is_none());
    }

    #[test]
    fn wrong_types_are_no_panic() {
        let told = json!({"connection_manager": {"ids": [7, {"id": "x", "waiting": -1, "queue_pair": 1e300}],
            "refusals": [{"time": "soon", "count": null}, []], "event_channels": "many", "ids_left_out": u64::MAX}});
        let told = ConnectionManager::of(told.as_object().expect("an object")).expect("it is there");
        told.write_at(&mut Vec::new(), Duration::ZERO).expect("memory");
    }
}
