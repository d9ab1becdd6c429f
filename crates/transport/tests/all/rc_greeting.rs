//! The peer turns out to be a Pagewire, or a standard one, while requests are under way.

use crate::support::network::Pair;
use crate::support::rules::{FOREVER, logged, sent, statuses};
use crate::support::*;
use pagewire_transport::Status;

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

/// A peer that says nothing, while it is not known yet what it is: its greeting may be lost as well.
fn silent(pair: &mut Pair) {
    pair.faults.loss = 1.0;
    pair.post_zeroed(0, write(0, 100));
    for end in &mut pair.ends {
        end.connection.set_greeting(true);
    }
    // Many times as long as the acknowledgement timeout, 67 ms, eight times.
    pair.run(5_000_000_000);
    assert_eq!(statuses(pair, 0), [], "it may be a Pagewire yet");
    // As many as a standard peer would be sent, no more.
    assert_eq!(sent(pair, 0).len(), 8);
}

#[test]
fn a_peer_is_not_given_up_before_it_is_known_what_it_is() {
    let mut pair = logged(Pair::new(lossy(1024), 1));
    silent(&mut pair);
    pair.faults.loss = 0.0;
    for end in &mut pair.ends {
        end.connection.set_greeting(false);
        end.connection.set_selective(true);
    }
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::Success]);
}

#[test]
fn a_peer_that_proves_a_standard_one_is_given_up() {
    let mut pair = logged(Pair::new(lossy(1024), 1));
    silent(&mut pair);
    pair.ends[0].connection.set_greeting(false);
    pair.run(FOREVER);
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded]);
    assert_eq!(sent(&pair, 0).len(), 8);
}
