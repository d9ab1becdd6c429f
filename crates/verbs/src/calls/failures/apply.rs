//! What happens where a rule fires, besides what the caller itself makes of it.

use crate::calls::Call;
use crate::calls::failures::objects::EngineObject;
use crate::calls::failures::waker::{self, Waker};
use crate::calls::failures::{REMOVAL, log, with_objects};
use pagewire_failures::checks::object_of_event;
use pagewire_failures::{Action, ObjectOrdinal, RuleEvent};
use pagewire_nic::AsyncEventKind;
use std::time::Duration;

/// Does what an action says at a call or work request on this object. No lock is held.
pub fn apply(action: Action, object: Option<ObjectOrdinal>, call: Call) {
    match end_or_stop(action) {
        None => {}
        Some(Action::Event(event)) => raise(event, object),
        Some(other) => ::log::debug!("{other} does nothing at {}", call.verb.name()),
    }
}

/// Raises an asynchronous event, with what goes with it. About `object`, if that is of the event's kind; else about the first of its kind.
pub fn raise(event: RuleEvent, object: Option<ObjectOrdinal>) {
    let wanted = object_of_event(event).map(|kind| match object {
        Some(object) if object.kind == kind => object,
        _ => ObjectOrdinal { kind, ordinal: 0 },
    });
    // Not under the lock of the table, which completions take under locks of the engine.
    let objects = with_objects(|objects| objects.engine_objects(wanted));
    if event == RuleEvent::DeviceFatal {
        REMOVAL.is_first();
    }
    // The device first: what its end does to queue pairs raises events of theirs.
    let is_context = |object: &&EngineObject| matches!(object, EngineObject::Context(_));
    let others = objects.iter().filter(|object| !is_context(object));
    for object in objects.iter().filter(is_context).chain(others) {
        raise_about(event, object);
    }
    if event == RuleEvent::SharedReceiveQueueError {
        let queue_pairs = with_objects(|objects| objects.engine_objects(None));
        end_users(&objects, &queue_pairs);
    }
}

fn raise_about(event: RuleEvent, object: &EngineObject) {
    match (event, object) {
        (RuleEvent::PortError, EngineObject::Context(context)) => context.set_port_active(false),
        (RuleEvent::PortActive, EngineObject::Context(context)) => context.set_port_active(true),
        (RuleEvent::GidChange, EngineObject::Context(context)) => context.raise_gid_change(),
        (RuleEvent::DeviceFatal, EngineObject::Context(context)) => context.raise_device_fatal(),
        (RuleEvent::DeviceFatal, EngineObject::QueuePair(queue_pair)) => {
            log_refusal(queue_pair.fail(None));
        }
        (RuleEvent::QueuePairFatal, EngineObject::QueuePair(queue_pair)) => {
            log_refusal(queue_pair.fail(Some(AsyncEventKind::QueuePairFatal)));
        }
        // A queue pair with a shared receive queue that goes to the error state raises it itself.
        (RuleEvent::LastWorkRequestReached, EngineObject::QueuePair(queue_pair)) if queue_pair.has_srq() => {
            log_refusal(queue_pair.fail(None));
        }
        (RuleEvent::CompletionQueueError, EngineObject::CompletionQueue(queue)) => queue.fail(),
        (RuleEvent::SharedReceiveQueueError, EngineObject::SharedReceiveQueue(queue)) => {
            queue.raise(AsyncEventKind::SharedReceiveQueueError);
        }
        (RuleEvent::SharedReceiveQueueLimitReached, EngineObject::SharedReceiveQueue(queue)) => {
            queue.raise(AsyncEventKind::SharedReceiveQueueLimitReached);
        }
        _ => {}
    }
}

/// Queue pairs that take receives from a queue that has failed go to the error state.
fn end_users(failed: &[EngineObject], all: &[EngineObject]) {
    for object in all {
        let EngineObject::QueuePair(queue_pair) = object else { continue };
        let uses = |queue: &EngineObject| match queue {
            EngineObject::SharedReceiveQueue(queue) => queue_pair.takes_from(queue),
            _ => false,
        };
        if failed.iter().any(uses) {
            log_refusal(queue_pair.fail(None));
        }
    }
}

fn log_refusal(done: pagewire_nic::Result<()>) {
    if let Err(error) = done {
        ::log::warn!("a rule could not end a queue pair: {error}");
    }
}

/// Kills or stops the process where an action says so; gives other actions back.
pub fn end_or_stop(action: Action) -> Option<Action> {
    match action {
        Action::Kill => kill(),
        Action::Stop(pause) => stop(pause),
        other => return Some(other),
    }
    None
}

fn kill() {
    log::write_all();
    // SAFETY: kill(2) of this very process has no preconditions.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Stops the process; after `pause` nanoseconds it goes on, if there is a pause. It is not stopped where nobody could have it go on.
fn stop(pause: Option<u64>) {
    log::write_all();
    let stopped = match pause {
        None => {
            waker::stop_own_process();
            Ok(())
        }
        Some(pause) => Waker::start(Duration::from_nanos(pause)).map(Waker::stop_until_woken),
    };
    if let Err(error) = stopped {
        log::add_note(format!(
            "the process is not stopped: no process could be made that has it go on: {error}"
        ));
    }
}
