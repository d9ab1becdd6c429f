//! Which rule fires at an event: a pure function of the seed, and of what has happened before to the same object in the same thread.

use crate::action::Action;
use crate::checks::{is_of_unreliable, status_fits};
use crate::event::{FailureEvent, ObjectOrdinal, Point};
use crate::limits::MAX_COUNTERS;
use crate::parse::{self, ParseError};
use crate::record::Record;
use crate::rule::{OpcodeSelector, Rule, When};
use std::collections::HashMap;

/// What events are counted by: those of one thread, or of one object, or of both, as the point says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Scope {
    thread: Option<u32>,
    object: Option<ObjectOrdinal>,
}

impl Scope {
    fn of(event: &FailureEvent<'_>) -> Self {
        Scope {
            thread: event.thread.filter(|_| event.point.counts_threads()),
            object: event.object.filter(|_| event.point.counts_objects()),
        }
    }
}

/// What has been counted so far in a process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Events, by point.
    events: HashMap<(Point, Scope), u64>,
    /// Events that a rule's selectors match, and how often it fired.
    matched: HashMap<(usize, Scope), (u64, u64)>,
    has_ended: bool,
    /// Nobody has asked yet whether the rules have ended.
    is_end_new: bool,
}

impl Counters {
    /// Whether the rules have ended, as [`MAX_COUNTERS`] events are counted by themselves: true once.
    pub fn take_end(&mut self) -> bool {
        std::mem::take(&mut self.is_end_new)
    }

    /// What a forked child begins with: times count from its own first device.
    pub fn begin_child(&mut self, rules: &Rules) {
        self.events.retain(|(point, _), _| *point != Point::Time);
        self.matched
            .retain(|(rule, _), _| rules.rules.get(*rule).is_none_or(|rule| rule.point != Point::Time));
    }
}

/// What is to be done at an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub action: Action,
    /// For the log.
    pub record: Record,
}

/// The rules of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    seed: u64,
    role: String,
    rules: Vec<Rule>,
}

/// SplitMix64: a number that looks random, of each number.
fn mix(value: u64) -> u64 {
    let mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn mix_all(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, |hash, word| mix(hash ^ word))
}

impl Rules {
    /// Rules of a process with this role.
    pub fn new(seed: u64, role: &str, rules: Vec<Rule>) -> Self {
        Rules { seed, role: role.to_owned(), rules }
    }

    /// Reads the text of rules; see [`parse`](crate::parse).
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str, role: &str) -> Result<Self, ParseError> {
        parse::rules(text, role)
    }

    /// The rules that may concern this process.
    pub fn own(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.role.as_ref().is_none_or(|role| *role == self.role))
    }

    /// Whether there are none, of any role.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a rule of this process is about such a point.
    pub fn concern(&self, is_such: impl Fn(Point) -> bool) -> bool {
        self.own().any(|rule| is_such(rule.point))
    }

    /// What the rules call this process.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// The seed of probabilities.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Counts an event, and says what is to be done. All rules count it; the first that fires decides.
    pub fn decide(&self, event: &FailureEvent<'_>, counters: &mut Counters) -> Option<Decision> {
        if counters.events.len() + counters.matched.len() >= MAX_COUNTERS {
            counters.is_end_new |= !counters.has_ended;
            counters.has_ended = true;
            return None;
        }
        let scope = Scope::of(event);
        let ordinal = counters.events.entry((event.point, scope)).or_default();
        *ordinal += 1;
        let ordinal = *ordinal;
        let mut decision = None;
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.matches(&self.role, event) || !can_end_so(rule, event) {
                continue;
            }
            let (matched, fired) = counters.matched.entry((index, scope)).or_default();
            *matched += 1;
            let fires = match rule.when {
                When::Always => true,
                When::Nth(n) => *matched == n,
                When::Ordinal(n) => ordinal == n,
                When::Every(n) => *matched % n == 0,
                When::Probability(share) => self.draw(index, event.point, scope, ordinal) < share,
            };
            if !fires || rule.times.is_some_and(|times| *fired >= times) || decision.is_some() {
                continue;
            }
            *fired += 1;
            decision = Some(Decision {
                action: rule.action,
                record: Record {
                    rule: index + 1,
                    role: self.role.clone(),
                    thread: event.thread,
                    event: event.point.word(),
                    object: scope.object,
                    ordinal,
                    after: rule.after,
                    action: rule.action.to_string(),
                },
            });
        }
        decision
    }

    /// A number from 0 to 1, as random as the seed.
    fn draw(&self, rule: usize, point: Point, scope: Scope, ordinal: u64) -> f64 {
        let Scope { thread, object } = scope;
        let text =
            |text: &str| text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| mix(hash ^ u64::from(byte)));
        let hash = mix_all([
            self.seed,
            rule as u64,
            text(&self.role),
            text(point.word()),
            thread.map_or(u64::MAX, u64::from),
            object.map_or(u64::MAX, |object| (object.kind as u64) << 32 | u64::from(object.ordinal)),
            ordinal,
        ]);
        // 53 bits: what an f64 holds.
        (hash >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Whether the event can end as the rule wants. A status is not of all opcodes, and a rule without an opcode passes over the others.
fn can_end_so(rule: &Rule, event: &FailureEvent<'_>) -> bool {
    match (rule.action, rule.opcode, event.opcode) {
        // A NAK is written over the syndrome, which no other packet has.
        (Action::Nak(_), _, opcode) => opcode == Some(crate::EventOpcode::Acknowledge),
        (_, Some(OpcodeSelector::Number(_)), _) => true,
        (Action::Status(status), _, Some(opcode)) => {
            status_fits(status, opcode) && (event.is_reliable || is_of_unreliable(status))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verb;

    fn call(thread: u32) -> FailureEvent<'static> {
        FailureEvent { thread: Some(thread), ..FailureEvent::at(Point::Call(Verb::RegMr)) }
    }

    #[test]
    fn rules_end_at_the_bound_of_counters_and_say_so_once() {
        let rules = Rules::parse("verb=ibv_reg_mr errno=EIO", "").unwrap();
        let mut counters = Counters::default();
        for thread in 0..MAX_COUNTERS as u32 / 2 {
            assert!(rules.decide(&call(thread), &mut counters).is_some());
        }
        assert!(!counters.take_end());
        for _ in 0..2 {
            assert!(rules.decide(&call(0), &mut counters).is_none());
        }
        assert!(counters.take_end());
        assert!(rules.decide(&call(0), &mut counters).is_none());
        assert!(!counters.take_end());
    }

    #[test]
    fn times_begin_anew_in_a_child() {
        let rules = Rules::parse("after=1ms action=kill; verb=ibv_reg_mr nth=2 errno=EIO", "").unwrap();
        let mut counters = Counters::default();
        let time = FailureEvent { after: Some(1_000_000), ..FailureEvent::at(Point::Time) };
        assert!(rules.decide(&time, &mut counters).is_some());
        assert!(rules.decide(&call(0), &mut counters).is_none());
        assert!(rules.decide(&time, &mut counters).is_none(), "a time comes once");
        counters.begin_child(&rules);
        assert!(rules.decide(&time, &mut counters).is_some());
        assert!(rules.decide(&call(0), &mut counters).is_some(), "calls go on counting");
    }
}
