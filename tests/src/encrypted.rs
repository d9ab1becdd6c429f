//! Programs between hosts whose streams are encrypted.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::paths::run_ends;
use anyhow::{Context, Result, ensure};
use pagewire_cli::hosts::Host;
use pagewire_cli::pair::Running;
use std::fs;
use std::process::Command;
use std::time::Instant;

/// Runs programs of each kind of queue pair, and through the connection manager, with a shared secret: all bytes are encrypted, and none goes
/// as a datagram.
///
/// # Errors
/// With what fails.
pub fn programs_run(ground: &Ground) -> Result<()> {
    let keys = secret(ground, "programs")?;
    for (program, arguments) in [
        ("ib_write_bw", &["-s", "65536", "-n", "300"][..]),
        ("ib_read_bw", &["-s", "1048576", "-n", "20"]),
        ("ib_send_lat", &["-s", "8", "-n", "300"]),
        ("ib_send_bw", &["-c", "UC", "-s", "4096", "-n", "300"]),
        ("ib_send_lat", &["-c", "UD", "-s", "512", "-n", "300"]),
        ("ib_atomic_bw", &["-n", "300"]),
    ] {
        // Had a datagram left, the bytes would have taken two paths.
        ground.must_run_with(&["--tls", &keys], Setting::TcpHosts, program, arguments)?;
    }
    connect_by_the_manager(ground, &keys)
}

/// rping: its messages of the connection manager are encrypted, too.
fn connect_by_the_manager(ground: &Ground, keys: &str) -> Result<()> {
    let (server_host, client_host) = ground.ends(Setting::TcpHosts);
    let address = server_host.address.to_string();
    let end = |host: &Host, role: &str| -> Result<Running> {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--stats", "--tls", keys, "--", "rping", role, "-a", &address, "-p", "18549"]);
        command.args(["-C", "5", "-v"]);
        Running::start(command)
    };
    let server = end(server_host, "-s")?;
    let limit = Instant::now() + RUN;
    // It is refused until the server listens.
    let client = loop {
        let client = end(client_host, "-c")?.wait_until(limit);
        if client.success() || Instant::now() > limit || server.has_ended() {
            break client;
        }
    };
    let server = server.wait_until(limit);
    for finished in [&client, &server] {
        ensure!(finished.output.contains("rdma-ping-4"), "rping: {}", finished.output);
        ensure!(!finished.output.contains("datagrams sent"), "rping sent datagrams: {}", finished.output);
    }
    Ok(())
}

/// Ends that do not have the same secret, or of which one has none, do not reach each other, and are told why.
///
/// # Errors
/// With what they say.
pub fn others_are_refused(ground: &Ground) -> Result<()> {
    let [ours, theirs] = ["ours", "theirs"].map(|name| secret(ground, name));
    let (ours, theirs) = (ours?, theirs?);
    let (server_host, client_host) = ground.ends(Setting::TcpHosts);
    for (port, (server, client, reason)) in (18_546..).zip([
        (&["--tls", &theirs][..], &["--tls", &ours][..], "the peer does not have the same secret"),
        (&[], &["--tls", &ours], "takes no encrypted connections"),
        (&["--tls", &theirs], &[], "takes encrypted connections only"),
    ]) {
        let end = |host: &Host, options: &[&str]| -> Command {
            let mut command = host.command(&ground.stage.command);
            command.args(["run", "--path", "tcp", "--stats"]).args(options);
            command.args(["--", "ib_write_bw", "-F", "-n", "5"]);
            command
        };
        let ends = (end(server_host, server), end(client_host, client));
        let (_, finished) = run_ends(ends.0, ends.1, server_host, port)?;
        ensure!(!finished.success(), "the client reached the server: {server:?} {client:?}");
        ensure!(finished.output.contains(reason), "no word of '{reason}':\n{}", finished.output);
    }
    Ok(())
}

/// Nodes of the native interface greet each other in the clear: those of other hosts are not connected to.
///
/// # Errors
/// If they are.
pub fn nodes_are_cut_off(ground: &Ground) -> Result<()> {
    let keys = secret(ground, "nodes")?;
    let (server, client) = ground.ends(Setting::TcpHosts);
    let file = ground.stage.file("cut-off");
    fs::write(&file, "bytes")?;
    let mut serving = server.command(&ground.stage.command);
    serving.args(["serve", "--address", &server.address.to_string(), "--port", "18545"]).arg(&file);
    let mut serving = Running::start(serving)?;
    ensure!(serving.wait_listening(18_545), "the server does not listen");
    let mut getting = client.command("/usr/bin/env");
    getting.arg(format!("PAGEWIRE_TLS={keys}")).arg(&ground.stage.command);
    getting.args(["get", &format!("{}:18545:cut-off", server.address), "-"]);
    let got = Running::start(getting)?.wait_until(Instant::now() + RUN);
    ensure!(!got.success() && got.output.contains("PAGEWIRE_TLS is set"), "{}", got.output);
    Ok(())
}

/// A new secret in a file; the option that names it.
fn secret(ground: &Ground, name: &str) -> Result<String> {
    let file = ground.stage.file(&format!("secret-{name}"));
    fs::write(&file, name.repeat(16)).context("the secret")?;
    Ok(format!("secret={}", file.display()))
}
