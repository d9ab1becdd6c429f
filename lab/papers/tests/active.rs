//! The model of Active Access: the hash table as events, the translation buffer, and what follows from unit costs alone.

use pagewire_papers::active::{
    Buffer, Counting, Load, Logging, Scheme, Stream, TOPOLOGIES, TableOutcome, run,
};
use pagewire_papers::translation::Eviction;
use pagewire_papers::unit_costs::ActiveCosts;
use proptest::prelude::*;
use std::collections::VecDeque;

const COSTS: ActiveCosts = ActiveCosts::PAPER;
const SCHEMES: [Scheme; 9] = [
    Scheme::AaInt(10),
    Scheme::AaPoll,
    Scheme::AaSp,
    Scheme::Rma,
    Scheme::Am,
    Scheme::AmExp,
    Scheme::AmOnload(8),
    Scheme::AmInts(10),
    Scheme::AmAggregated,
];

fn load(scheme: Scheme) -> Load {
    Load { scheme, processes: 64, inserts: 50, collisions: 50, computation: 0, buffer: None, seed: 7 }
}

/// Every insert is done, whoever does it, and once.
#[test]
fn no_scheme_loses_an_insert() {
    for scheme in SCHEMES {
        for (processes, inserts) in [(32, 1), (64, 33), (128, 7)] {
            let done = run(&COSTS, &Load { processes, inserts, ..load(scheme) });
            let idle = if let Scheme::AmOnload(count) = scheme { count * processes / 32 } else { 0 };
            assert_eq!(done.inserts, (processes - idle) as u64 * inserts, "{}", scheme.name());
            assert!(done.end > 0);
        }
    }
}

/// A process alone with the other one of its messages: the sum of what each insert takes at both ends.
#[test]
fn an_insert_takes_what_its_parts_take() {
    let rate = |scheme| {
        run(&COSTS, &Load { processes: 32, inserts: 2_000, collisions: 0, ..load(scheme) }).rate() / 32.0
    };
    let near = |rate: f64, nanoseconds: u64| (rate * nanoseconds as f64 / 1e9 - 1.0).abs() < 0.03;
    let poll = COSTS.message + COSTS.insert + COSTS.iommu + 2 * COSTS.memory;
    assert!(near(rate(Scheme::AaPoll), poll), "{}", rate(Scheme::AaPoll));
    let interrupt = COSTS.message + COSTS.insert + COSTS.iommu + COSTS.memory + COSTS.interrupt / 10;
    assert!(near(rate(Scheme::AaInt(10)), interrupt), "{}", rate(Scheme::AaInt(10)));
}

#[test]
fn collisions_and_computation_cost_time() {
    let end = |load: Load| run(&COSTS, &load).end;
    for scheme in SCHEMES {
        let none = end(Load { collisions: 0, ..load(scheme) });
        assert!(none < end(Load { collisions: 1_000, ..load(scheme) }), "{}", scheme.name());
        assert!(none < end(Load { computation: 10_000, ..load(scheme) }), "{}", scheme.name());
    }
}

#[test]
fn a_buffer_that_misses_costs_its_walks() {
    let with = |buffer| -> TableOutcome { run(&COSTS, &Load { buffer, ..load(Scheme::AaPoll) }) };
    let (none, small, large) = (
        with(None),
        with(Some((16, 16, Eviction::LeastRecentlyUsed))),
        with(Some((1_024, 1_024, Eviction::LeastRecentlyUsed))),
    );
    assert_eq!((none.look_ups, small.look_ups.0), ((0, 0), 2 * 64 * 50));
    assert!(small.look_ups.1 > large.look_ups.1 && large.look_ups.1 > 64 * 45);
    assert!(none.end < large.end && large.end < small.end);
}

/// What a model of one list says of a fully associative buffer, and of each set of another one.
fn misses_by_list(entries: usize, ways: usize, pages: &[u64]) -> Vec<bool> {
    let count = entries / ways;
    let mut sets = vec![VecDeque::new(); count];
    let mut look = |page: u64| {
        let set: &mut VecDeque<u64> = &mut sets[(page % count as u64) as usize];
        let at = set.iter().position(|known| *known == page);
        if let Some(at) = at {
            set.remove(at);
        }
        set.push_front(page);
        set.truncate(ways);
        at.is_none()
    };
    pages.iter().map(|&page| look(page)).collect()
}

proptest! {
    #[test]
    fn lru_is_what_a_list_says(pages in prop::collection::vec(0_u64..60, 1..400), bits in 0_u32..6, way_bits in 0_u32..6) {
        let (entries, ways) = (1 << bits, 1 << way_bits.min(bits));
        let mut buffer = Buffer::new(entries, ways, Eviction::LeastRecentlyUsed).unwrap();
        let misses: Vec<bool> = pages.iter().map(|&page| buffer.misses(page)).collect();
        prop_assert_eq!(misses, misses_by_list(entries, ways, &pages));
    }

    /// More entries never miss more, where the buffer is fully associative.
    #[test]
    fn a_larger_lru_buffer_has_all_that_a_smaller_one_has(pages in prop::collection::vec(0_u64..100, 1..400), small in 1_usize..40, more in 0_usize..40) {
        let mut buffers = [small, small + more].map(|entries| Buffer::new(entries, entries, Eviction::LeastRecentlyUsed).unwrap());
        for page in pages {
            let [few, many] = buffers.each_mut().map(|buffer| buffer.misses(page));
            prop_assert!(few || !many);
        }
    }

    /// A page just looked up is there; nothing is found that was not looked up; as many distinct pages as entries all stay, if they share no set.
    #[test]
    fn random_eviction_evicts_only_where_a_set_is_full(pages in prop::collection::vec(0_u64..64, 1..300), seed: u64, ways in prop::sample::select(vec![1_usize, 2, 4, 64])) {
        let mut buffer = Buffer::new(64, ways, Eviction::Random { seed }).unwrap();
        let mut known = std::collections::HashSet::new();
        for page in pages {
            prop_assert_eq!(buffer.misses(page), known.insert(page));
            prop_assert!(!buffer.misses(page));
        }
    }

    #[test]
    fn each_way_to_count_or_log_costs_something(processes in 2_usize..2_000, bytes in 1_u64..100_000) {
        for (name, counting) in Counting::ALL {
            prop_assert!(counting.rate(&COSTS, processes) <= Counting::None.rate(&COSTS, processes), "{name}");
        }
        for (name, logging) in Logging::ALL {
            prop_assert!(logging.time(&COSTS, bytes) >= Logging::None.time(&COSTS, bytes), "{name}");
            prop_assert!(logging.bytes(&COSTS, bytes) >= Logging::None.bytes(&COSTS, bytes), "{name}");
        }
        for stream in [Stream::Packets, Stream::Udp, Stream::Tcp] {
            prop_assert!(stream.rate(&COSTS, bytes, true) < stream.rate(&COSTS, bytes, false));
        }
    }
}

#[test]
fn sizes_that_no_buffer_has_are_errors() {
    assert!(Buffer::new(0, 1, Eviction::LeastRecentlyUsed).is_err());
    assert!(Buffer::new(10, 4, Eviction::LeastRecentlyUsed).is_err());
}

/// What the reason of figure 7c says: the mean with one eviction lies among the runs with the other one, whatever the buffer.
#[test]
fn eviction_decides_less_than_a_run() {
    let figures = pagewire_papers::figures(pagewire_papers::Paper::Active);
    let place = pagewire_papers::Place::Panel(7, 'c');
    let figure = figures.iter().find(|figure| figure.place == place).expect("figure 7c");
    let curve = |name: String| figure.curves.iter().find(|curve| curve.name == name).expect("a curve");
    let mut signs = std::collections::BTreeSet::new();
    for ways in ["a2", "a4", "af"] {
        let (lru, random) = (curve(format!("lru_{ways}")), curve(format!("rnd_{ways}")));
        for (index, (entries, rate)) in lru.points.iter().enumerate() {
            let ratio = rate / random.points[index].1;
            signs.insert(ratio > 1.0);
            assert!((0.93..1.07).contains(&ratio), "{ways}, {entries}: {ratio}");
        }
        let spread = |(_, least, most): &(f64, f64, f64)| most / least - 1.0;
        assert!(lru.intervals.iter().map(spread).fold(0.0, f64::max) > 0.04, "{ways}");
    }
    assert_eq!(signs.len(), 2, "now one is better, now the other one");
}

/// The link is the bound: no stream is faster than 1 Gb/s, and full frames come near it.
#[test]
fn streams_keep_to_the_link() {
    for stream in [Stream::Packets, Stream::Udp, Stream::Tcp] {
        for bytes in [1, 60, 1_448, 1_514] {
            assert!(stream.rate(&COSTS, bytes, false) <= 125.0);
        }
        assert!(stream.rate(&COSTS, 1_448, false) > 110.0);
    }
}

/// Energy goes with the routers of a path and the bytes that pass them.
#[test]
fn a_byte_costs_more_on_longer_paths() {
    for topology in TOPOLOGIES {
        assert!(topology.routers > 1.0);
        let [none, active, am, rma] =
            Logging::ALL.map(|(_, logging)| topology.energy(&COSTS, logging, 4_096));
        assert!(none == active && active < am && am < rma, "{}", topology.name);
    }
}
