//! Packets on their way to the network, one after the other in one buffer.

use crate::fabric::{Route, SendBatch};
use crate::limits::{
    BATCH_BYTES, BATCH_PACKETS, PACKET_BYTES, SEGMENTED_BYTES, SEGMENTS, STREAM_FRAME_BYTES,
    STREAM_PACKET_BYTES,
};
use crate::network::peer_sockets::TxPeerSocket;
use crate::streams::Streams;
use pagewire_memory::Arena;
use pagewire_wire::packet::ICRC_LEN;
use std::ops::Range;
use std::sync::Arc;

/// A batch of the real fabric.
#[derive(Default)]
pub struct HostBatch {
    /// `None`: the kernel gave no memory; every packet is lost, and counted when the batch is flushed.
    arena: Option<Arena>,
    packets: Vec<BatchPacket>,
    /// Where they go; packets that follow each other on one route share its place.
    routes: Vec<Route>,
    used: usize,
    /// The last packets, as far as they may leave as one send.
    last_run: PacketRun,
    /// Packets asked for that there was no memory for.
    pub(crate) lost: u64,
    /// Where such packets are written.
    void: Vec<u8>,
    /// By which the last packets left.
    pub(crate) tx_peer_socket: Option<Arc<TxPeerSocket>>,
    streams: Option<Arc<Streams>>,
}

/// One packet of a batch: short, as a batch may be sent by another core than the one that filled it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPacket {
    route: u32,
    start: u32,
    /// With the ICRC, if it has one.
    length: u32,
    is_of_stream: bool,
    /// A bit to be turned round once the ICRC is there.
    pub damage: Option<u32>,
}

impl BatchPacket {
    /// Its bytes in the batch, those of the ICRC among them.
    pub fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }

    /// How many these are.
    pub fn length(&self) -> usize {
        self.length as usize
    }

    /// Bytes of all that leaves together with it, at most.
    fn most_together(&self) -> usize {
        if self.is_of_stream { STREAM_FRAME_BYTES } else { SEGMENTED_BYTES }
    }
}

/// Packets in a row that may leave as one send: of equal length and route, but the last may be shorter.
#[derive(Debug, Clone, Copy, Default)]
struct PacketRun {
    start: usize,
    packets: usize,
    bytes: usize,
    /// The last one is shorter.
    closed: bool,
    /// Not even one more packet as long as the first belongs to it.
    full: bool,
}

impl PacketRun {
    /// Adds the packet behind it. False: it does not belong to it.
    #[inline]
    fn take(&mut self, packets: &[BatchPacket]) -> bool {
        let Some(next) = packets.get(self.start + self.packets) else { return false };
        let first = &packets[self.start];
        let most = first.most_together();
        let fits = self.bytes + next.length() <= most && self.packets < SEGMENTS;
        if self.closed || !fits || next.route != first.route || next.length > first.length {
            return false;
        }
        (self.packets, self.bytes) = (self.packets + 1, self.bytes + next.length());
        self.closed = next.length < first.length;
        self.full = self.packets == SEGMENTS || self.bytes + first.length() > most;
        true
    }
}

impl HostBatch {
    pub(crate) fn new(arena: Option<Arena>, streams: Option<Arc<Streams>>) -> Self {
        HostBatch { arena, packets: Vec::with_capacity(BATCH_PACKETS), streams, ..HostBatch::default() }
    }

    /// Forgets all packets.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.routes.clear();
        (self.used, self.last_run) = (0, PacketRun::default());
        self.lost = 0;
    }

    pub(crate) fn packets(&self) -> &[BatchPacket] {
        &self.packets
    }

    /// Adds packets like the last one, of `whole` bytes with `trailer` bytes of ICRC, as far as they may leave with it in one send; see
    /// [`SendBatch::burst`]. Gives how many, as an error where one could not be filled.
    #[inline]
    fn go_on(
        &mut self,
        (whole, trailer): (usize, usize),
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> Result<usize, usize> {
        let (run, used) = (&mut self.last_run, self.used);
        let (Some(arena), Some(&last), Some(first)) =
            (&mut self.arena, self.packets.last(), self.packets.get(run.start))
        else {
            return Ok(0);
        };
        if run.closed || first.length() != whole {
            return Ok(0);
        }
        let most = (SEGMENTS - run.packets)
            .min((first.most_together() - run.bytes) / whole)
            .min(BATCH_PACKETS - self.packets.len())
            .min((BATCH_BYTES - used) / whole)
            .min(count);
        let Some(room) = arena.bytes_mut().get_mut(used..used + most * whole) else { return Ok(0) };
        let mut filled = 0;
        for bytes in room.chunks_exact_mut(whole) {
            if !fill(filled, &mut bytes[..whole - trailer]) {
                break;
            }
            self.packets.push(BatchPacket { start: (used + filled * whole) as u32, damage: None, ..last });
            filled += 1;
        }
        self.used += filled * whole;
        (run.packets, run.bytes) = (run.packets + filled, run.bytes + filled * whole);
        run.full = run.packets == SEGMENTS || run.bytes + whole > last.most_together();
        if filled == most { Ok(filled) } else { Err(filled) }
    }

    /// Where one of them goes.
    pub(crate) fn route(&self, packet: &BatchPacket) -> &Route {
        &self.routes[packet.route as usize]
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.arena.as_ref().map_or(&[], Arena::bytes)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.arena.as_mut().map_or(&mut [], Arena::bytes_mut)
    }

    pub(crate) fn packets_and_bytes(&mut self) -> (&[BatchPacket], &mut [u8]) {
        (&self.packets, self.arena.as_mut().map_or(&mut [], Arena::bytes_mut))
    }

    /// The first run of packets from `from` on that may leave as one send: equal length (the last may be shorter) and route.
    pub(crate) fn run(&self, from: usize) -> Range<usize> {
        // Mostly it is all there is, as it was gathered.
        if from == self.last_run.start && self.last_run.packets > 0 {
            return from..from + self.last_run.packets;
        }
        let mut run = PacketRun { start: from, ..PacketRun::default() };
        while run.take(&self.packets) {}
        from..from + run.packets
    }

    /// Whether packets of a stream have to wait; those that follow others of it need not.
    fn is_blocked(&self, route: &Route) -> bool {
        let follows = self.routes.last() == Some(route);
        let blocked = |id| self.streams.as_ref().is_some_and(|streams| streams.is_blocked(id));
        !follows && route.stream.is_some_and(blocked)
    }

    /// Has a bit of the last packet turned round after its ICRC has been computed, as a bad network would.
    pub fn damage(&mut self, bit: usize) {
        if self.routes.last().is_some_and(|route| route.stream.is_some()) {
            // The checksum of TCP has the kernel send it again: nobody sees it.
            return;
        }
        if let Some(packet) = self.packets.last_mut() {
            packet.damage = Some(bit as u32 % (packet.length * 8));
        }
    }
}

/// Bytes behind each packet for what the fabric computes.
fn trailer_of(route: &Route) -> usize {
    if route.stream.is_some() { 0 } else { ICRC_LEN }
}

impl SendBatch for HostBatch {
    #[inline]
    fn fits(&self, length: usize) -> bool {
        // What fills one send leaves at once: the receiver is at it while the next is filled.
        let room = self.packets.len() < BATCH_PACKETS && !self.last_run.full;
        room && self.used + length + ICRC_LEN <= BATCH_BYTES
    }

    #[inline]
    fn packet(&mut self, route: &Route, length: usize) -> Option<&mut [u8]> {
        if route.stream.is_some() && self.is_blocked(route) {
            return None;
        }
        let whole = length + trailer_of(route);
        let is_of_stream = route.stream.is_some();
        let longest = if is_of_stream { STREAM_PACKET_BYTES } else { PACKET_BYTES };
        assert!(whole <= longest, "a packet of {length} bytes");
        if !self.fits(length) {
            return None;
        }
        let Some(arena) = &mut self.arena else {
            self.lost += 1;
            self.void.resize(length, 0);
            return Some(&mut self.void);
        };
        let start = self.used;
        let room = arena.bytes_mut().get_mut(start..start + length)?;
        if self.routes.last() != Some(route) {
            self.routes.push(*route);
        }
        let (route, start, length) = (self.routes.len() as u32 - 1, start as u32, whole as u32);
        self.packets.push(BatchPacket { route, start, length, is_of_stream, damage: None });
        self.used += whole;
        if !self.last_run.take(&self.packets) {
            self.last_run = PacketRun { start: self.packets.len() - 1, ..PacketRun::default() };
            self.last_run.take(&self.packets);
        }
        Some(room)
    }

    fn cancel(&mut self) {
        if self.arena.is_none() {
            self.lost = self.lost.saturating_sub(1);
        } else if let Some(packet) = self.packets.pop() {
            self.used = packet.start as usize;
            self.routes.truncate(self.packets.last().map_or(0, |last| last.route as usize + 1));
            self.last_run = PacketRun::default();
            while self.last_run.start + self.last_run.packets < self.packets.len() {
                if !self.last_run.take(&self.packets) {
                    let start = self.last_run.start + self.last_run.packets;
                    self.last_run = PacketRun { start, ..PacketRun::default() };
                }
            }
        }
    }

    fn burst(
        &mut self,
        route: &Route,
        length: usize,
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> usize {
        let mut done = 0;
        while done < count {
            let Some(bytes) = self.packet(route, length) else { return done };
            if !fill(done, bytes) {
                self.cancel();
                return done;
            }
            done += 1;
            // What belongs to a send that was begun by one as long is not looked at one by one.
            let trailer = trailer_of(route);
            match self
                .go_on((length + trailer, trailer), count - done, |index, bytes| fill(done + index, bytes))
            {
                Ok(filled) => done += filled,
                Err(filled) => return done + filled,
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn route() -> Route {
        let address = Ipv4Addr::LOCALHOST.into();
        Route {
            source: address,
            interface: 0,
            source_port: 0,
            destination: address,
            port: 4791,
            traffic_class: 0,
            hop_limit: 0,
            stream: None,
        }
    }

    fn full_after(lengths: impl Iterator<Item = usize>) -> Option<usize> {
        let mut batch = HostBatch::new(Some(Arena::new(BATCH_BYTES).unwrap()), None);
        let route = route();
        for (index, length) in lengths.enumerate() {
            if batch.packet(&route, length).is_none() {
                return Some(index);
            }
        }
        None
    }

    #[test]
    fn what_fills_one_send_fills_a_batch() {
        // Packets of the MIDDLE of a message at an MTU of 1024: 62 with their ICRC in 65,507 bytes.
        assert_eq!(full_after([1036; 70].into_iter()), Some(62));
        // FIRST is longer: it leaves with the one behind it.
        assert_eq!(full_after([1052].into_iter().chain([1036; 70])), Some(64));
        // Short ones are counted.
        assert_eq!(full_after([20; 70].into_iter()), Some(SEGMENTS));
        // Of a run that a shorter one has ended, and those of no run, the batch takes all that it has room for.
        assert_eq!(full_after([1036, 20].into_iter().cycle().take(120)), None);
        assert_eq!(full_after((0..2 * BATCH_PACKETS).map(|index| 20 + 4 * index)), Some(BATCH_PACKETS));
    }

    #[test]
    fn a_row_is_what_its_packets_are_one_by_one() {
        // The length of a packet before it, that of each in the row, their number, and the one that cannot be filled.
        let cases = [
            (None, 1036, 70, 99),
            (None, 20, 200, 99),
            (None, 1036, 70, 5),
            (None, 1036, 5, 0),
            (Some(1052), 1036, 70, 99),
            (Some(1036), 1036, 61, 99),
            (Some(1036), 1036, 61, 60),
            (Some(600), 1036, 70, 99),
            (None, 4100, 0, 99),
            (None, 4100, 40, 99),
        ];
        for (before, length, count, last) in cases {
            let [mut burst, mut singly] = [(); 2].map(|()| {
                let mut batch = HostBatch::new(Some(Arena::new(BATCH_BYTES).unwrap()), None);
                if let Some(before) = before {
                    batch.packet(&route(), before).unwrap().fill(0xB0);
                }
                batch
            });
            let fill = |index: usize, bytes: &mut [u8]| {
                assert_eq!(bytes.len(), length);
                bytes.fill(index as u8);
                index != last
            };
            let filled = burst.burst(&route(), length, count, fill);
            let mut expected = 0;
            while expected < count {
                let Some(bytes) = singly.packet(&route(), length) else { break };
                if !fill(expected, bytes) {
                    singly.cancel();
                    break;
                }
                expected += 1;
            }
            assert_eq!(filled, expected);
            for (at, packet) in burst.packets().iter().enumerate() {
                assert_eq!(packet.range(), singly.packets()[at].range());
                assert_eq!(burst.route(packet), &route());
                let bytes = &burst.bytes()[packet.range()];
                assert_eq!(bytes, &singly.bytes()[packet.range()]);
            }
            assert_eq!(burst.packets().len(), singly.packets().len());
            for length in [1, length, length + 1] {
                assert_eq!(burst.fits(length), singly.fits(length));
            }
            assert_eq!(burst.run(0), singly.run(0));
            // What follows is taken alike, too.
            for length in [length, 30] {
                let [one, other] =
                    [&mut burst, &mut singly].map(|batch| batch.packet(&route(), length).is_some());
                assert_eq!(one, other);
            }
        }
    }

    #[test]
    fn what_was_taken_back_fills_nothing() {
        let mut batch = HostBatch::new(Some(Arena::new(BATCH_BYTES).unwrap()), None);
        let route = route();
        for _ in 0..61 {
            batch.packet(&route, 1036).unwrap();
        }
        for _ in 0..10 {
            batch.packet(&route, 1036).unwrap();
            assert!(!batch.fits(1036));
            batch.cancel();
            assert!(batch.fits(1036));
        }
        assert_eq!(batch.run(0), 0..61);
        // To elsewhere and back again: packets to one place still follow each other.
        batch.packet(&Route { port: 1, ..route }, 1036).unwrap();
        batch.cancel();
        batch.packet(&route, 1036).unwrap();
        assert_eq!(batch.run(0), 0..62);
    }

    #[test]
    fn packets_leave_to_where_they_were_put() {
        let mut batch = HostBatch::new(Some(Arena::new(BATCH_BYTES).unwrap()), None);
        let routes = [1, 1, 2, 1, 3, 3].map(|port| Route { port, ..route() });
        for route in &routes {
            batch.packet(route, 100).unwrap();
        }
        let found: Vec<Route> = batch.packets().iter().map(|packet| *batch.route(packet)).collect();
        assert_eq!(found, routes);
        let mut runs = Vec::new();
        while runs.last().map_or(0, |run: &Range<usize>| run.end) < routes.len() {
            runs.push(batch.run(runs.last().map_or(0, |run| run.end)));
        }
        assert_eq!(runs, [0..2, 2..3, 3..4, 4..6]);
    }
}
