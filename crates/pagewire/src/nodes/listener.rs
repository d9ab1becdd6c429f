//! The thread that takes connections of peers, and notices when a peer is gone: a TCP connection lasts as long as the queue pairs that
//! it was made for.

use crate::error::{Result, system};
use crate::limits::{MAX_PEERS, PENDING_HANDSHAKES};
use crate::nodes::handshake::{HandshakeResponder, MAX_MESSAGE, accept, frame, keep_alive};
use crate::nodes::services::NodeServices;
use pagewire_memory::fork::KeptFromChildren;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread pauses where a connection cannot be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Tokens of what is no TCP connection.
const LISTENER: u64 = 0;
const WAKEUP: u64 = 1;
const FIRST_STREAM: u64 = 2;

/// Who is notified when a peer closes a stream.
pub(crate) trait Watcher: Send + Sync {
    fn closed_by_peer(self: Arc<Self>, stream: &Arc<TcpStream>);
}

/// Where other threads give the listener's thread something to do.
pub(crate) struct ListenerHandle {
    wakeup: OwnedFd,
    orders: Mutex<ListenerOrders>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct ListenerOrders {
    watch: Vec<(Arc<TcpStream>, Weak<dyn Watcher>)>,
    stop: bool,
}

/// A connection that is read. A forked child does not keep it: a peer notices the end of this process, whatever its children do.
struct WatchedStream {
    /// Before the stream: see [`KeptFromChildren`].
    _kept: KeptFromChildren,
    stream: Stream,
}

/// A TCP connection.
enum Stream {
    /// Of somebody who has not said what they want.
    Stranger { stream: TcpStream, received: Vec<u8> },
    /// Of a peer that has requests for this process.
    Requester { stream: TcpStream, responder: HandshakeResponder },
    /// Of a peer that this process has requests for.
    Responder { stream: Arc<TcpStream>, watcher: Weak<dyn Watcher> },
}

struct Listener {
    handle: Arc<ListenerHandle>,
    /// Before the listener: see [`KeptFromChildren`].
    _kept: KeptFromChildren,
    listener: TcpListener,
    ready: OwnedFd,
    /// In the order in which they came.
    streams: BTreeMap<u64, WatchedStream>,
    next: u64,
}

impl ListenerHandle {
    /// Starts the thread of a node.
    pub fn start(listener: TcpListener, services: Arc<NodeServices>) -> Result<Arc<ListenerHandle>> {
        let what = "a thread that takes connections";
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system(what))?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system(what))?;
        listener.set_nonblocking(true).map_err(system(what))?;
        epoll::add(&ready, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)
            .map_err(system(what))?;
        epoll::add(&ready, &wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)
            .map_err(system(what))?;
        let handle = Arc::new(ListenerHandle { wakeup, orders: Mutex::default(), thread: Mutex::default() });
        let thread = Listener {
            handle: handle.clone(),
            _kept: KeptFromChildren::new(listener.as_fd()),
            listener,
            ready,
            streams: BTreeMap::new(),
            next: FIRST_STREAM,
        };
        let thread =
            pagewire_fabric::spawn("pagewire-listen", move || thread.run(&services)).map_err(system(what))?;
        *handle.thread.lock() = Some(thread);
        Ok(handle)
    }

    /// Tells `watcher` when the peer closes this stream.
    pub fn watch(&self, stream: Arc<TcpStream>, watcher: Weak<dyn Watcher>) {
        self.orders.lock().watch.push((stream, watcher));
        self.wake();
    }

    /// Ends the thread and every connection of a peer: when this returns, none is left.
    pub fn stop(&self) {
        self.orders.lock().stop = true;
        self.wake();
        if let Some(Err(_)) = self.thread.lock().take().map(JoinHandle::join) {
            log::error!("the thread that takes connections had failed before");
        }
    }

    fn wake(&self) {
        // A counter that is full wakes the thread, too.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }
}

impl Listener {
    fn run(mut self, services: &NodeServices) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&self.ready, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    log::error!("the node takes no connections any more: {error}");
                    return;
                }
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.take_strangers(services),
                    WAKEUP => {
                        if !self.follow_orders() {
                            return;
                        }
                    }
                    number => self.read(services, number),
                }
            }
        }
    }

    /// Does what other threads have asked for. False: it ends.
    fn follow_orders(&mut self) -> bool {
        let mut count = [0; 8];
        // More may come meanwhile, and wakes the thread again.
        let _ = rustix::io::read(&self.handle.wakeup, &mut count);
        let ListenerOrders { watch, stop } = std::mem::take(&mut *self.handle.orders.lock());
        for (stream, watcher) in watch {
            self.add(Stream::Responder { stream, watcher });
        }
        !stop
    }

    fn take_strangers(&mut self, services: &NodeServices) {
        loop {
            match self.listener.accept() {
                Ok((_, peer)) if services.is_cut_off(peer.ip()) => {
                    log::warn!("PAGEWIRE_TLS is set: the node at {peer} of another host is sent away");
                }
                Ok((stream, _)) => {
                    self.bound_strangers();
                    self.add(Stream::Stranger { stream, received: Vec::new() });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    log::warn!("a connection could not be taken: {error}");
                    // It waits, and is reported again at once: there may be no more descriptors.
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Has the oldest stranger go where there are too many.
    fn bound_strangers(&mut self) {
        let is_stranger =
            |(_, stream): &(&u64, &WatchedStream)| matches!(stream.stream, Stream::Stranger { .. });
        let mut strangers = self.streams.iter().filter(is_stranger).map(|(number, _)| *number);
        let oldest = strangers.next();
        if strangers.count() + 1 >= PENDING_HANDSHAKES {
            if let Some(stranger) = oldest.and_then(|number| self.streams.remove(&number)) {
                self.close(stranger.stream);
            }
        }
    }

    /// Ends a connection. A child of this process may have its descriptor, too: so it is shut down, and not waited for any more.
    fn close(&self, stream: Stream) {
        let forgotten = epoll::delete(&self.ready, stream.socket()).map_err(std::io::Error::from);
        if let Err(error) = forgotten.and_then(|()| stream.socket().shutdown(Shutdown::Both)) {
            log::debug!("a peer has hung up before: {error}");
        }
        stream.close();
    }

    fn add(&mut self, stream: Stream) {
        let number = self.next;
        self.next += 1;
        let socket = stream.socket();
        let watched = socket.set_nonblocking(true).and_then(|()| {
            epoll::add(&self.ready, socket, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
                .map_err(Into::into)
        });
        match watched {
            Ok(()) => self.keep(number, stream),
            Err(error) => {
                log::warn!("a connection cannot be watched: {error}");
                stream.close();
            }
        }
    }

    fn keep(&mut self, number: u64, stream: Stream) {
        let kept = KeptFromChildren::new(stream.socket().as_fd());
        self.streams.insert(number, WatchedStream { _kept: kept, stream });
    }

    /// Something came from a stream, or its end.
    fn read(&mut self, services: &NodeServices, number: u64) {
        let Some(WatchedStream { stream, .. }) = self.streams.remove(&number) else { return };
        let mut bytes = [0; MAX_MESSAGE + 1];
        let count = match stream.socket().read(&mut bytes) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.keep(number, stream);
                return;
            }
            Err(_) => 0,
        };
        match stream {
            Stream::Stranger { stream, mut received } if count > 0 => {
                received.extend_from_slice(&bytes[..count]);
                match self.answer(services, &stream, &received) {
                    Reply::More => self.keep(number, Stream::Stranger { stream, received }),
                    Reply::Accepted(responder) => self.keep(number, Stream::Requester { stream, responder }),
                    Reply::Ended => self.close(Stream::Stranger { stream, received }),
                }
            }
            // A peer says no more than its end.
            stream => self.close(stream),
        }
    }

    /// Answers a stranger that has said everything.
    fn answer(&self, services: &NodeServices, mut stream: &TcpStream, received: &[u8]) -> Reply {
        let length = received.first().map_or(0, |length| usize::from(*length));
        if length > MAX_MESSAGE || received.len() > length + 1 {
            return Reply::Ended;
        }
        if received.len() < length + 1 {
            return Reply::More;
        }
        let requesters =
            self.streams.values().filter(|stream| matches!(stream.stream, Stream::Requester { .. })).count();
        let Some((responder, answer)) = accept(services, &received[1..], requesters >= MAX_PEERS) else {
            return Reply::Ended;
        };
        // A message of this size fits in the buffer of a socket that nothing was written to.
        let sent = keep_alive(stream).and_then(|()| stream.write_all(&frame(&answer)));
        match (responder, sent) {
            (Some(responder), Ok(())) => Reply::Accepted(responder),
            (None, _) => Reply::Ended,
            (Some(responder), Err(error)) => {
                log::debug!("a peer went before it was connected: {error}");
                responder.discard_soon();
                Reply::Ended
            }
        }
    }
}

/// What becomes of a stranger.
enum Reply {
    /// It has not said everything.
    More,
    Accepted(HandshakeResponder),
    Ended,
}

impl Drop for Listener {
    fn drop(&mut self) {
        for watched in std::mem::take(&mut self.streams).into_values() {
            self.close(watched.stream);
        }
    }
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Stranger { stream, .. } | Stream::Requester { stream, .. } => stream,
            Stream::Responder { stream, .. } => stream,
        }
    }

    /// The peer is gone, or is to go.
    fn close(self) {
        match self {
            Stream::Stranger { .. } => {}
            Stream::Requester { responder, .. } => responder.discard_soon(),
            Stream::Responder { watcher, stream } => {
                if let Some(watcher) = watcher.upgrade() {
                    watcher.closed_by_peer(&stream);
                }
            }
        }
    }
}
