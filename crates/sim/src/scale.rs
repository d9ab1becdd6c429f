//! Many hosts that run the engine, one process each, with a known pattern of messages.
//!
//! Unlike the [`workload`](crate::workload), which mixes every operation, this has one operation, a WRITE with immediate data, and
//! no faults but full queues: it shows what hosts and connections cost as their number grows. [`run`] is where a reader starts.
//!
//! Each host has a processor of its own: hosts run at the same virtual time. Only hosts that have input or a timer run at all.

mod cluster;
mod host;
mod queue;
mod report;
mod resident;
mod topology;

pub use report::{PhaseTime, PhaseTimes, ResidentAt, ScaleReport};
pub use resident::resident_bytes;
pub use topology::Topology;

use crate::plant::Plant;
use crate::ports::PortLimits;
use cluster::Cluster;
use std::fmt;
use std::str::FromStr;

/// Which hosts send to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleWorkload {
    /// Each host to all its peers.
    AllToAll,
    /// All hosts to the first.
    Incast,
    /// Each host to all its peers, while pages of the first host that messages go to are absent.
    SlowPager,
}

impl ScaleWorkload {
    /// All of them.
    pub const ALL: [ScaleWorkload; 3] =
        [ScaleWorkload::AllToAll, ScaleWorkload::Incast, ScaleWorkload::SlowPager];

    /// As the command names it.
    pub fn name(self) -> &'static str {
        match self {
            ScaleWorkload::AllToAll => "all-to-all",
            ScaleWorkload::Incast => "incast",
            ScaleWorkload::SlowPager => "slow-pager",
        }
    }
}

impl fmt::Display for ScaleWorkload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for ScaleWorkload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = ScaleWorkload::ALL.into_iter().find(|workload| workload.name() == text);
        found.ok_or_else(|| "one of all-to-all, incast and slow-pager is expected".to_owned())
    }
}

/// What a run consists of.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalePlan {
    pub seed: u64,
    pub workload: ScaleWorkload,
    /// At least 2.
    pub hosts: usize,
    /// Peers of each host, on a circle of hosts. `None`: all other hosts. Incast has no use for it.
    pub peers: Option<usize>,
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages to each peer.
    pub rounds: u32,
    /// Messages that a host has outstanding at most.
    pub depth: u32,
    /// Acknowledgement timeout of ibv_modify_qp(3): 4.096 us times 2 to the power of this.
    pub timeout: u8,
    /// Virtual nanoseconds after which the absent pages of a slow pager come in.
    pub pager_time: u64,
    /// Virtual nanoseconds in which all must be done.
    pub patience: u64,
    pub ports: PortLimits,
    /// Resident bytes of this process from which on a run is given up.
    pub memory_limit: u64,
    /// A bug of the first host, after so many harmless chances: it must be found.
    pub plant: Option<(Plant, u32)>,
}

impl ScalePlan {
    /// The usual proportions.
    pub fn new(workload: ScaleWorkload, hosts: usize) -> Self {
        let (peers, bytes, rounds) = match workload {
            ScaleWorkload::AllToAll => (None, 512, 1),
            ScaleWorkload::Incast => (None, 16 << 10, 4),
            ScaleWorkload::SlowPager => (Some(8), 4096, 8),
        };
        ScalePlan {
            seed: 1,
            workload,
            hosts,
            peers: peers.filter(|peers| *peers < hosts - 1),
            bytes,
            rounds,
            depth: 64,
            timeout: 14,
            pager_time: 100_000_000,
            patience: 60_000_000_000,
            ports: PortLimits::USUAL,
            memory_limit: 12 << 30,
            plant: None,
        }
    }

    /// Who is connected with whom.
    pub fn topology(&self) -> Topology {
        match self.workload {
            ScaleWorkload::Incast => Topology::star(self.hosts),
            ScaleWorkload::AllToAll | ScaleWorkload::SlowPager => {
                Topology::circle(self.hosts, self.peers.unwrap_or(self.hosts - 1), self.seed)
            }
        }
    }

    /// The bytes of one message, which no other message of the run has.
    fn payload(&self, from: usize, to: usize, round: u32) -> Vec<u8> {
        let id = (from * self.hosts + to) as u64 * u64::from(self.rounds) + u64::from(round);
        crate::workload::pattern::of(id ^ self.seed << 48, self.bytes as usize)
    }
}

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScaleFailure {
    /// The engine did something wrong.
    #[error("host {host}: {what}")]
    Wrong { host: usize, what: String },
    /// The engine refused a call.
    #[error("host {host}: {call} was refused: {reason}")]
    Refused { host: usize, call: &'static str, reason: String },
    /// Messages are missing, and nothing will happen any more or time is up.
    #[error("{missing} of {messages} messages have not ended after {virtual_seconds} s of virtual time")]
    Stalled { missing: u64, messages: u64, virtual_seconds: u64 },
    /// The process has become larger than it may.
    #[error("{resident} bytes are resident, and {limit} may be, with {done}")]
    TooLarge { resident: u64, limit: u64, done: String },
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleProgress {
    /// What is being done.
    pub phase: &'static str,
    pub done: u64,
    pub total: u64,
    pub virtual_nanoseconds: u64,
}

/// Makes the hosts, connects them, has them exchange all messages, and checks what arrived.
///
/// # Errors
/// If a byte, a completion or a count is wrong, if a message does not end, or if the process becomes too large.
pub fn run(plan: &ScalePlan, progress: &mut dyn FnMut(ScaleProgress)) -> Result<ScaleReport, ScaleFailure> {
    Cluster::new(plan, progress).run()
}
