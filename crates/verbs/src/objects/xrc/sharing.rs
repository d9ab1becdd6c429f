//! An XRC domain that several processes have open, because they have opened the same file.
//!
//! Each process is a member: it listens at names of its own for the others. A shared receive queue has a number whose upper 16 bits are such a
//! name, so whoever knows the number finds the process. A member does two things for others: it executes requests for its queues
//! (`serving.rs`), and it lets others open its queue pairs. Requests that it wants executed it hands to threads, one for each queue pair and
//! process (`links.rs`), because the engine never waits. docs/internals/xrc.md has the whole.

use super::links::{Link, RelayJob};
use super::serving::serve;
use crate::limits::{MAX_XRC_BLOCKS, MAX_XRC_CONNECTIONS};
use crate::runtime::engine::Host;
use pagewire_fabric::members::{MemberListener, MemberStream, SharedFile, members};
use pagewire_fabric::spawn;
use pagewire_nic::{
    Denial, Error, RelayEnd, RelayOperation, RelayOutcome, RelayRequest, Result, XrcDomain, XrcSharing,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The lower bits of a queue's number count within a block of them.
const INDEX_BITS: u32 = 8;
const QUEUES_IN_BLOCK: u32 = 1 << INDEX_BITS;
/// Blocks there can be.
const BLOCKS: u32 = 1 << 16;
/// How long a member may take to be connected to.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How often a free block is looked for by chance.
const TRIES: u32 = 64;

/// This process as a member of a domain.
pub struct Sharing {
    file: SharedFile,
    domain: Weak<XrcDomain<Host>>,
    own: Weak<Sharing>,
    state: Mutex<Membership>,
}

#[derive(Default)]
struct Membership {
    has_ended: bool,
    /// Blocks of queue numbers, each with what listens for it.
    blocks: Vec<(u32, Arc<MemberListener>)>,
    /// The queue of these blocks whose number is given next.
    next: u32,
    /// By queue pair, block, and whether READs are answered by it: these do not wait for what the queue pair executes.
    links: HashMap<(u32, u32, bool), Link>,
    /// Connections of other members.
    connections: Vec<Arc<MemberStream>>,
    threads: Vec<JoinHandle<()>>,
}

/// Whether a process of this user has the domain of a file open.
///
/// # Errors
/// The kernel's.
pub fn has_members(file: SharedFile) -> io::Result<bool> {
    for name in members(file)? {
        match MemberStream::connect(file, name, CONNECT_TIME) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(true),
            // Stopped, with all places for connections taken: it counts.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

impl Sharing {
    /// Becomes a member.
    ///
    /// # Errors
    /// Those of [`XrcSharing::free_number`].
    pub fn join(file: SharedFile, domain: &Arc<XrcDomain<Host>>) -> Result<Arc<Self>> {
        let sharing = Arc::new_cyclic(|own| Sharing {
            file,
            domain: Arc::downgrade(domain),
            own: own.clone(),
            state: Mutex::default(),
        });
        sharing.claim_block(&mut sharing.state.lock())?;
        domain.share(sharing.clone());
        Ok(sharing)
    }

    /// The file that names the domain.
    pub fn file(&self) -> SharedFile {
        self.file
    }

    /// The names that other members listen at.
    ///
    /// # Errors
    /// The kernel's.
    pub fn others(&self) -> io::Result<Vec<u32>> {
        let mut names = members(self.file)?;
        let state = self.state.lock();
        names.retain(|name| state.blocks.iter().all(|(block, _)| block != name));
        Ok(names)
    }

    /// Listens at one more name.
    fn claim_block(&self, state: &mut Membership) -> Result<()> {
        if state.has_ended || state.blocks.len() >= MAX_XRC_BLOCKS {
            return Err(Error::NoMemory("shared receive queues of an XRC domain that processes share"));
        }
        for _ in 0..TRIES {
            let block = RandomState::new().build_hasher().finish() as u32 % BLOCKS;
            let Some(listener) = MemberListener::claim(self.file, block).map_err(kernel)? else { continue };
            let listener = Arc::new(listener);
            let (own, accepting) = (self.own.clone(), listener.clone());
            let accept = move || {
                while let Some(stream) = accepting.accept() {
                    let Some(sharing) = own.upgrade() else { return };
                    sharing.take(stream);
                }
            };
            state.threads.push(spawn("pagewire-xrc", accept).map_err(kernel)?);
            state.blocks.push((block, listener));
            return Ok(());
        }
        Err(Error::NoMemory("names of members of an XRC domain"))
    }

    /// Takes a connection of another member.
    fn take(self: &Arc<Self>, stream: MemberStream) {
        let stream = Arc::new(stream);
        let mut state = self.state.lock();
        state.threads.retain(|thread| !thread.is_finished());
        if state.has_ended || state.connections.len() >= MAX_XRC_CONNECTIONS {
            log::warn!("a connection of another member of an XRC domain is refused: there are too many");
            return;
        }
        let Some(domain) = self.domain.upgrade() else { return };
        let (sharing, served) = (self.clone(), stream.clone());
        let body = move || {
            serve(&domain, &served);
            // Whoever asks finds the end.
            served.shut_down();
            sharing.state.lock().connections.retain(|other| !Arc::ptr_eq(other, &served));
        };
        match spawn("pagewire-xrc", body) {
            Ok(thread) => {
                state.threads.push(thread);
                state.connections.push(stream);
            }
            Err(error) => log::warn!("a member of an XRC domain is not served: {error}"),
        }
    }
}

impl XrcSharing for Sharing {
    fn free_number(&self, is_taken: &dyn Fn(u32) -> bool) -> Result<u32> {
        let mut state = self.state.lock();
        loop {
            let all = state.blocks.len() as u32 * QUEUES_IN_BLOCK;
            for _ in 0..all {
                let next = state.next % all;
                state.next = next + 1;
                let block = state.blocks[(next >> INDEX_BITS) as usize].0;
                let number = block << INDEX_BITS | next & (QUEUES_IN_BLOCK - 1);
                if number != 0 && !is_taken(number) {
                    return Ok(number);
                }
            }
            self.claim_block(&mut state)?;
        }
    }

    fn relay(&self, request: RelayRequest, end: RelayEnd) {
        let block = request.queue >> INDEX_BITS;
        let reads = matches!(request.operation, RelayOperation::Read { .. });
        let key = (request.queue_pair, block, reads);
        let mut state = self.state.lock();
        if state.has_ended || state.blocks.iter().any(|(own, _)| *own == block) {
            // This process has no such queue.
            return end.finish(RelayOutcome::Denied(Denial::InvalidRequest));
        }
        if !state.links.contains_key(&key) {
            state.threads.retain(|thread| !thread.is_finished());
            state.links.retain(|_, link| !link.is_unused());
            if state.links.len() >= MAX_XRC_CONNECTIONS {
                log::warn!(
                    "a request by XRC is refused: it would need one more connection to another process"
                );
                return end.finish(RelayOutcome::Denied(Denial::Operational));
            }
            match Link::start(self.file, block, request.queue_pair) {
                Ok((link, thread)) => {
                    state.threads.push(thread);
                    state.links.insert(key, link);
                }
                Err(error) => {
                    log::warn!("a request by XRC is refused: {error}");
                    return end.finish(RelayOutcome::Denied(Denial::Operational));
                }
            }
        }
        if let Some(link) = state.links.get(&key) {
            link.hand_over(RelayJob { request, end });
        }
    }

    fn give_up(&self, queue_pair: u32) {
        self.state.lock().links.retain(|(of, _, _), link| {
            let goes_on = *of != queue_pair;
            if !goes_on {
                link.give_up();
            }
            goes_on
        });
    }

    fn end(&self) {
        let (links, connections, threads) = {
            let mut state = self.state.lock();
            state.has_ended = true;
            state.blocks.drain(..).for_each(|(_, listener)| listener.shut_down());
            (
                std::mem::take(&mut state.links),
                std::mem::take(&mut state.connections),
                std::mem::take(&mut state.threads),
            )
        };
        links.values().for_each(Link::abandon);
        drop(links);
        connections.iter().for_each(|stream| stream.shut_down());
        let this = std::thread::current().id();
        for thread in threads {
            // The last opener of a queue pair may be served by this thread.
            if thread.thread().id() != this && thread.join().is_err() {
                log::error!("a thread of an XRC domain has failed");
            }
        }
    }
}

/// What the kernel has refused.
fn kernel(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(number) => Error::OperatingSystem(number),
        None => Error::NoMemory("resources of the kernel for an XRC domain"),
    }
}
