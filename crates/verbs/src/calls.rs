//! Who observes the calls of verbs: failures on demand, for example. Nobody does unless the environment asks for it.
//!
//! The edge to C ([`boundary`](crate::boundary)) asks [`are_observed`], one load, and only then calls [`observed`]. The verbs that programs
//! call by the tables of a context ask nothing: [`fast`] has other functions for the tables of a process with observers.

mod counts;
pub mod failures;
pub mod fast;
mod observers;
pub mod stack;

use crate::abi::{ibv_recv_wr, ibv_send_wr, ibv_wc};
use crate::boundary::{Errno, Result, guarded, set_errno};
use libc::c_int;
use pagewire_fabric::FabricRules;
use pagewire_failures::Verb;
use pagewire_memory::Uncancelled;
use pagewire_nic::Status;
use pagewire_nic::attributes::QueuePairType;
use pagewire_wire::cm::CmMessage;
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A call of a verb by the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    /// The address of the structure that the verb is called on, or makes something from, as the program gave it; 0: none, or NULL.
    /// Nothing has checked it before the verb runs.
    pub object: usize,
    /// The address of the list that a verb posts, or of where a verb that takes an event puts it; the number of events that are acknowledged.
    /// 0: of all other verbs.
    pub operand: usize,
}

impl Call {
    /// A call with this object.
    pub fn on<T>(verb: Verb, object: *const T) -> Self {
        Call { verb, object: object as usize, operand: 0 }
    }

    /// The call with this operand.
    pub fn with(self, operand: usize) -> Self {
        Call { operand, ..self }
    }
}

impl From<Verb> for Call {
    fn from(verb: Verb) -> Self {
        Call { verb, object: 0, operand: 0 }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// It succeeded, and gave this: a number, or the address of what it made.
    Done(usize),
    /// It failed, or was refused before it began.
    Failed(Errno),
}

/// Who observes calls. All methods run in the thread that calls the verb, and may not call a verb that is to be observed.
pub trait CallObserver: Send + Sync {
    /// A call begins.
    ///
    /// # Errors
    /// The call fails with this, and has no effect. Other observers see it begin and end all the same.
    fn begin(&self, call: Call) -> Result<()> {
        let _ = call;
        Ok(())
    }

    /// A call ended.
    fn end(&self, call: Call, outcome: CallOutcome) {
        let _ = (call, outcome);
    }

    /// A posting verb has failed: the request at this address was refused, with all behind it in the list. The call has ended.
    fn refused(&self, call: Call, request: usize) {
        let _ = (call, request);
    }

    /// A send request of a list is about to be posted.
    ///
    /// # Errors
    /// The request fails with this status when its turn comes, and does nothing.
    fn send_request(
        &self,
        call: Call,
        request: &ibv_send_wr,
        kind: QueuePairType,
    ) -> std::result::Result<(), Status> {
        let _ = (call, request, kind);
        Ok(())
    }

    /// A receive request of a list is about to be posted.
    ///
    /// # Errors
    /// The message that takes it fails with this status: `LocalLength` or `LocalProtection`.
    fn receive_request(&self, call: Call, request: &ibv_recv_wr) -> std::result::Result<(), Status> {
        let _ = (call, request);
        Ok(())
    }

    /// The program got this completion, by a call of a polling verb on its completion queue.
    fn polled(&self, call: Call, completion: &ibv_wc) {
        let _ = (call, completion);
    }

    /// What becomes of a message of the connection manager to this address.
    fn message_fate(&self, message: &CmMessage, peer: IpAddr) -> MessageFate {
        let _ = (message, peer);
        MessageFate::Leaves
    }

    /// What the fabric asks about packets and pages. Called once, when the engine starts.
    fn fabric_rules(&self) -> FabricRules {
        FabricRules::default()
    }

    /// Whether threads bring in all absent pages, so that each can be late.
    fn delays_pages(&self) -> bool {
        false
    }
}

/// What becomes of a message of the connection manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFate {
    Leaves,
    Lost,
    /// It is answered as by a host that knows neither the service nor the connection.
    Refused,
    Late(Duration),
}

/// What the observers make of a message to an address: the first that does not let it go decides.
pub fn message_fate(message: &CmMessage, peer: IpAddr) -> MessageFate {
    if !has_observers() {
        return MessageFate::Leaves;
    }
    let fates =
        all().iter().map(|observer| answer(MessageFate::Leaves, || observer.message_fate(message, peer)));
    fates.fold(MessageFate::Leaves, |fate, next| if fate == MessageFate::Leaves { next } else { fate })
}

/// What the observers want the fabric to ask.
pub fn fabric_rules() -> FabricRules {
    let rules = all().iter().map(|observer| answer(FabricRules::default(), || observer.fabric_rules()));
    rules.fold(FabricRules::default(), |rules, next| FabricRules {
        packets: rules.packets.or(next.packets),
        pages: rules.pages.or(next.pages),
    })
}

/// Whether threads bring in all absent pages.
pub fn delays_pages() -> bool {
    all().iter().any(|observer| answer(false, || observer.delays_pages()))
}

/// What an observer says, or `instead` where it panics (a defect of Pagewire, which the panic's message tells): the call goes on without it.
fn answer<T>(instead: T, ask: impl FnOnce() -> T) -> T {
    guarded(|| Ok(ask())).unwrap_or(instead)
}

/// Nobody has called a verb yet, so that the environment was not looked at.
const UNDECIDED: u8 = 1;
const UNOBSERVED: u8 = 0;
const OBSERVED: u8 = 2;

static OBSERVATION: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Whether anybody may observe calls; a load.
#[inline(always)]
pub fn are_observed() -> bool {
    OBSERVATION.load(Ordering::Relaxed) != UNOBSERVED
}

/// Whether the environment was looked at: before, no verb was called.
pub fn are_decided() -> bool {
    OBSERVATION.load(Ordering::Relaxed) != UNDECIDED
}

/// The observers of this process; the first call makes them.
fn all() -> &'static [Box<dyn CallObserver>] {
    #[cfg(test)]
    if let Some(observers) = tests::OBSERVERS.get() {
        return observers;
    }
    let all = observers::of_process();
    OBSERVATION.store(if all.is_empty() { UNOBSERVED } else { OBSERVED }, Ordering::Relaxed);
    all
}

/// Whether this process has observers; looks at the environment if nobody has yet.
pub fn has_observers() -> bool {
    are_observed() && !all().is_empty()
}

thread_local! {
    /// Verbs that the thread is in. What the library calls below a verb of the program is no call of the program.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Ends a level of verbs.
struct Level;

impl Level {
    /// Whether the thread was in no verb, if there is a level.
    fn enter() -> (Self, bool) {
        let before = DEPTH.replace(DEPTH.get() + 1);
        (Level, before == 0)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether the thread is in a verb that the program has called.
fn is_in_verb() -> bool {
    DEPTH.get() > 0
}

/// Tells the observers that a call begins; the error of the first that refuses it.
pub fn begin(call: Call) -> Result<()> {
    let mut answer = Ok(());
    for observer in all() {
        let own = guarded(|| observer.begin(call));
        answer = answer.and(own);
    }
    answer
}

/// Tells the observers how a call ended.
pub fn end(call: Call, outcome: CallOutcome) {
    for observer in all() {
        answer((), || observer.end(call, outcome));
    }
}

/// Tells the observers that a request was refused, with all behind it in the list.
fn tell_refused(call: Call, request: usize) {
    let _uncancelled = Uncancelled::begin();
    for observer in all() {
        answer((), || observer.refused(call, request));
    }
}

/// Tells the observers of a completion that the program gets.
fn tell_polled(call: Call, completion: &ibv_wc) {
    for observer in all() {
        answer((), || observer.polled(call, completion));
    }
}

/// The status with which the observers have a send request fail.
fn failing_send(call: Call, request: &ibv_send_wr, kind: QueuePairType) -> Option<Status> {
    all().iter().find_map(|observer| answer(Ok(()), || observer.send_request(call, request, kind)).err())
}

/// The status with which the observers have a receive request fail.
fn failing_receive(call: Call, request: &ibv_recv_wr) -> Option<Status> {
    all().iter().find_map(|observer| answer(Ok(()), || observer.receive_request(call, request)).err())
}

/// Runs a verb between [`begin`] and [`end`], unless the thread is in a verb already. `value` is what the observers see of a result.
#[cold]
#[inline(never)]
pub fn observed<T>(call: Call, value: fn(&T) -> usize, verb: impl FnOnce() -> Result<T>) -> Result<T> {
    // Observers do I/O.
    let _uncancelled = Uncancelled::begin();
    let (_level, is_outermost) = Level::enter();
    if !is_outermost {
        return verb();
    }
    let result = begin(call).and_then(|()| verb());
    let outcome = match &result {
        Ok(done) => CallOutcome::Done(value(done)),
        Err(error) => CallOutcome::Failed(*error),
    };
    end(call, outcome);
    result
}

/// [`observed`] of verbs that sleep for an event: -1 with `errno` set where they fail. The sleep is a cancellation point, and nothing in this
/// frame has to be dropped then: the call has no end.
#[cold]
#[inline(never)]
pub fn observed_sleep(call: Call, verb: impl FnOnce() -> c_int) -> c_int {
    if let Err(error) = begin_sleep(call) {
        end_sleep(call, CallOutcome::Failed(error));
        set_errno(error.0);
        return -1;
    }
    let answer = verb();
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    end_sleep(
        call,
        if answer < 0 { CallOutcome::Failed(Errno(error)) } else { CallOutcome::Done(answer as usize) },
    );
    set_errno(error);
    answer
}

/// [`begin`], without what would be in the frame of a thread that sleeps.
fn begin_sleep(call: Call) -> Result<()> {
    let _uncancelled = Uncancelled::begin();
    let _level = Level::enter();
    begin(call)
}

/// [`end`], as [`begin_sleep`].
fn end_sleep(call: Call, outcome: CallOutcome) {
    let _uncancelled = Uncancelled::begin();
    let _level = Level::enter();
    end(call, outcome);
}

/// [`observed`] of verbs that give nothing: a rule that refuses one has no effect.
#[cold]
#[inline(never)]
pub fn observed_always(call: Call, verb: impl FnOnce()) {
    let _uncancelled = Uncancelled::begin();
    let (_level, is_outermost) = Level::enter();
    if is_outermost {
        if let Err(Errno(error)) = begin(call) {
            log::debug!("{} cannot be refused ({error})", call.verb.name());
        }
    }
    verb();
    if is_outermost {
        end(call, CallOutcome::Done(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::ibv_cq;
    use crate::boundary::nothing;
    use libc::EIO;

    thread_local! {
        /// The observers of a test, in place of those of the process.
        pub(super) static OBSERVERS: Cell<Option<&'static [Box<dyn CallObserver>]>> = const { Cell::new(None) };
    }

    /// A defect in each of its answers.
    struct Panicking;

    impl CallObserver for Panicking {
        fn begin(&self, _: Call) -> Result<()> {
            panic!("a defect")
        }
        fn end(&self, _: Call, _: CallOutcome) {
            panic!("a defect")
        }
        fn refused(&self, _: Call, _: usize) {
            panic!("a defect")
        }
        fn send_request(
            &self,
            _: Call,
            _: &ibv_send_wr,
            _: QueuePairType,
        ) -> std::result::Result<(), Status> {
            panic!("a defect")
        }
        fn receive_request(&self, _: Call, _: &ibv_recv_wr) -> std::result::Result<(), Status> {
            panic!("a defect")
        }
        fn polled(&self, _: Call, _: &ibv_wc) {
            panic!("a defect")
        }
        fn message_fate(&self, _: &CmMessage, _: IpAddr) -> MessageFate {
            panic!("a defect")
        }
        fn fabric_rules(&self) -> FabricRules {
            panic!("a defect")
        }
        fn delays_pages(&self) -> bool {
            panic!("a defect")
        }
    }

    #[test]
    fn panics_of_observers_do_not_reach_the_program() {
        OBSERVERS.set(Some(Box::leak(Box::new([Box::new(Panicking) as Box<dyn CallObserver>]))));
        // The tables of a context: the call is refused before it looks at the object.
        let queue = std::ptr::null_mut::<ibv_cq>();
        // SAFETY: a verb that is refused before it begins does not look at what it is called on.
        unsafe {
            assert_eq!(fast::poll_cq(queue, 1, std::ptr::null_mut()), -EIO);
            assert_eq!(fast::req_notify_cq(queue, 0), EIO);
            assert_eq!(fast::start_poll(queue.cast(), std::ptr::null_mut()), EIO);
            assert_eq!(
                fast::post_send(std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut()),
                EIO
            );
            assert_eq!(
                fast::post_recv(std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut()),
                EIO
            );
        }
        // Verbs that sleep, and those that cannot be refused.
        assert_eq!(observed_sleep(Verb::GetCqEvent.into(), || 0), -1);
        OBSERVATION.store(OBSERVED, Ordering::Relaxed);
        let mut is_done = false;
        nothing(Verb::AckCqEvents, || is_done = true);
        assert!(is_done, "it cannot be refused");
        // What observers are told, or asked, below a verb.
        // SAFETY: all members of the three are numbers and pointers.
        let (completion, send, receive) = unsafe { std::mem::zeroed::<(ibv_wc, ibv_send_wr, ibv_recv_wr)>() };
        let call = Verb::PostSend.into();
        tell_polled(call, &completion);
        tell_refused(call, 0);
        assert!(failing_send(call, &send, QueuePairType::Rc).is_none());
        assert!(failing_receive(call, &receive).is_none());
        assert!(!delays_pages() && fabric_rules().packets.is_none());
        assert_eq!(DEPTH.get(), 0);
        OBSERVERS.set(None);
    }

    #[test]
    fn inner_verbs_are_no_calls_of_the_program() {
        let (outer, is_outermost) = Level::enter();
        assert!(is_outermost);
        assert!(!Level::enter().1);
        drop(outer);
        assert!(Level::enter().1);
    }
}
