//! The sending half: batches, cut by the kernel where it can, and sent one by one where it cannot.

use super::Network;
use super::crc::crc32;
use super::flow::IcrcCache;
use super::peer_sockets::TxPeerSocket;
use crate::batch::{BatchPacket, HostBatch};
use crate::descriptors::Descriptor;
use crate::fabric::{Route, StreamId};
use crate::limits::{BATCH_BYTES, BATCHES_KEPT};
use crate::udp::{self, Family, Transmit};
use pagewire_memory::Arena;
use pagewire_wire::icrc::BurstIcrc;
use pagewire_wire::packet;
use std::io;
use std::sync::atomic::Ordering;

impl Network {
    /// An empty batch.
    pub fn batch(&self) -> Box<HostBatch> {
        if let Some(batch) = self.batches.lock().pop() {
            return batch;
        }
        let arena =
            Arena::new(BATCH_BYTES).inspect_err(|error| log::debug!("no memory for packets: {error}"));
        Box::new(HostBatch::new(arena.ok(), Some(self.streams.clone())))
    }

    /// Sends a batch.
    pub fn flush(&self, mut batch: Box<HostBatch>) {
        if batch.lost > 0 {
            self.counters.dropped_no_room.add(batch.lost);
            // Ask the kernel again next time.
            return;
        }
        self.send_batch(&mut batch);
        batch.clear();
        let mut batches = self.batches.lock();
        if batches.len() < BATCHES_KEPT {
            batches.push(batch);
        }
    }

    fn send_batch(&self, batch: &mut HostBatch) {
        let segments = self.segments.load(Ordering::Relaxed);
        let mut icrc = IcrcCache::default();
        let mut from = 0;
        while from < batch.packets().len() {
            if let Some(stream) = batch.route(&batch.packets()[from]).stream {
                let run = batch.run(from);
                self.send_by_stream(stream, batch, run.clone());
                from = run.end;
                continue;
            }
            let burst = |batch: &HostBatch| if segments { batch.run(from) } else { from..from + 1 };
            if let Some(peer_socket) = self.tx_peer_socket(batch, from) {
                let run = burst(batch);
                if self.send_connected(&peer_socket, batch, run.clone()) {
                    from = run.end;
                    batch.tx_peer_socket = Some(peer_socket);
                    continue;
                }
            }
            let run = burst(batch);
            if run.len() > 1 {
                self.seal(batch, run.clone(), true, &mut icrc);
                if self.send_segmented(batch, run.clone()) {
                    self.capture(batch, run.clone(), self.port(), 0);
                } else {
                    self.seal(batch, run.clone(), false, &mut icrc);
                    self.send_singly(batch, run.clone());
                }
                from = run.end;
            } else {
                // Packets that follow one by one leave by one system call.
                let family_of = |packet: &BatchPacket| Family::of(batch.route(packet).destination);
                let family = family_of(&batch.packets()[from]);
                let mut end = run.end;
                while let Some(next) = batch.packets().get(end) {
                    if batch.route(next).stream.is_some()
                        || family_of(next) != family
                        || segments && batch.run(end).len() > 1
                    {
                        break;
                    }
                    end += 1;
                }
                self.seal(batch, from..end, false, &mut icrc);
                self.send_singly(batch, from..end);
                from = end;
            }
        }
    }

    fn send_by_stream(&self, stream: StreamId, batch: &HostBatch, run: std::ops::Range<usize>) {
        let packets = &batch.packets()[run];
        let (first, last) = (packets[0], packets[packets.len() - 1]);
        let Some(bytes) = batch.bytes().get(first.range().start..last.range().end) else { return };
        self.streams.send(stream, bytes, first.length());
        if let Some(capture) = &self.capture {
            let route = batch.route(&first);
            bytes
                .chunks(first.length())
                .for_each(|packet| capture.sent_by_stream(route, self.port(), packet));
        }
    }

    /// Writes the ICRCs. The kernel gives the segments of one send the IPv4 identifications 0, 1, 2, ..., and single
    /// datagrams with DF 0.
    fn seal(
        &self,
        batch: &mut HostBatch,
        run: std::ops::Range<usize>,
        segmented: bool,
        cache: &mut IcrcCache,
    ) {
        let port = self.port();
        for (index, place) in run.enumerate() {
            let packet = batch.packets()[place];
            let route = batch.route(&packet);
            let flow = cache.of(route.source, route.destination, port, route.port);
            let identification = if segmented { index as u16 } else { 0 };
            let Some(flow) = flow else { continue };
            seal(&mut flow.icrc, identification, &packet, batch.bytes_mut());
        }
    }

    /// Captures packets that left by a source port, numbered from this IPv4 identification on.
    fn capture(&self, batch: &HostBatch, run: std::ops::Range<usize>, port: u16, identification: u16) {
        let Some(capture) = &self.capture else { return };
        for (index, packet) in batch.packets()[run].iter().enumerate() {
            if let Some(bytes) = batch.bytes().get(packet.range()) {
                capture.sent(batch.route(packet), port, identification.wrapping_add(index as u16), bytes);
            }
        }
    }

    fn socket(&self, route: &Route) -> Result<&Descriptor, String> {
        if Family::of(route.source) != Family::of(route.destination) {
            return Err(format!("{} cannot reach {}", route.source, route.destination));
        }
        if route.source.is_unspecified() {
            return Err("a packet without a source address".into());
        }
        let port = self.first.get().ok_or("no block of queue pair numbers is leased, hence no port")?;
        let family = Family::of(route.destination);
        port.socket(family)
            .ok_or_else(|| format!("this host has no IP{}", format!("{family:?}").to_lowercase()))
    }

    /// Sends a run by the socket that is connected to where it goes. False: it is to leave otherwise.
    fn send_connected(
        &self,
        peer_socket: &TxPeerSocket,
        batch: &mut HostBatch,
        run: std::ops::Range<usize>,
    ) -> bool {
        let Some(mut tx_state) = peer_socket.begin() else { return false };
        let (segmented, base) = (run.len() > 1, tx_state.next);
        let (packets, bytes) = batch.packets_and_bytes();
        let (first, last) = (packets[run.start], packets[run.end - 1]);
        if packets[run.clone()]
            .iter()
            .any(|packet| !bytes.get(packet.range()).is_some_and(|one| peer_socket.takes(one)))
        {
            return false;
        }
        let mut icrc = BurstIcrc::new(peer_socket.icrc);
        for (index, packet) in packets[run.clone()].iter().enumerate() {
            seal(&mut icrc, base.wrapping_add(index as u16), packet, bytes);
        }
        let Some(bytes) = batch.bytes().get(first.range().start..last.range().end) else { return false };
        match peer_socket.send(&mut tx_state, bytes, segmented.then_some(first.length() as u16)) {
            Ok(()) => {
                self.counters.connected_sends.add(1);
                if segmented {
                    self.counters.segmented_sends.add(1);
                }
                self.count_sent(run.len() as u64, bytes.len() as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.counters.dropped_no_room.add(run.len() as u64);
            }
            Err(error) => {
                log::debug!("the socket for {} alone: {error}", batch.route(&first).destination);
                peer_socket.give_up();
                return false;
            }
        }
        self.capture(batch, run, peer_socket.port, base);
        true
    }

    /// False: the run cannot leave as one send.
    fn send_segmented(&self, batch: &HostBatch, run: std::ops::Range<usize>) -> bool {
        let packets = &batch.packets()[run];
        let (first, last) = (packets[0], packets[packets.len() - 1]);
        let route = batch.route(&first);
        let Ok(socket) = self.socket(route) else { return false };
        let Some(bytes) = batch.bytes().get(first.range().start..last.range().end) else { return false };
        let transmit = Transmit { route, bytes, segment: Some(first.length() as u16) };
        match udp::send(socket, &[transmit]) {
            Ok(0) => false,
            Ok(_) => {
                self.counters.segmented_sends.add(1);
                self.count_sent(packets.len() as u64, bytes.len() as u64);
                true
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    self.counters.dropped_no_room.add(packets.len() as u64);
                    true
                }
                // No checksum offload on the way there, or a kernel without UDP_SEGMENT (4.18).
                Some(libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) => {
                    log::debug!("no UDP_SEGMENT: {error}");
                    self.segments.store(false, Ordering::Relaxed);
                    false
                }
                _ => false,
            },
        }
    }

    fn send_singly(&self, batch: &HostBatch, run: std::ops::Range<usize>) {
        for index in run.clone() {
            self.capture(batch, index..index + 1, self.port(), 0);
        }
        let packets = &batch.packets()[run];
        let mut transmits = Vec::with_capacity(packets.len());
        for packet in packets {
            let bytes = batch.bytes().get(packet.range()).unwrap_or(&[]);
            transmits.push(Transmit { route: batch.route(packet), bytes, segment: None });
        }
        let mut rest = &transmits[..];
        while let Some(first) = rest.first() {
            let socket = match self.socket(first.route) {
                Ok(socket) => socket,
                Err(reason) => {
                    self.refused(reason);
                    rest = &rest[1..];
                    continue;
                }
            };
            let usable = rest.iter().take_while(|transmit| self.socket(transmit.route).is_ok()).count();
            match udp::send(socket, &rest[..usable]) {
                Ok(0) => return,
                Ok(sent) => {
                    let bytes = rest[..sent].iter().map(|transmit| transmit.bytes.len() as u64).sum();
                    self.count_sent(sent as u64, bytes);
                    rest = &rest[sent..];
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => {
                    // What the kernel has no room for is lost, as in any network.
                    self.counters.dropped_no_room.add(rest.len() as u64);
                    return;
                }
                Err(error) => {
                    self.refused(format!("no packet to {}: {error}", first.route.destination));
                    rest = &rest[1..];
                }
            }
        }
    }

    fn count_sent(&self, datagrams: u64, bytes: u64) {
        self.counters.datagrams_sent.add(datagrams);
        self.counters.bytes_sent.add(bytes);
    }

    fn refused(&self, reason: String) {
        self.counters.dropped_refused.add(1);
        let mut last = self.send_reason.lock();
        if last.as_ref() != Some(&reason) {
            log::debug!("{reason}");
            *last = Some(reason);
        }
    }
}

/// Writes the ICRC of one packet of a batch, and damages the packet if it is to be.
fn seal(icrc: &mut BurstIcrc, identification: u16, packet: &BatchPacket, bytes: &mut [u8]) {
    let Some(bytes) = bytes.get_mut(packet.range()) else { return };
    packet::seal_with(crc32, icrc, identification, bytes);
    if let Some(bit) = packet.damage {
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
    }
}
