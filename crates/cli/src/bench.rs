//! `pagewire bench`: Pagewire beside peers and beside the limits of the machine, in one interleaved run.
//!
//! A figure counts only beside another from the same run on the same machine: each benchmark and each of its peers run
//! in turn, several times, and medians are compared. A peer that is not installed gives `null`, never a figure from
//! elsewhere; where only a published figure exists, its name says "published".

mod machine;
mod plot;
mod registration;
mod ucx;

use crate::arguments::{BenchArguments, PathChoice};
use crate::hosts::Host;
use crate::install::{Installation, find_program};
use crate::limits::BENCH_RUN;
use crate::perftest::rows;
use crate::stage::Stage;
use crate::table::Table;
use crate::workload::Workload;
use anyhow::{Result, bail};
use serde::Serialize;
use std::io::Write;

/// One figure beside one peer's.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The benchmark.
    pub bench: &'static str,
    /// Message or region size in bytes.
    pub size: u64,
    /// The path: local, udp, or - where none is involved.
    pub path: &'static str,
    /// Pagewire's median.
    pub value: Option<f64>,
    /// us or MB/s (10^6 bytes a second, as perftest counts with --report_gbits / 8).
    pub unit: &'static str,
    /// What it is compared with.
    pub peer: &'static str,
    /// The peer's median; null if it is not installed or failed.
    pub peer_value: Option<f64>,
    /// Above 1: Pagewire is better.
    pub ratio: Option<f64>,
}

impl Line {
    fn new(
        (bench, size, path, unit): (&'static str, u64, &'static str, &'static str),
        value: Option<f64>,
        (peer, peer_value): (&'static str, Option<f64>),
    ) -> Line {
        let ratio = value
            .zip(peer_value)
            .filter(|(v, p)| *v > 0.0 && *p > 0.0)
            .map(|(value, peer)| if unit == "us" { peer / value } else { value / peer });
        Line { bench, size, path, value, unit, peer, peer_value, ratio }
    }
}

/// A benchmark made of a perftest program.
struct Bench {
    name: &'static str,
    program: &'static str,
    unit: &'static str,
    sizes: &'static [u64],
    /// The test of ucx_perftest that does the same.
    ucx: &'static str,
}

const LATENCY_SIZES: &[u64] = &[8, 4096, 65_536];
const BANDWIDTH_SIZES: &[u64] = &[4096, 65_536, 1 << 20];

#[rustfmt::skip]
const BENCHES: &[Bench] = &[
    Bench { name: "write_lat", program: "ib_write_lat", unit: "us", sizes: LATENCY_SIZES, ucx: "ucp_put_lat" },
    Bench { name: "write_bw", program: "ib_write_bw", unit: "MB/s", sizes: BANDWIDTH_SIZES, ucx: "ucp_put_bw" },
    Bench { name: "send_lat", program: "ib_send_lat", unit: "us", sizes: LATENCY_SIZES, ucx: "tag_lat" },
    Bench { name: "send_bw", program: "ib_send_bw", unit: "MB/s", sizes: BANDWIDTH_SIZES, ucx: "tag_bw" },
    Bench { name: "read_lat", program: "ib_read_lat", unit: "us", sizes: LATENCY_SIZES, ucx: "ucp_get" },
    Bench { name: "read_bw", program: "ib_read_bw", unit: "MB/s", sizes: BANDWIDTH_SIZES, ucx: "ucp_get" },
    Bench { name: "atomic_lat", program: "ib_atomic_lat", unit: "us", sizes: &[8], ucx: "ucp_fadd" },
    Bench { name: "atomic_bw", program: "ib_atomic_bw", unit: "MB/s", sizes: &[8], ucx: "ucp_add" },
];

/// Runs the benchmarks; gives the exit status: 1 if one of Pagewire's own could not be had.
///
/// # Errors
/// If the engine is not installed, or a name is unknown.
pub fn bench(arguments: &BenchArguments) -> Result<u8> {
    let known = |name: &str| name == registration::NAME || BENCHES.iter().any(|bench| bench.name == name);
    if let Some(unknown) = arguments.names.iter().find(|name| !known(name)) {
        bail!("no benchmark is called {unknown} (pagewire bench --help names them)");
    }
    let wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|n| n == name);
    let stage = Stage::prepare(&Installation::find()?)?;
    let rounds = arguments.rounds.max(1);

    let mut lines = Vec::new();
    if wanted(registration::NAME) {
        take(arguments, &mut lines, registration::measure(&stage, rounds)?)?;
    }
    for bench in BENCHES.iter().filter(|bench| wanted(bench.name)) {
        for path in [PathChoice::Local, PathChoice::Udp] {
            if arguments.path != PathChoice::Auto && arguments.path != path {
                continue;
            }
            for &size in bench.sizes {
                take(arguments, &mut lines, measure(bench, path, size, rounds, &stage)?)?;
            }
        }
    }
    if !arguments.json {
        print(&lines)?;
    }
    if let Some(directory) = &arguments.plot {
        for file in plot::draw(&lines, directory)? {
            anstream::eprintln!("drawn: {}", file.display());
        }
    }
    Ok(u8::from(lines.iter().any(|line| line.value.is_none())))
}

/// Keeps new lines; as JSON they are shown at once.
fn take(arguments: &BenchArguments, lines: &mut Vec<Line>, new: Vec<Line>) -> Result<()> {
    if arguments.json {
        let mut out = std::io::stdout().lock();
        for line in &new {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
        }
        out.flush()?;
    } else {
        for line in new.iter().take(1) {
            anstream::eprintln!("measured: {} {} B {}", line.bench, line.size, line.path);
        }
    }
    lines.extend(new);
    Ok(())
}

/// Measures one benchmark and its peers in turn.
fn measure(bench: &Bench, path: PathChoice, size: u64, rounds: usize, stage: &Stage) -> Result<Vec<Line>> {
    let mut own = Vec::new();
    let (mut ucx_figures, mut limit_figures) = (Vec::new(), Vec::new());
    let (ucx_name, limit_name) = match path {
        PathChoice::Udp => {
            ("UCX over TCP", if bench.unit == "us" { "UDP round trip / 2" } else { "UDP with GSO and GRO" })
        }
        _ => ("UCX over posix,cma", "process_vm_writev"),
    };
    for _ in 0..rounds {
        match run_perftest(bench, path, size, stage)? {
            Ok(figure) => own.push(figure),
            Err(complaint) => anstream::eprintln!("{} {size} B {}: {complaint}", bench.name, path.name()),
        }
        if let Some(figure) = ucx::measure(bench.ucx, bench.unit, path, size)? {
            ucx_figures.push(figure);
        }
        limit_figures.push(machine::limit(path, bench.unit, size)?);
    }
    let what = (bench.name, size, path.name(), bench.unit);
    let value = median(&mut own);
    Ok(vec![
        Line::new(what, value, (ucx_name, median(&mut ucx_figures))),
        Line::new(what, value, (limit_name, median(&mut limit_figures))),
    ])
}

/// Runs the perftest program once; the inner error says what went wrong with it.
fn run_perftest(bench: &Bench, path: PathChoice, size: u64, stage: &Stage) -> Result<Result<f64, String>> {
    if find_program(bench.program).is_none() {
        return Ok(Err(format!("{} is not installed (Debian package perftest)", bench.program)));
    }
    let here = Host::here();
    let (size, iterations) = (size.to_string(), iterations(path, size).to_string());
    let mut arguments = vec!["-F", "-n", &iterations];
    if !bench.name.starts_with("atomic") {
        arguments.extend(["-s", &size]);
    }
    if bench.unit == "MB/s" {
        // perftest's MB are 2^20 bytes; its Gb are 10^9 bits.
        arguments.push("--report_gbits");
    }
    let workload = Workload {
        program: bench.program,
        arguments: &arguments,
        server: &here,
        client: &here,
        path,
        environment: &[],
        limit: BENCH_RUN,
    };
    let outcome = workload.run(stage)?;
    if !outcome.pair.success() {
        return Ok(Err(outcome.pair.complaint()));
    }
    if outcome.paths() != [path.name()] {
        return Ok(Err(format!("took the path {:?}", outcome.paths())));
    }
    let output = outcome.pair.client.map(|client| client.output).unwrap_or_default();
    let row = rows(&output).pop();
    let figure = match bench.unit {
        "us" => row.and_then(|row| row.typical_latency()),
        _ => row.and_then(|row| row.average_bandwidth()).map(|gigabits| gigabits * 1000.0 / 8.0),
    };
    Ok(figure.ok_or_else(|| format!("no figure in its output:\n{output}")))
}

/// So many that a run takes some tenths of a second.
fn iterations(path: PathChoice, size: u64) -> u64 {
    let bytes: u64 = if path == PathChoice::Udp { 256 << 20 } else { 2 << 30 };
    (bytes / size).clamp(100, 20_000)
}

/// The median of `figures`; `None` of none.
pub(crate) fn median(figures: &mut [f64]) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn print(lines: &[Line]) -> Result<()> {
    let mut table = Table::new(&["bench", "size", "path", "Pagewire", "unit", "peer", "its value", "ratio"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
    for line in lines {
        table.row(vec![
            line.bench.to_owned(),
            line.size.to_string(),
            line.path.to_owned(),
            number(line.value),
            line.unit.to_owned(),
            line.peer.to_owned(),
            number(line.peer_value),
            number(line.ratio),
        ]);
    }
    let mut out = anstream::stdout().lock();
    table.write(&mut out, "")?;
    writeln!(out, "\nA ratio above 1: Pagewire is better. -: the peer is not installed, or failed.")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_means_better_in_both_units() {
        let faster = Line::new(("a", 8, "udp", "us"), Some(1.0), ("p", Some(2.0)));
        let wider = Line::new(("a", 8, "udp", "MB/s"), Some(2.0), ("p", Some(1.0)));
        assert_eq!((faster.ratio, wider.ratio), (Some(2.0), Some(2.0)));
        assert_eq!(Line::new(("a", 8, "udp", "us"), Some(1.0), ("p", None)).ratio, None);
    }

    #[test]
    fn a_line_has_the_promised_fields() {
        let line = Line::new(("a", 8, "udp", "us"), Some(1.0), ("p", None));
        let text = serde_json::to_string(&line).expect("plain data");
        let expected = r#"{"bench":"a","size":8,"path":"udp","value":1.0,"unit":"us","peer":"p","peer_value":null,"ratio":null}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut []), None);
    }
}
