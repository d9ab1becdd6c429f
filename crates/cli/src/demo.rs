//! `pagewire demo`: other people's programs between two hosts on this machine, with a live view.

use crate::arguments::DemoArguments;
use crate::limits::{DEMO_REPEATED, DEMO_ROUNDS, DEMO_SPREAD, DEMO_STEP, DEMO_TOTAL};
use crate::output::median::median;
use crate::output::table::{Table, bad, good, heading, warning};
use crate::running::hosts::{Host, Hosts, processors};
use crate::running::install::{Installation, find_program};
use crate::running::interrupt;
use crate::running::pair::Running;
use crate::running::perftest::{pingpong_microseconds, rows};
use crate::running::stage::Stage;
use crate::running::workload::{Workload, WorkloadOutcome};
use anstyle::Style;
use anyhow::{Error, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use pagewire_nic::PathChoice;
use serde_json::{Value, json};
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
    /// Of each run, in the unit of the figure.
    rounds: Vec<f64>,
    verified: &'static str,
    path: String,
    complaint: Option<String>,
}

impl Shown {
    /// Whether the runs took about as long as each other; else the figure shows what else the machine did.
    fn is_steady(&self) -> bool {
        let ends = self
            .rounds
            .iter()
            .copied()
            .fold((f64::INFINITY, 0.0_f64), |(least, most), round| (least.min(round), most.max(round)));
        self.rounds.is_empty() || ends.1 <= DEMO_SPREAD * ends.0
    }

    /// Of a step for which no time is left.
    fn not_run() -> Shown {
        Shown {
            figure: String::new(),
            rounds: Vec::new(),
            verified: "",
            path: String::new(),
            complaint: Some(format!("not run: {} s are over", DEMO_TOTAL.as_secs())),
        }
    }

    /// One line of `--json`.
    fn to_json(&self, step: &Step, between: &str) -> Value {
        json!({
            "program": step.program, "arguments": step.arguments, "between": between,
            "path_asked": step.path.name(), "path": self.path, "figure": self.figure,
            "rounds": self.rounds, "steady": self.is_steady(),
            "verified": self.verified, "ok": self.complaint.is_none(), "complaint": self.complaint,
        })
    }

    /// How it went, in a word.
    fn word(&self) -> (Style, &'static str) {
        match (&self.complaint, self.is_steady()) {
            (Some(_), _) => (bad(), "FAILED"),
            (None, false) => (warning(), "unsteady"),
            (None, true) => (good(), "ok"),
        }
    }
}

/// Where both ends of a step run, each on a processor of its own where there are two.
struct Ends {
    one_host: [Host; 2],
    two_hosts: Option<[Host; 2]>,
}

impl Ends {
    fn new(first: &Host, second: Option<&Host>) -> Result<Ends> {
        let [server, client] = processors()?.map_or([None; 2], |both| both.map(Some));
        let two_hosts = second.map(|second| [first.pinned(server), second.pinned(client)]);
        Ok(Ends { one_host: [first.pinned(server), first.pinned(client)], two_hosts })
    }

    /// Two hosts where they could be made; says which, or why there is one only.
    fn choose(hosts: &Result<Hosts, Option<Error>>, view: &View) -> Result<Ends> {
        match hosts {
            Ok(made) => {
                view.say(&format!(
                    "Two hosts, {} and {}, as network namespaces made without leaving anything behind;",
                    made.first.address, made.second.address
                ))?;
                Ends::new(&made.first, Some(&made.second))
            }
            Err(refused) => {
                if let Some(refused) = refused {
                    view.say(&format!("One host only: {refused:#}."))?;
                }
                Ends::new(&Host::here(), None)
            }
        }
    }

    /// Those of server and client, and how to call where they are.
    fn of(&self, path: PathChoice) -> (&[Host; 2], &'static str) {
        match &self.two_hosts {
            Some(hosts) if path == PathChoice::Udp => (hosts, "two hosts"),
            _ => (&self.one_host, "one host"),
        }
    }
}

/// The programs of the steps that are not there, each once.
fn missing_programs(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for program in STEPS.iter().map(|step| step.program) {
        if !is_there(program) && !missing.contains(&program) {
            missing.push(program);
        }
    }
    missing
}

/// Runs the demonstration; gives the exit status.
///
/// # Errors
/// If the programs or the engine are not installed.
pub fn demo(arguments: &DemoArguments) -> Result<u8> {
    let installation = Installation::find()?;
    let missing = missing_programs(|program| find_program(program).is_some());
    if !missing.is_empty() {
        bail!("not installed: {} (Debian packages ibverbs-utils and perftest)", missing.join(", "));
    }
    interrupt::watch()?;
    let stage = Stage::prepare(&installation)?;
    let view = View::new(arguments.json);

    let hosts = if arguments.one_host { Err(None) } else { Hosts::make(LINK_MTU).map_err(Some) };
    let ends = Ends::choose(&hosts, &view)?;
    view.say(
        "programs of Debian's ibverbs-utils and perftest, unprivileged, with a locked-memory limit of 0.",
    )?;
    view.say("")?;

    let started = Instant::now();
    let mut failed = !devices_are_shown(&stage, &ends.one_host[0], &view)?;
    let mut table = Table::new(&["program", "between", "path", "median", "verified", ""]);
    for step in STEPS {
        let (hosts, between) = ends.of(step.path);
        let shown = if started.elapsed() > DEMO_TOTAL {
            Shown::not_run()
        } else {
            let bar = view.start(&format!("{} ({between}, path {})", step.program, step.path.name()));
            let shown = run(step, &stage, hosts)?;
            interrupt::check()?;
            view.finish(&bar, step, between, &shown)?;
            shown
        };
        failed |= shown.complaint.is_some();
        let (style, word) = shown.word();
        if arguments.json {
            writeln!(std::io::stdout(), "{}", shown.to_json(step, between))?;
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

/// Runs a step several times, where that takes moments.
fn run(step: &Step, stage: &Stage, [server, client]: &[Host; 2]) -> Result<Shown> {
    let workload = Workload {
        program: step.program,
        arguments: step.arguments,
        server,
        client,
        path: step.path,
        options: &[],
        environment: &[],
        limit: DEMO_STEP,
    };
    let verified = if step.arguments.contains(&"-c") { "every byte" } else { "completions" };
    let (started, mut rounds, mut size) = (Instant::now(), Vec::new(), None);
    let path = loop {
        let outcome = workload.run(stage)?;
        let path = outcome.paths().join(", ");
        let measured = measured(step, &outcome);
        let complaint = if !outcome.pair.success() {
            Some(outcome.pair.complaint())
        } else if path != step.path.name() {
            Some(format!("asked for the path {}, took: {path}", step.path.name()))
        } else if measured.is_none() {
            Some("there is no figure in its output".to_owned())
        } else {
            None
        };
        if complaint.is_some() {
            return Ok(Shown { figure: String::new(), rounds, verified, path, complaint });
        }
        if let Some((value, of)) = measured {
            rounds.push(value);
            size = of;
        }
        if rounds.len() >= DEMO_ROUNDS || started.elapsed() > DEMO_REPEATED || interrupt::has_come() {
            break path;
        }
    };
    let median = median(&mut rounds.clone()).unwrap_or_default();
    Ok(Shown { figure: figure(step, median, size), rounds, verified, path, complaint: None })
}

/// What one run measured, and at which size where the program says so.
fn measured(step: &Step, outcome: &WorkloadOutcome) -> Option<(f64, Option<u64>)> {
    let output = outcome.pair.client.as_ref().map_or("", |client| client.output.as_str());
    if step.program.ends_with("_pingpong") {
        return Some((pingpong_microseconds(output)?, None));
    }
    let row = rows(output).pop()?;
    let value = if step.program.ends_with("_bw") { row.average_bandwidth() } else { row.typical_latency() };
    Some((value?, Some(row.size)))
}

/// A figure with its unit.
fn figure(step: &Step, value: f64, size: Option<u64>) -> String {
    let at = size.map_or_else(|| " a round trip".to_owned(), |size| format!(" at {size} B"));
    if step.program.ends_with("_bw") { format!("{value:.0} MiB/s{at}") } else { format!("{value:.2} us{at}") }
}

/// The live view: spinners on a terminal, plain lines elsewhere, nothing beside JSON.
struct View {
    bars: Option<MultiProgress>,
    quiet: bool,
}

impl View {
    fn new(quiet: bool) -> View {
        let live = !quiet
            && std::io::stderr().is_terminal()
            && std::io::stdout().is_terminal()
            && crate::threads_can_be_had();
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
        let (style, mark) = shown.word();
        let line = format!(
            "{style}{mark:<9}{style:#}{:<17} {between:<10} {:<6} {}",
            step.program, shown.path, shown.figure
        );
        self.say(line.trim_end())?;
        match &shown.complaint {
            Some(complaint) => self.say(&format!("  {complaint}")),
            None if !shown.is_steady() => {
                let rounds: Vec<String> = shown.rounds.iter().map(|round| format!("{round:.2}")).collect();
                self.say(&format!(
                    "  the runs gave {}: something else kept the processors",
                    rounds.join(", ")
                ))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_named_once() {
        let missing = missing_programs(|program| program != "ib_write_bw" && program != "ib_send_lat");
        assert_eq!(missing, ["ib_write_bw", "ib_send_lat"]);
    }

    fn shown(rounds: &[f64], complaint: Option<&str>) -> Shown {
        Shown {
            figure: String::new(),
            rounds: rounds.to_vec(),
            verified: "every byte",
            path: "udp".to_owned(),
            complaint: complaint.map(str::to_owned),
        }
    }

    #[test]
    fn an_outlier_of_a_thousand_times_is_not_ok() {
        assert_eq!(shown(&[1.2, 1.3, 2.5], None).word().1, "ok");
        assert_eq!(shown(&[1.2, 1.3, 1250.0], None).word().1, "unsteady");
        assert_eq!(shown(&[1250.0, 1.3, 1.2], None).word().1, "unsteady");
        assert_eq!(shown(&[4.0], None).word().1, "ok");
        assert_eq!(shown(&[], Some("not run")).word().1, "FAILED");
    }

    #[test]
    fn both_ends_have_a_processor_of_their_own() {
        let ends = Ends::new(&Host::here(), None).expect("this host");
        let both = processors().expect("readable");
        let (hosts, between) = ends.of(PathChoice::Udp);
        assert_eq!(between, "one host");
        let words: Vec<String> = hosts.iter().map(|host| format!("{:?}", host.command("true"))).collect();
        match both {
            Some(both) => {
                for (words, processor) in words.iter().zip(both) {
                    assert!(words.contains(&format!("\"--cpu-list\" \"{processor}\"")), "{words}");
                }
            }
            None => assert!(!words[0].contains("--cpu-list"), "{words:?}"),
        }
    }
}
