//! The native interface: puts, gets, atomics and signals between two processes of a job, and the registered heap in one.
//!
//! The measuring processes are this command itself ([`crate::native`]).

use super::ground::Ground;
use super::machine::Exchange;
use crate::figures::{Figures, Line};
use crate::hosts::Host;
use crate::interrupt;
use crate::limits::BENCH_RUN;
use crate::native::Figure;
use crate::pair::{Running, run_pair};
use crate::workload::next_port;
use anyhow::Result;
use pagewire_nic::PathChoice;
use std::process::Command;
use std::time::Instant;

/// A benchmark between two processes.
pub(super) struct Native {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Sizes on the local path, and over UDP.
    sizes: [&'static [u64]; 2],
    /// The test of ucx_perftest that does the same. That of compare-swap does not end (UCX 1.13).
    pub(super) ucx: Option<&'static str>,
    /// What the machine itself needs for it.
    pub(super) limit: Exchange,
}

#[rustfmt::skip]
pub(super) const ALL: &[Native] = &[
    Native { name: "put", unit: "us", sizes: super::LATENCY, ucx: Some("ucp_put_lat"), limit: Exchange::Write },
    Native { name: "put_bw", unit: "MB/s", sizes: super::BANDWIDTH, ucx: Some("ucp_put_bw"), limit: Exchange::Write },
    Native { name: "get", unit: "us", sizes: super::LATENCY, ucx: Some("ucp_get"), limit: Exchange::Read },
    Native { name: "get_bw", unit: "MB/s", sizes: super::BANDWIDTH, ucx: Some("ucp_get"), limit: Exchange::Read },
    Native { name: "fetch_add", unit: "us", sizes: super::WORD, ucx: Some("ucp_fadd"), limit: Exchange::Atomic },
    Native { name: "compare_swap", unit: "us", sizes: super::WORD, ucx: None, limit: Exchange::Atomic },
    Native { name: "signal", unit: "us", sizes: super::LATENCY, ucx: Some("ucp_put_lat"), limit: Exchange::Write },
];

/// The benchmark of the registered heap.
pub(super) const HEAP: &str = "heap";

/// Bytes of what is had of it and given back.
const HEAP_SIZES: [u64; 4] = [64, 4096, 65_536, 1 << 20];

impl Native {
    pub(super) fn sizes(&self, path: PathChoice) -> &'static [u64] {
        self.sizes[usize::from(path == PathChoice::Udp)]
    }

    /// One run; the inner error says what went wrong with it.
    pub(super) fn measure(
        &self,
        ground: &Ground,
        path: PathChoice,
        size: u64,
    ) -> Result<Result<f64, String>> {
        let (server, client) = match ground.ends(path) {
            Ok(ends) => ends,
            Err(reason) => return Ok(Err(format!("{reason:#}"))),
        };
        let port = next_port();
        let end = |host: &Host, rank: &str| -> Command {
            let mut command = probe(ground, host, self.name, size, super::iterations(path, size));
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
        let pair = run_pair(end(server, "0"), end(client, "1"), port, BENCH_RUN)?;
        let Some(client) = pair.client.as_ref().filter(|_| pair.success()) else {
            return Ok(Err(pair.complaint()));
        };
        Ok(figure(&client.output).and_then(|figure| {
            let is_asked = figure.path.starts_with(path.name());
            if is_asked { Ok(figure.value) } else { Err(format!("took the path {}", figure.path)) }
        }))
    }
}

/// Measures the heap beside the C library's allocator, which the same process measures.
pub(super) fn measure_heap(ground: &Ground, rounds: u32) -> Result<Vec<Line>> {
    let mut of_sizes = HEAP_SIZES.map(|size| (size, Figures::default(), Figures::default()));
    let (host, _) = ground.ends(PathChoice::Local)?;
    for _ in 0..rounds {
        for (size, own, peer) in &mut of_sizes {
            let command = probe(ground, host, HEAP, *size, 20_000);
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

/// A measuring process.
fn probe(ground: &Ground, host: &Host, name: &str, size: u64, times: u64) -> Command {
    let mut command = host.command(&ground.stage.command);
    command.args(["probe", "native", name, &size.to_string(), &times.to_string()]);
    for variable in ["PMIX_NAMESPACE", "PAGEWIRE_JOB_FILE", "PAGEWIRE_ADDRESS"] {
        command.env_remove(variable);
    }
    command
}

fn figure(output: &str) -> Result<Figure, String> {
    serde_json::from_str(output.trim()).map_err(|error| format!("{error}: {output}"))
}
