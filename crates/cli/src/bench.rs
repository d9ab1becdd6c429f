//! `pagewire bench`: Pagewire beside peers and beside the limits of the machine, in one interleaved run.
//!
//! A figure counts only beside another from the same run on the same machine: each benchmark and each of its peers run
//! in turn, several times, and medians are compared. A peer that is not installed gives `null`, never a figure from
//! elsewhere; where only a published figure exists, its name says "published".

mod machine;
mod plot;
mod registration;
mod ucx;

use self::machine::Exchange;
use self::ucx::Ucx;
use crate::arguments::{BenchArguments, PathChoice};
use crate::hosts::Host;
use crate::install::{Installation, find_program};
use crate::interrupt;
use crate::limits::BENCH_RUN;
use crate::perftest::rows;
use crate::stage::Stage;
use crate::table::Table;
use crate::workload::Workload;
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// One figure beside one peer's.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The benchmark.
    pub bench: &'static str,
    /// Message or region size in bytes.
    pub size: u64,
    /// The path: local, udp, or - where none is involved.
    pub path: &'static str,
    /// Pagewire's median; null if it could not be had.
    pub value: Option<f64>,
    /// us or MB/s (10^6 bytes a second).
    pub unit: &'static str,
    /// What it is compared with; null if that is not installed.
    pub peer: Option<String>,
    /// The peer's median; null if it is not installed or failed.
    pub peer_value: Option<f64>,
    /// Above 1: Pagewire is better.
    pub ratio: Option<f64>,
}

impl Line {
    fn new(
        (bench, size, path, unit): (&'static str, u64, &'static str, &'static str),
        value: Option<f64>,
        (peer, peer_value): (Option<String>, Option<f64>),
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
    /// What the machine itself needs for it.
    limit: Exchange,
}

const LATENCY_SIZES: &[u64] = &[8, 4096, 65_536];
const BANDWIDTH_SIZES: &[u64] = &[4096, 65_536, 1 << 20];

#[rustfmt::skip]
const BENCHES: &[Bench] = &[
    Bench { name: "write_lat", program: "ib_write_lat", unit: "us", sizes: LATENCY_SIZES, ucx: "ucp_put_lat", limit: Exchange::Write },
    Bench { name: "write_bw", program: "ib_write_bw", unit: "MB/s", sizes: BANDWIDTH_SIZES, ucx: "ucp_put_bw", limit: Exchange::Write },
    Bench { name: "send_lat", program: "ib_send_lat", unit: "us", sizes: LATENCY_SIZES, ucx: "tag_lat", limit: Exchange::Write },
    Bench { name: "send_bw", program: "ib_send_bw", unit: "MB/s", sizes: BANDWIDTH_SIZES, ucx: "tag_bw", limit: Exchange::Write },
    Bench { name: "read_lat", program: "ib_read_lat", unit: "us", sizes: LATENCY_SIZES, ucx: "ucp_get", limit: Exchange::Read },
    Bench { name: "read_bw", program: "ib_read_bw", unit: "MB/s", sizes: BANDWIDTH_SIZES, ucx: "ucp_get", limit: Exchange::Read },
    Bench { name: "atomic_lat", program: "ib_atomic_lat", unit: "us", sizes: &[8], ucx: "ucp_fadd", limit: Exchange::Atomic },
    Bench { name: "atomic_bw", program: "ib_atomic_bw", unit: "MB/s", sizes: &[8], ucx: "ucp_fadd", limit: Exchange::Atomic },
];

/// What there is to measure, by name.
pub fn names() -> Vec<&'static str> {
    std::iter::once(registration::NAME).chain(BENCHES.iter().map(|bench| bench.name)).collect()
}

/// Runs the benchmarks; gives the exit status: 1 if one of Pagewire's own could not be had.
///
/// # Errors
/// If the engine is not installed, or the pictures cannot be written.
pub fn bench(arguments: &BenchArguments) -> Result<u8> {
    let wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|n| n == name);
    let benches: Vec<&Bench> = BENCHES.iter().filter(|bench| wanted(bench.name)).collect();
    if let Some(directory) = &arguments.plot {
        // Known before minutes are spent on measuring.
        plot::prepare(directory)?;
    }
    let missing: Vec<&str> =
        benches.iter().map(|bench| bench.program).filter(|program| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        bail!("not installed: {} (Debian package perftest)", missing.join(", "));
    }
    interrupt::watch()?;
    let stage = Stage::prepare(&Installation::find()?)?;
    let rounds = arguments.rounds.get();
    let ucx = Ucx::find();
    if ucx.is_none() && !benches.is_empty() {
        anstream::eprintln!(
            "pagewire: ucx_perftest is not installed (Debian package ucx-utils): that peer is null"
        );
    }

    let mut view = View::new(arguments, steps(arguments, &benches, wanted(registration::NAME)));
    let mut lines = Vec::new();
    if wanted(registration::NAME) {
        view.start(registration::NAME);
        let new = registration::measure(&stage, rounds)?;
        view.show(&new)?;
        lines.extend(new);
    }
    for bench in benches {
        for path in paths(arguments) {
            for &size in bench.sizes {
                view.start(&format!("{} {size} B {}", bench.name, path.name()));
                let new = measure(bench, path, size, rounds, &stage, ucx.as_ref())?;
                view.show(&new)?;
                lines.extend(new);
            }
        }
    }
    view.finish();
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

fn paths(arguments: &BenchArguments) -> Vec<PathChoice> {
    let both = [PathChoice::Local, PathChoice::Udp].into_iter();
    both.filter(|&path| arguments.path == PathChoice::Auto || arguments.path == path).collect()
}

/// How many figures of Pagewire's own there will be, registration counted as one.
fn steps(arguments: &BenchArguments, benches: &[&Bench], registration: bool) -> u64 {
    let sizes: usize = benches.iter().map(|bench| bench.sizes.len()).sum();
    (sizes * paths(arguments).len()) as u64 + u64::from(registration)
}

/// What is seen while it measures: JSON lines as they come, and a bar on a terminal or plain lines elsewhere, both on
/// standard error.
struct View {
    json: bool,
    bar: Option<ProgressBar>,
}

impl View {
    fn new(arguments: &BenchArguments, steps: u64) -> View {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps);
            // The template is a constant and valid; the plain bar would do as well.
            if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len}  {msg}  {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        View { json: arguments.json, bar }
    }

    fn start(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => anstream::eprintln!("measuring: {what}"),
        }
    }

    fn show(&mut self, new: &[Line]) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        if !self.json {
            return Ok(());
        }
        let print = || -> Result<()> {
            let mut out = std::io::stdout().lock();
            for line in new {
                writeln!(out, "{}", serde_json::to_string(line)?)?;
            }
            Ok(out.flush()?)
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Figures of several rounds, and what was said where there was none.
#[derive(Default)]
struct Figures {
    values: Vec<f64>,
    complaint: Option<String>,
}

impl Figures {
    fn add(&mut self, figure: Result<f64, String>) {
        match figure {
            Ok(value) => self.values.push(value),
            Err(complaint) => self.complaint = Some(complaint),
        }
    }

    /// The median; says on standard error what was wrong in a round.
    fn median(mut self, whose: &str) -> Option<f64> {
        if let Some(complaint) = &self.complaint {
            anstream::eprintln!("pagewire: {whose}: {complaint}");
        }
        median(&mut self.values)
    }
}

/// Measures one benchmark and its peers in turn.
fn measure(
    bench: &Bench,
    path: PathChoice,
    size: u64,
    rounds: u32,
    stage: &Stage,
    ucx: Option<&Ucx>,
) -> Result<Vec<Line>> {
    let (mut own, mut of_ucx, mut of_machine) = (Figures::default(), Figures::default(), Figures::default());
    let limit = machine::limit(path, bench.limit, bench.unit);
    for _ in 0..rounds {
        own.add(run_perftest(bench, path, size, stage)?);
        if let Some(ucx) = ucx {
            of_ucx.add(ucx.measure(bench.ucx, bench.unit, path, size)?);
        }
        interrupt::check()?;
        if let Some(limit) = limit {
            of_machine.add((limit.measure)(size as usize).map_err(|error| format!("{error:#}")));
        }
    }
    let what = (bench.name, size, path.name(), bench.unit);
    let title = format!("{} {size} B {}", bench.name, path.name());
    let value = own.median(&title);
    let peer = ucx.map(|ucx| ucx.name(path));
    let peer_value = of_ucx.median(&format!("{title}: {}", peer.as_deref().unwrap_or_default()));
    let mut lines = vec![Line::new(what, value, (peer, peer_value))];
    if let Some(limit) = limit {
        let peer_value = of_machine.median(&format!("{title}: {}", limit.name));
        lines.push(Line::new(what, value, (Some(limit.name.to_owned()), peer_value)));
    }
    Ok(lines)
}

/// Runs the perftest program once; the inner error says what went wrong with it.
fn run_perftest(bench: &Bench, path: PathChoice, size: u64, stage: &Stage) -> Result<Result<f64, String>> {
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
            line.peer.clone().unwrap_or_else(|| "-".to_owned()),
            number(line.peer_value),
            number(line.ratio),
        ]);
    }
    let mut out = anstream::stdout().lock();
    table.write(&mut out, "")?;
    writeln!(out, "\nA ratio above 1: Pagewire is better. -: not installed, or failed.")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_means_better_in_both_units() {
        let faster = Line::new(("a", 8, "udp", "us"), Some(1.0), (Some("p".into()), Some(2.0)));
        let wider = Line::new(("a", 8, "udp", "MB/s"), Some(2.0), (Some("p".into()), Some(1.0)));
        assert_eq!((faster.ratio, wider.ratio), (Some(2.0), Some(2.0)));
        assert_eq!(Line::new(("a", 8, "udp", "us"), Some(1.0), (Some("p".into()), None)).ratio, None);
    }

    #[test]
    fn a_line_has_the_promised_fields() {
        let line = |peer| Line::new(("a", 8, "udp", "us"), Some(1.0), peer);
        let text = |line: Line| serde_json::to_string(&line).expect("plain data");
        let beside = r#"{"bench":"a","size":8,"path":"udp","value":1.0,"unit":"us","peer":"p","peer_value":2.0,"ratio":2.0}"#;
        assert_eq!(text(line((Some("p".into()), Some(2.0)))), beside);
        let alone = r#"{"bench":"a","size":8,"path":"udp","value":1.0,"unit":"us","peer":null,"peer_value":null,"ratio":null}"#;
        assert_eq!(text(line((None, None))), alone);
    }

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut []), None);
    }
}
