//! Packets on their way through the simulated network.

use crate::notes::{NotePlace, Notes};
use crate::process::ProcessId;
use pagewire_fabric::{ReceivedDatagram, Route};
use pagewire_wire::packet::{ICRC_LEN, seal};
use pagewire_wire::{Icrc, Opcode, PacketHeader, Transport};

/// A datagram under way. The ICRC of a sound one is left out, since it would be right; one that is damaged has it, and the
/// receiver looks at it.
#[derive(Clone)]
pub struct SimDatagram {
    route: Route,
    bytes: Vec<u8>,
    sealed: bool,
}

impl SimDatagram {
    /// What leaves by `route`: `bytes` are those from the BTH to the end of the pad.
    pub fn new(route: &Route, bytes: Vec<u8>) -> Self {
        SimDatagram { route: *route, bytes, sealed: false }
    }

    /// Bytes from the BTH to the end of the pad.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The block of the queue pair number that it is for (bytes 5 to 7 of the BTH).
    pub fn block(&self) -> Option<u32> {
        self.bytes.get(5..7).map(|high| u32::from(high[0]) << 8 | u32::from(high[1]))
    }

    /// Turns a bit round.
    pub fn corrupt(&mut self, random: &mut fastrand::Rng) {
        if let (false, Some(icrc)) = (self.sealed, self.icrc()) {
            self.bytes.extend([0; ICRC_LEN]);
            seal(&icrc, 0, &mut self.bytes);
            self.sealed = true;
        }
        let bit = random.usize(0..8 * self.bytes.len());
        self.bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// What a receiver takes: nothing if the ICRC is wrong.
    pub fn check(&self) -> Option<ReceivedDatagram<'_>> {
        let mut bytes = &self.bytes[..];
        if self.sealed {
            // As in the real fabric, which does not see the identification of the IP header.
            if !self.icrc()?.verify_unknown_identification(bytes) {
                return None;
            }
            bytes = &bytes[..bytes.len() - ICRC_LEN];
        }
        Some(ReceivedDatagram {
            source: self.route.source,
            source_port: self.route.source_port,
            destination: self.route.destination,
            traffic_class: self.route.traffic_class,
            hop_limit: self.route.hop_limit,
            by_stream: self.route.stream.is_some(),
            bytes,
            deferred: None,
        })
    }

    fn icrc(&self) -> Option<Icrc> {
        let Route { source, destination, source_port, port, .. } = self.route;
        Icrc::between(source, destination, source_port, port)
    }
}

/// Writes down a packet that a process sends.
pub fn note(notes: &Notes, at: u64, from: ProcessId, bytes: &[u8], fate: &str) {
    if let Ok((header, length)) = PacketHeader::parse(bytes) {
        let (bth, payload) = (&header.bth, bytes.len() - length);
        let details = [
            header.reth.map(|reth| format!(", {reth:?}")),
            header.aeth.map(|aeth| format!(", {:?}", aeth.syndrome)),
        ];
        let details: String = details.into_iter().flatten().collect();
        let (code, psn, destination) = (bth.opcode, bth.psn, bth.destination);
        let what = format!(
            "process {} sends {code} PSN {psn:#x} to {destination:#x}, {payload} bytes{details}: {fate}",
            from.0
        );
        notes.add(at, NotePlace::QueuePair(destination), what);
    }
}

/// Whether a packet is one of Pagewire's own.
pub fn is_vendor(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|code| Opcode(*code).transport() == Transport::Manufacturer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn no_turned_bit_gets_through_but_in_the_byte_that_the_network_may_change() {
        let [source, destination] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let route = Route {
            source,
            destination,
            interface: 0,
            source_port: 0xC000,
            port: 4791,
            traffic_class: 0,
            hop_limit: 64,
            stream: None,
        };
        let sound = SimDatagram::new(&route, (0..40).collect());
        assert_eq!(sound.check().map(|datagram| datagram.bytes.len()), Some(40));
        for seed in 0..2000 {
            let mut datagram = sound.clone();
            datagram.corrupt(&mut fastrand::Rng::with_seed(seed));
            if let Some(taken) = datagram.check() {
                let changed: Vec<usize> = (0..40).filter(|at| taken.bytes[*at] != *at as u8).collect();
                assert_eq!(changed, [4], "seed {seed}");
            }
        }
    }
}
