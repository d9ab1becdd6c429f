//! From a long run that went wrong to a short one that goes wrong in the same way, and what was done last in it.

use crate::Scenario;
use crate::network::LinkFaults;
use crate::notes::{NotePlace, Notes};
use crate::panics::PANIC;
use crate::workload::Violation;
use pagewire_nic::{FaultHandling, PathChoice};
use std::fmt::Write;

/// Runs that are spent on making a violation small, usually.
pub const RUNS: u32 = 400;
/// Seeds that each smaller scenario is tried with.
const SEEDS: u64 = 4;
/// Lines of a trace.
const LINES: usize = 60;
/// Notes that are kept while a scenario runs.
const NOTES: usize = 100_000;

/// A scenario that goes wrong.
#[derive(Debug, Clone)]
pub struct Shrunk {
    pub scenario: Scenario,
    pub violation: Violation,
    /// Runs that it took to find it.
    pub runs: u32,
}

/// What violations have in common that are taken for the same: the first word (of a panic, the first of its message), and the
/// status of a completion. The rest differs from world to world.
fn kind(violation: &Violation) -> (Option<&str>, Option<&str>) {
    let words = || violation.what.split(|letter: char| !letter.is_ascii_alphabetic());
    let first = words().find(|word| word.len() > 2 && *word != PANIC);
    let status = words().skip_while(|word| *word != "status").filter(|word| !word.is_empty()).nth(1);
    (first, status)
}

/// Makes a scenario smaller, step by step, while it goes wrong in the same way; runs `runs` at most.
pub fn shrink(scenario: Scenario, violation: Violation, runs: u32) -> Shrunk {
    let mut best = Shrunk { scenario, violation, runs: 0 };
    best.cut();
    loop {
        let before = best.scenario.clone();
        for smaller in STEPS {
            // As long as a step helps it is taken again.
            while let Some(scenario) = smaller(&best.scenario) {
                if !best.attempt(&scenario, runs) {
                    break;
                }
            }
        }
        if best.runs >= runs || best.scenario == before {
            return best;
        }
    }
}

impl Shrunk {
    /// Nothing is posted after the violation.
    fn cut(&mut self) {
        self.scenario.plan.operations = self.scenario.plan.operations.min(self.violation.operations + 1);
    }

    /// Tries a smaller scenario with some seeds.
    fn attempt(&mut self, smaller: &Scenario, runs: u32) -> bool {
        for seed in 0..SEEDS {
            if self.runs >= runs {
                return false;
            }
            self.runs += 1;
            let mut scenario = smaller.clone();
            scenario.plan.seed = self.scenario.plan.seed.wrapping_add(seed);
            if let Err(violation) = scenario.run() {
                if kind(&violation) == kind(&self.violation) {
                    (self.scenario, self.violation) = (scenario, violation);
                    self.cut();
                    return true;
                }
            }
        }
        false
    }
}

type ShrinkStep = fn(&Scenario) -> Option<Scenario>;

/// Makes a step of a change that may be none.
fn changed(scenario: &Scenario, change: impl FnOnce(&mut Scenario)) -> Option<Scenario> {
    let mut smaller = scenario.clone();
    change(&mut smaller);
    smaller.plan.exact = smaller.is_exact();
    (smaller != *scenario).then_some(smaller)
}

const STEPS: &[ShrinkStep] = &[
    |scenario| changed(scenario, |smaller| smaller.plan.operations = (smaller.plan.operations / 2).max(1)),
    |scenario| changed(scenario, |smaller| smaller.plan.connections = (smaller.plan.connections / 2).max(1)),
    |scenario| changed(scenario, |smaller| smaller.plan.natives /= 2),
    |scenario| changed(scenario, |smaller| smaller.parties = (smaller.parties / 2).max(2)),
    |scenario| changed(scenario, |smaller| smaller.hosts = (smaller.hosts / 2).max(1).min(smaller.parties)),
    |scenario| changed(scenario, |smaller| smaller.plan.between_crashes = None),
    |scenario| changed(scenario, |smaller| smaller.standard /= 2),
    |scenario| changed(scenario, |smaller| smaller.evictions = false),
    |scenario| changed(scenario, |smaller| smaller.evict_every(300)),
    |scenario| changed(scenario, |smaller| smaller.page_faults = Some(FaultHandling::Stash)),
    |scenario| changed(scenario, |smaller| smaller.plan.upheaval = false),
    |scenario| changed(scenario, |smaller| smaller.plan.reuse_flushed = false),
    |scenario| changed(scenario, |smaller| smaller.plan.extended = false),
    |scenario| {
        changed(scenario, |smaller| {
            smaller.faults = LinkFaults { streams: smaller.faults.streams, ..LinkFaults::NONE };
        })
    },
    |scenario| changed(scenario, |smaller| smaller.faults.corrupt = 0.0),
    |scenario| changed(scenario, |smaller| smaller.faults.duplicate = 0.0),
    |scenario| changed(scenario, |smaller| smaller.faults.reorder = 0.0),
    |scenario| changed(scenario, |smaller| smaller.faults.loss = 0.0),
    |scenario| changed(scenario, |smaller| smaller.plan.longest = (smaller.plan.longest / 4).max(4096)),
    |scenario| changed(scenario, |smaller| smaller.memory = smaller.memory.min(8 << 20)),
    |scenario| changed(scenario, |smaller| smaller.path = PathChoice::Udp),
    |scenario| changed(scenario, |smaller| smaller.plan.operations -= smaller.plan.operations / 8),
];

/// Runs a scenario once more and tells what was done last on the connection that it goes wrong on (or, where it is not
/// known which that is, on all), and how to repeat it.
pub fn trace(shrunk: &Shrunk) -> String {
    let notes = Notes::new(NOTES);
    let (result, _) = shrunk.scenario.run_with(Some(notes.clone()), |_, _| {});
    let mut text = String::new();
    match result {
        Err(violation) => {
            let last = match violation.connection {
                Some((connection, [one, other])) => notes.last(
                    &[
                        NotePlace::Connection(connection),
                        NotePlace::QueuePair(one),
                        NotePlace::QueuePair(other),
                    ],
                    LINES,
                ),
                None => notes.last(&[], LINES),
            };
            for note in last {
                let _ = writeln!(text, "{:>14} ns {}", note.at, note.what);
            }
            let _ = writeln!(text, "{violation}");
        }
        Ok(_) => {
            let _ = writeln!(text, "{} (but not when it was repeated)", shrunk.violation);
        }
    }
    let _ = writeln!(text, "repeat it with: swarm{}", shrunk.scenario.options());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_alike_by_their_first_word_and_status() {
        let violation =
            |what: &str| Violation { seed: 1, operations: 1, what: what.into(), connection: None };
        let lost = violation("byte 5 of Posted { id: 7 } is wrong");
        assert_eq!(kind(&lost), (Some("byte"), None));
        assert_eq!(
            kind(&lost),
            kind(&violation("byte 0x7f of party 2 was touched by nothing that may have"))
        );
        assert_ne!(kind(&violation("panic: index out of bounds")), kind(&violation("panic: attempt to add")));
        let given_up = violation("Completion { wr_id: 3, status: RetryExceeded, opcode: Read }");
        assert_eq!(kind(&given_up), (Some("Completion"), Some("RetryExceeded")));
        assert_ne!(kind(&given_up), kind(&violation("Completion { wr_id: 3, status: BadResponse }")));
    }
}
