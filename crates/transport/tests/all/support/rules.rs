//! What the tests of single rules share: pairs that keep a log, and what is in it.

use super::host::Packet;
use super::network::Pair;
use super::{lossy, requester, settings, write};
use pagewire_transport::*;
use pagewire_wire::{Opcode, PacketHeader, PacketOperation as Code, Syndrome, Transport};

pub const FOREVER: u64 = u64::MAX / 2;

pub fn statuses(pair: &Pair, end: usize) -> Vec<Status> {
    pair.ends[end].host.completions.iter().map(|completion| completion.1).collect()
}

pub fn logged(mut pair: Pair) -> Pair {
    pair.keep_log = true;
    pair
}

/// Headers that an end handed to the network, lost or not.
pub fn sent(pair: &Pair, end: usize) -> Vec<(u64, PacketHeader)> {
    pair.log
        .iter()
        .filter_map(|(time, from, packet)| match packet {
            Packet::Standard { header, .. } if *from == end => Some((*time, *header)),
            _ => None,
        })
        .collect()
}

pub fn codes(pair: &Pair, end: usize) -> Vec<Code> {
    sent(pair, end).iter().map(|(_, header)| header.bth.opcode.operation().unwrap()).collect()
}

pub fn naks(pair: &Pair, end: usize) -> Vec<Syndrome> {
    let aeths = sent(pair, end).into_iter().filter_map(|(_, header)| header.aeth);
    aeths.map(|aeth| aeth.syndrome).filter(|syndrome| !matches!(syndrome, Syndrome::Ack { .. })).collect()
}

pub fn pair_with(change: impl Fn(&mut RcSettings, &mut RequesterSettings)) -> Pair {
    let (mut rc, mut rts) = (settings(lossy(1024), 0x22, 0), requester(0x100));
    change(&mut rc, &mut rts);
    logged(Pair::with(rc, rts, RcSettings { destination: 0x11, ..rc }, rts, 1))
}

/// Loses the first `count` packets that `matches`.
pub fn lose(pair: &mut Pair, count: usize, matches: impl Fn(usize, &Packet) -> bool + 'static) {
    let mut left = count;
    pair.filter = Some(Box::new(move |from, packet| {
        let hit = left > 0 && matches(from, packet);
        left -= usize::from(hit);
        !hit
    }));
}

pub fn is(packet: &Packet, wanted: Code) -> bool {
    matches!(packet, Packet::Standard { header, .. } if header.bth.opcode.operation() == Some(wanted))
}

pub fn has_psn(packet: &Packet, psn: u32) -> bool {
    matches!(packet, Packet::Standard { header, .. } if header.bth.psn == psn)
}

/// A pair whose second end has no requests of its own, and one work request of the first that fails.
pub fn refused(work: WorkRequest, prepare: impl Fn(&mut Pair)) -> Pair {
    let mut pair = logged(Pair::new(lossy(1024), 1));
    prepare(&mut pair);
    let good = write(0, 10);
    pair.post_zeroed(0, good);
    pair.post_zeroed(0, work);
    pair.post_zeroed(0, good);
    pair.run(FOREVER);
    assert_eq!(pair.ends[0].connection.outstanding(), 1, "what is behind is the caller's to flush");
    assert!(pair.ends.iter().all(|end| end.connection.is_dead()));
    assert_eq!(pair.ends[0].host.events, []);
    pair
}

pub fn header(code: Code, psn: u32) -> PacketHeader {
    PacketHeader::new(pagewire_wire::Bth {
        acknowledge: true,
        ..pagewire_wire::Bth::new(Opcode::new(Transport::Rc, code), 0x11, psn)
    })
}

/// What a responder in order says to each of these requests, one after the other.
pub fn responder_says(requests: &[(PacketHeader, usize)]) -> Vec<Syndrome> {
    let mut pair = Pair::new(lossy(1024), 1);
    let host = &mut pair.ends[1].host;
    host.post_receive(100_000);
    let mut connection = RcConnection::new(settings(lossy(1024), 0x11, 0));
    for (header, length) in requests {
        assert!(!connection.receive(Time(0), header, Payload::Bytes(&[&vec![0; *length]]), host).is_held());
        connection.progress(Time(0), host);
    }
    host.sent
        .iter()
        .filter_map(|packet| match packet {
            Packet::Standard { header, .. } => header.aeth.map(|aeth| aeth.syndrome),
            Packet::Vendor(_) => None,
        })
        .filter(|syndrome| !matches!(syndrome, Syndrome::Ack { .. }))
        .collect()
}
