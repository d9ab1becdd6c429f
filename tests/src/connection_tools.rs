//! What the tools show of connections by librdmacm: `pagewire explain`, `top`, `doctor` and captures.

use crate::connection_manager::await_port;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::wire::{judge, tshark};
use crate::{compile, not_checked};
use anyhow::{Context, Result, ensure};
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The server listens here, and nobody at the next port.
const PORT: u16 = 18_750;
const NOBODYS_PORT: u16 = 18_751;
const CAPTURED_PORT: u16 = 18_752;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// `explain` and `top` name listeners, both ends of a connection, and why a request was refused; `doctor` connects.
///
/// # Errors
/// If one does not.
pub fn connections_are_shown(ground: &Ground) -> Result<()> {
    if find_program("rping").is_none() {
        not_checked::tell("connection_tools::connections_are_shown: rping is not installed");
        return Ok(());
    }
    let host = &ground.hosts.first;
    let address = host.address.to_string();
    let rping = |words: &[&str]| {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--", "rping", "-a", &address, "-p", &PORT.to_string()]).args(words);
        Running::start(command)
    };
    // Neither ends by itself.
    let mut server = rping(&["-s", "-P"])?;
    await_port(&server, PORT)?;
    let mut client = rping(&["-c", "-C", "1000000000"])?;
    let program = ground.stage.file("rdmacm-asker");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rdmacm/asker.c");
    compile::once(&program, || compile::c([&source], &program, &["-lrdmacm", "-libverbs"]))?;
    let mut command = host.command(&ground.stage.command);
    command.args(["run", "--"]).arg(&program).args([&address, &NOBODYS_PORT.to_string()]);
    let mut asker = Running::start(command)?;
    let deadline = Instant::now() + RUN;
    let seen = loop {
        match look(ground) {
            Ok(()) => break Ok(()),
            Err(error) if Instant::now() > deadline => break Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    let tables = if seen.is_ok() { tables(ground) } else { Ok(()) };
    for process in [&mut asker, &mut client, &mut server] {
        process.kill();
    }
    seen.and(tables)
}

fn output(ground: &Ground, words: &[&str]) -> Result<String> {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(words);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "{words:?}: {}\n{}", finished.verdict(), finished.output);
    Ok(finished.output)
}

/// What `explain --json` says of the three processes.
fn look(ground: &Ground) -> Result<()> {
    let address = ground.hosts.first.address;
    let text = output(ground, &["explain", "--json"])?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let managers: Vec<&Value> = lines.iter().filter_map(|line| line.get("connection_manager")).collect();
    let ids: Vec<&Value> =
        managers.iter().filter_map(|manager| manager["ids"].as_array()).flatten().collect();
    let listener = ids.iter().find(|id| id["state"] == "listening").context("no listener")?;
    ensure!(
        listener["source"] == format!("{address}:{PORT}") && listener["is_listener"] == true,
        "{listener}"
    );
    ensure!(listener["waiting"] == 0 && listener["backlog"].is_u64(), "{listener}");
    let ends: Vec<&&Value> = ids.iter().filter(|id| id["state"] == "established").collect();
    let [one, other] = ends[..] else { anyhow::bail!("not two ends: {text}") };
    for (own, peers) in [("source", "destination"), ("queue_pair", "peer_queue_pair")] {
        ensure!(one[own] == other[peers] && one[peers] == other[own] && !one[own].is_null(), "{one} {other}");
    }
    // The queue pairs are those that the process shows.
    for end in [one, other] {
        ensure!(lines.iter().any(|line| line["qpn"] == end["queue_pair"]), "no such queue pair: {end}");
    }
    let refusals: Vec<&Value> =
        managers.iter().filter_map(|manager| manager["refusals"].as_array()).flatten().collect();
    let [refusal] = refusals[..] else { anyhow::bail!("not one refusal: {refusals:?}") };
    let reason = format!("nobody listens at port {NOBODYS_PORT} of {address}");
    ensure!(refusal["reason"] == reason && refusal["code"] == 8, "{refusal}");
    ensure!(refusal["direction"] == "received" && refusal["peer"] == address.to_string(), "{refusal}");
    ensure!(refusal["port"] == NOBODYS_PORT && refusal["count"] == 1, "{refusal}");
    Ok(())
}

/// What people read.
fn tables(ground: &Ground) -> Result<()> {
    let address = ground.hosts.first.address;
    let refused =
        format!("was refused by {address}: nobody listens at port {NOBODYS_PORT} of {address} (reason 8)");
    for words in [&["explain"][..], &["top", "--once", "--interval", "0.1"]] {
        let text = output(ground, words)?;
        for wanted in ["connection manager: 1 event channel", "listening, 0 of ", "established", &refused] {
            ensure!(text.contains(wanted), "{words:?}: {wanted} is missing in:\n{text}");
        }
    }
    let text = output(ground, &["top", "--once", "--interval", "0.1", "--json"])?;
    let object: Value = serde_json::from_str(&text)?;
    let processes = object["processes"].as_array().context("no processes")?;
    ensure!(processes.iter().any(|process| process["connection_manager"]["ids"].is_array()), "{text}");
    let text = output(ground, &["doctor", "--json"])?;
    for wanted in [r#"{"check":"connection manager","verdict":"ok","#, &format!("TCP {PORT}")] {
        ensure!(text.contains(wanted), "{wanted} is missing in:\n{text}");
    }
    Ok(())
}

/// Captures of both ends have all messages of a connection, also inside a host, and tshark reads them.
///
/// # Errors
/// If one is missing, or a judge finds fault.
pub fn messages_are_captured(ground: &Ground) -> Result<()> {
    for program in ["rping", "tshark"] {
        if find_program(program).is_none() {
            not_checked::tell(format_args!(
                "connection_tools::messages_are_captured: {program} is not installed"
            ));
            return Ok(());
        }
    }
    for setting in [Setting::Local, Setting::Hosts] {
        let directory = tempfile::Builder::new().prefix("pagewire-messages-").tempdir()?;
        // The programs run as another user.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
        let (server, client) = ground.ends(setting);
        let address = server.address.to_string();
        let start = |host: &pagewire_cli::hosts::Host, file: &str, side: &str| {
            let mut command = host.command(&ground.stage.command);
            command.args(["run", "--path", setting.path().name(), "--pcap"]).arg(directory.path().join(file));
            command.args(["--", "rping", side, "-C", "3", "-a", &address, "-p", &CAPTURED_PORT.to_string()]);
            Running::start(command)
        };
        let serving = start(server, "server.pcap", "-s")?;
        await_port(&serving, CAPTURED_PORT)?;
        let asked = start(client, "client.pcap", "-c")?.wait_until(Instant::now() + RUN);
        let served = serving.wait_until(Instant::now() + RUN);
        ensure!(asked.success() && served.success(), "{setting:?}: {}\n{}", asked.output, served.output);
        for entry in fs::read_dir(directory.path())? {
            messages_make_sense(&entry?.path()).with_context(|| format!("{setting:?}"))?;
        }
    }
    Ok(())
}

fn messages_make_sense(file: &Path) -> Result<()> {
    judge(file).with_context(|| file.display().to_string())?;
    let filter = ["-Y", "infiniband.bth.destqp == 1", "-T", "fields", "-e", "_ws.col.Info"];
    let messages = tshark(file, &filter)?;
    let wanted = ["CM: ConnectRequest", "CM: ConnectReply", "CM: ReadyToUse", "CM: DisconnectRequest"];
    for wanted in wanted {
        ensure!(
            messages.iter().any(|message| message == wanted),
            "{}: no {wanted}: {messages:?}",
            file.display()
        );
    }
    let arguments = ["-Y", "infiniband.cm.req", "-T", "fields", "-e", "infiniband.cm.req.serviceid.dport"];
    let ports = tshark(file, &arguments)?;
    ensure!(ports.first().is_some_and(|port| read_port(port) == Some(CAPTURED_PORT)), "{ports:?}");
    Ok(())
}

/// A number as one version of tshark or the other prints it.
fn read_port(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
