//! The numbers that REUSE's text states, beside the model's.
//!
//! Most depend on an input that the text only bounds or lacks: what is predicted is then the range of all that the bounds and assumptions allow.

use super::figures::sizes;
use super::{View, acquire_new, transfer};
use crate::claim::Prediction::{Given, Sum, Value};
use crate::claim::{Claim, at_least, is, sum};
use crate::computed::{Computed, InputSet, computed};
use crate::figure::Place;
use crate::unit_costs::ReuseCosts;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LEAST: u64 = 128;
const MOST: u64 = 2 * MIB;

/// All of them, by figure.
pub fn claims(systems: &[ReuseCosts; 2]) -> Vec<Claim> {
    let [mutrino, stria] = systems;
    [
        registration(mutrino, stria),
        acquire(mutrino, stria),
        slabs(mutrino, stria),
        reuse(mutrino, stria),
        put(mutrino, stria),
        views(mutrino, stria),
    ]
    .concat()
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

/// The values of what the text only bounds or lacks: the input's number, and the costs with each end.
fn ends(costs: &ReuseCosts) -> [(u32, [ReuseCosts; 2]); 4] {
    let with = |change: fn(&mut ReuseCosts, u64), values: [u64; 2]| {
        values.map(|value| {
            let mut other = *costs;
            change(&mut other, value);
            other
        })
    };
    [
        (
            ReuseCosts::ALLOCATE,
            with(|costs, value| costs.allocate = value, [ReuseCosts::LEAST_ALLOCATE, costs.allocate]),
        ),
        (ReuseCosts::LATENCY, with(|costs, value| costs.latency = value, [1_000, 20_000])),
        (ReuseCosts::LINK, with(|costs, value| costs.link = value, [5_000, 12_500])),
        (ReuseCosts::COPY, with(|costs, value| costs.copy = value, [1_000, 10_000])),
    ]
}

/// A number that depends on what the text only bounds or lacks: its least and its most over all corners, and which inputs widen the range.
fn ranged(
    (place, what, unit): (Place, &'static str, &'static str),
    stated: (f64, f64),
    costs: &ReuseCosts,
    number: impl Fn(&ReuseCosts) -> f64,
) -> Claim {
    let of = |costs: &ReuseCosts| computed(|| number(costs));
    let mut corners = vec![*costs];
    for index in 0..ends(costs).len() {
        corners = corners.iter().flat_map(|corner| ends(corner)[index].1).collect();
    }
    let values: Vec<Computed> = corners.iter().map(of).collect();
    let extreme = |is_better: fn(f64, f64) -> bool| {
        let inputs = values.iter().fold(InputSet::EMPTY, |set, value| set.with(value.inputs));
        let best = values
            .iter()
            .map(|value| value.value)
            .reduce(|one, other| if is_better(one, other) { one } else { other });
        Computed { value: best.expect("a corner"), inputs }
    };
    let (least, most) = (extreme(|one, other| one < other), extreme(|one, other| one > other));
    let mut by = InputSet::EMPTY;
    for (number, [one, other]) in &ends(costs) {
        let (one, other) = (of(one).value, of(other).value);
        if (one - other).abs() > Claim::TOLERANCE * one.abs().min(other.abs()) {
            by = by.with(InputSet::of(*number));
        }
    }
    let claim = Claim::new(place, what, unit, stated, Sum(least, most));
    if least.value < most.value { claim.varied(least.value, most.value, by) } else { claim }
}

/// The most, over these sizes, of one way of a View to registered memory, in percent more than that.
fn more(costs: &ReuseCosts, view: View, sizes: impl Iterator<Item = u64>) -> f64 {
    let ratio = |bytes| {
        let registered = transfer(costs, View::Registered, bytes);
        transfer(costs, view, bytes) as f64 / registered as f64 - 1.0
    };
    sizes.map(ratio).fold(0.0, f64::max) * 100.0
}

/// Figures 1 and 2.
fn registration(mutrino: &ReuseCosts, stria: &ReuseCosts) -> Vec<Claim> {
    let (first, second) = (Place::Figure(1), Place::Figure(2));
    let register = |costs: &ReuseCosts, bytes| computed(|| costs.register(bytes) as f64);
    let each = |bytes: u64| register(mutrino, bytes) / bytes as f64;
    vec![
        Claim::new(first, "Mutrino: registration of 2 MiB to 128 B", "x", is(90.0), Given),
        Claim::new(first, "Stria: registration of 2 MiB to 128 B", "x", is(4.4), Given),
        Claim::new(
            first,
            "128 B: Stria to Mutrino (\"faster on Mutrino\")",
            "x",
            at_least(1.0),
            sum(register(stria, LEAST) / register(mutrino, LEAST)),
        )
        .bound_by_us(),
        Claim::new(
            first,
            "2 MiB: Mutrino to Stria (\"faster on Stria\")",
            "x",
            at_least(1.0),
            sum(register(mutrino, MOST) / register(stria, MOST)),
        )
        .bound_by_us(),
        Claim::new(
            second,
            "Mutrino: a byte of 2 MiB to one of 128 KiB (\"plateaus\")",
            "x",
            is(1.0),
            sum(each(MOST) / each(128 * KIB)),
        )
        .bound_by_us()
        .because(
            "with T = a p + b through the two given numbers b is an eighth of the cost of 128 KiB, and falls away; the text calls that a plateau",
        ),
    ]
}

/// Figures 3 and 4.
fn acquire(mutrino: &ReuseCosts, stria: &ReuseCosts) -> Vec<Claim> {
    let third = Place::Figure(3);
    let trials = |bytes| acquire_new(mutrino, bytes, ReuseCosts::TRIALS);
    let slow = |costs: &ReuseCosts| computed(|| us(acquire_new(costs, 4 * KIB, 1).total));
    let slabs = |bytes| Value(computed(|| trials(bytes).slow as f64));
    vec![
        ranged((third, "trial from a slab, less than", "us"), (0.0, 10.0), stria, |costs| us(costs.allocate())),
        Claim::new(
            third,
            "trial with a new slab (\"hundreds of microseconds\")",
            "us",
            (100.0, 1_000.0),
            Sum(slow(stria), slow(mutrino)),
        )
        .bound_by_us(),
        Claim::new(third, "1,000 trials of 512 B: slabs", "", is(1.0), slabs(512)),
        Claim::new(third, "1,000 trials of 1 KiB: slabs, at least (\"multiple\")", "", at_least(2.0), slabs(KIB))
            .bound_by_us()
            .because(
                "1,000 KiB fit into one slab of 1,024; on the paper's machine TCMalloc's size classes and its batches of objects take up the \
                 rest, of which the text says nothing",
            ),
        Claim::new(
            third,
            "1,000 trials of 256 KiB: slabs, at least (\"multiple\")",
            "",
            at_least(2.0),
            slabs(256 * KIB),
        )
        .bound_by_us(),
        Claim::new(third, "1,000 trials of 1 MiB: trials from a slab", "", is(0.0), Value(computed(|| trials(MIB).fast as f64))),
    ]
}

fn slabs(mutrino: &ReuseCosts, stria: &ReuseCosts) -> Vec<Claim> {
    let place = Place::Figure(4);
    let new = |costs: &ReuseCosts, bytes| acquire_new(costs, bytes, ReuseCosts::TRIALS).mean();
    let sooner = |costs: &ReuseCosts| us(costs.register(LEAST)) / new(costs, LEAST);
    let longer = |costs: &ReuseCosts| (new(costs, MIB) / us(costs.register(MIB)) - 1.0) * 100.0;
    vec![
        ranged((place, "128 B, Stria: slabs sooner than by hand", "x"), at_least(134.0), stria, sooner),
        ranged((place, "128 B, Mutrino: slabs sooner than by hand", "x"), at_least(3.4), mutrino, sooner),
        Claim::new(place, "least size without a gain", "MiB", is(1.0), Given)
            .because("slabs of 1 MiB are an input: a request of that size has one of its own"),
        ranged((place, "1 MiB, Stria: slabs later than by hand", "%"), (0.0, 11.3), stria, longer),
    ]
}

/// Figure 5.
fn reuse(mutrino: &ReuseCosts, stria: &ReuseCosts) -> Vec<Claim> {
    let place = Place::Figure(5);
    let less = |costs: &ReuseCosts| us(costs.register(MOST) - costs.allocate());
    let times = |costs: &ReuseCosts| costs.register(MOST) as f64 / costs.allocate() as f64;
    let given = |what, stated| Claim::new(place, what, "us", stated, Given);
    let saved = |what, stated: f64, costs| ranged((place, what, "us"), is(stated), costs, less);
    vec![
        given("Mutrino: reuse, less than", (0.0, 1.0)),
        given("Stria: reuse, less than", (0.0, 2.5)),
        given("Mutrino: malloc and registration, at most", is(883.0)).at("Mutrino: by hand", MOST as f64),
        given("Stria: malloc and registration, at most", is(311.0)).at("Stria: by hand", MOST as f64),
        saved("Mutrino: reuse saves up to", 882.0, mutrino),
        saved("Stria: reuse saves up to", 310.0, stria),
        ranged((place, "Mutrino: reuse sooner, up to", "x"), is(2054.0), mutrino, times),
        ranged((place, "Stria: reuse sooner, up to", "x"), is(253.0), stria, times),
    ]
}

/// Figure 6.
fn put(mutrino: &ReuseCosts, stria: &ReuseCosts) -> Vec<Claim> {
    let place = Place::Figure(6);
    let times = |costs: &ReuseCosts| 1.0 + more(costs, View::ByHand, sizes()) / 100.0;
    let percent = |costs: &ReuseCosts| more(costs, View::ByHand, sizes());
    vec![
        ranged((place, "Mutrino: put of reused memory sooner, up to", "x"), is(4.5), mutrino, times),
        ranged((place, "Stria: put of reused memory sooner, up to", "%"), is(60.0), stria, percent).because(
            "registration of 128 B takes 71 us on Stria by the given numbers: a put that it makes but 60 % longer takes 118 us itself, far more than a \
             link of this kind; what NNTI adds to a put there the text does not say",
        ),
    ]
}

/// Figure 7.
fn views(mutrino: &ReuseCosts, stria: &ReuseCosts) -> Vec<Claim> {
    let place = Place::Figure(7);
    let small = |costs: &ReuseCosts| more(costs, View::ByHand, sizes().take_while(|&bytes| bytes <= 2 * KIB));
    let by_hand = |costs: &ReuseCosts| more(costs, View::ByHand, sizes().filter(|&bytes| bytes > 2 * KIB));
    let copied = |costs: &ReuseCosts| 1.0 + more(costs, View::Copied, sizes()) / 100.0;
    let claim = |what, unit, stated: f64, costs, number: &dyn Fn(&ReuseCosts) -> f64| {
        ranged((place, what, unit), is(stated), costs, number)
    };
    let nnti = "as for figure 6: on Stria registration alone takes longer than such a put, unless NNTI adds a hundred microseconds to it, of which the \
        text says nothing";
    vec![
        claim("Mutrino, up to 2 KiB: registered space sooner than by hand", "%", 77.0, mutrino, &small),
        claim("Stria, up to 2 KiB: registered space sooner than by hand", "%", 42.0, stria, &small).because(nnti),
        ranged((place, "Mutrino: registered space sooner than copied, up to", "x"), at_least(9.4), mutrino, copied),
        ranged((place, "Stria: registered space sooner than copied, up to", "x"), at_least(19.4), stria, copied).because(
            "a copy has to take 18 times the put of the same bytes; at the slowest assumed, 1 GB/s, it takes 12.5 times that of the fastest link; \
             the text does not say how the contents of a View are copied",
        ),
        claim("Mutrino: registered space sooner than by hand, up to", "x", 4.2, mutrino, &|costs| 1.0 + by_hand(costs) / 100.0),
        claim("Stria: registered space sooner than by hand, up to", "%", 50.0, stria, &by_hand).because(nnti),
    ]
}
