//! Work requests, as the program posts them and as a queue keeps them.

use crate::address_handle::AddressHandle;
use crate::completion::Opcode;
use pagewire_fabric::Fabric;
use pagewire_memory::Segment;
use pagewire_transport::{Work, WorkId};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// A piece of registered memory (layout of `struct ibv_sge`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ScatterGather {
    pub address: u64,
    pub length: u32,
    pub key: u32,
}

/// A few pieces without an allocation, many with one.
pub type ScatterGatherList = SmallVec<[ScatterGather; 4]>;

/// Something that is some bytes long and can be cut.
pub trait Piece: Copy {
    /// Bytes.
    fn length(&self) -> u64;
    /// `length` bytes from `skip` on, which are there.
    fn part(&self, skip: u64, length: u64) -> Self;
}

impl Piece for ScatterGather {
    fn length(&self) -> u64 {
        u64::from(self.length)
    }

    fn part(&self, skip: u64, length: u64) -> Self {
        ScatterGather { address: self.address.wrapping_add(skip), length: length as u32, key: self.key }
    }
}

impl Piece for Segment {
    fn length(&self) -> u64 {
        self.length
    }

    fn part(&self, skip: u64, length: u64) -> Self {
        Segment { address: self.address + skip, length }
    }
}

/// Cuts the bytes `offset .. offset + length` out of a list. Gives less where the list is shorter.
pub fn slice_of<P: Piece>(list: &[P], offset: u64, length: u64) -> SmallVec<[P; 4]> {
    let (mut skip, mut left) = (offset, length);
    let mut cut = SmallVec::new();
    for piece in list {
        if left == 0 {
            break;
        }
        if skip >= piece.length() {
            skip -= piece.length();
            continue;
        }
        let take = (piece.length() - skip).min(left);
        cut.push(piece.part(skip, take));
        (skip, left) = (0, left - take);
    }
    cut
}

/// Bytes of a list together.
pub fn total_length(list: &[ScatterGather]) -> u64 {
    list.iter().map(|piece| u64::from(piece.length)).sum()
}

/// Where the bytes of a send request are.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    Segments(&'a [ScatterGather]),
    /// Copied at once (`IBV_SEND_INLINE`).
    Inline(&'a [&'a [u8]]),
}

impl Data<'_> {
    /// As a queue keeps it.
    pub fn keep(&self) -> KeptData {
        match self {
            Data::Segments(segments) => KeptData::Segments(SmallVec::from_slice(segments)),
            Data::Inline(pieces) => {
                let mut bytes = SmallVec::new();
                pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
                KeptData::Inline(bytes)
            }
        }
    }
}

/// What a send request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOperation {
    Send,
    SendImmediate(u32),
    SendInvalidate(u32),
    Write { address: u64, key: u32 },
    WriteImmediate { address: u64, key: u32, immediate: u32 },
    Read { address: u64, key: u32 },
    CompareSwap { address: u64, key: u32, compare: u64, swap: u64 },
    FetchAdd { address: u64, key: u32, add: u64 },
}

/// Where a datagram goes.
pub struct Destination<'a, F: Fabric> {
    pub address: &'a Arc<AddressHandle<F>>,
    pub queue_pair: u32,
    pub queue_key: u32,
}

/// A send work request.
pub struct SendRequest<'a, F: Fabric> {
    pub wr_id: u64,
    pub data: Data<'a>,
    pub operation: SendOperation,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    /// For UD.
    pub destination: Option<Destination<'a, F>>,
}

/// A receive work request.
pub struct ReceiveRequest<'a> {
    pub wr_id: u64,
    pub segments: &'a [ScatterGather],
}

/// Where the bytes of a kept send request are.
pub enum KeptData {
    Segments(ScatterGatherList),
    Inline(SmallVec<[u8; 64]>),
}

/// A kept send request.
pub struct SendWork<F: Fabric> {
    pub wr_id: u64,
    pub data: KeptData,
    pub work: Work,
    pub opcode: Opcode,
    pub signaled: bool,
    pub destination: Option<(Arc<AddressHandle<F>>, u32, u32)>,
}

/// Send requests from their post to their completion, in order.
pub struct SendQueue<F: Fabric> {
    kept: VecDeque<SendWork<F>>,
    /// Id of the oldest that is kept.
    oldest: u64,
    capacity: usize,
}

impl<F: Fabric> SendQueue<F> {
    /// Room for `capacity` requests.
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        SendQueue { kept: VecDeque::with_capacity(capacity.min(1024)), oldest: 0, capacity }
    }

    /// Requests that are not complete.
    pub fn outstanding(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is outstanding, and another one would be kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.capacity > 0
    }

    /// Whether another request would be one too many.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= self.capacity
    }

    /// The id of the oldest that is kept, or of the next.
    pub fn oldest(&self) -> WorkId {
        WorkId(self.oldest)
    }

    /// The id that the next request gets.
    pub fn next_id(&self) -> WorkId {
        WorkId(self.oldest + self.kept.len() as u64)
    }

    /// Adds a request whose work has the id [`next_id`](Self::next_id).
    pub fn push(&mut self, work: SendWork<F>) {
        debug_assert_eq!(work.work.id, self.next_id());
        self.kept.push_back(work);
    }

    /// A request that is not yet complete.
    pub fn get(&self, id: WorkId) -> Option<&SendWork<F>> {
        self.kept.get(usize::try_from(id.0.checked_sub(self.oldest)?).ok()?)
    }

    /// Takes the oldest request if its id is at most `through`.
    pub fn retire(&mut self, through: WorkId) -> Option<SendWork<F>> {
        if self.oldest > through.0 {
            return None;
        }
        let work = self.kept.pop_front()?;
        self.oldest += 1;
        Some(work)
    }
}

/// A kept receive request.
pub struct ReceiveWork {
    pub wr_id: u64,
    pub segments: ScatterGatherList,
}

/// Receive requests from their post until a message takes them.
pub struct ReceiveQueue {
    waiting: VecDeque<ReceiveWork>,
    /// Taken by a message that is not complete.
    taken: usize,
    capacity: usize,
}

impl ReceiveQueue {
    /// Room for `capacity` requests.
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        ReceiveQueue { waiting: VecDeque::with_capacity(capacity.min(1024)), taken: 0, capacity }
    }

    /// Adds a request; gives it back if there is no room.
    pub fn push(&mut self, work: ReceiveWork) -> Result<(), ReceiveWork> {
        if self.waiting.len() + self.taken >= self.capacity {
            return Err(work);
        }
        self.waiting.push_back(work);
        Ok(())
    }

    /// Takes the oldest for a message.
    pub fn take(&mut self) -> Option<ReceiveWork> {
        let work = self.waiting.pop_front()?;
        self.taken += 1;
        Some(work)
    }

    /// Takes the oldest for a message that completes it at once.
    pub fn take_whole(&mut self) -> Option<ReceiveWork> {
        self.waiting.pop_front()
    }

    /// A request that was [taken whole](Self::take_whole) is not complete yet after all.
    pub fn count_as_taken(&mut self) {
        self.taken += 1;
    }

    /// A taken request was completed.
    pub fn completed(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Requests that no message has taken.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Changes the room; refused below what is kept.
    pub fn set_capacity(&mut self, capacity: u32) -> bool {
        let enough = capacity as usize >= self.waiting.len() + self.taken;
        if enough {
            self.capacity = capacity as usize;
        }
        enough
    }

    /// Forgets everything (RESET).
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.taken = 0;
    }
}
