//! Which rules make sense, and which the InfiniBand specification forbids.

use crate::action::{Action, RuleEvent, WorkStatus};
use crate::event::{CmMessageKind, EventOpcode, ObjectKind, Point};
use crate::rule::{OpcodeSelector, Rule, When};

/// Whether a request with this opcode can end with that status, on a queue pair of some type (volume 1, section 10.10.3 and 11.6.2).
///
/// A receive fails where its buffer is too short or not to be written. What the peer answers, or does not, fails only what it is asked on a
/// reliable connection; see [`is_of_unreliable`].
pub fn status_fits(status: WorkStatus, opcode: EventOpcode) -> bool {
    use EventOpcode as Code;
    if status == WorkStatus::WindowBind || matches!(opcode, Code::BindMw | Code::LocalInv) {
        return status_fits_window(status, opcode);
    }
    match opcode {
        Code::Recv | Code::RecvRdmaWithImm => {
            matches!(status, WorkStatus::LocalLength | WorkStatus::LocalProtection)
        }
        Code::RdmaRead | Code::AtomicCmpAndSwp | Code::AtomicFetchAndAdd | Code::AtomicWrite => {
            status != WorkStatus::RnrRetryExceeded
        }
        // A FLUSH has no memory of its own.
        Code::Flush => !matches!(
            status,
            WorkStatus::RnrRetryExceeded | WorkStatus::LocalLength | WorkStatus::LocalProtection
        ),
        Code::RdmaWrite => !matches!(status, WorkStatus::RnrRetryExceeded | WorkStatus::BadResponse),
        Code::Send | Code::SendWithImm | Code::SendWithInv | Code::RdmaWriteWithImm => {
            // A SEND names no remote memory. A WRITE with immediate does.
            let names_memory = matches!(opcode, Code::RdmaWriteWithImm | Code::SendWithInv);
            (names_memory || status != WorkStatus::RemoteAccess) && status != WorkStatus::BadResponse
        }
        Code::RdmaReadResponse
        | Code::Acknowledge
        | Code::AtomicAcknowledge
        | Code::BindMw
        | Code::LocalInv => false,
    }
}

/// Whether a request can end so that a memory window is bound or invalidated by, which no peer sees.
fn status_fits_window(status: WorkStatus, opcode: EventOpcode) -> bool {
    match opcode {
        EventOpcode::BindMw => matches!(status, WorkStatus::WindowBind | WorkStatus::Flushed),
        EventOpcode::LocalInv => matches!(status, WorkStatus::LocalQpOperation | WorkStatus::Flushed),
        _ => false,
    }
}

/// Whether requests of UC and UD queue pairs, which no peer answers, can end with that status.
pub fn is_of_unreliable(status: WorkStatus) -> bool {
    matches!(
        status,
        WorkStatus::LocalLength
            | WorkStatus::LocalQpOperation
            | WorkStatus::LocalProtection
            | WorkStatus::Flushed
            | WorkStatus::WindowBind
    )
}

/// Whether an asynchronous event is about an object of this kind; `None`: about the port or the device.
pub fn object_of_event(event: RuleEvent) -> Option<ObjectKind> {
    match event {
        RuleEvent::PortError | RuleEvent::PortActive | RuleEvent::GidChange | RuleEvent::DeviceFatal => None,
        RuleEvent::QueuePairFatal | RuleEvent::LastWorkRequestReached => Some(ObjectKind::QueuePair),
        RuleEvent::CompletionQueueError => Some(ObjectKind::CompletionQueue),
        RuleEvent::SharedReceiveQueueError | RuleEvent::SharedReceiveQueueLimitReached => {
            Some(ObjectKind::SharedReceiveQueue)
        }
    }
}

/// Checks a rule.
///
/// # Errors
/// What does not go together, and what would.
pub(crate) fn check(rule: &Rule) -> Result<(), String> {
    check_action(rule)?;
    check_opcode(rule)?;
    check_selectors(rule)
}

fn check_action(rule: &Rule) -> Result<(), String> {
    let fits = match (rule.action, rule.point) {
        (Action::Errno(_), Point::Call(verb)) if verb.can_fail() => true,
        (Action::Errno(_), Point::Call(verb)) => {
            return Err(format!("{} returns nothing, and cannot fail", verb.name()));
        }
        (Action::Errno(_), _) => return Err("errno is of a call: add verb=NAME".into()),
        (Action::Status(_), point) => point == Point::Request,
        (Action::Delay(_), point) => {
            matches!(point, Point::Completion | Point::Packet | Point::Page | Point::Message)
        }
        (Action::Event(_), point) => matches!(point, Point::Call(_) | Point::Time),
        (Action::Packet(_) | Action::Nak(_), point) => point == Point::Packet,
        (Action::Lose, point) => matches!(point, Point::Packet | Point::Page | Point::Message),
        (Action::Reject, Point::Message) => {
            return match rule.message {
                Some(CmMessageKind::Req | CmMessageKind::SidrReq) => Ok(()),
                _ => Err("what is rejected is message=REQ or message=SIDR_REQ".into()),
            };
        }
        (Action::Reject, _) => false,
        (Action::Kill | Action::Stop(_), point) => point != Point::Page,
    };
    match fits {
        true => Ok(()),
        false if matches!(rule.action, Action::Status(_)) => {
            Err("status is of a work request: write on=request, or leave it away".into())
        }
        false => Err(format!("{} is nothing that happens on {}", rule.action, rule.point.word())),
    }
}

/// The opcode of a reliable connection's ACKNOWLEDGE in the BTH (IBA volume 1, table 38).
const BTH_ACKNOWLEDGE: u8 = 0x11;

fn check_opcode(rule: &Rule) -> Result<(), String> {
    let opcode = match rule.opcode {
        Some(OpcodeSelector::Name(name)) => Some(name),
        Some(OpcodeSelector::Number(_)) if rule.point != Point::Packet => {
            return Err("an opcode is a number only for packets: write its name".into());
        }
        _ => None,
    };
    if let Some(name) = opcode {
        let is_known = match rule.point {
            Point::Request => name.is_of_request(),
            Point::Completion => name.is_of_completion(),
            Point::Packet => name.is_of_packet(),
            // The selectors say so.
            _ => return Ok(()),
        };
        if !is_known {
            return Err(format!("no {} has the opcode {name}", rule.point.word()));
        }
    }
    if let (Action::Nak(_), Some(OpcodeSelector::Number(number))) = (rule.action, rule.opcode) {
        if number != BTH_ACKNOWLEDGE {
            return Err("a NAK takes the place of an ACKNOWLEDGE".into());
        }
    }
    match (rule.action, opcode) {
        (Action::Status(status), Some(opcode)) if !status_fits(status, opcode) => {
            Err(format!("the specification knows no {opcode} that ends with {status}"))
        }
        // Where the rule names no opcode it fires for those that may end so.
        (Action::Nak(_), Some(opcode)) if opcode != EventOpcode::Acknowledge => {
            Err("a NAK takes the place of an ACKNOWLEDGE".into())
        }
        _ => Ok(()),
    }
}

/// The selectors that events at a point have.
fn selectors_of(point: Point) -> Vec<&'static str> {
    let own: &[&str] = match point {
        Point::Call(_) => &["thread", "stack"],
        Point::Request => &["thread", "qp", "srq", "qp_num", "opcode", "wr_id"],
        Point::Completion => &["qp", "qp_num", "opcode", "wr_id"],
        Point::Packet => &["qp", "qp_num", "peer", "opcode", "psn"],
        Point::Page => &[],
        Point::Message => &["message", "peer"],
        // The objects of its event.
        Point::Time => &["qp", "cq", "srq"],
    };
    let object = match point {
        Point::Call(verb) => verb.object().map(Into::into),
        _ => None,
    };
    ["role"].into_iter().chain(own.iter().copied()).chain(object).collect()
}

/// The selectors of a rule.
fn selectors_in(rule: &Rule) -> impl Iterator<Item = &'static str> {
    [
        rule.thread.is_some().then_some("thread"),
        rule.stack.is_some().then_some("stack"),
        rule.wr_id.is_some().then_some("wr_id"),
        rule.psn.is_some().then_some("psn"),
        rule.qp_num.is_some().then_some("qp_num"),
        rule.object.map(|object| object.kind.into()),
        rule.opcode.is_some().then_some("opcode"),
        rule.message.is_some().then_some("message"),
        rule.peer.is_some().then_some("peer"),
    ]
    .into_iter()
    .flatten()
}

fn check_selectors(rule: &Rule) -> Result<(), String> {
    let point = rule.point;
    let known = selectors_of(point);
    if let Some(wrong) = selectors_in(rule).find(|selector| !known.contains(selector)) {
        let whose = match point {
            Point::Call(verb) => format!("calls of {} have", verb.name()),
            _ => format!("events on {} have", point.word()),
        };
        return Err(format!("{whose} no {wrong}: they are selected by {}", known.join(", ")));
    }
    if point == Point::Time && !matches!(rule.when, When::Always) {
        return Err("a time comes once: 'after' goes without nth, every and probability".into());
    }
    if let (Point::Call(verb), When::Every(_) | When::Probability(_)) = (point, rule.when) {
        if verb.polls() {
            let name = verb.name();
            return Err(format!(
                "{name} is called as often as the processor is fast: use on=completion, or nth"
            ));
        }
    }
    match (rule.action, rule.object) {
        (Action::Event(event), Some(object)) if object_of_event(event) != Some(object.kind) => {
            Err(format!("{event} is not about a {}", object.kind))
        }
        _ => Ok(()),
    }
}
