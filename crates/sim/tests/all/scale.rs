//! Many hosts: each workload of `scale` in a small version, and what it must find.

use pagewire_sim::scale::{self, ScaleFailure, ScalePlan, ScaleReport, ScaleWorkload};
use pagewire_sim::{Plant, PortLimits};
use std::process::Command;

fn passes(plan: &ScalePlan) -> ScaleReport {
    scale::run(plan, &mut |_| {}).unwrap_or_else(|failure| panic!("{failure}\n{plan:?}"))
}

#[test]
fn each_host_sends_to_all_others() {
    let report = passes(&ScalePlan::new(ScaleWorkload::AllToAll, 40));
    assert_eq!((report.queue_pairs, report.messages), (40 * 39, 40 * 39));
    assert_eq!(report.bytes_checked, 40 * 39 * 512);
    // A message and its acknowledgement, which several messages may share. Greetings come on top.
    assert!(report.network.sent > report.messages, "{report:?}");
    assert_eq!((report.network.overflowed, report.network.unknown), (0, 0), "{report:?}");
    // 39 messages leave in 4 us, and are 5 us under way.
    assert!((9_000..1_000_000).contains(&report.virtual_time), "{report:?}");
}

/// More hosts than a byte of an address counts.
#[test]
fn hundreds_of_hosts_have_some_peers_each() {
    let plan = ScalePlan { peers: Some(4), ..ScalePlan::new(ScaleWorkload::AllToAll, 300) };
    let report = passes(&plan);
    assert_eq!((report.queue_pairs, report.messages, report.bytes_checked), (1200, 1200, 1200 * 512));
}

#[test]
fn one_port_takes_what_all_send_to_it() {
    let report = passes(&ScalePlan::new(ScaleWorkload::Incast, 20));
    assert_eq!((report.queue_pairs, report.messages), (38, 19 * 4));
    assert_eq!(report.bytes_checked, 19 * 4 * 16_384);
    // 1.2 MB at 0.2 ns for each byte.
    assert!(report.virtual_time > 240_000, "{report:?}");
}

#[test]
fn what_a_full_port_drops_arrives_later() {
    let plan = ScalePlan::new(ScaleWorkload::Incast, 20);
    let plan = ScalePlan { ports: PortLimits { queue: 64 << 10, ..plan.ports }, ..plan };
    let report = passes(&plan);
    assert!(report.network.overflowed > 0, "{report:?}");
    assert_eq!(report.bytes_checked, 19 * 4 * 16_384);
}

/// A page that does not come stops only what waits for it.
#[test]
fn a_slow_pager_stops_only_its_own_messages() {
    let plan = ScalePlan::new(ScaleWorkload::SlowPager, 24);
    let report = passes(&plan);
    assert_eq!(report.bytes_checked, 24 * 8 * 8 * 4096);
    assert!(report.virtual_time >= plan.pager_time, "{report:?}");
    assert!(report.virtual_time_of_others < plan.pager_time / 10, "{report:?}");
    let quick = passes(&ScalePlan { pager_time: 1_000_000, ..plan.clone() });
    assert!(quick.virtual_time < plan.pager_time, "{quick:?}");
}

#[test]
fn a_seed_repeats_a_run() {
    let circle = ScalePlan { peers: Some(6), rounds: 3, ..ScalePlan::new(ScaleWorkload::AllToAll, 30) };
    let incast = ScalePlan::new(ScaleWorkload::Incast, 40);
    let pager = ScalePlan::new(ScaleWorkload::SlowPager, 20);
    for plan in [&circle, &incast, &pager] {
        let seen = [0, 1].map(|_| {
            let report = passes(plan);
            (report.virtual_time, report.virtual_time_of_others, report.runs, report.happened, report.network)
        });
        assert_eq!(seen[0], seen[1], "{plan:?}");
    }
    assert!(passes(&incast).network.overflowed > 0, "what is dropped is repeated, too");
    assert_ne!(circle.topology(), ScalePlan { seed: 2, ..circle.clone() }.topology());
}

#[test]
fn a_planted_bug_is_found() {
    for workload in ScaleWorkload::ALL {
        let plan = ScalePlan { plant: Some((Plant::LostByte, 5)), ..ScalePlan::new(workload, 12) };
        let failure = scale::run(&plan, &mut |_| {}).expect_err("a byte is wrong");
        assert!(
            matches!(&failure, ScaleFailure::Wrong { host: 0, what } if what.contains("is wrong")),
            "{failure}"
        );
    }
}

#[test]
fn messages_that_do_not_end_are_reported() {
    let plan = ScalePlan { patience: 50_000_000, ..ScalePlan::new(ScaleWorkload::SlowPager, 12) };
    let failure = scale::run(&plan, &mut |_| {}).expect_err("the pages come later");
    // At both ends, those of the first host's 8 peers.
    assert!(matches!(failure, ScaleFailure::Stalled { missing: 65..=128, .. }), "{failure}");
}

#[test]
fn a_run_ends_where_memory_does() {
    let plan = ScalePlan { memory_limit: 1 << 20, ..ScalePlan::new(ScaleWorkload::AllToAll, 4) };
    let failure = scale::run(&plan, &mut |_| {}).expect_err("this process is larger");
    assert!(matches!(failure, ScaleFailure::TooLarge { limit: 1_048_576, .. }), "{failure}");
}

fn command(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_scale")).args(arguments).output().expect("the program");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_command_prints_one_object() {
    let (status, text) = command(&["--hosts", "10", "--peers", "3", "--rounds", "2", "--json"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.starts_with('{') && text.lines().count() == 1, "{text}");
    assert!(text.contains("\"result\":\"ok\"") && text.contains("\"messages\":80,"), "{text}");
    let (status, text) = command(&["--hosts", "10", "--plant", "lost-byte:3", "--json"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("is wrong"), "{text}");
    for wrong in ["--hosts=1", "--workload=none", "--peers=0", "--plant=lost-byte"] {
        assert_eq!(command(&[wrong]), (Some(2), String::new()), "{wrong}");
    }
}
