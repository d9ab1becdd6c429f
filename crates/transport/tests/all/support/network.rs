//! Two ends and a seeded network that loses, doubles, delays and reorders.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use pagewire_transport::*;
use pagewire_wire::PacketOperation as Code;

use super::host::{Host, Packet, header_in_burst};
use super::{requester, settings};

#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplication: f64,
    /// Packets delayed by more than those behind them.
    pub reordering: f64,
    /// What is narrow between the ends, the same both ways.
    pub bottleneck: Option<Bottleneck>,
}

/// A link with a queue in front of it that drops what does not fit.
#[derive(Debug, Clone, Copy)]
pub struct Bottleneck {
    /// Nanoseconds that 1024 bytes take.
    pub pace: u64,
    /// Bytes that wait at most.
    pub queue: u64,
    /// Nanoseconds on the way besides [`DELAY`].
    pub delay: u64,
}

pub struct End {
    pub connection: RcConnection,
    pub host: Host,
    /// Arrived and not taken: the first of them waits.
    inbox: VecDeque<Packet>,
    /// Packets in the inbox while the first of them waits.
    waiting: usize,
    posted: u64,
    again: bool,
}

/// Decides the fate of a packet: from which end, and what; false: lost.
pub type Filter = Box<dyn FnMut(usize, &Packet) -> bool>;

pub struct Pair {
    pub ends: [End; 2],
    pub now: u64,
    pub faults: Faults,
    pub random: fastrand::Rng,
    pub filter: Option<Filter>,
    /// What was handed to the network, lost or not: time, from, packet.
    pub log: Vec<(u64, usize, Packet)>,
    pub keep_log: bool,
    network: BTreeMap<(u64, u64), (usize, Packet)>,
    sequence: u64,
    last_arrival: [u64; 2],
    /// When the bottleneck has sent what it was given, by sender.
    free_at: [u64; 2],
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Times that bytes to be placed cannot be read where they lie, from now on.
    pub unreadable: usize,
    /// As long as that, at least.
    pub unreadable_from: usize,
    /// The ends are told now and then that pages came in.
    pub page_ins: bool,
}

/// Nanoseconds from end to end.
pub const DELAY: u64 = 10_000;
pub const MEMORY: usize = 4 << 20;

/// The payloads of packets at the front that follow each other as [`RcConnection::receive`] takes them.
fn row_at(inbox: &VecDeque<Packet>) -> Vec<&[u8]> {
    let mut burst = Vec::new();
    let mut next = None;
    for packet in inbox {
        let Packet::Standard { header, payload } = packet else { break };
        let bursts = matches!(
            header.bth.opcode.operation(),
            Some(Code::SendMiddle | Code::WriteMiddle | Code::WriteOnly | Code::ReadResponseMiddle)
        );
        if !bursts || header.bth.acknowledge || next.is_some_and(|next| next != *header) {
            break;
        }
        next = Some(header_in_burst(header, payload.len() as u32, 1));
        burst.push(&payload[..]);
    }
    burst
}

impl Pair {
    pub fn new(link: Link, seed: u64) -> Pair {
        Pair::with(
            settings(link, 0x22, 0x100),
            requester(0x100),
            settings(link, 0x11, 0x200),
            requester(0x200),
            seed,
        )
    }

    /// `first` sends PSNs of `first_requester`; the receive PSNs are set to fit.
    pub fn with(
        first: RcSettings,
        first_requester: RequesterSettings,
        second: RcSettings,
        second_requester: RequesterSettings,
        seed: u64,
    ) -> Pair {
        let first = RcSettings { receive_psn: second_requester.send_psn, ..first };
        let second = RcSettings { receive_psn: first_requester.send_psn, ..second };
        let memories = [0, 1].map(|_| Rc::new(RefCell::new(vec![0u8; MEMORY])));
        let end = |settings, requester, own: usize| {
            let mut connection = RcConnection::new(settings);
            connection.start_requester(requester);
            End {
                connection,
                host: Host::new(
                    memories[own].clone(),
                    memories[1 - own].clone(),
                    seed ^ (own as u64 + 1) << 32,
                ),
                inbox: VecDeque::new(),
                waiting: 0,
                posted: 0,
                again: false,
            }
        };
        let ends = [end(first, first_requester, 0), end(second, second_requester, 1)];
        Pair {
            ends,
            now: 0,
            faults: Faults::default(),
            random: fastrand::Rng::with_seed(seed),
            filter: None,
            log: Vec::new(),
            keep_log: std::env::var_os("TRACE").is_some(),
            network: BTreeMap::new(),
            sequence: 0,
            last_arrival: [0; 2],
            free_at: [0; 2],
            overflowed: 0,
            unreadable: 0,
            unreadable_from: 0,
            page_ins: false,
        }
    }

    pub fn selective(mut self) -> Pair {
        for end in &mut self.ends {
            end.connection.set_selective(true);
            end.connection.set_resumes(true);
        }
        self
    }

    /// Posts a work request whose bytes are `bytes`; numbers it.
    pub fn post(&mut self, end: usize, work: WorkRequest, bytes: Vec<u8>) -> WorkId {
        let end = &mut self.ends[end];
        let id = WorkId(end.posted);
        end.posted += 1;
        assert_eq!(
            bytes.len(),
            if matches!(work.operation, WorkOperation::Local(_)) { 0 } else { work.length as usize }
        );
        end.host.buffers.insert(id, bytes);
        end.connection.post(WorkRequest { id, ..work });
        id
    }

    pub fn post_zeroed(&mut self, end: usize, work: WorkRequest) -> WorkId {
        self.post(end, work, vec![0; work.length as usize])
    }

    /// Runs until nothing happens any more, or until virtual `until`.
    pub fn run(&mut self, until: u64) {
        self.run_while(until, |_| true);
    }

    /// Runs while `condition` holds, until nothing happens any more, at most until `until`.
    pub fn run_while(&mut self, until: u64, condition: impl Fn(&Pair) -> bool) {
        while condition(self) {
            let mut waits = false;
            for at in 0..2 {
                waits |= self.turn(at);
            }
            let next = [
                self.network.keys().next().map(|key| key.0),
                self.ends[0].connection.deadline().map(|time| time.0),
                self.ends[1].connection.deadline().map(|time| time.0),
                waits.then_some(self.now + 1_000),
            ];
            let Some(next) = next.into_iter().flatten().min() else { return };
            if next > until {
                self.now = self.now.max(until);
                return;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.network.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, packet) = entry.remove();
                self.ends[to].inbox.push_back(packet);
            }
        }
    }

    /// Shows the end of the log.
    pub fn print_log(&self, lines: usize) {
        for (time, from, packet) in self.log.iter().rev().take(lines).rev() {
            match packet {
                Packet::Standard { header, payload } => eprintln!(
                    "{time:>12} {from} {:?} psn {:#x} ack {} len {} {:?} {:?}",
                    header.bth.opcode,
                    header.bth.psn,
                    header.bth.acknowledge,
                    payload.len(),
                    header.aeth,
                    header.reth
                ),
                Packet::Vendor(own) => eprintln!("{time:>12} {from} {own:?}"),
            }
        }
    }

    /// One end takes what arrived and sends what it may; whether it has to wait for something.
    fn turn(&mut self, at: usize) -> bool {
        let now = Time(self.now);
        let end = &mut self.ends[at];
        let waited = std::mem::take(&mut end.waiting);
        if waited > 0 && end.inbox.len() > waited {
            end.connection.hold();
        }
        while let Some(packet) = end.inbox.front() {
            let burst = row_at(&end.inbox);
            // Now whole, now cut short, and now one by one.
            let most = self.random.usize(0..=burst.len()).max(1);
            let mut taken = 1;
            match packet {
                Packet::Vendor(own) => end.connection.receive_control(now, own, &mut end.host),
                Packet::Standard { header, payload } => {
                    if end.connection.repeats_refusal() {
                        end.connection.answer_after_refusal(header, &mut end.host);
                        end.inbox.pop_front();
                        continue;
                    }
                    let unreadable =
                        self.unreadable > 0 && payload.len() >= self.unreadable_from && !payload.is_empty();
                    end.host.unreadable = unreadable;
                    let payload = [&payload[..]];
                    let payload = if burst.is_empty() { &payload[..] } else { &burst[..most] };
                    let disposition =
                        end.connection.receive(now, header, Payload::Bytes(payload), &mut end.host);
                    end.host.unreadable = false;
                    match disposition {
                        Disposition::Held { .. } => {
                            end.waiting = end.inbox.len();
                            break;
                        }
                        Disposition::Dropped(DropCause::SenderUnreadable) => self.unreadable -= 1,
                        _ => taken = disposition.packets() as usize,
                    }
                    assert!(taken <= most);
                }
            }
            end.inbox.drain(..taken);
        }
        if self.page_ins && self.random.u8(0..4) == 0 {
            end.connection.pages_in_for_requests();
            end.connection.pages_in_for_responses();
        }
        let progress = end.connection.progress(now, &mut end.host);
        let waits = end.waiting > 0 || progress != RcProgress::Idle;
        let died = end.connection.is_dead();
        for packet in std::mem::take(&mut end.host.sent) {
            self.hand_over(at, packet);
        }
        waits && !died
    }

    fn hand_over(&mut self, from: usize, packet: Packet) {
        if self.keep_log {
            self.log.push((self.now, from, packet.clone()));
        }
        if let Some(filter) = &mut self.filter {
            if !filter(from, &packet) {
                return;
            }
        }
        if self.random.f64() < self.faults.loss {
            if self.keep_log {
                eprintln!("lost at {}", self.now);
            }
            return;
        }
        let copies = if self.random.f64() < self.faults.duplication { 2 } else { 1 };
        for _ in 0..copies {
            let Some(sent) = self.pass_bottleneck(from, &packet) else { continue };
            let mut arrival = (sent + DELAY).max(self.last_arrival[from]);
            if self.random.f64() < self.faults.reordering {
                arrival += self.random.u64(0..20 * DELAY);
            } else {
                self.last_arrival[from] = arrival;
            }
            self.sequence += 1;
            self.network.insert((arrival, self.sequence), (1 - from, packet.clone()));
        }
    }

    /// When a packet has left the bottleneck, with its delay; none: the queue is full.
    fn pass_bottleneck(&mut self, from: usize, packet: &Packet) -> Option<u64> {
        let Some(Bottleneck { pace, queue, delay }) = self.faults.bottleneck else { return Some(self.now) };
        let begins = self.free_at[from].max(self.now);
        if (begins - self.now) * 1024 / pace > queue {
            self.overflowed += 1;
            return None;
        }
        // Headers of Ethernet, IP, UDP and BTH.
        let bytes = 58
            + match packet {
                Packet::Standard { payload, .. } => payload.len() as u64,
                Packet::Vendor(_) => 44,
            };
        self.free_at[from] = begins + bytes * pace / 1024;
        Some(self.free_at[from] + delay)
    }
}
