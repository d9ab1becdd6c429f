//! What the model of Active Access reads, and which of it is assumed.

use super::Source::{Assumption, Text};
use super::{Input, table};
use crate::figure::Place::{Panel, Section};
use crate::unit_costs::ActiveCosts;

const PAPER: ActiveCosts = ActiveCosts::PAPER;

const fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

#[rustfmt::skip]
table! { ActiveCosts from 88:
    0 interrupt: u64 = Input::new("interrupt", &[us(PAPER.interrupt)], "us", Text("5.2"), &[(Section("5.2"), "an interrupt")]);
    1 memory: u64 = Input::new("access to memory", &[us(PAPER.memory)], "us", Text("5.1, 5.2"), &[(Section("5.2"), "an access to memory")]);
    2 scratchpad: u64 = Input::new("access to the scratchpad", &[us(PAPER.scratchpad)], "us", Text("5.2"), &[(Section("5.2"), "an access to the scratchpad")]);
    3 iommu: u64 = Input::new("IOMMU's own work", &[us(PAPER.iommu)], "us", Text("5.1"), &[(Section("5.1"), "the IOMMU's own work")]);
    4 node: usize = Input::new("processes of a node", &[PAPER.node as f64], "processes", Text("5.2"), &[(Section("5.2"), "processes of a node")]);
    5 elements: u64 = Input::new("elements of a volume", &[PAPER.elements as f64], "", Text("5.2.1"), &[]);
    6 collision_operations: u64 = Input::new("further operations of a collision", &[PAPER.collision_operations as f64], "", Text("5.2.1"),
        &[(Section("5.2.1"), "further operations of RMA for a collision")]);
    7 onloaded: usize = Input::new("processes that handle, of 32", &[PAPER.onloaded as f64], "of 32", Text("5.2.1"),
        &[(Section("5.2.1"), "processes that handle, of AM-Onload"), (Panel(6, 'd'), "best number of processes that handle")]);
    8 message: u64 = Input::new("sending a message", &[us(PAPER.message)], "us", Assumption, &[]);
    9 latency: u64 = Input::new("message from card to card", &[us(PAPER.latency)], "us", Assumption, &[]);
    10 look: u64 = Input::new("look for a message", &[us(PAPER.look)], "us", Assumption, &[]);
    11 extract: u64 = Input::new("taking a message out", &[us(PAPER.extract)], "us", Assumption, &[]);
    12 insert: u64 = Input::new("insert into the own volume", &[us(PAPER.insert)], "us", Assumption, &[]);
    13 card: u64 = Input::new("card's work for an operation", &[us(PAPER.card)], "us", Assumption, &[]);
    14 interval: u64 = Input::new("time between two looks", &[us(PAPER.interval)], "us", Assumption, &[]);
    15 window: u64 = Input::new("messages under way, at most", &[PAPER.window as f64], "messages", Assumption, &[]);
    16 doublings: u32 = Input::new("doublings of AM-Exp, at most", &[PAPER.doublings as f64], "", Assumption, &[]);
    17 levels: u64 = Input::new("levels of the page table", &[PAPER.levels as f64], "", Assumption, &[]);
    18 cell: u64 = Input::new("cell", &[PAPER.cell as f64], "bytes", Assumption, &[]);
    19 between_sums: u64 = Input::new("accesses between two Allreduces", &[PAPER.between_sums as f64], "", Assumption, &[]);
    20 bandwidth: u64 = Input::new("bandwidth of a process", &[PAPER.bandwidth as f64], "MB/s", Assumption, &[]);
    21 header: u64 = Input::new("header of a message", &[PAPER.header as f64], "bytes", Assumption, &[]);
    22 piece: u64 = Input::new("get of the sort", &[PAPER.piece as f64], "bytes", Assumption, &[]);
    23 packet: u64 = Input::new("packet of the generator", &[PAPER.packet as f64], "bytes", Assumption, &[]);
    24 datagram: u64 = Input::new("message of the UDP stream", &[PAPER.datagram as f64], "bytes", Assumption, &[]);
    25 link: u64 = Input::new("Ethernet", &[PAPER.link as f64 / 1_000.0], "Gb/s", Text("5.1"), &[]);
}

/// An input that no text gives: its number, and the costs with another value of it, in percent.
pub(in crate::unit_costs) type Assumed = (u32, fn(&ActiveCosts, u64) -> ActiveCosts);

const fn number(field: u32) -> u32 {
    ActiveCosts::FIRST + field
}

/// All of them that are halved and doubled. Sizes of packets and messages have bounds of their own (figures 6a, 6b).
#[rustfmt::skip]
pub(in crate::unit_costs) const ASSUMED: [Assumed; 15] = [
    (number(8), |costs, percent| ActiveCosts { message: costs.message * percent / 100, ..*costs }),
    (number(9), |costs, percent| ActiveCosts { latency: costs.latency * percent / 100, ..*costs }),
    (number(10), |costs, percent| ActiveCosts { look: costs.look * percent / 100, ..*costs }),
    (number(11), |costs, percent| ActiveCosts { extract: costs.extract * percent / 100, ..*costs }),
    (number(12), |costs, percent| ActiveCosts { insert: costs.insert * percent / 100, ..*costs }),
    (number(13), |costs, percent| ActiveCosts { card: costs.card * percent / 100, ..*costs }),
    (number(14), |costs, percent| ActiveCosts { interval: costs.interval * percent / 100, ..*costs }),
    (number(15), |costs, percent| ActiveCosts { window: costs.window * percent / 100, ..*costs }),
    (number(16), |costs, percent| ActiveCosts { doublings: costs.doublings * percent as u32 / 100, ..*costs }),
    (number(17), |costs, percent| ActiveCosts { levels: costs.levels * percent / 100, ..*costs }),
    (number(18), |costs, percent| ActiveCosts { cell: costs.cell * percent / 100, ..*costs }),
    (number(19), |costs, percent| ActiveCosts { between_sums: costs.between_sums * percent / 100, ..*costs }),
    (number(20), |costs, percent| ActiveCosts { bandwidth: costs.bandwidth * percent / 100, ..*costs }),
    (number(21), |costs, percent| ActiveCosts { header: costs.header * percent / 100, ..*costs }),
    (number(22), |costs, percent| ActiveCosts { piece: costs.piece * percent / 100, ..*costs }),
];
