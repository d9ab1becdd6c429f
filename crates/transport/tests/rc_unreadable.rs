//! Inside a host, requests whose bytes cannot be read where they lie: the requester is asked for them again.

mod support;

use pagewire_transport::*;
use support::network::{DELAY, Pair};
use support::rules::*;
use support::*;

const LENGTH: u32 = 100_000;

/// Two ends that lose nothing and wait for ever.
fn patient() -> Pair {
    let link = local(false);
    let requester = RequesterSettings { timeout: 0, ..requester(0x100) };
    Pair::with(settings(link, 0x22, 0x100), requester, settings(link, 0x11, 0x200), requester, 1)
}

fn bytes() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 64 * 7 + at) as u8).collect()
}

#[test]
fn each_time_that_bytes_cannot_be_read_they_are_asked_for() {
    for work in [send(LENGTH), write(4096, LENGTH), write_immediate(4096, LENGTH, 7)] {
        for times in [1, 2, 3, 50] {
            let mut pair = patient();
            (0..2).for_each(|_| pair.ends[1].host.post_receive(1 << 20));
            pair.post(0, work, bytes());
            pair.post(0, send(8), vec![5; 8]);
            pair.unreadable = times;
            // There and back, each time.
            pair.run((times as u64 + 2) * 2 * DELAY);
            assert_eq!(statuses(&pair, 0), [Status::Success; 2], "{work:?}, {times} times");
            assert_eq!(pair.unreadable, 0);
            let host = &pair.ends[1].host;
            let arrived = match work.operation {
                Operation::Write { .. } => host.memory.borrow()[4096..][..LENGTH as usize].to_vec(),
                _ => host.received[0].bytes.clone(),
            };
            assert!(arrived == bytes());
            assert_eq!(host.received.last().map(|message| &message.bytes[..]), Some(&[5; 8][..]));
        }
    }
}

/// It was told before that there is no receive.
#[test]
fn nor_does_it_matter_what_else_it_was_asked_for_before() {
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

#[test]
fn what_can_never_be_read_is_given_up() {
    let mut pair = patient();
    pair.ends[1].host.post_receive(1 << 20);
    pair.post(0, send(LENGTH), bytes());
    pair.post(0, send(8), vec![5; 8]);
    pair.unreadable = usize::MAX;
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(usize::MAX - pair.unreadable, limits::UNREADABLE_REPETITIONS as usize + 1);
}
