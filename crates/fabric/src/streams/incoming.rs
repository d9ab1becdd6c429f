//! Streams that bring packets: those that other processes have opened, and the other direction of this process's own.

use super::format::{FRAME_HEADER, Frame, LONG_HEADERS, Mark, Preface};
use super::{in_place, tcp, tls_bytes};
use crate::descriptors::Descriptor;
use crate::fabric::{DeferredPayload, ReceivedDatagram};
use crate::limits::{
    BEHIND_PAYLOAD, PAYLOAD_LOOKS, STREAM_BUFFER, STREAM_MARKS, STREAM_PACKET_BYTES, TLS_READS,
};
use pagewire_memory::{ApplicationMemory, Arena, HostMemory, MemoryError, Segment};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, shutdown};
use rustls::ServerConnection;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::io::{self, Write};
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes of a payload that become visible last: programs wait for them.
const TAIL: usize = 8;

/// Answers who asks, in the clear.
///
/// # Errors
/// The kernel's.
pub fn answer(socket: &Descriptor, preface: Preface) -> io::Result<()> {
    send_all(socket, &preface.emit())
}

/// Sends few bytes. Little was sent before: there is room.
fn send_all(socket: &Descriptor, bytes: &[u8]) -> io::Result<()> {
    match rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// What reading a stream came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRead {
    /// Packets handed over.
    pub handed: usize,
    /// Their bytes.
    pub bytes: usize,
    /// The socket is empty, and all was handed over.
    pub emptied: bool,
    /// There are packets that were read and not handed over.
    pub left: bool,
    /// It is over: the peer has closed it, or sends what no Pagewire does.
    pub ended: bool,
    /// The peer asks whether this much has been read.
    pub question: Option<u32>,
}

/// A stream that brings packets.
pub struct RxStream {
    socket: Descriptor,
    ends: StreamEnds,
    /// The block of the process at the other end that may be sent to by the same connection; 0: none.
    peer_block: u16,
    /// This process has accepted it.
    is_accepted: bool,
    /// Somebody sends by it.
    is_lent: AtomicBool,
    /// How often something has come.
    reads: AtomicU32,
    /// The last question of this side that was answered.
    answered: AtomicU32,
    reader: Mutex<RxReader>,
}

/// The ends of a stream, as its packets tell of them.
#[derive(Debug, Clone, Copy)]
struct StreamEnds {
    peer: IpAddr,
    port: u16,
    own: IpAddr,
}

impl StreamEnds {
    fn packet<'a>(&self, bytes: &'a [u8], deferred: Option<&'a dyn DeferredPayload>) -> ReceivedDatagram<'a> {
        let StreamEnds { peer, port, own } = *self;
        ReceivedDatagram {
            source: peer,
            source_port: port,
            destination: own,
            traffic_class: 0,
            hop_limit: 0,
            by_stream: true,
            bytes,
            deferred,
        }
    }
}

/// Where what is read of a stream lies. A process has few arenas, from which copies are cheaper.
enum StreamBuffer {
    Arena(Arena),
    Heap(Box<[u8]>),
}

impl StreamBuffer {
    fn new() -> Self {
        Arena::spare(STREAM_BUFFER).map_or_else(
            |error| {
                log::debug!("a stream has no arena: {error}");
                StreamBuffer::Heap(vec![0; STREAM_BUFFER].into())
            },
            StreamBuffer::Arena,
        )
    }

    fn bytes(&self) -> &[u8] {
        match self {
            StreamBuffer::Arena(arena) => arena.bytes(),
            StreamBuffer::Heap(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            StreamBuffer::Arena(arena) => arena.bytes_mut(),
            StreamBuffer::Heap(bytes) => bytes,
        }
    }
}

struct RxReader {
    /// What decrypts an encrypted stream.
    tls: Option<Box<ServerConnection>>,
    buffer: StreamBuffer,
    /// What was read and not handed over.
    start: usize,
    end: usize,
    /// The frame that begins before `start`, and how many of its bytes are still to come.
    frame: Option<(Frame, usize)>,
    /// Bytes of a payload that nobody took, still in the socket.
    unwanted: usize,
    /// The last packet was a long one: no more is read than headers.
    reads_headers: bool,
    /// How often the payload of the packet in hand was not there yet.
    looks: u32,
    /// The peer's last question that it was not told of yet, and its last answer.
    question: Option<u32>,
    answer: Option<u32>,
}

/// What is to be done when nothing more can be handed over.
enum Next {
    /// The caller has had enough.
    Pause,
    /// Bytes are to be read.
    Fill,
    /// A payload is on its way: it is looked at later.
    Later,
}

impl RxStream {
    /// Takes a connection over whose opening side has asked so, and has proved who it is where there is TLS. Gives also the address that it
    /// comes from.
    ///
    /// # Errors
    /// The kernel's: it has ended.
    pub fn new(
        socket: Descriptor,
        question: Preface,
        tls: Option<Box<ServerConnection>>,
    ) -> io::Result<(Self, IpAddr)> {
        let peer = tcp::peer(&socket)?;
        let ends = StreamEnds { peer: question.source, port: peer.port(), own: question.destination };
        Ok((Self::with_ends(socket, ends, (question.own_block, true), tls), peer.ip().to_canonical()))
    }

    /// The other direction of a connection that this process has opened; `question` is what it asked.
    ///
    /// # Errors
    /// The kernel's, as with [`new`](Self::new).
    pub fn answering(socket: Descriptor, question: Preface) -> io::Result<Self> {
        let port = tcp::peer(&socket)?.port();
        let ends = StreamEnds { peer: question.destination, port, own: question.source };
        Ok(Self::with_ends(socket, ends, (0, false), None))
    }

    fn with_ends(
        socket: Descriptor,
        ends: StreamEnds,
        (peer_block, is_accepted): (u16, bool),
        tls: Option<Box<ServerConnection>>,
    ) -> Self {
        let reader = Mutex::new(RxReader::new(tls));
        let (is_lent, reads, answered) = Default::default();
        RxStream { socket, ends, peer_block, is_accepted, is_lent, reads, answered, reader }
    }

    /// Whether packets for a block of the peer's may leave by it, from the address that the peer knows this process by. It says so once: two
    /// who send would tear each other's frames.
    pub fn lend(&self, own: IpAddr, peer: IpAddr, block: u32) -> bool {
        let fits = self.peer_block != 0
            && (u32::from(self.peer_block), self.ends.own, self.ends.peer) == (block, own, peer);
        fits && !self.is_lent.swap(true, Ordering::AcqRel)
    }

    /// Answers a question where nobody sends by the connection.
    pub fn answer_unlent(&self, question: u32) {
        if self.peer_block == 0 || self.is_lent.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = send_all(&self.socket, &Mark::Answer(question).bytes()) {
            log::debug!("a stream from {} ends: a question is not answered: {error}", self.ends.peer);
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
        self.is_lent.store(false, Ordering::Release);
    }

    /// Whether another process has opened it.
    pub fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Another descriptor of its connection.
    ///
    /// # Errors
    /// The kernel's: there are none left.
    pub fn duplicate(&self) -> io::Result<Descriptor> {
        tcp::duplicate(&self.socket)
    }

    /// The last question of this side that the peer has answered; 0: none.
    pub fn answered(&self) -> u32 {
        self.answered.load(Ordering::Acquire)
    }

    /// How often something has come by it.
    pub fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Answers who asks.
    ///
    /// # Errors
    /// The kernel's.
    pub fn answer(&self, preface: Preface) -> io::Result<()> {
        match &mut self.reader.lock().tls {
            None => answer(&self.socket, preface),
            Some(tls) => {
                tls.writer().write_all(&preface.emit())?;
                let mut bytes = Vec::new();
                tls_bytes::seal(tls, &mut bytes)?;
                send_all(&self.socket, &bytes)
            }
        }
    }

    /// Its socket.
    pub fn socket(&self) -> &Descriptor {
        &self.socket
    }

    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.reader.lock().tls.is_some()
    }

    /// Hands over packets, `limit` at most. `None`: another thread is at it. `memory`: where long payloads may be read to; without it
    /// packets come whole.
    pub fn read(
        &self,
        limit: usize,
        memory: Option<&HostMemory>,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> Option<StreamRead> {
        let mut reader = self.reader.try_lock()?;
        // The kernel does not decrypt.
        let memory = memory.filter(|_| reader.tls.is_none());
        let mut read =
            StreamRead { handed: 0, bytes: 0, emptied: false, left: false, ended: false, question: None };
        if let Err(error) = self.read_on(&mut reader, limit, memory, &mut read, each) {
            log::debug!("a stream from {} ends: {error}", self.ends.peer);
            read.ended = true;
        }
        if let Some(number) = reader.answer.take() {
            self.answered.store(number, Ordering::Release);
        }
        read.question = reader.question.take();
        if read.handed > 0 {
            // Nobody else does, under the lock.
            self.reads.store(self.reads().wrapping_add(1), Ordering::Relaxed);
        }
        Some(read)
    }

    fn read_on(
        &self,
        reader: &mut RxReader,
        limit: usize,
        memory: Option<&HostMemory>,
        read: &mut StreamRead,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> io::Result<()> {
        loop {
            match reader.hand_over((&self.socket, memory), &self.ends, limit, read, each)? {
                Next::Pause => {
                    (read.left, read.emptied) = (true, false);
                    return Ok(());
                }
                Next::Later => {
                    read.emptied = true;
                    return Ok(());
                }
                Next::Fill if read.emptied => return Ok(()),
                Next::Fill if read.handed >= limit => {
                    // What is decrypted is told by no event.
                    read.left = reader.tls.is_some();
                    return Ok(());
                }
                Next::Fill => read.emptied = reader.fill(&self.socket)?,
            }
        }
    }
}

impl RxReader {
    fn new(tls: Option<Box<ServerConnection>>) -> Self {
        RxReader {
            tls,
            buffer: StreamBuffer::new(),
            start: 0,
            end: 0,
            frame: None,
            unwanted: 0,
            reads_headers: false,
            looks: 0,
            question: None,
            answer: None,
        }
    }

    /// Reads from the socket what there is room for; says whether it was empty then.
    fn fill(&mut self, socket: &Descriptor) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if STREAM_BUFFER - self.end < FRAME_HEADER + STREAM_PACKET_BYTES {
            self.buffer.bytes_mut().copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let is_unwanted = self.unwanted > 0;
        let wanted = match self.frame {
            _ if is_unwanted => self.unwanted,
            // The rest of a long packet that did not come whole.
            Some((_, left)) if self.reads_headers => left - (self.end - self.start) + BEHIND_PAYLOAD,
            None if self.reads_headers => BEHIND_PAYLOAD,
            _ => STREAM_BUFFER,
        };
        let end = STREAM_BUFFER.min(self.end + wanted);
        let room = &mut self.buffer.bytes_mut()[self.end..end];
        let most = room.len();
        if let Some(tls) = &mut self.tls {
            let mut emptied = false;
            for _ in 0..TLS_READS {
                match tls_bytes::read(tls, room)? {
                    0 if emptied => break,
                    0 => emptied = tls_bytes::receive(tls, socket)?,
                    received => {
                        self.end += received;
                        return Ok(false);
                    }
                }
            }
            // Where it is not, the next event tells.
            return Ok(true);
        }
        match recv(socket, room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, received)) => {
                match is_unwanted {
                    true => self.unwanted -= received,
                    false => self.end += received,
                }
                Ok(received < most)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands over what is whole. An error: that is nothing that a Pagewire sends.
    fn hand_over(
        &mut self,
        (socket, memory): (&Descriptor, Option<&HostMemory>),
        ends: &StreamEnds,
        limit: usize,
        read: &mut StreamRead,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> io::Result<Next> {
        let mut marks = 0;
        loop {
            if self.unwanted > 0 {
                return Ok(Next::Fill);
            }
            let bytes = &self.buffer.bytes()[self.start..self.end];
            let Some((frame, left)) = self.frame else {
                let Some(header) = bytes.first_chunk::<FRAME_HEADER>() else { return Ok(Next::Fill) };
                if let Some(mark) = Mark::parse(header) {
                    // Others have their turn.
                    marks += 1;
                    if marks > STREAM_MARKS {
                        return Ok(Next::Pause);
                    }
                    match mark {
                        Mark::Question(number) => self.question = Some(number),
                        Mark::Answer(number) => self.answer = Some(number),
                    }
                    self.start += FRAME_HEADER;
                    continue;
                }
                let frame = Frame::parse(header).ok_or(io::ErrorKind::InvalidData)?;
                self.frame = Some((frame, frame.length));
                self.start += FRAME_HEADER;
                (self.reads_headers, self.looks) = (frame.headers > 0, 0);
                continue;
            };
            let there = bytes.len().min(left);
            // The last packet of a frame may be shorter.
            let whole = if there == left { there } else { there - there % frame.segment };
            if whole == 0 {
                match memory.filter(|_| frame.headers > 0 && there >= frame.headers) {
                    Some(_) if read.handed >= limit => return Ok(Next::Pause),
                    Some(memory) => {
                        match self.hand_over_deferred((socket, memory), ends, frame, read, each)? {
                            Some(next) => return Ok(next),
                            None => continue,
                        }
                    }
                    None => return Ok(Next::Fill),
                }
            }
            if read.handed >= limit {
                return Ok(Next::Pause);
            }
            let most = (limit - read.handed) * frame.segment;
            let taken = whole.min(most);
            let burst: SmallVec<[ReceivedDatagram<'_>; 2]> =
                bytes[..taken].chunks(frame.segment).map(|bytes| ends.packet(bytes, None)).collect();
            each(&burst);
            (read.handed, read.bytes) = (read.handed + burst.len(), read.bytes + taken);
            self.start += taken;
            self.frame = (taken < left).then_some((frame, left - taken));
        }
    }

    /// Hands over a long packet whose headers have been read, if all of the rest waits in the socket. `None`: done.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    fn hand_over_deferred(
        &mut self,
        (socket, memory): (&Descriptor, &HostMemory),
        ends: &StreamEnds,
        frame: Frame,
        read: &mut StreamRead,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> io::Result<Option<Next>> {
        let start = self.start + frame.headers;
        let rest = frame.length - (self.end - self.start);
        if in_place::waiting(socket)? < rest {
            self.looks += 1;
            return Ok(Some(if self.looks > PAYLOAD_LOOKS { Next::Fill } else { Next::Later }));
        }
        let mut headers = [0; LONG_HEADERS];
        let headers = &mut headers[..frame.headers];
        headers.copy_from_slice(&self.buffer.bytes()[self.start..start]);
        let (begun, buffer) = (start..self.end, self.buffer.bytes_mut());
        let payload = WaitingPayload {
            socket,
            memory,
            length: frame.length - frame.headers,
            state: RefCell::new(PayloadState { buffer, begun, rest, behind: 0, taken: false, copy: None }),
        };
        each(&[ends.packet(headers, Some(&payload))]);
        let PayloadState { rest, behind, .. } = payload.state.into_inner();
        (read.handed, read.bytes) = (read.handed + 1, read.bytes + frame.length);
        (self.unwanted, self.start, self.end, self.frame) = (rest, 0, behind, None);
        Ok(None)
    }
}

/// A long payload: its first bytes have been read, the rest waits in the socket.
struct WaitingPayload<'r> {
    socket: &'r Descriptor,
    memory: &'r HostMemory,
    length: usize,
    state: RefCell<PayloadState<'r>>,
}

struct PayloadState<'r> {
    buffer: &'r mut [u8],
    /// Where the first bytes lie in the buffer.
    begun: Range<usize>,
    /// How many are still in the socket.
    rest: usize,
    /// Bytes of what follows that were read with them, at the beginning of the buffer.
    behind: usize,
    /// It was placed or read, whatever came of that.
    taken: bool,
    copy: Option<Rc<[u8]>>,
}

impl DeferredPayload for WaitingPayload<'_> {
    fn length(&self) -> usize {
        self.length
    }

    #[inline(never)] // What other packets are not to carry, on the program's stack.
    fn place(&self, to: Segment, tail_last: bool) -> Result<(), MemoryError> {
        let state = &mut *self.state.borrow_mut();
        if std::mem::replace(&mut state.taken, true) {
            return Err(MemoryError::NotMapped);
        }
        let begun = state.begun.len();
        self.memory.write(&state.buffer[state.begun.clone()], &[to.part(0, begun as u64)], false)?;
        // The tail comes behind the rest, into the buffer, and is written once that is there.
        let tail = if tail_last { state.rest.min(TAIL) } else { 0 };
        let straight = to.part(begun as u64, (state.rest - tail) as u64);
        let room = state.buffer.len().min(tail + BEHIND_PAYLOAD);
        let received = in_place::receive(self.socket, straight, &mut state.buffer[..room]);
        let received = received.map_err(|error| {
            log::debug!("a payload was not read: {error}");
            MemoryError::NotMapped
        })?;
        let Some(behind) = received.checked_sub(state.rest) else {
            state.rest -= received;
            return Err(MemoryError::NotMapped);
        };
        state.rest = 0;
        let last = to.part(to.length - tail as u64, tail as u64);
        let written = self.memory.write(&state.buffer[..tail], &[last], tail_last);
        state.buffer.copy_within(tail..tail + behind, 0);
        state.behind = behind;
        written
    }

    fn read(&self) -> Option<Rc<[u8]>> {
        let state = &mut *self.state.borrow_mut();
        if std::mem::replace(&mut state.taken, true) {
            return state.copy.clone();
        }
        let mut bytes = Vec::with_capacity(self.length);
        bytes.extend_from_slice(&state.buffer[state.begun.clone()]);
        let begun = bytes.len();
        bytes.resize(self.length, 0);
        let received = match recv(self.socket, &mut bytes[begun..], RecvFlags::DONTWAIT) {
            Ok((_, received)) => received,
            Err(error) => {
                log::debug!("a payload was not read: {error}");
                0
            }
        };
        state.rest -= received;
        state.copy = (state.rest == 0).then(|| bytes.into());
        state.copy.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SEGMENTS;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::RngCore;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::net::Ipv4Addr;
    use std::ops::RangeInclusive;
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(60);

    struct Random(Pcg64Mcg);

    impl Random {
        fn among(&mut self, range: RangeInclusive<usize>) -> usize {
            range.start() + self.0.next_u64() as usize % (range.end() - range.start() + 1)
        }

        fn is(&mut self, one_in: usize) -> bool {
            self.among(1..=one_in) == 1
        }

        /// One frame of packets, a long packet, or a mark.
        fn frame(&mut self, bytes: &mut Vec<u8>) {
            if self.is(8) {
                let mark = if self.is(2) { Mark::Question } else { Mark::Answer };
                return bytes.extend_from_slice(&mark(self.among(0..=9) as u32).bytes());
            }
            let frame = match self.among(0..=3) {
                0 => {
                    let headers = self.among(12..=LONG_HEADERS);
                    let length = headers + self.among(1..=20_000);
                    Frame { length, segment: length, headers }
                }
                _ => {
                    let segment =
                        if self.is(8) { self.among(12..=STREAM_PACKET_BYTES) } else { self.among(12..=100) };
                    let most = (2 * STREAM_PACKET_BYTES / segment).min(SEGMENTS);
                    let last = self.among(12..=segment);
                    Frame { length: (self.among(1..=most) - 1) * segment + last, segment, headers: 0 }
                }
            };
            bytes.extend_from_slice(&frame.header());
            let begun = bytes.len();
            bytes.resize(begun + frame.length, 0);
            self.0.fill_bytes(&mut bytes[begun..]);
        }

        /// Frames, mostly right ones.
        fn stream(&mut self) -> Vec<u8> {
            let mut bytes = Vec::new();
            for _ in 0..self.among(1..=60) {
                self.frame(&mut bytes);
            }
            match self.among(0..=5) {
                0 => {
                    let place = self.among(0..=bytes.len() - 1);
                    bytes[place] ^= 1 << self.among(0..=7);
                }
                // Where a frame begins, or somewhere in it.
                1 => drop(bytes.drain(..self.among(1..=30))),
                2 => bytes.truncate(self.among(0..=bytes.len())),
                _ => {}
            }
            bytes
        }
    }

    /// The packets of a stream, and whether something in it is no frame.
    fn packets_of(mut bytes: &[u8]) -> (Vec<&[u8]>, bool) {
        let mut packets = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER>() {
            if Mark::parse(header).is_some() {
                bytes = rest;
                continue;
            }
            let Some(frame) = Frame::parse(header) else { return (packets, true) };
            let whole = rest.get(..frame.length);
            match whole {
                Some(whole) => packets.extend(whole.chunks(frame.segment)),
                None => {
                    packets.extend(rest.chunks_exact(frame.segment));
                    break;
                }
            }
            bytes = &rest[frame.length..];
        }
        (packets, false)
    }

    /// A stream of a pair of sockets, and its other end.
    fn pair() -> (RxStream, Descriptor) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let ends = StreamEnds { peer: Ipv4Addr::LOCALHOST.into(), port: 1, own: Ipv4Addr::LOCALHOST.into() };
        let stream = RxStream::with_ends(Descriptor::new(here).unwrap(), ends, (0, true), None);
        (stream, Descriptor::new(there).unwrap())
    }

    /// Takes a packet as a queue pair might. `None`: its payload was not wanted.
    fn take(packet: &ReceivedDatagram<'_>, random: &mut Random) -> Option<Vec<u8>> {
        let mut bytes = packet.bytes.to_vec();
        let Some(payload) = packet.deferred else { return Some(bytes) };
        match random.among(0..=2) {
            0 => None,
            1 => payload.read().map(|payload| [&bytes[..], &payload].concat()),
            _ => {
                let begun = bytes.len();
                bytes.resize(begun + payload.length(), 0);
                let address = (&raw mut bytes[begun]) as u64;
                let place = Segment { address, length: payload.length() as u64 };
                payload.place(place, random.is(2)).map(|()| bytes).ok()
            }
        }
    }

    /// Sends a stream in pieces and reads it; gives how many packets came.
    fn round(seed: u64) -> usize {
        let mut random = Random(Pcg64Mcg::new(u128::from(seed)));
        let bytes = random.stream();
        let (expected, is_broken) = packets_of(&bytes);
        let (stream, sender) = pair();
        let memory = HostMemory::new();
        let longest = [1, 50, 5_000, 200_000][random.among(0..=3)];
        // Single bytes take long.
        let longest = if bytes.len() > 50_000 { longest.max(5_000) } else { longest };
        let (mut sent, mut got, mut idle) = (0, 0, 0);
        let until = Instant::now() + PATIENCE;
        // Enough looks for a payload that does not come whole to be read all the same.
        while idle < 2 * PAYLOAD_LOOKS {
            assert!(Instant::now() < until, "seed {seed}: {got} of {} packets", expected.len());
            let piece = &bytes[sent..bytes.len().min(sent + random.among(1..=longest))];
            match rustix::net::send(&sender, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(taken) => sent += taken,
                Err(Errno::AGAIN) => {}
                // It has ended the stream.
                Err(error) => panic!("seed {seed}: {error}"),
            }
            let limit = random.among(1..=64);
            let memory = (!random.is(4)).then_some(&memory);
            let mut each = |burst: &[ReceivedDatagram<'_>]| {
                for packet in burst {
                    assert!(got < expected.len(), "seed {seed}: a packet more than {got}");
                    let taken = take(packet, &mut random);
                    assert!(taken.is_none_or(|taken| taken == expected[got]), "seed {seed}: packet {got}");
                    got += 1;
                }
            };
            let read = stream.read(limit, memory, &mut each).unwrap();
            assert!(read.handed <= limit, "seed {seed}");
            if read.ended {
                assert!(is_broken, "seed {seed}: a sound stream has ended");
                break;
            }
            idle = if read.handed == 0 && sent == bytes.len() { idle + 1 } else { 0 };
        }
        assert_eq!(got, expected.len(), "seed {seed}: packets");
        got
    }

    /// `PAGEWIRE_STREAM_PACKETS` says how many packets, and `PAGEWIRE_STREAM_SEED` from which seed on.
    #[test]
    fn streams_of_any_bytes_in_any_pieces() {
        let number = |name: &str, usual| match std::env::var(name) {
            Ok(text) => text.parse::<u64>().expect("a number"),
            Err(_) => usual,
        };
        let (mut seed, wanted) =
            (number("PAGEWIRE_STREAM_SEED", 1), number("PAGEWIRE_STREAM_PACKETS", 50_000));
        let mut packets = 0;
        while packets < wanted {
            packets += round(seed) as u64;
            seed += 1;
        }
        println!("{packets} packets, up to seed {seed}");
    }
}
