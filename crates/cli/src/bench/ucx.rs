//! The peer UCX, by its own ucx_perftest, where it is installed.

use crate::arguments::PathChoice;
use crate::hosts::Host;
use crate::install::find_program;
use crate::limits::BENCH_RUN;
use crate::pair::run_pair;
use anyhow::Result;
use std::sync::atomic::{AtomicU16, Ordering};

static PORT: AtomicU16 = AtomicU16::new(29_000);

/// One run of the test `test`; `None` where UCX is not installed or fails.
pub(super) fn measure(test: &str, unit: &str, path: PathChoice, size: u64) -> Result<Option<f64>> {
    let Some(program) = find_program("ucx_perftest") else { return Ok(None) };
    let here = Host::here();
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let (transports, device) = match path {
        PathChoice::Udp => ("tcp,self", "lo"),
        _ => ("posix,cma", "all"),
    };
    let command = || {
        let mut command = here.command(&program);
        command
            .env("UCX_TLS", transports)
            .env("UCX_NET_DEVICES", device)
            .env("UCX_WARN_UNUSED_ENV_VARS", "n");
        // Ordinary memory, as a verbs program's is, instead of memory that UCX shares beforehand.
        command.env("UCX_ALLOC_PRIO", "heap").args(["-p", &port.to_string()]);
        command
    };
    // Emulated READs and atomics take milliseconds each.
    let count =
        if test.starts_with("ucp_put") || test.starts_with("tag") { (1_u64 << 28) / size } else { 300 };
    let count = count.clamp(100, 20_000);
    let mut client = command();
    client.args(["127.0.0.1", "-f", "-t", test, "-s", &size.to_string()]);
    client.args(["-n", &count.to_string(), "-w", &(count / 10).to_string()]);
    let pair = run_pair(command(), client, port, BENCH_RUN)?;
    Ok(pair.client.filter(|client| client.success()).and_then(|client| figure(&client.output, unit)))
}

/// The last line of numbers: messages, median, average and overall microseconds, average and overall MB/s, ...
fn figure(output: &str, unit: &str) -> Option<f64> {
    let line = output.lines().rfind(|line| !line.trim().is_empty())?;
    let line = line.trim().trim_start_matches("Final:");
    let numbers: Vec<f64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match unit {
        "us" => numbers.get(2).copied(),
        // Its MB are 2^20 bytes.
        _ => numbers.get(4).map(|rate| rate * 1.048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn the_final_line_is_read() {
        let output = "Final:                  1000      1.500     1.600     1.650     2500.00    2400.00      640000      620000\n";
        assert_eq!(figure(output, "us"), Some(1.6));
        assert_eq!(figure(output, "MB/s"), Some(2621.44));
        assert_eq!(figure("an error\n", "us"), None);
    }
}
