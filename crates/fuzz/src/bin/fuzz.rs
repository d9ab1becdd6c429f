//! Fuzzes for as long as one likes: `fuzz --seconds 3600`, `fuzz --packets 100000000 --target sequences --seed 7`.
//!
//! Progress goes to standard error, the result to standard output. Status 1: a violation; the last line says how to see it
//! again.

use clap::Parser;
use pagewire_fuzz::FuzzTarget;
use pagewire_fuzz::campaign::{self, Campaign, CampaignReport};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs seeded inputs through the fuzz targets.
#[derive(Parser)]
struct FuzzArguments {
    /// What is fuzzed; more than one: in turn. Default: all.
    #[arg(long = "target", value_enum)]
    targets: Vec<FuzzTarget>,
    /// Seconds after which no execution begins.
    #[arg(long)]
    seconds: Option<u64>,
    /// Packets after which no execution begins.
    #[arg(long)]
    packets: Option<u64>,
    /// Executions.
    #[arg(long)]
    executions: Option<u64>,
    /// With the number of an execution it decides its input.
    #[arg(long)]
    seed: Option<u64>,
    /// The execution to begin with.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Threads. Default: as many as processors.
    #[arg(long)]
    jobs: Option<usize>,
    /// Where the inputs are that are kept (a folder for each target).
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus"))]
    corpus: PathBuf,
    /// Writes the input of the first execution to a file, and runs nothing.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Runs the inputs in these files instead.
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(FuzzArguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: FuzzArguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let all = if arguments.targets.is_empty() { FuzzTarget::ALL.to_vec() } else { arguments.targets };
    let mut targets = Vec::new();
    for target in all {
        targets.push((target, campaign::corpus(&arguments.corpus, target)?));
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let names: String = targets.iter().map(|(target, _)| format!(" --target {}", target.name())).collect();
    if let Some(file) = &arguments.write {
        let (target, corpus) = &targets[(arguments.first % targets.len() as u64) as usize];
        std::fs::write(file, campaign::input(*target, seed, arguments.first, corpus))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.files.is_empty() {
        for file in &arguments.files {
            let input = std::fs::read(file)?;
            for (target, _) in &targets {
                let packets = target.run(&input);
                println!("{} {}: {packets} packets", target.name(), file.display());
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = match arguments.jobs {
        Some(jobs) => jobs.max(1),
        None => std::thread::available_parallelism()?.get(),
    };
    println!("fuzz: seed {seed},{names}, {jobs} threads");
    let begun = Instant::now();
    let campaign = Campaign {
        targets,
        seed,
        first: arguments.first,
        jobs,
        time: arguments.seconds.map(Duration::from_secs),
        executions: arguments.executions,
        packets: arguments.packets,
    };
    let line = |report: CampaignReport| {
        let seconds = begun.elapsed().as_secs_f64();
        let CampaignReport { executions, packets } = report;
        format!("{executions} executions, {packets} packets, {seconds:.0} s")
    };
    match campaign.run(|report| eprintln!("{}", line(report))) {
        Ok(report) => {
            println!("fuzz: {}, no violation, seed {seed}", line(report));
            Ok(ExitCode::SUCCESS)
        }
        Err(violation) => {
            println!("fuzz: violation in {}: {}", violation.target.name(), violation.what);
            println!("again: fuzz --seed {seed} --first {} --executions 1{names}", violation.execution);
            Ok(ExitCode::FAILURE)
        }
    }
}
