//! What the model of FRRWP reads.

use super::Source::{Assumption, Text};
use super::{Input, table};
use crate::figure::Place::{Figure, Section, Table};
use crate::unit_costs::FrrwpCosts;

const PAPER: FrrwpCosts = FrrwpCosts::PAPER;

const fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

#[rustfmt::skip]
table! { FrrwpCosts from 56:
    0 page: u64 = Input::new("page of fast registration (a)", &[us(PAPER.page)], "us", Text("2.3"), &[(Section("2.3"), "cost of each page (a)")]);
    1 operation: u64 = Input::new("operation of fast registration (b)", &[us(PAPER.operation)], "us", Text("2.3"), &[(Section("2.3"), "cost of each operation (b)")]);
    2 completion: u64 = Input::new("T1, completion", &[us(PAPER.completion)], "us", Text("4"), &[(Figure(5), "T1: completion")]);
    3 crossing: u64 = Input::new("T2 and T3, switch to or from the application", &[us(PAPER.crossing)], "us", Text("4"), &[(Figure(5), "T2 and T3, each: switch between driver and application")]);
    4 card: u64 = Input::new("telling the card of a region", &[us(PAPER.card)], "us", Text("2.3"), &[
        (Table(1), "4 KB: ordinary registration"), (Table(1), "8 KB: ordinary registration"), (Table(1), "16 KB: ordinary registration"),
        (Table(1), "32 KB: ordinary registration"), (Table(1), "64 KB: ordinary registration"), (Table(1), "128 KB: ordinary registration"),
    ]);
    5 host: u64 = Input::new("mapping, pinning and switches", &[us(PAPER.host)], "us", Text("2.3"), &[
        (Figure(2), "kernel space less than user space, below 32 KB"), (Figure(2), "part of mapping, pinning and crossings (\"about half\")"),
    ]);
    6 contiguous: u64 = Input::new("contiguous memory of malloc, up to", &[PAPER.contiguous as f64], "bytes", Text("2.3"), &[(Figure(2), "largest size of one cost in user space")]);
    7 separate: u64 = Input::new("separate page of ordinary registration", &[us(PAPER.separate)], "us", Assumption, &[]);
    8 latency: u64 = Input::new("short message", &[us(PAPER.latency)], "us", Assumption, &[]);
    9 link: u64 = Input::new("link", &[PAPER.link as f64 / 1_000.0], "Gb/s", Text("2.2"), &[]);
    10 table: u64 = Input::new("table of a card", &[PAPER.table as f64], "pages", Text("2.1"), &[]);
    11 copy: u64 = Input::new("copy", &[PAPER.copy as f64 / 1_000.0], "GB/s", Assumption, &[]);
    12 deregistration_percent: u64 = Input::new("deregistration's part of b", &[PAPER.deregistration_percent as f64], "%", Assumption, &[]);
    13 batch: u64 = Input::new("deregistrations of a batch", &[PAPER.batch as f64], "", Assumption, &[]);
    14 pieces: u64 = Input::new("pieces of a group", &[PAPER.pieces as f64], "", Assumption, &[]);
}
