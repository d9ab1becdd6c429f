//! The long runs of the death harness: `make kill` and `make single-step`.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use pagewire_cli::arguments::PathChoice;
use pagewire_cli::interrupt;
use pagewire_end_to_end::death::{Fate, Instants, OPERATIONS, Program, Run};
use pagewire_end_to_end::ground::Ground;
use std::time::Duration;

/// What survivors rest for between two looks where there are more of them than processors: polling without a pause they would take the
/// processors from the victims.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest run of one process of this command.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Processes that die or are stopped, on the real fabric; the survivor must not suffer.
#[derive(Debug, Parser)]
struct Arguments {
    /// local, udp, tcp, or the first two in turn
    #[arg(long, global = true, value_enum, default_value = "both")]
    path: Paths,
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Paths {
    Local,
    Tcp,
    Udp,
    Both,
}

#[derive(Debug, Subcommand)]
enum What {
    /// SIGKILL at random instants
    Kill {
        #[arg(long, default_value_t = 1000)]
        rounds: u64,
        /// Drawn and printed where none is given
        #[arg(long)]
        seed: Option<u64>,
        /// Number of the first round
        #[arg(long, default_value_t = 0)]
        first: u64,
    },
    /// SIGKILL at one instruction after the other of one operation
    SingleStep {
        /// One of the operations; all in turn where none is given
        #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(OPERATIONS))]
        operation: Option<String>,
        /// Only each so-many-th instruction
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        stride: u64,
        /// The first one: a seed chooses among the strides where none is given
        #[arg(long)]
        first: Option<u64>,
        /// The last one
        #[arg(long, default_value_t = 1_000_000)]
        last: u64,
        /// Chooses the first instruction; drawn and printed where none is given
        #[arg(long)]
        seed: Option<u64>,
        /// Survivors at work at once; with more than the machine has processors they rest a millisecond between two looks
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
        jobs: u64,
        /// Stop the victim for a while instead
        #[arg(long)]
        stop: bool,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // A signal from the terminal does not reach the programs, which are process groups of their own.
    interrupt::watch()?;
    let paths: &[PathChoice] = match arguments.path {
        Paths::Local => &[PathChoice::Local],
        Paths::Udp => &[PathChoice::Udp],
        Paths::Tcp => &[PathChoice::Tcp],
        Paths::Both => &[PathChoice::Local, PathChoice::Udp],
    };
    match arguments.what {
        What::Kill { rounds, seed, first } => {
            let seed = known_or_drawn(seed)?;
            let ground = Ground::prepare()?;
            let program = Program::compile(&ground)?;
            println!("kill: {rounds} rounds from round {first} of seed {seed}");
            for path in paths {
                print!("{}", program.kill(*path, rounds, seed, first)?.finish(LONGEST)?);
            }
        }
        What::SingleStep { operation, stride, first, last, seed, jobs, stop } => {
            let seed = known_or_drawn(seed)?;
            let first = first.unwrap_or(seed % stride);
            println!("single-step: each {stride}th instruction from {first} to {last} (seed {seed})");
            let fate = if stop { Fate::Stopped } else { Fate::Killed };
            let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
            let pause = if jobs > processors { PAUSE } else { Duration::ZERO };
            // A victim would step through the handling of what is for others at its port.
            let grounds: Vec<Ground> = (0..jobs).map(|_| Ground::prepare()).collect::<Result<_>>()?;
            let programs: Vec<Program<'_>> = grounds.iter().map(Program::compile).collect::<Result<_>>()?;
            for path in paths {
                for name in OPERATIONS.iter().filter(|name| operation.as_ref().is_none_or(|one| one == *name))
                {
                    let shares: Vec<Run> = (0..jobs)
                        .zip(&programs)
                        .map(|(job, program)| {
                            let instants =
                                Instants { first: first + job * stride, stride: stride * jobs, last };
                            program.single_step(*path, name, fate, instants, pause)
                        })
                        .collect::<Result<_>>()?;
                    for share in shares {
                        print!("{}", share.finish(LONGEST)?);
                    }
                }
            }
        }
    }
    Ok(())
}

/// A seed that is given, or six digits of chance.
fn known_or_drawn(seed: Option<u64>) -> Result<u64> {
    if let Some(seed) = seed {
        return Ok(seed);
    }
    let mut bytes = [0; 8];
    let mut random = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    std::io::Read::read_exact(&mut random, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes) % 1_000_000)
}
