//! Every format: what is emitted parses to the same value, and no bytes make a parser panic.

use core::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv6Header, UdpHeader};
use pagewire_wire::datagram::{Datagram, NetworkHeader, parse_ipv4};
use pagewire_wire::limits::{MAX_HEADER_LEN, MAX_MTU, MAX_PACKET_LEN, MAX_SELECTIVE_BITS};
use pagewire_wire::{
    Aeth, AtomicEth, Bth, Capabilities, Deth, Echo, Error, Extensions, Feth, Hello, Hold, HoldFlags, Icrc,
    Opcode, Packet, PacketHeader, Received, Resume, Reth, SelectiveAck, Skip, Syndrome, VendorPacket, aeth,
    atomic_ack_eth, atomic_eth, bth, cnp, deth, grh, ieth, imm_dt, packet, reth, xrceth,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn u24() -> impl Strategy<Value = u32> {
    0u32..1 << 24
}

fn bth(opcode: impl Strategy<Value = Opcode>, version: u8) -> impl Strategy<Value = Bth> {
    (opcode, any::<[bool; 5]>(), 0u8..4, any::<u16>(), u24(), u24()).prop_map(
        move |(opcode, [solicited, migration, fecn, becn, acknowledge], pad, partition, destination, psn)| {
            Bth {
                opcode,
                solicited,
                migration,
                pad,
                version,
                partition,
                fecn,
                becn,
                destination,
                acknowledge,
                psn,
            }
        },
    )
}

fn opcode() -> impl Strategy<Value = Opcode> {
    select((0..=u8::MAX).map(Opcode).filter(|opcode| opcode.extensions().is_some()).collect::<Vec<_>>())
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(address, key, length)| Reth { address, key, length })
}

fn atomic() -> impl Strategy<Value = AtomicEth> {
    any::<(u64, u32, u64, u64)>().prop_map(|(address, key, swap_or_add, compare)| AtomicEth {
        address,
        key,
        swap_or_add,
        compare,
    })
}

fn feth() -> impl Strategy<Value = Feth> {
    (0u8..16, 0u8..4).prop_map(|(placement, selectivity)| Feth { placement, selectivity })
}

fn deth() -> impl Strategy<Value = Deth> {
    (any::<u32>(), u24()).prop_map(|(queue_key, source)| Deth { queue_key, source })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    (any::<u8>(), u24()).prop_map(|(byte, message)| Aeth { syndrome: Syndrome::from_byte(byte), message })
}

prop_compose! {
    fn header()(
        bth in bth(opcode(), 0),
        deth in deth(),
        reth in reth(),
        atomic in atomic(),
        aeth in aeth(),
        original: u64,
        immediate: u32,
        key: u32,
        xrc in u24(),
        flush in feth(),
    ) -> PacketHeader {
        let extensions = bth.opcode.extensions().unwrap();
        let has = |extension| extensions.contains(extension);
        PacketHeader {
            bth,
            deth: has(Extensions::DETH).then_some(deth),
            reth: has(Extensions::RETH).then_some(reth),
            atomic: has(Extensions::ATOMIC_ETH).then_some(atomic),
            aeth: has(Extensions::AETH).then_some(aeth),
            atomic_ack: has(Extensions::ATOMIC_ACK_ETH).then_some(original),
            immediate: has(Extensions::IMM_DT).then_some(immediate),
            invalidate: has(Extensions::IETH).then_some(key),
            xrc: has(Extensions::XRCETH).then_some(xrc),
            flush: has(Extensions::FETH).then_some(flush),
        }
    }
}

prop_compose! {
    fn ipv4_header()(
        type_of_service: u8,
        total_len in 20u16..,
        identification: u16,
        dont_fragment: bool,
        more_fragments: bool,
        fragment_offset in 0u16..1 << 13,
        time_to_live: u8,
        protocol: u8,
        source: [u8; 4],
        destination: [u8; 4],
    ) -> Ipv4Header {
        let mut header = Ipv4Header {
            dscp: (type_of_service >> 2).try_into().unwrap(),
            ecn: (type_of_service & 3).try_into().unwrap(),
            total_len, identification, dont_fragment, more_fragments,
            fragment_offset: fragment_offset.try_into().unwrap(),
            time_to_live, protocol: IpNumber(protocol), source, destination, ..Ipv4Header::default()
        };
        header.header_checksum = header.calc_header_checksum();
        header
    }
}

prop_compose! {
    fn ipv6_header()(
        traffic_class: u8,
        flow_label in 0u32..1 << 20,
        payload_length: u16,
        next_header: u8,
        hop_limit: u8,
        source: [u8; 16],
        destination: [u8; 16],
    ) -> Ipv6Header {
        let (flow_label, next_header) = (flow_label.try_into().unwrap(), IpNumber(next_header));
        Ipv6Header { traffic_class, flow_label, payload_length, next_header, hop_limit, source, destination }
    }
}

/// An IPv4 header with its checksum anew.
fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = usize::from(bytes[0] & 15) * 4;
    bytes[10..12].fill(0);
    let sum: u32 = bytes[..len].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn received() -> impl Strategy<Value = Received> {
    vec(0..MAX_SELECTIVE_BITS, 0..60).prop_map(|bits| bits.into_iter().collect())
}

fn own() -> impl Strategy<Value = VendorPacket> {
    prop_oneof![
        any::<(bool, u32, u16, u64, u32)>().prop_map(
            |(reply, capabilities, direct_port, instance, connection)| VendorPacket::Hello(Hello {
                version: Hello::VERSION,
                reply,
                capabilities: Capabilities::from_bits_retain(capabilities),
                direct_port,
                instance,
                connection,
            })
        ),
        (u24(), u24(), received()).prop_map(|(expected, message, received)| VendorPacket::SelectiveAck(
            SelectiveAck { expected, message, received }
        )),
        (u24(), any::<u8>()).prop_map(|(psn, flags)| VendorPacket::Hold(Hold {
            psn,
            flags: HoldFlags::from_bits_retain(flags)
        })),
        (u24(), u24()).prop_map(|(psn, block)| VendorPacket::Resume(Resume { psn, block })),
        (u24(), u24()).prop_map(|(refused, resume)| VendorPacket::Skip(Skip { refused, resume })),
    ]
}

/// Emits into a dirty buffer with bytes to spare, and gives what was written.
macro_rules! emitted {
    ($format:ident, $value:expr) => {{
        let mut bytes = [0xa5; 64];
        $value.emit(&mut $format::Packet::new(&mut bytes).unwrap());
        assert!(bytes[$format::LEN..].iter().all(|&byte| byte == 0xa5), "wrote beyond its end");
        bytes
    }};
}

proptest! {
    #[test]
    fn echoes(answer: bool, queue_pair in u24(), nonce: u64, damage in 0usize..=Echo::LEN) {
        let echo = Echo { answer, queue_pair, nonce };
        let mut bytes = [0xa5; Echo::LEN + 4];
        prop_assert_eq!(echo.emit(&mut bytes), Echo::LEN);
        prop_assert_eq!(Echo::parse(&bytes[..Echo::LEN]), Ok(echo));
        prop_assert_eq!(&bytes[Echo::LEN..], &[0xa5; 4]);
        // Of another length, version or kind.
        prop_assert_eq!(Echo::parse(&bytes), Err(Error::Length));
        let cut = Echo::parse(&bytes[..damage]);
        prop_assert_eq!(cut.is_ok(), damage == Echo::LEN);
        for at in 0..2 {
            let mut other = bytes;
            other[at] += 2;
            prop_assert!(matches!(Echo::parse(&other[..Echo::LEN]), Err(Error::Version(_))));
        }
    }

    #[test]
    fn a_bth_goes_on_with_the_next_psn_alone(mut before: [u8; bth::LEN], psn in prop_oneof![0u32..1 << 24, Just(0xFF_FFFF)], flip in 0usize..8 * bth::LEN) {
        bth::Packet::new(&mut before[..]).unwrap().set_psn(psn);
        let mut next = before;
        bth::Packet::new(&mut next[..]).unwrap().set_psn((psn + 1) & 0xFF_FFFF);
        let goes_on = |next: [u8; bth::LEN]| {
            bth::Packet::new(&before[..]).unwrap().goes_on_with(&bth::Packet::new(&next[..]).unwrap())
        };
        prop_assert!(goes_on(next));
        prop_assert!(!goes_on(before));
        next[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(!goes_on(next));
    }

    #[test]
    fn single_formats(
        bth in bth(any::<u8>().prop_map(Opcode), 0), version in 0u8..16, reth in reth(), atomic in atomic(),
        deth in deth(), aeth in aeth(), word: u32, long: u64, srq in u24(),
    ) {
        let bth = Bth { version, ..bth };
        prop_assert_eq!(Bth::parse(&bth::Packet::new(&emitted!(bth, bth)).unwrap()), bth);
        prop_assert_eq!(Reth::parse(&reth::Packet::new(&emitted!(reth, reth)).unwrap()), reth);
        prop_assert_eq!(AtomicEth::parse(&atomic_eth::Packet::new(&emitted!(atomic_eth, atomic)).unwrap()), atomic);
        prop_assert_eq!(Deth::parse(&deth::Packet::new(&emitted!(deth, deth)).unwrap()), deth);
        prop_assert_eq!(Aeth::parse(&aeth::Packet::new(&emitted!(aeth, aeth)).unwrap()), aeth);
        let (first, mut next) = (emitted!(reth, reth), emitted!(reth, reth));
        let first = reth::Packet::new(&first).unwrap();
        let payload = word % 4097;
        prop_assert_eq!(first.goes_on_with(&first, payload), payload == 0);
        let address = reth.address.wrapping_add(payload.into());
        if let Some(length) = reth.length.checked_sub(payload) {
            let mut view = reth::Packet::new(&mut next).unwrap();
            view.set_address(address);
            view.set_length(length);
            prop_assert!(first.goes_on_with(&reth::Packet::new(&next).unwrap(), payload));
        }
        let length = reth.length.wrapping_sub(payload);
        for other in [Reth { key: reth.key ^ 1, address, length }, Reth { address, length: length ^ 1, ..reth }] {
            let other = emitted!(reth, other);
            prop_assert!(!first.goes_on_with(&reth::Packet::new(&other).unwrap(), payload));
        }
        let mut bytes = [0xa5; 8];
        atomic_ack_eth::Packet::new(&mut bytes).unwrap().set_original(long);
        prop_assert_eq!(atomic_ack_eth::Packet::new(&bytes).unwrap().original(), long);
        imm_dt::Packet::new(&mut bytes).unwrap().set_immediate(word);
        prop_assert_eq!(imm_dt::Packet::new(&bytes).unwrap().immediate(), word);
        ieth::Packet::new(&mut bytes).unwrap().set_key(word);
        prop_assert_eq!(ieth::Packet::new(&bytes).unwrap().key(), word);
        xrceth::Packet::new(&mut bytes).unwrap().set_shared_receive_queue(srq);
        prop_assert_eq!(xrceth::Packet::new(&bytes).unwrap().shared_receive_queue(), srq);
    }

    #[test]
    fn network_formats(v4 in ipv4_header(), v6 in ipv6_header(), wrong in 1u16..u16::MAX) {
        prop_assert_eq!(parse_ipv4(&v4.to_bytes()).map(|header| header.to_header()), Ok(v4.clone()));
        prop_assert_eq!(mended(v4.to_bytes().to_vec()), v4.to_bytes().to_vec());
        // 0 and 65,535 are one sum.
        let header_checksum = v4.header_checksum.wrapping_add(wrong);
        if (header_checksum, v4.header_checksum) != (u16::MAX, 0) {
            let damaged = Ipv4Header { header_checksum, ..v4.clone() };
            prop_assert_eq!(parse_ipv4(&damaged.to_bytes()).err(), Some(Error::Checksum));
        }
        let bytes = [&[0x60; 20], &v4.to_bytes()[..]].concat();
        prop_assert_eq!(grh::parse(&bytes), Ok(NetworkHeader::Ipv4(v4)));
        prop_assert_eq!(grh::parse(&bytes[..39]), Err(Error::Truncated { need: 40, have: 39 }));
        // Were the last 20 bytes of the IPv6 form a good IPv4 header, programs too would take it for one.
        let bytes = v6.to_bytes();
        prop_assume!(parse_ipv4(&bytes[20..40]).is_err());
        prop_assert_eq!(grh::parse(&bytes), Ok(NetworkHeader::Ipv6(v6)));
        // Neither of the two.
        let mut neither = bytes;
        neither[0] ^= 0x10;
        prop_assert_eq!(grh::parse(&neither), Err(Error::Version(7)));
    }

    #[test]
    fn global_route_headers(v4 in ipv4_header(), v6 in ipv6_header(), udp_payload: u16) {
        let payload_length = udp_payload.saturating_add(8);
        let ip = Ipv6Header { payload_length, next_header: IpNumber::UDP, flow_label: Default::default(), ..v6 };
        let (source, destination) = (ip.source_addr(), ip.destination_addr());
        let bytes = grh::emit_ipv6(source, destination, ip.traffic_class, ip.hop_limit, udp_payload);
        prop_assert_eq!(bytes, ip.to_bytes());
        let mut ip = Ipv4Header {
            total_len: udp_payload.saturating_add(28), identification: 0, protocol: IpNumber::UDP,
            dont_fragment: true, more_fragments: false, fragment_offset: IpFragOffset::ZERO, ..v4
        };
        ip.header_checksum = ip.calc_header_checksum();
        let (source, destination) = (ip.source.into(), ip.destination.into());
        let traffic_class = ip.dscp.value() << 2 | ip.ecn.value();
        let bytes = grh::emit_ipv4(source, destination, traffic_class, ip.time_to_live, udp_payload);
        prop_assert_eq!(&bytes[..20], &[0; 20]);
        prop_assert_eq!(&bytes[20..], &ip.to_bytes()[..]);
        prop_assert_eq!(grh::parse(&bytes), Ok(NetworkHeader::Ipv4(ip)));
    }

    #[test]
    fn ipv4_options_are_read_and_refused(v4 in ipv4_header(), options in vec(any::<u32>(), 1..=10)) {
        let mut bytes = v4.to_bytes().to_vec();
        bytes[0] += options.len() as u8;
        let options: Vec<u8> = options.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend_from_slice(&options);
        let (bytes, len) = (mended(bytes), 20 + options.len());
        if usize::from(v4.total_len) < len {
            prop_assert_eq!(parse_ipv4(&bytes), Err(Error::Length));
        } else {
            let header = parse_ipv4(&bytes).unwrap();
            prop_assert_eq!(header.options(), &options[..]);
            prop_assert_eq!(header.total_len(), v4.total_len);
            prop_assert_eq!(Datagram::parse(&bytes), Err(Error::Protocol));
            prop_assert_eq!(parse_ipv4(&bytes[..len - 1]), Err(Error::Truncated { need: len, have: len - 1 }));
            let mut damaged = bytes.clone();
            damaged[len - 1] ^= 1;
            prop_assert_eq!(parse_ipv4(&damaged), Err(Error::Checksum));
        }
    }

    #[test]
    fn headers(header in header()) {
        let mut bytes = [0xa5; MAX_HEADER_LEN];
        let len = header.emit(&mut bytes);
        prop_assert_eq!(len, header.len());
        prop_assert_eq!(Some(len), header.bth.opcode.header_len());
        prop_assert_eq!(PacketHeader::parse(&bytes[..len]), Ok((header, len)));
        for short in 0..len {
            let parsed = PacketHeader::parse(&bytes[..short]);
            let truncated = matches!(parsed, Err(Error::Truncated { .. }));
            prop_assert!(truncated, "{} of {} bytes: {:?}", short, len, parsed);
        }
    }

    #[test]
    fn packets(header in header(), payload in vec(any::<u8>(), 0..=MAX_MTU), v4: bool, id: u16) {
        let icrc = if v4 {
            Icrc::ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 50_000, packet::PORT, true)
        } else {
            Icrc::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 50_000, packet::PORT)
        };
        let mut bytes = [0xa5; MAX_PACKET_LEN];
        bytes[header.len()..][..payload.len()].copy_from_slice(&payload);
        let len = packet::emit(&header, payload.len(), &mut bytes);
        packet::seal(&icrc, id, &mut bytes[..len]);
        prop_assert_eq!(len % 4, 0);
        let parsed = Packet::parse(&bytes[..len]).unwrap();
        let pad = packet::pad_for(payload.len()) as u8;
        prop_assert_eq!(parsed.header, PacketHeader { bth: Bth { pad, ..header.bth }, ..header });
        prop_assert_eq!(parsed.payload, &payload[..]);
        prop_assert!(icrc.verify(id, &bytes[..len]));
        prop_assert_eq!(icrc.recover_identification(&bytes[..len]), Some(if v4 { id } else { 0 }));
    }

    #[test]
    fn datagrams(
        v4 in ipv4_header(), v6 in ipv6_header(), ipv4: bool, source: u16, destination: u16,
        payload in vec(any::<u8>(), 0..100), spare in 0usize..20,
    ) {
        let network = if ipv4 {
            NetworkHeader::Ipv4(Ipv4Header { more_fragments: false, fragment_offset: IpFragOffset::ZERO, ..v4 })
        } else {
            NetworkHeader::Ipv6(v6)
        };
        let at = network.header_len() + UdpHeader::LEN;
        let mut bytes = vec![0xa5; at + payload.len() + spare];
        bytes[at..][..payload.len()].copy_from_slice(&payload);
        let len = network.emit(source, destination, payload.len(), &mut bytes).unwrap();
        let parsed = Datagram::parse(&bytes).unwrap();
        prop_assert_eq!(len, at + payload.len());
        prop_assert_eq!(parsed.payload, &payload[..]);
        prop_assert_eq!((parsed.udp.source_port, parsed.udp.destination_port), (source, destination));
        prop_assert_eq!(usize::from(parsed.udp.length), UdpHeader::LEN + payload.len());
        prop_assert_eq!(parsed.network.clone(), match network {
            NetworkHeader::Ipv4(ip) => {
                let mut ip = Ipv4Header { protocol: IpNumber(17), total_len: len as u16, ..ip };
                ip.header_checksum = ip.calc_header_checksum();
                prop_assert_eq!(parsed.udp.checksum, 0);
                NetworkHeader::Ipv4(ip)
            }
            NetworkHeader::Ipv6(ip) => {
                NetworkHeader::Ipv6(Ipv6Header { next_header: IpNumber(17), payload_length: (len - 40) as u16, ..ip })
            }
        });
        prop_assert!(Datagram::parse(&bytes[..len - 1]).is_err());
    }

    #[test]
    fn congestion_notifications(destination in u24(), partition: u16) {
        let value = cnp::Cnp { destination, partition };
        let mut bytes = [0xa5; cnp::LEN];
        value.emit(&mut bytes);
        prop_assert_eq!(cnp::Cnp::parse(&Packet::parse(&bytes).unwrap()), Ok(value));
    }

    #[test]
    fn own_packets(own in own()) {
        let mut bytes = [0xa5; VendorPacket::MAX_LEN];
        let len = own.emit(&mut bytes);
        prop_assert_eq!(len, own.body_len());
        prop_assert_eq!(len % 4, 0);
        prop_assert_eq!(VendorPacket::parse(own.opcode(), &bytes[..len]), Ok(own));
        for other in (0..=VendorPacket::MAX_LEN).filter(|&other| other != len) {
            let result = VendorPacket::parse(own.opcode(), &bytes[..other]);
            prop_assert!(result.is_err(), "{} instead of {} bytes: {:?}", other, len, result);
        }
        let spoken = bytes[0];
        for version in (0..=u8::MAX).filter(|&version| version != spoken) {
            bytes[0] = version;
            prop_assert_eq!(VendorPacket::parse(own.opcode(), &bytes[..len]), Err(Error::Version(version)));
        }
    }

    #[test]
    fn selective_acknowledgements_speak_of_what_was_inserted(
        expected in u24(), bits in vec(0..MAX_SELECTIVE_BITS, 0..40), probe in u24(),
    ) {
        let ack = SelectiveAck { expected, message: 0, received: bits.iter().copied().collect() };
        let mut sorted = bits.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(ack.received.iter().collect::<Vec<_>>(), sorted.clone());
        prop_assert_eq!(ack.received.count(), sorted.len());
        prop_assert_eq!(ack.received.len(), sorted.last().map_or(0, |last| last + 1));
        for bit in 0..MAX_SELECTIVE_BITS {
            prop_assert_eq!(ack.has((expected + 1 + bit as u32) % (1 << 24)), sorted.contains(&bit));
        }
        prop_assert!(!ack.has(expected));
        let beyond = probe.wrapping_sub(expected) % (1 << 24);
        if beyond > MAX_SELECTIVE_BITS as u32 {
            prop_assert_eq!(ack.has(probe), beyond >= 1 << 23);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), id: u16, code: u8, ip_like: bool) {
        let mut bytes = bytes;
        if let (true, [first, _, _, _, _, _, _, _, _, protocol, ..]) = (ip_like, &mut bytes[..]) {
            *first = 0x45;
            *protocol = 17;
        }
        let _ = PacketHeader::parse(&bytes);
        let _ = Packet::parse(&bytes).map(|packet| cnp::Cnp::parse(&packet));
        let _ = VendorPacket::parse(Opcode(code), &bytes);
        let _ = VendorPacket::parse(Opcode::SELECTIVE_ACK, &bytes);
        let _ = Datagram::parse(&bytes).map(|datagram| datagram.packet().is_ok());
        let _ = parse_ipv4(&bytes).map(|header| (header.to_header(), header.options().len()));
        let _ = (Ipv6Header::from_slice(&bytes), UdpHeader::from_slice(&bytes));
        let _ = grh::parse(&bytes);
        for icrc in [
            Icrc::ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, id, packet::PORT, false),
            Icrc::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, id, packet::PORT),
        ] {
            let _ = icrc.compute(id, &bytes);
            let _ = icrc.verify(id, &bytes);
            let _ = icrc.verify_unknown_identification(&bytes);
        }
    }
}

#[test]
fn other_versions_of_the_bth_are_refused() {
    let mut bytes = [0; 16];
    bytes[0] = 0x04;
    assert!(Packet::parse(&bytes).is_ok());
    for version in 1..16 {
        bytes[1] = version;
        assert_eq!(PacketHeader::parse(&bytes), Err(Error::Version(version)));
    }
}

#[test]
fn padding_must_fit() {
    // A SEND Only with an empty payload, and every pad count; then with a length that is no multiple of 4.
    let mut bytes = [0; 20];
    bytes[0] = 0x04;
    for pad in 1..4 {
        bytes[1] = pad << 4;
        assert_eq!(Packet::parse(&bytes[..16]), Err(Error::Padding));
        assert_eq!(Packet::parse(&bytes).map(|packet| packet.payload.len()), Ok(4 - usize::from(pad)));
        assert_eq!(Packet::parse(&bytes[..16 + usize::from(pad)]), Err(Error::Padding));
    }
}

#[test]
fn every_syndrome_round_trips() {
    for byte in 0..=u8::MAX {
        assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
    }
}

#[test]
fn opcodes_are_first_middle_last_or_only() {
    for code in 0..=u8::MAX {
        let opcode = Opcode(code);
        let parts = [opcode.is_first(), opcode.is_middle(), opcode.is_last(), opcode.is_only()];
        let count = parts.into_iter().filter(|&part| part).count();
        assert_eq!(count, usize::from(opcode.operation().is_some()), "{opcode}");
        if let Some(operation) = opcode.operation() {
            if opcode != Opcode::PARTIAL_READ {
                assert_eq!(Opcode::new(opcode.transport(), operation), opcode);
            }
            for (part, word) in parts.into_iter().zip(["First", "Middle", "Last"]) {
                assert_eq!(part, operation.name().contains(word), "{opcode}");
            }
        }
    }
}

#[test]
fn bitmaps_refuse_what_does_not_fit() {
    let mut received = Received::new();
    assert!(received.is_empty());
    assert!(!received.insert(MAX_SELECTIVE_BITS));
    assert_eq!(received, Received::default());
    assert!(received.insert(MAX_SELECTIVE_BITS - 1));
    let own = VendorPacket::SelectiveAck(SelectiveAck { expected: 0, message: 0, received });
    let mut bytes = [0; VendorPacket::MAX_LEN];
    assert_eq!(own.emit(&mut bytes), VendorPacket::MAX_LEN);
    // One bit less than the bitmap has, and one more than fits.
    for bits in [255u16, 257, u16::MAX] {
        bytes[2..4].copy_from_slice(&bits.to_be_bytes());
        assert_eq!(VendorPacket::parse(Opcode::SELECTIVE_ACK, &bytes), Err(Error::Length));
    }
}

/// A sound datagram, and one with each thing that RoCEv2 does not send.
#[test]
fn what_rocev2_does_not_send_is_refused() {
    let payload = [7; 16];
    let datagram = |network: &NetworkHeader| {
        let at = network.header_len() + UdpHeader::LEN;
        let mut bytes = [vec![0; at], payload.to_vec()].concat();
        network.emit(1, packet::PORT, payload.len(), &mut bytes).unwrap();
        bytes
    };
    let four =
        datagram(&NetworkHeader::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xa5, 64).unwrap());
    let six = datagram(&NetworkHeader::between([1u16; 8].into(), [2u16; 8].into(), 0xa5, 64).unwrap());
    let changed = |bytes: &[u8], at: usize, value: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = value;
        if bytes[0] >> 4 == 6 || bytes[0] & 15 < 5 { bytes } else { mended(bytes) }
    };
    assert_eq!(NetworkHeader::between([10, 0, 0, 1].into(), [1u16; 8].into(), 0, 64), None);
    assert_eq!(Datagram::parse(&four).unwrap().payload, payload);
    assert_eq!(Datagram::parse(&six).unwrap().payload, payload);
    for (bytes, error) in [
        (changed(&four, 0, 0x44), Error::Length),
        (changed(&four, 0, 0x46), Error::Protocol),
        (changed(&four, 0, 0x55), Error::Version(5)),
        (changed(&four, 3, 19), Error::Length),
        (changed(&four, 3, 27), Error::Truncated { need: 8, have: 7 }),
        (changed(&four, 3, 43), Error::Length),
        (changed(&four, 3, 45), Error::Truncated { need: 45, have: 44 }),
        (changed(&four, 6, 0xc0), Error::Icrc),
        (changed(&four, 6, 0x60), Error::Protocol),
        (changed(&four, 7, 1), Error::Protocol),
        (changed(&four, 9, 6), Error::Protocol),
        (changed(&four, 25, 23), Error::Length),
        (changed(&four, 25, 7), Error::Length),
        (four[..19].to_vec(), Error::Truncated { need: 20, have: 19 }),
        (vec![], Error::Truncated { need: 20, have: 0 }),
        (changed(&six, 5, 23), Error::Length),
        (changed(&six, 5, 25), Error::Truncated { need: 65, have: 64 }),
        (changed(&six, 6, 44), Error::Protocol),
        (changed(&six, 45, 25), Error::Length),
        (six[..39].to_vec(), Error::Truncated { need: 40, have: 39 }),
    ] {
        assert_eq!(Datagram::parse(&bytes), Err(error), "{bytes:x?}");
    }
}

/// The checksum of UDP over IPv6 is never 0, and datagrams have a longest length.
#[test]
fn lengths_and_checksums_of_udp() {
    let network = NetworkHeader::between([1u16; 8].into(), [2u16; 8].into(), 0, 64).unwrap();
    for word in 0..=u16::MAX {
        let mut bytes = [[0; 48].as_slice(), &word.to_be_bytes()].concat();
        network.emit(1, 2, 2, &mut bytes).unwrap();
        let pseudo = [&bytes[8..40], &[0, 17], &bytes[44..46]].concat();
        let words = pseudo.chunks(2).chain(bytes[40..].chunks(2));
        let sum: u32 = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{word}");
        assert_ne!(bytes[46..48], [0; 2], "{word}");
    }
    let mut bytes = vec![0; 1 << 17];
    let four = NetworkHeader::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0, 64).unwrap();
    for (network, longest) in [(four, 65_535 - 28), (network, 65_535 - 8)] {
        assert_eq!(network.emit(1, 2, longest + 1, &mut bytes), Err(Error::Length));
        let length = network.emit(1, 2, longest, &mut bytes).unwrap();
        assert_eq!(Datagram::parse(&bytes).unwrap().payload.len(), longest);
        let short = Error::Truncated { need: length, have: length - 1 };
        assert_eq!(network.emit(1, 2, longest, &mut bytes[..length - 1]), Err(short));
    }
}
