//! One port for each host: what a host sends leaves one packet after the other, and so does what comes to it.

use crate::network::HostId;

/// What ports are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortLimits {
    /// Nanoseconds from the port of a sender to that of the receiver.
    pub delay: u64,
    /// Nanoseconds that a byte takes, in 1/1024.
    pub byte_time: u64,
    /// Bytes that wait at most in front of a receiver's port; more are dropped.
    pub queue: u64,
}

impl PortLimits {
    /// 40 Gbit/s, 5 us between two hosts, and 1 MiB that waits in front of a receiver.
    pub const USUAL: PortLimits = PortLimits { delay: 5_000, byte_time: 205, queue: 1 << 20 };

    fn time_of(&self, length: usize) -> u64 {
        length as u64 * self.byte_time / 1024
    }
}

/// Until when a host's port is busy, each way.
#[derive(Debug, Clone, Copy, Default)]
struct PortTimes {
    out: u64,
    into: u64,
}

/// The ports of all hosts.
pub struct Ports {
    limits: PortLimits,
    /// By host.
    times: Vec<PortTimes>,
}

impl Ports {
    pub fn new(limits: PortLimits) -> Self {
        Ports { limits, times: Vec::new() }
    }

    fn of(&mut self, host: HostId) -> &mut PortTimes {
        if self.times.len() <= host.0 {
            self.times.resize(host.0 + 1, PortTimes::default());
        }
        &mut self.times[host.0]
    }

    /// When a packet that leaves `from` comes to the port of its receiver.
    pub fn leave(&mut self, now: u64, from: HostId, length: usize) -> u64 {
        let (time, delay) = (self.limits.time_of(length), self.limits.delay);
        let port = self.of(from);
        port.out = port.out.max(now) + time;
        port.out + delay
    }

    /// When a packet that comes to the port of `to` has passed it. `None`: too much waits there.
    pub fn enter(&mut self, now: u64, to: HostId, length: usize) -> Option<u64> {
        let (time, most) = (self.limits.time_of(length), self.limits.queue * self.limits.byte_time / 1024);
        let port = self.of(to);
        if port.into.saturating_sub(now) + time > most {
            return None;
        }
        port.into = port.into.max(now) + time;
        Some(port.into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PortLimits = PortLimits { delay: 100, byte_time: 1024, queue: 25 };

    #[test]
    fn a_port_takes_one_packet_after_the_other() {
        let mut ports = Ports::new(LIMITS);
        assert_eq!([ports.leave(0, HostId(3), 10), ports.leave(0, HostId(3), 10)], [110, 120]);
        assert_eq!(ports.leave(0, HostId(1), 10), 110);
        assert_eq!([ports.enter(5, HostId(0), 10), ports.enter(5, HostId(0), 10)], [Some(15), Some(25)]);
        assert_eq!(ports.enter(5, HostId(1), 10), Some(15));
    }

    #[test]
    fn a_full_port_drops() {
        let mut ports = Ports::new(LIMITS);
        assert_eq!([0, 0, 0].map(|now| ports.enter(now, HostId(0), 10)), [Some(10), Some(20), None]);
        assert_eq!(ports.enter(10, HostId(0), 10), Some(30));
    }
}
