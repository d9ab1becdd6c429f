//! Multicast groups: who gets a datagram, whatever joins, leaves, ends and is lost meanwhile.

use crate::support::{SPAN, Side, side_with};
use pagewire_nic::attributes::{AddressVector, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::{
    Data, Destination, GROUP_QUEUE_PAIR, PathChoice, ReceiveRequest, ScatterGather, SendOperation,
    SendRequest, Unwatched,
};
use pagewire_sim::{LinkFaults, MEMORY, World};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUEUE_KEY: u32 = 0x1111_1111;
const SIDES: usize = 4;
const QUEUE_PAIRS: usize = 2;
const GROUPS: u8 = 3;
/// Nanoseconds after which nothing is under way any more.
const SETTLED: u64 = 2_000_000;
/// A datagram is its number, behind the global route.
const FRONT: u64 = 40;
const LENGTH: u32 = 8;

/// The place of a queue pair: whose, and which.
type Place = (usize, usize);

/// Each queue pair has receives, and is in the groups that the model has.
struct Hosts {
    world: World,
    sides: Vec<Side>,
    dead: [bool; SIDES],
    /// What each queue pair has got, by the number of the datagram.
    got: BTreeMap<(Place, u64), u32>,
    sent: u64,
}

fn group_gid(group: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xFF, 0xFF, 239, 1, 1, group]);
    gid
}

impl Hosts {
    /// The first two processes are on one host.
    fn new(seed: u64, faults: LinkFaults) -> Self {
        let world = World::new(seed, faults);
        let first = world.host();
        let hosts = [first, first, world.host(), world.host()];
        let sides: Vec<Side> = hosts
            .map(|host| {
                side_with(
                    &world,
                    host,
                    PathChoice::Auto,
                    &[QueuePairType::Ud; QUEUE_PAIRS],
                    Arc::new(Unwatched),
                )
            })
            .into();
        let hosts = Hosts { world, sides, dead: [false; SIDES], got: BTreeMap::new(), sent: 0 };
        for side in &hosts.sides {
            for (index, queue_pair) in side.queue_pairs.iter().enumerate() {
                let init = QueuePairChange {
                    state: Some(QpState::Init),
                    pkey_index: Some(0),
                    port: Some(1),
                    queue_key: Some(QUEUE_KEY),
                    ..QueuePairChange::default()
                };
                let receive =
                    QueuePairChange { state: Some(QpState::ReadyToReceive), ..QueuePairChange::default() };
                let send = QueuePairChange {
                    state: Some(QpState::ReadyToSend),
                    send_psn: Some(100),
                    ..QueuePairChange::default()
                };
                for change in [init, receive, send] {
                    queue_pair.modify(&change).unwrap();
                }
                (0..16).for_each(|slot| receive_into(side, index, slot));
            }
        }
        hosts
    }

    /// Sends its number to a group.
    fn send(&mut self, (side, index): Place, group: u8) -> u64 {
        self.sent += 1;
        let from = &self.sides[side];
        let at = MEMORY + SPAN - 8;
        self.world.poke(from.process, at, &self.sent.to_le_bytes());
        let vector = AddressVector {
            destination_gid: group_gid(group),
            is_global: true,
            hop_limit: 1,
            port: 1,
            ..AddressVector::default()
        };
        let address = from.domain.create_ah(&vector).unwrap();
        let pieces = [ScatterGather { address: at, length: LENGTH, key: from.region.lkey() }];
        let request = SendRequest {
            wr_id: SEND,
            data: Data::Segments(&pieces),
            operation: SendOperation::Send,
            signaled: true,
            fence: false,
            solicited: false,
            destination: Some(Destination::Address {
                address: &address,
                queue_pair: GROUP_QUEUE_PAIR,
                queue_key: QUEUE_KEY,
            }),
        };
        from.queue_pairs[index].post_send(&request).unwrap();
        from.queue_pairs[index].doorbell();
        self.settle();
        self.sent
    }

    /// Works until nothing is under way, and takes what has come.
    fn settle(&mut self) {
        let end = self.world.now() + SETTLED;
        let alive: Vec<&Side> =
            (0..SIDES).filter(|side| !self.dead[*side]).map(|side| &self.sides[side]).collect();
        while self.world.now() < end {
            let next = alive.iter().filter_map(|side| side.nic.progress()).min().unwrap_or(u64::MAX);
            // What came for one while another worked.
            let has_input = alive.iter().any(|side| self.world.has_input(side.process));
            let soon = (self.world.now() + 1_000).min(end);
            self.world.advance(Some(if has_input { soon } else { next.clamp(soon, end) }));
        }
        for side in (0..SIDES).filter(|side| !self.dead[*side]) {
            let mut received = Vec::new();
            self.sides[side].cq.poll(64, &mut |completion| received.push(*completion));
            for completion in received.into_iter().filter(|completion| completion.wr_id != SEND) {
                let (index, slot) = (completion.wr_id / 100, completion.wr_id % 100);
                let mut bytes = [0; LENGTH as usize];
                let at = place_of(index as usize, slot) + FRONT;
                assert!(self.world.peek(self.sides[side].process, at, &mut bytes));
                let number = u64::from_le_bytes(bytes);
                *self.got.entry(((side, index as usize), number)).or_default() += 1;
                receive_into(&self.sides[side], index as usize, slot);
            }
        }
    }
}

/// The number of a send request; a receive request has the index of its queue pair and its slot.
const SEND: u64 = 1_000_000;

fn place_of(index: usize, slot: u64) -> u64 {
    MEMORY + 4096 * index as u64 + 64 * slot
}

fn receive_into(side: &Side, index: usize, slot: u64) {
    let address = place_of(index, slot);
    let segments = [ScatterGather { address, length: 48, key: side.region.lkey() }];
    let request = ReceiveRequest { wr_id: 100 * index as u64 + slot, segments: &segments };
    side.queue_pairs[index].post_receive(&request).unwrap();
}

/// Random joins, leaves, sends and ends: each datagram comes to the queue pairs that are in its group at that time, wherever they are, the sender's own
/// too. Where packets are lost and doubled, it comes to no other, and not more than twice.
#[test]
fn datagrams_come_to_the_members_of_their_group_and_to_nobody_else() {
    for seed in 0..40 {
        let is_exact = seed % 2 == 0;
        let faults = if is_exact { LinkFaults::NONE } else { LinkFaults::lossy(0.1) };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut hosts = Hosts::new(seed, faults);
        let mut members: BTreeMap<(u8, Place), ()> = BTreeMap::new();
        let (mut expected, mut arrived) = (0, 0);
        for step in 0..120 {
            let place = (random.usize(..SIDES), random.usize(..QUEUE_PAIRS));
            let group = random.u8(1..=GROUPS);
            if hosts.dead[place.0] {
                continue;
            }
            let queue_pair = hosts.sides[place.0].queue_pairs[place.1].clone();
            match random.u32(..8) {
                0..2 => {
                    queue_pair.attach_group(group_gid(group)).unwrap();
                    members.insert((group, place), ());
                }
                2 => {
                    let is_member = members.remove(&(group, place)).is_some();
                    assert_eq!(queue_pair.detach_group(group_gid(group)).is_ok(), is_member);
                }
                3 if step > 60 && random.u32(..8) == 0 => {
                    hosts.world.kill(hosts.sides[place.0].process);
                    hosts.dead[place.0] = true;
                    members.retain(|(_, (side, _)), ()| *side != place.0);
                }
                _ => {
                    let number = hosts.send(place, group);
                    let got: BTreeMap<Place, u32> = hosts
                        .got
                        .iter()
                        .filter(|((_, of), _)| *of == number)
                        .map(|((place, _), count)| (*place, *count))
                        .collect();
                    let of_group: BTreeMap<Place, u32> =
                        members.keys().filter(|(of, _)| *of == group).map(|(_, place)| (*place, 1)).collect();
                    (expected, arrived) = (expected + of_group.len(), arrived + got.len());
                    if is_exact {
                        assert_eq!(got, of_group, "seed {seed}, step {step}");
                    }
                    let strangers = got.keys().filter(|place| !of_group.contains_key(place)).count();
                    assert_eq!(strangers, 0, "seed {seed}, step {step}: {got:?}");
                    assert!(got.values().all(|count| *count <= 2), "seed {seed}, step {step}: {got:?}");
                }
            }
        }
        assert!(expected > 20 && arrived > expected / 2, "seed {seed}: {arrived} of {expected} came");
        // Nothing comes twice later, or after a leave.
        let before = hosts.got.clone();
        hosts.settle();
        assert_eq!(hosts.got, before, "seed {seed}");
    }
}
