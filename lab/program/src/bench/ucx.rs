//! The peer UCX, by its own ucx_perftest, where it is installed.

use super::ground::Ground;
use anyhow::{Result, bail};
use pagewire_cli::hosts::{Host, INTERFACE};
use pagewire_cli::install::{find_program, is_executable};
use pagewire_cli::limits::PROBE_PATIENCE;
use pagewire_cli::pair::{Pair, Running};
use pagewire_nic::PathChoice;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

/// Operations under way at once in a bandwidth test, as many as perftest has READs.
const WINDOW: &str = "16";
/// The complement of what the memory of ucx_perftest is filled with (mallopt(3), M_PERTURB); neither 0 nor 255.
const FILLING: &str = "165";

static PORT: AtomicU16 = AtomicU16::new(29_000);

/// An installed UCX.
pub(super) struct Ucx {
    program: PathBuf,
    /// The directory of its libraries, if that is not the system's.
    libraries: Option<PathBuf>,
    version: Option<String>,
}

/// The environment variable that names further ucx_perftest programs, separated by colons.
pub(super) const VARIABLE: &str = "PAGEWIRE_BENCH_UCX";

impl Ucx {
    /// The first that PATH leads to, and those that [`VARIABLE`] names, each release once.
    ///
    /// # Errors
    /// If one that is named is no program.
    pub(super) fn find() -> Result<Vec<Ucx>> {
        let named = std::env::var_os(VARIABLE).unwrap_or_default();
        let named: Vec<PathBuf> =
            std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
        if let Some(wrong) = named.iter().find(|program| !is_executable(program)) {
            bail!("{VARIABLE}: {} is no program", wrong.display());
        }
        let mut found: Vec<Ucx> = Vec::new();
        for program in find_program("ucx_perftest").into_iter().chain(named) {
            let ucx = Ucx::of(program)?;
            if found.iter().all(|known| known.version.is_none() || known.version != ucx.version) {
                found.push(ucx);
            }
        }
        Ok(found)
    }

    fn of(program: PathBuf) -> Result<Ucx> {
        let mut ucx = Ucx { libraries: libraries(&program), program, version: None };
        let info = ucx.program.with_file_name("ucx_info");
        if info.is_file() {
            let mut command = ucx.with_libraries(Host::here().command(&info));
            command.arg("-v");
            let asked = Running::start(command)?.wait_until(Instant::now() + PROBE_PATIENCE);
            ucx.version = version(&asked.output);
        }
        Ok(ucx)
    }

    /// What it is called in the figures of `path`.
    pub(super) fn name(&self, path: PathChoice) -> String {
        let version = self.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let over = if path != PathChoice::Local { "TCP" } else { "posix,cma" };
        format!("UCX{version} over {over}")
    }

    fn with_libraries(&self, mut command: Command) -> Command {
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// One run of the test `test`; the inner error says what went wrong with it.
    pub(super) fn measure(
        &self,
        ground: &Ground,
        test: &str,
        unit: &str,
        path: PathChoice,
        size: u64,
    ) -> Result<Result<f64, String>> {
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let (transports, device) = match path {
            PathChoice::Tcp | PathChoice::Udp => ("tcp,self", INTERFACE),
            _ => ("posix,cma", "all"),
        };
        let command = |host: &Host| {
            let mut command = self.with_libraries(host.command_with_devices(&self.program));
            command
                .env("UCX_TLS", transports)
                .env("UCX_NET_DEVICES", device)
                .env("UCX_WARN_UNUSED_ENV_VARS", "n");
            // Ordinary memory, as a verbs program's is, instead of memory that UCX shares beforehand. The C library fills it:
            // ucx_perftest does not write what it sends, and never written, all of it is one page of zeros, which stays in the
            // first cache.
            command
                .env("UCX_ALLOC_PRIO", "heap")
                .env("MALLOC_PERTURB_", FILLING)
                .args(["-p", &port.to_string()]);
            command
        };
        let count = count(test, size);
        let output = ground.run_pair(path, port, Pair::client_success, |server, client| {
            let (address, server) = (server.address.to_string(), command(server));
            let mut client = command(client);
            client.args([&address, "-f", "-t", test, "-s", &size.to_string()]);
            client.args(["-n", &count.to_string(), "-w", &(count / 10).to_string()]);
            // Of atomics UCX does more one by one than 16 at once.
            if unit != "us" && test != "ucp_fadd" {
                client.args(["-O", WINDOW]);
            }
            (server, client)
        })?;
        Ok(output.and_then(|output| {
            figure(&output, unit, size).ok_or_else(|| format!("no figure in its output:\n{output}"))
        }))
    }
}

/// The libraries of an installation in a directory of its own (a Python wheel, say), which the loader does not find.
fn libraries(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?.parent()?.join("lib");
    directory.join("libucp.so.0").is_file().then_some(directory)
}

/// Releases differ: `# Version 1.13.1`, `# Library version: 1.22.0`.
fn version(output: &str) -> Option<String> {
    let line =
        output.lines().find(|line| line.starts_with('#') && line.to_lowercase().contains("version"))?;
    let word = line.split(|c: char| c.is_whitespace() || c == '=').next_back()?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_owned())
}

/// How many operations: so many that a run takes some tenths of a second where READs and atomics are emulated too, which
/// then take a millisecond each.
fn count(test: &str, size: u64) -> u64 {
    let most = if test.starts_with("ucp_put") || test.starts_with("tag") { 20_000 } else { 1000 };
    ((1_u64 << 28) / size).clamp(100, most)
}

/// The last line of eight numbers (behind `Final:` where it was not asked for alone): messages; median, recent and
/// overall microseconds; recent and overall MB/s; recent and overall messages a second. "Recent" is since the last of the
/// lines that come once a second, so of no use here.
fn figure(output: &str, unit: &str, size: u64) -> Option<f64> {
    let numbers = output.lines().rev().find_map(|line| {
        let fields = line.trim_start_matches("Final:").split_whitespace();
        let numbers: Option<Vec<f64>> = fields.map(|field| field.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() == 8)
    })?;
    match unit {
        // The median, as perftest's typical latency; of a ping-pong both are half a round trip.
        "us" => numbers.get(1).copied(),
        // Not its own MB/s, which have two decimals only: a rate of words would be 0.
        _ => numbers.get(7).map(|messages| messages * size as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_overall_rate_are_read_from_the_last_line_of_figures() {
        let figures = "1000   1.500   1.600   1.650   2400.00   2500.00   640000   620000";
        for output in [
            format!("| Stage | # iterations |\n+----+\n     {figures}\n\n"),
            format!("[thread 0]  500  9.0  9.0  9.0  1.00  1.00  1  1\nFinal:  {figures}\nnote 7\n"),
        ] {
            assert_eq!(figure(&output, "us", 4096), Some(1.5));
            assert_eq!(figure(&output, "MB/s", 4096), Some(2539.52));
            assert_eq!(figure(&output, "MB/s", 8), Some(4.96));
        }
        assert_eq!(figure("an error\n", "us", 8), None);
        assert_eq!(figure("Final:  1000  1.5\n", "us", 8), None);
    }

    #[test]
    fn the_version_is_read_as_old_and_new_releases_print_it() {
        assert_eq!(version("# Version 1.13.1\n# Git branch\n").as_deref(), Some("1.13.1"));
        assert_eq!(version("# Library version: 1.22.0\n# Library path: x\n").as_deref(), Some("1.22.0"));
        assert_eq!(version("# UCT version=1.10.0 revision\n"), None);
        assert_eq!(version("not found\n"), None);
    }
}
