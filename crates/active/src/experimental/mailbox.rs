//! Messages between processes as redirected puts: each is one record of the receiver's log, and needs no thread of the receiver to arrive.
//!
//! A message of more than [`MAX_MESSAGE`] bytes does not exist. Those of one sender come in order.

use crate::access::Access;
use crate::attributes::AttributesOf;
use crate::log::{AccessLog, Found, LogOptions, Logs};
use pagewire::{Failure, Node, Operation, Region, RemoteRegion, Result, Rights, Token};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Longest message in bytes.
pub const MAX_MESSAGE: usize = 1 << 14;
/// Messages of one sender that are under way at once: more means that the receiver does not read.
const IN_FLIGHT: usize = 4096;
/// How often a sender asks whether the receiver is there, if it is asked itself.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Where messages come.
pub struct Mailbox {
    region: Region<u8>,
    log: AccessLog,
    token: Token,
}

impl Mailbox {
    /// `bytes`: space for each source, at least four times the longest message.
    pub fn new(node: &Node, bytes: usize, sources: usize) -> Result<Mailbox> {
        let log = node.access_log_with(&LogOptions { sources, ..LogOptions::new(bytes) })?;
        let region = node.zeroed::<u8>(MAX_MESSAGE)?;
        region.attributes(..).redirect_puts().to(&log)?;
        let token = region.export(Rights::READ | Rights::WRITE)?;
        Ok(Mailbox { region, log, token })
    }

    /// What senders open.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The log, for other pages whose accesses are to be in order with the messages.
    pub fn log(&self) -> &AccessLog {
        &self.log
    }

    /// Whether an access is a message, and no access of other pages.
    pub fn is_message(&self, access: &Access<'_>) -> bool {
        access.offset_from(self.region.address()).is_some_and(|at| at < self.region.bytes())
    }

    /// Takes one record, if there is one.
    pub fn take(&self, handler: &mut dyn FnMut(Access<'_>)) -> Found {
        self.log.shared().handle_one(handler)
    }

    /// Ends a sleep.
    pub fn wake(&self) {
        self.log.shared().wake();
    }

    /// Sleeps until a message comes; for so long at most.
    pub fn sleep(&self, at_most: Duration) {
        self.log.shared().sleep(1, at_most);
    }
}

/// Sends messages to one mailbox. It never waits.
pub struct Sender {
    remote: RemoteRegion,
    in_flight: VecDeque<Operation<Vec<u8>>>,
    probe: Option<Operation<Vec<u64>>>,
    probed: Instant,
    failure: Option<Failure>,
}

impl Sender {
    pub fn new(remote: RemoteRegion) -> Self {
        Sender { remote, in_flight: VecDeque::new(), probe: None, probed: Instant::now(), failure: None }
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
        match self.probe.take() {
            None if self.probed.elapsed() > PROBE_INTERVAL => {
                self.probed = Instant::now();
                self.probe = Some(self.remote.get_into(0, vec![0u64]));
            }
            None => {}
            Some(probe) => match probe.try_wait() {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => _ = self.failure.get_or_insert(error.failure),
                Err(probe) => self.probe = Some(probe),
            },
        }
        self.failure.clone()
    }
}
