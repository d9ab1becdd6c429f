//! SENDs that pass by the queues at both ends are to the protocol as those that do not.

mod support;

use pagewire_transport::*;
use pagewire_wire::{Bth, Header, Opcode, Operation as Code, Syndrome, Transport};
use std::cell::RefCell;
use std::rc::Rc;
use support::host::{Host, Packet};
use support::*;

const NOW: Time = Time(1_000_000);

/// One end, with the environment that it is driven in.
struct End {
    connection: RcConnection,
    host: Host,
}

impl End {
    fn new(link: Link, destination: u32, send_psn: u32, receive_psn: u32) -> End {
        let memory = Rc::new(RefCell::new(vec![0; 4096]));
        let mut connection = RcConnection::new(settings(link, destination, receive_psn));
        connection.start_requester(requester(send_psn));
        End { connection, host: Host::new(memory.clone(), memory, 1) }
    }

    fn drive(&mut self, now: Time) -> Vec<(Header, Vec<u8>)> {
        self.connection.drive(now, &mut self.host);
        let packets = std::mem::take(&mut self.host.sent);
        let standard = packets.into_iter().map(|packet| match packet {
            Packet::Standard { header, payload } => (header, payload),
            Packet::Own(own) => panic!("{own:?}"),
        });
        standard.collect()
    }

    fn take(&mut self, packets: &[(Header, Vec<u8>)]) {
        for (header, payload) in packets {
            let outcome = self.connection.receive(NOW, header, Payload::Bytes(payload), &mut self.host);
            assert_eq!(outcome, Outcome::Done(()));
        }
    }
}

fn ends() -> (End, End) {
    (End::new(local(true), 0x22, 0x100, 0x500), End::new(local(true), 0x11, 0x500, 0x100))
}

fn numbered(id: u64, work: Work) -> Work {
    Work { id: WorkId(id), ..work }
}

fn may_execute(connection: &RcConnection, header: &Header) -> bool {
    WholeSend::of(header).is_some_and(|send| connection.may_execute_at_once(&send))
}

/// Sends a work request the long way, as far as its packet.
fn post(end: &mut End, work: Work, bytes: Vec<u8>) -> Vec<(Header, Vec<u8>)> {
    end.host.buffers.insert(work.id, bytes);
    end.connection.post(work);
    end.drive(NOW)
}

#[test]
fn long_and_short_way_make_one_sequence() {
    let (mut a, mut b) = ends();
    for id in 0..20 {
        let immediate = (id % 4 == 1).then_some(id as u32);
        let operation = Operation::Send { immediate, invalidate: None };
        let work = Work { solicited: id % 7 == 0, ..numbered(id, work(operation, 4)) };
        let whole = a.connection.send_at_once(&work).expect("nothing is before it");
        let sends_at_once = id % 2 == 0;
        let executes_at_once = id % 3 == 0;
        let (header, payload) = if sends_at_once {
            a.connection.sent_at_once(NOW, &work);
            (whole.header(), vec![7; 4])
        } else {
            post(&mut a, work, vec![7; 4]).remove(0)
        };
        assert_eq!(header.bth.psn, 0x100 + id as u32);
        assert_eq!(WholeSend::of(&header), Some(whole), "the same either way");
        assert_eq!((whole.immediate, whole.solicited), (immediate, work.solicited));
        assert_eq!(a.connection.outstanding(), 1);
        if executes_at_once {
            assert!(may_execute(&b.connection, &header));
            b.connection.executed_at_once();
        } else {
            b.host.post_receive(8);
            b.take(&[(header, payload)]);
            assert!(b.connection.take_acknowledgement(header.bth.psn));
        }
        assert!(b.drive(NOW).is_empty(), "its acknowledgement is told by others");
        assert!(b.connection.is_idle());
        if id % 5 == 0 {
            let done = a.connection.acknowledged_at_once(NOW, header.bth.psn);
            a.host.complete(done.expect("it is the oldest"), Status::Success);
            assert_eq!(a.connection.acknowledged_at_once(NOW, header.bth.psn), None, "once");
        } else {
            a.take(&[(RcConnection::acknowledgement(0x11, header.bth.psn), Vec::new())]);
        }
        assert_eq!(a.host.completions.last(), Some(&(WorkId(id), Status::Success)));
        assert_eq!(a.host.completions.len() as u64, id + 1);
        assert!(a.connection.is_idle() && a.connection.is_quiet());
        assert_eq!(a.connection.deadline(), None);
    }
    // The message sequence number goes on, too.
    let (header, payload) = post(&mut a, numbered(20, send(4)), vec![7; 4]).remove(0);
    b.host.post_receive(8);
    b.take(&[(header, payload)]);
    assert_eq!(b.drive(NOW)[0].0.aeth.map(|aeth| aeth.message), Some(21));
}

#[test]
fn several_may_be_under_way_and_one_acknowledgement_does_for_all() {
    let (mut a, _) = ends();
    for id in 0..5 {
        let work = numbered(id, send(4));
        assert!(a.connection.send_at_once(&work).is_some());
        a.connection.sent_at_once(NOW, &work);
    }
    assert!(a.drive(NOW).is_empty(), "they have left");
    a.take(&[(RcConnection::acknowledgement(0x11, 0x103), Vec::new())]);
    assert_eq!(a.host.completions.len(), 4);
    // A verdict that comes after a later one.
    a.take(&[(RcConnection::acknowledgement(0x11, 0x101), Vec::new())]);
    assert_eq!((a.host.completions.len(), a.connection.outstanding()), (4, 1));
}

#[test]
fn an_acknowledgement_that_does_more_than_complete_the_oldest_takes_the_long_way() {
    let sent = |a: &mut End, id| {
        let work = numbered(id, send(4));
        assert!(a.connection.send_at_once(&work).is_some());
        a.connection.sent_at_once(NOW, &work);
    };
    let (mut a, _) = ends();
    assert_eq!(a.connection.acknowledged_at_once(NOW, 0x100), None, "nothing is outstanding");
    (0..3).for_each(|id| sent(&mut a, id));
    for psn in [0xff, 0x101, 0x102, 0x103] {
        assert_eq!(a.connection.acknowledged_at_once(NOW, psn), None, "{psn:#x}");
    }
    for id in 0..3 {
        assert!(a.connection.deadline().is_some(), "some are outstanding");
        assert_eq!(a.connection.acknowledged_at_once(NOW, 0x100 + id as u32), Some(WorkId(id)));
    }
    assert_eq!((a.connection.deadline(), a.connection.outstanding()), (None, 0));

    // A READ completes with its response.
    let (mut a, _) = ends();
    a.host.indirect = 1.0;
    post(&mut a, numbered(1, read(0, 8)), vec![0; 8]);
    sent(&mut a, 2);
    for psn in [0x100, 0x101] {
        assert_eq!(a.connection.acknowledged_at_once(NOW, psn), None);
    }

    // One that failed at this side is reported behind those before it.
    let (mut a, _) = ends();
    a.host.deny_transmit = Some((WorkId(1), Denial::LocalProtection));
    post(&mut a, numbered(0, send(4)), vec![0; 4]);
    post(&mut a, numbered(1, send(4)), vec![0; 4]);
    assert_eq!(a.connection.acknowledged_at_once(NOW, 0x100), None);
    a.take(&[(RcConnection::acknowledgement(0x11, 0x100), Vec::new())]);
    let both = [(WorkId(0), Status::Success), (WorkId(1), Status::LocalProtection)];
    assert_eq!(a.host.completions, both);
}

#[test]
fn a_send_without_a_receive_is_repeated_the_long_way() {
    let (mut a, mut b) = ends();
    let work = numbered(0, send(4));
    let header = a.connection.send_at_once(&work).unwrap().header();
    a.connection.sent_at_once(NOW, &work);
    a.host.buffers.insert(work.id, vec![9; 4]);
    b.take(&[(header, vec![9; 4])]);
    assert!(!b.connection.take_acknowledgement(header.bth.psn));
    let nak = b.drive(NOW);
    assert!(matches!(nak[0].0.aeth.unwrap().syndrome, Syndrome::ReceiverNotReady { .. }));
    assert!(!may_execute(&b.connection, &header), "the requester has been told to wait");
    a.take(&nak);
    assert!(a.connection.send_at_once(&numbered(2, send(4))).is_none());
    let later = a.connection.deadline().expect("the wait ends");
    let again = a.drive(later);
    assert_eq!((again.len(), again[0].0.bth.psn, &again[0].1), (1, header.bth.psn, &vec![9; 4]));
    b.host.post_receive(8);
    b.take(&again);
    assert_eq!(b.host.received.len(), 1);
    assert!(b.connection.take_acknowledgement(header.bth.psn));
    a.take(&[(RcConnection::acknowledgement(0x11, header.bth.psn), Vec::new())]);
    assert_eq!(a.host.completions, [(WorkId(0), Status::Success)]);
}

#[test]
fn what_is_before_a_send_keeps_it_from_leaving_at_once() {
    let next = numbered(9, send(4));
    let may = |end: &End| end.connection.send_at_once(&next).is_some();
    let (mut a, _) = ends();
    assert!(may(&a));
    a.connection.post(numbered(1, send(4)));
    assert!(!may(&a), "posted and not sent");
    a.host.buffers.insert(WorkId(1), vec![0; 4]);
    a.drive(NOW);
    assert!(may(&a));
    a.connection.set_draining(true);
    assert!(!may(&a), "SQD");

    let (mut a, _) = ends();
    // Executed by nobody, so that it goes as a packet.
    a.host.indirect = 1.0;
    assert_eq!(post(&mut a, numbered(1, read(0, 8)), vec![0; 8]).len(), 1);
    assert!(may(&a), "behind a READ is no fence");
    assert!(a.connection.send_at_once(&Work { fence: true, ..next }).is_none());

    let (mut a, _) = ends();
    a.host.deny_transmit = Some((WorkId(2), Denial::LocalProtection));
    post(&mut a, numbered(1, send(4)), vec![0; 4]);
    post(&mut a, numbered(2, send(4)), vec![0; 4]);
    assert!(!may(&a), "behind one that has failed");

    let (a, _) = ends();
    for work in [write(0, 4), read(0, 4), fetch_add(0, 1)] {
        assert!(a.connection.send_at_once(&numbered(1, work)).is_none());
    }
    let invalidate = Operation::Send { immediate: None, invalidate: Some(1) };
    assert!(a.connection.send_at_once(&work(invalidate, 4)).is_none());
    let network = End::new(lossy(1024), 0x22, 0x100, 0x500);
    assert!(!may(&network), "what may be lost is kept and repeated");
}

#[test]
fn only_the_next_whole_send_is_executed_at_once() {
    let header = |code, psn| {
        Header::new(Bth { acknowledge: true, ..Bth::new(Opcode::new(Transport::Rc, code), 0x22, psn) })
    };
    let next = header(Code::SendOnly, 0x100);
    let (_, mut b) = ends();
    assert!(may_execute(&b.connection, &next));
    assert!(!may_execute(&b.connection, &header(Code::SendOnly, 0x101)), "one is missing");
    assert!(!may_execute(&b.connection, &header(Code::SendOnly, 0xff)), "a repetition");
    for code in [Code::SendFirst, Code::SendOnlyInvalidate, Code::WriteOnly, Code::ReadRequest] {
        assert!(!may_execute(&b.connection, &header(code, 0x100)), "{code:?}");
    }
    let mut silent = next;
    silent.bth.acknowledge = false;
    assert!(!may_execute(&b.connection, &silent), "nobody waits for a verdict");
    let mut foreign = next;
    foreign.bth.partition = 0x1234;
    assert!(!may_execute(&b.connection, &foreign));

    // An acknowledgement that has not left stays in order.
    b.host.post_receive(8);
    b.take(&[(next, vec![1; 4])]);
    let second = header(Code::SendOnly, 0x101);
    assert!(!may_execute(&b.connection, &second));
    assert!(!b.connection.take_acknowledgement(0x101), "not executed yet");
    assert_eq!(b.drive(NOW).len(), 1);
    assert!(may_execute(&b.connection, &second));

    // Nor in the midst of a message.
    let (_, mut b) = ends();
    b.connection = RcConnection::new(settings(Link { request_mtu: 4, ..local(true) }, 0x11, 0x100));
    b.connection.start_requester(requester(0x500));
    b.host.post_receive(100);
    let mut first = header(Code::SendFirst, 0x100);
    first.bth.acknowledge = false;
    b.take(&[(first, vec![1; 4])]);
    assert!(!may_execute(&b.connection, &second));
}

#[test]
fn the_first_packet_of_a_connection_in_rtr_goes_the_long_way() {
    let mut connection = RcConnection::new(settings(local(true), 0x11, 0x100));
    let header = Header::new(Bth {
        acknowledge: true,
        ..Bth::new(Opcode::new(Transport::Rc, Code::SendOnly), 0x22, 0x100)
    });
    assert!(!may_execute(&connection, &header), "IBV_EVENT_COMM_EST is to be raised");
    connection.start_requester(requester(0x500));
    assert!(may_execute(&connection, &header));
}
