//! The numbers of the evaluation's text, beside the model's.

use super::counter::Counting;
use super::figures::{
    BUFFER_KINDS, ENTRIES, FEW, ONLOADS, SCHEMES, computation, long_rate, rate, with_buffer,
};
use super::gets::Logging;
use super::streams::{Stream, single_inserter};
use super::table::Scheme;
use crate::claim::Prediction::{Given, Value};
use crate::claim::{Claim, at_least, is};
use crate::computed::computed;
use crate::figure::Place;
use crate::unit_costs::ActiveCosts;

const COLLISION: &str = "the model's bound is 7, the operations of an insert that collides to those of one that does not; that the atomics of several callers \
    wait for each other at one cell is not in it";
const PACKET: &str = "the text has no size of a packet: of 60 bytes they are 10 % slower, of 512 2 %, of 1,514 less than 1 %, if nothing hides the delay";
const LINK: &str = "at 25 % of collisions RMA has 2.5 operations an insert, at 33 % it has 3; the text has no number of the figure's axis";

const ONLOAD: &str = "the best number is where those that insert and those that handle are busy alike: 11 of 32 where handling takes half as long as sending; \
    both are assumed, and alike";
const BEST: &str = "the best other scheme is AM-Exp, which differs by taking out a message: the text has neither that nor what an insert takes; with that \
    halved or doubled the ratio is the range beside";
const SCRATCHPAD: &str =
    "both differ by 55 ns: they are 1 % where an insert takes 5.5 us at its two ends, and here it takes 1.5";
const INTERRUPTS: &str = "AM-Ints takes out a message, besides, which is assumed to take 1 us: a large part of an insert that takes 1.7 us otherwise";
const EACH_TEN: &str = "an interrupt each 10 is 300 ns an insert, each 100 30 ns: 5 % are 270 ns where an insert takes 5.4 us, and here it takes 1.7 \
    (AM: 2.7)";
const FULL: &str = "with uniformly random elements only the pages of the logs come again soon; the text has no number of pages, entries or accesses of a walk, and 16 % \
    need a part of walks in an insert that is larger";
const ALWAYS: &str = "with uniformly random elements the entry that is evicted decides less than one run of the model differs from another: of means of five seeds now \
    LRU is a few percent better, now random eviction; the text says neither which elements come again nor how often";
const FEWEST: &str = "energy goes with bytes, and that AA sends as few as No-FT is how the scheme is made";
const TOPOLOGY: &str =
    "the topology cancels out: all schemes pass the same routers, so that the ratio is that of figure 8a";
const RESERVE: &str = "of gets of 4 KB most is the transfer; of 8 bytes it is 73 %, and the text has neither the size nor what RMA does beside the put";

/// All of them, by figure.
pub fn all(costs: &ActiveCosts) -> Vec<Claim> {
    [micro(costs), table(costs), buffers(costs), others(costs), sections(costs)].concat()
}

/// A number that the model gives, and how it moves while each assumed input is halved and doubled.
fn modelled(
    (place, what, unit): (Place, &'static str, &'static str),
    stated: (f64, f64),
    costs: &ActiveCosts,
    value: impl Fn(&ActiveCosts) -> f64,
) -> Claim {
    let plain = computed(|| value(costs));
    // What is not read does not move it.
    let variants = costs.variants(plain.inputs);
    let others = variants.iter().map(|(number, variant)| (*number, computed(|| value(variant)).value));
    Claim::new(place, what, unit, stated, Value(plain)).over(others)
}

/// A number of a stream whose size is assumed, and how it moves over all sizes that there are.
fn of_any_size(
    (place, what, unit): (Place, &'static str, &'static str),
    costs: &ActiveCosts,
    stream: Stream,
    (number, sizes): (u32, &[u64]),
) -> Claim {
    let slower = |costs: &ActiveCosts| {
        let bytes = match stream {
            Stream::Packets => costs.packet(),
            Stream::Udp | Stream::Tcp => costs.datagram(),
        };
        (1.0 - stream.rate(costs, bytes, true) / stream.rate(costs, bytes, false)) * 100.0
    };
    let other = |&bytes: &u64| {
        let costs = ActiveCosts { packet: bytes, datagram: bytes, ..*costs };
        (number, computed(|| slower(&costs)).value)
    };
    modelled((place, what, unit), (1.0, 5.0), costs, slower).over(sizes.iter().map(other))
}

/// By how many percent one number is more than another one.
fn above(one: f64, other: f64) -> f64 {
    (one / other - 1.0) * 100.0
}

/// Figures 1 and 6.
fn micro(costs: &ActiveCosts) -> Vec<Claim> {
    let by_collisions =
        |costs: &ActiveCosts| rate(costs, Scheme::Rma, FEW, 0, 0) / rate(costs, Scheme::Rma, FEW, 1_000, 0);
    let best = |costs: &ActiveCosts| {
        let rate_of = |count: &usize| rate(costs, Scheme::AmOnload(*count), FEW, 50, 0);
        let rated = ONLOADS.map(|count| (rate_of(&count), count));
        rated
            .into_iter()
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .map_or(0.0, |(_, count)| count as f64)
    };
    let inserter = |costs: &ActiveCosts| {
        let (active, rma) = single_inserter(costs, 250);
        active / rma
    };
    vec![
        modelled(
            (Place::Figure(1), "RMA: no collision to only collisions (\"varies by\")", "x"),
            is(10.0),
            costs,
            by_collisions,
        )
        .because(COLLISION),
        of_any_size(
            (Place::Panel(6, 'a'), "packets, of 512 bytes by assumption: e-iommu slower by", "%"),
            costs,
            Stream::Packets,
            (ActiveCosts::PACKET, &[60, 128, 256, 512, 1_024, 1_514]),
        ),
        of_any_size(
            (Place::Panel(6, 'b'), "TCP stream, full frames: e-iommu slower by", "%"),
            costs,
            Stream::Tcp,
            (ActiveCosts::DATAGRAM, &[64, 65_536]),
        )
        .because(PACKET),
        of_any_size(
            (Place::Panel(6, 'b'), "UDP stream, messages of 64 bytes by assumption: e-iommu slower by", "%"),
            costs,
            Stream::Udp,
            (ActiveCosts::DATAGRAM, &[64, 256, 1_024, 4_096, 65_536]),
        )
        .because(PACKET),
        modelled((Place::Panel(6, 'c'), "25 % collisions: AA to RMA", "x"), is(3.0), costs, inserter)
            .because(LINK),
        modelled(
            (Place::Panel(6, 'd'), "best number of processes that handle", "of 32"),
            is(11.0),
            costs,
            best,
        )
        .because(ONLOAD),
    ]
}

/// AA-Poll to the best other scheme of the paper.
fn to_the_best(costs: &ActiveCosts, collisions: u64) -> f64 {
    let is_other = |scheme: &&Scheme| {
        !matches!(scheme, Scheme::AaInt(_) | Scheme::AaPoll | Scheme::AaSp | Scheme::AmAggregated)
    };
    let others = SCHEMES.iter().filter(is_other).map(|&scheme| rate(costs, scheme, FEW, collisions, 0));
    rate(costs, Scheme::AaPoll, FEW, collisions, 0) / others.fold(0.0, f64::max)
}

/// Figures 7a to 7c.
fn table(costs: &ActiveCosts) -> Vec<Claim> {
    let ratio =
        |one, other| move |costs: &ActiveCosts| rate(costs, one, FEW, 50, 0) / rate(costs, other, FEW, 50, 0);
    let more = |one, other| {
        move |costs: &ActiveCosts| above(rate(costs, one, FEW, 50, 0), rate(costs, other, FEW, 50, 0))
    };
    let fewer = |scheme: fn(u64) -> Scheme| {
        move |costs: &ActiveCosts| above(long_rate(costs, scheme(100)), long_rate(costs, scheme(10)))
    };
    let (a, b) = (Place::Panel(7, 'a'), Place::Panel(7, 'b'));
    vec![
        modelled(
            (a, "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints", "x"),
            is(2.0),
            costs,
            |costs| to_the_best(costs, 50),
        )
        .because(BEST),
        modelled((a, "AA-SP more than AA-Poll", "%"), is(1.0), costs, more(Scheme::AaSp, Scheme::AaPoll))
            .because(SCRATCHPAD),
        modelled(
            (a, "AA-Int to AM-Ints (\"comparable\")", "x"),
            is(1.0),
            costs,
            ratio(Scheme::AaInt(10), Scheme::AmInts(10)),
        )
        .bound_by_us()
        .because(INTERRUPTS),
        modelled(
            (a, "AA-Int: an interrupt each 100 to each 10, more by", "%"),
            (0.0, 5.0),
            costs,
            fewer(Scheme::AaInt),
        )
        .because(EACH_TEN),
        modelled(
            (a, "AM-Ints: an interrupt each 100 to each 10, more by", "%"),
            (0.0, 5.0),
            costs,
            fewer(Scheme::AmInts),
        )
        .because(EACH_TEN),
        modelled(
            (b, "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints (25 %)", "x"),
            is(2.0),
            costs,
            |costs| to_the_best(costs, 250),
        )
        .because(BEST),
    ]
}

/// Figure 7c.
fn buffers(costs: &ActiveCosts) -> Vec<Claim> {
    // As BUFFER_KINDS: four associativities by LRU, the same by random eviction.
    const A2: usize = 1;
    const A4: usize = 2;
    const FULLY: usize = 3;
    const RANDOM: usize = 4;
    fn at(costs: &ActiveCosts, kind: usize, entries: usize) -> f64 {
        let (_, ways, eviction) = BUFFER_KINDS[kind];
        with_buffer(costs, entries, ways, eviction)
    }
    let more_full = |costs: &ActiveCosts| {
        let more = |entries| above(at(costs, FULLY, entries), at(costs, A4, entries));
        ENTRIES.into_iter().map(more).fold(0.0, f64::max)
    };
    let to_random = |costs: &ActiveCosts| {
        let pairs = [A2, A4, FULLY].map(|ways| (ways, RANDOM + ways));
        let ratio = |(lru, random), entries| at(costs, lru, entries) / at(costs, random, entries);
        let ratios = pairs.into_iter().flat_map(|pair| ENTRIES.map(|entries| ratio(pair, entries)));
        ratios.fold(f64::INFINITY, f64::min)
    };
    let place = Place::Panel(7, 'c');
    vec![
        modelled((place, "lru_af more than lru_a4, up to", "%"), is(16.0), costs, more_full).because(FULL),
        modelled(
            (place, "lru to rnd of 2 and more ways, at least (\"always better\")", "x"),
            at_least(1.0),
            costs,
            to_random,
        )
        .bound_by_us()
        .because(ALWAYS),
    ]
}

/// Figures 7d to 9b.
fn others(costs: &ActiveCosts) -> Vec<Claim> {
    let counting = |other: Counting| {
        move |costs: &ActiveCosts| Counting::AaPoll.rate(costs, FEW) / other.rate(costs, FEW)
    };
    let time = |logging: Logging, costs: &ActiveCosts, bytes| logging.time(costs, bytes) as f64;
    let longer = |costs: &ActiveCosts, bytes| {
        above(time(Logging::Aa, costs, bytes), time(Logging::None, costs, bytes))
    };
    let less = |other: Logging| {
        move |costs: &ActiveCosts| {
            let bytes = costs.piece();
            (1.0 - time(Logging::Aa, costs, bytes) / time(other, costs, bytes)) * 100.0
        }
    };
    let piece = costs.piece as f64;
    let counter = |what, other| {
        modelled((Place::Panel(7, 'd'), what, "x"), at_least(1.0), costs, counting(other)).bound_by_us()
    };
    let (gets, sort) = (Place::Panel(9, 'a'), Place::Panel(9, 'b'));
    vec![
        counter("AA-Poll to RMA (\"outperforms\")", Counting::Rma),
        counter("AA-Poll to A-KV (\"outperforms\")", Counting::AKv),
        counter("AA-Poll to Allreduce (\"outperforms\")", Counting::Allreduce),
        Claim::new(
            Place::Panel(8, 'a'),
            "network cards: the least of AM and RMA to AA (\"lowest\")",
            "x",
            at_least(1.0),
            Given,
        )
        .bound_by_us()
        .because(FEWEST),
        Claim::new(
            Place::Panel(8, 'b'),
            "routers of each topology: the least of AM and RMA to AA (\"lowest\")",
            "x",
            at_least(1.0),
            Given,
        )
        .bound_by_us()
        .because(TOPOLOGY),
        modelled(
            (gets, "a get that is logged, longer by (section 8, of run times)", "%"),
            (1.0, 5.0),
            costs,
            |costs| longer(costs, 8),
        ),
        modelled((sort, "AA longer than No-FT, less than", "%"), (0.0, 1.0), costs, |costs| {
            longer(costs, costs.piece())
        }),
        modelled((sort, "AA less than AM", "%"), is(50.0), costs, less(Logging::Am))
            .at("AA less than AM", piece),
        modelled((sort, "AA less than RMA", "%"), is(80.0), costs, less(Logging::Rma))
            .at("AA less than RMA", piece)
            .because(RESERVE),
    ]
}

/// Sections 5.1 and 5.2: what is given, and computation.
fn sections(costs: &ActiveCosts) -> Vec<Claim> {
    let given =
        |section, what, unit, number| Claim::new(Place::Section(section), what, unit, is(number), Given);
    let differences = |costs: &ActiveCosts| {
        let best = |percent| {
            let time = computation(costs, percent);
            rate(costs, Scheme::AaPoll, FEW, 50, time) / rate(costs, Scheme::Rma, FEW, 50, time)
        };
        best(95) / best(0)
    };
    vec![
        given("5.1", "the IOMMU's own work", "ns", costs.iommu as f64),
        given("5.2", "an interrupt", "us", costs.interrupt as f64 / 1_000.0),
        given("5.2", "an access to memory", "ns", costs.memory as f64),
        given("5.2", "an access to the scratchpad", "ns", costs.scratchpad as f64),
        given("5.2", "processes of a node", "", costs.node as f64),
        given("5.2.1", "further operations of RMA for a collision", "", costs.collision_operations as f64),
        given("5.2.1", "processes that handle, of AM-Onload", "of 32", costs.onloaded as f64),
        modelled(
            (
                Place::Section("5.2.1"),
                "AA-Poll to RMA, 95 % computation to none (differences \"smaller\")",
                "x",
            ),
            (0.0, 1.0),
            costs,
            differences,
        )
        .bound_by_us(),
    ]
}
