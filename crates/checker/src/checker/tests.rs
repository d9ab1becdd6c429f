use super::*;
use crate::limits::MAX_REQUESTS;
use crate::requests::{Content, Request};

const CONTEXT: usize = 0x10;
const CQ: usize = 0x20;
const QP: usize = 0x30;
const MR: usize = 0x40;
const LKEY: u32 = 0x100;

fn details() -> QueuePairDetails {
    QueuePairDetails { number: 7, send_cq: CQ, srq: 0, max_send_wr: 2, signals_all: false }
}

/// A context, a completion queue of two entries, a queue pair of two send requests, a region.
fn checker() -> Checker<u32> {
    let mut checker = Checker::default();
    let mut make = |address, kind, details| {
        checker.made(
            address,
            NewObject { kind, verb: "make", context: CONTEXT, place: address as u32, details },
        );
    };
    make(CONTEXT, ObjectKind::Context, Details::None);
    make(CQ, ObjectKind::CompletionQueue, Details::CompletionQueue { entries: 2, ignores_overrun: false });
    make(QP, ObjectKind::QueuePair, Details::QueuePair(details()));
    let region = RegionDetails { lkey: LKEY, rkey: 0x101, address: 0x1000, length: 64, iova: 0x1000 };
    make(MR, ObjectKind::MemoryRegion, Details::Region(region));
    checker
}

fn request(wr_id: u64, is_signaled: bool) -> Request<u32> {
    Request { wr_id, is_signaled, lkeys: [LKEY].into_iter().collect(), rkey: Some(0x101), content: None }
}

fn on(verb: &'static str, address: usize) -> Use {
    Use { verb, address }
}

fn post(checker: &mut Checker<u32>, request: Request<u32>, place: u32) {
    checker.post_send(on("ibv_post_send", QP), request, &|| place);
}

fn poll(checker: &mut Checker<u32>, wr_id: u64) {
    let completed = success(wr_id);
    checker.completed(on("ibv_poll_cq", CQ), completed, &|content| Some(content.sum), &|| 0);
}

fn success(wr_id: u64) -> PolledCompletion {
    PolledCompletion {
        wr_id,
        queue_pair: 7,
        is_receive: false,
        is_remote_access_error: false,
        is_success: true,
        is_flushed: false,
    }
}

fn end_all(checker: &mut Checker<u32>) {
    for address in [MR, QP, CQ, CONTEXT] {
        checker.ending(address);
        checker.ended(on("end", address), 0);
    }
    checker.leave(&|_| 0);
}

fn found(checker: &Checker<u32>) -> Vec<(Rule, u32, u64)> {
    checker.findings().iter().map(|finding| (finding.rule, finding.place, finding.count)).collect()
}

#[test]
fn clean_program_has_no_finding() {
    let mut checker = checker();
    for wr_id in 0..5 {
        post(&mut checker, request(wr_id, false), 1);
        post(&mut checker, request(wr_id, true), 1);
        poll(&mut checker, wr_id);
    }
    checker.deregistering(on("ibv_dereg_mr", MR), &|_| true, &|| 1);
    end_all(&mut checker);
    assert_eq!(found(&checker), []);
}

#[test]
fn left_objects_are_found_where_they_were_made() {
    let mut checker = checker();
    checker.ending(CONTEXT);
    checker.leave(&|address| if address == CQ { 3 } else { 0 });
    let expected = [
        (Rule::LeftObject, MR as u32, 1),
        (Rule::UnpolledCompletions, CQ as u32, 3),
        (Rule::LeftObject, CQ as u32, 1),
        (Rule::LeftObject, QP as u32, 1),
    ];
    assert_eq!(found(&checker), expected, "but not what a thread was about to end");
}

#[test]
fn key_of_deregistered_region_is_found() {
    let mut checker = checker();
    checker.ended(on("ibv_dereg_mr", MR), 5);
    post(&mut checker, request(1, true), 6);
    let finding = &checker.findings()[0];
    assert_eq!((finding.rule, finding.place, finding.related[0].place), (Rule::DeregisteredKey, 6, 5));
    // The key of a region that was registered since is no finding.
    let region = RegionDetails { lkey: LKEY, rkey: 0x101, address: 0, length: 1, iova: 0 };
    let details = Details::Region(region);
    checker.made(
        MR,
        NewObject { kind: ObjectKind::MemoryRegion, verb: "make", context: CONTEXT, place: 0, details },
    );
    poll(&mut checker, 1);
    post(&mut checker, request(2, true), 7);
    assert_eq!(checker.findings().len(), 1);
}

#[test]
fn reregistration_ends_old_keys() {
    let mut checker = checker();
    let now = RegionDetails { lkey: 0x200, rkey: 0x201, address: 0x1000, length: 64, iova: 0x1000 };
    checker.reregistered(on("ibv_rereg_mr", MR), now, 5);
    post(&mut checker, request(1, true), 6);
    assert_eq!(found(&checker), [(Rule::DeregisteredKey, 6, 1)]);
}

#[test]
fn remote_key_of_deregistered_region_is_found() {
    let mut checker = checker();
    post(&mut checker, request(1, true), 1);
    checker.ended(on("ibv_dereg_mr", MR), 5);
    let refused = PolledCompletion { is_remote_access_error: true, is_success: false, ..success(1) };
    checker.completed(on("ibv_poll_cq", CQ), refused, &|_| None, &|| 8);
    assert_eq!(found(&checker), [(Rule::DeregisteredRemoteKey, 8, 1)]);
}

#[test]
fn busy_region_is_found() {
    let mut checker = checker();
    post(&mut checker, request(1, true), 1);
    checker.deregistering(on("ibv_dereg_mr", MR), &|_| true, &|| 4);
    assert_eq!(found(&checker), [(Rule::BusyRegion, 4, 1)]);
    assert_eq!(checker.findings()[0].detail, "lkey 0x100 is named by 1 send requests of queue pair 0x7");
}

#[test]
fn flushed_and_reset_queues_use_no_buffers() {
    for is_reset in [false, true] {
        let mut checker = checker();
        post(&mut checker, request(1, true), 1);
        if is_reset {
            checker.reset(QP);
        }
        checker.deregistering(on("ibv_dereg_mr", MR), &|_| is_reset, &|| 4);
        assert_eq!(found(&checker), []);
    }
}

#[test]
fn small_completion_queue_is_found() {
    let mut checker = checker();
    for wr_id in 0..3 {
        post(&mut checker, request(wr_id, true), 9);
    }
    assert_eq!(found(&checker), [(Rule::SmallCompletionQueue, 9, 1)]);
    checker.resized(CQ, 4);
    post(&mut checker, request(3, true), 9);
    assert_eq!(found(&checker), [(Rule::SmallCompletionQueue, 9, 1)]);
}

#[test]
fn refused_requests_are_not_outstanding() {
    let mut checker = checker();
    for wr_id in 0..9 {
        post(&mut checker, request(wr_id, true), 9);
        checker.withdraw_send(QP, wr_id);
    }
    checker.deregistering(on("ibv_dereg_mr", MR), &|_| true, &|| 4);
    assert_eq!(found(&checker), []);
}

#[test]
fn unsignaled_queue_is_found() {
    let mut checker = checker();
    for wr_id in 0..4 {
        post(&mut checker, request(wr_id, false), 3);
    }
    assert_eq!(found(&checker), [(Rule::UnsignaledQueue, 3, 2)]);
}

#[test]
fn use_after_end_is_refused() {
    let mut checker = checker();
    assert!(checker.check_use(on("ibv_modify_qp", QP), &|| 1));
    checker.ended(on("ibv_destroy_qp", QP), 2);
    assert!(!checker.check_use(on("ibv_modify_qp", QP), &|| 1));
    assert_eq!(found(&checker), [(Rule::EndedObject, 1, 1)]);
    // Another object may have its address now.
    let details = Details::QueuePair(details());
    checker.made(
        QP,
        NewObject { kind: ObjectKind::QueuePair, verb: "make", context: CONTEXT, place: 0, details },
    );
    assert!(checker.check_use(on("ibv_modify_qp", QP), &|| 1));
}

#[test]
fn object_of_closed_device_is_found() {
    let mut checker = checker();
    checker.ended(on("ibv_close_device", CONTEXT), 2);
    assert!(checker.check_use(on("ibv_destroy_qp", QP), &|| 1));
    assert_eq!(found(&checker), [(Rule::EndedObject, 1, 1)]);
}

#[test]
fn events_are_acknowledged() {
    let mut checker = checker();
    for _ in 0..3 {
        checker.event_taken(on("ibv_get_cq_event", CQ), &|| 6);
    }
    checker.acknowledged(CQ, 2);
    checker.leave(&|_| 0);
    assert!(found(&checker).contains(&(Rule::UnacknowledgedEvents, 6, 1)));
}

#[test]
fn events_of_ports_are_acknowledged() {
    let mut checker = Checker::default();
    for _ in 0..2 {
        checker.event_taken(on("ibv_get_async_event", 0), &|| 6);
    }
    checker.acknowledged(0, 1);
    checker.leave(&|_| 0);
    assert_eq!(found(&checker), [(Rule::UnacknowledgedEvents, 6, 1)]);
}

#[test]
fn what_a_library_keeps_is_not_left() {
    let mut checker = checker();
    for address in [MR, QP, CQ] {
        checker.ended(on("end", address), 0);
    }
    checker.expect_left(CONTEXT);
    checker.leave(&|_| 0);
    assert_eq!(found(&checker), []);
}

#[test]
fn changed_buffer_is_found_where_it_was_posted() {
    let mut checker = checker();
    let content = Content { parts: vec![(0x1000, 64)], sum: 1, place: 77 };
    post(&mut checker, Request { content: Some(Box::new(content)), ..request(1, true) }, 1);
    checker.completed(on("ibv_poll_cq", CQ), success(1), &|_| Some(2), &|| 0);
    assert_eq!(found(&checker), [(Rule::ChangedBuffer, 77, 1)]);
}

#[test]
fn wrong_state_and_overrun_are_found() {
    let mut checker = checker();
    checker.refused_in(on("ibv_post_send", QP), "INIT", &|| 1);
    checker.overrun(on("ibv_destroy_qp", QP), &|| 2);
    assert_eq!(found(&checker), [(Rule::WrongState, 1, 1), (Rule::CompletionQueueOverrun, 2, 1)]);
    assert_eq!(checker.findings()[0].detail, "queue pair 0x7 is in INIT");
}

#[test]
fn shared_receive_requests_are_of_their_queue() {
    let mut checker = checker();
    let srq = 0x50;
    let made = NewObject {
        kind: ObjectKind::SharedReceiveQueue,
        verb: "make",
        context: CONTEXT,
        place: 0,
        details: Details::None,
    };
    checker.made(srq, made);
    let of_srq = QueuePairDetails { srq, number: 8, ..details() };
    let kind = ObjectKind::QueuePair;
    let details = Details::QueuePair(of_srq);
    checker.made(0x60, NewObject { kind, verb: "make", context: CONTEXT, place: 0, details });
    checker.post_receive(on("ibv_post_srq_recv", srq), request(3, true), &|| 1);
    let received = PolledCompletion { queue_pair: 8, is_receive: true, ..success(3) };
    checker.completed(on("ibv_poll_cq", CQ), received, &|_| None, &|| 0);
    checker.deregistering(on("ibv_dereg_mr", MR), &|_| true, &|| 4);
    assert_eq!(found(&checker), []);
    // What waits for a message is none; what got one and failed is.
    for wr_id in [4, 5] {
        checker.post_receive(on("ibv_post_srq_recv", srq), request(wr_id, true), &|| 1);
    }
    checker.deregistering(on("ibv_dereg_mr", MR), &|_| true, &|| 4);
    checker.ended(on("ibv_dereg_mr", MR), 4);
    let flushed = PolledCompletion { wr_id: 4, is_success: false, is_flushed: true, ..received };
    checker.completed(on("ibv_poll_cq", CQ), flushed, &|_| None, &|| 0);
    assert_eq!(found(&checker), []);
    let failed = PolledCompletion { wr_id: 5, is_success: false, ..received };
    checker.completed(on("ibv_poll_cq", CQ), failed, &|_| None, &|| 9);
    assert_eq!(found(&checker), [(Rule::BusyRegion, 4, 1)]);
    assert_eq!(checker.findings()[0].related[0].place, 9);
}

#[test]
fn requests_name_memory_by_iova() {
    let mut checker = checker();
    let now = RegionDetails { lkey: 0x200, rkey: 0x200, address: 0x1000, length: 64, iova: 16 };
    checker.reregistered(on("ibv_rereg_mr", MR), now, 5);
    assert_eq!(checker.memory_of(0x200, 16 + 8, 56), Some(0x1008));
    assert_eq!(checker.memory_of(0x200, 16 + 8, 57), None);
    assert_eq!(checker.memory_of(0x200, 8, 1), None);
    assert_eq!(checker.memory_of(LKEY, 0x1000, 1), None);
}

#[test]
fn memory_of_places_and_requests_is_bounded() {
    let mut checker = checker();
    // None of their completions comes.
    for wr_id in 0..MAX_REQUESTS as u64 + 3 {
        checker.post_send(on("post", QP), request(wr_id, true), &|| 1);
    }
    let outstanding = |checker: &Checker<u32>| match &checker.objects[&QP].state {
        ObjectState::QueuePair(queue_pair) => queue_pair.sends.len(),
        _ => 0,
    };
    assert_eq!(outstanding(&checker), MAX_REQUESTS);
    assert_eq!(checker.regions[&LKEY].outstanding as usize, MAX_REQUESTS);
    for address in 0..MAX_PLACED_OBJECTS + 3 {
        checker.refused_in(on("post", address), "INIT", &|| 2);
    }
    assert_eq!(checker.places.len(), MAX_PLACED_OBJECTS);
    let wrong: Vec<_> = found(&checker).into_iter().filter(|(rule, ..)| *rule == Rule::WrongState).collect();
    assert_eq!(wrong, [(Rule::WrongState, 2, MAX_PLACED_OBJECTS as u64 + 3)]);
}
