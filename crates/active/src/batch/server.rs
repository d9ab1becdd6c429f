//! The owner's side: a mailbox whose log has the batches, and what is done with their puts.

use super::Address;
use crate::access::Access;
use crate::assembler::Assembler;
use crate::attributes::AttributesOf;
use crate::log::{AccessLog, Logs};
use crate::memory::Memory;
use crate::message::kind::BATCH;
use crate::message::{Entries, MAX_WORDS, parse};
use crate::serve::{Reported, Serving};
use pagewire::access_log::LoggedOperation;
use pagewire::{Error, Node, Region, Result, Rights};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromBytes;

/// Bytes of the log for each caller: some dozens of messages.
const LOG_BYTES: usize = 1 << 20;
/// Bytes of the mailbox: the longest message, in whole pages. Puts go to the log, so that none of them is ever touched.
const MAILBOX: usize = (8 * MAX_WORDS).next_multiple_of(4096);

/// What has come in batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchCounts {
    /// Messages.
    pub messages: u64,
    /// Puts in them.
    pub puts: u64,
    /// Messages of other processes that were none, or had a put outside of the memory. Nothing of them was done.
    pub malformed: u64,
    /// Puts that were not done, those of batches and single ones: the handler has panicked, or the memory cannot be accessed.
    pub failed: u64,
}

/// A put, as a handler gets it: one of a batch, or a single one. A single one of more than 64 KiB comes in parts.
#[derive(Clone, Copy)]
pub struct BatchedPut<'d> {
    memory: &'d dyn Memory,
    offset: u64,
    bytes: &'d [u8],
    source: u64,
}

impl<'d> BatchedPut<'d> {
    /// Where it goes to, in bytes from the beginning of the memory. It lies inside.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where it goes to, in the address space of this process.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.offset
    }

    /// What it writes.
    pub fn bytes(&self) -> &'d [u8] {
        self.bytes
    }

    /// The first bytes as a value. `None`: there are fewer.
    pub fn value<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.bytes).ok().map(|(value, _)| value)
    }

    /// Who puts: see [`Access::source`].
    pub fn source(&self) -> u64 {
        self.source
    }

    /// Has it reach memory, which it has not yet.
    ///
    /// # Errors
    /// That the memory cannot be accessed. Regions have none.
    pub fn write(&self) -> Result<()> {
        self.memory.copy_in(self.offset, self.bytes)
    }
}

/// Serves the batches of other processes, until it is dropped. Then they get a remote access error, and what was not flushed may be lost. Pages that
/// were redirected are ordinary ones again.
pub struct Batches {
    // Ends before the log does.
    serving: Serving,
    _log: AccessLog,
    _mailbox: Region<u64>,
    address: Vec<u8>,
    counts: Arc<Counts>,
    /// Whose pages redirect puts to the log.
    redirected: Option<Arc<dyn Memory + Send + Sync>>,
}

#[derive(Default)]
struct Counts {
    messages: AtomicU64,
    puts: AtomicU64,
    malformed: AtomicU64,
    failed: AtomicU64,
}

impl Batches {
    /// Has the puts of batches reach the memory, by a thread of this process. Its pages stay what they are: single puts reach it without that thread,
    /// and may overtake a batch that was not flushed.
    ///
    /// # Errors
    /// `NoMemory`, `Heap`: there is none for the mailbox; as those of [`Node::make_access_log`] and [`AccessLog::serve`].
    pub fn to_memory<M: Memory + Send + Sync + 'static>(node: &Node, memory: &Arc<M>) -> Result<Batches> {
        Batches::serve(node, memory.clone(), false, |put| {
            if let Err(error) = put.write() {
                log::error!("a put of a batch did not reach memory: {error}");
                resume_unwind(Box::new(Reported));
            }
        })
    }

    /// Redirects all puts to the memory to a handler, those of batches and single ones, each caller's in their order. Nothing reaches memory but what
    /// the handler [writes](BatchedPut::write). This sets the attributes of all pages.
    ///
    /// A handler that panics is reported, and the next put is handled.
    ///
    /// # Errors
    /// As those of [`to_memory`](Self::to_memory) and of [`Region::set_attributes`].
    pub fn redirect<M: Memory + Send + Sync + 'static>(
        node: &Node,
        memory: &Arc<M>,
        handler: impl FnMut(BatchedPut<'_>) + Send + 'static,
    ) -> Result<Batches> {
        Batches::serve(node, memory.clone(), true, handler)
    }

    fn serve(
        node: &Node,
        memory: Arc<dyn Memory + Send + Sync>,
        redirects: bool,
        handler: impl FnMut(BatchedPut<'_>) + Send + 'static,
    ) -> Result<Batches> {
        let mailbox = node.zeroed::<u64>(MAILBOX / 8)?;
        let log = node.access_log(LOG_BYTES)?;
        mailbox.attributes(..).redirect_puts().to(&log)?;
        let (length, domain) = (memory.bytes(), log.user_domain());
        let address = Address { mailbox: mailbox.export(Rights::WRITE)?, length, domain }.to_bytes();
        let counts = Arc::new(Counts::default());
        let mut server = Server {
            memory: memory.clone(),
            mailbox: mailbox.address()..mailbox.address() + mailbox.bytes(),
            messages: Assembler::default(),
            counts: counts.clone(),
            handler,
        };
        let serving = log.serve(move |access| server.handle(&access))?;
        let redirected = redirects.then_some(memory);
        if let Some(pages) = redirected.as_deref().and_then(|memory| memory.pages()) {
            pages.redirect_puts().to(&log)?;
        }
        Ok(Batches { serving, _log: log, _mailbox: mailbox, address, counts, redirected })
    }

    /// By which others put in batches here, [`BATCH_ADDRESS_LEN`](crate::BATCH_ADDRESS_LEN) bytes: whoever has it may do so.
    pub fn address(&self) -> Vec<u8> {
        self.address.clone()
    }

    /// What has come in batches so far.
    pub fn counts(&self) -> BatchCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Acquire);
        let Counts { messages, puts, malformed, failed } = &*self.counts;
        BatchCounts { messages: of(messages), puts: of(puts), malformed: of(malformed), failed: of(failed) }
    }

    /// Whether the calling thread is the one that serves: a handler calls.
    pub fn is_in_handler(&self) -> bool {
        self.serving.is_in_handler()
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // Its pages would refuse puts for ever.
        if let Some(pages) = self.redirected.as_deref().and_then(|memory| memory.pages()) {
            if let Err(error) = pages.set()
                && !matches!(error, Error::Forked)
            {
                log::warn!("the pages that redirected puts to batches refuse them from here on: {error}");
            }
        }
    }
}

struct Server<H> {
    memory: Arc<dyn Memory + Send + Sync>,
    /// Its addresses.
    mailbox: std::ops::Range<u64>,
    messages: Assembler,
    counts: Arc<Counts>,
    handler: H,
}

impl<H: FnMut(BatchedPut<'_>)> Server<H> {
    fn handle(&mut self, access: &Access<'_>) {
        if !self.mailbox.contains(&access.address()) {
            return self.handle_single(access);
        }
        let Some(message) = self.messages.take(access) else { return };
        let Some(puts) = puts_of(&message, self.memory.bytes()) else {
            self.counts.malformed.fetch_add(1, Ordering::AcqRel);
            return;
        };
        self.counts.messages.fetch_add(1, Ordering::AcqRel);
        let memory = self.memory.clone();
        let mut panicked: Option<Box<dyn Any + Send>> = None;
        for (offset, bytes) in puts.iter() {
            self.counts.puts.fetch_add(1, Ordering::AcqRel);
            let put = BatchedPut { memory: &*memory, offset, bytes, source: access.source() };
            // One put that fails is no reason to lose those behind it.
            if let Err(panic) = self.call(put) {
                panicked.get_or_insert(panic);
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    fn handle_single(&mut self, access: &Access<'_>) {
        // One that was taken away is made again, or its source is dead.
        let is_put = access.operation() == LoggedOperation::Write && access.was_redirected();
        if !is_put || access.may_have_written() || access.was_refused() {
            return;
        }
        if let Some(offset) = access.offset_from(self.memory.address()) {
            let bytes = access.bytes();
            let memory = self.memory.clone();
            let put = BatchedPut { memory: &*memory, offset, bytes, source: access.source() };
            if let Err(panic) = self.call(put) {
                resume_unwind(panic);
            }
        }
    }

    fn call(&mut self, put: BatchedPut<'_>) -> std::thread::Result<()> {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.handler)(put)));
        self.counts.failed.fetch_add(u64::from(outcome.is_err()), Ordering::AcqRel);
        outcome
    }
}

/// The puts of a message, if all of them lie inside of so many bytes.
fn puts_of(message: &[u8], length: u64) -> Option<Entries<'_>> {
    let (BATCH, count, rest) = parse(message)? else { return None };
    let puts = Entries::parse(count, rest)?;
    let is_inside = |(offset, bytes): (u64, &[u8])| {
        offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= length)
    };
    puts.iter().all(is_inside).then_some(puts)
}
