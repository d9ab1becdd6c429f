//! What happens in a process, as the selectors of rules see it.

use crate::Verb;
use std::fmt;
use std::net::IpAddr;
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

/// Kinds of objects that are numbered, each by itself, in the order in which the process makes them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, EnumIter, EnumString, IntoStaticStr,
)]
pub enum ObjectKind {
    #[strum(serialize = "qp")]
    QueuePair,
    #[strum(serialize = "cq")]
    CompletionQueue,
    #[strum(serialize = "srq")]
    SharedReceiveQueue,
}

/// An object by its kind and its place among those of the process, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectOrdinal {
    pub kind: ObjectKind,
    pub ordinal: u32,
}

/// As a selector: `qp=0`.
impl fmt::Display for ObjectOrdinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.ordinal)
    }
}

/// Where in a process something may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// The program calls a verb.
    Call(Verb),
    /// The program posts a work request.
    Request,
    /// A completion comes to its queue.
    Completion,
    /// A packet leaves over UDP.
    Packet,
    /// A page is to come in.
    Page,
    /// A message of the connection manager leaves.
    Message,
    /// A time after the process opened its first device.
    Time,
}

impl Point {
    /// The word for it in a rule, for all but calls, which a verb names.
    pub fn word(self) -> &'static str {
        match self {
            Point::Call(verb) => verb.name(),
            Point::Request => "request",
            Point::Completion => "completion",
            Point::Packet => "packet",
            Point::Page => "page",
            Point::Message => "message",
            Point::Time => "time",
        }
    }

    /// The point with that word after `on=`.
    pub fn of_word(word: &str) -> Option<Self> {
        [Point::Request, Point::Completion, Point::Packet, Point::Page, Point::Message]
            .into_iter()
            .find(|point| point.word() == word)
    }

    /// Whether its events are counted for each thread: those that the threads of the program make, in an order of their own.
    pub fn counts_threads(self) -> bool {
        matches!(self, Point::Call(_) | Point::Request)
    }

    /// Whether its events are counted for each object.
    pub fn counts_objects(self) -> bool {
        match self {
            Point::Call(verb) => verb.queue().is_some(),
            Point::Request | Point::Completion | Point::Packet => true,
            Point::Page | Point::Message | Point::Time => false,
        }
    }
}

/// What a work request, completion or packet is of. Names are those of `enum ibv_wr_opcode` and `enum ibv_wc_opcode` without their prefix, and
/// for packets those of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum EventOpcode {
    Send,
    SendWithImm,
    SendWithInv,
    RdmaWrite,
    RdmaWriteWithImm,
    RdmaRead,
    AtomicCmpAndSwp,
    AtomicFetchAndAdd,
    AtomicWrite,
    Flush,
    BindMw,
    LocalInv,
    Recv,
    RecvRdmaWithImm,
    RdmaReadResponse,
    Acknowledge,
    AtomicAcknowledge,
}

impl EventOpcode {
    /// Whether work requests and their completions have it.
    pub fn is_of_request(self) -> bool {
        !matches!(
            self,
            EventOpcode::RdmaReadResponse
                | EventOpcode::Acknowledge
                | EventOpcode::AtomicAcknowledge
                | EventOpcode::RecvRdmaWithImm
        )
    }

    /// Whether completions have it (ibv_poll_cq(3)): they tell neither immediate data nor invalidation apart.
    pub fn is_of_completion(self) -> bool {
        match self {
            EventOpcode::SendWithImm | EventOpcode::SendWithInv | EventOpcode::RdmaWriteWithImm => false,
            EventOpcode::RecvRdmaWithImm => true,
            other => other.is_of_request(),
        }
    }

    /// Whether packets have it.
    pub fn is_of_packet(self) -> bool {
        use EventOpcode as Code;
        !matches!(self, Code::Recv | Code::RecvRdmaWithImm | Code::BindMw | Code::LocalInv)
    }
}

/// Messages of the connection manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum CmMessageKind {
    Req,
    Rep,
    Rtu,
    Rej,
    Dreq,
    Drep,
    Mra,
    SidrReq,
    SidrRep,
}

/// One event. What an event does not have no selector matches.
#[derive(Clone, Copy)]
pub struct FailureEvent<'a> {
    pub point: Point,
    /// The thread by its place among those of the process that called a verb, from 0.
    pub thread: Option<u32>,
    pub object: Option<ObjectOrdinal>,
    /// The number of the queue pair.
    pub qp_num: Option<u32>,
    pub peer: Option<IpAddr>,
    pub opcode: Option<EventOpcode>,
    /// A work request of a reliable connection. The peer answers, and may refuse it.
    pub is_reliable: bool,
    /// The opcode of a packet's BTH.
    pub bth_opcode: Option<u8>,
    pub wr_id: Option<u64>,
    pub psn: Option<u32>,
    pub message: Option<CmMessageKind>,
    /// The time of [`Point::Time`], in nanoseconds.
    pub after: Option<u64>,
    /// The hash of the stack of the call. Asked for only where a rule names one.
    pub stack: &'a dyn Fn() -> u64,
}

impl FailureEvent<'_> {
    /// An event at a point, of which nothing is known yet.
    pub fn at(point: Point) -> Self {
        FailureEvent {
            point,
            thread: None,
            object: None,
            qp_num: None,
            peer: None,
            opcode: None,
            is_reliable: true,
            bth_opcode: None,
            wr_id: None,
            psn: None,
            message: None,
            after: None,
            stack: &|| 0,
        }
    }
}

impl fmt::Debug for FailureEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of thread {:?}, {:?}", self.point, self.thread, self.object)
    }
}
