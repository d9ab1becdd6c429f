//! Runs the engine on many simulated hosts, and measures what hosts and connections cost.
//!
//! Progress goes to standard error, the result to standard output.

mod output;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use pagewire_sim::scale::{self, ScalePlan, ScaleProgress, ScaleWorkload};
use pagewire_sim::{Plant, PortLimits};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  scale --hosts 64                                     each host sends to all others
  scale --hosts 1024 --workload incast --json          1,023 hosts send to the first
  scale --hosts 256 --workload slow-pager --pager-ms 500
  scale --hosts 10000 --peers 8                        each host sends to 8 others only

The exit status is 0 if all messages arrived and every byte is right, 1 if not or if memory does not suffice,
2 for a wrong command line.";

/// Runs the engine on many hosts in virtual time, checks every message, and measures time and memory.
#[derive(Parser)]
#[command(after_help = EXAMPLES)]
struct ScaleArguments {
    /// Hosts, each with one process and one engine.
    #[arg(long, default_value_t = 64, value_parser = RangedU64ValueParser::<usize>::new().range(2..=60_000))]
    hosts: usize,
    /// Which hosts send to which: all-to-all, incast (all to the first) or slow-pager (to all peers, while pages of the first host
    /// are absent).
    #[arg(long, default_value_t = ScaleWorkload::AllToAll)]
    workload: ScaleWorkload,
    /// Peers of each host, one more where that is odd [default: all other hosts, with slow-pager 8].
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..), conflicts_with = "all_peers")]
    peers: Option<usize>,
    /// With slow-pager, too, each host has all others as peers.
    #[arg(long)]
    all_peers: bool,
    /// Bytes of a message [default: 512, with incast 16384, with slow-pager 4096].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    bytes: Option<u32>,
    /// Messages to each peer [default: 1, with incast 4, with slow-pager 8].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    rounds: Option<u32>,
    /// Messages that a host has outstanding at most.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 15))]
    depth: u32,
    /// Acknowledgement timeout of the queue pairs (`timeout` of ibv_modify_qp).
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u8).range(..=31))]
    timeout: u8,
    /// Milliseconds of virtual time after which absent pages come in (slow-pager).
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=10_000))]
    pager_ms: u64,
    /// Bytes that wait at most in front of a host's port; more are dropped.
    #[arg(long, default_value_t = PortLimits::USUAL.queue, value_parser = clap::value_parser!(u64).range(8192..))]
    port_queue: u64,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Resident memory, in MiB, from which on the run is given up.
    #[arg(long, default_value_t = 12 << 10, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory_limit: u64,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// A bug of the first host that shows after so many chances, to see it found: lost-byte or overrun, a colon, a number.
    #[arg(long, value_parser = plant)]
    plant: Option<(Plant, u32)>,
}

fn plant(text: &str) -> Result<(Plant, u32), String> {
    let wrong = || "a bug, a colon and a number are expected, as in lost-byte:50".to_owned();
    let (name, chances) = text.split_once(':').ok_or_else(wrong)?;
    let plant = Plant::named(name).ok_or_else(wrong)?;
    Ok((plant, chances.parse().map_err(|_| wrong())?))
}

impl ScaleArguments {
    fn plan(&self) -> ScalePlan {
        let usual = ScalePlan::new(self.workload, self.hosts);
        ScalePlan {
            seed: self.seed,
            peers: if self.all_peers { None } else { self.peers.or(usual.peers) },
            bytes: self.bytes.unwrap_or(usual.bytes),
            rounds: self.rounds.unwrap_or(usual.rounds),
            depth: self.depth,
            timeout: self.timeout,
            pager_time: self.pager_ms * 1_000_000,
            ports: PortLimits { queue: self.port_queue, ..usual.ports },
            memory_limit: self.memory_limit << 20,
            plant: self.plant,
            ..usual
        }
    }
}

fn main() -> ExitCode {
    let arguments = ScaleArguments::parse();
    let begun = Instant::now();
    let mut reported = begun;
    let mut progress = |progress: ScaleProgress| {
        if reported.elapsed() < PROGRESS {
            return;
        }
        reported = Instant::now();
        let ScaleProgress { phase, done, total, virtual_nanoseconds } = progress;
        let seconds = begun.elapsed().as_secs_f64();
        let virtual_seconds = virtual_nanoseconds as f64 / 1e9;
        eprintln!("{done:>12} of {total} {phase}, {virtual_seconds:.6} s virtual, {seconds:.1} s");
    };
    match scale::run(&arguments.plan(), &mut progress) {
        Ok(report) if arguments.json => println!("{}", output::json(&report)),
        Ok(report) => println!("{}", output::text(&report)),
        Err(failure) => {
            eprintln!("scale: {failure}");
            if arguments.json {
                println!("{}", serde_json::json!({ "result": "failure", "what": failure.to_string() }));
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
