//! RoCEv2 over UDP: batches leave, datagrams come in, those of other processes are handed on.

use crate::batch::HostBatch;
use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::fabric::{Datagram, QUEUE_PAIRS_PER_BLOCK, ROCE_PORT, Route};
use crate::limits::{
    BATCH_BYTES, BATCHES_KEPT, BLOCKS, FORWARD_HEADER, FORWARD_ROUND, PACKET_BYTES, RECEIVE_BYTES,
    SOCKET_BUFFER,
};
use crate::pcap::Capture;
use crate::steering::{Sockets, Steering};
use crate::udp::{self, Arrival, Family, Receiver, Transmit};
use crate::{forward, names, sockets, steering};
use pagewire_memory::Arena;
use pagewire_wire::packet::ICRC_LEN;
use pagewire_wire::{Icrc, bth, packet};
use parking_lot::{Mutex, RwLock};
use rustix::event::epoll;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nanoseconds after which a thread that stays in the handing over of datagrams is overtaken by others.
const STUCK: u64 = 1_000_000;
/// The shortest packet: a BTH and the ICRC.
const SHORTEST: usize = bth::LEN + ICRC_LEN;

const V4: u64 = 0;
const V6: u64 = 1;
const FIRST_FORWARD: u64 = 2;

/// The sockets of a process and what belongs to them.
pub struct Network {
    /// Ready when a socket has datagrams.
    ready: Arc<Descriptor>,
    v4: Option<Descriptor>,
    v6: Option<Descriptor>,
    port: u16,
    port_reason: Option<String>,
    send_reason: Mutex<Option<String>>,
    segments: AtomicBool,
    /// Sends what other processes are to have.
    hand_on: Descriptor,
    forwards: RwLock<Vec<Descriptor>>,
    blocks: Box<[AtomicU64]>,
    /// When the thread that hands datagrams over began; 0: none does.
    turn: AtomicU64,
    receivers: Mutex<Vec<Receiving>>,
    batches: Mutex<Vec<HostBatch>>,
    steering: Option<Steering>,
    counters: Arc<Counters>,
    capture: Option<Arc<Capture>>,
}

/// Buffers, and how far their contents have been handed over.
struct Receiving {
    receiver: Receiver,
    message: usize,
    offset: usize,
    icrc: IcrcCache,
    forwarded: Forwarded,
}

/// Who gets the datagrams of this process.
enum Taker<'a> {
    Nic(&'a mut dyn FnMut(Datagram<'_>)),
    /// They stay in the buffers.
    Nobody,
}

impl Receiving {
    /// Whether it holds datagrams that were not handed over.
    fn is_left(&self) -> bool {
        self.message < self.receiver.count() || self.forwarded.message().is_some()
    }
}

impl Network {
    /// Binds the sockets: to port 4791, or to any where that cannot be had.
    ///
    /// # Errors
    /// The kernel's, where there is no way to have sockets at all.
    pub fn new(instance: u64, counters: Arc<Counters>, capture: Option<Arc<Capture>>) -> io::Result<Self> {
        let ready = Arc::new(Descriptor::new(epoll::create(epoll::CreateFlags::CLOEXEC)?));
        let mut port_reason = None;
        let v4 = udp::open(Family::V4, ROCE_PORT, true).or_else(|error| {
            port_reason = Some(match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("UDP port {ROCE_PORT} is held by another user or by the kernel (rxe): only Pagewire peers can be reached")
                }
                _ => format!("UDP port {ROCE_PORT} cannot be had: {error}"),
            });
            udp::open(Family::V4, 0, false)
        });
        let v4 = match v4 {
            Ok(socket) => Some(socket),
            Err(error) => {
                log::debug!("no IPv4 socket: {error}");
                None
            }
        };
        let mut port = v4.as_ref().map_or(Ok(ROCE_PORT), udp::port)?;
        // Both families answer on one port.
        let v6 = match udp::open(Family::V6, port, port == ROCE_PORT) {
            Ok(socket) => Some(socket),
            Err(error) if v4.is_none() => {
                port_reason = Some(format!("UDP port {ROCE_PORT} cannot be had: {error}"));
                Some(udp::open(Family::V6, 0, false)?)
            }
            Err(error) => {
                log::debug!("no IPv6 socket: {error}");
                None
            }
        };
        if let (None, Some(v6)) = (&v4, &v6) {
            port = udp::port(v6)?;
        }
        for (socket, token) in [(&v4, V4), (&v6, V6)] {
            if let Some(socket) = socket {
                epoll::add(&*ready, socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
            }
        }
        if let Some(reason) = &port_reason {
            log::debug!("{reason}");
        }
        Ok(Network {
            ready,
            steering: (port == ROCE_PORT).then(|| Steering::new(instance)),
            v4,
            v6,
            port,
            port_reason,
            send_reason: Mutex::new(None),
            segments: AtomicBool::new(true),
            hand_on: {
                let socket = names::datagrams(None)?;
                rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER)?;
                socket
            },
            forwards: RwLock::new(Vec::new()),
            blocks: (0..1024).map(|_| AtomicU64::new(0)).collect(),
            turn: AtomicU64::new(0),
            receivers: Mutex::new(Vec::new()),
            batches: Mutex::new(Vec::new()),
            counters,
            capture,
        })
    }

    /// Readable when datagrams are there.
    pub fn ready(&self) -> &Descriptor {
        &self.ready
    }

    /// The UDP port of this process.
    pub fn port(&self) -> u16 {
        self.port
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
    pub fn serve_block(&self, block: u32, forwarding: Descriptor) -> io::Result<()> {
        let mut forwards = self.forwards.write();
        if forwards.len() >= BLOCKS {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "all blocks are leased"));
        }
        rustix::net::sockopt::set_socket_passcred(&forwarding, true)?;
        let token = FIRST_FORWARD + forwards.len() as u64;
        epoll::add(&*self.ready, &forwarding, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        forwards.push(forwarding);
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
        let blocks = 0..=u16::MAX;
        blocks
            .filter(|block| {
                self.blocks[usize::from(*block) / 64].load(Ordering::Acquire) >> (block % 64) & 1 == 1
            })
            .collect()
    }

    /// Does the next step of steering; true: another one is due soon.
    pub fn keep_up(&self, now: u64, nonce: impl FnOnce() -> u64) -> bool {
        let Some(steering) = &self.steering else { return false };
        let sockets = Sockets { v4: self.v4.as_ref(), v6: self.v6.as_ref() };
        steering.keep_up(now, nonce, sockets, &self.counters);
        steering.is_busy()
    }

    // Sending.

    /// An empty batch.
    pub fn batch(&self) -> HostBatch {
        if let Some(batch) = self.batches.lock().pop() {
            return batch;
        }
        let arena =
            Arena::new(BATCH_BYTES).inspect_err(|error| log::debug!("no memory for packets: {error}"));
        HostBatch::new(arena.ok())
    }

    /// Sends a batch.
    pub fn flush(&self, mut batch: HostBatch) {
        if batch.lost > 0 {
            self.counters.dropped_no_room.add(batch.lost);
            // Ask the kernel again next time.
            return;
        }
        self.send_batch(&mut batch);
        batch.clear();
        let mut batches = self.batches.lock();
        if batches.len() < BATCHES_KEPT {
            batches.push(batch);
        }
    }

    fn send_batch(&self, batch: &mut HostBatch) {
        let segments = self.segments.load(Ordering::Relaxed);
        let mut icrc = IcrcCache::default();
        let mut from = 0;
        while from < batch.packets().len() {
            let run = if segments { batch.run(from) } else { from..from + 1 };
            if run.len() > 1 {
                self.seal(batch, run.clone(), true, &mut icrc);
                if self.send_segmented(batch, run.clone()) {
                    self.capture(batch, run.clone(), true);
                } else {
                    self.seal(batch, run.clone(), false, &mut icrc);
                    self.send_singly(batch, run.clone());
                }
                from = run.end;
            } else {
                // Packets that follow one by one leave by one system call.
                let family = Family::of(batch.packets()[from].route.destination);
                let mut end = run.end;
                while let Some(next) = batch.packets().get(end) {
                    if Family::of(next.route.destination) != family || segments && batch.run(end).len() > 1 {
                        break;
                    }
                    end += 1;
                }
                self.seal(batch, from..end, false, &mut icrc);
                self.send_singly(batch, from..end);
                from = end;
            }
        }
    }

    /// Writes the ICRCs. The kernel gives the segments of one send the IPv4 identifications 0, 1, 2, ..., and single
    /// datagrams with DF 0.
    fn seal(
        &self,
        batch: &mut HostBatch,
        run: std::ops::Range<usize>,
        segmented: bool,
        cache: &mut IcrcCache,
    ) {
        let (packets, bytes) = batch.packets_and_bytes();
        for (index, packet) in packets[run].iter().enumerate() {
            let icrc = cache.of(packet.route.source, packet.route.destination, self.port, packet.route.port);
            let identification = if segmented { index as u16 } else { 0 };
            let Some(bytes) = bytes.get_mut(packet.start..packet.start + packet.length) else { return };
            let Some(icrc) = icrc else { continue };
            packet::seal(&icrc, identification, bytes);
            if let Some(bit) = packet.damage {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    fn capture(&self, batch: &HostBatch, run: std::ops::Range<usize>, segmented: bool) {
        let Some(capture) = &self.capture else { return };
        for (index, packet) in batch.packets()[run].iter().enumerate() {
            let identification = if segmented { index as u16 } else { 0 };
            if let Some(bytes) = batch.bytes().get(packet.start..packet.start + packet.length) {
                capture.sent(&packet.route, self.port, identification, bytes);
            }
        }
    }

    fn socket(&self, route: &Route) -> Result<&Descriptor, String> {
        if Family::of(route.source) != Family::of(route.destination) {
            return Err(format!("{} cannot reach {}", route.source, route.destination));
        }
        if route.source.is_unspecified() {
            return Err("a packet without a source address".into());
        }
        let (socket, name) = match Family::of(route.destination) {
            Family::V4 => (&self.v4, "IPv4"),
            Family::V6 => (&self.v6, "IPv6"),
        };
        socket.as_ref().ok_or_else(|| format!("this host has no {name}"))
    }

    /// False: the run cannot leave as one send.
    fn send_segmented(&self, batch: &HostBatch, run: std::ops::Range<usize>) -> bool {
        let packets = &batch.packets()[run];
        let (first, last) = (packets[0], packets[packets.len() - 1]);
        let Ok(socket) = self.socket(&first.route) else { return false };
        let Some(bytes) = batch.bytes().get(first.start..last.start + last.length) else { return false };
        let transmit = Transmit { route: &first.route, bytes, segment: Some(first.length as u16) };
        match udp::send(socket, &[transmit]) {
            Ok(0) => false,
            Ok(_) => {
                self.counters.segmented_sends.add(1);
                self.count_sent(packets.len() as u64, bytes.len() as u64);
                true
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    self.counters.dropped_no_room.add(packets.len() as u64);
                    true
                }
                // No checksum offload on the way there, or a kernel without UDP_SEGMENT (4.18).
                Some(libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) => {
                    log::debug!("no UDP_SEGMENT: {error}");
                    self.segments.store(false, Ordering::Relaxed);
                    false
                }
                _ => false,
            },
        }
    }

    fn send_singly(&self, batch: &HostBatch, run: std::ops::Range<usize>) {
        self.capture(batch, run.clone(), false);
        let packets = &batch.packets()[run];
        let mut transmits = Vec::with_capacity(packets.len());
        for packet in packets {
            let bytes = batch.bytes().get(packet.start..packet.start + packet.length).unwrap_or(&[]);
            transmits.push(Transmit { route: &packet.route, bytes, segment: None });
        }
        let mut rest = &transmits[..];
        while let Some(first) = rest.first() {
            let socket = match self.socket(first.route) {
                Ok(socket) => socket,
                Err(reason) => {
                    self.refused(reason);
                    rest = &rest[1..];
                    continue;
                }
            };
            let usable = rest.iter().take_while(|transmit| self.socket(transmit.route).is_ok()).count();
            match udp::send(socket, &rest[..usable]) {
                Ok(0) => return,
                Ok(sent) => {
                    let bytes = rest[..sent].iter().map(|transmit| transmit.bytes.len() as u64).sum();
                    self.count_sent(sent as u64, bytes);
                    rest = &rest[sent..];
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => {
                    // What the kernel has no room for is lost, as in any network.
                    self.counters.dropped_no_room.add(rest.len() as u64);
                    return;
                }
                Err(error) => {
                    self.refused(format!("no packet to {}: {error}", first.route.destination));
                    rest = &rest[1..];
                }
            }
        }
    }

    fn count_sent(&self, datagrams: u64, bytes: u64) {
        self.counters.datagrams_sent.add(datagrams);
        self.counters.bytes_sent.add(bytes);
    }

    fn refused(&self, reason: String) {
        self.counters.dropped_refused.add(1);
        let mut last = self.send_reason.lock();
        if last.as_ref() != Some(&reason) {
            log::debug!("{reason}");
            *last = Some(reason);
        }
    }

    // Receiving.

    /// Hands datagrams over, at most `limit`, and gives how many. One thread at a time, so that their order stays; but
    /// one that is stuck in `each` is overtaken.
    pub fn receive(&self, limit: usize, now: u64, each: &mut dyn FnMut(Datagram<'_>)) -> usize {
        self.receive_for(&mut Taker::Nic(each), limit, now)
    }

    /// Answers probes and hands on what belongs to other processes; stops at the first datagram for this one, which is
    /// kept for the next [`receive`](Self::receive).
    pub fn serve_others(&self, now: u64) {
        self.receive_for(&mut Taker::Nobody, usize::MAX, now);
    }

    /// Whether datagrams were read from the sockets and not handed over: no sleeper is told of them.
    pub fn has_left(&self) -> bool {
        self.receivers.lock().iter().any(Receiving::is_left)
    }

    fn receive_for(&self, taker: &mut Taker<'_>, limit: usize, now: u64) -> usize {
        let stamp = now.max(1);
        let turn = self.turn.load(Ordering::Acquire);
        if turn != 0 && stamp.saturating_sub(turn) < STUCK {
            return 0;
        }
        if self.turn.compare_exchange(turn, stamp, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return 0;
        }
        let known = self.next_receiving();
        let fresh = || {
            let receiver =
                Receiver::new().inspect_err(|error| log::debug!("no memory to receive: {error}")).ok()?;
            let (icrc, forwarded) = (IcrcCache::default(), Forwarded::default());
            Some(Receiving { receiver, message: 0, offset: 0, icrc, forwarded })
        };
        let mut handed = 0;
        if let Some(mut receiving) = known.or_else(fresh) {
            handed = self.hand_over(&mut receiving, limit, taker);
            // What another thread left behind when it was overtaken came before anything that the sockets hold.
            while handed < limit && !receiving.is_left() && self.has_left() {
                let Some(left) = self.next_receiving() else { break };
                let done = std::mem::replace(&mut receiving, left);
                self.receivers.lock().push(done);
                handed += self.hand_over(&mut receiving, limit - handed, taker);
            }
            if handed < limit && !receiving.is_left() {
                handed += self.read_sockets(&mut receiving, limit - handed, taker);
            }
            let mut receivers = self.receivers.lock();
            if receivers.len() < BATCHES_KEPT || receiving.is_left() {
                receivers.push(receiving);
            }
        }
        // Somebody may have overtaken us: then the turn is theirs.
        let _ = self.turn.compare_exchange(stamp, 0, Ordering::AcqRel, Ordering::Acquire);
        handed
    }

    /// Buffers to go on with: those that hold something first.
    fn next_receiving(&self) -> Option<Receiving> {
        let mut receivers = self.receivers.lock();
        let left = receivers.iter().position(Receiving::is_left);
        match left {
            Some(place) => Some(receivers.remove(place)),
            None => receivers.pop(),
        }
    }

    fn read_sockets(&self, receiving: &mut Receiving, limit: usize, taker: &mut Taker<'_>) -> usize {
        let mut ready = Vec::new();
        let mut events = [std::mem::MaybeUninit::uninit(); 16];
        let zero = rustix::event::Timespec::default();
        if let Ok((found, _)) = epoll::wait(&*self.ready, &mut events, Some(&zero)) {
            ready.extend(found.iter().map(|event| event.data.u64()));
        }
        let mut handed = 0;
        for token in ready {
            if handed >= limit || receiving.is_left() {
                break;
            }
            let socket = match token {
                V4 => &self.v4,
                V6 => &self.v6,
                token => {
                    handed += self.read_forwarded(
                        receiving,
                        (token - FIRST_FORWARD) as usize,
                        limit - handed,
                        taker,
                    );
                    continue;
                }
            };
            let Some(socket) = socket else { continue };
            if let Err(error) = receiving.receiver.receive(socket) {
                log::debug!("nothing received: {error}");
                continue;
            }
            (receiving.message, receiving.offset) = (0, 0);
            handed += self.hand_over(receiving, limit - handed, taker);
        }
        handed
    }

    /// Hands over what the buffers hold.
    fn hand_over(&self, receiving: &mut Receiving, limit: usize, taker: &mut Taker<'_>) -> usize {
        let mut handed = 0;
        let Receiving { receiver, message, offset, icrc, forwarded } = receiving;
        while let Some((arrival, bytes)) = forwarded.message().filter(|_| handed < limit) {
            let Taker::Nic(each) = taker else { return handed };
            let end = (forwarded.offset + arrival.segment).min(bytes.len());
            let datagram = forwarded.offset..end;
            handed += usize::from(self.take(&arrival, &bytes[datagram], icrc, each));
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
            let mut end = (start + arrival.segment).min(bytes.len());
            let block = block_of(&bytes[start..end]).filter(|block| !self.serves(*block));
            match (block, &mut *taker) {
                _ if self.is_probe(arrival, &bytes[start..end]) => self.answer_probe(&bytes[start..end]),
                // A message is mostly of one flow: what belongs together is handed on together.
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
                }
                (None, Taker::Nic(each)) => {
                    handed += usize::from(self.take(arrival, &bytes[start..end], icrc, each));
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

    fn is_probe(&self, arrival: &Arrival, bytes: &[u8]) -> bool {
        self.steering.is_some() && steering::is_probe(arrival, bytes)
    }

    fn answer_probe(&self, bytes: &[u8]) {
        if let Some(steering) = &self.steering {
            steering.answer(bytes, &self.hand_on, &self.served());
        }
    }

    /// One datagram. True: it was handed to the NIC.
    fn take(
        &self,
        arrival: &Arrival,
        bytes: &[u8],
        icrc: &mut IcrcCache,
        each: &mut dyn FnMut(Datagram<'_>),
    ) -> bool {
        if bytes.len() < SHORTEST || bytes.len() > PACKET_BYTES {
            self.counters.bad_length.add(1);
            return false;
        }
        // Handed on by a process that thinks so, but not ours either (any more).
        if block_of(bytes).is_none_or(|block| !self.serves(block)) {
            self.counters.unknown_block.add(1);
            return false;
        }
        let icrc = icrc.of(arrival.source, arrival.destination, arrival.source_port, self.port);
        let intact = icrc.is_some_and(|icrc| icrc.verify_unknown_identification(bytes));
        if let Some(capture) = &self.capture {
            capture.received(arrival, self.port, icrc.as_ref(), bytes);
        }
        if !intact {
            self.counters.bad_icrc.add(1);
            return false;
        }
        self.counters.datagrams_received.add(1);
        self.counters.bytes_received.add(bytes.len() as u64);
        each(Datagram {
            source: arrival.source,
            source_port: arrival.source_port,
            destination: arrival.destination,
            traffic_class: arrival.traffic_class,
            hop_limit: arrival.hop_limit,
            bytes: &bytes[..bytes.len() - ICRC_LEN],
        });
        true
    }

    // Other processes' datagrams.

    fn hand_on(&self, block: u32, arrival: &Arrival, bytes: &[u8], datagrams: u64) {
        let header = forward::header(arrival);
        let sent = names::of_forwarding(block)
            .and_then(|name| sockets::send_datagram(&self.hand_on, &name, &header, bytes));
        match sent {
            Ok(()) => {
                self.counters.forwarded.add(datagrams);
                if let Some(steering) = &self.steering {
                    steering.want();
                }
            }
            Err(_) => self.counters.unknown_block.add(datagrams),
        }
    }

    fn read_forwarded(
        &self,
        receiving: &mut Receiving,
        index: usize,
        limit: usize,
        taker: &mut Taker<'_>,
    ) -> usize {
        let forwards = self.forwards.read();
        let Some(socket) = forwards.get(index) else { return 0 };
        let mut handed = 0;
        for _ in 0..FORWARD_ROUND {
            if handed >= limit || receiving.is_left() {
                break;
            }
            let Forwarded { buffer, length, offset, .. } = &mut receiving.forwarded;
            buffer.resize(FORWARD_HEADER + RECEIVE_BYTES, 0);
            (*length, *offset) = (0, 0);
            match sockets::receive_datagram(socket, buffer) {
                Ok(Some(received)) => *length = received,
                Ok(None) => break,
                Err(error) => {
                    log::debug!("nothing received from another process: {error}");
                    break;
                }
            }
            match receiving.forwarded.message() {
                Some((arrival, bytes)) => {
                    self.counters.forwarded_here.add(bytes.len().div_ceil(arrival.segment) as u64);
                }
                None => self.counters.bad_length.add(1),
            }
            handed += self.hand_over(receiving, limit - handed, taker);
        }
        handed
    }
}

/// The block that a datagram's destination belongs to. `None`: it is too short.
fn block_of(bytes: &[u8]) -> Option<u32> {
    let queue_pair = bytes.get(4..8)?.first_chunk::<4>()?;
    Some((u32::from_be_bytes(*queue_pair) & 0xFF_FFFF) / QUEUE_PAIRS_PER_BLOCK)
}

/// The last message from another process, and how far it has been handed over.
#[derive(Default)]
struct Forwarded {
    buffer: Vec<u8>,
    length: usize,
    offset: usize,
}

impl Forwarded {
    /// What is left of it, as the whole message.
    fn message(&self) -> Option<(Arrival, &[u8])> {
        forward::parse(self.buffer.get(..self.length)?).filter(|(_, bytes)| self.offset < bytes.len())
    }
}

/// The ICRC's state for the endpoints of the last packet; the next one often has the same.
#[derive(Default)]
struct IcrcCache(Option<(IpAddr, IpAddr, u16, u16, Icrc)>);

impl IcrcCache {
    /// `None`: the addresses are of different families.
    fn of(&mut self, source: IpAddr, destination: IpAddr, source_port: u16, port: u16) -> Option<Icrc> {
        if let Some((known_source, known_destination, known_source_port, known_port, icrc)) = self.0 {
            if (known_source, known_destination, known_source_port, known_port)
                == (source, destination, source_port, port)
            {
                return Some(icrc);
            }
        }
        let icrc = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Icrc::ipv4(source, destination, source_port, port, true)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Icrc::ipv6(source, destination, source_port, port)
            }
            _ => return None,
        };
        self.0 = Some((source, destination, source_port, port, icrc));
        Some(icrc)
    }
}
