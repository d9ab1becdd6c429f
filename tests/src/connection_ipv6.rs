//! Programs of librdmacm with addresses of IPv6: global ones, and link-local ones with their interface.

use crate::connection_manager::await_port;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::not_checked;
use anyhow::{Context, Result, ensure};
use pagewire_cli::hosts::INTERFACE;
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use std::path::Path;
use std::time::{Duration, Instant};

/// The port of udaddy, which cannot be told another one.
const USUAL_PORT: u16 = 7174;
const FIRST_PORT: u16 = 18_780;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Both kinds of addresses, without the number of the host.
const PREFIXES: [&str; 2] = ["fd00:79::", "fe80::79:"];
/// A group of each scope, and as the kernel lists it.
const GROUPS: [(&str, &str); 2] =
    [("ff0e::79:1", "ff0e0000000000000000000000790001"), ("ff12::79:1", "ff120000000000000000000000790001")];

/// A program with the words of its server and its client; ADDRESS is the server's, PORT one that no other run has.
const PROGRAMS: [(&str, &str, &str, &str); 3] = [
    ("rping", "-s -a ADDRESS -p PORT -C 5 -V", "-c -a ADDRESS -p PORT -C 5 -V -v", "ping data: rdma-ping-4"),
    ("ucmatose", "-b ADDRESS -p PORT -c 3 -C 5", "-s ADDRESS -p PORT -c 3 -C 5", "return status 0"),
    ("udaddy", "-b ADDRESS -c 2 -C 5", "-s ADDRESS -c 2 -C 5", "return status 0"),
];

/// Programs connect, and send to groups, with addresses of IPv6.
///
/// # Errors
/// If one does not.
pub fn programs_connect(ground: &Ground) -> Result<()> {
    let has_programs =
        ["rping", "ucmatose", "udaddy", "mckey"].iter().all(|name| find_program(name).is_some());
    if !has_programs || !Path::new("/proc/net/if_inet6").exists() {
        not_checked::tell("connection_ipv6::programs_connect: rdmacm-utils, or IPv6, is missing");
        return Ok(());
    }
    for (number, host) in [(1, &ground.hosts.first), (2, &ground.hosts.second)] {
        for prefix in PREFIXES {
            host.ip(&["address", "replace", &format!("{prefix}{number}/64"), "dev", INTERFACE, "nodad"])?;
        }
    }
    let mut port = FIRST_PORT;
    for setting in [Setting::Local, Setting::Udp, Setting::Hosts] {
        for prefix in PREFIXES {
            for program in PROGRAMS {
                port += 1;
                connect(ground, setting, (prefix, port), program)
                    .with_context(|| format!("{}, {setting:?}, {prefix}", program.0))?;
            }
            for group in GROUPS {
                join(ground, setting, prefix, group)
                    .with_context(|| format!("{group:?}, {setting:?}, {prefix}"))?;
            }
        }
    }
    Ok(())
}

fn address_of(prefix: &str, number: u8) -> String {
    let scope = if prefix.starts_with("fe80") { format!("%{INTERFACE}") } else { String::new() };
    format!("{prefix}{number}{scope}")
}

fn connect(
    ground: &Ground,
    setting: Setting,
    (prefix, port): (&str, u16),
    (name, server_words, client_words, proof): (&str, &str, &str, &str),
) -> Result<()> {
    let (server, client) = ground.ends(setting);
    let address = address_of(prefix, 1);
    let start = |host: &pagewire_cli::hosts::Host, words: &str| {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--path", setting.path().name(), "--", name]);
        let port = port.to_string();
        command.args(
            words.split_whitespace().map(|word| word.replace("ADDRESS", &address).replace("PORT", &port)),
        );
        Running::start(command)
    };
    let mut serving = start(server, server_words)?;
    await_port(&serving, if server_words.contains("PORT") { port } else { USUAL_PORT })?;
    let deadline = Instant::now() + RUN;
    let asked = start(client, client_words)?.wait_until(deadline);
    if !asked.success() {
        serving.kill();
    }
    let served = serving.wait_until(deadline);
    ensure!(
        asked.success() && served.success() && asked.output.contains(proof),
        "{}, {}:\n{}\n{}",
        asked.verdict(),
        served.verdict(),
        asked.output,
        served.output
    );
    Ok(())
}

/// A receiver joins a group, and gets what another one sends to it.
fn join(ground: &Ground, setting: Setting, prefix: &str, (group, listed): (&str, &str)) -> Result<()> {
    let (server, client) = ground.ends(setting);
    let start = |host: &pagewire_cli::hosts::Host, number: u8, sends: bool| {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--path", setting.path().name(), "--", "mckey", "-m", group, "-C", "5"]);
        command.args(["-b", &address_of(prefix, number)]).args(sends.then_some("-s"));
        Running::start(command)
    };
    let mut receiver = start(server, 1, false)?;
    let deadline = Instant::now() + RUN;
    let memberships = format!("/proc/{}/net/igmp6", receiver.pid());
    while !std::fs::read_to_string(&memberships).unwrap_or_default().contains(listed) {
        ensure!(
            Instant::now() < deadline && !receiver.has_ended(),
            "{}",
            receiver.wait_until(deadline).output
        );
        std::thread::sleep(PAUSE);
    }
    let sent = start(client, if setting == Setting::Hosts { 2 } else { 1 }, true)?.wait_until(deadline);
    if !sent.success() {
        receiver.kill();
    }
    let received = receiver.wait_until(deadline);
    ensure!(
        sent.success() && received.success() && received.output.contains("return status 0"),
        "{}, {}:\n{}\n{}",
        sent.verdict(),
        received.verdict(),
        sent.output,
        received.output
    );
    Ok(())
}
