//! The short way from a ring to the poll of a completion queue changes nothing but the time that it takes.

mod support;

use pagewire_fabric::HostFabric;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::*;
use std::sync::Arc;
use std::time::Instant;
use support::*;

/// Messages after which a completion queue knows where its completions come from.
const ROUNDS: u64 = 200;

/// Two engines without threads, of which the second has left its work to polls.
struct Connected {
    a: Side,
    b: Side,
    channel: Arc<CompletionChannel>,
    qa: Arc<QueuePair<HostFabric>>,
    qb: Arc<QueuePair<HostFabric>>,
    ours: Buffer,
    theirs: Buffer,
    received: Vec<Done>,
}

impl Connected {
    fn new() -> Self {
        let (a, mut b) = (Side::without_thread(PathChoice::Local), Side::without_thread(PathChoice::Local));
        let channel = b.context.create_channel(Arc::new(Unwatched));
        b.recv_cq = b.context.create_cq(4096, Some(channel.clone())).unwrap();
        let kind = QueuePairType::Rc;
        let (qa, qb) = (a.queue_pair(kind, all_rights()), b.queue_pair(kind, all_rights()));
        to_rtr(&a, &qa, qb.number());
        to_rtr(&b, &qb, qa.number());
        to_rts(&qa, TIMERS);
        to_rts(&qb, TIMERS);
        let start = Instant::now();
        while a.nic.explain().iter().chain(&b.nic.explain()).any(|report| report.path == "asked") {
            assert!(start.elapsed() < PATIENCE, "no path");
            a.nic.progress();
            b.nic.progress();
        }
        b.nic.leave_work_to_polls(true);
        let (ours, theirs) = (a.buffer(4096, all_rights()), b.buffer(4096, all_rights()));
        Connected { a, b, channel, qa, qb, ours, theirs, received: Vec::new() }
    }

    fn post(&self, wr_id: u64) {
        let request = ReceiveRequest { wr_id, segments: &[self.theirs.piece(0, 8)] };
        self.qb.post_receive(&request).unwrap();
        let request = SendRequest {
            wr_id,
            data: Data::Segments(&[self.ours.piece(0, 8)]),
            operation: SendOperation::Send,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        assert!(!self.qa.post_send(&request).unwrap(), "sent at its post");
    }

    /// Polls once, as programs do that poll without a pause: nothing else is done for b.
    fn poll(&mut self) {
        self.b.poll(&self.b.recv_cq, &mut self.received);
    }

    /// One message after the other.
    fn exchange(&mut self) {
        for wr_id in 0..ROUNDS {
            // Rings that were seen empty, and polls that leave rounds out.
            (0..40).for_each(|_| self.poll());
            self.post(wr_id);
            let before = self.received.len();
            self.poll();
            assert_eq!(self.received.len(), before + 1, "the next poll finds message {wr_id}");
            assert_eq!(self.received[before], Done { wr_id, status: Status::Success });
            let mut sent = Vec::new();
            while sent.is_empty() {
                self.a.poll(&self.a.send_cq, &mut sent);
            }
            assert_eq!(sent, [Done { wr_id, status: Status::Success }]);
        }
    }
}

#[test]
fn a_queue_that_was_armed_tells_of_its_completion() {
    let mut connected = Connected::new();
    connected.exchange();
    assert_eq!(connected.channel.next_event(), None);
    connected.b.recv_cq.arm(false);
    connected.post(ROUNDS);
    let before = connected.received.len();
    connected.poll();
    assert_eq!(connected.received.len(), before + 1);
    assert!(connected.channel.next_event().is_some());
    connected.b.recv_cq.completion_events().acknowledge(1);
    // Once.
    connected.post(ROUNDS + 1);
    connected.poll();
    assert_eq!(connected.received.len(), before + 2);
    assert_eq!(connected.channel.next_event(), None);
}

#[test]
fn a_queue_pair_that_is_gone_is_not_kept() {
    let mut connected = Connected::new();
    connected.exchange();
    let gone = Arc::downgrade(&connected.qb);
    connected.qb.destroy().unwrap();
    connected.qb = connected.b.queue_pair(QueuePairType::Rc, all_rights());
    assert!(gone.upgrade().is_none());
    connected.poll();
}
