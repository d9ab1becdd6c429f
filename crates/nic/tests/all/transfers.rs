//! WRITEs and READs that the requester executes itself: where they go is remembered from one to the next, and what has changed
//! meanwhile is noticed.

use crate::support::*;
use pagewire_fabric::HostFabric;
use pagewire_nic::attributes::QueuePairChange;
use pagewire_nic::*;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a transfer.
const LENGTH: u32 = 8;

/// Two engines without threads: nobody but the requester works unless a test asks for it.
struct Connected {
    a: Side,
    b: Side,
    qa: Arc<QueuePair<HostFabric>>,
    qb: Arc<QueuePair<HostFabric>>,
    ours: Buffer,
    theirs: Buffer,
}

impl Connected {
    /// After some transfers, which are remembered.
    fn new(reads: bool) -> Self {
        let [a, b] = [(); 2].map(|()| Side::without_thread(PathChoice::Local));
        let [qa, qb] = connect_without_threads([&a, &b], TIMERS);
        let (ours, theirs) = (a.buffer(4096, all_rights()), b.buffer(4096, all_rights()));
        let mut connected = Connected { a, b, qa, qb, ours, theirs };
        for _ in 0..3 {
            connected.execute(reads);
        }
        connected
    }

    /// Posts a WRITE to the other buffer, or a READ from there. True: it was kept.
    fn post(&self, reads: bool) -> bool {
        let (address, key) = (self.theirs.address, self.theirs.region.rkey());
        let operation = match reads {
            true => SendOperation::Read { address, key },
            false => SendOperation::Write { address, key },
        };
        post_to(&self.qa, 1, operation, Data::Segments(&[self.ours.piece(0, LENGTH)])).unwrap()
    }

    /// A transfer at its post.
    fn execute(&mut self, reads: bool) {
        self.ours.bytes.fill(1);
        self.theirs.bytes.fill(2);
        assert!(!self.post(reads), "executed at its post");
        let mut sent = Vec::new();
        self.a.poll(&self.a.send_cq, &mut sent);
        assert_eq!(sent, [Done { wr_id: 1, status: Status::Success }]);
        assert!(if reads {
            self.ours.bytes[..9] == [2, 2, 2, 2, 2, 2, 2, 2, 1]
        } else {
            self.theirs.bytes[..9] == [1, 1, 1, 1, 1, 1, 1, 1, 2]
        });
    }

    /// A transfer that fails; nothing is moved.
    fn fail(&mut self, reads: bool) -> Status {
        self.ours.bytes.fill(1);
        self.theirs.bytes.fill(2);
        assert!(self.post(reads), "not executed at its post");
        self.qa.doorbell();
        let (start, mut sent) = (Instant::now(), Vec::new());
        while sent.is_empty() {
            assert!(start.elapsed() < PATIENCE);
            self.a.nic.progress();
            self.b.nic.progress();
            self.a.poll(&self.a.send_cq, &mut sent);
        }
        assert!(
            self.ours.bytes.iter().all(|byte| *byte == 1) && self.theirs.bytes.iter().all(|byte| *byte == 2)
        );
        sent[0].status
    }

    /// Changes the rights of the other buffer's region, whose key stays.
    fn restrict(&self, access: Rights) {
        let change = Reregistration { domain: None, translation: None, access: Some(access) };
        self.theirs.region.reregister(change).unwrap();
    }
}

#[test]
fn another_region_is_found() {
    for reads in [false, true] {
        let mut connected = Connected::new(reads);
        let other = connected.b.buffer(4096, all_rights());
        let first = std::mem::replace(&mut connected.theirs, other);
        connected.execute(reads);
        connected.theirs = first;
        connected.execute(reads);
        connected.ours = connected.a.buffer(4096, all_rights());
        connected.execute(reads);
        connected.execute(!reads);
        connected.execute(reads);
    }
}

#[test]
fn a_region_that_has_ended_is_not_accessed() {
    for reads in [false, true] {
        let mut connected = Connected::new(reads);
        connected.theirs.region.deregister().unwrap();
        assert_eq!(connected.fail(reads), Status::RemoteAccess);
        let mut connected = Connected::new(reads);
        connected.ours.region.deregister().unwrap();
        assert_eq!(connected.fail(reads), Status::LocalProtection);
        // What takes its place has another key.
        let mut connected = Connected::new(reads);
        let (address, domain) = (connected.theirs.address, connected.b.domain.clone());
        let key = connected.theirs.region.rkey();
        connected.theirs.region.deregister().unwrap();
        let again = domain.register(address, 4096, address, all_rights()).unwrap();
        assert_ne!(again.rkey(), key);
        assert_eq!(connected.fail(reads), Status::RemoteAccess);
    }
}

#[test]
fn rights_that_have_changed_count() {
    for (reads, other) in [(false, Rights::REMOTE_READ), (true, Rights::REMOTE_WRITE | Rights::LOCAL_WRITE)] {
        let mut connected = Connected::new(reads);
        connected.restrict(all_rights());
        connected.execute(reads);
        connected.restrict(other);
        assert_eq!(connected.fail(reads), Status::RemoteAccess);
        // Those of the queue pair likewise.
        let mut connected = Connected::new(reads);
        let change = |access| QueuePairChange { access: Some(access), ..Default::default() };
        connected.qb.modify(&change(other)).unwrap();
        connected.qb.modify(&change(all_rights())).unwrap();
        connected.execute(reads);
        connected.qb.modify(&change(other)).unwrap();
        assert_eq!(connected.fail(reads), Status::RemoteInvalidRequest);
    }
}

#[test]
fn rights_of_this_side_that_have_changed_count() {
    let mut connected = Connected::new(true);
    let change = Reregistration { domain: None, translation: None, access: Some(Rights::REMOTE_READ) };
    connected.ours.region.reregister(change).unwrap();
    // Bytes may be sent from it still.
    connected.execute(false);
    assert_eq!(connected.fail(true), Status::LocalProtection);
}

#[test]
fn a_queue_pair_that_takes_nothing_any_more_is_not_reached() {
    for reads in [false, true] {
        for state in [attributes::QpState::Error, attributes::QpState::Reset] {
            let mut connected = Connected::new(reads);
            connected.qb.modify(&QueuePairChange { state: Some(state), ..Default::default() }).unwrap();
            assert_eq!(connected.fail(reads), Status::RetryExceeded, "{state:?}");
        }
    }
}

/// Regions can be deregistered at once: each claim was given back.
#[test]
fn transfers_of_every_form_give_back_what_they_claim() {
    let connected = Connected::new(false);
    let second = connected.a.buffer(4096, all_rights());
    let (ours, theirs) = (&connected.ours, &connected.theirs);
    let none = ScatterGather { length: 0, ..ours.piece(0, 1) };
    let (one, two) = ([ours.piece(0, 8)], [ours.piece(0, 8), second.piece(0, 8)]);
    let many = [ours.piece(0, 8), none, ours.piece(8, 8), second.piece(0, 8), none, ours.piece(16, 8)];
    let write = |key| SendOperation::Write { address: theirs.address, key };
    let key = theirs.region.rkey();
    let datas = [Data::Segments(&one), Data::Segments(&two), Data::Segments(&many), Data::Inline(&[&[3; 8]])];
    for data in datas.iter().chain(&datas) {
        assert!(!post_to(&connected.qa, 1, write(key), *data).unwrap(), "executed at its post");
    }
    // Refused for the second region, behind a claim on the first.
    second.region.deregister().unwrap();
    assert!(post_to(&connected.qa, 2, write(key), datas[2]).unwrap());
    // A claim that was not given back would make it busy.
    for region in [&ours.region, &theirs.region] {
        region.deregister().unwrap();
    }
}

#[test]
fn a_region_of_another_domain_is_not_accessed() {
    for reads in [false, true] {
        let mut connected = Connected::new(reads);
        let domain = connected.b.context.alloc_pd().unwrap();
        let address = connected.theirs.address;
        connected.theirs.region = domain.register(address, 4096, address, all_rights()).unwrap();
        assert_eq!(connected.fail(reads), Status::RemoteAccess);
    }
}

#[test]
fn nothing_beyond_a_region_is_accessed() {
    for reads in [false, true] {
        let mut connected = Connected::new(reads);
        connected.theirs.address += 4096 - u64::from(LENGTH) + 1;
        assert_eq!(connected.fail(reads), Status::RemoteAccess);
    }
}

/// A key of the former peer's is nothing to the next one.
#[test]
fn a_queue_pair_that_is_connected_anew_reaches_its_new_peer() {
    for reads in [false, true] {
        let mut connected = Connected::new(reads);
        let third = Side::without_thread(PathChoice::Local);
        let qc = third.queue_pair(attributes::QueuePairType::Rc, all_rights());
        let reset = QueuePairChange { state: Some(attributes::QpState::Reset), ..Default::default() };
        connected.qa.modify(&reset).unwrap();
        to_init(&connected.qa, all_rights());
        to_rtr(&connected.a, &connected.qa, qc.number());
        to_rtr(&third, &qc, connected.qa.number());
        to_rts(&connected.qa, TIMERS);
        to_rts(&qc, TIMERS);
        let start = Instant::now();
        while pagewire_nic::ConnectionReport::of_all(&connected.a.nic)
            .iter()
            .any(|report| report.path == "connecting")
        {
            assert!(start.elapsed() < PATIENCE, "no path");
            connected.a.nic.progress();
            third.nic.progress();
        }
        let former = std::mem::replace(&mut connected.b, third);
        connected.qb = qc;
        assert_eq!(connected.fail(reads), Status::RemoteAccess, "that key is the other one's");
        drop(former);
    }
}
