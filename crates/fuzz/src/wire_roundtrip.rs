//! Packets of every opcode, with fields, payload, addresses and identification from the input: emitted,
//! sealed, wrapped in a datagram and read back they are the same; with any one bit flipped that the
//! ICRC covers they are refused.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arbitrary::{Result, Unstructured};
use pagewire_wire::datagram::{Datagram, NetworkHeader};
use pagewire_wire::etherparse::{Ipv6FlowLabel, UdpHeader};
use pagewire_wire::{
    Aeth, AtomicEth, Bth, Deth, Extensions, Feth, Opcode, PacketHeader, Reth, Syndrome, packet,
};

/// One input.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    if let (Ok(Some(header)), Ok(network), Ok(flip)) =
        (header(&mut input), network(&mut input), input.arbitrary())
    {
        roundtrip(&header, &network, flip, input.take_rest());
    }
}

fn roundtrip(header: &PacketHeader, network: &NetworkHeader, flip: u32, payload: &[u8]) {
    let payload = &payload[..payload.len().min(9000)];
    let at = network.header_len() + UdpHeader::LEN;
    let mut bytes = vec![0xa5; at + packet::len(header, payload.len())];
    let udp_payload = &mut bytes[at..];
    udp_payload[header.len()..][..payload.len()].copy_from_slice(payload);
    let len = packet::emit(header, payload.len(), udp_payload);
    network.emit(50_000, packet::PORT, len, &mut bytes).expect("it fits");
    let (icrc, identification) = {
        let datagram = Datagram::parse(&bytes).expect("it was just made");
        (datagram.icrc(), datagram.identification())
    };
    packet::seal(&icrc, identification, &mut bytes[at..]);

    let parsed = Datagram::parse(&bytes).and_then(|datagram| datagram.packet()).expect("it is intact");
    let pad = packet::pad_for(payload.len()) as u8;
    assert_eq!(parsed.header, PacketHeader { bth: Bth { pad, ..header.bth }, ..*header });
    assert_eq!(parsed.payload, payload);
    let four = matches!(network, NetworkHeader::Ipv4(_));
    assert_eq!(icrc.recover_identification(&bytes[at..]), Some(if four { identification } else { 0 }));

    let flip = flip as usize % (8 * len);
    if flip / 8 != 4 {
        bytes[at + flip / 8] ^= 1 << (flip % 8);
        let result = Datagram::parse(&bytes).and_then(|datagram| datagram.packet());
        assert!(result.is_err(), "bit {flip}: {result:?}");
        assert!(!icrc.verify_unknown_identification(&bytes[at..]), "bit {flip}");
    }
}

fn u24(input: &mut Unstructured<'_>) -> Result<u32> {
    input.int_in_range(0..=(1 << 24) - 1)
}

fn header(input: &mut Unstructured<'_>) -> Result<Option<PacketHeader>> {
    let opcode = Opcode(input.arbitrary()?);
    let Some(extensions) = opcode.extensions() else {
        return Ok(None);
    };
    let [solicited, migration, fecn, becn, acknowledge] = input.arbitrary()?;
    let mut header = PacketHeader::new(Bth {
        opcode,
        solicited,
        migration,
        pad: 0,
        version: 0,
        partition: input.arbitrary()?,
        fecn,
        becn,
        destination: u24(input)?,
        acknowledge,
        psn: u24(input)?,
    });
    if extensions.contains(Extensions::XRCETH) {
        header.xrc = Some(u24(input)?);
    }
    if extensions.contains(Extensions::FETH) {
        let (placement, selectivity) = (input.int_in_range(0..=15u8)?, input.int_in_range(0..=3u8)?);
        header.flush = Some(Feth { placement, selectivity });
    }
    if extensions.contains(Extensions::DETH) {
        header.deth = Some(Deth { queue_key: input.arbitrary()?, source: u24(input)? });
    }
    if extensions.contains(Extensions::RETH) {
        header.reth =
            Some(Reth { address: input.arbitrary()?, key: input.arbitrary()?, length: input.arbitrary()? });
    }
    if extensions.contains(Extensions::ATOMIC_ETH) {
        header.atomic = Some(AtomicEth {
            address: input.arbitrary()?,
            key: input.arbitrary()?,
            swap_or_add: input.arbitrary()?,
            compare: input.arbitrary()?,
        });
    }
    if extensions.contains(Extensions::AETH) {
        header.aeth = Some(Aeth { syndrome: Syndrome::from_byte(input.arbitrary()?), message: u24(input)? });
    }
    if extensions.contains(Extensions::ATOMIC_ACK_ETH) {
        header.atomic_ack = Some(input.arbitrary()?);
    }
    if extensions.contains(Extensions::IMM_DT) {
        header.immediate = Some(input.arbitrary()?);
    }
    if extensions.contains(Extensions::IETH) {
        header.invalidate = Some(input.arbitrary()?);
    }
    Ok(Some(header))
}

fn network(input: &mut Unstructured<'_>) -> Result<NetworkHeader> {
    let four = input.arbitrary()?;
    let traffic_class = input.arbitrary()?;
    let identification = if four { input.arbitrary()? } else { 0 };
    let dont_fragment = four && input.arbitrary()?;
    let flow_label = if four { 0 } else { input.int_in_range(0..=Ipv6FlowLabel::MAX_U32)? };
    let hop_limit = input.arbitrary()?;
    let mut address = || -> Result<IpAddr> {
        Ok(if four {
            Ipv4Addr::from_bits(input.arbitrary()?).into()
        } else {
            Ipv6Addr::from_bits(input.arbitrary()?).into()
        })
    };
    let network = NetworkHeader::between(address()?, address()?, traffic_class, hop_limit);
    let mut network = network.expect("of one family");
    match &mut network {
        NetworkHeader::Ipv4(ip) => (ip.identification, ip.dont_fragment) = (identification, dont_fragment),
        NetworkHeader::Ipv6(ip) => ip.flow_label = flow_label.try_into().expect("20 bits"),
    }
    Ok(network)
}
