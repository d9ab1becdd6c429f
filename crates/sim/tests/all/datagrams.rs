//! Datagrams (UD) between simulated processes.

use crate::support::{Side, address_of, side_with};
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::{
    Data, Destination, PathChoice, ReceiveRequest, ScatterGather, SendOperation, SendRequest, Status,
    Unwatched,
};
use pagewire_sim::{LinkFaults, MEMORY, World};
use std::sync::Arc;

const QUEUE_KEY: u32 = 0x1111_1111;

/// Shorter than a datagram waits for a receive.
const SHORT: u64 = 10_000_000;

fn to_rts(side: &Side) {
    let init = QueuePairChange {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        queue_key: Some(QUEUE_KEY),
        ..QueuePairChange::default()
    };
    let receive = QueuePairChange { state: Some(QpState::ReadyToReceive), ..QueuePairChange::default() };
    let send = QueuePairChange {
        state: Some(QpState::ReadyToSend),
        send_psn: Some(100),
        ..QueuePairChange::default()
    };
    for change in [init, receive, send] {
        side.queue_pairs[0].modify(&change).unwrap();
    }
}

/// Sends a datagram of 8 bytes.
fn send(world: &World, from: &Side, to: &Side, queue_key: u32) {
    let address = from.domain.create_ah(&address_of(world, to.process)).unwrap();
    let pieces = [ScatterGather { address: MEMORY, length: 8, key: from.region.lkey() }];
    let request = SendRequest {
        wr_id: 1,
        data: Data::Segments(&pieces),
        operation: SendOperation::Send,
        signaled: true,
        fence: false,
        solicited: false,
        destination: Some(Destination::Address {
            address: &address,
            queue_pair: to.queue_pairs[0].number(),
            queue_key,
        }),
    };
    from.queue_pairs[0].post_send(&request).unwrap();
    from.queue_pairs[0].doorbell();
}

/// Has both work for some time.
fn work(world: &World, sides: [&Side; 2], time: u64) {
    let end = world.now() + time;
    while world.now() < end {
        let next = sides.iter().filter_map(|side| side.nic.progress()).min();
        world.advance(Some(next.unwrap_or(u64::MAX).clamp((world.now() + 1_000).min(end), end)));
    }
}

/// InfiniBand specification, volume 1, section 10.2.5: a datagram with another Q_Key is dropped, whether there is a receive or not.
#[test]
fn a_datagram_with_a_wrong_queue_key_does_not_wait_for_a_receive() {
    for path in [PathChoice::Local, PathChoice::Udp] {
        let world = World::new(1, LinkFaults::NONE);
        let host = world.host();
        let other = if path == PathChoice::Udp { world.host() } else { host };
        let [one, two] = [host, other]
            .map(|host| side_with(&world, host, path, &[QueuePairType::Ud], Arc::new(Unwatched)));
        to_rts(&one);
        to_rts(&two);
        let dropped = || two.queue_pairs[0].report().dropped;
        send(&world, &one, &two, QUEUE_KEY ^ 1);
        work(&world, [&one, &two], SHORT);
        assert_eq!(dropped(), 1, "{path:?}");
        // One with the right key waits.
        send(&world, &one, &two, QUEUE_KEY);
        work(&world, [&one, &two], SHORT);
        let segments = [ScatterGather { address: MEMORY, length: 48, key: two.region.lkey() }];
        two.queue_pairs[0].post_receive(&ReceiveRequest { wr_id: 2, segments: &segments }).unwrap();
        work(&world, [&one, &two], SHORT);
        let mut statuses = Vec::new();
        two.cq.poll(2, &mut |completion| statuses.push(completion.status));
        assert_eq!((statuses, dropped()), (vec![Status::Success], 1), "{path:?}");
    }
}
