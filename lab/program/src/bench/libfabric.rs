//! The peer libfabric, by its own fi_pingpong over shared memory, where it is installed.

use super::ground::Ground;
use anyhow::Result;
use pagewire_cli::hosts::Host;
use pagewire_cli::install::find_program;
use pagewire_cli::limits::PROBE_PATIENCE;
use pagewire_cli::pair::{Pair, Running};
use pagewire_nic::PathChoice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

static PORT: AtomicU16 = AtomicU16::new(28_000);

/// Messages of a run.
const COUNT: &str = "20000";

/// An installed libfabric.
pub(super) struct Libfabric {
    program: PathBuf,
    /// What it is called in the figures.
    pub(super) name: String,
}

impl Libfabric {
    /// The one that PATH leads to.
    pub(super) fn find() -> Option<Libfabric> {
        let program = find_program("fi_pingpong")?;
        let mut command = Host::here().command(program.with_file_name("fi_info"));
        command.arg("--version");
        let asked = Running::start(command).ok()?.wait_until(Instant::now() + PROBE_PATIENCE);
        let version = version(&asked.output).map(|version| format!(" {version}")).unwrap_or_default();
        Some(Libfabric { program, name: format!("libfabric{version} over shm") })
    }

    /// Half a round trip of messages of `size` bytes on this host, both ends polling, in microseconds; the inner error
    /// says what went wrong with it.
    pub(super) fn send_latency(&self, ground: &Ground, size: u64) -> Result<Result<f64, String>> {
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let command = |host: &Host| {
            let mut command = host.command(&self.program);
            command.args(["-p", "shm", "-e", "rdm", "-I", COUNT, "-S", &size.to_string()]);
            command
        };
        let output = ground.run_pair(PathChoice::Local, port, Pair::client_success, |server, client| {
            let (mut listening, mut calling) = (command(server), command(client));
            listening.args(["-B", &port.to_string()]);
            calling.args(["-P", &port.to_string(), &server.address.to_string()]);
            (listening, calling)
        })?;
        Ok(output
            .and_then(|output| figure(&output).ok_or_else(|| format!("no figure in its output:\n{output}"))))
    }
}

/// `libfabric: 1.17.0`, among others.
fn version(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("libfabric: ")).map(str::trim)
}

/// The column usec/xfer of `bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec`, half a round trip.
fn figure(output: &str) -> Option<f64> {
    let fields: Vec<&str> = output.lines().last()?.split_whitespace().collect();
    fields.get(6).filter(|_| fields.len() == 8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_round_trip_is_read_from_the_last_line() {
        let output = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                      8       100k    =100k    1.5m        0.06s     27.47       0.29       3.43\n";
        assert_eq!(figure(output), Some(0.29));
        assert_eq!(figure("fi_getinfo: -61\n"), None);
    }

    #[test]
    fn the_version_is_that_of_the_library() {
        let output = "fi_info: 1.17.0\nlibfabric: 1.17.1\nlibfabric api: 1.17\n";
        assert_eq!(version(output), Some("1.17.1"));
    }
}
