//! Order, acknowledgements, patience, and what the two halves owe each other.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::host::Packet;
use crate::support::host::SHARED_QUEUE;
use crate::support::network::{DELAY, Pair};
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Aeth, Nak, Opcode, PacketHeader, PacketOperation as Code, Reth, Syndrome, VendorPacket};

#[test]
fn fence_waits_for_reads_and_atomics() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, read(0, 3000));
    pair.post_zeroed(0, fetch_add(0, 1));
    pair.post_zeroed(0, write(0, 8));
    pair.post_zeroed(0, read(0, 8));
    pair.post_zeroed(0, WorkRequest { fence: true, ..write(8, 8) });
    pair.run(FOREVER);
    let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 0, 0, 0, 2 * DELAY]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 5]);
}

#[test]
fn max_rd_atomic_bounds_what_is_outstanding() {
    let mut pair = pair_with(|rc, rts| (rc.max_dest_rd_atomic, rts.max_rd_atomic) = (2, 2));
    for n in 0..6 {
        pair.post_zeroed(0, if n % 2 == 0 { read(0, 2000) } else { fetch_add(0, 1) });
    }
    pair.run(FOREVER);
    let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 0, 1, 1, 2, 2].map(|n| n * 2 * DELAY));
    assert_eq!(statuses(&pair, 0), [Status::Success; 6]);
    let mut pair = pair_with(|_, rts| rts.max_rd_atomic = 0);
    pair.post_zeroed(0, write(0, 8));
    pair.post_zeroed(0, read(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::LocalQpOperation]);
}

#[test]
fn zero_length_needs_no_key() {
    let nowhere = RemoteAddress { address: u64::MAX, key: 0 };
    let mut pair = pair_with(|_, _| ());
    pair.ends[1].host.post_receive(0);
    pair.ends[1].host.post_receive(0);
    pair.post(0, work(WorkOperation::Write { remote: nowhere, immediate: None }, 0), vec![]);
    pair.post(0, work(WorkOperation::Read { remote: nowhere }, 0), vec![]);
    pair.post(0, send(0), vec![]);
    pair.post(0, work(WorkOperation::Write { remote: nowhere, immediate: Some(3) }, 0), vec![]);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
    assert_eq!(
        codes(&pair, 0),
        [Code::WriteOnly, Code::ReadRequest, Code::SendOnly, Code::WriteOnlyImmediate]
    );
    assert_eq!(pair.ends[1].host.received.len(), 2);
}

#[test]
fn messages_are_cut_at_the_mtu() {
    let mut pair = pair_with(|_, _| ());
    for _ in 0..3 {
        pair.ends[1].host.post_receive(4096);
    }
    pair.post_zeroed(0, send(1024));
    pair.post_zeroed(
        0,
        WorkRequest {
            solicited: true,
            ..work(WorkOperation::Send { immediate: Some(1), invalidate: None }, 2048)
        },
    );
    pair.post_zeroed(0, work(WorkOperation::Send { immediate: None, invalidate: Some(8) }, 2049));
    pair.post_zeroed(0, write(0, 1025));
    pair.run(FOREVER);
    use Code::*;
    let wanted = [
        SendOnly,
        SendFirst,
        SendLastImmediate,
        SendFirst,
        SendMiddle,
        SendLastInvalidate,
        WriteFirst,
        WriteLast,
    ];
    assert_eq!(codes(&pair, 0), wanted);
    let solicited: Vec<_> = sent(&pair, 0).iter().map(|(_, header)| header.bth.solicited).collect();
    assert_eq!(solicited, [false, false, true, false, false, false, false, false]);
    assert_eq!(pair.ends[1].host.invalidated, [8]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
}

#[test]
fn one_acknowledgement_for_what_arrives_together() {
    let mut pair = pair_with(|_, _| ());
    for _ in 0..10 {
        pair.post_zeroed(0, write(0, 100));
    }
    pair.run(FOREVER);
    assert_eq!(codes(&pair, 1), [Code::Acknowledge]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 10]);
}

#[test]
fn local_work_waits_its_turn() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(0, write(0, 8));
    let invalidate = pair.post(0, work(WorkOperation::Local(LocalWork::Invalidate), 0), vec![]);
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    let times: Vec<_> = sent(&pair, 0).iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [0, 2 * DELAY]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 3]);
    assert_eq!(pair.ends[0].host.executed, [invalidate]);
}

#[test]
fn local_work_that_is_refused_ends_the_connection_with_a_status_of_its_own() {
    for (local, status) in
        [(LocalWork::Invalidate, Status::LocalQpOperation), (LocalWork::Bind, Status::WindowBind)]
    {
        let mut pair = pair_with(|_, _| ());
        pair.ends[0].host.deny_local = true;
        pair.post_zeroed(0, write(0, 8));
        pair.post(0, work(WorkOperation::Local(local), 0), vec![]);
        pair.post_zeroed(0, write(0, 8));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0)[..2], [Status::Success, status]);
        assert_eq!(sent(&pair, 0).len(), 1, "nothing leaves behind it");
    }
}

#[test]
fn draining_finishes_what_has_started() {
    let mut pair = pair_with(|_, _| ());
    for _ in 0..40 {
        pair.post_zeroed(0, write(0, 10_000));
    }
    pair.run(5_000);
    pair.ends[0].connection.set_draining(true);
    assert!(!pair.ends[0].connection.is_drained());
    pair.run(1_000_000);
    assert!(pair.ends[0].connection.is_drained());
    let left = pair.ends[0].connection.outstanding();
    assert!(left > 0 && left < 40);
    pair.ends[0].connection.set_draining(false);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 40]);
}

#[test]
fn a_dead_lossless_peer_is_noticed_at_once() {
    let mut pair = logged(Pair::new(local(false), 1));
    pair.filter = Some(Box::new(|_, _| false));
    pair.ends[0].host.link = LinkState::Pending;
    pair.post_zeroed(0, write(0, 8));
    pair.run(60_000_000_000);
    assert_eq!(statuses(&pair, 0), [], "a peer that holds the packet is not silent");
    pair.ends[0].host.link = LinkState::Dead;
    pair.run(60_200_000_000);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(sent(&pair, 0).len(), 1);

    // One that took everything and is silent (in RESET, say) uses up the retries.
    let mut pair = logged(Pair::new(local(false), 1));
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(pair.now, 8 * (4096 << 14));
}

#[test]
fn a_wait_at_this_side_is_not_the_peers_silence() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 0);
    pair.ends[0].host.wait = 1.0;
    pair.ends[1].host.memory.borrow_mut()[..8].fill(4);
    let id = pair.post_zeroed(0, read(0, 8));
    pair.ends[0].host.wait = 0.0;
    pair.run(DELAY / 2);
    pair.ends[0].host.wait = 1.0;
    pair.run(300_000_000);
    assert_eq!(statuses(&pair, 0), []);
    pair.ends[0].host.wait = 0.0;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[0].host.buffers[&id], [4; 8]);
}

#[test]
fn hold_keeps_a_selective_requester_patient() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1).selective();
    pair.ends[1].host.page_absent = true;
    pair.post(0, write(0, 8), vec![7; 8]);
    pair.run(1_000_000_000);
    assert_eq!(statuses(&pair, 0), []);
    assert!(pair.ends[0].connection.counters().holds_received > 3);
    pair.ends[1].host.page_absent = false;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[1].host.memory.borrow()[..8], [7; 8]);
}

#[test]
fn hold_also_for_packets_that_were_kept() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1).selective();
    // The page goes while the first packet is missing: the second is kept, then waits.
    let lost = Rc::new(Cell::new(false));
    let once = lost.clone();
    pair.filter = Some(Box::new(move |from, _| from != 0 || once.replace(true)));
    pair.post(0, write(0, 8), vec![7; 8]);
    pair.post(0, write(8, 8), vec![8; 8]);
    pair.run(25_000);
    pair.ends[1].host.page_absent = true;
    pair.run(1_000_000_000);
    assert_eq!(statuses(&pair, 0), []);
    pair.ends[1].host.page_absent = false;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
    assert_eq!(pair.ends[1].host.memory.borrow()[..16], [[7; 8], [8; 8]].concat());
}

/// The requester's own page is absent: that says nothing of its peer.
#[test]
fn a_kept_response_that_waits_here_costs_no_retry() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1).selective();
    pair.ends[1].host.memory.borrow_mut()[..3000].fill(7);
    let lost = Rc::new(Cell::new(false));
    let once = lost.clone();
    pair.filter = Some(Box::new(move |from, _| from != 1 || once.replace(true)));
    let id = pair.post_zeroed(0, read(0, 3000));
    pair.post(0, write(8000, 8), vec![8; 8]);
    pair.ends[0].host.absent_from = 1024;
    pair.run(10_000_000_000);
    assert_eq!((lost.get(), statuses(&pair, 0)), (true, vec![]));
    pair.ends[0].host.absent_from = u64::MAX;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
    assert_eq!(pair.ends[0].host.buffers[&id], [7; 3000]);
}

/// A dead peer's retries are over in time, whoever else says that it is patient.
#[test]
fn a_hold_of_another_connection_is_dropped() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1).selective();
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 8));
    pair.run(1);
    let end = &mut pair.ends[0];
    let before = end.connection.counters();
    for psn in [0x80_0000, 0xff_ff00] {
        let hold = pagewire_wire::VendorPacket::Hold(pagewire_wire::Hold {
            psn,
            flags: pagewire_wire::HoldFlags::empty(),
        });
        end.connection.receive_control(Time(1), &hold, &mut end.host);
    }
    let after = end.connection.counters();
    assert_eq!((after.stale, after.holds_received), (before.stale + 2, before.holds_received));
}

#[test]
fn hold_also_for_responses() {
    let mut pair = pair_with(|_, rts| rts.retry_count = 1).selective();
    pair.ends[1].host.memory.borrow_mut()[..3000].fill(7);
    pair.ends[1].host.page_absent = true;
    let id = pair.post_zeroed(0, read(0, 3000));
    pair.run(1_000_000_000);
    assert_eq!(statuses(&pair, 0), []);
    assert!(pair.ends[0].connection.counters().holds_received > 3);
    pair.ends[1].host.page_absent = false;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert_eq!(pair.ends[0].host.buffers[&id], [7; 3000]);
}

#[test]
fn first_packet_in_rtr_establishes() {
    let mut host = Pair::new(lossy(1024), 1);
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 5));
    let host = &mut host.ends[1].host;
    let header = header(Code::WriteOnly, 5);
    let header = PacketHeader { reth: Some(Reth { address: BASE, key: KEY, length: 4 }), ..header };
    for _ in 0..2 {
        assert!(!connection.receive(Time(0), &header, Payload::Bytes(&[&[1; 4]]), host).is_held());
    }
    assert_eq!(host.events, [QpEvent::CommunicationEstablished]);
    assert_eq!(connection.progress(Time(0), host), RcProgress::Idle);
    assert_eq!(host.sent.len(), 1, "the repetition is acknowledged");
}

#[test]
fn acknowledgements_count_messages_and_give_no_credits() {
    let mut pair = pair_with(|_, _| ());
    pair.ends[1].host.post_receive(3000);
    for work in [write(0, 8), send(3000), read(0, 3000), fetch_add(0, 1), write(0, 0)] {
        pair.post_zeroed(0, work);
        pair.run(FOREVER);
    }
    assert_eq!(statuses(&pair, 0), [Status::Success; 5]);
    let aeths: Vec<_> = sent(&pair, 1).iter().filter_map(|(_, header)| header.aeth).collect();
    // First and last response of the READ carry one each.
    assert_eq!(aeths.iter().map(|aeth| aeth.message).collect::<Vec<_>>(), [1, 2, 3, 3, 4, 5]);
    assert!(aeths.iter().all(|aeth| aeth.syndrome == Syndrome::Ack { credits: 31 }));
}

#[test]
fn half_of_the_psns_are_the_past() {
    const HALF: u32 = 1 << 23;
    let expected = 0x300;
    for (psn, ahead) in [
        (expected + 1, true),
        (expected + HALF - 1, true),
        ((expected + HALF) & 0xff_ffff, false),
        (expected - 1, false),
    ] {
        let mut pair = Pair::new(lossy(1024), 1);
        let host = &mut pair.ends[1].host;
        let mut connection = RcConnection::new(settings(lossy(1024), 0x11, expected));
        let request = header(Code::SendOnly, psn);
        assert!(!connection.receive(Time(0), &request, Payload::Bytes(&[]), host).is_held());
        connection.progress(Time(0), host);
        let [Packet::Standard { header, .. }] = &host.sent[..] else { panic!("{:?}", host.sent) };
        let syndrome = header.aeth.unwrap().syndrome;
        if ahead {
            assert_eq!((header.bth.psn, syndrome), (expected, Syndrome::Nak(Nak::PsnSequence)), "{psn:#x}");
        } else {
            assert_eq!((header.bth.psn, syndrome), (expected - 1, Syndrome::Ack { credits: 31 }), "{psn:#x}");
        }
    }
}

#[test]
fn cnp_halves_window() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 1 << 20));
    pair.run(1000);
    let before = limits::INITIAL_IN_FLIGHT as usize / 1024;
    assert_eq!(sent(&pair, 0).len(), before);
    let end = &mut pair.ends[0];
    let mut cnp = header(Code::Acknowledge, 0);
    (cnp.bth.opcode, cnp.bth.acknowledge, cnp.bth.becn) = (Opcode::CNP, false, true);
    let acknowledgement = PacketHeader {
        aeth: Some(Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: 0 }),
        ..header(Code::Acknowledge, 0x100 + before as u32 - 1)
    };
    // Two for what is under way count once.
    for (header, payload) in [(cnp, &[0; 16][..]), (cnp, &[0; 16]), (acknowledgement, &[])] {
        let outcome = end.connection.receive(Time(1000), &header, Payload::Bytes(&[payload]), &mut end.host);
        assert!(!outcome.is_held());
    }
    pair.run(2000);
    // And one packet more for the window that was acknowledged.
    assert_eq!(sent(&pair, 0).len(), before + before / 2 + 1);
}

#[test]
fn direct_execution_needs_no_psn() {
    let mut pair = logged(Pair::new(local(true), 1));
    pair.post(0, write(0, 100), vec![5; 100]);
    let id = pair.post_zeroed(0, read(0, 100));
    pair.run(FOREVER);
    assert_eq!(sent(&pair, 0), []);
    assert_eq!(pair.ends[0].host.buffers[&id], [5; 100]);
    // Behind something that is outstanding it would overtake.
    pair.ends[1].host.post_receive(8);
    pair.post_zeroed(0, send(8));
    pair.post_zeroed(0, write(0, 8));
    pair.run(FOREVER);
    assert_eq!(codes(&pair, 0), [Code::SendOnly, Code::WriteOnly]);
    assert_eq!(statuses(&pair, 0), [Status::Success; 4]);
    assert_eq!(pair.ends[0].connection.counters().initiator_copies, 2);
}

#[test]
fn drive_does_its_share_and_comes_back() {
    let mut pair = Pair::new(lossy(256), 1);
    let end = &mut pair.ends[0];
    for id in 0..200 {
        end.host.buffers.insert(WorkId(id), vec![]);
        end.connection.post(WorkRequest { id: WorkId(id), ..write(0, 0) });
    }
    assert_eq!(end.connection.progress(Time(0), &mut end.host), RcProgress::Again);
    assert_eq!(end.host.sent.len(), limits::PROGRESS_PACKETS as usize);
}

#[test]
fn responses_and_requests_take_turns() {
    let mut pair = pair_with(|_, _| ());
    pair.post_zeroed(1, read(0, 60_000));
    for _ in 0..10 {
        pair.post_zeroed(0, write(0, 1024));
    }
    pair.run_while(FOREVER, |pair| pair.log.iter().filter(|entry| entry.1 == 0).count() < 20);
    pair.post_zeroed(0, write(0, 10_000));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 11]);
    assert_eq!(statuses(&pair, 1), [Status::Success]);
}

#[test]
fn own_packets_between_standard_settings_do_no_harm() {
    let mut pair = pair_with(|_, _| ());
    pair.filter = Some(Box::new(|_, _| false));
    pair.post_zeroed(0, write(0, 5000));
    pair.run(1000);
    let end = &mut pair.ends[0];
    for expected in [0, 0x100, 0x102, 0x105, 0x106, 0xff_ffff] {
        let received = pagewire_wire::Received::from_iter([0, 1, 200]);
        let report = pagewire_wire::SelectiveAck { expected, message: 0, received };
        end.connection.receive_control(Time(1000), &VendorPacket::SelectiveAck(report), &mut end.host);
        end.connection.receive_control(
            Time(1000),
            &VendorPacket::Hold(pagewire_wire::Hold {
                psn: expected,
                flags: pagewire_wire::HoldFlags::empty(),
            }),
            &mut end.host,
        );
        end.connection.progress(Time(1000), &mut end.host);
    }
    assert_eq!(end.host.completions, [(WorkId(0), Status::Success)]);
}

/// Annex A14: requests name a shared receive queue, responses do not. What names another one is refused.
#[test]
fn requests_of_xrc_name_a_shared_receive_queue() {
    let mut pair = pair_with(|rc, _| rc.is_xrc = true);
    pair.ends[1].host.post_receive(4096);
    let named = |work: WorkRequest| WorkRequest { shared_queue: SHARED_QUEUE, ..work };
    pair.post_zeroed(0, named(send(2049)));
    pair.post_zeroed(0, named(write(0, 8)));
    pair.post_zeroed(0, named(read(0, 1025)));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 3]);
    for (end, number) in [(0, Some(SHARED_QUEUE)), (1, None)] {
        for (_, header) in sent(&pair, end) {
            assert_eq!(header.bth.opcode.transport(), pagewire_wire::Transport::Xrc);
            assert_eq!(header.xrc, number, "{header:?}");
        }
    }
    pair.post_zeroed(0, WorkRequest { shared_queue: SHARED_QUEUE + 1, ..send(8) });
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0)[3..], [Status::RemoteInvalidRequest]);
}
