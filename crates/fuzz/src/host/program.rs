//! The program under attack: its queue pairs, and what it posts, polls and changes meanwhile.

use super::memory::{BUFFER_BYTES, BUFFERS, ModelMemory};
use pagewire_nic::attributes::{AddressVector, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::device::Mtu;
use pagewire_nic::{
    AddressHandle, Completion, CompletionOpcode, CompletionQueue, Data, Destination, FlushRequest, QueuePair,
    ReceiveRequest, Rights, ScatterGather, SendOperation, SendRequest, SharedReceiveQueue, Status,
};
use pagewire_sim::SimFabric;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// Path MTU of connected queue pairs: many packets, few bytes.
pub const MTU: Mtu = Mtu::Mtu256;
/// Q_Key of the UD queue pairs.
pub const QUEUE_KEY: u32 = 0x1111;
/// Requests that a queue pair holds.
pub const DEPTH: u32 = 16;

/// A buffer that a posted request has; the wr_id of the request.
struct PostedBuffer {
    wr_id: u64,
    buffer: usize,
}

/// A queue pair of the program.
pub struct ProgramQueuePair {
    pub queue_pair: Arc<QueuePair<SimFabric>>,
    pub kind: QueuePairType,
    /// The state that it is brought back to.
    pub home: QpState,
    pub access: Rights,
    /// Queue pair that it is connected to.
    pub peer: u32,
    /// Where that is.
    pub peer_address: IpAddr,
    pub shared: bool,
    /// PSNs with which both directions begin.
    pub first_psn: u32,
    /// Milder or harsher: timeout, retry count and RNR retry count.
    pub patience: (u8, u8, u8),
    sends: VecDeque<PostedBuffer>,
    receives: VecDeque<PostedBuffer>,
}

impl ProgramQueuePair {
    /// A queue pair in RESET.
    pub fn new(queue_pair: Arc<QueuePair<SimFabric>>, home: QpState, access: Rights, shared: bool) -> Self {
        ProgramQueuePair {
            kind: queue_pair.kind(),
            queue_pair,
            home,
            access,
            peer: 0,
            peer_address: IpAddr::from([0, 0, 0, 0]),
            shared,
            first_psn: 0xFF_FFF0,
            patience: (14, 7, 7),
            sends: VecDeque::new(),
            receives: VecDeque::new(),
        }
    }

    /// Whether it has fallen out of the state that it should be in.
    pub fn is_fallen(&self) -> bool {
        let state = self.queue_pair.state();
        self.home != QpState::Error && matches!(state, QpState::Error | QpState::SendQueueError)
    }
}

/// What the program does next.
pub struct ProgramWish {
    pub end: usize,
    /// What is sent: a number that is mapped to the operations.
    pub operation: u8,
    pub length: u32,
    pub address: u64,
    pub key: u32,
}

/// The program.
pub struct Program {
    pub ends: Vec<ProgramQueuePair>,
    pub send_cq: Arc<CompletionQueue<SimFabric>>,
    pub recv_cq: Arc<CompletionQueue<SimFabric>>,
    pub srq: Arc<SharedReceiveQueue<SimFabric>>,
    pub vector: AddressVector,
    pub own_vector: AddressVector,
    pub handle: Arc<AddressHandle<SimFabric>>,
    own_address: IpAddr,
    free: Vec<usize>,
    shared: Vec<PostedBuffer>,
    next: u64,
    /// Completions polled, by what they are of and how they ended.
    pub completions: HashMap<(CompletionOpcode, Status), u64>,
}

impl Program {
    /// A program without queue pairs yet.
    pub fn new(
        send_cq: Arc<CompletionQueue<SimFabric>>,
        recv_cq: Arc<CompletionQueue<SimFabric>>,
        srq: Arc<SharedReceiveQueue<SimFabric>>,
        handle: Arc<AddressHandle<SimFabric>>,
        (vector, own_vector): (AddressVector, AddressVector),
        own_address: IpAddr,
    ) -> Self {
        Program {
            ends: Vec::new(),
            send_cq,
            recv_cq,
            srq,
            vector,
            own_vector,
            handle,
            own_address,
            free: (0..BUFFERS).collect(),
            shared: Vec::new(),
            next: 1,
            completions: HashMap::new(),
        }
    }

    fn wr_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Brings a queue pair from RESET to the state that it should be in.
    pub fn raise(&mut self, index: usize) {
        let end = &self.ends[index];
        let address = if end.peer_address == self.own_address { self.own_vector } else { self.vector };
        let (rc, connected) = (end.kind == QueuePairType::Rc, end.kind != QueuePairType::Ud);
        let (timeout, retry_count, rnr_retry) = end.patience;
        let init = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: connected.then_some(end.access),
            queue_key: (!connected).then_some(QUEUE_KEY),
            ..Default::default()
        };
        let receive = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: connected.then_some(address),
            path_mtu: connected.then_some(MTU),
            destination: connected.then_some(end.peer),
            receive_psn: connected.then_some(end.first_psn),
            max_dest_read_atomic: rc.then_some(4),
            min_rnr_timer: rc.then_some(1),
            ..Default::default()
        };
        let send = QueuePairChange {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(end.first_psn),
            timeout: rc.then_some(timeout),
            retry_count: rc.then_some(retry_count),
            rnr_retry: rc.then_some(rnr_retry),
            max_read_atomic: rc.then_some(4),
            ..Default::default()
        };
        let bare = |state| QueuePairChange { state: Some(state), ..Default::default() };
        let drain = bare(QpState::SendQueueDrain);
        let way: &[QueuePairChange] = match end.home {
            QpState::Reset => &[],
            QpState::Init => &[init],
            QpState::ReadyToReceive => &[init, receive],
            QpState::SendQueueDrain => &[init, receive, send, drain],
            QpState::Error => &[init, receive, send, bare(QpState::Error)],
            QpState::ReadyToSend | QpState::SendQueueError => &[init, receive, send],
        };
        for change in way {
            end.queue_pair.modify(change).expect("the transition is one of the table");
        }
    }

    /// Flushes a queue pair and brings it back to its state. Without `flush`, it goes to RESET as it is.
    pub fn revive(&mut self, index: usize, flush: bool, memory: &mut ModelMemory) {
        let to = |state| QueuePairChange { state: Some(state), ..Default::default() };
        let queue_pair = self.ends[index].queue_pair.clone();
        // A message that takes a shared receive gives it up without a completion in RESET.
        if flush || self.ends[index].shared {
            queue_pair.modify(&to(QpState::Error)).expect("ERROR is always possible");
            self.poll(memory);
            let end = &self.ends[index];
            assert!(end.sends.is_empty() && end.receives.is_empty(), "requests were not flushed");
        } else {
            self.poll(memory);
        }
        queue_pair.modify(&to(QpState::Reset)).expect("RESET is always possible");
        let end = &mut self.ends[index];
        for posted in end.sends.drain(..).chain(end.receives.drain(..)) {
            memory.done(posted.buffer);
            self.free.push(posted.buffer);
        }
        memory.withdraw(index);
        self.raise(index);
    }

    /// Posts a receive at a queue pair, or at its shared queue.
    pub fn post_receive(&mut self, index: usize, length: u32, memory: &mut ModelMemory) {
        let Some(buffer) = self.free.pop() else { return };
        let wr_id = self.wr_id();
        let length = length.min(BUFFER_BYTES as u32);
        let (address, key) = (memory.buffer(buffer), memory.buffer_key());
        // In two pieces.
        let first = length / 3;
        let segments = [
            ScatterGather { address, length: first, key },
            ScatterGather { address: address + u64::from(first), length: length - first, key },
        ];
        let request = ReceiveRequest { wr_id, segments: &segments };
        let end = &mut self.ends[index];
        let posted = PostedBuffer { wr_id, buffer };
        memory.expect(buffer);
        let outcome = if end.shared {
            self.shared.push(posted);
            self.srq.post(&request)
        } else {
            end.receives.push_back(posted);
            end.queue_pair.post_receive(&request)
        };
        if outcome.is_err() {
            if end.shared {
                self.shared.pop()
            } else {
                end.receives.pop_back()
            };
            memory.done(buffer);
            self.free.push(buffer);
        }
    }

    /// Posts a send request.
    pub fn post_send(&mut self, wish: &ProgramWish, memory: &mut ModelMemory) {
        let Some(buffer) = self.free.pop() else { return };
        let wr_id = self.wr_id();
        let (address, key) = (wish.address, wish.key);
        let operation = match wish.operation % 10 {
            0 => SendOperation::Send,
            1 => SendOperation::SendImmediate(7),
            2 => SendOperation::SendInvalidate(key),
            3 => SendOperation::Write { address, key },
            4 => SendOperation::WriteImmediate { address, key, immediate: 9 },
            5 => SendOperation::Read { address, key },
            6 => SendOperation::CompareSwap { address, key, compare: 1, swap: 2 },
            7 => SendOperation::FetchAdd { address, key, add: 3 },
            8 => SendOperation::AtomicWrite { address, key },
            _ => {
                let flush = FlushRequest {
                    global: wish.length % 3 > 0,
                    persistent: wish.length % 3 < 2,
                    whole_region: wish.length % 2 == 0,
                };
                SendOperation::Flush { address, key, length: wish.length, flush }
            }
        };
        let answered = (5..8).contains(&(wish.operation % 10));
        let length = if wish.operation % 10 >= 6 { 8 } else { wish.length.min(BUFFER_BYTES as u32) };
        let segments = [ScatterGather { address: memory.buffer(buffer), length, key: memory.buffer_key() }];
        let end = &mut self.ends[wish.end];
        let datagram = end.kind == QueuePairType::Ud;
        let request = SendRequest {
            wr_id,
            data: Data::Segments(&segments),
            operation,
            signaled: true,
            fence: wish.operation & 8 != 0,
            solicited: wish.operation & 16 != 0,
            destination: datagram.then_some(Destination::Address {
                address: &self.handle,
                queue_pair: end.peer,
                queue_key: QUEUE_KEY,
            }),
        };
        if answered {
            memory.expect(buffer);
        }
        end.sends.push_back(PostedBuffer { wr_id, buffer });
        if end.queue_pair.post_send(&request).is_err() {
            end.sends.pop_back();
            memory.done(buffer);
            self.free.push(buffer);
            return;
        }
        end.queue_pair.doorbell();
    }

    /// Takes all completions: each is of a request that was posted, once and in order.
    pub fn poll(&mut self, memory: &mut ModelMemory) {
        let mut found: Vec<Completion> = Vec::new();
        for queue in [&self.send_cq, &self.recv_cq] {
            while queue.poll(64, &mut |completion| found.push(*completion)) > 0 {}
        }
        for completion in found {
            *self.completions.entry((completion.opcode, completion.status)).or_default() += 1;
            let end = self
                .ends
                .iter_mut()
                .find(|end| end.queue_pair.number() == completion.queue_pair)
                .expect("a completion of a queue pair that exists");
            let receive = matches!(
                completion.opcode,
                CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteImmediate
            );
            let posted = match (receive, end.shared) {
                (false, _) => end.sends.pop_front(),
                (true, false) => end.receives.pop_front(),
                (true, true) => self
                    .shared
                    .iter()
                    .position(|posted| posted.wr_id == completion.wr_id)
                    .map(|place| self.shared.swap_remove(place)),
            };
            let posted = posted.unwrap_or_else(|| panic!("{completion:?} is of no request"));
            assert_eq!(posted.wr_id, completion.wr_id, "requests complete in order: {completion:?}");
            let fits = u64::from(completion.byte_length) <= BUFFER_BYTES;
            assert!(fits || completion.opcode != CompletionOpcode::Receive, "{completion:?}");
            memory.done(posted.buffer);
            self.free.push(posted.buffer);
        }
    }

    /// Flushes everything and destroys the queue pairs.
    pub fn end(&mut self, memory: &mut ModelMemory) {
        let error = QueuePairChange { state: Some(QpState::Error), ..Default::default() };
        for index in 0..self.ends.len() {
            let queue_pair = self.ends[index].queue_pair.clone();
            queue_pair.modify(&error).expect("ERROR is always possible");
            self.poll(memory);
            let end = &self.ends[index];
            assert!(end.sends.is_empty() && end.receives.is_empty(), "requests were not flushed");
            queue_pair.destroy().expect("nobody is at it");
            memory.withdraw(index);
        }
    }
}
