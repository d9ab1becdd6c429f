//! Where messages of peers come: the receives that all queue pairs of a node share, and the thread that reads them.

use crate::error::{Result, refused};
use crate::limits::{MAX_MESSAGE, MESSAGES};
use crate::nodes::completions::{Completes, Completions};
use crate::nodes::engine::{Host, heap};
use crate::regions::memory::Block;
use crate::regions::token::NodeAddress;
use pagewire_nic::{
    Completion, CompletionOpcode, CompletionQueue, Context, ProtectionDomain, ReceiveRequest, ScatterGather,
    SharedReceiveInit, SharedReceiveQueue, Status,
};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Who handles the events of peers: their messages, and their end.
pub(crate) trait PeerEvents: Send + Sync {
    /// A peer has sent a message.
    fn receive(self: Arc<Self>, peer: NodeAddress, bytes: &[u8]);

    /// A peer has written so many bytes. `number`: the immediate data of the SEND behind the bytes.
    fn written(&self, peer: NodeAddress, number: u32, length: u64);

    /// A peer has no connection to this node any more. It may come again.
    fn forget(&self, peer: &NodeAddress);

    /// Whether something waits for a peer, which ends when that is lost.
    fn holds(&self, peer: &NodeAddress) -> bool;

    /// A peer is lost.
    fn lose(&self, peer: &NodeAddress, why: &str);

    /// Ends what has run out. Gives when to look again.
    fn run_timers(&self) -> Option<Duration>;
}

/// Where messages of peers come.
pub(crate) struct Inbox {
    completions: Arc<Completions>,
    reader: Arc<Reader>,
}

/// Takes the completions of all receives.
struct Reader {
    receives: Arc<SharedReceiveQueue<Host>>,
    buffers: Block,
    key: u32,
    events: Weak<dyn PeerEvents>,
    /// The peers, by the queue pairs of this side.
    peers: RwLock<HashMap<u32, NodeAddress>>,
}

impl Inbox {
    /// `key`: that of all memory of this process, for its own side of operations.
    pub fn new(
        context: &Arc<Context<Host>>,
        domain: &Arc<ProtectionDomain<Host>>,
        key: u32,
        events: Weak<dyn PeerEvents>,
    ) -> Result<Arc<Self>> {
        let init = SharedReceiveInit { max_wr: MESSAGES, max_sge: 1, limit: 0 };
        let reader = Arc::new(Reader {
            receives: pagewire_nic::SharedReceiveQueue::create(domain, &init)
                .map_err(refused("receives for messages"))?,
            buffers: Block::zeroed(heap(context.nic())?, MESSAGES as usize * MAX_MESSAGE)?,
            key,
            events,
            peers: RwLock::default(),
        });
        for number in 0..u64::from(MESSAGES) {
            reader.post(number)?;
        }
        let completions = Completions::for_one(context, "pagewire-messages", MESSAGES, reader.clone())?;
        Ok(Arc::new(Inbox { completions, reader }))
    }

    /// Where the completions of receives come.
    pub fn queue(&self) -> &Arc<CompletionQueue<Host>> {
        self.completions.queue()
    }

    pub fn receives(&self) -> Arc<SharedReceiveQueue<Host>> {
        self.reader.receives.clone()
    }

    /// What comes to this queue pair is of `peer`.
    pub fn enter(&self, queue_pair: u32, peer: NodeAddress) {
        self.reader.peers.write().insert(queue_pair, peer);
    }

    /// Nothing comes to this queue pair any more.
    pub fn leave(&self, queue_pair: u32) {
        let mut peers = self.reader.peers.write();
        let Some(peer) = peers.remove(&queue_pair) else { return };
        let is_gone = !peers.values().any(|other| *other == peer);
        drop(peers);
        if let Some(events) = self.reader.events.upgrade().filter(|_| is_gone) {
            events.forget(&peer);
        }
    }

    pub fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    /// Takes no messages any more. All queue pairs that use it are gone.
    pub fn close(&self) {
        self.completions.close();
        if let Err(error) = self.reader.receives.destroy() {
            log::warn!("receives for messages stay: {error}");
            // The engine may write there still.
            std::mem::forget(self.reader.clone());
        }
    }
}

impl Reader {
    /// Makes a buffer ready for a message.
    fn post(&self, number: u64) -> Result<()> {
        let address = self.buffers.address() + number * MAX_MESSAGE as u64;
        let segment = ScatterGather { address, length: MAX_MESSAGE as u32, key: self.key };
        let request = ReceiveRequest { wr_id: number, segments: &[segment] };
        self.receives.post(&request).map_err(refused("a receive for messages"))
    }

    fn take(&self, completion: &Completion) {
        let peer = self.peers.read().get(&completion.queue_pair).copied();
        let (Some(peer), Some(events)) = (peer, self.events.upgrade()) else { return };
        if completion.status != Status::Success || completion.opcode != CompletionOpcode::Receive {
            // The queue pair has ended.
            return;
        }
        let mut bytes = [0; MAX_MESSAGE];
        self.buffers.read(completion.wr_id as usize * MAX_MESSAGE, &mut bytes);
        let bytes = &bytes[..(completion.byte_length as usize).min(MAX_MESSAGE)];
        match (completion.immediate, bytes.try_into()) {
            (None, _) => events.receive(peer, bytes),
            (Some(number), Ok(length)) => events.written(peer, number, u64::from_be_bytes(length)),
            (Some(_), Err(_)) => log::debug!("{} has sent a message that makes no sense", peer.socket()),
        }
    }
}

impl Completes for Reader {
    fn complete(self: Arc<Self>, completion: &Completion) {
        self.take(completion);
        if let Err(error) = self.post(completion.wr_id) {
            log::error!("there is one receive fewer for messages: {error}");
        }
    }

    fn run_timers(&self) -> Option<Duration> {
        self.events.upgrade()?.run_timers()
    }
}
