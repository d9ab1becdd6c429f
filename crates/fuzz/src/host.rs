//! A host under attack: a process of the simulated world that runs the NIC, with queue pairs of every type in every state,
//! and a peer without an engine that sends it whatever it likes, under whatever address.

mod memory;
mod program;

pub use memory::{ModelMemory, TestRegion};
pub use program::{MTU, Program, ProgramWish, QUEUE_KEY};

use pagewire_fabric::{Fabric, QUEUE_PAIRS_PER_BLOCK, Route, SendBatch};
use pagewire_iommu::Rights;
use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairType};
use pagewire_nic::{Nic, Options, QueuePairInit, SharedReceiveInit, Unwatched};
use pagewire_sim::{LinkFaults, SimFabric, World};
use pagewire_wire::{Opcode, PacketHeader, PacketOperation, Transport};
use program::ProgramQueuePair;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Rounds in which a NIC has nothing left to do at one time.
const ROUNDS: u32 = 2_000;
/// Nanoseconds in which what was sent arrives.
const LINK_TIME: u64 = 2_000;
/// Packets that a NIC may send for each that comes in, each request of its program, and each expiry of a timer: a READ of a
/// whole region and more.
const PACKETS_FOR_ONE: u64 = 96;

/// A link that delivers at once, in order.
const LINK: LinkFaults = LinkFaults {
    loss: 0.0,
    duplicate: 0.0,
    reorder: 0.0,
    corrupt: 0.0,
    delay: (0, 0),
    byte_time: 0,
    queue: 1 << 20,
    streams: None,
};

/// A packet that the NIC under attack sent to its peer.
pub struct Heard {
    pub header: PacketHeader,
    pub payload: usize,
}

/// The host under attack and the attacker's means.
pub struct AttackedHost {
    world: World,
    nic: Arc<Nic<SimFabric>>,
    peer: SimFabric,
    pub peer_address: IpAddr,
    pub own_address: IpAddr,
    pub memory: ModelMemory,
    pub program: Program,
    batch: <SimFabric as Fabric>::Batch,
    /// What the NIC has sent to its peer and nobody has looked at.
    pub heard: Vec<Heard>,
    /// Packets that were sent to the NIC.
    pub packets: u64,
    /// What it may have answered by now.
    allowance: u64,
    answers: u64,
    /// What it answered.
    pub answered: HashMap<Opcode, u64>,
}

fn vector(address: IpAddr) -> AddressVector {
    let IpAddr::V4(four) = address else { unreachable!("hosts of the world have IPv4 addresses") };
    AddressVector {
        destination_gid: four.to_ipv6_mapped().octets(),
        is_global: true,
        hop_limit: 64,
        port: 1,
        ..Default::default()
    }
}

impl AttackedHost {
    /// The host, its queue pairs brought up.
    pub fn new() -> Self {
        use QueuePairType::{Rc, Uc, Ud};
        let world = World::new(1, LINK);
        let (host, other) = (world.host(), world.host());
        let (process, fabric) = world.process(host);
        let (peer_process, peer) = world.process(other);
        let block = peer.lease_block().expect("a block of queue pair numbers");
        let (own_address, peer_address) =
            (world.device(process).gids[0].address, world.device(peer_process).gids[0].address);
        let nic = Nic::new(fabric, Options::default());
        let context = pagewire_nic::Context::open(&nic, world.device(process), Arc::new(Unwatched));
        let domain = context.alloc_pd().expect("a protection domain");
        let other_domain = context.alloc_pd().expect("another");
        let send_cq = context.create_cq(4096, None).expect("a completion queue");
        let recv_cq = context.create_cq(4096, None).expect("another");
        let shared = SharedReceiveInit { max_wr: 24, max_sge: 2, limit: 0 };
        let srq = pagewire_nic::SharedReceiveQueue::create(&domain, &shared).expect("a shared receive queue");
        let vectors = (vector(peer_address), vector(own_address));
        let handle = domain.create_ah(&vectors.0).expect("an address handle");
        let mut program =
            Program::new(send_cq.clone(), recv_cq.clone(), srq.clone(), handle, vectors, own_address);
        let all = Rights::LOCAL_WRITE | Rights::REMOTE | Rights::FLUSH;
        let write = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE;
        let kinds = [
            (Rc, QpState::ReadyToSend, all, false),
            (Rc, QpState::ReadyToSend, all, true),
            (Rc, QpState::ReadyToReceive, all, false),
            (Rc, QpState::ReadyToSend, write, false),
            (Rc, QpState::SendQueueDrain, Rights::empty(), false),
            (Uc, QpState::ReadyToSend, all, false),
            (Uc, QpState::ReadyToSend, write, true),
            (Ud, QpState::ReadyToSend, Rights::empty(), false),
            (Ud, QpState::ReadyToReceive, Rights::empty(), true),
            (Rc, QpState::Init, all, false),
            (Uc, QpState::Error, all, false),
            (Rc, QpState::Reset, all, false),
            // Connected to each other, in this process.
            (Rc, QpState::ReadyToSend, all, false),
            (Rc, QpState::ReadyToSend, all, false),
        ];
        for (kind, home, access, shared) in kinds {
            let queue_pair = pagewire_nic::QueuePair::create(
                &domain,
                QueuePairInit {
                    kind,
                    send_cq: send_cq.clone(),
                    recv_cq: recv_cq.clone(),
                    srq: shared.then(|| srq.clone()),
                    capabilities: QpCapabilities {
                        max_send_wr: program::DEPTH,
                        max_recv_wr: program::DEPTH,
                        max_send_sge: 2,
                        max_recv_sge: 2,
                        max_inline_data: 64,
                    },
                    signal_all: true,
                    xrc: None,
                },
            );
            let queue_pair = queue_pair.expect("there is room for queue pairs");
            program.ends.push(ProgramQueuePair::new(queue_pair, home, access, shared));
        }
        let memory = ModelMemory::new(&world, process, [domain, other_domain], program.ends.len());
        let last = program.ends.len() - 1;
        for index in 0..program.ends.len() {
            let local = index + 2 > program.ends.len();
            let inner = program.ends[if index == last { last - 1 } else { last }].queue_pair.number();
            let end = &mut program.ends[index];
            (end.peer, end.peer_address) = match local {
                true => (inner, own_address),
                false => (block * QUEUE_PAIRS_PER_BLOCK + index as u32, peer_address),
            };
            // One gives up soon, one never.
            end.patience = [(14, 7, 7), (8, 1, 1), (0, 7, 7)][index % 3];
        }
        for index in 0..program.ends.len() {
            program.raise(index);
        }
        let batch = peer.batch();
        let mut host = AttackedHost {
            world,
            nic,
            peer,
            peer_address,
            own_address,
            memory,
            program,
            batch,
            heard: Vec::new(),
            packets: 0,
            allowance: 0,
            answers: 0,
            answered: HashMap::new(),
        };
        host.run_for(1_000_000);
        host
    }

    /// Has the host's memory do wrong once, after so many chances.
    #[cfg(test)]
    pub fn plant(&self, plant: pagewire_sim::Plant, chances: u32) {
        self.nic.fabric().process().plant(plant, chances);
    }

    /// Puts a packet under way (BTH to padding), and notes what memory it may change. False: nobody would send it.
    pub fn send(&mut self, source: IpAddr, bytes: &[u8]) -> bool {
        let route = Route {
            source,
            interface: 0,
            source_port: 0xC000,
            destination: self.own_address,
            port: pagewire_fabric::ROCE_PORT,
            traffic_class: 0,
            hop_limit: 64,
            stream: None,
        };
        let room = match self.batch.packet(&route, bytes.len()) {
            Some(room) => room,
            None => {
                self.flush();
                match self.batch.packet(&route, bytes.len()) {
                    Some(room) => room,
                    None => return false,
                }
            }
        };
        room.copy_from_slice(bytes);
        self.packets += 1;
        self.allowance += PACKETS_FOR_ONE;
        self.note(source, bytes);
        true
    }

    /// What a packet that comes from a connection's peer may change.
    fn note(&mut self, source: IpAddr, bytes: &[u8]) {
        let Ok((header, _)) = PacketHeader::parse(bytes) else { return };
        let ends = self.program.ends.iter().enumerate();
        let (rc, uc) =
            (header.bth.opcode.transport() == Transport::Rc, header.bth.opcode.transport() == Transport::Uc);
        let Some((index, end)) = ends.into_iter().find(|(_, end)| {
            end.queue_pair.number() == header.bth.destination
                && end.peer_address == source
                && (rc && end.kind == QueuePairType::Rc || uc && end.kind == QueuePairType::Uc)
        }) else {
            return;
        };
        let access = end.access;
        if let Some(reth) = header.reth {
            let operation = header.bth.opcode.operation();
            let write = !matches!(operation, Some(PacketOperation::ReadRequest | PacketOperation::Flush));
            if write && access.contains(Rights::REMOTE_WRITE) {
                self.memory.grant(
                    index,
                    reth.key,
                    reth.address,
                    u64::from(reth.length),
                    Rights::REMOTE_WRITE,
                );
            }
        }
        if let Some(atomic) = header.atomic {
            if access.contains(Rights::REMOTE_ATOMIC) && atomic.address % 8 == 0 {
                self.memory.grant(index, atomic.key, atomic.address, 8, Rights::REMOTE_ATOMIC);
            }
        }
    }

    fn flush(&mut self) {
        let full = std::mem::replace(&mut self.batch, self.peer.batch());
        self.peer.flush(full);
    }

    /// Delivers what is under way, lets `time` nanoseconds pass, and the NIC do all it can meanwhile.
    pub fn run_for(&mut self, time: u64) {
        self.flush();
        let until = self.world.now() + LINK_TIME + time;
        let mut rounds = 0;
        loop {
            // Every look at the clock lets time pass: what is due by then was not due in this round.
            let begun = self.world.now();
            let due = self.nic.progress().unwrap_or(u64::MAX);
            // Timers of that many queue pairs expire now and then; nothing else makes work.
            if due > begun {
                let next = due.min(until);
                if self.world.now() >= until {
                    break;
                }
                self.allowance += PACKETS_FOR_ONE;
                self.world.advance(Some(next));
                rounds = 0;
            }
            rounds += 1;
            assert!(rounds < ROUNDS, "the NIC does not come to an end");
        }
        self.listen();
        self.program.poll(&mut self.memory);
    }

    /// Takes what the NIC sent to its peer.
    fn listen(&mut self) {
        let heard = &mut self.heard;
        let (answers, answered) = (&mut self.answers, &mut self.answered);
        while self.peer.receive(1024, &mut |datagrams| {
            for datagram in datagrams {
                *answers += 1;
                let (header, at) = PacketHeader::parse(datagram.bytes).expect("a NIC sends packets");
                *answered.entry(header.bth.opcode).or_default() += 1;
                let payload = &datagram.bytes[at..];
                let operation = header.bth.opcode.operation();
                if matches!(
                    operation,
                    Some(
                        PacketOperation::ReadResponseFirst
                            | PacketOperation::ReadResponseMiddle
                            | PacketOperation::ReadResponseLast
                            | PacketOperation::ReadResponseOnly
                    )
                ) {
                    ModelMemory::check_disclosed(payload);
                }
                heard.push(Heard { header, payload: payload.len() });
            }
        }) > 0
        {}
        assert!(self.answers <= self.allowance, "{} packets are answered by {}", self.packets, self.answers);
    }

    /// The program posts a send request.
    pub fn post_send(&mut self, wish: &ProgramWish) {
        self.allowance += PACKETS_FOR_ONE;
        self.program.post_send(wish, &mut self.memory);
    }

    /// The program brings queue pairs that have failed back to where they were.
    pub fn revive_fallen(&mut self, flush: bool) {
        for index in 0..self.program.ends.len() {
            if self.program.ends[index].is_fallen() {
                self.program.revive(index, flush, &mut self.memory);
            }
        }
    }

    /// Ends everything and looks at all of it once more.
    pub fn end(mut self) {
        self.run_for(1_000_000);
        self.memory.check();
        self.program.end(&mut self.memory);
        // What is still under way finds nobody.
        self.run_for(10_000_000_000);
        self.memory.check();
    }
}

impl Default for AttackedHost {
    fn default() -> Self {
        AttackedHost::new()
    }
}
