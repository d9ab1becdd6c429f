//! Whether datagrams are intact: the ICRC covers the IPv4 identification, which sockets do not tell.

use super::crc::crc32;
use pagewire_wire::Icrc;
use std::net::IpAddr;

/// The IPv4 identification of a datagram that begins so many bytes into a message: that of its place, if the kernel has cut
/// what was sent and merged it again.
pub(super) fn place_in_send(offset: usize, segment: usize) -> u16 {
    (offset / segment.max(1)) as u16
}

/// What is known of the flow of the last packet; the next one often is of the same.
#[derive(Default)]
pub(super) struct IcrcCache(Option<Flow>);

/// Endpoints, the ICRC's state for them, and the IPv4 identification of what came last.
pub(super) struct Flow {
    source: IpAddr,
    destination: IpAddr,
    ports: (u16, u16),
    pub icrc: Icrc,
    identification: u16,
    /// By how much it differed from the one before: senders give all packets the same, or count.
    step: u16,
}

impl Flow {
    /// The identification that a datagram probably has, which is at this place in what was sent at once.
    fn likely(&self, place: u16) -> u16 {
        let step = if place == 0 { self.step } else { place };
        self.identification.wrapping_add(step)
    }

    /// Whether a datagram is intact; takes note of its identification.
    pub fn verify(&mut self, place: u16, bytes: &[u8]) -> bool {
        let likely = self.likely(place);
        let Some(found) = self.icrc.find_identification_with(crc32, likely, bytes) else { return false };
        if place == 0 {
            self.step = u16::from(found.wrapping_sub(self.identification) == 1);
            self.identification = found;
        }
        true
    }
}

impl IcrcCache {
    /// `None`: the addresses are of different families.
    pub fn of(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        source_port: u16,
        port: u16,
    ) -> Option<&mut Flow> {
        let ports = (source_port, port);
        let known = self
            .0
            .as_ref()
            .is_some_and(|flow| (flow.source, flow.destination, flow.ports) == (source, destination, ports));
        if !known {
            let icrc = match (source, destination) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    Icrc::ipv4(source, destination, source_port, port, true)
                }
                (IpAddr::V6(source), IpAddr::V6(destination)) => {
                    Icrc::ipv6(source, destination, source_port, port)
                }
                _ => return None,
            };
            self.0 = Some(Flow { source, destination, ports, icrc, identification: 0, step: 0 });
        }
        self.0.as_mut()
    }
}
