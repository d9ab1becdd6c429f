//! Tells the checker of each call.

use super::arguments::{
    context_of, details_of, ends, is_on_known_object, kind_made, receive_request, region_details,
    send_request, state_of,
};
use super::contents::{content_of, sum_of};
use super::places::CallPlace;
use super::report::is_overrun;
use super::{CHECKER, CheckSettings};
use crate::abi::*;
use crate::boundary::{Errno, Result};
use crate::calls::{Call, CallObserver, CallOutcome};
use crate::runtime::explain::state_name;
use crate::work_requests::max_elements;
use libc::EINVAL;
use pagewire_checker::{Checker, Content, NewObject, ObjectKind, PolledCompletion, Use};
use pagewire_failures::Verb;
use pagewire_nic::attributes::QpState;
use pagewire_nic::limits::MAX_WORK_REQUESTS;

/// The observer that checks.
pub struct CheckObserver {
    /// Whether the source bytes of requests are summed up.
    checks_buffers: bool,
}

impl CheckObserver {
    /// The observer, if the environment asks for a check.
    pub fn of_process() -> Option<Self> {
        CheckSettings::of_process().map(|settings| CheckObserver { checks_buffers: settings.buffers })
    }
}

fn used(call: Call) -> Use {
    Use { verb: call.verb.name(), address: call.object }
}

impl CallObserver for CheckObserver {
    fn begin(&self, call: Call) -> Result<()> {
        let mut checker = CHECKER.lock();
        if is_on_known_object(call.verb) && !checker.check_use(used(call), &CallPlace::here) {
            return Err(Errno(EINVAL));
        }
        if ends(call.verb) {
            begin_end(&mut checker, call);
        }
        match call.verb {
            // SAFETY: the program posts a valid list (ibv_post_send(3)).
            Verb::PostSend => unsafe { post_sends(&mut checker, call, self.checks_buffers) },
            // SAFETY: the program posts a valid list (ibv_post_recv(3), ibv_post_srq_recv(3)).
            Verb::PostRecv | Verb::PostSrqRecv => unsafe { post_receives(&mut checker, call) },
            Verb::AckCqEvents => checker.acknowledged(call.object, call.operand as u64),
            // SAFETY: the event is one that the program was given (ibv_ack_async_event(3)).
            Verb::AckAsyncEvent => checker.acknowledged(unsafe { subject_of(call.object) }, 1),
            _ => {}
        }
        Ok(())
    }

    fn end(&self, call: Call, outcome: CallOutcome) {
        if call.verb.polls() {
            return;
        }
        let mut checker = CHECKER.lock();
        match outcome {
            CallOutcome::Done(value) => done(&mut checker, call, value),
            CallOutcome::Failed(_) => failed(&mut checker, call),
        }
    }

    fn refused(&self, call: Call, request: usize) {
        let mut checker = CHECKER.lock();
        // SAFETY: the list is the program's, which is in the call that posts it.
        unsafe {
            if call.verb == Verb::PostSend {
                each(
                    request as *const ibv_send_wr,
                    |wr| wr.next,
                    |wr| checker.withdraw_send(call.object, wr.wr_id),
                );
            } else {
                each(
                    request as *const ibv_recv_wr,
                    |wr| wr.next,
                    |wr| {
                        checker.withdraw_receive(call.object, wr.wr_id);
                    },
                );
            }
        }
    }

    fn polled(&self, call: Call, completion: &ibv_wc) {
        let completed = PolledCompletion {
            wr_id: completion.wr_id,
            queue_pair: completion.qp_num,
            is_receive: completion.opcode & IBV_WC_RECV != 0,
            is_remote_access_error: completion.status == IBV_WC_REM_ACCESS_ERR,
            is_success: completion.status == IBV_WC_SUCCESS,
            is_flushed: completion.status == IBV_WC_WR_FLUSH_ERR,
        };
        let sum_now = |content: &Content<CallPlace>| sum_of(&content.parts);
        CHECKER.lock().completed(used(call), completed, &sum_now, &CallPlace::here);
    }
}

/// A call begins that ends its object.
fn begin_end(checker: &mut Checker<CallPlace>, call: Call) {
    // SAFETY: the program gives NULL or an object that has not ended (the manual pages of the verbs), and the checker has refused one that has.
    unsafe {
        if call.verb == Verb::DestroyQp && is_overrun(call.object) {
            checker.overrun(used(call), &CallPlace::here);
        }
    }
    if call.verb == Verb::DeregMr {
        let uses_buffers = |address| {
            // SAFETY: the checker knows the queue pair as one that no call has begun to end; such a call waits for the checker's lock, which
            // this thread has.
            let state = unsafe { state_of(address) };
            state.is_some_and(|state| !matches!(state, QpState::Reset | QpState::Error))
        };
        checker.deregistering(used(call), &uses_buffers, &CallPlace::here);
    }
    checker.ending(call.object);
}

/// A call succeeded, and gave `value`.
fn done(checker: &mut Checker<CallPlace>, call: Call, value: usize) {
    if let Some(kind) = kind_made(call.verb) {
        // SAFETY: the verb made an object of this kind there, and the program has not got it yet.
        let (context, details) = unsafe { (context_of(kind, value), details_of(kind, value)) };
        let place = CallPlace::here();
        let outlives = is_of_connection_manager(kind, &place);
        checker.made(value, NewObject { kind, verb: call.verb.name(), context, place, details });
        if outlives {
            checker.expect_left(value);
        }
    } else if ends(call.verb) {
        checker.ended(used(call), CallPlace::here());
    }
    match call.verb {
        Verb::ModifyQp => {
            // SAFETY: the program has called the verb on a queue pair that has not ended.
            let state = unsafe { state_of(call.object) };
            if state == Some(QpState::Reset) {
                checker.reset(call.object);
            }
        }
        Verb::ReregMr => reregistered(checker, call),
        Verb::ResizeCq => {
            // SAFETY: the program has called the verb on a completion queue that has not ended.
            let entries = unsafe { (*(call.object as *const ibv_cq)).cqe };
            checker.resized(call.object, u32::try_from(entries).unwrap_or(0));
        }
        Verb::GetCqEvent => {
            // SAFETY: the verb has written the queue of the event there.
            let address = unsafe { *(call.operand as *const *mut ibv_cq) } as usize;
            checker.event_taken(Use { verb: call.verb.name(), address }, &CallPlace::here);
        }
        Verb::GetAsyncEvent => {
            // SAFETY: the verb has written the event there.
            let address = unsafe { subject_of(call.operand) };
            checker.event_taken(Use { verb: call.verb.name(), address }, &CallPlace::here);
        }
        _ => {}
    }
}

/// A call failed.
fn failed(checker: &mut Checker<CallPlace>, call: Call) {
    if ends(call.verb) {
        return checker.not_ended(call.object);
    }
    match call.verb {
        // Its keys are dead even so.
        Verb::ReregMr => reregistered(checker, call),
        Verb::PostSend | Verb::PostRecv if checker.is_live(call.object) => {
            // SAFETY: the checker knows the queue pair as one that no call has begun to end; such a call waits for the checker's lock, which this thread has.
            let state = unsafe { state_of(call.object) };
            let refuses = match state {
                Some(QpState::Init | QpState::ReadyToReceive) => call.verb == Verb::PostSend,
                Some(QpState::Reset) => true,
                _ => false,
            };
            if let (true, Some(state)) = (refuses, state) {
                checker.refused_in(used(call), state_name(state), &CallPlace::here);
            }
        }
        _ => {}
    }
}

fn reregistered(checker: &mut Checker<CallPlace>, call: Call) {
    if !checker.is_live(call.object) {
        return;
    }
    // SAFETY: the checker knows the region as one that no call has begun to end; such a call waits for the checker's lock, which this thread has.
    if let Some(now) = unsafe { region_details(call.object) } {
        checker.reregistered(used(call), now, CallPlace::here());
    }
}

/// librdmacm opens devices and allocates a protection domain for each, and keeps them as long as the process lives. They are not the program's.
fn is_of_connection_manager(kind: ObjectKind, place: &CallPlace) -> bool {
    matches!(kind, ObjectKind::Context | ObjectKind::ProtectionDomain)
        && place.frames().first().is_some_and(|frame| {
            frame.module.rsplit('/').next().is_some_and(|name| name.starts_with("librdmacm"))
        })
}

/// The address of the object that an asynchronous event is of; 0: of a port or a device.
///
/// # Safety
/// The address is 0 or that of an event that the program was given.
unsafe fn subject_of(address: usize) -> usize {
    // SAFETY: the caller promises that the address is NULL or that of an event that the program was given.
    let Some(event) = (unsafe { (address as *const ibv_async_event).as_ref() }) else { return 0 };
    // SAFETY: the kind of event says which member of the union was written.
    unsafe {
        match event.event_type {
            IBV_EVENT_CQ_ERR => event.element.cq as usize,
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => event.element.qp as usize,
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => event.element.srq as usize,
            _ => 0,
        }
    }
}

/// Calls a function with each request of a list, up to the number that one queue may hold: the verb refuses what is behind them.
///
/// # Safety
/// The list is valid, to its end.
unsafe fn each<W>(first: *const W, next: impl Fn(&W) -> *mut W, mut with: impl FnMut(&W)) {
    let mut place = first;
    for _ in 0..=MAX_WORK_REQUESTS {
        // SAFETY: the caller promises a valid list: each element is valid and the last one's `next` is NULL.
        let Some(request) = (unsafe { place.as_ref() }) else { return };
        with(request);
        place = next(request);
    }
}

/// # Safety
/// The call's operand is a valid list.
unsafe fn post_sends(checker: &mut Checker<CallPlace>, call: Call, with_contents: bool) {
    // SAFETY: the program gives NULL or a queue pair (ibv_post_send(3)), and the checker has refused one that has ended.
    let most = unsafe { max_elements(call) };
    let post = |wr: &ibv_send_wr| {
        // SAFETY: the caller promises a valid list.
        let mut request = unsafe { send_request(wr, most) };
        if with_contents {
            // SAFETY: the caller promises a valid list.
            request.content = unsafe { content_of(checker, wr, most) };
        }
        checker.post_send(used(call), request, &CallPlace::here);
    };
    // SAFETY: the caller promises a valid list.
    unsafe { each(call.operand as *const ibv_send_wr, |wr| wr.next, post) };
}

/// # Safety
/// The call's operand is a valid list.
unsafe fn post_receives(checker: &mut Checker<CallPlace>, call: Call) {
    // SAFETY: the program gives NULL or a queue (ibv_post_recv(3), ibv_post_srq_recv(3)), and the checker has refused one that has ended.
    let most = unsafe { max_elements(call) };
    let post = |wr: &ibv_recv_wr| {
        // SAFETY: the caller promises a valid list.
        checker.post_receive(used(call), unsafe { receive_request(wr, most) }, &CallPlace::here);
    };
    // SAFETY: the caller promises a valid list.
    unsafe { each(call.operand as *const ibv_recv_wr, |wr| wr.next, post) };
}
