//! What back-off and pacing make of a narrow link. The figures in the comments are those of the same runs without
//! pacing, and with READ requests of one length.

use crate::support::host::Packet;
use crate::support::network::{Bottleneck, Pair};
use crate::support::*;
use pagewire_transport::*;

/// Nanoseconds that 1024 bytes take at 1 Gbit/s.
const GIGABIT: u64 = 8192;
const BYTES: u64 = 16 << 20;

struct Result {
    /// Of the link's bandwidth.
    percent: u64,
    overflowed: u64,
}

/// 16 MiB in WRITEs or READs through a bottleneck.
fn bulk(selective: bool, work: WorkRequest, bottleneck: Bottleneck) -> Result {
    let mut pair = Pair::new(lossy(4096), 1);
    if selective {
        pair = pair.selective();
    }
    pair.faults.bottleneck = Some(bottleneck);
    for _ in 0..BYTES / u64::from(work.length) {
        pair.post_zeroed(0, work);
    }
    pair.run_while(u64::MAX / 2, |pair| pair.ends[0].connection.outstanding() > 0);
    assert!(pair.ends.iter().all(|end| !end.host.failed));
    Result { percent: 100 * BYTES * bottleneck.pace / 1024 / pair.now, overflowed: pair.overflowed }
}

#[test]
fn pacing_spares_short_queue() {
    // Go-back-N pays for every burst that is dropped in part: 39 % of the link, 857 packets.
    let bottleneck = Bottleneck { pace: GIGABIT, queue: 16 << 10, delay: 200_000 };
    let outcome = bulk(false, write(0, 65536), bottleneck);
    assert!(outcome.percent > 60 && outcome.overflowed < 200, "{} {}", outcome.percent, outcome.overflowed);
    // Filling gaps alone does well by itself: 74 %, 39 packets.
    let outcome = bulk(true, write(0, 65536), bottleneck);
    assert!(outcome.percent > 70 && outcome.overflowed < 50, "{} {}", outcome.percent, outcome.overflowed);
}

#[test]
fn a_link_that_holds_the_window_is_filled() {
    for selective in [false, true] {
        for work in [write(0, 65536), read(0, 65536), read(0, 1 << 20)] {
            let outcome =
                bulk(selective, work, Bottleneck { pace: GIGABIT, queue: 192 << 10, delay: 200_000 });
            assert!(outcome.percent > 95 && outcome.overflowed == 0, "{work:?}: {}", outcome.percent);
        }
    }
}

#[test]
fn reads_ask_for_no_more_than_the_window() {
    // The responses to a request of 64 KiB overran the queue each time, whatever the window: 6,368 packets, or 6,144
    // with go-back-N, whose time goes to waiting for timeouts.
    for (selective, percent) in [(true, 30), (false, 0)] {
        for length in [1 << 16, 1 << 20] {
            let bottleneck = Bottleneck { pace: GIGABIT, queue: 16 << 10, delay: 0 };
            let outcome = bulk(selective, read(0, length), bottleneck);
            assert!(outcome.percent >= percent, "{selective} {length}: {} %", outcome.percent);
            assert!(outcome.overflowed < 1000, "{selective} {length}: {}", outcome.overflowed);
        }
    }
}

/// Packets that the first end sent at each point in time.
fn bursts(pair: &Pair) -> Vec<(u64, u64)> {
    let mut bursts: Vec<(u64, u64)> = Vec::new();
    for (time, from, packet) in &pair.log {
        if *from == 0 && matches!(packet, Packet::Standard { .. }) {
            match bursts.last_mut() {
                Some((last, count)) if last == time => *count += 1,
                _ => bursts.push((*time, 1)),
            }
        }
    }
    bursts
}

#[test]
fn nothing_is_paced_until_the_network_says_so() {
    let mut pair = Pair::new(lossy(4096), 1);
    pair.keep_log = true;
    pair.faults.bottleneck = Some(Bottleneck { pace: GIGABIT, queue: 1 << 20, delay: 1_000_000 });
    let window = u64::from(limits::INITIAL_IN_FLIGHT) / 4096;
    pair.post_zeroed(0, write(0, limits::INITIAL_IN_FLIGHT));
    pair.run(u64::MAX / 2);
    assert_eq!(bursts(&pair), [(0, window)]);

    // The window has doubled (slow start). A congestion notification: half of that, spread over the round trip.
    pair.log.clear();
    let end = &mut pair.ends[0];
    let cnp = pagewire_wire::cnp::Cnp { destination: 0x11, partition: 0xffff }.header();
    let outcome = end.connection.receive(Time(pair.now), &cnp, Payload::Bytes(&[&[0; 16]]), &mut end.host);
    assert!(!outcome.is_held());
    pair.post_zeroed(0, write(0, 2 * limits::INITIAL_IN_FLIGHT));
    // Before anything comes back.
    pair.run(pair.now + 2_000_000);
    let bursts = bursts(&pair);
    assert_eq!(bursts.iter().map(|burst| burst.1).sum::<u64>(), window);
    assert!(bursts.iter().all(|burst| burst.1 <= limits::BURST + 1), "{bursts:?}");
}
