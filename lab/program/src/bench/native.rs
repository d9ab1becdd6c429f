//! The native interface: puts, gets, atomics and signals between two processes of a job, and the registered heap in one.
//!
//! The measuring processes are this program itself ([`crate::native`]).

use super::ground::Ground;
use super::machine::Exchange;
use crate::figures::{Figures, Line, Measure, beside};
use crate::limits::BENCH_RUN;
use crate::native::{Figure, Strategy};
use crate::registered;
use anyhow::Result;
use clap::ValueEnum;
use pagewire_cli::hosts::Host;
use pagewire_cli::interrupt;
use pagewire_cli::pair::{Pair, Running};
use pagewire_cli::workload::next_port;
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
    /// Other schemes for the same purpose: what they are called, and their names as probes.
    Schemes(&'static [(&'static str, &'static str)]),
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
    Native { name: "counter", unit: "us", sizes: super::WORD, beside: Beside::Schemes(&[("remote atomics", "counter_rma"), ("no counting", "counter_none")]) },
    Native { name: "get_logged", unit: "us", sizes: super::LATENCY, beside: Beside::Schemes(&[("no logging", "get"), ("a put of it back", "get_logged_rma")]) },
    Native { name: "log_order", unit: "us", sizes: super::WORD, beside: Beside::Schemes(&[("no order between sources", "log_order_none")]) },
    Native { name: "batch", unit: "puts/s", sizes: super::WORD, beside: Beside::Schemes(&[("puts one by one to the handler", "batch_single"), ("puts one by one to memory", "batch_plain")]) },
    Native { name: "conditional_write", unit: "us", sizes: TRANSFERS, beside: Beside::TraditionalOrder("rendezvous_write") },
    Native { name: "conditional_write_file", unit: "us", sizes: TO_FILE, beside: Beside::TraditionalOrder("rendezvous_write_file") },
];

/// Runs of a process of conditional writes, each of which takes some messages.
const MOST_TRANSFERS: u64 = 1000;

/// A View in registered memory that is put to another process (REUSE-5).
pub(super) const VIEW: Native =
    Native { name: "view", unit: "us", sizes: VIEW_SIZES, beside: Beside::Others(Exchange::Write, None) };

/// What [`VIEW`] is compared with: an ordinary View, which is copied into registered memory first.
const COPIED_VIEW: Native = Native {
    name: "view_copied",
    unit: "us",
    sizes: VIEW_SIZES,
    beside: Beside::Others(Exchange::Write, None),
};

const VIEW_SIZES: [&[u64]; 2] = [&[1 << 20, 4 << 20, 16 << 20], &[1 << 20]];

/// The benchmarks of the registered heap: memory that is had and given back, and new memory that is touched.
pub(super) const HEAP: &str = "heap";
pub(super) const NEW_MEMORY: &str = "heap_new";

/// Bytes of what is had of it and given back: the sizes of the paper (REUSE-2), each fourth.
const HEAP_SIZES: [u64; 8] = [128, 512, 2048, 8192, 32_768, 131_072, 524_288, 2 << 20];
/// Bytes of new memory.
const NEW_SIZES: [u64; 3] = [128, 4096, 65_536];

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

    /// One run of another order or scheme beside it.
    pub(super) fn measure_other(
        ground: &Ground,
        name: &str,
        (path, size): (PathChoice, u64),
        strategy: Option<Strategy>,
    ) -> Result<Result<f64, String>> {
        let times = super::iterations(path, size);
        let times = if name.starts_with("rendezvous") { times.min(MOST_TRANSFERS) } else { times };
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
            let program = &ground.program;
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

/// Measures the heap beside the same allocator on ordinary memory, and beside the C library's. The same process measures all.
pub(super) fn measure_heap(ground: &Ground, rounds: u32) -> Result<Vec<Line>> {
    const BESIDE: [&str; 2] = ["mimalloc, not registered", "malloc(3) and free(3)"];
    let mut of_sizes = HEAP_SIZES.map(|size| (size, <[Figures; 3]>::default()));
    let (host, _) = ground.ends(PathChoice::Local)?;
    for _ in 0..rounds {
        for (size, [own, others @ ..]) in &mut of_sizes {
            let mut command = host.command(&ground.program);
            probe(&mut command, HEAP, *size, 20_000);
            let ended = Running::start(command)?.wait_until(Instant::now() + BENCH_RUN);
            interrupt::check()?;
            let measured = if ended.success() { figure(&ended.output) } else { Err(ended.output) };
            own.add(measured.as_ref().map(|figure| figure.value).map_err(Clone::clone));
            for (figures, value) in others.iter_mut().zip(measured.iter().flat_map(|figure| &figure.beside)) {
                figures.add(Ok(*value));
            }
        }
    }
    let lines = of_sizes.into_iter().flat_map(|(size, [own, others @ ..])| {
        let title = format!("{HEAP} {size} B");
        let own = own.median(&title);
        let beside = BESIDE.into_iter().zip(others);
        beside.map(move |(name, figures)| {
            let peer = (Some(name.to_owned()), figures.median(&title));
            Line::new((HEAP, size, "-", "us"), own, peer)
        })
    });
    Ok(lines.collect())
}

/// Measures new memory of the heap that is touched beside malloc(3), touch and mlock(2), which stands for the registration by a network card.
pub(super) fn measure_new_memory(rounds: u32) -> Result<Vec<Line>> {
    let sizes = NEW_SIZES.map(|size| size.to_string()).join(",");
    let mut of_sizes = NEW_SIZES.map(|size| (size, <[Figures; 2]>::default()));
    for _ in 0..rounds {
        let points = registered::run(PathChoice::Local, &["allocation".to_owned(), sizes.clone()])?;
        interrupt::check()?;
        for (size, figures) in &mut of_sizes {
            for (figures, name) in figures.iter_mut().zip(["new", "by_hand"]) {
                let value = points.as_ref().map_err(ToString::to_string).and_then(|points| {
                    let point = points.iter().find(|point| point.size == *size);
                    let value = point.and_then(|point| *point.values.get(name)?);
                    value.ok_or_else(|| format!("{name}: this user may not lock so much memory (ulimit -l)"))
                });
                figures.add(value);
            }
        }
    }
    let lines = of_sizes.into_iter().map(|(size, [own, by_hand])| {
        let title = format!("{NEW_MEMORY} {size} B");
        let peer = (Some("malloc(3), touch and mlock(2)".to_owned()), by_hand.median(&title));
        Line::new((NEW_MEMORY, size, "-", "us"), own.median(&title), peer)
    });
    Ok(lines.collect())
}

/// Measures Views beside those that are copied first.
pub(super) fn measure_view(ground: &Ground, path: PathChoice, size: u64, rounds: u32) -> Result<Vec<Line>> {
    let copied: Measure = Box::new(|| COPIED_VIEW.measure(ground, (path, size), None));
    let own: Measure = Box::new(|| VIEW.measure(ground, (path, size), None));
    let peers = vec![Some(("a copy into registered memory first".to_owned(), copied))];
    beside((VIEW.name, size, path.name(), VIEW.unit), &own, peers, rounds)
}

/// Makes this program of a host a measuring process.
fn probe(command: &mut Command, name: &str, size: u64, times: u64) {
    command.args(["probe", "native", name, &size.to_string(), &times.to_string()]);
    for variable in ["PMIX_NAMESPACE", "PAGEWIRE_JOB_FILE", "PAGEWIRE_ADDRESS"] {
        command.env_remove(variable);
    }
}

fn figure(output: &str) -> Result<Figure, String> {
    serde_json::from_str(output.trim()).map_err(|error| format!("{error}: {output}"))
}
