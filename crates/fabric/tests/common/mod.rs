//! What the tests share.
#![allow(dead_code)] // Each test file uses its part.

#[path = "../../../../tests/src/not_checked.rs"]
pub mod not_checked;
mod own_network;

use pagewire_fabric::{
    Channel, Fabric, FabricEvent, FaultBatch, HostFabric, MappedWords, ROCE_PORT, Route, SendBatch,
    StreamState,
};
use pagewire_memory::HostProcess;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub type Event = FabricEvent<MappedWords, HostProcess>;
pub type HostChannel = Channel<MappedWords, HostProcess>;

/// Far longer than anything takes; only a hang gets there.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Fabrics of other tests would share the port; what reached them when they end would be lost.
static ALONE: Mutex<()> = Mutex::new(());

/// For a test of which nothing leaves this host: alone among the tests of this binary.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|failed| failed.into_inner())
}

/// For a test that needs a network namespace of its own: alone in it. `None`: the test has been run there.
pub fn alone_in_own_network() -> Option<MutexGuard<'static, ()>> {
    let alone = alone();
    own_network::is_here().then_some(alone)
}

/// Serves the fabrics until `done` gives something. `done` sees each event once.
pub fn until<R>(fabrics: &[&HostFabric], mut done: impl FnMut(usize, &mut Vec<Event>) -> Option<R>) -> R {
    let end = Instant::now() + PATIENCE;
    let mut kept: Vec<Vec<Event>> = fabrics.iter().map(|_| Vec::new()).collect();
    loop {
        for (index, fabric) in fabrics.iter().enumerate() {
            fabric.wait(Some(fabric.now() + 1_000_000));
            fabric.events(&mut kept[index]);
            if let Some(found) = done(index, &mut kept[index]) {
                return found;
            }
        }
        assert!(Instant::now() < end, "nothing happens");
    }
}

/// Opens a channel from one fabric to the block of another; both ends.
pub fn open(from: &HostFabric, to: &HostFabric, block: u32) -> (HostChannel, HostChannel) {
    from.connect(block);
    let (mut connected, mut accepted) = (None, None);
    until(&[from, to], |_, events| {
        for event in events.drain(..) {
            match event {
                FabricEvent::Connected { channel, .. } => connected = Some(channel),
                FabricEvent::Accepted { channel } => accepted = Some(channel),
                FabricEvent::Refused { reason, .. } => panic!("refused: {reason}"),
                _ => {}
            }
        }
        (connected.is_some() && accepted.is_some()).then_some(())
    });
    (connected.unwrap(), accepted.unwrap())
}

/// A packet body: a BTH for a queue pair, then `length` bytes derived from `seed`.
pub fn packet(queue_pair: u32, seed: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; 12 + length];
    // UC SEND only.
    bytes[0] = 0x24;
    bytes[2..4].copy_from_slice(&[0xFF, 0xFF]);
    bytes[4..8].copy_from_slice(&(queue_pair & 0xFF_FFFF).to_be_bytes());
    bytes[8..12].copy_from_slice(&(seed & 0xFF_FFFF).to_be_bytes());
    for (index, byte) in bytes[12..].iter_mut().enumerate() {
        *byte = (seed as usize).wrapping_mul(31).wrapping_add(index * 7) as u8;
    }
    bytes
}

pub fn route(source: &str, destination: &str, fabric: &HostFabric) -> Route {
    Route {
        source: source.parse().unwrap(),
        interface: 0,
        source_port: 0,
        destination: destination.parse().unwrap(),
        port: fabric.direct_port(),
        traffic_class: 0x68,
        hop_limit: 33,
        stream: None,
    }
}

pub fn send<F: Fabric>(fabric: &F, route: &Route, packets: &[Vec<u8>]) {
    let mut batch = fabric.batch();
    for packet in packets {
        if let Some(room) = batch.packet(route, packet.len()) {
            room.copy_from_slice(packet);
        } else {
            fabric.flush(std::mem::replace(&mut batch, fabric.batch()));
            batch.packet(route, packet.len()).unwrap().copy_from_slice(packet);
        }
    }
    fabric.flush(batch);
}

/// Sends one packet after the other until one leaves by a connected socket. Gives whether that happened.
pub fn send_until_connected(from: &HostFabric, route: &Route, body: &[u8], mut serve: impl FnMut()) -> bool {
    for _ in 0..20_000 {
        send(from, route, &[body.to_vec()]);
        serve();
        if from.counters().connected_sends.get() > 0 {
            return true;
        }
    }
    false
}

/// Has a bit of the last packet turned round behind its ICRC.
pub fn damage_last(batch: &mut FaultBatch, bit: usize) {
    let FaultBatch::Direct(batch) = batch else { panic!("faults are made") };
    batch.damage(bit);
}

pub struct Got {
    pub bytes: Vec<u8>,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub traffic_class: u8,
    pub hop_limit: u8,
}

/// Receives until `count` datagrams are there, or nothing comes for the time given.
pub fn receive<F: Fabric>(fabrics: &[&F], count: usize, quiet: Duration) -> Vec<Vec<Got>> {
    let mut got: Vec<Vec<Got>> = fabrics.iter().map(|_| Vec::new()).collect();
    let mut last = Instant::now();
    while got.iter().map(Vec::len).sum::<usize>() < count && last.elapsed() < quiet {
        for (index, fabric) in fabrics.iter().enumerate() {
            let handed = fabric.receive(64, &mut |datagrams| {
                got[index].extend(datagrams.iter().map(|datagram| Got {
                    bytes: datagram.bytes.to_vec(),
                    source: datagram.source,
                    destination: datagram.destination,
                    traffic_class: datagram.traffic_class,
                    hop_limit: datagram.hop_limit,
                }));
            });
            if handed > 0 {
                last = Instant::now();
            }
        }
    }
    got
}

/// Serves the fabrics for a moment.
pub fn serve(fabrics: &[&HostFabric]) {
    let _ = receive(fabrics, 1, Duration::from_millis(2));
    for fabric in fabrics {
        fabric.events(&mut Vec::new());
        fabric.wait(Some(fabric.now()));
    }
}

/// What becomes of the stream to the process that leases a block.
pub fn answer(from: &HostFabric, others: &[&HostFabric], block: u32, route: &Route) -> Result<Route, String> {
    answer_between(from, others, (0, block), route)
}

/// As [`answer`], of a stream from the first block.
pub fn answer_between(
    from: &HostFabric,
    others: &[&HostFabric],
    blocks: (u32, u32),
    route: &Route,
) -> Result<Route, String> {
    let until = Instant::now() + PATIENCE;
    let all: Vec<_> = others.iter().copied().chain([from]).collect();
    loop {
        match from.stream_to(route, blocks, 0) {
            (id, StreamState::Open) => return Ok(Route { stream: Some(id), ..*route }),
            (_, StreamState::Refused(reason) | StreamState::EncryptedOnly(reason)) => return Err(reason),
            (_, StreamState::Connecting) => serve(&all),
        }
        assert!(Instant::now() < until, "no answer");
    }
}

/// The port that a fabric has is RoCE's, or why not.
pub fn assert_port(fabric: &HostFabric) {
    assert!(fabric.direct_port() == ROCE_PORT || fabric.port_reason().is_some());
}
