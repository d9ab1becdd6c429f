//! FRRWP's figures and its table, as the model predicts them, and two of our own for what its sections 4 and 5 only tell.

use super::exchange::{Direction, Exchange, Order, Timeline, overlap, run};
use super::sequence::Sequence;
use super::strategies::{Eviction, Strategy, mean};
use crate::computed::recorded;
use crate::figure::{Axis, Curve, Figure, Place, Provenance, Shape};
use crate::right_axis::RightAxis;
use crate::unit_costs::{FAST_REGISTRATION_TABLE, FrrwpCosts, PAGE};

const KIB: u64 = 1 << 10;
const SIZES: [u64; 8] = [KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB];
const COUNTS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
/// A page to 16 MiB.
const TRANSFERS: [u64; 13] = [
    4 * KIB,
    8 * KIB,
    16 * KIB,
    32 * KIB,
    64 * KIB,
    128 * KIB,
    256 * KIB,
    512 * KIB,
    1_024 * KIB,
    2_048 * KIB,
    4_096 * KIB,
    8_192 * KIB,
    16_384 * KIB,
];
const BUFFERS: [u64; 8] = [16, 32, 64, 128, 256, 512, 1_024, 2_048];
/// The transfer whose course figures 3 and 4 show.
pub(super) const COURSE: u64 = 64 * KIB;

const SEPARATE: &str = "assumed: each page beyond 32 KB adds what a page costs on another testbed, or ten times that; the text has no \
    such cost of its own";
const LATENCY: &str =
    "assumed: a message, or the least write, takes 4 us from driver to driver; the text has no latency";
const COURSE_NOTE: &str = "a WRITE of 64 KB, both sides register by fast registration; the order of messages is our reading of the text, \
    which has no numbers of this picture";
const OVERLAP: &str = "where the server is quicker than the client, only its registration and the round trip are hidden: the saving is \
    min(Tr client, Tr server + R) + Tc, R being the round trip with the server's T1 and T2";
const READ: &str =
    "with READ the server writes, and its T1 to T3 lie in the overlap: min(Tr client, Tr server + T1 + T2)";
const COSTS: &str = "both sides register as long; no registration is what Pagewire has, and there T_c alone is saved; in the model a message of either order \
    costs the same, so the conditional one always saves";
const SEQUENCE: &str = "assumed: buffers of 4 to 128 KB in equal numbers; four of five transfers use one of five buffers, or all alike, or \
    one after the other; a cache holds 1,024 pages, as a Myrinet card";
const OURS: &str = "assumed: MRRC gives up the most pages times age; 16 deregistrations in a batch, half of b each; 4 pieces in a group; copies \
    of 1 and 4 GB/s; the paper measures none of these strategies";

/// Figures 1 to 5 and table 1, what is saved by the cost of a registration (section 2.3) and of the whole (section 4), and strategies (section 5).
pub fn figures(costs: &FrrwpCosts) -> Vec<Figure> {
    let by_size = by_size(costs);
    let saved =
        by_size.right(RightAxis::Saved, "what a conditional write saves, in percent of the longer order");
    vec![
        against_write(costs),
        against_kernel(costs),
        course(costs, Order::Traditional, Place::Figure(3), "traditional order: start and end of each part"),
        course(costs, Order::Frrwp, Place::Figure(4), "FRRWP: start and end of each part"),
        spared(costs),
        fast_registration(costs),
        by_size,
        saved,
        savings(costs),
        strategies(costs),
    ]
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

fn against_write(costs: &FrrwpCosts) -> Figure {
    let dear = FrrwpCosts { separate: 10 * costs.separate, ..*costs };
    Figure::of(
        Place::Figure(1),
        "registration in user space, and RDMA write",
        (Axis::BYTES, Axis::MICROSECONDS),
        &SIZES,
        vec![
            ("registration", &|bytes| us(costs.ordinary(bytes))),
            ("registration, ten times as dear beyond 32 KB", &|bytes| us(dear.ordinary(bytes))),
            ("RDMA write", &|bytes| us(costs.write(bytes))),
        ],
    )
    .noted(&[SEPARATE, LATENCY])
}

fn against_kernel(costs: &FrrwpCosts) -> Figure {
    Figure::of(
        Place::Figure(2),
        "registration in user space and in the kernel",
        (Axis::BYTES, Axis::MICROSECONDS),
        &SIZES,
        vec![("user space", &|bytes| us(costs.ordinary(bytes))), ("kernel space", &|_| us(costs.card()))],
    )
    .noted(&[SEPARATE])
}

/// The transfer of figures 3 and 4.
pub(super) fn exchange(costs: &FrrwpCosts, order: Order) -> Timeline {
    let registration = costs.fast(COURSE / PAGE);
    let exchange = Exchange {
        direction: Direction::Write,
        order,
        client: registration,
        server: registration,
        bytes: COURSE,
    };
    run(costs, &exchange)
}

fn course(costs: &FrrwpCosts, order: Order, place: Place, title: &'static str) -> Figure {
    let (timeline, inputs) = recorded(|| exchange(costs, order));
    let curve = |(number, &(name, start, end)): (u32, &(&str, u64, u64))| {
        let (x, provenance) = (f64::from(number), Provenance::Computed(inputs));
        Curve { provenance, ..Curve::stated(name, vec![(x, us(start)), (x, us(end))]) }
    };
    let curves = (1..).zip(&timeline.parts).map(curve).collect();
    let linear = |label| Axis { label, logarithmic: false };
    Figure::drawn(place, title, (linear("part"), linear("us")), curves)
        .shaped(Shape::Course)
        .noted(&[COURSE_NOTE, LATENCY])
}

fn spared(costs: &FrrwpCosts) -> Figure {
    let parts = || {
        [
            ("T1: completion", us(costs.completion())),
            ("T2: application polls", us(costs.crossing())),
            ("T3: application posts the write", us(costs.crossing())),
        ]
    };
    Figure::course(Place::Figure(5), "what a conditional write spares (figure 6 has none of these)", parts)
}

fn fast_registration(costs: &FrrwpCosts) -> Figure {
    let paper = |name: &str, value: fn(&(u64, f64, f64)) -> f64| {
        let points = FAST_REGISTRATION_TABLE.iter().map(|row| ((row.0 * KIB) as f64, value(row)));
        Curve::stated(name, points.collect())
    };
    let card =
        || FAST_REGISTRATION_TABLE.iter().map(|row| ((row.0 * KIB) as f64, us(costs.card()))).collect();
    let curves = vec![
        paper("fast MR (paper)", |row| row.1),
        paper("ordinary MR (paper)", |row| row.2),
        Curve::computed("ordinary MR: the card", card),
    ];
    let figure = Figure::drawn(
        Place::Table(1),
        "fast and ordinary registration in the kernel",
        (Axis::BYTES, Axis::MICROSECONDS),
        curves,
    );
    let notes = &[
        "the text has no cost of an entry of the table that fast registration fills, so nothing predicts its column",
    ];
    Figure { notes, basis: "paper, and the card's unit cost", ..figure }
}

/// What FRRWP saves by the event model.
pub(super) fn saving(costs: &FrrwpCosts, direction: Direction, client: u64, server: u64) -> f64 {
    let end = |order| run(costs, &Exchange { direction, order, client, server, bytes: PAGE }).end;
    end(Order::Traditional).saturating_sub(end(Order::Frrwp)) as f64 / 1_000.0
}

/// Nanoseconds of the registration of so many bytes.
type Registration<'a> = &'a dyn Fn(&FrrwpCosts, u64) -> u64;

/// The whole of a WRITE in both orders, for each cost of a registration.
fn by_size(costs: &FrrwpCosts) -> Figure {
    let none = |_: &FrrwpCosts, _: u64| 0;
    let fast = |costs: &FrrwpCosts, bytes: u64| costs.fast(bytes / PAGE);
    let ordinary = |costs: &FrrwpCosts, bytes: u64| costs.ordinary(bytes);
    let registrations: [(&str, Registration); 3] =
        [("no registration", &none), ("T = 0.77 p + 7.42 us", &fast), ("ordinary registration", &ordinary)];
    let orders = [("traditional", Order::Traditional), ("conditional", Order::Frrwp)];
    let mut curves = Vec::new();
    for (registration, cost) in registrations {
        for (name, order) in orders {
            let end = |bytes: u64| {
                let (client, server) = (cost(costs, bytes), cost(costs, bytes));
                us(run(costs, &Exchange { direction: Direction::Write, order, client, server, bytes }).end)
            };
            curves.push(Curve::computed(format!("{registration}: {name}"), || {
                TRANSFERS.iter().map(|&bytes| (bytes as f64, end(bytes))).collect()
            }));
        }
    }
    Figure::drawn(
        Place::Section("2.3"),
        "a WRITE in both orders, by the cost of a registration",
        (Axis::BYTES, Axis::MICROSECONDS),
        curves,
    )
    .noted(&[COSTS, SEPARATE, LATENCY])
}

fn savings(costs: &FrrwpCosts) -> Figure {
    let at = |latency| FrrwpCosts { latency, ..*costs };
    let (short, long) = (at(1_000), at(20_000));
    let write = Direction::Write;
    Figure::of(
        Place::Section("4"),
        "what FRRWP saves of the whole latency",
        (Axis { label: "pages", logarithmic: true }, Axis::MICROSECONDS),
        &COUNTS,
        vec![
            ("paper: 21.42 + 0.77 p", &|pages| us(costs.fast(pages) + costs.conditional())),
            ("WRITE", &|pages| saving(costs, write, costs.fast(pages), costs.fast(pages))),
            ("READ", &|pages| saving(costs, Direction::Read, costs.fast(pages), costs.fast(pages))),
            ("WRITE, client is registered", &|pages| saving(costs, write, 0, costs.fast(pages))),
            ("WRITE, server is registered", &|pages| saving(costs, write, costs.fast(pages), 0)),
            ("by the rule: WRITE, server is registered", &|pages| {
                us(overlap(costs, write, costs.fast(pages), 0))
            }),
            ("WRITE, server is registered, latency 1 us", &|pages| {
                saving(&short, write, costs.fast(pages), 0)
            }),
            ("WRITE, server is registered, latency 20 us", &|pages| {
                saving(&long, write, costs.fast(pages), 0)
            }),
        ],
    )
    .noted(&[OVERLAP, READ, LATENCY])
}

fn strategies(costs: &FrrwpCosts) -> Figure {
    let quick = FrrwpCosts { copy: 4 * costs.copy, ..*costs };
    let skewed = |costs: &FrrwpCosts, strategy, buffers: u64| {
        mean(costs, strategy, Sequence::Skewed, buffers as usize) / 1_000.0
    };
    let lru = Strategy::Cache(Eviction::LeastRecentlyUsed);
    let by = |sequence, buffers: u64| mean(costs, lru, sequence, buffers as usize) / 1_000.0;
    Figure::of(
        Place::Section("5"),
        "registration or copies of a transfer, at one side, by strategy",
        (Axis { label: "buffers", logarithmic: true }, Axis { label: "us", logarithmic: false }),
        &BUFFERS,
        vec![
            ("on demand, ordinary registration", &|n| skewed(costs, Strategy::OnDemand, n)),
            ("on demand, fast registration", &|n| skewed(costs, Strategy::Fast, n)),
            ("four pieces, one by one", &|n| skewed(costs, Strategy::Pieces, n)),
            ("four pieces, group registration", &|n| skewed(costs, Strategy::Group, n)),
            ("pin-down cache (LRU)", &|n| skewed(costs, lru, n)),
            ("pin-down cache, batched deregistration", &|n| skewed(costs, Strategy::Batched, n)),
            ("MRRC", &|n| skewed(costs, Strategy::Cache(Eviction::SizeAndRecency), n)),
            ("firehose", &|n| skewed(costs, Strategy::Firehose, n)),
            ("pre-registered pool, copies of 1 GB/s", &|n| skewed(costs, Strategy::Pool, n)),
            ("pre-registered pool, copies of 4 GB/s", &|n| skewed(&quick, Strategy::Pool, n)),
            ("pin-down cache, all buffers alike", &|n| by(Sequence::Uniform, n)),
            ("pin-down cache, one after the other", &|n| by(Sequence::Cyclic, n)),
        ],
    )
    .noted(&[SEQUENCE, OURS, LATENCY])
}
