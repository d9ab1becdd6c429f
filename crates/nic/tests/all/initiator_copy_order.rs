//! WRITEs and READs wait for their turn, also where the initiator could execute them at once (InfiniBand specification, volume
//! 1, sections 9.5 and 10.3.1: order of requests, and the states of queue pairs).

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::*;

/// Looks at both engines in which something that is not to happen would have happened.
const LOOKS: usize = 300;

fn to(state: QpState) -> QueuePairChange {
    QueuePairChange { state: Some(state), ..Default::default() }
}

fn wr_ids(done: &[Done]) -> Vec<u64> {
    assert!(done.iter().all(|done| done.status == Status::Success), "{done:?}");
    done.iter().map(|done| done.wr_id).collect()
}

#[test]
fn what_is_posted_behind_a_send_without_receive_waits() {
    if !own_network::is_here() {
        return;
    }
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        pair.qa.modify(&to(QpState::SendQueueDrain)).unwrap();
        let without_end = QueuePairChange { rnr_retry: Some(7), ..to(QpState::SendQueueDrain) };
        pair.qa.modify(&without_end).unwrap();
        pair.qa.modify(&to(QpState::ReadyToSend)).unwrap();
        let source = pair.a.buffer(64, all_rights());
        let target = pair.b.buffer(64, all_rights());
        source.bytes.fill(7);
        target.bytes[32..].fill(9);
        let (address, key) = (target.address, target.region.rkey());
        pair.post(1, SendOperation::Send, &[]).unwrap();
        pair.post(2, SendOperation::Write { address, key }, &[source.piece(0, 32)]).unwrap();
        pair.post(3, SendOperation::Read { address: address + 32, key }, &[source.piece(32, 32)]).unwrap();
        (0..LOOKS).for_each(|_| pair.turn());
        assert_eq!(wr_ids(&pair.sent), [], "on {path:?}");
        assert_eq!((target.bytes[0], source.bytes[32]), (0, 7), "on {path:?}");
        pair.receive(4, &[]);
        pair.until(3, 1);
        assert_eq!((wr_ids(&pair.sent), wr_ids(&pair.received)), (vec![1, 2, 3], vec![4]), "on {path:?}");
        assert_eq!((target.bytes[31], source.bytes[32]), (7, 9), "on {path:?}");
    }
}

#[test]
fn what_is_posted_in_sqd_waits_and_a_peer_in_sqd_executes() {
    if !own_network::is_here() {
        return;
    }
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let source = pair.a.buffer(8, all_rights());
        let target = pair.b.buffer(8, all_rights());
        source.bytes.fill(7);
        let write = SendOperation::Write { address: target.address, key: target.region.rkey() };
        pair.qb.modify(&to(QpState::SendQueueDrain)).unwrap();
        pair.qa.modify(&to(QpState::SendQueueDrain)).unwrap();
        pair.post(1, write, &[source.piece(0, 8)]).unwrap();
        (0..LOOKS).for_each(|_| pair.turn());
        assert_eq!((wr_ids(&pair.sent), target.bytes[0]), (vec![], 0), "on {path:?}");
        pair.qa.modify(&to(QpState::ReadyToSend)).unwrap();
        pair.post(2, write, &[source.piece(0, 8)]).unwrap();
        pair.until(2, 0);
        assert_eq!((wr_ids(&pair.sent), target.bytes[7]), (vec![1, 2], 7), "on {path:?}");
    }
}
