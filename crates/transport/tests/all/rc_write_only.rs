//! WRITEs between two Pagewires, each packet of which is a message by itself.

use crate::support::host::{Host, Packet, Received};
use crate::support::network::{Bottleneck, DELAY, MEMORY, Pair};
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Aeth, Nak, PacketHeader, PacketOperation as Code, Reth, Syndrome};

const MTU: u32 = 1024;

fn pagewires() -> Pair {
    pair_with(|_, _| ()).selective()
}

fn headers(pair: &Pair) -> Vec<PacketHeader> {
    sent(pair, 0).into_iter().map(|(_, header)| header).collect()
}

fn bytes(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at / 64 * 7 + at) as u8).collect()
}

/// What packet `index` of a WRITE of so many bytes to `offset` names.
fn reth(offset: u64, length: u32, index: u32) -> Reth {
    let skipped = index * MTU;
    Reth { address: BASE + offset + u64::from(skipped), key: KEY, length: length - skipped }
}

fn memory(pair: &Pair, offset: usize, length: u32) -> Vec<u8> {
    pair.ends[1].host.memory.borrow()[offset..][..length as usize].to_vec()
}

#[test]
fn a_write_to_a_pagewire_leaves_as_writes_of_equal_length() {
    let length = 64 * MTU + 3;
    let mut pair = pagewires();
    pair.post(0, write(4096, length), bytes(length));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert!(memory(&pair, 4096, length) == bytes(length));
    let headers = headers(&pair);
    assert_eq!(headers.len(), 65);
    for (header, index) in headers.iter().zip(0..) {
        assert_eq!(header.bth.opcode.operation(), Some(Code::WriteOnly));
        assert_eq!((header.bth.psn, header.reth), (0x100 + index, Some(reth(4096, length, index))));
    }
    let bursts = &pair.ends[0].host.bursts;
    assert!(bursts.iter().sum::<u32>() > 55 && bursts.len() < 8, "{bursts:?}");
    // The first packet is part of a row, and the last asks.
    assert_eq!(bursts[0], 15);
    assert!(headers.last().is_some_and(|last| last.bth.acknowledge));
}

/// Each acknowledgement costs as much as some packets: of messages that follow each other a near Pagewire is asked for one now and then,
/// and at the end.
#[test]
fn messages_that_follow_each_other_share_acknowledgements() {
    for (pagewire, delay) in [(true, 0), (true, 200_000), (false, 0)] {
        let mut pair = if pagewire { pagewires() } else { logged(Pair::new(lossy(MTU), 1)) };
        pair.faults.bottleneck = Some(Bottleneck { pace: 100, queue: 1 << 20, delay });
        // The round trip is known, and the window has grown.
        for _ in 0..10 {
            pair.post(0, write(4096, 64 * MTU), bytes(64 * MTU));
        }
        pair.run(FOREVER);
        let before = headers(&pair).len();
        for _ in 0..10 {
            pair.post(0, write(4096, 64 * MTU), bytes(64 * MTU));
        }
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success; 20]);
        let asking: Vec<bool> =
            headers(&pair)[before..].iter().map(|header| header.bth.acknowledge).collect();
        assert_eq!((asking.len(), asking.last()), (640, Some(&true)));
        let asks = asking.iter().filter(|asks| **asks).count();
        // The window is of 192 packets.
        if pagewire && delay == 0 {
            assert!((5..=10).contains(&asks), "{asks}");
        } else {
            assert!(asks >= 20 && (1..=10).all(|message| asking[64 * message - 1]), "{asks}");
        }
    }
}

#[test]
fn rows_of_several_messages_leave_together() {
    let mut pair = pagewires();
    for n in 0..3 {
        pair.post(0, write(n * 65536, 10 * MTU), bytes(10 * MTU));
    }
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 3]);
    let sent = sent(&pair, 0);
    assert_eq!(sent.len(), 30);
    // All at once, with nothing between them that is longer or shorter.
    assert!(sent.iter().all(|(time, header)| *time == 0 && header.len() == 28));
    for n in 0..3 {
        assert!(memory(&pair, n * 65536, 10 * MTU) == bytes(10 * MTU));
    }
}

#[test]
fn a_standard_peer_gets_first_middle_last() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, write(0, 3 * MTU));
    pair.run(FOREVER);
    assert_eq!(codes(&pair, 0), [Code::WriteFirst, Code::WriteMiddle, Code::WriteLast]);
}

/// The receiver is told how long the whole WRITE was.
#[test]
fn a_write_with_immediate_data_is_one_message() {
    let mut pair = pagewires();
    pair.ends[1].host.post_receive(0);
    pair.post(0, write_immediate(0, 3 * MTU, 7), bytes(3 * MTU));
    pair.run(FOREVER);
    assert_eq!(codes(&pair, 0), [Code::WriteFirst, Code::WriteMiddle, Code::WriteLastImmediate]);
    let arrival = Arrival {
        kind: ArrivalKind::WriteImmediate,
        length: 3 * MTU,
        immediate: Some(7),
        invalidated: None,
        solicited: false,
    };
    assert_eq!(pair.ends[1].host.received, [Received { result: Ok(arrival), bytes: vec![] }]);
}

#[test]
fn what_was_begun_as_one_message_is_ended_as_one() {
    let mut pair = pair_with(|_, _| ());
    // More than may be under way at first.
    let length = 80 * MTU;
    for _ in 0..2 {
        pair.post(0, write(0, length), bytes(length));
    }
    pair.run(DELAY / 2);
    let begun = headers(&pair).len();
    assert!(begun < 80, "{begun}");
    for end in &mut pair.ends {
        end.connection.set_selective(true);
    }
    // And what was lost is repeated as it was.
    lose(&mut pair, 1, |from, packet| from == 0 && has_psn(packet, 0x100 + 79));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
    let codes = codes(&pair, 0);
    let count = |wanted| codes.iter().filter(|code| **code == wanted).count();
    assert_eq!(count(Code::WriteFirst), 1);
    assert_eq!(count(Code::WriteMiddle), 78);
    assert!(count(Code::WriteLast) >= 2);
    assert!(count(Code::WriteOnly) >= 80);
    assert!(memory(&pair, 0, length) == bytes(length));
}

#[test]
fn what_is_lost_in_a_row_is_sent_again_as_it_was() {
    let length = 64 * MTU;
    let mut pair = pagewires();
    lose(&mut pair, 3, |from, packet| from == 0 && (0x105..0x108).any(|psn| has_psn(packet, psn)));
    pair.post(0, write(0, length), bytes(length));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert!(memory(&pair, 0, length) == bytes(length));
    let again: Vec<PacketHeader> =
        headers(&pair).into_iter().filter(|header| (0x105..0x108).contains(&header.bth.psn)).collect();
    assert_eq!(again.len(), 6);
    for header in again {
        assert_eq!(header.bth.opcode.operation(), Some(Code::WriteOnly));
        assert_eq!(header.reth, Some(reth(0, length, header.bth.psn - 0x100)));
    }
    assert_eq!(pair.ends[0].connection.counters().selective_retransmissions, 3);
}

/// A RETH that tells of more than its packet brings is a Pagewire's; from others it is an invalid request (InfiniBand
/// specification, volume 1, section 9.7.4.1.6).
#[test]
fn only_pagewires_tell_of_what_is_left() {
    let payload = [7; MTU as usize];
    for (selective, greeting) in [(true, false), (false, true), (false, false)] {
        let (mut pair, mut connection) = responder(selective);
        connection.set_greeting(greeting);
        let host = &mut pair.ends[1].host;
        let mut header = part(0);
        header.reth = Some(reth(0, 2 * MTU, 0));
        assert!(!connection.receive(Time(0), &header, Payload::Bytes(&[&payload]), host).is_held());
        connection.progress(Time(0), host);
        let taken = host.memory.borrow()[..MTU as usize] == payload;
        assert_eq!(taken, selective || greeting);
        assert_eq!(connection.is_dead(), !taken);
    }
}

/// It completes as a message does that is refused at its beginning.
#[test]
fn a_write_that_is_refused_in_its_middle_fails_as_one() {
    // 20 of its packets lie in the region, which ends in the next one.
    let beyond = write(MEMORY as u64 - u64::from(20 * MTU) - 100, 64 * MTU);
    for selective in [false, true] {
        let (rc, rts) = (settings(lossy(MTU), 0x22, 0), requester(0x100));
        let mut pair = logged(Pair::with(rc, rts, RcSettings { destination: 0x11, ..rc }, rts, 1));
        if selective {
            pair = pair.selective();
        }
        for work in [write(0, 2 * MTU), beyond, write(0, 8)] {
            pair.post(0, work, bytes(work.length));
        }
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess], "selective {selective}");
        assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::RemoteAccess)]);
        assert_eq!(pair.ends[1].host.events, [QpEvent::AccessError]);
        assert_eq!(pair.ends[0].host.events, []);
        assert!(pair.ends.iter().all(|end| end.connection.is_dead()));
        assert_eq!(pair.ends[0].connection.outstanding(), 1, "what is behind is the caller's to flush");
        // Nothing of it, not even what lies in the region.
        let inside = memory(&pair, MEMORY - 20 * MTU as usize - 100, 20 * MTU + 100);
        assert!(inside.iter().all(|byte| *byte == 0), "selective {selective}");
    }
}

#[test]
fn bytes_that_cannot_be_read_end_it_at_its_own_side() {
    let mut pair = pagewires();
    pair.post(0, write(0, 2 * MTU), bytes(2 * MTU));
    let id = pair.post(0, write(0, 20 * MTU), bytes(20 * MTU));
    pair.ends[0].host.deny_transmit = Some((id, Denial::LocalProtection));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::LocalProtection]);
    assert_eq!(naks(&pair, 1), []);
}

#[test]
fn a_fence_holds_it_back() {
    let mut pair = pagewires();
    pair.post_zeroed(0, read(0, 3000));
    pair.post(0, WorkRequest { fence: true, ..write(8192, 4 * MTU) }, bytes(4 * MTU));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
    let times: Vec<u64> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 2 * DELAY, 2 * DELAY, 2 * DELAY, 2 * DELAY]);
}

/// A responder, and the packet with a PSN of a long WRITE to it.
fn responder(selective: bool) -> (Pair, RcConnection) {
    let pair = Pair::new(lossy(MTU), 1);
    let mut connection = RcConnection::new(settings(lossy(MTU), 0x11, 0));
    connection.set_selective(selective);
    connection.start_requester(requester(0));
    (pair, connection)
}

fn part(psn: u32) -> PacketHeader {
    let mut header = header(Code::WriteOnly, psn);
    header.bth.acknowledge = false;
    header.reth = Some(reth(0, MEMORY as u32, psn));
    header
}

#[test]
fn a_burst_is_executed_at_once() {
    let payload = [7; MTU as usize];
    let burst = [&payload[..]; 6];
    let with = |change: &dyn Fn(&mut PacketHeader)| {
        let mut header = part(0);
        change(&mut header);
        header
    };
    let length = |length| with(&|header| header.reth.as_mut().unwrap().length = length);
    let (invalid, outside) =
        (Disposition::Refused(Nak::InvalidRequest), Disposition::Refused(Nak::RemoteAccess));
    for (header, expected, what) in [
        (part(1), Disposition::Kept, "one is missing before it"),
        (with(&|header| header.bth.psn = 0xff_ffff), Disposition::Duplicate, "a repetition"),
        (length(0), invalid, "nothing"),
        (length(MTU - 1), invalid, "other bytes than come"),
        (length(MEMORY as u32 + 1), outside, "the last byte is outside"),
        (with(&|header| header.reth.as_mut().unwrap().key = !KEY), outside, "another key"),
        (with(&|header| header.reth.as_mut().unwrap().address = BASE - 1), outside, "outside"),
        (
            PacketHeader {
                immediate: Some(1),
                ..with(&|it| it.bth.opcode = header(Code::WriteOnlyImmediate, 0).bth.opcode)
            },
            invalid,
            "immediate data",
        ),
    ] {
        let (mut pair, mut connection) = responder(true);
        let host = &mut pair.ends[1].host;
        assert_eq!(connection.receive(Time(0), &header, Payload::Bytes(&burst), host), expected, "{what}");
        assert!(host.memory.borrow().iter().all(|byte| *byte == 0), "{what}");
    }
    let (mut pair, mut connection) = responder(true);
    let host = &mut pair.ends[1].host;
    let mut take = |host: &mut Host, psn, burst: &[&[u8]]| {
        connection.receive(Time(0), &part(psn), Payload::Bytes(burst), host)
    };
    assert_eq!(take(host, 0, &burst[..2]), Disposition::Executed(2));
    let short = [&payload[..], &payload, &payload[..8], &payload];
    assert_eq!(take(host, 2, &short), Disposition::Executed(2), "up to the short one");
    host.page_absent = true;
    assert_eq!(take(host, 4, &burst[..2]), Disposition::Held { reason: Reason::Page, again: false });
    host.page_absent = false;
    assert_eq!(take(host, 4, &burst[..2]), Disposition::Executed(2));
    let mut last = part(6);
    last.bth.acknowledge = true;
    assert!(!connection.receive(Time(0), &last, Payload::Bytes(&[&payload]), host).is_held());
    assert!(host.memory.borrow()[..7 * MTU as usize] == [7; 7 * MTU as usize]);
    connection.progress(Time(0), host);
    // Each was a message.
    let Some(Packet::Standard { header, .. }) = host.sent.pop() else { panic!("no acknowledgement") };
    assert_eq!(header.bth.psn, 6);
    assert_eq!(header.aeth, Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: 7 }));
}

#[test]
fn there_are_no_bursts_of_messages_where_they_may_not_be() {
    let payload = [7; MTU as usize];
    let burst = [&payload[..]; 3];
    let take = |connection: &mut RcConnection, psn| {
        let (mut pair, _) = responder(false);
        connection.receive(Time(0), &part(psn), Payload::Bytes(&burst), &mut pair.ends[1].host)
    };
    let (mut pair, mut connection) = responder(false);
    connection.set_greeting(true);
    assert_eq!(take(&mut connection, 0), Disposition::Executed(1), "each may be the last of a work request");
    let refused = Disposition::Refused(Nak::InvalidRequest);
    let (_, mut connection) = responder(true);
    connection.update(update(RemoteRights::default()));
    assert_eq!(take(&mut connection, 0), refused, "no right to write");
    let (_, mut connection) = responder(true);
    let host = &mut pair.ends[1].host;
    host.post_receive(4096);
    let first = header(Code::SendFirst, 0);
    assert!(!connection.receive(Time(0), &first, Payload::Bytes(&[&payload]), host).is_held());
    assert_eq!(take(&mut connection, 1), refused, "in the middle of a message");
}

/// What is acknowledged late would be followed late.
#[test]
fn an_acknowledgement_is_for_all_that_was_executed_before_it_leaves() {
    let payload = [7; MTU as usize];
    let (mut pair, mut connection) = responder(true);
    let host = &mut pair.ends[1].host;
    let mut first = part(0);
    first.bth.acknowledge = true;
    assert!(!connection.receive(Time(0), &first, Payload::Bytes(&[&payload]), host).is_held());
    let burst = [&payload[..]; 6];
    let taken = connection.receive(Time(0), &part(1), Payload::Bytes(&burst), host);
    assert_eq!(taken, Disposition::Executed(6));
    assert!(!connection.receive(Time(0), &part(7), Payload::Bytes(&[&payload]), host).is_held());
    connection.progress(Time(0), host);
    let [Packet::Standard { header, .. }] = &host.sent[..] else { panic!("{:?}", host.sent) };
    assert_eq!(header.bth.psn, 7);
    assert_eq!(header.aeth, Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: 8 }));
    // Not before responses that are still to be sent.
    host.sent.clear();
    let mut write = part(8);
    write.bth.acknowledge = true;
    assert!(!connection.receive(Time(0), &write, Payload::Bytes(&[&payload]), host).is_held());
    let mut read = header_of_read(9);
    read.bth.acknowledge = true;
    assert!(!connection.receive(Time(0), &read, Payload::Bytes(&[]), host).is_held());
    connection.progress(Time(0), host);
    let psns: Vec<u32> = host
        .sent
        .iter()
        .map(|packet| match packet {
            Packet::Standard { header, .. } => header.bth.psn,
            Packet::Vendor(_) => panic!("{packet:?}"),
        })
        .collect();
    assert_eq!(psns, [8, 9]);
}

fn header_of_read(psn: u32) -> PacketHeader {
    PacketHeader { reth: Some(Reth { address: BASE, key: KEY, length: 8 }), ..header(Code::ReadRequest, psn) }
}
