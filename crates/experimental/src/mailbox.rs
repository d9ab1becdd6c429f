//! Messages between processes as redirected puts: each is one record of the receiver's log, and needs no thread of the receiver to arrive.
//!
//! A message of more than [`MAX_MESSAGE`] bytes does not exist. Those of one sender come in order.
//!
//! What the network cuts into several records is put together again: messages, and accesses to other pages of the same log.

use crate::probe::Probe;
use pagewire::access_log::LoggedOperation;
use pagewire::{Failure, Node, Operation, Region, RemoteRegion, Result, Rights, Token};
use pagewire_active::{Access, AccessLog, AttributesOf, LogOptions, Logs, PollOutcome};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Longest message in bytes.
pub const MAX_MESSAGE: usize = 1 << 14;
/// Messages of one sender that are under way at once: more means that the receiver does not read.
const IN_FLIGHT: usize = 4096;

/// Where messages come.
pub struct Mailbox {
    region: Region<u8>,
    log: AccessLog,
    token: Token,
    parts: Mutex<HashMap<(u64, u32), AccessBeginning>>,
}

/// The beginning of an access whose end has not come.
struct AccessBeginning {
    address: u64,
    bytes: Vec<u8>,
    is_contiguous: bool,
}

/// An access to a page of the log: a message, or one to another page.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'d> {
    pub source: u64,
    pub operation: LoggedOperation,
    /// Where it begins.
    pub address: u64,
    /// What was put, or what a get returned.
    pub bytes: &'d [u8],
    /// It is all there. Else a part was lost, or nobody knows whether it was made.
    pub is_whole: bool,
}

impl Mailbox {
    /// `bytes`: space for each source, at least four times the longest message.
    pub fn new(node: &Node, bytes: usize, sources: usize) -> Result<Mailbox> {
        let log = node.access_log_with(&LogOptions { sources, ..LogOptions::new(bytes) })?;
        let region = node.zeroed::<u8>(MAX_MESSAGE)?;
        region.attributes(..).redirect_puts().to(&log)?;
        let token = region.export(Rights::READ | Rights::WRITE)?;
        Ok(Mailbox { region, log, token, parts: Mutex::default() })
    }

    /// What senders open.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Says a word at the beginning, which others get.
    pub fn publish(&self, word: u64) -> Result<()> {
        self.region.write(0, &word.to_ne_bytes())
    }

    /// The log, for other pages whose accesses are to be in order with the messages.
    pub fn log(&self) -> &AccessLog {
        &self.log
    }

    /// Whether an access is a message, and no access of other pages.
    pub fn is_message(&self, incoming: &Incoming<'_>) -> bool {
        let end = self.region.address() + self.region.bytes();
        (self.region.address()..end).contains(&incoming.address)
    }

    /// Takes one record, if there is one. The handler sees the access when its last one has come.
    pub fn take(&self, handler: &mut dyn FnMut(Incoming<'_>)) -> PollOutcome {
        self.log.handle_one(|access| self.assemble(access, handler))
    }

    fn assemble(&self, access: Access<'_>, handler: &mut dyn FnMut(Incoming<'_>)) {
        let (source, operation) = (access.source(), access.operation());
        let (address, bytes) = (access.address(), access.bytes());
        // A redirected one is made again, or its source is dead.
        if access.may_have_written() && access.was_redirected() {
            return;
        }
        let is_unsure = access.may_have_written() || access.was_refused();
        if is_unsure || access.is_first() && access.is_last() {
            return handler(Incoming { source, operation, address, bytes, is_whole: !is_unsure });
        }
        let mut parts = self.parts.lock();
        if access.is_first() {
            // An earlier one of the source whose end never came.
            parts.retain(|(of, _), _| *of != source);
        }
        let part = parts.entry((source, access.message()));
        let part = part.or_insert_with(|| AccessBeginning {
            address,
            bytes: Vec::new(),
            is_contiguous: access.is_first(),
        });
        part.is_contiguous &= part.address + part.bytes.len() as u64 == address;
        if part.bytes.len() < 2 * MAX_MESSAGE {
            part.bytes.extend(bytes);
        }
        if !access.is_last() {
            return;
        }
        let part = parts.remove(&(source, access.message()));
        drop(parts);
        if let Some(AccessBeginning { address, bytes, is_contiguous }) = part {
            handler(Incoming { source, operation, address, bytes: &bytes, is_whole: is_contiguous });
        }
    }

    /// Ends a sleep.
    pub fn wake(&self) {
        self.log.wake();
    }

    /// Sleeps until a message comes; for so long at most.
    pub fn sleep(&self, at_most: Duration) {
        self.log.sleep(1, at_most);
    }
}

/// Sends messages to one mailbox. It never waits.
pub struct Sender {
    remote: RemoteRegion,
    in_flight: VecDeque<Operation<Vec<u8>>>,
    probe: Probe,
    failure: Option<Failure>,
}

impl Sender {
    pub fn new(remote: RemoteRegion) -> Self {
        Sender { probe: Probe::new(remote.clone(), 0), remote, in_flight: VecDeque::new(), failure: None }
    }

    /// Starts a message on its way. What becomes of it [`failure`](Self::failure) says.
    pub fn send(&mut self, message: Vec<u8>) {
        debug_assert!(message.len() <= MAX_MESSAGE, "a message of {} bytes", message.len());
        self.reap();
        if self.failure.is_none() {
            self.in_flight.push_back(self.remote.put(0, message));
        }
    }

    fn reap(&mut self) {
        while self.in_flight.front().is_some_and(Operation::is_done) {
            if let Some(Err(error)) = self.in_flight.pop_front().map(Operation::wait) {
                self.failure.get_or_insert(error.failure);
            }
        }
        if self.in_flight.len() >= IN_FLIGHT {
            let failure = Failure::TimedOut { operation: "a message", waited_for: "space in the peer's log" };
            self.failure.get_or_insert(failure);
        }
    }

    /// Why nothing more arrives; `None`: nobody knows of a reason. It also asks the receiver now and then, without waiting for it.
    pub fn failure(&mut self) -> Option<Failure> {
        self.reap();
        if let Some(failure) = self.probe.failure() {
            self.failure.get_or_insert_with(|| failure.clone());
        }
        self.failure.clone()
    }
}
