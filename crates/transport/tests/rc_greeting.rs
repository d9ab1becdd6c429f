//! The peer turns out to be a Pagewire, or a standard one, while requests are under way.

mod support;

use support::network::Pair;
use support::*;

/// Sends messages over a bad network and changes both ends' opinion of each other at a time.
fn change_of_mind(seed: u64, becomes_selective: bool) {
    let mut pair = Pair::new(lossy(4096), seed);
    if !becomes_selective {
        pair = pair.selective();
    }
    pair.faults.loss = 0.15;
    for index in 0..4 {
        pair.post_zeroed(0, write(index << 19, 300_000));
        pair.post_zeroed(0, read(index << 19, 100_000));
    }
    let change = pair.random.u64(0..20_000_000);
    pair.run(change);
    for end in &mut pair.ends {
        end.connection.set_selective(becomes_selective);
    }
    // Whatever had gone wrong before, from now on nothing is lost.
    pair.faults.loss = 0.0;
    pair.run_while(u64::MAX / 2, |pair| pair.ends[0].connection.outstanding() > 0);
    let end = &pair.ends[0];
    assert!(!end.host.failed && !end.connection.is_dead(), "seed {seed}: given up after {change} ns");
    assert_eq!(end.connection.outstanding(), 0, "seed {seed}: stuck");
}

#[test]
fn what_a_go_back_has_not_repeated_is_repeated_when_gaps_are_filled_from_now_on() {
    (0..300).for_each(|seed| change_of_mind(seed, true));
}

#[test]
fn gaps_that_were_to_be_filled_are_gone_back_to_when_they_no_longer_are() {
    (0..300).for_each(|seed| change_of_mind(seed, false));
}
