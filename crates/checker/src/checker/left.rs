//! What is there at the exit.

use super::{Checker, Live, ObjectState};
use crate::finding::Finding;
use crate::object::ObjectKind;
use crate::rule::Rule;

impl<S: Clone + Eq> Checker<S> {
    /// Adds what the program left. `unpolled` gives the completions in the completion queue at an address; what a thread is about to end is
    /// left out, and what a library keeps.
    pub fn leave(&mut self, unpolled: &dyn Fn(usize) -> usize) {
        let mut left: Vec<(usize, &Live<S>)> = self
            .objects
            .iter()
            .filter(|(_, live)| !live.is_ending && !live.is_kept)
            .map(|(address, live)| (*address, live))
            .collect();
        // What was made from a context comes after it, and equal kinds together.
        left.sort_by_key(|(address, live)| (live.kind, *address));
        let finding = |rule, verb, detail, place: &S| Finding {
            rule,
            verb,
            detail,
            place: place.clone(),
            related: Vec::new(),
            count: 1,
        };
        let mut findings = Vec::new();
        if let (true, Some((verb, place))) = (self.events.unacknowledged > 0, &self.events.last) {
            let detail = "events of a port or a device".to_owned();
            let mut found = finding(Rule::UnacknowledgedEvents, *verb, detail, place);
            found.count = self.events.unacknowledged;
            findings.push(found);
        }
        for (address, live) in left {
            let name = name_of(live);
            if let (true, Some((verb, place))) = (live.events.unacknowledged > 0, &live.events.last) {
                let mut found =
                    finding(Rule::UnacknowledgedEvents, *verb, format!("events of {name}"), place);
                found.count = live.events.unacknowledged;
                findings.push(found);
            }
            let waiting = if live.kind == ObjectKind::CompletionQueue { unpolled(address) } else { 0 };
            if waiting > 0 {
                let mut found = finding(
                    Rule::UnpolledCompletions,
                    live.verb,
                    format!("completions in {name}"),
                    &live.place,
                );
                found.count = waiting as u64;
                findings.push(found);
            }
            findings.push(finding(Rule::LeftObject, live.verb, name, &live.place));
        }
        for found in findings {
            self.findings.add(found);
        }
    }
}

/// What an object is, and what tells it from others of its kind.
fn name_of<S>(live: &Live<S>) -> String {
    let kind = live.kind.name();
    match &live.state {
        ObjectState::QueuePair(queue_pair) => format!("{kind} {:#x}", queue_pair.details.number),
        ObjectState::Region(region) => {
            format!("{kind} of {} bytes at {:#x}, lkey {:#x}", region.length, region.address, region.lkey)
        }
        ObjectState::CompletionQueue(queue) => format!("{kind} of {} entries", queue.entries),
        ObjectState::SharedReceiveQueue(_) | ObjectState::None => kind.to_owned(),
    }
}
