//! Runs the workload in the simulated world at length: `swarm --operations 1000000 --path udp --loss 0.05 --seed 7`.
//!
//! Progress goes to standard error; the last line on standard output is the result, one JSON object.

use clap::{Parser, ValueEnum};
use pagewire_nic::PathChoice;
use pagewire_sim::Scenario;
use pagewire_sim::workload::{Hooks, Report, Workload};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Clone, Copy, ValueEnum)]
enum Path {
    Local,
    Udp,
}

/// Runs a random mixed workload over the NIC in a simulated world and checks every byte and completion.
#[derive(Parser)]
struct Arguments {
    /// Send requests to post.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// How the parties reach each other.
    #[arg(long, value_enum, default_value = "udp")]
    path: Path,
    /// Share of the packets that is lost; half as many are doubled and as many reordered.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Decides everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes that take part.
    #[arg(long, default_value_t = 2)]
    parties: usize,
    /// Connections between them.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// No ERR, RESET and deregistration while work is under way.
    #[arg(long)]
    calm: bool,
    /// Send requests between two upheavals.
    #[arg(long, default_value_t = 400)]
    between_upheavals: u64,
    /// Programs overwrite the buffers of flushed requests at once.
    #[arg(long)]
    reuse_flushed: bool,
    /// No absent pages.
    #[arg(long)]
    resident: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (path, name) = match arguments.path {
        Path::Local => (PathChoice::Local, "local"),
        Path::Udp => (PathChoice::Udp, "udp"),
    };
    let mut scenario = Scenario::new(arguments.seed, arguments.operations, path, arguments.loss);
    scenario.parties = arguments.parties.max(2);
    scenario.plan.connections = arguments.connections.max(1);
    scenario.plan.upheaval = !arguments.calm;
    scenario.plan.between_upheavals = arguments.between_upheavals.max(1);
    scenario.plan.reuse_flushed = arguments.reuse_flushed;
    scenario.evictions = !arguments.resident;
    let built = scenario.build(None);
    let world = built.world.clone();
    let begun = Instant::now();
    let progress = |report: &Report| {
        eprintln!(
            "{:>9} operations, {:>9} completions, {:>5} upheavals, {:>8.1} s virtual, {:>6.1} s",
            report.operations,
            report.completions,
            report.upheavals,
            world.now() as f64 / 1e9,
            begun.elapsed().as_secs_f64(),
        );
    };
    let result = Workload::new(scenario.plan.clone(), built.stage, built.parties, Hooks::default())
        .and_then(|mut workload| workload.run(progress));
    let network = world.network_counters();
    let mut line = serde_json::json!({
        "path": name,
        "loss": arguments.loss,
        "seed": arguments.seed,
        "seconds": begun.elapsed().as_secs_f64(),
        "virtual_seconds": world.now() as f64 / 1e9,
        "packets": network.sent,
        "packets_lost": network.lost + network.corrupted + network.overflowed,
        "packets_doubled": network.duplicated,
        "packets_reordered": network.reordered,
    });
    let passed = result.is_ok();
    match result {
        Ok(report) => {
            line["result"] = "ok".into();
            line["operations"] = report.operations.into();
            line["completions"] = report.completions.into();
            line["provoked_errors"] = report.errors.into();
            line["bytes_checked"] = report.bytes_checked.into();
            line["atomics"] = report.atomics.into();
            line["unreliable_sent"] = report.unreliable_sent.into();
            line["unreliable_received"] = report.unreliable_received.into();
            line["upheavals"] = report.upheavals.into();
            line["deregistrations"] = report.deregistrations.into();
            line["stale_requests"] = report.stale_requests.into();
            line["audits"] = report.audits.into();
        }
        Err(violation) => {
            line["result"] = "violation".into();
            line["operations"] = violation.operations.into();
            line["violation"] = violation.what.into();
        }
    }
    println!("{line}");
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
