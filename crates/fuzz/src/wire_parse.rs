//! Arbitrary bytes as a UDP payload and as an IP datagram: no parser panics, and whatever is accepted is
//! emitted as the same bytes, but for reserved bits and the pad's contents.

use core::net::{Ipv4Addr, Ipv6Addr};

use pagewire_wire::cm::{self, CmDatagram};
use pagewire_wire::datagram::{Datagram, parse_ipv4};
use pagewire_wire::etherparse::{Ipv6Header, UdpHeader};
use pagewire_wire::{Echo, Icrc, Opcode, Packet, PacketHeader, VendorPacket, bth, cnp, grh, packet};

/// One input.
pub fn run(bytes: &[u8]) {
    if let Ok((header, len)) = PacketHeader::parse(bytes) {
        assert_eq!(header.len(), len);
        // Nobody knows what stands behind the BTH of a reserved opcode.
        assert_eq!(header.bth.opcode.header_len().unwrap_or(bth::LEN), len);
    }
    if let Ok(parsed) = Packet::parse(bytes) {
        reemit(&parsed, bytes);
        let _ = cnp::Cnp::parse(&parsed);
        if let Ok(own) = VendorPacket::parse(parsed.header.bth.opcode, parsed.payload) {
            let mut body = [0; VendorPacket::MAX_LEN];
            let len = own.emit(&mut body);
            assert_eq!(len, parsed.payload.len());
            assert_eq!(VendorPacket::parse(parsed.header.bth.opcode, &body[..len]), Ok(own));
        }
    }
    for opcode in [Opcode::HELLO, Opcode::SELECTIVE_ACK, Opcode::HOLD, Opcode::RESUME, Opcode::SKIP] {
        let _ = VendorPacket::parse(opcode, bytes);
    }
    if let Ok(echo) = Echo::parse(bytes) {
        let mut body = [0; Echo::LEN];
        echo.emit(&mut body);
        assert_eq!(Echo::parse(&body), Ok(echo));
    }
    if let Ok(datagram) = Datagram::parse(bytes) {
        let _ = datagram.packet();
        reemit_datagram(&datagram, bytes);
    }
    let _ = CmDatagram::parse(bytes);
    reemit_cm(bytes);
    let _ = parse_ipv4(bytes).map(|header| (header.to_header(), header.options().len()));
    let _ = (Ipv6Header::from_slice(bytes), UdpHeader::from_slice(bytes));
    let _ = grh::parse(bytes);

    let v4 = Icrc::ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 50_000, packet::PORT, true);
    if let Some(identification) = v4.recover_identification(bytes) {
        assert!(v4.verify(identification, bytes));
    }
    let v6 = Icrc::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 50_000, packet::PORT);
    assert_eq!(v6.verify_unknown_identification(bytes), v6.verify(0, bytes));
}

/// The input as each message of communication management that its first byte chooses.
fn reemit_cm(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let mut datagram = [0; cm::DATAGRAM_LEN];
    let length = rest.len().min(cm::DATAGRAM_LEN - 24);
    datagram[24..24 + length].copy_from_slice(&rest[..length]);
    // The last two are Get and GetResp of ClassPortInfo, if they are marked.
    let (method, attribute) = match choice % 11 {
        9 => (0x01, 0x01),
        10 => (0x81, 0x01),
        sent => (0x03, 0x10 + sent),
    };
    datagram[..4].copy_from_slice(&[1, 7, 2, method]);
    datagram[17] = attribute;
    if attribute == 0x01 {
        datagram[96..100].copy_from_slice(&cm::PORT_QUERY_MARK.to_be_bytes());
    }
    let parsed = CmDatagram::parse(&datagram).expect("a known message");
    assert_eq!(CmDatagram::parse(&parsed.emit()), Some(parsed.clone()));
    let _ = (parsed.refusal(), parsed.receiver_comm_id(), parsed.service_id(), parsed.udp_port());
}

fn reemit(parsed: &Packet<'_>, bytes: &[u8]) {
    // A foreign sender may pad more than it must, and Pagewire sends no reserved opcodes.
    let padded = usize::from(parsed.header.bth.pad) != packet::pad_for(parsed.payload.len());
    if padded || parsed.header.bth.opcode.extensions().is_none() {
        return;
    }
    let mut again = vec![0; bytes.len()];
    again[parsed.header.len()..][..parsed.payload.len()].copy_from_slice(parsed.payload);
    let len = packet::emit(&parsed.header, parsed.payload.len(), &mut again);
    assert_eq!(len, bytes.len());
    let end = len - packet::ICRC_LEN;
    again[end..].copy_from_slice(&bytes[end..]);
    assert_eq!(Packet::parse(&again), Ok(*parsed));
}

fn reemit_datagram(datagram: &Datagram<'_>, bytes: &[u8]) {
    let UdpHeader { source_port, destination_port, .. } = datagram.udp;
    let mut again = bytes.to_vec();
    let len = datagram.network.emit(source_port, destination_port, datagram.payload.len(), &mut again);
    let again = Datagram::parse(&again[..len.expect("it is as long")]).expect("it was just made");
    assert_eq!(again.payload, datagram.payload);
    assert_eq!((again.identification(), again.icrc()), (datagram.identification(), datagram.icrc()));
}
