//! Steering of datagrams among the processes that share port 4791.
//!
//! The kernel spreads datagrams over the sockets of a port by a hash of their addresses. What reaches the wrong
//! process is handed on to the right one ([`forward`](crate::forward)), which is always correct. To make it rare,
//! a classic BPF program (SO_ATTACH_REUSEPORT_CBPF, which needs no rights) looks the destination's block of queue pair numbers
//! up and names the socket by its place in the kernel's list. The places are not told, and change when a socket of the list is
//! closed: they are found out by probes. A probe carries a place, the program sends it there, and the process
//! that gets it tells its blocks to the prober. Whoever leases a block or hands a datagram on has it done
//! anew; holding the abstract name of the port's steering makes sure that one process does it at a time. One that was
//! stopped in the midst of it is left aside: the next has another name.

use crate::counters::Counters;
use crate::descriptors::Descriptor;
use crate::fabric::{ROCE_PORT, Route};
use crate::limits::{
    STEERED_BLOCKS, STEERED_PLACES, STEERING_NAMES, STEERING_PATIENCE, STEERING_PAUSE, STEERING_PROBES,
    STEERING_RETRY, STEERING_SILENCE, STEERING_TIME,
};
use crate::udp::{self, Arrival, Family, Transmit};
use crate::{names, sockets};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

/// Opcode of a probe, of those left to manufacturers. It never leaves the loopback device.
const PROBE: u8 = 0xDF;
/// Bytes of a probe: opcode, family, place (2), nonce (8), number of the name (1), and three more, as an ICRC has four.
const PROBE_BYTES: usize = 16;
/// First bytes of an answer; then family (1), nothing (1), place (2), nonce (8), instance (8), blocks (2 each).
const ANSWER: [u8; 4] = *b"pws1";
const ANSWER_BYTES: usize = 24;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// What this process does for the steering of the port.
pub struct Steering {
    instance: u64,
    /// Something has changed, or went wrong.
    wanted: AtomicBool,
    active: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Not before this time.
    next: u64,
    round: Option<Round>,
    /// Since when somebody else is at it, and under which name.
    refused: Option<u64>,
    name: u8,
    /// Tells the others that the port's sockets have a program.
    marker: Option<Descriptor>,
}

/// Probing under way.
struct Round {
    /// Bound to the name of the port's steering: nobody else is at it. Answers come here.
    answers: Descriptor,
    name: u8,
    nonce: u64,
    deadline: u64,
    /// Places probed so far.
    probed: u16,
    /// The families in which probes can be sent.
    asked: [bool; 2],
    found: [BTreeMap<u16, Member>; 2],
}

struct Member {
    instance: u64,
    blocks: Vec<u16>,
}

/// The sockets of this process.
#[derive(Clone, Copy)]
pub struct Sockets<'a> {
    pub v4: Option<&'a Descriptor>,
    pub v6: Option<&'a Descriptor>,
}

impl<'a> Sockets<'a> {
    fn of(self, family: Family) -> Option<&'a Descriptor> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

impl Steering {
    pub fn new(instance: u64) -> Self {
        let (wanted, active) = (AtomicBool::new(false), AtomicBool::new(false));
        Steering { instance, wanted, active, state: Mutex::new(State::default()) }
    }

    /// Asks for steering to be set up anew: a block was leased, or a datagram came to the wrong process.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Whether [`keep_up`](Self::keep_up) has something to do soon.
    pub fn is_busy(&self) -> bool {
        self.active.load(Ordering::Acquire) || self.wanted.load(Ordering::Acquire)
    }

    /// Answers a probe with the blocks of this process.
    pub fn answer(&self, bytes: &[u8], socket: &Descriptor, blocks: &[u16]) {
        let Some(probe) = bytes.first_chunk::<PROBE_BYTES>() else { return };
        let mut answer = Vec::with_capacity(ANSWER_BYTES);
        answer.extend(ANSWER);
        answer.extend([probe[1], 0]);
        answer.extend(&probe[2..12]);
        answer.extend(self.instance.to_ne_bytes());
        for block in blocks {
            answer.extend(block.to_ne_bytes());
        }
        let sent = names::of_steering(ROCE_PORT, probe[12] % STEERING_NAMES)
            .and_then(|name| sockets::send_datagram(socket, &name, &answer, &[]));
        if let Err(error) = sent {
            // Too late, as after a stop: nothing is steered here now.
            log::debug!("a probe was not answered: {error}");
            self.want();
        }
    }

    /// Does the next step, without waiting.
    pub fn keep_up(&self, now: u64, nonce: impl FnOnce() -> u64, sockets: Sockets<'_>, counters: &Counters) {
        if !self.is_busy() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        if state.round.is_none() {
            if now < state.next || !self.wanted.swap(false, Ordering::AcqRel) {
                return;
            }
            state.next = now + STEERING_PAUSE;
            let name = state.name;
            match Round::start(now, name, nonce(), sockets, &mut state.marker) {
                Ok(round) => {
                    self.active.store(true, Ordering::Release);
                    (state.round, state.refused, state.name) = (Some(round), None, 0);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    // Another process is at it, perhaps without what is new here.
                    self.want();
                    state.next = now + STEERING_RETRY;
                    if now.saturating_sub(*state.refused.get_or_insert(now)) >= STEERING_PATIENCE {
                        (state.refused, state.name) = (None, (name + 1) % STEERING_NAMES);
                    }
                    return;
                }
                Err(error) => {
                    log::debug!("no steering: {error}");
                    return;
                }
            }
        }
        let Some(round) = &mut state.round else { return };
        round.take_answers();
        if !round.is_complete() && now < round.deadline {
            return;
        }
        if round.may_have_more() {
            round.probe(now, sockets);
            return;
        }
        for family in FAMILIES {
            let Some(socket) = sockets.of(family).filter(|_| round.asked[place_of(family)]) else { continue };
            if let Err(error) = udp::attach_steering(socket, &program(&round.table(family))) {
                log::debug!("no steering program: {error}");
            }
        }
        counters.steering_updates.add(1);
        state.round = None;
        self.active.store(false, Ordering::Release);
    }
}

/// Whether a datagram is a probe. Those come from this host only.
pub fn is_probe(arrival: &Arrival, bytes: &[u8]) -> bool {
    bytes.len() == PROBE_BYTES && bytes[0] == PROBE && arrival.source.is_loopback()
}

impl Round {
    fn start(
        now: u64,
        name: u8,
        nonce: u64,
        sockets: Sockets<'_>,
        marker: &mut Option<Descriptor>,
    ) -> io::Result<Self> {
        let answers = names::datagrams(Some(&names::of_steering(ROCE_PORT, name)?))?;
        rustix::net::sockopt::set_socket_passcred(&answers, true)?;
        // The first program knows probes only. One that is there already goes on steering meanwhile: it knows probes too.
        let steered = marker.is_some()
            || match names::datagrams(Some(&names::of_steered(ROCE_PORT)?)) {
                Ok(taken) => {
                    *marker = Some(taken);
                    false
                }
                Err(error) => error.kind() == io::ErrorKind::AddrInUse,
            };
        for family in FAMILIES {
            if let Some(socket) = sockets.of(family).filter(|_| !steered) {
                udp::attach_steering(socket, &program(&BTreeMap::new()))?;
            }
        }
        let found = [BTreeMap::new(), BTreeMap::new()];
        let mut round = Round { answers, name, nonce, deadline: now, probed: 0, asked: [false; 2], found };
        round.probe(now, sockets);
        Ok(round)
    }

    /// Sends the next probes.
    fn probe(&mut self, now: u64, sockets: Sockets<'_>) {
        let places = self.probed..(self.probed + STEERING_PROBES).min(STEERED_PLACES);
        for family in FAMILIES {
            let Some(socket) = sockets.of(family) else { continue };
            let loopback = match family {
                Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
                Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
            };
            let route = Route {
                source: loopback,
                interface: 0,
                source_port: 0,
                destination: loopback,
                port: ROCE_PORT,
                traffic_class: 0,
                hop_limit: 1,
            };
            let probes: Vec<[u8; PROBE_BYTES]> =
                places.clone().map(|place| probe(family, place, self.nonce, self.name)).collect();
            let transmits: Vec<Transmit<'_>> =
                probes.iter().map(|bytes| Transmit { route: &route, bytes, segment: None }).collect();
            let sent = udp::send(socket, &transmits);
            self.asked[place_of(family)] = sent.is_ok();
            if let Err(error) = sent {
                log::debug!("no probes: {error}");
            }
        }
        self.probed = places.end;
        self.deadline = now + STEERING_TIME;
    }

    fn take_answers(&mut self) {
        let mut buffer = [0; ANSWER_BYTES + 2 * crate::limits::BLOCKS];
        // Each process answers each probe once; strangers' messages are cut off by the bound.
        for _ in 0..4 * STEERED_PLACES {
            match sockets::receive_datagram(&self.answers, &mut buffer) {
                Ok(Some(length)) => self.take_answer(&buffer[..length]),
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
        let word = |at: usize| header[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let place = u16::from_be_bytes([header[6], header[7]]);
        if header[..4] != ANSWER || header[4] > 1 || word(8) != self.nonce || place >= self.probed {
            return;
        }
        let blocks = blocks.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
        self.found[usize::from(header[4])].insert(place, Member { instance: word(16), blocks });
    }

    /// Places that lie in the list. Behind its end the kernel spreads by hash, and somebody answers a second time.
    fn members(&self, family: Family) -> impl Iterator<Item = (u16, &Member)> {
        let mut seen = HashSet::new();
        let found = &self.found[place_of(family)];
        found
            .iter()
            .map(|(place, member)| (*place, member))
            .take_while(move |(_, member)| seen.insert(member.instance))
    }

    /// Whether every probe was answered.
    fn is_complete(&self) -> bool {
        let mut families = self.found.iter().zip(self.asked);
        families.all(|(found, asked)| !asked || found.len() == usize::from(self.probed))
    }

    /// Whether no answer told yet where the list of a family ends. Members that were stopped do not answer.
    fn may_have_more(&self) -> bool {
        let known = self.probed - (STEERING_PROBES * (1 + STEERING_SILENCE)).min(self.probed);
        self.probed < STEERED_PLACES
            && FAMILIES.into_iter().zip(self.asked).filter(|(_, asked)| *asked).any(|(family, _)| {
                let found = &self.found[place_of(family)];
                let repeated = self.members(family).count() < found.len();
                !repeated && (known == 0 || found.range(known..).next().is_some())
            })
    }

    /// Block -> place.
    fn table(&self, family: Family) -> BTreeMap<u16, u16> {
        self.members(family)
            .flat_map(|(place, member)| member.blocks.iter().map(move |block| (*block, place)))
            .take(STEERED_BLOCKS)
            .collect()
    }
}

/// Where what belongs to a family stands.
fn place_of(family: Family) -> usize {
    usize::from(family == Family::V6)
}

fn probe(family: Family, place: u16, nonce: u64, name: u8) -> [u8; PROBE_BYTES] {
    let mut bytes = [0; PROBE_BYTES];
    bytes[0] = PROBE;
    bytes[1] = u8::from(family == Family::V6);
    bytes[2..4].copy_from_slice(&place.to_be_bytes());
    bytes[4..12].copy_from_slice(&nonce.to_ne_bytes());
    bytes[12] = name;
    bytes
}

/// The program for a table. What it does not know gets a place that is in no list: the kernel then spreads by hash.
fn program(table: &BTreeMap<u16, u16>) -> Vec<libc::sock_filter> {
    let statement = |code: u32, value: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value };
    let unless_equal = |value: u32, skip: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: skip,
        k: value,
    };
    let load = libc::BPF_LD | libc::BPF_ABS;
    let mut program = vec![
        // The place that a probe carries.
        statement(load | libc::BPF_B, 0),
        unless_equal(u32::from(PROBE), 2),
        statement(load | libc::BPF_H, 2),
        statement(libc::BPF_RET | 0x10, 0), // BPF_A: what was loaded
        // Upper 16 of the 24 bits of the destination.
        statement(load | libc::BPF_H, 5),
    ];
    for (block, place) in table {
        program.push(unless_equal(u32::from(*block), 1));
        program.push(statement(libc::BPF_RET | libc::BPF_K, u32::from(*place)));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, u32::MAX));
    program
}
