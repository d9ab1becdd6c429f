//! Programs that connect by their own librdmacm, unmodified, on one host and between two.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::not_checked;
use anyhow::{Result, bail, ensure};
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// The port of programs that are not told one.
const USUAL_PORT: u16 = 7174;
/// Between two looks whether a server listens.
const PAUSE: Duration = Duration::from_millis(20);

/// A program with the words of its server and of its client; ADDRESS is the server's, PORT one that no other run has.
struct Program {
    name: &'static str,
    server: &'static str,
    client: &'static str,
    /// What the client prints if all data were right.
    proof: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "rping",
        server: "-s -a ADDRESS -p PORT -C 5 -V",
        client: "-c -a ADDRESS -p PORT -C 5 -V -v",
        proof: "ping data: rdma-ping-4",
    },
    Program {
        name: "ucmatose",
        server: "-p PORT -c 3 -C 5",
        client: "-s ADDRESS -p PORT -c 3 -C 5",
        proof: "return status 0",
    },
    Program {
        name: "udaddy",
        // Its -p is a port space.
        server: "-c 2 -C 5",
        client: "-s ADDRESS -c 2 -C 5",
        proof: "return status 0",
    },
    Program {
        name: "rdma_client",
        server: "-p PORT",
        client: "-s ADDRESS -p PORT",
        proof: "rdma_client: end 0",
    },
    Program {
        name: "rstream",
        server: "-p PORT -S 4096 -C 20 -T v",
        client: "-s ADDRESS -p PORT -S 4096 -C 20 -T v",
        proof: "custom",
    },
];

/// Each program connects, transfers and disconnects, and both ends say that it was right.
///
/// # Errors
/// If one does not.
pub fn programs_connect(ground: &Ground) -> Result<()> {
    let mut port = 18_600_u16;
    for program in PROGRAMS {
        let server_name = if program.name == "rdma_client" { "rdma_server" } else { program.name };
        if find_program(server_name).is_none() || find_program(program.name).is_none() {
            not_checked::tell(format_args!(
                "connection_manager::programs_connect: {} is not installed",
                program.name
            ));
            continue;
        }
        for setting in [Setting::Local, Setting::Udp, Setting::Hosts] {
            port += 1;
            connect(ground, setting, program, server_name, port)?;
        }
    }
    Ok(())
}

fn connect(ground: &Ground, setting: Setting, program: &Program, server_name: &str, port: u16) -> Result<()> {
    let (server, client) = ground.ends(setting);
    let address = server.address;
    let path = setting.path().name();
    let mut end = server.command(&ground.stage.command);
    end.args(["run", "--path", path, "--", server_name]).args(words(program.server, address, port));
    let mut serving = Running::start(end)?;
    await_port(&serving, if program.server.contains("PORT") { port } else { USUAL_PORT })?;
    let deadline = Instant::now() + RUN;
    let mut end = client.command(&ground.stage.command);
    end.args(["run", "--path", path, "--", program.name]).args(words(program.client, address, port));
    let asked = Running::start(end)?.wait_until(deadline);
    if !asked.success() {
        serving.kill();
    }
    let served = serving.wait_until(deadline);
    for (side, finished) in [("client", &asked), ("server", &served)] {
        ensure!(
            finished.success(),
            "{} over {path}, {side}: {}\n{}\nthe other side:\n{}\n{}",
            program.name,
            finished.verdict(),
            finished.output,
            asked.output,
            served.output
        );
    }
    ensure!(asked.output.contains(program.proof), "{} over {path}:\n{}", program.name, asked.output);
    Ok(())
}

/// Waits until somebody in the server's network namespace owns a port of the connection manager.
///
/// # Errors
/// If nobody does in time.
pub(crate) fn await_port(server: &Running, port: u16) -> Result<()> {
    let end = Instant::now() + RUN;
    let names = format!("/proc/{}/net/unix", server.pid());
    while Instant::now() < end {
        let owned = std::fs::read_to_string(&names).unwrap_or_default();
        if owned.lines().any(|line| line.contains("@pagewire-cm-") && line.ends_with(&format!("-{port}"))) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    bail!("nobody owns port {port}")
}

fn words(pattern: &str, address: Ipv4Addr, port: u16) -> Vec<String> {
    pattern
        .split_whitespace()
        .map(|word| word.replace("ADDRESS", &address.to_string()).replace("PORT", &port.to_string()))
        .collect()
}

/// Where nobody listens a client learns it at once.
///
/// # Errors
/// If a client waits.
pub fn refusals_are_announced(ground: &Ground) -> Result<()> {
    if find_program("rping").is_none() {
        not_checked::tell("connection_manager::refusals_are_announced: rping is not installed");
        return Ok(());
    }
    for setting in [Setting::Local, Setting::Hosts] {
        let (server, client) = ground.ends(setting);
        let path = setting.path().name();
        let mut end = client.command(&ground.stage.command);
        let address = server.address.to_string();
        end.args(["run", "--path", path, "--", "rping", "-c", "-a", &address, "-p", "18690"]);
        let start = Instant::now();
        // Between hosts nobody answers where no Pagewire runs.
        let mut listener = None;
        if matches!(setting, Setting::Hosts) {
            let mut other = server.command(&ground.stage.command);
            other.args(["run", "--", "rping", "-s", "-a", &address, "-p", "18691"]);
            let other = Running::start(other)?;
            await_port(&other, 18_691)?;
            listener = Some(other);
        }
        let refused = Running::start(end)?.wait_until(Instant::now() + RUN);
        ensure!(!refused.success(), "{path}: {}", refused.output);
        ensure!(refused.output.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{path}: {}", refused.output);
        ensure!(start.elapsed() < RUN / 2, "{path}: refused after {:?}", start.elapsed());
        if let Some(mut listener) = listener {
            listener.kill();
        }
    }
    Ok(())
}
