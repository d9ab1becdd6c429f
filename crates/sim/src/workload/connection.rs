//! Connections: a queue pair at either end, and what is under way between them.

use super::atomics::PostedAtomic;
use super::pattern;
use super::space::RequestRange;
use super::window::WindowModel;
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::memory_window::MemoryWindow;
use pagewire_nic::{AddressHandle, CompletionOpcode, FlushRequest, MemoryRegion, QueuePair};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What a send request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Send,
    Write,
    Read,
    Atomic(PostedAtomic),
    /// Binds a memory window of this side.
    Bind,
    /// Makes memory of the other side visible or persistent.
    Flush(FlushRequest),
}

/// A send request that was posted and is not complete.
#[derive(Debug)]
pub struct PostedRequest {
    pub id: u64,
    pub kind: RequestKind,
    pub opcode: CompletionOpcode,
    pub length: u64,
    pub signaled: bool,
    /// Buffers of this side: none if inline.
    pub pieces: Vec<RequestRange>,
    /// Memory of the other side.
    pub remote: Option<RequestRange>,
    /// Its key is dead, or what it asks for is not allowed: it must not succeed.
    pub stale: bool,
    /// The bytes to send, where they are not those of its number: what the READ before it brought into its buffer.
    pub copied: Option<Vec<u8>>,
    /// The next request sends what this READ brings: its buffer is the next one's to give back.
    pub lends: bool,
}

impl PostedRequest {
    /// The bytes that it sends.
    pub fn content(&self) -> Vec<u8> {
        self.copied.clone().unwrap_or_else(|| pattern::of(self.id, self.length as usize))
    }
}

/// A receive that was posted and is not complete.
#[derive(Debug)]
pub struct PostedReceive {
    pub id: u64,
    pub pieces: Vec<RequestRange>,
}

impl PostedReceive {
    /// Bytes that fit.
    pub fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }
}

/// A queue pair is in SQD.
#[derive(Debug, Clone, Copy)]
pub struct SqdPause {
    /// Requests from this one on were posted after it, and have to wait.
    pub first: u64,
    pub since: u64,
    /// The program was told that nothing is under way any more.
    pub drained: bool,
    /// When it goes on.
    pub until: u64,
}

/// A message that will take a receive at the other side.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedMessage {
    pub id: u64,
    pub length: u64,
    pub immediate: Option<u32>,
    pub solicited: bool,
    pub write: bool,
    /// It asks for the end of a region, which is refused.
    pub invalidates: bool,
    /// The shared receive queue of its receiver, where that has several.
    pub queue: usize,
}

/// One end.
pub struct ConnectionEnd<F: Fabric> {
    pub party: usize,
    pub queue_pair: Arc<QueuePair<F>>,
    pub shared: bool,
    /// Posted and not complete, in order.
    pub sends: VecDeque<PostedRequest>,
    /// Receives of the queue pair's own queue, in order.
    pub receives: VecDeque<PostedReceive>,
    /// Messages on their way to this end, in order, where none may be lost.
    pub expected: VecDeque<ExpectedMessage>,
    /// The latest messages to this end, where they may be lost.
    pub history: VecDeque<ExpectedMessage>,
    /// Unsignaled requests since the last signaled one.
    pub unsignaled: u32,
    /// An error completion was seen.
    pub failed: bool,
    /// One of a send request was: all after it are flushed.
    pub send_failed: bool,
    /// The workload moved it to ERR or RESET, and when.
    pub stopped: Option<u64>,
    /// When it will.
    pub stop_at: u64,
    pub pause: Option<SqdPause>,
    /// Where the other end's UC WRITEs go.
    pub window: Option<WindowModel>,
    /// How to reach the other end (UD).
    pub address: Option<Arc<AddressHandle<F>>>,
    /// The multicast group by which messages come to this end (UD).
    pub group: Option<Ipv4Addr>,
    pub incarnation: u64,
}

/// A region that lives for a few requests only, or a memory window that does.
pub struct Temporary<F: Fabric> {
    pub region: Option<Arc<MemoryRegion<F>>>,
    /// By which the other end uses the region.
    pub window: Option<MemoryWindow<F>>,
    /// The key is valid: that of a window from the completion of its bind on.
    pub is_usable: bool,
    pub range: RequestRange,
    /// The end that uses it; it lies in the other's memory.
    pub side: usize,
    pub key: u32,
    pub cursor: u64,
    pub requests: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Coming down, since when.
    Failing(u64),
    /// Down, until nothing of it is under way any more.
    Cooling(u64),
    /// One party is dead.
    Gone,
}

/// The type of the queue pair at one end of a connection of this kind. An extended reliable connection has one that sends at the first
/// end, and one that receives at the second.
pub fn kind_at(kind: QueuePairType, side: usize) -> QueuePairType {
    match (kind, side) {
        (QueuePairType::XrcSend, 1) => QueuePairType::XrcReceive,
        _ => kind,
    }
}

/// A connection.
pub struct SimConnection<F: Fabric> {
    /// The type of the queue pair at the first end, and but for XRC at both.
    pub kind: QueuePairType,
    pub ends: [ConnectionEnd<F>; 2],
    pub phase: Phase,
    /// Something was done that makes requests fail.
    pub may_fail: bool,
    /// Requests that ended with an error, and the side that posted them.
    pub failed: Vec<(usize, PostedRequest)>,
    /// Receives that ended with an error, and their side.
    pub flushed: Vec<(usize, PostedReceive)>,
    pub temporary: Option<Temporary<F>>,
}

impl<F: Fabric> SimConnection<F> {
    /// The type of the queue pair at one end.
    pub fn kind_at(&self, side: usize) -> QueuePairType {
        kind_at(self.kind, side)
    }

    /// Whether a program posts send requests at one end.
    pub fn sends_at(&self, side: usize) -> bool {
        self.kind_at(side) != QueuePairType::XrcReceive
    }

    /// Whether nothing is under way.
    pub fn is_drained(&self, exact: bool) -> bool {
        let reliable = exact || self.kind.is_reliable();
        self.ends.iter().all(|end| end.sends.is_empty() && (!reliable || end.expected.is_empty()))
    }
}
