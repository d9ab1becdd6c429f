//! RoCEv2 over UDP: the sockets of a process. What comes in is in `receiving` and `handing`, what leaves in `sending` and `echo`, what
//! belongs to other processes in `forwarding`.

mod crc;
mod echo;
mod flow;
mod forwarding;
mod handing;
pub(crate) mod peer_sockets;
pub(crate) mod port;
mod receiving;
mod sending;

use crate::batch::HostBatch;
use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::devices::Addresses;
use crate::fabric::{FIRST_DIRECT_BLOCK, QUEUE_PAIRS_PER_BLOCK, ROCE_PORT, port_of};
use crate::limits::{BLOCKS, RETRY_TIME, SOCKET_BUFFER, UNUSED_TIME};
use crate::lock::Lock;
use crate::management::{self, ManagementDatagram, ManagementTarget};
use crate::management_packet;
use crate::names;
use crate::pcap::Capture;
use crate::steering::Steering;
use crate::streams::{StreamOptions, Streams};
use crate::udp::{self, Family};
use forwarding::ForwardBacklog;
use pagewire_memory::HostMemory;
use parking_lot::{Mutex, RwLock};
use peer_sockets::{RxPeerSockets, TxPeerSockets};
use port::UdpPort;
pub use receiving::STUCK;
use receiving::{NO_SOCKET, RxBufferPool};
use rustix::event::epoll;
use rustix::process::{Uid, geteuid};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What `ready` tells of: a socket for forwarded messages by its place, or one of a port (place and family).
const FORWARDS: u64 = 1 << 32;
/// Or, from here on, a receiving peer socket.
const RX_PEER_SOCKET_TOKENS: u64 = 1 << 33;

/// The sockets of a process and what belongs to them.
pub struct Network {
    /// Ready when a socket has datagrams.
    ready: Arc<Descriptor>,
    /// Port 4791, or the direct ports, one for each leased block.
    ports: RwLock<Vec<Arc<UdpPort>>>,
    /// The first of them, from which packets leave; none yet where port 4791 cannot be had and no block is leased.
    first: OnceLock<Arc<UdpPort>>,
    /// Why port 4791 cannot be had.
    port_reason: Option<String>,
    send_reason: Mutex<Option<String>>,
    segments: AtomicBool,
    /// Sends what other processes are to have.
    hand_on: Arc<Descriptor>,
    /// What they have not taken yet, oldest first.
    waiting: Mutex<ForwardBacklog>,
    /// Whether there is something, for a look without the lock.
    any_waits: AtomicBool,
    /// Where others hand datagrams on to, for each leased block.
    forwards: RwLock<Vec<(u16, Arc<Descriptor>)>>,
    /// As whom this process bound its ports: the kernel lets others of this user share them, whoever this process becomes.
    user: Uid,
    /// From these any process of this host can send.
    addresses: Arc<Addresses>,
    /// A bit for each leased block.
    blocks: Box<[AtomicU64]>,
    /// When the thread that hands datagrams over began; 0: none does.
    reading_since: AtomicU64,
    /// What had come by this time has been handed over.
    rx_watermark: AtomicU64,
    /// Which of the sockets that are ready is read first: none has to wait until the others are empty.
    read_first: AtomicUsize,
    /// When all sockets were last looked at.
    looked: AtomicU64,
    /// The socket of a port that had something last, or [`NO_SOCKET`].
    last_read: AtomicU64,
    /// When it had something.
    last_had: AtomicU64,
    /// Polls that still look at all sockets, as lately there was something in several.
    polls_of_all: AtomicU32,
    hands: Lock<RxBufferPool>,
    /// How many of them hold datagrams that were not handed over, for a look without the lock; and streams, in units of [`LEFT`](crate::streams::LEFT).
    left: Arc<AtomicU64>,
    // In boxes, as they change hands several times from packet to packet.
    #[allow(clippy::vec_box)]
    batches: Lock<Vec<Box<HostBatch>>>,
    tx_peer_sockets: TxPeerSockets,
    rx_peer_sockets: RxPeerSockets,
    /// There are some of them, or may be.
    has_sockets_of_peers: AtomicBool,
    /// When those were closed that were not used.
    tidied: AtomicU64,
    /// Datagrams are told with traffic class and hop limit.
    hop_info_requested: AtomicBool,
    steering: Option<Steering>,
    pub streams: Arc<Streams>,
    counters: Arc<Counters>,
    capture: Option<Arc<Capture>>,
}

impl Network {
    /// Binds the sockets to port 4791. Where that cannot be had, each leased block will get a direct port.
    ///
    /// # Errors
    /// The kernel's, where there is no way to have sockets at all, or no memory to receive.
    pub fn new(
        instance: u64,
        (counters, capture): (Arc<Counters>, Option<Arc<Capture>>),
        (addresses, streams): (Arc<Addresses>, StreamOptions),
        memory: Arc<HostMemory>,
        streams_changed: Box<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let ready = Arc::new(Descriptor::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)?);
        let left = Arc::<AtomicU64>::default();
        let hand_on = {
            let socket = names::datagrams(None)?;
            rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER)?;
            Arc::new(socket)
        };
        let streams = Streams::new(
            instance,
            (streams, addresses.clone()),
            (ready.clone(), left.clone(), hand_on.clone()),
            memory,
            (counters.clone(), capture.clone()),
            streams_changed,
        );
        let network = Network {
            streams: Arc::new(streams),
            ready,
            ports: RwLock::new(Vec::new()),
            first: OnceLock::new(),
            port_reason: None,
            send_reason: Mutex::new(None),
            segments: AtomicBool::new(true),
            hand_on,
            waiting: Mutex::new(ForwardBacklog::default()),
            any_waits: AtomicBool::new(false),
            forwards: RwLock::new(Vec::new()),
            user: geteuid(),
            addresses,
            blocks: (0..1024).map(|_| AtomicU64::new(0)).collect(),
            reading_since: AtomicU64::new(0),
            rx_watermark: AtomicU64::new(0),
            read_first: AtomicUsize::new(0),
            looked: AtomicU64::new(0),
            last_read: AtomicU64::new(NO_SOCKET),
            last_had: AtomicU64::new(0),
            hands: Lock::new(RxBufferPool::new()?),
            left,
            batches: Lock::new(Vec::new()),
            tx_peer_sockets: TxPeerSockets::default(),
            rx_peer_sockets: RxPeerSockets::default(),
            has_sockets_of_peers: AtomicBool::new(false),
            tidied: AtomicU64::new(0),
            polls_of_all: AtomicU32::new(0),
            // A capture shows them.
            hop_info_requested: AtomicBool::new(capture.is_some()),
            steering: None,
            counters,
            capture,
        };
        match UdpPort::open(ROCE_PORT, true).and_then(|port| network.add_port(port)) {
            Ok(()) if network.streams.is_encrypted() => Ok(network),
            Ok(()) => Ok(Network { steering: Some(Steering::new(instance)?), ..network }),
            Err(error) => {
                let held = match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "is held by another user, another program or the kernel (rxe)".to_owned()
                    }
                    _ => format!("cannot be had: {error}"),
                };
                let reason = format!(
                    "UDP port {ROCE_PORT} {held}: only Pagewire peers can reach this process, at direct ports"
                );
                log::debug!("{reason}");
                Ok(Network { port_reason: Some(reason), ..network })
            }
        }
    }

    /// Takes datagrams of one more port.
    fn add_port(&self, port: UdpPort) -> io::Result<()> {
        let mut ports = self.ports.write();
        for (family, socket) in port.sockets() {
            if self.hop_info_requested.load(Ordering::SeqCst) {
                udp::request_hop_info(socket, family)?;
            }
            let token = epoll::EventData::new_u64(ports.len() as u64 * 2 + family as u64);
            // Datagrams are not encrypted: where streams are, nobody reads them, and the kernel drops them.
            if !self.streams.is_encrypted() {
                epoll::add(&*self.ready, socket, token, epoll::EventFlags::IN)?;
            }
        }
        self.streams.listen(port.number, port.number == ROCE_PORT);
        let port = Arc::new(port);
        // The first one stays the first.
        let _ = self.first.set(port.clone());
        ports.push(port);
        Ok(())
    }

    /// Has the kernel tell traffic class and hop limit of each datagram.
    pub fn request_hop_info(&self) {
        // Ports that are added from now on look at it.
        if self.hop_info_requested.swap(true, Ordering::SeqCst) {
            return;
        }
        let request = |socket: &Descriptor, family| {
            if let Err(error) = udp::request_hop_info(socket, family) {
                log::warn!("the kernel does not tell traffic class and hop limit: {error}");
            }
        };
        for port in self.ports.read().iter() {
            port.sockets().for_each(|(family, socket)| request(socket, family));
        }
        for from_peer in self.rx_peer_sockets.all() {
            request(&from_peer.socket, Family::of(from_peer.to.ip()));
        }
    }

    /// Readable when datagrams are there.
    pub fn ready(&self) -> &Descriptor {
        &self.ready
    }

    /// The UDP port that packets of this process come from and that takes packets for all its queue pairs; 0 where port
    /// 4791 cannot be had and no block is leased yet.
    pub fn port(&self) -> u16 {
        self.first.get().map_or(0, |port| port.number)
    }

    /// The numbers of blocks that this process may lease: those that peers reach at port 4791, or those that they reach at
    /// direct ports.
    pub fn blocks_to_lease(&self) -> std::ops::Range<u32> {
        // Block 0 holds the special queue pairs, the last one the multicast number.
        if self.port_reason.is_none() { 1..FIRST_DIRECT_BLOCK } else { FIRST_DIRECT_BLOCK..0xFFFF }
    }

    /// Why it is not 4791.
    pub fn port_reason(&self) -> Option<String> {
        self.port_reason.clone()
    }

    /// Why the kernel last refused a datagram.
    pub fn send_reason(&self) -> Option<String> {
        self.send_reason.lock().clone()
    }

    /// Takes packets for the queue pairs of one more block; `forwarding` is where other processes hand them on to.
    ///
    /// # Errors
    /// `AddrInUse` where somebody holds the block's direct port.
    pub fn serve_block(&self, block: u32, forwarding: Descriptor) -> io::Result<()> {
        let mut forwards = self.forwards.write();
        if forwards.len() >= BLOCKS {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "all blocks are leased"));
        }
        rustix::net::sockopt::set_socket_passcred(&forwarding, true)?;
        if self.port_reason.is_some() {
            self.add_port(UdpPort::open(port_of(block * QUEUE_PAIRS_PER_BLOCK), false)?)?;
        }
        let token = FORWARDS + forwards.len() as u64;
        epoll::add(&*self.ready, &forwarding, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        forwards.push((block as u16, Arc::new(forwarding)));
        drop(forwards);
        self.blocks[block as usize / 64].fetch_or(1 << (block % 64), Ordering::AcqRel);
        if let Some(steering) = &self.steering {
            steering.want();
        }
        Ok(())
    }

    /// See [`management`](crate::management).
    pub fn deliver_management(
        &self,
        target: ManagementTarget,
        datagram: &ManagementDatagram,
    ) -> io::Result<()> {
        management::deliver(&self.hand_on, target, datagram, self.streams.is_encrypted())
    }

    /// See [`Fabric`](crate::Fabric::capture_management).
    pub fn capture_management(&self, datagram: &ManagementDatagram) {
        if let Some(capture) = &self.capture {
            management_packet::capture(capture, datagram);
        }
    }

    fn serves(&self, block: u32) -> bool {
        // Block 0 holds the queue pairs that every process has (0, 1); 0xFFFFFF stands for multicast.
        block == 0
            || block == 0xFFFF
            || self.blocks[block as usize / 64].load(Ordering::Acquire) >> (block % 64) & 1 == 1
    }

    /// The blocks that this process serves.
    fn served(&self) -> Vec<u16> {
        self.forwards.read().iter().map(|(block, _)| *block).collect()
    }

    /// Whether steering is being set up, or something waits that belongs to others.
    pub fn is_steering_pending(&self) -> bool {
        self.steering.as_ref().is_some_and(Steering::is_busy) || self.any_waits.load(Ordering::SeqCst)
    }

    /// Does the next step of steering and, where the network is `used`, of looking whether it is right; gives when the next one
    /// is due.
    pub fn keep_up(&self, now: u64, nonce: impl Fn() -> u64, used: bool) -> u64 {
        self.keep_up_steering(now, nonce, used).min(self.close_unused(now)).min(self.streams.keep_up(now))
    }

    /// Closes sockets for peers to which nothing went, or from which nothing came, for a while; gives when it is due again.
    fn close_unused(&self, now: u64) -> u64 {
        if !self.has_sockets_of_peers.load(Ordering::Relaxed) {
            return u64::MAX;
        }
        let due = self.tidied.load(Ordering::Relaxed).saturating_add(UNUSED_TIME);
        if now < due {
            return due;
        }
        self.tidied.store(now, Ordering::Relaxed);
        // Before the look: one that is made meanwhile is not forgotten.
        self.has_sockets_of_peers.store(false, Ordering::Relaxed);
        let left = [self.tx_peer_sockets.close_unused(), self.rx_peer_sockets.close_unused()].contains(&true);
        if left {
            self.has_sockets_of_peers.store(true, Ordering::Relaxed);
        }
        // Batches that wait for their next use hold what they were last sent by.
        let last: Vec<_> =
            self.batches.lock().iter_mut().filter_map(|batch| batch.tx_peer_socket.take()).collect();
        // The last to hold a socket closes it: a system call, not under a lock that every sender takes.
        drop(last);
        if left { now + UNUSED_TIME } else { u64::MAX }
    }

    fn keep_up_steering(&self, now: u64, nonce: impl Fn() -> u64, used: bool) -> u64 {
        self.hand_on_waiting(now);
        let (Some(steering), Some(port)) = (&self.steering, self.first.get()) else { return u64::MAX };
        let times = (now, self.rx_watermark());
        if used {
            steering.look_after(times, &nonce, port, || self.served());
        }
        steering.keep_up(times, nonce, port, &self.counters);
        let soon = now + RETRY_TIME;
        match (self.is_steering_pending(), used) {
            (true, _) => soon,
            (false, true) => steering.check_due().max(soon),
            (false, false) => u64::MAX,
        }
    }
}
