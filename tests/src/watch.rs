//! Programs of other people whose memory is watched: `pagewire run --watch`. What is counted is what they did.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::Running;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A program, and what one iteration of it does to the memory of its server.
pub struct Run {
    pub program: &'static str,
    pub port: u16,
    /// Bytes of a message: whole pages, so that each message touches so many.
    pub size: u64,
    /// `writes` or `reads`.
    pub counted: &'static str,
}

/// WRITEs one after the other, and READs each of which waits for the one before.
pub const RUNS: [Run; 2] = [
    Run { program: "ib_write_bw", port: 18610, size: 8192, counted: "writes" },
    Run { program: "ib_read_lat", port: 18611, size: 4096, counted: "reads" },
];

/// Iterations.
const COUNT: u64 = 500;

/// The counts of the server's memory agree with the iterations of the client, in all and by page.
///
/// # Errors
/// If not.
pub fn counts_agree(ground: &Ground, setting: Setting, run: &Run) -> Result<()> {
    let (server_host, client_host) = ground.ends(setting);
    let (port, size, count) = (run.port.to_string(), run.size.to_string(), COUNT.to_string());
    let path = ["run", "--path", setting.path().name()];
    let program = ["--", run.program, "-F", "-s", &size, "-n", &count, "-p", &port];
    let mut server = server_host.command(&ground.stage.command);
    server.args(path).args(["--watch", "writes=count,reads=count", "--json"]).args(program);
    let mut server = Running::start(server)?;
    ensure!(server.wait_listening(run.port), "the server did not listen");
    let mut client = client_host.command(&ground.stage.command);
    client.args(path).args(program).arg(server_host.address.to_string());
    let client = Running::start(client)?.wait_until(Instant::now() + RUN);
    ensure!(client.success(), "{}", client.output);
    let server = server.wait_until(Instant::now() + RUN);
    ensure!(server.success(), "{}", server.output);
    let line = server.output.lines().find(|line| line.starts_with("{\"pid\""));
    let line = line.with_context(|| format!("no counts in:\n{}", server.output))?;
    let counts: Value = serde_json::from_str(line)?;
    let watch = &counts["watch"];
    // perftest's latency programs let the first messages out of the result, and make them all the same.
    let is_read = run.counted == "reads";
    let bytes = if is_read { "read_bytes" } else { "written_bytes" };
    let agrees = |counts: &Value, size: u64| {
        let number = |name: &str| counts[name].as_u64().unwrap_or_default();
        let exact = number(run.counted) == COUNT && number(bytes) == COUNT * size;
        // What the network loses of a READ is read again.
        let lossy = is_read && setting != Setting::Local;
        exact || lossy && number(run.counted) >= COUNT && number(bytes) >= COUNT * size
    };
    ensure!(agrees(&watch["accesses"], run.size), "{COUNT} iterations of {size} bytes, and {line}");
    let pages = watch["pages"].as_array().context("no pages")?;
    let hot: Vec<_> = pages.iter().filter(|page| agrees(page, 4096)).collect();
    ensure!(
        hot.len() as u64 == run.size / 4096,
        "not {} pages with all iterations in {line}",
        run.size / 4096
    );
    let others = if is_read { ["writes", "atomics"] } else { ["reads", "atomics"] };
    ensure!(others.iter().all(|name| watch["accesses"][name] == 0), "other accesses in {line}");
    Ok(())
}

/// `pagewire top` shows the pages of a live program.
///
/// # Errors
/// If it does not.
pub fn top_shows_hot_pages(ground: &Ground) -> Result<()> {
    let port = 18612;
    let host = &ground.hosts.first;
    let end = |options: &[&str]| {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--path", "local"]).args(options);
        command.args(["--", "ib_write_bw", "-F", "-D", "20", "-s", "4096", "-p", &port.to_string()]);
        command
    };
    let mut server = Running::start(end(&["--watch", "writes=count"]))?;
    ensure!(server.wait_listening(port), "the server did not listen");
    let mut client = end(&[]);
    client.arg(host.address.to_string());
    let _client = Running::start(client)?;
    let patience = Instant::now() + RUN;
    loop {
        let mut top = host.command(&ground.stage.command);
        top.args(["top", "--once", "--interval", "0.1", "ib_write_bw"]);
        let shown = Running::start(top)?.wait_until(Instant::now() + RUN);
        let has_pages = shown.output.contains("bytes written") && shown.output.contains("peers made");
        if has_pages && shown.output.lines().any(|line| line.trim_start().starts_with("0x")) {
            return Ok(());
        }
        ensure!(Instant::now() < patience, "no pages are shown:\n{}", shown.output);
        std::thread::sleep(Duration::from_millis(100));
    }
}
