//! The objects of this process that rules name by their place, and the engine's objects behind them.

use crate::abi::*;
use crate::calls::{Call, CallOutcome};
use crate::completion::completion_queue::CompletionQueueObject;
use crate::objects::context::ContextObject;
use crate::objects::object::Object;
use crate::objects::queue_pair::QueuePairObject;
use crate::objects::shared_receive::SharedReceiveObject;
use crate::runtime::engine::Host;
use pagewire_failures::{ObjectKind, ObjectOrdinal, Verb};
use pagewire_nic::{CompletionQueue, Context, QueuePair, SharedReceiveQueue};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// An object of the engine.
#[derive(Clone)]
pub enum EngineObject {
    Context(Arc<Context<Host>>),
    QueuePair(Arc<QueuePair<Host>>),
    CompletionQueue(Arc<CompletionQueue<Host>>),
    SharedReceiveQueue(Arc<SharedReceiveQueue<Host>>),
}

impl EngineObject {
    /// What a call that succeeded has made, at the address that it gave.
    pub fn made_by(verb: Verb, address: usize) -> Option<Self> {
        // SAFETY: the verb has just given the address to the program, which cannot have destroyed the object yet.
        unsafe {
            Some(match verb {
                Verb::OpenDevice => EngineObject::Context(
                    ContextObject::of(address as *const ibv_context).ok()?.context().clone(),
                ),
                Verb::CreateQp | Verb::CreateQpEx => EngineObject::QueuePair(
                    QueuePairObject::of(address as *const ibv_qp).ok()?.queue_pair().clone(),
                ),
                Verb::CreateCq | Verb::CreateCqEx => EngineObject::CompletionQueue(
                    CompletionQueueObject::of(address as *const ibv_cq).ok()?.queue().clone(),
                ),
                Verb::CreateSrq => EngineObject::SharedReceiveQueue(
                    SharedReceiveObject::of(address as *const ibv_srq).ok()?.queue().clone(),
                ),
                _ => return None,
            })
        }
    }

    /// How rules name it; `None`: they do not.
    fn kind(&self) -> Option<ObjectKind> {
        match self {
            EngineObject::Context(_) => None,
            EngineObject::QueuePair(_) => Some(ObjectKind::QueuePair),
            EngineObject::CompletionQueue(_) => Some(ObjectKind::CompletionQueue),
            EngineObject::SharedReceiveQueue(_) => Some(ObjectKind::SharedReceiveQueue),
        }
    }
}

/// The queue pair that one of this process is connected to. Two hosts may have queue pairs of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteQueuePair {
    pub address: IpAddr,
    pub number: u32,
}

/// One object that the program has.
#[derive(Clone)]
struct KnownObject {
    ordinal: Option<ObjectOrdinal>,
    object: EngineObject,
    /// A queue pair's number.
    number: u32,
    peer: Option<RemoteQueuePair>,
}

/// The objects of the program, by the addresses that it knows them by.
#[derive(Default)]
pub struct Objects {
    by_address: HashMap<usize, KnownObject>,
    by_number: HashMap<u32, u32>,
    by_peer: HashMap<RemoteQueuePair, u32>,
    made: HashMap<ObjectKind, u32>,
    /// What a destroying verb that has begun takes away, unless it fails.
    leaving: HashMap<usize, KnownObject>,
}

impl Objects {
    /// A call begins: what it destroys takes part in nothing more.
    pub fn note_end_of(&mut self, call: Call) {
        let ends =
            matches!(call.verb, Verb::DestroyQp | Verb::DestroyCq | Verb::DestroySrq | Verb::CloseDevice);
        if ends {
            self.leaving.extend(self.by_address.get(&call.object).map(|known| (call.object, known.clone())));
            if let Some(known) = self.by_address.get_mut(&call.object) {
                self.by_number.remove(&known.number);
                if let Some(peer) = known.peer {
                    self.by_peer.remove(&peer);
                }
            }
            self.by_address.remove(&call.object);
        }
    }

    /// A call ended: what it was to destroy is gone, or still there.
    pub fn note_outcome(&mut self, call: Call, outcome: CallOutcome) {
        let left = self.leaving.remove(&call.object);
        if let CallOutcome::Failed(_) = outcome {
            if let Some(known) = left {
                if let Some(ordinal) = known.ordinal.filter(|_| known.number != 0) {
                    self.by_number.insert(known.number, ordinal.ordinal);
                    self.by_peer.extend(known.peer.map(|peer| (peer, ordinal.ordinal)));
                }
                self.by_address.insert(call.object, known);
            }
        }
    }

    /// The program has an object more.
    pub fn add(&mut self, address: usize, object: EngineObject) {
        let ordinal = object.kind().map(|kind| {
            let next = self.made.entry(kind).or_default();
            *next += 1;
            ObjectOrdinal { kind, ordinal: *next - 1 }
        });
        let number = match &object {
            EngineObject::QueuePair(queue_pair) => queue_pair.number(),
            _ => 0,
        };
        if let (EngineObject::QueuePair(_), Some(ordinal)) = (&object, ordinal) {
            self.by_number.insert(number, ordinal.ordinal);
        }
        self.by_address.insert(address, KnownObject { ordinal, object, number, peer: None });
    }

    /// A queue pair is connected to this one, and to none that it was connected to before.
    pub fn connect(&mut self, address: usize, peer: RemoteQueuePair) {
        let Some(known) = self.by_address.get_mut(&address) else { return };
        let peer = Some(peer).filter(|peer| peer.number != 0);
        if let Some(before) = std::mem::replace(&mut known.peer, peer) {
            self.by_peer.remove(&before);
        }
        self.by_peer.extend(peer.zip(known.ordinal).map(|(peer, own)| (peer, own.ordinal)));
    }

    /// The place of the object that a call is made on.
    pub fn ordinal_of(&self, call: Call) -> Option<ObjectOrdinal> {
        self.by_address.get(&call.object).or_else(|| self.leaving.get(&call.object))?.ordinal
    }

    /// The number of the queue pair that a call is made on.
    pub fn number_of(&self, call: Call) -> Option<u32> {
        self.by_address.get(&call.object).map(|known| known.number).filter(|number| *number != 0)
    }

    /// The queue pair with this number.
    pub fn queue_pair_with(&self, number: u32) -> Option<ObjectOrdinal> {
        let ordinal = *self.by_number.get(&number)?;
        Some(ObjectOrdinal { kind: ObjectKind::QueuePair, ordinal })
    }

    /// The queue pair that is connected to this one.
    pub fn queue_pair_connected_to(&self, peer: RemoteQueuePair) -> Option<ObjectOrdinal> {
        let ordinal = *self.by_peer.get(&peer)?;
        Some(ObjectOrdinal { kind: ObjectKind::QueuePair, ordinal })
    }

    /// The engine's object that the program knows by this address.
    pub fn at(&self, address: usize) -> Option<EngineObject> {
        self.by_address.get(&address).map(|known| known.object.clone())
    }

    /// The engine's objects that stand for a place, or all.
    pub fn engine_objects(&self, wanted: Option<ObjectOrdinal>) -> Vec<EngineObject> {
        let all = self.by_address.values();
        all.filter(|known| wanted.is_none() || known.ordinal == wanted)
            .map(|known| known.object.clone())
            .collect()
    }
}
