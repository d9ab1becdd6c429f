//! `pagewire demo`: other people's programs between two hosts on this machine, with a live view.

use crate::arguments::{DemoArguments, PathChoice};
use crate::hosts::{Host, Hosts};
use crate::install::{Installation, find_program};
use crate::interrupt;
use crate::limits::{DEMO_STEP, DEMO_TOTAL};
use crate::pair::Running;
use crate::perftest::{pingpong_microseconds, rows};
use crate::stage::Stage;
use crate::table::{Table, bad, good, heading};
use crate::workload::{Outcome, Workload};
use anyhow::{Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The largest frame that the demonstration's link carries: room for packets of 4,096 bytes.
const LINK_MTU: u32 = 9000;

/// One program, one path.
struct Step {
    program: &'static str,
    arguments: &'static [&'static str],
    path: PathChoice,
}

const PINGPONG: &[&str] = &["-g", "0", "-c", "-n", "1000"];
// Where both ends of ib_write_lat, which look at their memory all the time, share a processor a WRITE takes as long as its time slices.
const LATENCY: &[&str] = &["-F", "-n", "300"];
const BANDWIDTH: &[&str] = &["-F", "-n", "2000", "-s", "65536"];

const fn step(program: &'static str, arguments: &'static [&'static str], path: PathChoice) -> Step {
    Step { program, arguments, path }
}

/// Steps between the hosts come first, those on one host after them.
const STEPS: &[Step] = &[
    step("ibv_rc_pingpong", PINGPONG, PathChoice::Udp),
    step("ibv_uc_pingpong", PINGPONG, PathChoice::Udp),
    step("ibv_ud_pingpong", &["-g", "0", "-c", "-n", "1000", "-s", "1024"], PathChoice::Udp),
    step("ib_write_bw", BANDWIDTH, PathChoice::Udp),
    step("ib_read_bw", BANDWIDTH, PathChoice::Udp),
    step("ib_send_lat", LATENCY, PathChoice::Udp),
    step("ib_atomic_lat", LATENCY, PathChoice::Udp),
    step("ibv_rc_pingpong", PINGPONG, PathChoice::Local),
    step("ibv_srq_pingpong", PINGPONG, PathChoice::Local),
    step("ib_write_bw", BANDWIDTH, PathChoice::Local),
    step("ib_read_bw", BANDWIDTH, PathChoice::Local),
    step("ib_write_lat", LATENCY, PathChoice::Local),
    step("ib_send_lat", LATENCY, PathChoice::Local),
    step("ib_atomic_lat", LATENCY, PathChoice::Local),
];

/// What a step showed.
struct Shown {
    figure: String,
    verified: &'static str,
    path: String,
    complaint: Option<String>,
}

/// Runs the demonstration; gives the exit status.
///
/// # Errors
/// If the programs or the engine are not installed.
pub fn demo(arguments: &DemoArguments) -> Result<u8> {
    let installation = Installation::find()?;
    let missing: Vec<&str> = STEPS.iter().map(|s| s.program).filter(|p| find_program(p).is_none()).collect();
    if !missing.is_empty() {
        bail!("not installed: {} (Debian packages ibverbs-utils and perftest)", missing.join(", "));
    }
    interrupt::watch()?;
    let stage = Stage::prepare(&installation)?;
    let view = View::new(arguments.json);

    let (hosts, here);
    let (first, second) =
        match if arguments.one_host { Err(None) } else { Hosts::make(LINK_MTU).map_err(Some) } {
            Ok(made) => {
                hosts = made;
                view.say(&format!(
                    "Two hosts, {} and {}, as network namespaces made without leaving anything behind;",
                    hosts.first.address, hosts.second.address
                ))?;
                (&hosts.first, &hosts.second)
            }
            Err(refused) => {
                if let Some(refused) = refused {
                    view.say(&format!("One host only: {refused:#}."))?;
                }
                here = Host::here();
                (&here, &here)
            }
        };
    view.say(
        "programs of Debian's ibverbs-utils and perftest, unprivileged, with a locked-memory limit of 0.",
    )?;
    view.say("")?;

    let started = Instant::now();
    let mut failed = !devices_are_shown(&stage, first, &view)?;
    let mut table = Table::new(&["program", "between", "path", "figure", "verified", ""]);
    for step in STEPS {
        let client = if step.path == PathChoice::Udp { second } else { first };
        let between = if std::ptr::eq(client, first) { "one host" } else { "two hosts" };
        let shown = if started.elapsed() > DEMO_TOTAL {
            Shown {
                figure: String::new(),
                verified: "",
                path: String::new(),
                complaint: Some(format!("not run: {} s are over", DEMO_TOTAL.as_secs())),
            }
        } else {
            let bar = view.start(&format!("{} ({between}, path {})", step.program, step.path.name()));
            let shown = run(step, &stage, first, client)?;
            interrupt::check()?;
            view.finish(&bar, step, between, &shown)?;
            shown
        };
        failed |= shown.complaint.is_some();
        let (style, word) = if shown.complaint.is_none() { (good(), "ok") } else { (bad(), "FAILED") };
        if arguments.json {
            writeln!(
                std::io::stdout(),
                "{}",
                json!({
                    "program": step.program, "arguments": step.arguments, "between": between,
                    "path_asked": step.path.name(), "path": shown.path, "figure": shown.figure,
                    "verified": shown.verified, "ok": shown.complaint.is_none(), "complaint": shown.complaint,
                })
            )?;
        }
        table.row(vec![
            step.program.to_owned(),
            between.to_owned(),
            shown.path,
            shown.figure,
            shown.verified.to_owned(),
            format!("{style}{word}{style:#}"),
        ]);
    }
    if !arguments.json {
        let mut out = anstream::stdout().lock();
        writeln!(out)?;
        table.write(&mut out, "")?;
        let head = heading();
        writeln!(
            out,
            "\n{head}{:.0} s.{head:#} Run your own: pagewire run -- PROGRAM",
            started.elapsed().as_secs_f64()
        )?;
    }
    Ok(u8::from(failed))
}

/// Shows the devices of one host with ibv_devinfo; whether that worked.
fn devices_are_shown(stage: &Stage, host: &Host, view: &View) -> Result<bool> {
    let mut command = host.command(&stage.command);
    command.args(["run", "--", "ibv_devinfo"]);
    let finished = Running::start(command)?.wait_until(Instant::now() + DEMO_STEP);
    if finished.success() {
        let lines = finished.output.lines().filter(|line| {
            ["hca_id", "state", "active_mtu", "link_layer"]
                .iter()
                .any(|name| line.trim_start().starts_with(name))
        });
        for line in lines {
            view.say(&format!("  ibv_devinfo  {}", line.split_whitespace().collect::<Vec<_>>().join(" ")))?;
        }
        view.say("")?;
    } else {
        view.say(&format!("ibv_devinfo: {}\n{}", finished.verdict(), finished.output.trim()))?;
    }
    Ok(finished.success())
}

fn run(step: &Step, stage: &Stage, server: &Host, client: &Host) -> Result<Shown> {
    let workload = Workload {
        program: step.program,
        arguments: step.arguments,
        server,
        client,
        path: step.path,
        environment: &[],
        limit: DEMO_STEP,
    };
    let outcome = workload.run(stage)?;
    let path = outcome.paths().join(", ");
    let complaint = if !outcome.pair.success() {
        Some(outcome.pair.complaint())
    } else if path != step.path.name() {
        Some(format!("asked for the path {}, took: {path}", step.path.name()))
    } else {
        None
    };
    let verified = if step.arguments.contains(&"-c") { "every byte" } else { "completions" };
    Ok(Shown { figure: figure(step, &outcome), verified, path, complaint })
}

fn figure(step: &Step, outcome: &Outcome) -> String {
    let output = outcome.pair.client.as_ref().map_or("", |client| client.output.as_str());
    if step.program.ends_with("_pingpong") {
        return pingpong_microseconds(output)
            .map_or_else(String::new, |us| format!("{us:.2} us a round trip"));
    }
    let Some(row) = rows(output).pop() else { return String::new() };
    if step.program.ends_with("_bw") {
        row.average_bandwidth().map_or_else(String::new, |rate| format!("{rate:.0} MiB/s at {} B", row.size))
    } else {
        row.typical_latency().map_or_else(String::new, |us| format!("{us:.2} us at {} B", row.size))
    }
}

/// The live view: spinners on a terminal, plain lines elsewhere, nothing beside JSON.
struct View {
    bars: Option<MultiProgress>,
    quiet: bool,
}

impl View {
    fn new(quiet: bool) -> View {
        let live = !quiet && std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        View { bars: live.then(MultiProgress::new), quiet }
    }

    /// Not with println: a reader that goes away shall end the demonstration, not make it panic.
    fn say(&self, line: &str) -> Result<()> {
        if !self.quiet {
            writeln!(anstream::stdout(), "{line}")?;
        }
        Ok(())
    }

    fn start(&self, what: &str) -> ProgressBar {
        let Some(bars) = &self.bars else { return ProgressBar::hidden() };
        let bar = bars.add(ProgressBar::new_spinner());
        // The template is a constant and valid; the plain spinner would do as well.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(80));
        bar
    }

    fn finish(&self, bar: &ProgressBar, step: &Step, between: &str, shown: &Shown) -> Result<()> {
        bar.finish_and_clear();
        let (style, mark) = if shown.complaint.is_none() { (good(), "ok") } else { (bad(), "FAILED") };
        let line = format!(
            "{style}{mark:<7}{style:#}{:<17} {between:<10} {:<6} {}",
            step.program, shown.path, shown.figure
        );
        self.say(line.trim_end())?;
        match &shown.complaint {
            Some(complaint) => self.say(&format!("  {complaint}")),
            None => Ok(()),
        }
    }
}
