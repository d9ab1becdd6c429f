//! Executes requests by XRC that came to a queue pair of another process, and name a shared receive queue of this one.
//!
//! An executor is an extended reliable connection of this process with itself, which the program does not see. What it sends runs through
//! the same checks and queues as what comes from a peer. A request that is refused ends the connection, and the next one finds a new one.

use crate::api::completion::CompletionQueue;
use crate::api::queue_pair::{QueuePair, QueuePairInit};
use crate::api::xrc::XrcDomain;
use crate::completion::{CompletionChannel, CompletionQueueInit, Status};
use crate::queue_pair::relay::{RelayOperation, RelayOutcome, RelayRequest};
use crate::queue_pair::request::{Data, Destination, SendOperation, SendRequest};
use crate::services::event::Notifier;
use crate::services::protection::{MemoryRegion, ProtectionDomain};
use crate::types::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use crate::types::error::{Error, Result};
use crate::types::gid::Mtu;
use crate::types::limits::{MAX_READ_ATOMIC, MAX_RELAYED};
use crate::types::sge::ScatterGather;
use pagewire_fabric::Fabric;
use pagewire_iommu::{AccessScope, Rights};
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_transport::{AtomicRequest, Denial, RemoteAddress};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How long the executor sleeps at a stretch. Nothing tells it that its request is given up.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of registered memory that are kept from one request to the next, at most.
const MOST_KEPT: usize = 1 << 20;
/// The timeout of the connection: 4.096 us * 2^14.
const TIMEOUT: u8 = 14;
const PSN_MASK: u32 = 0xFF_FFFF;

/// Wakes the thread that waits for a completion.
#[derive(Default)]
struct Signal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl Notifier for Signal {
    fn raise(&self) {
        *self.is_raised.lock() = true;
        self.raised.notify_one();
    }

    fn withdraw(&self) {
        *self.is_raised.lock() = false;
    }
}

/// Memory that bytes of requests lie in, registered.
struct BounceMemory<F: Fabric> {
    words: Box<[AtomicU64]>,
    region: Arc<MemoryRegion<F>>,
}

impl<F: Fabric> BounceMemory<F> {
    fn new(domain: &Arc<ProtectionDomain<F>>, length: usize) -> Result<Self> {
        let words: Box<[AtomicU64]> = (0..length.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let address = words.as_ptr() as u64;
        let region = domain.register(address, 8 * words.len() as u64, address, Rights::LOCAL_WRITE)?;
        Ok(BounceMemory { words, region })
    }
}

/// The connection that executes what comes to one queue pair of another process.
pub struct XrcExecutor<F: Fabric> {
    domain: Arc<XrcDomain<F>>,
    memory_domain: Arc<ProtectionDomain<F>>,
    signal: Arc<Signal>,
    channel: Arc<CompletionChannel>,
    sent: Arc<CompletionQueue<F>>,
    sender: Arc<QueuePair<F>>,
    receiver: Arc<QueuePair<F>>,
    memory: Option<BounceMemory<F>>,
    is_connected: bool,
    requests: u64,
}

impl<F: Fabric> XrcExecutor<F> {
    /// For requests that come to the queue pair with this number.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn new(domain: &Arc<XrcDomain<F>>, queue_pair: u32) -> Result<Self> {
        let signal = Arc::new(Signal::default());
        let channel = CompletionChannel::new(signal.clone());
        let engine = domain.completion_queue().engine.clone();
        let memory_domain = ProtectionDomain::new(domain.context().clone())?;
        let init = CompletionQueueInit {
            entries: 4,
            channel: Some(channel.clone()),
            parent_domain: None,
            ignores_overrun: false,
            stamps: None,
        };
        let sent = CompletionQueue::new(engine, domain.context().clone(), init)?;
        let sender = QueuePair::create(
            &memory_domain,
            QueuePairInit {
                kind: QueuePairType::XrcSend,
                send_cq: sent.clone(),
                recv_cq: sent.clone(),
                srq: None,
                capabilities: QpCapabilities { max_send_wr: 1, max_send_sge: 1, ..QpCapabilities::default() },
                signal_all: true,
                xrc: None,
            },
        )?;
        let receiver = domain.make_queue_pair()?;
        receiver.state.report_as(queue_pair);
        sender.set_silent(true);
        receiver.set_silent(true);
        let domain = domain.clone();
        let (memory, is_connected, requests) = (None, false, 0);
        Ok(XrcExecutor {
            domain,
            memory_domain,
            signal,
            channel,
            sent,
            sender,
            receiver,
            memory,
            is_connected,
            requests,
        })
    }

    /// Executes a request; `is_given_up` is asked now and then. When this returns nothing of it is under way.
    ///
    /// # Errors
    /// Those of the objects of the connection. Nothing is under way then, either.
    pub fn execute(
        &mut self,
        request: &RelayRequest,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<RelayOutcome> {
        if let RelayOperation::CheckRead { remote, length } = request.operation {
            return Ok(self.check_read(request.queue, remote, length));
        }
        let answer = match request.operation {
            RelayOperation::Read { length, .. } => length as usize,
            RelayOperation::Atomic { .. } => 8,
            _ => 0,
        };
        let length = answer.max(request.payload.len());
        if length as u64 > MAX_RELAYED {
            return Ok(RelayOutcome::Denied(Denial::Operational));
        }
        self.connect()?;
        let piece = self.reserve(length)?;
        let segment = |length: usize| Segment { address: piece.address, length: length as u64 };
        let fabric = &self.domain.context().services().fabric;
        if answer == 0
            && length > 0
            && fabric.memory().write(&request.payload, &[segment(length)], false).is_err()
        {
            return Ok(RelayOutcome::Denied(Denial::Operational));
        }
        let pieces = if length > 0 { std::slice::from_ref(&piece) } else { &[] };
        let outcome = match self.send(request, pieces, is_given_up)? {
            Status::Success => {
                let mut into = vec![0; answer];
                if answer == 0 || fabric.memory().read(&[segment(answer)], &mut into).is_ok() {
                    self.release()?;
                    return Ok(RelayOutcome::Done(into));
                }
                RelayOutcome::Denied(Denial::Operational)
            }
            Status::RnrRetryExceeded => RelayOutcome::NotReady,
            Status::RemoteAccess => RelayOutcome::Denied(Denial::RemoteAccess),
            Status::RemoteInvalidRequest => RelayOutcome::Denied(Denial::InvalidRequest),
            _ => RelayOutcome::Denied(Denial::Operational),
        };
        self.disconnect()?;
        self.release()?;
        Ok(outcome)
    }

    /// Whether a queue of this process gives access to memory.
    fn check_read(&self, queue: u32, remote: RemoteAddress, length: u32) -> RelayOutcome {
        let Some(queue) = self.domain.queues.get(queue) else {
            return RelayOutcome::Denied(Denial::InvalidRequest);
        };
        let scope = AccessScope::of_domain(queue.domain_number());
        let view = self.domain.context().services().regions.view();
        match view.check(remote.key, remote.address, length.into(), Rights::REMOTE_READ, scope) {
            Ok(_) => RelayOutcome::Done(Vec::new()),
            Err(_) => RelayOutcome::Denied(Denial::RemoteAccess),
        }
    }

    /// Registered memory of so many bytes.
    fn reserve(&mut self, length: usize) -> Result<ScatterGather> {
        let memory = match self.memory.take() {
            Some(memory) if 8 * memory.words.len() >= length => memory,
            before => {
                if let Some(before) = before {
                    before.region.deregister()?;
                }
                BounceMemory::new(&self.memory_domain, length.max(4096).next_power_of_two())?
            }
        };
        let address = memory.words.as_ptr() as u64;
        let piece = ScatterGather { address, length: length as u32, key: memory.region.lkey() };
        self.memory = Some(memory);
        Ok(piece)
    }

    /// Gives back the registered memory, if it is much.
    fn release(&mut self) -> Result<()> {
        match self.memory.take_if(|memory| 8 * memory.words.len() > MOST_KEPT) {
            Some(memory) => memory.region.deregister(),
            None => Ok(()),
        }
    }

    /// Posts the request and waits for its end.
    fn send(
        &self,
        request: &RelayRequest,
        pieces: &[ScatterGather],
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Status> {
        let (operation, solicited) = send_operation(&request.operation);
        self.sent.arm(false);
        self.sender.post_send(&SendRequest {
            wr_id: self.requests,
            data: Data::Segments(pieces),
            operation,
            signaled: true,
            fence: false,
            solicited,
            destination: Some(Destination::SharedQueue(request.queue)),
        })?;
        self.sender.doorbell();
        let mut ended = None;
        loop {
            self.sent.poll(1, &mut |completion| ended = Some(completion.status));
            if let Some(status) = ended {
                return Ok(status);
            }
            if is_given_up() {
                return Ok(Status::Flushed);
            }
            let mut is_raised = self.signal.is_raised.lock();
            if !*is_raised {
                self.signal.raised.wait_for(&mut is_raised, LOOK);
            }
            *is_raised = false;
            drop(is_raised);
            while self.channel.next_event().is_some() {
                self.sent.completion_events().acknowledge(1);
            }
            self.sent.arm(false);
        }
    }

    /// Connects the queue pairs with each other, unless they are.
    fn connect(&mut self) -> Result<()> {
        let usable = |queue_pair: &QueuePair<F>| queue_pair.state() == QpState::ReadyToSend;
        if self.is_connected && usable(&self.sender) && usable(&self.receiver) {
            self.requests += 1;
            return Ok(());
        }
        self.disconnect()?;
        let context = self.domain.context();
        let port = context.port();
        let usable = port.gids.iter().enumerate().filter(|(_, gid)| !gid.is_empty());
        // An address of version 4 needs no interface.
        let found = usable.min_by_key(|(_, gid)| !gid.address.is_ipv4());
        let (index, gid) = found.ok_or(Error::NotFound("the device has no address"))?;
        let address = AddressVector {
            destination_gid: gid.raw(),
            source_gid_index: u8::try_from(index).map_err(|_| Error::NotFound("a GID with a small index"))?,
            hop_limit: 64,
            is_global: true,
            port: 1,
            ..AddressVector::default()
        };
        let random = || context.services().fabric.random() as u32 & PSN_MASK;
        let psn = random();
        for (queue_pair, peer) in [(&self.receiver, &self.sender), (&self.sender, &self.receiver)] {
            let all = Rights::REMOTE_READ
                | Rights::REMOTE_WRITE
                | Rights::REMOTE_ATOMIC
                | Rights::FLUSH_GLOBAL
                | Rights::FLUSH_PERSISTENT;
            queue_pair.modify(&QueuePairChange {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(all),
                ..QueuePairChange::default()
            })?;
            queue_pair.modify(&QueuePairChange {
                state: Some(QpState::ReadyToReceive),
                address: Some(address),
                path_mtu: Some(port.mtu.min(Mtu::Mtu4096)),
                destination: Some(peer.number()),
                receive_psn: Some(psn),
                max_dest_read_atomic: Some(MAX_READ_ATOMIC),
                min_rnr_timer: Some(1),
                ..QueuePairChange::default()
            })?;
        }
        for queue_pair in [&self.receiver, &self.sender] {
            queue_pair.modify(&QueuePairChange {
                state: Some(QpState::ReadyToSend),
                send_psn: Some(psn),
                timeout: Some(TIMEOUT),
                retry_count: Some(7),
                // The requester waits, in its own way.
                rnr_retry: Some(0),
                max_read_atomic: Some(MAX_READ_ATOMIC),
                ..QueuePairChange::default()
            })?;
        }
        (self.is_connected, self.requests) = (true, 0);
        Ok(())
    }

    /// Ends the connection. When this returns none of its accesses is under way.
    fn disconnect(&mut self) -> Result<()> {
        self.is_connected = false;
        let reset = QueuePairChange { state: Some(QpState::Reset), ..QueuePairChange::default() };
        // The receiver first: it may be at a request still.
        self.receiver.modify(&reset)?;
        self.sender.modify(&reset)?;
        while self.sent.poll(1, &mut |_| {}) > 0 {}
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// Those of its objects.
    pub fn destroy(self) -> Result<()> {
        self.receiver.destroy()?;
        self.sender.destroy()?;
        if let Some(memory) = &self.memory {
            memory.region.deregister()?;
        }
        while self.channel.next_event().is_some() {
            self.sent.completion_events().acknowledge(1);
        }
        self.sent.destroy()?;
        self.memory_domain.dealloc()
    }
}

/// The operation that executes a request, and whether its completion is solicited.
fn send_operation(operation: &RelayOperation) -> (SendOperation, bool) {
    match *operation {
        RelayOperation::Send { immediate, solicited } => {
            (immediate.map_or(SendOperation::Send, SendOperation::SendImmediate), solicited)
        }
        RelayOperation::Write { remote: RemoteAddress { address, key }, immediate, solicited } => {
            let operation = match immediate {
                None => SendOperation::Write { address, key },
                Some(immediate) => SendOperation::WriteImmediate { address, key, immediate },
            };
            (operation, solicited)
        }
        RelayOperation::AtomicWrite { remote: RemoteAddress { address, key } } => {
            (SendOperation::AtomicWrite { address, key }, false)
        }
        RelayOperation::Atomic { remote: RemoteAddress { address, key }, atomic } => match atomic {
            AtomicRequest::CompareSwap { compare, swap } => {
                (SendOperation::CompareSwap { address, key, compare, swap }, false)
            }
            AtomicRequest::FetchAdd { add } => (SendOperation::FetchAdd { address, key, add }, false),
        },
        RelayOperation::Flush { remote: RemoteAddress { address, key }, length, flush } => {
            (SendOperation::Flush { address, key, length, flush }, false)
        }
        RelayOperation::Read { remote: RemoteAddress { address, key }, .. }
        | RelayOperation::CheckRead { remote: RemoteAddress { address, key }, .. } => {
            (SendOperation::Read { address, key }, false)
        }
    }
}
