//! A rule: where, when, and what.

use crate::action::Action;
use crate::event::{CmMessageKind, EventOpcode, FailureEvent, ObjectOrdinal, Point};
use std::fmt;
use std::net::IpAddr;

/// Which of the events that its selectors match make a rule fire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    Always,
    /// The n-th, from 1.
    Nth(u64),
    /// The event with this number among all of its thread and queue, also of those that the selectors do not match: what the log has.
    Ordinal(u64),
    /// Each n-th.
    Every(u64),
    /// Each with this probability, by the seed.
    Probability(f64),
}

/// The opcode that a rule selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpcodeSelector {
    Name(EventOpcode),
    /// The opcode of a packet's BTH, as a number.
    Number(u8),
}

/// One rule. A selector that is `None` matches everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub point: Point,
    pub role: Option<String>,
    pub thread: Option<u32>,
    pub object: Option<ObjectOrdinal>,
    pub qp_num: Option<u32>,
    pub peer: Option<IpAddr>,
    pub opcode: Option<OpcodeSelector>,
    pub wr_id: Option<u64>,
    pub psn: Option<u32>,
    pub message: Option<CmMessageKind>,
    /// The hash of the stack of a call.
    pub stack: Option<u64>,
    /// For [`Point::Time`]: nanoseconds after the first device was opened.
    pub after: Option<u64>,
    pub when: When,
    /// How often it fires at most, where events are counted by themselves.
    pub times: Option<u64>,
    pub action: Action,
}

impl Rule {
    /// Whether the selectors match an event of a process with this role.
    pub fn matches(&self, role: &str, event: &FailureEvent<'_>) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, found: &Option<T>) -> bool {
            wanted.is_none() || wanted == found
        }
        self.point == event.point
            && self.role.as_ref().is_none_or(|wanted| wanted == role)
            && is(&self.thread, &event.thread)
            && is(&self.object, &event.object)
            && is(&self.qp_num, &event.qp_num)
            && is(&self.peer, &event.peer)
            && is(&self.wr_id, &event.wr_id)
            && is(&self.psn, &event.psn)
            && is(&self.message, &event.message)
            && is(&self.after, &event.after)
            && match self.opcode {
                None => true,
                Some(OpcodeSelector::Name(name)) => event.opcode == Some(name),
                Some(OpcodeSelector::Number(number)) => event.bth_opcode == Some(number),
            }
            && self.stack.is_none_or(|wanted| wanted == (event.stack)())
    }
}

/// As in the text of rules.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut items = Vec::new();
        match self.point {
            Point::Call(verb) => items.push(format!("verb={}", verb.name())),
            Point::Time => {}
            other => items.push(format!("on={}", other.word())),
        }
        let mut add = |name: &str, value: Option<String>| {
            items.extend(value.map(|value| format!("{name}={value}")));
        };
        add("after", self.after.map(|after| format!("{after}ns")));
        add("role", self.role.clone());
        add("thread", self.thread.map(|thread| thread.to_string()));
        add("qp_num", self.qp_num.map(|number| number.to_string()));
        add("peer", self.peer.map(|peer| peer.to_string()));
        add(
            "opcode",
            self.opcode.map(|opcode| match opcode {
                OpcodeSelector::Name(name) => name.to_string(),
                OpcodeSelector::Number(number) => format!("{number:#04x}"),
            }),
        );
        add("wr_id", self.wr_id.map(|id| id.to_string()));
        add("psn", self.psn.map(|psn| psn.to_string()));
        add("message", self.message.map(|message| message.to_string()));
        add("stack", self.stack.map(|stack| format!("{stack:016x}")));
        match self.when {
            When::Always => {}
            When::Nth(n) => add("nth", Some(n.to_string())),
            When::Ordinal(n) => add("ordinal", Some(n.to_string())),
            When::Every(n) => add("every", Some(n.to_string())),
            When::Probability(p) => add("probability", Some(p.to_string())),
        }
        add("times", self.times.map(|times| times.to_string()));
        items.extend(self.object.map(|object| object.to_string()));
        items.push(self.action.to_string());
        write!(f, "{}", items.join(" "))
    }
}
