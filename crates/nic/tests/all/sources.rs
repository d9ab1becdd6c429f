//! A long message on the local path is read by its receiver where it lies. What becomes of that memory meanwhile is its
//! sender's affair: the sender sees the error, the receiver waits on for a message.

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairType};
use pagewire_nic::*;

const LENGTH: usize = 64 << 10;

/// Posts a message that the receiver does not look at before `spoil` has done something to its memory.
fn spoiled(spoil: impl FnOnce(&mut Buffer)) -> (Pair, Buffer) {
    let (a, b) = (Side::without_thread(PathChoice::Local), Side::without_thread(PathChoice::Local));
    let mut pair = Pair::connect(a, b, QueuePairType::Rc, all_rights());
    let mut from = pair.a.buffer(LENGTH, all_rights());
    let into = pair.b.buffer(LENGTH, all_rights());
    pair.receive(1, &[into.piece(0, LENGTH as u32)]);
    // The record is in the ring: nobody drives the receiver.
    pair.post(2, SendOperation::Send, &[from.piece(0, LENGTH as u32)]).unwrap();
    pair.a.nic.progress();
    spoil(&mut from);
    pair.until(1, 0);
    (pair, into)
}

fn is_the_senders_error((pair, into): (Pair, Buffer)) {
    assert_eq!(pair.sent, [Done { wr_id: 2, status: Status::LocalProtection }]);
    assert_eq!(pair.received, [], "its receive was used up");
    assert_eq!(pair.qb.state(), QpState::ReadyToSend);
    assert!(into.bytes.iter().all(|byte| *byte == 0), "bytes that were not the sender's to give");
}

#[test]
fn a_key_that_dies_before_the_message_is_read() {
    is_the_senders_error(spoiled(|from| {
        from.region.deregister().unwrap();
        // The memory is the program's again.
        from.bytes.fill(0xEE);
    }));
}

#[test]
fn a_message_that_is_left_alone_arrives() {
    let (mut pair, _) = spoiled(|_| ());
    pair.until(1, 1);
    assert_eq!(pair.sent, [Done { wr_id: 2, status: Status::Success }]);
    assert_eq!(pair.received, [Done { wr_id: 1, status: Status::Success }]);
}
