//! What was found.

use crate::limits::MAX_FINDINGS;
use crate::rule::Rule;
use std::hash::Hash;

/// Another call that has to do with a finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Related<S> {
    /// What it did, such as "deregistered".
    pub what: &'static str,
    pub verb: &'static str,
    pub place: S,
}

/// Something that a program left or misused; `S` is a place in the program, a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding<S> {
    pub rule: Rule,
    /// The verb that the program called there.
    pub verb: &'static str,
    /// What it is about, such as "queue pair 0x11 is in INIT": of the first time.
    pub detail: String,
    pub place: S,
    pub related: Vec<Related<S>>,
    /// How often this was found.
    pub count: u64,
}

/// The findings of a process: equal places count together.
#[derive(Debug)]
pub struct Findings<S> {
    all: Vec<Finding<S>>,
    /// Found beyond the bound.
    left_out: u64,
}

impl<S: Clone + Eq> Findings<S> {
    pub fn new() -> Self {
        Findings { all: Vec::new(), left_out: 0 }
    }

    /// Adds one, or counts it with an equal one of the same place; its index.
    pub fn add(&mut self, finding: Finding<S>) -> Option<usize> {
        let is_same = |other: &Finding<S>| {
            other.rule == finding.rule
                && other.verb == finding.verb
                && other.place == finding.place
                && other.related == finding.related
        };
        if let Some(index) = self.all.iter().position(is_same) {
            self.all[index].count += finding.count;
            return Some(index);
        }
        if self.all.len() >= MAX_FINDINGS {
            self.left_out += finding.count;
            return None;
        }
        self.all.push(finding);
        Some(self.all.len() - 1)
    }

    /// Counts one more of a finding that was added.
    pub fn count(&mut self, index: Option<usize>) {
        match index {
            Some(index) => self.all[index].count += 1,
            None => self.left_out += 1,
        }
    }

    pub fn all(&self) -> &[Finding<S>] {
        &self.all
    }

    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(place: u32) -> Finding<u32> {
        let detail = String::new();
        Finding {
            rule: Rule::WrongState,
            verb: "ibv_post_send",
            detail,
            place,
            related: Vec::new(),
            count: 1,
        }
    }

    #[test]
    fn equal_places_count_together() {
        let mut findings = Findings::new();
        let first = findings.add(finding(1));
        findings.add(finding(2));
        findings.add(finding(1));
        findings.count(first);
        let counts: Vec<_> = findings.all().iter().map(|finding| (finding.place, finding.count)).collect();
        assert_eq!(counts, [(1, 3), (2, 1)]);
    }

    #[test]
    fn findings_are_bounded() {
        let mut findings = Findings::new();
        for place in 0..MAX_FINDINGS as u32 + 5 {
            findings.add(finding(place));
        }
        assert_eq!((findings.all().len(), findings.left_out()), (MAX_FINDINGS, 5));
    }
}
