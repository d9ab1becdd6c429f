//! A random mixed workload that knows what every byte and every completion must be.
//!
//! Two or more parties, each an engine with some memory, are connected by queue pairs of all types. One thread
//! plays all the programs: it posts, polls, registers and deregisters, moves queue pairs to ERR and RESET and
//! sets them up again, and keeps a model beside it. Anything that differs from the model is a [`Violation`].
//! Nothing here knows which fabric is below: the simulator and real processes are driven alike.

mod atomics;
mod check;
mod connection;
mod draining;
mod driver;
mod lifecycle;
mod native;
mod natives;
mod party;
pub(crate) mod pattern;
mod post;
mod receive;
mod regions;
mod space;
mod succession;
mod window;

pub use driver::{Hooks, Workload};
pub use party::PartyInit;

use pagewire_fabric::Fabric;
use std::ops::AddAssign;

/// What the workload consists of.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadPlan {
    /// Decides everything that the workload chooses.
    pub seed: u64,
    /// Send requests to post.
    pub operations: u64,
    /// Connections; each is a queue pair at either end.
    pub connections: usize,
    /// Native connections beside them: put, get, put with signal, conditional writes.
    pub natives: usize,
    /// Some connections are extended reliable ones.
    pub extended: bool,
    /// Datagrams of some connections go to multicast groups.
    pub groups: bool,
    /// The network loses, doubles and reorders nothing, so that UC and UD messages arrive like others.
    pub exact: bool,
    /// Bytes of the longest message.
    pub longest: u32,
    /// Whether queue pairs go through ERR and RESET and regions are deregistered while work is under way.
    pub upheaval: bool,
    /// Whether programs overwrite the buffers of a request as soon as its flush is reported, as they may.
    pub reuse_flushed: bool,
    /// Send requests between two such acts.
    pub between_upheavals: u64,
    /// Send requests between two occasions at which everything is drained and all memory is compared.
    pub between_audits: u64,
    /// Send requests between two ends of processes, which others succeed. `None`: it never happens.
    pub between_crashes: Option<u64>,
    /// Nanoseconds after which nothing of a queue pair that was reset is under way any more, and what was sent unreliably has been
    /// placed, though pages had to come in for it.
    pub quiet_time: u64,
    /// Acknowledgement timeout of the RC queue pairs: 4.096 us times 2 to the power of this. On a real machine it must be
    /// longer than the processor may be away.
    pub timeout: u8,
    /// Nanoseconds in which something must happen while work is outstanding.
    pub patience: u64,
    /// The retry count of the RC queue pairs.
    pub retry_count: u8,
}

impl WorkloadPlan {
    /// A plan with the usual proportions.
    pub fn new(seed: u64, operations: u64) -> Self {
        WorkloadPlan {
            seed,
            operations,
            connections: 64,
            natives: 0,
            extended: true,
            groups: false,
            exact: true,
            longest: 1 << 20,
            upheaval: true,
            reuse_flushed: true,
            between_upheavals: 400,
            between_audits: 20_000,
            between_crashes: None,
            quiet_time: 20_000_000,
            timeout: 12,
            patience: 60_000_000_000,
            retry_count: 7,
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadReport {
    /// Send requests posted.
    pub operations: u64,
    /// Completions checked, of sends and of receives.
    pub completions: u64,
    /// Of them, those with an error, which the workload had provoked.
    pub errors: u64,
    /// Payload bytes compared.
    pub bytes_checked: u64,
    /// Atomics whose order was reconstructed.
    pub atomics: u64,
    /// Requests posted to extended reliable connections.
    pub extended: u64,
    /// Native operations that have ended, and among them conditional writes that were written.
    pub natives: u64,
    pub held_writes: u64,
    /// Conditional writes and releases that ended otherwise: cancelled, timed out, declined, withdrawn.
    pub withdrawn: u64,
    /// UC and UD messages posted, and those that arrived.
    pub unreliable_sent: u64,
    pub unreliable_received: u64,
    /// Of those, messages to multicast groups.
    pub group_received: u64,
    /// Times that a connection was brought down and up again.
    pub upheavals: u64,
    /// Times that a queue pair went through SQD.
    pub drains: u64,
    /// Processes that ended, and that came in their place.
    pub deaths: u64,
    pub successors: u64,
    /// RC connections to standard peers that were given up because too much was lost.
    pub given_up: u64,
    /// Deregistrations, and requests sent through keys that were dead.
    pub deregistrations: u64,
    pub stale_requests: u64,
    /// Requests that bind a memory window.
    pub binds: u64,
    /// FLUSHes after which memory was compared with what is persistent.
    pub flushes: u64,
    /// Times that everything was drained and compared.
    pub audits: u64,
    /// Longest time from the end of a process to the last error completion at a survivor, in nanoseconds.
    pub slowest_notice: u64,
}

impl AddAssign for WorkloadReport {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.completions += other.completions;
        self.errors += other.errors;
        self.bytes_checked += other.bytes_checked;
        self.atomics += other.atomics;
        self.extended += other.extended;
        self.natives += other.natives;
        self.held_writes += other.held_writes;
        self.withdrawn += other.withdrawn;
        self.unreliable_sent += other.unreliable_sent;
        self.unreliable_received += other.unreliable_received;
        self.group_received += other.group_received;
        self.upheavals += other.upheavals;
        self.drains += other.drains;
        self.deaths += other.deaths;
        self.successors += other.successors;
        self.given_up += other.given_up;
        self.deregistrations += other.deregistrations;
        self.stale_requests += other.stale_requests;
        self.binds += other.binds;
        self.flushes += other.flushes;
        self.audits += other.audits;
        self.slowest_notice = self.slowest_notice.max(other.slowest_notice);
    }
}

/// Something that the engine did wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, after {operations} operations: {what}")]
pub struct Violation {
    pub seed: u64,
    pub operations: u64,
    pub what: String,
    /// The connection that it was noticed on, if it was one, and the queue pair numbers of its ends.
    pub connection: Option<(usize, [u32; 2])>,
}

/// The surroundings of the parties: time, and what happens to their processes.
pub trait WorkloadStage<F: Fabric> {
    /// Nanoseconds on a clock that never goes back.
    fn now(&self) -> u64;
    /// Nothing is to be done before `next`, unless something arrives. False: nothing ever will.
    fn idle(&mut self, next: Option<u64>) -> bool;
    /// A party's turn begins.
    fn turn(&mut self, _party: usize) {}
    /// Whether a party's engine has no thread of its own, so that the workload decides whether that is just leaving the work to
    /// those who poll.
    fn has_no_thread(&self) -> bool {
        false
    }
    /// Whether a party's process lives.
    fn is_alive(&self, _party: usize) -> bool {
        true
    }
    /// A party's process is to end soon.
    fn crash(&mut self, _party: usize) {}
    /// A new process in the place of a dead party that nobody is concerned with any more. `None`: not now.
    fn successor(&mut self, _party: usize) -> Option<PartyInit<F>> {
        None
    }
    /// What a range of a party's memory held when it was last made persistent. `None`: some of it never was.
    fn synced(&self, _party: usize, _address: u64, _length: u64) -> Option<Vec<u8>> {
        None
    }
    /// Something was done on a connection; for a trace.
    fn note(&mut self, _connection: usize, _what: &dyn Fn() -> String) {}
}
