//! What happens where all claims are taken, and that revocation sees every claim of a peer.

use crate::path::initiator_copy::{AtomicTransfer, InitiatorBytes, InitiatorTransfer, LocalPath};
use crate::path::local::LocalChannel;
use crate::services::device::devices;
use crate::types::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use crate::types::gid::Mtu;
use crate::types::outcome::{AccessError, Cause};
use crate::*;
use pagewire_fabric::{Fabric, HostFabric};
use pagewire_iommu::Hazards;
use pagewire_iommu::hazards::{Claim, Revoked};
use pagewire_iommu::words::SharedWords;
use pagewire_memory::{
    ApplicationMemory, AtomicOperation, CopySource, LastSeen, MemoryError, RemoteMemory, Segment, Unreached,
};
use pagewire_transport::{AtomicRequest, RemoteAddress, WorkOperation};
use std::cell::RefCell;
use std::result::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type HostNic = Nic<HostFabric>;

/// Longest time that a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rounds in which something that waits for a claim is tried again and again.
const ROUNDS: usize = 20;
/// Bytes of a message that does not fit in a ring record.
const LONG: usize = 10_000;
/// No region has this number.
const NO_REGION: u32 = 0xFF_FFF0;

/// An engine without a thread, a queue pair in INIT, and a region.
struct EngineSide {
    nic: Arc<HostNic>,
    cq: Arc<CompletionQueue<HostFabric>>,
    queue_pair: Arc<QueuePair<HostFabric>>,
    region: Arc<MemoryRegion<HostFabric>>,
    bytes: &'static mut [u8],
    vector: AddressVector,
}

impl EngineSide {
    fn new(path: PathChoice) -> EngineSide {
        let nic = Nic::new(HostFabric::new().unwrap(), Options { path, ..Options::default() });
        let device = devices().unwrap().into_iter().next().unwrap();
        let gid = device.gids.iter().position(|gid| gid.address.is_ipv4()).unwrap_or(0);
        let (source_gid_index, destination_gid) = (gid as u8, device.gids[gid].raw());
        let vector = AddressVector {
            destination_gid,
            source_gid_index,
            is_global: true,
            port: 1,
            hop_limit: 64,
            ..Default::default()
        };
        let context = crate::Context::open(&nic, device, Arc::new(Unwatched));
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(64, None).unwrap();
        let capabilities = QpCapabilities {
            max_send_wr: 8,
            max_recv_wr: 64,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 0,
        };
        let init = QueuePairInit {
            kind: QueuePairType::Rc,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            capabilities,
            signal_all: true,
            xrc: None,
        };
        let queue_pair = crate::QueuePair::create(&domain, init).unwrap();
        let rights = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
        let change = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(rights),
            ..Default::default()
        };
        queue_pair.modify(&change).unwrap();
        let bytes = Box::leak(vec![0; 2 * LONG].into_boxed_slice());
        let address = bytes.as_mut_ptr() as u64;
        let region = domain.register(address, bytes.len() as u64, address, rights).unwrap();
        EngineSide { nic, cq, queue_pair, region, bytes, vector }
    }

    fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    /// INIT to RTS.
    fn connect(&self, peer: u32) {
        let rtr = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(self.vector),
            path_mtu: Some(Mtu::Mtu1024),
            destination: Some(peer),
            receive_psn: Some(0),
            max_dest_read_atomic: Some(1),
            min_rnr_timer: Some(1),
            ..Default::default()
        };
        self.queue_pair.modify(&rtr).unwrap();
        let rts = QueuePairChange {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(0),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_read_atomic: Some(1),
            ..Default::default()
        };
        self.queue_pair.modify(&rts).unwrap();
    }

    /// Posts a request of so many bytes of the first half of the memory, or a receive into the second half.
    fn post(&self, operation: SendOperation, length: usize) {
        let segments =
            &[ScatterGather { address: self.address(), length: length as u32, key: self.region.lkey() }];
        let (data, destination) = (Data::Segments(segments), None);
        let (signaled, fence, solicited) = (true, false, false);
        let request = SendRequest { wr_id: 1, data, operation, signaled, fence, solicited, destination };
        if self.queue_pair.post_send(&request).unwrap() {
            self.queue_pair.doorbell();
        }
    }

    fn post_receive(&self) {
        let piece = ScatterGather {
            address: self.address() + LONG as u64,
            length: LONG as u32,
            key: self.region.lkey(),
        };
        self.queue_pair.post_receive(&ReceiveRequest { wr_id: 2, segments: &[piece] }).unwrap();
    }

    fn poll(&self, into: &mut Vec<Status>) {
        self.cq.poll(8, &mut |completion| into.push(completion.status));
    }

    /// Its end of the channel to the other one.
    fn channel(&self) -> Arc<LocalChannel<HostFabric>> {
        self.nic.paths.channels.read()[0].clone()
    }
}

/// Two engines whose queue pairs are connected, and whose path is known.
fn connected(path: PathChoice) -> [EngineSide; 2] {
    let sides = [(); 2].map(|()| EngineSide::new(path));
    sides[0].connect(sides[1].queue_pair.number());
    sides[1].connect(sides[0].queue_pair.number());
    let limit = Instant::now() + PATIENCE;
    let looks = |side: &EngineSide| side.queue_pair.report().path == "connecting";
    while sides.iter().any(looks) {
        assert!(Instant::now() < limit, "no path");
        sides.iter().for_each(|side| _ = side.nic.progress());
    }
    sides
}

/// Takes all claims that are free.
fn take_all<W: SharedWords>(hazards: &Hazards<W>) -> Vec<Claim> {
    std::iter::from_fn(|| hazards.claim(NO_REGION, 0)).collect()
}

/// Whose claims are all taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExhaustedClaims {
    /// Of the requester, on its own memory.
    Here,
    /// Of the responder, on its own memory.
    There,
    /// Of the requester, on the responder's memory.
    Initiator,
    /// Of the responder, on the requester's memory.
    Receiver,
}

/// Nobody says that a claim is free again. So what waits for one is queued again, whatever it is.
#[test]
fn what_finds_all_claims_taken_is_tried_again_and_completes() {
    use ExhaustedClaims::{Here, Initiator, Receiver, There};
    use PathChoice::{Local, Udp};
    let write = |peer: &EngineSide| SendOperation::Write {
        address: peer.address() + LONG as u64,
        key: peer.region.rkey(),
    };
    let read = |peer: &EngineSide| SendOperation::Read {
        address: peer.address() + LONG as u64,
        key: peer.region.rkey(),
    };
    let send = |_: &EngineSide| SendOperation::Send;
    type OperationOf = fn(&EngineSide) -> SendOperation;
    let operations: [(OperationOf, usize); 5] =
        [(write, 8), (write, LONG), (read, LONG), (send, 8), (send, LONG)];
    let mut waited = Vec::new();
    for path in [Local, Udp] {
        let [one, two] = &connected(path);
        for taken in [Here, There, Initiator, Receiver] {
            if path == Udp && matches!(taken, Initiator | Receiver) {
                continue;
            }
            for (index, (operation, length)) in operations.into_iter().enumerate() {
                two.post_receive();
                let (free, held): (Box<dyn Fn(Claim)>, Vec<Claim>) = match taken {
                    Here | There => {
                        let nic = if taken == Here { one } else { two }.nic.clone();
                        let held = take_all(&nic.services.own_hazards);
                        (Box::new(move |claim| nic.services.own_hazards.release(claim)), held)
                    }
                    Initiator | Receiver => {
                        let channel = if taken == Initiator { one } else { two }.channel();
                        let held = take_all(&channel.own_hazards);
                        (Box::new(move |claim| channel.own_hazards.release(claim)), held)
                    }
                };
                assert!(held.len() >= 16, "{} claims", held.len());
                one.post(operation(two), length);
                let mut done = Vec::new();
                let mut turn = || {
                    [one, two].iter().for_each(|side| _ = side.nic.progress());
                    one.poll(&mut done);
                    two.poll(&mut Vec::new());
                    done.len()
                };
                let is_done = (0..ROUNDS).any(|_| turn() > 0);
                if !is_done {
                    let is_due = |side: &&EngineSide| side.nic.next_due(side.nic.fabric().now()).is_some();
                    assert!([one, two].iter().any(is_due), "{path} {taken:?} {index}: nobody tries again");
                    waited.push((path, taken, index));
                }
                held.into_iter().for_each(&free);
                let limit = Instant::now() + PATIENCE;
                while turn() == 0 && Instant::now() < limit {}
                assert_eq!(done, [Status::Success], "{path} {taken:?} {index}");
            }
        }
    }
    let mut expected: Vec<_> = (0..5).map(|index| (Local, Here, index)).collect();
    // Whoever executes a WRITE or READ in a peer's memory claims that in the channel.
    expected.extend([(Local, There, 3), (Local, There, 4)]);
    expected.extend([0, 1, 2].map(|index| (Local, Initiator, index)));
    expected.push((Local, Receiver, 4));
    expected.extend([Here, There].iter().flat_map(|taken| (0..5).map(|index| (Udp, *taken, index))));
    assert_eq!(waited, expected);
}

/// A peer that has the channel already may access a region whose owner has made no round since: the end of the region waits for it.
#[test]
fn the_end_of_a_region_waits_for_claims_of_a_channel_that_no_round_has_taken_over() {
    let [one, two] = [(); 2].map(|()| EngineSide::new(PathChoice::Local));
    one.connect(two.queue_pair.number());
    let limit = Instant::now() + PATIENCE;
    while one.nic.paths.channels.read().is_empty() {
        assert!(Instant::now() < limit, "no channel");
        one.nic.progress();
        // The fabric answers by itself; what it has to tell is left to the engine.
        two.nic.fabric().wait(Some(two.nic.fabric().now()));
    }
    assert!(two.nic.paths.channels.read().is_empty(), "no round of this engine has taken it over");
    let (place, key) = (two.queue_pair.state.properties.place, two.region.rkey());
    let channel = one.channel();
    let claim = channel.own_hazards.claim(two.nic.services.regions.place_of(key), place).unwrap();
    let released = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let deregistering = scope.spawn(|| {
            two.region.deregister().unwrap();
            released.load(Ordering::SeqCst)
        });
        // Long enough for one that does not wait, and much less than the bound.
        std::thread::sleep(Duration::from_millis(100));
        released.store(true, Ordering::SeqCst);
        channel.own_hazards.release(claim);
        assert!(deregistering.join().unwrap(), "the region ended under an access");
    });
}

/// Memory of no process, which is reached without the kernel, in the place of the peer's. Notes what is asked of it, and whether a
/// claim on the peer's queue pair was held then.
struct TestMemory<'m> {
    memory: &'m <HostFabric as Fabric>::Memory,
    /// Address of the first of these bytes.
    base: u64,
    bytes: RefCell<Vec<u8>>,
    peer_hazards: Hazards<<HostFabric as Fabric>::SharedMemory>,
    place: u32,
    calls: RefCell<Vec<(&'static str, bool)>>,
    fails: bool,
}

impl TestMemory<'_> {
    fn note(&self, call: &'static str) -> Result<(), MemoryError> {
        let held = self.peer_hazards.holds(Revoked::QueuePair(self.place));
        self.calls.borrow_mut().push((call, held));
        if self.fails { Err(MemoryError::PeerGone) } else { Ok(()) }
    }

    fn range(&self, there: &[Segment]) -> std::ops::Range<usize> {
        let [there] = there else { panic!("one segment") };
        let start = (there.address - self.base) as usize;
        start..start + there.length as usize
    }
}

impl RemoteMemory for TestMemory<'_> {
    fn reach(&self, _there: Segment, _moment: u64, _seen: &mut LastSeen) -> Result<(), Unreached> {
        let _ = self.note("reach");
        Ok(())
    }

    fn put(&self, from: CopySource<'_>, there: &[Segment], _tail_last: bool) -> Result<(), MemoryError> {
        self.note("put")?;
        let into = &mut self.bytes.borrow_mut()[self.range(there)];
        match from {
            CopySource::Segments(from) => self.memory.read(from, into),
            CopySource::Bytes(bytes) => {
                into.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn get(&self, there: &[Segment], into: &[Segment], tail_last: bool) -> Result<(), MemoryError> {
        self.note("get")?;
        self.memory.write(&self.bytes.borrow()[self.range(there)], into, tail_last)
    }

    fn get_bytes(&self, there: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
        self.note("get")?;
        into.copy_from_slice(&self.bytes.borrow()[self.range(there)]);
        Ok(())
    }

    fn atomic(&self, there: Segment, operation: AtomicOperation) -> Result<u64, MemoryError> {
        self.note("atomic")?;
        let AtomicOperation::FetchAdd { add } = operation else { panic!("a fetch-add") };
        let word = &mut self.bytes.borrow_mut()[self.range(&[there])];
        let original = u64::from_ne_bytes((&*word).try_into().unwrap());
        word.copy_from_slice(&(original + add).to_ne_bytes());
        Ok(original)
    }

    fn takes_atomics(&self, there: Segment) -> bool {
        there.address % 8 == 0
    }

    fn words(&self, _: Segment) -> Option<&[AtomicU64]> {
        None
    }

    fn may_fault(&self) -> bool {
        true
    }
}

/// The trait is what transfers need of a peer's memory: another implementation of it takes the place of cross-memory attach.
#[test]
fn transfers_work_with_any_remote_memory_and_touch_it_under_a_claim() {
    let sides = connected(PathChoice::Local);
    sides[0].bytes[..8].fill(7);
    let [one, two] = &sides;
    let (base, key) = (two.address(), two.region.rkey());
    let at = |offset| RemoteAddress { address: base + offset, key };
    let piece = ScatterGather { address: one.address(), length: 8, key: one.region.lkey() };
    let into = ScatterGather { address: one.address() + 8, ..piece };
    let original = ScatterGather { address: one.address() + 16, ..piece };
    let write = |offset| WorkOperation::Write { remote: at(offset), immediate: None };
    let fetch_add = WorkOperation::Atomic { remote: at(8), atomic: AtomicRequest::FetchAdd { add: 1 } };
    let cases = [
        (write(0), InitiatorBytes::Segments(std::slice::from_ref(&piece)), "put"),
        (write(8), InitiatorBytes::Inline(&[9; 8]), "put"),
        (WorkOperation::Read { remote: at(4) }, InitiatorBytes::Segments(std::slice::from_ref(&into)), "get"),
        (fetch_add, InitiatorBytes::Segments(std::slice::from_ref(&original)), "atomic"),
    ];
    let channel = one.channel();
    let mut qpc = one.queue_pair.state.qpc.lock();
    for fails in [true, false] {
        let mut bytes = vec![0; 16];
        for (operation, data, call) in &cases {
            let LocalPath {
                services,
                by,
                channel,
                peer,
                domain,
                send_psn,
                is_reliable,
                waits,
                mr_cache,
                peer_knows_rts,
                peer_logs,
                ..
            } = qpc.local(&one.queue_pair.state).unwrap();
            let remote = TestMemory {
                memory: services.fabric.memory(),
                base,
                bytes: RefCell::new(bytes),
                peer_hazards: channel.own_hazards.clone(),
                place: two.queue_pair.state.properties.place,
                calls: RefCell::default(),
                fails,
            };
            let mut path = LocalPath {
                services,
                by,
                channel,
                remote,
                peer,
                domain,
                send_psn,
                is_reliable,
                waits,
                mr_cache,
                peer_knows_rts,
                peer_logs,
            };
            let outcome = match (InitiatorTransfer::new(operation, 8), AtomicTransfer::new(operation), *data)
            {
                (Some(transfer), ..) => path.execute(&transfer, *data),
                (None, Some(atomic), InitiatorBytes::Segments(pieces)) => {
                    path.execute_atomic(&atomic, pieces)
                }
                _ => panic!("no such transfer"),
            };
            let refused = Err(AccessError::Refused(Cause::PeerUnreadable));
            assert_eq!(outcome, if fails { refused } else { Ok(()) });
            assert_eq!(*path.remote.calls.borrow(), [("reach", false), (*call, true)]);
            bytes = path.remote.bytes.into_inner();
        }
        let expected =
            if fails { [0; 16] } else { [[7; 8], [10, 9, 9, 9, 9, 9, 9, 9]].concat().try_into().unwrap() };
        assert_eq!(bytes, expected);
    }
    assert!(
        !channel.own_hazards.holds(Revoked::QueuePair(two.queue_pair.state.properties.place)),
        "a claim is left"
    );
    assert_eq!(one.bytes[8..16], [7, 7, 7, 7, 9, 9, 9, 9]);
    assert_eq!(one.bytes[16..24], [9; 8], "what was there");
    assert_eq!(two.bytes[..16], [0; 16], "the peer's own memory is not touched");
}
