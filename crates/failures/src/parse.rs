//! The text of rules: `key=value` words, with `;` or a line's end between rules. `#` begins a comment.

use crate::Verb;
use crate::action::{Action, time_of};
use crate::checks::check;
use crate::decide::Rules;
use crate::errno::errno_of;
use crate::event::{ObjectKind, ObjectOrdinal, Point};
use crate::limits::{MAX_RULES, MAX_TEXT};
use crate::rule::{OpcodeSelector, Rule, When};
use std::fmt;
use std::str::FromStr;
use strum::IntoEnumIterator;

/// What is wrong with the text of rules, where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Which rule, from 1; 0: not one of them.
    pub rule: usize,
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            0 => write!(f, "{}", self.what),
            rule => write!(f, "rule {rule}: {}", self.what),
        }
    }
}

impl std::error::Error for ParseError {}

/// The keys of a rule, for whoever explains them.
pub const KEYS: &[&str] = &[
    "verb",
    "on",
    "after",
    "role",
    "thread",
    "qp",
    "cq",
    "srq",
    "qp_num",
    "peer",
    "opcode",
    "wr_id",
    "psn",
    "message",
    "stack",
    "nth",
    "every",
    "probability",
    "ordinal",
    "times",
    "errno",
    "status",
    "delay",
    "event",
    "nak",
    "action",
    "for",
];

/// Reads rules. `seed=N` may stand as a rule of its own.
///
/// # Errors
/// What is wrong with which rule, and what would be right.
pub fn rules(text: &str, role: &str) -> Result<Rules, ParseError> {
    let whole = |what: String| ParseError { rule: 0, what };
    if text.len() > MAX_TEXT {
        return Err(whole(format!("the rules have more than {MAX_TEXT} bytes")));
    }
    let mut seed = 0;
    let mut rules = Vec::new();
    let without_comments = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    for part in
        without_comments.flat_map(|line| line.split(';')).map(str::trim).filter(|part| !part.is_empty())
    {
        if let Some(value) = part.strip_prefix("seed=").filter(|value| !value.contains(char::is_whitespace)) {
            seed = value.parse().map_err(|_| whole(format!("seed '{value}' is no whole number")))?;
            continue;
        }
        let number = rules.len() + 1;
        rules.push(rule(part).map_err(|what| ParseError { rule: number, what })?);
        if rules.len() > MAX_RULES {
            return Err(whole(format!("there are more than {MAX_RULES} rules")));
        }
    }
    Ok(Rules::new(seed, role, rules))
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key} '{value}' is no whole number that fits"))
}

/// A number, which may be hexadecimal.
fn any_number(key: &str, value: &str) -> Result<u64, String> {
    let parsed = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    parsed.ok_or_else(|| format!("{key} '{value}' is no whole number"))
}

/// At least 1.
fn positive(key: &str, value: &str) -> Result<u64, String> {
    match number(key, value)? {
        0 => Err(format!("{key} is 0: events are counted from 1")),
        number => Ok(number),
    }
}

fn of_names<T: FromStr + IntoEnumIterator + Into<&'static str>>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| {
        let names: Vec<&str> = T::iter().map(Into::into).collect();
        format!("{key} '{value}' is none of {}", names.join(", "))
    })
}

fn time(key: &str, value: &str) -> Result<u64, String> {
    time_of(value)
        .ok_or_else(|| format!("{key} '{value}' is no time of up to an hour, such as 100us, 5ms or 2s"))
}

fn verb(value: &str) -> Result<Verb, String> {
    Verb::from_name(value).ok_or_else(|| {
        let alike = |verb: &&str| verb.contains(value.trim_start_matches("ibv_").trim_start_matches("rdma_"));
        let near: Vec<&str> = Verb::all().map(Verb::name).filter(|name| alike(name)).take(5).collect();
        match near.is_empty() {
            true => format!("verb '{value}' is no function of libibverbs or librdmacm that can be observed"),
            false => format!("verb '{value}' is no function; perhaps {}", near.join(" or ")),
        }
    })
}

/// What is read of a rule before its parts are put together.
#[derive(Default)]
struct Parts {
    point: Option<Point>,
    when: Option<When>,
    action: Option<Action>,
    pause: Option<u64>,
    rule: Option<Rule>,
}

impl Parts {
    fn set_point(&mut self, point: Point) -> Result<(), String> {
        match self.point.replace(point) {
            None => Ok(()),
            Some(_) => Err("a rule has one of verb, on and after".into()),
        }
    }

    fn set_when(&mut self, when: When) -> Result<(), String> {
        match self.when.replace(when) {
            None => Ok(()),
            Some(_) => Err("a rule has one of nth, every, probability and ordinal".into()),
        }
    }

    fn set_action(&mut self, action: Action) -> Result<(), String> {
        match self.action.replace(action) {
            None => Ok(()),
            Some(_) => Err("a rule has one of errno, status, delay, event, nak and action".into()),
        }
    }
}

fn empty_rule() -> Rule {
    Rule {
        point: Point::Request,
        role: None,
        thread: None,
        object: None,
        qp_num: None,
        peer: None,
        opcode: None,
        wr_id: None,
        psn: None,
        message: None,
        stack: None,
        after: None,
        when: When::Always,
        times: None,
        action: Action::Kill,
    }
}

/// Reads one rule.
fn rule(text: &str) -> Result<Rule, String> {
    let mut parts = Parts { rule: Some(empty_rule()), ..Parts::default() };
    let mut seen = Vec::new();
    for item in text.split_whitespace() {
        let (key, value) = item
            .split_once('=')
            .filter(|(_, value)| !value.is_empty())
            .ok_or_else(|| format!("'{item}' has no value: write key=value"))?;
        if seen.contains(&key) {
            return Err(format!("{key} is said twice"));
        }
        seen.push(key);
        read(&mut parts, key, value)?;
    }
    finish(parts)
}

/// Reads the parts of a rule that say where and when.
fn read(parts: &mut Parts, key: &str, value: &str) -> Result<(), String> {
    let mut rule = parts.rule.take().unwrap_or_else(empty_rule);
    let done = match key {
        "verb" => parts.set_point(Point::Call(verb(value)?)),
        "on" => parts.set_point(Point::of_word(value).ok_or_else(|| {
            format!(
                "on '{value}' is none of request, completion, packet, page, message (a call is verb=NAME)"
            )
        })?),
        "after" => {
            rule.after = Some(time(key, value)?);
            parts.set_point(Point::Time)
        }
        "ordinal" => parts.set_when(When::Ordinal(positive(key, value)?)),
        "nth" => parts.set_when(When::Nth(positive(key, value)?)),
        "every" => parts.set_when(When::Every(positive(key, value)?)),
        "probability" => match value.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => parts.set_when(When::Probability(share)),
            _ => Err(format!("probability '{value}' is no number from 0 to 1")),
        },
        "role" | "thread" | "qp" | "cq" | "srq" | "qp_num" | "peer" | "opcode" | "wr_id" | "psn"
        | "message" | "stack" | "times" => select(&mut rule, key, value),
        _ => act(parts, key, value),
    };
    parts.rule = Some(rule);
    done
}

fn select(rule: &mut Rule, key: &str, value: &str) -> Result<(), String> {
    match key {
        "role" => rule.role = Some(value.to_owned()),
        "thread" => rule.thread = Some(number(key, value)?),
        "qp" | "cq" | "srq" => {
            let kind: ObjectKind = of_names("object", key)?;
            let object = ObjectOrdinal { kind, ordinal: number(key, value)? };
            if rule.object.replace(object).is_some() {
                return Err("a rule has one of qp, cq and srq".into());
            }
        }
        "qp_num" => {
            rule.qp_num = Some(any_number(key, value)?.try_into().map_err(|_| "qp_num is too large")?)
        }
        "peer" => {
            let address = value.parse().map_err(|_| format!("peer '{value}' is no IP address"))?;
            rule.peer = Some(address);
        }
        "opcode" => {
            let is_number = value.starts_with(|c: char| c.is_ascii_digit());
            rule.opcode = Some(match is_number {
                true => OpcodeSelector::Number(
                    any_number(key, value)?.try_into().map_err(|_| "opcode is over 255")?,
                ),
                false => {
                    let name = value.trim_start_matches("IBV_WR_").trim_start_matches("IBV_WC_");
                    OpcodeSelector::Name(of_names(key, name)?)
                }
            });
        }
        "wr_id" => rule.wr_id = Some(any_number(key, value)?),
        "psn" => rule.psn = Some(any_number(key, value)?.try_into().map_err(|_| "psn is too large")?),
        "message" => rule.message = Some(of_names(key, value)?),
        "stack" => {
            rule.stack = Some(
                u64::from_str_radix(value, 16)
                    .map_err(|_| format!("stack '{value}' is no hexadecimal hash"))?,
            );
        }
        _ => rule.times = Some(positive(key, value)?),
    }
    Ok(())
}

/// Reads the parts of a rule that say what.
fn act(parts: &mut Parts, key: &str, value: &str) -> Result<(), String> {
    match key {
        "errno" => {
            let error = errno_of(value)
                .ok_or_else(|| format!("errno '{value}' is no name such as ENOMEM, and no number"))?;
            parts.set_action(Action::Errno(error))
        }
        "status" => parts.set_action(Action::Status(of_names(key, value)?)),
        "delay" => parts.set_action(Action::Delay(time(key, value)?)),
        "event" => parts.set_action(Action::Event(of_names(key, value)?)),
        "nak" => parts.set_action(Action::Nak(of_names(key, value)?)),
        "action" => {
            let action = match value {
                "kill" => Action::Kill,
                "stop" => Action::Stop(None),
                "reject" => Action::Reject,
                "lose" => Action::Lose,
                other => Action::Packet(of_names(key, other).map_err(|_| {
                    format!("action '{other}' is none of kill, stop, lose, double, reorder, corrupt, reject")
                })?),
            };
            parts.set_action(action)
        }
        "for" => {
            parts.pause = Some(time(key, value)?);
            Ok(())
        }
        _ => Err(format!("'{key}' is no key of a rule; there are {}", KEYS.join(", "))),
    }
}

/// Puts a rule together and checks it.
fn finish(parts: Parts) -> Result<Rule, String> {
    let Parts { point, when, action, pause, rule, .. } = parts;
    let mut rule = rule.unwrap_or_else(empty_rule);
    let action =
        action.ok_or("the rule says nothing that happens: add errno, status, delay, event, nak or action")?;
    rule.when = when.unwrap_or(When::Always);
    rule.action = match (action, pause) {
        (Action::Stop(_), pause) => Action::Stop(pause),
        (_, Some(_)) => return Err("'for' is the time of action=stop".into()),
        (other, None) => other,
    };
    rule.point = match (point, rule.action) {
        (Some(point), _) => point,
        (None, Action::Status(_)) => Point::Request,
        (None, Action::Nak(_) | Action::Packet(_)) => Point::Packet,
        (None, _) if rule.message.is_some() => Point::Message,
        (None, _) => return Err("the rule says nowhere: add verb=, on= or after=".into()),
    };
    if rule.point == Point::Time {
        // Of several rules for one time each fires once.
        rule.times = Some(1);
    }
    check(&rule)?;
    Ok(rule)
}
