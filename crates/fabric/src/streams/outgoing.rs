//! A stream to a process of another host, from the side that sends: it asks for a connection, or sends by one that the process there has opened.

use super::format::{FRAME_HEADER, Frame, Mark, Preface, PrefaceKind};
use super::incoming::RxStream;
use super::opening::Opening;
use super::send_side::{SendSide, UnsentMemory};
use super::{ConnectTo, Tls, now, tcp};
use crate::descriptors::Descriptor;
use crate::fabric::QUEUE_PAIRS_PER_BLOCK;
use crate::fabric::{Route, StreamAnswer, StreamId, StreamQuestion, StreamState, port_of};
use crate::limits::{
    STREAM_ANSWER_TIME, STREAM_ATTEMPT_TIME, STREAM_CONNECT_TIME, STREAM_CROSSINGS, STREAM_IDLE,
    STREAM_PAUSE, STREAM_SHORT_LIVES, STREAM_SHORT_PAUSE, STREAM_SILENT_PAUSE, STREAM_WORKED,
};
use pagewire_memory::{HostMemory, Segment};
use parking_lot::Mutex;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Whom a stream leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamTarget {
    source: IpAddr,
    interface: u32,
    destination: IpAddr,
    /// The block of queue pair numbers that the process leases.
    pub block: u32,
    /// Where the connection goes.
    to: SocketAddr,
}

impl StreamTarget {
    /// The process that leases a block at the end of a route.
    pub fn new(route: &Route, block: u32, connect_to: &ConnectTo) -> Self {
        let Route { source, interface, destination, .. } = *route;
        let port = port_of(block * QUEUE_PAIRS_PER_BLOCK);
        let to = connect_to.target(destination).unwrap_or(SocketAddr::new(destination, port));
        StreamTarget { source, interface, destination, block, to }
    }

    fn connect(&self) -> io::Result<Descriptor> {
        tcp::connect(self.source, self.to, self.interface)
    }

    /// Whether it leads to the process that asks so.
    pub fn leads_back(&self, question: Preface) -> bool {
        question.own_block != 0
            && (u32::from(question.own_block), question.source, question.destination)
                == (self.block, self.destination, self.source)
    }

    /// Whether the process there has opened a connection by which packets may leave. It is this one's from now on.
    pub fn borrow(&self, connection: &RxStream) -> bool {
        connection.lend(self.source, self.destination, self.block)
    }
}

impl fmt::Display for StreamTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TCP port {} of {}", self.to.port(), self.to.ip())?;
        match self.to.ip() == self.destination {
            true => Ok(()),
            false => write!(formatter, " (for {})", self.destination),
        }
    }
}

/// What streams of one process have in common.
#[derive(Clone)]
pub struct TxOrigin {
    /// Where their events are told.
    pub events: Arc<Descriptor>,
    /// The engine of the process.
    pub instance: u64,
    /// How they are encrypted.
    pub tls: Option<Tls>,
}

/// What a stream is wanted for.
#[derive(Clone, Copy)]
pub struct StreamWish {
    pub target: StreamTarget,
    /// The block of who sends. The process at the end may send to that by the same connection. 0: it may not.
    pub own_block: u32,
    /// Nanoseconds for which a process is waited for whose host has accepted the connection.
    pub patience: u64,
}

/// What has become of a stream.
pub enum TxChange {
    None,
    /// It stands otherwise than before.
    Changed,
    /// Its connection was accepted, and may bring packets, too: this reads them.
    Accepted(Option<Arc<RxStream>>),
}

/// How far a stream has come.
enum TxState {
    /// It waits for the connection or the answer.
    Asking {
        opening: Opening,
        /// When it was asked.
        since: u64,
        until: u64,
        again: NextAttempt,
    },
    Open {
        side: SendSide,
        since: u64,
    },
    /// Nothing was sent for a long time: it was closed, and the next packet opens it again.
    Idle,
    /// It is not there; the next attempt is not made before this time.
    Closed {
        reason: String,
        until: u64,
        kind: ClosedKind,
    },
}

/// What a closed stream means for packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClosedKind {
    /// They wait for the next attempt.
    Waits,
    /// They are lost.
    Refused,
    /// They are lost, and datagrams too: the process there takes nothing that is not encrypted.
    EncryptedOnly,
}

/// When another connection is tried, as the process that has accepted this one may be stopped, and how long that takes then. Each takes twice as
/// long as the one before: it may get no processor.
#[derive(Clone, Copy)]
struct NextAttempt {
    at: u64,
    time: u64,
}

impl NextAttempt {
    fn after(now: u64, time: u64) -> Self {
        NextAttempt { at: now + time, time }
    }
}

/// Why a connection is over.
struct ConnectionEnd {
    reason: String,
    kind: EndKind,
}

/// How long the next attempt waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndKind {
    /// Nobody is there, or nobody who takes the stream.
    Refused,
    /// The process there takes encrypted streams only, and this one has no keys.
    EncryptedOnly,
    /// Not even the kernel there answers: a firewall, mostly.
    Silent,
    /// It was there, and has broken.
    Broken,
    /// The process there has asked for this one, by a connection that serves both.
    Crossed,
}

impl EndKind {
    fn because(self, reason: impl Into<String>) -> ConnectionEnd {
        ConnectionEnd { reason: reason.into(), kind: self }
    }
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentFrame {
    /// It leaves, now or when there is room.
    Taken,
    /// There is no room for it.
    NoRoom,
    /// Its bytes cannot be read.
    Unreadable,
    /// The stream has ended.
    Ended,
}

/// A stream to one process, through all its connections.
pub struct TxStream {
    pub id: StreamId,
    pub target: StreamTarget,
    origin: TxOrigin,
    own_block: AtomicU32,
    patience: u64,
    /// What its events are told by.
    token: u64,
    state: Mutex<TxState>,
    /// Nothing can be sent now, for a look without the lock.
    blocked: AtomicBool,
    /// How often it was opened.
    openings: AtomicU32,
    /// How many of the last connections broke at once.
    short_lives: AtomicU32,
    /// How often in a row the process at the end wanted to ask itself.
    crossings: AtomicU32,
    /// When something was sent by it last, or was found to have come.
    used: AtomicU64,
}

impl TxStream {
    /// One that begins now, by a connection that the process there has opened, or with a question.
    pub fn new(
        id: StreamId,
        wish: StreamWish,
        token: u64,
        origin: TxOrigin,
        now: u64,
        connection: Option<&Arc<RxStream>>,
    ) -> Self {
        let StreamWish { target, own_block, patience } = wish;
        let closed = TxState::Closed { reason: String::new(), until: 0, kind: ClosedKind::Refused };
        let (blocked, openings, short_lives, crossings) = Default::default();
        let own_block = AtomicU32::new(own_block);
        let (state, used) = (Mutex::new(closed), AtomicU64::new(now));
        let stream = TxStream {
            id,
            target,
            origin,
            own_block,
            patience,
            token,
            state,
            blocked,
            openings,
            short_lives,
            crossings,
            used,
        };
        match connection {
            Some(connection) => stream.send_by(&mut stream.state.lock(), connection, now),
            None => stream.begin_again(&mut stream.state.lock(), now),
        }
        stream
    }

    /// Sends by a connection that the process at the end has opened.
    fn send_by(&self, state: &mut TxState, connection: &Arc<RxStream>, now: u64) {
        let added = connection.duplicate().and_then(|socket| {
            let token = epoll::EventData::new_u64(self.token);
            epoll::add(&*self.origin.events, &socket, token, epoll::EventFlags::empty())?;
            Ok(socket)
        });
        let new = match added {
            Ok(socket) => {
                self.openings.fetch_add(1, Ordering::AcqRel);
                self.crossings.store(0, Ordering::Relaxed);
                self.used.store(now, Ordering::Relaxed);
                TxState::Open { side: SendSide::beside(socket, connection.clone()), since: now }
            }
            Err(error) => {
                let reason = format!("the connection from {} is of no use: {error}", self.target.destination);
                self.closed(reason, now + STREAM_PAUSE, ClosedKind::Refused)
            }
        };
        self.change(state, new);
    }

    /// Whether a question of the process at its end is to be refused, as it has got one of this process. Both know whose counts.
    /// An answer that does not come soon may never come.
    pub fn waits_for_answer(&self, is_theirs_first: bool, now: u64) -> bool {
        !is_theirs_first && Self::awaits_answer(&self.state.lock(), now)
    }

    fn awaits_answer(state: &TxState, now: u64) -> bool {
        let TxState::Asking { opening, since, .. } = state else { return false };
        opening.has_sent_question() && now < since + STREAM_ANSWER_TIME
    }

    /// Lets the process at the end send to a block by the connections to come, unless it may send to another.
    pub fn offer_block(&self, block: u32) {
        let _ = self.own_block.compare_exchange(0, block, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sends by a connection that was accepted just now, unless it sends by another. True: it does.
    pub fn accept(&self, connection: &Arc<RxStream>, is_theirs_first: bool, now: u64) -> bool {
        let mut state = self.state.lock();
        let is_free = match &*state {
            TxState::Open { .. } => false,
            asking @ TxState::Asking { .. } => is_theirs_first || !Self::awaits_answer(asking, now),
            TxState::Idle | TxState::Closed { .. } => true,
        };
        let is_taken = is_free && self.target.borrow(connection);
        if is_taken {
            self.send_by(&mut state, connection, now);
        }
        is_taken
    }

    /// What this side says first.
    fn question(&self) -> Preface {
        let StreamTarget { source, destination, block, .. } = self.target;
        Preface {
            kind: PrefaceKind::Ask,
            is_encrypted: self.origin.tls.is_some(),
            block: block as u16,
            instance: self.origin.instance,
            own_block: self.own_block.load(Ordering::Relaxed) as u16,
            source,
            destination,
        }
    }

    /// The sending side of a connection that was accepted, and what reads the other direction if the process there may send by it.
    fn open(&self, opening: Opening) -> io::Result<(SendSide, Option<Arc<RxStream>>)> {
        let serves_both = opening.serves_both();
        let mut side = opening.open();
        if !serves_both {
            return Ok((side, None));
        }
        let reader = Arc::new(RxStream::answering(tcp::duplicate(side.socket())?, self.question())?);
        side.set_reader(reader.clone());
        self.watch_room(side.socket(), side.has_rest(), false);
        Ok((side, Some(reader)))
    }

    /// Ends it, as nobody can read what the process there sends.
    pub fn give_up(&self, reason: String, now: u64) {
        let closed = self.closed(reason, now + STREAM_PAUSE, ClosedKind::Refused);
        self.change(&mut self.state.lock(), closed);
    }

    /// Asks whether the process at the end has read what was sent. `None`: there is no connection, or one that brings no answers.
    pub fn ask(&self) -> Option<StreamQuestion> {
        let mut state = self.state.lock();
        let TxState::Open { side, .. } = &mut *state else { return None };
        // An error is told by an event, too, and dealt with there.
        let number = side.ask().ok()??;
        self.watch(side);
        Some(StreamQuestion { opening: self.openings(), number })
    }

    /// What has become of a question.
    pub fn answer_to(&self, question: StreamQuestion) -> StreamAnswer {
        let state = self.state.lock();
        let TxState::Open { side, .. } = &*state else { return StreamAnswer::Lost };
        match side.reader() {
            Some(reader) if question.opening == self.openings() => match reader.answered() >= question.number
            {
                true => StreamAnswer::Read,
                false => StreamAnswer::Pending,
            },
            _ => StreamAnswer::Lost,
        }
    }

    /// Answers a question that its reader has read. False: it is not this one's.
    pub fn answer(&self, read: &Arc<RxStream>, question: u32) -> bool {
        let mut state = self.state.lock();
        let TxState::Open { side, .. } = &mut *state else { return false };
        let is_its_own = side.reader().is_some_and(|reader| Arc::ptr_eq(reader, read));
        // An error is told by an event, too, and dealt with there.
        if is_its_own && side.mark(Mark::Answer(question)).is_ok() {
            self.watch(side);
        }
        is_its_own
    }

    /// The reader of the other direction has come to the end of a connection. True: it was this one's, which stands otherwise now.
    pub fn reader_ended(&self, ended: &Arc<RxStream>, now: u64) -> bool {
        let mut state = self.state.lock();
        let TxState::Open { side, since } = &*state else { return false };
        if !side.reader().is_some_and(|reader| Arc::ptr_eq(reader, ended)) {
            return false;
        }
        // Neither side has sent for a minute, by the clock of the other.
        let is_idle = !side.has_rest() && now >= self.used.load(Ordering::Relaxed) + STREAM_IDLE / 2;
        let since = *since;
        self.change(&mut state, TxState::Idle);
        if !is_idle {
            let end = EndKind::Broken.because("the peer has closed the connection");
            let ended = self.ended(end, Some(since), now);
            self.change(&mut state, ended);
        }
        true
    }

    fn begin(&self, now: u64) -> TxState {
        match self.connect() {
            Ok(opening) => TxState::Asking {
                opening,
                since: now,
                until: now + self.patience.clamp(STREAM_ANSWER_TIME, STREAM_CONNECT_TIME),
                again: NextAttempt::after(now, STREAM_ATTEMPT_TIME),
            },
            Err(error) => {
                let reason = format!("no TCP connection to {}: {error}", self.target);
                self.closed(reason, now + STREAM_PAUSE, ClosedKind::Refused)
            }
        }
    }

    fn connect(&self) -> io::Result<Opening> {
        let tls = self.origin.tls.as_ref().map(|tls| tls.opening(self.target.destination));
        let tls = tls.transpose().map_err(io::Error::other)?;
        let socket = self.target.connect()?;
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        epoll::add(&*self.origin.events, &socket, epoll::EventData::new_u64(self.token), both)?;
        Opening::new(socket, self.question(), tls)
    }

    /// A stream that was closed is opened again, unless that was tried just now.
    fn begin_again(&self, state: &mut TxState, now: u64) {
        let is_due = match state {
            TxState::Idle => true,
            TxState::Closed { until, .. } => now >= *until,
            TxState::Asking { .. } | TxState::Open { .. } => false,
        };
        if is_due {
            self.used.store(now, Ordering::Relaxed);
            self.change(state, self.begin(now));
        }
    }

    /// Packets wait for an answer. What is sent on a closed stream is lost.
    fn change(&self, state: &mut TxState, new: TxState) {
        let waits = matches!(
            new,
            TxState::Asking { .. } | TxState::Idle | TxState::Closed { kind: ClosedKind::Waits, .. }
        );
        self.blocked.store(waits, Ordering::Release);
        if let TxState::Open { side, .. } = state {
            side.shut();
        }
        *state = new;
    }

    /// It is not tried again before this time.
    fn closed(&self, reason: String, until: u64, kind: ClosedKind) -> TxState {
        log::debug!("the stream for block {} ends: {reason}", self.target.block);
        TxState::Closed { reason, until, kind }
    }

    /// What follows the end of a connection, which was open or not.
    fn ended(&self, end: ConnectionEnd, open_since: Option<u64>, now: u64) -> TxState {
        let ConnectionEnd { reason, kind } = end;
        match kind {
            EndKind::Refused => self.closed(reason, now + STREAM_PAUSE, ClosedKind::Refused),
            EndKind::EncryptedOnly => self.closed(reason, now + STREAM_PAUSE, ClosedKind::EncryptedOnly),
            EndKind::Silent => self.closed(reason, now + STREAM_SILENT_PAUSE, ClosedKind::Refused),
            EndKind::Crossed => {
                // Its own question may get no answer, or it is no Pagewire that says so.
                let before = self.crossings.fetch_add(1, Ordering::Relaxed);
                let kind = if before < STREAM_CROSSINGS { ClosedKind::Waits } else { ClosedKind::Refused };
                self.closed(reason, now + STREAM_ANSWER_TIME, kind)
            }
            EndKind::Broken if open_since.is_some_and(|since| now.saturating_sub(since) >= STREAM_WORKED) => {
                log::debug!("the stream for block {} begins again: {reason}", self.target.block);
                self.short_lives.store(0, Ordering::Relaxed);
                self.used.store(now, Ordering::Relaxed);
                self.begin(now)
            }
            EndKind::Broken => {
                // Packets wait: the next connection may last longer. If none of them does, they are lost at last.
                let before = self.short_lives.fetch_add(1, Ordering::Relaxed);
                let pause = STREAM_PAUSE.min(STREAM_SHORT_PAUSE << before.min(16));
                let kind = if before < STREAM_SHORT_LIVES { ClosedKind::Waits } else { ClosedKind::Refused };
                self.closed(reason, now + pause, kind)
            }
        }
    }

    /// Where it stands; one that was closed is tried again after a while.
    pub fn state(&self, now: u64) -> StreamState {
        let mut state = self.state.lock();
        self.begin_again(&mut state, now);
        match &*state {
            TxState::Asking { .. } | TxState::Idle => StreamState::Connecting,
            TxState::Open { .. } => StreamState::Open,
            TxState::Closed { reason, kind, .. } => match kind {
                ClosedKind::Waits => StreamState::Connecting,
                ClosedKind::Refused => StreamState::Refused(reason.clone()),
                ClosedKind::EncryptedOnly => StreamState::EncryptedOnly(reason.clone()),
            },
        }
    }

    /// Why there is none.
    pub fn refusal_reason(&self) -> Option<String> {
        match &*self.state.lock() {
            TxState::Closed { reason, kind, .. } if *kind != ClosedKind::Waits => Some(reason.clone()),
            _ => None,
        }
    }

    /// How often it was opened.
    pub fn openings(&self) -> u32 {
        self.openings.load(Ordering::Acquire)
    }

    /// When it has waited long enough; `u64::MAX`: it waits for nothing.
    pub fn due(&self) -> u64 {
        match &*self.state.lock() {
            TxState::Asking { opening, until, again, .. } if opening.has_sent_question() => {
                *until.min(&again.at)
            }
            TxState::Asking { until, .. } => *until,
            // Room is told by an event.
            TxState::Open { side, .. } if side.has_rest() => u64::MAX,
            TxState::Open { .. } => self.used.load(Ordering::Relaxed) + STREAM_IDLE,
            TxState::Closed { until, kind: ClosedKind::Waits, .. } => *until,
            TxState::Idle | TxState::Closed { .. } => u64::MAX,
        }
    }

    /// Whether the process at its end has closed it, and nothing was sent since for so long that another may have its place.
    pub fn is_forgotten(&self, now: u64) -> bool {
        let is_closed = matches!(&*self.state.lock(), TxState::Closed { .. } | TxState::Idle);
        is_closed && now >= self.used.load(Ordering::Relaxed) + 2 * STREAM_IDLE
    }

    /// Does what an event of its socket, or the time, asks for.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    pub fn step(&self, now: u64) -> TxChange {
        let mut state = self.state.lock();
        let (end, open_since) = match &mut *state {
            TxState::Asking { .. } => match self.step_asking(&mut state, now) {
                Ok(change) => return change,
                Err(end) => (end, None),
            },
            TxState::Open { side, since } => match self.step_open(side) {
                Ok(()) if !side.has_rest() && now >= self.used.load(Ordering::Relaxed) + STREAM_IDLE => {
                    match side.has_received() {
                        true => self.used.store(now, Ordering::Relaxed),
                        false => self.change(&mut state, TxState::Idle),
                    }
                    return TxChange::None;
                }
                Ok(()) => return TxChange::None,
                Err(end) => (end, Some(*since)),
            },
            TxState::Closed { kind: ClosedKind::Waits, .. } => {
                self.begin_again(&mut state, now);
                // There may be no descriptor, or no route any more.
                let is_refused =
                    matches!(&*state, TxState::Closed { kind, .. } if *kind != ClosedKind::Waits);
                return if is_refused { TxChange::Changed } else { TxChange::None };
            }
            TxState::Idle | TxState::Closed { .. } => return TxChange::None,
        };
        // The old connection is closed first.
        self.change(&mut state, TxState::Idle);
        let ended = self.ended(end, open_since, now);
        self.change(&mut state, ended);
        TxChange::Changed
    }

    /// [`step`](Self::step) of one that waits for its connection or the answer.
    fn step_asking(&self, state: &mut TxState, now: u64) -> Result<TxChange, ConnectionEnd> {
        let TxState::Asking { opening, since, until, again } = state else { return Ok(TxChange::None) };
        let (had_sent_question, waited) = (opening.has_sent_question(), opening.waits_for_room());
        let stepped = opening.step();
        if opening.has_sent_question() && !had_sent_question {
            // The host is there.
            (*since, *until) = (now, (*until).max(now + self.patience));
        }
        if opening.waits_for_room() != waited {
            self.watch_room(opening.socket(), !waited, true);
        }
        match stepped {
            Ok(Some(PrefaceKind::Accept)) => {
                let TxState::Asking { opening, .. } = std::mem::replace(state, TxState::Idle) else {
                    return Ok(TxChange::None);
                };
                let (side, reader) = self.open(opening).map_err(|error| {
                    EndKind::Refused
                        .because(format!("the connection to {} is of no use: {error}", self.target))
                })?;
                self.openings.fetch_add(1, Ordering::AcqRel);
                self.crossings.store(0, Ordering::Relaxed);
                self.change(state, TxState::Open { side, since: now });
                Ok(TxChange::Accepted(reader))
            }
            Ok(Some(PrefaceKind::RefuseCrossed)) => {
                Err(EndKind::Crossed.because(format!("{} opens a connection itself", self.target)))
            }
            Ok(Some(PrefaceKind::RefuseClear)) => {
                Err(EndKind::EncryptedOnly.because(self.refusal(PrefaceKind::RefuseClear)))
            }
            Ok(Some(refusal)) => Err(EndKind::Refused.because(self.refusal(refusal))),
            Ok(None) if now >= *until => {
                let kind = if opening.has_sent_question() { EndKind::Refused } else { EndKind::Silent };
                Err(kind.because(format!("{} does not answer", self.target)))
            }
            Ok(None) => {
                if opening.has_sent_question() && now >= again.at {
                    let (patience_ends, time) = (*until, 2 * again.time);
                    let begun = self.begin(now);
                    self.change(state, begun);
                    match state {
                        TxState::Asking { until, again, .. } => {
                            (*until, *again) = (patience_ends, NextAttempt::after(now, time));
                        }
                        _ => return Ok(TxChange::Changed),
                    }
                }
                Ok(TxChange::None)
            }
            Err(error) => Err(self.connection_error(&error)),
        }
    }

    /// [`step`](Self::step) of one that is open. What comes by it is its reader's; without one nothing comes but the end.
    fn step_open(&self, side: &mut SendSide) -> Result<(), ConnectionEnd> {
        match recv(side.socket(), &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok(_) if side.reader().is_some() => {}
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => return Err(EndKind::Broken.because("the peer has closed the connection")),
        }
        self.send_rest(side)
            .map_err(|error| EndKind::Broken.because(format!("the connection has broken: {error}")))
    }

    /// Why the other side does not take the stream.
    fn refusal(&self, kind: PrefaceKind) -> String {
        let StreamTarget { source, destination, .. } = self.target;
        match kind {
            PrefaceKind::RefuseSource => format!(
                "{} takes no connection from {source} to {destination}: the connection comes from another address, and its --connect-to \
                 does not have the first; or the second is not its own",
                self.target
            ),
            PrefaceKind::RefuseName => {
                format!(
                    "{} takes no connection in the name of {source}: the certificate is not for it",
                    self.target
                )
            }
            PrefaceKind::RefuseClear => {
                format!("{} takes encrypted connections only: --tls is needed here, too", self.target)
            }
            PrefaceKind::RefuseEncrypted => {
                format!("{} takes no encrypted connections: --tls is needed there, too", self.target)
            }
            PrefaceKind::Ask | PrefaceKind::Accept | PrefaceKind::Refuse | PrefaceKind::RefuseCrossed => {
                format!("{destination} has no process for the peer's number")
            }
        }
    }

    /// Has told whether there is room in the socket, and whether something comes.
    fn watch_room(&self, socket: &Descriptor, room: bool, input: bool) {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::OUT, room);
        flags.set(epoll::EventFlags::IN, input);
        if let Err(error) =
            epoll::modify(&*self.origin.events, socket, epoll::EventData::new_u64(self.token), flags)
        {
            log::debug!("room in a stream is not told: {error}");
        }
    }

    fn connection_error(&self, error: &io::Error) -> ConnectionEnd {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => EndKind::Broken,
            _ => EndKind::Refused,
        };
        kind.because(match error.kind() {
            io::ErrorKind::ConnectionRefused => format!("no Pagewire takes connections at {}", self.target),
            _ => format!("{}: {error}", self.target),
        })
    }

    /// Whether a packet has to wait until there is room; what was left is tried first.
    pub fn is_blocked(&self) -> bool {
        if !self.blocked.load(Ordering::Acquire) {
            return false;
        }
        let Some(mut state) = self.state.try_lock() else { return true };
        match &mut *state {
            // An error is told by an event, too, and dealt with there.
            TxState::Open { side, .. } => drop(self.send_rest(side)),
            TxState::Idle | TxState::Closed { kind: ClosedKind::Waits, .. } => {
                self.begin_again(&mut state, now())
            }
            TxState::Asking { .. } | TxState::Closed { .. } => {}
        }
        self.blocked.load(Ordering::Acquire)
    }

    /// The connection. `None`: there is none now.
    fn ready<'s>(&self, state: &'s mut TxState, now: u64) -> Option<&'s mut SendSide> {
        self.begin_again(state, now);
        self.used.store(now, Ordering::Relaxed);
        let TxState::Open { side, .. } = state else { return None };
        self.send_rest(side).ok()?;
        Some(side)
    }

    /// Sends packets that lie behind each other, as one frame.
    pub fn send(&self, now: u64, packets: &[u8], segment: usize) -> SentFrame {
        let mut state = self.state.lock();
        let Some(side) = self.ready(&mut state, now) else { return SentFrame::Ended };
        if !side.has_room(FRAME_HEADER + packets.len()) {
            return SentFrame::NoRoom;
        }
        if side.send(Frame { length: packets.len(), segment, headers: 0 }, packets).is_err() {
            return SentFrame::Ended;
        }
        self.watch(side);
        SentFrame::Taken
    }

    /// Sends a packet whose payload the kernel reads where the program has it. What the kernel has no room for is copied.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    pub fn send_from_memory(
        &self,
        now: u64,
        headers: &[u8],
        (memory, payload): (&HostMemory, Segment),
    ) -> SentFrame {
        let mut state = self.state.lock();
        let Some(side) = self.ready(&mut state, now) else { return SentFrame::Ended };
        if side.has_rest() {
            return SentFrame::NoRoom;
        }
        match side.send_from_memory(headers, memory, payload) {
            Ok(()) => {
                self.watch(side);
                SentFrame::Taken
            }
            Err(UnsentMemory::Unreadable) => SentFrame::Unreadable,
            Err(UnsentMemory::Ended) => SentFrame::Ended,
            Err(UnsentMemory::Torn) => {
                let closed =
                    self.closed("memory that was being sent is gone".to_owned(), now, ClosedKind::Waits);
                self.change(&mut state, closed);
                SentFrame::Unreadable
            }
        }
    }

    /// Sends what the kernel had no room for.
    fn send_rest(&self, side: &mut SendSide) -> io::Result<()> {
        if side.has_rest() {
            side.flush()?;
            self.watch(side);
        }
        Ok(())
    }

    /// Has packets wait, and room told as well as the end, where something waits for it.
    fn watch(&self, side: &SendSide) {
        let waits = side.has_rest();
        if self.blocked.swap(waits, Ordering::AcqRel) != waits {
            self.watch_room(side.socket(), waits, side.reader().is_none());
        }
    }
}
