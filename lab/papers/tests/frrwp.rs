//! FRRWP's model: the event model agrees with the rule, and the strategies do what their names say.

use pagewire_papers::frrwp::{
    Direction, Eviction, Exchange, Order, Sequence, Strategy, Timeline, mean, overlap, run,
};
use pagewire_papers::unit_costs::FrrwpCosts;
use proptest::prelude::*;

const COSTS: FrrwpCosts = FrrwpCosts::PAPER;
const LRU: Strategy = Strategy::Cache(Eviction::LeastRecentlyUsed);

fn exchange(direction: Direction, order: Order, (client, server): (u64, u64)) -> Timeline {
    run(&COSTS, &Exchange { direction, order, client, server, bytes: 65_536 })
}

fn part(timeline: &Timeline, name: &str) -> (u64, u64) {
    let part = timeline.parts.iter().find(|part| part.0 == name).expect(name);
    (part.1, part.2)
}

/// FRRWP-1: the two registrations lie beside each other, in the traditional order one after the other.
#[test]
fn frrwp_1_registrations_overlap() {
    for direction in [Direction::Write, Direction::Read] {
        let both = |order| {
            let timeline = exchange(direction, order, (50_000, 50_000));
            (part(&timeline, "client registers"), part(&timeline, "server registers"))
        };
        let (client, server) = both(Order::Frrwp);
        assert!(client.0 < server.1 && server.0 < client.1, "{client:?} {server:?}");
        let (client, server) = both(Order::Traditional);
        assert!(client.1 < server.0, "{client:?} {server:?}");
    }
}

/// FRRWP-2: the write leaves as soon as the rkey is with the driver, without T1 to T3 of the application.
#[test]
fn frrwp_2_a_held_write_starts_with_the_rkey() {
    let held = exchange(Direction::Write, Order::Frrwp, (1_000, 50_000));
    assert_eq!(part(&held, "RDMA write").0, part(&held, "rkey").1);
    let asked = exchange(Direction::Write, Order::Traditional, (1_000, 50_000));
    assert_eq!(part(&asked, "RDMA write").0, part(&asked, "rkey").1 + COSTS.conditional());
}

/// FRRWP-3: T = 0.77 p + 7.42 us, and 21.42 + 0.77 p where both sides register as long.
#[test]
fn frrwp_3_the_papers_sum_holds_where_both_register_as_long() {
    for pages in [1, 32, 1_024] {
        let registration = COSTS.fast(pages);
        assert_eq!(registration, 770 * pages + 7_420);
        assert_eq!(overlap(&COSTS, Direction::Write, registration, registration), 21_420 + 770 * pages);
    }
}

proptest! {
    /// The rule is what the events lead to, for all registrations and latencies.
    #[test]
    fn frrwp_3_the_rule_is_what_the_events_lead_to(
        client in 0..2_000_000_u64,
        server in 0..2_000_000_u64,
        latency in 0..50_000_u64,
        crossing in 0..20_000_u64,
        completion in 0..20_000_u64,
        bytes in 1..10_000_000_u64,
    ) {
        let costs = FrrwpCosts { latency, crossing, completion, ..COSTS };
        for direction in [Direction::Write, Direction::Read] {
            let end = |order| run(&costs, &Exchange { direction, order, client, server, bytes }).end;
            let saved = end(Order::Traditional) - end(Order::Frrwp);
            prop_assert_eq!(saved, overlap(&costs, direction, client, server));
        }
    }

    /// What fits is registered once.
    #[test]
    fn frrwp_4_a_cache_that_is_large_enough_costs_nothing(buffers in 1..90_usize) {
        for eviction in [Eviction::LeastRecentlyUsed, Eviction::SizeAndRecency] {
            let mean = mean(&COSTS, Strategy::Cache(eviction), Sequence::Cyclic, buffers);
            prop_assert_eq!(mean, 0.0);
        }
    }
}

/// FRRWP-4: LRU loses each buffer of a cycle that does not fit; MRRC keeps the small ones.
#[test]
fn frrwp_4_a_cycle_is_the_worst_case_of_lru() {
    let cyclic = |strategy| mean(&COSTS, strategy, Sequence::Cyclic, 200);
    assert_eq!(cyclic(LRU), cyclic(Strategy::Fast));
    assert!(cyclic(Strategy::Cache(Eviction::SizeAndRecency)) < cyclic(LRU));
}

#[test]
fn frrwp_4_strategies_are_in_the_order_that_their_costs_make() {
    for sequence in [Sequence::Skewed, Sequence::Uniform, Sequence::Cyclic] {
        for buffers in [16, 256, 2_048] {
            let of = |strategy| mean(&COSTS, strategy, sequence, buffers);
            assert!(of(LRU) <= of(Strategy::Fast) && of(Strategy::Fast) < of(Strategy::OnDemand));
            assert!(of(Strategy::Batched) <= of(LRU) && of(LRU) <= of(Strategy::Firehose));
            assert!(of(Strategy::Group) < of(Strategy::Pieces), "{sequence:?} {buffers}");
        }
    }
}

/// Deregistrations in a batch spare the part of b that is theirs; of that part the text says nothing.
#[test]
fn frrwp_4_a_batch_spares_what_a_deregistration_costs() {
    let missing = |deregistration_percent| {
        let costs = FrrwpCosts { deregistration_percent, ..COSTS };
        let of = |strategy| mean(&costs, strategy, Sequence::Cyclic, 2_048);
        of(LRU) - of(Strategy::Batched)
    };
    assert_eq!(missing(0), 0.0);
    let all = missing(100);
    assert!((all - 7_420.0 * 15.0 / 16.0).abs() < 1.0, "{all}");
    assert!(missing(50) > 0.0 && missing(50) < all);
}

/// Copies are cheaper than fast registration of a small buffer, and dearer for a large one, at either assumed rate.
#[test]
fn frrwp_4_copies_pay_for_small_buffers() {
    for copy in [1_000, 4_000] {
        let costs = FrrwpCosts { copy, ..COSTS };
        assert!(costs.copied(4_096) < costs.fast(1));
        assert!(copy == 4_000 || costs.copied(32 * 4_096) > costs.fast(32));
    }
}
