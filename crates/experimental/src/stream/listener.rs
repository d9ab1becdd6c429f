//! Where processes ask for streams, as at a listening socket: one token is enough for any number of them.
//!
//! A process that asks puts the token of its own end to the listener's log. The listener makes an end for it, and puts the token of that behind the window of
//! the other one.

use super::{CONTROL, EMPTY_POLLS, Endpoint, NAP, Probe, Stream, WINDOW, broken, engine, late, until};
use pagewire::{Failure, Node, Operation, Region, RemoteRegion, Rights, Token};
use pagewire_active::{AccessLog, AttributesOf, Logs, PollOutcome};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the memory that requests are put to.
const REQUESTS: usize = 4096;
/// Its first word, by which a token of it is known.
const LISTENER_MARK: u64 = u64::from_be_bytes(*b"pw_liste");
/// Bytes of its log for each source: some requests of one process.
const LOG_BYTES: usize = 1 << 14;
/// Where a listener puts the token of its end, behind the window of the other one, before anything else.
const ANSWER: u64 = WINDOW + 16;
/// A process that asked takes the answer within so long, or is skipped: others wait behind it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// A place where any process that has its token asks for streams. Dropped, it takes nobody any more, and its streams go on.
///
/// ```
/// use pagewire_experimental::stream::{Listener, Stream};
/// use std::io::{Read, Write};
/// use std::sync::Arc;
///
/// fn main() -> std::io::Result<()> {
///     let node = Arc::new(pagewire::Node::alone().map_err(std::io::Error::other)?);
///     let listener = Listener::new(&node, 1 << 16)?;
///     let token = listener.token(); // goes to the others by any means
///     std::thread::scope(|scope| {
///         scope.spawn(|| Stream::connect(&node, &token, 1 << 16, None)?.write_all(b"hello"));
///         let mut text = String::new();
///         listener.accept(None)?.read_to_string(&mut text)?;
///         assert_eq!(text, "hello");
///         Ok(())
///     })
/// }
/// ```
pub struct Listener {
    log: AccessLog,
    token: Token,
    buffer: usize,
    /// The end of the next stream: a request is taken only where there is one.
    next: Mutex<Option<Endpoint>>,
    /// Exported as long as others may ask.
    requests: Region<u64>,
    node: Arc<Node>,
}

impl Listener {
    /// Makes a listener. The peers of its streams may be `bytes` ahead of this process.
    ///
    /// # Errors
    /// As those of [`Endpoint::new`].
    pub fn new(node: &Arc<Node>, bytes: usize) -> io::Result<Listener> {
        let next = Mutex::new(Some(Endpoint::new(node, bytes)?));
        let make = || {
            let log = node.access_log(LOG_BYTES)?;
            let requests = node.zeroed::<u64>(REQUESTS / 8)?;
            requests.write(0, &[LISTENER_MARK])?;
            requests.attributes(..).redirect_puts().to(&log)?;
            let token = requests.export(Rights::READ | Rights::WRITE)?;
            Ok(Listener { log, token, buffer: bytes, next, requests, node: node.clone() })
        };
        make().map_err(engine)
    }

    /// What others connect to, by [`Stream::connect`].
    pub fn token(&self) -> Token {
        self.token
    }

    /// Takes the next process that asks for a stream; it waits for so long at most, or without a bound. A process that has died meanwhile, or that does not
    /// take the answer, is skipped, for which it waits up to 5 s more. The node has to live as long as the stream.
    ///
    /// # Errors
    /// `TimedOut`: nobody has asked. Else as those of [`Endpoint::new`].
    pub fn accept(&self, patience: Option<Duration>) -> io::Result<Stream> {
        self.node.check_owner().map_err(engine)?;
        let until = until(patience);
        loop {
            let prepared = self.next.lock().take();
            let end = prepared.map_or_else(|| Endpoint::new(&self.node, self.buffer), Ok)?;
            let request = match await_token(&self.log, self.requests.address(), until, None) {
                Ok(request) => request,
                Err(error) => {
                    *self.next.lock() = Some(end);
                    return Err(error);
                }
            };
            match self.answer(end, &request) {
                Ok(stream) => return Ok(stream),
                Err(why) => log::warn!("a process has asked for a stream, and is skipped: {why}"),
            }
        }
    }

    /// Tells a process that has asked where its peer is.
    fn answer(&self, end: Endpoint, request: &Token) -> io::Result<Stream> {
        let until = Some(Instant::now() + ANSWER_PATIENCE);
        let own = end.token();
        let stream = end.connect_until(&self.node, request, until)?;
        let remote = stream.shared.writer.lock().remote.clone();
        let answer = remote.put(ANSWER, own.to_bytes().to_vec());
        let answered = match ends_until(&answer, until) {
            true => answer.wait().map(drop).map_err(|error| broken(&error.failure)),
            false => Err(late("the process does not take the answer: what it received before is unread")),
        };
        if answered.is_err() {
            // Nobody reads what it would say at its end.
            stream.shared.writer.lock().is_finished = true;
        }
        answered.map(|()| stream)
    }
}

impl Stream {
    /// Asks a [`Listener`] for a stream, and waits until it has accepted, for so long at most or without a bound. The peer may be `bytes` ahead of this
    /// process. The node has to live as long as the stream.
    ///
    /// # Errors
    /// `ConnectionRefused`: the listener is closed. `TimedOut`: it has not accepted. `InvalidInput`: the token is of no listener, or `bytes` is
    /// below 4,096. `NotConnected`, `ConnectionReset`: its process is gone. Else as those of [`Endpoint::new`].
    pub fn connect(
        node: &Node,
        listener: &Token,
        bytes: usize,
        patience: Option<Duration>,
    ) -> io::Result<Stream> {
        const WRONG: &str = "the token is of no listener for streams: take that of Listener::token";
        let until = until(patience);
        let requests = open_marked(node, listener, REQUESTS as u64, (0, LISTENER_MARK), WRONG, until)?;
        let end = Endpoint::new(node, bytes)?;
        let request = requests.put(0, end.token().to_bytes().to_vec());
        // Where others have filled the log it waits until somebody accepts.
        if !ends_until(&request, until) {
            return Err(late("the listener has taken nobody in time"));
        }
        request.wait().map_err(|error| refused(&error.failure))?;
        let place = end.window.address() + ANSWER;
        let peer = await_token(&end.log, place, until, Some(Probe::new(requests, 0)))?;
        end.connect_until(node, &peer, until)
    }
}

const _: () = assert!(ANSWER as usize + Token::LEN <= (WINDOW + CONTROL) as usize && Token::LEN <= REQUESTS);

/// Opens memory of streams, which has a mark at a place: nothing is put to memory of another kind. `wrong` is what is said of that.
pub(super) fn open_marked(
    node: &Node,
    token: &Token,
    length: u64,
    (at, mark): (u64, u64),
    wrong: &'static str,
    until: Option<Instant>,
) -> io::Result<RemoteRegion> {
    let is_wrong = || io::Error::new(ErrorKind::InvalidInput, wrong);
    if token.length() != length || !token.rights().contains(Rights::READ | Rights::WRITE) {
        return Err(is_wrong());
    }
    let remote = node.open(token).map_err(|why| io::Error::new(ErrorKind::NotConnected, why))?;
    let found = remote.get_into(at, vec![0u64]);
    if !ends_until(&found, until) {
        return Err(late("the peer has not answered in time"));
    }
    match found.wait().map_err(|error| refused(&error.failure))?[..] {
        [found] if found == mark => Ok(remote),
        _ => Err(is_wrong()),
    }
}

/// Waits for the end of an operation, until it is so late. Says whether it has ended.
fn ends_until<T: Send + 'static>(operation: &Operation<T>, until: Option<Instant>) -> bool {
    until.is_none_or(|until| operation.ends_within(until.saturating_duration_since(Instant::now())))
}

fn refused(failure: &Failure) -> io::Error {
    match failure {
        Failure::Refused { .. } => io::Error::new(ErrorKind::ConnectionRefused, "the peer is closed"),
        failure => broken(failure),
    }
}

/// Waits until a token is put to a place, by a peer that is looked after if it is known.
fn await_token(
    log: &AccessLog,
    place: u64,
    until: Option<Instant>,
    mut by: Option<Probe>,
) -> io::Result<Token> {
    let mut polls = 0u32;
    loop {
        let mut token = None;
        let found = log.handle_one(|access| {
            // One that may have been made comes again.
            if access.address() == place && !access.may_have_written() {
                token = Token::from_bytes(access.bytes()).ok();
            }
        });
        if let Some(token) = token {
            return Ok(token);
        }
        if found == PollOutcome::Handled {
            continue;
        }
        let left = until.map_or(NAP, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(late(if by.is_some() {
                "the listener has not accepted in time"
            } else {
                "no process has asked in time"
            }));
        }
        if let Some(failure) = by.as_mut().and_then(Probe::failure) {
            return Err(refused(failure));
        }
        polls += 1;
        if polls > EMPTY_POLLS {
            log.sleep(1, left.min(NAP));
        }
    }
}
