//! Debian's UCX over Pagewire's device, by its own ucx_perftest: each operation of UCP over each transport over verbs.
//!
//! ucx_perftest does not look at the bytes that it moves: that they are right is what the programs over Open MPI and NIXL check
//! (`scripts/test-programs.d`). Here both ends must end well, and by the engines' counters the bytes must have taken the path
//! asked for.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Result, bail, ensure};
use pagewire_cli::hosts::Host;
use pagewire_cli::workload::Workload;

/// The program.
pub const PROGRAM: &str = "ucx_perftest";

/// An operation over a transport.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The transport.
    pub transport: &'static str,
    /// The test of ucx_perftest.
    pub test: &'static str,
    /// More of its options.
    pub options: &'static [&'static str],
}

/// The transports, and what UCX calls each with those that it needs: rc_verbs sets up its connections over ud_verbs.
const TRANSPORTS: [(&str, &str); 2] = [("rc_verbs", "rc_v"), ("ud_verbs", "ud_verbs")];

const OPERATIONS: [(&str, &[&str]); 18] = [
    ("tag_lat", &[]),
    ("tag_lat", &["-E", "sleep"]),
    ("tag_lat", &["-U"]),
    ("tag_bw", &[]),
    ("tag_sync_lat", &[]),
    ("tag_sync_bw", &[]),
    ("ucp_put_lat", &[]),
    ("ucp_put_bw", &[]),
    ("ucp_get", &[]),
    ("ucp_add", &[]),
    ("ucp_fadd", &[]),
    ("ucp_swap", &[]),
    ("ucp_cswap", &[]),
    ("stream_lat", &[]),
    ("stream_bw", &[]),
    ("stream_bw", &["-r", "recv_data"]),
    ("ucp_am_lat", &[]),
    ("ucp_am_bw", &[]),
];

/// What only one word can be the operand of.
const ATOMICS: [&str; 4] = ["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"];

impl Run {
    /// What tells it from other runs.
    pub fn title(&self) -> String {
        format!("{}::{} {}", self.transport, self.test, self.options.join(" ")).trim_end().to_owned()
    }

    /// The sizes of its messages, in the full set and in the quick part.
    fn sizes(&self, all: bool) -> &'static [u64] {
        match (ATOMICS.contains(&self.test), all) {
            (true, _) => &[8],
            (false, true) => &[8, 65_536, 1 << 20, 4 << 20],
            (false, false) => &[8, 65_536],
        }
    }
}

/// All runs.
pub fn runs() -> Vec<Run> {
    let of = |(transport, _)| OPERATIONS.map(|(test, options)| Run { transport, test, options });
    TRANSPORTS.into_iter().flat_map(of).collect()
}

/// Whether a run is in the quick part.
pub fn is_quick(setting: Setting, run: &Run) -> bool {
    let sleeps = run.options.contains(&"sleep") && run.transport == "rc_verbs";
    let is_plain = run.options.is_empty() && ["tag_lat", "ucp_put_bw"].contains(&run.test);
    setting != Setting::Udp && (is_plain || sleeps)
}

/// Messages of one run: few, for what is tried is that it works, not how fast.
const fn messages(size: u64) -> &'static str {
    match size {
        0..=65_536 => "500",
        _ => "30",
    }
}

/// Runs it with messages of each size, and prints what ucx_perftest measured.
///
/// # Errors
/// If an end fails, or bytes took another path than the one asked for.
pub fn check(ground: &Ground, setting: Setting, run: &Run, all: bool) -> Result<()> {
    let Some((_, transports)) = TRANSPORTS.into_iter().find(|(name, _)| *name == run.transport) else {
        bail!("{} is no transport of these tests", run.transport);
    };
    for &size in run.sizes(all) {
        let size_word = size.to_string();
        let mut arguments = vec!["-f", "-t", run.test, "-s", &size_word, "-n", messages(size), "-w", "20"];
        arguments.extend(run.options);
        let (server, client): (&Host, &Host) = ground.ends(setting);
        let workload = Workload {
            program: PROGRAM,
            arguments: &arguments,
            server,
            client,
            path: setting.path(),
            options: &[],
            environment: &[
                ("UCX_TLS", transports),
                ("UCX_NET_DEVICES", "pagewire0:1"),
                ("UCX_WARN_UNUSED_ENV_VARS", "n"),
            ],
            limit: RUN,
        };
        let outcome = workload.run(&ground.stage)?;
        ensure!(outcome.pair.success(), "{size} bytes\n  {}", outcome.pair.complaint());
        ensure!(!outcome.server.is_empty() && !outcome.client.is_empty(), "an engine left no counters");
        let asked = setting.path().name();
        ensure!(outcome.paths() == [asked], "{size} bytes took the paths {:?}, not {asked}", outcome.paths());
        let client = outcome.pair.client.map(|client| client.output).unwrap_or_default();
        let Some(figures) = figures(&client) else { bail!("{size} bytes: no figures in\n{client}") };
        println!(
            "{:6}{:34}{size:8} bytes{:10.2} us median{:10.2} us average{:10.1} MB/s",
            setting.name(),
            run.title(),
            figures.median,
            figures.average,
            figures.megabytes
        );
    }
    Ok(())
}

/// What ucx_perftest prints in its last line of eight numbers.
struct Figures {
    /// Microseconds.
    median: f64,
    /// Microseconds, of all messages.
    average: f64,
    /// MB (2^20 bytes) a second, of all messages.
    megabytes: f64,
}

fn figures(output: &str) -> Option<Figures> {
    let numbers = output.lines().rev().find_map(|line| {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() == 8)
    })?;
    Some(Figures { median: numbers[1], average: numbers[3], megabytes: numbers[5] })
}
