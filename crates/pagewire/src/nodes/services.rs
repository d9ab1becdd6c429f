//! What all parts of a node use: its protection domain, its completions, its address, and what it exports.

use crate::error::{Error, Failure, Result, refused, system};
use crate::nodes::completions::Completions;
use crate::nodes::engine::Host;
use crate::nodes::inbox::{Inbox, PeerEvents};
use crate::nodes::readiness::Readiness;
use crate::nodes::sources::KnownPeers;
use crate::operations::pending::PendingOperation;
use crate::regions::rights::Rights;
use crate::regions::token::{NodeAddress, Token};
use pagewire_fabric::Fabric;
use pagewire_nic::device::Mtu;
use pagewire_nic::{
    Attributes, Context, FLUSH_WORDS, MemoryRegion, Nic, PageAttributes, ProtectionDomain,
    Rights as RegionRights,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

/// The length of a region that is the whole address space (`ibv_reg_mr(3)`, implicit on-demand paging).
const WHOLE_ADDRESS_SPACE: u64 = u64::MAX;

/// What peers read that wait for handlers: a word for all logs of theirs, and one for each user domain.
static FLUSHED: [AtomicU64; FLUSH_WORDS] = [const { AtomicU64::new(0) }; FLUSH_WORDS];

/// What all parts of a node use.
pub(crate) struct NodeServices {
    pub nic: Arc<Nic<Host>>,
    pub domain: Arc<ProtectionDomain<Host>>,
    pub completions: Arc<Completions>,
    pub port: Port,
    pub address: NodeAddress,
    /// The whole address space, for the own side of operations: peers have no rights to it.
    local: Arc<MemoryRegion<Host>>,
    local_key: u32,
    exports: Mutex<HashMap<u32, Arc<RegionExport>>>,
    context: Arc<Context<Host>>,
    inbox: Mutex<Option<Arc<Inbox>>>,
    peer_events: OnceLock<Weak<dyn PeerEvents>>,
    readiness: OnceLock<Arc<Readiness>>,
    flush: Mutex<Option<Arc<MemoryRegion<Host>>>>,
    /// Who accesses this node.
    pub known_peers: Arc<KnownPeers>,
}

/// Memory that is registered for peers.
pub(crate) struct RegionExport {
    pub token: Token,
    region: Arc<MemoryRegion<Host>>,
    has_ended: Mutex<bool>,
    /// Of its pages, if it was made of an address. A region has those of its exports.
    attributes: Mutex<Option<Arc<Attributes<Host>>>>,
    is_raw: AtomicBool,
}

impl RegionExport {
    /// The registered memory.
    pub fn region(&self) -> &MemoryRegion<Host> {
        &self.region
    }

    /// It was made of an address, and no region owns it.
    pub fn mark_raw(&self) {
        self.is_raw.store(true, Ordering::Release);
    }

    /// Sets the attributes of some of its pages, the first of which begins where it does. When this returns, later accesses obey.
    pub fn set_attributes(&self, nic: &Nic<Host>, bytes: Range<u64>, page: PageAttributes) -> Result<()> {
        let what = "attributes of pages";
        if !self.is_raw.load(Ordering::Acquire) {
            let why = "the token is of a region: set the attributes of that";
            return Err(refused(what)(pagewire_nic::Error::InvalidArgument(why)));
        }
        let Token { base, length, .. } = self.token;
        let mut attributes = self.attributes.lock();
        if let Some(table) = &*attributes {
            table.set(bytes, page).map_err(Error::Attributes)?;
            return self.region.await_accesses().map_err(refused(what));
        }
        let table = nic.make_attributes(base..base.saturating_add(length)).map_err(refused(what))?;
        table.set(bytes, page).map_err(Error::Attributes)?;
        let table = attributes.insert(table);
        self.region.set_attributes(Some(table)).map_err(refused(what))
    }

    /// Ends it: when this returns, no access is under way, and none will come. One that has ended is none any more, which is no error.
    pub fn end(&self) -> Result<()> {
        let mut has_ended = self.has_ended.lock();
        if !*has_ended {
            self.region.deregister().map_err(refused("the end of an export"))?;
            *has_ended = true;
        }
        Ok(())
    }
}

/// The address that a node uses.
pub(crate) struct Port {
    pub gid: [u8; 16],
    pub gid_index: u8,
    pub mtu: Mtu,
}

/// The region whose READs wait for handlers of accesses.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct FlushRegion {
    pub address: u64,
    pub key: u32,
}

impl NodeServices {
    /// Whether nothing may be said in the clear to this address, as nodes do when they greet each other.
    pub fn is_cut_off(&self, address: IpAddr) -> bool {
        self.nic.options().is_encrypted && self.nic.fabric().is_local(address.to_canonical()) != Ok(true)
    }

    pub fn new(
        nic: Arc<Nic<Host>>,
        context: &Arc<Context<Host>>,
        port: Port,
        address: NodeAddress,
    ) -> Result<Arc<NodeServices>> {
        let domain = context.alloc_pd().map_err(refused("a protection domain"))?;
        let rights = RegionRights::LOCAL_WRITE | RegionRights::ON_DEMAND;
        let local =
            domain.register(0, WHOLE_ADDRESS_SPACE, 0, rights).map_err(refused("a region for buffers"))?;
        Ok(Arc::new(NodeServices {
            nic,
            completions: Completions::new(context)?,
            port,
            address,
            local_key: local.lkey(),
            local,
            domain,
            exports: Mutex::default(),
            context: context.clone(),
            inbox: Mutex::default(),
            peer_events: OnceLock::new(),
            readiness: OnceLock::new(),
            flush: Mutex::default(),
            known_peers: Arc::default(),
        }))
    }

    /// Where messages of peers come. The first call makes it.
    pub fn inbox(&self) -> Result<Arc<Inbox>> {
        self.check_owner()?;
        let mut inbox = self.inbox.lock();
        if let Some(inbox) = &*inbox {
            return Ok(inbox.clone());
        }
        let what = pagewire_nic::Error::NotFound("the node is being made or ended");
        let events = self.peer_events.get().cloned().ok_or_else(|| refused("messages of peers")(what))?;
        Ok(inbox.insert(Inbox::new(&self.context, &self.domain, self.local_key, events)?).clone())
    }

    /// Sets who handles the events of peers.
    pub fn set_peer_events(&self, events: Weak<dyn PeerEvents>) {
        // A node sets it once, when it is made.
        let _ = self.peer_events.set(events);
    }

    /// Who handles the events of peers. `None`: it is gone, or not there yet.
    pub fn peer_events(&self) -> Option<Arc<dyn PeerEvents>> {
        self.peer_events.get().and_then(Weak::upgrade)
    }

    /// Where what is ready is announced, if the program has asked for that.
    pub fn readiness(&self) -> Option<&Arc<Readiness>> {
        self.readiness.get()
    }

    /// The region whose READs by a peer wait for handlers of its accesses. The first call makes it.
    pub fn flush_region(&self) -> Result<FlushRegion> {
        let (what, address) = ("a region of flushes", FLUSHED.as_ptr() as u64);
        let mut flush = self.flush.lock();
        let region = match &*flush {
            Some(region) => region,
            None => {
                let length = size_of_val(&FLUSHED) as u64;
                let region = self.domain.register(address, length, address, RegionRights::REMOTE_READ);
                let region = region.map_err(refused(what))?;
                region.make_flush_region().map_err(refused(what))?;
                flush.insert(region)
            }
        };
        Ok(FlushRegion { address, key: region.rkey() })
    }

    /// Announces what gets ready from now on.
    ///
    /// # Errors
    /// `System`: there is no descriptor for that.
    pub fn announce_readiness(&self) -> Result<&Arc<Readiness>> {
        self.check_owner()?;
        if self.readiness.get().is_none() && self.readiness.set(Arc::new(Readiness::new()?)).is_ok() {
            // The thread that polls for sleepers polls for the one in poll(2), from now on.
            self.completions.add_sleepers(1);
        }
        self.readiness.get().map_or_else(|| unreachable!("it was set"), Ok)
    }

    /// Takes messages of peers, if there is anything to take them.
    pub fn poll_messages(&self) {
        if let Some(inbox) = self.known_inbox() {
            inbox.completions().poll();
        }
    }

    /// A thread of the program that has polled for messages goes to sleep.
    pub fn stop_polling_messages(&self) {
        if let Some(inbox) = self.known_inbox() {
            inbox.completions().stop_polling();
        }
    }

    /// Something is due at another time than before.
    pub fn look_at_timers(&self) {
        if let Some(inbox) = self.known_inbox() {
            inbox.completions().look_at_timers();
        }
    }

    /// Ends something that the thread which takes messages ends.
    pub fn end_at_messages<P: ?Sized>(&self, pending: &PendingOperation<P>, failure: Option<Failure>) {
        match self.known_inbox() {
            Some(inbox) => inbox.completions().end(pending, failure, self.readiness()),
            // Nobody sleeps there.
            None => pending.end(failure, self.readiness()).wakers.into_iter().for_each(Waker::wake),
        }
    }

    fn known_inbox(&self) -> Option<Arc<Inbox>> {
        if self.is_forked() { None } else { self.inbox.lock().clone() }
    }

    /// Whether this process was forked from the one that has the node.
    pub fn is_forked(&self) -> bool {
        self.nic.fabric().is_forked_child()
    }

    /// Refuses what a forked child asks for. To be called before any lock is taken: a thread that the child does not have may hold it.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_owner(&self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// The key of all memory of this process, for its own side of operations.
    pub fn local_key(&self) -> u32 {
        self.local_key
    }

    /// Registers memory for peers, with a key of its own.
    pub fn export(&self, address: u64, length: u64, rights: Rights) -> Result<Arc<RegionExport>> {
        self.check_owner()?;
        let region = self
            .domain
            .register(address, length, address, rights.of_region())
            .map_err(refused("an export"))?;
        let key = region.rkey();
        let token = Token { node: self.address, rights, key, base: address, length };
        let export = Arc::new(RegionExport {
            token,
            region,
            has_ended: Mutex::new(false),
            attributes: Mutex::default(),
            is_raw: AtomicBool::new(false),
        });
        self.exports.lock().insert(key, export.clone());
        Ok(export)
    }

    /// The export that a token names. `None`: it has ended, or is another node's.
    pub fn exported(&self, token: &Token) -> Option<Arc<RegionExport>> {
        self.exports.lock().get(&token.key).filter(|export| export.token == *token).cloned()
    }

    /// Ends an export.
    pub fn revoke(&self, export: &Arc<RegionExport>) -> Result<()> {
        self.check_owner()?;
        export.end()?;
        let mut exports = self.exports.lock();
        // Its key may have been given to another one meanwhile.
        if exports.get(&export.token.key).is_some_and(|entered| Arc::ptr_eq(entered, export)) {
            exports.remove(&export.token.key);
        }
        Ok(())
    }

    /// Ends all exports, and the use of buffers. What a stopped peer accesses just now stays.
    pub fn close(&self) {
        let exports: Vec<_> = self.exports.lock().values().cloned().collect();
        for export in exports {
            if let Err(error) = self.revoke(&export) {
                log::warn!("an export stays: {error}");
            }
        }
        let inbox = self.inbox.lock().take();
        if let Some(inbox) = inbox {
            inbox.close();
        }
        if let Some(flush) = self.flush.lock().take()
            && let Err(error) = flush.deregister()
        {
            log::warn!("the region of flushes stays: {error}");
        }
        let local = self.local.deregister().and_then(|()| self.domain.dealloc());
        if let Err(error) = local {
            log::warn!("the region of buffers stays: {error}");
        }
        self.nic.last_round();
    }
}

/// A random number.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    // At most 256 bytes come whole (getrandom(2)).
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(system("random numbers"))?;
    Ok(u64::from_ne_bytes(bytes))
}
