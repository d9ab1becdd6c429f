//! Regions whose accesses are named by another address than the program's (`ibv_reg_mr_iova(3)`): the same for local and
//! remote keys, on both paths, whichever way the bytes go.

use crate::support::*;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::*;

const LENGTH: usize = 32 << 10;
/// Longer than what is copied into a ring, and than any MTU.
const LONG: u32 = 9000;

/// Read-only memory of the program.
static CONSTANT: [u8; 64] = [0x5A; 64];

/// A buffer whose region begins at `iova`.
fn buffer_at_iova(side: &Side, iova: u64) -> Buffer {
    let plain = side.buffer(LENGTH, all_rights());
    plain.region.deregister().unwrap();
    let region =
        side.domain.register(plain.bytes.as_ptr() as u64, LENGTH as u64, iova, all_rights()).unwrap();
    Buffer { address: iova, region, ..plain }
}

fn done(pair: &mut Pair, sent: usize, received: usize, context: &str) {
    pair.until(sent, received);
    let all = pair.sent.iter().chain(&pair.received);
    assert!(all.clone().all(|done| done.status == Status::Success), "{context}: {:?}", pair.sent);
    assert_eq!(all.count(), sent + received, "{context}");
    (pair.sent, pair.received) = (Vec::new(), Vec::new());
}

#[test]
fn every_operation_counts_from_the_iova() {
    if !own_network::is_here() {
        return;
    }
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        for iova in [0, 0x7000, u64::MAX - LENGTH as u64 - 7] {
            let context = format!("iova {iova:#x} on {path:?}");
            let (at_a, at_b) = (buffer_at_iova(&pair.a, iova), buffer_at_iova(&pair.b, iova));
            for (index, byte) in at_a.bytes.iter_mut().enumerate() {
                *byte = (index * 7 + index / 251) as u8 | 1;
            }
            let key = at_b.region.rkey();
            let remote = |offset| (at_b.address + offset, key);
            for length in [8, LONG] {
                let (address, key) = remote(16);
                at_b.bytes.fill(0);
                pair.post(1, SendOperation::Write { address, key }, &[at_a.piece(3, length)]).unwrap();
                done(&mut pair, 1, 0, &context);
                let end = length as usize;
                assert!(at_b.bytes[16..16 + end] == at_a.bytes[3..3 + end], "WRITE, {context}");
                assert!(at_b.bytes[..16].iter().chain(&at_b.bytes[16 + end..]).all(|&byte| byte == 0));

                at_b.bytes.fill(0);
                pair.receive(2, &[at_b.piece(5, 4), at_b.piece(4096, LONG)]);
                pair.post(2, SendOperation::Send, &[at_a.piece(1, length)]).unwrap();
                done(&mut pair, 1, 1, &context);
                assert!(at_b.bytes[5..9] == at_a.bytes[1..5], "SEND, {context}");
                assert!(at_b.bytes[4096..4092 + end] == at_a.bytes[5..1 + end], "SEND, {context}");

                let (address, key) = remote(4096);
                pair.post(3, SendOperation::Read { address, key }, &[at_a.piece(20_000, length)]).unwrap();
                done(&mut pair, 1, 0, &context);
                assert!(at_a.bytes[20_000..20_000 + end] == at_b.bytes[4096..4096 + end], "READ, {context}");
            }
            // An allocation of this length is aligned, and so are these iovas.
            at_b.bytes[8..16].copy_from_slice(&41u64.to_ne_bytes());
            let (address, key) = remote(8);
            pair.post(4, SendOperation::FetchAdd { address, key, add: 1 }, &[at_a.piece(8, 8)]).unwrap();
            done(&mut pair, 1, 0, &context);
            assert_eq!(at_a.bytes[8..16], 41u64.to_ne_bytes(), "{context}");
            assert_eq!(at_b.bytes[8..16], 42u64.to_ne_bytes(), "{context}");
        }
    }
}

#[test]
fn memory_that_may_only_be_read_is_a_source() {
    if !own_network::is_here() {
        return;
    }
    for path in [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp] {
        let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
        let target = pair.b.buffer(256, all_rights());
        let (address, length) = (CONSTANT.as_ptr() as u64, CONSTANT.len() as u64);
        let region = pair.a.domain.register(address, length, address, Rights::empty()).unwrap();
        let piece = ScatterGather { address, length: length as u32, key: region.lkey() };
        pair.receive(1, &[target.piece(0, 64)]);
        pair.post(1, SendOperation::Send, &[piece]).unwrap();
        let write = SendOperation::Write { address: target.address + 64, key: target.region.rkey() };
        pair.post(2, write, &[piece]).unwrap();
        done(&mut pair, 2, 1, &format!("{path:?}"));
        assert!(target.bytes[..128].iter().all(|&byte| byte == 0x5A), "{path:?}");
        assert!(target.bytes[128..].iter().all(|&byte| byte == 0), "{path:?}");
    }
}
