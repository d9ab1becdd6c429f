//! The links between hosts, and what they do to packets.

use crate::ports::{PortLimits, Ports};
use crate::streams::StreamFaults;
use std::collections::HashMap;
use std::ops::AddAssign;

/// Names a host, that is a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// What a link does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkFaults {
    /// Share of the packets that are lost.
    pub loss: f64,
    /// Share that arrives twice.
    pub duplicate: f64,
    /// Share that later packets overtake.
    pub reorder: f64,
    /// Share in which a bit is turned round; the receiver's ICRC tells.
    pub corrupt: f64,
    /// Nanoseconds that a packet is under way, from and to.
    pub delay: (u64, u64),
    /// Nanoseconds that a byte takes, in 1/1024.
    pub byte_time: u64,
    /// Packets under way at most; others are dropped.
    pub queue: usize,
    /// What becomes of streams; `None`: no host takes one.
    pub streams: Option<StreamFaults>,
}

impl LinkFaults {
    /// Whether whatever is sent arrives, once and in order.
    pub fn are_none(&self) -> bool {
        self.loss + self.duplicate + self.reorder + self.corrupt == 0.0
            && self.streams.is_none_or(|streams| streams.broken == 0.0)
    }

    /// A link of 40 Gbit/s that loses nothing.
    pub const NONE: LinkFaults = LinkFaults {
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        corrupt: 0.0,
        delay: (4_000, 8_000),
        byte_time: 205,
        queue: 65_536,
        streams: None,
    };

    /// A link that loses a share of the packets, and doubles, reorders and corrupts some.
    pub fn lossy(loss: f64) -> LinkFaults {
        LinkFaults {
            loss,
            duplicate: loss / 2.0,
            reorder: loss,
            corrupt: loss / 10.0,
            queue: 4096,
            ..LinkFaults::NONE
        }
    }
}

/// What happened on all links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkCounters {
    pub sent: u64,
    pub delivered: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    /// Corrupted ones that a receiver dropped for their ICRC.
    pub bad_icrc: u64,
    /// For want of room.
    pub overflowed: u64,
    /// For addresses or queue pair numbers that nobody has.
    pub unknown: u64,
    /// Of those sent, in streams.
    pub streamed: u64,
    /// Streams that broke.
    pub broken_streams: u64,
}

impl AddAssign for NetworkCounters {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
        self.bad_icrc += other.bad_icrc;
        self.overflowed += other.overflowed;
        self.unknown += other.unknown;
        self.streamed += other.streamed;
        self.broken_streams += other.broken_streams;
    }
}

#[derive(Default)]
struct SimLink {
    free_at: u64,
    last_arrival: u64,
    under_way: usize,
}

/// A copy of a packet on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketArrival {
    pub at: u64,
    /// One of its bits is turned round.
    pub corrupted: bool,
}

impl std::fmt::Display for PacketArrival {
    fn fmt(&self, into: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(into, "at {}{}", self.at, if self.corrupted { " corrupted" } else { "" })
    }
}

/// All links.
pub struct SimNetwork {
    pub faults: LinkFaults,
    pub counters: NetworkCounters,
    links: HashMap<(HostId, HostId), SimLink>,
    ports: Option<Ports>,
}

impl SimNetwork {
    pub fn new(faults: LinkFaults) -> Self {
        SimNetwork { faults, counters: NetworkCounters::default(), links: HashMap::new(), ports: None }
    }

    /// Gives each host one port, in the place of a link to each other host. Faults do not happen there.
    pub fn give_ports(&mut self, limits: PortLimits) {
        self.ports = Some(Ports::new(limits));
    }

    /// Whether each host has one port.
    pub fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// When a packet that comes to the port of its receiver has passed it. `None`: the port's queue was full.
    pub fn enter_port(&mut self, now: u64, to: HostId, length: usize) -> Option<u64> {
        let passed = self.ports.as_mut().map_or(Some(now), |ports| ports.enter(now, to, length));
        self.counters.overflowed += u64::from(passed.is_none());
        passed
    }

    /// When and how the copies of a packet arrive: none, one or two.
    pub fn send(
        &mut self,
        random: &mut fastrand::Rng,
        now: u64,
        from: HostId,
        to: HostId,
        length: usize,
    ) -> [Option<PacketArrival>; 2] {
        let faults = self.faults;
        self.counters.sent += 1;
        if let Some(ports) = &mut self.ports {
            let at = ports.leave(now, from, length);
            return [Some(PacketArrival { at, corrupted: false }), None];
        }
        let link = self.links.entry((from, to)).or_default();
        if link.under_way >= faults.queue {
            self.counters.overflowed += 1;
            return [None, None];
        }
        if random.f64() < faults.loss {
            self.counters.lost += 1;
            return [None, None];
        }
        link.free_at = link.free_at.max(now) + length as u64 * faults.byte_time / 1024;
        let mut arrivals = [None, None];
        let copies = if random.f64() < faults.duplicate { 2 } else { 1 };
        self.counters.duplicated += copies as u64 - 1;
        for arrival in &mut arrivals[..copies] {
            let mut at = link.free_at + random.u64(faults.delay.0..=faults.delay.1);
            if random.f64() < faults.reorder {
                self.counters.reordered += 1;
                at += random.u64(0..=8 * faults.delay.1);
            } else {
                at = at.max(link.last_arrival + 1);
                link.last_arrival = at;
            }
            link.under_way += 1;
            let corrupted = random.f64() < faults.corrupt;
            self.counters.corrupted += u64::from(corrupted);
            *arrival = Some(PacketArrival { at, corrupted });
        }
        arrivals
    }

    /// A packet has left a link.
    pub fn arrived(&mut self, from: HostId, to: HostId) {
        self.counters.delivered += 1;
        self.left(from, to);
    }

    /// It is not under way any more.
    pub fn left(&mut self, from: HostId, to: HostId) {
        if let Some(link) = self.links.get_mut(&(from, to)) {
            link.under_way = link.under_way.saturating_sub(1);
        }
    }
}
