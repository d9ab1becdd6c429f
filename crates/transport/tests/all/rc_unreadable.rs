//! Inside a host, requests whose bytes cannot be read where they lie: the requester is asked for them again.

use crate::support::network::{DELAY, Pair};
use crate::support::rules::*;
use crate::support::*;
use pagewire_transport::*;

const LENGTH: u32 = 100_000;
/// Bytes that a packet carries itself.
const PART: u32 = 16_384;

/// Two ends that lose nothing and wait for ever.
fn patient() -> Pair {
    patient_from(0x100)
}

fn patient_from(psn: u32) -> Pair {
    let link = Link { response_mtu: PART, ..local(false) };
    let requester = RequesterSettings { timeout: 0, ..requester(psn) };
    Pair::with(settings(link, 0x22, psn), requester, settings(link, 0x11, 0x200), requester, 1)
}

fn bytes() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 64 * 7 + at) as u8).collect()
}

#[test]
fn unreadable_bytes_are_requested_again() {
    for work in [send(LENGTH), write(4096, LENGTH), write_immediate(4096, LENGTH, 7)] {
        for times in [1, 2, 3, 50] {
            let mut pair = patient();
            (0..2).for_each(|_| pair.ends[1].host.post_receive(1 << 20));
            pair.post(0, work, bytes());
            pair.post(0, send(8), vec![5; 8]);
            pair.unreadable = times;
            // There and back, each time.
            pair.run((times as u64 + 3) * 2 * DELAY);
            assert_eq!(statuses(&pair, 0), [Status::Success; 2], "{work:?}, {times} times");
            assert_eq!(pair.unreadable, 0);
            let host = &pair.ends[1].host;
            let arrived = match work.operation {
                WorkOperation::Write { .. } => host.memory.borrow()[4096..][..LENGTH as usize].to_vec(),
                _ => host.received[0].bytes.clone(),
            };
            assert!(arrived == bytes());
            assert_eq!(host.received.last().map(|message| &message.bytes[..]), Some(&[5; 8][..]));
        }
    }
}

/// It was told before that there is no receive.
#[test]
fn unreadable_bytes_repeat_after_rnr() {
    let mut pair = patient();
    pair.post(0, send(LENGTH), bytes());
    pair.run(3 * DELAY);
    assert!(statuses(&pair, 0).is_empty());
    pair.unreadable = 2;
    pair.ends[1].host.post_receive(1 << 20);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
    assert!(pair.ends[1].host.received[0].bytes == bytes());
}

/// Memory of which only its owner can read the bytes: they travel themselves, in parts.
#[test]
fn what_the_peer_can_never_read_travels_in_parts() {
    let one_part = bytes()[..PART as usize].to_vec();
    for first in [0x100, 0xff_fffd, 0xff_fff0] {
        let mut pair = patient_from(first);
        (0..8).for_each(|_| pair.ends[1].host.post_receive(1 << 20));
        pair.ends[1].host.memory.borrow_mut()[500_000..600_000].copy_from_slice(&bytes());
        (pair.unreadable, pair.unreadable_from) = (usize::MAX, PART as usize + 1);
        pair.post(0, read(500_000, LENGTH), vec![0; LENGTH as usize]);
        pair.post(0, send(8), vec![5; 8]);
        pair.post(0, send(LENGTH), bytes());
        pair.post(0, write(4096, LENGTH), bytes());
        pair.post(0, send(PART), one_part.clone());
        pair.post(0, fetch_add(8, 3), vec![0; 8]);
        pair.post(0, read(500_000, LENGTH), vec![0; LENGTH as usize]);
        pair.post(0, write_immediate(200_000, LENGTH, 7), bytes());
        pair.post(0, send(2 * PART), bytes()[..2 * PART as usize].to_vec());
        pair.post(0, send(8), vec![6; 8]);
        pair.run(FOREVER);
        assert_eq!(statuses(&pair, 0), [Status::Success; 10], "from PSN {first:#x}");
        assert_eq!(usize::MAX - pair.unreadable, 4, "each long message is tried as a whole once");
        let host = &pair.ends[1].host;
        let received: Vec<&[u8]> = host.received.iter().map(|message| &message.bytes[..]).collect();
        let two_parts = &bytes()[..2 * PART as usize];
        assert!(received == [&[5; 8][..], &bytes(), &one_part, &[], two_parts, &[6; 8]]);
        assert_eq!(host.received[3].result.as_ref().map(|arrival| arrival.length), Ok(LENGTH));
        for at in [4096, 200_000] {
            assert!(host.memory.borrow()[at..][..LENGTH as usize] == bytes());
        }
        assert_eq!(host.atomics_run, 1);
        for id in [0, 6] {
            assert!(pair.ends[0].host.buffers[&WorkId(id)] == bytes());
        }
    }
}

#[test]
fn a_peer_that_asks_for_the_same_again_for_ever_is_given_up() {
    let mut pair = patient();
    pair.ends[1].host.post_receive(1 << 20);
    pair.post(0, send(LENGTH), bytes());
    pair.post(0, send(8), vec![5; 8]);
    pair.unreadable = usize::MAX;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(usize::MAX - pair.unreadable, limits::LOSSLESS_REPETITIONS as usize + 1);
}
