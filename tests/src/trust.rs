//! Who may not trace a process learns nothing of it: `tests/trust/main.c`.

use crate::ground::Ground;
use crate::limits::RUN;
use crate::{compile, not_checked};
use anyhow::{Result, bail, ensure};
use pagewire_cli::pair::Running;
use pagewire_cli::report;
use std::time::Instant;

/// The program's exit status where the kernel lets processes of one user trace each other whatever they ask for.
const NOT_HERE: i32 = 77;

/// A process that is not dumpable shows no secret, key or address to another one of its user, and is reached over udp.
///
/// # Errors
/// With what the program says.
pub fn nothing_is_shown_without_proof(ground: &Ground) -> Result<()> {
    let program = ground.stage.file("trust");
    compile::c([concat!(env!("CARGO_MANIFEST_DIR"), "/trust/main.c")], &program, &["-libverbs"])?;
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["run", "--path", "auto", "--"]).arg(&program).arg(&ground.stage.command);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    match finished.status.and_then(|status| status.code()) {
        Some(0) => Ok(()),
        Some(NOT_HERE) => {
            not_checked::tell(&finished.output);
            Ok(())
        }
        _ => bail!("{}\n{}", finished.verdict(), finished.output),
    }
}

/// A process with `--path udp` opens no listener for the local path, and a neighbour on `auto` says why it takes udp.
///
/// # Errors
/// If it does, or does not.
pub fn udp_alone_opens_no_listener(ground: &Ground) -> Result<()> {
    let host = &ground.hosts.first;
    let port: u16 = 18_530;
    let end = |path: &str| {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--path", path, "--", "ib_write_bw", "-F", "-D", "2", "-p", &port.to_string()]);
        command
    };
    let mut server = Running::start(end("udp"))?;
    ensure!(server.wait_listening(port), "the server did not listen");
    let mut client = end("auto");
    let statistics = ground.stage.writable_file("trust-client.jsonl")?;
    client.arg("127.0.0.1").env("PAGEWIRE_STATS", &statistics);
    let client = Running::start(client)?;
    let listening = || -> Result<(usize, usize)> {
        let mut command = host.command("cat");
        command.arg("/proc/net/unix");
        let sockets = Running::start(command)?.wait_until(Instant::now() + RUN).output;
        let names = sockets.lines().filter(|line| line.contains("@pagewire-qpn-"));
        // The fourth column: SO_ACCEPTCON is set where a socket listens (unix(7), /proc/net/unix).
        let listens = |line: &&str| line.split_whitespace().nth(3) == Some("00010000");
        Ok((names.clone().count(), names.filter(listens).count()))
    };
    let until = Instant::now() + RUN;
    let (names, listeners) = loop {
        let found = listening()?;
        if found.0 == 2 {
            break found;
        }
        ensure!(
            !client.has_ended() && Instant::now() < until,
            "two processes lease no two blocks: {found:?}"
        );
    };
    ensure!((names, listeners) == (2, 1), "{listeners} of {names} names have a listener");
    for (side, running) in [("client", client), ("server", server)] {
        let finished = running.wait_until(Instant::now() + RUN);
        ensure!(finished.success(), "{side}: {}\n{}", finished.verdict(), finished.output);
    }
    let reports = report::read_file(&statistics)?;
    let connections = reports.iter().flat_map(|report| &report.connections);
    let reasons: Vec<_> = connections.filter_map(|connection| connection.get("reason")?.as_str()).collect();
    ensure!(reasons.iter().any(|reason| reason.contains("takes the network only")), "{reasons:?}");
    Ok(())
}
