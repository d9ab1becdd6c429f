//! Connections beneath the tcp path that break: `tests/resets/main.c`.
//!
//! PAGEWIRE_RESETS says how many are to be broken; without it a few are.

use crate::compile;
use crate::ground::{Ground, Setting};
use anyhow::{Context, Result, ensure};
use pagewire_cli::hosts::Host;
use pagewire_cli::install::find_program;
use pagewire_cli::pair::{Finished, Running};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Connections that a short run breaks.
const FEW: usize = 60;
/// Seconds of a run for so many.
const RESETS_A_SECOND: usize = 12;
/// The longest pause between two looks for connections to break, in milliseconds.
const LONGEST_PAUSE: u64 = 120;
/// The most bytes that a connection carries before the proxy cuts it.
const LONGEST_LIFE: &str = "100000000";

/// Breaks connections at random instants under WRITEs, READs, atomics and SENDs of two processes: none is lost, comes twice, or out of its
/// turn.
///
/// # Errors
/// With what the program says, and how to run it again.
pub fn nothing_is_lost(ground: &Ground) -> Result<()> {
    let resets = resets()?;
    let host = &ground.hosts.first;
    let mut seed = new_seed()?;
    let (running, limit) = start(ground, resets, seed, &[])?;
    let mut broken = 0;
    while !running.has_ended() && Instant::now() < limit {
        // A linear congruential generator: any instants will do.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_millis((seed >> 33) % LONGEST_PAUSE));
        broken += break_connections(host)?;
    }
    judge(running.wait_until(limit), broken, resets)
}

/// As [`nothing_is_lost`], where a proxy passes bytes on in pieces of any length, and cuts each connection at some byte.
///
/// # Errors
/// With what the program says, and how to run it again.
pub fn nothing_is_lost_behind_a_proxy(ground: &Ground, proxy: &Path) -> Result<()> {
    const PORT: u16 = 18_540;
    let resets = resets()?;
    let host = &ground.hosts.first;
    let seed = new_seed()?;
    let address = host.address;
    let cut = ["--cut", LONGEST_LIFE, "--seed", &seed.to_string()].map(str::to_owned);
    let mut proxy = start_proxy(ground, host, proxy, (PORT, address), &cut)?;
    ensure!(proxy.wait_listening(PORT), "the proxy does not listen");
    let (running, limit) =
        start(ground, resets, seed, &["--connect-to", &format!("{address}={address}:{PORT}")])?;
    let finished = running.wait_until(limit);
    proxy.kill();
    let cuts = proxy.wait_until(limit).output.lines().filter(|line| *line == "cut").count();
    judge(finished, cuts, resets)
}

/// Starts the proxy from a port of a host to the port of streams at an address.
pub(crate) fn start_proxy(
    ground: &Ground,
    host: &Host,
    proxy: &Path,
    (port, to): (u16, Ipv4Addr),
    options: &[String],
) -> Result<Running> {
    let program = ground.stage.file("tcp_proxy");
    compile::once(&program, || Ok(fs::copy(proxy, &program).map(drop)?))?;
    let mut command = host.command(&program);
    command
        .arg(SocketAddrV4::new(host.address, port).to_string())
        .arg(SocketAddrV4::new(to, 4791).to_string());
    Running::start({
        command.args(options);
        command
    })
}

/// How many connections are to be broken.
fn resets() -> Result<usize> {
    match std::env::var("PAGEWIRE_RESETS") {
        Ok(resets) => Ok(resets.parse::<NonZeroUsize>().context("PAGEWIRE_RESETS")?.get()),
        Err(_) => Ok(FEW),
    }
}

fn new_seed() -> Result<u64> {
    Ok(u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()))
}

/// Starts the program for as long as so many resets take. Gives also when it must have ended.
fn start(ground: &Ground, resets: usize, seed: u64, options: &[&str]) -> Result<(Running, Instant)> {
    let program = ground.stage.file("resets");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/resets/main.c");
    compile::once(&program, || compile::c([source], &program, &["-libverbs"]))?;
    let seconds = resets.div_ceil(RESETS_A_SECOND);
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["run", "--path", Setting::Tcp.path().name()]).args(options).arg("--").arg(&program);
    command.args([seconds.to_string(), seed.to_string()]);
    Ok((Running::start(command)?, Instant::now() + Duration::from_secs(seconds as u64 + 120)))
}

fn judge(finished: Finished, broken: usize, resets: usize) -> Result<()> {
    ensure!(finished.success(), "{broken} resets; {}\n{}", finished.verdict(), finished.output);
    ensure!(broken >= resets / 2, "only {broken} connections were broken:\n{}", finished.output);
    Ok(())
}

/// Breaks all connections to the port of streams on a host; gives how many.
fn break_connections(host: &Host) -> Result<usize> {
    let ss = find_program("ss").context("the program ss is missing (Debian package iproute2)")?;
    let mut command = host.privileged(ss);
    command.args(["-HKt", "state", "established", "( dport = 4791 )"]);
    let finished = Running::start(command)?.wait_until(Instant::now() + Duration::from_secs(30));
    ensure!(finished.success(), "ss: {}", finished.output);
    Ok(finished.output.lines().filter(|line| !line.trim().is_empty()).count())
}
