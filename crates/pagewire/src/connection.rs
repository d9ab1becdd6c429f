//! The connection to one peer: operations leave in the order in which they were started, and a refused one does not end those behind it.
//!
//! An error ends a queue pair (InfiniBand specification, volume 1, section 10.8.5): what stood behind the failed request is flushed, and
//! was not executed. The node then connects anew and posts the flushed requests again, in their order.

use crate::completions::{Completes, Completions};
use crate::engine::Host;
use crate::error::{Failure, Result, Rule, Side};
use crate::handshake::{connect, discard};
use crate::limits::SEND_DEPTH;
use crate::listener::{ListenerHandle, Watcher};
use crate::pending::{AnyPending, SWAP, Step};
use crate::services::Services;
use crate::token::NodeAddress;
use pagewire_nic::attributes::{QueuePairChange, State};
use pagewire_nic::{Completion, ConnectionReport, Data, QueuePair, SendOperation, SendRequest, Status};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An operation of which a step failed: what of it is flushed afterwards is not posted again.
const FAILED: usize = usize::MAX;

/// The connection to one peer, of requests of this side.
pub(crate) struct Connection {
    pub peer: NodeAddress,
    services: Arc<Services>,
    listener: Arc<ListenerHandle>,
    queues: Mutex<Queues>,
}

struct Queues {
    link: Link,
    /// What the engine has, by the number of the request; `None`: complete, behind one that is not.
    posted: VecDeque<Option<Arc<AnyPending>>>,
    /// The number of the first of them.
    first: u64,
    /// Those that are not complete.
    incomplete: usize,
    /// What was flushed, in order.
    flushed: Vec<(u64, Arc<AnyPending>)>,
    /// What waits for room in the send queue or for a connection.
    waiting: VecDeque<Arc<AnyPending>>,
    /// The first failure of an operation that was dropped.
    unnoticed: Option<Failure>,
}

enum Link {
    Up {
        queue_pair: Arc<QueuePair<Host>>,
        stream: Arc<TcpStream>,
    },
    /// The queue pair is in ERR: what it still has is being flushed.
    Failing {
        queue_pair: Arc<QueuePair<Host>>,
    },
    /// A thread connects.
    Connecting,
    Down {
        why: String,
    },
}

/// An operation that has ended, and how.
type Ended = (Arc<AnyPending>, Option<Failure>);

impl Connection {
    /// Connects to a peer.
    pub fn open(
        services: &Arc<Services>,
        listener: &Arc<ListenerHandle>,
        peer: NodeAddress,
    ) -> Result<Arc<Connection>> {
        let connection = Arc::new(Connection {
            peer,
            services: services.clone(),
            listener: listener.clone(),
            queues: Mutex::new(Queues {
                link: Link::Connecting,
                posted: VecDeque::new(),
                first: 0,
                incomplete: 0,
                flushed: Vec::new(),
                waiting: VecDeque::new(),
                unnoticed: None,
            }),
        });
        connection.connect()?;
        Ok(connection)
    }

    fn connect(self: &Arc<Self>) -> Result<()> {
        let (queue_pair, stream) = connect(&self.services, &self.peer)?;
        let stream = Arc::new(stream);
        self.services.completions.enter(queue_pair.number(), self.clone());
        let mut queues = self.queues.lock();
        if !matches!(queues.link, Link::Connecting) {
            // Closed meanwhile.
            self.services.completions.leave(queue_pair.number());
            discard(&queue_pair);
            return Ok(());
        }
        queues.link = Link::Up { queue_pair, stream: stream.clone() };
        let ended = self.post(&mut queues);
        drop(queues);
        self.end(ended);
        let own: Arc<dyn Watcher> = self.clone();
        self.listener.watch(stream, Arc::downgrade(&own));
        Ok(())
    }

    /// Whether it is of no use any more.
    pub fn is_down(&self) -> bool {
        matches!(self.queues.lock().link, Link::Down { .. })
    }

    /// Starts operations, in this order.
    pub fn start(&self, operations: impl IntoIterator<Item = Arc<AnyPending>>) {
        let mut queues = self.queues.lock();
        queues.waiting.extend(operations);
        let ended = self.post(&mut queues);
        drop(queues);
        self.end(ended);
    }

    /// Gives the engine what waits, as far as there is room. Returns what cannot be done any more.
    fn post(&self, queues: &mut Queues) -> Vec<Ended> {
        let queue_pair = match &queues.link {
            Link::Up { queue_pair, .. } => queue_pair.clone(),
            Link::Failing { .. } | Link::Connecting => return Vec::new(),
            Link::Down { why } => {
                let why = why.clone();
                return queues.waiting.drain(..).map(|pending| self.lost(pending, &why)).collect();
            }
        };
        let (mut ended, mut rings) = (Vec::new(), false);
        while let Some(pending) = queues.waiting.front().cloned() {
            let steps = pending.steps.lock();
            let mut refusal = None;
            while let Some(step) = steps.get(pending.posted.load(Ordering::Acquire)) {
                if queues.incomplete >= SEND_DEPTH as usize {
                    break;
                }
                let number = queues.first + queues.posted.len() as u64;
                match queue_pair.post_send(&request(number, step)) {
                    Ok(kept) => rings |= kept,
                    Err(error) => {
                        refusal = Some(error);
                        break;
                    }
                }
                pending.posted.fetch_add(1, Ordering::AcqRel);
                queues.posted.push_back(Some(pending.clone()));
                queues.incomplete += 1;
            }
            let is_posted = pending.posted.load(Ordering::Acquire) == steps.len();
            drop(steps);
            if let Some(error) = refusal {
                pending.done.store(FAILED, Ordering::Release);
                let (operation, peer) = (pending.name, self.peer.socket());
                let failure = Failure::Unexpected { operation, peer, status: error.to_string() };
                ended.push((pending, Some(failure)));
            } else if !is_posted {
                // There is no room for the rest now.
                break;
            }
            queues.waiting.pop_front();
        }
        if rings {
            queue_pair.doorbell();
        }
        ended
    }

    /// Connects anew once everything has come back that the failed queue pair had.
    fn recover_if_flushed(self: &Arc<Self>, queues: &mut Queues) {
        if queues.incomplete > 0 || !matches!(queues.link, Link::Failing { .. }) {
            return;
        }
        let Link::Failing { queue_pair } = std::mem::replace(&mut queues.link, Link::Connecting) else {
            return;
        };
        queues.posted.clear();
        queues.flushed.sort_by_key(|(number, _)| *number);
        for (_, pending) in std::mem::take(&mut queues.flushed).into_iter().rev() {
            queues.waiting.push_front(pending);
        }
        let connection = self.clone();
        let spawned = pagewire_fabric::spawn("pagewire-connect", move || connection.recover(&queue_pair));
        if let Err(error) = spawned {
            log::warn!("no thread connects to a peer anew: {error}");
            queues.link = Link::Down { why: format!("no thread could be started to connect anew: {error}") };
        }
    }

    fn recover(self: &Arc<Self>, former: &QueuePair<Host>) {
        self.services.completions.leave(former.number());
        discard(former);
        let Err(error) = self.connect() else { return };
        let mut queues = self.queues.lock();
        if matches!(queues.link, Link::Connecting) {
            queues.link = Link::Down { why: error.to_string() };
        }
        let ended = self.post(&mut queues);
        drop(queues);
        self.end(ended);
    }

    /// Tells whoever waits for these operations that they have ended.
    fn end(&self, ended: Vec<Ended>) {
        for (pending, failure) in ended {
            let woken = pending.end(failure);
            if let Some(failure) = woken.unnoticed {
                self.note_unnoticed(failure);
            }
            if woken.sleepers > 0 {
                self.services.completions.add_sleepers(-(woken.sleepers as isize));
            }
        }
    }

    /// Waits until everything that was started before has ended.
    ///
    /// # Errors
    /// The first failure since the last flush of an operation that was dropped before its result was taken.
    pub fn flush(&self) -> Result<(), Failure> {
        for pending in self.unfinished() {
            self.completions().wait_until_ended(&*pending);
        }
        self.queues.lock().unnoticed.take().map_or(Ok(()), Err)
    }

    /// The key of all memory of this process, for its own side of operations.
    pub fn local_key(&self) -> u32 {
        self.services.local_key()
    }

    /// Where its completions come.
    pub fn completions(&self) -> &Completions {
        &self.services.completions
    }

    /// Everything that was started and has not ended.
    fn unfinished(&self) -> Vec<Arc<AnyPending>> {
        let queues = self.queues.lock();
        let flushed = queues.flushed.iter().map(|(_, pending)| pending);
        queues.posted.iter().flatten().chain(flushed).chain(&queues.waiting).cloned().collect()
    }

    /// Notes the failure of an operation that was dropped.
    pub fn note_unnoticed(&self, failure: Failure) {
        log::debug!("{failure}");
        self.queues.lock().unnoticed.get_or_insert(failure);
    }

    /// What the engine says of the connection. `None`: there is none now.
    pub fn report(&self) -> Option<ConnectionReport> {
        match &self.queues.lock().link {
            Link::Up { queue_pair, .. } => Some(queue_pair.report()),
            _ => None,
        }
    }

    /// Why there is no connection, if it is down.
    pub fn why_down(&self) -> Option<String> {
        match &self.queues.lock().link {
            Link::Down { why } => Some(why.clone()),
            _ => None,
        }
    }

    /// Ends the connection. What was not done yet will not be.
    pub fn close(&self) {
        let mut queues = self.queues.lock();
        let why = "this process has left".to_owned();
        let link = std::mem::replace(&mut queues.link, Link::Down { why: why.clone() });
        if let Link::Up { stream, .. } = &link {
            hang_up(stream);
        }
        if let Link::Up { queue_pair, .. } | Link::Failing { queue_pair } = &link {
            discard(queue_pair);
        }
        let Queues { posted, flushed, waiting, .. } = &mut *queues;
        let flushed = flushed.drain(..).map(|(_, pending)| pending);
        let all = posted.drain(..).flatten().chain(flushed).chain(waiting.drain(..));
        let ended =
            all.filter(|pending| !pending.is_ended()).map(|pending| self.lost(pending, &why)).collect();
        drop(queues);
        self.end(ended);
    }

    fn lost(&self, pending: Arc<AnyPending>, why: &str) -> Ended {
        let failure =
            Failure::PeerLost { operation: pending.name, peer: self.peer.socket(), why: why.to_owned() };
        (pending, Some(failure))
    }

    fn failure_of(&self, pending: &AnyPending, status: Status) -> Failure {
        let (operation, peer) = (pending.name, self.peer.socket());
        let refused = |side, rule| Failure::Refused { operation, peer, side, rule };
        match status {
            Status::RemoteAccess => refused(Side::Target, Rule::Key),
            Status::RemoteOperation => refused(Side::Target, Rule::Memory),
            Status::LocalProtection | Status::LocalLength => refused(Side::Caller, Rule::Buffer),
            Status::RetryExceeded | Status::RnrRetryExceeded => {
                let why = "it does not answer, though it was asked several times".to_owned();
                Failure::PeerLost { operation, peer, why }
            }
            status => Failure::Unexpected { operation, peer, status: format!("{status:?}") },
        }
    }
}

impl Completes for Connection {
    fn complete(self: Arc<Self>, completion: &Completion) {
        let mut queues = self.queues.lock();
        let Some(pending) = queues.take(completion.wr_id) else { return };
        let mut ended = Vec::new();
        match completion.status {
            Status::Success => match pending.step_done() {
                Progress::Ended => ended.push((pending, None)),
                Progress::Again => queues.waiting.push_back(pending),
                Progress::Further => {}
            },
            status => {
                queues.fail();
                if pending.done.load(Ordering::Acquire) != FAILED {
                    if status == Status::Flushed {
                        queues.flush(completion.wr_id, pending);
                    } else {
                        pending.done.store(FAILED, Ordering::Release);
                        queues.waiting.retain(|waiting| !Arc::ptr_eq(waiting, &pending));
                        let failure = self.failure_of(&pending, status);
                        ended.push((pending, Some(failure)));
                    }
                }
            }
        }
        ended.extend(self.post(&mut queues));
        self.recover_if_flushed(&mut queues);
        drop(queues);
        self.end(ended);
    }
}

impl Watcher for Connection {
    fn closed_by_peer(self: Arc<Self>, closed: &Arc<TcpStream>) {
        let mut queues = self.queues.lock();
        if let Link::Up { queue_pair, stream } = &queues.link {
            if !Arc::ptr_eq(stream, closed) {
                // One of a former link says nothing any more.
                return;
            }
            let change = QueuePairChange { state: Some(State::Error), ..Default::default() };
            if let Err(error) = queue_pair.modify(&change) {
                log::debug!("the queue pair of a lost peer: {error}");
            }
            queues.fail();
        }
        self.recover_if_flushed(&mut queues);
    }
}

/// Has the peer destroy the queue pair of its side.
fn hang_up(stream: &TcpStream) {
    if let Err(error) = stream.shutdown(Shutdown::Both) {
        log::debug!("a peer has hung up before: {error}");
    }
}

fn request<'a>(number: u64, step: &'a Step) -> SendRequest<'a, Host> {
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

impl Queues {
    /// Takes a request that is complete.
    fn take(&mut self, number: u64) -> Option<Arc<AnyPending>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let pending = self.posted.get_mut(index)?.take()?;
        self.incomplete -= 1;
        while let Some(None) = self.posted.front() {
            self.posted.pop_front();
            self.first += 1;
        }
        Some(pending)
    }

    /// The queue pair has failed.
    fn fail(&mut self) {
        if let Link::Up { queue_pair, stream } = &self.link {
            hang_up(stream);
            self.link = Link::Failing { queue_pair: queue_pair.clone() };
        }
    }

    /// Keeps an operation that was flushed: once, however many of its steps were. What was not complete of it is posted again.
    fn flush(&mut self, number: u64, pending: Arc<AnyPending>) {
        pending.posted.store(pending.done.load(Ordering::Acquire), Ordering::Release);
        let is_kept = |kept: &Arc<AnyPending>| Arc::ptr_eq(kept, &pending);
        // One that is posted in part waits already, before all others.
        if !self.waiting.front().is_some_and(is_kept) && !self.flushed.iter().any(|(_, kept)| is_kept(kept)) {
            self.flushed.push((number, pending));
        }
    }
}

/// How an operation stands after one of its steps.
enum Progress {
    Ended,
    /// Other steps are under way.
    Further,
    /// It has to be posted once more.
    Again,
}

impl AnyPending {
    fn step_done(&self) -> Progress {
        let mut steps = self.steps.lock();
        // A swap's compare-swap comes again with what was found, until that is what it compared with.
        if self.name == SWAP {
            let found = self.word.load(Ordering::Acquire);
            if let Some(Step { operation: SendOperation::CompareSwap { compare, .. }, .. }) =
                steps.first_mut()
            {
                if *compare != found {
                    *compare = found;
                    self.posted.store(0, Ordering::Release);
                    return Progress::Again;
                }
            }
        }
        let done = self.done.fetch_add(1, Ordering::AcqRel) + 1;
        if done == steps.len() { Progress::Ended } else { Progress::Further }
    }
}
