//! A fabric that loses, doubles, reorders, damages and delays packets on purpose, from a seed.
//!
//! It wraps any other one. Faults happen to packets that are sent; what a receiver sees is the same as if the
//! network had done it. The local path is untouched.

use crate::counters::Counter;
use crate::fabric::{
    Batch, ChannelId, Datagram, Direction, Fabric, FabricEvent, PrefetchError, RegionPart, Route,
    burst_one_by_one,
};
use crate::limits::{BATCH_BYTES, BATCH_PACKETS, DELAYED_PACKETS};
use pagewire_iommu::{RegionLife, RegionView};
use pagewire_memory::{ApplicationMemory, MemoryError, Segment};
use pagewire_paging::{PageIn, Stretch, Tenant};
use pagewire_wire::Opcode;
use parking_lot::Mutex;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Names the faults that processes are to make: see [`FaultPlan::parse`].
pub const FAULTS_VARIABLE: &str = "PAGEWIRE_FAULTS";

/// Packets that overtake a reordered one, at most.
const OVERTAKERS: u64 = 8;
/// Nanoseconds that a reordered packet waits for others to overtake it.
const OVERTAKE_TIME: u64 = 500_000;

/// Which faults, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FaultPlan {
    /// Probability that a packet is lost, and so on.
    pub drop: f64,
    pub duplicate: f64,
    pub reorder: f64,
    /// A bit is turned round after the ICRC was computed.
    pub corrupt: f64,
    /// Of so many RESUMEs one is lost; 0: none.
    pub lose_resume: u64,
    /// How long every packet is held back.
    pub delay: Duration,
    pub seed: u64,
}

impl FaultPlan {
    /// Reads `drop=0.01,duplicate=0.01,reorder=0.01,corrupt=0.001,lose_resume=2,delay=100us,seed=7`; each may be missing.
    ///
    /// # Errors
    /// What is wrong, as one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = FaultPlan::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) =
                item.split_once('=').ok_or_else(|| format!("`{item}` has no value (name=value)"))?;
            let (name, value) = (name.trim(), value.trim());
            match name {
                "drop" => plan.drop = probability(name, value)?,
                "duplicate" => plan.duplicate = probability(name, value)?,
                "reorder" => plan.reorder = probability(name, value)?,
                "corrupt" => plan.corrupt = probability(name, value)?,
                "lose_resume" => {
                    plan.lose_resume =
                        value.parse().map_err(|_| format!("lose_resume `{value}` is no whole number"))?
                }
                "delay" => plan.delay = duration(value)?,
                "seed" => {
                    plan.seed = value.parse().map_err(|_| format!("seed `{value}` is no whole number"))?
                }
                _ => {
                    return Err(format!(
                        "`{name}` is no fault (there are drop, duplicate, reorder, corrupt, lose_resume, delay, and seed)"
                    ));
                }
            }
        }
        Ok(plan)
    }

    /// The plan of [`FAULTS_VARIABLE`]; without it, no faults.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn from_environment() -> Result<Self, String> {
        match std::env::var(FAULTS_VARIABLE) {
            Ok(text) => Self::parse(&text).map_err(|error| format!("{FAULTS_VARIABLE}: {error}")),
            Err(std::env::VarError::NotPresent) => Ok(FaultPlan::default()),
            Err(error) => Err(format!("{FAULTS_VARIABLE}: {error}")),
        }
    }

    /// Whether nothing will happen.
    pub fn is_empty(&self) -> bool {
        FaultPlan { seed: 0, ..*self } == FaultPlan::default()
    }
}

fn probability(name: &str, value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(probability) if (0.0..=1.0).contains(&probability) => Ok(probability),
        _ => Err(format!("{name} `{value}` is no probability from 0 to 1")),
    }
}

fn duration(value: &str) -> Result<Duration, String> {
    let wrong = || format!("delay `{value}` is no time of up to 10 s (such as 100us, 2ms)");
    let digits = value.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = value[..digits].parse().map_err(|_| wrong())?;
    let unit = match &value[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let nanoseconds = number.checked_mul(unit).filter(|all| *all <= 10_000_000_000).ok_or_else(wrong)?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// What was done to packets.
#[derive(Debug, Default)]
pub struct FaultCounters {
    pub dropped: Counter,
    pub duplicated: Counter,
    pub reordered: Counter,
    pub corrupted: Counter,
    pub delayed: Counter,
}

impl FaultCounters {
    /// All of them, with their names.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let FaultCounters { dropped, duplicated, reordered, corrupted, delayed } = self;
        let packets = [("dropped", dropped), ("duplicated", duplicated), ("reordered", reordered)];
        let all = packets.into_iter().chain([("corrupted", corrupted), ("delayed", delayed)]);
        all.map(|(name, counter)| (name, counter.get())).collect::<Vec<_>>().into_iter()
    }
}

/// A fabric with faults. Without any ([`FaultPlan::is_empty`]) it costs nothing.
pub struct FaultInjector<F> {
    inner: F,
    plan: FaultPlan,
    state: Mutex<State>,
    counters: FaultCounters,
}

struct State {
    random: Pcg64,
    /// Packets sent so far.
    count: u64,
    /// RESUMEs among them.
    resumes: u64,
    held: Vec<Held>,
}

struct Held {
    /// Leaves when this time has come,
    due: u64,
    /// or, if reordered, when so many packets have been sent.
    after: Option<u64>,
    packet: Recorded,
}

#[derive(Clone)]
struct Recorded {
    route: Route,
    bytes: Vec<u8>,
    damage: Option<usize>,
}

/// A batch under a [`FaultInjector`].
pub enum FaultBatch<B> {
    /// No faults: the wrapped fabric's own.
    Direct(B),
    /// Packets whose fate is not decided yet.
    Recorded(RecordedBatch),
}

/// See [`FaultBatch`].
#[derive(Default)]
pub struct RecordedBatch {
    packets: Vec<Recorded>,
    used: usize,
}

impl<B: Batch> Batch for FaultBatch<B> {
    fn fits(&self, length: usize) -> bool {
        match self {
            FaultBatch::Direct(batch) => batch.fits(length),
            FaultBatch::Recorded(batch) => {
                batch.packets.len() < BATCH_PACKETS && batch.used + length <= BATCH_BYTES
            }
        }
    }

    fn packet(&mut self, route: &Route, length: usize) -> Option<&mut [u8]> {
        if !self.fits(length) {
            return None;
        }
        match self {
            FaultBatch::Direct(batch) => batch.packet(route, length),
            FaultBatch::Recorded(batch) => {
                batch.used += length;
                batch.packets.push(Recorded { route: *route, bytes: vec![0; length], damage: None });
                batch.packets.last_mut().map(|packet| &mut packet.bytes[..])
            }
        }
    }

    fn cancel(&mut self) {
        match self {
            FaultBatch::Direct(batch) => batch.cancel(),
            FaultBatch::Recorded(batch) => {
                if let Some(packet) = batch.packets.pop() {
                    batch.used -= packet.bytes.len();
                }
            }
        }
    }

    fn burst(
        &mut self,
        route: &Route,
        length: usize,
        count: usize,
        fill: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> usize {
        match self {
            FaultBatch::Direct(batch) => batch.burst(route, length, count, fill),
            // Each has a fate of its own.
            FaultBatch::Recorded(_) => burst_one_by_one(self, route, length, count, fill),
        }
    }

    fn damage(&mut self, bit: usize) {
        match self {
            FaultBatch::Direct(batch) => batch.damage(bit),
            FaultBatch::Recorded(batch) => {
                if let Some(packet) = batch.packets.last_mut() {
                    packet.damage = Some(bit);
                }
            }
        }
    }
}

impl<F: Fabric> FaultInjector<F> {
    /// Wraps a fabric.
    pub fn new(inner: F, plan: FaultPlan) -> Self {
        let random = Pcg64::seed_from_u64(plan.seed);
        let state = Mutex::new(State { random, count: 0, resumes: 0, held: Vec::new() });
        FaultInjector { inner, plan, state, counters: FaultCounters::default() }
    }

    /// The wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// What happens.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// What has happened.
    pub fn counters(&self) -> &FaultCounters {
        &self.counters
    }

    /// Decides each packet's fate; those that leave now, in their order.
    fn decide(&self, packets: Vec<Recorded>, now: u64) -> Vec<Recorded> {
        let mut state = self.state.lock();
        let delay = self.plan.delay.as_nanos() as u64;
        let mut leaving = Vec::with_capacity(packets.len() + 4);
        for mut packet in packets {
            state.count += 1;
            // Each packet takes an equal number of draws, so that one probability does not change the others' fates.
            let [drop, duplicate, reorder, corrupt] = std::array::from_fn(|_| unit(&mut state.random));
            let (bit, overtakers) = (state.random.next_u64(), state.random.next_u64());
            let is_resume = packet.bytes.first() == Some(&Opcode::RESUME.0);
            state.resumes += u64::from(is_resume);
            let lost = is_resume && self.plan.lose_resume > 0 && state.resumes % self.plan.lose_resume == 0;
            if drop < self.plan.drop || lost {
                self.counters.dropped.add(1);
                continue;
            }
            let twin = (duplicate < self.plan.duplicate).then(|| packet.clone());
            if corrupt < self.plan.corrupt {
                self.counters.corrupted.add(1);
                packet.damage = Some((bit % (packet.bytes.len() as u64 * 8)) as usize);
            }
            let room = state.held.len() < DELAYED_PACKETS;
            if reorder < self.plan.reorder && room {
                self.counters.reordered.add(1);
                let after = Some(state.count + 1 + overtakers % OVERTAKERS);
                state.held.push(Held { due: now + delay + OVERTAKE_TIME, after, packet });
            } else if delay > 0 && room {
                self.counters.delayed.add(1);
                state.held.push(Held { due: now + delay, after: None, packet });
            } else {
                leaving.push(packet);
            }
            if let Some(twin) = twin {
                self.counters.duplicated.add(1);
                if delay > 0 && room {
                    state.held.push(Held { due: now + delay, after: None, packet: twin });
                } else {
                    leaving.push(twin);
                }
            }
            take_due(&mut state, now, &mut leaving);
        }
        leaving
    }

    fn send(&self, packets: Vec<Recorded>) {
        if packets.is_empty() {
            return;
        }
        let mut batch = self.inner.batch();
        for packet in packets {
            // A full batch leaves; a fresh one takes any packet.
            for _ in 0..2 {
                if let Some(room) = batch.packet(&packet.route, packet.bytes.len()) {
                    room.copy_from_slice(&packet.bytes);
                    if let Some(bit) = packet.damage {
                        batch.damage(bit);
                    }
                    break;
                }
                self.inner.flush(std::mem::replace(&mut batch, self.inner.batch()));
            }
        }
        self.inner.flush(batch);
    }

    /// Sends held packets whose time has come.
    fn send_due(&self) {
        if self.plan.is_empty() {
            return;
        }
        let mut leaving = Vec::new();
        take_due(&mut self.state.lock(), self.inner.now(), &mut leaving);
        self.send(leaving);
    }

    fn earliest(&self) -> Option<u64> {
        if self.plan.is_empty() {
            return None;
        }
        self.state.lock().held.iter().map(|held| held.due).min()
    }
}

fn unit(random: &mut Pcg64) -> f64 {
    // 53 bits: what an f64 holds.
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn take_due(state: &mut State, now: u64, leaving: &mut Vec<Recorded>) {
    let count = state.count;
    let due = |held: &Held| held.due <= now || held.after.is_some_and(|after| after <= count);
    // Held packets are in the order in which they were sent.
    let (out, kept): (Vec<Held>, Vec<Held>) = std::mem::take(&mut state.held).into_iter().partition(due);
    state.held = kept;
    leaving.extend(out.into_iter().map(|held| held.packet));
}

impl<F: Fabric> Fabric for FaultInjector<F> {
    type Words = F::Words;
    type Memory = F::Memory;
    type Batch = FaultBatch<F::Batch>;

    fn memory(&self) -> &Self::Memory {
        self.inner.memory()
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn past(&self) -> u64 {
        self.inner.past()
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn instance(&self) -> u64 {
        self.inner.instance()
    }

    fn lease_blocks(&self, count: usize) -> std::io::Result<Vec<u32>> {
        self.inner.lease_blocks(count)
    }

    fn count_bad_header(&self) {
        self.inner.count_bad_header();
    }

    fn await_steering(&self) {
        self.inner.await_steering();
    }

    fn tables(&self) -> &Self::Words {
        self.inner.tables()
    }

    fn mailbox(&self) -> &Self::Words {
        self.inner.mailbox()
    }

    fn refuse_channels(&self) {
        self.inner.refuse_channels();
    }

    fn is_local(&self, address: IpAddr) -> Result<bool, String> {
        self.inner.is_local(address)
    }

    fn connect(&self, block: u32) {
        self.inner.connect(block);
    }

    fn wake(&self, channel: ChannelId) {
        self.inner.wake(channel);
    }

    fn bring_in(&self, tenant: Tenant, parts: &[RegionPart], write: bool, token: u64) {
        self.inner.bring_in(tenant, parts, write, token);
    }

    fn bring_in_peer(
        &self,
        process: &<Self::Memory as ApplicationMemory>::Process,
        regions: &RegionView<Self::Words>,
        part: RegionPart,
        token: u64,
    ) {
        self.inner.bring_in_peer(process, regions, part, token);
    }

    fn bring_in_ahead(
        &self,
        tenant: Tenant,
        region: RegionLife,
        stretch: &Arc<Stretch>,
        write: bool,
        helpers: u32,
    ) {
        self.inner.bring_in_ahead(tenant, region, stretch, write, helpers);
    }

    fn prefetch(&self, parts: &[RegionPart], write: bool, wait: bool) -> Result<(), PrefetchError> {
        self.inner.prefetch(parts, write, wait)
    }

    #[inline]
    fn end_bring_in(&self, region: u32) {
        self.inner.end_bring_in(region);
    }

    fn brings_in(&self) -> bool {
        self.inner.brings_in()
    }

    fn has_processors_for_helpers(&self) -> bool {
        self.inner.has_processors_for_helpers()
    }

    fn move_absent(
        &self,
        direction: Direction,
        process: &<Self::Memory as ApplicationMemory>::Process,
        segments: (&[Segment], &[Segment]),
        tail_last: bool,
        page_in: PageIn,
    ) -> Result<(), MemoryError> {
        self.inner.move_absent(direction, process, segments, tail_last, page_in)
    }

    fn has_events(&self) -> bool {
        !self.plan.is_empty() || self.inner.has_events()
    }

    fn events(&self, into: &mut Vec<FabricEvent<Self::Words, <Self::Memory as ApplicationMemory>::Process>>) {
        self.send_due();
        self.inner.events(into);
    }

    fn catch_up(&self) -> bool {
        self.inner.catch_up()
    }

    fn batch(&self) -> Self::Batch {
        if self.plan.is_empty() {
            FaultBatch::Direct(self.inner.batch())
        } else {
            FaultBatch::Recorded(RecordedBatch::default())
        }
    }

    fn flush(&self, batch: Self::Batch) {
        match batch {
            FaultBatch::Direct(batch) => self.inner.flush(batch),
            FaultBatch::Recorded(batch) => {
                let leaving = self.decide(batch.packets, self.inner.now());
                self.send(leaving);
            }
        }
    }

    fn receive(&self, limit: usize, each: &mut dyn FnMut(&[Datagram<'_>])) -> usize {
        self.inner.receive(limit, each)
    }

    fn request_hop_info(&self) {
        self.inner.request_hop_info();
    }

    fn rx_watermark(&self) -> u64 {
        self.inner.rx_watermark()
    }

    fn direct_port(&self) -> u16 {
        self.inner.direct_port()
    }

    fn wait(&self, deadline: Option<u64>) {
        let deadline = [deadline, self.earliest()].into_iter().flatten().min();
        self.inner.wait(deadline);
        self.send_due();
    }

    fn kick(&self) {
        self.inner.kick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans() {
        let plan = FaultPlan::parse(
            "drop=0.01, duplicate=1,reorder=0.5,corrupt=0.001,lose_resume=2,delay=100us,seed=7",
        )
        .unwrap();
        let delay = Duration::from_micros(100);
        let expected = FaultPlan {
            drop: 0.01,
            duplicate: 1.0,
            reorder: 0.5,
            corrupt: 0.001,
            lose_resume: 2,
            delay,
            seed: 7,
        };
        assert_eq!(plan, expected);
        assert!(FaultPlan::parse("").unwrap().is_empty());
        assert!(FaultPlan::parse("seed=9").unwrap().is_empty());
        for wrong in [
            "drop",
            "drop=",
            "drop=1.5",
            "drop=NaN",
            "lose=1",
            "delay=5",
            "delay=5h",
            "delay=11s",
            "seed=-1",
            "lose_resume=often",
        ] {
            let error = FaultPlan::parse(wrong).unwrap_err();
            assert!(error.contains(wrong.split('=').next().unwrap()), "{wrong}: {error}");
        }
    }
}
