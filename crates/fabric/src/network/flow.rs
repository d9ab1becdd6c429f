//! Whether datagrams are intact: the ICRC covers the IPv4 identification, which sockets do not tell.

use super::crc::crc32;
use pagewire_wire::Icrc;
use pagewire_wire::icrc::BurstIcrc;
use std::net::IpAddr;

/// What is known of the flow of the last packet; the next one often is of the same.
#[derive(Default)]
pub(super) struct IcrcCache(Option<Flow>);

/// Endpoints, the ICRC's state for them, and the IPv4 identification of what came last.
pub(super) struct Flow {
    source: IpAddr,
    destination: IpAddr,
    ports: (u16, u16),
    pub icrc: BurstIcrc,
    identification: u16,
    /// By how much it differed from the one before: senders give all packets the same, or count.
    step: u16,
}

impl Flow {
    /// Whether a packet is intact, the `place`-th datagram of a message that the kernel may have merged; notes its identification.
    pub fn verify(&mut self, place: usize, bytes: &[u8]) -> bool {
        // The kernel numbers what it cuts out of one send.
        let likely = self.identification.wrapping_add(if place == 0 { self.step } else { place as u16 });
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
            let icrc = BurstIcrc::new(Icrc::between(source, destination, source_port, port)?);
            self.0 = Some(Flow { source, destination, ports, icrc, identification: 0, step: 0 });
        }
        self.0.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_wire::packet;

    #[test]
    fn the_identification_is_sought_where_the_sender_has_got_to() {
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let icrc = Icrc::ipv4(source, destination, 1000, 4791, true);
        let mut cache = IcrcCache::default();
        let flow = cache.of(source.into(), destination.into(), 1000, 4791).unwrap();
        for identification in 7..20 {
            let mut datagram = [0x11; 44];
            // From the third on no other has to be sought.
            assert!(identification < 9 || flow.identification.wrapping_add(flow.step) == identification);
            for place in 0..3 {
                packet::seal(&icrc, identification + place, &mut datagram);
                assert!(flow.verify(place.into(), &datagram));
            }
            datagram[3] ^= 1;
            assert!(!flow.verify(0, &datagram));
        }
    }
}
