//! Conditional writes: posted before the peer's memory is known, and held by this node until the peer releases them (FRRWP-1, FRRWP-2).

mod deferred;
pub(crate) mod held;
pub(crate) mod message;
pub(crate) mod released;
pub(crate) mod releases;
pub(crate) mod tag;
#[cfg(test)]
mod tests;
pub(crate) mod writes;

use crate::error::{Error, Failure, Result, Rule, Side};
use crate::limits::{MAX_MESSAGES_WAITING, SPIN, SWEEP};
use crate::nodes::connection::PeerConnection;
use crate::nodes::inbox::PeerEvents;
use crate::nodes::peers::PeerTable;
use crate::nodes::services::NodeServices;
use crate::operations::pending::{Abandoned, AnyPending, EndState, PendingOperation, WorkStep};
use crate::regions::token::{NodeAddress, Peer, Token};
use deferred::Blocked;
pub use deferred::{Deferred, Posted};
pub use held::{Canceller, HeldWrite, WriteOutcome};
use message::{ConditionalMessage, Ending, Release};
use pagewire_nic::{ScatterGather, SendOperation};
use parking_lot::{Condvar, Mutex};
pub use released::{Acceptance, ConditionalRequest};
use releases::{NotReleased, OpenOutcome, Opening, Outgoing, Releases};
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tag::Key;
pub use tag::{Direction, Tag};
use writes::{NotHeld, ReleaseArrival, WriteTable};

pub(crate) const WRITE: &str = "conditional write";
pub(crate) const RELEASE: &str = "release";

/// The conditional writes of a node, on both sides.
pub(crate) struct ConditionalWrites {
    services: Arc<NodeServices>,
    pub peers: Arc<PeerTable>,
    start: Instant,
    /// The number of the newest opening. Held until its message is started, so that messages come in the order of their numbers.
    serial: Mutex<u64>,
    writes: Mutex<WriteTable<HeldOperation>>,
    releases: Mutex<Releases<Arc<ReleaseEnd>>>,
    /// Peers have opened something.
    opened: Condvar,
    /// Tasks that wait for that. Locked behind the releases.
    waiting_tasks: Mutex<WaitingTasks>,
    /// They are announced as ready. Changed with the lock of the releases.
    opened_is_ready: AtomicBool,
    /// Released writes of another layer whose queue is full, oldest first.
    blocked: Mutex<VecDeque<Blocked>>,
    /// When the thread that reads messages looks again at what it has started.
    sweep: Mutex<Duration>,
    /// There are, or were, writes of another layer.
    has_deferred: AtomicBool,
    /// This process leaves, and sends nothing more.
    closed: AtomicBool,
}

/// Tasks that wait for what peers open.
#[derive(Default)]
struct WaitingTasks {
    /// The newest place.
    newest: u64,
    /// By the place of the future.
    wakers: BTreeMap<u64, Waker>,
}

/// The end of a release: its bytes, or a failure.
pub(crate) type ReleaseEnd = PendingOperation<Mutex<Option<u64>>>;

/// A held write.
#[derive(Clone)]
struct HeldOperation {
    serial: u64,
    /// By which its messages go.
    connection: Arc<PeerConnection>,
    work: HeldWork,
}

/// What a held write is made of.
#[derive(Clone)]
enum HeldWork {
    /// An operation of this node, whose buffer's type is forgotten.
    Operation { pending: Arc<AnyPending>, local: ScatterGather },
    /// Another layer posts it.
    Deferred(Arc<dyn Deferred>),
}

/// A write that is held, or was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldBy {
    pub key: Key,
    pub serial: u64,
}

impl ConditionalWrites {
    pub fn new(services: &Arc<NodeServices>, peers: &Arc<PeerTable>) -> Arc<Self> {
        let conditional = Arc::new(ConditionalWrites {
            services: services.clone(),
            peers: peers.clone(),
            start: Instant::now(),
            serial: Mutex::default(),
            writes: Mutex::default(),
            releases: Mutex::default(),
            opened: Condvar::new(),
            waiting_tasks: Mutex::default(),
            opened_is_ready: AtomicBool::new(false),
            blocked: Mutex::default(),
            sweep: Mutex::new(*SWEEP.start()),
            has_deferred: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&conditional);
        services.set_peer_events(weak);
        conditional
    }

    /// Announces what peers have opened, or withdraws that.
    pub fn announce_opened(&self) {
        if self.services.is_forked() {
            return;
        }
        let Some(readiness) = self.services.readiness() else { return };
        let releases = self.releases.lock();
        let is_ready = releases.has_opened();
        if self.opened_is_ready.swap(is_ready, Ordering::Relaxed) != is_ready {
            if is_ready { readiness.add() } else { readiness.take() }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Holds a write; `announces`: and sends its opening to the peer. Its end comes with the operation.
    ///
    /// # Errors
    /// Why it is not held.
    fn hold(
        self: &Arc<Self>,
        peer: Peer,
        tag: Tag,
        (connection, work): (Arc<PeerConnection>, HeldWork),
        announces: bool,
    ) -> Result<HeldBy, Failure> {
        let key = (peer.0, tag);
        let length = work.length();
        let mut newest = self.serial.lock();
        *newest += 1;
        let serial = *newest;
        let held = HeldOperation { serial, connection: connection.clone(), work };
        let early = self.writes.lock().hold(key, serial, held);
        if announces && early.is_ok() {
            send(&connection, &ConditionalMessage::Open { tag, serial, length, direction: Direction::Write });
        }
        drop(newest);
        match early {
            Ok(None) => {}
            Ok(Some((held, release))) => {
                self.start(peer.0, held, &release);
                self.services.look_at_timers();
            }
            Err((why, _)) => {
                let rule = match why {
                    NotHeld::TagInUse => Rule::TagInUse(tag),
                    NotHeld::Full => Rule::TooMany,
                };
                let (operation, peer, side) = (WRITE, peer.0.socket(), Side::Caller);
                return Err(Failure::Refused { operation, peer, side, rule, landed: 0 });
            }
        }
        // It may have been lost before it was held.
        if let Some(why) = connection.why_down() {
            self.lose(&peer.0, &why);
        }
        Ok(HeldBy { key, serial })
    }

    /// Has a held write end after some time, if nothing else ends it before.
    pub fn end_after(&self, held: &HeldBy, time: Duration) {
        if self.services.is_forked() {
            return;
        }
        self.writes.lock().set_deadline(&held.key, held.serial, self.now().saturating_add(time));
        self.services.look_at_timers();
    }

    /// Ends a held write. One that has started ends as it ends.
    pub fn cancel(&self, held: &HeldBy) {
        if self.services.is_forked() {
            return;
        }
        let Some(write) = self.writes.lock().take(&held.key, held.serial, self.now()) else { return };
        let peer = held.key.0.socket();
        self.withdraw(&held.key.0, write, Failure::Cancelled { operation: WRITE, peer });
    }

    /// Ends the write of a tag, if one is held.
    pub fn cancel_tag(&self, key: Key) {
        if self.services.is_forked() {
            return;
        }
        let serial = self.writes.lock().serial(&key);
        if let Some(serial) = serial {
            self.cancel(&HeldBy { key, serial });
        }
    }

    /// Ends a write that was taken out, and sends its end to the peer.
    fn withdraw(&self, peer: &NodeAddress, write: HeldOperation, failure: Failure) {
        let ended =
            ConditionalMessage::Ended { serial: write.serial, release: None, ending: Ending::Withdrawn };
        self.send_message(*peer, &ended);
        write.end(failure);
    }

    /// Releases a write of one peer.
    ///
    /// # Errors
    /// `Failed`: why it is not released; `Limit`: too many peers.
    pub fn release(self: &Arc<Self>, peer: Peer, tag: Tag, token: &Token) -> Result<Arc<ReleaseEnd>> {
        // Its end comes as a message.
        self.services.inbox()?;
        let end = Arc::new(PendingOperation::new(RELEASE, 0));
        let connection = self.peers.connection(peer.0)?;
        let released = self.releases.lock().release(peer.0, tag, *token, (end.clone(), self.now()));
        let outgoing = released.map_err(|(why, _)| not_released(peer.0, tag, why))?;
        self.announce_opened();
        self.send_release(&connection, &outgoing);
        Ok(end)
    }

    /// Releases a write that a peer has opened.
    ///
    /// # Errors
    /// `Failed`: it has ended meanwhile, or why it is not released; `Limit`: too many peers.
    pub fn release_opening(&self, opening: &Opening, token: &Token) -> Result<Arc<ReleaseEnd>> {
        self.services.inbox()?;
        let end = Arc::new(PendingOperation::new(RELEASE, 0));
        let connection = self.peers.connection(opening.peer)?;
        let released = self.releases.lock().release_opening(opening, *token, end.clone());
        let outgoing = released.map_err(|(why, _)| not_released(opening.peer, opening.tag, why))?;
        self.announce_opened();
        self.send_release(&connection, &outgoing);
        Ok(end)
    }

    /// Releases a write of whichever peer has the tag.
    ///
    /// # Errors
    /// `Failed`: why it is not released; `Limit`: too many peers.
    pub fn release_any(self: &Arc<Self>, tag: Tag, token: &Token) -> Result<Arc<ReleaseEnd>> {
        let end = Arc::new(PendingOperation::new(RELEASE, 0));
        self.services.inbox()?;
        let released = self.releases.lock().release_any(tag, *token, (end.clone(), self.now()));
        self.announce_opened();
        match released.map_err(|(why, _)| not_released(self.services.address, tag, why))? {
            Some(outgoing) => self.send_release_to_peer(&outgoing),
            None => self.services.look_at_timers(),
        }
        Ok(end)
    }

    fn send_release(&self, connection: &Arc<PeerConnection>, outgoing: &Outgoing) {
        send(connection, &ConditionalMessage::Release(Release::new(outgoing)));
        if let Some(why) = connection.why_down() {
            self.lose(&outgoing.peer, &why);
        }
    }

    fn send_release_to_peer(&self, outgoing: &Outgoing) {
        match self.peers.connection(outgoing.peer) {
            Ok(connection) => {
                self.send_release(&connection, outgoing);
            }
            Err(error) => self.lose(&outgoing.peer, &error.to_string()),
        }
    }

    /// The oldest opening that nobody has taken, waited for as long: the thread polls for [`SPIN`], then it sleeps.
    ///
    /// # Errors
    /// `Timeout`.
    pub fn next_conditional_request(&self, patience: Duration) -> Result<Opening> {
        let start = Instant::now();
        loop {
            self.services.poll_messages();
            let mut releases = self.releases.lock();
            if let Some(opening) = releases.take() {
                drop(releases);
                self.announce_opened();
                return Ok(opening);
            }
            let waited = start.elapsed();
            if waited >= patience {
                return Err(Error::Timeout { what: "a conditional write of a peer", after: patience });
            }
            if waited >= SPIN {
                self.services.stop_polling_messages();
                self.opened.wait_for(&mut releases, patience - waited);
            }
        }
    }

    /// The oldest opening that nobody has taken, or a place among those that are woken by the next one. `place`: that which it has, if any.
    pub fn poll_opened(&self, place: &mut Option<u64>, waker: &Waker) -> Poll<Opening> {
        self.services.poll_messages();
        let mut releases = self.releases.lock();
        let Some(opening) = releases.take() else {
            let mut tasks = self.waiting_tasks.lock();
            let place = *place.get_or_insert_with(|| {
                tasks.newest += 1;
                tasks.newest
            });
            tasks.wakers.insert(place, waker.clone());
            return Poll::Pending;
        };
        drop(releases);
        self.announce_opened();
        Poll::Ready(opening)
    }

    /// Gives up a place among those that are woken.
    pub fn forget_waker(&self, place: u64) {
        if self.services.is_forked() {
            return;
        }
        self.waiting_tasks.lock().wakers.remove(&place);
    }

    /// An opening is answered by other means than a release, or will not be.
    pub fn close_opening(&self, opening: &Opening) {
        if self.services.is_forked() {
            return;
        }
        self.releases.lock().close(&opening.peer, opening.serial);
        self.announce_opened();
    }

    /// Declines what a peer has opened: it will not be released.
    pub fn decline(&self, opening: &Opening) {
        if self.services.is_forked() {
            return;
        }
        self.close_opening(opening);
        self.send_message(
            opening.peer,
            &ConditionalMessage::Decline { tag: opening.tag, serial: opening.serial, is_full: false },
        );
    }

    /// Opens a read: this process has space for a write of the peer's data.
    pub fn conditional_read(&self, peer: Peer, tag: Tag, length: u64) {
        if self.services.is_forked() {
            return;
        }
        let mut newest = self.serial.lock();
        *newest += 1;
        self.send_message(
            peer.0,
            &ConditionalMessage::Open { tag, serial: *newest, length, direction: Direction::Read },
        );
    }

    /// Sends a message to a peer, which may have to be connected to first. What it was for is lost with the peer.
    fn send_message(&self, peer: NodeAddress, message: &ConditionalMessage) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        match self.peers.connection(peer) {
            Ok(connection) if connection.backlog() >= MAX_MESSAGES_WAITING => {
                log::debug!("{} takes no messages: one is dropped", peer.socket());
            }
            Ok(connection) => send(&connection, message),
            Err(error) => {
                log::warn!(
                    "no message reaches {}: a conditional write ends there with its time: {error}",
                    peer.socket()
                )
            }
        }
    }

    fn take_message(self: &Arc<Self>, peer: NodeAddress, message: ConditionalMessage) {
        match message {
            ConditionalMessage::Open { tag, serial, length, direction } => {
                let opening = Opening { peer, tag, serial, length, direction };
                let opened = self.releases.lock().open(opening);
                match opened {
                    OpenOutcome::Released(outgoing) => self.send_release_to_peer(&outgoing),
                    OpenOutcome::Queued => {
                        self.opened.notify_all();
                        let wakers = std::mem::take(&mut self.waiting_tasks.lock().wakers);
                        wakers.into_values().for_each(Waker::wake);
                    }
                    OpenOutcome::Known => {}
                    OpenOutcome::Full => {
                        self.send_message(peer, &ConditionalMessage::Decline { tag, serial, is_full: true })
                    }
                }
            }
            ConditionalMessage::Release(release) => self.receive_release(peer, &release),
            ConditionalMessage::Posted { serial, release, length } => {
                let mut releases = self.releases.lock();
                releases.close(&peer, serial);
                let ended = releases.end(&peer, release);
                drop(releases);
                if let Some(end) = ended {
                    self.end_release(&peer, &end, Ok(length));
                }
            }
            ConditionalMessage::Ended { serial, release, ending } => {
                let mut releases = self.releases.lock();
                releases.close(&peer, serial);
                let ended = release.and_then(|number| releases.end(&peer, number));
                drop(releases);
                if let Some(end) = ended {
                    self.end_release(&peer, &end, Err(ending));
                }
            }
            ConditionalMessage::Decline { tag, serial, is_full } => {
                let write = self.writes.lock().take(&(peer, tag), serial, self.now());
                if let Some(write) = write {
                    write.end(Failure::Declined { operation: WRITE, peer: peer.socket(), is_full });
                }
            }
        }
    }

    fn receive_release(self: &Arc<Self>, peer: NodeAddress, release: &Release) {
        self.expire();
        // A write that is being opened is not released before its opening is on its way.
        drop(self.serial.lock());
        let arrival = self.writes.lock().release(peer, release, self.now());
        let ending = match arrival {
            ReleaseArrival::Start(write) => return self.start(peer, write, release),
            ReleaseArrival::Kept => return self.services.look_at_timers(),
            ReleaseArrival::Withdrawn => Ending::Withdrawn,
            ReleaseArrival::Full => Ending::Full,
        };
        let serial = release.serial.unwrap_or_default();
        self.send_message(peer, &ConditionalMessage::Ended { serial, release: Some(release.number), ending });
    }

    /// Ends a release: with the bytes of its write, or with why there was none.
    fn end_release(&self, peer: &NodeAddress, end: &ReleaseEnd, written: Result<u64, Ending>) {
        let (operation, socket) = (RELEASE, peer.socket());
        let failure =
            written.map(|length| end.word.store(length, Ordering::Release)).err().map(
                |ending| match ending {
                    Ending::Withdrawn => Failure::Cancelled { operation, peer: socket },
                    Ending::NoWrite => Failure::TimedOut { operation, waited_for: "a write with its tag" },
                    Ending::Refused => {
                        let (side, rule) = (Side::Caller, Rule::Release);
                        Failure::Refused { operation, peer: socket, side, rule, landed: 0 }
                    }
                    Ending::Lost => {
                        let why = "the connection that it wrote by was lost".to_owned();
                        Failure::PeerLost { operation, peer: socket, why }
                    }
                    Ending::Full => Failure::Declined { operation, peer: socket, is_full: true },
                },
            );
        self.services.end_at_messages(end, failure);
    }

    /// Starts a write that is released: this node goes on with it, whatever the program does.
    fn start(self: &Arc<Self>, peer: NodeAddress, write: HeldOperation, release: &Release) {
        let connection = write.connection.clone();
        let (pending, local) = match write.work {
            HeldWork::Operation { pending, local } => (pending, local),
            HeldWork::Deferred(deferred) => {
                let (serial, release) = (write.serial, release.clone());
                return self.post_deferred(Blocked { peer, serial, write: deferred, release });
            }
        };
        let end = Arc::new(SendFailure {
            conditional: Arc::downgrade(self),
            peer,
            serial: write.serial,
            release: release.number,
            pending: pending.clone(),
        });
        // Where the program does not poll, the thread that reads messages does: see `sweep`.
        connection.completions().sleep_unpolled(&*pending, &Waker::from(end));
        pending.word.store(u64::from(local.length).to_be(), Ordering::Release);
        let length =
            ScatterGather { address: pending.word.as_ptr() as u64, length: 8, key: connection.local_key() };
        match steps(&peer, release, local, length) {
            Ok(steps) => {
                pending.steps.lock().list = SmallVec::from(steps);
                connection.start([pending]);
            }
            Err(rule) => {
                let (operation, peer) = (WRITE, peer.socket());
                let failure = Failure::Refused { operation, peer, side: Side::Target, rule, landed: 0 };
                connection.finish(vec![(pending, Some(failure))]);
            }
        }
    }

    /// Ends everything: this process leaves.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let writes = self.writes.lock().drain();
        for write in writes {
            let peer = write.connection.peer.socket();
            write.end(Failure::Cancelled { operation: WRITE, peer });
        }
        let peer = self.services.address.socket();
        let blocked = std::mem::take(&mut *self.blocked.lock());
        blocked.iter().for_each(|blocked| blocked.write.end(&Failure::Cancelled { operation: WRITE, peer }));
        let releases = self.releases.lock().drain();
        for end in releases {
            let peer = self.services.address.socket();
            self.services.end_at_messages(&end, Some(Failure::Cancelled { operation: RELEASE, peer }));
        }
    }
}

impl PeerEvents for ConditionalWrites {
    fn receive(self: Arc<Self>, peer: NodeAddress, bytes: &[u8]) {
        match ConditionalMessage::decode(bytes) {
            Some(message) => self.take_message(peer, message),
            None => log::debug!("{} has sent a message that makes no sense", peer.socket()),
        }
        self.announce_opened();
    }

    fn forget(&self, peer: &NodeAddress) {
        self.releases.lock().forget(peer, self.now());
        self.services.look_at_timers();
    }

    fn holds(&self, peer: &NodeAddress) -> bool {
        self.writes.lock().holds(peer) || self.releases.lock().holds(peer)
    }

    fn written(&self, peer: NodeAddress, number: u32, length: u64) {
        let mut releases = self.releases.lock();
        let length = length.min(releases.length_of(number));
        let ended = releases.end(&peer, number);
        drop(releases);
        if let Some(end) = ended {
            self.end_release(&peer, &end, Ok(length));
        }
    }

    fn lose(&self, peer: &NodeAddress, why: &str) {
        let writes = self.writes.lock().lose(peer);
        let releases = self.releases.lock().lose(peer);
        self.announce_opened();
        let lost = |operation| Failure::PeerLost { operation, peer: peer.socket(), why: why.to_owned() };
        for write in writes {
            write.end(lost(WRITE));
        }
        for end in releases {
            self.services.end_at_messages(&end, Some(lost(RELEASE)));
        }
    }

    fn run_timers(&self) -> Option<Duration> {
        let next = [self.expire(), self.look_at_deferred(), self.sweep()];
        next.into_iter().flatten().min()
    }
}

impl ConditionalWrites {
    /// Hands over the ends of what was started here, if nobody else polls. Gives when to look again.
    fn sweep(&self) -> Option<Duration> {
        let completions = &self.services.completions;
        let mut pause = self.sweep.lock();
        if completions.try_poll().is_none_or(|found| found > 0) {
            *pause = *SWEEP.start();
        }
        if !completions.has_sleepers() {
            return None;
        }
        let next = *pause;
        *pause = (2 * next).min(*SWEEP.end());
        Some(next)
    }

    /// Ends what has run out. Gives when something does next.
    fn expire(&self) -> Option<Duration> {
        let now = self.now();
        let expired = self.writes.lock().expire(now);
        for ((peer, _), write) in expired.writes {
            self.withdraw(&peer, write, Failure::TimedOut { operation: WRITE, waited_for: "its release" });
        }
        for (peer, number) in expired.releases {
            let (release, ending) = (Some(number), Ending::NoWrite);
            self.send_message(peer, &ConditionalMessage::Ended { serial: 0, release, ending });
        }
        let late = self.releases.lock().expire(now);
        for end in late {
            let (operation, waited_for) = (RELEASE, "a write with its tag");
            self.services.end_at_messages(&end, Some(Failure::TimedOut { operation, waited_for }));
        }
        let next = [self.writes.lock().next_deadline(), self.releases.lock().next_deadline()];
        next.into_iter().flatten().map(|deadline| deadline.saturating_sub(now)).min()
    }
}

impl HeldOperation {
    fn end(&self, failure: Failure) {
        match &self.work {
            HeldWork::Operation { pending, .. } => {
                self.connection.finish(vec![(pending.clone(), Some(failure))]);
            }
            HeldWork::Deferred(write) => write.end(&failure),
        }
    }
}

impl HeldWork {
    /// Its bytes.
    fn length(&self) -> u64 {
        match self {
            HeldWork::Operation { local, .. } => u64::from(local.length),
            HeldWork::Deferred(write) => write.length(),
        }
    }
}

fn not_released(peer: NodeAddress, tag: Tag, why: NotReleased) -> Failure {
    let rule = match why {
        NotReleased::TagInUse => Rule::TagInUse(tag),
        NotReleased::Full => Rule::TooMany,
        NotReleased::Withdrawn => {
            return Failure::Cancelled { operation: RELEASE, peer: peer.socket() };
        }
    };
    Failure::Refused { operation: RELEASE, peer: peer.socket(), side: Side::Caller, rule, landed: 0 }
}

/// The WRITE of a released write, and the SEND of its end behind that. The bytes at `length` say how many it has.
fn steps(
    peer: &NodeAddress,
    release: &Release,
    local: ScatterGather,
    length: ScatterGather,
) -> Result<[WorkStep; 2], Rule> {
    let token = release.taken_by(peer, u64::from(local.length))?;
    let operation = SendOperation::Write { address: token.base, key: token.key };
    let write_step = WorkStep { operation, local, repeats: None };
    let operation = SendOperation::SendImmediate(release.number);
    Ok([write_step, WorkStep { operation, local: length, repeats: None }])
}

/// Sends a message. What becomes of it is noted by the connection.
fn send(connection: &Arc<PeerConnection>, message: &ConditionalMessage) {
    let bytes = message.encode();
    let local = ScatterGather {
        address: bytes.as_ptr() as u64,
        length: bytes.len() as u32,
        key: connection.local_key(),
    };
    let pending = Arc::new(PendingOperation::new("message of a conditional write", bytes));
    pending.steps.lock().list = smallvec![WorkStep { operation: SendOperation::Send, local, repeats: None }];
    connection.start([pending.clone() as Arc<AnyPending>]);
    // It goes on, and nobody waits for it. Its failure shows as the loss of the peer.
    if let Abandoned::Unfinished = pending.abandon() {
        connection.completions().add_unpolled();
    }
}

/// Sends the failure of a released write to its releaser. The end of one that succeeds travels behind its bytes.
struct SendFailure {
    conditional: Weak<ConditionalWrites>,
    peer: NodeAddress,
    serial: u64,
    release: u32,
    pending: Arc<AnyPending>,
}

impl Wake for SendFailure {
    fn wake(self: Arc<Self>) {
        let Some(conditional) = self.conditional.upgrade() else { return };
        let ending = match self.pending.end_state() {
            None | Some(EndState::Done) => return,
            Some(EndState::PeerLost) => Ending::Lost,
            Some(EndState::Failed) => Ending::Refused,
        };
        let (serial, release) = (self.serial, Some(self.release));
        conditional.send_message(self.peer, &ConditionalMessage::Ended { serial, release, ending });
    }
}
