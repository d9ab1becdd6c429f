//! What was lost, and what comes twice: NAKs, repetitions, selective repair.

use crate::support::host::{Host, Packet};
use crate::support::network::Pair;
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Nak, PacketHeader, PacketOperation as Code, Reth, Syndrome};

#[test]
fn a_gap_makes_one_nak() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 1, |from, packet| from == 0 && is(packet, Code::WriteMiddle));
    pair.post(0, write(0, 5000), vec![3; 5000]);
    pair.run(FOREVER);
    assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::PsnSequence)]);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    let psns: Vec<_> = sent(&pair, 0).iter().map(|(_, header)| header.bth.psn - 0x100).collect();
    assert_eq!(psns, [0, 1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
}

#[test]
fn every_gap_makes_a_nak() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 1, |from, packet| from == 0 && is(packet, Code::WriteMiddle));
    pair.post(0, write(0, 5000), vec![3; 5000]);
    pair.run(FOREVER);
    lose(&mut pair, 1, |from, packet| from == 0 && is(packet, Code::WriteMiddle));
    pair.post(0, write(0, 5000), vec![4; 5000]);
    pair.run(FOREVER);
    assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::PsnSequence); 2]);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
}

/// Gives packets of one message to a responder before it may send: their PSNs, of which 0 begins it and `last` ends it.
fn give(connection: &mut RcConnection, host: &mut Host, last: u32, psns: &[u32]) {
    for &psn in psns {
        let code = match psn {
            0 => Code::SendFirst,
            _ if psn == last => Code::SendLast,
            _ => Code::SendMiddle,
        };
        let mut request = header(code, psn);
        request.bth.acknowledge = psn == last;
        let bytes = [psn as u8; 1024];
        assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[&bytes]), host).is_held());
    }
}

/// Syndromes and PSNs of what an end has sent.
fn said(host: &mut Host) -> Vec<(Syndrome, u32)> {
    let said = std::mem::take(&mut host.sent).into_iter().map(|packet| match packet {
        Packet::Standard { header, .. } => (header.aeth.unwrap().syndrome, header.bth.psn),
        Packet::Vendor(own) => panic!("{own:?}"),
    });
    said.collect()
}

const NAK: Syndrome = Syndrome::Nak(Nak::PsnSequence);
const ACK: Syndrome = Syndrome::Ack { credits: 31 };

/// Two threads that take packets in turn may hand them over in another order. The missing one comes before its NAK has left: those
/// behind it were dropped, and a peer without a timer sends them again only if it is asked.
#[test]
fn late_request_renews_nak() {
    for (first, nak, rest) in [
        (&[0, 2, 3, 1][..], Some(2), &[2, 3][..]),
        (&[0, 3, 1, 2], Some(3), &[3]),
        (&[0, 2, 1], Some(2), &[2, 3]),
        (&[0, 2, 1, 2], None, &[3]),
        (&[0, 2, 1, 2, 3], None, &[]),
    ] {
        let mut pair = Pair::new(lossy(1024), 1);
        let host = &mut pair.ends[1].host;
        host.post_receive(4096);
        let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
        give(&mut connection, host, 3, first);
        connection.progress(Time(0), host);
        let mut expected: Vec<_> = nak.into_iter().map(|psn| (NAK, psn)).collect();
        if !rest.is_empty() {
            assert_eq!(said(host), expected, "{first:?}");
            expected.clear();
        }
        give(&mut connection, host, 3, rest);
        connection.progress(Time(0), host);
        expected.push((ACK, 3));
        assert_eq!(said(host), expected, "{first:?} {rest:?}");
        assert_eq!(connection.deadline(), None);
        assert_eq!(host.received.len(), 1);
        assert!(host.received[0].bytes.chunks(1024).zip(0..).all(|(part, psn)| part == [psn; 1024]));
    }
}

/// The repetition that a NAK asks for comes in another order: what is dropped then is asked for after a while.
#[test]
fn reordered_repetition_is_nakked_in_time() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    host.post_receive(4096);
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    give(&mut connection, host, 3, &[0, 2, 3]);
    connection.progress(Time(0), host);
    assert_eq!(said(host), [(NAK, 1)]);
    assert_eq!(connection.deadline(), None, "the peer has been asked");
    give(&mut connection, host, 3, &[2, 3, 1]);
    connection.progress(Time(0), host);
    assert_eq!(said(host), []);
    assert_eq!(connection.deadline(), Some(Time(limits::REPETITION_TIME)));
    // It begins anew as long as something comes.
    give(&mut connection, host, 3, &[2]);
    connection.progress(Time(1000), host);
    let due = Time(1000 + limits::REPETITION_TIME);
    assert_eq!(connection.deadline(), Some(due));
    connection.progress(Time(due.0 - 1), host);
    assert_eq!(said(host), []);
    connection.progress(due, host);
    // Soft-RoCE obeys a second NAK only if an acknowledgement has come since the first.
    assert_eq!(said(host), [(ACK, 2), (NAK, 3)]);
    assert_eq!(connection.deadline(), None);
    give(&mut connection, host, 3, &[3]);
    connection.progress(due, host);
    assert_eq!(said(host), [(ACK, 3)]);
    assert_eq!((connection.deadline(), host.received.len()), (None, 1));
}

/// A network that loses nothing needs no timer of the requester's, in whatever order packets come.
#[test]
fn reordering_needs_no_timer_of_the_requester() {
    for seed in 0..300 {
        let (rc, rts) =
            (settings(lossy(1024), 0x22, 0), RequesterSettings { timeout: 0, ..requester(0x100) });
        let mut pair = logged(Pair::with(rc, rts, RcSettings { destination: 0x11, ..rc }, rts, seed));
        pair.faults.reordering = 0.3;
        for number in 0..20u8 {
            pair.ends[1].host.post_receive(1 << 16);
            let bytes = vec![number; 8000];
            pair.post(0, if number % 2 == 0 { send(8000) } else { write(0, 8000) }, bytes);
            // One at a time: nothing behind it tells of what is missing.
            let done = usize::from(number) + 1;
            pair.run_while(FOREVER, |pair| pair.ends[0].host.completions.len() < done);
            assert_eq!(statuses(&pair, 0), vec![Status::Success; done], "seed {seed}");
        }
        assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
    }
}

#[test]
fn a_read_that_is_being_answered_is_not_answered_twice() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    let request = PacketHeader {
        reth: Some(Reth { address: BASE, key: KEY, length: 5000 }),
        ..header(Code::ReadRequest, 0)
    };
    for _ in 0..2 {
        assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[]), host).is_held());
    }
    connection.progress(Time(0), host);
    assert_eq!(host.sent.len(), 5);
    // Afterwards it is: the responses were lost.
    assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[]), host).is_held());
    connection.progress(Time(0), host);
    assert_eq!(host.sent.len(), 10);
}

#[test]
fn a_gap_between_pagewires_is_filled_alone() {
    let mut pair = pair_with(|_, _| ()).selective();
    lose(&mut pair, 1, |from, packet| from == 0 && has_psn(packet, 0x101));
    pair.post(0, write(0, 5000), vec![3; 5000]);
    pair.run(FOREVER);
    assert_eq!(naks(&pair, 1), []);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    let psns: Vec<_> = sent(&pair, 0).iter().map(|(_, header)| header.bth.psn - 0x100).collect();
    assert_eq!(psns, [0, 1, 2, 3, 4, 1]);
    assert_eq!(pair.ends[0].connection.counters().selective_retransmissions, 1);
    assert_eq!(pair.ends[0].connection.counters().probes, 0);
}

#[test]
fn lost_response_is_rerequested() {
    for selective in [false, true] {
        let mut pair = pair_with(|_, _| ());
        if selective {
            pair = pair.selective();
        }
        pair.ends[1].host.memory.borrow_mut()[..5000].fill(9);
        lose(&mut pair, 1, |from, packet| {
            let psn = matches!(packet, Packet::Standard { header, .. } if header.bth.psn == 0x102);
            from == 1 && psn
        });
        let id = pair.post_zeroed(0, read(0, 5000));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success]);
        assert!(pair.ends[0].host.buffers[&id] == [9; 5000]);
        let requests = sent(&pair, 0);
        assert_eq!(requests.len(), 2);
        let reth = requests[1].1.reth.unwrap();
        assert_eq!((requests[1].1.bth.psn, reth.address), (0x102, BASE + 2048));
        assert_eq!(reth.length, if selective { 1024 } else { 5000 - 2048 });
        assert_eq!(pair.ends[0].connection.counters().implied_naks, 1);
        assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
    }
}

#[test]
fn an_acknowledgement_past_a_read_is_an_implied_nak() {
    for selective in [false, true] {
        let mut pair = pair_with(|_, _| ());
        if selective {
            pair = pair.selective();
        }
        lose(&mut pair, 2, |_, packet| {
            is(packet, Code::ReadResponseFirst) || is(packet, Code::ReadResponseLast)
        });
        pair.post_zeroed(0, read(0, 2000));
        pair.post(0, write(0, 8), vec![1; 8]);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
        assert_eq!(pair.ends[0].connection.counters().implied_naks, 1);
        assert_eq!(pair.ends[0].connection.counters().timeouts, 0);
        if selective {
            // What was acknowledged is not sent again.
            assert_eq!(codes(&pair, 0), [Code::ReadRequest, Code::WriteOnly, Code::ReadRequest]);
            assert_eq!(pair.ends[0].connection.counters().probes, 0);
        }
    }
}

#[test]
fn a_repeated_atomic_is_answered_from_memory() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 3, |_, packet| is(packet, Code::AtomicAcknowledge));
    let ids: Vec<_> = (0..4).map(|_| pair.post_zeroed(0, fetch_add(0, 5))).collect();
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
    assert_eq!(pair.ends[1].host.atomics_run, 4);
    let values: Vec<_> = ids
        .iter()
        .map(|id| u64::from_ne_bytes(pair.ends[0].host.buffers[id][..].try_into().unwrap()))
        .collect();
    assert_eq!(values, [0, 5, 10, 15]);
    assert!(pair.ends[1].connection.counters().duplicates > 0);
}

#[test]
fn a_repeated_send_is_acknowledged_and_not_executed() {
    let mut pair = pair_with(|_, _| ());
    lose(&mut pair, 2, |from, packet| from == 1 && is(packet, Code::Acknowledge));
    pair.ends[1].host.post_receive(100);
    pair.ends[1].host.post_receive(100);
    pair.post(0, send(8), vec![1; 8]);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[1].host.received.len(), 1);
    assert_eq!(pair.ends[1].host.receives_posted(), 1);
    assert_eq!(pair.ends[0].connection.counters().timeouts, 2);
}

/// One end of a connection, and receives at its host.
fn with_receives(host: &mut Host, count: usize) -> RcConnection {
    (0..count).for_each(|_| host.post_receive(8));
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    connection.start_requester(requester(0x100));
    connection
}

/// Volume 1, section 9.7.5.1.2: acknowledgements may be coalesced.
#[test]
fn held_ack_leaves_on_demand() {
    let mut pair = pair_with(|_, _| ());
    let host = &mut pair.ends[1].host;
    let mut connection = with_receives(host, 4);
    let sent = |packets: &mut Vec<Packet>| -> Vec<_> {
        let code_and_psn = |packet| match packet {
            Packet::Standard { header, .. } => (header.bth.opcode.operation().unwrap(), header.bth.psn),
            Packet::Vendor(own) => panic!("{own:?}"),
        };
        std::mem::take(packets).into_iter().map(code_and_psn).collect()
    };
    for psn in 0..4 {
        let mut request = header(Code::SendOnly, psn);
        request.bth.acknowledge = true;
        assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[&[1; 8]]), host).is_held());
        assert_eq!(connection.progress_holding(Time(0), host), RcProgress::Idle);
        assert!(connection.owes_acknowledgement());
        assert_eq!(sent(&mut host.sent), []);
        if psn == 0 {
            connection.progress(Time(0), host);
            assert_eq!(sent(&mut host.sent), [(Code::Acknowledge, 0)]);
            assert!(!connection.owes_acknowledgement());
        }
    }
    host.buffers.insert(WorkId(0), vec![2; 8]);
    connection.post(send(8));
    assert_eq!(connection.progress_holding(Time(0), host), RcProgress::Idle);
    assert_eq!(sent(&mut host.sent), [(Code::SendOnly, 0x100), (Code::Acknowledge, 3)]);
    assert!(!connection.owes_acknowledgement());
}

/// A program that sleeps for its completions one after the other learns that its request is done before it gets the answer.
/// Where requests are under way anyway the acknowledgement leaves with what follows them.
#[test]
fn an_acknowledgement_that_is_not_held_goes_before_the_answer() {
    let mut pair = pair_with(|_, _| ());
    let host = &mut pair.ends[1].host;
    let mut connection = with_receives(host, 2);
    let expected = [
        [(Code::Acknowledge, 0), (Code::SendOnly, 0x100)],
        [(Code::SendOnly, 0x101), (Code::Acknowledge, 1)],
    ];
    for (psn, expected) in (0..).zip(expected) {
        let mut request = header(Code::SendOnly, psn);
        request.bth.acknowledge = true;
        assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[&[1; 8]]), host).is_held());
        let answer = WorkId(psn.into());
        host.buffers.insert(answer, vec![2; 8]);
        connection.post(WorkRequest { id: answer, ..send(8) });
        assert_eq!(connection.progress(Time(0), host), RcProgress::Idle);
        let sent = std::mem::take(&mut host.sent).into_iter().map(|packet| match packet {
            Packet::Standard { header, .. } => (header.bth.opcode.operation().unwrap(), header.bth.psn),
            Packet::Vendor(own) => panic!("{own:?}"),
        });
        assert_eq!(sent.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn duplicate_read_stays_in_request() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    for (length, answers) in [(1000, 1), (1025, 0), (5000, 0), (900, 1)] {
        let request = PacketHeader {
            reth: Some(Reth { address: BASE, key: KEY, length }),
            ..header(Code::ReadRequest, 0)
        };
        assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[]), host).is_held());
        connection.progress(Time(0), host);
        assert_eq!(std::mem::take(&mut host.sent).len(), answers, "{length}");
    }
}

/// The requester goes by what it has got: with the rest of a READ repeated it may have another one outstanding, though
/// this side has not come to the end of what it wanted to send before.
#[test]
fn a_read_whose_rest_was_repeated_is_not_outstanding() {
    const MTU: u32 = 256;
    // More than goes out in one turn.
    const FIRST: u32 = limits::PROGRESS_PACKETS + 36;
    let mut pair = Pair::new(lossy(MTU), 1);
    let host = &mut pair.ends[1].host;
    let rules = settings(lossy(MTU), 0x11, 0);
    let mut connection = RcConnection::new(rules);
    let read = |psn: u32, packets: u32| {
        let address = BASE + u64::from(psn) * u64::from(MTU);
        let reth = Some(Reth { address, key: KEY, length: packets * MTU });
        PacketHeader { reth, ..header(Code::ReadRequest, psn) }
    };
    let mut requests = vec![read(0, FIRST)];
    requests.extend((1..u32::from(rules.max_dest_rd_atomic)).map(|one| read(FIRST + one - 1, 1)));
    for request in &requests {
        assert!(!connection.receive(Time(0), request, Payload::Bytes(&[]), host).is_held());
    }
    connection.progress(Time(0), host);
    let lost = read(40, FIRST - 40);
    assert!(!connection.receive(Time(0), &lost, Payload::Bytes(&[]), host).is_held());
    connection.progress(Time(0), host);
    let psns = |sent: &[Packet]| -> Vec<u32> {
        let headers = sent.iter().map(|packet| match packet {
            Packet::Standard { header, .. } => *header,
            Packet::Vendor(own) => panic!("{own:?}"),
        });
        headers
            .inspect(|header| {
                let syndrome = header.aeth.map(|aeth| aeth.syndrome);
                assert!(!matches!(syndrome, Some(Syndrome::Nak(_))), "{header:?}");
            })
            .map(|header| header.bth.psn)
            .collect()
    };
    let have = psns(&host.sent);
    assert!((0..FIRST).all(|psn| have.contains(&psn)), "the first READ is done: {have:?}");
    let last = FIRST + u32::from(rules.max_dest_rd_atomic) - 1;
    assert!(!connection.receive(Time(0), &read(last, 1), Payload::Bytes(&[]), host).is_held());
    while matches!(connection.progress(Time(0), host), RcProgress::Again) {}
    let have = psns(&host.sent);
    assert!((0..=last).all(|psn| have.contains(&psn)), "{have:?}");
}

#[test]
fn a_read_that_pretends_to_be_a_repetition_needs_the_right() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    let none = RemoteRights { read: false, ..all_rights() };
    let mut connection =
        RcConnection::new(RcSettings { remote_rights: none, ..settings(lossy(1024), 0x11, 0x50) });
    let reth = Some(Reth { address: BASE, key: KEY, length: 1000 });
    let request = PacketHeader { reth, ..header(Code::ReadRequest, 0x4f) };
    assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[]), host).is_held());
    connection.progress(Time(0), host);
    assert!(host.sent.is_empty() && !connection.is_dead());
    assert_eq!(connection.counters().stale, 1);
}

#[test]
fn many_gaps_in_one_read_need_no_timer() {
    let mut pair = pair_with(|rc, rts| (rc.max_dest_rd_atomic, rts.max_rd_atomic) = (1, 1)).selective();
    // Every fourth of its responses is lost once.
    let mut lost = std::collections::HashSet::new();
    pair.filter = Some(Box::new(move |from, packet| match packet {
        Packet::Standard { header, .. } if from == 1 && header.bth.psn % 4 == 2 => {
            !lost.insert(header.bth.psn)
        }
        _ => true,
    }));
    pair.ends[1].host.memory.borrow_mut()[..40_000].fill(9);
    let id = pair.post_zeroed(0, read(0, 40_000));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert!(pair.ends[0].host.buffers[&id] == [9; 40_000]);
    let counters = pair.ends[0].connection.counters();
    assert_eq!((counters.timeouts, counters.probes), (0, 0));
}

#[test]
fn a_late_copy_of_a_read_does_not_end_the_connection() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 5000));
    pair.run(FOREVER);
    let request = sent(&pair, 0)[0].1;
    pair.ends[1].host.memory.borrow_mut().truncate(100);
    let end = &mut pair.ends[1];
    for header in
        [request, PacketHeader { reth: request.reth.map(|reth| Reth { length: 50_000, ..reth }), ..request }]
    {
        let outcome = end.connection.receive(Time(pair.now), &header, Payload::Bytes(&[]), &mut end.host);
        assert!(!outcome.is_held());
        assert_eq!(end.connection.progress(Time(pair.now), &mut end.host), RcProgress::Idle);
    }
    // Who still misses the responses learns that there are none; who does not is not asking.
    let answers = end.host.sent.iter().map(|packet| match packet {
        Packet::Standard { header, .. } => (header.bth.psn, header.aeth.map(|aeth| aeth.syndrome)),
        Packet::Vendor(own) => panic!("{own:?}"),
    });
    assert_eq!(answers.collect::<Vec<_>>(), [(request.bth.psn, Some(Syndrome::Nak(Nak::RemoteAccess)))]);
    end.host.sent.clear();
    assert!(!end.connection.is_dead());
    pair.post_zeroed(0, read(0, 50));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
}
