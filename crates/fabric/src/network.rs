//! RoCEv2 over UDP: datagrams come in; what leaves is in `sending`, what belongs to other processes in `forwarding`.

mod crc;
mod flow;
mod forwarding;
mod inlets;
mod sending;
mod ways;

use crate::batch::HostBatch;
use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::fabric::{Datagram, FIRST_DIRECT_BLOCK, QUEUE_PAIRS_PER_BLOCK, ROCE_PORT, port_of};
use crate::limits::{
    BATCHES_KEPT, BLOCKS, FORWARD_ROUND, HEARD_AFTER, PACKET_BYTES, POLLS_OF_ALL, RECEIVE_MESSAGES,
    RETRY_TIME, SOCKET_BUFFER, UNUSED_TIME,
};
use crate::lock::Lock;
use crate::pcap::Capture;
use crate::steering::{Sockets, Steering};
use crate::udp::{self, Arrival, Ends, Family, Receiver};
use crate::{names, steering};
use flow::{Flow, IcrcCache, Place};
use forwarding::{Forwarded, Waiting};
use inlets::Inlets;
use pagewire_wire::bth;
use pagewire_wire::packet::ICRC_LEN;
use parking_lot::{Mutex, RwLock};
use rustix::event::epoll;
use rustix::process::{Uid, geteuid};
use smallvec::SmallVec;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
pub(crate) use ways::Way;
use ways::{Ways, queue_pair_of};

/// Nanoseconds after which a thread that stays in the handing over of datagrams is overtaken by others.
pub const STUCK: u64 = 1_000_000;
/// Nanoseconds for which what an overtaken thread has in its hands counts as not heard yet.
const STUCK_FOR_GOOD: u64 = 1_000_000_000;
/// The shortest packet: a BTH and the ICRC.
const SHORTEST: usize = bth::LEN + ICRC_LEN;
/// The first bytes of a packet: those from the opcode to the queue pair.
const TELLING: usize = 8;

/// What `ready` tells of: a socket for forwarded messages by its place, or one of a port (place and family).
const FORWARDS: u64 = 1 << 32;
/// Or, from here on, an inlet.
const INLETS_FROM: u64 = 1 << 33;
/// Sockets read in one round.
const READY_SOCKETS: usize = 16;
/// Nanoseconds between two looks at all sockets by one who polls; meanwhile it reads the one that had something last.
const LOOK_INTERVAL: u64 = 10_000;
/// The same while that one had something so many nanoseconds ago at most.
const BUSY_LOOK_INTERVAL: u64 = 50_000;
/// See [`BUSY_LOOK_INTERVAL`]. A round that sends rows of packets takes about as long.
const BUSY_FOR: u64 = 30_000;
/// No socket has had anything yet.
const NO_SOCKET: u64 = u64::MAX;

/// The sockets of a process and what belongs to them.
pub struct Network {
    /// Ready when a socket has datagrams.
    ready: Arc<Descriptor>,
    /// Port 4791, or the direct ports, one for each leased block.
    ports: RwLock<Vec<Arc<Port>>>,
    /// The first of them, from which packets leave; none yet where port 4791 cannot be had and no block is leased.
    first: OnceLock<Arc<Port>>,
    /// Why port 4791 cannot be had.
    port_reason: Option<String>,
    send_reason: Mutex<Option<String>>,
    segments: AtomicBool,
    /// Sends what other processes are to have.
    hand_on: Descriptor,
    /// What they have not taken yet, oldest first.
    waiting: Mutex<Waiting>,
    /// Whether there is something, for a look without the lock.
    any_waits: AtomicBool,
    /// Where others hand datagrams on to, for each leased block.
    forwards: RwLock<Vec<(u16, Descriptor)>>,
    /// As whom this process bound its ports: the kernel lets others of this user share them, whoever this process becomes.
    user: Uid,
    /// A bit for each leased block.
    blocks: Box<[AtomicU64]>,
    /// When the thread that hands datagrams over began; 0: none does.
    turn: AtomicU64,
    /// What had come by this time has been handed over.
    heard: AtomicU64,
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
    hands: Lock<Hands>,
    /// How many of them hold datagrams that were not handed over, for a look without the lock.
    left: AtomicUsize,
    // In boxes, as they change hands several times from packet to packet.
    #[allow(clippy::vec_box)]
    batches: Lock<Vec<Box<HostBatch>>>,
    ways: Ways,
    inlets: Inlets,
    /// There are some of them, or may be.
    has_sockets_of_peers: AtomicBool,
    /// When those were closed that were not used.
    tidied: AtomicU64,
    /// Datagrams are told with traffic class and hop limit.
    hops_told: AtomicBool,
    steering: Option<Steering>,
    counters: Arc<Counters>,
    capture: Option<Arc<Capture>>,
}

/// Buffers, and how far their contents have been handed over.
struct Receiving {
    receiver: Receiver,
    /// Where its messages came to.
    port: u16,
    /// By which inlet, if it gets what comes from one peer alone.
    inlet: Option<u64>,
    message: usize,
    offset: usize,
    icrc: IcrcCache,
    forwarded: Forwarded,
}

/// What the threads that hand datagrams over take turns with.
struct Hands {
    /// Buffers that nobody uses now.
    #[allow(clippy::vec_box)] // each round takes one out and puts it back: a pointer, not 800 bytes
    idle: Vec<Box<Receiving>>,
    /// Since when each thread is at it: those that were overtaken, too.
    at_work: Vec<u64>,
    /// Reading that has not come to an end: since when, and how many times it was taken up.
    unheard: (u64, u32),
}

/// Who gets the datagrams of this process.
enum Taker<'a> {
    Nic(&'a mut dyn FnMut(&[Datagram<'_>])),
    /// They stay in the buffers.
    Nobody,
}

impl Receiving {
    /// Empty buffers.
    fn new() -> io::Result<Self> {
        let (icrc, forwarded) = (IcrcCache::default(), Forwarded::default());
        Ok(Receiving {
            receiver: Receiver::new()?,
            port: 0,
            inlet: None,
            message: 0,
            offset: 0,
            icrc,
            forwarded,
        })
    }

    /// Whether it holds datagrams that were not handed over.
    fn is_left(&self) -> bool {
        self.message < self.receiver.count() || self.forwarded.message().is_some()
    }
}

impl Network {
    /// Binds the sockets to port 4791. Where that cannot be had, each leased block will get a direct port.
    ///
    /// # Errors
    /// The kernel's, where there is no way to have sockets at all, or no memory to receive.
    pub fn new(instance: u64, counters: Arc<Counters>, capture: Option<Arc<Capture>>) -> io::Result<Self> {
        let network = Network {
            ready: Arc::new(Descriptor::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)?),
            ports: RwLock::new(Vec::new()),
            first: OnceLock::new(),
            port_reason: None,
            send_reason: Mutex::new(None),
            segments: AtomicBool::new(true),
            hand_on: {
                let socket = names::datagrams(None)?;
                rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER)?;
                socket
            },
            waiting: Mutex::new(Waiting::default()),
            any_waits: AtomicBool::new(false),
            forwards: RwLock::new(Vec::new()),
            user: geteuid(),
            blocks: (0..1024).map(|_| AtomicU64::new(0)).collect(),
            turn: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            read_first: AtomicUsize::new(0),
            looked: AtomicU64::new(0),
            last_read: AtomicU64::new(NO_SOCKET),
            last_had: AtomicU64::new(0),
            // Nothing could ever be received without them.
            hands: Lock::new(Hands {
                idle: vec![Box::new(Receiving::new()?)],
                at_work: Vec::new(),
                unheard: (0, 0),
            }),
            left: AtomicUsize::new(0),
            batches: Lock::new(Vec::new()),
            ways: Ways::default(),
            inlets: Inlets::default(),
            has_sockets_of_peers: AtomicBool::new(false),
            tidied: AtomicU64::new(0),
            polls_of_all: AtomicU32::new(0),
            // A capture shows them.
            hops_told: AtomicBool::new(capture.is_some()),
            steering: None,
            counters,
            capture,
        };
        match Port::open(ROCE_PORT, true).and_then(|port| network.add_port(port)) {
            Ok(()) => Ok(Network { steering: Some(Steering::new(instance, network.user)?), ..network }),
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
    fn add_port(&self, port: Port) -> io::Result<()> {
        let mut ports = self.ports.write();
        for (socket, family) in [(&port.v4, 0), (&port.v6, 1)] {
            if let Some(socket) = socket {
                if self.hops_told.load(Ordering::SeqCst) {
                    udp::tell_hops(socket, [Family::V4, Family::V6][family as usize])?;
                }
                let token = epoll::EventData::new_u64(ports.len() as u64 * 2 + family);
                epoll::add(&*self.ready, socket, token, epoll::EventFlags::IN)?;
            }
        }
        let port = Arc::new(port);
        // The first one stays the first.
        let _ = self.first.set(port.clone());
        ports.push(port);
        Ok(())
    }

    /// Has the kernel tell traffic class and hop limit of each datagram.
    pub fn tell_hops(&self) {
        // Ports that are added from now on look at it.
        if self.hops_told.swap(true, Ordering::SeqCst) {
            return;
        }
        for port in self.ports.read().iter() {
            for (socket, family) in [(&port.v4, Family::V4), (&port.v6, Family::V6)] {
                let told = socket.as_ref().map_or(Ok(()), |socket| udp::tell_hops(socket, family));
                if let Err(error) = told {
                    log::warn!("the kernel does not tell traffic class and hop limit: {error}");
                }
            }
        }
        for inlet in self.inlets.all() {
            if let Err(error) = udp::tell_hops(&inlet.socket, Family::of(inlet.to.ip())) {
                log::warn!("the kernel does not tell traffic class and hop limit: {error}");
            }
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
            self.add_port(Port::open(port_of(block * QUEUE_PAIRS_PER_BLOCK), false)?)?;
        }
        let token = FORWARDS + forwards.len() as u64;
        epoll::add(&*self.ready, &forwarding, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        forwards.push((block as u16, forwarding));
        drop(forwards);
        self.blocks[block as usize / 64].fetch_or(1 << (block % 64), Ordering::AcqRel);
        if let Some(steering) = &self.steering {
            steering.want();
        }
        Ok(())
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
    pub fn is_settling(&self) -> bool {
        self.steering.as_ref().is_some_and(Steering::is_busy) || self.any_waits.load(Ordering::SeqCst)
    }

    /// Does the next step of steering and, where the network is `used`, of looking whether it is right; gives when the next one
    /// is due.
    pub fn keep_up(&self, now: u64, nonce: impl Fn() -> u64, used: bool) -> u64 {
        self.keep_up_steering(now, nonce, used).min(self.close_unused(now))
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
        let left = [self.ways.close_unused(), self.inlets.close_unused()].contains(&true);
        if left {
            self.has_sockets_of_peers.store(true, Ordering::Relaxed);
        }
        // Batches that wait for their next use hold what they were last sent by.
        let last: Vec<_> = self.batches.lock().iter_mut().filter_map(|batch| batch.way.take()).collect();
        // The last to hold a socket closes it: a system call, not under a lock that every sender takes.
        drop(last);
        if left { now + UNUSED_TIME } else { u64::MAX }
    }

    fn keep_up_steering(&self, now: u64, nonce: impl Fn() -> u64, used: bool) -> u64 {
        self.hand_on_waiting();
        let (Some(steering), Some(port)) = (&self.steering, self.first.get()) else { return u64::MAX };
        let sockets = Sockets { v4: port.v4.as_ref(), v6: port.v6.as_ref() };
        let times = (now, self.heard());
        if used {
            steering.look_after(times, &nonce, sockets, || self.served());
        }
        steering.keep_up(times, nonce, sockets, &self.counters);
        let soon = now + RETRY_TIME;
        match (self.is_settling(), used) {
            (true, _) => soon,
            (false, true) => steering.check_due().max(soon),
            (false, false) => u64::MAX,
        }
    }

    /// Hands datagrams over, at most `limit`, and gives how many. One thread at a time, so that their order stays; but
    /// one that is [`STUCK`] in `each` is overtaken. `None`: another thread is at it. Unless `all` sockets are to be looked at, it is
    /// mostly the one that had something last.
    pub fn receive(
        &self,
        limit: usize,
        now: u64,
        all: bool,
        each: &mut dyn FnMut(&[Datagram<'_>]),
    ) -> Option<usize> {
        self.receive_for(&mut Taker::Nic(each), limit, now, all)
    }

    /// Whether a thread hands datagrams over.
    pub fn is_at_work(&self) -> bool {
        self.turn.load(Ordering::Acquire) != 0
    }

    /// Answers probes and hands on what belongs to other processes; stops at the first datagram for this one, which is
    /// kept for the next [`receive`](Self::receive).
    pub fn serve_others(&self, now: u64) {
        self.receive_for(&mut Taker::Nobody, usize::MAX, now, true);
    }

    /// Sockets are queues of bounded length: what was in them at a time has been read once they were empty, or after so much
    /// was read that it must have been among it. A flood does not hide the time for ever. What a thread that was overtaken has
    /// read came before anything that the sockets hold now.
    fn note_heard(&self, hands: &mut Hands, now: u64, emptied: bool) {
        let recent = now.saturating_sub(STUCK_FOR_GOOD);
        if hands.at_work.iter().filter(|since| **since >= recent).count() > 1 {
            return;
        }
        // Asked after that: a thread that has done its turn has left there what it did not hand over.
        let emptied = emptied && !self.has_left();
        let (since, times) = &mut hands.unheard;
        let heard = if emptied {
            (*since, *times) = (0, 0);
            now
        } else if *since == 0 {
            (*since, *times) = (now, 1);
            return;
        } else if *times < HEARD_AFTER {
            *times += 1;
            return;
        } else {
            *times = 0;
            std::mem::replace(since, now)
        };
        // Written here alone, by one thread at a time.
        if heard > self.heard.load(Ordering::Relaxed) {
            self.heard.store(heard, Ordering::Release);
        }
    }

    /// The time by which everything that had come in has been handed over.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Acquire)
    }

    /// Whether datagrams were read from the sockets and not handed over: no sleeper is told of them.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    fn receive_for(&self, taker: &mut Taker<'_>, limit: usize, now: u64, all: bool) -> Option<usize> {
        let stamp = now.max(1);
        // A sleeper has noted before that it was told of datagrams; who gives the turn back looks for such a note. One sees the other.
        let turn = self.turn.load(Ordering::SeqCst);
        if turn != 0 && stamp.saturating_sub(turn) < STUCK {
            return None;
        }
        self.turn.compare_exchange(turn, stamp, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.hand_on_waiting();
        let known = {
            let mut hands = self.hands.lock();
            hands.at_work.push(stamp);
            self.next_receiving(&mut hands)
        };
        let fresh = || {
            let made = Receiving::new().inspect_err(|error| log::debug!("no memory to receive: {error}"));
            made.ok().map(Box::new)
        };
        let (mut handed, mut done, mut emptied) = (0, None, None);
        if let Some(mut receiving) = known.or_else(fresh) {
            handed = self.hand_over(&mut receiving, limit, taker);
            // What another thread left behind when it was overtaken came before anything that the sockets hold.
            while handed < limit && !receiving.is_left() && self.has_left() {
                let mut hands = self.hands.lock();
                let Some(left) = self.next_receiving(&mut hands) else { break };
                let done = std::mem::replace(&mut receiving, left);
                let surplus = self.keep_receiving(&mut hands, done);
                drop(hands);
                drop(surplus);
                handed += self.hand_over(&mut receiving, limit - handed, taker);
            }
            emptied = Some(false);
            if handed < limit && !receiving.is_left() {
                let more;
                (more, emptied) = self.read_sockets(&mut receiving, limit - handed, (now, all), taker);
                handed += more;
            }
            emptied = emptied.map(|emptied| emptied && !receiving.is_left());
            done = Some(receiving);
        }
        let mut hands = self.hands.lock();
        if let Some(emptied) = emptied {
            self.note_heard(&mut hands, now, emptied);
        }
        let surplus = done.and_then(|receiving| self.keep_receiving(&mut hands, receiving));
        if let Some(place) = hands.at_work.iter().position(|since| *since == stamp) {
            hands.at_work.swap_remove(place);
        }
        drop(hands);
        drop(surplus);
        // Somebody may have overtaken us: then the turn is theirs.
        let _ = self.turn.compare_exchange(stamp, 0, Ordering::SeqCst, Ordering::Acquire);
        Some(handed)
    }

    /// Buffers to go on with: those that hold something first.
    fn next_receiving(&self, hands: &mut Hands) -> Option<Box<Receiving>> {
        if self.has_left() {
            if let Some(place) = hands.idle.iter().position(|receiving| receiving.is_left()) {
                self.left.fetch_sub(1, Ordering::SeqCst);
                return Some(hands.idle.remove(place));
            }
        }
        hands.idle.pop()
    }

    /// Puts buffers back, for the next thread. Gives those of which there are enough, to be freed without the lock.
    fn keep_receiving(&self, hands: &mut Hands, receiving: Box<Receiving>) -> Option<Box<Receiving>> {
        let left = receiving.is_left();
        if !left && hands.idle.len() >= BATCHES_KEPT {
            return Some(receiving);
        }
        if left {
            self.left.fetch_add(1, Ordering::SeqCst);
        }
        hands.idle.push(receiving);
        None
    }

    /// Reads the sockets. Gives the number of datagrams handed over, and whether all of them were empty then; `None`: not all
    /// were looked at.
    fn read_sockets(
        &self,
        receiving: &mut Receiving,
        limit: usize,
        (now, all): (u64, bool),
        taker: &mut Taker<'_>,
    ) -> (usize, Option<bool>) {
        // Mostly one socket is in use, and reading it costs no more than asking which ones are ready.
        let last = self.last_read.load(Ordering::Relaxed);
        let since_look = now.saturating_sub(self.looked.load(Ordering::Relaxed));
        let busy = now.saturating_sub(self.last_had.load(Ordering::Relaxed)) < BUSY_FOR;
        let recent = since_look < if busy { BUSY_LOOK_INTERVAL } else { LOOK_INTERVAL };
        let several = self.polls_of_all.load(Ordering::Relaxed);
        if several > 0 {
            // Lost counts of two threads at once do no harm.
            self.polls_of_all.store(several - 1, Ordering::Relaxed);
        } else if !all && last != NO_SOCKET && recent {
            let (handed, _) = self.read_socket(last, true, receiving, limit, taker);
            if handed > 0 {
                self.last_had.store(now, Ordering::Relaxed);
            }
            return (handed, None);
        }
        self.looked.store(now, Ordering::Relaxed);
        let mut ready = SmallVec::<[u64; READY_SOCKETS]>::new();
        let mut events = [MaybeUninit::uninit(); READY_SOCKETS];
        let zero = rustix::event::Timespec::default();
        if let Ok((found, _)) = epoll::wait(&*self.ready, &mut events, Some(&zero)) {
            ready.extend(found.iter().map(|event| event.data.u64()));
        }
        if ready.len() > 1 {
            let first = self.read_first.fetch_add(1, Ordering::Relaxed) % ready.len();
            ready.rotate_left(first);
        }
        let mut handed = 0;
        let mut emptied = ready.len() < READY_SOCKETS;
        for token in ready {
            if handed >= limit || receiving.is_left() {
                return (handed, Some(false));
            }
            if (FORWARDS..INLETS_FROM).contains(&token) {
                let index = (token - FORWARDS) as usize;
                let forwarded = self.read_forwarded(receiving, index, limit - handed, taker);
                handed += forwarded;
                emptied &= forwarded < FORWARD_ROUND;
                continue;
            }
            let (more, empty) = self.read_socket(token, false, receiving, limit - handed, taker);
            if more > 0 {
                self.last_had.store(now, Ordering::Relaxed);
            }
            handed += more;
            emptied &= empty;
        }
        (handed, Some(emptied))
    }

    /// Reads one socket of a port. Gives the number of datagrams handed over, and whether it was empty then.
    fn read_socket(
        &self,
        token: u64,
        few: bool,
        receiving: &mut Receiving,
        limit: usize,
        taker: &mut Taker<'_>,
    ) -> (usize, bool) {
        if token >= INLETS_FROM {
            let Some(inlet) = self.inlets.take(token) else {
                self.last_read.store(NO_SOCKET, Ordering::Relaxed);
                return (0, true);
            };
            receiving.port = inlet.to.port();
            receiving.inlet = inlet.certain.load(Ordering::Acquire).then_some(token);
            let socket = (&inlet.socket, inlet.ends());
            let (handed, empty) = self.take_messages(socket, (token, few), receiving, limit, taker);
            if handed > 0 {
                inlet.note_use();
            }
            if empty && !inlet.certain.load(Ordering::Relaxed) {
                inlet.certain.store(true, Ordering::Release);
            }
            self.inlets.keep_at_hand(inlet);
            return (handed, empty);
        }
        let place = token as usize / 2;
        let other;
        let port = match (place, self.first.get()) {
            (0, Some(first)) => first,
            _ => {
                other = self.ports.read().get(place).cloned();
                let Some(port) = &other else { return (0, true) };
                port
            }
        };
        let Some(socket) = (if token % 2 == 0 { &port.v4 } else { &port.v6 }) else { return (0, true) };
        (receiving.port, receiving.inlet) = (port.number, None);
        self.take_messages((socket, Ends::default()), (token, few), receiving, limit, taker)
    }

    /// The same for a socket that was found.
    fn take_messages(
        &self,
        (socket, ends): (&Descriptor, Ends),
        (token, few): (u64, bool),
        receiving: &mut Receiving,
        limit: usize,
        taker: &mut Taker<'_>,
    ) -> (usize, bool) {
        let (messages, empty) = match receiving.receiver.receive(socket, few, &ends) {
            Ok(received) => received,
            Err(error) => {
                log::debug!("nothing received: {error}");
                return (0, true);
            }
        };
        (receiving.message, receiving.offset) = (0, 0);
        if messages > 0 {
            // Where a socket is never empty the others have their turn as often.
            let again = if messages == RECEIVE_MESSAGES { NO_SOCKET } else { token };
            // What two threads at once write over does no harm.
            let before = self.last_read.load(Ordering::Relaxed);
            if before != again {
                self.last_read.store(again, Ordering::Relaxed);
            }
            if before != token && before != NO_SOCKET {
                self.polls_of_all.store(POLLS_OF_ALL, Ordering::Relaxed);
            }
        }
        (self.hand_over(receiving, limit, taker), empty)
    }

    /// Hands over what the buffers hold.
    fn hand_over(&self, receiving: &mut Receiving, limit: usize, taker: &mut Taker<'_>) -> usize {
        let mut handed = 0;
        let Receiving { receiver, port, inlet, message, offset, icrc, forwarded, .. } = receiving;
        let port = *port;
        while let Some((arrival, bytes)) = forwarded.message().filter(|_| handed < limit) {
            let Taker::Nic(each) = taker else { return handed };
            let Some(place) = Place::at(bytes, forwarded.offset, arrival.segment) else { break };
            let (one, end) = (&bytes[place.range.clone()], place.range.end);
            handed += self.hand_one(&arrival, ROCE_PORT, (one, &place), icrc, each);
            forwarded.offset = end;
        }
        while handed < limit && *message < receiver.count() {
            let Some((arrival, bytes)) = receiver.message(*message) else {
                self.counters.bad_length.add(1);
                *message += 1;
                *offset = 0;
                continue;
            };
            let start = *offset;
            // A message mostly fits as a whole or not at all: what leaves in a row stays one.
            if start == 0 && handed > 0 && bytes.len().div_ceil(arrival.segment.max(1)) > limit - handed {
                break;
            }
            let mut end = (start + arrival.segment).min(bytes.len());
            // The second packet of a datagram goes where the first one went.
            let first = Place::at(bytes, start, arrival.segment);
            let begins = first.as_ref().is_none_or(|place| !place.behind);
            let block = block_of(&bytes[start..end]).filter(|block| begins && !self.serves(*block));
            match (block, &mut *taker) {
                _ if begins && self.is_probe(arrival, &bytes[start..end]) => {
                    self.answer_probe(&bytes[start..end]);
                }
                // A message is mostly of one flow: what belongs together is handed on together.
                (Some(_), _) if port != ROCE_PORT => self.counters.unknown_block.add(1),
                (Some(block), _) => {
                    let mut datagrams = 1;
                    while end < bytes.len() {
                        let next = (end + arrival.segment).min(bytes.len());
                        if block_of(&bytes[end..next]) != Some(block) {
                            break;
                        }
                        (end, datagrams) = (next, datagrams + 1);
                    }
                    self.hand_on(block, arrival, &bytes[start..end], datagrams);
                    if let Some(token) = inlet.take() {
                        // The peer's socket for this process is another one's by now, which sends to another process.
                        self.inlets.close(token);
                    }
                }
                (None, Taker::Nic(each))
                    if first.as_ref().is_some_and(|one| one.range == (0..bytes.len())) =>
                {
                    // Short messages mostly come one by one.
                    handed +=
                        first.map_or(0, |place| self.hand_one(arrival, port, (bytes, &place), icrc, each));
                }
                (None, Taker::Nic(each)) => {
                    let most = limit - handed;
                    let row;
                    (row, end) = self.check_row(arrival, port, bytes, first, most, icrc);
                    if !row.is_empty() {
                        each(&row);
                        handed += row.len();
                    }
                }
                (None, Taker::Nobody) => return handed,
            }
            *offset = end;
            if end >= bytes.len() {
                *message += 1;
                *offset = 0;
            }
        }
        handed
    }

    /// Hands over a packet by itself, at this place of a message, if it is sound and for the NIC; gives how many.
    fn hand_one(
        &self,
        arrival: &Arrival,
        port: u16,
        (bytes, place): (&[u8], &Place),
        icrc: &mut IcrcCache,
        each: &mut dyn FnMut(&[Datagram<'_>]),
    ) -> usize {
        let flow = icrc.of(arrival.source, arrival.destination, arrival.source_port, port);
        let Some(datagram) = self.check(arrival, port, bytes, place, flow) else { return 0 };
        self.count_received(1, bytes.len());
        each(&[datagram]);
        1
    }

    fn count_received(&self, datagrams: usize, bytes: usize) {
        self.counters.datagrams_received.add(datagrams as u64);
        self.counters.bytes_received.add(bytes as u64);
    }

    fn is_probe(&self, arrival: &Arrival, bytes: &[u8]) -> bool {
        self.steering.is_some() && steering::is_probe(arrival, bytes)
    }

    fn answer_probe(&self, bytes: &[u8]) {
        if let Some(steering) = &self.steering {
            if steering.answer(bytes, &self.hand_on, &self.served()) {
                // What is handed on may be for UD.
                self.tell_hops();
            }
        }
    }

    /// The datagrams of a message that are for this process, from the first on, which is: up to one that is not, or so
    /// many. Those that are not sound are left out, and one of two packets is handed over as two. Gives them and where they end.
    fn check_row<'a>(
        &self,
        arrival: &Arrival,
        port: u16,
        bytes: &'a [u8],
        first: Option<Place>,
        most: usize,
        icrc: &mut IcrcCache,
    ) -> (SmallVec<[Datagram<'a>; 2]>, usize) {
        let segment = arrival.segment.max(1);
        let start = first.as_ref().map_or(bytes.len(), |first| first.range.start);
        let there = (bytes.len() - start).div_ceil(segment).min(most);
        let mut row = SmallVec::with_capacity(there);
        let mut at = start;
        let block = first.as_ref().and_then(|first| block_of(&bytes[first.range.clone()]));
        let (mut next, mut length) = (first, 0);
        let mut flow = icrc.of(arrival.source, arrival.destination, arrival.source_port, port);
        while let Some(mut place) = next.filter(|_| row.len() < most) {
            let one = &bytes[place.range.clone()];
            // Mostly all are for the block that the first is for.
            let foreign = || {
                let other = block_of(one);
                other != block && other.is_some_and(|block| !self.serves(block))
            };
            if at > start && !place.behind && (self.is_probe(arrival, one) || foreign()) {
                break;
            }
            if let Some(datagram) = self.check(arrival, port, one, &place, flow.as_deref_mut()) {
                length += one.len();
                row.push(datagram);
                // So are those behind it that begin like it, if they are as long: nothing else tells. What a capture is to show is
                // looked at one by one.
                let beginning = one.first_chunk::<TELLING>();
                let whole = one.len() == segment && self.capture.is_none();
                for alike in bytes[place.range.end..].chunks_exact(segment).take_while(|_| whole) {
                    if row.len() >= most || alike.first_chunk() != beginning {
                        break;
                    }
                    place = place.whole_behind(segment);
                    if self.is_intact(flow.as_deref_mut(), &place, alike) {
                        length += segment;
                        row.push(sound(arrival, alike));
                    }
                }
            }
            at = place.range.end;
            next = place.next(bytes, segment);
        }
        if !row.is_empty() {
            self.count_received(row.len(), length);
        }
        (row, at)
    }

    /// Whether a packet of a flow (`None`: of none that can be) is as it was sent.
    #[inline]
    fn is_intact(&self, flow: Option<&mut Flow>, place: &Place, bytes: &[u8]) -> bool {
        let intact = flow.is_some_and(|flow| flow.verify(place, bytes));
        if !intact {
            self.counters.bad_icrc.add(1);
        }
        intact
    }

    /// The packet at a place of a message, if it is sound and for the NIC.
    fn check<'a>(
        &self,
        arrival: &Arrival,
        port: u16,
        bytes: &'a [u8],
        place: &Place,
        mut flow: Option<&mut Flow>,
    ) -> Option<Datagram<'a>> {
        if bytes.len() < SHORTEST || bytes.len() > PACKET_BYTES {
            self.counters.bad_length.add(1);
            return None;
        }
        if self.steering.as_ref().is_some_and(|steering| steering.take_check(arrival, bytes)) {
            return None;
        }
        // Handed on by a process that thinks so, but not ours either (any more).
        if block_of(bytes).is_none_or(|block| !self.serves(block)) {
            self.counters.unknown_block.add(1);
            return None;
        }
        let intact = self.is_intact(flow.as_deref_mut(), place, bytes);
        if let Some(capture) = &self.capture {
            capture.received(arrival, port, flow.map(|flow| flow.icrc.icrc()), bytes);
        }
        if !intact {
            return None;
        }
        if self.take_echo(arrival, port, bytes) {
            return None;
        }
        Some(sound(arrival, bytes))
    }
}

/// What the NIC gets of a packet whose ICRC was right.
#[inline]
fn sound<'a>(arrival: &Arrival, bytes: &'a [u8]) -> Datagram<'a> {
    Datagram {
        source: arrival.source,
        source_port: arrival.source_port,
        destination: arrival.destination,
        traffic_class: arrival.traffic_class,
        hop_limit: arrival.hop_limit,
        bytes: &bytes[..bytes.len() - ICRC_LEN],
    }
}

/// One UDP port.
struct Port {
    number: u16,
    v4: Option<Descriptor>,
    v6: Option<Descriptor>,
}

impl Port {
    /// Binds a socket for each family that this host has, `shared` with other processes of this user.
    fn open(number: u16, shared: bool) -> io::Result<Self> {
        let v4 = if_supported(udp::open(Family::V4, number, shared))?;
        let v6 = match if_supported(udp::open(Family::V6, number, shared)) {
            // Somebody holds 4791 for IPv6 alone: IPv4 is what most peers use.
            Err(error) if shared && v4.is_some() => {
                log::debug!("no IPv6 socket: {error}");
                None
            }
            other => other?,
        };
        if v4.is_none() && v6.is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this host has neither IPv4 nor IPv6"));
        }
        Ok(Port { number, v4, v6 })
    }
}

fn if_supported(socket: io::Result<Descriptor>) -> io::Result<Option<Descriptor>> {
    match socket {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The block that a datagram's destination belongs to. `None`: it is too short.
fn block_of(bytes: &[u8]) -> Option<u32> {
    queue_pair_of(bytes).map(|number| number / QUEUE_PAIRS_PER_BLOCK)
}
