//! A node: this process as others of its job see it.

use crate::bootstrap::{Job, JobError};
use crate::conditional::ConditionalWrites;
use crate::error::{Error, Failure, Result, refused, system};
use crate::nodes::engine::{engine, heap};
use crate::nodes::listener::ListenerHandle;
use crate::nodes::part::{Part, Whole};
use crate::nodes::peers::PeerTable;
use crate::nodes::services::{NodeServices, Port, random};
use crate::nodes::sources::Sources;
use crate::operations::flush::Flush;
use crate::regions::heap::forget_exports;
use crate::regions::mapped_file::MappedFile;
use crate::regions::memory::Block;
use crate::regions::region::{Atomic, ReadOnly, Region};
use crate::regions::remote::RemoteRegion;
use crate::regions::token::{NodeAddress, Peer, Token};
use pagewire_heap::HeapRef;
use pagewire_nic::Unwatched;
use pagewire_nic::device::{Device, devices};
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// This process as others see it: it has regions, exports them, and opens those of others.
///
/// A node needs no locked memory, no privileges and no device. Several nodes may live in one process; they share its engine.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::Node;
/// let node = Node::alone()?;
/// println!("process {} of {}, joined by {}", node.rank(), node.size(), node.started_by());
/// # Ok(())
/// # }
/// ```
pub struct Node {
    pub(crate) services: Arc<NodeServices>,
    pub(crate) conditional: Arc<ConditionalWrites>,
    listener: Arc<ListenerHandle>,
    peers: Arc<PeerTable>,
    job: Job,
    /// The nodes of the job, by rank.
    ranks: Vec<NodeAddress>,
}

impl Node {
    /// Joins the job that started this process: what `mpirun` and `srun` start, or what the environment describes (see
    /// [`bootstrap`](crate::bootstrap)). Without any of these the job has one process. The node's address is the one that
    /// `PAGEWIRE_ADDRESS` names, or that of the first network device that is not loopback.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// use pagewire::{Node, Rights};
    /// let node = Node::from_env()?;
    /// let table = node.zeroed::<u64>(8)?;
    /// let tokens = node.all_gather(&table.export(Rights::all())?)?;
    /// let next = node.open(&tokens[(node.rank() + 1) % node.size()])?;
    /// next.put(8 * node.rank() as u64 % 64, vec![7u64]).wait()?;
    /// node.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Job`: the job could not be joined. `System` and `Engine`: what could not be had, and why. `Environment`: a variable of the
    /// environment makes no sense.
    pub fn from_env() -> Result<Node> {
        Node::of(Job::from_env()?, None)
    }

    /// A node of a job of one process, whatever the environment says. Others can reach it by tokens all the same.
    ///
    /// # Errors
    /// `System`, `Engine` and `Environment`, as those of [`from_env`](Self::from_env).
    pub fn alone() -> Result<Node> {
        Node::of(Job::alone(), None)
    }

    /// As [`alone`](Self::alone), at an address of this host: who opens a token of the node connects there. At a loopback address only
    /// processes of this host can.
    ///
    /// # Errors
    /// `Address`: no network device that is up has it. Else as those of [`alone`](Self::alone).
    pub fn alone_at(address: IpAddr) -> Result<Node> {
        Node::of(Job::alone(), Some(address))
    }

    pub(crate) fn of(job: Job, at: Option<IpAddr>) -> Result<Node> {
        let nic = engine()?;
        // The loopback device has no GID where there is another device.
        let (device, gid_index) = choose_device(at.filter(|address| !address.is_loopback()))?;
        let gid = &device.gids[gid_index];
        let port = Port { gid: gid.raw(), gid_index: gid_index as u8, mtu: device.mtu };
        let address = at.unwrap_or(gid.address);
        let listener = TcpListener::bind(SocketAddr::new(address, 0))
            .map_err(system(format!("no connections can be taken at {address}")))?;
        let number = listener.local_addr().map_err(system("the own address"))?.port();
        let address = NodeAddress { address, port: number, nonce: random()? };
        let context = pagewire_nic::Context::open(&nic, device, Arc::new(Unwatched));
        let services = NodeServices::new(nic, &context, port, address)?;
        let started = ListenerHandle::start(listener, services.clone())?;
        let peers = PeerTable::new(services.clone(), started.clone());
        let conditional = ConditionalWrites::new(&services, &peers);
        let mut node = Node { services, conditional, listener: started, peers, job, ranks: vec![address] };
        if node.size() > 1 {
            let own = Token::of_node(address);
            node.ranks = node.all_gather(&own)?.iter().map(|token| token.node).collect();
        }
        Ok(node)
    }

    /// This node, as others name it.
    pub fn identity(&self) -> Peer {
        Peer(self.services.address)
    }

    /// The node of a rank of the job.
    ///
    /// # Errors
    /// `Job`: there is no such rank.
    pub fn peer(&self, rank: usize) -> Result<Peer> {
        let size = self.ranks.len();
        self.ranks.get(rank).copied().map(Peer).ok_or(JobError::NoSuchRank { root: rank, size }.into())
    }

    /// Names the peers behind the sources of access logs and of statistics.
    pub fn sources(&self) -> Sources {
        Sources::new(&self.services.nic, &self.services.known_peers, &self.ranks)
    }

    pub(crate) fn services(&self) -> &Arc<NodeServices> {
        &self.services
    }

    /// Refuses a forked child: the node stays its parent's.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_owner(&self) -> Result<()> {
        self.services.check_owner()
    }

    /// The number of this process in its job, from 0 on.
    pub fn rank(&self) -> usize {
        self.job.rank()
    }

    /// Processes of the job.
    pub fn size(&self) -> usize {
        self.job.size()
    }

    /// What joined the processes of the job, for people to read.
    pub fn started_by(&self) -> &str {
        self.job.started_by()
    }

    /// Gives a token to all processes of the job, and takes theirs, by rank. All processes call it.
    ///
    /// # Errors
    /// `Job`: a process does not come, or is lost. `Token`: one gave something else.
    pub fn all_gather(&self, token: &Token) -> Result<Vec<Token>> {
        let all = self.job.all_gather(&token.to_bytes())?;
        all.iter().map(|bytes| Ok(Token::from_bytes(bytes)?)).collect()
    }

    /// [`all_gather`](Self::all_gather) for so long at most. [`barrier_for`](Self::barrier_for) says what a late one leaves; it is continued with
    /// the same token.
    ///
    /// # Errors
    /// `Job`: [`JobError::TimedOut`](crate::bootstrap::JobError::TimedOut) among others. `Token`.
    pub fn all_gather_for(&self, token: &Token, time: Duration) -> Result<Vec<Token>> {
        let all = self.job.all_gather_for(&token.to_bytes(), time)?;
        all.iter().map(|bytes| Ok(Token::from_bytes(bytes)?)).collect()
    }

    /// Gives bytes to all processes of the job, and takes theirs, by rank. All processes call it. It is no way for bulk data.
    ///
    /// # Errors
    /// `Job`.
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.job.all_gather(bytes)?)
    }

    /// [`all_gather_bytes`](Self::all_gather_bytes) for so long at most, as [`all_gather_for`](Self::all_gather_for).
    ///
    /// # Errors
    /// `Job`.
    pub fn all_gather_bytes_for(&self, bytes: &[u8], time: Duration) -> Result<Vec<Vec<u8>>> {
        Ok(self.job.all_gather_for(bytes, time)?)
    }

    /// Gives the bytes of the process `root` to all. All processes call it.
    ///
    /// # Errors
    /// `Job`.
    pub fn broadcast(&self, root: usize, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(self.job.broadcast(root, bytes)?)
    }

    /// Waits until all processes of the job have called it. What they started may still be under way: see [`flush`](Self::flush).
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::Node;
    /// # let node = Node::alone()?;
    /// node.flush()?; // What this process has put is there,
    /// node.barrier()?; // and what all others have.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Job`.
    pub fn barrier(&self) -> Result<()> {
        Ok(self.job.barrier()?)
    }

    /// [`barrier`](Self::barrier) for so long at most. A time of zero begins it, and looks.
    ///
    /// After [`TimedOut`](crate::bootstrap::JobError::TimedOut) the barrier stays begun: for the other processes this one has come. The next barrier
    /// of this process is no new one, but waits on for this one. Until it has ended, each other operation of the job gives
    /// [`Unfinished`](crate::bootstrap::JobError::Unfinished) and does nothing. The job's own timeout counts from the beginning.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::Node;
    /// # let node = Node::alone()?;
    /// use pagewire::{Error, bootstrap::JobError};
    /// while let Err(error) = node.barrier_for(std::time::Duration::from_secs(1)) {
    ///     let Error::Job(JobError::TimedOut { .. }) = error else { return Err(error) };
    ///     println!("some process has not come yet");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Job`.
    pub fn barrier_for(&self, time: Duration) -> Result<()> {
        Ok(self.job.barrier_for(time)?)
    }

    /// Splits the job: processes that give the same colour are a part, in which they are ranked by key, and by rank where that is equal. `None`: this
    /// process is in no part. All processes of the job call it.
    ///
    /// # Errors
    /// `Job`: a process does not come, or is lost. `NoMemory`, `Heap`: there is no memory for what the members exchange.
    pub fn split(&self, colour: Option<u64>, key: i64) -> Result<Option<Part>> {
        let whole = Whole { job: &self.job, services: &self.services, peers: &self.peers };
        whole.split(colour, key, |rank| rank)
    }

    /// A region of `count` zeroed elements that peers may read and write once it is exported.
    ///
    /// # Errors
    /// `NoMemory` and `Heap`: there is none; `Environment`: the heap cannot be made with what `PAGEWIRE_HEAP_RANGE` says.
    pub fn zeroed<T: IntoBytes + FromBytes + Immutable + Copy>(&self, count: usize) -> Result<Region<T>> {
        Ok(Region::new(&self.services, self.block_of::<T>(count)?))
    }

    /// A region of `count` words that are zero, which this process and peers change as atomics.
    ///
    /// # Errors
    /// `NoMemory` and `Heap`: there is none; `Environment`: the heap cannot be made with what `PAGEWIRE_HEAP_RANGE` says.
    pub fn words(&self, count: usize) -> Result<Region<u64, Atomic>> {
        Ok(Region::new(&self.services, self.block_of::<u64>(count)?))
    }

    /// A region that has these elements and never changes.
    ///
    /// # Errors
    /// `NoMemory` and `Heap`: there is none; `Environment`: the heap cannot be made with what `PAGEWIRE_HEAP_RANGE` says.
    pub fn publish<T: IntoBytes + FromBytes + Immutable + Copy>(
        &self,
        elements: &[T],
    ) -> Result<Region<T, ReadOnly>> {
        let block = self.block_of::<T>(elements.len())?;
        block.write(0, elements.as_bytes());
        Ok(Region::new(&self.services, block))
    }

    /// A region whose memory is the file at `path`, of any size: nothing is read in. Peers may read it, and do not keep it from being changed
    /// or truncated. See [`MappedFile`].
    ///
    /// # Errors
    /// `System`: it cannot be opened or mapped.
    pub fn map_file(&self, path: impl AsRef<Path>) -> Result<MappedFile> {
        self.services.check_owner()?;
        MappedFile::open(&self.services, path.as_ref())
    }

    /// A region whose memory is the file at `path`, which peers may read and write. It is made if there is none, and has `length` bytes
    /// then; `None`: as many as it has.
    ///
    /// # Errors
    /// `System`: it cannot be opened, made that long or mapped.
    pub fn map_file_writable(&self, path: impl AsRef<Path>, length: Option<u64>) -> Result<MappedFile> {
        self.services.check_owner()?;
        MappedFile::open_writable(&self.services, path.as_ref(), length)
    }

    /// A region whose memory is an open file; `writable`: peers may write it, too.
    ///
    /// # Errors
    /// `System`: it cannot be mapped, as one that is not open for this.
    pub fn map_open_file(&self, file: &File, writable: bool) -> Result<MappedFile> {
        self.services.check_owner()?;
        MappedFile::map(&self.services, file, writable).map_err(system("a file cannot be mapped"))
    }

    /// The registered heap, which all nodes of the process share. What is allocated in it need not be registered, and peers of this host put
    /// and get there by plain copies. Regions are allocated in it.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// // A vector that peers of this host reach by plain copies.
    /// let mut values = allocator_api2::vec::Vec::new_in(node.heap()?);
    /// values.extend([1u64, 2, 3]);
    /// remote.put(0, values).wait()?;
    /// assert_eq!(table.get(2)?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Heap` and `Environment`: it could not be made. With a small `ulimit -v`, `PAGEWIRE_HEAP_RANGE` makes the range smaller.
    pub fn heap(&self) -> Result<HeapRef> {
        self.services.check_owner()?;
        Ok(heap(&self.services.nic)?.clone())
    }

    fn block_of<T>(&self, count: usize) -> Result<Block> {
        self.services.check_owner()?;
        let length = count.checked_mul(size_of::<T>()).ok_or(Error::NoMemory(u64::MAX))?;
        Block::zeroed(heap(&self.services.nic)?, length)
    }

    /// Opens the memory that a token names: connects to its owner if this node is not connected to it.
    ///
    /// # Errors
    /// `Connect`: the owner has ended, cannot be reached or takes no more peers. Whether the token's key is still valid is told by the
    /// first operation.
    pub fn open(&self, token: &Token) -> Result<RemoteRegion> {
        Ok(RemoteRegion::new(self.peers.connect(token.node)?, *token))
    }

    /// Ends what a token gives, at once: when this returns, no access by it is under way, and none will come.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// let token = table.export(Rights::WRITE)?;
    /// let remote = node.open(&token)?;
    /// node.unexport(&token)?;
    /// let refused = remote.put(0, vec![1u64]).wait().unwrap_err();
    /// assert_eq!(refused.buffer, [1]);
    /// println!("{refused}"); // ... refused by the owner of the memory: the key of the token is not valid there ...
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Engine`: the token is none of this node's, or was unexported before; or a stopped peer is within an access, which cannot be ended.
    pub fn unexport(&self, token: &Token) -> Result<()> {
        self.services.check_owner()?;
        match self.services.exported(token) {
            Some(export) => self.services.revoke(&export),
            None => {
                let why =
                    pagewire_nic::Error::NotFound("the token is of another node, or was unexported before");
                Err(refused("unexport")(why))
            }
        }
    }

    /// Waits until everything that was started before has ended, at `remote`.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// for index in 0..16 {
    ///     drop(remote.put_value(8 * index, index)); // Nobody waits for this one alone.
    /// }
    /// node.flush()?;
    /// assert_eq!(table.get(15)?, 15);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first failure since the last flush of an operation that was dropped before its result was taken.
    pub fn flush(&self) -> Result<(), Failure> {
        self.start_flush().wait()
    }

    /// Starts a [`flush`](Self::flush), which may be waited for, polled or awaited.
    pub fn start_flush(&self) -> Flush {
        if self.services.is_forked() {
            return Flush::forked();
        }
        let all = self.peers.all().into_iter();
        Flush::new(all.flat_map(|connection| connection.with_flushes()).collect())
    }

    /// A descriptor that poll(2) reports as readable while something is ready: an operation, a conditional write or a release that ended after this
    /// call and whose result was not taken, or something that a peer has [opened](Self::next_conditional_request). Read nothing from it: what is taken makes it
    /// unreadable. Signals are not among that, as peers write them without any notice. Futures need no descriptor: any runtime polls them.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// let descriptor = node.descriptor()?;
    /// let put = remote.put(0, vec![5u64]);
    /// poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).unwrap();
    /// assert!(put.is_done());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `System`: there is no descriptor left.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        let readiness = self.services.announce_readiness()?;
        self.conditional.announce_opened();
        Ok(readiness.descriptor())
    }

    /// The path to the owner of a token, and why it is no better one.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn explain(&self, token: &Token) -> Result<String> {
        let connection = self.peers.connect(token.node)?;
        let peer = token.node.socket();
        Ok(match (connection.report(), connection.why_down()) {
            (Some(report), _) if report.reason.is_empty() => format!("{peer}: {}", report.path),
            (Some(report), _) => format!("{peer}: {} ({})", report.path, report.reason),
            (None, Some(why)) => format!("{peer}: no connection: {why}"),
            (None, None) => format!("{peer}: connecting"),
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.services.is_forked() {
            // The threads, queue pairs and connections are the parent's: none of them is dropped here, whoever else has dropped them.
            std::mem::forget((self.services.clone(), self.conditional.clone()));
            std::mem::forget((self.listener.clone(), self.peers.clone()));
            return;
        }
        self.conditional.close();
        self.peers.close();
        self.listener.stop();
        self.services.completions.close();
        self.services.close();
        forget_exports(&self.services);
    }
}

/// A device, and the place of the address in it that the node uses: `at`, or what the environment says.
fn choose_device(at: Option<IpAddr>) -> Result<(Device, usize)> {
    const VARIABLE: &str = "PAGEWIRE_ADDRESS";
    let devices = devices().map_err(system("the network devices"))?;
    let is_used = |device: &Device, gid: usize| !device.gids[gid].is_empty();
    let places = devices.iter().flat_map(|device| {
        (0..device.gids.len()).filter(move |gid| is_used(device, *gid)).map(move |gid| (device, gid))
    });
    let asked = match (at, std::env::var_os(VARIABLE)) {
        (Some(address), _) => Some(address),
        (None, None) => None,
        (None, Some(value)) => {
            let text = value.to_string_lossy();
            let address: IpAddr = text.parse().map_err(|_| Error::Environment {
                variable: VARIABLE,
                why: format!("'{text}': it must be an IP address"),
            })?;
            Some(address)
        }
    };
    let is_good = |gid: IpAddr| match asked {
        Some(address) => gid == address,
        None => !gid.is_loopback() && !matches!(gid, IpAddr::V6(gid) if gid.is_unicast_link_local()),
    };
    let all: Vec<_> = places.collect();
    let good = all.iter().find(|(device, gid)| is_good(device.gids[*gid].address));
    let chosen = match (good, asked) {
        (Some(good), _) => Some(good),
        (None, None) => all.first(),
        (None, Some(address)) if at.is_some() => return Err(Error::Address(address)),
        (None, Some(address)) => {
            let why = format!("{address}, which is no address of a network device here that is up");
            return Err(Error::Environment { variable: VARIABLE, why });
        }
    };
    let (device, gid) = chosen.ok_or_else(|| Error::System {
        what: "no network device is up and has an address".into(),
        why: std::io::ErrorKind::AddrNotAvailable.into(),
    })?;
    Ok(((*device).clone(), *gid))
}
