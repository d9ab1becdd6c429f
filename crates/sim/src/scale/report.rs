//! What a run came to.

use super::ScalePlan;
use crate::network::NetworkCounters;
use std::ops::AddAssign;

/// Seconds that a part of a run took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PhaseTime {
    /// Of real time.
    pub wall: f64,
    /// Of this process's processor time. Others that use the processor do not count.
    pub processor: f64,
}

impl AddAssign for PhaseTime {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.processor += other.processor;
    }
}

/// What each part of a run took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PhaseTimes {
    /// Engines, completion queues, regions.
    pub hosts: PhaseTime,
    /// Queue pairs, from creation to RTS.
    pub connections: PhaseTime,
    /// The messages.
    pub messages: PhaseTime,
    /// The last look at all memory.
    pub check: PhaseTime,
}

impl PhaseTimes {
    /// The whole.
    pub fn total(&self) -> PhaseTime {
        let mut total = PhaseTime::default();
        for part in [self.hosts, self.connections, self.messages, self.check] {
            total += part;
        }
        total
    }
}

/// Resident bytes of this process at some moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResidentAt {
    pub start: u64,
    /// All hosts are made.
    pub hosts: u64,
    /// All connections are made.
    pub connections: u64,
    /// All messages have ended.
    pub messages: u64,
    /// The most.
    pub peak: u64,
}

/// What a run came to. All of it was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaleReport {
    pub plan: ScalePlan,
    pub queue_pairs: u64,
    pub messages: u64,
    pub bytes_checked: u64,
    /// Bytes of memory that messages were written to or sent from.
    pub message_memory: u64,
    /// Virtual nanoseconds until the last message ended.
    pub virtual_time: u64,
    /// Of them, until the last message came to another host than the first.
    pub virtual_time_of_others: u64,
    /// Times that a host ran.
    pub runs: u64,
    /// Packets that came to a port or a host, and events of hosts.
    pub happened: u64,
    pub network: NetworkCounters,
    pub resident: ResidentAt,
    pub times: PhaseTimes,
}

fn share(whole: u64, parts: u64) -> u64 {
    whole / parts.max(1)
}

impl ScaleReport {
    /// Resident bytes of one host before it has connections.
    pub fn bytes_per_host(&self) -> u64 {
        share(self.resident.hosts.saturating_sub(self.resident.start), self.plan.hosts as u64)
    }

    /// Resident bytes that one queue pair adds, when it is connected and has sent nothing.
    pub fn bytes_per_idle_queue_pair(&self) -> u64 {
        share(self.resident.connections.saturating_sub(self.resident.hosts), self.queue_pairs)
    }

    /// Resident bytes that one queue pair adds after its messages, without the memory of these.
    pub fn bytes_per_used_queue_pair(&self) -> u64 {
        let added = self.resident.messages.saturating_sub(self.resident.hosts);
        share(added.saturating_sub(self.message_memory), self.queue_pairs)
    }

    /// Processor seconds of the whole run for each host.
    pub fn processor_seconds_per_host(&self) -> f64 {
        self.times.total().processor / self.plan.hosts as f64
    }

    /// Processor seconds for each message, without those for hosts and connections.
    pub fn processor_seconds_per_message(&self) -> f64 {
        self.times.messages.processor / self.messages.max(1) as f64
    }

    /// Peers of the first host, which has most.
    pub fn most_peers(&self) -> usize {
        self.plan.topology().peers(0)
    }
}
