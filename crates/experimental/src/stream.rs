//! A stream of bytes between two processes over access logs. Experimental.
//!
//! Each end has a window of pages whose puts are redirected into a log of its own. Whoever writes puts the bytes there; whoever reads takes
//! them from the log. So a write needs no thread of the reader, and the ring of the log is the buffer of the stream: a writer whose reader does
//! not read waits when it is full.
//!
//! ```
//! use pagewire_experimental::stream::Endpoint;
//! use std::io::{Read, Write};
//!
//! fn main() -> std::io::Result<()> {
//!     let node = pagewire::Node::alone().map_err(std::io::Error::other)?;
//!     let (near, distant) = (Endpoint::new(&node, 1 << 16)?, Endpoint::new(&node, 1 << 16)?);
//!     // Between two processes the tokens go to the other one by any means.
//!     let (to_distant, to_near) = (distant.token(), near.token());
//!     let mut client = near.connect(&node, &to_distant)?;
//!     let mut server = distant.connect(&node, &to_near)?;
//!     client.write_all(b"hello")?;
//!     client.finish()?;
//!     let mut text = String::new();
//!     server.read_to_string(&mut text)?;
//!     assert_eq!(text, "hello");
//!     Ok(())
//! }
//! ```
//!
//! Byte `p` of a stream is put at `p` modulo the length of the window. So the reader sees where each record belongs, and a lost or repeated one is
//! an error, never wrong bytes.

mod listener;

pub use listener::Listener;

use self::listener::open_marked;
use crate::probe::Probe;
use pagewire::{Failure, Node, Operation, Region, RemoteRegion, Rights, Token};
use pagewire_active::fork::Owner;
use pagewire_active::{Access, AccessLog, AttributesOf, LogOptions, Logs, PollOutcome};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes of the window that puts of data name.
const WINDOW: u64 = 1 << 20;
/// Bytes behind it, where the end of the stream is put: one page.
const CONTROL: u64 = 4096;
/// Behind the end of the stream: a word by which a token of a window is known.
const MARK_PLACE: u64 = WINDOW + 8;
const MARK: u64 = u64::from_be_bytes(*b"pw_strea");
/// Bytes of the buffer of a stream at least.
pub const MIN_BUFFER: usize = 4096;
/// Bytes of one put: those of one record at most.
const CHUNK: usize = 1 << 16;
/// Puts of one end that are under way at once.
const IN_FLIGHT: usize = 16;
/// Sources of the log: the peer's queue pair has two rings, and so has the one that follows a connection that was lost.
const SOURCES: usize = 4;
/// Polls without a record before a reader sleeps.
const EMPTY_POLLS: u32 = 64;
/// Longest sleep of a reader: so late it looks after its time limit and its peer.
const NAP: Duration = Duration::from_millis(20);
/// An end that is dropped waits so long until the peer has taken its last bytes.
const LINGER: Duration = Duration::from_secs(5);

/// One end of a stream before it is connected: its token goes to the peer.
pub struct Endpoint {
    window: Region<u8>,
    log: AccessLog,
    token: Token,
    chunk: usize,
}

impl Endpoint {
    /// Makes an end whose peer may be `bytes` ahead of the reader.
    ///
    /// # Errors
    /// `InvalidInput`: `bytes` is below [`MIN_BUFFER`]. `Other`, with the [`pagewire::Error`] in it: there is no memory, or no log, of which a process
    /// has 1,024.
    pub fn new(node: &Node, bytes: usize) -> io::Result<Endpoint> {
        Endpoint::check(bytes)?;
        let make = || {
            let window = node.zeroed::<u8>((WINDOW + CONTROL) as usize)?;
            window.write(MARK_PLACE as usize, &MARK.to_ne_bytes())?;
            let log = node.access_log_with(&LogOptions { sources: SOURCES, ..LogOptions::new(bytes) })?;
            window.attributes(..).redirect_puts().to(&log)?;
            let token = window.export(Rights::READ | Rights::WRITE)?;
            Ok(Endpoint { window, log, token, chunk: CHUNK.min(bytes / 4) })
        };
        make().map_err(engine)
    }

    fn check(bytes: usize) -> io::Result<()> {
        if bytes < MIN_BUFFER {
            let why = format!("a stream with a buffer of {bytes} bytes: it needs at least {MIN_BUFFER}");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(())
    }

    /// What the peer connects to.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Connects to the peer's end, whose process runs. It may do the same at any time: what it writes before waits in the log. The node has to live as
    /// long as the stream.
    ///
    /// # Errors
    /// `NotConnected`, `ConnectionReset`: the peer cannot be reached. `ConnectionRefused`: its end is closed. `InvalidInput`: the token is of no stream.
    pub fn connect(self, node: &Node, peer: &Token) -> io::Result<Stream> {
        self.connect_until(node, peer, None)
    }

    fn connect_until(self, node: &Node, peer: &Token, until: Option<Instant>) -> io::Result<Stream> {
        const WRONG: &str = "the token is of no stream: take that of the peer's Endpoint";
        let remote = open_marked(node, peer, WINDOW + CONTROL, (MARK_PLACE, MARK), WRONG, until)?;
        let lost = Arc::new(OnceLock::new());
        let writer = Writer::new(remote.clone(), self.chunk, lost.clone());
        let reader = Reader::new(self.window, self.log, remote, lost);
        Ok(Stream {
            shared: Arc::new(Ends {
                reader: Mutex::new(reader),
                writer: Mutex::new(writer),
                owner: Owner::this_process(),
            }),
        })
    }
}

struct Ends {
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
    owner: Owner,
}

/// A stream of bytes to and from another process. Clones are the same stream, so one thread reads while another one writes.
///
/// - `write` returns when the bytes have been started on their way; `flush` when they are in the peer's log.
/// - `read` gives 0 when the peer has [finished](Self::finish), or has dropped its last clone.
/// - A peer that dies is an error (`ConnectionReset`) of both, behind the bytes that it had written. Once a read has given it, or the connection
///   is known to have ended, no write begins any more.
/// - A peer that has dropped its end is an error (`BrokenPipe`) of whoever writes.
#[derive(Clone)]
pub struct Stream {
    shared: Arc<Ends>,
}

impl Stream {
    /// Says that nothing more will be written, and waits until that, and everything before, is in the peer's log.
    ///
    /// # Errors
    /// As those of `write`.
    pub fn finish(&self) -> io::Result<()> {
        self.finish_within(None)
    }

    /// [`finish`](Self::finish), for so long at most; `None`: without a bound.
    ///
    /// # Errors
    /// As those of `write`. `TimedOut`: the peer has not taken all; it still may.
    pub fn finish_within(&self, patience: Option<Duration>) -> io::Result<()> {
        let until = until(patience);
        let mut writer = self.shared.writer()?;
        writer.finish()?;
        writer.wait(0, until)
    }

    /// Waits until all that was written is in the peer's log, for so long at most; `None`: without a bound.
    ///
    /// # Errors
    /// As those of `write`. `TimedOut`: the peer has not taken all; it still may.
    pub fn flush_within(&self, patience: Option<Duration>) -> io::Result<()> {
        self.shared.writer()?.wait(0, until(patience))
    }

    /// Writes some bytes, and gives how many, as `write`. It waits for so long at most; `None`: without a bound.
    ///
    /// # Errors
    /// As those of `write`. `TimedOut`: the peer does not read, and nothing was written.
    pub fn write_within(&self, bytes: &[u8], patience: Option<Duration>) -> io::Result<usize> {
        self.shared.writer()?.write(bytes, until(patience))
    }

    /// Reads some bytes, and gives how many, as `read`. It waits for so long at most, whatever [`set_read_timeout`](Self::set_read_timeout) has said;
    /// `None`: without a bound.
    ///
    /// # Errors
    /// As those of `read`. `TimedOut`: no byte has come.
    pub fn read_within(&self, bytes: &mut [u8], patience: Option<Duration>) -> io::Result<usize> {
        self.shared.reader()?.read(bytes, patience)
    }

    /// How long a read waits for the next byte; `None`, as at first: without a bound. A read that ends by it is `TimedOut`.
    pub fn set_read_timeout(&self, patience: Option<Duration>) {
        if let Ok(mut reader) = self.shared.reader() {
            reader.patience = patience;
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut reader = self.shared.reader()?;
        let patience = reader.patience;
        reader.read(bytes, patience)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.writer()?.write(bytes, None)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_within(None)
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Ends {
    /// The sending end. A forked child is refused, as another thread of its parent may hold the lock.
    fn writer(&self) -> io::Result<MutexGuard<'_, Writer>> {
        self.check_owner()?;
        Ok(self.writer.lock())
    }

    /// The receiving end.
    fn reader(&self) -> io::Result<MutexGuard<'_, Reader>> {
        self.check_owner()?;
        Ok(self.reader.lock())
    }

    fn check_owner(&self) -> io::Result<()> {
        if self.owner.is_this_process() { Ok(()) } else { Err(engine(pagewire::Error::Forked)) }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // The stream of a forked child is its parent's.
        if self.owner.is_this_process() {
            self.writer.get_mut().close();
        }
    }
}

/// Why the engine has refused something.
fn engine(why: pagewire::Error) -> io::Error {
    io::Error::other(why)
}

fn late(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, what)
}

/// Why an operation of a stream failed, as an error of streams.
fn broken(failure: &Failure) -> io::Error {
    let kind = match failure {
        Failure::Refused { .. } => {
            return io::Error::new(ErrorKind::BrokenPipe, "the peer has closed its end of the stream");
        }
        Failure::PeerLost { .. } => ErrorKind::ConnectionReset,
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, format!("the stream has ended: {failure}"))
}

struct Writer {
    remote: RemoteRegion,
    /// Bytes that were written.
    position: u64,
    chunk: usize,
    in_flight: VecDeque<Operation<Vec<u8>>>,
    is_finished: bool,
    failure: Option<Failure>,
    /// Why the peer is lost, if the reader has found that out.
    lost: Arc<OnceLock<Failure>>,
}

impl Writer {
    fn new(remote: RemoteRegion, chunk: usize, lost: Arc<OnceLock<Failure>>) -> Self {
        let in_flight = VecDeque::new();
        Writer { remote, position: 0, chunk, in_flight, is_finished: false, failure: None, lost }
    }

    /// Whether the peer is there, as far as this side can know before it writes.
    fn check_peer(&mut self, until: Option<Instant>) -> io::Result<()> {
        if let Some(lost) = self.lost.get() {
            return Err(broken(self.failure.get_or_insert(lost.clone())));
        }
        if self.remote.is_connected() {
            return Ok(());
        }
        // The connection has ended: whoever answers by another one is there.
        let question = self.remote.get_into(MARK_PLACE, vec![0u64]);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| !question.ends_within(left)) {
            return Err(late("the peer does not answer in time"));
        }
        match question.wait() {
            Ok(_) => Ok(()),
            Err(error) => Err(broken(self.failure.get_or_insert(error.failure))),
        }
    }

    /// Waits until no more than `most` puts are under way, or it is so late.
    fn wait(&mut self, most: usize, until: Option<Instant>) -> io::Result<()> {
        while self.in_flight.len() > most || self.in_flight.front().is_some_and(Operation::is_done) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.in_flight.front().zip(left).is_some_and(|(first, left)| !first.ends_within(left)) {
                return Err(late("the peer has not read in time"));
            }
            let Some(first) = self.in_flight.pop_front() else { break };
            if let Err(error) = first.wait() {
                self.failure.get_or_insert(error.failure);
            }
        }
        self.failure.as_ref().map_or(Ok(()), |failure| Err(broken(failure)))
    }

    fn write(&mut self, bytes: &[u8], until: Option<Instant>) -> io::Result<usize> {
        if self.is_finished {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "the stream was finished at this side"));
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        self.wait(IN_FLIGHT - 1, until)?;
        self.check_peer(until)?;
        let at = self.position % WINDOW;
        let length = bytes.len().min(self.chunk).min((WINDOW - at) as usize);
        self.in_flight.push_back(self.remote.put(at, bytes[..length].to_vec()));
        self.position += length as u64;
        Ok(length)
    }

    /// Starts the end of the stream on its way.
    fn finish(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_finished, true) {
            let end = self.position.to_ne_bytes().to_vec();
            self.in_flight.push_back(self.remote.put(WINDOW, end));
        }
        self.failure.as_ref().map_or(Ok(()), |failure| Err(broken(failure)))
    }

    /// Finishes, and gives the peer some time to take what is under way.
    fn close(&mut self) {
        // A failure says that the peer is gone, or has closed its end: nobody reads on.
        let _ = self.finish();
        let until = Instant::now() + LINGER;
        for operation in self.in_flight.drain(..) {
            if !operation.ends_within(until.saturating_duration_since(Instant::now())) {
                log::warn!(
                    "a stream was dropped, and its peer has not taken the last bytes within {LINGER:?}"
                );
                return;
            }
        }
    }
}

struct Reader {
    log: AccessLog,
    probe: Probe,
    /// The peer is gone, and may have left records.
    is_lost: bool,
    /// Why, for the writer.
    lost: Arc<OnceLock<Failure>>,
    patience: Option<Duration>,
    incoming: Incoming,
    /// Exported as long as the peer may write.
    _window: Region<u8>,
}

/// What has come of a stream and was not read.
struct Incoming {
    /// The address of the window.
    address: u64,
    bytes: VecDeque<u8>,
    /// The byte that comes next.
    position: u64,
    /// The length of the stream, when the peer has finished.
    end: Option<u64>,
    is_damaged: bool,
}

impl Incoming {
    fn take(&mut self, access: Access<'_>) {
        if access.may_have_written() {
            // It has no bytes. If they do not come again, the next record is out of place.
            return;
        }
        match access.offset_from(self.address) {
            Some(at) if at == self.position % WINDOW && self.end.is_none() => {
                self.bytes.extend(access.bytes());
                self.position += access.bytes().len() as u64;
            }
            Some(WINDOW) if access.value::<u64>() == Some(self.position) => self.end = Some(self.position),
            _ => self.is_damaged = true,
        }
    }
}

impl Reader {
    fn new(window: Region<u8>, log: AccessLog, remote: RemoteRegion, lost: Arc<OnceLock<Failure>>) -> Self {
        let incoming = Incoming {
            address: window.address(),
            bytes: VecDeque::new(),
            position: 0,
            end: None,
            is_damaged: false,
        };
        let probe = Probe::new(remote, MARK_PLACE);
        Reader { log, probe, is_lost: false, lost, patience: None, incoming, _window: window }
    }

    fn read(&mut self, bytes: &mut [u8], patience: Option<Duration>) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let (begin, mut polls) = (Instant::now(), 0u32);
        loop {
            if !self.incoming.bytes.is_empty() {
                return self.incoming.bytes.read(bytes);
            }
            if self.incoming.is_damaged {
                let why =
                    "a part of the stream is missing: the peer was lost or stopped in the midst of a write";
                return Err(io::Error::new(ErrorKind::ConnectionAborted, why));
            }
            if self.incoming.end.is_some() {
                return Ok(0);
            }
            // One record at a time: what the program does not read stays in the log, and holds the writer back.
            let found = self.log.handle_one(|access| self.incoming.take(access));
            if found == PollOutcome::Handled {
                self.probe.note_sign();
                self.is_lost = false;
                continue;
            }
            // What a peer wrote before it died is read first: nothing has come since it was known.
            match self.probe.failure() {
                Some(failure) if self.is_lost && found == PollOutcome::Empty => {
                    return Err(broken(self.lost.get_or_init(|| failure.clone())));
                }
                failure => self.is_lost = failure.is_some(),
            }
            let left = patience.map_or(NAP, |patience| patience.saturating_sub(begin.elapsed()));
            if left.is_zero() {
                return Err(late("the peer has written nothing in time"));
            }
            polls += 1;
            if polls > EMPTY_POLLS {
                self.log.sleep(1, left.min(NAP));
            }
        }
    }
}

/// When a wait ends that begins now.
fn until(patience: Option<Duration>) -> Option<Instant> {
    patience.and_then(|patience| Instant::now().checked_add(patience))
}
