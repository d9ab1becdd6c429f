//! Streams of bytes over access logs.

use crate::boundary::{Result, bytes, bytes_of, call, optional, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use crate::signal::PW_FOREVER;
use pagewire::Node;
use pagewire_experimental::stream::{Listener, MIN_BUFFER, Stream};
use std::ffi::c_void;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where other processes ask for streams.
pub struct pw_listener {
    _opaque: [u8; 0],
}

/// A stream of bytes to and from another process. Operations of a node to a peer are in order: while a stream
/// is not received from, and its buffer is full, everything else that its sender starts by that node to that process waits. Streams that are received from at different
/// paces have nodes of their own.
pub struct pw_stream {
    _opaque: [u8; 0],
}

/// A listener, and its node, which stays until it is closed.
pub struct OpenListener {
    listener: Listener,
    node: Arc<Node>,
}

impl Object for OpenListener {
    type Opaque = pw_listener;
    const MARK: u64 = u64::from_be_bytes(*b"pw_listn");
    const NAME: &str = "listener for streams";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenListener> = Places::new();
        &PLACES
    }
}

/// A stream, and its node, which stays until it is closed.
pub struct OpenStream {
    stream: Stream,
    _node: Arc<Node>,
}

impl Object for OpenStream {
    type Opaque = pw_stream;
    const MARK: u64 = u64::from_be_bytes(*b"pw_strea");
    const NAME: &str = "stream";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenStream> = Places::new();
        &PLACES
    }
}

/// Bytes of the buffer of a stream at least.
pub const PW_LEAST_STREAM_BUFFER: usize = 4096;

const _: () = assert!(PW_LEAST_STREAM_BUFFER == MIN_BUFFER);

/// Why a call for a stream is refused.
fn refusal(error: std::io::Error) -> Refusal {
    let kind = error.kind();
    let error = match error.downcast::<pagewire::Error>() {
        Ok(why) => return why.into(),
        Err(error) => error,
    };
    let code = match kind {
        ErrorKind::InvalidInput => pw_error::PW_TOKEN,
        ErrorKind::NotConnected | ErrorKind::ConnectionRefused => pw_error::PW_CONNECT,
        ErrorKind::ConnectionReset => pw_error::PW_PEER_LOST,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => pw_error::PW_STREAM,
        ErrorKind::TimedOut => pw_error::PW_TIMEOUT,
        _ => pw_error::PW_SYSTEM,
    };
    Refusal::new(code, error.to_string())
}

/// A time of C. PW_FOREVER: without a bound.
fn patience(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != PW_FOREVER).then(|| Duration::from_nanos(nanoseconds))
}

fn check_buffer(buffer: usize) -> Result<()> {
    if buffer < PW_LEAST_STREAM_BUFFER {
        let sentence = format!("'buffer' is {buffer} bytes: it must be {PW_LEAST_STREAM_BUFFER} or more");
        return Err(Refusal::argument(sentence));
    }
    Ok(())
}

/// Makes a listener, to which any process that has its token connects. *listener is NULL after an error. The node stays until pw_listener_close().
///
/// buffer: how many bytes the peers of its streams may be ahead of this process, PW_LEAST_STREAM_BUFFER or more. PW_ARGUMENT; as pw_log_make(): a process has 1,024 logs,
/// of which each stream takes one, and a listener that waits two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_listen(
    node: *mut pw_node,
    buffer: usize,
    listener: *mut *mut pw_listener,
) -> pw_error {
    call(|| {
        let to = place(listener, "listener")?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let node = unsafe { node_of(node) }?;
        check_buffer(buffer)?;
        let made =
            OpenListener { listener: Listener::new(node, buffer).map_err(refusal)?, node: node.clone() };
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(hand_out(made)) };
        Ok(())
    })
}

/// Gives the token by which others connect.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_listener_token(listener: *mut pw_listener, token: *mut pw_token) -> pw_error {
    call(|| {
        let to = place(token, "token")?;
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let given = unsafe { object::<OpenListener>(listener) }?.listener.token();
        // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(pw_token { bytes: given.to_bytes() }) };
        Ok(())
    })
}

/// Waits until a process asks for a stream, and makes it. A process that has died meanwhile, or does not take the answer, is skipped, for which
/// this waits up to 5 seconds more. *stream is NULL after an error. The node stays until pw_stream_close().
///
/// nanoseconds: for how long at most, PW_FOREVER for no bound. PW_TIMEOUT; as pw_stream_listen().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_accept(
    listener: *mut pw_listener,
    nanoseconds: u64,
    stream: *mut *mut pw_stream,
) -> pw_error {
    call(|| {
        let to = place(stream, "stream")?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let open = unsafe { object::<OpenListener>(listener) }?;
        let stream = open.listener.accept(patience(nanoseconds)).map_err(refusal)?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(hand_out(OpenStream { stream, _node: open.node.clone() })) };
        Ok(())
    })
}

/// Closes a listener; the pointer is not valid any more. Its streams go on. Who asks later gets PW_CONNECT. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_listener_close(listener: *mut pw_listener) -> pw_error {
    if listener.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire_experimental.h).
    call(|| unsafe { take_back::<OpenListener>(listener) }.map(drop))
}

/// Asks a listener for a stream, and waits until it has accepted. *stream is NULL after an error. The node stays until pw_stream_close().
///
/// buffer: how many bytes the peer may be ahead of this process, PW_LEAST_STREAM_BUFFER or more. nanoseconds: for how long at most, PW_FOREVER for no bound.
/// A process that the listener cannot reach gets no answer. PW_TOKEN: it is of no listener; PW_CONNECT: the listener is closed, or its process cannot be reached; PW_PEER_LOST,
/// PW_TIMEOUT; as pw_stream_listen().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_connect(
    node: *mut pw_node,
    token: *const pw_token,
    buffer: usize,
    nanoseconds: u64,
    stream: *mut *mut pw_stream,
) -> pw_error {
    call(|| {
        let to = place(stream, "stream")?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library, and a token (pagewire_experimental.h).
        let (node, token) = unsafe { (node_of(node)?, token_of(token)?) };
        check_buffer(buffer)?;
        let stream = Stream::connect(node, &token, buffer, patience(nanoseconds)).map_err(refusal)?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(hand_out(OpenStream { stream, _node: node.clone() })) };
        Ok(())
    })
}

/// Sends length bytes. It returns when they are on their way: pw_stream_flush() waits until they are in the peer's log. One thread may send while another one receives.
///
/// nanoseconds: for how long at most, PW_FOREVER for no bound. sent: gets how many bytes were sent, behind an error, too; NULL if nobody asks. PW_TIMEOUT: the peer does not
/// read, and *sent may be less than length; PW_STREAM: the peer has closed its end, or pw_stream_shutdown() was called; PW_PEER_LOST; PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_send(
    stream: *mut pw_stream,
    data: *const c_void,
    length: usize,
    nanoseconds: u64,
    sent: *mut usize,
) -> pw_error {
    call(|| {
        let to = optional(sent, "sent")?;
        let mut count = 0;
        let done = (|| {
            // SAFETY: so many bytes, and a pointer of this library (pagewire_experimental.h).
            let (data, open) = unsafe { (bytes_of(data, length, "data")?, object::<OpenStream>(stream)?) };
            let until = patience(nanoseconds).and_then(|time| Instant::now().checked_add(time));
            while count < data.len() {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                count += open.stream.write_within(&data[count..], left).map_err(refusal)?;
            }
            Ok(())
        })();
        if let Some(to) = to {
            // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
            unsafe { to.write(count) };
        }
        done
    })
}

/// Receives bytes as they come, size at most, and one at least. *received gets how many: 0 says that the peer has sent its last one before, by pw_stream_shutdown() or
/// pw_stream_close().
///
/// size: 1 or more. nanoseconds: until the first byte at most, PW_FOREVER for no bound. PW_TIMEOUT: none has come; PW_PEER_LOST: the peer is gone, and all that it had sent was received;
/// PW_STREAM: a part of the stream is missing, as the peer was stopped or lost in the midst of it; PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_receive(
    stream: *mut pw_stream,
    data: *mut c_void,
    size: usize,
    nanoseconds: u64,
    received: *mut usize,
) -> pw_error {
    call(|| {
        let to = place(received, "received")?;
        // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(0) };
        let start = bytes(data.cast_const().cast(), size, "data")?;
        if size == 0 {
            return Err(Refusal::argument("'size' is 0: nothing can be received"));
        }
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let open = unsafe { object::<OpenStream>(stream) }?;
        // SAFETY: `data` has so many bytes that nobody else uses now (pagewire_experimental.h).
        let into = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), size) };
        let count = open.stream.read_within(into, patience(nanoseconds)).map_err(refusal)?;
        // SAFETY: the caller's place (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(count) };
        Ok(())
    })
}

/// Waits until all that was sent is in the peer's log. The peer's death loses it from there.
///
/// nanoseconds: for how long at most, PW_FOREVER for no bound. As pw_stream_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_flush(stream: *mut pw_stream, nanoseconds: u64) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let open = unsafe { object::<OpenStream>(stream) }?;
        open.stream.flush_within(patience(nanoseconds)).map_err(refusal)
    })
}

/// Says that nothing more is sent, and waits until that, and everything before, is in the peer's log. The peer receives 0 bytes behind it, and may send on.
///
/// nanoseconds: for how long at most, PW_FOREVER for no bound: behind PW_TIMEOUT it is said all the same. As pw_stream_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_shutdown(stream: *mut pw_stream, nanoseconds: u64) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let open = unsafe { object::<OpenStream>(stream) }?;
        open.stream.finish_within(patience(nanoseconds)).map_err(refusal)
    })
}

/// Closes a stream; the pointer is not valid any more. It waits up to 5 seconds until the peer has what was sent. What the peer sends then gives it PW_STREAM. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_stream_close(stream: *mut pw_stream) -> pw_error {
    if stream.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire_experimental.h).
    call(|| unsafe { take_back::<OpenStream>(stream) }.map(drop))
}
