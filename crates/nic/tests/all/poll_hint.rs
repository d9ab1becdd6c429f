//! The short way from a ring to the poll of a completion queue changes nothing but the time that it takes.

use crate::support::*;
use pagewire_fabric::HostFabric;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::*;
use std::sync::Arc;
use std::time::Instant;

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
        let [qa, qb] = connect_without_threads([&a, &b], TIMERS);
        b.nic.leave_work_to_polls(true);
        let (ours, theirs) = (a.buffer(4096, all_rights()), b.buffer(4096, all_rights()));
        Connected { a, b, channel, qa, qb, ours, theirs, received: Vec::new() }
    }

    fn post(&self, wr_id: u64) {
        assert!(!self.post_somehow(wr_id), "sent at its post");
    }

    /// True: it was kept.
    fn post_somehow(&self, wr_id: u64) -> bool {
        let request = ReceiveRequest { wr_id, segments: &[self.theirs.piece(0, 8)] };
        self.qb.post_receive(&request).unwrap();
        post_send(&self.qa, wr_id, &[self.ours.piece(0, 8)])
    }

    /// Polls once, as programs do that poll without a pause: nothing else is done for b.
    fn poll(&mut self) {
        self.b.poll(&self.b.recv_cq, &mut self.received);
    }

    /// What became of the send requests, until one has failed.
    fn failure(&mut self) -> Done {
        let (start, mut sent) = (Instant::now(), Vec::new());
        loop {
            assert!(start.elapsed() < PATIENCE, "{sent:?}");
            self.qa.doorbell();
            self.a.nic.progress();
            self.poll();
            self.a.poll(&self.a.send_cq, &mut sent);
            if let Some(failed) = sent.iter().find(|done| done.status != Status::Success) {
                return *failed;
            }
        }
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

/// Where messages come from and go to is remembered from one to the next; what has ended meanwhile is not used.
#[test]
fn regions_that_were_remembered_and_have_ended_are_not_used() {
    for ended in [true, false] {
        let mut connected = Connected::new();
        connected.exchange();
        // Other rights, under the same key.
        let changed =
            || Reregistration { domain: None, translation: None, access: Some(Rights::LOCAL_WRITE) };
        connected.ours.region.reregister(changed()).unwrap();
        connected.theirs.region.reregister(changed()).unwrap();
        connected.theirs.bytes.fill(0);
        connected.ours.bytes.fill(1);
        // The first one notices, and finds them anew.
        connected.post_somehow(0);
        connected.qa.doorbell();
        let start = Instant::now();
        while connected.theirs.bytes[..8] != [1; 8] {
            assert!(start.elapsed() < PATIENCE);
            connected.a.nic.progress();
            connected.poll();
        }
        connected.ours.bytes.fill(2);
        let status = if ended {
            connected.ours.region.deregister().unwrap();
            Status::LocalProtection
        } else {
            connected.theirs.region.deregister().unwrap();
            Status::RemoteOperation
        };
        connected.post_somehow(1);
        assert_eq!(connected.failure(), Done { wr_id: 1, status });
        assert_eq!(connected.theirs.bytes[..9], [1, 1, 1, 1, 1, 1, 1, 1, 0], "nothing was written");
    }
}

/// A poll with room for them gives all that have come, in their order.
#[test]
fn one_poll_gives_a_burst_in_its_order() {
    let mut connected = Connected::new();
    connected.exchange();
    for burst in [1, 2, 3, 5, 8] {
        (0..40).for_each(|_| connected.poll());
        let first = connected.received.len();
        (0..burst).for_each(|wr_id| connected.post(wr_id));
        let mut polls = 0;
        while connected.received.len() < first + burst as usize {
            connected.poll();
            polls += 1;
        }
        let got: Vec<u64> = connected.received[first..].iter().map(|done| done.wr_id).collect();
        assert!(got.iter().copied().eq(0..burst), "{got:?}");
        // More at a time while there are more: 1, 2, 4, 8.
        assert!(1 << (polls - 1) <= burst, "{polls} polls for {burst}");
        let mut sent = Vec::new();
        while sent.len() < burst as usize {
            connected.a.poll(&connected.a.send_cq, &mut sent);
        }
    }
}

/// However much comes by the short way, what comes by others has its turn.
#[test]
fn a_peer_that_never_stops_sending_does_not_keep_out_another_one() {
    const WINDOW: u64 = 8;
    let mut busy = Connected::new();
    busy.exchange();
    let quiet = Side::without_thread(PathChoice::Local);
    busy.b.nic.leave_work_to_polls(false);
    let [from, to] = connect_without_threads([&quiet, &busy.b], TIMERS);
    busy.b.nic.leave_work_to_polls(true);
    let bytes = quiet.buffer(64, all_rights());
    let mut in_flight = 0;
    let mut go_on = |busy: &mut Connected| {
        while in_flight < WINDOW {
            busy.post(1);
            in_flight += 1;
        }
        let before = busy.received.len();
        busy.poll();
        in_flight -= busy.received[before..].iter().filter(|done| done.wr_id == 1).count() as u64;
        busy.a.poll(&busy.a.send_cq, &mut Vec::new());
    };
    for _ in 0..50 {
        (0..100).for_each(|_| go_on(&mut busy));
        busy.received.clear();
        to.post_receive(&ReceiveRequest { wr_id: 2, segments: &[busy.theirs.piece(8, 8)] }).unwrap();
        assert!(!post_send(&from, 2, &[bytes.piece(0, 8)]));
        while !busy.received.iter().any(|done| done.wr_id == 2) {
            go_on(&mut busy);
            // One poll in 32 runs a round, where each brings one completion; those of a burst count.
            assert!(busy.received.len() < 100, "{}", busy.received.len());
        }
        let mut sent = Vec::new();
        while sent.is_empty() {
            quiet.poll(&quiet.send_cq, &mut sent);
            go_on(&mut busy);
        }
    }
}

/// Completions that come by another way than the one that is looked at first are no reason to look elsewhere less often.
#[test]
fn peers_that_take_turns_are_found_as_soon_as_each_other() {
    let mut b = Side::without_thread(PathChoice::Local);
    b.send_cq = b.recv_cq.clone();
    let peers = [(); 2].map(|()| {
        let a = Side::without_thread(PathChoice::Local);
        let [qa, qb] = connect_without_threads([&a, &b], TIMERS);
        let bytes = a.buffer(64, all_rights());
        (a, qa, qb, bytes)
    });
    b.nic.leave_work_to_polls(true);
    let theirs = b.buffer(64, all_rights());
    // Two of each peer in a row make it the one that is looked at first, just when the other one's turn comes.
    for turn in 0..400 {
        let (a, qa, qb, bytes) = &peers[turn / 2 % 2];
        qb.post_receive(&ReceiveRequest { wr_id: 1, segments: &[theirs.piece(0, 8)] }).unwrap();
        let mut received = Vec::new();
        (0..3).for_each(|_| b.poll(&b.recv_cq, &mut received));
        assert!(received.is_empty());
        if post_send(qa, 1, &[bytes.piece(0, 8)]) {
            qa.doorbell();
        }
        let mut polls = 0;
        while received.is_empty() {
            b.poll(&b.recv_cq, &mut received);
            polls += 1;
            // A round in the 1st, the 2nd, the 4th and the 8th poll after one that came upon something.
            assert!(turn < 100 || polls <= 8, "{polls} polls at turn {turn}");
        }
        let mut sent = Vec::new();
        while sent.is_empty() {
            a.poll(&a.send_cq, &mut sent);
        }
    }
}
