//! The pingpong programs of ibverbs-utils: each with polling and with events, every byte checked by the program.

use crate::ground::{Ground, Setting};
use crate::limits::{LARGEST_PINGPONG, RUN};
use anyhow::{Result, ensure};
use pagewire_cli::hosts::Host;
use pagewire_cli::pair::Running;
use std::path::Path;
use std::time::Instant;

/// A run of a pingpong program.
#[derive(Clone, Debug)]
pub struct Run {
    /// The program.
    pub program: &'static str,
    /// The size of a message in bytes.
    pub size: u64,
    /// Whether it sleeps on completion events.
    pub events: bool,
    /// The options by which it asks for on-demand paging.
    pub paging: &'static [&'static str],
}

impl Run {
    /// What tells it from other runs.
    pub fn title(&self) -> String {
        let mut words = vec![self.program.to_owned(), "-s".to_owned(), self.size.to_string()];
        words.extend(self.events.then(|| "-e".to_owned()));
        words.extend(self.paging.iter().map(|option| (*option).to_owned()));
        words.join(" ")
    }
}

/// Programs that know on-demand paging, with the options for regions, implicit ones, and prefetching.
const PAGING: [(&str, &[&str]); 5] = [
    ("ibv_rc_pingpong", &["-o"]),
    ("ibv_rc_pingpong", &["-O"]),
    ("ibv_rc_pingpong", &["-o", "-P"]),
    ("ibv_rc_pingpong", &["-O", "-P"]),
    ("ibv_srq_pingpong", &["-o"]),
];

/// The largest datagram: ibv_ud_pingpong takes the port's active MTU as its bound.
const LARGEST_DATAGRAM: u64 = 4096;

/// All runs: every program, the sizes from 1 byte up around the MTUs and the pages, with and without events; and on-demand paging.
pub fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong", "ibv_ud_pingpong"] {
        for size in [1, 7, 256, 1023, 1024, 1025, 2048, 4096, 4097, 65_536, 1 << 20, LARGEST_PINGPONG] {
            if program == "ibv_ud_pingpong" && size > LARGEST_DATAGRAM {
                continue;
            }
            for events in [false, true] {
                runs.push(Run { program, size, events, paging: &[] });
            }
        }
    }
    for (program, paging) in PAGING {
        for size in [1, 4096, 65_536, 1 << 20] {
            runs.push(Run { program, size, events: false, paging });
        }
    }
    runs
}

/// Whether a run is in the quick part.
pub fn is_quick(run: &Run) -> bool {
    let sizes = matches!(run.size, 1 | 1025 | 4096 | 65_536) || run.size == LARGEST_PINGPONG && !run.events;
    sizes && (run.paging.is_empty() || run.size == 65_536)
}

/// Runs it; both ends must succeed over the path asked for.
///
/// # Errors
/// If they do not; the programs themselves check every byte (-c).
pub fn check(ground: &Ground, setting: Setting, run: &Run) -> Result<()> {
    let size = run.size.to_string();
    let messages = match run.size {
        0..=65_536 => "200",
        65_537..=1_048_576 => "20",
        _ => "5",
    };
    let mut arguments = vec!["-g", "0", "-c", "-s", &size, "-n", messages];
    if run.size > 65_536 {
        // ibv_srq_pingpong wants one receive at least for each of its 16 QPs.
        arguments.extend(["-r", "16"]);
    }
    if run.events {
        arguments.push("-e");
    }
    arguments.extend(run.paging);
    ground.must_run(setting, run.program, &arguments).map(drop)
}

/// ibv_xsrq_pingpong, over XRC: its message sizes. It looks at no byte.
pub const XRC_SIZES: [&str; 3] = ["1", "4096", "100000"];

/// Runs it with polling and with events.
///
/// # Errors
/// If an end fails.
pub fn over_xrc(ground: &Ground, setting: Setting, size: &str) -> Result<()> {
    for options in [&[][..], &["-e"]] {
        let arguments = [&["-g", "0", "-n", "200", "-s", size], options].concat();
        ground.must_run(setting, "ibv_xsrq_pingpong", &arguments)?;
    }
    Ok(())
}

/// The file that names the domain of ibv_xsrq_pingpong.
const XRC_FILE: &str = "/tmp/xrc_domain";

/// Clients of one ibv_xsrq_pingpong.
pub const XRC_CLIENTS: [u16; 2] = [2, 3];

/// Runs ibv_xsrq_pingpong with several clients: the server sends to the shared receive queue of each by the queue pairs of all, so that the
/// clients of one host serve each other's queues. With polling and with events.
///
/// # Errors
/// If a process fails or hangs.
pub fn over_shared_xrc(ground: &Ground, setting: Setting, clients: u16) -> Result<()> {
    let (server_host, client_host) = ground.ends(setting);
    let is_readable = || client_host.command("test").args(["-r", XRC_FILE]).status();
    if Path::new(XRC_FILE).exists() {
        // Without it the program goes on with domains that nobody shares, and hangs.
        ensure!(
            is_readable()?.success(),
            "{XRC_FILE} is another user's, so that no domain can be shared: remove it"
        );
    }
    for (options, which) in [(&[][..], 0), (&["-e"], 1)] {
        let port = 18_700 + 16 * setting as u16 + 2 * clients + which;
        let end = |host: &Host, rest: &[&str]| {
            let mut command = host.command(&ground.stage.command);
            command.args(["run", "--path", setting.path().name(), "--", "ibv_xsrq_pingpong", "-g", "0"]);
            command.args(["-n", "50", "-p", &port.to_string()]).args(options).args(rest);
            command
        };
        let count = clients.to_string();
        let mut server = Running::start(end(server_host, &["-c", &count]))?;
        ensure!(server.wait_listening(port), "the server did not listen");
        let address = server_host.address.to_string();
        let mut all = vec![("the server".to_owned(), server)];
        for client in 1..=clients {
            all.push((format!("client {client}"), Running::start(end(client_host, &[&address]))?));
        }
        let deadline = Instant::now() + RUN;
        let ended: Vec<_> =
            all.into_iter().map(|(name, running)| (name, running.wait_until(deadline))).collect();
        for (name, finished) in &ended {
            ensure!(finished.success(), "{name} of {clients}: {}\n{}", finished.verdict(), finished.output);
        }
    }
    Ok(())
}
