//! FLUSH (InfiniBand specification, volume 1, annex A19): what is refused, and what becomes of one that is lost, doubled or has to wait.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::host::Packet;
use crate::support::network::{MEMORY, Pair};
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Feth, PacketHeader, PacketOperation as Code, Reth, Syndrome};

const GLOBAL: FlushRequest = FlushRequest { global: true, persistent: false, whole_region: false };

fn flush(offset: u64, length: u32, flush: FlushRequest) -> WorkRequest {
    work(WorkOperation::Flush { remote: remote(offset), length, flush }, 0)
}

fn packet(placement: u8, selectivity: u8, length: u32) -> PacketHeader {
    PacketHeader {
        flush: Some(Feth { placement, selectivity }),
        reth: Some(Reth { address: BASE, key: KEY, length }),
        ..header(Code::Flush, 0)
    }
}

#[test]
fn response_has_no_bytes() {
    let mut pair = pair_with(|_, _| ());
    pair.post(0, write(0, 3000), vec![7; 3000]);
    pair.post_zeroed(0, flush(1000, 2000, GLOBAL));
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
    assert_eq!(pair.ends[1].host.flushed, [vec![7; 2000]]);
    let requests: Vec<_> = sent(&pair, 0).into_iter().filter_map(|(_, header)| header.flush).collect();
    assert_eq!(requests, [Feth { placement: Feth::GLOBAL, selectivity: Feth::RANGE }]);
    let responses = codes(&pair, 1).into_iter().filter(|code| *code == Code::ReadResponseOnly);
    assert_eq!(responses.count(), 1);
    assert_eq!(pair.ends[1].connection.counters().responses_sent, codes(&pair, 1).len() as u64);
}

#[test]
fn each_placement_needs_its_right() {
    let global = RemoteRights { flush_global: true, ..RemoteRights::default() };
    let persistent = RemoteRights { flush_persistent: true, ..RemoteRights::default() };
    for (rights, placement, is_permitted) in [
        (global, 1, true),
        (global, 2, false),
        (global, 3, false),
        (persistent, 1, false),
        (persistent, 2, true),
        (all_rights(), 3, true),
        (RemoteRights { read: true, write: true, atomic: true, ..RemoteRights::default() }, 1, false),
    ] {
        let asked =
            FlushRequest { global: placement & 1 != 0, persistent: placement & 2 != 0, whole_region: false };
        let mut pair = pair_with(|_, _| ());
        pair.ends[1].connection.update(update(rights));
        pair.post_zeroed(0, flush(0, 8, asked));
        pair.run(FOREVER);
        let expected = if is_permitted { Status::Success } else { Status::RemoteInvalidRequest };
        assert_eq!(statuses(&pair, 0), [expected], "{rights:?} {placement}");
        assert_eq!(pair.ends[1].host.flushed.len(), usize::from(is_permitted));
    }
}

#[test]
fn malformed_requests_are_invalid() {
    let invalid = Syndrome::Nak(pagewire_wire::Nak::InvalidRequest);
    for (placement, selectivity, length, payload) in [
        (0, 0, 8, 0),
        (4, 0, 8, 0),
        (15, 0, 8, 0),
        (1, 2, 8, 0),
        (1, 3, 8, 0),
        (1, 0, (1 << 31) + 1, 0),
        (1, 0, 8, 8),
    ] {
        let request = packet(placement, selectivity, length);
        assert_eq!(responder_says(&[(request, payload)]), [invalid], "{request:?}");
    }
    assert_eq!(responder_says(&[(packet(1, 0, 8), 0)]), []);
    // Of a whole region the length means nothing.
    assert_eq!(responder_says(&[(packet(3, 1, u32::MAX), 0)]), []);
}

#[test]
fn memory_that_is_refused_is_remote_access() {
    let beyond = flush(MEMORY as u64 - 7, 8, GLOBAL);
    let pair = refused(beyond, |_| ());
    assert_eq!(statuses(&pair, 0), [Status::Success, Status::RemoteAccess]);
    assert_eq!(pair.ends[1].host.events, [QpEvent::AccessError]);
}

#[test]
fn a_lost_response_is_repeated_and_nothing_is_executed_twice() {
    for selective in [false, true] {
        let mut pair = pair_with(|_, _| ());
        if selective {
            pair = pair.selective();
        }
        lose(&mut pair, 2, |from, packet| from == 1 && is(packet, Code::ReadResponseOnly));
        pair.post_zeroed(0, flush(0, 64, GLOBAL));
        pair.post_zeroed(0, write(0, 64));
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
        assert_eq!(pair.ends[1].host.flushed.len(), 1);
        assert!(codes(&pair, 0).iter().filter(|code| **code == Code::Flush).count() > 1);
    }
}

/// A standard requester need not count FLUSHes among its READs.
#[test]
fn more_than_the_responder_resources_are_answered() {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    let mut connection = RcConnection::new(RcSettings {
        max_dest_rd_atomic: 1,
        receive_psn: 0,
        ..settings(lossy(1024), 0x11, 0)
    });
    let many = 40;
    for psn in 0..many {
        let mut request = packet(1, 0, 8);
        request.bth.psn = psn;
        assert_eq!(
            connection.receive(Time(0), &request, Payload::Bytes(&[]), host),
            Disposition::Executed(1)
        );
    }
    while matches!(connection.progress(Time(0), host), RcProgress::Again) {}
    let answered = host.sent.iter().filter(|packet| is(packet, Code::ReadResponseOnly)).count();
    assert_eq!((answered, host.flushed.len()), (many as usize, many as usize));
}

#[test]
fn one_that_waits_holds_what_is_behind_it() {
    for handling in [FaultHandling::Stash, FaultHandling::Err, FaultHandling::ErrWithoutTimeout] {
        let mut pair = pair_with(|rc, _| rc.fault_handling = handling).selective();
        pair.ends[1].host.page_absent = true;
        pair.post_zeroed(0, flush(0, 64, GLOBAL));
        pair.post(0, write(0, 64), vec![9; 64]);
        pair.run(500_000);
        assert_eq!(statuses(&pair, 0), [], "{handling:?}");
        assert_eq!(pair.ends[1].host.memory.borrow()[..64], [0; 64]);
        pair.ends[1].host.page_absent = false;
        pair.ends[1].connection.pages_in_for_requests();
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success; 2], "{handling:?}");
        assert_eq!(pair.ends[1].host.flushed, [vec![0; 64]], "before the WRITE behind it");
        assert_eq!(pair.ends[1].host.memory.borrow()[..64], [9; 64]);
    }
}

#[test]
fn outstanding_ones_are_bounded_as_reads_are() {
    let most = Rc::new(Cell::new(0));
    let mut pair = pair_with(|_, rts| rts.max_rd_atomic = 2);
    let (mut sent, counted) = (0u32, most.clone());
    pair.filter = Some(Box::new(move |from, packet: &Packet| {
        match from {
            0 if is(packet, Code::Flush) => sent += 1,
            1 if is(packet, Code::ReadResponseOnly) => sent -= 1,
            _ => {}
        }
        counted.set(counted.get().max(sent));
        true
    }));
    for _ in 0..10 {
        pair.post_zeroed(0, flush(0, 8, GLOBAL));
    }
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success; 10]);
    assert_eq!(most.get(), 2);
}
