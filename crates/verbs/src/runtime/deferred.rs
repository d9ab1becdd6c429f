//! A WRITE that a program has not posted yet, because its peer has not named the memory: it is posted on the program's queue pair once that is known.
//!
//! Who keeps it decides when it is posted or ends (`pw_post_held_write` of crates/capi). Its completion goes to the program's completion queue.

use crate::abi::*;
use crate::objects::object::Object;
use crate::objects::queue_pair::QueuePairObject;
use crate::runtime::engine::Host;
use crate::work_requests::{AlignedRequest, segments};
use pagewire_nic::attributes::{QpState, QueuePairType};
use pagewire_nic::{
    CompletionOpcode, Data, Error, QueuePair, ScatterGather, SendOperation, SendRequest, Status,
};
use std::sync::Arc;

/// A WRITE without its place.
pub struct DeferredWrite {
    queue_pair: Arc<QueuePair<Host>>,
    /// How often the queue pair was reset before. Each reset ends all its requests.
    resets: u32,
    wr_id: u64,
    segments: Vec<ScatterGather>,
    immediate: Option<u32>,
    fence: bool,
    solicited: bool,
}

/// What became of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostResult {
    /// The queue pair has it, and gives its completion.
    Done,
    /// The send queue is full: post it again later.
    Full,
    /// The queue pair sends no more. The write is to end.
    QueuePairEnded,
}

/// How a write ends that is never posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeferredEnd {
    Cancelled,
    TimedOut,
    Declined,
    /// The memory that the peer named is shorter than the write.
    TooShort,
    /// The peer is lost, or the queue pair has gone to the error state.
    Lost,
}

impl DeferredEnd {
    /// As pagewire_verbs.h promises.
    const fn status(self) -> Status {
        match self {
            DeferredEnd::Cancelled => Status::General,
            DeferredEnd::TimedOut => Status::ResponseTimeout,
            DeferredEnd::Declined => Status::RemoteAborted,
            DeferredEnd::TooShort => Status::RemoteInvalidRequest,
            DeferredEnd::Lost => Status::Flushed,
        }
    }
}

/// Whether a queue pair is one of the parent of this forked process.
///
/// # Safety
/// NULL, or a queue pair that is not destroyed meanwhile.
pub unsafe fn is_queue_pair_of_parent(qp: *const ibv_qp) -> bool {
    // SAFETY: the caller promises that `qp` is NULL, or a queue pair that is not destroyed meanwhile.
    unsafe { QueuePairObject::is_of_parent(qp) }
}

impl DeferredWrite {
    /// The write of a work request, whose remote address and key are not looked at.
    ///
    /// # Errors
    /// What is wrong with the queue pair or the request, in a sentence.
    ///
    /// # Safety
    /// `qp` is NULL or created; `wr` is NULL or valid with its scatter-gather list, whose bytes are the write's until its completion.
    pub unsafe fn new(qp: *const ibv_qp, wr: *const ibv_send_wr) -> Result<DeferredWrite, &'static str> {
        // SAFETY: the caller promises that `qp` is NULL or created.
        let object = unsafe { QueuePairObject::of(qp) };
        let object = object.map_err(|_| "'qp' is NULL, or a queue pair of the parent process")?;
        // SAFETY: the caller promises that `wr` is NULL or valid.
        let wr = unsafe { wr.as_ref() }.ok_or("'wr' is NULL")?;
        if !wr.sg_list.is_aligned() {
            // SAFETY: the caller promises what the functions ask for.
            return unsafe { Self::new(qp, &AlignedRequest::new(wr).request) };
        }
        let queue_pair = object.queue_pair().clone();
        if queue_pair.kind() != QueuePairType::Rc {
            return Err("'qp' is no RC queue pair");
        }
        let resets = queue_pair.resets();
        if queue_pair.state() != QpState::ReadyToSend {
            return Err("'qp' is not in RTS");
        }
        if !wr.next.is_null() {
            return Err("'wr' is a list: hold one request with each call");
        }
        if wr.send_flags & !(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED) != 0 {
            return Err(
                "'wr' has a flag other than IBV_SEND_FENCE, IBV_SEND_SIGNALED and IBV_SEND_SOLICITED",
            );
        }
        let immediate = match wr.opcode {
            IBV_WR_RDMA_WRITE => None,
            // SAFETY: requests of this opcode set the member; it is a plain integer.
            IBV_WR_RDMA_WRITE_WITH_IMM => Some(u32::from_be(unsafe { wr.__bindgen_anon_1.imm_data })),
            _ => return Err("'wr' is neither IBV_WR_RDMA_WRITE nor IBV_WR_RDMA_WRITE_WITH_IMM"),
        };
        // SAFETY: the caller promises that `wr` is valid with its scatter-gather list.
        let segments = unsafe { segments(wr.sg_list, wr.num_sge) };
        let segments = segments.map_err(|_| "'wr' has a number of scatter-gather elements that cannot be")?;
        if segments.len() > queue_pair.capabilities().max_send_sge as usize {
            return Err("'wr' has more scatter-gather elements than max_send_sge");
        }
        let write = DeferredWrite {
            queue_pair,
            resets,
            wr_id: wr.wr_id,
            segments: segments.to_vec(),
            immediate,
            fence: wr.send_flags & IBV_SEND_FENCE != 0,
            solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
        };
        if write.length() > MAX_MESSAGE { Err("the write is longer than 2 GiB") } else { Ok(write) }
    }

    /// Its bytes.
    pub fn length(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.length)).sum()
    }

    /// Whether the queue pair sends no more: it is in an error state, or was reset or destroyed.
    pub fn has_queue_pair_ended(&self) -> bool {
        let sends = matches!(self.queue_pair.state(), QpState::ReadyToSend | QpState::SendQueueDrain);
        !sends || self.queue_pair.resets() != self.resets
    }

    /// Posts it, signaled, to memory of the peer.
    pub fn post(&self, address: u64, key: u32) -> PostResult {
        if self.has_queue_pair_ended() {
            return PostResult::QueuePairEnded;
        }
        let operation = match self.immediate {
            None => SendOperation::Write { address, key },
            Some(immediate) => SendOperation::WriteImmediate { address, key, immediate },
        };
        let posted = self.queue_pair.post_send(&SendRequest::<Host> {
            wr_id: self.wr_id,
            data: Data::Segments(&self.segments),
            operation,
            signaled: true,
            fence: self.fence,
            solicited: self.solicited,
            destination: None,
        });
        match posted {
            Ok(is_kept) => {
                if is_kept {
                    self.queue_pair.doorbell();
                }
                PostResult::Done
            }
            Err(Error::NoMemory(_)) => PostResult::Full,
            Err(error) => {
                log::debug!("a held write is not posted: {error}");
                PostResult::QueuePairEnded
            }
        }
    }

    /// Ends it without a post: its completion has a status that says how. A queue pair that was reset or destroyed gives none, as for all requests.
    pub fn end(&self, end: DeferredEnd) {
        if self.queue_pair.resets() == self.resets {
            let opcode = CompletionOpcode::Write;
            self.queue_pair.complete_unposted(self.wr_id, opcode, end.status());
        }
    }
}

/// Bytes of a message at most (InfiniBand specification, volume 1, section 9.7.7).
const MAX_MESSAGE: u64 = 1 << 31;
