//! Runs the workload in simulated worlds at length.
//!
//! One world: `swarm --operations 1000000 --path udp --loss 0.05 --seed 7`. Worlds of all kinds, each drawn from a seed,
//! one after the other on so many threads: `swarm --packets 100000000 --jobs 4`; one of them: `swarm --draw --seed 7`.
//!
//! Progress goes to standard error; the last line on standard output is the result, one JSON object. A violation is made
//! small, if that can be, and shown with what was done last.

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use pagewire_nic::{FaultHandling, PathChoice, UnknownFaultHandling};
use pagewire_sim::shrink::{self, Shrunk};
use pagewire_sim::workload::{Violation, WorkloadReport};
use pagewire_sim::{NetworkCounters, Plant, Scenario, StreamFaults};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(10);

/// What the processes of the largest worlds have.
const LEAST_MEMORY: u64 = 2 << 20;

/// Runs a random mixed workload over the NIC in a simulated world and checks every byte and completion.
#[derive(Parser)]
struct SwarmArguments {
    /// Send requests to post in each world [default: 1000000, with --draw and --packets 20000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Decides everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The seed decides what the world is like, too; of the other options only --operations and --no-shrink count.
    #[arg(long)]
    draw: bool,
    /// Runs worlds that the seeds from --seed on draw, until so many packets were sent in all.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Threads for that.
    #[arg(long, default_value_t = 1, value_parser = at_least(1))]
    jobs: usize,
    /// Shows a violation as it is.
    #[arg(long)]
    no_shrink: bool,
    /// How the parties reach each other: local, tcp, udp or auto, by all ways.
    #[arg(long, default_value_t = PathChoice::Udp)]
    path: PathChoice,
    /// Share of the packets that is lost; half as many are doubled, as many reordered, and a tenth as many corrupted.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    loss: f64,
    /// Share that is doubled.
    #[arg(long, value_parser = share)]
    duplicate: Option<f64>,
    /// Share that is reordered.
    #[arg(long, value_parser = share)]
    reorder: Option<f64>,
    /// Share in which a bit is turned round.
    #[arg(long, value_parser = share)]
    corrupt: Option<f64>,
    /// Streams between hosts: the shares of attempts that are refused, of packets behind which one breaks, and of packets before which one
    /// stalls, as in 0.1:0.001:0.01 [default: none; with path tcp, streams that last].
    #[arg(long)]
    streams: Option<StreamFaults>,
    /// Processes that take part.
    #[arg(long, default_value_t = 2, value_parser = at_least(2))]
    parties: usize,
    /// Hosts that they sit on [default: one for each, with path local one for all].
    #[arg(long, value_parser = at_least(1))]
    hosts: Option<usize>,
    /// Processes that know nothing of Pagewire's own packets.
    #[arg(long, default_value_t = 0)]
    standard: usize,
    /// Connections between them.
    #[arg(long, default_value_t = 64, value_parser = at_least(1))]
    connections: usize,
    /// Native connections beside them: put, get, put with signal, conditional writes.
    #[arg(long, default_value_t = 0)]
    natives: usize,
    /// Bytes of the longest message.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 31))]
    longest: u32,
    /// Bytes of each process's memory.
    #[arg(long, default_value_t = 48 << 20, value_parser = clap::value_parser!(u64).range(LEAST_MEMORY..))]
    memory: u64,
    /// No ERR, RESET and deregistration while work is under way.
    #[arg(long)]
    calm: bool,
    /// Send requests between two upheavals.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..))]
    between_upheavals: u64,
    /// Send requests between two ends of processes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    between_crashes: Option<u64>,
    /// Send requests between two looks at all memory.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    between_audits: u64,
    /// Acknowledgement timeout of the RC queue pairs (`timeout` of ibv_modify_qp).
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(..=31))]
    timeout: u8,
    /// Retry count of the RC queue pairs.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(..=7))]
    retry_count: u8,
    /// No connection is an extended reliable one.
    #[arg(long)]
    without_xrc: bool,
    /// Datagrams of some connections go to multicast groups.
    #[arg(long)]
    groups: bool,
    /// Programs overwrite the buffers of flushed requests at once.
    #[arg(long)]
    reuse_flushed: bool,
    /// Turns of a party between two in which it loses pages.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    between_evictions: u32,
    /// What processes do with packets that find a page absent (stash, err, err,nto, rnr or timeout), or mixed: each something else
    /// [default: stash where nothing is lost, else mixed].
    #[arg(long, value_parser = page_faults)]
    page_faults: Option<PageFaultArgument>,
    /// No absent pages.
    #[arg(long)]
    resident: bool,
    /// A bug of the first process that shows after so many chances, to see it found: lost-byte, overrun, atomic-twice or panic,
    /// a colon, a number.
    #[arg(long, value_parser = plant)]
    plant: Option<(Plant, u32)>,
}

/// Numbers of things of which there must be some.
fn at_least(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..)
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("a share is from 0 to 1".to_owned()) }
}

/// What [`Scenario::page_faults`] is to be.
#[derive(Clone, Copy)]
struct PageFaultArgument(Option<FaultHandling>);

fn page_faults(text: &str) -> Result<PageFaultArgument, UnknownFaultHandling> {
    if text == "mixed" {
        Ok(PageFaultArgument(None))
    } else {
        text.parse().map(|handling| PageFaultArgument(Some(handling)))
    }
}

fn plant(text: &str) -> Result<(Plant, u32), String> {
    let (name, chances) = text.split_once(':').ok_or("a name, a colon and a number are expected")?;
    let plant = Plant::named(name).ok_or_else(|| format!("no bug is called {name}"))?;
    Ok((plant, chances.parse().map_err(|error| format!("{chances}: {error}"))?))
}

impl SwarmArguments {
    fn scenario(&self, seed: u64) -> Scenario {
        if self.draw || self.packets.is_some() {
            return Scenario::drawn(seed, self.operations.unwrap_or(20_000));
        }
        let path = self.path;
        let operations = self.operations.unwrap_or(1_000_000);
        let mut scenario = Scenario::new(seed, operations, path, self.loss).with_parties(self.parties);
        scenario.hosts = self.hosts.unwrap_or(scenario.hosts);
        scenario.standard = self.standard;
        scenario.memory = self.memory;
        scenario.plant = self.plant;
        scenario.evictions = !self.resident;
        scenario.evict_every(self.between_evictions);
        if let Some(PageFaultArgument(handling)) = self.page_faults {
            scenario.page_faults = handling;
        }
        let faults = &mut scenario.faults;
        faults.duplicate = self.duplicate.unwrap_or(faults.duplicate);
        faults.reorder = self.reorder.unwrap_or(faults.reorder);
        faults.corrupt = self.corrupt.unwrap_or(faults.corrupt);
        faults.streams = self.streams.or(faults.streams);
        let plan = &mut scenario.plan;
        plan.connections = self.connections;
        plan.natives = self.natives;
        plan.longest = self.longest;
        plan.upheaval = !self.calm;
        plan.between_upheavals = self.between_upheavals;
        plan.between_crashes = self.between_crashes;
        plan.between_audits = self.between_audits;
        plan.extended = !self.without_xrc;
        plan.groups = self.groups;
        plan.reuse_flushed = self.reuse_flushed;
        (plan.timeout, plan.retry_count) = (self.timeout, self.retry_count);
        scenario.plan.exact = scenario.is_exact();
        scenario
    }
}

/// What one world came to.
struct WorldOutcome {
    scenario: Scenario,
    result: Result<WorkloadReport, Violation>,
    network: NetworkCounters,
    virtual_seconds: f64,
}

fn run(scenario: Scenario, progress: impl Fn(&WorkloadReport, u64)) -> WorldOutcome {
    let (result, world) = scenario.run_with(None, |world, report| progress(report, world.now()));
    WorldOutcome {
        scenario,
        result,
        network: world.network_counters(),
        virtual_seconds: world.now() as f64 / 1e9,
    }
}

/// All that was seen so far.
#[derive(Default)]
struct Total {
    worlds: u64,
    report: WorkloadReport,
    network: NetworkCounters,
    virtual_seconds: f64,
    violation: Option<(Scenario, Violation)>,
}

impl Total {
    fn add(&mut self, outcome: WorldOutcome) {
        self.worlds += 1;
        self.virtual_seconds += outcome.virtual_seconds;
        self.network += outcome.network;
        match outcome.result {
            Ok(report) => self.report += report,
            Err(violation) => {
                self.report.operations += violation.operations;
                self.violation.get_or_insert((outcome.scenario, violation));
            }
        }
    }
}

/// Runs world after world on some threads.
fn run_many(arguments: &SwarmArguments, packets: u64, begun: Instant) -> Total {
    // The next seed, what was seen, and when it was told last.
    let next = Mutex::new((arguments.seed, Total::default(), begun));
    let work = || loop {
        let seed = {
            let mut next = next.lock().expect("no thread panics while it holds this");
            if next.1.network.sent >= packets || next.1.violation.is_some() {
                return;
            }
            next.0 += 1;
            next.0 - 1
        };
        let outcome = run(arguments.scenario(seed), |_, _| {});
        let mut next = next.lock().expect("no thread panics while it holds this");
        next.1.add(outcome);
        let (_, Total { worlds, report, network, .. }, told) = &mut *next;
        if told.elapsed() > PROGRESS {
            *told = Instant::now();
            let (sent, operations, deaths) = (network.sent, report.operations, report.deaths);
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!(
                "{worlds:>6} worlds, {operations:>10} operations, {sent:>11} packets, {deaths:>7} deaths, {seconds:>8.1} s"
            );
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..arguments.jobs {
            scope.spawn(work);
        }
        work();
    });
    next.into_inner().expect("no thread panicked").1
}

fn main() -> ExitCode {
    let arguments = SwarmArguments::parse();
    let begun = Instant::now();
    let total = match arguments.packets {
        Some(packets) => run_many(&arguments, packets, begun),
        None => {
            let progress = |report: &WorkloadReport, now: u64| {
                eprintln!(
                    "{:>9} operations, {:>9} completions, {:>5} upheavals, {:>4} deaths, {:>8.1} s virtual, {:>6.1} s",
                    report.operations,
                    report.completions,
                    report.upheavals,
                    report.deaths,
                    now as f64 / 1e9,
                    begun.elapsed().as_secs_f64(),
                );
            };
            let mut total = Total::default();
            total.add(run(arguments.scenario(arguments.seed), progress));
            total
        }
    };
    let Total { worlds, report, network, virtual_seconds, violation } = total;
    let mut line = serde_json::json!({
        "result": if violation.is_none() { "ok" } else { "violation" },
        "seed": arguments.seed,
        "worlds": worlds,
        "seconds": begun.elapsed().as_secs_f64(),
        "virtual_seconds": virtual_seconds,
        "packets": network.sent,
        "packets_lost": network.lost + network.overflowed,
        "packets_corrupted": network.corrupted,
        "packets_dropped_for_icrc": network.bad_icrc,
        "packets_doubled": network.duplicated,
        "packets_reordered": network.reordered,
        "packets_in_streams": network.streamed,
        "streams_broken": network.broken_streams,
        "operations": report.operations,
        "completions": report.completions,
        "provoked_errors": report.errors,
        "given_up_on_standard_peers": report.given_up,
        "bytes_checked": report.bytes_checked,
        "atomics": report.atomics,
        "extended_requests": report.extended,
        "native_operations": report.natives,
        "conditional_writes": report.held_writes,
        "conditional_writes_withdrawn": report.withdrawn,
        "unreliable_sent": report.unreliable_sent,
        "unreliable_received": report.unreliable_received,
        "group_received": report.group_received,
        "upheavals": report.upheavals,
        "drains": report.drains,
        "deaths": report.deaths,
        "successors": report.successors,
        "deregistrations": report.deregistrations,
        "stale_requests": report.stale_requests,
        "binds": report.binds, "flushes": report.flushes,
        "audits": report.audits,
        "slowest_notice_seconds": report.slowest_notice as f64 / 1e9,
    });
    let Some((scenario, violation)) = violation else {
        println!("{line}");
        return ExitCode::SUCCESS;
    };
    eprintln!("{violation}\nrepeat it with: swarm{}", scenario.options());
    let shrunk = match arguments.no_shrink {
        true => Shrunk { scenario, violation, runs: 0 },
        false => {
            // Hundreds of the same panic say nothing more than the first did.
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| {}));
            let shrunk = shrink::shrink(scenario, violation, shrink::RUNS);
            std::panic::set_hook(told);
            shrunk
        }
    };
    eprint!("{}", shrink::trace(&shrunk));
    line["violation"] = shrunk.violation.what.into();
    line["repeat"] = format!("swarm{}", shrunk.scenario.options()).into();
    println!("{line}");
    ExitCode::FAILURE
}
