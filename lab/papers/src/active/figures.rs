//! The figures of the evaluation, as the model predicts them.

use super::counter::Counting;
use super::gets::Logging;
use super::power::{TOPOLOGIES, card};
use super::streams::{Stream, single_inserter};
use super::table::{Load, Scheme, run};
use crate::figure::{Axis, Curve, Figure, Place, Shape};
use crate::right_axis::RightAxis;
use crate::translation::Eviction;
use crate::unit_costs::ActiveCosts;

/// Of the random numbers of all runs but those of figure 7c, which has several.
const SEED: u64 = 7;
const SEEDS: u64 = 5;
/// Processes of the figures of section 5.2.
pub(super) const PROCESSES: [usize; 5] = [32, 64, 128, 256, 512];
/// What the numbers and the figures by another axis are of.
pub(super) const FEW: usize = 64;
/// Collisions of a thousand inserts, in figures by collision ratio.
const COLLISIONS: [u64; 8] = [0, 50, 100, 250, 400, 500, 750, 1_000];
/// Computation ratios in percent: 0 to 95 (5.2.1).
const COMPUTATION: [u64; 6] = [0, 25, 50, 75, 90, 95];
/// Entries of a translation buffer: assumption, as no text gives any.
pub(super) const ENTRIES: [usize; 7] = [16, 32, 64, 128, 256, 512, 1_024];
/// Bytes of a get of the sort.
const SIZES: [u64; 5] = [8, 64, 512, 4_096, 32_768];
/// Processes that handle, in figure 6d.
pub(super) const ONLOADS: [usize; 12] = [1, 4, 8, 11, 14, 16, 18, 20, 22, 24, 28, 31];

const ASSUMED: &str = "assumed, as no text gives them: a message 1 us to send and 1 us to take out, 1.5 us from card to card, 0.2 us for a look, 0.3 us for \
    an insert, 0.2 us for a card's operation, looks of AM each 5 us, 64 messages under way, 6 doublings of AM-Exp; the numbers have each halved and \
    doubled";
const EMULATED: &str =
    "as in the paper's emulation, what the IOMMU does stalls the owner; a put is one message, an atomic two";
const ORDER: &str = "AM-Aggregated (64 inserts a message) is ours; AM-Onload has 11 of 32 processes handle; interrupts come for each 10";
const OPERATIONS: &str = "each of the 7 operations of an insert that collides costs the same: atomics that wait for each other at one cell are not modelled";
const DELAY: &str =
    "an upper bound: the 75 ns of the IOMMU are hidden by no other frame; the text has no size of a packet";
const LINK: &str =
    "frames of the least size; of RMA several inserts are under way, each operation a frame each way";
const COMPUTED: &str = "the same computation for all schemes, so that it is this part of the run time of AA-Poll; 5 % collisions, 64 processes";
const BUFFERS: &str = "AA-Poll on one node of 32 processes, 5 % collisions; assumed: pages of 4 KB, cells of 16 bytes, walks of 4 accesses, and that each put \
    looks up the page of its log, too; elements are uniformly random, so that only the pages of the logs come again soon; means of five seeds, and their least and most";
const SUMS: &str = "Allreduce after each 16 accesses: assumption";
const LOGS: &str = "assumed: 160 bytes a microsecond for each of 32 processes; RMA reserves space by an atomic, puts and flushes";
const ENERGY: &str = "relative: the text has no power of a card or a router; by bytes with headers of 32 bytes (assumption), gets of 4 KB";
const PATHS: &str = "assumed: 4,096 endpoints, shortest paths, the same energy for a byte at each router";

const COUNT: Axis = Axis { label: "processes", logarithmic: true };
const RATE: Axis = Axis { label: "inserts/s", logarithmic: true };
const COLLIDE: Axis = Axis { label: "% of inserts that collide", logarithmic: false };

/// Those of the paper's figures 7a and 7b, and one of our own.
pub(super) const SCHEMES: [Scheme; 9] = [
    Scheme::AaInt(10),
    Scheme::AaPoll,
    Scheme::AaSp,
    Scheme::Rma,
    Scheme::Am,
    Scheme::AmExp,
    Scheme::AmOnload(0),
    Scheme::AmInts(10),
    Scheme::AmAggregated,
];

/// A scheme of [`SCHEMES`]; AM-Onload with the number of processes that the paper found best.
fn of_paper(costs: &ActiveCosts, scheme: Scheme) -> Scheme {
    match scheme {
        Scheme::AmOnload(0) => Scheme::AmOnload(costs.onloaded()),
        other => other,
    }
}

/// Associativities and evictions of figure 7c.
pub(super) const BUFFER_KINDS: [(&str, usize, Eviction); 8] = [
    ("lru_a1", 1, Eviction::LeastRecentlyUsed),
    ("lru_a2", 2, Eviction::LeastRecentlyUsed),
    ("lru_a4", 4, Eviction::LeastRecentlyUsed),
    ("lru_af", usize::MAX, Eviction::LeastRecentlyUsed),
    ("rnd_a1", 1, Eviction::Random { seed: 7 }),
    ("rnd_a2", 2, Eviction::Random { seed: 7 }),
    ("rnd_a4", 4, Eviction::Random { seed: 7 }),
    ("rnd_af", usize::MAX, Eviction::Random { seed: 7 }),
];

/// All of them, in the order of the paper.
pub fn all(costs: &ActiveCosts) -> Vec<Figure> {
    let sort = sort(costs);
    let less = sort.right(RightAxis::Less, "communication time of AA less than that of others");
    vec![
        by_collisions(costs),
        packets(costs),
        streams(costs),
        inserter(costs),
        onloaded(costs),
        by_processes(costs, 'a', 50, "hash table: inserts by processes, 5 % collisions"),
        by_processes(costs, 'b', 250, "hash table: inserts by processes, 25 % collisions"),
        buffers(costs),
        counter(costs),
        cards(costs),
        routers(costs),
        logged_gets(costs),
        sort,
        less,
        by_computation(costs),
    ]
}

/// Inserts a second of the table, each process making enough that the start does not count.
pub(super) fn rate(
    costs: &ActiveCosts,
    scheme: Scheme,
    processes: usize,
    collisions: u64,
    computation: u64,
) -> f64 {
    let scheme = of_paper(costs, scheme);
    run(costs, &Load { scheme, processes, inserts: 32, collisions, computation, buffer: None, seed: SEED })
        .rate()
}

/// Inserts a second of one node over so many inserts that an interrupt each 100 comes often.
pub(super) fn long_rate(costs: &ActiveCosts, scheme: Scheme) -> f64 {
    let load = Load {
        scheme,
        processes: 32,
        inserts: 600,
        collisions: 50,
        computation: 0,
        buffer: None,
        seed: SEED,
    };
    run(costs, &load).rate()
}

fn curve(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Curve {
    Curve::computed(name, || points.collect())
}

fn percent(thousandths: u64) -> f64 {
    thousandths as f64 / 10.0
}

fn by_collisions(costs: &ActiveCosts) -> Figure {
    let points = COLLISIONS.iter().map(|&part| (percent(part), rate(costs, Scheme::Rma, FEW, part, 0)));
    Figure::drawn(
        Place::Figure(1),
        "inserts by RMA, 64 processes",
        (COLLIDE, RATE),
        vec![curve("RMA", points)],
    )
    .noted(&[ASSUMED, OPERATIONS])
}

fn packets(costs: &ActiveCosts) -> Figure {
    let rate = |bytes, has_iommu| Stream::Packets.rate(costs, bytes, has_iommu);
    Figure::of(
        Place::Panel(6, 'a'),
        "packets over 1 Gb/s, with and without the extended IOMMU",
        (Axis::BYTES, Axis { label: "MB/s", logarithmic: false }),
        &[60, 128, 256, 512, 1_024, 1_514],
        vec![("no-iommu", &|bytes| rate(bytes, false)), ("e-iommu", &|bytes| rate(bytes, true))],
    )
    .noted(&[DELAY])
}

fn streams(costs: &ActiveCosts) -> Figure {
    let rate = |stream: Stream, bytes, has_iommu| stream.rate(costs, bytes, has_iommu);
    Figure::of(
        Place::Panel(6, 'b'),
        "streams over 1 Gb/s, by message, with and without the extended IOMMU",
        (Axis::BYTES, Axis { label: "MB/s", logarithmic: false }),
        &[64, 256, 1_024, 4_096, 16_384, 65_536],
        vec![
            ("TCP, no-iommu", &|bytes| rate(Stream::Tcp, bytes, false)),
            ("TCP, e-iommu", &|bytes| rate(Stream::Tcp, bytes, true)),
            ("UDP, no-iommu", &|bytes| rate(Stream::Udp, bytes, false)),
            ("UDP, e-iommu", &|bytes| rate(Stream::Udp, bytes, true)),
        ],
    )
    .noted(&[DELAY])
}

fn inserter(costs: &ActiveCosts) -> Figure {
    let both = |part: u64| single_inserter(costs, part);
    let points =
        |of: fn((f64, f64)) -> f64| COLLISIONS.iter().map(move |&part| (percent(part), of(both(part))));
    let curves = vec![curve("AA", points(|both| both.0)), curve("RMA", points(|both| both.1))];
    Figure::drawn(Place::Panel(6, 'c'), "inserts of one process over 1 Gb/s", (COLLIDE, RATE), curves)
        .noted(&[LINK, ASSUMED])
}

fn onloaded(costs: &ActiveCosts) -> Figure {
    let at = |count| (count as f64, rate(costs, Scheme::AmOnload(count), FEW, 50, 0));
    let points = ONLOADS.into_iter().map(at);
    let axis = Axis { label: "processes of 32 that handle", logarithmic: false };
    let curves = vec![curve("AM-Onload", points)];
    Figure::drawn(
        Place::Panel(6, 'd'),
        "AM-Onload by processes that only handle, 5 % collisions",
        (axis, RATE),
        curves,
    )
    .noted(&[ASSUMED])
}

fn by_processes(costs: &ActiveCosts, letter: char, collisions: u64, title: &'static str) -> Figure {
    let points = |scheme| {
        PROCESSES.into_iter().map(move |count| (count as f64, rate(costs, scheme, count, collisions, 0)))
    };
    let curves = SCHEMES.iter().map(|&scheme| curve(scheme.name(), points(scheme))).collect();
    Figure::drawn(Place::Panel(7, letter), title, (COUNT, RATE), curves).noted(&[ASSUMED, EMULATED, ORDER])
}

/// Inserts a second with a translation buffer of so many entries, one rate for each seed: the buffers differ by less than one run from another.
pub(super) fn by_seed(costs: &ActiveCosts, entries: usize, ways: usize, eviction: Eviction) -> Vec<f64> {
    let buffer = Some((entries, ways.min(entries), eviction));
    let rate = |seed| {
        let (scheme, processes) = (Scheme::AaPoll, 32);
        let load = Load { scheme, processes, inserts: 96, collisions: 50, computation: 0, buffer, seed };
        run(costs, &load).rate()
    };
    (1..=SEEDS).map(rate).collect()
}

/// The mean of [`by_seed`].
pub(super) fn with_buffer(costs: &ActiveCosts, entries: usize, ways: usize, eviction: Eviction) -> f64 {
    by_seed(costs, entries, ways, eviction).iter().sum::<f64>() / SEEDS as f64
}

fn buffers(costs: &ActiveCosts) -> Figure {
    let entries = ENTRIES.map(|entries| entries as u64);
    let curve = |&(name, ways, eviction): &(&str, usize, Eviction)| {
        Curve::of_runs(name, &entries, |count| by_seed(costs, count as usize, ways, eviction))
    };
    let curves = BUFFER_KINDS.iter().map(curve).collect();
    let axes =
        (Axis { label: "entries of the IOTLB", logarithmic: true }, Axis { logarithmic: false, ..RATE });
    Figure::drawn(
        Place::Panel(7, 'c'),
        "inserts by the IOTLB's size, associativity and eviction",
        axes,
        curves,
    )
    .noted(&[BUFFERS, ASSUMED])
}

fn counter(costs: &ActiveCosts) -> Figure {
    let points = |counting: Counting| {
        PROCESSES.into_iter().map(move |count| (count as f64, counting.rate(costs, count)))
    };
    let curves = Counting::ALL.iter().map(|&(name, counting)| curve(name, points(counting))).collect();
    let axis = Axis { label: "accesses/s", logarithmic: true };
    Figure::drawn(Place::Panel(7, 'd'), "access counter", (COUNT, axis), curves).noted(&[SUMS, ASSUMED])
}

fn cards(costs: &ActiveCosts) -> Figure {
    let bar = |(name, logging): (&str, Logging)| {
        let energy = |logging| card(costs, logging, costs.piece());
        curve(name, std::iter::once_with(|| (1.0, energy(logging) / energy(Logging::None))))
    };
    let axes = (Axis { label: "network card", logarithmic: false }, Axis { label: "x", logarithmic: false });
    Figure::drawn(
        Place::Panel(8, 'a'),
        "energy of network cards while 1 GB is sorted",
        axes,
        Logging::ALL.map(bar).to_vec(),
    )
    .shaped(Shape::Groups(&["network cards"]))
    .noted(&[ENERGY])
}

/// As the paper has them.
const NAMES: [&str; 7] =
    ["Torus3D", "Torus5D", "Hypercube", "Dragonfly", "Flat. Butterfly", "Long Hop", "Fat tree"];

fn routers(costs: &ActiveCosts) -> Figure {
    let bar = |(name, logging): (&str, Logging)| {
        let points = TOPOLOGIES
            .iter()
            .zip(1_u32..)
            .map(|(topology, x)| (f64::from(x), topology.energy(costs, logging, costs.piece())));
        curve(name, points)
    };
    let axes = (Axis { label: "topology", logarithmic: false }, Axis { label: "x", logarithmic: false });
    Figure::drawn(
        Place::Panel(8, 'b'),
        "energy of routers while 1 GB is sorted",
        axes,
        Logging::ALL.map(bar).to_vec(),
    )
    .shaped(Shape::Groups(&NAMES))
    .noted(&[ENERGY, PATHS])
}

fn logged_gets(costs: &ActiveCosts) -> Figure {
    let points =
        |logging: Logging| PROCESSES.into_iter().map(move |count| (count as f64, logging.rate(costs, count)));
    let curves = Logging::ALL.iter().map(|&(name, logging)| curve(name, points(logging))).collect();
    let axis = Axis { label: "gets/s", logarithmic: true };
    Figure::drawn(Place::Panel(9, 'a'), "gets of 8 bytes that are logged", (COUNT, axis), curves)
        .noted(&[LOGS, ASSUMED])
}

fn sort(costs: &ActiveCosts) -> Figure {
    let points = |logging: Logging| {
        SIZES.into_iter().map(move |bytes| (bytes as f64, logging.sort(costs, FEW, bytes)))
    };
    let curves = Logging::ALL.iter().map(|&(name, logging)| curve(name, points(logging))).collect();
    let axes = (Axis::BYTES, Axis { label: "s", logarithmic: true });
    Figure::drawn(
        Place::Panel(9, 'b'),
        "communication of a sort of 1 GB, 64 processes, by bytes of a get",
        axes,
        curves,
    )
    .noted(&[LOGS, ASSUMED])
}

/// Nanoseconds of computation between two inserts that are so many percent of the run time of AA-Poll.
pub(super) fn computation(costs: &ActiveCosts, percent: u64) -> u64 {
    let insert = FEW as f64 * 1e9 / rate(costs, Scheme::AaPoll, FEW, 50, 0);
    (insert * percent as f64 / (100 - percent) as f64) as u64
}

fn by_computation(costs: &ActiveCosts) -> Figure {
    let points = |scheme| {
        COMPUTATION
            .into_iter()
            .map(move |percent| (percent as f64, rate(costs, scheme, FEW, 50, computation(costs, percent))))
    };
    let curves = SCHEMES.iter().map(|&scheme| curve(scheme.name(), points(scheme))).collect();
    let axes = (Axis { label: "% computation", logarithmic: false }, RATE);
    Figure::drawn(Place::Section("5.2.1"), "hash table: inserts by computation ratio", axes, curves)
        .noted(&[COMPUTED, ASSUMED, ORDER])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topologies_stand_under_their_names() {
        assert_eq!(TOPOLOGIES.map(|topology| topology.name), NAMES);
    }
}
