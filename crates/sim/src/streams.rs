//! Streams of the simulated world: ordered and without loss, until they break. What was under way then is lost from some packet on.

use crate::network::HostId;
use crate::process::ProcessId;
use pagewire_fabric::{StreamId, StreamState};
use std::fmt;
use std::str::FromStr;

/// What becomes of streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamFaults {
    /// Share of the attempts to open one that are refused.
    pub refused: f64,
    /// Share of the packets behind which one breaks.
    pub broken: f64,
    /// Share of the packets before which one stalls.
    pub stalled: f64,
}

impl StreamFaults {
    /// Streams that are opened and stay so.
    pub const NONE: StreamFaults = StreamFaults { refused: 0.0, broken: 0.0, stalled: 0.0 };
}

/// `REFUSED:BROKEN:STALLED`, as shares.
impl FromStr for StreamFaults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares: Option<Vec<f64>> = text
            .split(':')
            .map(|word| word.parse().ok().filter(|share| (0.0..=1.0).contains(share)))
            .collect();
        match shares.as_deref() {
            Some(&[refused, broken, stalled]) => Ok(StreamFaults { refused, broken, stalled }),
            _ => Err("three shares from 0 to 1 are expected, as in 0.1:0.001:0.01".to_owned()),
        }
    }
}

impl fmt::Display for StreamFaults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}:{}", self.refused, self.broken, self.stalled)
    }
}

/// Nanoseconds until a stream is open, or refused.
const OPEN_TIME: (u64, u64) = (10_000, 400_000);
/// Nanoseconds until one that was refused is tried again.
const PAUSE: u64 = 100_000_000;
/// Nanoseconds that one stalls at most.
const LONGEST_STALL: u64 = 2_000_000;

/// How a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SimStreamStage {
    Opening,
    /// To this process.
    Open(ProcessId),
    /// Until then.
    Closed(u64),
}

/// A stream from one process to the one that leases a block of a host.
struct SimStream {
    from: ProcessId,
    to: (HostId, u32),
    stage: SimStreamStage,
    openings: u32,
    /// How often it broke: what left before the last time does not arrive.
    breaks: u64,
    last_arrival: u64,
}

/// A packet of a stream on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPacket {
    pub stream: StreamId,
    /// The breaks of its stream when it left.
    pub breaks: u64,
    pub to: ProcessId,
    pub at: u64,
}

/// What sending did to a stream.
pub enum StreamSent {
    /// There is none: the packet is lost.
    Lost,
    OnItsWay(StreamPacket),
    /// It broke behind this packet, which may arrive, and is opened again by then.
    Broke(StreamPacket, u64),
}

/// All streams.
#[derive(Default)]
pub struct SimStreams(Vec<SimStream>);

impl SimStreams {
    fn opens_at(random: &mut fastrand::Rng, now: u64) -> u64 {
        now + random.u64(OPEN_TIME.0..=OPEN_TIME.1)
    }

    /// The stream to a block; gives also when it is to be [opened](Self::open), if that has just begun.
    pub fn find(
        &mut self,
        random: &mut fastrand::Rng,
        now: u64,
        from: ProcessId,
        to: (HostId, u32),
    ) -> (StreamId, StreamState, Option<u64>) {
        let known = self.0.iter().position(|stream| stream.from == from && stream.to == to);
        let place = known.unwrap_or_else(|| {
            let (stage, openings, breaks, last_arrival) = (SimStreamStage::Closed(0), 0, 0, 0);
            self.0.push(SimStream { from, to, stage, openings, breaks, last_arrival });
            self.0.len() - 1
        });
        let stream = &mut self.0[place];
        let begins = matches!(stream.stage, SimStreamStage::Closed(until) if now >= until);
        if begins {
            stream.stage = SimStreamStage::Opening;
        }
        let state = match stream.stage {
            SimStreamStage::Opening => StreamState::Connecting,
            SimStreamStage::Open(_) => StreamState::Open,
            SimStreamStage::Closed(_) => {
                StreamState::Refused("the simulated host takes no stream".to_owned())
            }
        };
        (StreamId(place as u32), state, begins.then(|| Self::opens_at(random, now)))
    }

    /// The block that a stream is to lead to, and whose it is; `None`: it is not being opened.
    pub fn opening(&self, id: StreamId) -> Option<(ProcessId, (HostId, u32))> {
        let stream = self.0.get(id.0 as usize)?;
        (stream.stage == SimStreamStage::Opening).then_some((stream.from, stream.to))
    }

    /// Ends an attempt to open one: `owner` takes it, or nobody.
    pub fn open(&mut self, id: StreamId, owner: Option<ProcessId>, now: u64) {
        let Some(stream) = self.0.get_mut(id.0 as usize) else { return };
        stream.stage = match owner {
            Some(owner) => {
                stream.openings += 1;
                SimStreamStage::Open(owner)
            }
            None => SimStreamStage::Closed(now + PAUSE),
        };
    }

    pub fn openings(&self, id: StreamId) -> u32 {
        self.0.get(id.0 as usize).map_or(0, |stream| stream.openings)
    }

    /// Whether packets have to wait.
    pub fn is_blocked(&self, id: StreamId) -> bool {
        self.0.get(id.0 as usize).is_some_and(|stream| stream.stage == SimStreamStage::Opening)
    }

    /// Sends a packet that is under way for so long at least.
    pub fn send(
        &mut self,
        random: &mut fastrand::Rng,
        faults: StreamFaults,
        (now, delay): (u64, u64),
        id: StreamId,
    ) -> StreamSent {
        let Some(stream) = self.0.get_mut(id.0 as usize) else { return StreamSent::Lost };
        let SimStreamStage::Open(to) = stream.stage else { return StreamSent::Lost };
        let stall = if random.f64() < faults.stalled { random.u64(0..=LONGEST_STALL) } else { 0 };
        stream.last_arrival = (stream.last_arrival + 1).max(now + delay) + stall;
        let packet = StreamPacket { stream: id, breaks: stream.breaks, to, at: stream.last_arrival };
        if random.f64() >= faults.broken {
            return StreamSent::OnItsWay(packet);
        }
        // What has not arrived by the next moment does not.
        stream.stage = SimStreamStage::Opening;
        stream.breaks += 1;
        StreamSent::Broke(packet, Self::opens_at(random, now))
    }

    /// Whether a packet arrives: its stream has not broken since.
    pub fn arrives(&self, packet: StreamPacket) -> bool {
        self.0.get(packet.stream.0 as usize).is_some_and(|stream| stream.breaks == packet.breaks)
    }

    /// The streams to a process that has ended break; gives those, each with when it is to be opened again.
    pub fn end(&mut self, random: &mut fastrand::Rng, now: u64, ended: ProcessId) -> Vec<(StreamId, u64)> {
        let mut broken = Vec::new();
        for (place, stream) in self.0.iter_mut().enumerate() {
            if stream.stage == SimStreamStage::Open(ended) {
                stream.stage = SimStreamStage::Opening;
                stream.breaks += 1;
                broken.push((StreamId(place as u32), Self::opens_at(random, now)));
            }
        }
        broken
    }
}
