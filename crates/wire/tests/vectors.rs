//! Packets made by scapy and decoded by tshark: every field that they name is the one read here, the
//! ICRCs agree, and what is emitted from the plain values is the same bytes.

mod common;

use common::{Vector, vectors};
use core::net::Ipv4Addr;
use etherparse::UdpHeader;
use pagewire_wire::datagram::{Datagram, NetworkHeader};
use pagewire_wire::{
    Bth, Error, Extensions, Nak, Opcode, Packet, PacketHeader, PacketOperation, Syndrome, Transport, cnp,
    grh, packet,
};

#[test]
fn every_field_is_what_tshark_reads() {
    for vector in vectors().iter().filter(|vector| vector.is_datagram()) {
        let datagram =
            Datagram::parse(&vector.bytes).unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        let packet = datagram.packet().unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        let mut seen = Extensions::empty();
        for (name, value) in &vector.fields {
            let what = format!("{} {name} {value}", vector.name);
            if name.starts_with("ip") || name.starts_with("udp") {
                check_datagram(&what, name, value, &datagram);
            } else {
                seen |= check_packet(&what, name, value, &packet);
            }
        }
        // tshark 4.0 does not look behind the BTH of XRC: there is the payload to show how long the others are.
        let transport = packet.header.bth.opcode.transport();
        let extensions = packet.header.extensions();
        let visible = if transport == Transport::Xrc {
            extensions & (Extensions::XRCETH | Extensions::FETH)
        } else {
            extensions
        };
        assert_eq!(visible, seen, "{}", vector.name);
    }
}

fn check_datagram(what: &str, name: &str, value: &str, datagram: &Datagram<'_>) {
    let number = || number(value);
    match (name, &datagram.network) {
        ("ip.version", NetworkHeader::Ipv4(_)) => assert_eq!(value, "4", "{what}"),
        // tshark gives this field to both versions.
        ("ip.version" | "ipv6.version", NetworkHeader::Ipv6(_)) => assert_eq!(value, "6", "{what}"),
        ("ip.dsfield", NetworkHeader::Ipv4(ip)) => {
            assert_eq!(number(), (ip.dscp.value() << 2 | ip.ecn.value()).into(), "{what}")
        }
        ("ip.len", NetworkHeader::Ipv4(ip)) => assert_eq!(number(), ip.total_len.into(), "{what}"),
        ("ip.id", NetworkHeader::Ipv4(ip)) => assert_eq!(number(), ip.identification.into(), "{what}"),
        ("ip.flags.df", NetworkHeader::Ipv4(ip)) => assert_eq!(number(), ip.dont_fragment.into(), "{what}"),
        ("ip.ttl", NetworkHeader::Ipv4(ip)) => assert_eq!(number(), ip.time_to_live.into(), "{what}"),
        ("ip.proto", NetworkHeader::Ipv4(ip)) => assert_eq!(number(), ip.protocol.0.into(), "{what}"),
        ("ip.src", NetworkHeader::Ipv4(ip)) => {
            assert_eq!(value, Ipv4Addr::from(ip.source).to_string(), "{what}")
        }
        ("ip.dst", NetworkHeader::Ipv4(ip)) => {
            assert_eq!(value, Ipv4Addr::from(ip.destination).to_string(), "{what}")
        }
        ("ipv6.tclass", NetworkHeader::Ipv6(ip)) => assert_eq!(number(), ip.traffic_class.into(), "{what}"),
        ("ipv6.flow", NetworkHeader::Ipv6(ip)) => {
            assert_eq!(number(), ip.flow_label.value().into(), "{what}")
        }
        ("ipv6.plen", NetworkHeader::Ipv6(ip)) => assert_eq!(number(), ip.payload_length.into(), "{what}"),
        ("ipv6.nxt", NetworkHeader::Ipv6(ip)) => assert_eq!(number(), ip.next_header.0.into(), "{what}"),
        ("ipv6.hlim", NetworkHeader::Ipv6(ip)) => assert_eq!(number(), ip.hop_limit.into(), "{what}"),
        ("ipv6.src", NetworkHeader::Ipv6(ip)) => assert_eq!(value, ip.source_addr().to_string(), "{what}"),
        ("ipv6.dst", NetworkHeader::Ipv6(ip)) => {
            assert_eq!(value, ip.destination_addr().to_string(), "{what}")
        }
        ("udp.srcport", _) => assert_eq!(number(), datagram.udp.source_port.into(), "{what}"),
        ("udp.dstport", _) => assert_eq!(number(), datagram.udp.destination_port.into(), "{what}"),
        ("udp.length", _) => assert_eq!(number(), datagram.udp.length.into(), "{what}"),
        ("udp.checksum", _) => assert_eq!(number(), datagram.udp.checksum.into(), "{what}"),
        // Good, or not present.
        ("udp.checksum.status", _) => assert!(value == "1" || value == "3", "{what}"),
        _ => panic!("unchecked: {what}"),
    }
}

/// Checks one field, and gives the extended header that it is of.
fn check_packet(what: &str, name: &str, value: &str, packet: &Packet<'_>) -> Extensions {
    let number = || number(value);
    let PacketHeader { bth, deth, reth, atomic, aeth, atomic_ack, immediate, invalidate, xrc, flush } =
        packet.header;
    match name {
        "infiniband.bth.opcode" => assert_eq!(number(), bth.opcode.0.into(), "{what}"),
        "infiniband.bth.se" => assert_eq!(number(), bth.solicited.into(), "{what}"),
        "infiniband.bth.m" => assert_eq!(number(), bth.migration.into(), "{what}"),
        "infiniband.bth.padcnt" => assert_eq!(number(), bth.pad.into(), "{what}"),
        "infiniband.bth.tver" => assert_eq!(number(), bth.version.into(), "{what}"),
        "infiniband.bth.p_key" => assert_eq!(number(), bth.partition.into(), "{what}"),
        "infiniband.bth.destqp" => assert_eq!(number(), bth.destination.into(), "{what}"),
        "infiniband.bth.a" => assert_eq!(number(), bth.acknowledge.into(), "{what}"),
        "infiniband.bth.psn" => assert_eq!(number(), bth.psn.into(), "{what}"),
        "infiniband.invariant.crc" => assert_eq!(number(), packet.icrc.swap_bytes().into(), "{what}"),
        // tshark leaves the pad with the payload.
        "data.data" => assert!(value.starts_with(&hex(packet.payload)), "{what}"),
        "payload" => assert_eq!(
            value,
            if packet.payload.is_empty() { "-".into() } else { hex(packet.payload) },
            "{what}"
        ),
        "xrceth.srq" => {
            assert_eq!(number(), xrc.expect(what).into(), "{what}");
            return Extensions::XRCETH;
        }
        "feth.plt" => {
            assert_eq!(number(), flush.expect(what).placement.into(), "{what}");
            return Extensions::FETH;
        }
        "feth.sel" => {
            assert_eq!(number(), flush.expect(what).selectivity.into(), "{what}");
            return Extensions::FETH;
        }
        "infiniband.deth.q_key" => {
            assert_eq!(number(), deth.expect(what).queue_key.into(), "{what}");
            return Extensions::DETH;
        }
        "infiniband.deth.srcqp" => {
            assert_eq!(number(), deth.expect(what).source.into(), "{what}");
            return Extensions::DETH;
        }
        // tshark has one name for the address and key of RETH and AtomicETH.
        "infiniband.reth.va" => {
            let (extension, address) = match (reth, atomic) {
                (Some(reth), None) => (Extensions::RETH, reth.address),
                (None, Some(atomic)) => (Extensions::ATOMIC_ETH, atomic.address),
                both => panic!("{what}: {both:?}"),
            };
            assert_eq!(number(), address, "{what}");
            return extension;
        }
        "infiniband.reth.r_key" => {
            assert_eq!(
                number(),
                reth.map(|reth| reth.key).or(atomic.map(|atomic| atomic.key)).unwrap().into(),
                "{what}"
            );
        }
        "infiniband.reth.dmalen" => assert_eq!(number(), reth.expect(what).length.into(), "{what}"),
        "infiniband.atomiceth.swapdt" => assert_eq!(number(), atomic.expect(what).swap_or_add, "{what}"),
        "infiniband.atomiceth.cmpdt" => assert_eq!(number(), atomic.expect(what).compare, "{what}"),
        "infiniband.aeth.syndrome.opcode" => {
            let expected = match aeth.expect(what).syndrome {
                Syndrome::Ack { .. } => 0,
                Syndrome::ReceiverNotReady { .. } => 1,
                Syndrome::Reserved(byte) => u64::from(byte >> 5),
                Syndrome::Nak(_) => 3,
            };
            assert_eq!(number(), expected, "{what}");
            return Extensions::AETH;
        }
        "infiniband.aeth.syndrome.credit_count" => {
            assert_eq!(Syndrome::Ack { credits: number() as u8 }, aeth.expect(what).syndrome, "{what}");
        }
        "infiniband.aeth.syndrome.timer" => {
            assert_eq!(
                Syndrome::ReceiverNotReady { timer: number() as u8 },
                aeth.expect(what).syndrome,
                "{what}"
            );
        }
        "infiniband.aeth.syndrome.error_code" => {
            let nak = match number() {
                0 => Nak::PsnSequence,
                1 => Nak::InvalidRequest,
                2 => Nak::RemoteAccess,
                3 => Nak::RemoteOperational,
                4 => Nak::InvalidRd,
                other => Nak::Reserved(other as u8),
            };
            assert_eq!(Syndrome::Nak(nak), aeth.expect(what).syndrome, "{what}");
        }
        "infiniband.aeth.msn" => assert_eq!(number(), aeth.expect(what).message.into(), "{what}"),
        "infiniband.atomicacketh.origremdt" => {
            assert_eq!(number(), atomic_ack.expect(what), "{what}");
            return Extensions::ATOMIC_ACK_ETH;
        }
        "infiniband.immdt" => {
            assert_eq!(value, hex(&immediate.expect(what).to_be_bytes()), "{what}");
            return Extensions::IMM_DT;
        }
        "infiniband.ieth" => {
            assert_eq!(value, hex(&invalidate.expect(what).to_be_bytes()), "{what}");
            return Extensions::IETH;
        }
        _ => panic!("unchecked: {what}"),
    }
    Extensions::empty()
}

#[test]
fn icrcs_are_what_others_compute() {
    for vector in vectors().iter().filter(|vector| vector.is_datagram()) {
        let datagram = Datagram::parse(&vector.bytes).unwrap();
        let body = &datagram.payload[..datagram.payload.len() - packet::ICRC_LEN];
        let icrc = datagram.icrc();
        let computed = icrc.compute(datagram.identification(), body);
        assert_eq!(Some(computed.to_le_bytes()), vector.icrc, "{}", vector.name);
        assert!(icrc.verify(datagram.identification(), datagram.payload), "{}", vector.name);
        assert_eq!(
            icrc.recover_identification(datagram.payload),
            Some(datagram.identification()),
            "{}",
            vector.name
        );
    }
}

#[test]
fn emitting_gives_the_same_bytes() {
    for vector in vectors().iter().filter(|vector| vector.is_datagram()) {
        let datagram = Datagram::parse(&vector.bytes).unwrap();
        let packet = datagram.packet().unwrap();
        let at = datagram.network.header_len() + UdpHeader::LEN;
        let mut bytes = vec![0xee; vector.bytes.len()];
        let udp_payload = &mut bytes[at..];
        udp_payload[packet.header.len()..][..packet.payload.len()].copy_from_slice(packet.payload);
        let len = packet::emit(&packet.header, packet.payload.len(), udp_payload);
        assert_eq!(len, packet::len(&packet.header, packet.payload.len()), "{}", vector.name);
        packet::seal(&datagram.icrc(), datagram.identification(), &mut udp_payload[..len]);
        let (source, destination) = (datagram.udp.source_port, datagram.udp.destination_port);
        let total = datagram.network.emit(source, destination, len, &mut bytes).unwrap();
        assert_eq!(hex(&bytes[..total]), hex(&vector.bytes), "{}", vector.name);
    }
}

#[test]
fn congestion_notifications_are_understood_and_made() {
    let mut found = 0;
    for vector in vectors().iter().filter(|vector| vector.name.starts_with("cnp")) {
        let datagram = Datagram::parse(&vector.bytes).unwrap();
        let parsed = cnp::Cnp::parse(&datagram.packet().unwrap()).unwrap();
        let mut bytes = [0xee; cnp::LEN];
        assert_eq!(parsed.emit(&mut bytes), cnp::LEN);
        packet::seal(&datagram.icrc(), datagram.identification(), &mut bytes);
        assert_eq!(bytes, datagram.payload, "{}", vector.name);
        found += 1;
    }
    assert_eq!(found, 2);
}

#[test]
fn global_route_headers_are_what_tshark_reads() {
    let all = vectors();
    let routes: Vec<&Vector> = all.iter().filter(|vector| !vector.is_datagram()).collect();
    assert!(!routes.is_empty());
    for vector in routes {
        let NetworkHeader::Ipv6(grh) = grh::parse(&vector.bytes).unwrap() else {
            panic!("{} is no IPv4", vector.name);
        };
        for (name, value) in &vector.fields {
            let what = format!("{} {name} {value}", vector.name);
            match name.as_str() {
                "infiniband.grh.ipver" => assert_eq!(value, "6"),
                "infiniband.grh.tclass" => assert_eq!(number(value), grh.traffic_class.into(), "{what}"),
                "infiniband.grh.flowlabel" => {
                    assert_eq!(number(value), grh.flow_label.value().into(), "{what}")
                }
                "infiniband.grh.paylen" => assert_eq!(number(value), grh.payload_length.into(), "{what}"),
                "infiniband.grh.nxthdr" => assert_eq!(number(value), grh.next_header.0.into(), "{what}"),
                "infiniband.grh.hoplmt" => assert_eq!(number(value), grh.hop_limit.into(), "{what}"),
                "infiniband.grh.sgid" => assert_eq!(value.parse(), Ok(grh.source_addr()), "{what}"),
                "infiniband.grh.dgid" => assert_eq!(value.parse(), Ok(grh.destination_addr()), "{what}"),
                _ => {}
            }
        }
        assert_eq!(grh.to_bytes(), vector.bytes[..grh::LEN], "{}", vector.name);
    }
}

/// A UD receiver on RoCEv2 over IPv4 finds the IPv4 header behind 20 bytes without meaning. What is written is
/// the vectors' header, but for identification and flow label.
#[test]
fn the_network_header_takes_the_end_of_the_grh() {
    let (mut four, mut six) = (0, 0);
    for vector in vectors().iter().filter(|vector| vector.is_datagram()) {
        let datagram = Datagram::parse(&vector.bytes).unwrap();
        let payload = datagram.payload.len() as u16;
        let (bytes, network) = match datagram.network {
            NetworkHeader::Ipv4(mut ip) => {
                let foreign = [&[0; 20], &vector.bytes[..20]].concat();
                assert_eq!(grh::parse(&foreign), Ok(NetworkHeader::Ipv4(ip.clone())), "{}", vector.name);
                (ip.identification, ip.dont_fragment) = (0, true);
                ip.header_checksum = ip.calc_header_checksum();
                let class = ip.dscp.value() << 2 | ip.ecn.value();
                let (source, destination) = (ip.source.into(), ip.destination.into());
                let bytes = grh::emit_ipv4(source, destination, class, ip.time_to_live, payload);
                assert_eq!(bytes[..20], [0; 20]);
                assert_eq!(bytes[20..], ip.to_bytes()[..], "{}", vector.name);
                four += 1;
                (bytes, NetworkHeader::Ipv4(ip))
            }
            NetworkHeader::Ipv6(mut ip) => {
                ip.flow_label = Default::default();
                let (source, destination) = (ip.source_addr(), ip.destination_addr());
                let bytes = grh::emit_ipv6(source, destination, ip.traffic_class, ip.hop_limit, payload);
                assert_eq!(bytes, ip.to_bytes(), "{}", vector.name);
                six += 1;
                (bytes, NetworkHeader::Ipv6(ip))
            }
        };
        assert_eq!(grh::parse(&bytes), Ok(network), "{}", vector.name);
    }
    assert!(four > 0 && six > 0, "{four} {six}");
}

/// There is a vector of every opcode that has extended headers of the specification.
#[test]
fn every_opcode_has_a_vector() {
    let all = vectors();
    let seen: Vec<Opcode> = all
        .iter()
        .filter(|vector| vector.is_datagram())
        .map(|vector| Datagram::parse(&vector.bytes).unwrap().packet().unwrap().header.bth.opcode)
        .collect();
    for code in 0..=u8::MAX {
        let opcode = Opcode(code);
        let is_own = opcode == Opcode::PARTIAL_READ || opcode.transport() == Transport::Manufacturer;
        let standard = opcode.extensions().is_some() && !is_own;
        assert_eq!(standard, seen.contains(&opcode), "{opcode}");
    }
    assert_eq!(Opcode::new(Transport::Xrc, PacketOperation::SendOnlyInvalidate).0, 0xb7);
    assert_eq!(Opcode::new(Transport::Ud, PacketOperation::SendOnly).to_string(), "UD SEND Only");
}

/// A responder of RC refuses requests that it does not know: it has to be told of them.
#[test]
fn reserved_rc_opcodes_are_parsed() {
    let vector = &vectors()[0];
    let datagram = Datagram::parse(&vector.bytes).unwrap();
    let mut bytes = datagram.payload.to_vec();
    for code in 0..=u8::MAX {
        bytes[0] = code;
        let opcode = Opcode(code);
        match PacketHeader::parse(&bytes) {
            Ok((header, length)) => {
                assert_eq!(header.bth.opcode, opcode);
                let known = opcode.extensions().is_some();
                assert!(known || opcode.transport() == Transport::Rc && length == 12, "{opcode}");
            }
            Err(Error::Opcode(refused)) => {
                assert!(refused == opcode && opcode.transport() != Transport::Rc, "{opcode}")
            }
            Err(_) => assert!(opcode.extensions().is_some(), "{opcode}"),
        }
    }
}

/// What sends a 12-byte header that no vector has: reserved bits are ignored.
#[test]
fn reserved_bits_are_ignored() {
    let vector = &vectors()[0];
    let datagram = Datagram::parse(&vector.bytes).unwrap();
    let mut bytes = datagram.payload.to_vec();
    let before = Bth::from_bytes(&bytes).unwrap();
    bytes[4] |= 0x3f;
    bytes[8] |= 0x7f;
    assert_eq!(Bth::from_bytes(&bytes), Ok(before));
}

fn number(value: &str) -> u64 {
    match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => value.parse(),
    }
    .unwrap_or_else(|error| panic!("{value}: {error}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
