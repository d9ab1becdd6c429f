//! The bytes of Pagewire's own packets, which are a protocol: they stay as they are.

use pagewire_wire::{Hold, HoldFlags, Opcode, Resume, VendorPacket};

fn bytes_of(own: VendorPacket) -> Vec<u8> {
    let mut buffer = vec![0xee; own.body_len()];
    assert_eq!(own.emit(&mut buffer), buffer.len());
    buffer
}

#[test]
fn opcodes_are_what_they_were() {
    let opcodes = [Opcode::HOLD, Opcode::RESUME].map(|opcode| opcode.0);
    assert_eq!(opcodes, [0xc2, 0xc3]);
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
