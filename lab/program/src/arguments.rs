//! The command line of `pagewire bench` and `pagewire reproduce`, as clap sees it.

use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint};
use pagewire_nic::PathChoice;
use std::path::PathBuf;

/// The commands of this program. `pagewire` starts it with the name of one and its arguments.
#[derive(Debug, Parser)]
#[command(
    name = "pagewire",
    bin_name = "pagewire",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure, beside peers and the limits of the machine
    Bench(BenchArguments),
    /// Put what the papers measured beside what models of their machines predict, and this machine does
    Reproduce(ReproduceArguments),
}

/// One side of a measurement: `pagewire-lab probe`, by which this program starts itself. It is no subcommand, so that neither help nor
/// completions know it.
#[derive(Debug, Parser)]
#[command(name = "pagewire-lab probe")]
pub struct ProbeArguments {
    /// Which side of which measurement
    #[arg(value_enum)]
    pub kind: crate::probe::Kind,
    /// Its operands
    pub operands: Vec<String>,
}

/// The path that `pagewire bench` or `reproduce --live` is asked for, of those that can be measured.
fn measured_path(name: String) -> PathChoice {
    let paths = [PathChoice::Local, PathChoice::Tcp].into_iter();
    paths.into_iter().find(|path| path.name() == name).unwrap_or(PathChoice::Udp)
}

/// A budget: minutes, also a part of one.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.0..=crate::limits::MOST_MINUTES).contains(minutes));
    minutes.ok_or_else(|| format!("it is to be a number of minutes, {} at most", crate::limits::MOST_MINUTES))
}

/// Arguments of `pagewire bench`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire bench                        all of them\n  \
    pagewire bench write_lat              one\n  \
    pagewire bench write_lat --path local --json\n  \
    pagewire bench conditional_write --strategy cache\n  \
    pagewire bench hashtable --processes 2 --cells 175000 --inserts 100000 --json\n  \
    pagewire bench counter --scheme a-kv --json\n\n\
    A line of --json: {bench, size, path, value, unit, peer, peer_value, ratio}; a ratio above 1\n\
    means that Pagewire is better than the peer. Where the peer is not installed, peer is null.\n\
    A figure that was published for another machine has no ratio.\n\n\
    Exit status: 0, or 1 if a figure of Pagewire's own could not be had.")]
pub struct BenchArguments {
    /// The benchmarks; all where none is named
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(crate::bench::names()))]
    pub names: Vec<String>,
    /// Only this path; local and udp where it is not given, and local for a hash table or a scheme that is named. Over tcp only perftest's programs
    /// are measured
    #[arg(long, value_parser = PossibleValuesParser::new(["local", "tcp", "udp"]).map(measured_path))]
    pub path: Option<PathChoice>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Write the JSON objects to FILE, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,
    /// Draw the figures as SVG files into DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub plot: Option<PathBuf>,
    /// How often each benchmark and its peer are run, in turn
    #[arg(long, value_name = "N", default_value_t = crate::limits::BENCH_ROUNDS,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// How both sides of conditional_write, and of the traditional order beside it, register their buffers; mlock(2) stands for registration.
    /// Without it nothing is registered
    #[arg(long, value_enum)]
    pub strategy: Option<crate::native::Strategy>,
    #[command(flatten)]
    pub table: TableArguments,
}

/// Arguments of the benchmarks of the hash table, and of counted and logged accesses by scheme.
#[derive(Args, Debug)]
pub struct TableArguments {
    /// Processes of a hash table, or of accesses by scheme; those of a benchmark over udp are on two hosts in turn
    #[arg(long, value_name = "N", default_value = "2", value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub processes: usize,
    /// Cells of a hash table that each process has; without it as many as let 5 % of the elements collide
    #[arg(long, value_name = "N")]
    pub cells: Option<usize>,
    /// Elements that each process inserts into a hash table
    #[arg(long, value_name = "N")]
    pub inserts: Option<u64>,
    /// Accesses that each process makes to others, by scheme; keys that each process sorts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=crate::limits::BENCH_ACCESSES))]
    pub accesses: Option<u64>,
    /// Who changes the part of a hash table that another process has (nearest where it is not given); who counts accesses, or logs gets
    #[arg(long, value_parser = PossibleValuesParser::new(crate::native::scheme_names::all()))]
    pub scheme: Option<String>,
}

impl TableArguments {
    /// Whether one of them is not as it is where none is given.
    pub fn is_given(&self) -> bool {
        self.processes != 2 || self.scheme.is_some() || self.is_of_tables() || self.accesses.is_some()
    }

    /// Whether there is one that a hash table alone has.
    pub fn is_of_tables(&self) -> bool {
        self.cells.is_some() || self.inserts.is_some()
    }
}

/// Arguments of `pagewire reproduce`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire reproduce part\n  \
    pagewire reproduce part --figure 12 --out figures\n  \
    pagewire reproduce jbmt --json\n  \
    pagewire reproduce frrwp --table 1\n  \
    pagewire reproduce reuse --live --path local\n  \
    pagewire reproduce active --figure 7a --live --path local --processes 2,4\n  \
    pagewire reproduce active --figure 7a --live --path udp --delay 0,5,20,50,100\n  \
    pagewire reproduce part --figure 12 --live\n  \
    pagewire reproduce part --applications --budget 30 --out applications\n  \
    pagewire reproduce part --applications --hosts 2 --table 2 --out applications\n  \
    pagewire reproduce all --out papers\n\n\
    Exit status: 0, or 1 if the paper has no such figure or table, a file cannot be written,\n\
    or something could not be measured that this machine allows (with --live or --applications).",
    group(ArgGroup::new("measured").args(["live", "applications"])))]
pub struct ReproduceArguments {
    /// The paper
    #[arg(value_enum)]
    pub paper: ReproducedPaper,
    /// Only this figure, or one part of it: 7, 7a
    #[arg(long, value_name = "N", conflicts_with = "table")]
    pub figure: Option<FigureNumber>,
    /// Only this table
    #[arg(long, value_name = "N")]
    pub table: Option<u32>,
    /// Measure on this machine, too, what can be: two processes with the engine, in some minutes
    #[arg(long)]
    pub live: bool,
    /// How often each run on this machine is made, in turn, after one round that does not count
    #[arg(long, requires = "live", value_name = "N", default_value_t = crate::limits::LIVE_ROUNDS,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Run the applications of PART's tables 2 to 5 on this machine, and keep what is finished in --out
    #[arg(long, requires = "out", conflicts_with = "figure")]
    pub applications: bool,
    /// Minutes after which --applications starts no further run; the next call goes on there
    #[arg(long, requires = "applications", value_name = "MINUTES", default_value = "10", value_parser = minutes)]
    pub budget: f64,
    /// How often --applications makes each run, in turn with those that it is compared with
    #[arg(long, requires = "applications", value_name = "N", default_value_t = crate::limits::APPLICATION_PAIRS,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// The folder of HPCG's sources, which --applications compiles; without it there is no table 4
    #[arg(long, requires = "applications", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub hpcg: Option<PathBuf>,
    /// On how many hosts --applications runs; 2 are network namespaces that a veth pair joins, with half of the processes in each
    #[arg(long, requires = "applications", value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=2))]
    pub hosts: u32,
    /// Over this path; udp where it is not given, and all paths with --applications; tcp only with that and with --delay
    #[arg(long, requires = "measured", value_parser = PossibleValuesParser::new(["local", "tcp", "udp"]).map(measured_path))]
    pub path: Option<PathChoice>,
    /// Processes of the runs of active, in figures by that count; several: 2,4,8. The numbers are of the first
    #[arg(long, requires = "live", value_name = "N", value_delimiter = ',', default_value = "2",
        value_parser = clap::value_parser!(u64).range(2..=64))]
    pub processes: Vec<u64>,
    /// The hash table of active's figures 7a and 7b over a network that is longer on purpose, in place of all other figures: microseconds by which each
    /// packet leaves later, at most 10000, several: 0,5,20,50,100. The path is udp or tcp, and of --processes the first counts
    #[arg(long, requires = "live", value_name = "US", value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub delay: Vec<u64>,
    /// Write the numbers as CSV, and the figures as CSV and SVG, into DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// One JSON object a line: numbers, figures, inputs, counts
    #[arg(long)]
    pub json: bool,
}

/// A figure by its number, or a part of one by its letter, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FigureNumber {
    /// Of the figure.
    pub number: u32,
    /// Of the part.
    pub letter: Option<char>,
}

impl std::str::FromStr for FigureNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<FigureNumber, String> {
        let letter = text.chars().last().filter(char::is_ascii_lowercase);
        let digits = letter.map_or(text, |letter| text.strip_suffix(letter).unwrap_or(text));
        let number = digits.parse().map_err(|_| "it is to be a number, or one with a letter, such as 7a")?;
        Ok(FigureNumber { number, letter })
    }
}

/// The papers whose machines are modelled.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ReproducedPaper {
    /// Page faults during RDMA as errors of transmission
    Part,
    /// RDMA with dynamic page pinning, onloaded
    Jbmt,
    /// Overlapped registration and conditional writes
    Frrwp,
    /// Explicit reuse: an allocator of registered memory
    Reuse,
    /// Active Access: handlers on put and get
    Active,
    /// One after the other, into --out; those that are complete there are left as they are
    All,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn path_of_a_paper_needs_live() {
        let parse =
            |words: &str| Arguments::try_parse_from(words.split(' ')).map(|arguments| arguments.command);
        match parse("pagewire reproduce part --figure 12 --live --path local") {
            Ok(Command::Reproduce(reproduce)) => {
                assert!(reproduce.live && reproduce.path == Some(PathChoice::Local));
            }
            other => panic!("{other:?}"),
        }
        match parse("pagewire reproduce jbmt --live") {
            Ok(Command::Reproduce(reproduce)) => assert!(reproduce.live && reproduce.path.is_none()),
            other => panic!("{other:?}"),
        }
        match parse("pagewire reproduce active --figure 7a") {
            Ok(Command::Reproduce(reproduce)) => {
                assert_eq!(reproduce.figure, Some(FigureNumber { number: 7, letter: Some('a') }));
            }
            other => panic!("{other:?}"),
        }
        for wrong in ["a", "7A", "7ab", "7é", ""] {
            assert!(wrong.parse::<FigureNumber>().is_err(), "{wrong}");
        }
        for wrong in ["pagewire reproduce part --path udp", "pagewire reproduce part --live --path auto"] {
            assert_eq!(parse(wrong).expect_err(wrong).exit_code(), 2);
        }
    }

    #[test]
    fn a_benchmark_that_does_not_exist_is_a_wrong_command_line() {
        let refused =
            Arguments::try_parse_from(["pagewire", "bench", "write_latency"]).expect_err("no such name");
        assert_eq!(refused.exit_code(), 2);
        let text = refused.to_string();
        assert!(crate::bench::names().iter().all(|name| text.contains(name)), "{text}");
        let refused =
            Arguments::try_parse_from(["pagewire", "bench", "--rounds", "0"]).expect_err("no round");
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("0 is not in 1.."), "{refused}");
    }
}
