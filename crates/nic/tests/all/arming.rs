//! Whoever polls one completion queue delivers to armed ones, too: their events need no NIC thread (`ibv_req_notify_cq(3)`).

use crate::support::*;
use pagewire_fabric::HostFabric;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::*;
use std::sync::Arc;
use std::time::Instant;

/// Messages after which a completion queue knows where its completions come from, and polls leave rounds out.
const MESSAGES: u64 = 200;

/// The 40 bytes in front of a datagram, and its own.
const DATAGRAM: usize = 40 + 8;

/// Two engines without threads. The program of b polls the queue of an RC queue pair, and has armed that of a UD one.
struct Beside {
    a: Side,
    b: Side,
    connected: [Arc<QueuePair<HostFabric>>; 2],
    datagrams: [Arc<QueuePair<HostFabric>>; 2],
    armed: Arc<CompletionQueue<HostFabric>>,
    channel: Arc<CompletionChannel>,
    ours: Buffer,
    theirs: Buffer,
}

impl Beside {
    fn new(path: PathChoice) -> Self {
        let (a, mut b) = (Side::without_thread(path), Side::without_thread(path));
        let connected = connect_without_threads([&a, &b], TIMERS);
        let channel = b.context.create_channel(Arc::new(Unwatched));
        let armed = b.context.create_cq(16, Some(channel.clone())).unwrap();
        let polled = std::mem::replace(&mut b.recv_cq, armed.clone());
        let datagrams = [&a, &b].map(|side| {
            let queue_pair = side.queue_pair(QueuePairType::Ud, Rights::empty());
            let to = |state, send_psn| QueuePairChange { state: Some(state), send_psn, ..Default::default() };
            queue_pair.modify(&to(QpState::ReadyToReceive, None)).unwrap();
            queue_pair.modify(&to(QpState::ReadyToSend, Some(0))).unwrap();
            queue_pair
        });
        b.recv_cq = polled;
        b.nic.leave_work_to_polls(true);
        let (ours, theirs) = (a.buffer(4096, all_rights()), b.buffer(4096, all_rights()));
        Beside { a, b, connected, datagrams, armed, channel, ours, theirs }
    }

    /// RC messages, for which b does nothing but to poll their queue.
    fn exchange(&self) {
        let [from, to] = &self.connected;
        let (start, mut received) = (Instant::now(), Vec::new());
        for wr_id in 0..MESSAGES {
            to.post_receive(&ReceiveRequest { wr_id, segments: &[self.theirs.piece(0, 8)] }).unwrap();
            post_send(from, wr_id, &[self.ours.piece(0, 8)]);
            from.doorbell();
            while received.len() <= wr_id as usize {
                assert!(start.elapsed() < PATIENCE, "message {wr_id}");
                self.a.nic.progress();
                self.a.poll(&self.a.send_cq, &mut Vec::new());
                self.b.poll(&self.b.recv_cq, &mut received);
            }
        }
    }

    fn send_datagram(&self, wr_id: u64, solicited: bool) {
        let [from, to] = &self.datagrams;
        to.post_receive(&ReceiveRequest { wr_id, segments: &[self.theirs.piece(0, DATAGRAM as u32)] })
            .unwrap();
        let address = self.a.domain.create_ah(&self.a.vector()).unwrap();
        let destination =
            Destination::Address { address: &address, queue_pair: to.number(), queue_key: 0x1111 };
        let data = Data::Segments(&[self.ours.piece(0, 8)]);
        let (operation, destination) = (SendOperation::Send, Some(destination));
        let (signaled, fence) = (true, false);
        from.post_send(&SendRequest { wr_id, data, operation, signaled, fence, solicited, destination })
            .unwrap();
        let (start, mut sent) = (Instant::now(), Vec::new());
        while sent.is_empty() {
            assert!(start.elapsed() < PATIENCE, "datagram {wr_id} does not leave");
            from.doorbell();
            self.a.nic.progress();
            self.a.poll(&self.a.send_cq, &mut sent);
        }
        address.destroy().unwrap();
    }

    /// Polls the queue that has nothing to do with the datagrams until those are there.
    fn poll_until_delivered(&self, datagrams: usize) {
        let start = Instant::now();
        while self.armed.waiting() < datagrams {
            assert!(start.elapsed() < PATIENCE, "datagram {datagrams} is not delivered");
            self.b.poll(&self.b.recv_cq, &mut Vec::new());
        }
    }
}

#[test]
fn polls_of_another_queue_deliver_to_one_that_is_armed_for_solicited_events() {
    if !own_network::is_here() {
        return;
    }
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        let beside = Beside::new(path);
        beside.exchange();
        beside.armed.arm(true);
        beside.send_datagram(0, false);
        beside.poll_until_delivered(1);
        assert_eq!(beside.channel.next_event(), None, "on {path:?}: it was not solicited");
        beside.send_datagram(1, true);
        beside.poll_until_delivered(2);
        assert!(beside.channel.next_event().is_some(), "on {path:?}");
        beside.armed.completion_events().acknowledge(1);
        // Armed for one event.
        beside.send_datagram(2, true);
        beside.poll_until_delivered(3);
        assert_eq!(beside.channel.next_event(), None, "on {path:?}");
        beside.exchange();
    }
}
