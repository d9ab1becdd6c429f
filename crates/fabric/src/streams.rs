//! Packets in TCP connections, to other processes.
//!
//! A stream brings the packets of one process to one other. Where both send, one connection has the streams of both directions: acknowledgements
//! of TCP ride along then. Each end still chooses its path by itself, as over UDP, and a broken connection is nothing but lost packets. One TCP
//! port takes the streams to all processes of a user of a host. Whoever accepts one reads whom it is for, and gives the connection to that process.

mod accepting;
mod callers;
mod connect_to;
mod format;
mod in_place;
mod incoming;
mod opening;
mod outgoing;
mod send_side;
mod tcp;
mod tls;
mod tls_bytes;

use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::destination::block_of;
use crate::devices::Addresses;
use crate::fabric::{
    ROCE_PORT, ReceivedDatagram, Route, StreamAnswer, StreamId, StreamQuestion, StreamSend, StreamState,
};
use crate::limits::{LONG_PAYLOAD, STREAMS};
use crate::pcap::Capture;
use crate::udp::Family;
use callers::Caller;
pub use connect_to::{ConnectTo, InvalidConnectTo};
use incoming::{RxStream, StreamRead};
use outgoing::{SentFrame, StreamTarget, StreamWish, TxChange, TxOrigin, TxStream};
use pagewire_memory::{HostMemory, Segment};
use parking_lot::{Mutex, RwLock};
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use tls::{Tls, TlsChoice, TlsError};

/// What `ready` tells of from here on: streams, by kind and place.
pub const STREAM_TOKENS: u64 = 1 << 40;
const LISTENERS: u64 = STREAM_TOKENS;
const CALLERS: u64 = 2 << 40;
const OUTGOING: u64 = 3 << 40;
const INCOMING: u64 = 4 << 40;
const PLACE: u64 = (1 << 40) - 1;
/// One stream with packets left, in the count that sockets share with streams.
pub const LEFT: u64 = 1 << 32;

/// How streams are made.
#[derive(Debug, Clone, Default)]
pub struct StreamOptions {
    /// Where connections go whose address is not that of the peer's GID.
    pub connect_to: ConnectTo,
    /// How they are encrypted. Without it they are not.
    pub tls: Option<Tls>,
}

/// The streams of a process.
pub struct Streams {
    instance: u64,
    options: StreamOptions,
    /// Nobody else may name itself by one of these.
    addresses: Arc<Addresses>,
    /// Where their events are told.
    events: Arc<Descriptor>,
    listeners: RwLock<Vec<Arc<Descriptor>>>,
    callers: Mutex<Slab<Caller>>,
    outgoing: RwLock<Vec<Arc<TxStream>>>,
    incoming: RwLock<Slab<Arc<RxStream>>>,
    /// Those with packets that were read and not handed over.
    left: Mutex<Vec<u64>>,
    /// How many there are, in units of [`LEFT`].
    left_count: Arc<AtomicU64>,
    /// Gives connections to other processes.
    hand_on: Arc<Descriptor>,
    /// Where long payloads lie.
    memory: Arc<HostMemory>,
    counters: Arc<Counters>,
    capture: Option<Arc<Capture>>,
    /// Nothing is accepted: too many callers have not said whom they ask for, or there is no descriptor.
    paused: AtomicBool,
    /// When [`keep_up`](Self::keep_up) has something to do, as far as that has come up since it was last called.
    due: AtomicU64,
    /// Called when a stream stands otherwise than before.
    changed: Box<dyn Fn() + Send + Sync>,
}

impl Streams {
    /// No stream yet; `events` is where those to come are told of, `left_count` counts those with packets left, and `hand_on` gives connections
    /// to other processes.
    pub fn new(
        instance: u64,
        (options, addresses): (StreamOptions, Arc<Addresses>),
        (events, left_count, hand_on): (Arc<Descriptor>, Arc<AtomicU64>, Arc<Descriptor>),
        memory: Arc<HostMemory>,
        (counters, capture): (Arc<Counters>, Option<Arc<Capture>>),
        changed: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Streams {
            instance,
            options,
            addresses,
            events,
            listeners: RwLock::default(),
            callers: Mutex::default(),
            outgoing: RwLock::default(),
            incoming: RwLock::default(),
            left: Mutex::default(),
            left_count,
            hand_on,
            memory,
            counters,
            capture,
            paused: AtomicBool::new(false),
            due: AtomicU64::new(u64::MAX),
            changed,
        }
    }

    /// Whether they are encrypted. Then nothing else is sent to other hosts, or taken from them.
    pub fn is_encrypted(&self) -> bool {
        self.options.tls.is_some()
    }

    /// Takes streams at a TCP port, `shared` with other processes of this user. Where it cannot be had peers take another path.
    pub fn listen(&self, port: u16, shared: bool) {
        for family in Family::ALL {
            let listening = tcp::listen(family, port, shared).and_then(|socket| {
                let mut listeners = self.listeners.write();
                let token = epoll::EventData::new_u64(LISTENERS + listeners.len() as u64);
                epoll::add(&*self.events, &socket, token, epoll::EventFlags::IN)?;
                listeners.push(Arc::new(socket));
                Ok(())
            });
            if let Err(error) = listening {
                log::debug!("no streams at TCP port {port} ({family:?}): {error}");
            }
        }
    }

    /// The stream from a block of this process to the process that leases another at the end of a route; it is opened if there is none.
    pub fn stream_to(
        &self,
        route: &Route,
        (own_block, block): (u32, u32),
        patience: u64,
    ) -> (StreamId, StreamState) {
        let target = StreamTarget::new(route, block, &self.options.connect_to);
        let find = |all: &[Arc<TxStream>]| all.iter().find(|stream| stream.target == target).cloned();
        let wish = StreamWish { target, own_block, patience };
        let known = find(&self.outgoing.read()).inspect(|stream| stream.offer_block(own_block));
        match known.or_else(|| self.open(&mut self.outgoing.write(), wish, find)) {
            Some(stream) => (stream.id, stream.state(now())),
            None => {
                let reason = format!("this process has {STREAMS} streams, and takes no more");
                (StreamId::default(), StreamState::Refused(reason))
            }
        }
    }

    /// Opens a stream, unless another thread just has. One that was closed long ago gives up its place.
    fn open(
        &self,
        all: &mut Vec<Arc<TxStream>>,
        wish: StreamWish,
        find: impl Fn(&[Arc<TxStream>]) -> Option<Arc<TxStream>>,
    ) -> Option<Arc<TxStream>> {
        if let Some(known) = find(all) {
            return Some(known);
        }
        let now = now();
        let begin = |id: StreamId| {
            let token = OUTGOING + id.place() as u64;
            let incoming = self.incoming.read();
            let connection =
                incoming.iter().map(|(_, stream)| stream).find(|stream| wish.target.borrow(stream));
            Arc::new(TxStream::new(id, wish, token, self.origin(), now, connection))
        };
        if all.len() < STREAMS {
            let stream = begin(StreamId(all.len() as u32));
            all.push(stream.clone());
            return Some(stream);
        }
        let place = all.iter().position(|stream| stream.is_forgotten(now))?;
        all[place] = begin(all[place].id.next());
        Some(all[place].clone())
    }

    fn origin(&self) -> TxOrigin {
        TxOrigin { events: self.events.clone(), instance: self.instance, tls: self.options.tls.clone() }
    }

    fn stream(&self, id: StreamId) -> Option<Arc<TxStream>> {
        self.outgoing.read().get(id.place()).filter(|stream| stream.id == id).cloned()
    }

    /// Why there are no streams where some were asked for, each reason once.
    pub fn refusals(&self) -> Vec<String> {
        let mut reasons: Vec<String> =
            self.outgoing.read().iter().filter_map(|stream| stream.refusal_reason()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        reasons
    }

    /// How often a stream was opened.
    pub fn openings(&self, id: StreamId) -> u32 {
        self.stream(id).map_or(0, |stream| stream.openings())
    }

    /// Asks whether the process at the end of a stream has read what was sent; see [`Fabric::ask_stream`](crate::Fabric::ask_stream).
    pub fn ask(&self, id: StreamId) -> Option<StreamQuestion> {
        self.stream(id)?.ask()
    }

    /// What has become of a question.
    pub fn answer_to(&self, id: StreamId, question: StreamQuestion) -> StreamAnswer {
        self.stream(id).map_or(StreamAnswer::Lost, |stream| stream.answer_to(question))
    }

    /// Whether packets have to wait.
    pub fn is_blocked(&self, id: StreamId) -> bool {
        let Some(stream) = self.stream(id) else { return false };
        let is_blocked = stream.is_blocked();
        if is_blocked {
            // It may have been begun again just now.
            self.due.fetch_min(stream.due(), Ordering::Relaxed);
        }
        is_blocked
    }

    /// Sends packets that lie behind each other, all as long as the first but the last; they are lost where there is no stream or no room.
    pub fn send(&self, id: StreamId, packets: &[u8], segment: usize) {
        let count = packets.len().div_ceil(segment.max(1)) as u64;
        let sent = match self.stream(id) {
            Some(stream) => stream.send(now(), packets, segment),
            None => SentFrame::Ended,
        };
        match sent {
            SentFrame::Taken => {
                self.counters.stream_packets_sent.add(count);
                self.counters.stream_bytes_sent.add(packets.len() as u64);
            }
            SentFrame::NoRoom => self.counters.dropped_no_room.add(count),
            SentFrame::Ended | SentFrame::Unreadable => self.counters.dropped_refused.add(count),
        }
    }

    /// Sends a packet whose payload the kernel reads where the program has it; see [`Fabric::send_from_memory`](crate::Fabric::send_from_memory).
    pub fn send_from_memory(&self, id: StreamId, headers: &[u8], payload: Segment) -> StreamSend {
        // The capture is shown what was copied, and the kernel does not encrypt.
        if self.capture.is_some() || self.is_encrypted() || (payload.length as usize) < LONG_PAYLOAD {
            return StreamSend::Unavailable;
        }
        let Some(stream) = self.stream(id) else { return StreamSend::Unavailable };
        if stream.is_blocked() {
            return StreamSend::NoRoom;
        }
        match stream.send_from_memory(now(), headers, (&self.memory, payload)) {
            SentFrame::Taken => {
                self.counters.stream_packets_sent.add(1);
                self.counters.stream_bytes_sent.add(headers.len() as u64 + payload.length);
                StreamSend::Taken
            }
            SentFrame::NoRoom => StreamSend::NoRoom,
            SentFrame::Unreadable => StreamSend::Unavailable,
            SentFrame::Ended => {
                self.counters.dropped_refused.add(1);
                StreamSend::Taken
            }
        }
    }

    /// Hands over what was left, `limit` packets at most. Gives how many.
    pub fn hand_over_left(
        &self,
        limit: usize,
        serves: &dyn Fn(u32) -> bool,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> usize {
        let waiting = std::mem::take(&mut *self.left.lock());
        self.left_count.fetch_sub(waiting.len() as u64 * LEFT, Ordering::SeqCst);
        let mut handed = 0;
        for token in waiting {
            handed += self.take(token, limit.saturating_sub(handed), serves, each).0;
        }
        handed
    }

    /// Does what an event asks for. Gives the packets handed over, and whether there is no more.
    pub fn take(
        &self,
        token: u64,
        limit: usize,
        serves: &dyn Fn(u32) -> bool,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> (usize, bool) {
        let place = (token & PLACE) as usize;
        match token & !PLACE {
            LISTENERS => self.accept(place),
            CALLERS => self.read_caller(place, serves),
            OUTGOING => {
                let stream = self.outgoing.read().get(place).cloned();
                if let Some(stream) = stream {
                    self.step(&stream, now());
                    self.due.fetch_min(stream.due(), Ordering::Relaxed);
                }
            }
            _ => return self.read(token, limit, serves, each),
        }
        (0, true)
    }

    fn step(&self, stream: &TxStream, now: u64) {
        match stream.step(now) {
            TxChange::None => return,
            TxChange::Changed => {}
            TxChange::Accepted(reader) => {
                if let Some(reader) = reader
                    && let Err(error) = self.read_answers(reader)
                {
                    stream.give_up(format!("what comes by a connection cannot be read: {error}"), now);
                }
            }
        }
        (self.changed)();
    }

    /// Reads what the process at the end of a stream may send by the same connection.
    fn read_answers(&self, reader: Arc<RxStream>) -> io::Result<()> {
        let mut all = self.incoming.write();
        let entry = all.vacant_entry();
        let data = epoll::EventData::new_u64(INCOMING + entry.key() as u64);
        epoll::add(&*self.events, reader.socket(), data, epoll::EventFlags::IN)?;
        entry.insert(reader);
        Ok(())
    }

    fn read(
        &self,
        token: u64,
        limit: usize,
        serves: &dyn Fn(u32) -> bool,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> (usize, bool) {
        let place = (token & PLACE) as usize;
        let Some(stream) = self.incoming.read().get(place).cloned() else { return (0, true) };
        let mut known = |burst: &[ReceivedDatagram<'_>]| self.hand_over_served(burst, serves, each);
        // Whoever is at it hands over what there is.
        let memory = self.capture.is_none().then_some(&*self.memory);
        let Some(read) = stream.read(limit, memory, &mut known) else { return (0, false) };
        let StreamRead { handed, bytes, emptied, left, ended, question } = read;
        self.counters.stream_packets_received.add(handed as u64);
        self.counters.stream_bytes_received.add(bytes as u64);
        if let Some(question) = question
            && !self.outgoing.read().iter().any(|own| own.answer(&stream, question))
        {
            stream.answer_unlent(question);
        }
        if ended {
            self.forget_incoming(place, &stream);
        } else if left {
            self.leave(token);
        }
        (handed, emptied || ended)
    }

    /// Has a stream read again though no event tells of it: something of it was read or decrypted, and not handed over.
    fn leave(&self, token: u64) {
        self.left.lock().push(token);
        self.left_count.fetch_add(LEFT, Ordering::SeqCst);
    }

    /// Packets for queue pairs of other processes are dropped: their senders asked for this one.
    fn hand_over_served(
        &self,
        burst: &[ReceivedDatagram<'_>],
        serves: &dyn Fn(u32) -> bool,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) {
        let is_ours = |packet: &ReceivedDatagram<'_>| block_of(packet.bytes).is_some_and(serves);
        let mut rest = burst;
        while !rest.is_empty() {
            let ours = rest.iter().take_while(|packet| is_ours(packet)).count();
            if let Some(capture) = &self.capture {
                rest[..ours].iter().for_each(|packet| capture.received_by_stream(packet, ROCE_PORT));
            }
            if ours > 0 {
                each(&rest[..ours]);
            }
            let foreign = rest[ours..].iter().take_while(|packet| !is_ours(packet)).count();
            self.counters.unknown_block.add(foreign as u64);
            rest = &rest[ours + foreign..];
        }
    }

    fn forget_incoming(&self, place: usize, stream: &Arc<RxStream>) {
        let ended = {
            let mut all = self.incoming.write();
            let is_known = all.get(place).is_some_and(|known| Arc::ptr_eq(known, stream));
            is_known.then(|| all.remove(place))
        };
        if let Some(ended) = ended {
            let _ = epoll::delete(&*self.events, ended.socket());
        }
        let now = now();
        let sent_by = self.outgoing.read().iter().find(|own| own.reader_ended(stream, now)).cloned();
        if let Some(own) = sent_by {
            self.due.fetch_min(own.due(), Ordering::Relaxed);
            (self.changed)();
        }
    }

    /// When [`keep_up`](Self::keep_up) is to be called, as far as that has come up since it last was.
    pub fn due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    /// Gives up what has waited long enough; says when it is due again.
    pub fn keep_up(&self, now: u64) -> u64 {
        self.due.store(u64::MAX, Ordering::Relaxed);
        let mut due = u64::MAX;
        let all = self.outgoing.read().clone();
        for stream in all {
            if stream.due() <= now {
                self.step(&stream, now);
            }
            due = due.min(stream.due());
        }
        due.min(self.keep_up_callers(now))
    }
}

/// Nanoseconds of the clock of the fabric, some milliseconds late.
fn now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::STREAM_IDLE;
    use crate::names;
    use format::{PREFACE, Preface, PrefaceKind};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn streams() -> Streams {
        let events = Arc::new(Descriptor::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()).unwrap());
        let hand_on = Arc::new(names::datagrams(None).unwrap());
        let counters = (Arc::new(Counters::default()), None);
        Streams::new(
            7,
            Default::default(),
            (events, Arc::default(), hand_on),
            Arc::new(HostMemory::new()),
            counters,
            Box::new(|| ()),
        )
    }

    /// Accepts a stream by hand.
    fn accept(streams: &Streams, listener: &TcpListener, token: u64) -> TcpStream {
        let (mut peer, _) = listener.accept().unwrap();
        streams.take(token, 0, &|_| true, &mut |_| ());
        let mut asked = [0; PREFACE];
        peer.read_exact(&mut asked).unwrap();
        let accepted = Preface { kind: PrefaceKind::Accept, ..Preface::parse(&asked).unwrap() };
        peer.write_all(&accepted.emit()).unwrap();
        peer
    }

    /// A stream that nothing is sent by is closed, and opened again by the next packet, which waits.
    #[test]
    fn idle_streams_are_closed() {
        // Direct ports have the numbers of their blocks.
        let bind = |port| {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|listener| (listener, port.into()))
        };
        let (listener, block) = (0xF100..0xFF00).find_map(bind).unwrap();
        let streams = streams();
        let here = Ipv4Addr::LOCALHOST.into();
        let route = Route::new(here, here, 0);
        let until = Instant::now() + PATIENCE;
        let (id, state) = streams.stream_to(&route, (0, block), 0);
        assert_eq!(state, StreamState::Connecting);
        let open = |streams: &Streams| {
            while streams.is_blocked(id) || streams.stream_to(&route, (0, block), 0).1 != StreamState::Open {
                streams.take(OUTGOING, 0, &|_| true, &mut |_| ());
                assert!(Instant::now() < until, "not open");
            }
        };
        let mut peer = accept(&streams, &listener, OUTGOING);
        open(&streams);
        // Not before its time.
        assert!(streams.keep_up(now()) <= now() + STREAM_IDLE);
        assert!(!streams.is_blocked(id));
        streams.keep_up(now() + STREAM_IDLE);
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0, "it stays open");
        assert!(streams.is_blocked(id), "a packet would be lost");
        let mut peer = accept(&streams, &listener, OUTGOING);
        open(&streams);
        assert_eq!(streams.openings(id), 2);
        streams.send(id, &[0; 64], 64);
        peer.read_exact(&mut [0; 64]).unwrap();
    }
}
