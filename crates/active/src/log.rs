//! Access logs, and how they are read: by polling, or by a thread.

use crate::access::Access;
use crate::serve::Serving;
use pagewire::access_log::{AccessLog as RawLog, AccessLogInit, Next, Receipt, RecordHeader};
use pagewire::waiting::{WhileWaiting, while_waiting};
use pagewire::{Node, Result};
use parking_lot::{Mutex, ReentrantMutex};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Sources that a log has space for, if nothing else is said.
const SOURCES: usize = 256;

/// How long a handler may wait, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// Rings that fit in a backlog.
const BACKLOG_RINGS: usize = 4;

/// How an access log is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes for each source, a connection of a peer. A record takes 48, and its data. One whose space is used up waits.
    pub bytes: usize,
    /// Sources at once, 4,096 at most. One more waits until another one has left.
    pub sources: usize,
    /// A record whose access began after another one had ended is never handled before it, whoever made them: A puts and tells B, B puts, and
    /// the owner sees A's first. Else only the records of one source are in order.
    pub is_ordered: bool,
    /// How long a handler may wait for an operation or a flush. Then that ends with an error, as do the others to the same peer: two handlers may
    /// wait for each other, or for space in each other's log. While a handler waits, its own log goes on being read, into a backlog of four
    /// times `bytes`.
    pub patience: Duration,
}

impl LogOptions {
    /// A log with so many bytes for each source, of 256 sources, in order.
    pub fn new(bytes: usize) -> Self {
        LogOptions { bytes, sources: SOURCES, is_ordered: true, patience: PATIENCE }
    }
}

/// When a thread that sleeps is woken: what comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Events {
    /// A source has so many records. A source that has less than a quarter of its space left wakes the thread, too, and so does a flush of handlers.
    pub threshold: u64,
    /// So much time has passed.
    pub interval: Duration,
}

impl Default for Events {
    /// At each record.
    fn default() -> Self {
        Events { threshold: 1, interval: Duration::from_millis(100) }
    }
}

/// Makes access logs.
pub trait Logs {
    /// Makes a log with so many bytes for each source, which has a user domain of its own.
    ///
    /// # Errors
    /// As those of [`Node::make_access_log`].
    fn access_log(&self, bytes: usize) -> Result<AccessLog> {
        self.access_log_with(&LogOptions::new(bytes))
    }

    /// Makes a log.
    ///
    /// # Errors
    /// As those of [`Node::make_access_log`].
    fn access_log_with(&self, options: &LogOptions) -> Result<AccessLog>;
}

impl Logs for Node {
    fn access_log_with(&self, options: &LogOptions) -> Result<AccessLog> {
        let LogOptions { bytes, sources, is_ordered, patience } = *options;
        let raw = self.make_access_log(&AccessLogInit { sources, bytes, is_ordered })?;
        let most = bytes.saturating_mul(BACKLOG_RINGS);
        let backlog = Mutex::new(Backlog { records: VecDeque::new(), bytes: 0, most });
        let data = ReentrantMutex::default();
        Ok(AccessLog { shared: Arc::new(Shared { raw, data, backlog, patience }) })
    }
}

/// What peers did to pages that name it (PAPERS AA-4). When it and all that [serve](Self::serve) it were dropped, it is read no more: its pages
/// refuse what they would have redirected.
pub struct AccessLog {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    raw: RawLog,
    /// The data of the record that is being handled. A handler that reads the log itself finds it in use.
    data: ReentrantMutex<RefCell<Vec<u8>>>,
    backlog: Mutex<Backlog>,
    patience: Duration,
}

/// Records that were read while a handler waited, oldest first.
struct Backlog {
    records: VecDeque<(RecordHeader, Receipt, Vec<u8>)>,
    bytes: usize,
    most: usize,
}

impl WhileWaiting for Shared {
    fn make_progress(&self) {
        let mut backlog = self.backlog.lock();
        while backlog.bytes < backlog.most {
            let mut data = Vec::new();
            let (header, receipt) = match self.raw.next(&mut data) {
                Next::Record(header, receipt) => (header, receipt),
                Next::Corrupt(source) => return report_damage(source),
                Next::InFlight | Next::Empty => return,
            };
            backlog.bytes += size_of::<RecordHeader>() + data.len();
            backlog.records.push_back((header, receipt, data));
        }
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

fn report_damage(source: u64) {
    log::warn!("source {source} has damaged its ring of an access log, which is closed");
}

/// What [`AccessLog::handle_one`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollOutcome {
    /// The handler was called with one record.
    Handled,
    /// No record is complete, and a peer's access to a page of the log is in flight: its record follows.
    InFlight,
    /// There is no record, and no access in flight. In a forked child always.
    Empty,
    /// The calling thread is in a handler of this log, which gives the next record when that handler has returned.
    InHandler,
}

impl Shared {
    /// Hands one record to a handler, after which it counts as handled, also where the handler panics.
    pub fn handle_one(self: &Arc<Self>, handler: &mut dyn FnMut(Access<'_>)) -> PollOutcome {
        if self.check_owner().is_err() {
            return PollOutcome::Empty;
        }
        self.handle_with(&self.data.lock(), handler)
    }

    /// [`handle_one`](Self::handle_one), unless another thread is at it.
    fn try_handle_one(self: &Arc<Self>, handler: &mut dyn FnMut(Access<'_>)) -> PollOutcome {
        if self.check_owner().is_err() {
            return PollOutcome::Empty;
        }
        match self.data.try_lock() {
            Some(data) => self.handle_with(&data, handler),
            None => PollOutcome::InFlight,
        }
    }

    fn handle_with(
        self: &Arc<Self>,
        data: &RefCell<Vec<u8>>,
        handler: &mut dyn FnMut(Access<'_>),
    ) -> PollOutcome {
        let Ok(mut data) = data.try_borrow_mut() else { return PollOutcome::InHandler };
        match self.next(&mut data) {
            Next::Record(header, receipt) => {
                let handle = || while_waiting(self.clone(), || handler(Access::of_record(header, &data)));
                let outcome = catch_unwind(AssertUnwindSafe(handle));
                self.raw.handled(receipt);
                outcome.unwrap_or_else(|panic| resume_unwind(panic));
                PollOutcome::Handled
            }
            Next::Corrupt(source) => {
                report_damage(source);
                PollOutcome::InFlight
            }
            Next::InFlight => PollOutcome::InFlight,
            Next::Empty => PollOutcome::Empty,
        }
    }

    /// The next record, of the backlog first.
    fn next(&self, data: &mut Vec<u8>) -> Next {
        let mut backlog = self.backlog.lock();
        match backlog.records.pop_front() {
            Some((header, receipt, kept)) => {
                backlog.bytes -= size_of::<RecordHeader>() + kept.len();
                *data = kept;
                Next::Record(header, receipt)
            }
            None => self.raw.next(data),
        }
    }

    pub fn sleep(&self, records: u64, at_most: Duration) {
        self.raw.sleep(records, at_most);
    }

    pub fn wake(&self) {
        self.raw.wake();
    }

    /// Refuses a forked child.
    pub fn check_owner(&self) -> Result<()> {
        Ok(self.raw.check_owner()?)
    }

    pub fn is_slept_for(&self) -> bool {
        self.raw.is_asleep()
    }
}

impl AccessLog {
    /// Refuses a forked child, where a log of its parent is [`Empty`](PollOutcome::Empty). Call it before you take a lock, because a thread of the parent may
    /// hold the lock.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_owner(&self) -> Result<()> {
        self.shared.check_owner()
    }

    /// The user domain of its pages.
    pub fn user_domain(&self) -> u16 {
        self.shared.raw.user_domain()
    }

    /// Whether the calling thread is in a handler of this log. Then [`poll`](Self::poll) gives nothing: a record comes when the handler of
    /// the one before has returned.
    pub fn is_in_handler(&self) -> bool {
        self.shared.data.is_owned_by_current_thread()
    }

    /// Hands the oldest record to a handler, if there is one, and says what it found (PAPERS AA-5, polling). It waits while another thread is in a handler of
    /// this log. A panic of the handler is the caller's; its record counts as handled.
    ///
    /// Unlike [`poll`](Self::poll) it says whether an access is in flight. A thread that takes records as a program asks for them polls by it, and
    /// [sleeps](Self::sleep) when it has found nothing for some time.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// use pagewire_active::{AttributesOf, Logs, PollOutcome};
    /// use std::time::Duration;
    ///
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(512)?;
    /// let log = node.access_log(1 << 16)?;
    /// table.attributes(..).redirect_puts().to(&log)?;
    /// # let remote = node.open(&table.export(Rights::WRITE)?)?;
    /// remote.put_value(0, 42u64).wait()?;
    /// let mut found = None;
    /// while log.handle_one(|access| found = access.value::<u64>()) != PollOutcome::Handled {
    ///     log.sleep(1, Duration::from_millis(20));
    /// }
    /// assert_eq!(found, Some(42));
    /// # Ok(())
    /// # }
    /// ```
    pub fn handle_one(&self, mut handler: impl FnMut(Access<'_>)) -> PollOutcome {
        self.shared.handle_one(&mut handler)
    }

    /// Sleeps until a source has `records` records that were not taken, or less than a quarter of its space left, or a flush of handlers waits, or a thread
    /// calls [`wake`](Self::wake); for the time `at_most` at most (PAPERS AA-5, interrupts by threshold). A forked child does not sleep.
    pub fn sleep(&self, records: u64, at_most: Duration) {
        self.shared.sleep(records, at_most);
    }

    /// Ends a [`sleep`](Self::sleep) of another thread. A thread that begins to sleep later does not notice it: where a thread is to end, set a flag that it reads,
    /// and wake it until it has ended.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Hands the records that there are to a handler, one after the other, and gives how many (PAPERS AA-5, polling). It does not wait, and
    /// gives none [within a handler](Self::is_in_handler) of the same log, or while another thread handles one. A panic of the handler is the
    /// caller's; its record counts as handled.
    pub fn poll(&self, handler: impl FnMut(Access<'_>)) -> usize {
        self.poll_at_most(usize::MAX, handler)
    }

    /// As [`poll`](Self::poll), and waits for a handler that another thread is in: when this returns, the handlers have returned for all records that
    /// there were. Two threads whose handlers drain each other's log wait for each other.
    pub fn drain(&self, mut handler: impl FnMut(Access<'_>)) -> usize {
        let mut count = 0;
        while self.shared.handle_one(&mut handler) == PollOutcome::Handled {
            count += 1;
        }
        count
    }

    /// [`poll`](Self::poll) of so many records at most: peers may make new ones as fast as they are read.
    pub fn poll_at_most(&self, most: usize, mut handler: impl FnMut(Access<'_>)) -> usize {
        let mut count = 0;
        while count < most && self.shared.try_handle_one(&mut handler) == PollOutcome::Handled {
            count += 1;
        }
        count
    }

    /// Hands each record to a handler as it comes, in a thread of its own, which sleeps while there is none. A handler that panics is counted
    /// and reported, and the log goes on.
    ///
    /// # Errors
    /// `System`: the thread cannot start.
    pub fn serve(&self, handler: impl FnMut(Access<'_>) + Send + 'static) -> Result<Serving> {
        self.serve_events(&Events::default(), handler)
    }

    /// As [`serve`](Self::serve), with a say in when the thread is woken (PAPERS AA-5, interrupts by threshold or interval).
    ///
    /// # Errors
    /// As those of [`serve`](Self::serve).
    pub fn serve_events(
        &self,
        events: &Events,
        handler: impl FnMut(Access<'_>) + Send + 'static,
    ) -> Result<Serving> {
        self.check_owner()?;
        Serving::start(self.shared.clone(), handler, Some(*events))
    }

    /// As [`serve`](Self::serve), by a thread that never sleeps (PAPERS AA-5, direct access): the shortest time, for a processor of its own.
    ///
    /// # Errors
    /// As those of [`serve`](Self::serve).
    pub fn serve_polling(&self, handler: impl FnMut(Access<'_>) + Send + 'static) -> Result<Serving> {
        self.check_owner()?;
        Serving::start(self.shared.clone(), handler, None)
    }
}
