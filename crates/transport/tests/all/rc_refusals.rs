//! What is refused, by whom, and what either side is told of it.

use crate::support::network::{DELAY, MEMORY, Pair};
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Aeth, Bth, Nak, Opcode, PacketHeader, PacketOperation as Code, Reth, Syndrome};

#[test]
fn wrong_key_is_remote_access() {
    let foreign = RemoteAddress { address: BASE, key: KEY + 1 };
    let outside = RemoteAddress { address: BASE + MEMORY as u64 - 7, key: KEY };
    for remote in [foreign, outside] {
        for operation in [
            WorkOperation::Write { remote, immediate: None },
            WorkOperation::Write { remote, immediate: Some(1) },
            WorkOperation::Read { remote },
        ] {
            let pair = refused(work(operation, 3000), |pair| pair.ends[1].host.post_receive(0));
            assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
            assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::RemoteAccess)]);
            assert_eq!(pair.ends[1].host.events, [QpEvent::AccessError]);
            assert_eq!(pair.ends[1].host.receives_posted(), 1, "no receive is consumed");
        }
    }
    let atomic = WorkOperation::Atomic { remote: foreign, atomic: AtomicRequest::FetchAdd { add: 1 } };
    let pair = refused(work(atomic, 8), |_| ());
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
    assert_eq!(pair.ends[1].host.atomics_run, 0);
}

#[test]
fn unaligned_atomic_is_invalid() {
    let pair = refused(fetch_add(4, 1), |_| ());
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteInvalidRequest]);
    assert_eq!(pair.ends[1].host.events, [QpEvent::RequestError]);
}

#[test]
fn operations_that_are_not_allowed_are_invalid() {
    for work in [write(0, 8), read(0, 8), fetch_add(0, 1)] {
        let mut pair = pair_with(|_, _| ());
        pair.ends[1].connection.update(update(RemoteRights::default()));
        pair.post_zeroed(0, work);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::RemoteInvalidRequest]);
        assert_eq!(pair.ends[1].host.events, [QpEvent::RequestError]);
    }
}

/// InfiniBand specification, volume 1, section 9.7.4.1: not in silence.
#[test]
fn unknown_opcode_is_invalid_request() {
    for code in [0x15, 0x18, 0x1f] {
        let unknown = PacketHeader {
            bth: Bth { opcode: Opcode(code), ..header(Code::SendOnly, 1).bth },
            ..header(Code::SendOnly, 1)
        };
        let said = responder_says(&[(header(Code::SendOnly, 0), 8), (unknown, 8)]);
        assert_eq!(said, [Syndrome::Nak(Nak::InvalidRequest)], "{code:#x}");
        let ahead = PacketHeader { bth: Bth { psn: 5, ..unknown.bth }, ..unknown };
        assert_eq!(responder_says(&[(ahead, 8)]), [Syndrome::Nak(Nak::PsnSequence)]);
    }
}

#[test]
fn what_was_executed_is_acknowledged_though_an_own_request_failed() {
    let mut pair = Pair::new(lossy(1024), 1);
    let end = &mut pair.ends[0];
    end.host.post_receive(8);
    // The acknowledgement follows what is under way.
    end.host.buffers.insert(WorkId(1), vec![1; 8]);
    end.connection.post(WorkRequest { id: WorkId(1), ..write(0, 8) });
    end.connection.progress(Time(0), &mut end.host);
    let request = header(Code::SendOnly, 0x200);
    end.connection.receive(Time(0), &request, Payload::Bytes(&[&[7; 8]]), &mut end.host);
    assert_eq!(end.host.received.len(), 1);
    assert_eq!(end.connection.last_acknowledgement(), None, "it lives");
    end.host.sent.clear();
    end.host.deny_transmit = Some((WorkId(2), Denial::LocalProtection));
    end.host.buffers.insert(WorkId(2), vec![2; 8]);
    end.connection.post(WorkRequest { id: WorkId(2), ..write(0, 8) });
    // What was before it is acknowledged.
    let acknowledgement = PacketHeader {
        aeth: Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: 1 }),
        ..header(Code::Acknowledge, 0x100)
    };
    end.connection.progress_holding(Time(0), &mut end.host);
    end.connection.receive(Time(1), &acknowledgement, Payload::Bytes(&[]), &mut end.host);
    end.connection.progress_holding(Time(1), &mut end.host);
    assert!(end.connection.is_dead());
    let last = end.connection.last_acknowledgement().expect("it is owed");
    assert_eq!(last.bth.psn, request.bth.psn);
    assert_eq!(end.connection.last_acknowledgement(), None, "once");
}

#[test]
fn too_many_reads_are_invalid() {
    let mut pair = pair_with(|rc, _| rc.max_dest_rd_atomic = 0);
    pair.post_zeroed(0, read(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RemoteInvalidRequest]);
}

#[test]
fn short_receive_is_an_error_on_both_sides() {
    let pair = refused(send(3000), |pair| pair.ends[1].host.post_receive(2000));
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteInvalidRequest]);
    assert_eq!(pair.ends[1].host.received[0].result, Err(Status::LocalLength));
    assert_eq!(pair.ends[1].host.events, [QpEvent::RequestError]);
}

#[test]
fn unreachable_receive_is_remote_operational() {
    let pair = refused(send(30), |pair| {
        pair.ends[1].host.post_receive(2000);
        pair.ends[1].host.deny_receive = Some(Denial::LocalProtection);
    });
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteOperation]);
    assert_eq!(pair.ends[1].host.received[0].result, Err(Status::LocalProtection));
    assert_eq!(naks(&pair, 1), [Syndrome::Nak(Nak::RemoteOperational)]);
}

#[test]
fn unreachable_memory_is_remote_operational() {
    let pair = {
        let mut pair = logged(Pair::new(lossy(1024), 1));
        pair.ends[1].host.deny_write = Some(Denial::Operational);
        pair.post_zeroed(0, write(0, 30));
        pair.run(FOREVER);
        pair
    };
    assert_eq!(statuses(&pair, 0), [Status::RemoteOperation]);
    let pair = refused(read(0, 5000), |pair| pair.ends[1].host.deny_response = Some(Denial::RemoteAccess));
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
    assert_eq!(pair.ends[1].host.events, [QpEvent::AccessError]);
}

#[test]
fn failed_invalidation_is_an_error() {
    let pair = refused(work(WorkOperation::Send { immediate: None, invalidate: Some(9) }, 4), |pair| {
        pair.ends[1].host.post_receive(2000);
        pair.ends[1].host.deny_invalidate = Some(Denial::RemoteAccess);
    });
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
    assert_eq!(pair.ends[1].host.received[0].result, Err(Status::RemoteInvalidRequest));
}

#[test]
fn local_errors_come_after_what_was_posted_before() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 5000));
    pair.post_zeroed(0, write(0, 3000));
    let id = pair.post_zeroed(0, write(0, 3000));
    pair.post_zeroed(0, write(0, 3000));
    pair.ends[0].host.deny_transmit = Some((id, Denial::LocalProtection));
    // Even where what was before is lost.
    lose(&mut pair, 3, |from, _| from == 0);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::Success, Status::LocalProtection]);
    assert!(pair.ends[0].connection.is_dead());
    assert!(!pair.ends[1].connection.is_dead());
}

#[test]
fn a_local_error_waits_for_reads_too() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 5000));
    let id = pair.post_zeroed(0, write(0, 3000));
    pair.ends[0].host.deny_transmit = Some((id, Denial::LocalProtection));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::LocalProtection]);
    assert_eq!(pair.now, 2 * DELAY);
}

#[test]
fn unreachable_response_buffer_is_local_protection() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, write(0, 3000));
    pair.post_zeroed(0, read(0, 5000));
    pair.ends[0].host.deny_place = Some(Denial::LocalProtection);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::LocalProtection]);
}

#[test]
fn malformed_requests_are_invalid() {
    let reth = |length| Some(Reth { address: BASE, key: KEY, length });
    let first = |code, length| PacketHeader { reth: reth(length), ..header(code, 0) };
    let cases: &[&[(PacketHeader, usize)]] = &[
        &[(header(Code::SendMiddle, 0), 1024)],
        &[(header(Code::WriteLast, 0), 10)],
        &[(header(Code::SendFirst, 0), 1023)],
        &[(header(Code::SendOnly, 0), 1025)],
        &[(header(Code::SendFirst, 0), 1024), (header(Code::SendLast, 1), 0)],
        &[(header(Code::SendFirst, 0), 1024), (header(Code::SendFirst, 1), 1024)],
        &[(header(Code::SendFirst, 0), 1024), (header(Code::WriteMiddle, 1), 1024)],
        &[
            (header(Code::SendFirst, 0), 1024),
            (PacketHeader { reth: reth(4), ..header(Code::ReadRequest, 1) }, 0),
        ],
        &[(first(Code::WriteOnly, 11), 10)],
        &[(first(Code::WriteFirst, 1024), 1024)],
        &[(first(Code::WriteFirst, 3000), 1024), (header(Code::WriteLast, 1), 1024)],
        &[(first(Code::WriteFirst, 2000), 1024), (header(Code::WriteMiddle, 1), 1024)],
        &[(first(Code::WriteFirst, (1 << 31) + 1), 1024)],
        &[(first(Code::ReadRequest, (1 << 31) + 1), 0)],
        &[(first(Code::ReadRequest, 8), 8)],
    ];
    for (index, case) in cases.iter().enumerate() {
        assert_eq!(responder_says(case), [Syndrome::Nak(Nak::InvalidRequest)], "case {index}");
    }
}

#[test]
fn foreign_packets_change_nothing() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 3000));
    pair.run(1000);
    let end = &mut pair.ends[0];
    let aeth = Some(Aeth { syndrome: Syndrome::Nak(Nak::RemoteAccess), message: 0 });
    for (code, psn, partition) in [
        (Code::Acknowledge, 0x103, 0xffff),
        (Code::Acknowledge, 0xff, 0xffff),
        (Code::Acknowledge, 0x100, 0x8001),
        (Code::ReadResponseOnly, 0x101, 0xffff),
    ] {
        let mut header = PacketHeader { aeth, ..header(code, psn) };
        header.bth.partition = partition;
        let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[]), &mut end.host);
        assert!(!outcome.is_held());
    }
    assert_eq!(end.connection.counters().stale, 4);
    assert_eq!(end.host.completions, []);
    assert!(!end.connection.is_dead());
}

#[test]
fn a_response_of_a_wrong_length_is_a_bad_response() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, read(0, 1500));
    pair.run(1000);
    let end = &mut pair.ends[0];
    let aeth = Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: 1 });
    let header = PacketHeader { aeth, ..header(Code::ReadResponseFirst, 0x100) };
    let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[&[0; 1000]]), &mut end.host);
    assert!(!outcome.is_held());
    assert_eq!(end.host.completions, [(WorkId(0), Status::BadResponse)]);
}

#[test]
fn a_response_that_is_no_acknowledgement_is_a_bad_response() {
    for syndrome in [Syndrome::Nak(Nak::RemoteAccess), Syndrome::ReceiverNotReady { timer: 1 }] {
        let mut pair = pair_with(|_, _| ());
        pair.filter = Some(Box::new(|_, _| false));
        pair.post_zeroed(0, fetch_add(0, 1));
        pair.run(1000);
        let end = &mut pair.ends[0];
        let aeth = Some(Aeth { syndrome, message: 1 });
        let header = PacketHeader { aeth, atomic_ack: Some(3), ..header(Code::AtomicAcknowledge, 0x100) };
        let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[]), &mut end.host);
        assert!(!outcome.is_held());
        assert_eq!(end.host.completions, [(WorkId(0), Status::BadResponse)]);
    }
}
