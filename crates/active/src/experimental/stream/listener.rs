//! Where processes ask for streams, as at a listening socket: one token is enough for any number of them.
//!
//! Who asks puts the token of its own end to the listener's log. The listener makes an end for it, and puts the token of that behind the window of the other one.

use super::{CONTROL, EMPTY_POLLS, Endpoint, GREETING, NAP, Probe, Stream, WINDOW, broken, until};
use crate::attributes::AttributesOf;
use crate::log::{AccessLog, Found, Logs};
use pagewire::{Failure, Node, Region, Rights, Token};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Bytes of the region that those who ask put to.
const DOOR: usize = 4096;
/// Bytes of its log for each source: some askers of one process.
const LOG_BYTES: usize = 1 << 14;

/// A place where any process that has its token asks for streams. Dropped, it takes nobody any more, and its streams go on.
///
/// ```
/// use pagewire_active::experimental::stream::{Listener, Stream};
/// use std::io::{Read, Write};
///
/// fn main() -> std::io::Result<()> {
///     let node = pagewire::Node::alone().map_err(std::io::Error::other)?;
///     let listener = Listener::new(&node, 1 << 16)?;
///     let token = listener.token(); // goes to the others by any means
///     std::thread::scope(|scope| {
///         scope.spawn(|| Stream::connect(&node, &token, 1 << 16, None)?.write_all(b"hello"));
///         let mut text = String::new();
///         listener.accept(&node, None)?.read_to_string(&mut text)?;
///         assert_eq!(text, "hello");
///         Ok(())
///     })
/// }
/// ```
pub struct Listener {
    log: AccessLog,
    token: Token,
    buffer: usize,
    /// Exported as long as others may ask.
    door: Region<u8>,
}

impl Listener {
    /// Makes a listener. The peers of its streams may be `bytes` ahead of this process.
    ///
    /// # Errors
    /// As those of [`Endpoint::new`].
    pub fn new(node: &Node, bytes: usize) -> io::Result<Listener> {
        Endpoint::check(bytes)?;
        let make = || {
            let log = node.access_log(LOG_BYTES)?;
            let door = node.zeroed::<u8>(DOOR)?;
            door.attributes(..).redirect_puts().to(&log)?;
            let token = door.export(Rights::READ | Rights::WRITE)?;
            Ok(Listener { log, token, buffer: bytes, door })
        };
        make().map_err(|why: pagewire::Error| io::Error::other(format!("a listener for streams: {why}")))
    }

    /// What others connect to, by [`Stream::connect`].
    pub fn token(&self) -> Token {
        self.token
    }

    /// Takes the next process that asks for a stream; it waits for so long at most, or without a bound. Who is gone by then is passed over. The node has to
    /// live as long as the stream.
    ///
    /// # Errors
    /// `TimedOut`: nobody has asked. Else as those of [`Endpoint::new`].
    pub fn accept(&self, node: &Node, patience: Option<Duration>) -> io::Result<Stream> {
        let until = until(patience);
        loop {
            let asked = await_token(&self.log, self.door.address(), until, None)?;
            let end = Endpoint::new(node, self.buffer)?;
            let own = end.token();
            match end.connect(node, &asked).and_then(|stream| greeted(stream, own)) {
                Ok(stream) => return Ok(stream),
                Err(why) => log::warn!("a process has asked for a stream, and cannot be reached: {why}"),
            }
        }
    }
}

/// Tells the peer of a stream where this end is.
fn greeted(stream: Stream, own: Token) -> io::Result<Stream> {
    let remote = stream.shared.writer.lock().remote.clone();
    match remote.put(GREETING, own.to_bytes().to_vec()).wait() {
        Ok(_) => Ok(stream),
        Err(error) => {
            // Nobody reads what it would say at its end.
            stream.shared.writer.lock().is_finished = true;
            Err(broken(&error.failure))
        }
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
        if listener.length() != DOOR as u64 || !listener.rights().contains(Rights::READ | Rights::WRITE) {
            let why = "the token is of no listener for streams: take that of Listener::token";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let until = until(patience);
        let end = Endpoint::new(node, bytes)?;
        let door =
            node.open(listener).map_err(|why| io::Error::new(ErrorKind::NotConnected, why.to_string()))?;
        let asked = door.put(0, end.token().to_bytes().to_vec());
        // Where others have filled the log it waits until somebody accepts.
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| !asked.ends_within(left)) {
            return Err(io::Error::new(ErrorKind::TimedOut, "the listener has taken nobody in time"));
        }
        asked.wait().map_err(|error| refused(&error.failure))?;
        let place = end.window.address() + GREETING;
        let peer = await_token(&end.log, place, until, Some(Probe::new(door, 0)))?;
        end.connect(node, &peer)
    }
}

const _: () = assert!(GREETING as usize + Token::LEN <= (WINDOW + CONTROL) as usize && Token::LEN <= DOOR);

fn refused(failure: &Failure) -> io::Error {
    match failure {
        Failure::Refused { .. } => {
            io::Error::new(ErrorKind::ConnectionRefused, "the listener is closed, or is none")
        }
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
        let found = log.shared().handle_one(&mut |access| {
            // One that may have been made comes again.
            if access.address() == place && !access.may_have_written() {
                token = Token::from_bytes(access.bytes()).ok();
            }
        });
        if let Some(token) = token {
            return Ok(token);
        }
        if found == Found::Handled {
            continue;
        }
        let left = until.map_or(NAP, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "nobody has answered in time"));
        }
        if let Some(failure) = by.as_mut().and_then(Probe::failure) {
            return Err(refused(failure));
        }
        polls += 1;
        if polls > EMPTY_POLLS {
            log.shared().sleep(1, left.min(NAP));
        }
    }
}
