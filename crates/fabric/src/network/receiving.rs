//! The receiving half: whose turn it is to read the sockets, and which of them are read; what they hold is handed over in
//! `handing`.

use super::flow::IcrcCache;
use super::forwarding::Forwarded;
use super::{FORWARDS, Network, RX_PEER_SOCKET_TOKENS};
use crate::descriptors::Descriptor;
use crate::fabric::ReceivedDatagram;
use crate::limits::{BATCHES_KEPT, FORWARD_ROUND, POLLS_OF_ALL, RECEIVE_MESSAGES, RX_WATERMARK_READS};
use crate::streams::{self, STREAM_TOKENS};
use crate::udp::{Family, KnownAddresses, ReceiveBuffers};
use rustix::event::epoll;
use smallvec::SmallVec;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

/// Nanoseconds after which a thread that stays in the handing over of datagrams is overtaken by others.
pub const STUCK: u64 = 1_000_000;
/// Nanoseconds for which what an overtaken thread has in its hands counts as not heard yet.
const STUCK_FOR_GOOD: u64 = 1_000_000_000;
/// Sockets read in one round.
const READY_SOCKETS: usize = 16;
/// Nanoseconds between two looks at all sockets by one who polls; meanwhile it reads the one that had something last.
const LOOK_INTERVAL: u64 = 10_000;
/// Nanoseconds between two looks at all sockets while the socket that had something last had it less than [`BUSY_FOR`] ago.
const BUSY_LOOK_INTERVAL: u64 = 50_000;
/// Nanoseconds for which a socket that had something counts as busy. A round that sends bursts of packets takes about as long.
const BUSY_FOR: u64 = 30_000;
/// No socket has had anything yet.
pub(super) const NO_SOCKET: u64 = u64::MAX;

/// Buffers, and how far their contents have been handed over.
pub(super) struct ReceiveCursor {
    pub receiver: ReceiveBuffers,
    /// Where its messages came to.
    pub port: u16,
    /// By which receiving peer socket, if it gets what comes from one peer alone.
    pub rx_peer_socket: Option<u64>,
    pub message: usize,
    pub offset: usize,
    pub icrc: IcrcCache,
    pub forwarded: Forwarded,
}

/// What the threads that hand datagrams over take turns with.
pub(super) struct RxBufferPool {
    /// Buffers that nobody uses now.
    #[allow(clippy::vec_box)] // each round takes one out and puts it back: a pointer, not 800 bytes
    idle: Vec<Box<ReceiveCursor>>,
    /// Since when each thread is at it: those that were overtaken, too.
    at_work: Vec<u64>,
    /// Reading that has not come to an end: since when, and how many times it was taken up.
    watermark_candidate: (u64, u32),
}

impl RxBufferPool {
    /// With buffers at hand: nothing could ever be received without them.
    pub fn new() -> io::Result<Self> {
        Ok(RxBufferPool {
            idle: vec![Box::new(ReceiveCursor::new()?)],
            at_work: Vec::new(),
            watermark_candidate: (0, 0),
        })
    }
}

/// Who gets the datagrams of this process.
pub(super) enum DatagramSink<'a> {
    Nic(&'a mut dyn FnMut(&[ReceivedDatagram<'_>])),
    /// They stay in the buffers.
    Nobody,
}

impl ReceiveCursor {
    /// Empty buffers.
    fn new() -> io::Result<Self> {
        let (icrc, forwarded) = (IcrcCache::default(), Forwarded::default());
        Ok(ReceiveCursor {
            receiver: ReceiveBuffers::new()?,
            port: 0,
            rx_peer_socket: None,
            message: 0,
            offset: 0,
            icrc,
            forwarded,
        })
    }

    /// New ones, if there is memory for them. Not inlined: every round would have a place for them on its stack.
    #[cold]
    #[inline(never)]
    fn boxed() -> Option<Box<Self>> {
        let made = ReceiveCursor::new().inspect_err(|error| log::debug!("no memory to receive: {error}"));
        made.ok().map(Box::new)
    }

    /// Whether it holds datagrams that were not handed over.
    pub fn is_left(&self) -> bool {
        self.message < self.receiver.count() || self.forwarded.message().is_some()
    }
}

impl Network {
    /// Hands datagrams over, at most `limit`, and gives how many. One thread at a time, so that their order stays; but
    /// one that is [`STUCK`] in `each` is overtaken. `None`: another thread is at it. Unless `all` sockets are to be looked at, it is
    /// mostly the one that had something last.
    pub fn receive(
        &self,
        limit: usize,
        now: u64,
        all: bool,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> Option<usize> {
        self.receive_for(&mut DatagramSink::Nic(each), limit, now, all)
    }

    /// Whether a thread hands datagrams over.
    pub fn is_at_work(&self) -> bool {
        self.reading_since.load(Ordering::Acquire) != 0
    }

    /// Answers probes and hands on what belongs to other processes; stops at the first datagram for this one, which is
    /// kept for the next [`receive`](Self::receive).
    pub fn serve_others(&self, now: u64) {
        self.receive_for(&mut DatagramSink::Nobody, usize::MAX, now, true);
    }

    /// Sockets are queues of bounded length: what was in them at a time has been read once they were empty, or after so much
    /// was read that it must have been among it. A flood does not hide the time for ever. What a thread that was overtaken has
    /// read came before anything that the sockets hold now.
    fn advance_rx_watermark(&self, hands: &mut RxBufferPool, now: u64, emptied: bool) {
        let recent = now.saturating_sub(STUCK_FOR_GOOD);
        if hands.at_work.iter().filter(|since| **since >= recent).count() > 1 {
            return;
        }
        // Asked after that: a thread that has done its turn has left there what it did not hand over.
        let emptied = emptied && !self.has_left();
        let (since, times) = &mut hands.watermark_candidate;
        let rx_watermark = if emptied {
            (*since, *times) = (0, 0);
            now
        } else if *since == 0 {
            (*since, *times) = (now, 1);
            return;
        } else if *times < RX_WATERMARK_READS {
            *times += 1;
            return;
        } else {
            *times = 0;
            std::mem::replace(since, now)
        };
        // Written here alone, by one thread at a time.
        if rx_watermark > self.rx_watermark.load(Ordering::Relaxed) {
            self.rx_watermark.store(rx_watermark, Ordering::Release);
        }
    }

    /// The time by which everything that had come in has been handed over.
    pub fn rx_watermark(&self) -> u64 {
        self.rx_watermark.load(Ordering::Acquire)
    }

    /// Whether datagrams were read from the sockets and not handed over: no sleeper is told of them.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    fn receive_for(&self, taker: &mut DatagramSink<'_>, limit: usize, now: u64, all: bool) -> Option<usize> {
        let stamp = now.max(1);
        // A sleeper has noted before that it was told of datagrams; who gives the turn back looks for such a note. One sees the other.
        let reading_since = self.reading_since.load(Ordering::SeqCst);
        if reading_since != 0 && stamp.saturating_sub(reading_since) < STUCK {
            return None;
        }
        self.reading_since
            .compare_exchange(reading_since, stamp, Ordering::AcqRel, Ordering::Acquire)
            .ok()?;
        self.hand_on_waiting(now);
        let known = {
            let mut hands = self.hands.lock();
            hands.at_work.push(stamp);
            self.next_receiving(&mut hands)
        };
        let (mut handed, mut done, mut emptied) = (0, None, None);
        if let Some(mut receiving) = known.or_else(ReceiveCursor::boxed) {
            handed = self.hand_over(&mut receiving, limit, taker);
            if self.has_left() {
                handed += self.hand_over_left(&mut receiving, limit - handed, taker);
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
            self.advance_rx_watermark(&mut hands, now, emptied);
        }
        let surplus = done.and_then(|receiving| self.keep_receiving(&mut hands, receiving));
        if let Some(place) = hands.at_work.iter().position(|since| *since == stamp) {
            hands.at_work.swap_remove(place);
        }
        drop(hands);
        drop(surplus);
        // Somebody may have overtaken us: then the turn is theirs.
        let _ = self.reading_since.compare_exchange(stamp, 0, Ordering::SeqCst, Ordering::Acquire);
        Some(handed)
    }

    /// Hands over what another thread left behind when it was overtaken, or found no more room for: it came before anything that the sockets hold.
    #[cold]
    fn hand_over_left(
        &self,
        receiving: &mut Box<ReceiveCursor>,
        limit: usize,
        taker: &mut DatagramSink<'_>,
    ) -> usize {
        let mut handed = 0;
        while handed < limit && !receiving.is_left() && self.left.load(Ordering::SeqCst) % streams::LEFT > 0 {
            let mut hands = self.hands.lock();
            let Some(left) = self.next_receiving(&mut hands) else { break };
            let done = std::mem::replace(receiving, left);
            let surplus = self.keep_receiving(&mut hands, done);
            drop(hands);
            drop(surplus);
            handed += self.hand_over(receiving, limit - handed, taker);
        }
        if let DatagramSink::Nic(each) = taker {
            handed += self.streams.hand_over_left(limit - handed, &|block| self.serves(block), each);
        }
        handed
    }

    /// Buffers to go on with: those that hold something first.
    fn next_receiving(&self, hands: &mut RxBufferPool) -> Option<Box<ReceiveCursor>> {
        if self.left.load(Ordering::SeqCst) % streams::LEFT > 0 {
            if let Some(place) = hands.idle.iter().position(|receiving| receiving.is_left()) {
                self.left.fetch_sub(1, Ordering::SeqCst);
                return Some(hands.idle.remove(place));
            }
        }
        hands.idle.pop()
    }

    /// Puts buffers back, for the next thread. Gives those of which there are enough, to be freed without the lock.
    fn keep_receiving(
        &self,
        hands: &mut RxBufferPool,
        receiving: Box<ReceiveCursor>,
    ) -> Option<Box<ReceiveCursor>> {
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
        receiving: &mut ReceiveCursor,
        limit: usize,
        (now, all): (u64, bool),
        taker: &mut DatagramSink<'_>,
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
            if (FORWARDS..RX_PEER_SOCKET_TOKENS).contains(&token) {
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
        receiving: &mut ReceiveCursor,
        limit: usize,
        taker: &mut DatagramSink<'_>,
    ) -> (usize, bool) {
        if token >= RX_PEER_SOCKET_TOKENS {
            if token >= STREAM_TOKENS {
                return self.read_stream(token, limit, taker);
            }
            let Some(rx_peer_socket) = self.rx_peer_sockets.take(token) else {
                self.last_read.store(NO_SOCKET, Ordering::Relaxed);
                return (0, true);
            };
            receiving.port = rx_peer_socket.to.port();
            receiving.rx_peer_socket = rx_peer_socket.certain.load(Ordering::Acquire).then_some(token);
            let socket = (&rx_peer_socket.socket, rx_peer_socket.ends());
            let (handed, empty) = self.take_messages(socket, (token, few), receiving, limit, taker);
            if handed > 0 {
                rx_peer_socket.note_use();
            }
            if empty && !rx_peer_socket.certain.load(Ordering::Relaxed) {
                rx_peer_socket.certain.store(true, Ordering::Release);
            }
            self.rx_peer_sockets.keep_at_hand(rx_peer_socket);
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
        let Some(socket) = port.socket(Family::ALL[token as usize % 2]) else { return (0, true) };
        (receiving.port, receiving.rx_peer_socket) = (port.number, None);
        self.take_messages((socket, KnownAddresses::default()), (token, few), receiving, limit, taker)
    }

    fn read_stream(&self, token: u64, limit: usize, taker: &mut DatagramSink<'_>) -> (usize, bool) {
        // What belongs to other processes does not come by streams.
        let DatagramSink::Nic(each) = taker else { return (0, false) };
        let (handed, emptied) = self.streams.take(token, limit, &|block| self.serves(block), each);
        if handed > 0 {
            self.last_read.store(token, Ordering::Relaxed);
        }
        (handed, emptied)
    }

    /// Reads a socket into the buffers and hands its datagrams over. Gives their number, and whether the socket was empty then.
    fn take_messages(
        &self,
        (socket, ends): (&Descriptor, KnownAddresses),
        (token, few): (u64, bool),
        receiving: &mut ReceiveCursor,
        limit: usize,
        taker: &mut DatagramSink<'_>,
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
}
