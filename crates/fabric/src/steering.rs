//! Steering of datagrams among the processes that share port 4791.
//!
//! The kernel spreads datagrams over the sockets of a port by a hash of their addresses. What reaches the wrong
//! process is handed on to the right one ([`forward`](crate::forward)), which is always correct. To make it rare,
//! a classic BPF program (SO_ATTACH_REUSEPORT_CBPF, which needs no rights) looks the destination's block of queue pair numbers
//! up and names the socket by its place in the kernel's list. The places are not told, and change when a socket of the list is
//! closed: they are found out by probes. A probe carries a place, the program sends it there, and the process
//! that gets it tells its blocks to the prober. Whoever leases a block, hands a datagram on, or finds that its own do not
//! come back ([`check`]) has it done anew; so does who answers a probe too late, as after a stop. Who holds the abstract name of the port's steering has the turn, so that mostly one
//! process does it at a time; a turn that is held too long is passed over, for its holder may have been stopped.
//!
//! What the program does not know is for members that did not answer in time, or at all. It goes to the first of those that did
//! answer: they hand it on, which stopped ones do not.

mod check;

use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::fabric::{ROCE_PORT, Route};
use crate::limits::{
    STEERED_PLACES, STEERED_RUNS, STEERING_PATIENCE, STEERING_PAUSE, STEERING_PROBES, STEERING_RETRY,
    STEERING_SILENCE, STEERING_STALE, STEERING_TIME,
};
use crate::network::port::UdpPort;
use crate::udp::{self, Family, MessageInfo, Transmit};
use crate::{names, sockets};
use check::Check;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Opcode of a probe, of those left to manufacturers. It never leaves the loopback device.
const PROBE: u8 = 0xDF;
/// Bytes of a probe: opcode, family, place (2), nonce (8), and four in an ICRC's place.
const PROBE_BYTES: usize = 16;
/// First bytes of an answer; then family (1), nothing (1), place (2), nonce (8), instance (8), blocks (2 each).
const ANSWER: [u8; 4] = *b"pws1";
const ANSWER_BYTES: usize = 24;

/// What this process does for the steering of the port.
pub struct Steering {
    instance: u64,
    /// Whose the port is.
    /// Something has changed, or went wrong.
    wanted: AtomicBool,
    active: AtomicBool,
    /// Nonce of this process's last round.
    nonce: AtomicU64,
    /// Probes of others that came here: so many times somebody else had a socket of the port.
    others: AtomicU64,
    /// Nobody's end can change this process's place.
    alone: AtomicBool,
    state: Mutex<SteeringState>,
    check: Check,
}

struct SteeringState {
    /// Not before this time.
    next: u64,
    /// Since when the turn has been refused.
    refused: Option<u64>,
    round: Option<ProbeRound>,
    /// Tells the others that the port's sockets have a program, where it is bound (`marked`).
    marker: Descriptor,
    marked: bool,
    /// They have one, and keep it as long as this process's are among them.
    steered: bool,
}

/// Probing under way.
struct ProbeRound {
    /// Bound to the name of the port's steering while this process has the turn.
    _round_lock: Option<Descriptor>,
    /// Bound to a name of this round's.
    answers: Descriptor,
    nonce: u64,
    /// Probes of others that had come before.
    others: u64,
    deadline: u64,
    /// Places probed so far.
    probed: u16,
    /// The families in which probes can be sent.
    can_probe: [bool; 2],
    found: [BTreeMap<u16, GroupMember>; 2],
}

struct GroupMember {
    instance: u64,
    blocks: Vec<u16>,
}

impl Steering {
    /// # Errors
    /// Without descriptors.
    pub fn new(instance: u64) -> io::Result<Self> {
        let marker = names::datagrams(None)?;
        let state =
            SteeringState { next: 0, refused: None, round: None, marker, marked: false, steered: false };
        Ok(Steering {
            instance,
            wanted: AtomicBool::new(false),
            active: AtomicBool::new(false),
            nonce: AtomicU64::new(0),
            others: AtomicU64::new(0),
            alone: AtomicBool::new(false),
            state: Mutex::new(state),
            check: Check::default(),
        })
    }

    /// Asks for steering to be set up anew: a block was leased, or a datagram came to the wrong process.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Whether [`keep_up`](Self::keep_up) has something to do soon.
    pub fn is_busy(&self) -> bool {
        self.active.load(Ordering::Acquire) || self.wanted.load(Ordering::Acquire)
    }

    /// Answers a probe with the blocks of this process. True: it is another's, who has a socket of the port.
    pub fn answer(&self, bytes: &[u8], socket: &Descriptor, blocks: &[u16]) -> bool {
        let Some(probe) = bytes.first_chunk::<PROBE_BYTES>() else { return false };
        let nonce = u64::from_ne_bytes(eight(&probe[4..]));
        let others = nonce != self.nonce.load(Ordering::Acquire);
        if others {
            self.others.fetch_add(1, Ordering::AcqRel);
            self.alone.store(false, Ordering::Release);
        }
        let mut answer = Vec::with_capacity(ANSWER_BYTES);
        answer.extend(ANSWER);
        answer.extend([probe[1], 0]);
        answer.extend(&probe[2..12]);
        answer.extend(self.instance.to_ne_bytes());
        for block in blocks {
            answer.extend(block.to_ne_bytes());
        }
        let sent = names::of_answers(ROCE_PORT, nonce)
            .and_then(|name| sockets::send_datagram(socket, &name, &answer, &[]));
        if let Err(error) = sent {
            // Too late, as after a stop: nothing is steered here now.
            log::debug!("a probe was not answered: {error}");
            self.want();
        }
        others
    }

    /// Takes note of a datagram of this process to itself ([`check`]). False: it is something else.
    pub fn take_check(&self, arrival: &MessageInfo, bytes: &[u8]) -> bool {
        self.check.take(arrival, bytes)
    }

    /// When [`look_after`](Self::look_after) has something to do again.
    pub fn check_due(&self) -> u64 {
        if self.alone.load(Ordering::Acquire) { u64::MAX } else { self.check.due() }
    }

    /// Looks now and then whether what is sent to this process's blocks reaches it, and asks for steering where it does not.
    /// Everything that had come up to `rx_watermark` has been handed over.
    pub fn look_after(
        &self,
        (now, rx_watermark): (u64, u64),
        nonce: impl FnOnce() -> u64,
        port: &UdpPort,
        blocks: impl Fn() -> Vec<u16>,
    ) {
        if now >= self.check_due() && self.check.keep_up((now, rx_watermark), nonce, port, blocks) {
            log::debug!("what this process sends to itself does not come back");
            self.want();
        }
    }

    /// Does the next step, without waiting. A member is silent if it has not answered by the time up to which this process has
    /// listened (`rx_watermark`): one that did not run for a while would take its own deafness for silence, even its own.
    pub fn keep_up(
        &self,
        (now, rx_watermark): (u64, u64),
        nonce: impl FnOnce() -> u64,
        port: &UdpPort,
        counters: &Counters,
    ) {
        if !self.is_busy() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        let state = &mut *state;
        if state.round.is_none() {
            if now < state.next || !self.wanted.swap(false, Ordering::AcqRel) {
                return;
            }
            state.next = now + STEERING_PAUSE;
            match self.start(now, without_block(nonce()), port, state) {
                Ok(round) => {
                    state.refused = None;
                    self.active.store(true, Ordering::Release);
                    state.round = Some(round);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    // Another process is at it, perhaps without what is new here.
                    state.refused.get_or_insert(now);
                    state.next = now + STEERING_RETRY;
                    self.want();
                    return;
                }
                Err(error) => {
                    log::debug!("no steering: {error}");
                    return;
                }
            }
        }
        let Some(round) = &mut state.round else { return };
        if now.saturating_sub(round.deadline) > STEERING_STALE {
            // This process did not run meanwhile: what it has found out is not true any more.
            self.want();
            self.end(state);
            return;
        }
        round.take_answers();
        if !round.is_complete() && rx_watermark < round.deadline {
            return;
        }
        if round.may_have_more() {
            round.probe(now, port);
            return;
        }
        for (family, socket) in port.sockets().filter(|(family, _)| round.can_probe[*family as usize]) {
            let attached =
                udp::attach_steering(socket, &program(&round.table(family), round.first_place(family)));
            if let Err(error) = attached {
                log::debug!("no steering program: {error}");
            }
        }
        let alone = Family::ALL
            .into_iter()
            .all(|family| !round.can_probe[family as usize] || round.is_only_member(family, self.instance));
        let others = round.others;
        self.alone.store(alone, Ordering::Release);
        if self.others.load(Ordering::Acquire) != others {
            self.alone.store(false, Ordering::Release);
        }
        counters.steering_updates.add(1);
        self.end(state);
    }

    fn end(&self, state: &mut SteeringState) {
        state.round = None;
        self.active.store(false, Ordering::Release);
    }

    fn start(
        &self,
        now: u64,
        nonce: u64,
        port: &UdpPort,
        state: &mut SteeringState,
    ) -> io::Result<ProbeRound> {
        let round_lock = match names::datagrams(Some(&names::of_steering(ROCE_PORT)?)) {
            Ok(round_lock) => Some(round_lock),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                // Two rounds at once do no harm. Who has the turn for long may have been stopped in it.
                if state.refused.is_none_or(|since| now.saturating_sub(since) < STEERING_PATIENCE) {
                    return Err(error);
                }
                None
            }
            Err(error) => return Err(error),
        };
        if !state.marked {
            state.marked = match rustix::net::bind(&state.marker, &names::of_steered(ROCE_PORT)?) {
                Ok(()) => true,
                Err(rustix::io::Errno::ADDRINUSE) => {
                    state.steered = true;
                    false
                }
                Err(error) => return Err(error.into()),
            };
        }
        // The first program knows probes only. One that is there already goes on steering meanwhile: it knows probes too.
        if !state.steered {
            for (_, socket) in port.sockets() {
                udp::attach_steering(socket, &program(&BTreeMap::new(), None))?;
            }
            state.steered = true;
        }
        self.nonce.store(nonce, Ordering::Release);
        let others = self.others.load(Ordering::Acquire);
        ProbeRound::start(now, (nonce, others), round_lock, port)
    }
}

/// Whether a datagram is a probe. Those come from this host only.
pub fn is_probe(arrival: &MessageInfo, bytes: &[u8]) -> bool {
    bytes.len() == PROBE_BYTES && bytes[0] == PROBE && arrival.source.is_loopback()
}

impl ProbeRound {
    fn start(
        now: u64,
        (nonce, others): (u64, u64),
        round_lock: Option<Descriptor>,
        port: &UdpPort,
    ) -> io::Result<Self> {
        let answers = names::datagrams(Some(&names::of_answers(ROCE_PORT, nonce)?))?;
        rustix::net::sockopt::set_socket_passcred(&answers, true)?;
        let found = [BTreeMap::new(), BTreeMap::new()];
        let mut round = ProbeRound {
            _round_lock: round_lock,
            answers,
            nonce,
            others,
            deadline: now,
            probed: 0,
            can_probe: [false; 2],
            found,
        };
        round.probe(now, port);
        Ok(round)
    }

    /// Sends the next probes.
    fn probe(&mut self, now: u64, port: &UdpPort) {
        let places = self.probed..(self.probed + STEERING_PROBES).min(STEERED_PLACES);
        for (family, socket) in port.sockets() {
            let route = to_own_host(family);
            let probes: Vec<[u8; PROBE_BYTES]> =
                places.clone().map(|place| probe(family, place, self.nonce)).collect();
            let transmits: Vec<Transmit<'_>> =
                probes.iter().map(|bytes| Transmit { route: &route, bytes, segment: None }).collect();
            let sent = udp::send(socket, &transmits);
            self.can_probe[family as usize] = sent.is_ok();
            if let Err(error) = sent {
                log::debug!("no probes: {error}");
            }
        }
        self.probed = places.end;
        self.deadline = now + STEERING_TIME;
    }

    /// Takes answers of any user: one with the nonce comes from whoever got the probe, that is from a socket of the port. The kernel gave
    /// that to nobody but the user who bound it, and its process may have changed its user since.
    fn take_answers(&mut self) {
        let mut buffer = [0; ANSWER_BYTES + 2 * crate::limits::BLOCKS];
        // Each process answers each probe once; strangers' messages are cut off by the bound.
        for _ in 0..4 * STEERED_PLACES {
            match sockets::receive_datagram(&self.answers, &mut buffer) {
                Ok(Some((length, _))) => self.take_answer(&buffer[..length]),
                Ok(None) => return,
                Err(error) => {
                    log::debug!("no answers: {error}");
                    return;
                }
            }
        }
    }

    fn take_answer(&mut self, answer: &[u8]) {
        let Some((header, blocks)) = answer.split_first_chunk::<ANSWER_BYTES>() else { return };
        let word = |at: usize| u64::from_ne_bytes(eight(&header[at..]));
        let place = u16::from_be_bytes([header[6], header[7]]);
        if header[..4] != ANSWER || header[4] > 1 || word(8) != self.nonce || place >= self.probed {
            return;
        }
        let blocks = blocks.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
        self.found[usize::from(header[4])].insert(place, GroupMember { instance: word(16), blocks });
    }

    /// Places that lie in the list. Behind its end the kernel spreads by hash, and somebody answers a second time.
    fn members(&self, family: Family) -> impl Iterator<Item = (u16, &GroupMember)> {
        let mut seen = HashSet::new();
        let found = &self.found[family as usize];
        found
            .iter()
            .map(|(place, member)| (*place, member))
            .take_while(move |(_, member)| seen.insert(member.instance))
    }

    /// Whether every probe was answered.
    fn is_complete(&self) -> bool {
        let mut families = self.found.iter().zip(self.can_probe);
        families.all(|(found, can_probe)| !can_probe || found.len() == usize::from(self.probed))
    }

    /// Whether no answer told yet where the list of a family ends. Members that were stopped do not answer.
    fn may_have_more(&self) -> bool {
        let known = self.probed - (STEERING_PROBES * (1 + STEERING_SILENCE)).min(self.probed);
        self.probed < STEERED_PLACES
            && Family::ALL.into_iter().zip(self.can_probe).filter(|(_, can_probe)| *can_probe).any(
                |(family, _)| {
                    let found = &self.found[family as usize];
                    let repeated = self.members(family).count() < found.len();
                    !repeated && (known == 0 || found.range(known..).next().is_some())
                },
            )
    }

    /// Whether nobody but this process has answered, from the first place on: that one it keeps, whoever ends.
    fn is_only_member(&self, family: Family, instance: u64) -> bool {
        let mut members = self.members(family);
        members.next().is_some_and(|(place, member)| place == 0 && member.instance == instance)
            && members.next().is_none()
    }

    /// The first place from which an answer came.
    fn first_place(&self, family: Family) -> Option<u16> {
        self.members(family).next().map(|(place, _)| place)
    }

    /// Block -> place.
    fn table(&self, family: Family) -> BTreeMap<u16, u16> {
        self.members(family)
            .flat_map(|(place, member)| member.blocks.iter().map(move |block| (*block, place)))
            .collect()
    }
}

/// The first eight bytes.
fn eight(bytes: &[u8]) -> [u8; 8] {
    bytes.first_chunk().copied().unwrap_or_default()
}

/// The way to whoever has a socket of the port on this host.
fn to_own_host(family: Family) -> Route {
    let loopback = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    Route { hop_limit: 1, ..Route::new(loopback, loopback, ROCE_PORT) }
}

/// A nonce that in a probe has the block 0 where packets have their destination's.
fn without_block(nonce: u64) -> u64 {
    let mut bytes = nonce.to_ne_bytes();
    bytes[1..3].fill(0);
    u64::from_ne_bytes(bytes)
}

fn probe(family: Family, place: u16, nonce: u64) -> [u8; PROBE_BYTES] {
    let mut bytes = [0; PROBE_BYTES];
    bytes[0] = PROBE;
    bytes[1] = family as u8;
    bytes[2..4].copy_from_slice(&place.to_be_bytes());
    bytes[4..12].copy_from_slice(&nonce.to_ne_bytes());
    bytes
}

/// Blocks that follow each other and belong to the member at one place.
struct BlockRun {
    first: u16,
    last: u16,
    place: u16,
}

/// The first runs of a table, as many as a program has room for.
fn runs(table: &BTreeMap<u16, u16>) -> Vec<BlockRun> {
    let mut runs: Vec<BlockRun> = Vec::new();
    for (&block, &place) in table {
        match runs.last_mut() {
            Some(run) if run.place == place && run.last.checked_add(1) == Some(block) => run.last = block,
            _ => runs.push(BlockRun { first: block, last: block, place }),
        }
    }
    runs.truncate(STEERED_RUNS);
    runs
}

/// The program for a table. What it does not know gets the place for the rest, or one that is in no list: the kernel then
/// spreads by hash.
fn program(table: &BTreeMap<u16, u16>, rest: Option<u16>) -> Vec<libc::sock_filter> {
    let statement = |code: u32, value: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value };
    // Goes on with the next instruction if the comparison holds, else behind so many.
    let unless = |comparison: u32, value: u16, skip: u8| libc::sock_filter {
        code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16,
        jt: 0,
        jf: skip,
        k: value.into(),
    };
    let load = libc::BPF_LD | libc::BPF_ABS;
    // Upper 16 of the 24 bits of the destination. In a probe they are those of a block that nobody leases. Each load takes tens
    // of nanoseconds, so what is seldom comes last.
    let mut program = vec![statement(load | libc::BPF_H, 5)];
    for BlockRun { first, last, place } in runs(table) {
        if first == last {
            program.push(unless(libc::BPF_JEQ, first, 1));
        } else {
            program.push(unless(libc::BPF_JGE, first, 2));
            program.push(libc::sock_filter { jt: 1, jf: 0, ..unless(libc::BPF_JGT, last, 0) });
        }
        program.push(statement(libc::BPF_RET | libc::BPF_K, place.into()));
    }
    // The place that a probe carries.
    program.extend([
        statement(load | libc::BPF_B, 0),
        unless(libc::BPF_JEQ, PROBE.into(), 2),
        statement(load | libc::BPF_H, 2),
        statement(libc::BPF_RET | 0x10, 0), // BPF_A: what was loaded
    ]);
    program.push(statement(libc::BPF_RET | libc::BPF_K, rest.map_or(u32::MAX, u32::from)));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::QUEUE_PAIRS_PER_BLOCK;

    /// The place that a program names for a datagram (bpf(4): what is beyond the datagram ends the program with 0).
    fn place(program: &[libc::sock_filter], datagram: &[u8]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = &program[at];
            let (code, value) = (u32::from(step.code), step.k as usize);
            let load = libc::BPF_LD | libc::BPF_ABS;
            at += 1;
            if code == load | libc::BPF_B {
                let Some(byte) = datagram.get(value) else { return 0 };
                accumulator = u32::from(*byte);
            } else if code == load | libc::BPF_H {
                let Some(bytes) = datagram.get(value..value + 2) else { return 0 };
                accumulator = u32::from(u16::from_be_bytes([bytes[0], bytes[1]]));
            } else if code & 0x07 == libc::BPF_JMP {
                let holds = match code & 0xF0 {
                    libc::BPF_JEQ => accumulator == step.k,
                    libc::BPF_JGE => accumulator >= step.k,
                    libc::BPF_JGT => accumulator > step.k,
                    other => panic!("{other}"),
                };
                at += usize::from(if holds { step.jt } else { step.jf });
            } else if code == libc::BPF_RET | libc::BPF_K {
                return step.k;
            } else {
                assert_eq!(code, libc::BPF_RET | 0x10);
                return accumulator;
            }
        }
    }

    fn packet(block: u16) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[4..8].copy_from_slice(&(u32::from(block) * QUEUE_PAIRS_PER_BLOCK + 9).to_be_bytes());
        bytes
    }

    /// Any tables, runs of any length among them, send each block where they say, and the rest to the place for it.
    #[test]
    fn runs_are_as_good_as_blocks() {
        let some = || proptest::collection::vec((1u16..60, 1u16..30, 0u16..4), 1..20);
        proptest::proptest!(|(parts in some())| {
            let mut table = BTreeMap::new();
            for (first, length, place) in parts {
                table.extend((first..first + length).map(|block| (block, place)));
            }
            let program = program(&table, Some(9));
            for block in 0..100 {
                let expected = table.get(&block).copied().unwrap_or(9);
                assert_eq!(place(&program, &packet(block)), u32::from(expected), "{block} of {table:?}");
            }
        });
        // Pairs of blocks: the largest program.
        let table: BTreeMap<u16, u16> =
            (0..0x7FFF).map(|pair| (pair * 2 + u16::from(pair % 3 > 0), pair / 3 % 2)).collect();
        assert!(program(&table, None).len() <= 4096);
    }

    #[test]
    fn packets_go_by_their_block_and_probes_by_their_place() {
        let table: BTreeMap<u16, u16> = (1..=u16::try_from(STEERED_RUNS).unwrap())
            .map(|block| (block.reverse_bits().max(1), block))
            .collect();
        let program = program(&table, Some(3));
        assert!(program.len() <= 4096);
        for (block, expected) in &table {
            assert_eq!(place(&program, &packet(*block)), u32::from(*expected));
        }
        for block in [0, 0xFFFF, 0x1234].into_iter().filter(|block| !table.contains_key(block)) {
            assert_eq!(place(&program, &packet(block)), 3);
        }
        // Whatever was drawn.
        for nonce in (0..64).map(|shift| u64::MAX << shift).chain((0..64).map(|shift| u64::MAX >> shift)) {
            let nonce = without_block(nonce);
            for named in [0, 1, 2, 700, STEERED_PLACES - 1] {
                assert_eq!(place(&program, &probe(Family::V4, named, nonce)), u32::from(named));
            }
        }
        assert_eq!(place(&program, &[]), 0);
    }
}
