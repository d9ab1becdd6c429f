//! The native interface: puts, gets, atomics and signals between two processes of a job, and the registered heap in one.
//!
//! The measuring processes are this command itself ([`crate::native`]).

use super::ground::Ground;
use super::machine::Exchange;
use crate::figures::{Figures, Line};
use crate::hosts::Host;
use crate::interrupt;
use crate::limits::BENCH_RUN;
use crate::native::{Figure, Strategy};
use crate::pair::{Pair, Running};
use crate::workload::next_port;
use anyhow::Result;
use clap::ValueEnum;
use pagewire_nic::PathChoice;
use std::process::Command;
use std::time::Instant;

/// A benchmark between two processes.
pub(super) struct Native {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Sizes on the local path, and over UDP.
    sizes: [&'static [u64]; 2],
    /// What it is measured beside.
    pub(super) beside: Beside,
}

/// What a benchmark of the native interface is measured beside.
pub(super) enum Beside {
    /// What the machine itself needs for it, and the test of ucx_perftest that does the same, if there is one.
    Others(Exchange, Option<&'static str>),
    /// Another order of the same transfer, by its name as a probe.
    TraditionalOrder(&'static str),
}

/// Sizes of conditional writes.
const TRANSFERS: [&[u64]; 2] = [&[8, 4096, 65_536, 1 << 20]; 2];
/// They lie in a file that no peer maps, so the path is cross-memory attach.
const TO_FILE: [&[u64]; 2] = [&[8, 4096, 65_536, 1 << 20], &[]];

// ucx_perftest's test of compare-swap does not end (UCX 1.13).
#[rustfmt::skip]
pub(super) const ALL: &[Native] = &[
    Native { name: "put", unit: "us", sizes: super::LATENCY, beside: Beside::Others(Exchange::Write, Some("ucp_put_lat")) },
    Native { name: "put_bw", unit: "MB/s", sizes: super::BANDWIDTH, beside: Beside::Others(Exchange::Write, Some("ucp_put_bw")) },
    Native { name: "get", unit: "us", sizes: super::LATENCY, beside: Beside::Others(Exchange::Read, Some("ucp_get")) },
    Native { name: "get_bw", unit: "MB/s", sizes: super::BANDWIDTH, beside: Beside::Others(Exchange::Read, Some("ucp_get")) },
    Native { name: "fetch_add", unit: "us", sizes: super::WORD, beside: Beside::Others(Exchange::Atomic, Some("ucp_fadd")) },
    Native { name: "compare_swap", unit: "us", sizes: super::WORD, beside: Beside::Others(Exchange::Atomic, None) },
    Native { name: "signal", unit: "us", sizes: super::LATENCY, beside: Beside::Others(Exchange::Write, Some("ucp_put_lat")) },
    Native { name: "conditional_write", unit: "us", sizes: TRANSFERS, beside: Beside::TraditionalOrder("rendezvous_write") },
    Native { name: "conditional_write_file", unit: "us", sizes: TO_FILE, beside: Beside::TraditionalOrder("rendezvous_write_file") },
];

/// Runs of a process of conditional writes, each of which takes some messages.
const MOST_TRANSFERS: u64 = 1000;

/// The benchmark of the registered heap.
pub(super) const HEAP: &str = "heap";

/// Bytes of what is had of it and given back.
const HEAP_SIZES: [u64; 4] = [64, 4096, 65_536, 1 << 20];

impl Native {
    pub(super) fn sizes(&self, path: PathChoice) -> &'static [u64] {
        self.sizes[usize::from(path == PathChoice::Udp)]
    }

    /// Whether the benchmark has the choice of a strategy of registration.
    pub(super) fn takes_strategy(&self) -> bool {
        matches!(self.beside, Beside::TraditionalOrder(_))
    }

    /// One run; the inner error says what went wrong with it.
    pub(super) fn measure(
        &self,
        ground: &Ground,
        (path, size): (PathChoice, u64),
        strategy: Option<Strategy>,
    ) -> Result<Result<f64, String>> {
        let most = if self.takes_strategy() { MOST_TRANSFERS } else { u64::MAX };
        run(ground, self.name, (path, size), (super::iterations(path, size).min(most), strategy))
    }

    /// One run of the traditional order beside it.
    pub(super) fn measure_traditional(
        ground: &Ground,
        name: &str,
        (path, size): (PathChoice, u64),
        strategy: Option<Strategy>,
    ) -> Result<Result<f64, String>> {
        let times = super::iterations(path, size).min(MOST_TRANSFERS);
        run(ground, name, (path, size), (times, strategy))
    }
}

/// One run of two measuring processes.
fn run(
    ground: &Ground,
    name: &str,
    (path, size): (PathChoice, u64),
    (times, strategy): (u64, Option<Strategy>),
) -> Result<Result<f64, String>> {
    let port = next_port();
    let output = ground.run_pair(path, port, Pair::success, |server, client| {
        let end = |host: &Host, rank: &str| -> Command {
            let program = &ground.stage.command;
            let mut command = match strategy {
                Some(_) => host.command_with_locks(program),
                None => host.command(program),
            };
            probe(&mut command, name, size, times);
            command.args(
                strategy.and_then(|strategy| Some(strategy.to_possible_value()?.get_name().to_owned())),
            );
            command
                .env("PAGEWIRE_PATH", path.name())
                .env("PAGEWIRE_RENDEZVOUS", format!("{}:{port}", server.address))
                .env("PAGEWIRE_JOB", format!("pagewire-bench-{port}"))
                .envs([("PAGEWIRE_RANK", rank), ("PAGEWIRE_SIZE", "2")]);
            if path == PathChoice::Udp {
                command.env("PAGEWIRE_ADDRESS", host.address.to_string());
            }
            command
        };
        (end(server, "0"), end(client, "1"))
    })?;
    Ok(output.and_then(|output| figure(&output)).and_then(|figure| {
        let is_asked = figure.path.starts_with(path.name());
        if is_asked { Ok(figure.value) } else { Err(format!("took the path {}", figure.path)) }
    }))
}

/// Measures the heap beside the C library's allocator, which the same process measures.
pub(super) fn measure_heap(ground: &Ground, rounds: u32) -> Result<Vec<Line>> {
    let mut of_sizes = HEAP_SIZES.map(|size| (size, Figures::default(), Figures::default()));
    let (host, _) = ground.ends(PathChoice::Local)?;
    for _ in 0..rounds {
        for (size, own, peer) in &mut of_sizes {
            let mut command = host.command(&ground.stage.command);
            probe(&mut command, HEAP, *size, 20_000);
            let ended = Running::start(command)?.wait_until(Instant::now() + BENCH_RUN);
            interrupt::check()?;
            let measured = if ended.success() { figure(&ended.output) } else { Err(ended.output) };
            own.add(measured.as_ref().map(|figure| figure.value).map_err(Clone::clone));
            if let Some(beside) = measured.ok().and_then(|figure| figure.beside) {
                peer.add(Ok(beside));
            }
        }
    }
    let lines = of_sizes.into_iter().map(|(size, own, peer)| {
        let title = format!("{HEAP} {size} B");
        let peer = (Some("malloc(3) and free(3)".to_owned()), peer.median(&title));
        Line::new((HEAP, size, "-", "us"), own.median(&title), peer)
    });
    Ok(lines.collect())
}

/// Makes this command of a host a measuring process.
fn probe(command: &mut Command, name: &str, size: u64, times: u64) {
    command.args(["probe", "native", name, &size.to_string(), &times.to_string()]);
    for variable in ["PMIX_NAMESPACE", "PAGEWIRE_JOB_FILE", "PAGEWIRE_ADDRESS"] {
        command.env_remove(variable);
    }
}

fn figure(output: &str) -> Result<Figure, String> {
    serde_json::from_str(output.trim()).map_err(|error| format!("{error}: {output}"))
}
