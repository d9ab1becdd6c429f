//! Arbitrary packets into a connection: no panic, bounded answers, and completions that keep their
//! promises (the model operations assert them).

use crate::support::network::Pair;
use crate::support::*;
use pagewire_transport::*;
use pagewire_wire::{
    Aeth, AtomicEth, Bth, Deth, Extensions, Hold, HoldFlags, Opcode, PacketHeader, Received, Reth,
    SelectiveAck, Syndrome, VendorPacket,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Packet { opcode: u8, psn: i32, byte: u8, length: u32, offset: u64, payload: usize, acknowledge: bool },
    SelectiveAck { psn: i32, bits: Vec<usize> },
    Hold,
    Post(u8, u32),
    Progress(u64),
    Selective(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let psn = prop_oneof![4 => -3i32..12, 1 => any::<i32>()];
    let opcode = prop_oneof![4 => 0u8..0x18, 1 => any::<u8>()];
    let length = prop_oneof![4 => 0u32..3000, 1 => any::<u32>()];
    let offset = prop_oneof![4 => (0u64..100).prop_map(|n| n * 8), 1 => any::<u64>()];
    let payload = prop_oneof![3 => Just(256usize), 2 => 0usize..300, 1 => Just(0)];
    prop_oneof![
        8 => (opcode, psn.clone(), any::<u8>(), length.clone(), offset, payload, any::<bool>()).prop_map(
            |(opcode, psn, byte, length, offset, payload, acknowledge)| Step::Packet {
                opcode, psn, byte, length, offset, payload, acknowledge
            }
        ),
        1 => (psn, prop::collection::vec(0usize..256, 0..10)).prop_map(|(psn, bits)| Step::SelectiveAck { psn, bits }),
        1 => Just(Step::Hold),
        3 => (0u8..6, 0u32..2000).prop_map(|(kind, length)| Step::Post(kind, length)),
        3 => (0u64..200_000_000).prop_map(Step::Progress),
        1 => any::<bool>().prop_map(Step::Selective),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks(
        steps in prop::collection::vec(step(), 1..120),
        base in prop_oneof![Just(0u32), Just(0xff_fffc)],
        lossless: bool,
        wait in prop_oneof![Just(0.0), Just(0.3)],
        seed: u64,
    ) {
        let link = Link { lossless, ..lossy(256) };
        let mut pair = Pair::with(settings(link, 1, 0), requester(base), settings(link, 2, 0), requester(base), seed);
        let end = &mut pair.ends[0];
        end.host.wait = wait;
        for _ in 0..20 {
            end.host.post_receive(1000);
        }
        let mut now = 0;
        let mut posted = 0;
        for step in steps {
            match step {
                Step::Packet { opcode, psn, byte, length, offset, payload, acknowledge } => {
                    let psn = base.wrapping_add_signed(psn) & 0xff_ffff;
                    let Some(header) = header(Opcode(opcode), psn, byte, length, offset, acknowledge) else { continue };
                    let payload = vec![byte; payload];
                    // A packet that waits may be forgotten, too.
                    let _ = end.connection.receive(Time(now), &header, Payload::Bytes(&[&payload]), &mut end.host);
                }
                Step::SelectiveAck { psn, bits } => {
                    let expected = base.wrapping_add_signed(psn) & 0xff_ffff;
                    let report = SelectiveAck { expected, message: 0, received: Received::from_iter(bits) };
                    end.connection.receive_control(Time(now), &VendorPacket::SelectiveAck(report), &mut end.host);
                }
                Step::Hold => {
                    end.connection.receive_control(Time(now), &VendorPacket::Hold(Hold { psn: base, flags: HoldFlags::empty() }), &mut end.host);
                    end.connection.hold();
                }
                Step::Post(kind, length) => {
                    let work = match kind {
                        0 => send(length),
                        1 => write(0, length),
                        2 => write_immediate(0, length, 1),
                        3 => read(0, length),
                        4 => fetch_add(0, 1),
                        _ => WorkRequest { fence: true, ..read(8, length) },
                    };
                    end.host.buffers.insert(WorkId(posted), vec![0; work.length as usize]);
                    end.connection.post(WorkRequest { id: WorkId(posted), ..work });
                    posted += 1;
                }
                Step::Progress(time) => {
                    now += time;
                    end.connection.progress(Time(now), &mut end.host);
                    prop_assert!(end.host.sent.len() <= 2 * limits::PROGRESS_PACKETS as usize + 2);
                    end.host.sent.clear();
                    if let Some(deadline) = end.connection.deadline() {
                        prop_assert!(deadline.0 > now, "drive handles what is due");
                    }
                }
                Step::Selective(on) => end.connection.set_selective(on),
            }
        }
    }
}

/// A SEND waits for its invalidation, and another packet comes in its place: what was placed is what completes (the model
/// operations assert it).
#[test]
fn what_was_placed_completes_though_another_packet_comes_in_its_place() {
    const SEND: u8 = 0x04;
    const WRITE: u8 = 0x0a;
    const SEND_INVALIDATE: u8 = 0x17;
    let mut held = 0;
    for seed in 0..100 {
        for (first, second, code) in [(0, 256, SEND), (200, 0, SEND), (200, 100, WRITE)] {
            let link = lossy(256);
            let mut pair =
                Pair::with(settings(link, 1, 0), requester(0), settings(link, 2, 0), requester(0), seed);
            let end = &mut pair.ends[0];
            end.host.post_receive(1000);
            let mut take = |code, payload: usize, wait| {
                let Some(header) = header(Opcode(code), 0, 0, payload as u32, 0, false) else {
                    panic!("{code}")
                };
                end.host.wait = wait;
                end.connection.receive(Time(0), &header, Payload::Bytes(&[&vec![7; payload]]), &mut end.host)
            };
            if take(SEND_INVALIDATE, first, 0.3).is_held() {
                held += 1;
                assert_eq!(take(code, second, 0.0), Disposition::Executed(1));
            }
        }
    }
    assert!(held > 30, "{held}");
}

fn header(
    opcode: Opcode,
    psn: u32,
    byte: u8,
    length: u32,
    offset: u64,
    acknowledge: bool,
) -> Option<PacketHeader> {
    let extensions = opcode.extensions()?;
    let mut header = PacketHeader::new(Bth { acknowledge, ..Bth::new(opcode, 1, psn) });
    let address = BASE.wrapping_add(offset);
    let has = |extension| extensions.contains(extension);
    header.xrc = has(Extensions::XRCETH).then_some(0);
    header.deth = has(Extensions::DETH).then_some(Deth { queue_key: 0, source: 0 });
    header.reth = has(Extensions::RETH).then_some(Reth { address, key: KEY, length });
    let atomic = AtomicEth { address, key: KEY, swap_or_add: 1, compare: 0 };
    header.atomic = has(Extensions::ATOMIC_ETH).then_some(atomic);
    header.aeth =
        has(Extensions::AETH).then_some(Aeth { syndrome: Syndrome::from_byte(byte & 0x7f), message: 0 });
    header.atomic_ack = has(Extensions::ATOMIC_ACK_ETH).then_some(7);
    header.immediate = has(Extensions::IMM_DT).then_some(7);
    header.invalidate = has(Extensions::IETH).then_some(7);
    Some(header)
}
