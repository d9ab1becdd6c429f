//! A queue pair as the program changes it: creation, state changes and the end.

use crate::api::completion::CompletionQueue;
use crate::progress::engine::Nic;
use crate::progress::qp_progress::{Driver, Turn};
use crate::queue_pair as state;
use crate::queue_pair::shared_receive::SharedReceiveQueue;
use crate::services::context::Context;
use crate::services::event::{Acknowledgements, AsyncEventKind};
use crate::services::protection::ProtectionDomain;
use crate::types::attributes::{Attributes, QpCapabilities, QpState, QueuePairChange, QueuePairType, check};
use crate::types::error::{Error, Result, invalid_if};
use crate::types::gid::address_of_gid;
use crate::types::limits::{
    MAX_INLINE, MAX_QUEUE_PAIR_NUMBER, MAX_READ_ATOMIC, MAX_SEGMENTS, MAX_WORK_REQUESTS,
};
use pagewire_fabric::Fabric;
use pagewire_transport::RefusalScope;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a queue pair is created with.
pub type QueuePairInit<F> = state::QueuePairInit<F, CompletionQueue<F>>;

/// A queue pair, and the engine that it is entered in.
pub struct QueuePair<F: Fabric> {
    engine: Arc<Nic<F>>,
    pub(crate) state: Arc<state::QueuePair<F>>,
}

impl<F: Fabric> QueuePair<F> {
    /// All queue pairs of an engine.
    pub fn all_of(nic: &Arc<Nic<F>>) -> Vec<Self> {
        let all = nic.queue_pairs.all().into_iter();
        all.map(|state| QueuePair { engine: nic.clone(), state }).collect()
    }

    /// `ibv_create_qp(3)`.
    pub fn create(domain: &Arc<ProtectionDomain<F>>, init: QueuePairInit<F>) -> Result<Arc<Self>> {
        let mut capabilities = init.capabilities;
        if init.srq.is_some() {
            // ibv_create_qp(3): ignored, whatever they are.
            (capabilities.max_recv_wr, capabilities.max_recv_sge) = (0, 0);
        }
        check_capabilities(&capabilities)?;
        // As adapters do, whose work requests have inline data in the place of segments. Some programs rely on it (rdma_xclient).
        capabilities.max_inline_data =
            capabilities.max_inline_data.max(capabilities.max_send_sge * SEGMENT_SIZE);
        let context = domain.context();
        let belongs = |other: &Arc<Context<F>>| Arc::ptr_eq(other, context);
        invalid_if(
            !belongs(init.send_cq.context())
                || !belongs(init.recv_cq.context())
                || init.srq.as_ref().is_some_and(|srq| !belongs(srq.context())),
            "the queues are of another context",
        )?;
        let engine = init.send_cq.engine.clone();
        let numbers = engine.queue_pairs.reserve(&engine.services)?;
        let state::QueuePairInit { kind, send_cq, recv_cq, srq, signal_all, xrc, .. } = init;
        let (send_cq, recv_cq) = (send_cq.binding.clone(), recv_cq.binding.clone());
        let init = state::QueuePairInit { kind, send_cq, recv_cq, srq, capabilities, signal_all, xrc };
        let state = state::QueuePair::new(domain.clone(), engine.paths.clone(), numbers, init);
        engine.queue_pairs.insert(state.properties.place, state.clone());
        Ok(Arc::new(QueuePair { engine, state }))
    }

    /// Queue pair number.
    pub fn number(&self) -> u32 {
        self.state.properties.number
    }

    /// Its type.
    pub fn kind(&self) -> QueuePairType {
        self.state.properties.kind
    }

    /// What fits.
    pub fn capabilities(&self) -> QpCapabilities {
        self.state.properties.capabilities
    }

    /// Whether every send request makes a completion.
    pub fn signals_all(&self) -> bool {
        self.state.properties.signal_all
    }

    /// State now.
    pub fn state(&self) -> QpState {
        self.state.state()
    }

    /// How often it was reset. Its requests end with each time.
    pub fn resets(&self) -> u32 {
        self.state.resets()
    }

    /// Whether messages that were begun before SQD are still under way (`sq_draining` of `ibv_query_qp(3)`).
    pub fn is_draining(&self) -> bool {
        self.state() == QpState::SendQueueDrain && !self.state.notes.drained.load(Ordering::Acquire)
    }

    /// What events name this queue pair by.
    pub fn set_cookie(&self, cookie: u64) {
        self.state.set_cookie(cookie);
    }

    /// What a request that the responder refuses ends, from the next connection (INIT to RTR) on. Both ends must have agreed on anything but
    /// [`RefusalScope::Connection`], which is what the specification says.
    pub fn set_refusal_scope(&self, scope: RefusalScope) {
        self.state.set_refusal_scope(scope);
    }

    /// Whether it raises events from now on. One that the program has no structure of raises none.
    pub fn set_silent(&self, is_silent: bool) {
        self.state.set_silent(is_silent);
    }

    /// Asynchronous events that the program was given (`ibv_ack_async_event(3)`).
    pub fn async_events(&self) -> &Acknowledgements {
        &self.state.async_events
    }

    /// Attributes now (`ibv_query_qp(3)`): whoever has seen a completion finds the state that came with it, as a thread that is just
    /// driving the queue pair is waited for, unless it is stuck at an absent page.
    pub fn query(&self) -> Attributes {
        let qpc = self.state.lock_qpc();
        let attributes = *self.state.shown.attributes.lock();
        drop(qpc);
        self.state.pass_on_pending();
        attributes
    }

    /// Takes back the asynchronous events that wait, and waits until those that the program was given are acknowledged.
    pub fn withdraw_events(&self) {
        self.state.domain.context().withdraw_events(&self.state.async_events);
    }

    /// Changes state or attributes (`ibv_modify_qp(3)`).
    pub fn modify(&self, change: &QueuePairChange) -> Result<()> {
        let result = self.change(change);
        // Also where it was refused: another thread may have left its work meanwhile.
        self.state.pass_on_pending();
        result
    }

    /// Whether it takes its receives from a shared receive queue.
    pub fn has_srq(&self) -> bool {
        self.state.receives.srq.is_some()
    }

    /// Whether it takes its receives from this queue.
    pub fn takes_from(&self, queue: &Arc<SharedReceiveQueue<F>>) -> bool {
        self.state.receives.srq.as_ref().is_some_and(|srq| Arc::ptr_eq(srq, queue))
    }

    /// Goes to the error state as after a fatal error of its own, as failures on demand want it; `event` is raised. One that is in RESET or in
    /// the error state stays so, without an event.
    ///
    /// # Errors
    /// `Busy`: a thread is at the queue pair, and stays.
    pub fn fail(&self, event: Option<AsyncEventKind>) -> Result<()> {
        let mut qpc = self.state.lock_qpc()?;
        if !matches!(self.state(), QpState::Reset | QpState::Error) {
            // Before what its end raises (IBV_EVENT_QP_LAST_WQE_REACHED).
            if let Some(kind) = event {
                self.state.raise(kind);
            }
            self.state.enter_error(&mut qpc);
        }
        drop(qpc);
        self.state.pass_on_pending();
        Ok(())
    }

    fn change(&self, change: &QueuePairChange) -> Result<()> {
        if change.state == Some(QpState::ReadyToReceive) {
            if self.state.properties.kind == QueuePairType::Ud {
                self.state.services.fabric.request_hop_info();
            }
            // From now on peers may send. What is lost or overtaken on its detour by another process RC sends again.
            if !self.state.properties.kind.is_reliable() {
                self.state.services.fabric.await_steering();
            }
            self.engine.drain_rx();
        }
        let mut qpc = self.state.lock_qpc()?;
        let mut attributes = qpc.attributes;
        let from = attributes.state;
        let to = check(self.state.properties.kind, from, change)?;
        self.check_values(change)?;
        if let Some(vector) = &change.address {
            let route = self.state.domain.context().port().route_to(vector)?;
            if from != QpState::Init {
                let now = self.state.domain.context().port().route_to(&attributes.address)?;
                qpc.readdress(&self.state, &now, &route)?;
            }
        }
        if matches!(to, QpState::Reset | QpState::Error) && qpc.owes_acknowledgement() {
            Turn::new(&self.state, &mut qpc).progress_last();
        }
        match to {
            QpState::Reset => {
                self.state.reset(&mut qpc);
                // As adapters do: what is polled from now on is of the queue pair's next life.
                self.state.send_cq.forget(self.state.properties.number);
                self.state.recv_cq.forget(self.state.properties.number);
                drop(qpc);
                return self.state.end_accesses();
            }
            QpState::Error => {
                // The last drive may have ended it.
                if qpc.attributes.state != QpState::Error {
                    self.state.enter_error(&mut qpc);
                }
                self.state.end_refusal(&mut qpc);
                drop(qpc);
                // Again after a call that was refused because an access did not end.
                return self.state.end_accesses();
            }
            _ => {}
        }
        let before = self.state.granted_by(&attributes);
        attributes.apply(change);
        if from == QpState::ReadyToSend && to == QpState::SendQueueDrain {
            // The wish to be told holds for one draining.
            attributes.drained_notify = change.drained_notify.unwrap_or(false);
            self.state.notes.drained.store(false, Ordering::Release);
        }
        if from == QpState::Init && to == QpState::ReadyToReceive {
            // A thread may have kept a packet of the former life when that was at its end.
            self.state.inbox.clear();
        }
        self.state.set_attributes(&mut qpc, attributes);
        if from == QpState::Init && to == QpState::ReadyToReceive {
            qpc.find_path(&self.state, &attributes);
        }
        qpc.refresh(&attributes);
        let withdraws = from.receives() && !(before - self.state.granted_by(&attributes)).is_empty();
        if withdraws {
            self.state.notes.withdrawals.fetch_add(1, Ordering::SeqCst);
        }
        drop(qpc);
        Driver(&self.state).run();
        // What local peers began by rights that were taken away; also after a call that was refused because it did not end.
        let repeats = from == to && (change.access.is_some() || change.max_dest_read_atomic.is_some());
        let until = self.state.notes.withdrawals.load(Ordering::SeqCst);
        if withdraws || repeats && self.state.notes.waited_for.load(Ordering::SeqCst) < until {
            self.state.wait_for_peers()?;
            self.state.notes.waited_for.fetch_max(until, Ordering::SeqCst);
        }
        Ok(())
    }

    fn check_values(&self, change: &QueuePairChange) -> Result<()> {
        invalid_if(change.port.is_some_and(|port| port != 1), "port number")?;
        invalid_if(change.pkey_index.is_some_and(|index| index != 0), "P_Key index")?;
        invalid_if(change.max_read_atomic.is_some_and(|n| n > MAX_READ_ATOMIC), "max_rd_atomic")?;
        invalid_if(change.max_dest_read_atomic.is_some_and(|n| n > MAX_READ_ATOMIC), "max_dest_rd_atomic")?;
        invalid_if(change.retry_count.is_some_and(|n| n > 7), "retry count")?;
        invalid_if(change.rnr_retry.is_some_and(|n| n > 7), "RNR retry count")?;
        invalid_if(change.min_rnr_timer.is_some_and(|n| n > 31), "minimal RNR timer")?;
        invalid_if(change.timeout.is_some_and(|n| n > 31), "timeout")?;
        invalid_if(change.path_migration.is_some_and(|state| state > 2), "path migration state")?;
        invalid_if(
            change.destination.is_some_and(|n| n > MAX_QUEUE_PAIR_NUMBER),
            "destination queue pair number",
        )?;
        invalid_if(change.capabilities.is_some(), "queue pairs are not resized")?;
        match change.path_migration {
            None | Some(0) => Ok(()),
            Some(_) => Err(Error::NotSupported("there is no alternate path to migrate to")),
        }
    }

    /// Ends the queue pair. When this returns none of its accesses is under way, and its events are acknowledged
    /// (`ibv_destroy_qp(3)`).
    pub fn destroy(&self) -> Result<()> {
        if self.kind() == QueuePairType::Ud && self.state.services.groups.has(self.number()) {
            return Err(Error::Busy("the queue pair is attached to a multicast group"));
        }
        let mut qpc = self.state.lock_qpc()?;
        Turn::new(&self.state, &mut qpc).progress_last();
        self.state.reset(&mut qpc);
        drop(qpc);
        self.state.send_cq.release_slots(self.state.properties.number);
        self.state.end_accesses()?;
        self.state.services.end_log_sources(self.state.properties.number);
        self.state.services.unbind_from_queue_pair(self.state.properties.number)?;
        self.state.domain.context().withdraw_events(&self.state.async_events);
        self.state.inbox.close();
        self.engine.queue_pairs.remove(self.state.properties.place);
        self.state.counted.detach();
        self.state.domain.users.fetch_sub(1, Ordering::AcqRel);
        self.state.send_cq.users.fetch_sub(1, Ordering::AcqRel);
        self.state.recv_cq.users.fetch_sub(1, Ordering::AcqRel);
        if let Some(srq) = &self.state.receives.srq {
            srq.users.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl<F: Fabric> QueuePair<F> {
    /// `ibv_attach_mcast(3)`: datagrams to the group come here, too.
    ///
    /// # Errors
    /// `InvalidArgument`: the GID is no group's, or the queue pair is not UD; `NoMemory`; the kernel's.
    pub fn attach_group(&self, gid: [u8; 16]) -> Result<()> {
        let group = self.group(gid)?;
        let interface = self.state.domain.context().device().interface_index;
        let services = &self.state.services;
        services.groups.attach(&services.fabric, group, self.number(), interface)
    }

    /// `ibv_detach_mcast(3)`.
    ///
    /// # Errors
    /// `InvalidArgument`: as for [`attach_group`](Self::attach_group), or the queue pair is not attached to the group.
    pub fn detach_group(&self, gid: [u8; 16]) -> Result<()> {
        self.state.services.groups.detach(self.group(gid)?, self.number())
    }

    fn group(&self, gid: [u8; 16]) -> Result<IpAddr> {
        invalid_if(
            self.kind() != QueuePairType::Ud,
            "only queue pairs of datagrams are in multicast groups",
        )?;
        let group = address_of_gid(gid);
        invalid_if(!group.is_multicast(), "the GID is not that of a multicast group")?;
        Ok(group)
    }
}

/// Bytes of an `ibv_sge`.
const SEGMENT_SIZE: u32 = 16;

/// Refuses more than a queue pair can have.
fn check_capabilities(wanted: &QpCapabilities) -> Result<()> {
    let QpCapabilities { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = *wanted;
    invalid_if(max_send_wr.max(max_recv_wr) > MAX_WORK_REQUESTS, "number of work requests")?;
    invalid_if(max_send_sge.max(max_recv_sge) > MAX_SEGMENTS, "number of scatter-gather elements")?;
    invalid_if(max_inline_data > MAX_INLINE, "inline data size")
}
