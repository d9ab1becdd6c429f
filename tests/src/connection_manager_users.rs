//! Connections between hosts whose UDP port 4791 another user holds on each: requests go past that user, and a kernel's are refused.

use crate::connection_manager::await_port;
use crate::connection_manager_ends::as_other_user;
use crate::ground::Ground;
use crate::limits::RUN;
use crate::not_checked;
use anyhow::{Context, Result, ensure};
use pagewire_cli::hosts::{Host, programs_become_nobody};
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

/// The holders of UDP port 4791 listen here.
const HOLDERS_PORT: u16 = 18_794;
const PORT: u16 = 18_795;
/// That of udaddy, which cannot be told another one.
const UDADDY_PORT: u16 = 7174;

/// Attributes of messages (InfiniBand specification, section 12.6.2), and of the query for a port.
const REQ: u16 = 0x10;
const SIDR_REQ: u16 = 0x17;
const PORT_QUERY: u16 = 0x01;

/// Programs connect between hosts though another user has UDP port 4791 of each, and those users see no request. A request as a kernel sends it is
/// refused, and `explain` says why.
///
/// # Errors
/// If not.
pub fn users_connect_between_hosts(ground: &Ground) -> Result<()> {
    let lacks = ["rping", "udaddy"].into_iter().find(|program| find_program(program).is_none());
    if let Some(lacking) = lacks.or((!programs_become_nobody()).then_some("root")) {
        not_checked::tell(format_args!(
            "connection_manager_users::users_connect_between_hosts needs {lacking}"
        ));
        return Ok(());
    }
    let ground = &ground.with_other_hosts()?;
    let directory = tempfile::Builder::new().prefix("pagewire-users-").tempdir()?;
    // The programs run as other users.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
    let (server, client) = (&ground.hosts.first, &ground.hosts.second);
    let server_holder = holder(ground, server, directory.path(), "server.pcap")?;
    kernel_is_refused(ground)?;
    let client_holder = holder(ground, client, directory.path(), "client.pcap")?;
    let address = server.address.to_string();
    let port = PORT.to_string();
    let programs = [
        (vec!["rping", "-a", &address, "-p", &port, "-C", "5", "-V", "-v"], "ping data: rdma-ping-4", PORT),
        (vec!["udaddy", "-c", "2", "-C", "5"], "return status 0", UDADDY_PORT),
    ];
    for (words, proof, port) in &programs {
        connect(ground, words, proof, *port).with_context(|| words.join(" "))?;
    }
    for mut holder in [server_holder, client_holder] {
        holder.kill();
        holder.wait_until(Instant::now() + RUN);
    }
    let seen = |side: &str| messages(directory.path(), side);
    let (at_server, at_client) = (seen("server")?, seen("client")?);
    ensure!(at_server.contains(&PORT_QUERY), "the holder was not asked: {at_server:x?}");
    for seen in [&at_server, &at_client] {
        // The first one is the kernel's.
        let requests = seen.iter().filter(|attribute| [REQ, SIDR_REQ].contains(attribute)).count();
        let of_kernel = usize::from(std::ptr::eq(seen, &at_server));
        ensure!(requests == of_kernel, "another user saw {requests} requests: {at_server:x?} {at_client:x?}");
    }
    Ok(())
}

/// A program of nobody that has UDP port 4791 of a host.
fn holder(ground: &Ground, host: &Host, directory: &Path, capture: &str) -> Result<Running> {
    let mut command = host.command(&ground.stage.command);
    command.args(["run", "--path", "udp", "--pcap"]).arg(directory.join(capture));
    command.args(["--", "rping", "-s", "-a", &host.address.to_string(), "-p", &HOLDERS_PORT.to_string()]);
    let holder = Running::start(command)?;
    await_port(&holder, HOLDERS_PORT)?;
    Ok(holder)
}

/// Both ends are of a user who has the port at neither host.
fn connect(ground: &Ground, words: &[&str], proof: &str, port: u16) -> Result<()> {
    let (server, client) = (&ground.hosts.first, &ground.hosts.second);
    let address = server.address.to_string();
    let start = |host: &Host, side: &[&str]| {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--path", "udp", "--"]).args(words).args(side);
        Running::start(as_other_user(&command))
    };
    let (serving, asking): (&[&str], &[&str]) = match words[0] {
        "rping" => (&["-s"], &["-c"]),
        _ => (&[], &["-s", &address]),
    };
    let mut server = start(server, serving)?;
    await_port(&server, port)?;
    let asked = start(client, asking)?.wait_until(Instant::now() + RUN);
    if !asked.success() {
        server.kill();
    }
    let served = server.wait_until(Instant::now() + RUN);
    for (side, finished) in [("client", &asked), ("server", &served)] {
        ensure!(finished.success(), "{side}: {}\n{}\n{}", finished.verdict(), asked.output, served.output);
    }
    ensure!(asked.output.contains(proof), "{}", asked.output);
    Ok(())
}

/// A REQ of a kernel comes to the holder of UDP port 4791, who must not hand it to another user's program as if it were true.
fn kernel_is_refused(ground: &Ground) -> Result<()> {
    let host = &ground.hosts.first;
    let address = host.address.to_string();
    let port = PORT.to_string();
    let mut command = host.command(&ground.stage.command);
    command.args(["run", "--path", "udp", "--", "rping", "-s", "-a", &address, "-p", &port]);
    let mut listener = Running::start(as_other_user(&command))?;
    await_port(&listener, PORT)?;
    let mut kernel = ground.hosts.second.privileged("/usr/bin/python3");
    kernel.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("management/request.py")).args([&address, &port]);
    let refused = Running::start(kernel)?.wait_until(Instant::now() + RUN);
    let mut command = host.command(&ground.stage.command);
    command.args(["explain", "--json"]);
    let explained = Running::start(as_other_user(&command))?.wait_until(Instant::now() + RUN);
    listener.kill();
    listener.wait_until(Instant::now() + RUN);
    ensure!(refused.success(), "{}\n{}", refused.verdict(), refused.output);
    ensure!(refused.output.matches("refused: ").count() == 1, "{}", refused.output);
    // Sentences are about processes of others.
    let objects = explained.output.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Value> = objects.map(serde_json::from_str).collect::<Result<_, _>>()?;
    let refusals =
        lines.iter().filter_map(|line| line["connection_manager"]["refusals"].as_array()).flatten();
    let reason = format!("another user has UDP port 4791 of {address}");
    let is_wanted = |refusal: &Value| {
        let says = refusal["reason"].as_str().is_some_and(|text| text.starts_with(&reason));
        says && refusal["code"] == 8 && refusal["direction"] == "sent" && refusal["port"] == PORT
    };
    ensure!(refusals.clone().any(is_wanted), "{}", explained.output);
    Ok(())
}

/// The attributes of all messages in the captures of a side.
fn messages(directory: &Path, side: &str) -> Result<Vec<u16>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(side)) {
            continue;
        }
        let bytes = fs::read(&path)?;
        // Base version, class of communication management, its version, and the method: any.
        let heads =
            bytes.windows(18).filter(|head| head[..3] == [1, 7, 2] && [0x01, 0x03, 0x81].contains(&head[3]));
        found.extend(heads.map(|head| u16::from_be_bytes([head[16], head[17]])));
    }
    ensure!(!fs::read_dir(directory)?.collect::<Vec<_>>().is_empty(), "no capture");
    Ok(found)
}
