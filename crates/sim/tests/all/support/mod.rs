//! Simulated processes with RC queue pairs, and connecting them.
#![allow(dead_code)] // Each test file uses its own part.

use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::{
    CompletionChannel, CompletionQueue, Data, MemoryRegion, Nic, Notifier, Options, PathChoice,
    ProtectionDomain, QueuePair, QueuePairInit, Rights, ScatterGather, SendOperation, SendRequest, Unwatched,
};
use pagewire_sim::{HostId, MEMORY, ProcessId, SimFabric, World};
use std::sync::Arc;

/// Bytes of a side's memory, all registered.
pub const SPAN: u64 = 1 << 20;

/// A process with some queue pairs, one completion queue with its channel, and one region.
pub struct Side {
    pub process: ProcessId,
    pub nic: Arc<Nic<SimFabric>>,
    pub channel: Arc<CompletionChannel>,
    pub cq: Arc<CompletionQueue<SimFabric>>,
    pub domain: Arc<ProtectionDomain<SimFabric>>,
    pub region: Arc<MemoryRegion<SimFabric>>,
    pub queue_pairs: Vec<Arc<QueuePair<SimFabric>>>,
}

/// Starts a process on a host.
pub fn side(world: &World, host: HostId, path: PathChoice, queue_pairs: usize) -> Side {
    side_with(world, host, path, &vec![QueuePairType::Rc; queue_pairs], Arc::new(Unwatched))
}

/// Starts a process with queue pairs of some kinds; `notifier` gets what would wake it.
pub fn side_with(
    world: &World,
    host: HostId,
    path: PathChoice,
    queue_pairs: &[QueuePairType],
    notifier: Arc<dyn Notifier>,
) -> Side {
    side_by(world, host, Options { path, ..Options::default() }, queue_pairs, notifier)
}

/// Starts a process whose engine has these options.
pub fn side_by(
    world: &World,
    host: HostId,
    options: Options,
    queue_pairs: &[QueuePairType],
    notifier: Arc<dyn Notifier>,
) -> Side {
    let (process, fabric) = world.process(host);
    world.map(process, MEMORY, SPAN);
    let nic = Nic::new(fabric, options);
    let context = pagewire_nic::Context::open(&nic, world.device(process), Arc::new(Unwatched));
    let domain = context.alloc_pd().unwrap();
    let channel = context.create_channel(notifier);
    let cq = context.create_cq(8192, Some(channel.clone())).unwrap();
    let rights = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
    let region = domain.register(MEMORY, SPAN, MEMORY, rights).unwrap();
    let make = |&kind: &QueuePairType| {
        let capabilities = QpCapabilities {
            max_send_wr: 8,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QueuePairInit {
            kind,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            capabilities,
            signal_all: true,
            xrc: None,
        };
        pagewire_nic::QueuePair::create(&domain, init).unwrap()
    };
    let queue_pairs = queue_pairs.iter().map(make).collect();
    Side { process, nic, channel, cq, domain, region, queue_pairs }
}

impl Side {
    /// Posts a request of the first queue pair with the first `length` bytes of the memory.
    pub fn post(&self, operation: SendOperation, length: u32) {
        self.post_on(0, operation, length);
    }

    /// Posts a request of a queue pair, by its index, with the first `length` bytes of the memory.
    pub fn post_on(&self, queue_pair: usize, operation: SendOperation, length: u32) {
        let pieces = [ScatterGather { address: MEMORY, length, key: self.region.lkey() }];
        let request = SendRequest {
            wr_id: 1,
            data: Data::Segments(&pieces),
            operation,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        self.queue_pairs[queue_pair].post_send(&request).unwrap();
        self.queue_pairs[queue_pair].doorbell();
    }
}

/// One end: its process and queue pair.
pub type End<'a> = (ProcessId, &'a Arc<QueuePair<SimFabric>>);

/// Where datagrams to a process go.
pub fn address_of(world: &World, process: ProcessId) -> AddressVector {
    AddressVector {
        destination_gid: world.device(process).gids[0].raw(),
        is_global: true,
        hop_limit: 64,
        port: 1,
        ..AddressVector::default()
    }
}

/// RESET to RTS, each towards the other; peers may use `access`.
pub fn connect(world: &World, one: End<'_>, two: End<'_>, access: Rights) {
    connect_with(world, one, two, access, (12, 7));
}

/// RESET to RTS, each towards the other, with an acknowledgement timeout and a retry count.
pub fn connect_with(
    world: &World,
    one: End<'_>,
    two: End<'_>,
    access: Rights,
    (timeout, retry_count): (u8, u8),
) {
    for (own, peer) in [(one, two), (two, one)] {
        let rc = own.1.kind() == QueuePairType::Rc;
        let init = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(access),
            ..QueuePairChange::default()
        };
        let receive = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(address_of(world, peer.0)),
            path_mtu: Some(world.device(own.0).mtu),
            destination: Some(peer.1.number()),
            receive_psn: Some(100),
            max_dest_read_atomic: rc.then_some(4),
            min_rnr_timer: rc.then_some(8),
            ..QueuePairChange::default()
        };
        let send = QueuePairChange {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(100),
            timeout: rc.then_some(timeout),
            retry_count: rc.then_some(retry_count),
            rnr_retry: rc.then_some(7),
            max_read_atomic: rc.then_some(4),
            ..QueuePairChange::default()
        };
        for change in [init, receive, send] {
            own.1.modify(&change).unwrap();
        }
    }
}
