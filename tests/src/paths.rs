//! Which path *auto* chooses between hosts.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::resets::start_proxy;
use anyhow::{Result, ensure};
use pagewire_cli::hosts::Host;
use pagewire_cli::pair::{Finished, Running};
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Holds TCP port 4791 as a program that is no Pagewire, and never answers.
const STRANGER: &str = "
import socket, time
def listen(port):
    while True:
        stranger = socket.socket()
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            stranger.bind(('0.0.0.0', port))
            stranger.listen()
            return stranger
        except OSError:
            time.sleep(0.01)
both = [listen(4791), listen(18533)]
time.sleep(120)
";

/// Between hosts it is a stream.
///
/// # Errors
/// With what the programs say.
pub fn streams_between_hosts(ground: &Ground) -> Result<()> {
    let (server, client) = run(ground, 18_530)?;
    for (end, output) in [("server", &server), ("client", &client)] {
        ensure!(
            takes(output, "tcp", "is not an address of this host"),
            "the {end} takes another path:\n{output}"
        );
    }
    Ok(())
}

/// To a host where something else holds the port, it is datagrams, after 250 ms, unless the peer opens a stream, which serves both directions.
///
/// # Errors
/// With what the programs say.
pub fn datagrams_where_no_stream_is(ground: &Ground) -> Result<()> {
    let (server_host, _) = ground.ends(Setting::TcpHosts);
    let mut stranger = server_host.command("/usr/bin/python3");
    stranger.args(["-c", STRANGER]);
    let mut stranger = Running::start(stranger)?;
    // Whoever used these hosts before may hold port 4791 a little longer: the second port says that the first one is the stranger's.
    ensure!(stranger.wait_listening(18_533), "the stranger does not listen");
    let (_, client) = run_on(ground, 18_531, [&["--path", "udp"], &[]])?;
    ensure!(takes(&client, "udp", "TCP port 4791 of"), "the client takes another path:\n{client}");
    // Which end finds out first is a matter of time.
    run(ground, 18_532)?;
    Ok(())
}

/// Where the addresses of GIDs are not those to connect to, as behind the port maps of containers, each end connects where its map says.
///
/// # Errors
/// With what the programs say.
pub fn streams_through_mapped_ports(ground: &Ground, proxy: &Path) -> Result<()> {
    const PORT: u16 = 18_541;
    let (first, second) = ground.ends(Setting::TcpHosts);
    // The port of each host is mapped at itself: there all connections come from its own address.
    let mut proxies = Vec::new();
    for host in [first, second] {
        let mut running = start_proxy(ground, host, proxy, (PORT, host.address), &[])?;
        ensure!(running.wait_listening(PORT), "the proxy does not listen");
        proxies.push(running);
    }
    let [to_first, to_second] =
        [first, second].map(|host| format!("{}={}", host.address, SocketAddrV4::new(host.address, PORT)));
    let (server, client) =
        run_on(ground, 18_542, [&["--connect-to", &to_second], &["--connect-to", &to_first]])?;
    for (end, output) in [("server", &server), ("client", &client)] {
        ensure!(takes(output, "tcp", ""), "the {end} takes another path:\n{output}");
    }
    // A peer that is not in the map cannot be another one.
    let (_, client) = run_on(ground, 18_543, [&["--path", "udp"], &["--connect-to", &to_first]])?;
    let reason = format!("takes no connection from {} to {}", second.address, first.address);
    ensure!(takes(&client, "udp", &reason), "the client takes another path:\n{client}");
    Ok(())
}

/// Writes and reads over *auto* between hosts; what the server and the client say of it.
fn run(ground: &Ground, port: u16) -> Result<(String, String)> {
    run_on(ground, port, [&[], &[]])
}

/// As [`run`], with more options of the server and of the client.
fn run_on(ground: &Ground, port: u16, options: [&[&str]; 2]) -> Result<(String, String)> {
    let (server_host, client_host) = ground.ends(Setting::TcpHosts);
    let end = |host: &Host, options: &[&str]| -> Command {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--stats"]).args(options).args(["--", "ib_write_bw", "-F", "-n", "500"]);
        command
    };
    let ends = (end(server_host, options[0]), end(client_host, options[1]));
    let (server, client) = run_ends(ends.0, ends.1, server_host, port)?;
    for (end, finished) in [("server", &server), ("client", &client)] {
        ensure!(finished.success(), "the {end}: {}\n{}", finished.verdict(), finished.output);
    }
    Ok((server.output, client.output))
}

/// Runs a program of perftest at both ends, which meet at a port; how each ended.
pub(crate) fn run_ends(
    mut server: Command,
    mut client: Command,
    server_host: &Host,
    port: u16,
) -> Result<(Finished, Finished)> {
    let limit = Instant::now() + RUN;
    server.args(["-p", &port.to_string()]);
    client.args(["-p", &port.to_string(), &server_host.address.to_string()]);
    let mut server = Running::start(server)?;
    ensure!(server.wait_listening(port), "the server did not listen");
    let client = Running::start(client)?.wait_until(limit);
    let server = server.wait_until(limit.max(Instant::now() + Duration::from_secs(5)));
    Ok((server, client))
}

/// Whether a line of the statistics has the path and the reason.
fn takes(output: &str, path: &str, reason: &str) -> bool {
    output.lines().any(|line| line.contains(&format!("  {path}  ")) && line.contains(reason))
}
