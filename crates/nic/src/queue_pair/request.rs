//! Work requests, as the program posts them and as a queue keeps them.

use crate::completion::CompletionOpcode;
use crate::queue_pair::slots::SlotQueue;
use crate::services::address_handle::AddressHandle;
use crate::types::sge::{ScatterGather, ScatterGatherList};
use crate::types::window::WindowWork;
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use pagewire_transport::{
    AtomicRequest, FlushRequest, LocalWork, RemoteAddress, WorkId, WorkOperation, WorkRequest,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// Where the bytes of a send request are.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    Segments(&'a [ScatterGather]),
    /// Copied at once (`IBV_SEND_INLINE`).
    Inline(&'a [&'a [u8]]),
    /// There are none: what a request does to a memory window.
    Window(&'a WindowWork),
}

impl Data<'_> {
    /// Keeps the data in `kept`, whose memory is used again.
    #[inline]
    pub fn keep_in(&self, kept: &mut KeptData) {
        match (self, kept) {
            (Data::Segments(segments), KeptData::Segments(kept)) => refill(kept, segments),
            (Data::Segments(segments), kept) => *kept = KeptData::Segments(SmallVec::from_slice(segments)),
            (Data::Inline(pieces), kept) => {
                let mut bytes = SmallVec::new();
                pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
                *kept = KeptData::Inline(bytes);
            }
            (Data::Window(work), kept) => *kept = KeptData::Window(**work),
        }
    }
}

/// Has a list hold these pieces instead of those that it holds. Mostly it is one.
#[inline]
fn refill(list: &mut ScatterGatherList, pieces: &[ScatterGather]) {
    list.clear();
    match pieces {
        [piece] => list.push(*piece),
        _ => list.extend_from_slice(pieces),
    }
}

/// What a send request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOperation {
    Send,
    SendImmediate(u32),
    SendInvalidate(u32),
    Write {
        address: u64,
        key: u32,
    },
    WriteImmediate {
        address: u64,
        key: u32,
        immediate: u32,
    },
    Read {
        address: u64,
        key: u32,
    },
    CompareSwap {
        address: u64,
        key: u32,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        address: u64,
        key: u32,
        add: u64,
    },
    /// A WRITE of 8 bytes, which appear at once (`IBV_WR_ATOMIC_WRITE`).
    AtomicWrite {
        address: u64,
        key: u32,
    },
    /// Makes what was placed before it in memory of the peer visible or persistent (`IBV_WR_FLUSH`). Its data are ignored.
    Flush {
        address: u64,
        key: u32,
        length: u32,
        flush: FlushRequest,
    },
    /// Binds a memory window as its data says (`IBV_WR_BIND_MW`, `ibv_bind_mw(3)`).
    BindWindow,
    /// Invalidates the key of a window of this process, likewise (`IBV_WR_LOCAL_INV`).
    InvalidateWindow,
}

impl SendOperation {
    /// The key of the remote memory that it names.
    pub fn remote_key(&self) -> Option<u32> {
        match *self {
            SendOperation::Write { key, .. }
            | SendOperation::WriteImmediate { key, .. }
            | SendOperation::Read { key, .. }
            | SendOperation::CompareSwap { key, .. }
            | SendOperation::FetchAdd { key, .. }
            | SendOperation::AtomicWrite { key, .. }
            | SendOperation::Flush { key, .. } => Some(key),
            SendOperation::Send
            | SendOperation::SendImmediate(_)
            | SendOperation::SendInvalidate(_)
            | SendOperation::BindWindow
            | SendOperation::InvalidateWindow => None,
        }
    }

    /// The operation with another key for remote memory.
    pub fn with_key(mut self, other: impl FnOnce(u32) -> u32) -> Self {
        match &mut self {
            SendOperation::Write { key, .. }
            | SendOperation::WriteImmediate { key, .. }
            | SendOperation::Read { key, .. }
            | SendOperation::CompareSwap { key, .. }
            | SendOperation::FetchAdd { key, .. }
            | SendOperation::AtomicWrite { key, .. }
            | SendOperation::Flush { key, .. } => *key = other(*key),
            SendOperation::Send
            | SendOperation::SendImmediate(_)
            | SendOperation::SendInvalidate(_)
            | SendOperation::BindWindow
            | SendOperation::InvalidateWindow => {}
        }
        self
    }

    /// Whether it is a SEND that invalidates nothing.
    #[inline]
    pub fn is_plain_send(&self) -> bool {
        matches!(self, SendOperation::Send | SendOperation::SendImmediate(_))
    }
}

/// What the protocol makes of an operation, and the opcode of its completion.
#[inline(always)] // Part of each post, where mostly one of them is left.
pub fn operation_of(operation: &SendOperation) -> (WorkOperation, CompletionOpcode) {
    match *operation {
        SendOperation::Send => {
            (WorkOperation::Send { immediate: None, invalidate: None }, CompletionOpcode::Send)
        }
        SendOperation::SendImmediate(data) => {
            (WorkOperation::Send { immediate: Some(data), invalidate: None }, CompletionOpcode::Send)
        }
        SendOperation::SendInvalidate(key) => {
            (WorkOperation::Send { immediate: None, invalidate: Some(key) }, CompletionOpcode::Send)
        }
        SendOperation::Write { address, key } => (
            WorkOperation::Write { remote: RemoteAddress { address, key }, immediate: None },
            CompletionOpcode::Write,
        ),
        SendOperation::WriteImmediate { address, key, immediate } => (
            WorkOperation::Write { remote: RemoteAddress { address, key }, immediate: Some(immediate) },
            CompletionOpcode::Write,
        ),
        SendOperation::Read { address, key } => {
            (WorkOperation::Read { remote: RemoteAddress { address, key } }, CompletionOpcode::Read)
        }
        SendOperation::CompareSwap { address, key, compare, swap } => (
            WorkOperation::Atomic {
                remote: RemoteAddress { address, key },
                atomic: AtomicRequest::CompareSwap { compare, swap },
            },
            CompletionOpcode::CompareSwap,
        ),
        SendOperation::FetchAdd { address, key, add } => (
            WorkOperation::Atomic {
                remote: RemoteAddress { address, key },
                atomic: AtomicRequest::FetchAdd { add },
            },
            CompletionOpcode::FetchAdd,
        ),
        SendOperation::AtomicWrite { address, key } => (
            WorkOperation::AtomicWrite { remote: RemoteAddress { address, key } },
            CompletionOpcode::AtomicWrite,
        ),
        SendOperation::Flush { address, key, length, flush } => (
            WorkOperation::Flush { remote: RemoteAddress { address, key }, length, flush },
            CompletionOpcode::Flush,
        ),
        SendOperation::BindWindow => (WorkOperation::Local(LocalWork::Bind), CompletionOpcode::BindWindow),
        SendOperation::InvalidateWindow => {
            (WorkOperation::Local(LocalWork::Invalidate), CompletionOpcode::LocalInvalidate)
        }
    }
}

/// Where a request goes, if its queue pair does not know that.
pub enum Destination<'a, F: Fabric> {
    /// A datagram.
    Address { address: &'a Arc<AddressHandle<F>>, queue_pair: u32, queue_key: u32 },
    /// A request of XRC: the number of the peer's shared receive queue.
    SharedQueue(u32),
}

/// A send work request.
pub struct SendRequest<'a, F: Fabric> {
    pub wr_id: u64,
    pub data: Data<'a>,
    pub operation: SendOperation,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    /// For UD and XRC.
    pub destination: Option<Destination<'a, F>>,
}

/// How a send request is kept, besides what it says itself.
#[derive(Debug, Clone, Copy)]
pub struct SendFlags {
    /// Its completion is reported though it succeeds.
    pub signaled: bool,
    /// It is not executed if the request before it is refused.
    pub linked: bool,
}

/// A receive work request.
pub struct ReceiveRequest<'a> {
    pub wr_id: u64,
    pub segments: &'a [ScatterGather],
}

/// Where the bytes of a kept send request are.
#[derive_where(Default)]
pub enum KeptData {
    #[derive_where(default)]
    Segments(ScatterGatherList),
    Inline(SmallVec<[u8; 64]>),
    Window(WindowWork),
}

/// A kept send request.
#[derive_where(Default)]
pub struct SendWork<F: Fabric> {
    pub wr_id: u64,
    pub data: KeptData,
    pub work: WorkRequest,
    pub opcode: CompletionOpcode,
    pub signaled: bool,
    pub destination: Option<(Arc<AddressHandle<F>>, u32, u32)>,
}

/// What the completion of a request tells.
#[derive(Debug, Clone, Copy)]
pub struct Retired {
    pub id: WorkId,
    pub wr_id: u64,
    pub opcode: CompletionOpcode,
    pub signaled: bool,
    /// Bytes of the message.
    pub length: u32,
}

/// Send requests from their post to their completion, in order.
pub struct SendQueue<F: Fabric> {
    kept: SlotQueue<SendWork<F>>,
    /// Id of the oldest that is kept.
    oldest: u64,
}

impl<F: Fabric> SendQueue<F> {
    /// None is kept.
    pub fn new() -> Self {
        SendQueue { kept: SlotQueue::default(), oldest: 0 }
    }

    /// Requests that are not complete.
    pub fn outstanding(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is outstanding.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The id of the oldest that is kept, or of the next.
    pub fn oldest(&self) -> WorkId {
        WorkId(self.oldest)
    }

    /// The id that the next request gets.
    pub fn next_id(&self) -> WorkId {
        WorkId(self.oldest + self.kept.len() as u64)
    }

    /// Adds a request, which gets the id [`next_id`](Self::next_id): `opcode` in a completion, `operation` for the protocol, of a
    /// message of `length` bytes.
    #[inline]
    pub fn push(
        &mut self,
        request: &SendRequest<'_, F>,
        operation: &WorkOperation,
        opcode: CompletionOpcode,
        length: u32,
        flags: SendFlags,
    ) {
        let SendFlags { signaled, linked } = flags;
        let id = self.next_id();
        let kept = self.kept.add();
        kept.wr_id = request.wr_id;
        request.data.keep_in(&mut kept.data);
        let (fence, solicited) = (request.fence, request.solicited);
        kept.work =
            WorkRequest { id, operation: *operation, length, fence, solicited, linked, shared_queue: 0 };
        (kept.opcode, kept.signaled) = (opcode, signaled);
        match &request.destination {
            None => {}
            Some(Destination::Address { address, queue_pair, queue_key }) => {
                kept.destination = Some(((*address).clone(), *queue_pair, *queue_key));
            }
            Some(Destination::SharedQueue(number)) => kept.work.shared_queue = *number,
        }
    }

    /// A request that is not yet complete.
    pub fn get(&self, id: WorkId) -> Option<&SendWork<F>> {
        self.kept.get(usize::try_from(id.0.checked_sub(self.oldest)?).ok()?)
    }

    /// Takes the oldest request if its id is at most `through`.
    #[inline]
    pub fn retire(&mut self, through: WorkId) -> Option<Retired> {
        if self.oldest > through.0 {
            return None;
        }
        let kept = self.kept.front_mut()?;
        let retired = Retired {
            id: kept.work.id,
            wr_id: kept.wr_id,
            opcode: kept.opcode,
            signaled: kept.signaled,
            length: kept.work.length,
        };
        if kept.destination.is_some() {
            // The address handle may be destroyed from now on.
            kept.destination = None;
        }
        self.kept.drop_front();
        self.oldest += 1;
        Some(retired)
    }
}

/// A kept receive request.
#[derive(Default)]
pub struct ReceiveWork {
    pub wr_id: u64,
    pub segments: ScatterGatherList,
}

/// A receive request of one piece that a message fits in. (Or none: a message without a payload fits in any.)
#[derive(Debug, Clone, Copy)]
pub struct WholeReceive {
    pub wr_id: u64,
    pub piece: ScatterGather,
}

impl From<WholeReceive> for ReceiveWork {
    fn from(whole: WholeReceive) -> Self {
        ReceiveWork { wr_id: whole.wr_id, segments: SmallVec::from_slice(&[whole.piece]) }
    }
}

/// Receive requests from their post until a message takes them.
pub struct ReceiveQueue {
    waiting: SlotQueue<ReceiveWork>,
    /// Taken by a message that is not complete.
    taken: usize,
    capacity: usize,
}

impl ReceiveQueue {
    /// Room for `capacity` requests.
    pub fn new(capacity: u32) -> Self {
        ReceiveQueue { waiting: SlotQueue::default(), taken: 0, capacity: capacity as usize }
    }

    /// Adds a request. False: there is no room.
    #[inline(always)] // What is moved into a call has to be waited for.
    pub fn push(&mut self, request: &ReceiveRequest<'_>) -> bool {
        if self.waiting.len() + self.taken >= self.capacity {
            return false;
        }
        let kept = self.waiting.add();
        kept.wr_id = request.wr_id;
        refill(&mut kept.segments, request.segments);
        true
    }

    /// Takes the oldest for a message.
    pub fn take(&mut self) -> Option<ReceiveWork> {
        let work = std::mem::take(self.waiting.front_mut()?);
        self.waiting.drop_front();
        self.taken += 1;
        Some(work)
    }

    /// Takes the oldest for a message of `length` bytes that completes it at once. `None`: there is none, or it is not one piece of
    /// that length at least.
    #[inline(always)] // What is returned in memory has to be waited for.
    pub fn take_whole(&mut self, length: u32) -> Option<WholeReceive> {
        let kept = self.waiting.front_mut()?;
        let piece = match kept.segments[..] {
            [piece] if piece.length >= length => piece,
            _ if length == 0 => ScatterGather::default(),
            _ => return None,
        };
        let wr_id = kept.wr_id;
        self.waiting.drop_front();
        Some(WholeReceive { wr_id, piece })
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
