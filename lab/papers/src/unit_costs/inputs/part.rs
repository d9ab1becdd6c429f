//! What the model of PART reads.

use super::Source::{Assumption, Text};
use super::{Input, table};
use crate::figure::Place::{Figure, Table};
use crate::translation::{Geometry, WalkerLimits};
use crate::unit_costs::{APPLICATIONS, LAMMPS_SECONDS, PartCosts};

const PAPER: PartCosts = PartCosts::PAPER;

const fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

#[rustfmt::skip]
table! { PartCosts from 0:
    0 block: u64 = Input::new("block", &[PAPER.block as f64], "bytes", Text("4.2"), &[]);
    1 packet: u64 = Input::new("packet", &[PAPER.packet as f64], "bytes", Text("4.2"), &[]);
    2 outstanding: usize = Input::new("blocks outstanding", &[PAPER.outstanding as f64], "blocks", Text("4.2"), &[]);
    3 initiation: u64 = Input::new("initiation by the co-processor", &[us(PAPER.initiation)], "us", Text("4.2"), &[]);
    4 network: u64 = Input::new("network and engines, upper bound", &[us(PAPER.network)], "us", Text("4.2"), &[]);
    5 link: u64 = Input::new("link", &[PAPER.link as f64 / 1_000.0, PartCosts::BOARD_LINK as f64 / 1_000.0], "Gb/s", Text("4.1, 6.1"), &[]);
    6 handler: u64 = Input::new("interrupt handler", &[us(PAPER.handler)], "us", Text("5.2"), &[(Figure(10), "interrupt handler")]);
    7 fifo_read: u64 = Input::new("read of a FIFO entry", &[us(PAPER.fifo_read)], "us", Text("4.2"), &[]);
    8 page_in_call: u64 = Input::new("call of get_user_pages", &[us(PAPER.page_in_call)], "us", Text("5.3"), &[(Figure(13), "get_user_pages: each call")]);
    9 page_in_page: u64 = Input::new("page of get_user_pages", &[us(PAPER.page_in_page)], "us", Text("5.3"), &[(Figure(13), "get_user_pages: each page that is absent")]);
    10 netlink: u64 = Input::new("Netlink", &[us(PAPER.netlink)], "us", Text("5.2"), &[(Figure(10), "Netlink, the kernel's part")]);
    11 packing: u64 = Input::new("other work of the tasklet, without its 16 reads", &[us(PAPER.packing)], "us", Text("5.2"), &[(Figure(10), "other work of the tasklet")]);
    12 err: u64 = Input::new("ERR", &[us(PAPER.err)], "us", Text("5.2"), &[(Figure(10), "ERR")]);
    13 sent_again: u64 = Input::new("page sent again", &[us(PAPER.sent_again)], "us", Text("5.2"), &[(Figure(10), "sending the missing page again")]);
    14 buffers: Geometry = Input::new("translation buffers", &[], "", Text("4.3"), &[]);
    15 walker: WalkerLimits = Input::new("page-table walker", &[], "", Text("2, 4.3"), &[]);
    16 hit_under_fault: bool = Input::new("hits under faults", &[], "", Text("4.3"), &[]);
    17 fifo: usize = Input::new("depth of the NI FIFO", &[PAPER.fifo as f64], "pages", Assumption, &[]);
    18 touch_present: (u64, u64) = Input::new("touch of a page in memory", &[us(PAPER.touch_present.0), us(PAPER.touch_present.1)], "us", Text("5.1, 5.4"), &[(Figure(9), "touching a page in memory adds"), (Figure(12), "touching a page in memory adds (section 5.4)")]);
    19 touch_absent: u64 = Input::new("touch of an absent page", &[us(PAPER.touch_absent)], "us", Text("5.1"), &[(Figure(9), "touching an absent page adds")]);
    20 pin_call: u64 = Input::new("call of mlock", &[us(PAPER.pin_call)], "us", Text("2"), &[(Figure(9), "pinning an absent page adds")]);
    21 pin_page: u64 = Input::new("page of mlock", &[us(PAPER.pin_page)], "us", Text("2"), &[(Figure(9), "pinning an absent page adds")]);
    22 timeout: u64 = Input::new("usual timeout", &[us(PAPER.timeout)], "us", Text("4.2"), &[]);
}

/// The number of what the paper counted of applications, a result.
pub(in crate::unit_costs) const COUNTS: u32 = 24;

/// What the paper counted and timed of applications: inputs of estimates alone.
#[rustfmt::skip]
pub(super) const APPLICATION_INPUTS: &[Input] = &[
    Input::new("handler runs that the paper counted (LAMMPS, HPL, HPCG)", &[APPLICATIONS[0].handler_runs, APPLICATIONS[1].handler_runs, APPLICATIONS[2].handler_runs], "", Text("6.2"),
        &[(Table(5), "LAMMPS: handler runs"), (Table(5), "HPL: handler runs"), (Table(5), "HPCG: handler runs")]),
    Input::new("loop time that the paper measured (LAMMPS, 16 processes)", &[LAMMPS_SECONDS[4].1], "s", Text("6.2"), &[(Table(2), "LAMMPS, 16 processes: loop time without page faults")]),
];
