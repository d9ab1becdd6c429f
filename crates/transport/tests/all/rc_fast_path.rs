//! SENDs that pass by the queues at both ends are to the protocol as those that do not.

use crate::support::host::{Host, Packet};
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{Bth, Opcode, PacketHeader, PacketOperation as Code, Syndrome, Transport};
use std::cell::RefCell;
use std::rc::Rc;

const NOW: Time = Time(1_000_000);

/// One end, with the transport operations that it is driven with.
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

    fn progress(&mut self, now: Time) -> Vec<(PacketHeader, Vec<u8>)> {
        self.connection.progress(now, &mut self.host);
        let packets = std::mem::take(&mut self.host.sent);
        let standard = packets.into_iter().map(|packet| match packet {
            Packet::Standard { header, payload } => (header, payload),
            Packet::Vendor(own) => panic!("{own:?}"),
        });
        standard.collect()
    }

    /// Whether nothing is under way or to be sent.
    fn drained(&self) -> bool {
        self.connection.is_idle()
            && self.connection.outstanding() == 0
            && self.connection.deadline().is_none()
    }

    fn take(&mut self, packets: &[(PacketHeader, Vec<u8>)]) {
        for (header, payload) in packets {
            let outcome = self.connection.receive(NOW, header, Payload::Bytes(&[payload]), &mut self.host);
            assert!(!outcome.is_held());
        }
    }
}

fn ends() -> (End, End) {
    ends_over(local(true))
}

fn ends_over(link: Link) -> (End, End) {
    (End::new(link, 0x22, 0x100, 0x500), End::new(link, 0x11, 0x500, 0x100))
}

fn numbered(id: u64, work: WorkRequest) -> WorkRequest {
    WorkRequest { id: WorkId(id), ..work }
}

fn may_execute(connection: &mut RcConnection, header: &PacketHeader) -> bool {
    SendOnlyRequest::of(header).is_some_and(|send| connection.try_execute_fast(&send, 4).is_some())
}

/// Executes a SEND that may be executed at once. True: its acknowledgement is owed.
fn execute(connection: &mut RcConnection, header: &PacketHeader) -> bool {
    let send = SendOnlyRequest::of(header).expect("a SEND of one packet");
    connection.try_execute_fast(&send, 4).expect("it is the next").executed()
}

/// Sends a SEND that may leave at its post.
fn leave(connection: &mut RcConnection, work: &WorkRequest) -> SendOnlyRequest {
    let (packet, token) = connection.try_send_fast(work).expect("nothing is before it");
    token.sent(NOW, work);
    packet
}

/// Sends a work request the long way, as far as its packet.
fn post(end: &mut End, work: WorkRequest, bytes: Vec<u8>) -> Vec<(PacketHeader, Vec<u8>)> {
    end.host.buffers.insert(work.id, bytes);
    end.connection.post(work);
    end.progress(NOW)
}

#[test]
fn fast_and_slow_path_share_psns() {
    let (mut a, mut b) = ends();
    for id in 0..20 {
        let immediate = (id % 4 == 1).then_some(id as u32);
        let operation = WorkOperation::Send { immediate, invalidate: None };
        let work = WorkRequest { solicited: id % 7 == 0, ..numbered(id, work(operation, 4)) };
        let (whole, _) = a.connection.try_send_fast(&work).expect("nothing is before it");
        let sends_fast = id % 2 == 0;
        let executes_fast = id % 3 == 0;
        let (header, payload) = if sends_fast {
            (leave(&mut a.connection, &work).header(), vec![7; 4])
        } else {
            post(&mut a, work, vec![7; 4]).remove(0)
        };
        assert_eq!(header.bth.psn, 0x100 + id as u32);
        assert_eq!(SendOnlyRequest::of(&header), Some(whole), "the same either way");
        assert_eq!((whole.immediate, whole.solicited), (immediate, work.solicited));
        assert_eq!(a.connection.outstanding(), 1);
        if executes_fast {
            assert!(may_execute(&mut b.connection, &header));
            assert!(!execute(&mut b.connection, &header), "its acknowledgement is told by others");
        } else {
            b.host.post_receive(8);
            b.take(&[(header, payload)]);
            assert!(b.connection.take_acknowledgement(header.bth.psn));
        }
        assert!(b.progress(NOW).is_empty(), "its acknowledgement is told by others");
        assert!(b.connection.is_idle());
        if id % 5 == 0 {
            let done = a.connection.acknowledged_fast(NOW, header.bth.psn);
            a.host.complete(done.expect("it is the oldest"), Status::Success);
            assert_eq!(a.connection.acknowledged_fast(NOW, header.bth.psn), None, "once");
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
    assert_eq!(b.progress(NOW)[0].0.aeth.map(|aeth| aeth.message), Some(21));
}

#[test]
fn one_ack_completes_several_sends() {
    let (mut a, _) = ends();
    for id in 0..5 {
        let work = numbered(id, send(4));
        leave(&mut a.connection, &work);
    }
    assert!(a.progress(NOW).is_empty(), "they have left");
    a.take(&[(RcConnection::acknowledgement(0x11, 0x103), Vec::new())]);
    assert_eq!(a.host.completions.len(), 4);
    // An acknowledgement that comes after a later one.
    a.take(&[(RcConnection::acknowledgement(0x11, 0x101), Vec::new())]);
    assert_eq!((a.host.completions.len(), a.connection.outstanding()), (4, 1));
}

#[test]
fn fast_ack_completes_oldest_only() {
    let sent = |a: &mut End, id| {
        let work = numbered(id, send(4));
        leave(&mut a.connection, &work);
    };
    let (mut a, _) = ends();
    assert_eq!(a.connection.acknowledged_fast(NOW, 0x100), None, "nothing is outstanding");
    (0..3).for_each(|id| sent(&mut a, id));
    for psn in [0xff, 0x101, 0x102, 0x103] {
        assert_eq!(a.connection.acknowledged_fast(NOW, psn), None, "{psn:#x}");
    }
    for id in 0..3 {
        assert!(a.connection.deadline().is_some(), "some are outstanding");
        assert_eq!(a.connection.acknowledged_fast(NOW, 0x100 + id as u32), Some(WorkId(id)));
    }
    assert_eq!((a.connection.deadline(), a.connection.outstanding()), (None, 0));

    // A READ completes with its response.
    let (mut a, _) = ends();
    a.host.indirect = 1.0;
    post(&mut a, numbered(1, read(0, 8)), vec![0; 8]);
    sent(&mut a, 2);
    for psn in [0x100, 0x101] {
        assert_eq!(a.connection.acknowledged_fast(NOW, psn), None);
    }

    // Nor is one acknowledged that is begun and could not be sent yet.
    let (mut a, _) = ends();
    a.host.wait = 1.0;
    assert!(post(&mut a, numbered(0, send(4)), vec![0; 4]).is_empty());
    assert_eq!(a.connection.acknowledged_fast(NOW, 0x100), None);

    // One that failed at this side is reported behind those before it.
    let (mut a, _) = ends();
    a.host.deny_transmit = Some((WorkId(1), Denial::LocalProtection));
    post(&mut a, numbered(0, send(4)), vec![0; 4]);
    post(&mut a, numbered(1, send(4)), vec![0; 4]);
    assert_eq!(a.connection.acknowledged_fast(NOW, 0x100), None);
    a.take(&[(RcConnection::acknowledgement(0x11, 0x100), Vec::new())]);
    let both = [(WorkId(0), Status::Success), (WorkId(1), Status::LocalProtection)];
    assert_eq!(a.host.completions, both);
}

#[test]
fn rnr_nak_repeats_fast_send() {
    let (mut a, mut b) = ends();
    let work = numbered(0, send(4));
    let header = leave(&mut a.connection, &work).header();
    a.host.buffers.insert(work.id, vec![9; 4]);
    b.take(&[(header, vec![9; 4])]);
    assert!(!b.connection.take_acknowledgement(header.bth.psn));
    let nak = b.progress(NOW);
    assert!(matches!(nak[0].0.aeth.unwrap().syndrome, Syndrome::ReceiverNotReady { .. }));
    assert!(!may_execute(&mut b.connection, &header), "the requester has been told to wait");
    a.take(&nak);
    assert!(a.connection.try_send_fast(&numbered(2, send(4))).is_none());
    let later = a.connection.deadline().expect("the wait ends");
    let again = a.progress(later);
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
    let may = |end: &mut End| end.connection.try_send_fast(&next).is_some();
    let (mut a, _) = ends();
    assert!(may(&mut a));
    a.connection.post(numbered(1, send(4)));
    assert!(!may(&mut a), "posted and not sent");
    a.host.buffers.insert(WorkId(1), vec![0; 4]);
    a.progress(NOW);
    assert!(may(&mut a));
    a.connection.set_draining(true);
    assert!(!may(&mut a), "SQD");

    let (mut a, _) = ends();
    // Executed by nobody, so that it goes as a packet.
    a.host.indirect = 1.0;
    assert_eq!(post(&mut a, numbered(1, read(0, 8)), vec![0; 8]).len(), 1);
    assert!(may(&mut a), "behind a READ is no fence");
    assert!(a.connection.try_send_fast(&WorkRequest { fence: true, ..next }).is_none());

    let (mut a, _) = ends();
    a.host.deny_transmit = Some((WorkId(2), Denial::LocalProtection));
    post(&mut a, numbered(1, send(4)), vec![0; 4]);
    post(&mut a, numbered(2, send(4)), vec![0; 4]);
    assert!(!may(&mut a), "behind one that has failed");

    let (mut a, _) = ends();
    for work in [write(0, 4), read(0, 4), fetch_add(0, 1)] {
        assert!(a.connection.try_send_fast(&numbered(1, work)).is_none());
    }
    let invalidate = WorkOperation::Send { immediate: None, invalidate: Some(1) };
    assert!(a.connection.try_send_fast(&work(invalidate, 4)).is_none());
}

#[test]
fn only_the_next_whole_send_is_executed_at_once() {
    let header = |code, psn| {
        PacketHeader::new(Bth { acknowledge: true, ..Bth::new(Opcode::new(Transport::Rc, code), 0x22, psn) })
    };
    let next = header(Code::SendOnly, 0x100);
    let (_, mut b) = ends();
    assert!(may_execute(&mut b.connection, &next));
    assert!(!may_execute(&mut b.connection, &header(Code::SendOnly, 0x101)), "one is missing");
    assert!(!may_execute(&mut b.connection, &header(Code::SendOnly, 0xff)), "a repetition");
    for code in [Code::SendFirst, Code::SendOnlyInvalidate, Code::WriteOnly, Code::ReadRequest] {
        assert!(!may_execute(&mut b.connection, &header(code, 0x100)), "{code:?}");
    }
    let mut silent = next;
    silent.bth.acknowledge = false;
    assert!(!may_execute(&mut b.connection, &silent), "nobody waits for an acknowledgement");
    let mut foreign = next;
    foreign.bth.partition = 0x1234;
    assert!(!may_execute(&mut b.connection, &foreign));

    // An acknowledgement that has not left stays in order.
    b.host.post_receive(8);
    b.take(&[(next, vec![1; 4])]);
    let second = header(Code::SendOnly, 0x101);
    assert!(!may_execute(&mut b.connection, &second));
    assert!(!b.connection.take_acknowledgement(0x101), "not executed yet");
    assert_eq!(b.progress(NOW).len(), 1);
    assert!(may_execute(&mut b.connection, &second));

    // Nor in the midst of a message.
    let (_, mut b) = ends();
    b.connection = RcConnection::new(settings(Link { request_mtu: 4, ..local(true) }, 0x11, 0x100));
    b.connection.start_requester(requester(0x500));
    b.host.post_receive(100);
    let mut first = header(Code::SendFirst, 0x100);
    first.bth.acknowledge = false;
    b.take(&[(first, vec![1; 4])]);
    assert!(!may_execute(&mut b.connection, &second));
}

/// The headers of the packet of a SEND that leaves at once.
fn send_fast(end: &mut End, id: u64) -> PacketHeader {
    let work = numbered(id, send(4));
    end.host.buffers.insert(work.id, vec![id as u8; 4]);
    leave(&mut end.connection, &work).header()
}

/// Over a network the acknowledgement is owed, and goes with the answer or by itself, whichever way the SENDs take.
#[test]
fn over_a_network_what_is_owed_leaves_with_the_answer_or_alone() {
    let (mut a, mut b) = ends_over(lossy(1024));
    let mut executed = 0;
    for id in 0..24 {
        let request = match id % 2 {
            0 => send_fast(&mut a, id),
            _ => post(&mut a, numbered(id, send(4)), vec![id as u8; 4]).remove(0).0,
        };
        assert!(a.connection.try_send_fast(&numbered(99, send(4))).is_none(), "one is under way");
        if id % 3 == 0 {
            assert!(may_execute(&mut b.connection, &request));
            assert!(execute(&mut b.connection, &request), "its acknowledgement is owed");
            assert!(!may_execute(&mut b.connection, &request), "a repetition");
        } else {
            b.host.post_receive(8);
            b.take(&[(request, vec![id as u8; 4])]);
        }
        executed += 1;
        assert!(b.connection.owes_acknowledgement());
        let owed = match id % 4 {
            // Alone.
            0 | 1 => b.progress(NOW).remove(0).0,
            // Behind the answer, which has to be acknowledged, too.
            _ => {
                let answer = send_fast(&mut b, id);
                let owed = b.connection.take_owed().expect("it has not left");
                execute(&mut a.connection, &answer);
                let back = a.connection.take_owed().expect("that of the answer");
                b.take(&[(back, Vec::new())]);
                owed
            }
        };
        assert_eq!(owed.aeth.map(|aeth| aeth.message), Some(executed));
        assert_eq!((owed.bth.psn, b.connection.take_owed()), (request.bth.psn, None));
        match id % 5 {
            0 => assert_eq!(a.connection.acknowledged_fast(NOW, owed.bth.psn), Some(WorkId(id))),
            _ => a.take(&[(owed, Vec::new())]),
        }
        assert!([&a, &b].iter().all(|end| end.drained()), "message {id}");
    }
}

/// What is lost is repeated, and executed once.
#[test]
fn over_a_network_a_send_that_left_at_once_is_repeated_until_it_is_acknowledged() {
    let (mut a, mut b) = ends_over(lossy(1024));
    let request = send_fast(&mut a, 7);
    let deadline = a.connection.deadline().expect("it may be lost");
    let again = a.progress(deadline);
    assert_eq!((again.len(), again[0].0.bth.psn, &again[0].1), (1, request.bth.psn, &vec![7; 4]));
    execute(&mut b.connection, &request);
    b.take(&again);
    assert!(b.host.received.is_empty(), "it is here");
    let owed = b.connection.take_owed().expect("the first one may have been lost");
    // Of a request that is still to be sent nothing can be acknowledged.
    assert_eq!(a.connection.acknowledged_fast(NOW, request.bth.psn + 1), None);
    assert_eq!(a.connection.acknowledged_fast(NOW, owed.bth.psn), Some(WorkId(7)));
    assert_eq!(a.connection.acknowledged_fast(NOW, owed.bth.psn), None);
    assert_eq!((a.connection.deadline(), a.connection.outstanding()), (None, 0));
}

#[test]
fn blocked_network_send_skips_fast_path() {
    let may = |end: &mut End| end.connection.try_send_fast(&numbered(9, send(4))).is_some();
    let (mut a, mut b) = ends_over(lossy(1024));
    assert!(may(&mut a));
    assert!(a.connection.try_send_fast(&numbered(9, send(1025))).is_none(), "several packets");
    // Ahead of one that is missing: what is told of that leaves first.
    b.connection.set_selective(true);
    let ahead =
        Bth { acknowledge: true, ..Bth::new(Opcode::new(Transport::Rc, Code::SendOnly), 0x11, 0x101) };
    b.take(&[(PacketHeader::new(ahead), vec![1; 4])]);
    assert!(!may(&mut b));
    let missing = PacketHeader::new(Bth { psn: 0x100, ..ahead });
    assert!(!may_execute(&mut b.connection, &missing), "what is kept comes behind it");

    let (mut a, mut b) = ends_over(lossy(1024));
    let (first, second) = (send_fast(&mut a, 1), Bth { psn: 0x101, ..ahead });
    assert!(
        SendOnlyRequest::of(&first).is_some_and(|send| b.connection.try_execute_fast(&send, 1025).is_none())
    );
    // Behind another that is not acknowledged yet: one acknowledgement does for both.
    execute(&mut b.connection, &first);
    execute(&mut b.connection, &PacketHeader::new(second));
    assert_eq!(b.connection.take_owed().map(|owed| owed.bth.psn), Some(0x101));
    // A READ's responses go first.
    let (request, _) = post(&mut b, numbered(2, read(0, 8)), vec![0; 8]).remove(0);
    a.take(&[(request, Vec::new())]);
    assert!(!may(&mut a));
    assert_eq!(a.connection.take_owed(), None);
}

#[test]
fn first_rtr_packet_skips_fast_path() {
    let mut connection = RcConnection::new(settings(local(true), 0x11, 0x100));
    let header = PacketHeader::new(Bth {
        acknowledge: true,
        ..Bth::new(Opcode::new(Transport::Rc, Code::SendOnly), 0x22, 0x100)
    });
    assert!(!may_execute(&mut connection, &header), "IBV_EVENT_COMM_EST is to be raised");
    connection.start_requester(requester(0x500));
    assert!(may_execute(&mut connection, &header));
}
