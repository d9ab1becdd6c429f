//! Memory of another process, as the holder of a token uses it.

use crate::error::{Error, Failure, Result, Rule, Side};
use crate::limits::MAX_LENGTH;
use crate::nodes::connection::{Executed, FLUSH, PeerConnection};
use crate::operations::buffer::{Buffer, BufferMut};
use crate::operations::flush::Flush;
use crate::operations::operation::{Operation, Started};
use crate::operations::pending::{AnyPending, PendingOperation, WorkStep, WorkSteps};
use crate::regions::rights::Rights;
use crate::regions::token::Token;
use pagewire_nic::{ScatterGather, SendOperation, flush_offset};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Exported memory of a process, opened by its token. Offsets are bytes from its first one.
///
/// Each call starts an operation at once and gives an [`Operation`], which may be waited for, polled, awaited or dropped. Operations to
/// one peer are executed in the order in which they were started.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Node, Rights};
/// let node = Node::alone()?;
/// let table = node.zeroed::<u64>(8)?;
/// let remote = node.open(&table.export(Rights::all())?)?;
/// let buffer = remote.put(0, vec![1u64, 2]).wait()?;
/// assert_eq!(remote.get_into(0, buffer).wait()?, [1, 2]);
/// assert_eq!(remote.fetch_add(8, 40).wait()?, 2);
/// assert_eq!(table.get(1)?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RemoteRegion {
    connection: Arc<PeerConnection>,
    pub(crate) token: Token,
}

/// A word of 8 bytes of a remote region that is changed behind a put.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let signal = remote.signal(8);
/// remote.signal_only(signal.set(3)).wait()?;
/// remote.signal_only(signal.add(4)).wait()?;
/// assert_eq!(table.get(1)?, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RemoteSignal {
    offset: u64,
}

/// What becomes of a signal behind a put.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let update = remote.signal(8).add(1);
/// remote.put_signal(16, vec![5u64], update).wait()?;
/// assert_eq!(table.get(1)?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SignalUpdate {
    offset: u64,
    change: Change,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Set(u64),
    Add(u64),
}

impl RemoteSignal {
    /// Sets it to a value.
    pub fn set(self, value: u64) -> SignalUpdate {
        SignalUpdate { offset: self.offset, change: Change::Set(value) }
    }

    /// Adds to it, as an atomic.
    #[allow(clippy::should_implement_trait)] // It says what the signal does; nothing is summed here.
    pub fn add(self, count: u64) -> SignalUpdate {
        SignalUpdate { offset: self.offset, change: Change::Add(count) }
    }
}

/// Address and count of bytes of a buffer.
type LocalBytes = (*const u8, usize);

/// The work requests of an operation, or the rule that it breaks.
pub(crate) type PlannedSteps = Result<SmallVec<[WorkStep; 2]>, Rule>;

impl RemoteRegion {
    pub(crate) fn new(connection: Arc<PeerConnection>, token: Token) -> Self {
        RemoteRegion { connection, token }
    }

    /// Bytes of it.
    pub fn length(&self) -> u64 {
        self.token.length
    }

    /// What may be done with it.
    pub fn rights(&self) -> Rights {
        self.token.rights
    }

    /// Puts the bytes of `buffer` at `offset`.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let buffer = remote.put(8, vec![1u64, 2]).wait()?; // or .await
    /// drop(remote.put(0, buffer)); // done all the same: the operation has the buffer
    /// remote.flush()?;
    /// assert_eq!((table.get(0)?, table.get(2)?), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put<B: Buffer>(&self, offset: u64, buffer: B) -> Operation<B> {
        let local = buffer.bytes();
        self.start("put", buffer, |_, buffer| buffer, |_| Ok(smallvec![self.write(offset, local)?]))
    }

    /// Puts one value at `offset`, which comes back in a vector.
    pub fn put_value<T: IntoBytes + Immutable + Send + Sync + 'static>(
        &self,
        offset: u64,
        value: T,
    ) -> Operation<Vec<T>> {
        self.put(offset, vec![value])
    }

    /// Puts the bytes of `buffer` at `offset`, then changes a signal: who sees that changed sees the bytes. The operation ends when both are
    /// done.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let put = remote.put_signal(0, vec![5u64, 6], remote.signal(120).add(1));
    /// table.signal(120)?.wait_until(|count| count == 1)?;
    /// assert_eq!((table.get(0)?, table.get(1)?), (5, 6)); // behind the signal the bytes are there
    /// put.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_signal<B: Buffer>(&self, offset: u64, buffer: B, update: SignalUpdate) -> Operation<B> {
        let local = buffer.bytes();
        self.start(
            "put with signal",
            buffer,
            |_, buffer| buffer,
            |word| Ok(smallvec![self.write(offset, local)?, self.update(update, word)?]),
        )
    }

    /// Puts pieces of `buffer`, one behind the other, each at its offset: `pieces` has offsets there and counts of bytes. The operation ends
    /// when all are there. One that is refused leaves those before it done.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// // 8 bytes to offset 64, then 16 to offset 0.
    /// remote.put_scattered(&[(64, 8), (0, 16)], vec![1u64, 2, 3]).wait()?;
    /// assert_eq!((table.get(8)?, table.get(0)?, table.get(1)?), (1, 2, 3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_scattered<B: Buffer>(&self, pieces: &[(u64, usize)], buffer: B) -> Operation<B> {
        let local = buffer.bytes();
        self.start("scattered put", buffer, |_, buffer| buffer, |_| self.pieces(pieces, local, Self::write))
    }

    /// Gets pieces from several offsets into `buffer`, one behind the other. Else as [`put_scattered`](Self::put_scattered).
    pub fn get_scattered<B: BufferMut>(&self, pieces: &[(u64, usize)], buffer: B) -> Operation<B> {
        let local = buffer.bytes();
        self.start("scattered get", buffer, |_, buffer| buffer, |_| self.pieces(pieces, local, Self::read))
    }

    /// Puts `buffer` in pieces of `piece` bytes, the first at `offset`, each `stride` bytes behind the one before: a column of a matrix.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// // The second column of a matrix of 4 x 4 elements.
    /// remote.put_strided(8, 32, 8, vec![1u64, 2, 3, 4]).wait()?;
    /// assert_eq!([1, 5, 9, 13].map(|index| table.get(index).unwrap()), [1, 2, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_strided<B: Buffer>(&self, offset: u64, stride: u64, piece: usize, buffer: B) -> Operation<B> {
        let pieces = strided(offset, stride, piece, buffer.bytes().1);
        self.put_scattered(&pieces, buffer)
    }

    /// Gets pieces of `piece` bytes into `buffer`. Else as [`put_strided`](Self::put_strided).
    pub fn get_strided<B: BufferMut>(
        &self,
        offset: u64,
        stride: u64,
        piece: usize,
        buffer: B,
    ) -> Operation<B> {
        let pieces = strided(offset, stride, piece, buffer.bytes().1);
        self.get_scattered(&pieces, buffer)
    }

    /// Starts several puts at once, in this order: the engine is notified once.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let puts = remote.put_batch((0..16).map(|index| (8 * index, vec![index])));
    /// for put in puts {
    ///     put.wait()?;
    /// }
    /// assert_eq!(table.get(15)?, 15);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_batch<B: Buffer>(&self, puts: impl IntoIterator<Item = (u64, B)>) -> Vec<Operation<B>> {
        self.batch("put", Self::write, puts)
    }

    /// Starts several gets at once, in this order. Else as [`put_batch`](Self::put_batch).
    pub fn get_batch<B: BufferMut>(&self, gets: impl IntoIterator<Item = (u64, B)>) -> Vec<Operation<B>> {
        self.batch("get", Self::read, gets)
    }

    fn batch<B: Buffer>(
        &self,
        name: &'static str,
        step: fn(&Self, u64, LocalBytes) -> Result<WorkStep, Rule>,
        transfers: impl IntoIterator<Item = (u64, B)>,
    ) -> Vec<Operation<B>> {
        let (mut all, mut good) = (Vec::new(), Vec::new());
        let connection = &self.connection;
        for (offset, buffer) in transfers {
            let local = buffer.bytes();
            let planned = self.plan(name, buffer, |_| Ok(smallvec![step(self, offset, local)?]), 0);
            if !planned.is_ended() {
                good.push(planned.clone() as Arc<AnyPending>);
            }
            all.push(Operation::started(Started::new(connection.clone(), planned, |_, buffer| buffer)));
        }
        connection.start(good);
        all
    }

    /// Whether there is a connection to the owner, as far as this process knows. Without one the next operation makes it.
    pub fn is_connected(&self) -> bool {
        self.connection.is_up()
    }

    /// Ends when the owner's handlers have returned for all accesses to this peer that were started before: the completion `handled`
    /// (PAPERS AA-6). `user_domain`: only for those that the log of this domain has.
    ///
    /// It has the logs handled at once, whatever number of records or time their readers wait for. It ends at once where nothing was logged. While a handler does not
    /// return it does not end, either: bound the time of the wait. What is started behind it does not wait for it.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// use pagewire::{Node, Rights};
    /// let node = Node::alone()?;
    /// let table = node.zeroed::<u64>(8)?;
    /// let remote = node.open(&table.export(Rights::WRITE)?)?;
    /// remote.put_value(0, 1u64).wait()?;
    /// remote.flush_handled(None).wait()?; // no page has attributes: nothing is waited for
    /// # Ok(())
    /// # }
    /// ```
    pub fn flush_handled(&self, user_domain: Option<u16>) -> Operation<Vec<u64>> {
        let buffer = vec![0u64];
        let local = Buffer::bytes(&buffer);
        let plan = |_: &AtomicU64| {
            let Some(flush) = self.connection.flush_region() else { return Ok(smallvec![]) };
            let offset = flush_offset(user_domain);
            // The peer has named the address, and checks it.
            let address = flush.address.wrapping_add(offset);
            let read = SendOperation::Read { address, key: flush.key };
            Ok(smallvec![self.step(read, local.0 as u64, local.1)])
        };
        let planned = self.plan(FLUSH, buffer, plan, 0);
        let connection = match planned.is_ended() {
            true => self.connection.clone(),
            false => self.connection.start_flush(planned.clone()),
        };
        Operation::started(Started::new(connection, planned, |_, buffer| buffer))
    }

    /// Changes a signal.
    pub fn signal_only(&self, update: SignalUpdate) -> Operation<()> {
        self.start("signal", (), |_, ()| (), |word| Ok(smallvec![self.update(update, word)?]))
    }

    /// The word of 8 bytes at `offset`, for [`put_signal`](Self::put_signal).
    pub fn signal(&self, offset: u64) -> RemoteSignal {
        RemoteSignal { offset }
    }

    /// Gets `count` elements from `offset` on.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// table.write(1, &[7, 8])?;
    /// assert_eq!(remote.get::<u64>(8, 2)?.wait()?, [7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NoMemory`: there is none for the buffer. The operation's end has its failure.
    pub fn get<T>(&self, offset: u64, count: usize) -> Result<Operation<Vec<T>>>
    where
        T: IntoBytes + FromBytes + Immutable + Send + Sync + 'static,
    {
        let no_memory = |_| Error::NoMemory((count as u64).saturating_mul(size_of::<T>() as u64));
        Ok(self.get_into(offset, T::new_vec_zeroed(count).map_err(no_memory)?))
    }

    /// Gets as many bytes from `offset` on as `buffer` has.
    pub fn get_into<B: BufferMut>(&self, offset: u64, buffer: B) -> Operation<B> {
        let local = buffer.bytes();
        self.start("get", buffer, |_, buffer| buffer, |_| Ok(smallvec![self.read(offset, local)?]))
    }

    /// Whether this process has the region mapped, so that [`with_words`](Self::with_words) works. Before the first operation to a peer has ended it
    /// does not.
    pub fn is_mapped(&self) -> bool {
        let Token { base, length, rights, .. } = self.token;
        rights.contains(Rights::all()) && self.connection.maps(base, length)
    }

    /// Works on the words of the region where they lie, if this process has them mapped: memory of the registered heap of a process of this host,
    /// and a token with all rights. Operations that were started before have ended. `None`: nothing was done; use operations, as for any peer.
    ///
    /// The owner cannot revoke the region while `work` runs, and whoever else uses the same peer from this process waits: keep it short. `work` must not
    /// call this interface for the same peer, which would wait for itself.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// use pagewire::{Node, Rights};
    /// use std::sync::atomic::Ordering::Relaxed;
    /// let (owner, caller) = (Node::alone()?, Node::alone()?);
    /// let table = owner.words(16)?;
    /// let remote = caller.open(&table.export(Rights::all())?)?;
    /// let sum = remote.with_words(|words| (0..16).map(|index| words[index].fetch_add(1, Relaxed)).sum::<u64>());
    /// // By operations where the memory is not mapped here: another host, or a host that forbids it.
    /// let sum = sum.unwrap_or_else(|| (0..16).map(|index| remote.fetch_add(8 * index, 1).wait().unwrap()).sum());
    /// assert_eq!((sum, table.words()[15].load(Relaxed)), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_words<R>(&self, work: impl FnOnce(&[AtomicU64]) -> R) -> Option<R> {
        let Token { base, key, length, .. } = self.token;
        let (mut work, mut result) = (Some(work), None);
        self.connection.with_words((base, key), length, &mut |words| {
            // A panic goes on behind the claim on the region.
            result = work.take().map(|work| catch_unwind(AssertUnwindSafe(|| work(words))));
        });
        result.map(|worked| worked.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Waits until everything that was started to this peer before has ended, at `remote`.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// drop(remote.put(0, vec![5u64]));
    /// remote.flush()?;
    /// assert_eq!(table.get(0)?, 5);
    /// drop(remote.put(128, vec![5u64])); // behind the end
    /// assert!(remote.flush().is_err());
    /// remote.flush()?; // told once
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first failure since the last flush of an operation that was dropped before its result was taken.
    pub fn flush(&self) -> Result<(), Failure> {
        self.start_flush().wait()
    }

    /// Starts a [`flush`](Self::flush), which may be waited for, polled or awaited.
    pub fn start_flush(&self) -> Flush {
        Flush::new(self.connection.clone().with_flushes())
    }

    /// The steps of a transfer of pieces, each made by `step`.
    fn pieces(
        &self,
        pieces: &[(u64, usize)],
        (address, count): LocalBytes,
        step: fn(&Self, u64, LocalBytes) -> Result<WorkStep, Rule>,
    ) -> PlannedSteps {
        let sum = pieces.iter().try_fold(0usize, |sum, (_, count)| sum.checked_add(*count));
        if sum != Some(count) {
            return Err(Rule::Pieces { pieces: sum.unwrap_or(usize::MAX) as u64, buffer: count as u64 });
        }
        let mut from = address;
        let made = pieces.iter().map(|(offset, count)| {
            let made = step(self, *offset, (from, *count));
            from = from.wrapping_add(*count);
            made
        });
        made.collect()
    }

    fn read(&self, offset: u64, (address, count): LocalBytes) -> Result<WorkStep, Rule> {
        let there = self.check(offset, count as u64, Rights::READ, "get")?;
        Ok(self.step(SendOperation::Read { address: there, key: self.token.key }, address as u64, count))
    }

    fn write(&self, offset: u64, (address, count): LocalBytes) -> Result<WorkStep, Rule> {
        let there = self.check(offset, count as u64, Rights::WRITE, "put")?;
        Ok(self.step(SendOperation::Write { address: there, key: self.token.key }, address as u64, count))
    }

    /// `word`: the operation's own, which holds the value that a signal is set to, or what it was.
    fn update(&self, update: SignalUpdate, word: &AtomicU64) -> Result<WorkStep, Rule> {
        let key = self.token.key;
        let operation = match update.change {
            Change::Set(value) => {
                word.store(value, Ordering::Release);
                let address = self.check_word(update.offset, Rights::WRITE, "put a signal")?;
                SendOperation::Write { address, key }
            }
            Change::Add(add) => {
                let address = self.check_word(update.offset, Rights::ATOMIC, "add to a signal")?;
                SendOperation::FetchAdd { address, key, add }
            }
        };
        Ok(self.step(operation, word.as_ptr() as u64, 8))
    }

    pub(crate) fn step(&self, operation: SendOperation, address: u64, count: usize) -> WorkStep {
        // `check` has refused more than fits in 32 bits.
        WorkStep {
            operation,
            local: ScatterGather { address, length: count as u32, key: self.connection.local_key() },
            repeats: None,
        }
    }

    /// The address at the owner of `count` bytes at `offset`.
    pub(crate) fn check(
        &self,
        offset: u64,
        count: u64,
        needed: Rights,
        what: &'static str,
    ) -> Result<u64, Rule> {
        let Token { length, base, rights, .. } = self.token;
        if count > MAX_LENGTH as u64 {
            return Err(Rule::Length(count));
        }
        if offset.checked_add(count).is_none_or(|end| end > length) {
            return Err(Rule::Bounds { offset, count, length });
        }
        if !rights.contains(needed) {
            return Err(Rule::Rights(what));
        }
        Ok(base + offset)
    }

    /// The address at the owner of the word of 8 bytes at `offset`.
    pub(crate) fn check_word(&self, offset: u64, needed: Rights, what: &'static str) -> Result<u64, Rule> {
        let address = self.check(offset, 8, needed, what)?;
        if address % 8 == 0 { Ok(address) } else { Err(Rule::Alignment { offset }) }
    }

    /// Starts an operation, whose plan gets the operation's own word; `finish` makes the result of what that holds at the end.
    ///
    /// What the memory of a local peer lets this thread do is done now, and never becomes an operation of the connection.
    pub(crate) fn start<B: Send + 'static>(
        &self,
        name: &'static str,
        buffer: B,
        finish: fn(u64, B) -> B,
        plan: impl Fn(&AtomicU64) -> PlannedSteps,
    ) -> Operation<B> {
        let word = AtomicU64::new(0);
        let executed = match plan(&word) {
            Ok(steps) => self.connection.execute_now(&steps, &word),
            Err(_) => Executed::default(),
        };
        if executed.is_whole {
            return Operation::executed(finish(word.into_inner(), buffer));
        }
        let planned = self.plan(name, buffer, plan, executed.steps);
        if planned.is_ended() {
            return Operation::started(Started::new(self.connection.clone(), planned, finish));
        }
        self.connection.start([planned.clone() as Arc<AnyPending>]);
        Operation::started(Started::new(self.connection.clone(), planned, finish))
    }

    /// An operation that is ready to be started, or has ended because it is refused or has nothing to do. `executed`: so many of its steps were.
    fn plan<B: Send + 'static>(
        &self,
        name: &'static str,
        buffer: B,
        plan: impl FnOnce(&AtomicU64) -> PlannedSteps,
        executed: usize,
    ) -> Arc<PendingOperation<Mutex<Option<B>>>> {
        let pending = Arc::new(PendingOperation::new(name, buffer));
        let failure = match plan(&pending.word) {
            _ if self.connection.is_forked() => Some(Failure::Forked { operation: name }),
            Ok(steps) if steps.is_empty() => None,
            Ok(steps) => {
                *pending.steps.lock() = WorkSteps::new(steps, executed);
                return pending;
            }
            Err(rule) => {
                let peer = self.connection.peer.socket();
                Some(Failure::Refused { operation: name, peer, side: Side::Caller, rule, landed: 0 })
            }
        };
        // Nobody knows the operation yet: there is nobody to be woken.
        pending.end(failure, self.connection.readiness());
        pending
    }
}

/// The pieces of a strided transfer of `count` bytes.
fn strided(offset: u64, stride: u64, piece: usize, count: usize) -> Vec<(u64, usize)> {
    if piece == 0 {
        // These are no pieces of so many bytes, which is refused.
        return Vec::new();
    }
    let starts = (0..count).step_by(piece).enumerate();
    starts
        .map(|(index, done)| {
            (offset.saturating_add(stride.saturating_mul(index as u64)), piece.min(count - done))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{Node, RemoteRegion, Rights};

    /// Whether transfers stay in the host. Says if not, as nothing is checked then.
    fn is_local(remote: &RemoteRegion) -> bool {
        let report = remote.connection.report().unwrap();
        if report.path != "local" {
            eprintln!("not checked: the path is {} ({})", report.path, report.reason);
        }
        report.path == "local"
    }

    /// Peers of this host that map the heap run atomics themselves: no packet leaves.
    #[test]
    fn atomics_on_mapped_memory_need_no_packet() {
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let table = owner.zeroed::<u64>(4).unwrap();
        let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
        let report = || remote.connection.report().unwrap();
        // The first transfer finds the peer and maps its memory.
        remote.put(0, vec![5u64]).wait().unwrap();
        if !is_local(&remote) {
            return;
        }
        let before = report();
        let started: Vec<_> = (0..100).map(|_| remote.fetch_add(0, 1)).collect();
        for (number, operation) in started.into_iter().enumerate() {
            assert_eq!(operation.wait().unwrap(), 5 + number as u64);
        }
        assert_eq!(remote.compare_swap(0, 105, 7).wait().unwrap(), 105);
        assert_eq!(remote.compare_swap(0, 105, 8).wait().unwrap(), 7);
        let after = report();
        assert_eq!(after.initiator_copies - before.initiator_copies, 102);
        assert_eq!(after.ring_packets_sent, before.ring_packets_sent);
        assert_eq!(table.get(0).unwrap(), 7);
    }

    /// So do accesses to watched pages, however long they are: this side writes the records itself.
    #[test]
    fn accesses_to_watched_pages_need_no_packet() {
        use crate::regions::access_log::{AccessLogInit, Next, PageAttributes, PageFlags};
        const PAGES: usize = 64;
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let table = owner.zeroed::<u64>(PAGES * 512).unwrap();
        let init = AccessLogInit { sources: 4, bytes: 1 << 20, is_ordered: true };
        let log = owner.make_access_log(&init).unwrap();
        let (user_domain, usual) = (log.user_domain(), PageFlags::READ | PageFlags::WRITE);
        let data = PageFlags::LOG_WRITE_DATA | PageFlags::LOG_READ_DATA;
        let flags = usual | PageFlags::TO_ACCESS_LOG | data;
        table.set_attributes(0..1 << 17, PageAttributes { flags, user_domain }).unwrap();
        let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
        let report = || remote.connection.report().unwrap();
        remote.put(0, vec![5u64]).wait().unwrap();
        if !is_local(&remote) {
            return;
        }
        let before = report().ring_packets_sent;
        assert_eq!(remote.fetch_add(0, 1).wait().unwrap(), 5);
        assert_eq!(remote.compare_swap(0, 6, 7).wait().unwrap(), 6);
        let values: Vec<u64> = (0..PAGES as u64 * 512).collect();
        remote.put(0, values.clone()).wait().unwrap();
        assert_eq!(remote.get::<u64>(0, PAGES * 512).unwrap().wait().unwrap(), values);
        assert_eq!(report().ring_packets_sent, before);
        let mut bytes = Vec::new();
        let mut records = Vec::new();
        while let Next::Record(header, receipt) = log.next(&mut bytes) {
            log.handled(receipt);
            records.push((header.operation as u8, header.length, bytes.len()));
        }
        // The second half of the pages is ordinary.
        let long = [(1, 1 << 16, 1 << 16); 2];
        let logged = long.map(|(_, length, data)| (2, length, data));
        assert_eq!(records[..3], [(1, 8, 8), (3, 8, 8), (4, 8, 16)]);
        assert_eq!((&records[3..5], &records[5..]), (&long[..], &logged[..]));
    }
}
