//! One table of error cases, run on both paths: the completions, states and events must be the same, and those
//! of the specification.

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::*;
use std::time::Instant;

/// What a case must come to.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sent: Vec<(u64, Status)>,
    received: Vec<(u64, Status)>,
    states: (QpState, QpState),
    /// Asynchronous events at b.
    events: Vec<AsyncEventKind>,
}

fn outcome(pair: &mut Pair, sent: usize, received: usize) -> Outcome {
    pair.until(sent, received);
    let asked = pair.a.nic.options().path.name();
    let used = pagewire_nic::ConnectionReport::of_all(&pair.a.nic)
        .into_iter()
        .find(|report| report.number == pair.qa.number())
        .expect("a report");
    assert_eq!(used.path, asked, "the path that was asked for was used: {}", used.reason);
    // Whoever makes the last completion may still be about to do what comes with it.
    for queue_pair in [&pair.qa, &pair.qb] {
        queue_pair.query();
    }
    let mut events = Vec::new();
    while let Some(event) = pair.b.context.next_async_event() {
        event.acknowledge();
        // An address of a young network comes into use when it is found to be no duplicate.
        let is_of_network =
            matches!(event.kind, AsyncEventKind::CommunicationEstablished | AsyncEventKind::GidChange);
        if !is_of_network {
            events.push(event.kind);
        }
    }
    Outcome {
        sent: pair.sent.iter().map(|done| (done.wr_id, done.status)).collect(),
        received: pair.received.iter().map(|done| (done.wr_id, done.status)).collect(),
        states: (pair.qa.state(), pair.qb.state()),
        events,
    }
}

/// Runs a case on all paths and compares with what must come.
fn on_all_paths(name: &str, expected: &Outcome, case: impl Fn(PathChoice) -> Outcome) {
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        assert_eq!(&case(path), expected, "case \"{name}\" on path {path:?}");
    }
}

const RTS: QpState = QpState::ReadyToSend;

fn success(sent: &[u64], received: &[u64]) -> Outcome {
    let all = |ids: &[u64]| ids.iter().map(|id| (*id, Status::Success)).collect();
    Outcome { sent: all(sent), received: all(received), states: (RTS, RTS), events: vec![] }
}

/// The request fails with `status`, the next is flushed, b refuses with an event and flushes its receive.
fn refused(status: Status) -> Outcome {
    Outcome {
        sent: vec![(1, status), (2, Status::Flushed)],
        received: vec![(9, Status::Flushed)],
        states: (QpState::Error, QpState::Error),
        events: vec![AsyncEventKind::QueuePairAccessError],
    }
}

/// A WRITE of 64 bytes that is to be refused, with a second request behind it and a receive posted at b.
fn remote_case(
    path: PathChoice,
    rights: Rights,
    region: Rights,
    operation: impl Fn(&Buffer) -> SendOperation,
    length: u32,
) -> Outcome {
    let mut pair = Pair::new(path, QueuePairType::Rc, rights);
    let source = pair.a.buffer(4096, all_rights());
    let target = pair.b.buffer(4096, region);
    let spare = pair.b.buffer(64, Rights::LOCAL_WRITE);
    pair.receive(9, &[spare.piece(0, 64)]);
    pair.post(1, operation(&target), &[source.piece(0, length)]).unwrap();
    pair.post(
        2,
        SendOperation::Write { address: target.address, key: target.region.rkey() },
        &[source.piece(0, 8)],
    )
    .unwrap();
    outcome(&mut pair, 2, 1)
}

/// The whole range is checked before a byte is written, however many packets bring the WRITE.
#[test]
fn a_long_write_beyond_its_region_writes_nothing() {
    if !own_network::is_here() {
        return;
    }
    const LENGTH: u32 = 200_000;
    for missing in [1, 5000, LENGTH as usize - 1] {
        on_all_paths(&format!("{missing} bytes are missing"), &refused(Status::RemoteAccess), |path| {
            let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
            let source = pair.a.buffer(LENGTH as usize, all_rights());
            source.bytes.fill(0xA5);
            let target = pair.b.buffer(LENGTH as usize - missing, all_rights());
            let spare = pair.b.buffer(64, Rights::LOCAL_WRITE);
            pair.receive(9, &[spare.piece(0, 64)]);
            let write = SendOperation::Write { address: target.address, key: target.region.rkey() };
            pair.post(1, write, &[source.piece(0, LENGTH)]).unwrap();
            pair.post(2, write, &[source.piece(0, 8)]).unwrap();
            let outcome = outcome(&mut pair, 2, 1);
            assert!(target.bytes.iter().all(|byte| *byte == 0), "{path:?}: something was written");
            outcome
        });
    }
}

/// JBMT-2.
#[test]
fn keys_bounds_and_rights_of_writes_and_reads() {
    if !own_network::is_here() {
        return;
    }
    type Case = (&'static str, Rights, fn(&Buffer) -> SendOperation);
    let cases: &[Case] = &[
        ("wrong consumer byte of the key", all_rights(), |t| SendOperation::Write {
            address: t.address,
            key: t.region.rkey() ^ 1,
        }),
        ("wrong upper bits of the key", all_rights(), |t| SendOperation::Write {
            address: t.address,
            key: t.region.rkey() ^ 1 << 20,
        }),
        ("one byte beyond the end", all_rights(), |t| SendOperation::Write {
            address: t.address + 4096 - 63,
            key: t.region.rkey(),
        }),
        ("one byte before the start", all_rights(), |t| SendOperation::Write {
            address: t.address - 1,
            key: t.region.rkey(),
        }),
        ("around the end of the address space", all_rights(), |t| SendOperation::Write {
            address: u64::MAX - 8,
            key: t.region.rkey(),
        }),
        ("region without remote write", Rights::LOCAL_WRITE | Rights::REMOTE_READ, |t| {
            SendOperation::Write { address: t.address, key: t.region.rkey() }
        }),
        ("region without remote read", Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, |t| SendOperation::Read {
            address: t.address,
            key: t.region.rkey(),
        }),
        ("READ beyond the end", all_rights(), |t| SendOperation::Read {
            address: t.address + 4095,
            key: t.region.rkey(),
        }),
    ];
    for (name, region, operation) in cases {
        on_all_paths(name, &refused(Status::RemoteAccess), |path| {
            remote_case(path, all_rights(), *region, operation, 64)
        });
    }
}

#[test]
fn atomics_need_their_right() {
    if !own_network::is_here() {
        return;
    }
    on_all_paths("region without remote atomic", &refused(Status::RemoteAccess), |path| {
        let rights = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let operation =
            |t: &Buffer| SendOperation::FetchAdd { address: t.address, key: t.region.rkey(), add: 1 };
        remote_case(path, all_rights(), rights, operation, 8)
    });
}

/// What the queue pair was not set up for is an invalid request, of zero length, too, and whatever the region permits
/// (InfiniBand specification, volume 1, section 9.7.4.1).
#[test]
fn what_the_queue_pair_does_not_permit_is_invalid() {
    if !own_network::is_here() {
        return;
    }
    type Case = (&'static str, Rights, u8, u32, fn(&Buffer) -> SendOperation);
    let write = |t: &Buffer| SendOperation::Write { address: t.address, key: t.region.rkey() };
    let read = |t: &Buffer| SendOperation::Read { address: t.address, key: t.region.rkey() };
    let atomic = |t: &Buffer| SendOperation::FetchAdd { address: t.address, key: t.region.rkey(), add: 1 };
    let cases: &[Case] = &[
        ("WRITE", all_rights() - Rights::REMOTE_WRITE, 4, 64, write),
        ("WRITE of zero length", all_rights() - Rights::REMOTE_WRITE, 4, 0, write),
        ("READ", all_rights() - Rights::REMOTE_READ, 4, 64, read),
        ("READ of zero length", all_rights() - Rights::REMOTE_READ, 4, 0, read),
        ("atomic", all_rights() - Rights::REMOTE_ATOMIC, 4, 8, atomic),
        ("READ, max_dest_rd_atomic 0", all_rights(), 0, 64, read),
        ("READ of zero length, max_dest_rd_atomic 0", all_rights(), 0, 0, read),
        ("atomic, max_dest_rd_atomic 0", all_rights(), 0, 8, atomic),
    ];
    let expected = Outcome {
        events: vec![AsyncEventKind::QueuePairRequestError],
        ..refused(Status::RemoteInvalidRequest)
    };
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        let (mut a, mut b) = (Side::new(path), Side::new(path));
        for &(name, rights, max_dest_read_atomic, length, operation) in cases {
            let mut pair = Pair::connect(a, b, QueuePairType::Rc, rights);
            let (source, target) = (pair.a.buffer(64, all_rights()), pair.b.buffer(64, all_rights()));
            pair.receive(9, &[target.piece(0, 64)]);
            let states = [QpState::SendQueueDrain, QpState::SendQueueDrain, QpState::ReadyToSend];
            for (step, state) in states.into_iter().enumerate() {
                let max_dest_read_atomic = (step == 1).then_some(max_dest_read_atomic);
                pair.qb
                    .modify(&QueuePairChange {
                        state: Some(state),
                        max_dest_read_atomic,
                        ..Default::default()
                    })
                    .unwrap();
            }
            pair.post(1, operation(&target), &[source.piece(0, length)]).unwrap();
            pair.post(2, SendOperation::Send, &[]).unwrap();
            assert_eq!(outcome(&mut pair, 2, 1), expected, "case \"{name}\" on path {path:?}");
            (a, b) = (pair.a, pair.b);
        }
    }
}

#[test]
fn a_key_is_dead_once_deregistered() {
    if !own_network::is_here() {
        return;
    }
    on_all_paths("deregistered key", &refused(Status::RemoteAccess), |path| {
        let operation = |t: &Buffer| {
            let key = t.region.rkey();
            t.region.deregister().unwrap();
            SendOperation::Write { address: t.address, key }
        };
        remote_case(path, all_rights(), all_rights(), operation, 64)
    });
}

/// PART-2.
#[test]
fn a_region_of_another_protection_domain_is_refused() {
    if !own_network::is_here() {
        return;
    }
    on_all_paths("other protection domain", &refused(Status::RemoteAccess), |path| {
        let operation = |t: &Buffer| SendOperation::Write { address: t.address, key: t.region.rkey() };
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(64, all_rights());
        let spare = pair.b.buffer(64, Rights::LOCAL_WRITE);
        pair.receive(9, &[spare.piece(0, 64)]);
        let elsewhere = pair.b.context.alloc_pd().unwrap();
        let other = std::mem::replace(&mut pair.b.domain, elsewhere);
        let target = pair.b.buffer(64, all_rights());
        pair.b.domain = other;
        pair.post(1, operation(&target), &[source.piece(0, 64)]).unwrap();
        pair.post(2, operation(&target), &[source.piece(0, 8)]).unwrap();
        outcome(&mut pair, 2, 1)
    });
}

#[test]
fn zero_length_ignores_key_and_address() {
    if !own_network::is_here() {
        return;
    }
    on_all_paths("zero-length WRITE and READ", &success(&[1, 2, 3], &[]), |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        pair.post(1, SendOperation::Write { address: 0, key: 0 }, &[]).unwrap();
        pair.post(2, SendOperation::Read { address: 0, key: 0 }, &[]).unwrap();
        pair.post(3, SendOperation::Write { address: 1, key: 77 }, &[]).unwrap();
        outcome(&mut pair, 3, 0)
    });
}

#[test]
fn a_receive_that_is_too_short_fails_both_sides() {
    if !own_network::is_here() {
        return;
    }
    let expected = Outcome {
        sent: vec![(1, Status::RemoteInvalidRequest), (2, Status::Flushed)],
        received: vec![(8, Status::LocalLength), (9, Status::Flushed)],
        states: (QpState::Error, QpState::Error),
        events: vec![AsyncEventKind::QueuePairRequestError],
    };
    for length in [65u32, 1025, 9000] {
        on_all_paths("short receive", &expected, |path| {
            let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
            let source = pair.a.buffer(16384, all_rights());
            let target = pair.b.buffer(16384, Rights::LOCAL_WRITE);
            pair.receive(8, &[target.piece(0, length - 1)]);
            pair.receive(9, &[target.piece(0, 64)]);
            pair.post(1, SendOperation::Send, &[source.piece(0, length)]).unwrap();
            pair.post(2, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
            outcome(&mut pair, 2, 2)
        });
    }
}

#[test]
fn local_keys_are_checked_at_the_side_at_fault() {
    if !own_network::is_here() {
        return;
    }
    let sender = Outcome {
        sent: vec![(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)],
        received: vec![(7, Status::Success)],
        states: (QpState::Error, RTS),
        events: vec![],
    };
    on_all_paths("wrong local key at the sender", &sender, |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(64, all_rights());
        let target = pair.b.buffer(64, Rights::LOCAL_WRITE);
        for id in 7..10 {
            pair.receive(id, &[target.piece(0, 64)]);
        }
        pair.post(1, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        let wrong = ScatterGather { key: source.region.lkey() ^ 0x100, ..source.piece(0, 8) };
        pair.post(2, SendOperation::Send, &[wrong]).unwrap();
        // The failing request may already have ended the queue pair: then this is flushed at once.
        pair.post(3, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        outcome(&mut pair, 3, 1)
    });
    let receiver = Outcome {
        sent: vec![(1, Status::RemoteOperation), (2, Status::Flushed)],
        received: vec![(8, Status::LocalProtection), (9, Status::Flushed)],
        states: (QpState::Error, QpState::Error),
        events: vec![AsyncEventKind::QueuePairRequestError],
    };
    on_all_paths("receive into a region without local write", &receiver, |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(64, all_rights());
        let target = pair.b.buffer(64, Rights::empty());
        pair.receive(8, &[target.piece(0, 64)]);
        pair.receive(9, &[target.piece(0, 64)]);
        pair.post(1, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        pair.post(2, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        outcome(&mut pair, 2, 2)
    });
}

/// Registers a page that is not mapped: below the lowest address that the kernel maps (vm.mmap_min_addr).
fn not_mapped(side: &Side) -> (u64, std::sync::Arc<MemoryRegion<pagewire_fabric::HostFabric>>) {
    const ADDRESS: u64 = 4096;
    (
        ADDRESS,
        side.domain.register(ADDRESS, 4096, ADDRESS, all_rights()).expect("registering looks at no page"),
    )
}

#[test]
fn memory_that_is_not_mapped_is_registered_and_refused_when_it_is_accessed() {
    if !own_network::is_here() {
        return;
    }
    for (name, read) in
        [("WRITE to memory that is not mapped", false), ("READ of memory that is not mapped", true)]
    {
        on_all_paths(name, &refused(Status::RemoteAccess), |path| {
            let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
            let local = pair.a.buffer(64, all_rights());
            let spare = pair.b.buffer(64, Rights::LOCAL_WRITE);
            let (address, region) = not_mapped(&pair.b);
            let key = region.rkey();
            pair.receive(9, &[spare.piece(0, 64)]);
            let operation = match read {
                true => SendOperation::Read { address, key },
                false => SendOperation::Write { address, key },
            };
            pair.post(1, operation, &[local.piece(0, 64)]).unwrap();
            // What is behind a WRITE is not executed; what is behind a READ may be, before its response is made.
            let behind = if read { operation } else { SendOperation::Send };
            pair.post(2, behind, &[local.piece(0, 8)]).unwrap();
            outcome(&mut pair, 2, 1)
        });
    }
    let expected = Outcome {
        sent: vec![(1, Status::LocalProtection), (2, Status::Flushed)],
        received: vec![],
        states: (QpState::Error, RTS),
        events: vec![],
    };
    for read in [false, true] {
        on_all_paths("local memory that is not mapped", &expected, |path| {
            let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
            let target = pair.b.buffer(64, all_rights());
            let (mapped_not, region) = not_mapped(&pair.a);
            let piece = ScatterGather { address: mapped_not, length: 64, key: region.lkey() };
            let (address, key) = (target.address, target.region.rkey());
            let operation = match read {
                true => SendOperation::Read { address, key },
                false => SendOperation::Write { address, key },
            };
            pair.post(1, operation, &[piece]).unwrap();
            pair.post(2, SendOperation::Send, &[piece]).unwrap();
            outcome(&mut pair, 2, 0)
        });
    }
    // A receive buffer: the receiver reports a protection error, and the sender learns that the peer could not do it.
    let expected = Outcome {
        sent: vec![(1, Status::RemoteOperation)],
        received: vec![(9, Status::LocalProtection)],
        states: (QpState::Error, QpState::Error),
        events: vec![AsyncEventKind::QueuePairRequestError],
    };
    on_all_paths("a receive buffer that is not mapped", &expected, |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let local = pair.a.buffer(64, all_rights());
        let (address, region) = not_mapped(&pair.b);
        pair.receive(9, &[ScatterGather { address, length: 64, key: region.lkey() }]);
        pair.post(1, SendOperation::Send, &[local.piece(0, 8)]).unwrap();
        outcome(&mut pair, 1, 1)
    });
}

#[test]
fn a_read_into_memory_that_may_not_be_written_fails_locally() {
    if !own_network::is_here() {
        return;
    }
    let expected = Outcome {
        sent: vec![(1, Status::LocalProtection), (2, Status::Flushed)],
        received: vec![],
        states: (QpState::Error, RTS),
        events: vec![],
    };
    on_all_paths("READ into a read-only region", &expected, |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let into = pair.a.buffer(64, Rights::empty());
        let target = pair.b.buffer(64, all_rights());
        let operation = SendOperation::Read { address: target.address, key: target.region.rkey() };
        pair.post(1, operation, &[into.piece(0, 8)]).unwrap();
        pair.post(2, operation, &[into.piece(0, 8)]).unwrap();
        outcome(&mut pair, 2, 0)
    });
}

#[test]
fn no_receive_ends_in_rnr_retry_exceeded() {
    if !own_network::is_here() {
        return;
    }
    let expected = Outcome {
        sent: vec![(1, Status::RnrRetryExceeded), (2, Status::Flushed)],
        received: vec![],
        states: (QpState::Error, RTS),
        events: vec![],
    };
    on_all_paths("no receive for a SEND", &expected, |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(64, all_rights());
        pair.post(1, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        pair.post(2, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        outcome(&mut pair, 2, 0)
    });
    on_all_paths("no receive for a WRITE with immediate", &expected, |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(64, all_rights());
        let target = pair.b.buffer(64, all_rights());
        let (address, key) = (target.address, target.region.rkey());
        pair.post(1, SendOperation::WriteImmediate { address, key, immediate: 5 }, &[source.piece(0, 8)])
            .unwrap();
        pair.post(2, SendOperation::Write { address, key }, &[source.piece(0, 8)]).unwrap();
        outcome(&mut pair, 2, 0)
    });
}

#[test]
fn what_the_protocol_counted_outlives_the_connection() {
    if !own_network::is_here() {
        return;
    }
    let mut pair = Pair::new(PathChoice::Udp, QueuePairType::Rc, all_rights());
    let source = pair.a.buffer(64, all_rights());
    pair.post(1, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
    pair.until(1, 0);
    assert_eq!(pair.qa.state(), QpState::Error);
    let counted = |queue_pair: &std::sync::Arc<QueuePair<_>>| {
        let start = std::time::Instant::now();
        loop {
            match queue_pair.report().protocol {
                Some(protocol) => return protocol,
                None => assert!(start.elapsed() < PATIENCE, "its QP context was never to be had"),
            }
        }
    };
    // The first and, with rnr_retry 1, one repetition.
    assert_eq!(counted(&pair.qa).rnr_naks_received, 2);
    assert_eq!(counted(&pair.qb).rnr_naks_sent, 2);
    pair.qa.modify(&QueuePairChange { state: Some(QpState::Reset), ..Default::default() }).unwrap();
    assert_eq!(counted(&pair.qa).rnr_naks_received, 2);
}

#[test]
fn a_silent_peer_ends_in_retry_exceeded() {
    if !own_network::is_here() {
        return;
    }
    for state in [QpState::Reset, QpState::Error] {
        let expected = Outcome {
            sent: vec![(1, Status::RetryExceeded), (2, Status::Flushed)],
            received: vec![],
            states: (QpState::Error, state),
            events: vec![],
        };
        for write in [false, true] {
            on_all_paths("peer in RESET or ERR", &expected, |path| {
                let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
                let source = pair.a.buffer(64, all_rights());
                let target = pair.b.buffer(64, all_rights());
                pair.qb.modify(&QueuePairChange { state: Some(state), ..Default::default() }).unwrap();
                let write_operation =
                    SendOperation::Write { address: target.address, key: target.region.rkey() };
                let operation = if write { write_operation } else { SendOperation::Send };
                pair.post(1, operation, &[source.piece(0, 8)]).unwrap();
                pair.post(2, operation, &[source.piece(0, 8)]).unwrap();
                outcome(&mut pair, 2, 0)
            });
        }
    }
}

/// Requests of another connection than the peer's queue pair is in now: their PSNs are not what it expects (InfiniBand
/// specification, volume 1, section 9.7.2). Nothing of them is executed.
#[test]
fn a_peer_that_expects_another_psn_executes_nothing() {
    if !own_network::is_here() {
        return;
    }
    let expected = Outcome {
        sent: vec![(1, Status::RetryExceeded)],
        received: vec![],
        states: (QpState::Error, RTS),
        events: vec![],
    };
    // READs that were executed long ago may be asked for again.
    for (reads, receive_psn) in [(false, 0x1234), (false, 0xFF_FF00), (true, 0xFF_FF00)] {
        on_all_paths("PSN of another connection", &expected, |path| {
            let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
            let source = pair.a.buffer(64, all_rights());
            let target = pair.b.buffer(64, all_rights());
            source.bytes.fill(1);
            target.bytes.fill(2);
            // b begins anew, and a does not know.
            let reset = QueuePairChange { state: Some(QpState::Reset), ..Default::default() };
            pair.qb.modify(&reset).unwrap();
            to_init(&pair.qb, all_rights());
            to_rtr_from(&pair.b, &pair.qb, pair.qa.number(), receive_psn);
            to_rts(&pair.qb, TIMERS);
            let (address, key) = (target.address, target.region.rkey());
            let operation = match reads {
                true => SendOperation::Read { address, key },
                false => SendOperation::Write { address, key },
            };
            pair.post(1, operation, &[source.piece(0, 64)]).unwrap();
            let outcome = outcome(&mut pair, 1, 0);
            assert_eq!((source.bytes[0], target.bytes[0]), (1, 2), "on {path:?}");
            outcome
        });
    }
}

#[test]
fn work_in_error_state_is_flushed() {
    if !own_network::is_here() {
        return;
    }
    let expected = Outcome {
        sent: vec![(1, Status::Flushed), (2, Status::Flushed)],
        received: vec![(7, Status::Flushed), (8, Status::Flushed)],
        states: (QpState::Error, QpState::Error),
        events: vec![],
    };
    on_all_paths("posts around the move to ERR", &expected, |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(64, all_rights());
        let target = pair.b.buffer(64, Rights::LOCAL_WRITE);
        pair.receive(7, &[target.piece(0, 64)]);
        let error = QueuePairChange { state: Some(QpState::Error), ..Default::default() };
        pair.qa.modify(&error).unwrap();
        pair.qb.modify(&error).unwrap();
        pair.receive(8, &[target.piece(0, 64)]);
        pair.post(1, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        pair.post(2, SendOperation::Send, &[source.piece(0, 8)]).unwrap();
        outcome(&mut pair, 2, 2)
    });
}

#[test]
fn posts_in_the_wrong_state_or_shape_are_refused() {
    if !own_network::is_here() {
        return;
    }
    let side = Side::new(PathChoice::Auto);
    let queue_pair = side.queue_pair(QueuePairType::Rc, all_rights());
    let buffer = side.buffer(64, all_rights());
    let post = |operation, pieces: &[ScatterGather]| {
        queue_pair.post_send(&SendRequest {
            wr_id: 1,
            data: Data::Segments(pieces),
            operation,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        })
    };
    assert_eq!(post(SendOperation::Send, &[buffer.piece(0, 8)]).unwrap_err().errno(), 22);
    to_rtr(&side, &queue_pair, 0x100);
    assert_eq!(post(SendOperation::Send, &[buffer.piece(0, 8)]).unwrap_err().errno(), 22);
    to_rts(&queue_pair, TIMERS);
    let many = vec![buffer.piece(0, 1); 9];
    assert_eq!(post(SendOperation::Send, &many).unwrap_err().errno(), 22);
    assert_eq!(
        post(SendOperation::FetchAdd { address: 0, key: 0, add: 0 }, &[buffer.piece(0, 4)])
            .unwrap_err()
            .errno(),
        22
    );
    let long = ScatterGather { length: u32::MAX, ..buffer.piece(0, 0) };
    assert_eq!(post(SendOperation::Send, &[long]).unwrap_err().errno(), 22);
}

#[test]
fn sends_carry_data_and_completions_come_in_order() {
    if !own_network::is_here() {
        return;
    }
    let ids: Vec<u64> = (0..100).collect();
    on_all_paths("a hundred SENDs", &success(&ids, &ids), |path| {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(100 * 8192, all_rights());
        let target = pair.b.buffer(100 * 8192, Rights::LOCAL_WRITE);
        for (index, byte) in source.bytes.iter_mut().enumerate() {
            *byte = (index * 7 + index / 251) as u8;
        }
        let length = |id: u64| (id * 80 + 1) as u32;
        for id in &ids {
            pair.receive(*id, &[target.piece(id * 8192, 8192)]);
        }
        for id in &ids {
            pair.post(*id, SendOperation::Send, &[source.piece(id * 8192, length(*id))]).unwrap();
        }
        let outcome = outcome(&mut pair, 100, 100);
        for id in &ids {
            let (from, to) = (*id as usize * 8192, *id as usize * 8192 + length(*id) as usize);
            assert!(source.bytes[from..to] == target.bytes[from..to], "message {id} on {path:?}");
            assert!(
                target.bytes[to..(*id as usize + 1) * 8192].iter().all(|byte| *byte == 0),
                "behind message {id}"
            );
        }
        outcome
    });
}

/// A queue pair that is connected to itself has no right for what it asks of itself.
#[test]
fn failing_own_right_of_a_queue_pair_connected_to_itself_is_the_cause() {
    if !own_network::is_here() {
        return;
    }
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        for wrong in [SendOperation::Write { address: 0, key: 7 }, SendOperation::Read { address: 0, key: 7 }]
        {
            let side = Side::new(path);
            let queue_pair = side.queue_pair(QueuePairType::Rc, all_rights());
            to_rtr(&side, &queue_pair, queue_pair.number());
            to_rts(&queue_pair, TIMERS);
            let (source, target) = (side.buffer(8, all_rights()), side.buffer(8, all_rights()));
            let good = SendOperation::Write { address: target.address, key: target.region.rkey() };
            for (wr_id, operation) in [(1, good), (2, wrong), (3, good)] {
                post_to(&queue_pair, wr_id, operation, Data::Segments(&[source.piece(0, 8)])).unwrap();
            }
            queue_pair.doorbell();
            let start = Instant::now();
            let mut done = Vec::new();
            while done.len() < 3 && start.elapsed() < PATIENCE {
                side.nic.progress();
                side.poll(&side.send_cq, &mut done);
            }
            let done: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
            assert_eq!(
                done,
                [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::Flushed)],
                "{path:?} {wrong:?}"
            );
        }
    }
}
