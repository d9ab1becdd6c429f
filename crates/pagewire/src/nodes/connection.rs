//! The connection to one peer: operations leave in the order in which they were started, and a refused one does not end those behind it.
//!
//! A request that the peer refuses ends alone, with the requests of its operation behind it ([`RefusalScope::Request`](pagewire_nic::RefusalScope)).
//! Where the peer is lost nobody knows what was executed: all that the engine had ends with that.

mod flushes;

use crate::error::{Error, Failure, Result, Rule, Side};
use crate::limits::{
    CONNECT_LOOK, CONNECT_PATIENCE, CONNECT_PAUSE, CONNECT_TRIES, DESTROY_TRIES, SEND_DEPTH, SWAP_TRIES,
    WORK_PAUSE,
};
use crate::nodes::completions::{Completes, Completions};
use crate::nodes::engine::Host;
use crate::nodes::handshake::{Connected, connect, discard};
use crate::nodes::listener::{ListenerHandle, Watcher};
use crate::nodes::readiness::Readiness;
use crate::nodes::services::{FlushRegion, NodeServices};
use crate::operations::pending::{AnyPending, PendingOperation, Wakers, WorkStep, WorkSteps};
use crate::operations::waiting;
use crate::regions::token::NodeAddress;
use pagewire_memory::fork::DroppedByOwner;
use pagewire_nic::attributes::{QpState, QueuePairChange};
use pagewire_nic::{Completion, ConnectionReport, Data, QueuePair, SendOperation, SendRequest, Status};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use flushes::FLUSH;
use flushes::Flushes;

/// The connection to one peer, of requests of this side.
pub(crate) struct PeerConnection {
    pub peer: NodeAddress,
    services: Arc<NodeServices>,
    listener: Arc<ListenerHandle>,
    queues: DroppedByOwner<Mutex<Queues>>,
}

struct Queues {
    link: ConnectionLink,
    /// Operations whose requests the engine has, oldest first, one for each request.
    posted: VecDeque<Arc<AnyPending>>,
    /// The number of the first of these requests.
    first: u64,
    /// What waits for space in the send queue or for a connection. The first one may be posted in part.
    waiting: VecDeque<Arc<AnyPending>>,
    /// The first failure of an operation that was dropped.
    unnoticed: Option<Failure>,
    /// What the peer said when it was last connected to.
    flush: Option<FlushRegion>,
    /// How often in a row a connection was lost before anything was done by it.
    losses: u32,
    /// Posted requests that come again if they find something else than they compare with.
    repeating: usize,
    /// The thread that polls for sleepers polls for this connection.
    is_polled: bool,
    /// Why the peer is lost, until others are notified.
    loss: Option<String>,
    /// The thread that connects, or did.
    connector: Option<JoinHandle<()>>,
    flushes: Flushes,
}

enum ConnectionLink {
    /// There is none, and nothing needs one.
    Idle,
    Up {
        queue_pair: Arc<QueuePair<Host>>,
        stream: Arc<TcpStream>,
    },
    /// The queue pair is in ERR: what it still has is being flushed.
    Failing {
        queue_pair: Arc<QueuePair<Host>>,
        /// Why the peer is lost.
        lost: String,
    },
    /// A thread connects.
    Connecting,
    Down {
        why: String,
    },
}

/// How much of an operation was executed as it was started.
#[derive(Default)]
pub(crate) struct Executed {
    pub steps: usize,
    /// All of it, and nobody else is to learn of its end.
    pub is_whole: bool,
}

/// Operations that have ended, and how.
type EndedOperations = Vec<(Arc<AnyPending>, Option<Failure>)>;

impl PeerConnection {
    /// The connection to a peer, which the first operation has made.
    pub fn new(
        services: &Arc<NodeServices>,
        listener: &Arc<ListenerHandle>,
        peer: NodeAddress,
    ) -> Arc<PeerConnection> {
        Arc::new(PeerConnection {
            peer,
            services: services.clone(),
            listener: listener.clone(),
            queues: DroppedByOwner::new(Mutex::new(Queues {
                link: ConnectionLink::Idle,
                posted: VecDeque::new(),
                first: 0,
                waiting: VecDeque::new(),
                unnoticed: None,
                flush: None,
                losses: 0,
                repeating: 0,
                is_polled: false,
                loss: None,
                connector: None,
                flushes: Flushes::default(),
            })),
        })
    }

    fn connect(self: &Arc<Self>) -> Result<()> {
        let Connected { queue_pair, stream, flush } = connect(&self.services, &self.peer)?;
        let stream = Arc::new(stream);
        self.services.completions.enter(queue_pair.number(), self.clone());
        let mut queues = self.queues.lock();
        if !matches!(queues.link, ConnectionLink::Connecting) {
            // Closed meanwhile.
            drop(queues);
            self.services.completions.leave(queue_pair.number());
            discard(&queue_pair);
            return Ok(());
        }
        queues.link = ConnectionLink::Up { queue_pair, stream: stream.clone() };
        queues.flush = Some(flush);
        let ended = self.post(&mut queues);
        self.end(queues, ended);
        let own: Arc<dyn Watcher> = self.clone();
        self.listener.watch(stream, Arc::downgrade(&own));
        Ok(())
    }

    /// The peer's region whose READs wait for handlers. `None`: it was never connected.
    pub fn flush_region(&self) -> Option<FlushRegion> {
        if self.is_forked() { None } else { self.queues.lock().flush }
    }

    /// Whether it is up, as far as this side knows.
    pub fn is_up(&self) -> bool {
        !self.is_forked() && matches!(self.queues.lock().link, ConnectionLink::Up { .. })
    }

    /// Whether it is of no use any more.
    pub fn is_down(&self) -> bool {
        matches!(self.queues.lock().link, ConnectionLink::Down { .. })
    }

    /// Waits until it is up, and connects if it is idle.
    ///
    /// # Errors
    /// `Connect`: it is down, or comes up within no time that a connection may take.
    pub fn ensure_up(self: &Arc<Self>) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut queues = self.queues.lock();
            match &queues.link {
                ConnectionLink::Up { .. } => return Ok(()),
                ConnectionLink::Down { why } => {
                    return Err(Error::Connect { node: self.peer.socket(), why: why.clone() });
                }
                ConnectionLink::Idle => {
                    queues.link = ConnectionLink::Connecting;
                    drop(queues);
                    let Err(error) = self.connect() else { continue };
                    let mut queues = self.queues.lock();
                    queues.go_down(error.to_string());
                    let ended = self.post(&mut queues);
                    self.end(queues, ended);
                    return Err(error);
                }
                ConnectionLink::Failing { .. } | ConnectionLink::Connecting => {}
            }
            drop(queues);
            if start.elapsed() >= 2 * CONNECT_PATIENCE {
                let why = "it is still being connected to".to_owned();
                return Err(Error::Connect { node: self.peer.socket(), why });
            }
            // Completions may have to be handed over first.
            self.completions().poll();
            std::thread::sleep(CONNECT_LOOK);
        }
    }

    /// Starts operations, in this order.
    pub fn start(self: &Arc<Self>, operations: impl IntoIterator<Item = Arc<AnyPending>>) {
        if self.is_forked() {
            return;
        }
        let mut queues = self.queues.lock();
        queues.waiting.extend(operations);
        let mut ended = self.post(&mut queues);
        ended.extend(self.connect_if_needed(&mut queues));
        self.end(queues, ended);
    }

    /// Executes steps of an operation that is about to be started, as far as this thread may do that in the memory of a local peer, and
    /// nothing waits before it. `word`: the operation's own, which gets what an atomic found.
    pub fn execute_now(&self, steps: &[WorkStep], word: &AtomicU64) -> Executed {
        // Who sleeps until operations end (poll(2)) is to learn of this one, too: that is for operations of the connection.
        if self.readiness().is_some() || self.is_forked() {
            return Executed::default();
        }
        let queues = self.queues.lock();
        let ConnectionLink::Up { queue_pair, .. } = &queues.link else { return Executed::default() };
        if !queues.is_quiet() {
            return Executed::default();
        }
        let done = steps.iter().take_while(|step| execute_step(queue_pair, step, word)).count();
        Executed { steps: done, is_whole: done > 0 && done == steps.len() }
    }

    /// Whether memory of the peer is mapped here.
    pub fn maps(&self, address: u64, length: u64) -> bool {
        if self.is_forked() {
            return false;
        }
        let queue_pair = match &self.queues.lock().link {
            ConnectionLink::Up { queue_pair, .. } => queue_pair.clone(),
            _ => return false,
        };
        let maps = queue_pair.maps(address, length);
        maps.inspect_err(|error| log::debug!("whether memory of {} is mapped: {error}", self.peer.socket()))
            .unwrap_or(false)
    }

    /// Has the caller work on words of the peer's memory that is mapped here. False: that cannot be done now.
    pub fn with_words(&self, remote: (u64, u32), length: u64, work: &mut dyn FnMut(&[AtomicU64])) -> bool {
        if self.is_forked() {
            return false;
        }
        let queues = self.queues.lock();
        match &queues.link {
            ConnectionLink::Up { queue_pair, .. } if queues.is_quiet() => {
                queue_pair.with_words(remote, length, work)
            }
            _ => false,
        }
    }

    /// Gives the engine what waits, as far as there is space. Returns what cannot be done any more.
    fn post(&self, queues: &mut Queues) -> EndedOperations {
        let queue_pair = match &queues.link {
            ConnectionLink::Up { queue_pair, .. } => queue_pair.clone(),
            ConnectionLink::Idle | ConnectionLink::Failing { .. } | ConnectionLink::Connecting => {
                return Vec::new();
            }
            ConnectionLink::Down { why } => {
                let why = why.clone();
                let waiting = std::mem::take(&mut queues.waiting);
                // What the engine still has in part ends when that has come back.
                let (idle, busy): (VecDeque<_>, _) =
                    waiting.into_iter().partition(|pending| pending.steps.lock().is_idle());
                queues.waiting = busy;
                return idle.into_iter().map(|pending| self.lost(pending, &why)).collect();
            }
        };
        let (mut ended, mut rings) = (Vec::new(), false);
        while let Some(pending) = queues.waiting.front().cloned() {
            let mut steps = pending.steps.lock();
            while let Some(step) = steps.next() {
                if queues.posted.len() >= SEND_DEPTH as usize {
                    break;
                }
                let number = queues.first + queues.posted.len() as u64;
                // A step behind one that is refused is not executed: a signal of a refused put never shows.
                let is_linked = steps.posted > steps.done;
                let posted = match is_linked {
                    false => queue_pair.post_send(&request(number, step)),
                    true => queue_pair.post_linked(&request(number, step)),
                };
                match posted {
                    Ok(kept) => rings |= kept,
                    Err(error) => {
                        let (operation, peer) = (pending.name, self.peer.socket());
                        let status = error.to_string();
                        steps.failure = Some(Failure::Unexpected { operation, peer, status });
                        break;
                    }
                }
                queues.repeating += usize::from(step.repeats.is_some());
                steps.posted += 1;
                queues.posted.push_back(pending.clone());
            }
            if steps.next().is_some() {
                // There is no space for the rest now.
                break;
            }
            // With requests that the engine has it ends when these have come back.
            let failure = if steps.is_idle() { steps.failure.take() } else { None };
            drop(steps);
            queues.waiting.pop_front();
            if failure.is_some() {
                ended.push((pending, failure));
            }
        }
        if rings {
            queue_pair.doorbell();
        }
        ended
    }

    /// Connects where something waits for that, once everything has come back that a failed queue pair had. Returns what cannot be done any
    /// more.
    fn connect_if_needed(self: &Arc<Self>, queues: &mut Queues) -> EndedOperations {
        if let ConnectionLink::Failing { .. } = queues.link {
            if !queues.posted.is_empty() {
                return Vec::new();
            }
        }
        let former = match &queues.link {
            ConnectionLink::Idle => None,
            ConnectionLink::Failing { queue_pair, .. } => Some(queue_pair.clone()),
            ConnectionLink::Up { .. } | ConnectionLink::Connecting | ConnectionLink::Down { .. } => {
                return Vec::new();
            }
        };
        if former.is_none() && queues.waiting.is_empty() {
            return Vec::new();
        }
        let (connection, given) = (self.clone(), former.clone());
        queues.link = ConnectionLink::Connecting;
        match pagewire_fabric::spawn("pagewire-connect", move || connection.recover(given.as_deref())) {
            Ok(thread) => queues.connector = Some(thread),
            Err(error) => {
                queues.go_down(format!("no thread could be started to connect anew: {error}"));
                if let Some(former) = former {
                    self.services.completions.leave(former.number());
                    discard(&former);
                }
            }
        }
        self.post(queues)
    }

    /// Destroys the former queue pair, and connects anew if something waits.
    fn recover(self: &Arc<Self>, former: Option<&QueuePair<Host>>) {
        if let Some(former) = former {
            self.services.completions.leave(former.number());
            discard(former);
        }
        // What waits for the peer ends with it: so there is a connection as long.
        let is_needed = self.services.peer_events().is_some_and(|events| events.holds(&self.peer));
        let mut queues = self.queues.lock();
        if !matches!(queues.link, ConnectionLink::Connecting) {
            return;
        }
        if queues.waiting.is_empty() && !is_needed {
            queues.link = ConnectionLink::Idle;
            return;
        }
        let losses = queues.losses;
        drop(queues);
        std::thread::sleep(CONNECT_PAUSE * losses);
        let why = if losses < CONNECT_TRIES {
            match self.connect() {
                Ok(()) => return,
                Err(Error::Connect { why, .. }) => why,
                Err(error) => error.to_string(),
            }
        } else {
            format!(
                "it was connected to {CONNECT_TRIES} times, and each time it was lost before it did anything"
            )
        };
        let mut queues = self.queues.lock();
        if matches!(queues.link, ConnectionLink::Connecting) {
            queues.go_down(why);
        }
        let ended = self.post(&mut queues);
        self.end(queues, ended);
    }

    /// Ends operations. Who asks whether they have ended behind the lock finds what they ended with.
    fn end(&self, mut queues: MutexGuard<'_, Queues>, mut ended: EndedOperations) {
        if let ConnectionLink::Down { why } = &queues.link {
            let why = why.clone();
            ended.extend(queues.flushes.take_held().map(|flush| self.lost(flush, &why)));
        }
        let mut wakers = Wakers::new();
        let mut sleepers = 0;
        for (pending, failure) in ended {
            let end = pending.end(failure, self.readiness());
            sleepers += end.wakers.len() as isize + isize::from(end.abandoned);
            wakers.extend(end.wakers);
            if let Some(failure) = end.unnoticed {
                queues.note_unnoticed(failure);
            }
        }
        // What waits for space, or for the end of a queue pair, is polled for, though nobody waits for it.
        let needs_polling = !queues.posted.is_empty()
            && (!queues.waiting.is_empty()
                || queues.repeating > 0
                || matches!(queues.link, ConnectionLink::Failing { .. }));
        let change =
            isize::from(needs_polling) - isize::from(std::mem::replace(&mut queues.is_polled, needs_polling));
        let (loss, ready) = (queues.loss.take(), queues.flushes.take_ready());
        drop(queues);
        let change = change - sleepers;
        if change != 0 {
            self.services.completions.add_sleepers(change);
        }
        wakers.into_iter().for_each(std::task::Waker::wake);
        if let (Some(why), Some(events)) = (loss, self.services.peer_events()) {
            events.lose(&self.peer, &why);
        }
        for (connection, flush) in ready {
            connection.start([flush]);
        }
    }

    /// Ends operations that the engine has nothing of.
    pub fn finish(&self, ended: EndedOperations) {
        if !self.is_forked() {
            self.end(self.queues.lock(), ended);
        }
    }

    /// Operations that wait for space or for a connection.
    pub fn backlog(&self) -> usize {
        self.queues.lock().waiting.len()
    }

    /// The first failure since this was last asked for of an operation that was dropped before its result was taken.
    pub fn take_unnoticed(&self) -> Option<Failure> {
        if self.is_forked() {
            return Some(Failure::Forked { operation: "flush" });
        }
        self.queues.lock().unnoticed.take()
    }

    /// Whether this process was forked from the one that it belongs to.
    pub fn is_forked(&self) -> bool {
        self.services.is_forked()
    }

    /// The key of all memory of this process, for its own side of operations.
    pub fn local_key(&self) -> u32 {
        self.services.local_key()
    }

    /// Where what has ended is announced.
    pub fn readiness(&self) -> Option<&Arc<Readiness>> {
        self.services.readiness()
    }

    /// Where its completions come.
    pub fn completions(&self) -> &Completions {
        &self.services.completions
    }

    /// Waits until an operation has ended. A thread that has something to go on with meanwhile waits as long as that has patience; then the
    /// connection is given up, which ends the operation.
    pub fn wait_until_ended<P: ?Sized>(self: &Arc<Self>, pending: &PendingOperation<P>) {
        let Some(work) = waiting::current() else { return self.completions().wait_until_ended(pending) };
        let start = Instant::now();
        while !self.completions().ends_within(pending, WORK_PAUSE) {
            work.make_progress();
            if !pending.is_ended() && start.elapsed() >= work.patience() {
                self.give_up(&format!(
                    "a handler has waited {:?} for it: they may wait for each other",
                    work.patience()
                ));
                return self.completions().wait_until_ended(pending);
            }
        }
    }

    /// As [`wait_until_ended`](Self::wait_until_ended), for so long at most. False: it has not ended.
    pub fn ends_within<P: ?Sized>(
        self: &Arc<Self>,
        pending: &PendingOperation<P>,
        patience: Duration,
    ) -> bool {
        let Some(work) = waiting::current() else { return self.completions().ends_within(pending, patience) };
        let start = Instant::now();
        while !self.completions().ends_within(pending, WORK_PAUSE.min(patience)) {
            work.make_progress();
            if start.elapsed() >= patience {
                return pending.is_ended();
            }
        }
        true
    }

    /// Ends all operations as those of a lost peer. The next one connects anew.
    fn give_up(self: &Arc<Self>, why: &str) {
        let mut queues = self.queues.lock();
        let ConnectionLink::Up { queue_pair, .. } = &queues.link else { return };
        let queue_pair = queue_pair.clone();
        queues.fail(why.to_owned());
        drop(queues);
        self.end_queue_pair(&queue_pair);
    }

    /// Has the engine give back what a queue pair has, behind a failure.
    fn end_queue_pair(self: &Arc<Self>, queue_pair: &Arc<QueuePair<Host>>) {
        // Waits for a thread that is just at the queue pair: not with the lock.
        let change = QueuePairChange { state: Some(QpState::Error), ..Default::default() };
        for _ in 0..DESTROY_TRIES {
            match queue_pair.modify(&change) {
                Ok(()) => break,
                Err(error) => log::debug!("the queue pair of a lost peer: {error}"),
            }
        }
        let mut queues = self.queues.lock();
        let ended = self.connect_if_needed(&mut queues);
        self.end(queues, ended);
    }

    /// Notes the failure of an operation that was dropped.
    pub fn note_unnoticed(&self, failure: Failure) {
        if !self.is_forked() {
            self.queues.lock().note_unnoticed(failure);
        }
    }

    /// What the engine says of the connection. `None`: there is none now.
    pub fn report(&self) -> Option<ConnectionReport> {
        match &self.queues.lock().link {
            ConnectionLink::Up { queue_pair, .. } => Some(queue_pair.report()),
            _ => None,
        }
    }

    /// Why there is no connection, if it is down.
    pub fn why_down(&self) -> Option<String> {
        match &self.queues.lock().link {
            ConnectionLink::Down { why } => Some(why.clone()),
            _ => None,
        }
    }

    /// Ends the connection. What was not done yet will not be. Operations whose requests the engine does not give back (an access waits for a
    /// page that does not come) never end: their buffers may still be accessed.
    pub fn close(&self) {
        let mut queues = self.queues.lock();
        let why = "this process has left".to_owned();
        let link = std::mem::replace(&mut queues.link, ConnectionLink::Down { why: why.clone() });
        let (connector, of_flushes) = (queues.connector.take(), queues.flushes.take_connections());
        drop(queues);
        of_flushes.iter().for_each(|connection| connection.close());
        if let Some(connector) =
            connector.filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            if connector.join().is_err() {
                log::error!("the thread that connects to a peer had failed");
            }
        }
        if let ConnectionLink::Up { stream, .. } = &link {
            hang_up(stream);
        }
        let is_destroyed = match &link {
            ConnectionLink::Up { queue_pair, .. } | ConnectionLink::Failing { queue_pair, .. } => {
                discard(queue_pair)
            }
            ConnectionLink::Idle | ConnectionLink::Connecting | ConnectionLink::Down { .. } => true,
        };
        let mut queues = self.queues.lock();
        let posted = std::mem::take(&mut queues.posted);
        let mut all: Vec<Arc<AnyPending>> = std::mem::take(&mut queues.waiting).into();
        all.extend(queues.flushes.take_held());
        if is_destroyed {
            all.extend(posted);
        } else {
            all.retain(|pending| !posted.iter().any(|posted| Arc::ptr_eq(posted, pending)));
            std::mem::forget(posted);
        }
        all.sort_by_key(|pending| Arc::as_ptr(pending).cast::<u8>());
        all.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let ended = all.into_iter().map(|pending| self.lost(pending, &why)).collect();
        self.end(queues, ended);
    }

    fn lost(&self, pending: Arc<AnyPending>, why: &str) -> (Arc<AnyPending>, Option<Failure>) {
        let failure = self.peer_lost(&pending, why);
        (pending, Some(failure))
    }

    fn peer_lost(&self, pending: &AnyPending, why: &str) -> Failure {
        Failure::PeerLost { operation: pending.name, peer: self.peer.socket(), why: why.to_owned() }
    }

    /// Why a request of an operation failed, and whether the peer is lost. `landed`: bytes of the operation that are where they should be.
    fn failure_of(&self, pending: &AnyPending, status: Status, landed: u64) -> (Failure, Option<String>) {
        let (operation, peer) = (pending.name, self.peer.socket());
        let refused = |side, rule| (Failure::Refused { operation, peer, side, rule, landed }, None);
        match status {
            Status::RemoteAccess => refused(Side::Target, Rule::Key),
            Status::RemoteOperation if pending.name == FLUSH => refused(Side::Target, Rule::DamagedLog),
            Status::RemoteOperation => refused(Side::Target, Rule::Memory),
            Status::LocalProtection | Status::LocalLength => refused(Side::Caller, Rule::Buffer),
            Status::RemoteInvalidRequest => {
                let status = format!("{status:?}");
                (Failure::Unexpected { operation, peer, status }, None)
            }
            Status::RetryExceeded | Status::RnrRetryExceeded => {
                let why = "it does not answer, though it was asked several times".to_owned();
                (self.peer_lost(pending, &why), Some(why))
            }
            status => {
                let status = format!("{status:?}");
                (Failure::Unexpected { operation, peer, status: status.clone() }, Some(status))
            }
        }
    }

    /// A request did not succeed. Returns the operation's failure, if it is known by now.
    fn fail(
        &self,
        queues: &mut Queues,
        pending: &AnyPending,
        steps: &WorkSteps,
        completion: &Completion,
    ) -> Option<Failure> {
        if completion.status != Status::Flushed {
            let landed = steps.length_done() + u64::from(completion.byte_length);
            let (failure, lost) = self.failure_of(pending, completion.status, landed);
            if let Some(why) = lost {
                queues.fail(why);
            }
            return Some(failure);
        }
        if steps.failure.is_some() {
            // It was linked to a step that has failed.
            return None;
        }
        // Without an error before, something else has ended the queue pair.
        queues.fail("the queue pair was ended".to_owned());
        match &queues.link {
            ConnectionLink::Failing { lost: why, .. } | ConnectionLink::Down { why } => {
                Some(self.peer_lost(pending, why))
            }
            ConnectionLink::Idle | ConnectionLink::Up { .. } | ConnectionLink::Connecting => None,
        }
    }
}

/// Executes a step in the memory of a local peer. False: nothing was done.
fn execute_step(queue_pair: &Arc<QueuePair<Host>>, step: &WorkStep, word: &AtomicU64) -> bool {
    let mut operation = step.operation;
    // Others may change the word as fast as this reads it: then it goes on as an operation, without the lock.
    for _ in 0..SWAP_TRIES {
        let Some(found) = queue_pair.execute_now(&operation, step.local) else { return false };
        if step.repeats.is_some_and(|change| change.prepare_again(&mut operation, found)) {
            continue;
        }
        if matches!(operation, SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. }) {
            word.store(found, Ordering::Release);
        }
        return true;
    }
    false
}

/// Has the peer destroy the queue pair of its side.
fn hang_up(stream: &TcpStream) {
    if let Err(error) = stream.shutdown(Shutdown::Both) {
        log::debug!("a peer has hung up before: {error}");
    }
}

fn request<'a>(number: u64, step: &'a WorkStep) -> SendRequest<'a, Host> {
    SendRequest {
        wr_id: number,
        data: Data::Segments(std::slice::from_ref(&step.local)),
        operation: step.operation,
        signaled: true,
        fence: false,
        solicited: false,
        destination: None,
    }
}

impl Completes for PeerConnection {
    fn complete(self: Arc<Self>, completion: &Completion) {
        let mut queues = self.queues.lock();
        // Completions of a queue pair come in the order of its requests, and are handed over in that.
        if completion.wr_id != queues.first {
            debug_assert!(
                matches!(queues.link, ConnectionLink::Down { .. }),
                "{completion:?}, and {} is next",
                queues.first
            );
            return;
        }
        let Some(pending) = queues.posted.pop_front() else { return };
        queues.first += 1;
        let mut steps = pending.steps.lock();
        let repeats = steps.list.get(steps.returned).is_some_and(|step| step.repeats.is_some());
        queues.repeating -= usize::from(repeats);
        steps.returned += 1;
        let mut again = false;
        if completion.status == Status::Success {
            queues.losses = 0;
            again = steps.repeat(pending.word.load(Ordering::Acquire));
            steps.done += usize::from(!again);
        } else if let Some(failure) = self.fail(&mut queues, &pending, &steps, completion) {
            steps.failure.get_or_insert(failure);
        }
        let ends = steps.is_idle() && (steps.failure.is_some() || steps.done == steps.list.len());
        let failure = if ends { steps.failure.take() } else { None };
        drop(steps);
        let mut ended = Vec::new();
        if ends {
            // One that is posted in part waits before all others.
            if queues.waiting.front().is_some_and(|waiting| Arc::ptr_eq(waiting, &pending)) {
                queues.waiting.pop_front();
            }
            ended.push((pending, failure));
        } else if again {
            queues.waiting.push_back(pending);
        }
        ended.extend(self.post(&mut queues));
        ended.extend(self.connect_if_needed(&mut queues));
        self.end(queues, ended);
    }
}

impl Watcher for PeerConnection {
    fn closed_by_peer(self: Arc<Self>, closed: &Arc<TcpStream>) {
        let mut queues = self.queues.lock();
        let queue_pair = match &queues.link {
            // Another one is of a former link, and says nothing any more.
            ConnectionLink::Up { queue_pair, stream } if Arc::ptr_eq(stream, closed) => queue_pair.clone(),
            _ => return,
        };
        queues.fail("its process has ended, or has closed the connection".into());
        drop(queues);
        self.end_queue_pair(&queue_pair);
    }
}

impl Queues {
    /// The queue pair has failed. `lost`: why the peer is lost.
    fn fail(&mut self, lost: String) {
        if let ConnectionLink::Up { queue_pair, stream } = &self.link {
            hang_up(stream);
            self.losses += 1;
            self.loss = Some(lost.clone());
            self.link = ConnectionLink::Failing { queue_pair: queue_pair.clone(), lost };
        }
    }

    /// The peer cannot be connected to.
    fn go_down(&mut self, why: String) {
        self.loss = Some(why.clone());
        self.link = ConnectionLink::Down { why };
    }

    fn note_unnoticed(&mut self, failure: Failure) {
        log::debug!("{failure}");
        self.unnoticed.get_or_insert(failure);
    }
}
