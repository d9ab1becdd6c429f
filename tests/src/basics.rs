//! Devices, the command itself, and what it says when something is wrong.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::{Finished, Running};
use std::time::Instant;

fn run(ground: &Ground, words: &[&str]) -> Result<Finished> {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(words);
    Ok(Running::start(command)?.wait_until(Instant::now() + RUN))
}

/// ibv_devices lists a device for the network device.
///
/// # Errors
/// If it does not.
pub fn devices_are_listed(ground: &Ground) -> Result<()> {
    let finished = run(ground, &["run", "--", "ibv_devices"])?;
    ensure!(finished.success() && finished.output.contains("pagewire0"), "{}", finished.output);
    Ok(())
}

/// ibv_devinfo -v shows an active port, its GID of the host's address, and limits.
///
/// # Errors
/// If it does not.
pub fn device_is_described(ground: &Ground) -> Result<()> {
    let finished = run(ground, &["run", "--", "ibv_devinfo", "-v"])?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    let address = ground.hosts.first.address.to_string();
    for wanted in ["pagewire0", "PORT_ACTIVE", "Ethernet", "RoCE v2", "max_qp", &address] {
        ensure!(finished.output.contains(wanted), "{wanted} is missing in:\n{}", finished.output);
    }
    Ok(())
}

/// `pagewire run` passes the program's exit status through.
///
/// # Errors
/// If it does not.
pub fn exit_status_passes(ground: &Ground) -> Result<()> {
    let cases: [(&[&str], i32); 4] = [
        (&["run", "--", "true"], 0),
        (&["run", "--", "sh", "-c", "exit 7"], 7),
        (&["run", "--stats", "--", "sh", "-c", "exit 7"], 7),
        (&["run", "--stats", "--", "sh", "-c", "kill -TERM $$"], 128 + 15),
    ];
    for (words, code) in cases {
        let finished = run(ground, words)?;
        let got = finished.status.and_then(|status| status.code());
        ensure!(
            got == Some(code),
            "{words:?}: {} instead of {code}\n{}",
            finished.verdict(),
            finished.output
        );
    }
    Ok(())
}

/// `pagewire doctor --json` prints one object a line and finds that Pagewire runs.
///
/// # Errors
/// If it does not.
pub fn doctor_is_content(ground: &Ground) -> Result<()> {
    let finished = run(ground, &["doctor", "--json"])?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    for line in finished.output.lines() {
        ensure!(line.starts_with("{\"check\":") && line.ends_with('}'), "not an object: {line}");
    }
    Ok(())
}

/// `pagewire explain` finds a program that waits for its peer.
///
/// # Errors
/// If it does not.
pub fn explain_finds_a_program(ground: &Ground) -> Result<()> {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    let port: u16 = 18_520;
    command.args(["run", "--", "ib_write_bw", "-F", "-p", &port.to_string()]);
    let mut server = Running::start(command)?;
    ensure!(server.wait_listening(port), "the server did not listen");
    let explained = run(ground, &["explain", "--json"])?;
    let wanted = format!("\"pid\":{}", server.pid());
    server.kill();
    ensure!(explained.success(), "{}\n{}", explained.verdict(), explained.output);
    ensure!(explained.output.contains(&wanted), "{wanted} is not in: {}", explained.output);
    Ok(())
}

/// `pagewire run --stats` prints what the connections did.
///
/// # Errors
/// If it does not.
pub fn statistics_are_printed(ground: &Ground) -> Result<()> {
    let outcome = ground.must_run(Setting::Udp, "ibv_rc_pingpong", &["-g", "0", "-n", "50"])?;
    let report = outcome.client.first().context("no counters")?;
    // A SEND at least for each message in each direction.
    ensure!(report.total("packets_sent") >= 50, "only {} packets", report.total("packets_sent"));
    ensure!(report.total("packets_received") >= 50, "only {} packets", report.total("packets_received"));
    let finished = run(ground, &["run", "--stats", "--", "ibv_devinfo"])?;
    ensure!(finished.success() && finished.output.contains("ibv_devinfo (PID"), "{}", finished.output);
    Ok(())
}
