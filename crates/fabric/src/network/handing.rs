//! What messages from the sockets hold: packets that are intact and for this process go to the NIC, those of other processes to
//! them.

use super::Network;
use super::flow::{Flow, IcrcCache};
use super::receiving::{DatagramSink, ReceiveCursor};
use crate::destination::block_of;
use crate::fabric::{ROCE_PORT, ReceivedDatagram};
use crate::limits::PACKET_BYTES;
use crate::steering;
use crate::udp::{MessageInfo, PORT_PROBE};
use pagewire_wire::bth;
use pagewire_wire::packet::ICRC_LEN;
use smallvec::SmallVec;

/// The shortest packet: a BTH and the ICRC.
const SHORTEST: usize = bth::LEN + ICRC_LEN;
/// The first bytes of a packet: those from the opcode to the queue pair.
const TELLING: usize = 8;

impl Network {
    /// Hands over what the buffers hold.
    pub(super) fn hand_over(
        &self,
        receiving: &mut ReceiveCursor,
        limit: usize,
        taker: &mut DatagramSink<'_>,
    ) -> usize {
        let mut handed = 0;
        let ReceiveCursor { receiver, port, rx_peer_socket, message, offset, icrc, forwarded, .. } =
            receiving;
        let port = *port;
        while let Some((arrival, bytes)) = forwarded.message().filter(|_| handed < limit) {
            let DatagramSink::Nic(each) = taker else { return handed };
            let place = forwarded.offset / arrival.segment.max(1);
            let one = datagram_at(&arrival, bytes, forwarded.offset);
            handed += self.hand_one(&arrival, ROCE_PORT, (place, one), icrc, each);
            forwarded.offset += one.len();
        }
        while handed < limit && *message < receiver.count() {
            let Some((arrival, bytes)) = receiver.message(*message) else {
                self.counters.bad_length.add(1);
                *message += 1;
                *offset = 0;
                continue;
            };
            let start = *offset;
            // A message mostly fits as a whole or not at all: what leaves in a row stays one.
            if start == 0 && handed > 0 && bytes.len().div_ceil(arrival.segment.max(1)) > limit - handed {
                break;
            }
            let one = datagram_at(arrival, bytes, start);
            let mut end = start + one.len();
            let block = block_of(one).filter(|block| !self.serves(*block));
            match (block, &mut *taker) {
                _ if self.is_probe(arrival, one) => self.answer_probe(one),
                // A message is mostly of one flow: what belongs together is handed on together.
                (Some(_), _) if port != ROCE_PORT => self.counters.unknown_block.add(1),
                (Some(block), _) => {
                    let mut datagrams = 1;
                    while end < bytes.len() {
                        let next = datagram_at(arrival, bytes, end);
                        if block_of(next) != Some(block) {
                            break;
                        }
                        (end, datagrams) = (end + next.len(), datagrams + 1);
                    }
                    self.hand_on(block, arrival, &bytes[start..end], datagrams);
                    if let Some(token) = rx_peer_socket.take() {
                        // The peer's socket for this process is another one's by now, which sends to another process.
                        self.rx_peer_sockets.close(token);
                    }
                }
                // Short messages mostly come one by one.
                (None, DatagramSink::Nic(each)) if one.len() == bytes.len() => {
                    handed += self.hand_one(arrival, port, (0, one), icrc, each);
                }
                (None, DatagramSink::Nic(each)) => {
                    let most = limit - handed;
                    let burst;
                    (burst, end) = self.check_burst(arrival, port, (start, bytes), most, icrc);
                    if !burst.is_empty() {
                        each(&burst);
                        handed += burst.len();
                    }
                }
                (None, DatagramSink::Nobody) => return handed,
            }
            *offset = end;
            if end >= bytes.len() {
                *message += 1;
                *offset = 0;
            }
        }
        handed
    }

    /// Hands over one datagram, which has this place in its message, if it is sound and for the NIC; gives how many.
    fn hand_one(
        &self,
        arrival: &MessageInfo,
        port: u16,
        (place, bytes): (usize, &[u8]),
        icrc: &mut IcrcCache,
        each: &mut dyn FnMut(&[ReceivedDatagram<'_>]),
    ) -> usize {
        let flow = icrc.of(arrival.source, arrival.destination, arrival.source_port, port);
        let Some(datagram) = self.check(arrival, port, (place, bytes), flow) else { return 0 };
        self.count_received(1, bytes.len());
        each(&[datagram]);
        1
    }

    fn count_received(&self, datagrams: usize, bytes: usize) {
        self.counters.datagrams_received.add(datagrams as u64);
        self.counters.bytes_received.add(bytes as u64);
    }

    fn is_probe(&self, arrival: &MessageInfo, bytes: &[u8]) -> bool {
        self.steering.is_some() && steering::is_probe(arrival, bytes)
    }

    fn answer_probe(&self, bytes: &[u8]) {
        if let Some(steering) = &self.steering {
            if steering.answer(bytes, &self.hand_on, &self.served()) {
                // What is handed on may be for UD.
                self.request_hop_info();
            }
        }
    }

    /// The datagrams of a message that are for this process, from the one at `start` on, which is: up to one that is not, or so
    /// many. Those that are not sound are left out. Gives them and where they end.
    fn check_burst<'a>(
        &self,
        arrival: &MessageInfo,
        port: u16,
        (start, bytes): (usize, &'a [u8]),
        most: usize,
        icrc: &mut IcrcCache,
    ) -> (SmallVec<[ReceivedDatagram<'a>; 2]>, usize) {
        let segment = arrival.segment.max(1);
        let there = (bytes.len() - start).div_ceil(segment).min(most);
        let mut burst = SmallVec::with_capacity(there);
        let block = block_of(datagram_at(arrival, bytes, start));
        let (mut at, mut length) = (start, 0);
        let mut flow = icrc.of(arrival.source, arrival.destination, arrival.source_port, port);
        while at < bytes.len() && burst.len() < most {
            let one = datagram_at(arrival, bytes, at);
            // Mostly all are for the block that the first is for.
            let foreign = || {
                let other = block_of(one);
                other != block && other.is_some_and(|block| !self.serves(block))
            };
            if at > start && (self.is_probe(arrival, one) || foreign()) {
                break;
            }
            let place = at / segment;
            at += one.len();
            if let Some(datagram) = self.check(arrival, port, (place, one), flow.as_deref_mut()) {
                length += one.len();
                burst.push(datagram);
                // So are those behind it that begin like it, if they are as long: nothing else tells. What a capture is to show is
                // looked at one by one.
                let beginning = one.first_chunk::<TELLING>();
                let whole = one.len() == segment && self.capture.is_none();
                for alike in bytes[at..].chunks_exact(segment).take_while(|_| whole) {
                    if burst.len() >= most || alike.first_chunk() != beginning {
                        break;
                    }
                    if self.is_intact(flow.as_deref_mut(), at / segment, alike) {
                        length += segment;
                        burst.push(sound(arrival, alike));
                    }
                    at += segment;
                }
            }
        }
        if !burst.is_empty() {
            self.count_received(burst.len(), length);
        }
        (burst, at)
    }

    /// Whether a packet of a flow (`None`: of none that can be) is as it was sent.
    #[inline]
    fn is_intact(&self, flow: Option<&mut Flow>, place: usize, bytes: &[u8]) -> bool {
        let intact = flow.is_some_and(|flow| flow.verify(place, bytes));
        if !intact {
            self.counters.bad_icrc.add(1);
        }
        intact
    }

    /// The packet of a datagram, which has this place in its message, if it is sound and for the NIC.
    fn check<'a>(
        &self,
        arrival: &MessageInfo,
        port: u16,
        (place, bytes): (usize, &'a [u8]),
        mut flow: Option<&mut Flow>,
    ) -> Option<ReceivedDatagram<'a>> {
        if bytes.len() < SHORTEST || bytes.len() > PACKET_BYTES {
            self.counters.bad_length.add(u64::from(bytes != PORT_PROBE));
            return None;
        }
        if self.steering.as_ref().is_some_and(|steering| steering.take_check(arrival, bytes)) {
            return None;
        }
        // Handed on by a process that thinks so, but not ours either (any more).
        if block_of(bytes).is_none_or(|block| !self.serves(block)) {
            self.counters.unknown_block.add(1);
            return None;
        }
        let intact = self.is_intact(flow.as_deref_mut(), place, bytes);
        if let Some(capture) = &self.capture {
            capture.received(arrival, port, flow.map(|flow| flow.icrc.icrc()), bytes);
        }
        if !intact {
            return None;
        }
        if self.take_echo(arrival, port, bytes) {
            return None;
        }
        Some(sound(arrival, bytes))
    }
}

/// The datagram that begins at `start` in a message of datagrams of equal length, of which the last may be shorter.
#[inline]
fn datagram_at<'a>(arrival: &MessageInfo, message: &'a [u8], start: usize) -> &'a [u8] {
    &message[start..message.len().min(start + arrival.segment.max(1))]
}

/// What the NIC gets of a packet whose ICRC was right.
#[inline]
fn sound<'a>(arrival: &MessageInfo, bytes: &'a [u8]) -> ReceivedDatagram<'a> {
    ReceivedDatagram {
        source: arrival.source,
        source_port: arrival.source_port,
        destination: arrival.destination,
        traffic_class: arrival.traffic_class,
        hop_limit: arrival.hop_limit,
        by_stream: false,
        bytes: &bytes[..bytes.len() - ICRC_LEN],
        deferred: None,
    }
}
