//! Connections of the rendezvous: frames that go out and come in on many sockets at a time, within a deadline.
//!
//! No peer makes this module wait longer, or hold more bytes, than the caller allows.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pagewire_memory::fork::KeptFromChildren;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Wait;
use super::limits::{MAX_GATHERED, READ_BYTES};
use super::message::{FrameHeader, HEADER, Malformed};

/// Why frames did not arrive.
#[derive(Debug)]
pub enum LinkError {
    /// These ranks were too slow.
    Late(Vec<usize>),
    /// This rank's connection ended.
    Lost { rank: usize, reason: String },
    /// This rank sent something else than a frame.
    Malformed { rank: usize, error: Malformed },
    /// All ranks together announce too many bytes.
    TooMuch { bytes: usize },
    /// poll(2) failed.
    System(io::Error),
}

/// Bytes of known length that arrive in pieces.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    wanted: usize,
}

impl Incoming {
    pub fn new(wanted: usize) -> Self {
        Self { bytes: Vec::new(), wanted }
    }

    /// Reads what is there. True once all has come.
    pub fn read_from(&mut self, mut stream: &TcpStream) -> io::Result<bool> {
        while self.bytes.len() < self.wanted {
            let start = self.bytes.len();
            // Memory follows the bytes that have come, not those that were announced.
            self.bytes.resize(self.wanted.min(start + READ_BYTES), 0);
            let result = stream.read(&mut self.bytes[start..]);
            self.bytes.truncate(start + *result.as_ref().unwrap_or(&0));
            match result {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The connection to one rank. Its socket never blocks.
#[derive(Debug)]
pub struct RankLink {
    rank: usize,
    /// A forked child could write to the socket, and would keep the connection when its parent dies. Dropped before the socket.
    _kept: KeptFromChildren,
    stream: TcpStream,
    /// The longest body that this rank may send.
    max_body: usize,
    outgoing: Option<(Arc<Vec<u8>>, usize)>,
    receiving: FrameProgress,
}

#[derive(Debug)]
enum FrameProgress {
    Nothing,
    Header(Incoming),
    Body(FrameHeader, Incoming),
    Complete(FrameHeader, Vec<u8>),
}

impl RankLink {
    pub fn new(rank: usize, stream: TcpStream, max_body: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            rank,
            _kept: KeptFromChildren::new(stream.as_fd()),
            stream,
            max_body,
            outgoing: None,
            receiving: FrameProgress::Nothing,
        })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Begins to send a frame. The previous one has left.
    pub fn send(&mut self, frame: Arc<Vec<u8>>) {
        self.outgoing = Some((frame, 0));
    }

    /// Begins to receive a frame.
    pub fn receive(&mut self) {
        self.receiving = FrameProgress::Header(Incoming::new(HEADER));
    }

    /// Takes the frame that [`transfer`] has received.
    pub fn take(&mut self) -> Option<(FrameHeader, Vec<u8>)> {
        match std::mem::replace(&mut self.receiving, FrameProgress::Nothing) {
            FrameProgress::Complete(header, body) => Some((header, body)),
            other => {
                self.receiving = other;
                None
            }
        }
    }

    /// Sends a last frame if the socket takes it at once, and nothing after it. A peer that misses it sees the connection end.
    pub fn send_last(&mut self, frame: &[u8]) {
        let is_between_frames = self.outgoing.as_ref().is_none_or(|(_, sent)| *sent == 0);
        if is_between_frames {
            // The peer learns from the end of the connection what it does not learn from this frame.
            let _ = (&self.stream).write(frame);
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        self.outgoing = None;
    }

    fn announced(&self) -> usize {
        match &self.receiving {
            FrameProgress::Body(header, _) | FrameProgress::Complete(header, _) => header.length,
            _ => 0,
        }
    }

    fn events(&self) -> PollFlags {
        let mut events = PollFlags::empty();
        if matches!(self.receiving, FrameProgress::Header(_) | FrameProgress::Body(..)) {
            events |= PollFlags::IN;
        }
        if self.outgoing.is_some() {
            events |= PollFlags::OUT;
        }
        events
    }

    /// Whether nothing is left to do. A frame that has come ends the sending, too: it is then an early failure.
    fn is_done(&self) -> bool {
        matches!(self.receiving, FrameProgress::Complete(..)) || self.events().is_empty()
    }

    fn progress(&mut self) -> Result<(), LinkError> {
        // What has come is read first: a peer that reports a failure and closes is heard.
        self.progress_receiving()?;
        if self.is_done() {
            return Ok(());
        }
        match self.progress_sending() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn progress_receiving(&mut self) -> Result<(), LinkError> {
        loop {
            let (FrameProgress::Header(incoming) | FrameProgress::Body(_, incoming)) = &mut self.receiving
            else {
                return Ok(());
            };
            match incoming.read_from(&self.stream) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(self.lost(&error)),
            }
            self.receiving = match std::mem::replace(&mut self.receiving, FrameProgress::Nothing) {
                FrameProgress::Header(incoming) => {
                    FrameProgress::Body(self.header(&incoming)?, Incoming::new(0))
                }
                FrameProgress::Body(header, incoming) => FrameProgress::Complete(header, incoming.bytes),
                other => other,
            };
            if let FrameProgress::Body(header, incoming) = &mut self.receiving {
                incoming.wanted = header.length;
            }
        }
    }

    fn header(&self, incoming: &Incoming) -> Result<FrameHeader, LinkError> {
        let bytes = incoming.bytes().try_into().expect("a header is complete");
        let header = FrameHeader::decode(bytes);
        let header = header.map_err(|error| LinkError::Malformed { rank: self.rank, error })?;
        if header.length > self.max_body {
            let error = Malformed::Length(header.length);
            return Err(LinkError::Malformed { rank: self.rank, error });
        }
        Ok(header)
    }

    fn progress_sending(&mut self) -> io::Result<()> {
        while let Some((frame, sent)) = &mut self.outgoing {
            match (&self.stream).write(&frame[*sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => *sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if *sent == frame.len() {
                self.outgoing = None;
            }
        }
        Ok(())
    }

    fn lost(&self, error: &io::Error) -> LinkError {
        let reason = match error.kind() {
            ErrorKind::UnexpectedEof => "its connection was closed".to_string(),
            _ => error.to_string(),
        };
        LinkError::Lost { rank: self.rank, reason }
    }
}

/// Sends and receives on all links, until every link is done or the wait is over.
pub fn transfer(links: &mut [RankLink], wait: Wait) -> Result<(), LinkError> {
    loop {
        for link in links.iter_mut().filter(|link| !link.is_done()) {
            link.progress()?;
        }
        // A reply to a member holds the bytes of all, and is bounded by its own rule.
        let bytes = links.iter().map(RankLink::announced).fold(0, usize::saturating_add);
        if links.len() > 1 && bytes > MAX_GATHERED {
            return Err(LinkError::TooMuch { bytes });
        }
        if links.iter().all(RankLink::is_done) {
            return Ok(());
        }
        if wait.is_over() {
            return Err(LinkError::Late(
                links.iter().filter(|link| !link.is_done()).map(RankLink::rank).collect(),
            ));
        }
        let busy = links.iter().filter(|link| !link.is_done());
        let mut fds: Vec<PollFd<'_>> = busy.map(|link| PollFd::new(&link.stream, link.events())).collect();
        poll_for(&mut fds, wait.left()).map_err(LinkError::System)?;
    }
}

/// poll(2). An interruption counts as nothing ready.
pub fn poll_for(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    // Times are bounded by a week, so they fit.
    let time = Timespec::try_from(time).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    match poll(fds, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::error::OperationKind;
    use super::super::message::{FrameKind, frame};
    use super::*;

    const GATHER: FrameKind = FrameKind::Data(OperationKind::AllGather);

    /// A link that takes bodies of at most 1,000 bytes, and its peer's socket.
    fn pair(rank: usize) -> (RankLink, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (stream, _) = listener.accept().expect("a connection");
        let mut link = RankLink::new(rank, stream, 1000).expect("a link");
        link.receive();
        (link, peer)
    }

    fn receive(links: &mut [RankLink]) -> Result<(), LinkError> {
        transfer(links, Wait::new(Duration::from_millis(300)))
    }

    #[test]
    fn frames_arrive_in_pieces() {
        let (mut link, mut peer) = pair(1);
        let bytes = frame(GATHER, 3, &[7; 1000]);
        let writer = std::thread::spawn(move || {
            for piece in bytes.chunks(100) {
                peer.write_all(piece).expect("a write");
                std::thread::sleep(Duration::from_millis(1));
            }
            peer
        });
        transfer(std::slice::from_mut(&mut link), Wait::new(Duration::from_secs(60))).expect("a frame");
        let (header, body) = link.take().expect("a frame");
        assert_eq!(header, FrameHeader { kind: GATHER, number: 3, length: 1000 });
        assert_eq!(body, [7; 1000]);
        drop(writer.join().expect("the writer"));
    }

    #[test]
    fn a_body_over_the_bound_is_refused_before_it_comes() {
        let (mut link, mut peer) = pair(1);
        peer.write_all(&FrameHeader { kind: GATHER, number: 1, length: 1001 }.encode()).expect("a write");
        let trouble = receive(std::slice::from_mut(&mut link)).expect_err("too long");
        assert!(
            matches!(trouble, LinkError::Malformed { rank: 1, error: Malformed::Length(1001) }),
            "{trouble:?}"
        );
    }

    #[test]
    fn memory_follows_the_bytes_that_came() {
        let (link, mut peer) = pair(1);
        let mut incoming = Incoming::new(MAX_GATHERED);
        peer.write_all(&[1; 10]).expect("a write");
        while incoming.bytes().len() < 10 {
            assert!(!incoming.read_from(link.stream()).expect("a read"));
        }
        assert!(incoming.bytes.capacity() <= 2 * READ_BYTES);
    }

    #[test]
    fn late_and_lost_ranks_are_reported() {
        let (one, mut peer) = pair(1);
        let (two, second) = pair(2);
        let (three, _third) = pair(3);
        peer.write_all(&frame(GATHER, 1, b"abc")).expect("a write");
        let mut links = [one, two, three];
        let trouble = receive(&mut links).expect_err("two are silent");
        assert!(matches!(&trouble, LinkError::Late(ranks) if *ranks == [2, 3]), "{trouble:?}");
        drop(second);
        let trouble = receive(&mut links).expect_err("one has closed");
        assert!(matches!(trouble, LinkError::Lost { rank: 2, .. }), "{trouble:?}");
    }

    #[test]
    fn an_early_failure_ends_the_sending() {
        let (mut link, mut peer) = pair(0);
        // More than the sockets hold, and a peer that reads nothing.
        link.send(Arc::new(vec![0; 64 << 20]));
        peer.write_all(&frame(FrameKind::Failure, 0, b"")).expect("a write");
        receive(std::slice::from_mut(&mut link)).expect("the failure");
        assert_eq!(link.take().expect("a frame").0.kind, FrameKind::Failure);
    }
}
