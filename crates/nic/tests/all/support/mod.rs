//! Two engines in one process, on the real fabric, driven by the test's own thread.
// Each test file uses its part.
#![allow(dead_code)]

#[path = "../../../../fabric/tests/common/own_network.rs"]
pub mod own_network;

use pagewire_fabric::{Fabric, HostFabric};
use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::device::{Device, Mtu};
use pagewire_nic::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The engine on the real fabric.
pub type Host = Nic<HostFabric>;

/// Longest time that a test waits for something that must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One engine with the usual objects.
pub struct Side {
    pub nic: Arc<Host>,
    pub context: Arc<Context<HostFabric>>,
    pub domain: Arc<ProtectionDomain<HostFabric>>,
    pub send_cq: Arc<CompletionQueue<HostFabric>>,
    pub recv_cq: Arc<CompletionQueue<HostFabric>>,
    thread: Option<NicThread>,
}

/// The NIC thread of an engine.
struct NicThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A completion, as far as the tests compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub wr_id: u64,
    pub status: Status,
}

impl Side {
    /// An engine that is to use a path.
    pub fn new(path: PathChoice) -> Self {
        let mut side = Side::without_thread(path);
        let (nic, stop) = (side.nic.clone(), Arc::new(AtomicBool::new(false)));
        let stops = stop.clone();
        side.thread = Some(NicThread { stop, thread: std::thread::spawn(move || nic.run(&stops)) });
        side
    }

    /// One that does nothing but when the test drives it.
    pub fn without_thread(path: PathChoice) -> Self {
        Side::with_options(Options { path, ..Options::default() })
    }

    /// One without a thread, with these options.
    pub fn with_options(options: Options) -> Self {
        let nic = Nic::new(HostFabric::new().expect("a fabric"), options);
        let device = device::devices().expect("devices").into_iter().next().expect("a device");
        let context = pagewire_nic::Context::open(&nic, device, Arc::new(Unwatched));
        let domain = context.alloc_pd().unwrap();
        let send_cq = context.create_cq(4096, None).unwrap();
        let recv_cq = context.create_cq(4096, None).unwrap();
        Side { nic, context, domain, send_cq, recv_cq, thread: None }
    }

    /// A queue pair in INIT.
    pub fn queue_pair(&self, kind: QueuePairType, access: Rights) -> Arc<QueuePair<HostFabric>> {
        let queue_pair = pagewire_nic::QueuePair::create(
            &self.domain,
            QueuePairInit {
                kind,
                send_cq: self.send_cq.clone(),
                recv_cq: self.recv_cq.clone(),
                srq: None,
                capabilities: QpCapabilities {
                    max_send_wr: 128,
                    max_recv_wr: 128,
                    max_send_sge: 8,
                    max_recv_sge: 8,
                    max_inline_data: 1024,
                },
                signal_all: true,
                xrc: None,
            },
        )
        .unwrap();
        to_init(&queue_pair, access);
        queue_pair
    }

    /// The first IPv4 address of the device.
    pub fn gid_index(&self) -> u8 {
        self.device().gids.iter().position(|gid| gid.address.is_ipv4()).unwrap_or(0) as u8
    }

    fn device(&self) -> &Device {
        self.context.device()
    }

    /// The way to an engine on the same device.
    pub fn vector(&self) -> AddressVector {
        let index = self.gid_index();
        AddressVector {
            destination_gid: self.device().gids[usize::from(index)].raw(),
            source_gid_index: index,
            is_global: true,
            port: 1,
            hop_limit: 64,
            ..Default::default()
        }
    }

    /// Registers a buffer that lives as long as the test.
    pub fn buffer(&self, length: usize, access: Rights) -> Buffer {
        let bytes = Box::leak(vec![0u8; length].into_boxed_slice());
        let address = bytes.as_mut_ptr() as u64;
        let region = self.domain.register(address, length as u64, address, access).unwrap();
        Buffer { bytes, address, region }
    }

    /// Completions that are there.
    pub fn poll(&self, queue: &CompletionQueue<HostFabric>, into: &mut Vec<Done>) {
        queue.poll(64, &mut |completion| {
            into.push(Done { wr_id: completion.wr_id, status: completion.status })
        });
    }
}

/// The engine ends with its test: hundreds of them in one process would have no more memory to share.
impl Drop for Side {
    fn drop(&mut self) {
        for queue_pair in pagewire_nic::QueuePair::all_of(&self.nic) {
            // A test that failed may leave work behind.
            let _ = queue_pair.destroy();
        }
        if let Some(NicThread { stop, thread }) = self.thread.take() {
            stop.store(true, Ordering::Release);
            self.nic.fabric().kick();
            thread.thread().unpark();
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("the NIC thread panicked");
            }
        }
    }
}

/// Registered memory.
pub struct Buffer {
    pub bytes: &'static mut [u8],
    pub address: u64,
    pub region: Arc<MemoryRegion<HostFabric>>,
}

impl Buffer {
    /// A piece of it, for local use.
    pub fn piece(&self, offset: u64, length: u32) -> ScatterGather {
        ScatterGather { address: self.address + offset, length, key: self.region.lkey() }
    }
}

/// Attributes of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Timers {
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
}

/// Short enough for tests that wait for them to end, long enough for a peer that has lost the processor.
pub const TIMERS: Timers = Timers { timeout: 14, retry_count: 6, rnr_retry: 1 };

/// RESET to INIT.
pub fn to_init(queue_pair: &Arc<QueuePair<HostFabric>>, access: Rights) {
    let ud = queue_pair.kind() == QueuePairType::Ud;
    let change = QueuePairChange {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: (!ud).then_some(access),
        queue_key: ud.then_some(0x1111),
        ..Default::default()
    };
    queue_pair.modify(&change).unwrap();
}

/// INIT to RTR, towards a queue pair.
pub fn to_rtr(side: &Side, queue_pair: &Arc<QueuePair<HostFabric>>, peer: u32) {
    to_rtr_from(side, queue_pair, peer, 0xFF_FFF0);
}

/// INIT to RTR, towards a queue pair whose requests begin with `receive_psn`.
pub fn to_rtr_from(side: &Side, queue_pair: &Arc<QueuePair<HostFabric>>, peer: u32, receive_psn: u32) {
    let rc = queue_pair.kind() == QueuePairType::Rc;
    let change = QueuePairChange {
        state: Some(QpState::ReadyToReceive),
        address: Some(side.vector()),
        path_mtu: Some(Mtu::Mtu1024),
        destination: Some(peer),
        receive_psn: Some(receive_psn),
        max_dest_read_atomic: rc.then_some(4),
        min_rnr_timer: rc.then_some(1),
        ..Default::default()
    };
    queue_pair.modify(&change).unwrap();
}

/// RTR to RTS.
pub fn to_rts(queue_pair: &Arc<QueuePair<HostFabric>>, timers: Timers) {
    to_rts_from(queue_pair, timers, 0xFF_FFF0);
}

/// RTR to RTS, with requests that begin with `send_psn`.
pub fn to_rts_from(queue_pair: &Arc<QueuePair<HostFabric>>, timers: Timers, send_psn: u32) {
    let rc = queue_pair.kind() == QueuePairType::Rc;
    let change = QueuePairChange {
        state: Some(QpState::ReadyToSend),
        send_psn: Some(send_psn),
        timeout: rc.then_some(timers.timeout),
        retry_count: rc.then_some(timers.retry_count),
        rnr_retry: rc.then_some(timers.rnr_retry),
        max_read_atomic: rc.then_some(4),
        ..Default::default()
    };
    queue_pair.modify(&change).unwrap();
}

/// Queue pairs of two engines without threads, connected by a path that is known.
pub fn connect_without_threads([a, b]: [&Side; 2], timers: Timers) -> [Arc<QueuePair<HostFabric>>; 2] {
    let kind = QueuePairType::Rc;
    let [qa, qb] = [a, b].map(|side| side.queue_pair(kind, all_rights()));
    to_rtr(a, &qa, qb.number());
    to_rtr(b, &qb, qa.number());
    to_rts(&qa, timers);
    to_rts(&qb, timers);
    let start = Instant::now();
    while pagewire_nic::ConnectionReport::of_all(&a.nic)
        .iter()
        .chain(&pagewire_nic::ConnectionReport::of_all(&b.nic))
        .any(|report| report.path == "connecting")
    {
        assert!(start.elapsed() < PATIENCE, "no path");
        a.nic.progress();
        b.nic.progress();
    }
    [qa, qb]
}

/// Posts a SEND. True: it was kept, and wants a doorbell.
pub fn post_send(queue_pair: &Arc<QueuePair<HostFabric>>, wr_id: u64, pieces: &[ScatterGather]) -> bool {
    post_send_of(queue_pair, wr_id, Data::Segments(pieces))
}

/// Posts a SEND of any data. True: it was kept, and wants a doorbell.
pub fn post_send_of(queue_pair: &Arc<QueuePair<HostFabric>>, wr_id: u64, data: Data<'_>) -> bool {
    post_to(queue_pair, wr_id, SendOperation::Send, data).unwrap()
}

/// Posts a send request. True: it was kept, and wants a doorbell.
pub fn post_to(
    queue_pair: &Arc<QueuePair<HostFabric>>,
    wr_id: u64,
    operation: SendOperation,
    data: Data<'_>,
) -> Result<bool> {
    queue_pair.post_send(&SendRequest {
        wr_id,
        data,
        operation,
        signaled: true,
        fence: false,
        solicited: false,
        destination: None,
    })
}

/// Two engines and a connected pair of queue pairs.
pub struct Pair {
    pub a: Side,
    pub b: Side,
    pub qa: Arc<QueuePair<HostFabric>>,
    pub qb: Arc<QueuePair<HostFabric>>,
    pub sent: Vec<Done>,
    pub received: Vec<Done>,
}

/// All rights.
pub fn all_rights() -> Rights {
    Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC
}

impl Pair {
    /// Connected, in RTS, with these rights for requests to b.
    pub fn new(path: PathChoice, kind: QueuePairType, rights: Rights) -> Self {
        Pair::connect(Side::new(path), Side::new(path), kind, rights)
    }

    /// Connects two given engines, in RTS, with these rights for requests to b.
    pub fn connect(a: Side, b: Side, kind: QueuePairType, rights: Rights) -> Self {
        let (qa, qb) = (a.queue_pair(kind, all_rights()), b.queue_pair(kind, rights));
        to_rtr(&a, &qa, qb.number());
        to_rtr(&b, &qb, qa.number());
        to_rts(&qa, TIMERS);
        to_rts(&qb, TIMERS);
        let mut pair = Pair { a, b, qa, qb, sent: Vec::new(), received: Vec::new() };
        let start = Instant::now();
        while pagewire_nic::ConnectionReport::of_all(&pair.a.nic)
            .iter()
            .any(|report| report.path == "connecting")
            && start.elapsed() < PATIENCE
        {
            pair.turn();
        }
        pair
    }

    /// Posts a send request at a.
    pub fn post(&self, wr_id: u64, operation: SendOperation, pieces: &[ScatterGather]) -> Result<()> {
        post_to(&self.qa, wr_id, operation, Data::Segments(pieces))?;
        self.qa.doorbell();
        Ok(())
    }

    /// Posts a receive at b.
    pub fn receive(&self, wr_id: u64, pieces: &[ScatterGather]) {
        self.qb.post_receive(&ReceiveRequest { wr_id, segments: pieces }).unwrap();
    }

    /// One look at everything.
    pub fn turn(&mut self) {
        self.a.nic.progress();
        self.b.nic.progress();
        self.a.poll(&self.a.send_cq, &mut self.sent);
        self.b.poll(&self.b.recv_cq, &mut self.received);
    }

    /// Drives both until so many completions are there, or patience ends.
    pub fn until(&mut self, sent: usize, received: usize) {
        let start = Instant::now();
        while (self.sent.len() < sent || self.received.len() < received) && start.elapsed() < PATIENCE {
            self.turn();
        }
        // Whatever comes too much shows as well.
        for _ in 0..100 {
            self.turn();
        }
    }
}
