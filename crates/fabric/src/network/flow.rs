//! Whether datagrams are intact: the ICRC covers the IPv4 identification, which sockets do not tell.

use super::crc::crc32;
use pagewire_wire::icrc::BurstIcrc;
use pagewire_wire::{Icrc, joined};
use std::net::IpAddr;
use std::ops::Range;

/// Where a packet stands in a message, which the kernel may have merged from datagrams of equal length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Its bytes.
    pub range: Range<usize>,
    /// The place of its datagram, by which IPv4 identifications differ if the kernel has cut what was sent.
    datagram: usize,
    /// It stands behind an acknowledgement in that.
    pub behind: bool,
}

impl Place {
    /// That of the packet which begins at `start` in a message of datagrams of `segment` bytes, the last of which may be shorter:
    /// a whole one, unless it is two packets ([`joined`]). `None`: the message ends there.
    #[inline]
    pub fn at(message: &[u8], start: usize, segment: usize) -> Option<Self> {
        let segment = segment.max(1);
        // Mostly it is the first one.
        let datagram = if start < segment { 0 } else { start / segment };
        Self::of_datagram(message, start, datagram, segment)
    }

    /// That of the packet behind it.
    #[inline]
    pub fn next(&self, message: &[u8], segment: usize) -> Option<Self> {
        let start = self.range.end;
        let datagram = self.datagram + usize::from(start == (self.datagram + 1) * segment);
        Self::of_datagram(message, start, datagram, segment)
    }

    /// That of the datagram behind this one, if both are a packet each and whole.
    #[inline]
    pub fn whole_behind(&self, segment: usize) -> Self {
        let start = self.range.end;
        Place { range: start..start + segment, datagram: self.datagram + 1, behind: false }
    }

    #[inline(always)]
    fn of_datagram(message: &[u8], start: usize, datagram: usize, segment: usize) -> Option<Self> {
        let behind = start > datagram * segment;
        let rest = message.get(start..)?;
        let length = rest.len().min((datagram + 1) * segment - start);
        let length = if behind { length } else { joined::first_len(&rest[..length]) };
        (length > 0).then(|| Place { range: start..start + length, datagram, behind })
    }
}

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
    /// The identification that a packet at this place probably has.
    fn likely(&self, place: &Place) -> u16 {
        let begins = place.datagram == 0 && !place.behind;
        self.identification.wrapping_add(if begins { self.step } else { place.datagram as u16 })
    }

    /// Whether a packet is intact; takes note of its identification.
    pub fn verify(&mut self, place: &Place, bytes: &[u8]) -> bool {
        let likely = self.likely(place);
        let Some(found) = self.icrc.find_identification_with(crc32, likely, bytes) else { return false };
        if place.datagram == 0 && !place.behind {
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
            let icrc = BurstIcrc::new(icrc);
            self.0 = Some(Flow { source, destination, ports, icrc, identification: 0, step: 0 });
        }
        self.0.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_wire::packet;
    use proptest::prelude::*;

    /// Where the packets of a message begin and end, the place of their datagram, and whether each is behind another one.
    fn places(message: &[u8], segment: usize) -> Vec<(Range<usize>, usize, bool)> {
        let mut places = Vec::new();
        let mut next = Place::at(message, 0, segment);
        while let Some(place) = next {
            next = place.next(message, segment.max(1));
            // Whoever stops there goes on likewise.
            assert_eq!(next, Place::at(message, place.range.end, segment));
            places.push((place.range, place.datagram, place.behind));
        }
        places
    }

    #[test]
    fn a_datagram_is_two_packets_where_it_begins_with_an_acknowledgement() {
        assert_eq!(places(&[], 44), []);
        assert_eq!(places(&[0x04; 44], 44), [(0..44, 0, false)]);
        assert_eq!(places(&[0x11; 20], 20), [(0..20, 0, false)]);
        // What is behind it is one, even if it begins alike and is longer.
        assert_eq!(places(&[0x11; 80], 80), [(0..20, 0, false), (20..80, 0, true)]);
        let mut three = [0x04; 3 * 44];
        three[0] = 0x11;
        three[2 * 44] = 0x11;
        let expected = [
            (0..20, 0, false),
            (20..44, 0, true),
            (44..88, 1, false),
            (88..108, 2, false),
            (108..132, 2, true),
        ];
        assert_eq!(places(&three, 44), expected);
        // The last one is shorter: too short for two, and with one byte of a second.
        assert_eq!(places(&three[..107], 44), [&expected[..3], &[(88..107, 2, false)]].concat());
        assert_eq!(places(&three[..109], 44), [&expected[..4], &[(108..109, 2, true)]].concat());
    }

    #[test]
    fn both_packets_of_a_datagram_have_its_identification() {
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let icrc = Icrc::ipv4(source, destination, 1000, 4791, true);
        let mut cache = IcrcCache::default();
        let flow = cache.of(source.into(), destination.into(), 1000, 4791).unwrap();
        for identification in 7..20 {
            let mut datagram = [0x11; 44];
            packet::seal(&icrc, identification, &mut datagram[..20]);
            packet::seal(&icrc, identification, &mut datagram[20..]);
            let [first, second] = [0, 20].map(|start| Place::at(&datagram, start, 44).unwrap());
            // From the third on no other has to be sought.
            assert!(identification < 9 || flow.likely(&first) == identification);
            assert!(flow.verify(&first, &datagram[..20]));
            assert_eq!(flow.likely(&second), identification);
            assert!(flow.verify(&second, &datagram[20..]));
        }
    }

    proptest! {
        #[test]
        fn all_of_a_message_is_in_packets_and_no_packet_in_two_datagrams(
            message in prop::collection::vec(prop_oneof![Just(0x11u8), any::<u8>()], 1..400),
            segment in 0usize..450,
        ) {
            let places = places(&message, segment);
            prop_assert_eq!((places[0].0.start, places.last().unwrap().0.end), (0, message.len()));
            for pair in places.windows(2) {
                prop_assert_eq!(pair[0].0.end, pair[1].0.start);
            }
            for (range, datagram, behind) in &places {
                prop_assert!(!range.is_empty());
                let segment = segment.max(1);
                prop_assert_eq!(range.start / segment, (range.end - 1) / segment);
                prop_assert_eq!(range.start / segment, *datagram);
                prop_assert_eq!(*behind, range.start % segment != 0);
                prop_assert!(!*behind || range.start % segment == 20);
            }
        }
    }
}
