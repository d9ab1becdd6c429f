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

/// A program with the command of its server and the words of its client; ADDRESS is the server's, PORT one that no other run has.
struct Program {
    name: &'static str,
    server: &'static str,
    client: &'static str,
    /// What the client prints if all data were right.
    proof: &'static str,
    /// Whether the server ends after this client. Else it is killed.
    server_ends: bool,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "rping",
        server: "rping -s -a ADDRESS -p PORT -C 5 -V",
        client: "-c -a ADDRESS -p PORT -C 5 -V -v",
        proof: "ping data: rdma-ping-4",
        server_ends: true,
    },
    Program {
        name: "ucmatose",
        server: "ucmatose -p PORT -c 3 -C 5",
        client: "-s ADDRESS -p PORT -c 3 -C 5",
        proof: "return status 0",
        server_ends: true,
    },
    Program {
        name: "udaddy",
        // Its -p is a port space.
        server: "udaddy -c 2 -C 5",
        client: "-s ADDRESS -c 2 -C 5",
        proof: "return status 0",
        server_ends: true,
    },
    Program {
        name: "rdma_client",
        server: "rdma_server -p PORT",
        client: "-s ADDRESS -p PORT",
        proof: "rdma_client: end 0",
        server_ends: true,
    },
    Program {
        name: "rstream",
        server: "rstream -p PORT -S 4096 -C 20 -T v",
        client: "-s ADDRESS -p PORT -S 4096 -C 20 -T v",
        proof: "custom",
        server_ends: true,
    },
    Program {
        name: "rdma_xclient",
        server: "rdma_xserver -p PORT",
        client: "-s ADDRESS -p PORT",
        proof: "rdma_xclient: end 0",
        server_ends: true,
    },
    Program {
        name: "riostream",
        server: "riostream -p PORT -S 65536 -C 20 -T v",
        client: "-s ADDRESS -p PORT -S 65536 -C 20 -T v",
        proof: "custom",
        server_ends: true,
    },
    Program {
        name: "udpong",
        // Datagrams, which it also sends to itself.
        server: "udpong -b ADDRESS -p PORT",
        client: "-s ADDRESS -p PORT -S 1000 -C 20 -T e",
        proof: "custom",
        server_ends: false,
    },
    Program {
        name: "cmtime",
        server: "cmtime -p PORT",
        client: "-s ADDRESS -p PORT -c 20",
        proof: "destroy ",
        server_ends: false,
    },
    Program {
        name: "ib_write_bw",
        server: "ib_write_bw -R -F -p PORT -n 100 -q 2",
        client: "-R -F -p PORT -n 100 -q 2 ADDRESS",
        proof: "65536 ",
        server_ends: true,
    },
    Program {
        name: "ib_send_lat",
        server: "ib_send_lat -R -F -p PORT -n 100",
        client: "-R -F -p PORT -n 100 ADDRESS",
        proof: "99% percentile",
        server_ends: true,
    },
    Program {
        name: "ib_atomic_lat",
        // It ends before its connection does.
        server: "ib_atomic_lat -R -F -p PORT -n 100",
        client: "-R -F -p PORT -n 100 ADDRESS",
        proof: "99% percentile",
        server_ends: true,
    },
    Program {
        name: "fio",
        server: "fio --name=server --ioengine=rdma --bs=64k --size=1m --port=PORT --rw=read --iodepth=8",
        client: "--name=client --ioengine=rdma --bs=64k --size=1m --port=PORT --hostname=ADDRESS --verb=write --rw=write",
        proof: "err= 0",
        server_ends: true,
    },
];

/// Each program connects, transfers and disconnects, and both ends say that it was right.
///
/// # Errors
/// If one does not.
pub fn programs_connect(ground: &Ground) -> Result<()> {
    let mut port = 18_600_u16;
    for program in PROGRAMS {
        let server_name = program.server.split_whitespace().next().unwrap_or(program.name);
        if find_program(server_name).is_none() || find_program(program.name).is_none() {
            not_checked::tell(format_args!(
                "connection_manager::programs_connect: {} is not installed",
                program.name
            ));
            continue;
        }
        for setting in [Setting::Local, Setting::Udp, Setting::Hosts] {
            port += 1;
            connect(ground, setting, program, port)?;
        }
    }
    Ok(())
}

fn connect(ground: &Ground, setting: Setting, program: &Program, port: u16) -> Result<()> {
    let (server, client) = ground.ends(setting);
    let address = server.address;
    let path = setting.path().name();
    let mut end = server.command(&ground.stage.command);
    end.args(["run", "--path", path, "--"]).args(words(program.server, address, port));
    let mut serving = Running::start(end)?;
    await_port(&serving, if program.server.contains("PORT") { port } else { USUAL_PORT })?;
    let deadline = Instant::now() + RUN;
    let mut end = client.command(&ground.stage.command);
    end.args(["run", "--path", path, "--", program.name]).args(words(program.client, address, port));
    let asked = Running::start(end)?.wait_until(deadline);
    if !asked.success() || !program.server_ends {
        serving.kill();
    }
    let served = serving.wait_until(deadline);
    for (side, finished) in [("client", &asked), ("server", &served)] {
        let is_killed = side == "server" && !program.server_ends;
        ensure!(
            finished.success() || is_killed,
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

/// Waits until somebody in the server's network namespace owns a port of the connection manager, or the UDP port by which datagram sockets
/// of librdmacm find each other.
///
/// # Errors
/// If nobody does in time.
pub(crate) fn await_port(server: &Running, port: u16) -> Result<()> {
    let end = Instant::now() + RUN;
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/{}/net/{file}", server.pid())).unwrap_or_default()
    };
    while Instant::now() < end {
        let owns = |line: &str| line.contains("@pagewire-cm-") && line.ends_with(&format!("-{port}"));
        let is_bound = |line: &str| {
            line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
        };
        if read("unix").lines().any(owns) || read("udp").lines().any(is_bound) {
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
