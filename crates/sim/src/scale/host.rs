//! One host: an engine, its queue pairs, what it has posted, and what has come.

use super::{ScaleFailure, ScalePlan, ScaleWorkload, Topology};
use crate::fabric::SimFabric;
use crate::process::ProcessId;
use crate::scenario::MEMORY;
use crate::world::World;
use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::{
    Completion, CompletionQueue, Context, Data, MemoryRegion, Nic, Options, PathChoice, ProtectionDomain,
    QueuePair, QueuePairInit, ReceiveRequest, Rights, ScatterGather, SendOperation, SendRequest,
    SharedReceiveInit, SharedReceiveQueue, Status, Unwatched,
};
use std::sync::Arc;

/// Receives in a shared receive queue at most.
const RECEIVES: u32 = 4096;
/// Completions of one poll.
const POLLED: usize = 256;
/// `retry_cnt` of ibv_modify_qp(3).
const RETRIES: u8 = 7;
const PSN: u32 = 100;
/// `wr_id` of receives; those of sends name a buffer.
const RECEIVE: u64 = u64::MAX;

/// What all hosts of a run have in common.
pub struct Setup<'a> {
    pub plan: &'a ScalePlan,
    pub topology: Topology,
    pub world: World,
}

/// What a peer must know to write to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Where the messages go.
    pub address: u64,
    pub key: u32,
}

/// A host.
pub struct ScaleHost {
    index: usize,
    process: ProcessId,
    nic: Arc<Nic<SimFabric>>,
    domain: Arc<ProtectionDomain<SimFabric>>,
    cq: Arc<CompletionQueue<SimFabric>>,
    receives: Arc<SharedReceiveQueue<SimFabric>>,
    region: Arc<MemoryRegion<SimFabric>>,
    /// By index of the peer.
    queue_pairs: Vec<Arc<QueuePair<SimFabric>>>,
    /// Messages that it has to send, and the next of them.
    to_send: u64,
    next: u64,
    free_buffers: Vec<u64>,
    /// Free buffers at least, so far.
    least_free: usize,
    /// Sends that have completed.
    pub sent: u64,
    /// By number of the message that comes here: whether it has come.
    received: Vec<bool>,
    pub arrived: u64,
}

/// What one run of a host did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostRun {
    /// Sends that completed, and messages that came.
    pub ended: u64,
    /// When it is to run again at the latest.
    pub due: Option<u64>,
}

/// Gives what the engine says when it refuses a call.
trait OrRefused<T> {
    fn or_refused(self, host: usize, call: &'static str) -> Result<T, ScaleFailure>;
}

impl<T> OrRefused<T> for Result<T, pagewire_nic::Error> {
    fn or_refused(self, host: usize, call: &'static str) -> Result<T, ScaleFailure> {
        self.map_err(|error| ScaleFailure::Refused { host, call, reason: error.to_string() })
    }
}

/// Bytes from one message's memory to the next.
fn stride(plan: &ScalePlan) -> u64 {
    u64::from(plan.bytes).next_multiple_of(8)
}

/// First byte of the memory that messages are written to.
fn inbound(plan: &ScalePlan) -> u64 {
    MEMORY + (u64::from(plan.depth) * stride(plan)).next_multiple_of(crate::limits::PAGE)
}

/// Peers from which messages come to a host, and to which it sends.
fn directions(plan: &ScalePlan, topology: &Topology, host: usize) -> (usize, usize) {
    let peers = topology.peers(host);
    match (plan.workload, host) {
        (ScaleWorkload::Incast, 0) => (peers, 0),
        (ScaleWorkload::Incast, _) => (0, peers),
        (ScaleWorkload::AllToAll | ScaleWorkload::SlowPager, _) => (peers, peers),
    }
}

impl ScaleHost {
    /// Starts a host's process, with memory for all messages.
    pub fn new(setup: &Setup<'_>, index: usize) -> Result<ScaleHost, ScaleFailure> {
        let Setup { plan, topology, world } = setup;
        let (process, fabric) = world.process(world.host());
        let (sources, targets) = directions(plan, topology, index);
        let messages = sources as u64 * u64::from(plan.rounds);
        let length = inbound(plan) - MEMORY + messages.max(1) * stride(plan);
        world.map(process, MEMORY, length);
        let nic = Nic::new(fabric, Options { path: PathChoice::Udp, ..Options::default() });
        let context = Context::open(&nic, world.device(process), Arc::new(Unwatched));
        let domain = context.alloc_pd().or_refused(index, "alloc_pd")?;
        let posted = (messages as u32).clamp(1, RECEIVES);
        let cq = context.create_cq(posted + plan.depth, None).or_refused(index, "create_cq")?;
        let init = SharedReceiveInit { max_wr: posted, max_sge: 1, limit: 0 };
        let receives = SharedReceiveQueue::create(&domain, &init).or_refused(index, "create_srq")?;
        let rights = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE;
        let region = domain.register(MEMORY, length, MEMORY, rights).or_refused(index, "reg_mr")?;
        let host = ScaleHost {
            index,
            process,
            nic,
            domain,
            cq,
            receives,
            region,
            queue_pairs: Vec::with_capacity(topology.peers(index)),
            to_send: targets as u64 * u64::from(plan.rounds),
            next: 0,
            free_buffers: (0..u64::from(plan.depth)).collect(),
            least_free: plan.depth as usize,
            sent: 0,
            received: vec![false; messages as usize],
            arrived: 0,
        };
        (0..posted).try_for_each(|_| host.post_receive())?;
        Ok(host)
    }

    /// Its process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// What peers write to.
    pub fn memory(&self, plan: &ScalePlan) -> RemoteMemory {
        RemoteMemory { address: inbound(plan), key: self.region.rkey() }
    }

    /// Messages that are to end here: those that it sends and those that come.
    pub fn messages(&self) -> u64 {
        self.to_send + self.received.len() as u64
    }

    /// Bytes of its memory that messages were written to or sent from.
    pub fn message_memory(&self, plan: &ScalePlan) -> u64 {
        let buffers = plan.depth as usize - self.least_free;
        (self.received.len() + buffers) as u64 * stride(plan)
    }

    /// The number of its queue pair for a peer.
    pub fn queue_pair_number(&self, peer: usize) -> u32 {
        self.queue_pairs[peer].number()
    }

    /// Lets the memory that messages go to be absent, and come in from `time` on.
    pub fn lose_pages(&self, world: &World, plan: &ScalePlan, time: u64) {
        let length = self.received.len() as u64 * stride(plan);
        world.withhold_pages(self.process, time);
        world.evict(self.process, inbound(plan), length);
    }

    fn wrong(&self, what: String) -> ScaleFailure {
        ScaleFailure::Wrong { host: self.index, what }
    }

    fn post_receive(&self) -> Result<(), ScaleFailure> {
        let request = ReceiveRequest { wr_id: RECEIVE, segments: &[] };
        self.receives.post(&request).or_refused(self.index, "post_srq_recv")
    }

    /// Makes a queue pair for each peer.
    pub fn create_queue_pairs(&mut self, plan: &ScalePlan, peers: usize) -> Result<(), ScaleFailure> {
        let capabilities = QpCapabilities {
            max_send_wr: plan.depth.min(plan.rounds),
            max_send_sge: 1,
            ..QpCapabilities::default()
        };
        for _ in 0..peers {
            let init = QueuePairInit {
                kind: QueuePairType::Rc,
                send_cq: self.cq.clone(),
                recv_cq: self.cq.clone(),
                srq: Some(self.receives.clone()),
                capabilities,
                signal_all: true,
                xrc: None,
            };
            let made = QueuePair::create(&self.domain, init).or_refused(self.index, "create_qp")?;
            self.queue_pairs.push(made);
        }
        Ok(())
    }

    /// RESET to RTS, towards a queue pair of a peer.
    pub fn connect(
        &self,
        setup: &Setup<'_>,
        peer: usize,
        to: ProcessId,
        number: u32,
    ) -> Result<(), ScaleFailure> {
        let init = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Rights::REMOTE_WRITE),
            ..QueuePairChange::default()
        };
        let device = setup.world.device(to);
        let address = AddressVector {
            destination_gid: device.gids[0].raw(),
            is_global: true,
            hop_limit: 64,
            port: 1,
            ..AddressVector::default()
        };
        let receive = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(address),
            path_mtu: Some(device.mtu),
            destination: Some(number),
            receive_psn: Some(PSN),
            max_dest_read_atomic: Some(1),
            min_rnr_timer: Some(8),
            ..QueuePairChange::default()
        };
        let send = QueuePairChange {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(PSN),
            timeout: Some(setup.plan.timeout),
            retry_count: Some(RETRIES),
            rnr_retry: Some(7),
            max_read_atomic: Some(1),
            ..QueuePairChange::default()
        };
        let queue_pair = &self.queue_pairs[peer];
        [init, receive, send]
            .iter()
            .try_for_each(|change| queue_pair.modify(change).or_refused(self.index, "modify_qp"))
    }

    /// Takes what has come, posts what may be posted to these memories, by host, and has the engine work. `None`: messages have not begun.
    pub fn run(
        &mut self,
        setup: &Setup<'_>,
        memories: Option<&[RemoteMemory]>,
    ) -> Result<HostRun, ScaleFailure> {
        let mut ended = 0;
        let mut completions: Vec<Completion> = Vec::new();
        loop {
            let found = self.cq.poll(POLLED, &mut |completion| completions.push(*completion));
            if found == 0 {
                if !setup.world.has_input(self.process) {
                    break;
                }
                self.nic.progress();
            }
            ended += found as u64;
            for completion in completions.drain(..) {
                self.take(setup, &completion)?;
            }
        }
        if let Some(memories) = memories {
            self.post(setup, memories)?;
        }
        Ok(HostRun { ended, due: self.nic.progress() })
    }

    /// Posts messages as long as there are buffers, each peer's in turn.
    fn post(&mut self, setup: &Setup<'_>, memories: &[RemoteMemory]) -> Result<(), ScaleFailure> {
        let Setup { plan, topology, world } = setup;
        while self.next < self.to_send {
            let Some(buffer) = self.free_buffers.pop() else { return Ok(()) };
            let targets = self.queue_pairs.len() as u64;
            let (peer, round) = ((self.next % targets) as usize, (self.next / targets) as u32);
            self.next += 1;
            self.least_free = self.least_free.min(self.free_buffers.len());
            let to = topology.peer(self.index, peer);
            let immediate = topology.index_at(self.index, to) as u32 * plan.rounds + round;
            let from = MEMORY + buffer * stride(plan);
            world.poke(self.process, from, &plan.payload(self.index, to, round));
            let address = memories[to].address + u64::from(immediate) * stride(plan);
            let request = SendRequest {
                wr_id: buffer,
                data: Data::Segments(&[ScatterGather {
                    address: from,
                    length: plan.bytes,
                    key: self.region.lkey(),
                }]),
                operation: SendOperation::WriteImmediate { address, key: memories[to].key, immediate },
                signaled: true,
                fence: false,
                solicited: false,
                destination: None,
            };
            let queue_pair = &self.queue_pairs[peer];
            queue_pair.post_send(&request).or_refused(self.index, "post_send")?;
            queue_pair.doorbell();
        }
        Ok(())
    }

    /// Takes a completion.
    fn take(&mut self, setup: &Setup<'_>, completion: &Completion) -> Result<(), ScaleFailure> {
        if completion.status != Status::Success {
            return Err(self.wrong(format!("a request completes with {:?}", completion.status)));
        }
        if completion.wr_id == RECEIVE {
            return self.take_message(setup, completion);
        }
        if completion.wr_id >= u64::from(setup.plan.depth) || self.free_buffers.contains(&completion.wr_id) {
            return Err(self.wrong(format!("no request {} was posted", completion.wr_id)));
        }
        self.free_buffers.push(completion.wr_id);
        self.sent += 1;
        Ok(())
    }

    /// Takes a message that has come: its bytes must be there.
    fn take_message(&mut self, setup: &Setup<'_>, completion: &Completion) -> Result<(), ScaleFailure> {
        let number = completion.immediate.unwrap_or(u32::MAX);
        let source = (number / setup.plan.rounds) as usize;
        if number as usize >= self.received.len()
            || self.queue_pairs[source].number() != completion.queue_pair
            || completion.byte_length != setup.plan.bytes
        {
            return Err(self.wrong(format!("nobody sent a message that completes with {completion:?}")));
        }
        if std::mem::replace(&mut self.received[number as usize], true) {
            return Err(self.wrong(format!("message {number} has come twice")));
        }
        self.check_message(setup, number)?;
        self.arrived += 1;
        self.post_receive()
    }

    /// Compares the bytes of a message that has come.
    fn check_message(&self, setup: &Setup<'_>, number: u32) -> Result<(), ScaleFailure> {
        let Setup { plan, topology, world } = setup;
        let (source, round) = ((number / plan.rounds) as usize, number % plan.rounds);
        let from = topology.peer(self.index, source);
        let expected = plan.payload(from, self.index, round);
        let mut found = vec![0; expected.len()];
        let address = inbound(plan) + u64::from(number) * stride(plan);
        if !world.peek(self.process, address, &mut found) || found != expected {
            let at = crate::workload::pattern::difference(&found, &expected).unwrap_or(0);
            return Err(self.wrong(format!("byte {at} of message {round} of host {from} is wrong")));
        }
        Ok(())
    }

    /// Compares all messages, when all have ended, and gives how many bytes those are.
    pub fn check(&self, setup: &Setup<'_>) -> Result<u64, ScaleFailure> {
        let missing = self.received.iter().filter(|received| !**received).count();
        if missing > 0 || self.sent != self.to_send || self.arrived != self.received.len() as u64 {
            let (sent, to_send) = (self.sent, self.to_send);
            return Err(self.wrong(format!("{sent} of {to_send} are sent, {missing} have not come")));
        }
        for number in 0..self.received.len() as u32 {
            self.check_message(setup, number)?;
        }
        Ok(self.received.len() as u64 * u64::from(setup.plan.bytes))
    }
}
