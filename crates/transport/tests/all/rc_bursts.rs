//! Packets in the middle of a message that are sent and executed as a row.

use crate::support::host::Host;
use crate::support::network::Pair;
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Nak, PacketHeader, PacketOperation as Code, Reth};

const MTU: usize = 1024;

#[test]
fn what_leaves_in_rows_is_what_leaves_one_by_one() {
    const PACKETS: u32 = 64;
    for work in [write(4096, PACKETS * 1024), send(PACKETS * 1024)] {
        let mut pair = pair_with(|_, _| ());
        pair.ends[1].host.post_receive(1 << 20);
        let bytes: Vec<u8> = (0..work.length).map(|at| (at / 64 * 7 + at) as u8).collect();
        pair.post(0, work, bytes.clone());
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success]);
        let bursts = &pair.ends[0].host.bursts;
        assert!(bursts.iter().sum::<u32>() > PACKETS / 2 && bursts.len() < 8, "{bursts:?}");
        let headers: Vec<PacketHeader> = sent(&pair, 0).into_iter().map(|(_, header)| header).collect();
        assert_eq!(headers.len(), PACKETS as usize);
        assert!(headers.iter().zip(0x100..).all(|(header, psn)| header.bth.psn == psn));
        // The window is never without a packet that asks for an acknowledgement.
        let asking: Vec<u32> =
            headers.iter().filter(|header| header.bth.acknowledge).map(|header| header.bth.psn).collect();
        assert!(asking.windows(2).all(|two| two[1] - two[0] <= 16), "{asking:x?}");
        assert_eq!(asking.last(), Some(&(0x100 + PACKETS - 1)));
        let host = &pair.ends[1].host;
        let arrived = match work.operation {
            WorkOperation::Write { .. } => host.memory.borrow()[4096..][..bytes.len()].to_vec(),
            _ => host.received[0].bytes.clone(),
        };
        assert!(arrived == bytes);
    }
}

#[test]
fn responses_to_reads_leave_in_bursts() {
    let mut pair = pair_with(|_, _| ());
    let bytes: Vec<u8> = (0..60_000u32).map(|at| (at / 64 * 7 + at) as u8).collect();
    pair.ends[1].host.memory.borrow_mut()[..bytes.len()].copy_from_slice(&bytes);
    let id = pair.post_zeroed(0, read(0, bytes.len() as u32));
    pair.run(FOREVER);
    assert!(pair.ends[0].host.buffers[&id] == bytes);
    let bursts = &pair.ends[1].host.bursts;
    assert_eq!(bursts.iter().sum::<u32>(), bytes.len().div_ceil(MTU) as u32 - 2, "{bursts:?}");
}

/// A responder that has the first packet of a message of so many.
fn begun(code: Code, packets: u32) -> (Pair, RcConnection) {
    let mut pair = Pair::new(lossy(MTU as u32), 1);
    let host = &mut pair.ends[1].host;
    host.post_receive(1 << 20);
    let mut connection = RcConnection::new(settings(lossy(MTU as u32), 0x11, 0));
    let mut first = header(code, 0);
    if code == Code::WriteFirst {
        first.reth = Some(Reth { address: BASE, key: KEY, length: packets * MTU as u32 });
    }
    assert!(!connection.receive(Time(0), &first, Payload::Bytes(&[&[1; MTU]]), host).is_held());
    (pair, connection)
}

fn middle(code: Code, psn: u32) -> PacketHeader {
    let mut header = header(code, psn);
    header.bth.acknowledge = false;
    header
}

#[test]
fn burst_executes_its_ordered_prefix() {
    let payload = [7; MTU];
    let burst = [&payload[..]; 6];
    let refused = Disposition::Refused(Nak::InvalidRequest);
    for (first, code) in [(Code::WriteFirst, Code::WriteMiddle), (Code::SendFirst, Code::SendMiddle)] {
        let is_write = code == Code::WriteMiddle;
        let other = if is_write { Code::SendMiddle } else { Code::WriteMiddle };
        let last = if is_write { Code::WriteLast } else { Code::SendLast };
        for (header, burst, expected) in [
            (middle(code, 2), &burst[..], Disposition::Dropped(DropCause::OutOfOrder)),
            (middle(code, 0), &burst, Disposition::Duplicate),
            (middle(other, 1), &burst, refused),
            (middle(code, 1), &[&payload[..8], &payload], refused),
            // Not the last of this WRITE. A SEND ends with it, and the others belong to nothing.
            (middle(last, 1), &burst, if is_write { refused } else { Disposition::Executed(1) }),
        ] {
            let (mut pair, mut connection) = begun(first, 8);
            let host = &mut pair.ends[1].host;
            assert_eq!(connection.receive(Time(0), &header, Payload::Bytes(burst), host), expected);
        }
        let (mut pair, mut connection) = begun(first, 8);
        let host = &mut pair.ends[1].host;
        let mut take = |host: &mut Host, psn, burst: &[&[u8]]| {
            connection.receive(Time(0), &middle(code, psn), Payload::Bytes(burst), host)
        };
        assert_eq!(take(host, 1, &burst[..2]), Disposition::Executed(2));
        let short = [&payload[..], &payload, &payload[..8], &payload];
        assert_eq!(take(host, 3, &short), Disposition::Executed(2), "up to the short one");
        host.page_absent = true;
        for again in [false, true] {
            assert_eq!(take(host, 5, &burst[..2]), Disposition::Held { reason: Reason::Page, again });
        }
        host.page_absent = false;
        assert_eq!(take(host, 5, &burst[..2]), Disposition::Executed(2));
        assert_eq!(connection.counters().packets_received, 7);
        assert_eq!(connection.counters().faults_stashed, 1);
        let last = Payload::Bytes(&[&payload]);
        let ended = connection.receive(
            Time(0),
            &header(if is_write { Code::WriteLast } else { Code::SendLast }, 7),
            last,
            host,
        );
        assert_eq!(ended, Disposition::Executed(1));
        let bytes =
            if is_write { host.memory.borrow()[..8 * MTU].to_vec() } else { host.received[0].bytes.clone() };
        assert!(bytes[..MTU] == [1; MTU] && bytes[MTU..] == [7; 7 * MTU]);
        let behind = connection.receive(Time(0), &middle(code, 8), Payload::Bytes(&burst), host);
        assert_eq!(behind, refused, "nothing was begun");
    }
}

#[test]
fn a_burst_does_not_reach_the_end_of_its_write() {
    let payload = [7; MTU];
    let (mut pair, mut connection) = begun(Code::WriteFirst, 4);
    let host = &mut pair.ends[1].host;
    // The fourth would have to be the last.
    let burst = [&payload[..]; 5];
    let mut take = |psn, burst: &[&[u8]]| {
        let disposition =
            connection.receive(Time(0), &middle(Code::WriteMiddle, psn), Payload::Bytes(burst), host);
        connection.progress(Time(0), host);
        disposition
    };
    assert_eq!(take(1, &burst), Disposition::Executed(2));
    assert_eq!(take(3, &burst[..2]), Disposition::Refused(Nak::InvalidRequest));
    assert_eq!(take(3, &burst[..2]), Disposition::Dropped(DropCause::WrongState));
    assert!(host.memory.borrow()[3 * MTU..][..MTU] == [0; MTU]);
    assert!(connection.is_dead());
}

/// A requester with such requests posted whose window is full, the first packets of which nobody has heard of yet.
fn filled(works: &[WorkRequest]) -> (Pair, usize) {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    for work in works {
        pair.post_zeroed(0, *work);
    }
    pair.run(1000);
    let window = sent(&pair, 0).len();
    assert_eq!(window, limits::INITIAL_IN_FLIGHT as usize / MTU);
    (pair, window)
}

/// So many packets are acknowledged in all; gives how many were sent by then.
fn acknowledge(pair: &mut Pair, count: usize) -> usize {
    let end = &mut pair.ends[0];
    let syndrome = pagewire_wire::Syndrome::Ack { credits: 31 };
    let mut header = header(Code::Acknowledge, 0x100 + count as u32 - 1);
    header.bth.acknowledge = false;
    header.aeth = Some(pagewire_wire::Aeth { syndrome, message: 0 });
    let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[]), &mut end.host);
    assert!(!outcome.is_held());
    pair.run(2000);
    sent(pair, 0).len()
}

/// What is acknowledged in small pieces is not followed by small pieces.
#[test]
fn a_long_message_goes_on_when_a_third_of_the_window_is_free() {
    let (mut pair, window) = filled(&[write(0, 1 << 20)]);
    // The window grows by what is acknowledged: 2 for each.
    assert_eq!(acknowledge(&mut pair, 8), window);
    // 12 acknowledged: room for 24, and a third of 76 is 25.
    assert_eq!(acknowledge(&mut pair, 12), window);
    assert_eq!(acknowledge(&mut pair, 13), window + 26);
}

/// The end of a message is a small piece, too, where another one may leave with it.
#[test]
fn the_end_of_a_message_waits_likewise_where_another_one_is_behind_it() {
    let long = write(0, (64 << 10) + 2048);
    let fenced = WorkRequest { fence: true, ..write(0, 1 << 20) };
    for (behind, waits) in [
        (None, false),
        (Some(write(0, 1 << 20)), true),
        (Some(send(1)), true),
        (Some(read(0, 8)), false),
        (Some(fenced), true),
    ] {
        let works: Vec<WorkRequest> = [long].into_iter().chain(behind).collect();
        let (mut pair, window) = filled(&works);
        if waits {
            assert_eq!(acknowledge(&mut pair, 8), window);
            assert_eq!(acknowledge(&mut pair, 12), window);
        }
        assert!(acknowledge(&mut pair, 13) >= window + 2, "{behind:?}");
    }
    // A message of one packet is no end of one.
    let (mut pair, window) = filled(&[write(0, 64 << 10), send(1), send(1)]);
    assert_eq!(acknowledge(&mut pair, 1), window + 2);
}

#[test]
fn responses_are_taken_in_bursts() {
    const PACKETS: u32 = 10;
    let mut pair = Pair::new(lossy(MTU as u32), 1).selective();
    let id = pair.post_zeroed(0, read(0, PACKETS * MTU as u32));
    let end = &mut pair.ends[0];
    let (connection, host) = (&mut end.connection, &mut end.host);
    connection.progress(Time(0), host);
    let response = |code, psn: u32| {
        let mut header = header(code, 0x100 + psn);
        header.bth.acknowledge = false;
        if code != Code::ReadResponseMiddle {
            header.aeth = Some(pagewire_wire::Aeth {
                syndrome: pagewire_wire::Syndrome::Ack { credits: 31 },
                message: 1,
            });
        }
        header
    };
    let middle = |psn| response(Code::ReadResponseMiddle, psn);
    let payloads: Vec<Vec<u8>> = (0..PACKETS as u8).map(|n| vec![n + 1; MTU]).collect();
    let burst: Vec<&[u8]> = payloads.iter().map(|payload| &payload[..]).collect();
    let mut take = |host: &mut Host, header: &PacketHeader, burst: &[&[u8]]| {
        connection.receive(Time(1), header, Payload::Bytes(burst), host)
    };
    let executed = Disposition::Executed;
    assert_eq!(take(host, &response(Code::ReadResponseFirst, 0), &burst[..1]), executed(1));
    assert_eq!(take(host, &middle(2), &burst[2..5]), Disposition::Kept, "one is missing before it");
    let stale = Disposition::Dropped(DropCause::Stale);
    assert_eq!(take(host, &middle(0), &burst[..3]), stale, "a repetition");
    let short = [burst[1], burst[2], &burst[3][..8], burst[4]];
    assert_eq!(take(host, &middle(1), &short), executed(2), "up to the short one");
    host.wait = 1.0;
    let held = Disposition::Held { reason: Reason::Page, again: false };
    assert_eq!(take(host, &middle(3), &burst[3..5]), held);
    host.wait = 0.0;
    assert_eq!(take(host, &middle(3), &burst[3..4]), executed(1));
    // One has overtaken another.
    assert_eq!(take(host, &middle(5), &burst[5..6]), Disposition::Kept);
    assert_eq!(take(host, &middle(4), &burst[4..7]), executed(3), "one behind it is here");
    assert_eq!(take(host, &middle(7), &burst[7..]), executed(2), "all but the last");
    assert!(host.completions.is_empty());
    assert_eq!(take(host, &response(Code::ReadResponseLast, 9), &burst[9..]), executed(1));
    assert_eq!(host.completions, [(id, Status::Success)]);
    assert!(host.buffers[&id] == payloads.concat());
    assert_eq!(take(host, &middle(10), &burst), stale, "nothing was asked for");
}
