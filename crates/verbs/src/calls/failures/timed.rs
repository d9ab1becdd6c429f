//! Rules of a time after the first device was opened.

use crate::calls::failures::{OnceInProcess, apply, decide_and_log};
use pagewire_failures::{Action, FailureEvent, Point, Rules};
use std::time::{Duration, Instant};

/// Starts the thread that waits for the times of rules, if there are any: once for a process.
pub fn start(rules: &'static Rules) {
    static STARTED: OnceInProcess = OnceInProcess::new();
    let mut times: Vec<u64> = rules.own().filter_map(|rule| rule.after).collect();
    if times.is_empty() || !STARTED.is_first() {
        return;
    }
    times.sort_unstable();
    times.dedup();
    let begun = Instant::now();
    let wait = move || {
        for after in times {
            std::thread::sleep(Duration::from_nanos(after).saturating_sub(begun.elapsed()));
            happen(rules, after);
        }
    };
    if let Err(error) = pagewire_fabric::spawn("pagewire-fail", wait) {
        log::warn!("no thread for rules with 'after': {error}");
    }
}

/// Has everything happen that is due at a time.
fn happen(rules: &Rules, after: u64) {
    for rule in rules.own().filter(|rule| rule.after == Some(after)) {
        let event = FailureEvent { after: Some(after), object: rule.object, ..FailureEvent::at(Point::Time) };
        if let Some(Action::Event(event)) = decide_and_log(&event).and_then(apply::end_or_stop) {
            apply::raise(event, rule.object);
        }
    }
}
