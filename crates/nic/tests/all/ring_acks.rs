//! Acknowledgements that do not come through the ring, beside answers that do.

use crate::support::{Done, PATIENCE, Side, Timers, all_rights, connect_without_threads};
use pagewire_nic::{Data, PathChoice, ReceiveRequest, SendOperation, SendRequest, Status};
use std::time::Instant;

/// A SEND that was executed after a READ does not tell that the READ's responses are lost, which wait in the ring.
#[test]
fn ring_ack_follows_read_responses() {
    let timers = Timers { timeout: 14, retry_count: 0, rnr_retry: 0 };
    let (a, b) = (Side::without_thread(PathChoice::Local), Side::without_thread(PathChoice::Local));
    let [qa, qb] = connect_without_threads([&a, &b], timers);
    let start = Instant::now();
    let (ours, theirs) = (a.buffer(4096, all_rights()), b.buffer(4096, all_rights()));
    for wr_id in 0..2 {
        let segments = [theirs.piece(0, 64)];
        qb.post_receive(&ReceiveRequest { wr_id, segments: &segments }).unwrap();
    }
    let post = |wr_id, operation| {
        let request = SendRequest {
            wr_id,
            data: Data::Segments(&[ours.piece(64 * wr_id, 64)]),
            operation,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        qa.post_send(&request).unwrap();
        qa.doorbell();
    };
    // Something before it: else the READ would be executed without a packet.
    post(1, SendOperation::Send);
    post(2, SendOperation::Read { address: theirs.address + 128, key: theirs.region.rkey() });
    b.nic.progress();
    post(3, SendOperation::Send);
    b.nic.progress();
    let mut done = Vec::new();
    while done.len() < 3 {
        assert!(start.elapsed() < PATIENCE, "{done:?}");
        a.nic.progress();
        b.nic.progress();
        a.poll(&a.send_cq, &mut done);
    }
    assert_eq!(done, [1, 2, 3].map(|wr_id| Done { wr_id, status: Status::Success }));
}
