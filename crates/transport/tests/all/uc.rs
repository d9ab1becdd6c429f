//! UC over networks of all kinds: what arrives is whole and in order, what is lost is lost alone.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support::host::{Host, Packet};
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::PacketHeader;
use proptest::prelude::*;

struct Uc {
    sender: UcConnection,
    receiver: UcConnection,
    from: Host,
    to: Host,
    posted: u64,
}

impl Uc {
    fn new(link: Link, psn: u32, seed: u64) -> Uc {
        let settings = |destination| UcSettings {
            link,
            destination,
            partition: 0xffff,
            receive_psn: psn,
            remote_rights: RemoteRights { write: true, ..RemoteRights::default() },
        };
        let memories = [0, 1].map(|_| Rc::new(RefCell::new(vec![0u8; 1 << 20])));
        let [one, other] = memories;
        let mut sender = UcConnection::new(settings(0x22));
        sender.start_requester(psn);
        let mut to = Host::new(other.clone(), one.clone(), !seed);
        to.restarts = true;
        Uc {
            sender,
            receiver: UcConnection::new(settings(0x11)),
            from: Host::new(one, other, seed),
            to,
            posted: 0,
        }
    }

    fn post(&mut self, work: WorkRequest, bytes: Vec<u8>) {
        let id = WorkId(self.posted);
        self.posted += 1;
        self.from.buffers.insert(id, bytes);
        self.sender.post(WorkRequest { id, ..work });
    }

    /// Sends everything; gives the packets.
    fn send(&mut self) -> Vec<(PacketHeader, Vec<u8>)> {
        while self.sender.progress(Time(0), &mut self.from) != RcProgress::Idle {}
        std::mem::take(&mut self.from.sent)
            .into_iter()
            .map(|packet| match packet {
                Packet::Standard { header, payload } => (header, payload),
                Packet::Vendor(own) => panic!("{own:?} on UC"),
            })
            .collect()
    }

    fn deliver(&mut self, header: &PacketHeader, payload: &[u8]) {
        while self.receiver.receive(Time(0), header, Payload::Bytes(&[payload]), &mut self.to).is_held() {}
        assert_eq!(self.receiver.progress(Time(0), &mut self.to), RcProgress::Idle);
        assert!(self.to.sent.is_empty(), "UC answers nothing");
    }
}

fn send_immediate(length: u32, immediate: u32) -> WorkRequest {
    work(WorkOperation::Send { immediate: Some(immediate), invalidate: None }, length)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Messages carry their number; any packets are lost. Exactly those messages arrive of which
    /// nothing was lost.
    #[test]
    fn whole_messages_arrive(
        lengths in prop::collection::vec((0u32..4000, any::<bool>()), 1..20),
        lost in prop::collection::vec(0usize..60, 0..10),
        psn in prop_oneof![Just(0xff_fff0u32), 0..1u32 << 24],
        wait in prop_oneof![Just(0.0), Just(0.4)],
        seed: u64,
    ) {
        let mut uc = Uc::new(lossy(1024), psn, seed);
        uc.receiver.set_reporting(false);
        (uc.from.wait, uc.to.wait) = (wait, wait);
        for (number, (length, write)) in lengths.iter().enumerate() {
            uc.to.post_receive(4000);
            let bytes = vec![number as u8 + 1; *length as usize];
            let number = number as u32;
            if *write {
                uc.post(write_immediate(u64::from(number) * 4000, *length, number), bytes);
            } else {
                uc.post(send_immediate(*length, number), bytes);
            }
        }
        let packets = uc.send();
        let numbers: Vec<u64> = uc.from.completions.iter().map(|completion| completion.0.0).collect();
        prop_assert_eq!(numbers, (0..lengths.len() as u64).collect::<Vec<_>>());
        let mut wanted = Vec::new();
        let mut at = 0;
        for (number, (length, _)) in lengths.iter().enumerate() {
            let count = length.div_ceil(1024).max(1) as usize;
            if !(at..at + count).any(|packet| lost.contains(&packet)) {
                wanted.push(number as u32);
            }
            at += count;
        }
        prop_assert_eq!(at, packets.len());
        for (index, (header, payload)) in packets.iter().enumerate() {
            if !lost.contains(&index) {
                uc.deliver(header, payload);
            }
        }
        let arrived: Vec<u32> =
            uc.to.received.iter().map(|received| received.result.unwrap().immediate.unwrap()).collect();
        prop_assert_eq!(&arrived, &wanted);
        for received in &uc.to.received {
            let arrival = received.result.unwrap();
            let number = arrival.immediate.unwrap();
            let (length, write) = lengths[number as usize];
            prop_assert_eq!(arrival.length, length);
            let bytes = if write {
                let start = number as usize * 4000;
                uc.to.memory.borrow()[start..start + length as usize].to_vec()
            } else {
                received.bytes.clone()
            };
            prop_assert_eq!(bytes, vec![number as u8 + 1; length as usize]);
        }
        let any = (0..packets.len()).any(|packet| !lost.contains(&packet));
        prop_assert_eq!(&uc.to.events, &vec![QpEvent::CommunicationEstablished; usize::from(any)]);
    }
}

#[test]
fn without_a_receive_the_message_is_dropped_alone() {
    let mut uc = Uc::new(lossy(1024), 0, 1);
    uc.post(send_immediate(3000, 1), vec![1; 3000]);
    uc.post(send_immediate(3000, 2), vec![2; 3000]);
    let packets = uc.send();
    for (index, (header, payload)) in packets.iter().enumerate() {
        if index == 3 {
            uc.to.post_receive(3000);
        }
        uc.deliver(header, payload);
    }
    assert_eq!(uc.to.received.len(), 1);
    assert_eq!(uc.to.received[0].bytes, [2; 3000]);
    assert_eq!(uc.receiver.counters().no_receive, 1);
    assert!(!uc.receiver.is_dead());
}

#[test]
fn long_message_is_dropped() {
    for shares_receives in [false, true] {
        let mut uc = Uc::new(lossy(1024), 0, 1);
        uc.to.shares_receives = shares_receives;
        uc.to.post_receive(2000);
        uc.to.post_receive(2000);
        uc.post(send(3000), vec![1; 3000]);
        uc.post(send(10), vec![2; 10]);
        for (header, payload) in uc.send() {
            uc.deliver(&header, &payload);
        }
        let failed = usize::from(shares_receives);
        assert_eq!(uc.to.received.len(), 1 + failed);
        if shares_receives {
            assert_eq!(uc.to.received[0].result, Err(Status::LocalLength));
        }
        assert_eq!(uc.to.received[failed].bytes, [2; 10]);
        assert_eq!(uc.to.receives_posted(), 1 - failed);
        assert_eq!(uc.to.events, [QpEvent::CommunicationEstablished]);
        assert!(!uc.receiver.is_dead());
        assert!(uc.from.completions.iter().all(|completion| completion.1 == Status::Success));
    }
}

#[test]
fn unreachable_receive_ends_the_connection() {
    let mut uc = Uc::new(lossy(1024), 0, 1);
    uc.to.post_receive(4000);
    uc.to.deny_receive = Some(Denial::LocalProtection);
    uc.post(send(3000), vec![1; 3000]);
    for (header, payload) in uc.send() {
        uc.deliver(&header, &payload);
    }
    assert_eq!(uc.to.received[0].result, Err(Status::LocalProtection));
    assert_eq!(uc.to.events, [QpEvent::CommunicationEstablished, QpEvent::RequestError]);
    assert!(uc.receiver.is_dead());
    assert!(uc.from.completions.iter().all(|completion| completion.1 == Status::Success));
}

#[test]
fn a_write_without_the_right_is_dropped_in_silence() {
    let mut uc = Uc::new(lossy(1024), 0, 1);
    let foreign = RemoteAddress { address: BASE, key: KEY + 1 };
    uc.post(work(WorkOperation::Write { remote: foreign, immediate: None }, 3000), vec![1; 3000]);
    uc.post(write(0, 10), vec![2; 10]);
    for (header, payload) in uc.send() {
        uc.deliver(&header, &payload);
    }
    assert_eq!(uc.to.memory.borrow()[..11], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0]);
    assert!(!uc.receiver.is_dead());
}

#[test]
fn a_local_error_ends_the_send_queue_alone() {
    for failing in [0, 1024] {
        let mut uc = Uc::new(lossy(1024), 0, 1);
        let mut bytes = Vec::new();
        let (other, packets) = reported(&mut bytes);
        // Its own peer is in the middle of a message.
        (uc.sender, uc.from) = (other.receiver, other.to);
        uc.sender.start_requester(0);
        packets[..1].iter().for_each(|packet| offer_at(Time(0), &mut uc.sender, &mut uc.from, packet));
        uc.receiver.set_reporting(true);
        uc.post(write(0, 2000), vec![1; 2000]);
        let mut sent = uc.send();
        (uc.from.deny_transmit, uc.from.deny_from) = (Some((WorkId(1), Denial::LocalProtection)), failing);
        uc.post(write(0, 2000), vec![2; 2000]);
        uc.post(write(0, 2000), vec![3; 2000]);
        sent.extend(uc.send());
        assert_eq!(uc.from.completions, [(WorkId(0), Status::Success), (WorkId(1), Status::LocalProtection)]);
        assert_eq!((uc.sender.outstanding(), uc.sender.is_dead()), (0, false));
        // The program has gone back to RTS.
        (uc.from.deny_transmit, uc.from.failed) = (None, false);
        uc.to.post_receive(0);
        uc.post(write_immediate(0, 2000, 4), vec![4; 2000]);
        sent.extend(uc.send());
        let psns: Vec<u32> = sent.iter().map(|(header, _)| header.bth.psn).collect();
        assert_eq!(psns, (0..sent.len() as u32).collect::<Vec<_>>());
        sent.iter().for_each(|packet| offer(&mut uc, packet));
        assert_eq!((uc.to.received.len(), uc.receiver.counters().out_of_order), (1, 0));
        assert_eq!(uc.to.memory.borrow()[..2000], [4; 2000]);
        // What came in meanwhile is whole.
        packets[1..].iter().for_each(|packet| offer_at(Time(0), &mut uc.sender, &mut uc.from, packet));
        let arrived: Vec<&Vec<u8>> = uc.from.received.iter().map(|received| &received.bytes).collect();
        assert_eq!(arrived, bytes.iter().collect::<Vec<_>>());
        assert!(uc.from.events.is_empty(), "{:?}", uc.from.events);
    }
}

#[test]
fn a_message_without_its_beginning_is_dropped() {
    use pagewire_wire::{Opcode, PacketOperation as Code, Transport};
    for code in [Code::SendMiddle, Code::SendLast, Code::SendLastImmediate, Code::WriteLast] {
        let mut uc = Uc::new(lossy(1024), 0, 1);
        uc.to.post_receive(4000);
        uc.post(send_immediate(1024, 1), vec![1; 1024]);
        uc.post(send_immediate(1024, 2), vec![2; 1024]);
        let packets = uc.send();
        let mut headless = packets[0].0;
        headless.bth.opcode = Opcode::new(Transport::Uc, code);
        headless.immediate = headless.immediate.filter(|_| code == Code::SendLastImmediate);
        uc.deliver(&headless, &packets[0].1);
        assert_eq!((uc.to.received.len(), uc.receiver.counters().stale), (0, 1), "{code:?}");
        uc.deliver(&packets[1].0, &packets[1].1);
        assert_eq!(uc.to.received[0].bytes, [2; 1024], "{code:?}: the next message is taken again");
    }
}

#[test]
fn writes_may_go_direct() {
    let mut uc = Uc::new(local(true), 0, 1);
    uc.post(write(0, 2000), vec![1; 2000]);
    assert!(uc.send().is_empty());
    assert_eq!(uc.to.memory.borrow()[..2000], [1; 2000]);
}

#[test]
fn direct_execution_does_not_overtake_packets() {
    let mut uc = Uc::new(local(true), 0, 1);
    uc.to.post_receive(0);
    uc.post(write_immediate(0, 4, 7), vec![1; 4]);
    uc.post(write(0, 4), vec![2; 4]);
    uc.from.link = LinkState::Pending;
    let packets = uc.send();
    assert_eq!(packets.len(), 2, "the peer has not taken the first: the second goes the same way");
    packets.iter().for_each(|(header, payload)| uc.deliver(header, payload));
    assert_eq!(uc.to.memory.borrow()[..4], [2; 4]);
    uc.from.link = LinkState::Delivered;
    uc.post(write(0, 4), vec![3; 4]);
    assert!(uc.send().is_empty());
    assert_eq!((uc.to.memory.borrow()[0], uc.sender.counters().initiator_copies), (3, 1));
}

/// A receiver whose peer is another Pagewire, and the packets of three messages of three packets each.
fn reported(bytes: &mut Vec<Vec<u8>>) -> (Uc, Vec<(PacketHeader, Vec<u8>)>) {
    let (mut uc, packets) = from_a_stranger(bytes);
    uc.receiver.set_reporting(true);
    (uc, packets)
}

/// A receiver whose peer has not said what it is, and the packets of three messages of three packets each.
fn from_a_stranger(bytes: &mut Vec<Vec<u8>>) -> (Uc, Vec<(PacketHeader, Vec<u8>)>) {
    let mut uc = Uc::new(lossy(1024), 0xff_fffd, 1);
    for number in 0..3u8 {
        uc.to.post_receive(4000);
        bytes.push((0..3000u32).map(|at| (at % 251) as u8 ^ number).collect());
        uc.post(send_immediate(3000, number.into()), bytes[usize::from(number)].clone());
    }
    let packets = uc.send();
    assert_eq!(packets.len(), 9);
    (uc, packets)
}

#[test]
fn uc_reports_bound_in_flight() {
    let whole = limits::UC_WINDOW / 1024;
    for (sharers, window) in [(1, whole), (4, whole / 4), (1000, limits::UC_LEAST)] {
        let mut uc = Uc::new(lossy(1024), 0xff_fff0, 1);
        uc.sender.set_reporting(true);
        uc.sender.set_sharers(sharers);
        uc.receiver.set_reporting(true);
        uc.receiver.set_sharers(sharers);
        let packets = 3 * whole;
        uc.to.post_receive(packets as usize * 1024);
        uc.post(send_immediate(packets * 1024, 1), vec![1; packets as usize * 1024]);
        let mut sent = 0;
        while sent < packets {
            let batch = uc.send();
            assert!(!batch.is_empty() && batch.len() as u32 <= window, "{sharers}: {}", batch.len());
            sent += batch.len() as u32;
            batch.iter().for_each(|packet| offer(&mut uc, packet));
            uc.receiver.progress(Time(0), &mut uc.to);
            let reports = std::mem::take(&mut uc.to.sent);
            assert_eq!(reports.len(), 1, "one report for what came together");
            for report in reports {
                let Packet::Vendor(report) = report else { panic!("{report:?}") };
                uc.sender.receive_control(&report);
            }
        }
        assert_eq!(uc.to.received[0].bytes, vec![1; packets as usize * 1024]);
        assert_eq!(
            (uc.sender.counters().requests_sent, uc.receiver.counters().out_of_order),
            (packets.into(), 0)
        );
    }
}

/// A deadline that has passed and that `progress` does nothing about would be asked for over and over.
#[test]
fn no_deadline_is_overdue() {
    // The packet behind a gap waits for a page.
    let mut bytes = Vec::new();
    let (mut uc, packets) = reported(&mut bytes);
    packets[..2].iter().chain(&packets[3..5]).for_each(|packet| offer(&mut uc, packet));
    uc.to.page_absent = true;
    let late = uc.receiver.deadline().expect("a deadline");
    assert_eq!(uc.receiver.progress(late, &mut uc.to), RcProgress::Wait);
    assert_eq!(uc.receiver.deadline(), None);
    uc.to.page_absent = false;
    packets[5..].iter().for_each(|packet| offer(&mut uc, packet));
    uc.receiver.progress(late, &mut uc.to);
    assert_eq!(uc.to.received.len(), 2);

    // It has no receive that is long enough: the connection dies with packets kept behind it.
    let (mut uc, packets) = reported(&mut bytes);
    uc.to.deny_receive = Some(Denial::LocalProtection);
    packets[1..].iter().for_each(|packet| offer(&mut uc, packet));
    uc.receiver.progress(uc.receiver.deadline().expect("a deadline"), &mut uc.to);
    assert!(uc.receiver.is_dead());
    assert_eq!(uc.receiver.deadline(), None);

    // A full window, and nothing may be started.
    let mut uc = Uc::new(lossy(1024), 0, 1);
    for _ in 0..2 * limits::UC_WINDOW / 1024 {
        uc.post(send_immediate(8, 1), vec![1; 8]);
    }
    uc.send();
    let full = uc.sender.deadline().expect("a deadline");
    uc.sender.set_draining(true);
    assert_eq!(uc.sender.progress(full, &mut uc.from), RcProgress::Idle);
    assert_eq!(uc.sender.deadline(), None);
    uc.sender.set_draining(false);
    assert_ne!(uc.sender.progress(full, &mut uc.from), RcProgress::Wait);
    assert!(!uc.from.sent.is_empty());
}

#[test]
fn gaps_and_foreign_control_packets_are_counted() {
    let mut uc = Uc::new(lossy(1024), 0, 1);
    uc.receiver.set_reporting(false);
    uc.to.post_receive(4000);
    uc.post(send_immediate(3000, 1), vec![1; 3000]);
    let packets = uc.send();
    uc.deliver(&packets[0].0, &packets[0].1);
    uc.deliver(&packets[2].0, &packets[2].1);
    let counters = uc.receiver.counters();
    assert_eq!((counters.packets_received, counters.out_of_order, counters.stale), (2, 1, 1));
    uc.receiver.receive_control(&pagewire_wire::VendorPacket::Hold(pagewire_wire::Hold {
        psn: 0,
        flags: pagewire_wire::HoldFlags::empty(),
    }));
    assert_eq!(uc.receiver.counters().stale, 2);
}

fn offer(uc: &mut Uc, packet: &(PacketHeader, Vec<u8>)) {
    offer_at(Time(0), &mut uc.receiver, &mut uc.to, packet);
}

fn offer_at(
    now: Time,
    receiver: &mut UcConnection,
    to: &mut Host,
    (header, payload): &(PacketHeader, Vec<u8>),
) {
    assert!(!receiver.receive(now, header, Payload::Bytes(&[payload]), to).is_held());
}

/// Immediates of the messages that have arrived.
fn arrived(uc: &Uc) -> Vec<u32> {
    uc.to.received.iter().map(|received| received.result.unwrap().immediate.unwrap()).collect()
}

/// Who receives only is not told that its peer is a standard one: it finds out as no greeting comes.
#[test]
fn a_peer_that_never_greets_is_taken_for_a_standard_one() {
    let mut bytes = Vec::new();
    let (mut uc, packets) = from_a_stranger(&mut bytes);
    offer(&mut uc, &packets[0]);
    let later = Time(limits::LONGEST_GREETING);
    packets[1..3].iter().chain(&packets[6..]).for_each(|packet| {
        offer_at(later, &mut uc.receiver, &mut uc.to, packet);
    });
    assert_eq!(arrived(&uc), [0, 2], "the third message does not wait for the second");
    // It begins anew, with the same PSN.
    uc.to.post_receive(4000);
    packets[..3].iter().for_each(|packet| offer_at(later, &mut uc.receiver, &mut uc.to, packet));
    assert_eq!(arrived(&uc), [0, 2, 0]);
}

/// What was kept when it turned out is not lost by it.
#[test]
fn what_a_standard_peer_sent_meanwhile_comes_in_time() {
    let mut bytes = Vec::new();
    let (mut uc, packets) = from_a_stranger(&mut bytes);
    packets[..3].iter().chain(&packets[6..8]).for_each(|packet| offer(&mut uc, packet));
    uc.receiver.set_reporting(false);
    offer(&mut uc, &packets[8]);
    let late = uc.receiver.deadline().expect("a deadline");
    assert_eq!(uc.receiver.progress(late, &mut uc.to), RcProgress::Idle);
    assert_eq!(arrived(&uc), [0, 2]);
}

#[test]
fn restarted_sender_keeps_first_packet() {
    let mut bytes = Vec::new();
    let (mut uc, packets) = reported(&mut bytes);
    packets[..5].iter().for_each(|packet| offer(&mut uc, packet));
    uc.to.post_receive(4000);
    packets[..3].iter().for_each(|packet| offer(&mut uc, packet));
    assert_eq!(arrived(&uc), [0], "they came before");
    uc.receiver.peer_began_anew(0xff_fffd);
    packets.iter().for_each(|packet| offer(&mut uc, packet));
    assert_eq!(arrived(&uc), [0, 0, 1, 2]);
    assert_eq!(uc.to.events, [QpEvent::CommunicationEstablished]);
}

#[test]
fn packets_of_a_pagewire_may_overtake_each_other() {
    for seed in 0..200 {
        let mut bytes = Vec::new();
        // The first packets may come before the greeting.
        let begin = if seed % 2 == 0 { reported } else { from_a_stranger };
        let (mut uc, mut packets) = begin(&mut bytes);
        fastrand::Rng::with_seed(seed).shuffle(&mut packets);
        packets.iter().for_each(|packet| offer(&mut uc, packet));
        let arrived: Vec<&Vec<u8>> = uc.to.received.iter().map(|received| &received.bytes).collect();
        assert_eq!(arrived, bytes.iter().collect::<Vec<_>>(), "seed {seed}");
        assert_eq!((uc.receiver.counters().out_of_order, uc.receiver.deadline()), (0, None), "seed {seed}");
    }
}

#[test]
fn a_packet_that_does_not_come_is_given_up_in_time() {
    let mut bytes = Vec::new();
    let (mut uc, packets) = reported(&mut bytes);
    packets.iter().enumerate().filter(|(at, _)| *at != 4).for_each(|(_, packet)| offer(&mut uc, packet));
    assert_eq!(uc.to.received.len(), 1, "the rest waits for the fifth packet");
    let late = uc.receiver.deadline().expect("a deadline");
    assert_eq!(uc.receiver.progress(Time(late.0 - 1), &mut uc.to), RcProgress::Idle);
    assert_eq!(uc.to.received.len(), 1);
    assert_eq!(uc.receiver.progress(late, &mut uc.to), RcProgress::Idle);
    let arrived: Vec<u32> =
        uc.to.received.iter().map(|received| received.result.unwrap().immediate.unwrap()).collect();
    assert_eq!(arrived, [0, 2], "the message with the gap is lost, and only that");
    assert_eq!(uc.to.received[1].bytes, bytes[2]);
    // It comes after all: its turn is over.
    offer(&mut uc, &packets[4]);
    assert_eq!((uc.to.received.len(), uc.receiver.deadline()), (2, None));
}
