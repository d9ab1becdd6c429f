//! The bytes of Pagewire's own packets, which are a protocol: they stay as they are.

use pagewire_wire::{Error, Hold, HoldFlags, Opcode, Resume, Skip, VendorPacket};

fn bytes_of(own: VendorPacket) -> Vec<u8> {
    let mut buffer = vec![0xee; own.body_len()];
    assert_eq!(own.emit(&mut buffer), buffer.len());
    buffer
}

#[test]
fn opcodes_are_what_they_were() {
    let opcodes = [Opcode::HOLD, Opcode::RESUME, Opcode::SKIP].map(|opcode| opcode.0);
    assert_eq!(opcodes, [0xc2, 0xc3, 0xc5]);
}

#[test]
fn hold_is_version_flags_and_psn() {
    let hold = |flags| bytes_of(VendorPacket::Hold(Hold { psn: 0x12_3456, flags }));
    for (flags, bits) in [
        (HoldFlags::empty(), 0),
        (HoldFlags::DROPPED, 1),
        (HoldFlags::UNTIL_RESUME, 2),
        (HoldFlags::all(), 0xff),
    ] {
        assert_eq!(hold(flags), [1, bits, 0, 0, 0, 0x12, 0x34, 0x56], "{flags:?}");
    }
}

#[test]
fn resume_is_version_psn_and_block() {
    let resume = bytes_of(VendorPacket::Resume(Resume { psn: 0x12_3456, block: 0xab_cdef }));
    assert_eq!(resume, [1, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef]);
}

#[test]
fn skip_is_version_refused_and_resume() {
    let skip = bytes_of(VendorPacket::Skip(Skip { refused: 0x12_3456, resume: 0xab_cdef }));
    assert_eq!(skip, [1, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef]);
    let truncated = VendorPacket::parse(Opcode::SKIP, &skip[..11]);
    assert!(matches!(truncated, Err(Error::Truncated { .. })), "{truncated:?}");
    assert_eq!(VendorPacket::parse(Opcode::SKIP, &[&skip[..], &[0]].concat()), Err(Error::Length));
    assert_eq!(VendorPacket::parse(Opcode::SKIP, &[&[2], &skip[1..]].concat()), Err(Error::Version(2)));
}
