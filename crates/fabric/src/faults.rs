//! Faults on purpose: packets are lost, doubled, reordered, damaged and delayed, from a seed.
//!
//! Faults happen to packets that are sent; what a receiver sees is the same as if the network had done it. The local path is
//! untouched.

use crate::batch::HostBatch;
use crate::counters::counters;
use crate::fabric::{Route, SendBatch, burst_one_by_one};
use crate::limits::{AWAKE_BEFORE_DUE, BATCH_BYTES, BATCH_PACKETS, DELAYED_PACKETS};
use crate::network::Network;
use crate::network_delay::{NetworkDelay, duration};
use pagewire_wire::Opcode;
use parking_lot::Mutex;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Packets that overtake a reordered one, at most.
const OVERTAKERS: u64 = 8;
/// Nanoseconds that a reordered packet waits for others to overtake it.
const OVERTAKE_TIME: u64 = 500_000;

/// Which faults, and how often: for tests that make a fabric themselves. Programs get theirs by rules ([`PacketRules`]), but for a delay
/// ([`NetworkDelay`]).
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
                "delay" => {
                    let wrong = || format!("delay `{value}` is no time of up to 10 s (such as 100us, 2ms)");
                    plan.delay = duration(value).ok_or_else(wrong)?;
                }
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

    /// A network that is this much longer: every packet is held back for so long, and nothing else happens to it.
    pub fn delayed(delay: NetworkDelay) -> Self {
        FaultPlan { delay: delay.0, ..FaultPlan::default() }
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

counters! {
    /// What was done to packets.
    FaultCounters {
        dropped,
        duplicated,
        reordered,
        corrupted,
        delayed,
        /// Nanoseconds that delayed packets left later than they should have, all together.
        late_nanoseconds,
        /// Packets that left sooner than they should have, because too many were held.
        released_early,
        /// Packets that were lost, as their connection was full when their time came.
        without_room,
    }
}

/// What becomes of a packet by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFate {
    Lose,
    Double,
    Reorder,
    Corrupt,
    Delay(Duration),
    /// The syndrome of an acknowledgement becomes this byte.
    Syndrome(u8),
}

/// Rules about packets that leave.
pub trait PacketRules: Send + Sync {
    /// What becomes of a packet (BTH to padding) that leaves for an address. Called once for each, in their order.
    fn fate(&self, bytes: &[u8], destination: IpAddr) -> Option<PacketFate>;
}

/// Bytes of a BTH, behind which an acknowledgement has its syndrome.
const BTH_BYTES: usize = 12;

/// Makes the faults of a plan, and those of rules. Without any ([`FaultPlan::is_empty`]) it costs nothing.
pub struct FaultInjector {
    plan: FaultPlan,
    rules: Option<Arc<dyn PacketRules>>,
    is_active: bool,
    state: Mutex<InjectorState>,
    /// When the first of the held packets is due; `u64::MAX`: none is held. Written under the lock of the state.
    next_due: AtomicU64,
    counters: FaultCounters,
}

struct InjectorState {
    random: Pcg64,
    /// Packets sent so far.
    count: u64,
    /// RESUMEs among them.
    resumes: u64,
    /// In the order in which they were sent.
    held: VecDeque<HeldPacket>,
    /// Those among them that others are to overtake.
    reordered: usize,
}

struct HeldPacket {
    /// Leaves when this time has come,
    due: u64,
    /// or, if reordered, when so many packets have been sent.
    after: Option<u64>,
    packet: RecordedPacket,
}

#[derive(Clone)]
struct RecordedPacket {
    route: Route,
    bytes: Vec<u8>,
    damage: Option<usize>,
}

/// A batch of the real fabric.
pub enum FaultBatch {
    /// Without faults: packets that leave as they are.
    Direct(Box<HostBatch>),
    /// Packets whose fate is not decided yet.
    Recorded(RecordedBatch),
}

/// See [`FaultBatch`].
#[derive(Default)]
pub struct RecordedBatch {
    packets: Vec<RecordedPacket>,
    used: usize,
}

impl SendBatch for FaultBatch {
    #[inline]
    fn fits(&self, length: usize) -> bool {
        match self {
            FaultBatch::Direct(batch) => batch.fits(length),
            FaultBatch::Recorded(batch) => {
                batch.packets.len() < BATCH_PACKETS && batch.used + length <= BATCH_BYTES
            }
        }
    }

    #[inline]
    fn packet(&mut self, route: &Route, length: usize) -> Option<&mut [u8]> {
        if !self.fits(length) {
            return None;
        }
        match self {
            FaultBatch::Direct(batch) => batch.packet(route, length),
            FaultBatch::Recorded(batch) => {
                batch.used += length;
                batch.packets.push(RecordedPacket { route: *route, bytes: vec![0; length], damage: None });
                batch.packets.last_mut().map(|packet| &mut packet.bytes[..])
            }
        }
    }

    #[inline]
    fn cancel(&mut self) {
        match self {
            FaultBatch::Direct(batch) => batch.cancel(),
            FaultBatch::Recorded(batch) => {
                batch.used -= batch.packets.pop().map_or(0, |packet| packet.bytes.len());
            }
        }
    }

    #[inline]
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
}

impl FaultInjector {
    /// Nothing was sent yet.
    pub fn new(plan: FaultPlan, rules: Option<Arc<dyn PacketRules>>) -> Self {
        let random = Pcg64::seed_from_u64(plan.seed);
        let state =
            Mutex::new(InjectorState { random, count: 0, resumes: 0, held: VecDeque::new(), reordered: 0 });
        let is_active = !plan.is_empty() || rules.is_some();
        let next_due = AtomicU64::new(u64::MAX);
        FaultInjector { plan, rules, is_active, state, next_due, counters: FaultCounters::default() }
    }

    /// Whether there are faults to be made.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// What has happened.
    pub fn counters(&self) -> &FaultCounters {
        &self.counters
    }

    /// An empty batch.
    #[inline]
    pub fn batch(&self, network: &Network) -> FaultBatch {
        match self.is_active {
            false => FaultBatch::Direct(network.batch()),
            true => FaultBatch::Recorded(RecordedBatch::default()),
        }
    }

    /// Sends what is to leave of a batch.
    #[inline]
    pub fn flush(&self, network: &Network, batch: FaultBatch, now: impl Fn() -> u64) {
        match batch {
            FaultBatch::Direct(batch) => network.flush(batch),
            FaultBatch::Recorded(batch) => {
                // Held until they have left: else packets that another thread takes later could overtake them.
                let mut state = self.state.lock();
                let leaving = self.decide(&mut state, batch.packets, now());
                let has_order = !state.held.is_empty() || !self.plan.delay.is_zero();
                let _ordered = has_order.then_some(state);
                self.send(network, leaving);
            }
        }
    }

    /// Decides each packet's fate; those that leave now, in their order.
    fn decide(
        &self,
        state: &mut InjectorState,
        packets: Vec<RecordedPacket>,
        now: u64,
    ) -> Vec<RecordedPacket> {
        let mut leaving = Vec::with_capacity(packets.len() + 4);
        for mut packet in packets {
            state.count += 1;
            // Each packet takes an equal number of draws, so that one probability does not change the others' fates.
            let [drop, duplicate, reorder, corrupt] = std::array::from_fn(|_| unit(&mut state.random));
            let (bit, overtakers) = (state.random.next_u64(), state.random.next_u64());
            let is_resume = packet.bytes.first() == Some(&Opcode::RESUME.0);
            state.resumes += u64::from(is_resume);
            let lost = is_resume && self.plan.lose_resume > 0 && state.resumes % self.plan.lose_resume == 0;
            let fate = self.fate(&mut packet);
            let delay = match fate {
                Some(PacketFate::Delay(delay)) => delay.max(self.plan.delay),
                _ => self.plan.delay,
            };
            let delay = delay.as_nanos() as u64;
            if drop < self.plan.drop || lost || fate == Some(PacketFate::Lose) {
                self.counters.dropped.add(1);
                continue;
            }
            let doubled = duplicate < self.plan.duplicate || fate == Some(PacketFate::Double);
            let twin = doubled.then(|| packet.clone());
            if corrupt < self.plan.corrupt || fate == Some(PacketFate::Corrupt) {
                self.counters.corrupted.add(1);
                packet.damage = Some((bit % (packet.bytes.len() as u64 * 8)) as usize);
            }
            if reorder < self.plan.reorder || fate == Some(PacketFate::Reorder) {
                self.counters.reordered.add(1);
                let after = Some(state.count + 1 + overtakers % OVERTAKERS);
                self.hold(
                    state,
                    HeldPacket { due: now + delay + OVERTAKE_TIME, after, packet },
                    &mut leaving,
                );
            } else if delay > 0 {
                self.counters.delayed.add(1);
                self.hold(state, HeldPacket { due: now + delay, after: None, packet }, &mut leaving);
            } else {
                leaving.push(packet);
            }
            if let Some(twin) = twin {
                self.counters.duplicated.add(1);
                if delay > 0 {
                    self.hold(
                        state,
                        HeldPacket { due: now + delay, after: None, packet: twin },
                        &mut leaving,
                    );
                } else {
                    leaving.push(twin);
                }
            }
            self.take_due(state, now, &mut leaving);
        }
        leaving
    }

    /// Holds a packet back. Where too many are held, the oldest leaves, so that none overtakes it.
    fn hold(&self, state: &mut InjectorState, held: HeldPacket, leaving: &mut Vec<RecordedPacket>) {
        if state.held.len() >= DELAYED_PACKETS {
            self.counters.released_early.add(1);
            if let Some(oldest) = state.held.pop_front() {
                state.reordered -= usize::from(oldest.after.is_some());
                leaving.push(oldest.packet);
            }
        }
        self.next_due.fetch_min(held.due, Ordering::SeqCst);
        state.reordered += usize::from(held.after.is_some());
        state.held.push_back(held);
    }

    /// Takes the held packets whose time has come, in the order in which they were sent.
    fn take_due(&self, state: &mut InjectorState, now: u64, leaving: &mut Vec<RecordedPacket>) {
        let count = state.count;
        let is_due = |held: &HeldPacket| held.due <= now || held.after.is_some_and(|after| after <= count);
        if self.next_due() > now && state.reordered == 0 {
            return;
        }
        let (due, kept): (VecDeque<HeldPacket>, VecDeque<HeldPacket>) =
            std::mem::take(&mut state.held).into_iter().partition(is_due);
        state.reordered = kept.iter().filter(|held| held.after.is_some()).count();
        state.held = kept;
        let next = state.held.iter().map(|held| held.due).min().unwrap_or(u64::MAX);
        self.next_due.store(next, Ordering::SeqCst);
        self.counters.late_nanoseconds.add(due.iter().map(|held| now.saturating_sub(held.due)).sum());
        leaving.extend(due.into_iter().map(|held| held.packet));
    }

    /// What the rules make of a packet; a syndrome is changed at once.
    fn fate(&self, packet: &mut RecordedPacket) -> Option<PacketFate> {
        let fate = self.rules.as_ref()?.fate(&packet.bytes, packet.route.destination)?;
        match (fate, packet.bytes.get_mut(BTH_BYTES)) {
            (PacketFate::Syndrome(syndrome), Some(place)) => {
                *place = syndrome;
                None
            }
            (fate, _) => Some(fate),
        }
    }

    /// Sends held packets whose time has come.
    #[inline]
    pub fn send_due(&self, network: &Network, now: impl Fn() -> u64) {
        let due = self.next_due();
        if due == u64::MAX {
            return;
        }
        let now = now();
        if due <= now {
            let mut state = self.state.lock();
            let mut leaving = Vec::new();
            self.take_due(&mut state, now, &mut leaving);
            self.send(network, leaving);
        }
    }

    fn send(&self, network: &Network, packets: Vec<RecordedPacket>) {
        if packets.is_empty() {
            return;
        }
        let mut batch = network.batch();
        for packet in packets {
            if lay(&mut batch, &packet) {
                continue;
            }
            // A full batch leaves. A fresh one takes any packet, unless that is for a connection that is full.
            network.flush(std::mem::replace(&mut batch, network.batch()));
            if !lay(&mut batch, &packet) {
                self.counters.without_room.add(1);
            }
        }
        network.flush(batch);
    }

    /// Until when the thread that sends held packets may sleep; `u64::MAX`: for as long as it likes. Shortly before the first is due the thread
    /// stays awake and looks at the clock again and again, so that delays below [`AWAKE_BEFORE_DUE`] are kept by spinning.
    pub fn awake_from(&self) -> u64 {
        match self.next_due() {
            u64::MAX => u64::MAX,
            due => due.saturating_sub(AWAKE_BEFORE_DUE),
        }
    }

    /// By how many nanoseconds that thread may oversleep: the least that there is, if each packet is delayed.
    pub fn timer_slack(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(u64::from(!self.plan.delay.is_zero()))
    }

    /// When [`send_due`](Self::send_due) has something to send again; `u64::MAX`: not by itself.
    #[inline]
    pub fn next_due(&self) -> u64 {
        self.next_due.load(Ordering::SeqCst)
    }
}

/// Lays a packet into a batch. False: that has no room.
fn lay(batch: &mut HostBatch, packet: &RecordedPacket) -> bool {
    let Some(room) = batch.packet(&packet.route, packet.bytes.len()) else { return false };
    room.copy_from_slice(&packet.bytes);
    if let Some(bit) = packet.damage {
        batch.damage(bit);
    }
    true
}

fn unit(random: &mut Pcg64) -> f64 {
    // 53 bits: what an f64 holds.
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
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

    /// Packets that are told apart by their bytes.
    fn packets(numbers: std::ops::Range<u32>) -> Vec<RecordedPacket> {
        let address = IpAddr::from([127, 0, 0, 1]);
        let route = Route::new(address, address, 4791);
        let packet =
            |number: u32| RecordedPacket { route, bytes: number.to_be_bytes().to_vec(), damage: None };
        numbers.map(packet).collect()
    }

    fn numbers(packets: &[RecordedPacket]) -> Vec<u32> {
        packets.iter().map(|packet| u32::from_be_bytes(packet.bytes[..].try_into().unwrap())).collect()
    }

    /// Packets leave in their order, none before its time; the thread that sends them may sleep until shortly before.
    #[test]
    fn delayed_packets_keep_their_order() {
        let delay = 50_000;
        let injector = FaultInjector::new(FaultPlan::delayed("50us".parse().unwrap()), None);
        let decide = |packets, now| numbers(&injector.decide(&mut injector.state.lock(), packets, now));
        assert_eq!((injector.next_due(), injector.awake_from()), (u64::MAX, u64::MAX));
        assert!(decide(packets(0..2), 1_000).is_empty());
        assert!(decide(packets(2..3), 1_000 + delay - 1).is_empty());
        assert_eq!((injector.next_due(), injector.awake_from()), (51_000, 51_000 - AWAKE_BEFORE_DUE));
        assert_eq!(decide(packets(3..4), 1_000 + delay + 7), [0, 1]);
        assert_eq!(injector.counters.late_nanoseconds.get(), 2 * 7);
        assert_eq!(injector.next_due(), 1_000 + 2 * delay - 1);
        let mut leaving = Vec::new();
        injector.take_due(&mut injector.state.lock(), 1_000 + 3 * delay, &mut leaving);
        assert_eq!(numbers(&leaving), [2, 3]);
        assert_eq!((injector.next_due(), injector.counters.delayed.get()), (u64::MAX, 4));
        assert!(injector.timer_slack().is_some());
        assert!(FaultInjector::new(FaultPlan::default(), None).timer_slack().is_none());
    }

    /// The bound is kept, and still no packet overtakes another.
    #[test]
    fn oldest_packet_leaves_where_too_many_are_held() {
        let injector = FaultInjector::new(FaultPlan::delayed("50us".parse().unwrap()), None);
        let decide = |packets| numbers(&injector.decide(&mut injector.state.lock(), packets, 0));
        let most = DELAYED_PACKETS as u32;
        assert!(decide(packets(0..most)).is_empty());
        assert_eq!(decide(packets(most..most + 2)), [0, 1]);
        assert_eq!(injector.counters.released_early.get(), 2);
        assert_eq!(injector.state.lock().held.len(), DELAYED_PACKETS);
    }
}
