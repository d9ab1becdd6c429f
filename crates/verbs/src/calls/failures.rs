//! Failures on demand (`pagewire run --fail`): the rules of `PAGEWIRE_FAIL`, asked at each call, work request and completion.
//!
//! [`pagewire_failures`] decides. Here are the observer that asks, the [`objects`] that rules name by their place, and what
//! [happens](apply) where a rule fires. [`settings`] has the environment.

pub mod apply;
pub mod completions;
mod log;
pub mod messages;
mod objects;
pub mod packets;
pub mod settings;
mod timed;
mod waker;

use crate::abi::*;
use crate::boundary::{Errno, Result};
use crate::calls::{Call, CallObserver, CallOutcome, MessageFate, stack};
use crate::objects::held::{HeldOverForks, LockOrder, epoch};
use crate::post::BUILT_FLUSH;
use objects::{EngineObject, Objects, RemoteQueuePair};
use pagewire_fabric::FabricRules;
use pagewire_failures::{
    Action, Counters, Decision, EventOpcode, FailureEvent, ObjectOrdinal, Point, Rules, Verb, WorkStatus,
};
use pagewire_nic::Status;
use pagewire_nic::attributes::QueuePairType;
use pagewire_wire::cm::CmMessage;
use settings::FailureSettings;
use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// What rules count, and the objects that they name. A child of a fork goes on counting; its parent's objects are not its own.
#[derive(Default)]
struct FailureState {
    counters: Option<Counters>,
    objects: Option<Objects>,
}

static STATE: HeldOverForks<FailureState> =
    HeldOverForks::new(LockOrder::Failures, FailureState { counters: None, objects: None }, |state| {
        // The engine's objects are the parent's: not even freed here.
        std::mem::forget(state.objects.take());
        if let (Some(counters), Some(rules)) = (&mut state.counters, rules()) {
            counters.begin_child(rules);
        }
    });

/// Something that happens once in a process. In a forked child, which is another one, it has not happened yet.
struct OnceInProcess(AtomicU32);

impl OnceInProcess {
    const fn new() -> Self {
        OnceInProcess(AtomicU32::new(0))
    }

    /// A number that no other process in the line of forks has.
    fn own() -> u32 {
        epoch() + 1
    }

    /// It happens; true: for the first time.
    fn is_first(&self) -> bool {
        self.0.swap(Self::own(), Ordering::Relaxed) != Self::own()
    }

    fn has_happened(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::own()
    }
}

/// The device was removed by a rule: verbs that make or change something give EIO.
static REMOVAL: OnceInProcess = OnceInProcess::new();

/// The settings, if the environment has rules that are right.
fn active() -> Option<&'static FailureSettings> {
    static SETTINGS: OnceLock<Option<FailureSettings>> = OnceLock::new();
    SETTINGS.get_or_init(|| FailureSettings::from_environment().ok().flatten()).as_ref()
}

/// The rules of this process, if there are any.
pub fn rules() -> Option<&'static Rules> {
    active().map(|settings| &settings.rules)
}

/// The observer of a process with rules.
pub fn observer() -> Option<Box<dyn CallObserver>> {
    active().map(|_| {
        log::write_at_exit();
        Box::new(FailureObserver) as Box<dyn CallObserver>
    })
}

/// Works with the objects.
fn with_objects<T>(work: impl FnOnce(&mut Objects) -> T) -> T {
    work(STATE.lock().objects.get_or_insert_default())
}

/// Counts an event, and collects the line of what fires. Locks of the engine may be held: [`log`] writes later.
fn decide(event: &FailureEvent<'_>) -> Option<Action> {
    let settings = active()?;
    let mut state = STATE.lock();
    let counters = state.counters.get_or_insert_default();
    let decision = settings.rules.decide(event, counters);
    if counters.take_end() {
        let bound = pagewire_failures::limits::MAX_COUNTERS;
        log::add_note(format!("the rules have ended: {bound} threads and queues are counted by themselves"));
    }
    let Decision { action, record } = decision?;
    log::add(&record);
    Some(action)
}

/// [`decide`] for events below which no lock of the engine is held.
fn decide_and_log(event: &FailureEvent<'_>) -> Option<Action> {
    let action = decide(event);
    log::write();
    action
}

/// The place of the calling thread among those that have called a verb.
fn own_thread() -> u32 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static OWN: Cell<Option<u32>> = const { Cell::new(None) };
    }
    OWN.get().unwrap_or_else(|| {
        let own = THREADS.fetch_add(1, Ordering::Relaxed);
        OWN.set(Some(own));
        own
    })
}

struct FailureObserver;

/// Whether a verb goes on after the device was removed: what gives back, posts, polls, and takes or acknowledges events.
fn works_without_device(verb: Verb) -> bool {
    match verb {
        Verb::FreeDeviceList
        | Verb::CloseDevice
        | Verb::DeallocPd
        | Verb::DeallocTd
        | Verb::FreeBuf
        | Verb::DeregMr
        | Verb::DeallocMw
        | Verb::FreeDm
        | Verb::UnimportPd
        | Verb::UnimportMr
        | Verb::UnimportDm
        | Verb::CloseXrcd
        | Verb::DestroyCompChannel
        | Verb::DestroyCompCntr
        | Verb::DestroyCq
        | Verb::DestroySrq
        | Verb::DestroyQp
        | Verb::DetachMcast
        | Verb::DestroyAh
        | Verb::RdmaDestroyId
        | Verb::RdmaWriteCmEvent
        | Verb::RdmaLeaveMulticast => true,
        Verb::PostSend | Verb::PostRecv | Verb::PostSrqRecv | Verb::BindMw => true,
        Verb::PollCq | Verb::StartPoll | Verb::NextPoll | Verb::EndPoll => true,
        Verb::ReadCompCntr | Verb::ReadErrCompCntr => true,
        Verb::GetCqEvent | Verb::AckCqEvents => true,
        Verb::GetAsyncEvent | Verb::AckAsyncEvent | Verb::RdmaGetCmEvent => true,
        Verb::GetDeviceList
        | Verb::OpenDevice
        | Verb::ImportDevice
        | Verb::ImportPd
        | Verb::ImportMr
        | Verb::ImportDm
        | Verb::QueryDevice
        | Verb::QueryDeviceEx
        | Verb::QueryRtValuesEx
        | Verb::QueryPort
        | Verb::QueryPortSpeed
        | Verb::QueryGid
        | Verb::QueryGidEx
        | Verb::QueryGidTable
        | Verb::QueryPkey
        | Verb::GetPkeyIndex
        | Verb::AllocPd
        | Verb::AllocTd
        | Verb::AllocParentDomain
        | Verb::RegMr
        | Verb::RegMrIova
        | Verb::RegMrEx
        | Verb::AllocBuf
        | Verb::AllocNullMr
        | Verb::ReregMr
        | Verb::AdviseMr
        | Verb::AllocMw
        | Verb::AllocDm
        | Verb::RegDmMr
        | Verb::OpenXrcd
        | Verb::CreateSrqEx
        | Verb::GetSrqNum
        | Verb::OpenQp
        | Verb::CreateCompChannel
        | Verb::QueryCompCntrCaps
        | Verb::CreateCompCntr
        | Verb::QpAttachCompCntr
        | Verb::SetCompCntr
        | Verb::SetErrCompCntr
        | Verb::IncCompCntr
        | Verb::IncErrCompCntr
        | Verb::CreateCq
        | Verb::CreateCqEx
        | Verb::ResizeCq
        | Verb::ModifyCq
        | Verb::ReqNotifyCq
        | Verb::CreateSrq
        | Verb::ModifySrq
        | Verb::QuerySrq
        | Verb::CreateQp
        | Verb::CreateQpEx
        | Verb::ModifyQp
        | Verb::QueryQp
        | Verb::QueryEce
        | Verb::SetEce
        | Verb::AttachMcast
        | Verb::CreateAh
        | Verb::InitAhFromWc
        | Verb::CreateAhFromWc
        | Verb::ResolveEthL2FromGid
        | Verb::RdmaCreateId
        | Verb::RdmaBindAddr
        | Verb::RdmaResolveAddr
        | Verb::RdmaResolveRoute
        | Verb::RdmaQueryRoute
        | Verb::RdmaConnect
        | Verb::RdmaListen
        | Verb::RdmaAccept
        | Verb::RdmaReject
        | Verb::RdmaDisconnect
        | Verb::RdmaInitQpAttr
        | Verb::RdmaSetOption
        | Verb::RdmaNotify
        | Verb::RdmaJoinMulticast
        | Verb::RdmaMigrateId => false,
    }
}

impl CallObserver for FailureObserver {
    fn message_fate(&self, message: &CmMessage, peer: IpAddr) -> MessageFate {
        messages::fate_of(message, peer)
    }

    fn fabric_rules(&self) -> FabricRules {
        packets::of_fabric()
    }

    fn delays_pages(&self) -> bool {
        packets::concern_pages()
    }

    fn begin(&self, call: Call) -> Result<()> {
        // The call at which the device goes still succeeds.
        let is_refused = REMOVAL.has_happened() && !works_without_device(call.verb);
        let thread = Some(own_thread());
        let object = with_objects(|objects| {
            objects.note_end_of(call);
            objects.ordinal_of(call)
        });
        let event = FailureEvent {
            thread,
            object,
            stack: &|| stack::capture().hash(),
            ..FailureEvent::at(Point::Call(call.verb))
        };
        let answer = match decide_and_log(&event) {
            None => Ok(()),
            Some(Action::Errno(error)) => Err(Errno(error)),
            Some(action) => {
                apply::apply(action, object, call);
                Ok(())
            }
        };
        if answer.is_ok() && is_refused {
            return Err(Errno(libc::EIO));
        }
        answer
    }

    fn end(&self, call: Call, outcome: CallOutcome) {
        log::write();
        with_objects(|objects| objects.note_outcome(call, outcome));
        let CallOutcome::Done(address) = outcome else { return };
        // The engine is not asked under the lock of the table, which completions take under locks of the engine.
        if let Some(made) = EngineObject::made_by(call.verb, address) {
            if let EngineObject::CompletionQueue(queue) = &made {
                completions::watch(queue);
            }
            with_objects(|objects| objects.add(address, made));
        }
        match call.verb {
            Verb::OpenDevice => {
                log::start_writer();
                rules().into_iter().for_each(timed::start);
            }
            Verb::ModifyQp => {
                if let Some(EngineObject::QueuePair(queue_pair)) =
                    with_objects(|objects| objects.at(call.object))
                {
                    let attributes = queue_pair.query();
                    let address = Ipv6Addr::from(attributes.address.destination_gid).to_canonical();
                    let peer = RemoteQueuePair { address, number: attributes.destination };
                    with_objects(|objects| objects.connect(call.object, peer));
                }
            }
            _ => {}
        }
    }

    fn send_request(
        &self,
        call: Call,
        request: &ibv_send_wr,
        kind: QueuePairType,
    ) -> std::result::Result<(), Status> {
        let Some(opcode) = opcode_of(request.opcode) else { return Ok(()) };
        let is_reliable = kind.is_reliable();
        failing(call, FailureEvent { opcode: Some(opcode), is_reliable, ..of_request(request.wr_id) })
    }

    fn receive_request(&self, call: Call, request: &ibv_recv_wr) -> std::result::Result<(), Status> {
        failing(call, FailureEvent { opcode: Some(EventOpcode::Recv), ..of_request(request.wr_id) })
    }
}

fn of_request(wr_id: u64) -> FailureEvent<'static> {
    FailureEvent { wr_id: Some(wr_id), ..FailureEvent::at(Point::Request) }
}

/// What becomes of a work request.
fn failing(call: Call, event: FailureEvent<'_>) -> std::result::Result<(), Status> {
    let (object, qp_num) = with_objects(|objects| (objects.ordinal_of(call), objects.number_of(call)));
    let event = FailureEvent { thread: Some(own_thread()), object, qp_num, ..event };
    match decide_and_log(&event) {
        None => Ok(()),
        Some(Action::Status(status)) => Err(status_of(status)),
        Some(action) => {
            apply::apply(action, object, call);
            Ok(())
        }
    }
}

fn status_of(status: WorkStatus) -> Status {
    match status {
        WorkStatus::LocalLength => Status::LocalLength,
        WorkStatus::LocalQpOperation => Status::LocalQpOperation,
        WorkStatus::LocalProtection => Status::LocalProtection,
        WorkStatus::Flushed => Status::Flushed,
        WorkStatus::WindowBind => Status::WindowBind,
        WorkStatus::BadResponse => Status::BadResponse,
        WorkStatus::RemoteInvalidRequest => Status::RemoteInvalidRequest,
        WorkStatus::RemoteAccess => Status::RemoteAccess,
        WorkStatus::RemoteOperation => Status::RemoteOperation,
        WorkStatus::RetryExceeded => Status::RetryExceeded,
        WorkStatus::RnrRetryExceeded => Status::RnrRetryExceeded,
    }
}

/// The opcode of a send request, as rules name it.
pub fn opcode_of(opcode: ibv_wr_opcode) -> Option<EventOpcode> {
    Some(match opcode {
        IBV_WR_SEND => EventOpcode::Send,
        IBV_WR_SEND_WITH_IMM => EventOpcode::SendWithImm,
        IBV_WR_SEND_WITH_INV => EventOpcode::SendWithInv,
        IBV_WR_RDMA_WRITE => EventOpcode::RdmaWrite,
        IBV_WR_RDMA_WRITE_WITH_IMM => EventOpcode::RdmaWriteWithImm,
        IBV_WR_RDMA_READ => EventOpcode::RdmaRead,
        IBV_WR_ATOMIC_CMP_AND_SWP => EventOpcode::AtomicCmpAndSwp,
        IBV_WR_ATOMIC_FETCH_AND_ADD => EventOpcode::AtomicFetchAndAdd,
        IBV_WR_ATOMIC_WRITE => EventOpcode::AtomicWrite,
        BUILT_FLUSH => EventOpcode::Flush,
        IBV_WR_BIND_MW => EventOpcode::BindMw,
        IBV_WR_LOCAL_INV => EventOpcode::LocalInv,
        _ => return None,
    })
}

/// The queue pair with this number, as rules name it.
pub fn queue_pair_with(number: u32) -> Option<ObjectOrdinal> {
    with_objects(|objects| objects.queue_pair_with(number))
}

/// The queue pair that is connected to this one, as rules name it.
fn queue_pair_connected_to(peer: RemoteQueuePair) -> Option<ObjectOrdinal> {
    with_objects(|objects| objects.queue_pair_connected_to(peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_back_works_without_a_device() {
        let works: Vec<_> = Verb::all().filter(|verb| works_without_device(*verb)).map(Verb::name).collect();
        for verb in ["ibv_detach_mcast", "rdma_leave_multicast", "ibv_dereg_mr", "ibv_poll_cq"] {
            assert!(works.contains(&verb), "{verb}");
        }
        for verb in
            ["ibv_attach_mcast", "ibv_query_port", "ibv_reg_mr", "ibv_alloc_buf", "ibv_get_pkey_index"]
        {
            assert!(!works.contains(&verb), "{verb}");
        }
    }

    #[test]
    fn what_happened_in_a_parent_has_not_happened_in_its_child() {
        static THING: OnceInProcess = OnceInProcess::new();
        assert!(!THING.has_happened());
        assert!(THING.is_first() && !THING.is_first() && THING.has_happened());
        // What a child inherits: the number of its parent.
        THING.0.store(OnceInProcess::own() - 1, Ordering::Relaxed);
        assert!(!THING.has_happened() && THING.is_first());
    }
}
