//! The manual pages and the command line say the same.

#[path = "manual/pages.rs"]
mod pages;

use clap::CommandFactory;
use pages::{check_ends, check_options, check_values, commands, listed, names, page, section};
use pagewire_cli::arguments::Arguments;
use std::collections::BTreeSet;

#[test]
fn pages_say_what_the_command_line_says() {
    let commands = commands(&Arguments::command());
    check_options(&commands);
    check_values(&commands);
    check_ends(&commands);
}

/// What explain, --stats and top count has a place in the manual, under the name that it has in JSON.
#[test]
fn every_counter_is_described() {
    let page = page("pagewire-explain.1");
    let described: BTreeSet<&str> = section(&page, "COUNTERS")
        .lines()
        .filter_map(|line| line.strip_prefix(".Li ").or_else(|| line.strip_prefix(".It Li ")))
        .flat_map(str::split_whitespace)
        .collect();
    let of_faults = pagewire_fabric::FaultCounters::default();
    let counters = pagewire_fabric::Counters::default().all().collect::<Vec<_>>();
    let counters = counters.into_iter().chain(pagewire_nic::ProtocolCounters::default().all());
    let counters = counters.chain(pagewire_nic::FaultCounts::default().all()).chain(of_faults.all());
    let names: BTreeSet<&str> = counters.map(|(name, _)| name).collect();
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<&&str> = names.difference(&described).collect();
    assert!(missing.is_empty(), "not in pagewire-explain(1): {missing:?}");
}

/// The others are those of further programs, whose tests compare them.
#[test]
fn every_command_is_in_the_overview() {
    let listed = listed();
    assert!(listed.contains("help") && listed.is_superset(&names(&Arguments::command())), "{listed:?}");
}
