//! Which failures are run: the first, the second and the last call of each call stack with each errno of the verb, work requests with each
//! status, and asynchronous events.

use super::place::CallPlace;
use pagewire_checker::call_count::{CallCount, CallKind};
use pagewire_failures::{EventOpcode, RuleEvent, Verb, WorkStatus, errnos, statuses};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A call fails.
    Call,
    /// A work request ends with an error.
    Request,
    /// An asynchronous event comes while a call begins.
    Event,
}

/// One failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Whose call fails.
    pub role: String,
    /// What happens.
    pub kind: FailureKind,
    /// The verb, or the opcode of the request.
    pub what: String,
    /// Which of the calls of this place, or of the requests, from 1.
    pub nth: u64,
    /// The errno, the status of the completion, or the event.
    pub how: String,
    /// The rule, as `pagewire run --fail` takes it.
    pub rule: String,
    /// Where the program calls the verb, if that is known.
    pub place: CallPlace,
}

impl Injection {
    /// What lists and reports call it: `client:ibv_reg_mr#1=ENOMEM at main.c:42`.
    pub fn name(&self) -> String {
        let Injection { role, what, nth, how, place, .. } = self;
        match place.short() {
            Some(place) => format!("{role}:{what}#{nth}={how} at {place}"),
            None => format!("{role}:{what}#{nth}={how}"),
        }
    }
}

/// The failures of a role that called `calls`; `place` says where a call stack is.
pub fn plan(
    role: &str,
    calls: &[CallCount],
    mut place: impl FnMut(&CallCount) -> CallPlace,
) -> Vec<Injection> {
    let mut plan = Vec::new();
    let mut add = |kind, call: &CallCount, nth: u64, how: &str| {
        plan.push(Injection {
            role: role.to_owned(),
            kind,
            what: call.name.clone(),
            nth,
            how: how.to_owned(),
            rule: rule(kind, calls, call, nth, how),
            place: place(call),
        });
    };
    for call in calls {
        match call.kind {
            CallKind::Call => {
                let Some(verb) = Verb::from_name(&call.name) else { continue };
                for nth in chosen(call.count) {
                    errnos(verb).iter().for_each(|errno| add(FailureKind::Call, call, nth, errno));
                }
            }
            CallKind::Request => {
                let Ok(opcode) = call.name.parse::<EventOpcode>() else { continue };
                let statuses = || statuses(opcode, call.is_reliable).map(WorkStatus::into);
                statuses().for_each(|status| add(FailureKind::Request, call, 1, status));
                // A program tells which request fails, seldom by what.
                for nth in chosen(call.count).filter(|nth| *nth > 1) {
                    statuses().take(1).for_each(|status| add(FailureKind::Request, call, nth, status));
                }
            }
        }
    }
    if let Some((call, nth)) = call_of_events(calls) {
        events(calls).into_iter().for_each(|event| add(FailureKind::Event, call, nth, event.into()));
    }
    plan
}

/// The shortest rule that means this call or request.
fn rule(kind: FailureKind, calls: &[CallCount], call: &CallCount, nth: u64, how: &str) -> String {
    let name = &call.name;
    let stacks = calls.iter().filter(|other| (other.kind, &other.name) == (call.kind, name));
    let stack = if stacks.count() > 1 { format!(" stack={}", call.stack) } else { String::new() };
    match kind {
        FailureKind::Call => format!("verb={name}{stack} nth={nth} errno={how}"),
        FailureKind::Request => format!("opcode={name} nth={nth} status={how}"),
        FailureKind::Event => format!("verb={name}{stack} nth={nth} event={how}"),
    }
}

/// The call at which events come, and which of its place: the first that sends, as the program is at work then; where none sends, the last
/// that receives, or else prepares. A program without all these has its last call.
fn call_of_events(calls: &[CallCount]) -> Option<(&CallCount, u64)> {
    let of = |verb: Verb| move |call: &&CallCount| call.kind == CallKind::Call && call.name == verb.name();
    if let Some(first) = calls.iter().find(of(Verb::PostSend)) {
        return Some((first, 1));
    }
    let last_of = |verb| calls.iter().rfind(of(verb));
    let prepares = [Verb::PostSrqRecv, Verb::PostRecv, Verb::ModifyQp].into_iter().find_map(last_of);
    // Whoever waits for events may wait in another thread.
    let waits = of(Verb::GetAsyncEvent);
    let any = || calls.iter().rfind(|call| call.kind == CallKind::Call && !waits(call));
    prepares.or_else(any).map(|last| (last, last.count))
}

/// The events that a program with these calls could notice: by what they change, and all others only if it takes events.
fn events(calls: &[CallCount]) -> Vec<RuleEvent> {
    let calls_any = |verbs: &[Verb]| {
        calls
            .iter()
            .any(|call| verbs.iter().any(|verb| call.kind == CallKind::Call && call.name == verb.name()))
    };
    let has_queue_pair = calls_any(&[Verb::CreateQp, Verb::CreateQpEx]);
    let has_shared_queue = calls_any(&[Verb::CreateSrq]);
    let has_completion_queue = calls_any(&[Verb::CreateCq, Verb::CreateCqEx]);
    let takes_events = calls_any(&[Verb::GetAsyncEvent]);
    [
        (RuleEvent::PortError, true),
        (RuleEvent::DeviceFatal, true),
        (RuleEvent::QueuePairFatal, has_queue_pair),
        (RuleEvent::LastWorkRequestReached, has_queue_pair && has_shared_queue),
        (RuleEvent::SharedReceiveQueueError, has_shared_queue),
        (RuleEvent::PortActive, takes_events),
        (RuleEvent::GidChange, takes_events),
        // The completions are lost: nothing else tells of it.
        (RuleEvent::CompletionQueueError, takes_events && has_completion_queue),
        (RuleEvent::SharedReceiveQueueLimitReached, takes_events && has_shared_queue),
    ]
    .into_iter()
    .filter_map(|(event, is_seen)| is_seen.then_some(event))
    .collect()
}

/// The first, the second and the last of so many calls.
fn chosen(count: u64) -> impl Iterator<Item = u64> {
    let last = (count > 2).then_some(count);
    (1..=count.min(2)).chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: CallKind, name: &str, stack: &str, count: u64) -> CallCount {
        CallCount {
            kind,
            name: name.to_owned(),
            stack: stack.to_owned(),
            frames: Vec::new(),
            is_reliable: true,
            count,
        }
    }

    fn rules(calls: &[CallCount]) -> Vec<String> {
        plan("r", calls, |_| CallPlace::default()).into_iter().map(|injection| injection.rule).collect()
    }

    fn rules_without_events(calls: &[CallCount]) -> Vec<String> {
        rules(calls).into_iter().filter(|rule| !rule.contains("event=")).collect()
    }

    #[test]
    fn first_second_and_last_are_chosen() {
        let of = |count| chosen(count).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2)), (vec![], vec![1], vec![1, 2]));
        assert_eq!((of(3), of(500)), (vec![1, 2, 3], vec![1, 2, 500]));
    }

    #[test]
    fn rule_names_a_stack_only_where_a_verb_has_several() {
        let one = rules_without_events(&[call(CallKind::Call, "ibv_alloc_pd", "a", 1)]);
        assert_eq!(one, ["verb=ibv_alloc_pd nth=1 errno=ENOMEM"]);
        let two = rules_without_events(&[
            call(CallKind::Call, "ibv_alloc_pd", "a", 1),
            call(CallKind::Call, "ibv_alloc_pd", "b", 1),
        ]);
        assert_eq!(
            two,
            ["verb=ibv_alloc_pd stack=a nth=1 errno=ENOMEM", "verb=ibv_alloc_pd stack=b nth=1 errno=ENOMEM"]
        );
    }

    #[test]
    fn each_status_once_and_later_requests_once() {
        let rules = rules(&[call(CallKind::Request, "SEND", "", 10)]);
        let statuses = statuses(EventOpcode::Send, true).count();
        assert!(statuses > 4, "{statuses}");
        assert_eq!(rules.len(), statuses + 2);
        assert_eq!(rules.iter().filter(|rule| rule.contains("nth=1 ")).count(), statuses);
        check(&rules);
        assert!(rules.last().is_some_and(|rule| rule.contains("nth=10 ")), "{rules:?}");
    }

    /// Each is a rule that the engine takes.
    fn check(rules: &[String]) {
        for rule in rules {
            pagewire_failures::Rules::parse(rule, "r").unwrap_or_else(|error| panic!("{rule}: {error}"));
        }
    }

    fn events_of(verbs: &[(&str, u64)]) -> Vec<String> {
        let calls: Vec<CallCount> =
            verbs.iter().map(|(verb, count)| call(CallKind::Call, verb, "a", *count)).collect();
        let events: Vec<String> = rules(&calls).into_iter().filter(|rule| rule.contains("event=")).collect();
        check(&events);
        events
    }

    #[test]
    fn events_are_those_that_the_program_could_notice() {
        let few = events_of(&[("ibv_open_device", 1), ("ibv_alloc_pd", 2)]);
        assert_eq!(
            few,
            [
                "verb=ibv_alloc_pd nth=2 event=IBV_EVENT_PORT_ERR",
                "verb=ibv_alloc_pd nth=2 event=IBV_EVENT_DEVICE_FATAL"
            ]
        );
        let pair = events_of(&[("ibv_create_cq", 1), ("ibv_create_qp", 1), ("ibv_post_recv", 3)]);
        assert_eq!(pair.len(), 3);
        assert_eq!(pair[2], "verb=ibv_post_recv nth=3 event=IBV_EVENT_QP_FATAL");
        let all = [
            ("ibv_create_cq_ex", 1),
            ("ibv_create_srq", 1),
            ("ibv_create_qp_ex", 1),
            ("ibv_post_srq_recv", 3),
            ("ibv_post_send", 4),
            ("ibv_get_async_event", 1),
        ];
        let all = events_of(&all);
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|rule| rule.starts_with("verb=ibv_post_send nth=1 ")), "{all:?}");
    }

    #[test]
    fn name_says_role_call_and_place() {
        let calls = [call(CallKind::Call, "ibv_reg_mr", "a", 1)];
        let plan = plan("client", &calls, |_| CallPlace::known("setup", "/src/main.c", 42));
        assert_eq!(plan[0].name(), "client:ibv_reg_mr#1=ENOMEM at main.c:42");
        assert_eq!(plan[1].name(), "client:ibv_reg_mr#1=IBV_EVENT_PORT_ERR at main.c:42");
    }
}
